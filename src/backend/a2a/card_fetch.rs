//! Fetches an agent's card: from its well-known address, from a URL or from a file.
//!
//! Must not: read in the card more than whether it is one, or send the configured headers to
//! another origin than the configured one.

use std::io;
use std::path::Path;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, StatusCode};
use url::Url;

use super::{AgentSettings, redirect};
use crate::backend::auth::Tokens;
use crate::backend::{PeerError, PeerErrorKind};
use crate::config::{CardSource, Environment};
use crate::http_client;
use crate::http_client::address::{is_own, shown};
use crate::http_client::{BodyError, NotRead};
use crate::model::card::Card;

/// The largest card, in bytes.
pub(super) const MAX_CARD: usize = 1024 * 1024;

/// The paths below a base URL where a card may be, the current one first.
const WELL_KNOWN: [&str; 2] = ["agent-card.json", "agent.json"];

/// A card as the server sent it.
#[derive(Debug)]
pub(super) struct Fresh {
    pub bytes: Bytes,
    /// Where it came from; `None` for a file.
    pub url: Option<Url>,
}

/// Why an address gave no card.
#[derive(Debug)]
enum NoCard {
    /// There is no answer, so that the other path of the same server has none either.
    NoAnswer(PeerError),
    Refusal(Refusal),
}

/// An answer that is no card.
#[derive(Debug)]
struct Refusal {
    kind: PeerErrorKind,
    url: Url,
    why: String,
    /// The server may give the card later: it is busy, or something behind it is away.
    is_transient: bool,
}

impl Refusal {
    fn new(url: &Url, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { kind: PeerErrorKind::Protocol, url: url.clone(), why, is_transient: false }
    }

    fn error(&self) -> PeerError {
        PeerError::new(self.kind, format!("{}: {}", cannot_get(&self.url), self.why))
    }
}

/// Fetches the card.
pub(super) async fn fetch(settings: &AgentSettings) -> Result<Fresh, PeerError> {
    match &settings.config.card {
        CardSource::File(path) => file(path).await,
        // The daemon replaces this source by the agent's address before it dials.
        CardSource::Bundled => {
            Err(PeerError::new(PeerErrorKind::Connect, "the bundled agent is not being served"))
        }
        CardSource::Url(url) => get(settings, url).await.map_err(|failure| match failure {
            NoCard::NoAnswer(error) => error,
            NoCard::Refusal(refusal) => {
                let error = refusal.error();
                if refusal.kind == PeerErrorKind::Protocol {
                    error.cured("correct `card_url`".to_owned())
                } else {
                    error
                }
            }
        }),
        CardSource::Base(base) => below(settings, base).await,
    }
}

/// Fetches the card from the first of the two paths below `base` that has one.
///
/// Servers answer in many ways where they have none: 404, 405, 403, a web page with 200. So the
/// older path is tried whatever the first one answers. An address that has given a card before is
/// the exception: while it is busy or broken, the older card beside it must not take its place.
async fn below(settings: &AgentSettings, base: &Url) -> Result<Fresh, PeerError> {
    let mut refusals: Vec<Refusal> = Vec::new();
    for name in WELL_KNOWN {
        let url = well_known(base, name);
        let refusal = match get(settings, &url).await {
            Ok(fresh) => match Card::read(&String::from_utf8_lossy(without_mark(&fresh.bytes))) {
                Ok(_) => {
                    *settings.card_place.lock() = Some(name);
                    return Ok(fresh);
                }
                Err(flaw) => Refusal::new(&url, format!("the answer is no Agent Card: {flaw}")),
            },
            Err(NoCard::NoAnswer(error)) => return Err(error),
            Err(NoCard::Refusal(refusal)) => refusal,
        };
        if refusal.is_transient && *settings.card_place.lock() == Some(name) {
            return Err(refusal.error());
        }
        refusals.push(refusal);
    }
    Err(neither(&refusals))
}

/// What both paths have answered.
fn neither(refusals: &[Refusal]) -> PeerError {
    let places: Vec<String> =
        refusals.iter().map(|Refusal { url, why, .. }| format!("{} ({why})", shown(url))).collect();
    let text = format!("there is no Agent Card at {}", places.join(" nor at "));
    if refusals.iter().any(|refusal| refusal.kind == PeerErrorKind::Unauthorized) {
        return PeerError::new(PeerErrorKind::Unauthorized, text);
    }
    PeerError::new(PeerErrorKind::Protocol, text)
        .cured("correct `url`, or name the card's own address in `card_url`".to_owned())
}

