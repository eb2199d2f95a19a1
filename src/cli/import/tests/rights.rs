//! That no entry gets a right that it had not, whatever its product calls the restriction.

use super::*;

/// An entry of an `mcpServers` file, and what has to stand in bridge.yaml.
struct Row {
    entry: &'static str,
    becomes: &'static str,
}

const fn row(entry: &'static str, becomes: &'static str) -> Row {
    Row { entry, becomes }
}

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
    let imported = parse(r#"{"mcpServers": {"a": {"command": "x"}}, "chat.mcp.access": "none"}"#);
    assert!(imported.unread[0].contains("`chat.mcp.access`"), "{:?}", imported.unread);
}
