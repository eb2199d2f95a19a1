//! Finds out where a server's tokens are issued: from the server's metadata as a protected resource
//! (RFC 9728), then from that of its authorization server (RFC 8414, OpenID Connect).
//!
//! Must not: send a secret, or take an address that a server may not name ([`may_name`]).

use url::Url;

use super::client_credentials::{Endpoint, EndpointSource};
use crate::http_client::Clients;
use crate::http_client::address::{is_own, shown};
use crate::model::Members;
use crate::oauth::challenge::Challenge;
use crate::oauth::discovery::{
    self, MetadataFailure, issuer_places, may_name, resource_places, root, texts,
};
use crate::oauth::endpoint::ClientAuthMethod;
use crate::oauth::{IssueError, IssueResult};

/// Who issues tokens for a server, and what the server calls itself there.
type Resource = (Url, Option<String>);

/// Finds out where the server that gave `challenge` has its tokens issued, and how a client shows
/// its secret there.
pub(super) async fn find(
    clients: &Clients,
    challenge: &Challenge,
) -> IssueResult<(Endpoint, ClientAuthMethod)> {
    let base = &challenge.url;
    let (issuer, resource) = match resource(clients, challenge).await? {
        Some(resource) => resource,
        // Servers of MCP's 2025-03-26 issue tokens themselves and have no such metadata.
        None => (root(base), None),
    };
    for place in issuer_places(&issuer) {
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
        let methods = metadata.get("token_endpoint_auth_methods_supported").map(texts);
        let endpoint = Endpoint {
            is_own: is_own(base, &url),
            url,
            audience,
            resource,
            scope: challenge.scope.clone(),
            source: EndpointSource::Metadata,
        };
        return Ok((endpoint, supported_auth_method(methods.as_deref())));
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

/// The server's metadata about itself; `None` if it has none.
async fn resource(clients: &Clients, challenge: &Challenge) -> IssueResult<Option<Resource>> {
    let base = &challenge.url;
    let places = match &challenge.metadata {
        Some(named) => vec![own_metadata(base, named)?],
        None => resource_places(base),
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
        let issuers = metadata.get("authorization_servers").map(texts).unwrap_or_default();
        let Some(issuer) = issuers.first() else {
            return Err(wrong("names no authorization server"));
        };
        let issuer = endpoint(Some(base), issuer).map_err(|why| wrong(&why))?;
        return Ok(Some((issuer, name)));
    }
    Ok(None)
}

/// Where a server at `base` says that its own metadata is.
fn own_metadata(base: &Url, named: &str) -> IssueResult<Url> {
    discovery::own_metadata(base, named).ok_or_else(|| {
        let why = "the server's `resource_metadata` cannot be used: it is not on the server's own \
                   origin; set `auth.oauth.token_url`";
        IssueError::lasting(why.to_owned())
    })
}

/// The text at `url`, which the server at `base` has named; `None` where there is nothing.
async fn get(clients: &Clients, base: &Url, url: &Url) -> IssueResult<Option<String>> {
    let client = clients.to_named(url, is_own(base, url));
    discovery::fetch(&client, url).await.map_err(|failure| match failure {
        MetadataFailure::NoText => unusable(url, "is no text"),
        failure @ MetadataFailure::NoAnswer(_) => failure.at(url),
    })
}

fn unusable(url: &Url, why: &str) -> IssueError {
    let place = shown(url);
    IssueError::lasting(format!("the metadata at {place} {why}; set `auth.oauth.token_url`"))
}

fn supported_auth_method(methods: Option<&[String]>) -> ClientAuthMethod {
    let methods = methods.unwrap_or_default();
    if methods.iter().any(|method| method == "client_secret_post")
        && !methods.iter().any(|method| method == "client_secret_basic")
    {
        ClientAuthMethod::InBody
    } else {
        ClientAuthMethod::InHeader
    }
}

#[cfg(test)]
mod tests;
