//! What becomes of the files of other products.

use std::path::Path;

use super::*;
use crate::config::Config;

mod products;
mod rights;
mod secrets;

const CANARY: &str = "canary7Secret9Value3x";

/// An entry, and what has to stand in bridge.yaml.
struct Row {
    entry: &'static str,
    becomes: &'static str,
}

const fn row(entry: &'static str, becomes: &'static str) -> Row {
    Row { entry, becomes }
}

#[track_caller]
fn parse(text: &str) -> Imported {
    let env = Environment::bare().with_var("HOME", "/home/me");
    let mut imported = Imported::default();
    imported.add(Path::new("/home/me/project/.vscode/mcp.json"), text, &env).unwrap();
    imported
}

/// The output is a part of a good configuration, and shows no secret.
#[track_caller]
fn good(imported: &Imported, env: &Environment) -> Config {
    let yaml = yaml("mcp", &imported.mcp);
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
        yaml("mcp", &imported.mcp),
        "mcp:
  file_system:
    command: npx
    args:
    - -y
    - \"@scope/server\"
    - /srv
    - \"yes\"
    - \"1.5\"
  file_system_2:
    command: uvx
    args:
    - time
  old:
    command: gone
    env:
      API_KEY: ${env:API_KEY}
    disabled: true
"
    );
    assert_eq!(config.backends.len(), 2);
    let remarks = imported.remarks(&Environment::bare());
    assert!(remarks.contains("\"file-system\" is called `file_system` here"), "{remarks}");
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
    let yaml = yaml("mcp", &imported.mcp);
    for expected in [
        "TOKEN: ${env:TOKEN}",
        "LOG: info",
        "KEY_FILE: /etc/key",
        "ODD: ${env:ODD}",
        "TOKEN: ${env:B_TOKEN}",
        "- --api-key\n    - ${env:B_API_KEY}\n    - --secret=${env:B_SECRET}",
        "X-Api-Key: ${env:B_X_API_KEY}",
        "postgres://me:${env:B_PASSWORD}@db.test/x",
        "- --port\n    - \"8080\"",
        "url: https://c.test/mcp?api_key=${env:C_API_KEY}&v=${V}",
        "Authorization: Bearer ${env:C_AUTHORIZATION}",
        "X-Team: core",
    ] {
        assert!(yaml.contains(expected), "{expected} in:\n{yaml}");
    }
    let bare = Environment::bare();
    let wanted = imported.vault.variables(&bare);
    let env = wanted
        .iter()
        .fold(Environment::bare().with_var("V", "v"), |env, (name, _)| env.with_var(name, "v"));
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
                "still": {"url": "https://old.test/", "enabled": false},
                "here": {"command": "tool", "cwd": "${workspaceFolder}/sub",
                         "envFile": "${userHome}/x.env", "env": {"A": "${env:A}", "B": "${B:-//}"},
                         "dev": {"watch": "**"}, "autoApprove": ["x"]},
                "odd": {"commands": "pick"},
            },
        }"#,
    );
    let yaml = yaml("mcp", &imported.mcp);
    assert!(yaml.contains("Authorization: Bearer ${env:GIT_PAT}"), "{yaml}");
    assert!(
        yaml.contains("transport: sse") && yaml.contains("cwd: /home/me/project/sub"),
        "{yaml}"
    );
    assert!(!yaml.contains("odd:") && yaml.contains("${B:-//}"), "{yaml}");
    let remarks = imported.remarks(&Environment::bare());
    for expected in
        ["GIT_PAT=…   # Your \"PAT\"", "`dev` is", "`autoApprove` is", "`odd` is left out"]
    {
        assert!(remarks.contains(expected), "{expected} in {remarks}");
    }
    let env = Environment::bare().with_file("/home/me/x.env", "A=1\n", 0o600);
    let env = env.with_var("GIT_PAT", "v").with_var("A", "v").with_var("HOME", "/home/me");
    assert_eq!(good(&imported, &env).backends.len(), 3);
}

/// A file of a project, or of none.
fn file_in(project: Option<()>) -> &'static Path {
    Path::new(match project {
        Some(()) => "/home/me/project/.vscode/mcp.json",
        None => "/home/me/mcp.json",
    })
}

/// An entry with references of an editor, what stands for it (`None`: it is left out), and what
/// stderr says.
struct Reference {
    folder: Option<()>,
    entry: &'static str,
    becomes: Option<&'static str>,
    told: &'static str,
}

