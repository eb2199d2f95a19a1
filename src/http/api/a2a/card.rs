//! The agent's card for clients of the bridge: with the bridge's address and security, and without
//! what the bridge does not pass on. All else stays as the agent wrote it. Pure.
//!
//! Must not: change what the card says of the agent itself.

use serde_json::json;
use serde_json::value::RawValue;

use super::message::plain;
use crate::backend::{A2aWire, Generation};
use crate::config::A2aBinding;
use crate::model::Members;
use crate::model::json::{elements, quoted};

/// The name of the bridge's scheme among `securitySchemes`.
const SCHEME: &str = "bridge";

/// What a card is written for.
#[derive(Debug, Clone, Copy)]
pub(super) struct CardView<'a> {
    /// The agent's address at the bridge.
    pub url: &'a str,
    /// The wires that the bridge can relay.
    pub wires: &'a [A2aWire],
    /// The bridge has the agent's extended card.
    pub has_extended_card: bool,
}

/// Members of a card that speak of the agent's own address and security, which are written anew or
/// left out. So are other spellings of their names (`additional_interfaces`): the Python SDKs read
/// these, and would send the app's token to the address there.
const REPLACED: [&str; 9] = [
    "signatures",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportedInterfaces",
    "securitySchemes",
    "security",
    "securityRequirements",
    "supportsAuthenticatedExtendedCard",
];

impl CardView<'_> {
    /// The card as JSON; `None` if the agent's is no object.
    pub(super) fn write(self, card: &RawValue) -> Option<String> {
        let members = Members::read(card.get()).ok()?;
        let has = |key: &str| members.get(key).is_some_and(|value| value.get() != "null");
        // A card of both versions has the members of both.
        let (is_new, is_old) = (has("supportedInterfaces"), has("url"));
        let mut written = Vec::new();
        for (key, value) in &members.0 {
            match key.as_ref() {
                "capabilities" => written.push(member("capabilities", &self.capabilities(value))),
                "skills" => written.push(member("skills", &skills(value))),
                key if is_one_of(key, &REPLACED) || is_one_of(key, &["capabilities", "skills"]) => {
                }
                key => written.push(member(key, value.get())),
            }
        }
        if members.get("capabilities").is_none() {
            written.push(member("capabilities", r#"{"pushNotifications":false}"#));
        }
        if is_new || !is_old {
            let interfaces = self.interfaces(&members);
            written.push(member("supportedInterfaces", &interfaces));
            let requirement = json!([{ "schemes": { SCHEME: { "list": [] } } }]);
            written.push(member("securityRequirements", &requirement.to_string()));
        }
        if is_old {
            written.extend(self.addresses_of_0_3(&members));
            written.push(member("security", &json!([{ SCHEME: [] }]).to_string()));
        }
        if has("supportsAuthenticatedExtendedCard") {
            let value = if self.has_extended_card { "true" } else { "false" };
            written.push(member("supportsAuthenticatedExtendedCard", value));
        }
        written.push(member("securitySchemes", &schemes(is_new || !is_old, is_old)));
        Some(format!("{{{}}}", written.join(",")))
    }

    /// The capabilities without what the bridge does not pass on.
    fn capabilities(self, value: &RawValue) -> String {
        let Ok(members) = Members::read(value.get()) else {
            return r#"{"pushNotifications":false}"#.to_owned();
        };
        let mut written = Vec::new();
        for (key, value) in &members.0 {
            match key.as_ref() {
                "extendedAgentCard" => {
                    let value = if self.has_extended_card { "true" } else { "false" };
                    written.push(member("extendedAgentCard", value));
                }
                key if is_one_of(key, &["pushNotifications", "extendedAgentCard"]) => {}
                key => written.push(member(key, value.get())),
            }
        }
        written.push(member("pushNotifications", "false"));
        format!("{{{}}}", written.join(","))
    }

    /// The interfaces of 1.0's form that the bridge can relay, in the card's order. Where the card
    /// has none of them, the operator's own address is called in another wire.
    fn interfaces(self, card: &Members<'_>) -> String {
        let mut written = Vec::new();
        let mut named = Vec::new();
        for entry in card.objects("supportedInterfaces") {
            let binding = entry.string("protocolBinding").unwrap_or_else(|| "JSONRPC".to_owned());
            let version = entry.string("protocolVersion");
            let Some(wire) = wire(&binding, version.as_deref()) else { continue };
            // One address for all: an agent may have several for one wire.
            if !self.wires.contains(&wire) || named.contains(&wire) {
                continue;
            }
            named.push(wire);
            let members = entry.0.iter().filter(|(key, _)| !is_one_of(key, &["url", "tenant"]));
            let members = members.map(|(key, value)| member(key, value.get()));
            let url = std::iter::once(member("url", &quoted(self.url)));
            written.push(format!("{{{}}}", url.chain(members).collect::<Vec<_>>().join(",")));
        }
        for wire in self.wires.iter().filter(|_| named.is_empty()) {
            let version = match wire.generation {
                Generation::V03 => "0.3",
                Generation::V10 => "1.0",
            };
            let interface = json!({
                "url": self.url,
                "protocolBinding": name(wire.binding),
                "protocolVersion": version,
            });
            written.push(interface.to_string());
        }
        format!("[{}]", written.join(","))
    }

    /// The members of 0.3 that say where the agent is; none if the bridge can relay none of its
    /// bindings in 0.3.
    fn addresses_of_0_3(self, card: &Members<'_>) -> Vec<String> {
        let preferred = card.string("preferredTransport").unwrap_or_else(|| "JSONRPC".to_owned());
        let others = card.objects("additionalInterfaces");
        let others = others.iter().filter_map(|entry| entry.string("transport"));
        let mut transports: Vec<String> = Vec::new();
        for transport in std::iter::once(preferred).chain(others) {
            let is_relayed =
                wire(&transport, Some("0.3")).is_some_and(|wire| self.wires.contains(&wire));
            if is_relayed && !transports.contains(&transport) {
                transports.push(transport);
            }
        }
        if transports.is_empty() {
            let old = self.wires.iter().filter(|wire| wire.generation == Generation::V03);
            transports.extend(old.map(|wire| name(wire.binding).to_owned()));
        }
        let Some((preferred, others)) = transports.split_first() else { return Vec::new() };
        let others: Vec<_> = others
            .iter()
            .map(|transport| json!({ "transport": transport, "url": self.url }))
            .collect();
        let mut written = vec![
            member("url", &quoted(self.url)),
            member("preferredTransport", &quoted(preferred)),
        ];
        if !others.is_empty() {
            written.push(member("additionalInterfaces", &json!(others).to_string()));
        }
        written
    }
}

/// The wire of an interface that a card names, if it is one of JSON.
fn wire(binding: &str, version: Option<&str>) -> Option<A2aWire> {
    let binding = match binding {
        "JSONRPC" => A2aBinding::JsonRpc,
        "HTTP+JSON" => A2aBinding::HttpJson,
        _ => return None,
    };
    let generation = match version.unwrap_or("0.3") {
        version if version.starts_with("0.") => Generation::V03,
        version if version == "1" || version.starts_with("1.") => Generation::V10,
        _ => return None,
    };
    Some(A2aWire { binding, generation })
}

fn name(binding: A2aBinding) -> &'static str {
    match binding {
        A2aBinding::JsonRpc => "JSONRPC",
        A2aBinding::HttpJson => "HTTP+JSON",
        A2aBinding::Grpc => "GRPC",
    }
}

