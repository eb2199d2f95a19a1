//! The forms of single products' files.

use super::*;

/// What becomes of the file at `path`.
#[track_caller]
fn file(path: &str, text: &str) -> Imported {
    let env = Environment::bare().with_var("HOME", "/home/me");
    let mut imported = Imported::default();
    imported.add(Path::new(path), text, &env).unwrap();
    imported
}

/// The configuration with all variables set that it refers to.
#[track_caller]
fn whole(imported: &Imported) -> Config {
    let bare = Environment::bare().with_var("HOME", "/home/me");
    let wanted = imported.vault.variables(&bare);
    let env = wanted.iter().fold(bare.clone(), |env, (name, _)| env.with_var(name, "v"));
    good(imported, &env)
}

#[test]
fn gemini_cline_and_windsurf() {
    let imported = parse(
        r#"{"mcpServers": {
            "gemini": {"httpUrl": "https://g.test/mcp", "headers": {"Authorization": "Bearer $G_TOKEN"},
                       "timeout": 30000, "trust": false, "description": "d", "includeTools": ["a"]},
            "both": {"url": "https://old.test", "httpUrl": "https://new.test"},
            "cline": {"type": "streamableHttp", "url": "https://c.test", "timeout": 60,
                      "autoApprove": [], "disabled": false},
            "surf": {"serverUrl": "https://s.test/mcp", "disabledTools": ["x"]},
            "copilot": {"type": "local", "command": "x", "args": [], "tools": ["*"],
                        "env": {"T": "COPILOT_MCP_T"}},
            "cherry": {"name": "Mine", "type": "sse", "isActive": true, "baseUrl": "https://ch.test",
                       "command": "", "args": [], "env": {}, "logoUrl": "x"}
        }}"#,
    );
    let all = &imported.mcp;
    assert_eq!(all["gemini"]["url"], "https://g.test/mcp");
    assert_eq!(all["gemini"]["transport"], "streamable-http");
    assert_eq!(all["gemini"]["headers"]["Authorization"], "Bearer ${env:G_TOKEN}");
    assert_eq!(all["gemini"]["call_timeout"], "30s");
    assert_eq!(all["both"]["url"], "https://new.test");
    assert_eq!(
        all["cline"],
        json!({"url": "https://c.test", "transport": "streamable-http", "call_timeout": "1m"})
    );
    assert_eq!(all["surf"]["url"], "https://s.test/mcp");
    assert_eq!(all["copilot"], json!({"command": "x", "env": {"T": "${env:COPILOT_MCP_T}"}}));
    assert_eq!(all["cherry"], json!({"url": "https://ch.test", "transport": "sse"}));
    assert!(imported.unread.is_empty(), "{:?}", imported.unread);
    assert_eq!(whole(&imported).backends.len(), 6);
}

#[test]
fn claude_code_with_projects() {
    let imported = file(
        "/home/me/.claude.json",
        r#"{"numStartups": 3, "mcpServers": {"fs": {"type": "stdio", "command": "fs", "args": []}},
            "projects": {
              "/home/me/one": {"mcpServers": {"fs": {"command": "fs"}, "db": {"command": "node",
                  "args": ["./db.js"]}}, "history": [], "disabledMcpServers": ["db"]},
              "/home/me/two": {"mcpServers": {"fs": {"command": "other"}}},
              "/home/me/three": {"allowedTools": []}}}"#,
    );
    let names: Vec<_> = imported.mcp.keys().map(String::as_str).collect();
    assert_eq!(names, ["db", "fs", "fs_2"], "the same server of two places is one");
    assert_eq!(imported.mcp["db"]["disabled"], true);
    assert_eq!(imported.mcp["db"]["cwd"], "/home/me/one");
    assert_eq!(imported.mcp["fs_2"]["command"], "other");
    let remarks = imported.remarks(&Environment::bare());
    assert!(remarks.contains("projects./home/me/two"), "{remarks}");
    whole(&imported);
}

