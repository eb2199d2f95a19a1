//! `init`: the file that it writes, what it tries and finds, and what it leaves alone.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{FAILED, OK, Ran, USAGE, check, desk::Desk, run};

const CANARY: &str = "canary7Secret9Value3x";

async fn init(output: &Path, args: &[&str]) -> Ran {
    let output = output.to_str().expect("a path of the tests is UTF-8");
    let ran = run(&[&["init", "--output", output], args].concat()).await;
    assert!(!format!("{}{}", ran.out, ran.err).contains(CANARY), "{}{}", ran.out, ran.err);
    ran
}

#[tokio::test]
async fn written_file_passes_check_and_is_never_written_over() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let output = dir.path().join("bridge.yaml");
    let written = init(&output, &["--yes"]).await.expect(OK);
    for next in ["check -c", "doctor -c", "serve -c"] {
        assert!(written.out.contains(next), "the next commands: {}", written.out);
    }
    let text = fs::read_to_string(&output).expect("it was written");
    let plan = check(&text, &["--json"]).await.expect(OK).json();
    assert_eq!(plan["plan"]["upstream"], "sandbox", "{plan}");
    assert_eq!(plan["warnings"], serde_json::json!([]), "{plan}");

    fs::write(&output, "mine").expect("the test's directory is writable");
    let refused = init(&output, &[]).await.expect(FAILED);
    assert!(refused.err.contains("--force"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&output).expect("it is there"), "mine");
    init(&output, &["--force"]).await.expect(OK);
    assert_eq!(fs::read_to_string(&output).expect("it is there"), text);
}

#[tokio::test]
async fn named_and_imported_entries_get_in() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let servers = dir.path().join("mcp.json");
    let entry = format!(
        "{{\"mcpServers\": {{\"my fs\": {{\"command\": \"cat\", \"env\": {{\"HOME_TOKEN\": \
         \"{CANARY}\"}}}}}}}}"
    );
    fs::write(&servers, entry).expect("the test's directory is writable");
    let output = dir.path().join("bridge.yaml");
    let args = [
        "--sandbox",
        "--import",
        servers.to_str().expect("a path of the tests is UTF-8"),
        "--mcp",
        "http://127.0.0.1:1/mcp",
        "--a2a",
        "http://desk.test",
        "--a2a",
        "http://127.0.0.1:1",
        "--mcp",
        &format!("http://127.0.0.1:1/mcp?token={CANARY}"),
    ];
    let written = init(&output, &args).await.expect(OK);
    assert!(written.err.contains("secrets/HOME_TOKEN"), "what is kept: {}", written.err);
    let text = fs::read_to_string(&output).expect("it was written");
    assert!(!text.contains(CANARY), "{text}");
    // A variable that is set for every program here, and is one word.
    let mut text = text;
    for name in ["HOME_TOKEN", "SERVER_2_TOKEN"] {
        text = text.replace(&format!("secret:{name}"), "env:LANG");
    }
    let plan = check(&text, &["--json"]).await;
    let plan = plan.expect(OK).json();
    let backends = plan["plan"]["backends"].as_array().expect("a list of backends").clone();
    let kinds: Vec<_> = backends.iter().filter_map(|one| one["kind"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "mcp").count(), 3, "{plan}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "a2a").count(), 2, "{plan}");
    assert!(backends.iter().any(|one| one["name"] == "my_fs"), "{plan}");
}

#[tokio::test]
async fn bad_address_is_refused_before_anything_is_written() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let output = dir.path().join("bridge.yaml");
    let refused = init(&output, &["--mcp", "ftp://x.test"]).await.expect(USAGE);
    assert!(refused.err.contains("no address"), "{}", refused.err);
    let userinfo = format!("http://me:{CANARY}@127.0.0.1:1/mcp");
    let refused = init(&output, &["--mcp", &userinfo]).await.expect(USAGE);
    assert!(refused.err.contains("must not hold a user"), "{}", refused.err);
    let refused = init(&output, &["--workspace", "no slug"]).await.expect(USAGE);
    assert!(refused.err.contains("slug"), "{}", refused.err);
    assert!(!output.exists());
}

#[tokio::test]
async fn init_on_a_terminal_asks_and_offers_what_it_finds() {
    let home = TempDir::new().expect("the temporary directory is writable");
    let place = home.path().join(".cursor");
    fs::create_dir(&place).expect("the test's directory is writable");
    let entry = r#"{"mcpServers": {"kitty": {"command": "cat"}}}"#;
    fs::write(place.join("mcp.json"), entry).expect("the test's directory is writable");
    let mut desk = Desk::on_terminal_at(Some(home.path()), 100, 30, &["init"]);
    desk.says("Your MANTYX workspace").await;
    desk.type_in("\n");
    desk.says("Take over 1 MCP server (kitty)").await;
    desk.type_in("y\n");
    desk.says("The URL of an MCP server").await;
    desk.type_in("\n");
    desk.says("The URL of an A2A agent").await;
    desk.type_in("http://desk.test\n");
    desk.becomes("it is asked for another", |out| {
        out.matches("The URL of an A2A agent").count() == 2
    })
    .await;
    desk.type_in("\n");
    let ran = desk.ended().await.expect(OK);
    assert!(ran.out.contains("mantyx-bridge check"), "what comes next: {}", ran.out);
    let text = fs::read_to_string(home.path().join("bridge.yaml")).expect("it was written");
    let plan = check(&text, &["--json"]).await.expect(OK).json();
    let backends = plan["plan"]["backends"].as_array().expect("a list of backends").clone();
    assert!(backends.iter().any(|one| one["name"] == "kitty"), "{plan}");
    assert_eq!(backends.len(), 2, "{plan}");
}
