//! Which tools of a server a file restricts outside of the server's own entry.
//!
//! Must not: widen. What cannot be written as a rule of bridge.yaml restricts more, never less.

use serde_json::{Map, Value};

use super::sections::Product;

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
    match product {
        Product::Opencode => of_opencode(members, name),
        Product::Zed => of_zed(members, name),
        _ => ToolRules::default(),
    }
}

/// opencode names a tool `SERVER_TOOL` in the globs of `tools` and `permission`.
fn of_opencode(members: &Map<String, Value>, name: &str) -> ToolRules {
    let legal = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    let prefix = format!("{}_", name.chars().map(legal).collect::<String>());
    let mut permitted = Vec::new();
    let mut rules = ToolRules::default();
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
            "deny" => Permission::Denied,
            _ => Permission::Asked,
        },
        // Globs of arguments, each with a word.
        Value::Object(globs) => {
            let denied = globs.values().any(|word| word == "deny");
            if denied { Permission::Denied } else { Permission::Asked }
        }
        _ => return None,
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
        match value["default"].as_str() {
            Some("allow") | None if value.get("always_deny").is_none() => {}
            Some("confirm") => rules.approve.push(tool.to_owned()),
            // Patterns of its arguments among them.
            _ => rules.deny.push(tool.to_owned()),
        }
    }
    rules
}
