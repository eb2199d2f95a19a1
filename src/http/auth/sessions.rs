//! Sessions of the status page: a cookie stands for the token that a person typed.
//!
//! Neither the browser nor the bridge keeps the token itself, and a session ends when no app has
//! the token any more. Browsers send a cookie to every port of a host, so another program on this
//! host may see it. A session therefore opens less than its token (`Access::AppOrSession`): the
//! data and the buttons of the page. Making calls and deciding on them needs the session's key as
//! well (`Access::AppOrSessionWithKey`). The page gets the key once, and keeps it in storage that
//! the browser binds to one port.
//!
//! Must not: let anyone in by anything but a cookie that was made here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::forms::Forms;
use super::{HashMap, TokenHash};
use crate::model::catalog::hex;

/// How long a session lasts.
const LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a link to sign in can be followed, once.
const LINK_LIFE: Duration = Duration::from_secs(60);
/// The most such links of one token; beyond that, its oldest one ends.
const MAX_LINKS: usize = 16;
/// The most sessions at once. Beyond that, the token with the most sessions loses its oldest one,
/// so that a person who signs in many times does not sign out others.
const MAX: usize = 256;

/// The header in which the page shows the key of its session.
pub const KEY_HEADER: &str = "x-bridge-key";

/// All sessions of this process.
#[derive(Debug, Default)]
pub struct Sessions {
    /// By the hash of the cookie's value.
    open: Mutex<HashMap<[u8; 32], Session>>,
    /// The links to sign in, the oldest first.
    links: Mutex<VecDeque<Link>>,
    /// Notifies that a session has ended before its time.
    ended: watch::Sender<()>,
    /// Reads the sign-in forms.
    pub forms: Forms,
}

#[derive(Debug)]
struct Session {
    token: TokenHash,
    /// The hash of its key.
    key: [u8; 32],
    until: Instant,
}

#[derive(Debug)]
struct Link {
    /// The hash of what is in the link.
    ticket: [u8; 32],
    /// The token whose app the link lets in.
    token: TokenHash,
    until: Instant,
}

/// A new session, as the browser gets it.
#[derive(Debug)]
pub struct NewSession {
    /// For `Set-Cookie`.
    pub cookie: HeaderValue,
    /// For the page's script, which sends it in [`KEY_HEADER`].
    pub key: String,
}