/// The wires that a card names, of those that are of JSON. Which of them may be called, the agent's
/// connection knows.
pub(super) fn named_wires(card: &RawValue) -> Vec<A2aWire> {
    let Ok(members) = Members::read(card.get()) else { return Vec::new() };
    let mut wires = Vec::new();
    for entry in members.objects("supportedInterfaces") {
        let binding = entry.string("protocolBinding").unwrap_or_else(|| "JSONRPC".to_owned());
        wires.extend(wire(&binding, entry.string("protocolVersion").as_deref()));
    }
    if members.get("url").is_some() {
        let version = members.string("protocolVersion");
        let preferred =
            members.string("preferredTransport").unwrap_or_else(|| "JSONRPC".to_owned());
        let others = members.objects("additionalInterfaces");
        let others = others.iter().filter_map(|entry| entry.string("transport"));
        for binding in std::iter::once(preferred).chain(others) {
            wires.extend(wire(&binding, version.as_deref()));
        }
    }
    wires
}

/// The skills without the security that each of them asks for at the agent.
fn skills(value: &RawValue) -> String {
    let Ok(skills) = elements(value.get()) else { return value.get().to_owned() };
    let mut written = Vec::new();
    for skill in skills {
        let Ok(members) = Members::read(skill.get()) else {
            written.push(skill.get().to_owned());
            continue;
        };
        let is_security = |key: &str| is_one_of(key, &["security", "securityRequirements"]);
        if !members.0.iter().any(|(key, _)| is_security(key)) {
            written.push(skill.get().to_owned());
            continue;
        }
        let rest = members.0.iter().filter(|(key, _)| !is_security(key));
        let rest: Vec<_> = rest.map(|(key, value)| member(key, value.get())).collect();
        written.push(format!("{{{}}}", rest.join(",")));
    }
    format!("[{}]", written.join(","))
}

/// The bridge's one scheme, a bearer token, in the forms of the versions that the card has.
fn schemes(is_new: bool, is_old: bool) -> String {
    let about = "The token of an app of the bridge";
    let new = json!({ "scheme": "bearer", "description": about });
    let scheme = match (is_new, is_old) {
        (true, false) => json!({ "httpAuthSecurityScheme": new }),
        (false, _) => json!({ "type": "http", "scheme": "bearer", "description": about }),
        (true, true) => json!({
            "type": "http",
            "scheme": "bearer",
            "description": about,
            "httpAuthSecurityScheme": new,
        }),
    };
    json!({ SCHEME: scheme }).to_string()
}

/// Whether `key` is one of `names`, in any spelling that an SDK may read.
fn is_one_of(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| plain(name) == plain(key))
}

fn member(key: &str, value: &str) -> String {
    format!("{}:{value}", quoted(key))
}

#[cfg(test)]
mod tests;
