//! The keys that other products have in the entry of an MCP server, and what bridge.yaml has in
//! their place.
//!
//! Must not: take a key for one of bridge.yaml's; a person writes that, or `import` does.

use super::document::{Kind, Node, ROOT};
use super::{Document, NodeId};

/// What a key of another product says of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKey {
    /// The same as this key of bridge.yaml.
    Is(&'static str),
    /// `false` turns the server off.
    Enabled,
    /// The tools that the server has there, and no others.
    Allowed,
    /// The tools that it has not.
    Denied,
    /// The tools before whose calls a person is asked.
    Asked,
    /// The tools whose calls nobody is asked for.
    Unasked,
    /// Whether a person is asked, as a word.
    ApprovalMode,
    /// The address of a server that speaks one transport, which the key implies.
    Address(&'static str),
    CallTimeout(TimeUnit),
    StartTimeout(TimeUnit),
    /// Names of variables that the program gets as they are.
    VariableNames,
    /// The name of the variable that has the token.
    TokenVariable,
    /// The token itself.
    Token,
    /// Names of the variables that have the values of headers.
    HeaderVariables,
    /// A map with `headers` and more.
    RequestOptions,
    /// More keys of the same entry.
    Nested,
    /// How a person logs in.
    Login,
    /// Whether the map `sandbox` counts.
    SandboxSwitch,
    /// What only people or that product read.
    Unneeded,
}

/// The unit of a number that is a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    /// Products differ: the number itself has to tell.
    Unclear,
}

/// Keys in small letters and without `_` and `-`, as products differ in these.
const KEYS: &[(ForeignKey, &str)] = &[
    (ForeignKey::Is("command"), "command cmd"),
    (ForeignKey::Is("args"), "args arguments"),
    (ForeignKey::Is("env"), "env envs environment"),
    (ForeignKey::Is("envFile"), "envfile"),
    (ForeignKey::Is("cwd"), "cwd workingdirectory workingdir workdir"),
    (ForeignKey::Is("url"), "url uri serverurl baseurl"),
    (ForeignKey::Is("headers"), "headers httpheaders customheaders staticheaders"),
    (ForeignKey::Is("transport"), "type transport transporttype"),
    (ForeignKey::Is("disabled"), "disabled isdisabled disable"),
    (ForeignKey::Is("required"), "required"),
    (ForeignKey::Is("sandbox"), "sandbox"),
    (ForeignKey::Is("tools"), "tools"),
    (ForeignKey::Enabled, "enabled isenabled isactive active"),
    (
        ForeignKey::Allowed,
        "includetools includedtools enabledtools allowedtools allowtools availabletools",
    ),
    (
        ForeignKey::Denied,
        "excludetools excludedtools disabledtools disallowedtools deniedtools denytools blockedtools",
    ),
    (ForeignKey::Asked, "disabledautoapprovetools"),
    (ForeignKey::Unasked, "alwaysallow autoapprove autoallow trust trusted"),
    (ForeignKey::ApprovalMode, "approvalmode defaulttoolsapprovalmode"),
    (ForeignKey::Address("streamable-http"), "httpurl"),
    (ForeignKey::Address("sse"), "sseurl"),
    (ForeignKey::CallTimeout(TimeUnit::Unclear), "timeout requesttimeout tooltimeout"),
    (
        ForeignKey::CallTimeout(TimeUnit::Seconds),
        "tooltimeoutsec readtimeoutseconds timeoutseconds",
    ),
    (ForeignKey::CallTimeout(TimeUnit::Milliseconds), "tooltimeoutms timeoutms requesttimeoutms"),
    (ForeignKey::StartTimeout(TimeUnit::Unclear), "connecttimeout startuptimeout"),
    (ForeignKey::StartTimeout(TimeUnit::Seconds), "startuptimeoutsec"),
    (
        ForeignKey::StartTimeout(TimeUnit::Milliseconds),
        "startuptimeoutms inittimeout connectiontimeout",
    ),
    (ForeignKey::VariableNames, "envvars envkeys"),
    (ForeignKey::TokenVariable, "bearertokenenvvar apikeyenv"),
    (ForeignKey::Token, "apikey bearertoken authorizationtoken"),
    (ForeignKey::HeaderVariables, "envhttpheaders"),
    (ForeignKey::RequestOptions, "requestoptions"),
    (ForeignKey::Nested, "config"),
    (
        ForeignKey::Login,
        "oauth auth requiresoauth scopes oauthresource oauthclientid oauthscopes authprovidertype \
         targetaudience targetserviceaccount",
    ),
    (ForeignKey::SandboxSwitch, "sandboxenabled"),
    (
        ForeignKey::Unneeded,
        "$schema alwaysload author autostart bundled category chatmenu comment createdat \
         customuservars description dev displayname documentation dxtversion faviconurl gallery \
         homepage icon iconpath icons iconurl id installedat installsource license logourl \
         longrunning metadata name note notes provider providerurl reference repository \
         searchkey serverinstructions serverlabel source sourcefile sourceid startonlaunch startup stderr \
         supportsparalleltoolcalls tags title updatedat version watchpaths",
    ),
];

