//! Asks an agent for a task that does not exist: the cheapest request without effect that goes the
//! way of a message. It carries the entry's own credentials, and never those of a person.
//!
//! Any error of the protocol shows that a message would reach the agent, but for those about the
//! credential, the version and the extensions. What is no A2A at all comes from a proxy, a login
//! page or another server.
//!
//! Must not: decide when the agent is asked, or send a message.

mod judgement;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::timeout;

use self::judgement::{Trouble, Verdict};
use super::events::{self, EventStream};
use super::failure::A2aFailure;
use super::interface::{Endpoint, Generation};
use super::link::{Link, NoResponse};
use super::links::Links;
use super::wire::Operation;
use super::{AgentSettings, grpc, redirect};
use crate::backend::diagnosis::Remark;
use crate::backend::readiness::{Occasion, Readiness};
use crate::backend::{CallError, PeerError, PeerErrorKind};
use crate::config::A2aBinding;
use crate::error_chain::{error_chain, io_kind};
use crate::http_client::address::shown;
use crate::model::card::security;
use crate::{http_client, random};

/// How long one interface may take. One that hangs must not hide the next one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most interfaces of a card that are asked.
const MAX_INTERFACES: usize = 4;
/// The most that is read of a response, in bytes: an error is short, and a page need not be read.
const MAX_BODY: usize = 64 << 10;

const NO_SUCH_TASK: &str = "it answers, and knows no such task, as it should";

/// Asks the interfaces in their order until one answers as A2A; calls begin with that one then.
pub(super) async fn probe(
    settings: &AgentSettings,
    links: &Links,
    occasion: Occasion,
) -> Readiness {
    let answered_before = matches!(settings.health.readiness(), Readiness::Answers(_));
    let order: Vec<&Arc<Link>> = match occasion {
        Occasion::Doubt => links.iter().take(MAX_INTERFACES).collect(),
        // That it has failed now is a doubt.
        Occasion::Idle if answered_before => links.by_preference().take(MAX_INTERFACES).collect(),
        Occasion::Idle => vec![links.preferred()],
    };
    let mut failures: Vec<PeerError> = Vec::new();
    for link in order {
        let failure = match timeout(PATIENCE, examine(links, link, occasion)).await {
            Ok(Ok(answer)) => {
                links.prefer(link);
                if Arc::ptr_eq(link, links.first()) {
                    settings.findings.lock().interface = None;
                } else if let Some(failure) = failures.first() {
                    settings.findings.lock().interface = Some(other_interface(link, failure));
                }
                return Readiness::Answers(answer);
            }
            Ok(Err(failure)) => failure,
            Err(_elapsed) => silent(link),
        };
        // Another interface of the agent wants no other credential, and each try counts as one more
        // failed login.
        let is_refused = failure.kind == PeerErrorKind::Unauthorized;
        failures.push(failure);
        if is_refused {
            break;
        }
    }
    settings.findings.lock().interface = None;
    Readiness::Fails(most_telling(failures))
}

/// The failure that the operator is told: the first of an interface that could be reached at all.
fn most_telling(failures: Vec<PeerError>) -> PeerError {
    let others = failures.len().saturating_sub(1);
    let reached = failures.iter().position(|failure| failure.kind != PeerErrorKind::Connect);
    let failure = failures.into_iter().nth(reached.unwrap_or_default());
    let failure = failure.expect("there is at least one interface");
    match others {
        0 => failure,
        1 => failure.with_more("the other interface of its card is no better"),
        others => failure.with_more(&format!("the other {others} of its card are no better")),
    }
}

/// What the operator is told where the first interface does not answer, and a later one does.
fn other_interface(link: &Link, failure: &PeerError) -> Remark {
    let used = description(&link.endpoint);
    Remark {
        message: "The first interface of its card does not answer; calls go to another one."
            .to_owned(),
        cure: "Have the agent's operator correct its card, or set `endpoint` to the address that \
               works."
            .to_owned(),
        quote: Some(format!("{}; calls go to {used}.", error_chain(failure))),
    }
}

/// What the interface says; the error is why it would not answer a call.
async fn examine(
    links: &Links,
    link: &Arc<Link>,
    occasion: Occasion,
) -> Result<&'static str, PeerError> {
    let verdict = ask(link, &link.endpoint).await?;
    let may_be_another_version =
        matches!(verdict, Verdict::Unclear(_) | Verdict::Fails(Trouble::NoPath(_)));
    if may_be_another_version && is_of_other_version(links, link, occasion).await {
        return Err(failure(link, &Trouble::Version(None)));
    }
    match verdict {
        Verdict::Answers => Ok(NO_SUCH_TASK),
        Verdict::Unclear(answer) => Ok(answer),
        Verdict::Fails(trouble) => Err(failure(link, &trouble)),
    }
}

