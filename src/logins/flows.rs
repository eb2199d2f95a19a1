//! The logins that are open: from the moment that one begins until the browser is back. Pure but
//! for chance; the caller says what time it is.
//!
//! Must not: keep a state, a ticket or a cookie itself where a digest of it is enough.

use std::collections::VecDeque;
use std::time::Duration;

use secrecy::SecretString;
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use url::Url;

use super::authorization::digest;
use super::callback::ExpectedIssuer;
use super::failure::{self, LoginResult};
use super::record::{Client, Endpoints};
use crate::model::BackendName;

/// The most open logins.
pub(super) const MAX_OPEN: usize = 64;
/// How long a login may take.
pub(super) const LIFE: Duration = Duration::from_secs(10 * 60);

/// What the bridge needs when the browser is back.
#[derive(derive_more::Debug, Clone)]
#[debug("Plan({backend})")]
pub(super) struct Plan {
    /// Names the login to the one who waits for its end.
    pub(super) id: String,
    pub(super) backend: BackendName,
    /// The server's address when the login began.
    pub(super) server: Url,
    pub(super) issuer: ExpectedIssuer,
    pub(super) endpoints: Endpoints,
    pub(super) client: Client,
    pub(super) resource: Option<String>,
    pub(super) audience: Option<String>,
    pub(super) scopes: Vec<String>,
    pub(super) verifier: SecretString,
}

/// One open login.
#[derive(derive_more::Debug)]
#[debug("Flow({plan:?})")]
struct Flow {
    plan: Plan,
    /// The digest of what is in the address that begins it; `None` once that was opened.
    ticket: Option<[u8; 32]>,
    /// The digest of the state.
    state: [u8; 32],
    /// The digest of the cookie that the browser got.
    cookie: Option<[u8; 32]>,
    /// The address at the issuer. It has the state in it.
    address: Url,
    until: Instant,
}

/// What a browser shows to be the one that began, or whose word is enough without.
#[derive(Debug, Clone, Copy)]
pub(super) enum Proof<'a> {
    /// The values of its cookies.
    Cookies(&'a [&'a str]),
    /// The caller who began the login at this backend has pasted the address.
    Beginner(&'a BackendName),
}

/// The logins that were closed before a browser came back.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Those that another login of their backend has replaced.
    pub(super) replaced: Vec<String>,
    pub(super) unreturned: Vec<Unreturned>,
}

/// A login that ended without a browser that came back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreturned {
    pub(super) issuer: String,
    pub(super) redirect_uri: Url,
}

/// The open logins, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Flows(VecDeque<Flow>);

impl Flows {
    /// Whether there is room for another one.
    pub(super) fn check_room(&self) -> LoginResult<()> {
        if self.0.len() < MAX_OPEN { Ok(()) } else { Err(failure::too_many_open(MAX_OPEN)) }
    }

    /// Opens a login.
    pub(super) fn open(
        &mut self,
        plan: Plan,
        ticket: &str,
        state: &str,
        address: Url,
        now: Instant,
    ) -> LoginResult<()> {
        self.check_room()?;
        let (ticket, state) = (Some(digest(ticket)), digest(state));
        self.0.push_back(Flow { plan, ticket, state, cookie: None, address, until: now + LIFE });
        Ok(())
    }

    /// Closes what has taken too long, and the earlier logins of `again`, which begins another one.
    /// None of them came back: the issuer may have forgotten the client, and show the browser an
    /// error page.
    pub(super) fn close_unreturned(&mut self, again: Option<&BackendName>, now: Instant) -> Closed {
        let Closed { mut replaced, mut unreturned } = Closed::default();
        self.0.retain(|flow| {
            let is_late = flow.until <= now;
            let is_over = is_late || Some(&flow.plan.backend) == again;
            if is_over && !is_late {
                replaced.push(flow.plan.id.clone());
            }
            // One that no browser has opened says nothing about the issuer.
            if is_over && flow.ticket.is_none() && !flow.plan.client.is_configured {
                unreturned.push(Unreturned {
                    issuer: flow.plan.issuer.name.clone(),
                    redirect_uri: flow.plan.client.redirect_uri.clone(),
                });
            }
            !is_over
        });
        Closed { replaced, unreturned }
    }

    /// The address at the issuer for the browser that opens the login with `ticket`, which works
    /// once. The browser gets `cookie`.
    pub(super) fn start(&mut self, ticket: &str, cookie: &str, now: Instant) -> Option<Url> {
        let ticket = digest(ticket);
        let is_it = |flow: &&mut Flow| {
            flow.until > now && flow.ticket.is_some_and(|own| own.ct_eq(&ticket).into())
        };
        let flow = self.0.iter_mut().find(is_it)?;
        flow.ticket = None;
        flow.cookie = Some(digest(cookie));
        Some(flow.address.clone())
    }

    /// Takes the login whose state came back with `proof`. Without the proof it stays open: the
    /// caller who began may still paste the address.
    pub(super) fn take(
        &mut self,
        state: &str,
        proof: Proof<'_>,
        now: Instant,
    ) -> LoginResult<Plan> {
        let state = digest(state);
        let is_it = |flow: &Flow| flow.until > now && bool::from(flow.state.ct_eq(&state));
        let at = self.0.iter().position(is_it).ok_or_else(failure::ended)?;
        let is_proven = self.0.get(at).is_some_and(|flow| match proof {
            Proof::Cookies(values) => {
                let cookies = values.iter().map(|value| digest(value));
                flow.cookie.is_some_and(|own| cookies.into_iter().any(|one| one.ct_eq(&own).into()))
            }
            Proof::Beginner(backend) => *backend == flow.plan.backend,
        });
        if !is_proven {
            return Err(failure::ended());
        }
        self.0.remove(at).map(|flow| flow.plan).ok_or_else(failure::ended)
    }
}