/// The operating system returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("no random bytes: {0}")]
pub struct NoRandom(#[from] getrandom::Error);

impl Sessions {
    /// Begins a session with `token`. `headers` are the request's, and `secure` says that the
    /// browser's connection is encrypted.
    pub fn begin(
        &self,
        token: TokenHash,
        headers: &HeaderMap,
        secure: bool,
    ) -> Result<NewSession, NoRandom> {
        let value = random()?;
        let key = random()?;
        let now = Instant::now();
        let mut open = self.open.lock();
        open.retain(|_, session| session.until > now);
        if open.len() >= MAX {
            let tokens = open.values().map(|session| session.token);
            let most_used = tokens.max_by_key(|token| {
                open.values().filter(|session| session.token == *token).count()
            });
            let candidates = open.iter().filter(|(_, session)| Some(session.token) == most_used);
            let oldest = candidates.min_by_key(|(_, session)| session.until);
            if let Some(oldest) = oldest.map(|(hash, _)| *hash) {
                open.remove(&oldest);
                self.ended.send_replace(());
            }
        }
        let session = Session { token, key: hash(&key), until: now + LIFE };
        open.insert(hash(&value), session);
        Ok(NewSession { cookie: cookie(headers, &value, LIFE, secure), key })
    }

    /// What a link holds that lets a browser in with `token`, once and within a minute.
    pub fn link(&self, token: TokenHash) -> Result<String, NoRandom> {
        let ticket = random()?;
        let mut links = self.links.lock();
        if links.iter().filter(|link| link.token == token).count() == MAX_LINKS {
            let oldest = links.iter().position(|link| link.token == token);
            oldest.and_then(|oldest| links.remove(oldest));
        }
        links.push_back(Link { ticket: hash(&ticket), token, until: Instant::now() + LINK_LIFE });
        Ok(ticket)
    }

    /// The token that a link lets in with. It does so once.
    pub fn follow(&self, ticket: &str) -> Option<TokenHash> {
        let ticket_hash = hash(ticket);
        let mut links = self.links.lock();
        let at = links.iter().position(|link| link.ticket == ticket_hash)?;
        let link = links.remove(at)?;
        if Instant::now() < link.until { Some(link.token) } else { None }
    }

    /// The token that the request's cookie stands for.
    pub fn token(&self, headers: &HeaderMap) -> Option<TokenHash> {
        let cookie_hash = hash(value_of(headers)?);
        let open = self.open.lock();
        let session = open.get(&cookie_hash)?;
        if session.until > Instant::now() { Some(session.token) } else { None }
    }

    /// Whether the request shows the key of its cookie's session.
    pub fn has_key(&self, headers: &HeaderMap) -> bool {
        let key = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok());
        let (Some(value), Some(key)) = (value_of(headers), key) else { return false };
        self.open.lock().get(&hash(value)).is_some_and(|session| session.key == hash(key))
    }

    /// Ends the session of the request's cookie, and returns a value for `Set-Cookie`.
    pub fn end(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(value) = value_of(headers) {
            self.open.lock().remove(&hash(value));
            self.ended.send_replace(());
        }
        cookie(headers, "", Duration::ZERO, false)
    }

    /// A future that resolves when the session of the request's cookie ends; `None` if there is no
    /// session.
    pub fn over(self: &Arc<Self>, headers: &HeaderMap) -> Option<impl Future<Output = ()> + use<>> {
        let this = Arc::clone(self);
        let cookie_hash = hash(value_of(headers)?);
        let mut early_ends = self.ended.subscribe();
        let until = self.open.lock().get(&cookie_hash)?.until;
        Some(async move {
            let removal = early_ends.wait_for(|()| !this.open.lock().contains_key(&cookie_hash));
            // An error means that the daemon is shutting down.
            timeout_at(until, removal).await.ok();
        })
    }
}

fn random() -> Result<String, NoRandom> {
    let mut random = [0; 32];
    crate::random::fill(&mut random)?;
    Ok(hex(&random))
}

/// Sessions are looked up by this hash, so that the time of a look-up reveals nothing about valid
/// values.
fn hash(value: &str) -> [u8; 32] {
    Sha256::digest(value).into()
}

/// The cookie's name contains the port: bridges on other ports of a host share its cookies, and
/// would overwrite one another's.
fn name_of(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let digits: String = port.chars().filter(char::is_ascii_digit).collect();
    format!("mantyx_bridge_{digits}")
}

fn cookie(headers: &HeaderMap, value: &str, life: Duration, secure: bool) -> HeaderValue {
    let name = name_of(headers);
    let seconds = life.as_secs();
    let secure = if secure { "; Secure" } else { "" };
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(cookie).expect("letters, digits and marks")
}

fn value_of(headers: &HeaderMap) -> Option<&str> {
    let name = name_of(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs.find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        if key == name { Some(value) } else { None }
    })
}

#[cfg(test)]
mod tests {
    //! In by the cookie alone, and not for ever.

    use super::*;

    fn request(cookies: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:7717"));
        for cookie in cookies {
            headers.append(header::COOKIE, HeaderValue::try_from(*cookie).unwrap());
        }
        headers
    }

