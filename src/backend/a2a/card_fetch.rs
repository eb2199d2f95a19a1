//! Gets an agent's card: from its well-known address, from a URL or from a file.
//!
//! Must not: interpret the card, or send the configured headers anywhere but to the configured
//! address (redirects are not followed).

use std::path::Path;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, ETAG, IF_NONE_MATCH, LOCATION},
};
use tokio::io::AsyncReadExt as _;
use url::Url;

use super::Settings;
use crate::{
    backend::{address::shown, auth, peer::PeerError},
    config::CardSource,
    error_chain::error_chain,
    http_client::{self, BodyError},
};

/// The largest card, in bytes.
pub(super) const MAX_CARD: usize = 1024 * 1024;

/// The paths below a base URL where a card may be, the current one first.
const WELL_KNOWN: [&str; 2] = ["agent-card.json", "agent.json"];

/// What makes a later fetch conditional: the server's tag for the card at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Validator {
    url: Url,
    etag: HeaderValue,
}

#[derive(Debug)]
pub(super) enum Fetched {
    /// The card is the one that the validator stands for.
    Same,
    Card(Box<Fresh>),
}

/// A card as it came.
#[derive(Debug)]
pub(super) struct Fresh {
    pub bytes: Bytes,
    /// Where it came from; `None` for a file.
    pub url: Option<Url>,
    pub validator: Option<Validator>,
}

/// Gets the card; `known` stands for the card that the caller has.
pub(super) async fn fetch(
    settings: &Settings,
    known: Option<&Validator>,
) -> Result<Fetched, PeerError> {
    match &settings.source {
        CardSource::File(path) => file(path).await,
        // The daemon puts the address in its place before it dials.
        CardSource::Bundled => {
            Err(PeerError::new("the bundled agent is not being served".to_owned()))
        }
        CardSource::Url(url) => get(settings, url, known)
            .await?
            .ok_or_else(|| error(url, "HTTP 404: there is no card; correct `card_url`")),
        CardSource::Base(base) => {
            for name in WELL_KNOWN {
                let url = well_known(base, name);
                if let Some(fetched) = get(settings, &url, known).await? {
                    return Ok(fetched);
                }
            }
            Err(PeerError::new(format!(
                "there is no Agent Card at {} nor at {} (HTTP 404); correct `url`, or name the \
                 card's own address in `card_url`",
                shown(&well_known(base, WELL_KNOWN[0])),
                shown(&well_known(base, WELL_KNOWN[1])),
            )))
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

/// `None` where the server has nothing at `url`.
async fn get(
    settings: &Settings,
    url: &Url,
    known: Option<&Validator>,
) -> Result<Option<Fetched>, PeerError> {
    if http_client::names_link_local(url) {
        return Err(error(url, "link-local addresses are never called"));
    }
    let mut headers = settings.headers.clone();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let known = known.filter(|known| known.url == *url);
    if let Some(known) = known {
        headers.insert(IF_NONE_MATCH, known.etag.clone());
    }
    let response = auth::send(settings.tokens.as_deref(), headers, async |headers| {
        let request = settings.client.get(url.clone()).headers(headers);
        let response = settings.client.send_repeatable(request).await;
        response.map_err(|failure| PeerError::new(error_chain(&failure.without_url())))
    });
    let about =
        |failed: PeerError| PeerError { refused: failed.refused, ..error(url, &failed.text) };
    let response = response.await.map_err(about)?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED if known.is_some() => return Ok(Some(Fetched::Same)),
        StatusCode::NOT_FOUND => return Ok(None),
        status => {
            let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            let failed = error(url, &refusal(status, url, response.headers()));
            return Err(PeerError { refused, ..failed });
        }
    }
    let etag = response.headers().get(ETAG).cloned();
    let bytes = http_client::body(response, MAX_CARD).await.map_err(|failure| match failure {
        BodyError::TooLarge { .. } => error(url, TOO_LARGE),
        BodyError::NoRoom(no_room) => error(url, &no_room.to_string()),
        BodyError::Broken(cause) => {
            error(url, &format!("the card broke off: {}", error_chain(&cause.without_url())))
        }
    })?;
    let validator = etag.map(|etag| Validator { url: url.clone(), etag });
    let fresh = Fresh { bytes, url: Some(url.clone()), validator };
    Ok(Some(Fetched::Card(Box::new(fresh))))
}

const TOO_LARGE: &str = "the card is larger than 1 MiB";

fn refusal(status: StatusCode, url: &Url, headers: &HeaderMap) -> String {
    let code = status.as_u16();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            format!("HTTP {code}: the server wants a credential; set `auth` or `headers`")
        }
        _ if status.is_redirection() => {
            let target = headers.get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            let target = target.as_ref().map_or_else(|| "elsewhere".to_owned(), shown);
            format!(
                "HTTP {code}: the server redirects to {target}, and redirects are not followed; \
                 if that is right, name it in `card_url`"
            )
        }
        _ => format!("HTTP {code}"),
    }
}

fn error(url: &Url, why: &str) -> PeerError {
    PeerError::new(format!("cannot get the Agent Card from {}: {why}", shown(url)))
}

async fn file(path: &Path) -> Result<Fetched, PeerError> {
    let error =
        |why: &str| PeerError::new(format!("cannot read the card {}: {why}", path.display()));
    let file = tokio::fs::File::open(path).await.map_err(|e| error(&e.to_string()))?;
    let mut bytes = Vec::new();
    let mut limited = file.take(MAX_CARD as u64 + 1);
    limited.read_to_end(&mut bytes).await.map_err(|e| error(&e.to_string()))?;
    if bytes.len() > MAX_CARD {
        return Err(error(TOO_LARGE));
    }
    let fresh = Fresh { bytes: bytes.into(), url: None, validator: None };
    Ok(Fetched::Card(Box::new(fresh)))
}
