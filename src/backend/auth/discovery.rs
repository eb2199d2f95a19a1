//! Finds out where a server's tokens are issued: from the server's metadata as a protected resource
//! (RFC 9728), then from that of its authorization server (RFC 8414, OpenID Connect).
//!
//! Must not: send a secret, or take an address that a server may not name ([`may_name`]).

use bytes::Bytes;
use http::StatusCode;
use http::header::ACCEPT;
use serde_json::value::RawValue;
use tokio::time::timeout;
use url::Url;

use super::Challenge;
use super::client_credentials::{Endpoint, EndpointSource};
use crate::backend::address::{is_own, names_user, shown};
use crate::error_chain::error_chain;
use crate::http_client;
use crate::http_client::Clients;
use crate::model::{Members, elements};
use crate::oauth::endpoint::{PATIENCE, Shows};
use crate::oauth::{IssueError, IssueResult};

/// The largest metadata, in bytes.
const MAX_METADATA: usize = 256 * 1024;

/// Who issues tokens for a server, and what the server calls itself there.
type Resource = (Url, Option<String>);

/// Finds out where the server that gave `challenge` has its tokens issued, and how a client shows
/// its secret there.
pub(super) async fn find(
    clients: &Clients,
    challenge: &Challenge,
) -> IssueResult<(Endpoint, Shows)> {
    let base = &challenge.url;
    let (issuer, resource) = match resource(clients, challenge).await? {
        Some(resource) => resource,
        // Servers of MCP's 2025-03-26 issue tokens themselves and have no such metadata.
        None => (root(base), None),
    };
    for place in issuer_metadata(&issuer) {
        let Some(text) = get(clients, base, &place).await? else { continue };
        let wrong = |why: &str| unusable(&place, why);
        let metadata = Members::read(&text).map_err(|_bad| wrong("is no JSON object"))?;
        let audience = metadata.string("issuer").unwrap_or_default();
        if audience.trim_end_matches('/') != issuer.as_str().trim_end_matches('/') {
            return Err(wrong("is that of another issuer"));
        }
        let Some(token_endpoint) = metadata.string("token_endpoint") else {
            return Err(wrong("names no token endpoint"));
        };
        let url = endpoint(Some(base), &token_endpoint).map_err(|why| wrong(&why))?;
        let methods = metadata.get("token_endpoint_auth_methods_supported").map(strings);
        let endpoint = Endpoint {
            is_own: is_own(base, &url),
            url,
            audience,
            resource,
            scope: challenge.scope.clone(),
            source: EndpointSource::Metadata,
        };
        return Ok((endpoint, shows(methods.as_deref())));
    }
    let origin = base.origin().ascii_serialization();
    Err(IssueError::lasting(format!(
        "{origin} does not say where its tokens are issued; set `auth.oauth.token_url`"
    )))
}

/// An address that a server at `base` names for something that a secret goes to. `base` is `None`
/// where an operator's own file names it.
pub(super) fn endpoint(base: Option<&Url>, named: &str) -> Result<Url, String> {
    let url = match base {
        Some(base) => base.join(named),
        None => Url::parse(named),
    }
    .map_err(|error| format!("it names an address that is no URL ({error})"))?;
    if may_name(base, &url) {
        return Ok(url);
    }
    Err(format!(
        "it names {}, which is not https and not its own; if it is right, set \
         `auth.oauth.token_url`",
        shown(&url)
    ))
}

