//! `/openapi.json`, against the daemon that serves it: schemathesis makes requests of what the
//! document says, good and bad, and looks at every answer.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use crate::{bridge::Bridge, peers};

const CONFIG: &str = "upstream: {sandbox: true, workspace: acme}
a2a: {desk: {bundled: true}}
local: {echo: {description: Echoes., parameters: {type: object}, command: [cat]}}
";

/// Has every operation tried with so many requests of each kind.
async fn explore(examples: &str, limit: Duration) {
    let bridge = Bridge::ready(CONFIG).await;
    let mut command = Command::new(peers::fetch::schemathesis());
    command.args(["run", &format!("{}/openapi.json", bridge.url())]);
    command.args(["--header", &format!("Authorization: Bearer {}", bridge.token())]);
    // Events do not end. What is right in shape can be wrong in meaning: a backend that there is
    // not, a spec without a prompt. So many requests without a token are answered with 429, which
    // is no refusal to it; `api::every_route_but_two_wants_a_token` looks at each.
    let unlike = "positive_data_acceptance,ignored_auth";
    command.args(["--exclude-path", "/v1/events", "--exclude-checks", unlike]);
    command.args(["--max-examples", examples, "--seed", "1", "--no-color"]);
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let output = command.current_dir(dir.path()).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(limit, output).await.expect("it should be done in time");
    let output = output.expect("schemathesis runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("Tested: 32"), "every operation but the events: {said}");
}

#[tokio::test]
async fn the_daemon_answers_as_its_description_says() {
    explore("10", Duration::from_secs(120)).await;
}

#[tokio::test]
#[ignore = "takes minutes; asked for by name (CONTRIBUTING.md)"]
async fn explored_at_length() {
    explore("2000", Duration::from_secs(3600)).await;
}
