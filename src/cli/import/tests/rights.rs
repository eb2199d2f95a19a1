//! That no entry gets a right that it had not, whatever its product calls the restriction.

use super::*;

fn import(entry: &str) -> Imported {
    parse(&format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#))
}

#[test]
fn lists_of_tools_become_rules_of_tools() {
    for Row { entry, becomes } in [
        row(r#""excludeTools": ["rm"]"#, r#"{"deny":["rm"]}"#),
        row(r#""disabledTools": ["rm", "mv"]"#, r#"{"deny":["rm","mv"]}"#),
        row(r#""disabled_tools": ["rm"]"#, r#"{"deny":["rm"]}"#),
        row(r#""blockedTools": ["rm"]"#, r#"{"deny":["rm"]}"#),
        row(r#""disallowedTools": "rm, mv""#, r#"{"deny":["rm","mv"]}"#),
        row(r#""excludeTools": ["run(rm)"]"#, r#"{"deny":["run"]}"#),
        row(r#""includeTools": ["ls"]"#, r#"{"allow":["ls"]}"#),
        row(r#""includeTools": []"#, r#"{"allow":[]}"#),
        row(r#""enabled_tools": ["ls"]"#, r#"{"allow":["ls"]}"#),
        row(r#""allowedTools": ["l*"]"#, r#"{"allow":["l[*]"]}"#),
        row(r#""available_tools": ["ls"]"#, r#"{"allow":["ls"]}"#),
        row(
            r#""includeTools": ["ls", "rm"], "excludeTools": ["rm"]"#,
            r#"{"allow":["ls","rm"],"deny":["rm"]}"#,
        ),
        row(r#""includeTools": ["ls", "rm"], "tools": ["ls"]"#, r#"{"allow":["ls"]}"#),
        row(r#""tools": ["ls"]"#, r#"{"allow":["ls"]}"#),
        row(r#""tools": []"#, r#"{"allow":[]}"#),
        row(r#""tools": ["*"]"#, "null"),
        row(
            r#""tools": {"rm": {"enabled": false}, "ls": {"enabled": true}}"#,
            r#"{"deny":["rm"]}"#,
        ),
        row(r#""tools": {"rm": false, "ls": true}"#, r#"{"deny":["rm"]}"#),
        row(
            r#""tools": {"include": ["ls"], "exclude": ["rm"]}"#,
            r#"{"allow":["ls"],"deny":["rm"]}"#,
        ),
        row(r#""tools": {"allow": ["ls"]}"#, r#"{"allow":["ls"]}"#),
        row(
            r#""tools": {"*": false, "ls": true, "rm": false}"#,
            r#"{"allow":["ls"],"deny":["rm"]}"#,
        ),
        row(r#""tools": {"*": {"enabled": false}, "ls": {}}"#, r#"{"allow":["ls"]}"#),
        row(r#""tools": {"*": false}"#, r#"{"deny":["*"]}"#),
        row(r#""tools": {"rm*": false}"#, r#"{"deny":["rm*"]}"#),
        row(r#""disabledTools": "all""#, r#"{"deny":["*"]}"#),
        row(r#""excludeTools": ["mcp__a__rm"]"#, r#"{"deny":["mcp__a__rm","rm"]}"#),
        row(r#""excludeTools": ["a__rm", "@a"]"#, r#"{"deny":["a__rm","rm","@a","*"]}"#),
        row(r#""excludeTools": ["write.*"]"#, r#"{"deny":["write.*","write*"]}"#),
    ] {
        let imported = import(&format!(r#"{{"command": "x", {entry}}}"#));
        let shown = imported.mcp["a"]["tools"].to_string();
        assert_eq!(shown, becomes, "{entry}");
        assert_eq!(imported.mcp["a"]["disabled"], Value::Null, "{entry}");
        good(&imported, &Environment::bare());
    }
}

#[test]
fn server_that_is_off_stays_off() {
    for entry in [
        r#""isActive": false"#,
        r#""active": false"#,
        r#""enabled": false"#,
        r#""disabled": true"#,
        r#""disable": true"#,
        r#""enabled": true, "disabled": true"#,
        r#""enabled": "false""#,
        r#""disabled": "yes""#,
        r#""isActive": 0"#,
    ] {
        let imported = import(&format!(r#"{{"command": "x", {entry}}}"#));
        assert_eq!(imported.mcp["a"]["disabled"], true, "{entry}");
        good(&imported, &Environment::bare());
    }
    for entry in [r#""isActive": true"#, r#""disabled": false"#, r#""enabled": null"#] {
        let imported = import(&format!(r#"{{"command": "x", {entry}}}"#));
        assert_eq!(imported.mcp["a"]["disabled"], Value::Null, "{entry}");
        assert!(imported.unread.is_empty(), "{entry}: {:?}", imported.unread);
    }
}

#[test]
fn unknown_key_turns_the_server_off_and_is_named_with_its_path() {
    for (entry, path) in [
        (r#""toolFilter": ["ls"]"#, "`mcpServers.a.toolFilter`"),
        (r#""mode": "readonly""#, "`mcpServers.a.mode`"),
        (r#""includeTools": {"ls": true}"#, "`mcpServers.a.includeTools`"),
        (r#""tools": [{"name": "ls"}]"#, "`mcpServers.a.tools`"),
        (r#""tools": {"ls": {"rights": "some"}}"#, "`mcpServers.a.tools.ls.rights`"),
        (r#""sandboxEnabled": true, "sandbox": {"network": {}}"#, "`mcpServers.a.sandbox`"),
        (r#""sandbox": true"#, "`mcpServers.a.sandbox`"),
        (r#""sandbox": "read-only""#, "`mcpServers.a.sandbox`"),
        (r#""sandbox": {"network": {}}"#, "`mcpServers.a.sandbox`"),
        (r#""sandboxEnabled": true"#, "`mcpServers.a.sandboxEnabled`"),
        (r#""excludeTools": ["!ls"]"#, "`mcpServers.a.excludeTools`"),
        (r#""excludeTools": ["^rm|mv$"]"#, "`mcpServers.a.excludeTools`"),
    ] {
        let imported = import(&format!(r#"{{"command": "x", {entry}}}"#));
        assert_eq!(imported.mcp["a"]["disabled"], true, "{entry}");
        let remarks = imported.remarks(&Environment::bare());
        assert!(remarks.contains(path), "{entry}: {remarks}");
        assert_eq!(imported.unread.len(), 1, "{entry}: {remarks}");
        good(&imported, &Environment::bare());
    }
}

#[test]
fn word_that_nobody_is_asked_gives_no_right_and_is_told() {
    for entry in [r#""alwaysAllow": ["ls"]"#, r#""autoApprove": ["ls"]"#, r#""trust": true"#] {
        let imported = import(&format!(r#"{{"command": "x", {entry}}}"#));
        assert_eq!(imported.mcp["a"], json!({"command": "x"}), "{entry}");
        let remarks = imported.remarks(&Environment::bare());
        assert!(remarks.contains("`approve`"), "{entry}: {remarks}");
        assert!(imported.unread.is_empty(), "{entry}: {remarks}");
    }
}

#[test]
fn tools_for_which_a_person_is_asked_need_approval() {
    let imported = import(r#"{"command": "x", "disabledAutoApproveTools": ["rm"]}"#);
    assert_eq!(imported.mcp["a"]["approve"], json!(["rm"]));
    good(&imported, &Environment::bare());
}

#[test]
fn lists_of_servers_outside_the_entries_count() {
    for (rest, off) in [
        (r#""excludeMCPServers": ["a"]"#, ["a"]),
        (r#""mcp": {"excluded": ["a"]}"#, ["a"]),
        (r#""mcp": {"allowed": ["a"]}"#, ["b"]),
        (r#""allowMCPServers": ["a"]"#, ["b"]),
        (r#""disabledServers": ["b"]"#, ["b"]),
        (r#""disabledMcpServers": ["b"]"#, ["b"]),
    ] {
        let text = r#""mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}"#;
        let imported = parse(&format!("{{{text}, {rest}}}"));
        let disabled: Vec<_> =
            ["a", "b"].into_iter().filter(|name| imported.mcp[*name]["disabled"] == true).collect();
        assert_eq!(disabled, off, "{rest}");
        assert!(imported.remarks(&Environment::bare()).contains("as `"), "{rest}");
    }
}

#[test]
fn key_beside_the_servers_that_may_restrict_turns_them_off_and_is_named() {
    for (rest, path) in [
        (r#""chat.mcp.access": "none""#, "chat.mcp.access"),
        (r#""chat.mcp.enabled": false"#, "chat.mcp.enabled"),
        (r#""coreTools": ["ls"]"#, "coreTools"),
        (r#""tools": {"core": ["ls"]}"#, "tools.core"),
        (r#""tools": {"core": []}"#, "tools.core"),
        (r#""tools": {"allowed": ["ls"]}"#, "tools.allowed"),
        (r#""tools": {"sandbox": "docker"}"#, "tools.sandbox"),
        (r#""tools": {"*": false, "ls": true}"#, "tools.*"),
        (r#""tools": {"exclude": ["!ls"]}"#, "tools.exclude"),
        (r#""excludeTools": {"rm": true}"#, "excludeTools"),
        (r#""allowedTools": []"#, "allowedTools"),
        (r#""mcp": {"enabled": false}"#, "mcp.enabled"),
        (r#""mcp": {"enabled": false, "c": {"command": "z"}}"#, "mcp.enabled"),
        (r#""mcp": {"excluded": {"a": true}}"#, "mcp.excluded"),
        (r#""disabledMcpServers": [{"name": "a"}]"#, "disabledMcpServers"),
        (r#""sandbox": true"#, "sandbox"),
        (r#""sandbox": "read-only""#, "sandbox"),
        (r#""permissions": {"mode": "strict"}"#, "permissions"),
        (r#""permission": {"x_*": "deny"}"#, "permission"),
        (r#""toolFilter": "ls""#, "toolFilter"),
        (r#""enabled": false"#, "enabled"),
        (r#""disabled": true"#, "disabled"),
        (r#""trusted": false"#, "trusted"),
        (r#""includeOnly": ["ls"]"#, "includeOnly"),
        (r#""denyList": ["rm"]"#, "denyList"),
        (r#""admin": {"mcp": {"enabled": false}}"#, "admin.mcp"),
        (r#""features": {"mcp": false}"#, "features.mcp"),
        (r#""security": {"toolSandboxing": true}"#, "security.toolSandboxing"),
        (r#""GOOSE_MODE": "chat""#, "GOOSE_MODE"),
        (r#""projects": {"/x": {"sandbox": true}}"#, "projects.….sandbox"),
    ] {
        let text = r#""mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}"#;
        let imported = parse(&format!("{{{text}, {rest}}}"));
        for name in ["a", "b"] {
            assert_eq!(imported.mcp[name]["disabled"], true, "{rest}");
        }
        let remarks = imported.remarks(&Environment::bare());
        assert!(remarks.contains(&format!("`{path}`")), "{rest}: {remarks}");
        assert_eq!(imported.unread.len(), 1, "{rest}: {remarks}");
    }
}

#[test]
fn key_beside_the_servers_that_restricts_nothing_leaves_them_on() {
    for rest in [
        r#""chat.mcp.access": "all""#,
        r#""chat.mcp.discovery.enabled": false"#,
        r#""files.exclude": {"x": true}, "editor.minimap.enabled": false"#,
        r#""sandbox": false, "excludeTools": [], "tools": {"exclude": []}"#,
        r#""tools": {"autoAccept": false, "shell": {"pager": "cat"}}"#,
        r#""tools": ["*"], "includeMcpJson": true"#,
        r#""mcp": {"serverCommand": "x"}, "folderTrust": true"#,
        r#""globalShortcut": "", "isUsingBuiltInNodeForMcp": false"#,
        r#""permissions": {"allow": ["mcp__a__ls"], "deny": ["Bash(rm:*)"], "defaultMode": "plan"}"#,
        r#""numStartups": 3, "toolUsage": {"x": 1}, "projects": {"/x": {"allowedTools": [],
            "hasTrustDialogAccepted": false, "enabledMcpjsonServers": []}}"#,
    ] {
        let imported = parse(&format!(r#"{{"mcpServers": {{"a": {{"command": "x"}}}}, {rest}}}"#));
        assert_eq!(imported.mcp["a"], json!({"command": "x"}), "{rest}");
        assert!(imported.unread.is_empty(), "{rest}: {:?}", imported.unread);
    }
}

#[test]
fn lists_of_tools_beside_the_servers_become_rules_of_each() {
    for (rest, becomes) in [
        (r#""excludeTools": ["rm"]"#, r#"{"tools":{"deny":["rm"]}}"#),
        (r#""tools": {"exclude": ["rm(x)"]}"#, r#"{"tools":{"deny":["rm"]}}"#),
        (r#""excludeTools": ["a__rm"]"#, r#"{"tools":{"deny":["a__rm","rm"]}}"#),
        (r#""amp.tools.disable": ["rm"]"#, r#"{"tools":{"deny":["rm"]}}"#),
        (r#""options": {"disabled_tools": ["rm"]}"#, r#"{"tools":{"deny":["rm"]}}"#),
        (r#""permissions": {"deny": ["mcp__a__rm"]}"#, r#"{"tools":{"deny":["rm"]}}"#),
        (r#""permissions": {"deny": ["mcp__a"]}"#, r#"{"tools":{"deny":["*"]}}"#),
        (r#""permissions": {"deny": ["mcp__*"]}"#, r#"{"tools":{"deny":["*"]}}"#),
        (r#""permissions": {"ask": ["mcp__a__mv"]}"#, r#"{"approve":["mv"]}"#),
        (r#""tools": ["@a/ls", "@b", "fs"]"#, r#"{"tools":{"allow":["ls","fs"]}}"#),
    ] {
        let imported = parse(&format!(r#"{{"mcpServers": {{"a": {{"command": "x"}}}}, {rest}}}"#));
        let mut entry = imported.mcp["a"].clone();
        entry.as_object_mut().unwrap().remove("command");
        assert_eq!(entry.to_string(), becomes, "{rest}");
        assert!(imported.unread.is_empty(), "{rest}: {:?}", imported.unread);
        good(&imported, &Environment::bare());
    }
}

#[test]
fn rules_of_zed_and_opencode_in_other_forms_restrict_too() {
    for (text, becomes) in [
        (
            r#"{"context_servers": {"a": {"command": "x"}}, "agent": {"tool_permissions":
                {"default": "confirm", "tools": {"mcp:a:rm": {"default": "confirm",
                "always_deny": [{"pattern": "x"}]}}}}}"#,
            r#"{"approve":["*"],"tools":{"deny":["rm"]}}"#,
        ),
        (
            r#"{"context_servers": {"a": {"command": "x"}}, "agent": {"tool_permissions":
                {"tools": {"mcp:a:rm": {"always_confirm": [{"pattern": "x"}]}}}}}"#,
            r#"{"approve":["rm"]}"#,
        ),
        (
            r#"{"context_servers": {"a": {"command": "x"}},
                "agent": {"profiles": {"write": {"enable_all_context_servers": false}}}}"#,
            r#"{"disabled":true}"#,
        ),
        (
            r#"{"mcp": {"a": {"type": "local", "command": ["x"]}}, "permission": "ask"}"#,
            r#"{"approve":["*"]}"#,
        ),
        (
            r#"{"mcp": {"a": {"type": "local", "command": ["x"]}}, "tools": {"a_rm": 0}}"#,
            r#"{"tools":{"deny":["rm"]}}"#,
        ),
        (
            r#"{"mcp": {"a": {"type": "local", "command": ["x"]}}, "permission": false}"#,
            r#"{"disabled":true}"#,
        ),
    ] {
        let imported = parse(text);
        let mut entry = imported.mcp["a"].clone();
        entry.as_object_mut().unwrap().remove("command");
        entry.as_object_mut().unwrap().remove("args");
        assert_eq!(entry.to_string(), becomes, "{text}");
        good(&imported, &Environment::bare());
    }
}
