//! Which tools of a server a file restricts outside of the server's own entry.
//!
//! Must not: widen. What cannot be written as a rule of bridge.yaml restricts more, never less.

use serde_json::{Map, Value};

use super::sections::Product;
use super::values::{is_empty, literal, texts};

/// The tools of one server, as bridge.yaml has them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ToolRules {
    pub(super) allow: Option<Vec<String>>,
    pub(super) deny: Vec<String>,
    pub(super) approve: Vec<String>,
}

/// What a rule says of some tools.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Permission {
    Given,
    Asked,
    Denied,
}

/// The rules at the top of the file for the server `name`.
pub(super) fn rules(members: &Map<String, Value>, product: Product, name: &str) -> ToolRules {
    let mut rules = match product {
        Product::Opencode => of_opencode(members, name),
        Product::Zed => of_zed(members, name),
        _ => ToolRules::default(),
    };
    for (_, names) in excluded(members) {
        for listed in texts(names).unwrap_or_default() {
            rules.deny.extend(denied(&listed, name).unwrap_or_default());
        }
    }
    if let Some(permissions) = members.get("permissions").filter(|value| is_of_claude(value)) {
        rules.deny.extend(of_claude(permissions, "deny", name));
        rules.approve.extend(of_claude(permissions, "ask", name));
    }
    if let Some(tools) = members.get("tools").filter(|value| value.is_array()).and_then(texts) {
        rules.allow = of_agent(&tools, name);
    }
    rules.deny.dedup();
    rules
}

/// The lists at the top of a file of tools that no server has, each with its path.
pub(super) fn excluded(members: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    let keys = ["excludeTools", "excludedTools", "disabledTools", "amp.tools.disable"];
    let whole = keys.into_iter().filter_map(|key| Some((key.to_owned(), members.get(key)?)));
    let nested = [("tools", "exclude"), ("options", "disabled_tools")];
    let inner = nested
        .into_iter()
        .filter_map(|(key, below)| Some((format!("{key}.{below}"), members.get(key)?.get(below)?)));
    whole.chain(inner)
}

/// The globs that deny what a list calls `listed`, of the tools of `server`; `None` if no tool can
/// be called so, and the name stands for something unknown.
///
/// Products write the server in front of the tool. A rule with that name would deny nothing here,
/// so the tool's own name is denied, too.
pub(super) fn denied(listed: &str, server: &str) -> Option<Vec<String>> {
    // Gemini's form for some arguments of a tool; here, the whole tool is denied.
    let tool = listed.split('(').next().unwrap_or_default().trim();
    if tool.is_empty() || tool.contains(|c: char| !c.is_alphanumeric() && !"_-./:@*? ".contains(c))
    {
        return None;
    }
    let mut globs = vec![tool.to_owned()];
    if tool.contains(".*") {
        globs.push(tool.replace(".*", "*"));
    }
    globs.extend(unqualified(tool, server));
    Some(globs)
}

/// What `tool` is called in `server`, if it begins with the server's name.
fn unqualified(tool: &str, server: &str) -> Option<String> {
    if server.is_empty() {
        return None;
    }
    for whole in ["mcp__", "mcp_", "@", "mcp:"] {
        if tool.strip_prefix(whole) == Some(server) {
            return Some("*".to_owned());
        }
    }
    let prefix = format!("mcp__{server}__");
    if tool.starts_with("mcp__")
        && let Some(tool) = below(tool, &prefix)
    {
        return Some(tool);
    }
    let prefixes = [("mcp_", "_"), ("", "__"), ("@", "/"), ("", "/"), ("", "."), ("mcp:", ":")];
    prefixes.iter().find_map(|(before, behind)| {
        let rest = tool.strip_prefix(before)?.strip_prefix(server)?.strip_prefix(behind)?;
        Some(rest.to_owned()).filter(|rest| !rest.is_empty())
    })
}

/// Whether all keys of `permissions` are those of Claude Code, or of Crush.
pub(super) fn is_of_claude(permissions: &Value) -> bool {
    permissions.as_object().is_some_and(|members| {
        members.iter().all(|(key, value)| match key.as_str() {
            "allow" | "deny" | "ask" => texts(value).is_some(),
            "defaultMode" | "additionalDirectories" | "disableBypassPermissionsMode" => true,
            // Those for which no person is asked.
            "allowed_tools" => true,
            _ => false,
        })
    })
}

/// The globs of a list in `permissions`. Tools of Claude Code itself begin with a capital.
fn of_claude(permissions: &Value, list: &str, server: &str) -> Vec<String> {
    let mut globs = Vec::new();
    for rule in texts(&permissions[list]).unwrap_or_default() {
        let tool = rule.split('(').next().unwrap_or_default();
        match unqualified(tool, server) {
            Some(glob) => globs.push(glob),
            None if tool == "*" => globs.push("*".to_owned()),
            None => {}
        }
    }
    globs
}

