//! What becomes of the files of other products.

use std::path::Path;

use super::*;
use crate::config::Config;

const CANARY: &str = "canary7Secret9Value3x";

#[track_caller]
fn parse(text: &str) -> Imported {
    let mut imported = Imported::default();
    imported.add(text, Some(Path::new("/home/me/project"))).unwrap();
    imported
}

/// The output is a part of a good configuration, and shows no secret.
#[track_caller]
fn good(imported: &Imported, env: &Environment) -> Config {
    let yaml = imported.yaml();
    let shown = format!("{yaml}{}{imported:?}", imported.remarks(&Environment::bare()));
    assert!(!shown.contains(CANARY), "no secret is shown: {shown}");
    let text = format!("upstream: {{sandbox: true}}\nstate_dir: /tmp/state\n{yaml}");
    let config = Config::parse(&text, Path::new("/etc/bridge.yaml"), env);
    let config = config.unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
    assert!(config.warnings.is_empty(), "{:?}\n{yaml}", config.warnings);
    config
}

#[test]
fn claude_desktop() {
    let imported = parse(
        r#"{"globalShortcut": "", "mcpServers": {
            "file-system": {"command": "npx", "args": ["-y", "@scope/server", "/srv", "yes", "1.5"]},
            "file_system": {"command": "uvx", "args": ["time"], "env": {}},
            "old": {"command": "gone", "disabled": true, "env": {"API_KEY": "canary7Secret9Value3x"}}
        }}"#,
    );
    let config = good(&imported, &Environment::bare());
    assert_eq!(
        imported.yaml(),
        "mcp:\n  # \"file-system\" in the file\n  file_system:\n    command: npx\n    \
         args: [-y, \"@scope/server\", /srv, \"yes\", \"1.5\"]\n  \
         # \"file_system\" in the file\n  file_system_2:\n    command: uvx\n    args: [time]\n    \
         env: {}\n  # Left out: it is turned off in the file.\n  # old:\n  #   command: gone\n  \
         #   env:\n  #     API_KEY: \"${env:API_KEY}\"\n"
    );
    assert_eq!(config.backends.len(), 2);
}

#[test]
fn secrets_become_references_and_no_two_the_same() {
    let imported = parse(
        r#"{"mcpServers": {
            "a": {"command": "x", "env": {"TOKEN": "canary7Secret9Value3x", "LOG": "info",
                  "KEY_FILE": "/etc/key", "ODD": "Zq8rT5wYv2LmN4pQx7Bc9DfG"}},
            "b": {"command": "x", "env": {"TOKEN": "another canary7Secret9Value3x"},
                  "args": ["--api-key", "canary7Secret9Value3x", "--secret=canary7Secret9Value3x",
                           "--header", "X-Api-Key: canary7Secret9Value3x",
                           "postgres://me:canary7Secret9Value3x@db.test/x", "--port", "8080"]},
            "c": {"url": "https://c.test/mcp?api_key=canary7Secret9Value3x&v=${V}",
                  "headers": {"Authorization": "Bearer canary7Secret9Value3x", "X-Team": "core"}}
        }}"#,
    );
    let yaml = imported.yaml();
    for expected in [
        "TOKEN: \"${env:TOKEN}\"",
        "LOG: info",
        "KEY_FILE: /etc/key",
        "ODD: \"${env:ODD}\"",
        "TOKEN: \"${env:B_TOKEN}\"",
        "--api-key, \"${env:B_API_KEY}\", \"--secret=${env:B_SECRET}\"",
        "\"X-Api-Key: ${env:B_X_API_KEY}\", \"postgres://me:${env:B_PASSWORD}@db.test/x\"",
        "--port, \"8080\"",
        "url: \"https://c.test/mcp?api_key=${env:C_API_KEY}&v=${env:V}\"",
        "Authorization: \"Bearer ${env:C_AUTHORIZATION}\"",
        "X-Team: core",
    ] {
        assert!(yaml.contains(expected), "{expected} in:\n{yaml}");
    }
    let bare = Environment::bare();
    let wanted = imported.vault.variables(&bare);
    let env = wanted.iter().fold(Environment::bare(), |env, (name, _)| env.with_var(name, "v"));
    good(&imported, &env);
    let remarks = imported.remarks(&Environment::bare());
    assert!(remarks.contains("export B_TOKEN="), "{remarks}");
    assert!(!imported.remarks(&env).contains("export"), "what is set needs no word");
}