/// What `key` says in an entry of another product; `None` if no product is known to have it.
pub fn foreign_key(key: &str) -> Option<ForeignKey> {
    let plain: String =
        key.chars().filter(|c| !"_-".contains(*c)).map(|c| c.to_ascii_lowercase()).collect();
    let mut meanings =
        KEYS.iter().filter(|(_, names)| names.split_whitespace().any(|name| name == plain));
    meanings.next().map(|(meaning, _)| *meaning)
}

impl ForeignKey {
    /// What a person writes into bridge.yaml in place of `key`.
    fn cure(self, key: &str) -> String {
        match self {
            Self::Is(own) => format!("write it as `{own}`"),
            Self::Enabled => format!("write `disabled: true` in place of `{key}: false`"),
            Self::Allowed => "write `tools: {allow: [NAME, …]}`".to_owned(),
            Self::Denied => "write `tools: {deny: [NAME, …]}`".to_owned(),
            Self::Asked => "write `approve: [NAME, …]`".to_owned(),
            Self::Unasked => "leave it out: the bridge asks a person for the tools that `approve` \
                              names, and for no others"
                .to_owned(),
            Self::ApprovalMode => "write `approve: [NAME, …]` for the tools that a person has to \
                                   approve, `\"*\"` for all"
                .to_owned(),
            Self::Address(transport) => format!("write `url`, and `transport: {transport}`"),
            Self::CallTimeout(_) => "write `call_timeout: 60s`, a time with its unit".to_owned(),
            Self::StartTimeout(_) => "write `start_timeout: 60s`, a time with its unit".to_owned(),
            Self::VariableNames => "write `env: {NAME: \"${env:NAME}\"}` for each name".to_owned(),
            Self::TokenVariable => "write `auth: {bearer: \"${env:NAME}\"}`".to_owned(),
            Self::Token => "write `auth: {bearer: \"${file:/path}\"}`".to_owned(),
            Self::HeaderVariables => {
                "write `headers: {HEADER: \"${env:NAME}\"}` for each header".to_owned()
            }
            Self::RequestOptions => "write its `headers` into the entry itself".to_owned(),
            Self::Nested => "write its keys into the entry itself".to_owned(),
            Self::Login => "leave it out if the server needs no login; the bridge logs in by \
                            `auth: {oauth: {client_id: …, client_secret: …}}` alone"
                .to_owned(),
            Self::SandboxSwitch => {
                "write `sandbox: {read: [PATH, …], write: [PATH, …]}`".to_owned()
            }
            Self::Unneeded => "leave it out: it says nothing to the bridge".to_owned(),
        }
    }
}

/// Sections of other products' files, which `import` reads.
const SECTIONS: &str =
    "servers inputs context_servers mcp_servers extensions projects amp.mcpServers";

/// The cure for a mistake at `node`, if a key of another product is to blame. Without it, a list of
/// bridge.yaml's keys would stand there, and a person who leaves `excludeTools` out as unknown
/// offers the tools that were excluded.
pub(super) fn cure(document: &Document, node: NodeId) -> Option<String> {
    let parent = document.parent(node)?;
    let (key, value) = member(document, parent, node)?;
    let is_unknown = node == node.key();
    if parent == ROOT {
        if !is_unknown || !SECTIONS.split_whitespace().any(|section| section == key) {
            return None;
        }
        let words = "`mantyx-bridge import FILE` makes the section `mcp` of such a file";
        return Some(words.to_owned());
    }
    let (section, _) = member(document, ROOT, document.parent(parent)?)?;
    if section == "a2a" {
        let is_time = matches!(foreign_key(key)?, ForeignKey::CallTimeout(_)) && is_unknown;
        return if is_time { Some(foreign_key(key)?.cure(key)) } else { None };
    }
    if !matches!(section, "mcp" | "mcpServers") {
        return None;
    }
    let instead = match (foreign_key(key)?, &value.kind) {
        (ForeignKey::Is("tools"), Kind::Seq(_)) => ForeignKey::Allowed.cure(key),
        (ForeignKey::Is("transport"), Kind::Str(word)) if !is_unknown => transport_cure(word)?,
        (meaning, _) if is_unknown => meaning.cure(key),
        _ => return None,
    };
    Some(format!("{instead}; `mantyx-bridge import FILE` does that for a whole file"))
}

/// What a person writes in place of another product's word for a transport.
fn transport_cure(word: &str) -> Option<String> {
    let cure = match word {
        "local" => "write `stdio`",
        "remote" => "leave it out: the bridge finds out which transport a `url` speaks",
        _ => return None,
    };
    Some(cure.to_owned())
}

/// The member of the map `parent` that the place `node` belongs to, which may be its key.
fn member(document: &Document, parent: NodeId, node: NodeId) -> Option<(&str, &Node)> {
    let Kind::Map(members) = &document.node(parent).kind else { return None };
    let value = NodeId::of_value(node.index);
    members.iter().find(|(_, member)| member.id == value).map(|(key, value)| (&**key, value))
}

#[cfg(test)]
mod tests;
