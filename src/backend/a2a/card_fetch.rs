//! Fetches an agent's card: from its well-known address, from a URL or from a file.
//!
//! Must not: interpret the card, or send the configured headers anywhere but to the configured
//! address (redirects are not followed).

use std::io;
use std::path::Path;

use bytes::Bytes;
use http::header::{ACCEPT, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use url::Url;

use super::AgentSettings;
use crate::backend::auth::Tokens;
use crate::backend::{PeerError, PeerErrorKind};
use crate::config::{CardSource, Environment};
use crate::http_client;
use crate::http_client::address::shown;
use crate::http_client::{BodyError, NotRead};

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

/// Fetches the card.
pub(super) async fn fetch(settings: &AgentSettings) -> Result<Fresh, PeerError> {
    match &settings.config.card {
        CardSource::File(path) => file(path).await,
        // The daemon replaces this source by the agent's address before it dials.
        CardSource::Bundled => {
            Err(PeerError::new(PeerErrorKind::Connect, "the bundled agent is not being served"))
        }
        CardSource::Url(url) => get(settings, url)
            .await?
            .ok_or_else(|| unusable(url, "HTTP 404: there is no card; correct `card_url`")),
        CardSource::Base(base) => {
            let urls = WELL_KNOWN.map(|name| well_known(base, name));
            for url in &urls {
                if let Some(fresh) = get(settings, url).await? {
                    return Ok(fresh);
                }
            }
            let places = urls.each_ref().map(shown).join(" nor at ");
            let text = format!(
                "there is no Agent Card at {places} (HTTP 404); correct `url`, or name the card's \
                 own address in `card_url`"
            );
            Err(PeerError::new(PeerErrorKind::Protocol, text))
        }
    }
}

fn well_known(base: &Url, name: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend([".well-known", name]);
    }
    url
}

/// Fetches `url`; `None` if the server has nothing there.
async fn get(settings: &AgentSettings, url: &Url) -> Result<Option<Fresh>, PeerError> {
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
    let response = response
        .await
        .map_err(|error: PeerError| PeerError::new(error.kind, cannot_get(url)).because(error))?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        status => return Err(refusal(status, url, response.headers())),
    }
    let bytes = http_client::body(response, MAX_CARD).await.map_err(|failure| match failure {
        BodyError::NotRead(NotRead::TooLarge { .. }) => unusable(url, TOO_LARGE),
        failure => PeerError::new(PeerErrorKind::Connect, cannot_get(url)).because(failure),
    })?;
    Ok(Some(Fresh { bytes, url: Some(url.clone()) }))
}

const TOO_LARGE: &str = "the card is larger than 1 MiB";

fn refusal(status: StatusCode, url: &Url, headers: &HeaderMap) -> PeerError {
    let code = status.as_u16();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let why = "the server wants a credential; set `auth` or `headers`";
            let text = format!("{}: HTTP {code}: {why}", cannot_get(url));
            PeerError::new(PeerErrorKind::Unauthorized, text)
        }
        _ if status.is_redirection() => {
            let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let target = match location.and_then(|location| url.join(location).ok()) {
                Some(target) => shown(&target),
                None => "elsewhere".to_owned(),
            };
            let why = format!(
                "HTTP {code}: the server redirects to {target}, and redirects are not followed; if \
                 that is right, name it in `card_url`"
            );
            unusable(url, &why)
        }
        _ => unusable(url, &format!("HTTP {code}")),
    }
}

fn cannot_get(url: &Url) -> String {
    format!("cannot get the Agent Card from {}", shown(url))
}

/// The server answers with something else than a card.
fn unusable(url: &Url, why: &str) -> PeerError {
    PeerError::new(PeerErrorKind::Protocol, format!("{}: {why}", cannot_get(url)))
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
