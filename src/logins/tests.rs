//! A login from its begin to its end, at an issuer that does what a test says.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;
use url::form_urlencoded;

use super::*;
use crate::config::{Mcp, OauthClient, Target};
use crate::fake_http::{Agent, Reply, Seen};
use crate::oauth::TokenError;

/// What the token endpoint answers to a form; the number counts its requests from 1.
type TokenScript = dyn Fn(usize, &BTreeMap<String, String>) -> Reply + Send + Sync;

struct Scene {
    agent: Agent,
    dir: TempDir,
    logins: Arc<Logins>,
    login: Arc<Login>,
}

fn name() -> BackendName {
    BackendName::parse("notion").unwrap()
}

fn form(body: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(body.as_bytes()).into_owned().collect()
}

/// Tokens with a number.
fn tokens(number: usize) -> Value {
    json!({
        "access_token": format!("canary-a{number}"),
        "token_type": "Bearer",
        "expires_in": 3600,
        "refresh_token": format!("canary-r{number}"),
    })
}

/// A server that takes the newest token, its metadata, and its issuer.
fn server(script: Box<TokenScript>, document: Value) -> impl Fn(&Seen) -> Reply + Send + Sync {
    let issued = AtomicUsize::new(0);
    move |seen| {
        let base = format!("http://{}", seen.header("host"));
        let with_base = |document: &Value| Reply::json(document.to_string().replace("BASE", &base));
        match seen.path.as_str() {
            "/.well-known/oauth-protected-resource/mcp" => with_base(&json!({
                "resource": "BASE/mcp", "authorization_servers": ["BASE"], "scopes_supported": ["read"],
            })),
            "/.well-known/oauth-authorization-server" => with_base(&document),
            "/register" => Reply::json(json!({ "client_id": "c1" }).to_string()).but(201),
            "/token" => {
                let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
                script(number, &form(&seen.body))
            }
            "/revoke" => Reply::status(200),
            "/mcp" => {
                let newest = format!("Bearer canary-a{}", issued.load(Ordering::SeqCst));
                let is_good = seen.header("authorization") == newest;
                Reply::json("{}".to_owned()).but(if is_good { 200 } else { 401 })
            }
            _ => Reply::status(404),
        }
    }
}

fn metadata() -> Value {
    json!({
        "issuer": "BASE",
        "authorization_endpoint": "BASE/authorize",
        "token_endpoint": "BASE/token",
        "registration_endpoint": "BASE/register",
        "revocation_endpoint": "BASE/revoke",
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
    })
}

impl Scene {
    async fn start(
        script: impl Fn(usize, &BTreeMap<String, String>) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(script, metadata()).await
    }

    async fn start_with(
        script: impl Fn(usize, &BTreeMap<String, String>) -> Reply + Send + Sync + 'static,
        document: Value,
    ) -> Self {
        let agent = Agent::start(server(Box::new(script), document)).await;
        let dir = TempDir::new().unwrap();
        let (logins, login) = open(&agent, &dir);
        Self { agent, dir, logins, login }
    }

    /// The logins of a daemon that starts again.
    fn restart(&mut self) {
        (self.logins, self.login) = open(&self.agent, &self.dir);
    }

    /// Begins; the query of the address at the issuer.
    async fn begin(&self) -> (Begun, BTreeMap<String, String>) {
        let begun = self.logins.begin("notion", &[]).await.unwrap();
        let query = form(Url::parse(&begun.issuer_url).unwrap().query().unwrap());
        (begun, query)
    }

