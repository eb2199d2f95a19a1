//! That no secret of a file is printed, wherever it stands, and that everyday values are.

use super::*;

/// A secret that looks like one, and one that looks like a word.
const RANDOM: &str = "s3cr3tVALUE9f8a7b6c5d4e3f2a1b0";
const WORD: &str = "hunter4";

fn import(entry: &str) -> Imported {
    let entry = entry.replace("RANDOM", RANDOM).replace("WORD", WORD);
    parse(&format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#))
}

/// What a person sees of it.
#[track_caller]
fn shown(imported: &Imported, entry: &str) -> String {
    let remarks = imported.remarks(&Environment::bare());
    let shown = format!("{}{remarks}", yaml("mcp", &imported.mcp));
    assert!(!shown.contains(RANDOM) && !shown.contains(WORD), "{entry}:\n{shown}");
    shown
}

const ROWS: &[Row] = &[
    // JSON in a value or an argument.
    row(
        r#"{"command": "x", "env": {"H": "{\"Authorization\": \"Bearer WORD\", \"Notion-Version\": \"2022-06-28\"}"}}"#,
        r#"{"Authorization":"Bearer ${env:A_AUTHORIZATION}","Notion-Version":"2022-06-28"}"#,
    ),
    row(
        r#"{"command": "x", "args": ["--config", "{\"exaApiKey\":\"WORD\", \"n\": 5}"]}"#,
        r#"{"exaApiKey":"${env:A_EXAAPIKEY}","n":5}"#,
    ),
    row(
        r#"{"command": "x", "args": ["--config={\"a\": [{\"password\": \"WORD\"}]}"]}"#,
        r#"--config={"a":[{"password":"${env:A_PASSWORD}"}]}"#,
    ),
    row(
        r#"{"command": "x", "args": ["--headers", "{\"X\": \"RANDOM\"}"]}"#,
        r#"{"X":"${env:A_X}"}"#,
    ),
    // Addresses.
    row(r#"{"url": "https://h.test/s/RANDOM/mcp"}"#, "https://h.test/s/${env:A_URL}/mcp"),
    row(
        r#"{"url": "https://h.test/server/0f9e8d7c-6b5a-4c3d-2e1f-0a9b8c7d6e5f/mcp?user_id=bob"}"#,
        "https://h.test/server/${env:A_URL}/mcp?user_id=bob",
    ),
    row(
        r#"{"command": "npx", "args": ["mcp-remote", "https://h.test/sk-ak-AbCdEfGhIjKlMnOpQrSt/sse"]}"#,
        "https://h.test/${env:A_SECRET}/sse",
    ),
    row(
        r#"{"command": "x", "env": {"HOOK": "https://h.test/services/T0AAAA/B0BBBB/RANDOM"}}"#,
        "https://h.test/services/T0AAAA/B0BBBB/${env:A_HOOK}",
    ),
    row(r#"{"url": "https://h.test/mcp?x=RANDOM"}"#, "mcp?x=${env:A_X}"),
    row(r#"{"command": "x", "args": ["--url=https://h.test/mcp#RANDOM"]}"#, "mcp#${env:"),
    row(
        r#"{"command": "x", "args": ["postgres://${U}:WORD@h.test/db"]}"#,
        "postgres://${U}:${env:A_PASSWORD}@h.test/db",
    ),
    row(
        r#"{"command": "x", "args": ["https://a.test,https://u:WORD@b.test"]}"#,
        "https://a.test,https://u:${env:A_PASSWORD}@b.test",
    ),
    row(
        r#"{"command": "x", "args": ["https://a.test/?next=https://u:WORD@b.test/x"]}"#,
        "next=https://u:${env:A_PASSWORD}@b.test/x",
    ),
    // Lines of a shell.
    row(
        r#"{"command": "bash", "args": ["-c", "export GITHUB_TOKEN=WORD; npx foo"]}"#,
        "export GITHUB_TOKEN=${env:A_GITHUB_TOKEN}; npx foo",
    ),
    row(
        r#"{"command": "cmd", "args": ["/c", "set TOKEN=WORD&& npx foo"]}"#,
        "set TOKEN=${env:A_TOKEN}&& npx foo",
    ),
    row(
        r#"{"command": "sh", "args": ["-c", "x --db-pass WORD -H \"Authorization: Bearer WORD\" --port 1"]}"#,
        r#"x --db-pass ${env:A_DB_PASS} -H \"Authorization: Bearer ${env:A_AUTHORIZATION}\" --port 1"#,
    ),
    row(r#"{"command": "/usr/bin/x --token WORD"}"#, "/usr/bin/x --token ${env:A_TOKEN}"),
    row(r#"{"command": "curl", "args": ["-u", "bob:WORD"]}"#, "bob:${env:A_PASSWORD}"),
    // Options, headers and variables.
    row(r#"{"command": "x", "args": ["--db-pass", "WORD"]}"#, "${env:A_DB_PASS}"),
    row(r#"{"command": "x", "args": ["-pw=WORD"]}"#, "-pw=${env:A_PW}"),
    row(r#"{"command": "x", "args": ["-pRANDOM"]}"#, "-p${env:A_SECRET}"),
    row(r#"{"command": "x", "env": {"PGPASS": "WORD"}}"#, "PGPASS: ${env:PGPASS}"),
    row(r#"{"command": "x", "env": {"DSN": "Password=WORD;Port=1"}}"#, "DSN: ${env:DSN}"),
    row(r#"{"command": "x", "env": {"ANY": "${X}RANDOM"}}"#, "ANY: ${X}${env:ANY}"),
    row(r#"{"url": "https://h.test", "headers": {"X-Any": "RANDOM"}}"#, "X-Any: ${env:A_X_ANY}"),
    row(r#"{"command": "x", "cwd": "/srv/RANDOM/x"}"#, "/srv/${env:A_CWD}/x"),
    // Defaults.
    row(r#"{"command": "x", "args": ["${FOO:-RANDOM}"]}"#, "- ${env:FOO}"),
    row(r#"{"command": "x", "env": {"A": "${env:FOO:-RANDOM}"}}"#, "A: ${env:FOO}"),
    row(r#"{"command": "x", "env": {"API_KEY": "${FOO:-WORD}"}}"#, "API_KEY: ${env:FOO}"),
    row(r#"{"command": "x", "env": {"A": "${DB_PASS:-WORD}"}}"#, "A: ${env:DB_PASS}"),
];

#[test]
fn secret_becomes_a_reference_in_each_kind_of_text() {
    for Row { entry, becomes } in ROWS {
        let imported = import(entry);
        let shown = shown(&imported, entry);
        // Long texts are written over several lines, or with escapes.
        let plain: String = shown.replace("\\\"", "\"").split_whitespace().collect();
        let becomes: String = becomes.replace("\\\"", "\"").split_whitespace().collect();
        assert!(plain.contains(&becomes), "{entry}: {becomes} in\n{shown}");
        assert!(imported.unread.is_empty(), "{entry}: {shown}");
        let bare = Environment::bare().with_var("U", "u").with_var("X", "x");
        let wanted = imported.vault.variables(&bare);
        let env = wanted.iter().fold(bare.clone(), |env, (name, _)| env.with_var(name, "v"));
        let text =
            format!("upstream: {{sandbox: true}}\nstate_dir: /s\n{}", yaml("mcp", &imported.mcp));
        let config = Config::parse(&text, Path::new("/b.yaml"), &env);
        assert!(config.is_ok(), "{entry}: {:?}", config.err());
    }
}

#[test]
fn value_in_a_message_is_not_shown() {
    for entry in [
        r#"{"command": "x", "type": "WORD"}"#,
        r#"{"url": "ht!tp://WORD"}"#,
        r#"{"url": "https://user:WORD@"}"#,
        r#"{"command": "x", "env": {"A": "${FOO?WORD}"}}"#,
        r#"{"command": "x", "env": {"A": "${RANDOM}"}}"#,
        r#"{"command": "x", "env": ["TOKEN=WORD"]}"#,
        r#"{"command": "x", "timeout": "WORD"}"#,
        r#"{"command": "x", "disabled": "WORD"}"#,
        r#"{"command": "x", "includeTools": {"x": "WORD"}}"#,
        r#"{"command": "x", "description": "WORD", "apiKey": "WORD", "auth": {"token": "WORD"}}"#,
        r#"{"url": "https://h.test", "bearer_token_env_var": "ghp_RANDOM"}"#,
        r#"{"url": "https://h.test", "env_http_headers": {"X": "RANDOM"}}"#,
        r#"{"command": "x", "env_vars": ["RANDOM"]}"#,
        r#"{"command": "WORD x", "args": "WORD"}"#,
        r#"{"url": "https://h.test", "headers": ["Authorization: Bearer WORD"]}"#,
    ] {
        shown(&import(entry), entry);
    }
    // A name that is made of the package has no option's value in it.
    let bare = parse(&format!(r#"[{{"command": "npx", "args": ["--token", "{WORD}", "files"]}}]"#));
    shown(&bare, "no name");
    assert!(bare.mcp.contains_key("files"), "{:?}", bare.mcp);
}

#[test]
fn everyday_value_stays_readable() {
    for value in [
        "true",
        "8080",
        "1.0.14",
        "info",
        "DEBUG",
        "us-east-1",
        "/usr/lib/jvm/java-21-openjdk-amd64",
        "C:\\Users\\ann\\AppData\\Roaming\\npm\\x.exe",
        "@modelcontextprotocol/server-sequential-thinking",
        "@upstash/context7-mcp@1.0.14",
        "chrome-devtools-mcp@latest",
        "ghcr.io/github/github-mcp-server:v1.2.3",
        "git+https://github.com/blazickjp/arxiv-mcp-server@v0.3.1",
        "https://issues.intranet.example/mcp",
        "http://127.0.0.1:3000/weather/mcp?team=core",
        "db-1.prod.eu-central-1.internal.example.com",
        "claude-3-5-sonnet-20241022",
        "America/Argentina/Buenos_Aires",
        "--max-old-space-size=4096",
        "type=bind,src=/home/me/dir,dst=/projects/dir",
        "2025-11-28T10:30:00Z",
        "ann.smith@example.com",
        "postgres://localhost:5432/app",
        "{\"port\":8080}",
        "node_modules/.bin/server",
    ] {
        let file =
            json!({"mcpServers": {"a": {"command": "x", "args": [value], "env": {"V": value}}}});
        let imported = parse(&file.to_string());
        assert_eq!(imported.mcp["a"]["args"], json!([value]));
        assert_eq!(imported.mcp["a"]["env"], json!({ "V": value }));
        assert_eq!(imported.remarks(&Environment::bare()), "", "{value}");
    }
}

/// A text with a reference, what stands for it, and whether a note has the default.
struct DefaultRow {
    text: &'static str,
    becomes: &'static str,
    note: Option<&'static str>,
}

#[test]
fn default_of_a_reference_stays_and_is_told() {
    let row = |text, becomes, note| DefaultRow { text, becomes, note };
    for DefaultRow { text, becomes, note } in [
        row("${FOO:-def}", "${FOO:-def}", Some("`def`")),
        row("${env:FOO:-def}", "${FOO:-def}", Some("`def`")),
        row("a${env:FOO:-/srv/x}b", "a${FOO:-/srv/x}b", Some("`/srv/x`")),
        row("${FOO:-}", "${FOO:-}", None),
        row("${FOO:-${env:BAR}}", "${env:FOO}", None),
        row("$${FOO:-def}", "$${FOO:-def}", None),
    ] {
        let file =
            json!({"mcpServers": {"a": {"command": "x", "env": {"B": text}, "args": [text]}}});
        let imported = parse(&file.to_string());
        assert_eq!(imported.mcp["a"]["env"]["B"], becomes, "{text}");
        assert_eq!(imported.mcp["a"]["args"][0], becomes, "{text}");
        let remarks = imported.remarks(&Environment::bare());
        assert_eq!(remarks.contains("export FOO="), becomes == "${env:FOO}", "{remarks}");
        assert_eq!(remarks.contains("`a`: without FOO, "), note.is_some(), "{remarks}");
        assert!(remarks.contains(note.unwrap_or_default()), "{remarks}");
        good(&imported, &Environment::bare().with_var("FOO", "v").with_var("BAR", "v"));
    }
    // The variable of the reference never comes to stand for a secret.
    let imported = import(r#"{"command": "x", "env": {"TOKEN": "WORD", "B": "${TOKEN:-def}"}}"#);
    assert_eq!(imported.mcp["a"]["env"]["TOKEN"], "${env:A_TOKEN}");
}

#[test]
fn hidden_characters_are_written_as_escapes_and_read_back() {
    let text = "\u{202e}evil\u{1b}[2J \"q\" \\ é";
    let file = json!({"mcpServers": {"a": {"command": "x", "args": [text, "escaped_text0x"],
        "env": {"A\u{200b}": "\u{e0041}\u{2066}x\nline"}}}});
    let imported = parse(&file.to_string());
    let yaml = yaml("mcp", &imported.mcp);
    assert!(!yaml.contains(visible::hides), "{yaml:?}");
    let value: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(value["mcp"]["a"], imported.mcp["a"], "{yaml}");
    let remarks = imported.remarks(&Environment::bare());
    assert!(!remarks.contains(visible::hides), "{remarks:?}");
}

#[test]
fn file_of_another_encoding_is_refused_with_its_name() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("mcp.json");
    let text = r#"{"mcpServers": {}}"#;
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [[b"\xff\xfe", &little[..]].concat(), little] {
        std::fs::write(&path, bytes).unwrap();
        let failed = Imported::default().load(&path, &Environment::of_process());
        let Err(Failure::Failed(why)) = failed else { panic!("it was read") };
        assert!(why.contains("UTF-16") && why.contains("save the file as UTF-8"), "{why}");
    }
}
