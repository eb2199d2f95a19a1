//! Chooses the interfaces of an Agent Card that the bridge speaks and may call, in the order in
//! which it tries them.
//!
//! Must not: do IO. An [`Endpoint`] is made here and nowhere else, so holding one proves that the
//! configured headers may go to it.

use url::{Host, Url};

pub(super) use crate::backend::Generation;
use crate::config::{A2a, A2aBinding};
use crate::http_client;
use crate::http_client::address::{names_user, shown};
use crate::model::card::{Card, Interface};
use crate::model::visible;

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
    /// The operator's own address, in place of those in the card.
    pub endpoint: Option<&'a Url>,
    /// Whether requests carry credentials that must not go over plain http.
    pub keeps_from_plain: bool,
}

impl<'a> Rules<'a> {
    pub(super) fn new(config: &'a A2a, card_url: Option<&'a Url>) -> Self {
        Self {
            card_url,
            allow_hosts: &config.allow_hosts,
            binding: config.binding,
            endpoint: config.endpoint.as_deref(),
            keeps_from_plain: config.has_credentials() && !config.allow_plain,
        }
    }
}

/// Why an interface cannot be used, in words that follow its description, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    why: String,
    cure: Option<String>,
}

/// No interface of the card can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoInterface {
    #[error(
        "the card names no interface: it needs `supportedInterfaces` (A2A 1.0) or `url` (A2A 0.3)"
    )]
    NoneNamed,
    /// Why each interface cannot be used, the interface as it may be shown included.
    #[error("the card offers no interface that the bridge can use: {}", texts(.0))]
    NoneUsable(Vec<Flaw>),
}

fn texts(flaws: &[Flaw]) -> String {
    let texts: Vec<&str> = flaws.iter().map(|flaw| flaw.why.as_str()).collect();
    texts.join("; ")
}

impl NoInterface {
    /// What the operator does about it.
    pub(super) fn cure(&self) -> String {
        let cure = match self {
            Self::NoneNamed => None,
            Self::NoneUsable(flaws) => flaws.iter().find_map(|flaw| flaw.cure.clone()),
        };
        cure.unwrap_or_else(|| {
            "have the agent's operator correct its card, or set `endpoint: https://…` to the \
             address that the agent is called at"
                .to_owned()
        })
    }
}

/// The interfaces to call, the one to try first in front; at least one.
///
/// The card's order decides between bindings, except that gRPC comes last: gRPC alone does not
/// carry an agent's data verbatim. If the card offers both generations of the first binding, the
/// newer one comes first. The others follow in the card's order.
pub(super) fn choose(card: &Card, rules: Rules<'_>) -> Result<Vec<Endpoint>, NoInterface> {
    if let Some(url) = rules.endpoint {
        return Ok(vec![at_operators_address(card, rules, url)]);
    }
    let mut usable: Vec<Endpoint> = Vec::new();
    let mut flaws = Vec::new();
    for interface in &card.interfaces {
        match judge(interface, rules) {
            Ok(endpoint) if usable.contains(&endpoint) => {}
            Ok(endpoint) => usable.push(endpoint),
            Err(Flaw { why, cure }) => {
                flaws.push(Flaw { why: format!("{} {why}", describe(interface)), cure });
            }
        }
    }
    let Some(first) = preferred(&usable) else {
        return Err(if flaws.is_empty() {
            NoInterface::NoneNamed
        } else {
            NoInterface::NoneUsable(flaws)
        });
    };
    usable[..=first].rotate_right(1);
    Ok(usable)
}

/// The place of the interface to try first.
fn preferred(usable: &[Endpoint]) -> Option<usize> {
    let json = usable.iter().find(|endpoint| endpoint.binding != A2aBinding::Grpc);
    let binding = json.or(usable.first())?.binding;
    let of_binding = usable.iter().filter(|endpoint| endpoint.binding == binding);
    // `max_by_key` would find the last of the newest.
    let newest = of_binding.map(|endpoint| endpoint.generation).max()?;
    usable.iter().position(|endpoint| endpoint.binding == binding && endpoint.generation == newest)
}