    /// What the issuer sends the browser back with.
    fn back(&self, state: &str) -> String {
        let issuer = self.agent.url.as_str().trim_end_matches('/');
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("code", "canary-code"), ("state", state), ("iss", issuer)])
            .finish()
    }

    async fn log_in(&self) -> LoginResult<BackendName> {
        let (_, query) = self.begin().await;
        let address =
            format!("http://127.0.0.1:7717/oauth/callback?{}", self.back(&query["state"]));
        self.logins.pasted("notion", &address).await
    }

    /// A request to the server.
    async fn request(&self) -> Result<StatusCode, TokenError> {
        let client = http_client::new();
        let url = self.agent.url.join("mcp").unwrap();
        let sent = Tokens::authorize(Some(&self.login.tokens), HeaderMap::new(), async |headers| {
            let response = client.send(client.get(url.clone()).headers(headers)).await;
            Ok::<_, TokenError>(response.unwrap())
        });
        sent.await.map(|response| response.status())
    }

    fn stored(&self) -> Value {
        let path = self.dir.path().join("logins/notion/bridge.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// The forms that came to the token endpoint.
    fn forms(&self) -> Vec<BTreeMap<String, String>> {
        let seen = self.agent.seen().into_iter().filter(|seen| seen.path == "/token");
        seen.map(|seen| form(&seen.body)).collect()
    }

    fn state(&self) -> LoginState {
        self.logins.list()[0].state
    }
}

fn open(agent: &Agent, dir: &TempDir) -> (Arc<Logins>, Arc<Login>) {
    let state = StateDir::new(dir.path().to_owned());
    let public_url = Url::parse("http://127.0.0.1:7717").unwrap();
    let logins = Logins::new(state, &[], public_url, false);
    let login = logins.login(&name());
    let target = Target::Mcp(Mcp::Http {
        url: agent.url.join("mcp").unwrap().into(),
        headers: HeaderMap::new(),
        socket: None,
        transport: crate::config::HttpTransport::Streamable,
        oauth: None,
        tls: None,
        listen: false,
        sessions: false,
    });
    let settings = LoginSettings::for_target(&target).unwrap();
    logins.set(BTreeMap::from([(name(), settings)]));
    (logins, login)
}

fn granted(number: usize, _form: &BTreeMap<String, String>) -> Reply {
    Reply::json(tokens(number).to_string())
}

#[tokio::test]
async fn scopes_of_a_server_without_get_are_those_of_its_refusal() {
    let others = server(Box::new(granted), metadata());
    let agent = Agent::start(move |seen| match (seen.path.as_str(), seen.body.is_empty()) {
        ("/mcp", true) => Reply::status(405),
        ("/mcp", false) => {
            Reply::status(401).with("www-authenticate", r#"Bearer scope="of-the-refusal""#)
        }
        _ => others(seen),
    });
    let (agent, dir) = (agent.await, TempDir::new().unwrap());
    let (logins, login) = open(&agent, &dir);
    let (_, query) = Scene { agent, dir, logins, login }.begin().await;
    assert_eq!(query["scope"], "of-the-refusal");
}

#[tokio::test]
async fn login_asks_for_a_code_and_exchanges_it_with_its_verifier() {
    let scene = Scene::start(granted).await;
    let (begun, query) = scene.begin().await;
    assert!(begun.url.starts_with("http://127.0.0.1:7717/oauth/start/"), "{begun:?}");
    assert_eq!(query["response_type"], "code");
    assert_eq!(query["client_id"], "c1");
    assert_eq!(query["scope"], "read", "of the server's metadata");
    assert_eq!(query["redirect_uri"], "http://127.0.0.1:7717/oauth/callback");
    assert_eq!(query["resource"], scene.agent.url.join("mcp").unwrap().as_str());
    let ticket = begun.url.rsplit('/').next().unwrap();
    let (address, cookie) = scene.logins.start(ticket).unwrap();
    assert_eq!(address.as_str(), begun.issuer_url);
    let back = scene.back(&query["state"]);
    assert!(scene.logins.returned(&back, &["other"]).await.is_err(), "another browser");
    assert_eq!(scene.logins.returned(&back, &[cookie.expose_secret()]).await.unwrap(), name());
    let exchange = &scene.forms()[0];
    assert_eq!(exchange["code"], "canary-code");
    assert_eq!(exchange["client_id"], "c1");
    assert_eq!(exchange["resource"], query["resource"]);
    let challenge = digest(&exchange["code_verifier"]);
    use base64::Engine as _;
    let challenge = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(challenge);
    assert_eq!(query["code_challenge"], challenge);
    assert_eq!(scene.request().await.unwrap(), 200);
    let [attempt] = &scene.logins.attempts()[..] else { panic!("one") };
    assert_eq!((attempt.id.as_str(), &attempt.outcome), (begun.id.as_str(), &Some(Ok(()))));
}

/// A tab that is closed while the code is exchanged must not leave the command line waiting.
#[tokio::test]
async fn login_ends_for_those_who_wait_although_its_browser_has_gone() {
    let scene = Scene::start(granted).await;
    let (begun, query) = scene.begin().await;
    let (_, cookie) = scene.logins.start(begun.url.rsplit('/').next().unwrap()).unwrap();
    let back = scene.back(&query["state"]);
    let cookies = [cookie.expose_secret()];
    // Polled once, and dropped.
    assert!(scene.logins.returned(&back, &cookies).now_or_never().is_none());
    let outcome = async {
        loop {
            if let Some(outcome) = scene.logins.attempts()[0].outcome.clone() {
                return outcome;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), outcome).await.expect("the login ends").unwrap();
    assert_eq!(scene.request().await.unwrap(), 200);
}

#[tokio::test]
async fn login_that_another_one_replaces_is_told_and_no_longer_open() {
    let scene = Scene::start(granted).await;
    let begins = join_all((0..70).map(|_| scene.logins.begin("notion", &[]))).await;
    let begun: Vec<Begun> = begins.into_iter().map(Result::unwrap).collect();
    let attempts = scene.logins.attempts();
    let open: Vec<_> = attempts.iter().filter(|attempt| attempt.outcome.is_none()).collect();
    let [last] = &open[..] else { panic!("{} are open", open.len()) };
    for attempt in attempts.iter().filter(|attempt| attempt.outcome.is_some()) {
        let Some(Err(failure)) = &attempt.outcome else { panic!("{attempt:?}") };
        assert!(failure.to_string().contains("another login"), "{failure}");
    }
    let opened = begun.iter().find(|one| one.id == last.id).unwrap();
    assert!(scene.logins.start(opened.url.rsplit('/').next().unwrap()).is_some());
    let replaced = begun.iter().find(|one| one.id != last.id).unwrap();
    assert!(scene.logins.start(replaced.url.rsplit('/').next().unwrap()).is_none());
}

#[tokio::test]
async fn server_wants_a_login_as_soon_as_its_own_was_removed() {
    let scene = Scene::start(granted).await;
    scene.log_in().await.unwrap();
    assert!(!scene.logins.needs_login("notion"));
    scene.logins.logout("notion").await.unwrap().unwrap();
    assert!(scene.logins.needs_login("notion"));
}

#[tokio::test]
async fn login_is_kept_over_a_restart_without_an_exchange() {
    let mut scene = Scene::start(granted).await;
    scene.log_in().await.unwrap();
    scene.restart();
    assert_eq!(scene.request().await.unwrap(), 200);
    assert_eq!(scene.forms().len(), 1);
    assert!(!scene.logins.needs_login("notion"));
}

#[tokio::test]
async fn refusal_without_a_login_is_the_servers_answer_and_leads_to_its_issuer() {
    let scene = Scene::start(granted).await;
    assert_eq!(scene.request().await.unwrap(), 401);
    while !scene.logins.needs_login("notion") {
        tokio::task::yield_now().await;
    }
    assert!(scene.forms().is_empty());
}

/// An issuer that rotates refresh tokens has replaced the old one by then.
#[tokio::test]
async fn new_refresh_token_is_on_disk_though_the_answer_that_brought_it_cannot_be_used() {
    let scene = Scene::start(|number, _| {
        let mut answer = tokens(number);
        if number == 2 {
            answer["token_type"] = "DPoP".into();
        }
        Reply::json(answer.to_string())
    })
    .await;
    scene.log_in().await.unwrap();
    scene.login.tokens.forget();
    scene.request().await.unwrap_err();
    assert_eq!(scene.stored()["refresh"], "canary-r2");
    assert_eq!(scene.state(), LoginState::Ok);
}

#[tokio::test]
async fn refused_tokens_of_many_requests_are_renewed_by_one_exchange() {
    let scene = Scene::start(granted).await;
    scene.log_in().await.unwrap();
    scene.login.tokens.forget();
    let all = join_all((0..64).map(|_| scene.request())).await;
    assert!(all.iter().all(|status| *status.as_ref().unwrap() == 200));
    let forms = scene.forms();
    assert_eq!(forms.len(), 2);
    assert_eq!(forms[1]["refresh_token"], "canary-r1");
    assert_eq!(forms[1]["grant_type"], "refresh_token");
    assert_eq!(scene.stored()["refresh"], "canary-r2");
}

#[tokio::test]
async fn grant_that_has_ended_is_not_tried_again_and_the_next_login_works() {
    let scene = Scene::start(|number, _| match number {
        2 => Reply::json(json!({ "error": "invalid_grant" }).to_string()).but(400),
        number => Reply::json(tokens(number).to_string()),
    })
    .await;
    scene.log_in().await.unwrap();
    scene.login.tokens.forget();
    let error = scene.request().await.unwrap_err().to_string();
    assert!(error.contains("mantyx-bridge login notion"), "{error}");
    assert_eq!(scene.request().await.unwrap(), 401, "without a token");
    assert_eq!((scene.forms().len(), scene.state()), (2, LoginState::Ended));
    assert!(scene.logins.needs_login("notion"));
    assert!(scene.logins.problems("notion")[0].message.contains("invalid_grant"));
    assert!(scene.stored().get("refresh").is_none());
    scene.log_in().await.unwrap();
    assert_eq!((scene.request().await.unwrap(), scene.state()), (StatusCode::OK, LoginState::Ok));
}

#[tokio::test]
async fn error_of_the_issuer_that_passes_ends_nothing() {
    let scene = Scene::start(|number, _| match number {
        2 => Reply::status(503),
        number => Reply::json(tokens(number).to_string()),
    })
    .await;
    scene.log_in().await.unwrap();
    scene.login.tokens.forget();
    scene.request().await.unwrap_err();
    assert_eq!(scene.state(), LoginState::Ok);
    assert_eq!(scene.stored()["refresh"], "canary-r1");
}

#[tokio::test]
async fn logout_forgets_the_login_and_revokes_it() {
    let scene = Scene::start(granted).await;
    assert_eq!(scene.logins.logout("notion").await.unwrap(), None);
    scene.log_in().await.unwrap();
    assert_eq!(scene.logins.logout("notion").await.unwrap(), Some(Revocation::Revoked));
    let revocation = scene.agent.seen().into_iter().find(|seen| seen.path == "/revoke").unwrap();
    let revoked = form(&revocation.body);
    assert_eq!((&*revoked["token"], &*revoked["token_type_hint"]), ("canary-r1", "refresh_token"));
    assert!(!revoked.contains_key("grant_type"));
    assert!(!scene.dir.path().join("logins/notion/bridge.json").exists());
    assert_eq!(scene.request().await.unwrap(), 401);
}

#[tokio::test]
async fn logout_that_leaves_the_file_says_so() {
    let scene = Scene::start(granted).await;
    scene.log_in().await.unwrap();
    let path = scene.dir.path().join("logins/notion/bridge.json");
    std::fs::remove_file(&path).unwrap();
    // No file can be removed there.
    std::fs::create_dir_all(path.join("inner")).unwrap();
    let told = scene.logins.logout("notion").await.unwrap_err().to_string();
    assert!(told.contains("its file is still there"), "{told}");
    assert!(scene.agent.seen().iter().any(|seen| seen.path == "/revoke"), "it is revoked");
    assert!(scene.logins.list().is_empty(), "it is used no more");
}

#[tokio::test]
async fn token_of_another_type_makes_no_login() {
    let scene = Scene::start(|number, _| {
        let mut answer = tokens(number);
        answer["token_type"] = "DPoP".into();
        Reply::json(answer.to_string())
    })
    .await;
    let failure = scene.log_in().await.unwrap_err();
    assert!(failure.to_string().contains("DPoP"), "{failure}");
    assert!(!failure.to_string().contains("canary"), "{failure}");
    assert!(!scene.dir.path().join("logins/notion/bridge.json").exists());
}

#[tokio::test]
async fn answer_of_another_issuer_is_refused_before_its_code_is_used() {
    let scene = Scene::start(granted).await;
    let (_, query) = scene.begin().await;
    let back = scene.back(&query["state"]).replace("iss=", "iss=x");
    let failure = scene.logins.pasted("notion", &format!("http://x/?{back}")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Ended);
    assert!(scene.forms().is_empty());
    assert_eq!(
        scene.logins.pasted("notion", "http://x/").await.unwrap_err().kind,
        FailureKind::Ended
    );
}

#[tokio::test]
async fn issuer_without_registration_is_told_with_the_redirect_uri() {
    let mut document = metadata();
    document.as_object_mut().unwrap().remove("registration_endpoint");
    let scene = Scene::start_with(granted, document).await;
    let failure = scene.logins.begin("notion", &[]).await.unwrap_err().to_string();
    for part in ["auth.oauth.client_id", "http://127.0.0.1:7717/oauth/callback"] {
        assert!(failure.contains(part), "{failure}");
    }
    assert_eq!(scene.logins.begin("other", &[]).await.unwrap_err().kind, FailureKind::NoLogin);
}

#[tokio::test]
async fn login_is_refused_where_replicas_share_the_state() {
    let dir = TempDir::new().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    let public_url = Url::parse("http://127.0.0.1:7717").unwrap();
    let logins = Logins::new(state, &[], public_url, true);
    drop(logins.login(&name()));
    let failure = logins.begin("notion", &[]).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::NoLogin);
    for part in ["`state.postgres`", "replicas", "client credentials"] {
        assert!(failure.to_string().contains(part), "{failure}");
    }
    assert!(!dir.path().join("logins").exists());
}

/// After a downgrade, and again after the next upgrade.
#[tokio::test]
async fn login_of_a_later_format_is_told_and_its_file_stays_until_a_person_logs_in() {
    let mut scene = Scene::start(granted).await;
    scene.log_in().await.unwrap();
    let path = scene.dir.path().join("logins/notion/bridge.json");
    let mut record = scene.stored();
    record["format"] = 2.into();
    let later = record.to_string();
    std::fs::write(&path, &later).unwrap();
    scene.restart();
    assert!(scene.logins.needs_login("notion"));
    let problems = scene.logins.problems("notion");
    assert!(problems.iter().any(|one| one.message.contains("format 2")), "{problems:?}");
    scene.request().await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), later, "it is not written over");
    scene.log_in().await.unwrap();
    assert_eq!(scene.stored()["format"], 1);
}

#[test]
fn only_servers_on_the_network_without_another_credential_take_a_login() {
    let target = |url: &str, oauth: Option<OauthClient>, headers: HeaderMap| {
        Target::Mcp(Mcp::Http {
            url: Url::parse(url).unwrap().into(),
            headers,
            socket: None,
            transport: crate::config::HttpTransport::Either,
            oauth,
            tls: None,
            listen: true,
            sessions: false,
        })
    };
    let takes = |target: Target| LoginSettings::for_target(&target).is_some();
    assert!(takes(target("https://mcp.test/mcp", None, HeaderMap::new())));
    assert!(takes(target("http://127.0.0.1:1/mcp", None, HeaderMap::new())));
    assert!(takes(target(
        "https://mcp.test/mcp",
        Some(OauthClient::Login(Arc::default())),
        HeaderMap::new()
    )));
    assert!(!takes(target("http://mcp.test/mcp", None, HeaderMap::new())), "in the open");
    let bearer = HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer x".parse().unwrap())]);
    assert!(!takes(target("https://mcp.test/mcp", None, bearer)));
}