const REFERENCES: [Reference; 21] = [
    Reference {
        folder: None,
        entry: r#"{"url": "https://a.test", "headers": {"X": "${input:k}"}}"#,
        becomes: Some("X: ${env:K}"),
        told: "export K=…   # k, of a",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "env": {"U": "${userHome}/x"}}"#,
        becomes: Some("U: /home/me/x"),
        told: "",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "${workspaceFolder}/x"}"#,
        becomes: Some("command: ${env:WORKSPACEFOLDER}/x"),
        told: "export WORKSPACEFOLDER=",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "envFile": "${workspaceFolder}/.env"}"#,
        becomes: Some("envFile: ${env:WORKSPACEFOLDER}/.env"),
        told: "export WORKSPACEFOLDER=",
    },
    Reference {
        folder: Some(()),
        entry: r#"{"command": "x", "envFile": "${workspaceFolder}/.env"}"#,
        becomes: Some("envFile: /home/me/project/.env"),
        told: "",
    },
    Reference {
        folder: Some(()),
        entry: r#"{"command": "${workspaceFolderBasename}${pathSeparator}x${/}y"}"#,
        becomes: Some("command: ${env:WORKSPACEFOLDERBASENAME}/x/y"),
        told: "export WORKSPACEFOLDERBASENAME=",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "args": ["${env:NEEDED}", "${OTHER:-x}"]}"#,
        becomes: Some("- ${OTHER:-x}"),
        told: "export NEEDED=",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "args": ["${command:pick.one}"]}"#,
        becomes: None,
        told: "${command:pick.one}",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "args": ["${workspaceFolder:other}"]}"#,
        becomes: None,
        told: "${workspaceFolder:other}",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "envFile": "${config:a.b}"}"#,
        becomes: None,
        told: "${config:a.b}",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "args": ["${"]}"#,
        becomes: None,
        told: "mcp.a.args",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "args": ["${input:}"]}"#,
        becomes: None,
        told: "mcp.a.args",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "args": "-y"}"#,
        becomes: None,
        told: "mcp.a.args",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "headers": {"X": "y"}}"#,
        becomes: None,
        told: "mcp.a.headers",
    },
    Reference {
        folder: None,
        entry: r#"{"url": "https://a.test", "env": {}}"#,
        becomes: Some("url: https://a.test"),
        told: "",
    },
    Reference {
        folder: None,
        entry: r#"{"url": "https://a.test", "env": {"A": "b"}}"#,
        becomes: None,
        told: "mcp.a.env",
    },
    Reference {
        folder: None,
        entry: r#"{"url": "ws://a.test"}"#,
        becomes: None,
        told: "mcp.a.url",
    },
    Reference {
        folder: None,
        entry: r#"{"url": "https://a.test", "serverUrl": "https://b.test"}"#,
        becomes: None,
        told: "mcp.a",
    },
    Reference {
        folder: None,
        entry: r#"{"url": "https://a.test", "type": "websocket"}"#,
        becomes: None,
        told: "mcp.a.type",
    },
    Reference {
        folder: None,
        entry: r#"{"command": "x", "env": "canary7Secret9Value3x"}"#,
        becomes: None,
        told: "mcp.a.env",
    },
    Reference { folder: None, entry: r#""canary7Secret9Value3x""#, becomes: None, told: "mcp.a" },
];

#[test]
fn the_editors_own_references_become_what_bridge_yaml_takes() {
    for Reference { folder, entry, becomes, told } in REFERENCES {
        let env = Environment::bare().with_var("HOME", "/home/me");
        let mut imported = Imported::default();
        let text = format!(r#"{{"servers": {{"a": {entry}}}, "inputs": [{{"id": "k"}}]}}"#);
        imported.add(file_in(folder), &text, &env).unwrap();
        let yaml = yaml("mcp", &imported.mcp);
        let remarks = imported.remarks(&env);
        assert!(remarks.contains(told), "{entry}: {remarks}");
        assert_eq!(remarks.contains("is left out ("), becomes.is_none(), "{entry}: {remarks}");
        assert!(yaml.contains(becomes.unwrap_or("mcp: {}\n")), "{entry}: {yaml}");
        let env = [".env", "/project/.env"]
            .iter()
            .fold(env, |env, file| env.with_file(&format!("/home/me{file}"), "A=b\n", 0o600));
        let variables = ["K", "NEEDED", "WORKSPACEFOLDERBASENAME"]
            .iter()
            .fold(env, |env, name| env.with_var(name, "v"));
        good(&imported, &variables.with_var("WORKSPACEFOLDER", "/home/me/project"));
    }
}

#[test]
fn a_secret_and_a_reference_never_share_a_variable() {
    let imported = parse(
        r#"{"mcpServers": {
            "a": {"command": "x", "env": {"TOKEN": "canary7Secret9Value3x", "PAT": "canary7Secret9Value3x"}},
            "b": {"command": "x", "env": {"T": "${env:TOKEN}", "P": "${input:pat}"}}
        }}"#,
    );
    let yaml = yaml("mcp", &imported.mcp);
    for expected in
        ["TOKEN: ${env:A_TOKEN}", "T: ${env:TOKEN}", "PAT: ${env:PAT}", "P: ${env:INPUT_PAT}"]
    {
        assert!(yaml.contains(expected), "{expected} in:\n{yaml}");
    }
}

#[test]
fn file_without_servers_is_refused() {
    let refused = |text: &str| {
        let path = Path::new("/home/me/mcp.json");
        Imported::default().add(path, text, &Environment::bare()).unwrap_err()
    };
    assert!(refused("[").contains("not JSON"), "{}", refused("["));
    assert!(refused("1").contains("no map"), "{}", refused("1"));
    assert!(refused("{\"a\": 1}").contains("mcpServers"));
    assert!(refused("{\"a\": / 1}").contains("not JSON"));
    assert!(refused("/*\n*/{\n\"a\": 1 \"b\"").contains("line 3"), "the place is the file's own");
    let imported = parse(r#"{"mcpServers": {"a": 1, "b": {"command": "x", "url": "y"}, "": {}}}"#);
    assert_eq!(yaml("mcp", &imported.mcp), "mcp: {}\n");
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
    let texts: Map<String, Value> =
        hard.iter().map(|text| ((*text).to_owned(), json!([text]))).collect();
    let read: Value = serde_saphyr::from_str(&yaml("k", &texts)).unwrap();
    assert_eq!(read, json!({ "k": texts }));
}