    fn begin(sessions: &Sessions, token: &str) -> String {
        let begun = sessions.begin(TokenHash::new(token.as_bytes()), &request(&[]), false).unwrap();
        let cookie = begun.cookie.to_str().unwrap();
        assert!(cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_cookie_stands_for_its_app_until_it_is_old() {
        let sessions = Sessions::default();
        let one = begin(&sessions, "one");
        let two = begin(&sessions, "two");
        assert!(one.starts_with("mantyx_bridge_7717="), "{one}");
        assert_eq!(sessions.token(&request(&["a=b", &two])), Some(TokenHash::new(b"two")));
        let both = format!("x=1; {one}; y=2");
        assert_eq!(sessions.token(&request(&[&both])), Some(TokenHash::new(b"one")));
        for other in ["", "mantyx_bridge_7717=", "mantyx_bridge_7717=0"] {
            assert_eq!(sessions.token(&request(&[other])), None, "{other}");
        }
        assert_eq!(
            sessions.token(&request(&[&one.replace("7717", "7718")])),
            None,
            "another port's"
        );

        let gone = sessions.end(&request(&[&one]));
        assert!(gone.to_str().unwrap().starts_with("mantyx_bridge_7717=; Path=/; Max-Age=0"));
        assert_eq!(sessions.token(&request(&[&one])), None);
        tokio::time::advance(LIFE).await;
        assert_eq!(sessions.token(&request(&[&two])), None, "too old");
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_lets_in_once_and_within_a_minute() {
        let sessions = Sessions::default();
        let token = TokenHash::new(b"one");
        let link = || sessions.link(token).unwrap();
        let (first, second) = (link(), link());
        assert_eq!(sessions.follow(&first), Some(token));
        assert_eq!(sessions.follow(&first), None, "a second time");
        assert_eq!(sessions.follow(""), None);
        tokio::time::advance(LINK_LIFE).await;
        assert_eq!(sessions.follow(&second), None, "too late");
        let of_another = sessions.link(TokenHash::new(b"two")).unwrap();
        let oldest = link();
        let all: Vec<String> = (0..MAX_LINKS).map(|_| link()).collect();
        assert_eq!(sessions.follow(&oldest), None, "too many");
        assert!(all.iter().all(|link| sessions.follow(link) == Some(token)));
        assert!(sessions.follow(&of_another).is_some(), "nobody's link ends by another's");
    }

    #[test]
    fn a_key_is_of_its_session_alone() {
        let sessions = Sessions::default();
        let begun = || sessions.begin(TokenHash::new(b"one"), &request(&[]), false).unwrap();
        let one = begun();
        let two = begun();
        let with = |cookie: &HeaderValue, key: &str| {
            let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
            let mut headers = request(&[cookie]);
            headers.insert(KEY_HEADER, HeaderValue::try_from(key).unwrap());
            sessions.has_key(&headers)
        };
        assert!(with(&one.cookie, &one.key) && with(&two.cookie, &two.key));
        assert!(!with(&one.cookie, &two.key) && !with(&one.cookie, ""));
        let value = one.cookie.to_str().unwrap().split(['=', ';']).nth(1).unwrap();
        assert!(!with(&one.cookie, value), "the cookie is none");
        assert!(!sessions.has_key(&request(&[])));
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded() {
        let sessions = Sessions::default();
        let first = begin(&sessions, "one");
        for _ in 0..MAX {
            tokio::time::advance(Duration::from_secs(1)).await;
            begin(&sessions, "one");
        }
        assert_eq!(sessions.open.lock().len(), MAX);
        assert_eq!(sessions.token(&request(&[&first])), None, "the oldest has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_signs_others_out() {
        let sessions = Sessions::default();
        let other = begin(&sessions, "other");
        for _ in 0..2 * MAX {
            tokio::time::advance(Duration::from_secs(1)).await;
            begin(&sessions, "one");
        }
        assert_eq!(sessions.token(&request(&[&other])), Some(TokenHash::new(b"other")));
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_a_session_is_told_to_its_readers() {
        let sessions = Arc::new(Sessions::default());
        let one = begin(&sessions, "one");
        let two = begin(&sessions, "two");
        let over = |cookie: &str| sessions.over(&request(&[cookie]));
        let mut first = Box::pin(over(&one).unwrap());
        let second = over(&two).unwrap();
        sessions.end(&request(&["mantyx_bridge_7717=another"]));
        assert!(futures_util::poll!(&mut first).is_pending());
        sessions.end(&request(&[&one]));
        first.await;
        assert!(over(&one).is_none() && over("").is_none());
        let before = Instant::now();
        second.await;
        assert_eq!(before.elapsed(), LIFE);
    }
}
