//! Keys at the top of a file, beside its servers, that may restrict all of them.
//!
//! Products keep such keys in their settings: `excludeTools`, `chat.mcp.access`, `sandbox`. Those
//! that `sections` and `permissions` read are no matter of this module. Any other whose name speaks
//! of tools, of rights or of MCP turns the servers off, as otherwise a model would get what was
//! denied.
//!
//! Must not: read what a key says of one server.

use serde_json::{Map, Value};

use super::looks::name_words;
use super::names::shown;
use super::permissions::{denied, excluded, is_of_claude};
use super::sections::{Product, Server, is_list_of_names, is_section};
use super::values::{is_empty, texts};

/// Keys, in small letters, that speak of tools or rights and restrict no server.
const HARMLESS: &str = "usagestatisticsenabled includedirectories loadmemoryfromincludedirectories \
                        foldertrust tooldiscoverycommand toolcallcommand mcpservercommand \
                        enabledplugins includecoauthoredby isdxtautoupdatesenabled \
                        isusingbuiltinnodeformcp mcp_oauth_credentials_store \
                        mcp_oauth_callback_port mcp_oauth_callback_url enabled_providers \
                        alwaysthinkingenabled allowanonymoustelemetry enableinteractiveshell \
                        enablehooks enablepromptcompletion file_scan_exclusions allow_rewrap \
                        include_apply_patch_tool include_plan_tool include_view_image_tool \
                        tool_output_token_limit allow_login_shell";
/// The same for settings of VS Code.
const HARMLESS_SETTINGS: [&str; 6] = [
    "chat.mcp.discovery.",
    "chat.mcp.gallery.",
    "chat.mcp.autostart",
    "chat.mcp.serversampling",
    "chat.mcp.assisted.",
    "chat.mcp.apps.",
];
/// The same for keys of Gemini, Codex and Crush below `tools`.
const HARMLESS_TOOLS: &str = "shell autoaccept useripgrep discoverycommand callcommand \
                              truncatetooloutputthreshold truncatetooloutputlines \
                              enabletooloutputtruncation web_search view_image ls grep";
/// Maps whose keys count as if they stood at the top.
const MAPS: [&str; 6] = ["security", "features", "admin", "options", "settings", "chat"];
/// What of its own state Claude Code writes beside the servers speaks of rights in other words.
const IN_STATE: [&str; 7] =
    ["sandbox", "permissions", "deny", "disallow", "exclude", "block", "readonly"];

/// The paths of all keys that may restrict the servers and are not understood.
pub(super) fn restrictions(members: &Map<String, Value>, servers: &[Server]) -> Vec<String> {
    let has = |path: &str| servers.iter().any(|server| server.path == path);
    // The whole file is one server.
    if has("") {
        return Vec::new();
    }
    let has_product = |product| servers.iter().any(|server| server.product == product);
    let claude_state =
        members.get("projects").is_some_and(Value::is_object) && !has_product(Product::Codex);
    let mut paths = Vec::new();
    for (key, value) in members {
        let codex_sandbox = has_product(Product::Codex) && key.starts_with("sandbox_");
        let opencode_tools = has_product(Product::Opencode)
            && matches!(
                (key.as_str(), value),
                ("tools" | "permission", Value::Object(_)) | ("permission", Value::String(_))
            );
        if has(&shown(key)) || is_section(key) || codex_sandbox || opencode_tools || value.is_null()
        {
            continue;
        }
        let below = match (key.as_str(), value) {
            ("projects", Value::Object(projects)) => projects.values().flat_map(of_state).collect(),
            ("mcp", Value::Object(_)) => of_mcp(value, &has),
            ("tools", Value::Object(tools)) => of_tools(tools),
            // The tools that an agent has; `permissions` reads it.
            ("tools", Value::Array(_)) if texts(value).is_some() => Vec::new(),
            ("permissions", Value::Object(_)) if is_of_claude(value) => Vec::new(),
            ("agent", Value::Object(_)) if has_product(Product::Zed) => of_zed(value),
            (map, Value::Object(members)) if MAPS.contains(&map) => of_map(members),
            _ if is_list_of_names(key) => of_whole(texts(value).is_none()),
            _ if claude_state => of_whole(speaks_in_state(key) && restricts(key, value)),
            _ => of_whole(may_restrict(key, value)),
        };
        for inner in below {
            let path = if inner.is_empty() { key.clone() } else { format!("{key}.{inner}") };
            if !is_read_as_excluded(members, &path) {
                paths.push(shown(&path).replace(char::is_control, "?"));
            }
        }
    }
    paths
}

/// The path of the key itself below itself, if it may restrict.
fn of_whole(restricts: bool) -> Vec<String> {
    if restricts { vec![String::new()] } else { Vec::new() }
}

/// Whether `permissions` makes rules of the whole list of excluded tools at `path`.
fn is_read_as_excluded(members: &Map<String, Value>, path: &str) -> bool {
    let list = excluded(members).find(|(read, _)| read == path);
    let names = list.and_then(|(_, names)| texts(names));
    names.is_some_and(|names| names.iter().all(|name| denied(name, "").is_some()))
}