fn well_known(base: &Url, name: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend([".well-known", name]);
    }
    url
}

/// `bytes` without the byte order mark that JSON does not have, and with which some files begin.
pub(super) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)
}

/// Fetches `url`. Redirects within its origin are followed, as the credentials may go there.
async fn get(settings: &AgentSettings, url: &Url) -> Result<Fresh, NoCard> {
    let mut place = url.clone();
    for _redirect in 0..redirect::MAX {
        let response = request(settings, &place).await.map_err(NoCard::NoAnswer)?;
        match redirect::target(response.status(), &place, response.headers()) {
            Some(target) if is_own(&place, &target) => place = target,
            _ => return read(response, place).await,
        }
    }
    Err(NoCard::Refusal(Refusal::new(url, "it redirects from one address to the next")))
}

async fn request(settings: &AgentSettings, url: &Url) -> Result<reqwest::Response, PeerError> {
    if http_client::names_link_local(url) {
        let text = format!("{}: link-local addresses are never called", cannot_get(url));
        return Err(PeerError::new(PeerErrorKind::Connect, text));
    }
    let mut headers = settings.config.headers.clone();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let response = Tokens::authorize(settings.tokens.as_ref(), headers, async |headers| {
        let request = settings.client.get(url.clone()).headers(headers);
        let response = settings.client.send_repeatable(request).await;
        response.map_err(|failure| {
            PeerError::new(PeerErrorKind::Connect, "no answer").because(failure.without_url())
        })
    });
    response
        .await
        .map_err(|error: PeerError| PeerError::new(error.kind, cannot_get(url)).because(error))
}

async fn read(response: reqwest::Response, url: Url) -> Result<Fresh, NoCard> {
    if response.status() != StatusCode::OK {
        return Err(NoCard::Refusal(refusal(response.status(), &url, response.headers())));
    }
    match http_client::body(response, MAX_CARD).await {
        Ok(bytes) => Ok(Fresh { bytes, url: Some(url) }),
        Err(BodyError::NotRead(NotRead::TooLarge { .. })) => {
            Err(NoCard::Refusal(Refusal::new(&url, "the card is larger than 1 MiB")))
        }
        Err(failure) => {
            let error = PeerError::new(PeerErrorKind::Connect, cannot_get(&url)).because(failure);
            Err(NoCard::NoAnswer(error))
        }
    }
}

fn refusal(status: StatusCode, url: &Url, headers: &HeaderMap) -> Refusal {
    let code = status.as_u16();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let why =
                format!("HTTP {code}: the server wants a credential; set `auth` or `headers`");
            Refusal { kind: PeerErrorKind::Unauthorized, ..Refusal::new(url, why) }
        }
        _ if status.is_redirection() => {
            let target = redirect::target(status, url, headers);
            let target = target.as_ref().map_or_else(|| "elsewhere".to_owned(), shown);
            Refusal::new(
                url,
                format!(
                    "HTTP {code}: the server redirects to {target}, and the bridge follows only \
                     within the server's origin; if that is right, name it in `card_url`"
                ),
            )
        }
        StatusCode::NOT_FOUND => Refusal::new(url, "HTTP 404: there is no card"),
        _ => {
            let is_transient = status == StatusCode::TOO_MANY_REQUESTS
                || status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
            Refusal { is_transient, ..Refusal::new(url, format!("HTTP {code}")) }
        }
    }
}

fn cannot_get(url: &Url) -> String {
    format!("cannot get the Agent Card from {}", shown(url))
}

async fn file(path: &Path) -> Result<Fresh, PeerError> {
    let own = path.to_owned();
    let read = tokio::task::spawn_blocking(move || Environment::bare().read(&own)).await;
    let card = read.map_err(io::Error::other).flatten().map_err(|error| {
        let why = format!("cannot read the card {}", path.display());
        let cure = "Put the agent's card there, or correct `card_file`. The bridge looks again.";
        PeerError::new(PeerErrorKind::Connect, why).because(error).with_cure(Some(cure.into()))
    })?;
    Ok(Fresh { bytes: card.text.into(), url: None })
}