/// The operator's own address, called as the card says of its best interface.
///
/// An interface of the card with this address decides the binding and the version; else the one
/// that would be called if all addresses could be used. The operator's word needs no permission.
fn at_operators_address(card: &Card, rules: Rules<'_>, url: &Url) -> Endpoint {
    let mut candidates: Vec<Endpoint> = Vec::new();
    let mut same = None;
    for interface in &card.interfaces {
        let Ok((binding, generation)) = wire_format(interface, rules) else { continue };
        if address(interface, binding, rules).is_ok_and(|named| named == *url) {
            same.get_or_insert(candidates.len());
        }
        candidates.push(endpoint(interface, url.clone(), binding, generation));
    }
    let best = same.or_else(|| preferred(&candidates));
    if let Some(best) = best.and_then(|place| candidates.into_iter().nth(place)) {
        return best;
    }
    // The card says nothing of this binding, so its newest version is the best guess.
    let binding = rules.binding.unwrap_or(A2aBinding::JsonRpc);
    let versions = card.interfaces.iter().map(|interface| interface.version.as_deref());
    let newest = versions.filter_map(generation).max();
    let generation = match (binding, newest) {
        (A2aBinding::Grpc, _) => Generation::V10,
        (_, newest) => newest.unwrap_or(Generation::V03),
    };
    let version = match generation {
        Generation::V03 => "0.3",
        Generation::V10 => "1.0",
    };
    let version = version.to_owned();
    Endpoint { url: url.clone(), binding, generation, version, tenant: None }
}

fn endpoint(
    interface: &Interface,
    url: Url,
    binding: A2aBinding,
    generation: Generation,
) -> Endpoint {
    let version = interface.version.clone().unwrap_or_else(|| "0.3".to_owned());
    Endpoint { url, binding, generation, version, tenant: interface.tenant.clone() }
}

/// The endpoint, or why the interface cannot be used: it ...
fn judge(interface: &Interface, rules: Rules<'_>) -> Result<Endpoint, Flaw> {
    let (binding, generation) = wire_format(interface, rules)?;
    let url = address(interface, binding, rules)?;
    check_host(&url, rules)?;
    Ok(endpoint(interface, url, binding, generation))
}

/// How the interface is spoken to, if the bridge can and may.
fn wire_format(interface: &Interface, rules: Rules<'_>) -> Result<(A2aBinding, Generation), Flaw> {
    let binding = binding(&interface.binding)
        .ok_or_else(|| flaw("is a binding that the bridge does not speak"))?;
    if let Some(wanted) = rules.binding.filter(|wanted| *wanted != binding) {
        let why = format!("is not the configured `transport: {}`", wanted.as_str());
        let cure = "leave `transport` out, or choose one that the card offers".to_owned();
        return Err(Flaw { why, cure: Some(cure) });
    }
    let generation = generation(interface.version.as_deref())
        .ok_or_else(|| flaw("is neither A2A 0.x nor 1.x"))?;
    // gRPC of 0.x is another service.
    if binding == A2aBinding::Grpc && generation == Generation::V03 {
        return Err(flaw("is gRPC of A2A 0.x, of which 1.x alone is spoken"));
    }
    Ok((binding, generation))
}

fn flaw(why: impl Into<String>) -> Flaw {
    Flaw { why: why.into(), cure: None }
}