/// Whether a server at `base` may send the bridge to `url`: to its own origin, or to another
/// machine by https. A server on this machine may name no other address of this machine either:
/// services there may trust every local client. Link-local addresses are never allowed.
fn may_name(base: Option<&Url>, url: &Url) -> bool {
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

/// The server's metadata about itself; `None` if it has none.
async fn resource(clients: &Clients, challenge: &Challenge) -> IssueResult<Option<Resource>> {
    let base = &challenge.url;
    let places = match &challenge.metadata {
        Some(named) => vec![own_metadata(base, named)?],
        None => resource_metadata(base),
    };
    for url in places {
        let Some(text) = get(clients, base, &url).await? else { continue };
        let wrong = |why: &str| unusable(&url, why);
        let metadata = Members::read(&text).map_err(|_bad| wrong("is no JSON object"))?;
        let name = metadata.string("resource");
        let own = name.as_ref().and_then(|name| Url::parse(name).ok());
        if own.is_some_and(|own| own.origin() != base.origin()) {
            return Err(wrong("is that of another server"));
        }
        let issuers = metadata.get("authorization_servers").map(strings).unwrap_or_default();
        let Some(issuer) = issuers.first() else {
            return Err(wrong("names no authorization server"));
        };
        let issuer = endpoint(Some(base), issuer).map_err(|why| wrong(&why))?;
        return Ok(Some((issuer, name)));
    }
    Ok(None)
}

/// Where a server at `base` says that its own metadata is: that has to be on its own origin, as
/// nothing else speaks for it, and a request is made for it before any of it is known.
fn own_metadata(base: &Url, named: &str) -> IssueResult<Url> {
    let own = base.join(named).ok().filter(|named| is_own(base, named));
    own.filter(|named| !http_client::names_link_local(named)).ok_or_else(|| {
        let why = "the server's `resource_metadata` cannot be used: it is not on the server's own \
                   origin; set `auth.oauth.token_url`";
        IssueError::lasting(why.to_owned())
    })
}

/// Where the metadata of a server at `url` may be: for its path, and for all of its origin.
fn resource_metadata(url: &Url) -> Vec<Url> {
    let root = root(url);
    let mut places =
        Vec::from([url.path(), ""].map(|path| below(&root, "oauth-protected-resource", path)));
    // They are the same where the path is `/`.
    places.dedup();
    places
}

/// Where the metadata of an issuer may be, in the order of MCP's specification.
fn issuer_metadata(issuer: &Url) -> Vec<Url> {
    let root = root(issuer);
    let path = issuer.path();
    let mut places = vec![
        below(&root, "oauth-authorization-server", path),
        below(&root, "openid-configuration", path),
    ];
    if path != "/" {
        let mut inside = root;
        inside
            .set_path(&format!("{}/.well-known/openid-configuration", path.trim_end_matches('/')));
        places.push(inside);
    }
    places
}

fn below(root: &Url, name: &str, path: &str) -> Url {
    let mut url = root.clone();
    url.set_path(&format!("/.well-known/{name}{}", path.trim_end_matches('/')));
    url
}

fn root(url: &Url) -> Url {
    url.join("/").expect("an address of a server has a root")
}

/// The text at `url`, which the server at `base` has named; `None` where there is nothing.
async fn get(clients: &Clients, base: &Url, url: &Url) -> IssueResult<Option<String>> {
    let exchange = async {
        let client = clients.to_named(url, is_own(base, url));
        let request = client.get(url.clone()).header(ACCEPT, "application/json");
        let response = client.send_repeatable(request).await?;
        let status = response.status();
        Ok::<_, reqwest::Error>((status, http_client::body(response, MAX_METADATA).await))
    };
    let (status, body) = match timeout(PATIENCE, exchange).await {
        Err(_late) => return Err(no_answer(url, &format!("none in {} s", PATIENCE.as_secs()))),
        Ok(Err(error)) => return Err(no_answer(url, &error_chain(&error.without_url()))),
        Ok(Ok(answer)) => answer,
    };
    match status {
        StatusCode::OK => {
            let body: Bytes = body.map_err(|error| no_answer(url, &error.to_string()))?;
            let text = String::from_utf8(body.to_vec());
            text.map(Some).map_err(|_bad| unusable(url, "is no text"))
        }
        status if status.is_server_error() => {
            Err(no_answer(url, &format!("HTTP {}", status.as_u16())))
        }
        // Servers answer 404, and some 401 or 403, to paths that they do not have.
        _ => Ok(None),
    }
}

fn no_answer(url: &Url, why: &str) -> IssueError {
    IssueError::passing(format!("{} gave no answer: {why}", shown(url)))
}

fn unusable(url: &Url, why: &str) -> IssueError {
    let place = shown(url);
    IssueError::lasting(format!("the metadata at {place} {why}; set `auth.oauth.token_url`"))
}

fn shows(methods: Option<&[String]>) -> Shows {
    let methods = methods.unwrap_or_default();
    if methods.iter().any(|method| method == "client_secret_post")
        && !methods.iter().any(|method| method == "client_secret_basic")
    {
        Shows::InBody
    } else {
        Shows::InHeader
    }
}

fn strings(raw: &RawValue) -> Vec<String> {
    let elements = elements(raw.get()).unwrap_or_default();
    elements.into_iter().filter_map(|raw| serde_json::from_str(raw.get()).ok()).collect()
}

#[cfg(test)]
mod tests;