#[test]
fn zed_in_both_of_its_forms() {
    let imported = file(
        "/home/me/.config/zed/settings.json",
        r#"{"theme": "One", // mine
            "agent": {"tool_permissions": {"tools": {"mcp:flat:rm": {"default": "deny"},
                "mcp:flat:mv": {"default": "confirm"}}}},
            "context_servers": {
              "nested": {"source": "custom", "command": {"path": "npx", "args": ["-y", "a"],
                         "env": {"A": "b"}, "timeout": 90}},
              "flat": {"command": "npx", "args": ["-y", "b"], "enabled": false},
              "far": {"url": "https://z.test/mcp", "headers": {"X": "y"}},
              "extension": {"source": "extension", "settings": {}, "enabled": true},
            }}"#,
    );
    let all = &imported.mcp;
    assert_eq!(
        all["nested"],
        json!({"command": "npx", "args": ["-y", "a"], "env": {"A": "b"}, "call_timeout": "90s"})
    );
    assert_eq!(all["flat"]["disabled"], true);
    assert_eq!(all["flat"]["tools"], json!({"deny": ["rm"]}));
    assert_eq!(all["flat"]["approve"], json!(["mv"]));
    assert_eq!(all["far"]["headers"]["X"], "y");
    assert!(!all.contains_key("extension"));
    assert!(imported.unread[0].contains("context_servers.extension"), "{:?}", imported.unread);
    whole(&imported);
}

#[test]
fn opencode_local_and_remote() {
    let imported = file(
        "/home/me/.config/opencode/opencode.jsonc",
        r#"{"$schema": "https://opencode.ai/config.json",
            "tools": {"far_*": false, "near_rm": false, "read": false},
            "permission": {"near_mv": "ask", "near_*": "allow", "far_ls": "allow", "edit": "ask"},
            "mcp": {
              "near": {"type": "local", "command": ["npx", "-y", "a"], "timeout": 5000,
                       "environment": {"A": "{env:A_KEY}", "B": "b"}, "enabled": true},
              "far": {"type": "remote", "url": "https://o.test/mcp", "enabled": true,
                      "oauth": false, "headers": {"Authorization": "Bearer {env:FAR_KEY}",
                      "X-Key": "{file:./key}"}},
              "off": {"type": "local", "command": ["x"], "enabled": false},
            }}"#,
    );
    let all = &imported.mcp;
    assert_eq!(all["near"]["command"], "npx");
    assert_eq!(all["near"]["args"], json!(["-y", "a"]));
    assert_eq!(all["near"]["env"], json!({"A": "${env:A_KEY}", "B": "b"}));
    assert_eq!(all["near"]["tools"], json!({"deny": ["rm"]}));
    assert_eq!(all["near"]["approve"], json!(["mv"]));
    assert_eq!(all["far"]["headers"]["Authorization"], "Bearer ${env:FAR_KEY}");
    assert_eq!(all["far"]["headers"]["X-Key"], "${file:/home/me/.config/opencode/key}");
    assert_eq!(all["far"]["tools"], json!({"allow": ["ls"]}));
    assert_eq!(all["off"]["disabled"], true);
    assert!(imported.unread.is_empty(), "{:?}", imported.unread);
}

#[test]
fn codex_toml() {
    let imported = file(
        "/home/me/.codex/config.toml",
        r#"model = "o"
[mcp_servers.near]
command = "npx"
args = ["-y", "a"]
cwd = "~/work"
env_vars = ["A_KEY"]
startup_timeout_sec = 20
tool_timeout_sec = 60.5
enabled_tools = ["ls", "rm"]
disabled_tools = ["rm"]
required = true
supports_parallel_tool_calls = true
default_tools_approval_mode = "auto"
[mcp_servers.near.env]
B = "b"
[mcp_servers.near.tools.ls]
approval_mode = "prompt"
[mcp_servers.far]
url = "https://x.test/mcp"
bearer_token_env_var = "FAR_TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Key" = "FAR_KEY" }
enabled = false
"#,
    );
    let near = &imported.mcp["near"];
    assert_eq!(near["env"], json!({"A_KEY": "${env:A_KEY}", "B": "b"}));
    assert_eq!(near["cwd"], "/home/me/work");
    assert_eq!(near["call_timeout"], "60500ms");
    assert_eq!(near["required"], true);
    assert_eq!(near["tools"], json!({"allow": ["ls", "rm"], "deny": ["rm"]}));
    assert_eq!(near["approve"], json!(["ls"]));
    let far = &imported.mcp["far"];
    assert_eq!(far["disabled"], true);
    assert_eq!(
        far["headers"],
        json!({"Authorization": "Bearer ${env:FAR_TOKEN}", "X-Key": "${env:FAR_KEY}", "X-Region": "eu"})
    );
    assert!(imported.unread.is_empty(), "{:?}", imported.unread);
    let shown = format!("{near}{}", imported.remarks(&Environment::bare()));
    assert!(shown.contains("20s"), "the time to start is carried over or told: {shown}");
    whole(&imported);
}