/// The tools of `server` in the list of an agent: `*`, `@SERVER` or `@SERVER/TOOL`.
fn of_agent(tools: &[String], server: &str) -> Option<Vec<String>> {
    let whole = format!("@{server}");
    if tools.iter().any(|tool| tool == "*" || *tool == whole) {
        return None;
    }
    let prefix = format!("@{server}/");
    let allowed = tools.iter().filter_map(|tool| match tool.strip_prefix(&prefix) {
        None if tool.starts_with('@') => None,
        rest => Some(literal(rest.unwrap_or(tool))),
    });
    Some(allowed.collect())
}

/// opencode names a tool `SERVER_TOOL` in the globs of `tools` and `permission`.
fn of_opencode(members: &Map<String, Value>, name: &str) -> ToolRules {
    let legal = name.replace(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c), "_");
    let prefix = format!("{legal}_");
    let mut permitted = Vec::new();
    let mut rules = ToolRules::default();
    // One word for all tools.
    match members.get("permission") {
        Some(Value::String(word)) if word == "deny" => rules.deny.push("*".to_owned()),
        Some(Value::String(word)) if word != "allow" => rules.approve.push("*".to_owned()),
        _ => {}
    }
    for section in ["tools", "permission"] {
        let globs = members.get(section).and_then(Value::as_object).into_iter().flatten();
        for (glob, value) in globs {
            let (Some(glob), Some(permission)) = (below(glob, &prefix), permission(value)) else {
                continue;
            };
            match permission {
                Permission::Given => permitted.push(glob),
                Permission::Asked => rules.approve.push(glob),
                Permission::Denied => rules.deny.push(glob),
            }
        }
    }
    // All tools but these: `deny` would win over `allow`, so that none would be left.
    if rules.deny.iter().any(|glob| glob == "*") && !permitted.is_empty() {
        rules.deny.retain(|glob| glob != "*");
        permitted.retain(|glob| glob != "*");
        rules.allow = Some(permitted);
    }
    rules
}

fn permission(value: &Value) -> Option<Permission> {
    let permission = match value {
        Value::Bool(true) => Permission::Given,
        Value::Bool(false) => Permission::Denied,
        Value::String(word) => match word.as_str() {
            "allow" => Permission::Given,
            "ask" => Permission::Asked,
            _ => Permission::Denied,
        },
        // Globs of arguments, each with a word.
        Value::Object(globs) => {
            let denied = globs.values().any(|word| word == "deny");
            if denied { Permission::Denied } else { Permission::Asked }
        }
        Value::Null => return None,
        Value::Number(_) | Value::Array(_) => Permission::Denied,
    };
    Some(permission)
}

/// What `glob` matches behind `prefix`, as a glob; `None` if it matches nothing that begins so.
fn below(glob: &str, prefix: &str) -> Option<String> {
    let mut rest = glob.chars();
    for wanted in prefix.chars() {
        let before = rest.clone();
        match rest.next() {
            // The star may stand for the rest of the prefix and more.
            Some('*') => return Some(before.collect()),
            Some(c) if c == wanted || c == '?' => {}
            _ => return None,
        }
    }
    Some(rest.collect())
}

/// Zed names a tool `mcp:SERVER:TOOL` in `agent.tool_permissions.tools`.
fn of_zed(members: &Map<String, Value>, name: &str) -> ToolRules {
    let mut rules = ToolRules::default();
    let permissions = ["tool_permissions", "tools"]
        .iter()
        .try_fold(members.get("agent").unwrap_or(&Value::Null), |value, key| value.get(*key));
    for (tool, value) in permissions.and_then(Value::as_object).into_iter().flatten() {
        let of_server = tool.strip_prefix("mcp:").and_then(|rest| rest.strip_prefix(name));
        let Some(tool) = of_server.and_then(|rest| rest.strip_prefix(':')) else { continue };
        // Lists of patterns of a tool's arguments; here, they count for the whole tool.
        let denied_patterns = &value["always_deny"];
        let asked_patterns = &value["always_confirm"];
        let default = value.get("default").map(|word| word.as_str().unwrap_or_default());
        if !matches!(default, None | Some("allow" | "confirm")) || !is_empty(denied_patterns) {
            rules.deny.push(tool.to_owned());
        } else if default == Some("confirm") || !is_empty(asked_patterns) {
            rules.approve.push(tool.to_owned());
        }
    }
    if members.get("agent").is_some_and(|agent| agent["tool_permissions"]["default"] == "confirm") {
        rules.approve.push("*".to_owned());
    }
    rules
}
