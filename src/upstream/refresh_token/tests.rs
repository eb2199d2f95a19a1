//! Tokens by a refresh token: what is sent, what is kept, and what is made of refusals.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tempfile::TempDir;
use url::{Url, form_urlencoded};

use super::*;
use crate::config::Credential;
use crate::fake_http::{Agent, Reply, Seen};
use crate::model::catalog::hex;
use crate::oauth::TokenError;
use crate::state_dir::StateDir;
use crate::upstream::{PostCredential, ResultPost, SendError, Upstream, UpstreamCredential};

/// A credential that does not change.
impl PostCredential for UpstreamCredential {
    fn now(&self) -> UpstreamCredential {
        self.clone()
    }

    fn refused(&self, _: &UpstreamCredential) {}

    fn taken(&self, _: &UpstreamCredential) {}

    async fn wait_for_replacement(&self, _: &UpstreamCredential) {
        std::future::pending::<()>().await;
    }
}

const SECRET: &str = "s3cret-canary";

/// MANTYX and its token endpoint, a directory to keep things in, and the bridge's side of it.
struct Scene {
    mantyx: Agent,
    dir: TempDir,
}

impl Scene {
    async fn new(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self { mantyx: Agent::start(answer).await, dir: tempfile::tempdir().unwrap() }
    }

    fn credential(&self, refresh_token: &str) -> Credential {
        Credential::Oauth(Arc::new(RefreshGrant {
            token_url: self.mantyx.url.join("token").unwrap().into(),
            client_id: "bridge".to_owned(),
            client_secret: SECRET.to_owned().into(),
            refresh_token: refresh_token.to_owned().into(),
        }))
    }

    /// As one that was just started.
    fn upstream(&self, refresh_token: &str) -> Upstream {
        let state = StateDir::new(self.dir.path().to_owned());
        let base = Url::parse(self.mantyx.url.as_str()).unwrap();
        Upstream::new(base, None, &self.credential(refresh_token), state)
    }

    /// The forms that came to the token endpoint.
    fn asked(&self) -> Vec<String> {
        let forms = self.mantyx.seen().into_iter().filter(|seen| seen.path == "/token");
        forms.map(|seen| seen.body).collect()
    }

    /// The refresh tokens in them.
    fn shown(&self) -> Vec<String> {
        let value = |form: &String| {
            let mut pairs = form_urlencoded::parse(form.as_bytes());
            pairs.find(|(key, _)| key == "refresh_token").unwrap().1.into_owned()
        };
        self.asked().iter().map(value).collect()
    }
}

async fn get(upstream: &Upstream) -> Result<u16, SendError> {
    let own = upstream.own().unwrap();
    let sent = upstream.send((Method::GET, "/api/x"), &own, Ok).await;
    sent.map(|response| response.status().as_u16())
}