#[test]
fn goose_extensions() {
    let imported = file(
        "/home/me/.config/goose/config.yaml",
        "GOOSE_MODE: auto
extensions:
  developer: {enabled: true, type: builtin, name: developer, bundled: true}
  files:
    enabled: true
    type: stdio
    cmd: npx
    args: [-y, a]
    envs: {A: b}
    env_keys: [FILES_KEY]
    timeout: 60
    available_tools: []
  few: {enabled: false, type: streamable_http, uri: 'https://g.test/mcp', available_tools: [ls]}
",
    );
    let all = &imported.mcp;
    assert_eq!(
        all["files"],
        json!({"command": "npx", "args": ["-y", "a"], "call_timeout": "1m",
               "env": {"A": "b", "FILES_KEY": "${env:FILES_KEY}"}})
    );
    assert_eq!(all["few"]["url"], "https://g.test/mcp");
    assert_eq!(all["few"]["disabled"], true);
    assert_eq!(all["few"]["tools"], json!({"allow": ["ls"]}));
    assert!(imported.unread[0].contains("extensions.developer"), "{:?}", imported.unread);
    whole(&imported);
}

#[test]
fn continue_list_and_librechat_map() {
    let imported = file(
        "/home/me/.continue/config.yaml",
        "name: mine
mcpServers:
  - name: Data Base
    command: uvx
    args: [db]
    env: {DB_KEY: '${{ secrets.DB_KEY }}'}
    connectionTimeout: 1000
  - url: https://mcp.linear.app/sse
    type: sse
    apiKey: canary7Secret9Value3x
    requestOptions: {headers: {X: y}, verifySsl: false}
",
    );
    assert_eq!(imported.mcp["Data_Base"]["env"]["DB_KEY"], "${env:DB_KEY}");
    let linear = &imported.mcp["linear"];
    assert_eq!(linear["headers"]["X"], "y");
    assert_eq!(linear["headers"]["Authorization"], "Bearer ${env:LINEAR_AUTHORIZATION}");
    assert!(imported.unread[0].contains("mcpServers[1].requestOptions.verifySsl"));
    whole(&imported);
    let imported = file(
        "/srv/librechat.yaml",
        "version: 1.2.1
mcpServers:
  web: {type: streamable-http, url: 'https://l.test', timeout: 60000, initTimeout: 10000,
    chatMenu: false, headers: {X-Key: '${L_KEY}'}}
  each: {url: 'https://e.test', headers: {X-User: '{{LIBRECHAT_USER_ID}}'}}
",
    );
    assert_eq!(imported.mcp["web"]["call_timeout"], "1m");
    assert!(!imported.mcp.contains_key("each"));
    assert!(imported.unread[0].contains("{{LIBRECHAT_USER_ID}}"), "{:?}", imported.unread);
    whole(&imported);
}