fn of_map(members: &Map<String, Value>) -> Vec<String> {
    let restricting = members.iter().filter(|(key, value)| may_restrict(key, value));
    restricting.map(|(key, _)| key.clone()).collect()
}

/// Keys of the section `mcp` that are no servers.
fn of_mcp(value: &Value, is_server: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut keys = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let understood = match key.as_str() {
            "servers" | "mcpServers" | "inputs" | "serverCommand" | "$schema" => true,
            "allowed" | "excluded" => texts(value).is_some(),
            _ => is_server(&format!("mcp.{}", shown(key))),
        };
        if !understood && restricts(key, value) {
            keys.push(key.clone());
        }
    }
    keys
}

fn of_tools(tools: &Map<String, Value>) -> Vec<String> {
    let restricting = tools.iter().filter(|(key, value)| {
        !HARMLESS_TOOLS.split_whitespace().any(|word| word.eq_ignore_ascii_case(key))
            && restricts(key, value)
    });
    restricting.map(|(key, _)| key.clone()).collect()
}

/// Zed's `agent`, of which `permissions` reads the rules of single tools.
fn of_zed(agent: &Value) -> Vec<String> {
    let mut keys = Vec::new();
    for (key, value) in agent.as_object().into_iter().flatten() {
        let restricts = match key.as_str() {
            "always_allow_tool_actions" => false,
            "tool_permissions" => {
                value["default"].as_str().is_some_and(|word| !matches!(word, "allow" | "confirm"))
            }
            "profiles" => value.as_object().into_iter().flat_map(Map::values).any(|profile| {
                profile["enable_all_context_servers"] == false
                    || profile.get("context_servers").is_some_and(|servers| !is_empty(servers))
            }),
            _ => may_restrict(key, value),
        };
        if restricts {
            keys.push(key.clone());
        }
    }
    keys
}

/// A project in the state of Claude Code.
fn of_state(project: &Value) -> Vec<String> {
    let members = project.as_object().into_iter().flatten();
    let restricting = members.filter(|(key, value)| {
        if is_list_of_names(key) {
            return texts(value).is_none();
        }
        speaks_in_state(key) && restricts(key, value)
    });
    restricting.map(|(key, _)| format!("….{key}")).collect()
}

fn speaks_in_state(key: &str) -> bool {
    let words = name_words(key);
    words.first().is_some_and(|word| IN_STATE.iter().any(|start| word.starts_with(start)))
}

/// Whether the name of a key speaks of tools or rights, and its value may restrict them.
fn may_restrict(key: &str, value: &Value) -> bool {
    // goose answers without tools then.
    if key == "GOOSE_MODE" {
        return value == "chat";
    }
    let small = key.to_ascii_lowercase();
    let harmless = HARMLESS.split_whitespace().any(|name| name == small)
        || HARMLESS_SETTINGS.iter().any(|setting| small.starts_with(setting))
        || small.starts_with("dxt:");
    !harmless && speaks(key) && restricts(key, value)
}

fn speaks(key: &str) -> bool {
    const STARTS: [&str; 12] = [
        "permission",
        "sandbox",
        "allow",
        "deny",
        "denied",
        "exclu",
        "includ",
        "enable",
        "trust",
        "block",
        "restrict",
        "readonly",
    ];
    // The other settings of an editor are about its own extensions.
    if let Some((namespace, _)) = key.split_once('.')
        && !matches!(namespace, "chat" | "mcp" | "amp" | "agent" | "tools")
        && !key.to_ascii_lowercase().contains("mcp")
    {
        return false;
    }
    name_words(key).iter().any(|word| {
        word.ends_with("tool")
            || word.ends_with("tools")
            || word.contains("mcp")
            || (matches!(word.as_str(), "disabled" | "disable") && key.len() == word.len())
            || STARTS.iter().any(|start| word.starts_with(start))
    })
}

/// Whether `value` takes something away, by the sense of its key.
fn restricts(key: &str, value: &Value) -> bool {
    let key = key.to_ascii_lowercase();
    let takes_away =
        ["disab", "deny", "denied", "exclu", "sandbox", "restrict", "readonly", "block"]
            .iter()
            .any(|word| key.contains(word));
    match value {
        Value::Null => false,
        Value::Bool(value) => *value == takes_away,
        Value::String(word) => {
            let word = word.to_ascii_lowercase();
            if takes_away {
                !["", "off", "none", "false", "no", "danger-full-access"].contains(&&*word)
            } else {
                !["all", "*", "on", "true", "yes", "enabled", "allow"].contains(&&*word)
            }
        }
        Value::Number(number) => !takes_away || number.as_f64() != Some(0.0),
        // A list of what is allowed that has nothing in it allows nothing.
        Value::Array(items) => {
            let allows = ["allow", "includ", "only", "core", "enable"];
            allows.iter().any(|word| key.contains(word)) || !items.is_empty()
        }
        Value::Object(members) => !members.is_empty(),
    }
}