/// A token endpoint that numbers its tokens, and what else is there, which takes the last one.
/// `next` is the refresh token that it gives for one.
fn issuer(
    next: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Reply {
    let issued = Mutex::new(0);
    move |seen| {
        let mut issued = issued.lock();
        if seen.path != "/token" {
            let good = seen.header("authorization") == format!("Bearer a{issued}");
            return Reply::json("{}".into()).but(if good { 200 } else { 401 });
        }
        let mut form = form_urlencoded::parse(seen.body.as_bytes());
        let shown = form.find(|(key, _)| key == "refresh_token").unwrap().1;
        let Some(next) = next(&shown) else {
            return Reply::json(json!({"error": "invalid_grant"}).to_string()).but(400);
        };
        *issued += 1;
        let token = format!("a{issued}");
        let answer = json!({"access_token": token, "expires_in": 3600, "refresh_token": next});
        Reply::json(answer.to_string())
    }
}

#[tokio::test]
async fn many_requests_ask_for_one_token() {
    let scene = Scene::new(issuer(|shown| Some(shown.to_owned()))).await;
    let upstream = scene.upstream("r1-canary");
    let all = futures_util::future::join_all((0..50).map(|_| get(&upstream))).await;
    assert!(all.iter().all(|status| *status.as_ref().unwrap() == 200));
    let form = format!(
        "grant_type=refresh_token&refresh_token=r1-canary&client_id=bridge&client_secret={SECRET}"
    );
    assert_eq!(scene.asked(), [form]);
    assert!(!scene.dir.path().join("upstream-refresh-token").exists(), "it is the same one");
    assert!(!format!("{upstream:?}").contains("canary"), "{upstream:?}");
}

#[tokio::test]
async fn a_refused_token_is_replaced_and_the_request_made_again() {
    let refused = Mutex::new(false);
    let issuer = issuer(|shown| Some(shown.to_owned()));
    let scene = Scene::new(move |seen| {
        // Once, as if the token had been revoked.
        if seen.path != "/token" && !std::mem::replace(&mut refused.lock(), true) {
            return Reply::status(401);
        }
        issuer(seen)
    })
    .await;
    let upstream = scene.upstream("r1");
    assert_eq!(get(&upstream).await.unwrap(), 200);
    assert_eq!(scene.asked().len(), 2);
}

#[tokio::test]
async fn a_body_that_is_gone_is_not_sent_in_half() {
    let scene = Scene::new(|seen| match seen.path.as_str() {
        "/token" => Reply::json(json!({"access_token": "a"}).to_string()),
        _ => Reply::status(401),
    })
    .await;
    let upstream = scene.upstream("r1");
    let body = Mutex::new(Some("body"));
    let own = upstream.own().unwrap();
    let sent = upstream.send((Method::POST, "/api/x"), &own, |request| {
        let body = body.lock().take().ok_or(SendError::NotTwice)?;
        Ok(request.body(body))
    });
    assert!(matches!(sent.await, Err(SendError::NotTwice)));
    let posts = scene.mantyx.seen().into_iter().filter(|seen| seen.path == "/api/x");
    assert_eq!(posts.map(|seen| seen.body).collect::<Vec<_>>(), ["body"]);
}

#[tokio::test]
async fn a_new_refresh_token_is_kept_until_the_configured_one_changes() {
    // Each is good once, and gives the next one.
    let good = Mutex::new(("r1".to_owned(), 1));
    let scene = Scene::new(issuer(move |shown| {
        let mut good = good.lock();
        if shown == "other" {
            return Some(shown.to_owned());
        }
        if shown != good.0 {
            return None;
        }
        good.1 += 1;
        good.0 = format!("r{}", good.1);
        Some(good.0.clone())
    }))
    .await;
    for _ in 0..3 {
        assert_eq!(get(&scene.upstream("r1")).await.unwrap(), 200);
    }
    assert_eq!(get(&scene.upstream("other")).await.unwrap(), 200);
    assert_eq!(scene.shown(), ["r1", "r2", "r3", "other"]);
    let file = scene.dir.path().join("upstream-refresh-token");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_token_that_another_process_was_given_is_found() {
    let scene = Scene::new(issuer(|shown| (shown == "r2").then(|| "r2".to_owned()))).await;
    let state = StateDir::new(scene.dir.path().to_owned());
    let Credential::Oauth(config) = scene.credential("r1") else { panic!("just made") };
    let grant = RefreshTokenGrant::new(config, http_client(), StoredToken::new(state.clone()));
    let of = hex(&grant.id());
    let (first, second) = (grant.refresh_token().await, SecretString::from("r2".to_owned()));
    assert_eq!(first.expose_secret(), "r1");
    let refused = grant.issue(None).await.unwrap_err();
    assert!(refused.grant_ended && !refused.passes, "{refused:?}");
    state.write_refresh_token(&of, &second).unwrap();
    assert!(grant.issue(None).await.is_ok());
    assert_eq!(scene.shown(), ["r1", "r2"]);
}

fn http_client() -> Client {
    crate::http_client::new()
}

#[tokio::test]
async fn token_that_cannot_be_kept_is_used() {
    let scene = Scene::new(issuer(|shown| Some(format!("{shown}+")))).await;
    let file = scene.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let Credential::Oauth(config) = scene.credential("r") else { panic!("just made") };
    let grant =
        RefreshTokenGrant::new(config, http_client(), StoredToken::new(StateDir::new(file)));
    for _ in 0..3 {
        assert!(grant.issue(None).await.is_ok());
    }
    assert_eq!(scene.shown(), ["r", "r+", "r++"]);
}

/// An issuer that gives each refresh token once, `r1` first; and takes so long for an answer.
fn rotating(takes: Duration) -> impl Fn(&Seen) -> Reply {
    let good = Mutex::new(1);
    issuer(move |shown| {
        let mut good = good.lock();
        if shown != format!("r{good}") {
            return None;
        }
        *good += 1;
        // It is given before the answer is on its way.
        std::thread::park_timeout(takes);
        Some(format!("r{good}"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_hangs_up_loses_no_refresh_token() {
    let scene = Scene::new(rotating(Duration::from_millis(100))).await;
    let upstream = scene.upstream("r1");
    for round in 1..=5 {
        // It is gone while the issuer answers.
        let gone = async {
            while scene.asked().len() < round {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = gone => (),
            sent = get(&upstream) => panic!("{sent:?}"),
        }
        // So is a second one that waits for the same.
        let waits = Duration::from_millis(10);
        assert!(tokio::time::timeout(waits, get(&upstream)).await.is_err());
        assert_eq!(get(&upstream).await.unwrap(), 200, "{round}");
        // A reload that changes the way to MANTYX forgets the token, and not what renews it.
        upstream.own.send_replace(None);
        upstream.set(None, &scene.credential("r1"));
    }
    assert_eq!(scene.shown(), ["r1", "r2", "r3", "r4", "r5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_token_is_kept_before_a_stop() {
    let scene = Scene::new(rotating(Duration::from_millis(300))).await;
    let upstream = scene.upstream("r1");
    assert!(tokio::time::timeout(Duration::from_millis(100), get(&upstream)).await.is_err());
    upstream.finish().await;
    drop(upstream);
    assert_eq!(get(&scene.upstream("r1")).await.unwrap(), 200);
    assert_eq!(scene.shown(), ["r1", "r2"]);
}

#[tokio::test]
async fn a_token_that_could_not_be_written_is_written_when_it_can_be() {
    for stops in [false, true] {
        let scene = Scene::new(rotating(Duration::ZERO)).await;
        let place = scene.dir.path().join("state");
        let upstream = || {
            let base = Url::parse(scene.mantyx.url.as_str()).unwrap();
            Upstream::new(base, None, &scene.credential("r1"), StateDir::new(place.clone()))
        };
        let file = place.join("upstream-refresh-token");
        let kept = || std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&place, "no directory").unwrap();
        let first = upstream();
        assert_eq!(get(&first).await.unwrap(), 200);
        // A reload that changes the way to MANTYX begins with what could not be written.
        first.own.send_replace(None);
        first.set(None, &scene.credential("r1"));
        assert_eq!(get(&first).await.unwrap(), 200);
        std::fs::remove_file(&place).unwrap();
        if stops {
            first.finish().await;
        }
        while !kept().contains("\"r3\"") {
            assert!(!stops, "a stop waits for a last attempt: {}", kept());
            tokio::task::yield_now().await;
        }
        assert_eq!(get(&upstream()).await.unwrap(), 200);
        assert_eq!(scene.shown(), ["r1", "r2", "r3"]);
    }
}

#[tokio::test]
async fn a_grant_that_has_ended_is_a_problem_and_makes_no_loop() {
    let scene = Scene::new(issuer(|_| None)).await;
    let upstream = scene.upstream("r1");
    for _ in 0..20 {
        let error = get(&upstream).await.unwrap_err();
        assert!(matches!(error, SendError::Token(TokenError::NoToken(_))), "{error}");
        assert!(error.to_string().ends_with("answered 400 invalid_grant"), "{error}");
    }
    assert_eq!(scene.asked().len(), 1);
    assert!(upstream.token_failure().unwrap().grant_ended);
    // Another one, by a reload, is asked with at once.
    upstream.set(None, &scene.credential("r2"));
    assert!(upstream.token_failure().is_none());
    assert!(get(&upstream).await.is_err());
    assert_eq!(scene.shown(), ["r1", "r2"]);
    // The same one, by another reload, is not.
    upstream.set(None, &scene.credential("r2"));
    assert!(get(&upstream).await.is_err());
    assert_eq!(scene.asked().len(), 2);
}

#[tokio::test]
async fn a_result_waits_for_a_token_and_is_posted() {
    let down = Mutex::new(true);
    let issuer = issuer(|shown| Some(shown.to_owned()));
    let scene = Scene::new(move |seen| {
        if seen.path == "/token" && std::mem::replace(&mut down.lock(), false) {
            return Reply::status(503);
        }
        issuer(seen)
    })
    .await;
    let upstream = scene.upstream("r1");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let own = upstream.own().unwrap();
    let post = ResultPost { path: "/api/result", body: "{}".into(), trace: None, deadline };
    let posted = upstream.post_result(post, &own).await;
    assert_eq!(posted, crate::upstream::Posted::Accepted);
    assert_eq!(scene.asked().len(), 2);
}