#[test]
fn other_places_of_servers() {
    for (text, name) in [
        (r#"{"mcp": {"servers": {"a": {"command": "x"}}, "inputs": []}}"#, "a"),
        (r#"{"amp.mcpServers": {"a": {"command": "x", "includeTools": ["l*"]}}}"#, "a"),
        (r#"{"customizations": {"vscode": {"mcp": {"servers": {"a": {"command": "x"}}}}}}"#, "a"),
        (r#"{"a": {"command": "x"}, "b": {"url": "https://b.test"}}"#, "a"),
        (r#"{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-files"]}"#, "files"),
        (r#"[{"name": "a", "command": "x"}]"#, "a"),
        (r#"{"mcp": {"a": {"type": "stdio", "command": "x", "disabled_tools": ["y"]}}}"#, "a"),
    ] {
        let imported = parse(text);
        assert!(imported.mcp.contains_key(name), "{text}: {:?}", imported.mcp);
        assert!(imported.unread.is_empty(), "{text}: {:?}", imported.unread);
        whole(&imported);
    }
}

#[test]
fn errors_of_yaml_and_toml_have_a_place_and_no_value() {
    struct Case {
        path: &'static str,
        text: &'static str,
        why: &'static str,
    }
    for Case { path, text, why } in [
        Case {
            path: "/a.yaml",
            text: "mcpServers:\n  a: {env: {K: canary7Secret9Value3x}\n",
            why: "not YAML",
        },
        Case {
            path: "/a.toml",
            text: "[mcp_servers.a]\ncommand = canary7Secret9Value3x\n",
            why: "not TOML, line 2",
        },
        Case {
            path: "/a.json",
            text: "{\"mcpServers\": {\"a\": canary7Secret9Value3x}}",
            why: "not JSON",
        },
    ] {
        let mut imported = Imported::default();
        let error = imported.add(Path::new(path), text, &Environment::bare()).unwrap_err();
        assert!(error.contains(why) && !error.contains(CANARY), "{path}: {error}");
    }
}

#[test]
fn names_of_addresses_and_packages_are_readable_and_unique() {
    for (name, readable) in [
        ("https://mcp.linear.app/sse", "linear"),
        ("https://api.githubcopilot.com/mcp/", "githubcopilot"),
        ("https://huggingface.co/mcp", "huggingface"),
        ("https://issues.intranet.example/mcp", "issues"),
        ("http://localhost:3000/mcp", "localhost"),
        ("http://127.0.0.1:3000/weather/mcp", "weather"),
        ("http://127.0.0.1:3000/mcp", "server"),
        ("https://github.com/upstash/context7-mcp", "context7"),
        ("https://www.packages.example/package/@acme/mcp-server-files", "files"),
        ("https://www.packages.example/package/@playwright/mcp/v/1.2.0", "playwright"),
        ("https://packages.example/project/mcp-server-time/2025.1/", "time"),
        ("https://weather.example/project/42/mcp", "weather"),
        ("https://weather.example/project/42", "weather"),
        ("github.com/modelcontextprotocol/servers/tree/main/src/git", "git"),
        ("@modelcontextprotocol/server-filesystem", "filesystem"),
        ("@playwright/mcp@latest", "playwright"),
        ("io.github.me/weather", "weather"),
        ("issue tracker", "issue_tracker"),
        ("file-system", "file_system"),
        ("mcp", "mcp"),
        ("", "server"),
    ] {
        assert_eq!(Imported::default().free_name(name), readable, "{name}");
    }
    let imported = parse(
        r#"[{"url": "https://z.test/s/canary7Secret9Value3xyz12/mcp"},
            {"url": "https://z.test/s/canary7Secret9Value3xyz13/mcp?key=canary7Secret9Value3x"},
            {"command": "uvx", "args": ["--from", "mcp-server-time", "mcp-server-time"]}]"#,
    );
    let names: Vec<_> = imported.mcp.keys().map(String::as_str).collect();
    assert_eq!(names, ["time", "z", "z_2"], "no secret of an address is in a name");
    let remarks = imported.remarks(&Environment::bare());
    assert!(!remarks.contains("canary"), "{remarks}");
    let imported = parse(
        r#"{"mcpServers": {"https://gw.test/mcp/jira": {"url": "https://gw.test/mcp/jira"},
            "https://gw.test/mcp/wiki": {"url": "https://gw.test/mcp/wiki"},
            "https://gw.test/mcp": {"url": "https://gw.test/mcp"}}}"#,
    );
    let names: Vec<_> = imported.mcp.keys().map(String::as_str).collect();
    assert_eq!(names, ["gw", "gw_jira", "gw_wiki"]);
    whole(&imported);
}