/// Whether the agent is of the other version. An agent that is idle is not asked again what it has
/// answered before.
async fn is_of_other_version(links: &Links, link: &Link, occasion: Occasion) -> bool {
    let earlier_answer = *links.other_version.lock();
    match (occasion, earlier_answer) {
        (Occasion::Idle, Some(answer)) => answer,
        (Occasion::Idle | Occasion::Doubt, _) => {
            let answer = speaks_other_version(link).await;
            *links.other_version.lock() = Some(answer);
            answer
        }
    }
}

/// Whether the agent answers the same question in the other version. A server that does not know
/// the method at all may as well be one of the other version, which refuses each message.
async fn speaks_other_version(link: &Link) -> bool {
    if link.endpoint.binding == A2aBinding::Grpc {
        return false;
    }
    let generation = match link.endpoint.generation {
        Generation::V03 => Generation::V10,
        Generation::V10 => Generation::V03,
    };
    let endpoint = Endpoint { generation, tenant: None, ..link.endpoint.clone() };
    matches!(ask(link, &endpoint).await, Ok(Verdict::Answers))
}

/// Asks at `endpoint`, which is that of `link`, maybe in the other version.
async fn ask(link: &Link, endpoint: &Endpoint) -> Result<Verdict, PeerError> {
    let id = random::uuid().to_string();
    let operation = Operation::GetTask(&id);
    let response =
        link.transmit(endpoint, operation).await.map_err(|error| no_response(link, error))?;
    if link.is_grpc(&response) {
        return Ok(judgement::of_grpc(grpc::result(response, operation).await));
    }
    let status = response.status();
    let headers = response.headers().clone();
    if let Some(trouble) = before_agent(link, status, &headers) {
        return Ok(Verdict::Fails(trouble));
    }
    if events::is_event_stream(&response) {
        // Some agents stream whatever they are asked, and may keep the stream open.
        let mut events = EventStream::sse(link.endpoint.binding, response);
        return Ok(judgement::of_event(events.next().await));
    }
    let body = http_client::body_up_to(response, MAX_BODY).await;
    let (body, _is_whole) = body.map_err(|error| {
        let text = format!("{} broke off its answer", place(link));
        PeerError::new(PeerErrorKind::Connect, text).because(error)
    })?;
    let text = String::from_utf8_lossy(&body);
    Ok(match link.endpoint.binding {
        A2aBinding::JsonRpc => judgement::of_json_rpc(status, &headers, &text),
        A2aBinding::HttpJson => judgement::of_http_json(status, &headers, &text),
        A2aBinding::Grpc => {
            Verdict::Fails(Trouble::Other(judgement::description(status, &headers, &text)))
        }
    })
}

/// What only the head of a response shows.
fn before_agent(link: &Link, status: StatusCode, headers: &HeaderMap) -> Option<Trouble> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(Trouble::Credential(status)),
        _ if status.is_redirection() => {
            let target = redirect::target(status, &link.endpoint.url, headers);
            Some(Trouble::Redirect(status, target.as_ref().map(shown)))
        }
        _ => None,
    }
}

fn place(link: &Link) -> String {
    format!("its endpoint {}", description(&link.endpoint))
}

fn description(endpoint: &Endpoint) -> String {
    let Endpoint { url, binding, version, .. } = endpoint;
    format!("{} ({}, A2A {version})", shown(url), binding.as_str())
}

fn silent(link: &Link) -> PeerError {
    let seconds = PATIENCE.as_secs();
    let text = format!("{} gives no answer within {seconds} s", place(link));
    PeerError::new(PeerErrorKind::Timeout, text).cured(
        "see whether the agent hangs, and whether a firewall or a proxy swallows requests to \
                this address; if it is the wrong one, set `endpoint`"
            .to_owned(),
    )
}

/// The request could not be made, or got no response.
fn no_response(link: &Link, error: NoResponse) -> PeerError {
    let endpoint = place(link);
    match error {
        NoResponse::Token(error) => {
            let kind = PeerErrorKind::from(&error);
            let failure = PeerError::new(kind, format!("no token for {endpoint}: {error}"));
            if kind == PeerErrorKind::Unauthorized {
                failure.cured(credential_cure(&link.settings))
            } else {
                failure
            }
        }
        NoResponse::Http(error) => {
            let error = error.without_url();
            // A name that does not resolve is an error of the resolver, which has no kind.
            let is_lookup = error.is_connect() && error_chain(&error).contains("dns error");
            let is_refused = io_kind(&error) == Some(std::io::ErrorKind::ConnectionRefused);
            let failure =
                PeerError::new(PeerErrorKind::Connect, format!("{endpoint} cannot be reached"));
            let failure = failure.because(error);
            if is_lookup || is_refused { failure.cured(unreachable_cure(link)) } else { failure }
        }
    }
}