#[cfg(test)]
mod tests {
    //! Once, in time, by the right browser.

    use super::*;
    use crate::oauth::endpoint::ClientAuthMethod;

    fn plan(backend: &str) -> Plan {
        let url = |text: &str| Url::parse(text).unwrap();
        Plan {
            id: String::new(),
            backend: BackendName::parse(backend).unwrap(),
            server: url("https://mcp.test/mcp"),
            issuer: ExpectedIssuer { name: "https://as.test".to_owned(), is_sent: false },
            endpoints: Endpoints { token: url("https://as.test/token"), revocation: None },
            client: Client {
                id: "c".to_owned(),
                secret: None,
                auth_method: ClientAuthMethod::Nothing,
                redirect_uri: url("http://127.0.0.1:7717/oauth/callback"),
                registration_uri: None,
                is_configured: false,
            },
            resource: None,
            audience: None,
            scopes: Vec::new(),
            verifier: "v".to_owned().into(),
        }
    }

    fn open(flows: &mut Flows, name: &str, now: Instant) -> LoginResult<()> {
        let address = Url::parse(&format!("https://as.test/{name}")).unwrap();
        flows.open(plan(name), &format!("t-{name}"), &format!("s-{name}"), address, now)
    }

    fn name(text: &str) -> BackendName {
        BackendName::parse(text).unwrap()
    }

    #[test]
    fn ticket_opens_a_login_once_and_in_time() {
        let (mut flows, now) = (Flows::default(), Instant::now());
        open(&mut flows, "a", now).unwrap();
        assert_eq!(flows.start("t-b", "k", now), None);
        assert_eq!(flows.start("t-a", "k", now + LIFE), None, "too late");
        assert_eq!(flows.start("t-a", "k", now).unwrap().path(), "/a");
        assert_eq!(flows.start("t-a", "k", now), None, "a second time");
    }

    #[test]
    fn state_is_taken_once_and_only_with_its_cookie() {
        let (mut flows, now) = (Flows::default(), Instant::now());
        open(&mut flows, "a", now).unwrap();
        open(&mut flows, "b", now).unwrap();
        flows.start("t-a", "cookie-a", now).unwrap();
        flows.start("t-b", "cookie-b", now).unwrap();
        for (state, cookies) in
            [("s-a", vec![]), ("s-a", vec!["cookie-b"]), ("s-c", vec!["cookie-a"]), ("", vec![""])]
        {
            assert!(flows.take(state, Proof::Cookies(&cookies), now).is_err(), "{state}");
        }
        let cookies = ["x", "cookie-a"];
        assert_eq!(flows.take("s-a", Proof::Cookies(&cookies), now).unwrap().backend, name("a"));
        assert!(flows.take("s-a", Proof::Cookies(&cookies), now).is_err(), "a second time");
        let late = now + LIFE;
        assert!(flows.take("s-b", Proof::Cookies(&["cookie-b"]), late).is_err(), "too late");
    }

    #[test]
    fn pasted_state_is_taken_from_the_one_who_began() {
        let (mut flows, now) = (Flows::default(), Instant::now());
        open(&mut flows, "a", now).unwrap();
        assert!(flows.take("s-a", Proof::Cookies(&["k"]), now).is_err(), "no browser has begun");
        assert!(flows.take("s-a", Proof::Beginner(&name("b")), now).is_err());
        assert!(flows.take("s-a", Proof::Beginner(&name("a")), now).is_ok());
    }

    #[test]
    fn open_logins_are_bounded_and_make_room_with_time() {
        let (mut flows, now) = (Flows::default(), Instant::now());
        for number in 0..MAX_OPEN {
            open(&mut flows, &format!("b{number}"), now).unwrap();
        }
        assert!(open(&mut flows, "more", now).unwrap_err().to_string().contains("64 logins"));
        let late = flows.close_unreturned(None, now + LIFE);
        assert!(late.replaced.is_empty(), "they took too long");
        open(&mut flows, "more", now + LIFE).unwrap();
    }

    #[test]
    fn login_that_a_browser_opened_and_did_not_finish_is_told() {
        let (mut flows, now) = (Flows::default(), Instant::now());
        open(&mut flows, "a", now).unwrap();
        let unopened = flows.close_unreturned(Some(&name("a")), now);
        assert_eq!(unopened.unreturned, [], "no browser opened it");
        assert_eq!(unopened.replaced.len(), 1);
        open(&mut flows, "a", now).unwrap();
        flows.start("t-a", "k", now).unwrap();
        let others = flows.close_unreturned(Some(&name("b")), now);
        assert!(others.unreturned.is_empty() && others.replaced.is_empty());
        let Closed { unreturned, .. } = flows.close_unreturned(Some(&name("a")), now);
        assert_eq!(unreturned.len(), 1);
        assert_eq!(unreturned[0].issuer, "https://as.test");
        assert!(flows.0.is_empty());
    }
}
