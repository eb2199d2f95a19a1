//! Where the metadata of servers and of issuers of tokens is (RFC 9728, RFC 8414, OpenID Connect
//! Discovery), and what of it may be believed.
//!
//! Must not: send a secret, or take an address that a server may not name ([`may_name`]).

use bytes::Bytes;
use http::StatusCode;
use http::header::ACCEPT;
use serde_json::value::RawValue;
use tokio::time::timeout;
use url::Url;

use super::IssueError;
use super::endpoint::PATIENCE;
use crate::error_chain::error_chain;
use crate::http_client;
use crate::http_client::Client;
use crate::http_client::address::{is_own, names_user, shown};
use crate::model::elements;

/// The largest metadata, in bytes.
const MAX_METADATA: usize = 256 * 1024;

/// Whether a server at `base` may send the bridge to `url`: to its own origin, or to another
/// machine by https. A server on this machine may name no other address of this machine either:
/// services there may trust every local client. Link-local addresses are never allowed. `base` is
/// `None` where the operator's own file names the address.
pub fn may_name(base: Option<&Url>, url: &Url) -> bool {
    if !matches!(url.scheme(), "http" | "https")
        || names_user(url)
        || http_client::names_link_local(url)
    {
        return false;
    }
    let Some(base) = base else { return true };
    url.origin() == base.origin()
        || (url.scheme() == "https" && !http_client::names_this_machine(url))
}

/// Where a server at `base` says that its own metadata is: that has to be on its own origin, as
/// nothing else speaks for it, and a request is made for it before any of it is known.
pub fn own_metadata(base: &Url, named: &str) -> Option<Url> {
    let own = base.join(named).ok().filter(|named| is_own(base, named));
    own.filter(|named| !http_client::names_link_local(named))
}

/// Where the metadata of a server at `url` may be: for its path, and for all of its origin.
pub fn resource_places(url: &Url) -> Vec<Url> {
    let root = root(url);
    let mut places =
        Vec::from([url.path(), ""].map(|path| below(&root, "oauth-protected-resource", path)));
    // They are the same where the path is `/`.
    places.dedup();
    places
}

/// Where the metadata of an issuer may be, in the order of MCP's specification.
pub fn issuer_places(issuer: &Url) -> Vec<Url> {
    let root = root(issuer);
    let path = issuer.path();
    let mut places = vec![
        below(&root, "oauth-authorization-server", path),
        below(&root, "openid-configuration", path),
    ];
    if path != "/" {
        let mut appended = root;
        appended
            .set_path(&format!("{}/.well-known/openid-configuration", path.trim_end_matches('/')));
        places.push(appended);
    }
    places
}

fn below(root: &Url, name: &str, path: &str) -> Url {
    let mut url = root.clone();
    url.set_path(&format!("/.well-known/{name}{}", path.trim_end_matches('/')));
    url
}

pub fn root(url: &Url) -> Url {
    url.join("/").expect("an address of a server has a root")
}

/// The name of the server at `url` in a request for a token: its address without query and
/// fragment.
pub fn resource_name(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let text = url.as_str();
    // RFC 8707 and MCP: without a slash where the path is nothing else.
    if url.path() == "/" { text.trim_end_matches('/').to_owned() } else { text.to_owned() }
}

/// Why metadata was not read.
#[derive(Debug)]
pub enum MetadataFailure {
    /// The place gave no answer; it may later. In words.
    NoAnswer(String),
    /// What is there is no text.
    NoText,
}

impl MetadataFailure {
    /// The failure to read the metadata at `url`.
    pub fn at(self, url: &Url) -> IssueError {
        let place = shown(url);
        match self {
            Self::NoAnswer(why) => IssueError::passing(format!("{place} gave no answer: {why}")),
            Self::NoText => IssueError::lasting(format!("the metadata at {place} is no text")),
        }
    }
}

/// The text at `url`; `None` where there is nothing.
pub async fn fetch(client: &Client, url: &Url) -> Result<Option<String>, MetadataFailure> {
    let exchange = async {
        let request = client.get(url.clone()).header(ACCEPT, "application/json");
        let response = client.send_repeatable(request).await?;
        let status = response.status();
        Ok::<_, reqwest::Error>((status, http_client::body(response, MAX_METADATA).await))
    };
    let no_answer = MetadataFailure::NoAnswer;
    let (status, body) = match timeout(PATIENCE, exchange).await {
        Err(_late) => return Err(no_answer(format!("none in {} s", PATIENCE.as_secs()))),
        Ok(Err(error)) => return Err(no_answer(error_chain(&error.without_url()))),
        Ok(Ok(answer)) => answer,
    };
    match status {
        StatusCode::OK => {
            let body: Bytes = body.map_err(|error| no_answer(error.to_string()))?;
            let text = String::from_utf8(body.to_vec());
            text.map(Some).map_err(|_bad| MetadataFailure::NoText)
        }
        status if status.is_server_error() => Err(no_answer(format!("HTTP {}", status.as_u16()))),
        // Servers answer 404, and some 401 or 403, to paths that they do not have.
        _ => Ok(None),
    }
}

/// The texts in a list.
pub fn texts(raw: &RawValue) -> Vec<String> {
    let elements = elements(raw.get()).unwrap_or_default();
    elements.into_iter().filter_map(|raw| serde_json::from_str(raw.get()).ok()).collect()
}