fn unreachable_cure(link: &Link) -> String {
    let host = link.endpoint.url.host_str().unwrap_or_default();
    let whose = if link.settings.config.endpoint.is_some() {
        "correct `endpoint`".to_owned()
    } else {
        format!(
            "if {host} is a name or address that only the agent's own network knows, set \
             `endpoint` to the one at which this machine reaches the agent"
        )
    };
    format!("see whether the agent runs; {whose}")
}

/// What the operator writes so that requests carry what the agent wants.
fn credential_cure(settings: &AgentSettings) -> String {
    let mut cures = Vec::new();
    if settings.config.has_credentials() {
        cures.push(
            "the entry's credential is not taken: get a new one, and see that it is meant for this \
             agent"
            .to_owned(),
        );
    }
    cures.extend(security::cure(&settings.findings.lock().schemes));
    if cures.is_empty() {
        cures.push(
            "ask the agent's operator for a credential, as its card names none: `auth: {bearer: \
             \"${file:/PATH}\"}`, `auth: {oauth: …}`, or what it wants in `headers`"
                .to_owned(),
        );
    }
    cures.join("; ")
}

/// The failure that an operator reads, with its cure.
fn failure(link: &Link, trouble: &Trouble) -> PeerError {
    let endpoint = place(link);
    let (kind, text) = match trouble {
        Trouble::Credential(status) => (
            PeerErrorKind::Unauthorized,
            format!("{endpoint} refuses the request (HTTP {})", status.as_u16()),
        ),
        Trouble::CredentialCode(why) => {
            (PeerErrorKind::Unauthorized, format!("{endpoint} refuses the request ({why})"))
        }
        Trouble::Redirect(status, target) => {
            let target = target.as_deref().unwrap_or("elsewhere");
            let status = status.as_u16();
            let text = format!(
                "{endpoint} redirects to {target} (HTTP {status}), where the bridge does not follow"
            );
            (PeerErrorKind::Protocol, text)
        }
        Trouble::Version(why) => {
            let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            let version = &link.endpoint.version;
            let text = format!("{endpoint} does not speak A2A {version}, as its card says{why}");
            (PeerErrorKind::Protocol, text)
        }
        Trouble::Extension(why) => {
            let text =
                format!("{endpoint} requires an extension that the bridge did not name ({why})");
            (PeerErrorKind::Protocol, text)
        }
        Trouble::NoPath(what) | Trouble::Other(what) => {
            (PeerErrorKind::Protocol, format!("{endpoint} {what}"))
        }
        Trouble::Gone(why) => (PeerErrorKind::Connect, format!("{endpoint} is not reached: {why}")),
    };
    PeerError::new(kind, text).cured(cure(link, trouble))
}

fn cure(link: &Link, trouble: &Trouble) -> String {
    let text = match trouble {
        Trouble::Credential(_) | Trouble::CredentialCode(_) => {
            return credential_cure(&link.settings);
        }
        Trouble::Redirect(_, Some(target)) => {
            return format!("if the agent is there, set `endpoint: {target}`");
        }
        Trouble::Redirect(_, None) => "set `endpoint` to the address that the agent is called at",
        Trouble::Version(_) => {
            "have the agent's operator correct its card, or choose another of its interfaces with \
             `transport`"
        }
        Trouble::Extension(_) => {
            "write the extensions that the card requires into `extensions: [URI, …]`"
        }
        Trouble::NoPath(_) | Trouble::Other(_) => {
            "see what answers there (a proxy, a login page, another service?); if the agent is \
             called at another address than its card says, set `endpoint` to that"
        }
        Trouble::Gone(_) => "see whether the agent runs behind its gateway",
    };
    text.to_owned()
}

impl From<A2aFailure> for Trouble {
    /// Of an outcome that is no error of the protocol.
    fn from(failure: A2aFailure) -> Self {
        match CallError::from(failure) {
            CallError::Lost(why) | CallError::NotSent(why) => Self::Gone(why),
            other => Self::Other(format!("does not answer as A2A: {other}")),
        }
    }
}

#[cfg(test)]
mod tests;