/// The address that the interface names.
///
/// An empty address and one with a placeholder would resolve to some path of the card's own server,
/// which answers 404 to each call; so they are told apart before that.
fn address(interface: &Interface, binding: A2aBinding, rules: Rules<'_>) -> Result<Url, Flaw> {
    let text = interface.url.trim();
    let is_address = binding == A2aBinding::Grpc && is_bare(text);
    if let Some(why) = no_address(text, is_address) {
        return Err(Flaw { why: why.to_owned(), cure: Some(endpoint_cure(rules, None)) });
    }
    let url = match rules.card_url {
        _ if is_address => {
            // With the card's scheme, so that an agent behind https is not called over http.
            let scheme = rules.card_url.map_or("https", Url::scheme);
            Url::parse(&format!("{scheme}://{text}"))
        }
        Some(base) => base.join(text),
        None => Url::parse(text),
    };
    let url = url.map_err(|error| flaw(format!("has no usable URL ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(flaw("has no usable URL (it is not an http or https URL)"));
    }
    Ok(url)
}

/// Why `text` is no address at all, if it is none.
fn no_address(text: &str, is_bare_address: bool) -> Option<&'static str> {
    /// What authors leave in the templates of cards. Hosts and paths that work are in lower case.
    const PLACEHOLDERS: [&str; 5] = ["REPLACE", "YOUR", "CHANGEME", "CHANGE_ME", "PLACEHOLDER"];
    if text.is_empty() {
        return Some("has an empty URL");
    }
    let is_template =
        text.contains(['{', '}', '<', '>']) || PLACEHOLDERS.iter().any(|word| text.contains(word));
    if is_template {
        return Some("has a placeholder in place of its URL");
    }
    if !text.contains("://") && !text.starts_with('/') && !is_bare_address {
        return Some("has no usable URL (it begins neither with http:// or https:// nor with /)");
    }
    None
}

/// Whether the configured headers may go to `url`.
///
/// The headers carry secrets. A card that is not the operator's own must direct them neither to a
/// host that is not allowed, nor over plain http if it came over https itself.
fn check_host(url: &Url, rules: Rules<'_>) -> Result<(), Flaw> {
    if names_user(url) {
        let why = "carries a user name or password in its URL; put credentials into `headers`";
        return Err(flaw(why));
    }
    if http_client::names_link_local(url) {
        return Err(flaw("is a link-local address, which is never called"));
    }
    let Some(card_url) = rules.card_url.filter(|card_url| card_url.origin() != url.origin()) else {
        return Ok(());
    };
    let is_allowed = rules.allow_hosts.iter().any(|allowed| names(allowed, url));
    if !is_allowed && is_unspecified(url) {
        let why = "is an address to listen at, and none to call";
        return Err(Flaw { why: why.to_owned(), cure: Some(endpoint_cure(rules, Some(url))) });
    }
    let host = host_and_port(url);
    let is_downgrade = card_url.scheme() == "https" && url.scheme() == "http";
    if is_downgrade && rules.keeps_from_plain {
        let more = if is_allowed { "" } else { " and add the host to `allow_hosts`" };
        return Err(Flaw {
            why: "is plain http, while its card came over https: others on the network path could \
                  read the entry's credentials"
                .to_owned(),
            cure: Some(format!(
                "ask the agent's operator for an https address, and set it as `endpoint`; only if \
                 you trust the whole network to {host}, write `allow_plain: true`{more}: the \
                 credentials then travel in plain text"
            )),
        });
    }
    if is_allowed {
        return Ok(());
    }
    let origin = card_url.origin().ascii_serialization();
    let warning =
        if is_downgrade { "; messages and answers then travel in plain text" } else { "" };
    Err(Flaw {
        why: format!("is not on the card's own origin {origin}, and not in `allow_hosts`"),
        cure: Some(format!(
            "if it is right, add `{host}` to the agent's `allow_hosts`{warning}; if the agent is \
             reached at another address, set `endpoint` to that"
        )),
    })
}

/// Whether it is `0.0.0.0` or `[::]`, which a server listens at.
fn is_unspecified(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_unspecified(),
        Some(Host::Ipv6(ip)) => ip.is_unspecified(),
        Some(Host::Domain(_)) | None => false,
    }
}

/// The cure for an address that cannot be called; `named` is the one that the card names.
fn endpoint_cure(rules: Rules<'_>, named: Option<&Url>) -> String {
    let guess = named.zip(rules.card_url).and_then(|(named, card_url)| {
        let mut guess = named.clone();
        guess.set_host(card_url.host_str()).ok()?;
        Some(shown(&guess))
    });
    let example = guess.map(|guess| format!(", such as {guess}")).unwrap_or_default();
    format!(
        "have the agent's operator correct its card, or set `endpoint` to the address that the \
         agent is called at{example}"
    )
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
