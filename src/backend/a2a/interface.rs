//! Chooses the interface of an Agent Card: the first in the card's order that the bridge speaks and
//! may call.
//!
//! Must not: do IO. An [`Endpoint`] is made here and nowhere else, so holding one proves that the
//! configured headers may go to it.

use url::Url;

use crate::config::A2aBinding;
use crate::http_client;
use crate::http_client::address::{names_user, shown};
use crate::model::card::{Card, Interface};
use crate::model::visible;

/// The two wire formats of A2A, which do not understand each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Generation {
    V03,
    V10,
}

/// Where calls go, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) binding: A2aBinding,
    pub(super) generation: Generation,
    /// The version that the card names, for status pages.
    pub(super) version: String,
    pub(super) tenant: Option<String>,
}

/// The rules for choosing an interface, besides the card.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
    /// Where the card came from; `None` for a file. The operator wrote or chose the file, so its
    /// endpoints need no permission.
    pub card_url: Option<&'a Url>,
    pub allow_hosts: &'a [String],
    /// The binding to use; `None` means the card's preferred one.
    pub binding: Option<A2aBinding>,
}

/// No interface of the card can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoInterface {
    #[error(
        "the card names no interface: it needs `supportedInterfaces` (A2A 1.0) or `url` (A2A 0.3)"
    )]
    NoneNamed,
    /// Each interface as it may be shown, and why it cannot be used.
    #[error("the card offers no interface that the bridge can use: {}", .0.join("; "))]
    NoneUsable(Vec<String>),
}

/// Chooses the interface to call.
///
/// The card's order decides between bindings, except that gRPC comes last: gRPC alone does not
/// carry an agent's data verbatim. If the card offers both generations of the chosen binding, the
/// newer one wins.
pub(super) fn choose(card: &Card, rules: Rules<'_>) -> Result<Endpoint, NoInterface> {
    let mut usable: Vec<Endpoint> = Vec::new();
    let mut why_not = Vec::new();
    for interface in &card.interfaces {
        match judge(interface, rules) {
            Ok(endpoint) => usable.push(endpoint),
            Err(reason) => why_not.push(format!("{} {reason}", describe(interface))),
        }
    }
    let preferred = usable.iter().find(|endpoint| endpoint.binding != A2aBinding::Grpc);
    let Some(binding) = preferred.or(usable.first()).map(|endpoint| endpoint.binding) else {
        return Err(match why_not.is_empty() {
            true => NoInterface::NoneNamed,
            false => NoInterface::NoneUsable(why_not),
        });
    };
    // Find the first of the newest; `max_by_key` would return the last one.
    let newest = usable.iter().filter(|e| e.binding == binding).map(|e| e.generation).max();
    let chosen = usable.into_iter().find(|e| e.binding == binding && Some(e.generation) == newest);
    Ok(chosen.expect("`newest` is the generation of a usable endpoint of this binding"))
}

/// The endpoint, or why the interface cannot be used: it ...
fn judge(interface: &Interface, rules: Rules<'_>) -> Result<Endpoint, String> {
    let binding =
        binding(&interface.binding).ok_or("is a binding that the bridge does not speak")?;
    if let Some(wanted) = rules.binding.filter(|wanted| *wanted != binding) {
        return Err(format!("is not the configured `transport: {}`", wanted.as_str()));
    }
    let generation =
        generation(interface.version.as_deref()).ok_or("is neither A2A 0.x nor 1.x")?;
    // gRPC of 0.x is another service.
    if binding == A2aBinding::Grpc && generation == Generation::V03 {
        return Err("is gRPC of A2A 0.x, of which 1.x alone is spoken".to_owned());
    }
    let url = match rules.card_url {
        _ if binding == A2aBinding::Grpc && is_bare(&interface.url) => {
            // With the card's scheme, so that an agent behind https is not called over http.
            let scheme = rules.card_url.map_or("https", Url::scheme);
            Url::parse(&format!("{scheme}://{}", interface.url))
        }
        Some(base) => base.join(&interface.url),
        None => Url::parse(&interface.url),
    };
    let url = url.map_err(|error| format!("has no usable URL ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("has no usable URL (it is not an http or https URL)".to_owned());
    }
    if names_user(&url) {
        let why = "carries a user name or password in its URL; put credentials into `headers`";
        return Err(why.to_owned());
    }
    if http_client::names_link_local(&url) {
        return Err("is a link-local address, which is never called".to_owned());
    }
    if let Some(card_url) = rules.card_url
        && url.origin() != card_url.origin()
        && !rules.allow_hosts.iter().any(|allowed| names(allowed, &url))
    {
        let origin = card_url.origin().ascii_serialization();
        let host = host_and_port(&url);
        return Err(format!(
            "is not on the card's own origin {origin}; if it is right, add `{host}` to the agent's \
             `allow_hosts`"
        ));
    }
    let version = interface.version.clone().unwrap_or_else(|| "0.3".to_owned());
    Ok(Endpoint { url, binding, generation, version, tenant: interface.tenant.clone() })
}

fn binding(name: &str) -> Option<A2aBinding> {
    let bindings = [
        (a2a::TRANSPORT_PROTOCOL_JSONRPC, A2aBinding::JsonRpc),
        (a2a::TRANSPORT_PROTOCOL_HTTP_JSON, A2aBinding::HttpJson),
        (a2a::TRANSPORT_PROTOCOL_GRPC, A2aBinding::Grpc),
    ];
    let entry = bindings.into_iter().find(|(own_name, _)| name.eq_ignore_ascii_case(own_name));
    entry.map(|(_, binding)| binding)
}

/// Whether it is a `host:port`, as gRPC's own libraries write addresses.
fn is_bare(url: &str) -> bool {
    !url.contains("://") && !url.starts_with('/')
}

fn generation(version: Option<&str>) -> Option<Generation> {
    let Some(version) = version else { return Some(Generation::V03) };
    match version.trim().split('.').next() {
        Some("0") => Some(Generation::V03),
        Some("1") => Some(Generation::V10),
        _ => None,
    }
}

/// Whether an entry of `allow_hosts`, `host` or `host:port`, names the host of `url`.
fn names(allowed: &str, url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    [host, bare, &host_and_port(url)].iter().any(|name| name.eq_ignore_ascii_case(allowed))
}

fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn describe(interface: &Interface) -> String {
    let version = interface.version.as_deref().unwrap_or("no version");
    let url = match Url::parse(&interface.url) {
        Ok(url) if url.has_host() => shown(&url),
        Ok(url) => format!("{}:…", url.scheme()),
        Err(_) if interface.url.contains('@') => "an unreadable URL".to_owned(),
        Err(_) => interface.url.split('?').next().unwrap_or_default().to_owned(),
    };
    visible::line(&format!("{url} ({} {version})", interface.binding), 300)
}

#[cfg(test)]
mod tests;