#[test]
fn vs_code_with_comments_inputs_and_trailing_commas() {
    let imported = parse(
        r#"{
            // asked for once
            "inputs": [{"type": "promptString", "id": "git-pat", "description": "Your \"PAT\""},],
            "servers": {
                "git": {"type": "http", "url": "https://git.test/mcp", /* , } */
                        "headers": {"Authorization": "Bearer ${input:git-pat}"},},
                "sse": {"type": "sse", "url": "https://old.test/sse"},
                "here": {"command": "tool", "cwd": "${workspaceFolder}/sub",
                         "envFile": "${userHome}/x.env", "env": {"A": "${env:A}", "B": "${B:-//}"},
                         "dev": {"watch": "**"}, "autoApprove": []},
                "odd": {"command": "${command:pick}"},
            },
        }"#,
    );
    let yaml = imported.yaml();
    assert!(yaml.contains("Authorization: \"Bearer ${env:GIT_PAT}\""), "{yaml}");
    assert!(
        yaml.contains("transport: sse") && yaml.contains("cwd: /home/me/project/sub"),
        "{yaml}"
    );
    assert!(yaml.contains("# odd:") && yaml.contains("B: \"${B:-//}\""), "{yaml}");
    let remarks = imported.remarks(&Environment::bare());
    for expected in
        ["GIT_PAT=…   # Your \"PAT\"", "key `dev`", "key `autoApprove`", "`odd` is only"]
    {
        assert!(remarks.contains(expected), "{expected} in {remarks}");
    }
    let env = Environment::bare().with_file("/home/me/x.env", "A=1\n", 0o600);
    let env = env.with_var("GIT_PAT", "v").with_var("A", "v").with_var("HOME", "/home/me");
    assert_eq!(good(&imported, &env).backends.len(), 3);
}

#[test]
fn what_is_no_such_file() {
    let refused = |text: &str| Imported::default().add(text, None).unwrap_err();
    assert!(refused("[1]").contains("not JSON"), "{}", refused("[1]"));
    assert!(refused("{\"a\": 1}").contains("mcpServers"));
    assert!(refused("{\"a\": / 1}").contains("not JSON"));
    assert!(refused("/*\n*/{\n\"a\": 1 \"b\"").contains("line 3"), "the place is the file's own");
    let imported = parse(r#"{"mcpServers": {"a": 1, "b": {"command": "x", "url": "y"}, "": {}}}"#);
    assert!(imported.yaml().starts_with("mcp: {}\n  # Left out"), "{}", imported.yaml());
    good(&imported, &Environment::bare());
}

#[test]
fn texts_are_read_back_as_they_were() {
    let hard = [
        "",
        "-",
        "--",
        "-1",
        "0x1f",
        ".5",
        "on",
        "a: b",
        "a #b",
        "~",
        "[x]",
        "a\nb\t\u{7f}",
        "é",
        "---",
        "-y",
        "--a",
        "a:/b",
        "C:\\x",
        "{}",
        "!t",
        "*a",
        "'q'",
        "\"q\"",
        "@a",
        "a,b",
        "null",
    ];
    let items: Vec<String> = hard.iter().map(|text| (*text).to_owned()).collect();
    let read: Vec<String> = serde_saphyr::from_str(&yaml::list(&items)).unwrap();
    assert_eq!(read, items);
    for item in items {
        let read: serde_json::Value =
            serde_saphyr::from_str(&format!("k: {}\n", yaml::scalar(&item))).unwrap();
        assert_eq!(read["k"], item.as_str());
    }
}
