//! MCP's own conformance suite: against the bridge as a server, beside the same server without the
//! bridge, and with the bridge as the client of the suite's servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    bridge::BINARY,
    harness::Harness,
    peers::{self, fetch, repository},
};

const SESSIONS: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

/// A scenario of the suite and one of its checks.
type Check = (String, String);
/// Whether each check passed.
type Checks = BTreeMap<Check, bool>;

/// Checks that a server passes, and the same server behind the bridge does not (docs/mcp.md).
const WITH_SESSIONS: &[(&str, &str)] = &[
    // The bridge offers neither log messages nor subscriptions to single resources.
    ("logging-set-level", "logging-set-level"),
    ("tools-call-with-logging", "tools-call-with-logging"),
    ("resources-subscribe", "resources-subscribe"),
    ("resources-unsubscribe", "resources-unsubscribe"),
    // It refuses sampling.
    ("tools-call-sampling", "tools-call-sampling"),
];

/// The same without sessions.
const WITHOUT_SESSIONS: &[(&str, &str)] = &[
    // The bridge refuses sampling and the list of roots.
    ("input-required-result-basic-list-roots", "sep-2322-list-roots-incomplete"),
    ("input-required-result-basic-sampling", "sep-2322-sampling-incomplete"),
    ("input-required-result-capability-check", "sep-2322-respect-client-capabilities"),
    ("input-required-result-multiple-input-requests", "sep-2322-multiple-inputs-incomplete"),
    // It takes answers to its own questions alone, which name a `requestState`.
    ("input-required-result-ignore-extra-params", "sep-2322-ignore-unexpected-params"),
];

/// Checks that wait less than the 5 s that the bridge leaves between two refreshes for a server's
/// sake. On a slow machine they pass.
const TIMED: &[(&str, &str)] = &[
    ("server-stateless", "sep-2575-server-sends-prompts-list-changed-on-subscription"),
    ("server-stateless", "sep-2575-server-sends-tools-list-changed-on-subscription"),
];

/// What the suite's servers want of a client: of one with sessions, and without.
const CLIENT_WITH_SESSIONS: &[&str] = &[
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "json-schema-2020-12-preservation",
];
const CLIENT_WITHOUT_SESSIONS: &[&str] = &[
    "tools_call",
    "request-metadata",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
];

/// The scenarios in which a person logs in. Left out: `2025-03-26-oauth-endpoint-fallback`, as the
/// bridge speaks that revision to no server.
const LOGINS: &[&str] = &[
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
];
const OLDEST_LOGIN: &str = "auth/2025-03-26-oauth-metadata-backcompat";
const OLDEST: &str = "2025-03-26";

/// Checks that the bridge does not pass as a client without sessions.
const AS_CLIENT: &[(&str, &str)] = &[
    // The bridge checks arguments, and refuses `null` for a boolean.
    ("http-custom-headers", "sep-2243-client-omit-null"),
];

#[tokio::test]
async fn the_bridge_passes_as_a_client_with_sessions() {
    as_client(CLIENT_WITH_SESSIONS, SESSIONS, &[]).await;
}

#[tokio::test]
async fn the_bridge_passes_as_a_client_without_sessions() {
    as_client(CLIENT_WITHOUT_SESSIONS, STATELESS, AS_CLIENT).await;
}

/// Runs scenarios in which the suite is the server.
async fn as_client(scenarios: &[&str], revision: &str, known: &[(&str, &str)]) {
    let client = repository("tests/peers/conformance_client.py");
    let client = format!("{} {} {BINARY}", fetch::python().display(), client.display());
    let args = ["client", "--command", &client, "--spec-version", revision, "--force"];
    for scenario in scenarios {
        let checks = suite(&[&args[..], &["--scenario", scenario]].concat()).await;
        let failed = checks.iter().filter(|(_, passed)| !**passed).map(|(check, _)| check);
        let failed: Vec<_> = failed.map(|(scenario, id)| (&**scenario, &**id)).collect();
        let known: Vec<_> =
            known.iter().filter(|(known, _)| scenario.ends_with(known)).copied().collect();
        assert_eq!(failed, known, "{scenario}: {checks:?}");
    }
}

#[tokio::test]
async fn person_logs_in_as_each_scenario_wants() {
    as_client(LOGINS, STATELESS, &[]).await;
    as_client(&[OLDEST_LOGIN], OLDEST, &[]).await;
}

#[tokio::test]
async fn a_server_with_sessions_passes_behind_the_bridge_too() {
    compare(&["--sessions"], SESSIONS, WITH_SESSIONS).await;
}

#[tokio::test]
async fn a_server_without_sessions_passes_for_clients_with_them() {
    compare(&[], SESSIONS, WITH_SESSIONS).await;
}

#[tokio::test]
async fn a_server_without_sessions_passes_behind_the_bridge_too() {
    compare(&[], STATELESS, WITHOUT_SESSIONS).await;
}

/// Runs the suite against a server, and against the bridge before that server.
async fn compare(server: &[&str], revision: &str, known: &[(&str, &str)]) {
    let peer = peers::conformance_mcp(server).await;
    let url = format!("{}/mcp", peer.url());
    let config = format!("auth: off\nmcp:\n  one: {{url: \"{url}\", prefix: \"\"}}\n");
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("one", "ready").await;
    let direct = against(&url, revision).await;
    let bridged = against(&format!("{}/mcp", rig.bridge.url()), revision).await;
    // The server has no tasks.
    let ran = |(scenario, _): &Check| !scenario.starts_with("tasks-");
    let failed: Vec<_> = direct.iter().filter(|(check, passed)| ran(check) && !**passed).collect();
    assert!(failed.is_empty(), "without the bridge: {failed:?}");
    assert!(direct.len() > 70, "the suite ran: {direct:?}");
    let is_known = |check: &Check, known: &[(&str, &str)]| {
        known.iter().any(|(scenario, id)| check.0 == *scenario && check.1 == *id)
    };
    let failed: Vec<_> = bridged
        .iter()
        .filter(|(check, passed)| ran(check) && !**passed && !is_known(check, TIMED))
        .map(|(check, _)| check)
        .collect();
    let unknown: Vec<_> = failed.iter().filter(|check| !is_known(check, known)).collect();
    assert!(unknown.is_empty(), "behind the bridge: {unknown:?}");
    assert_eq!(failed.len(), known.len(), "some of the known differences are gone: {failed:?}");
    let scenarios = |checks: &Checks| -> BTreeSet<String> {
        checks.keys().map(|(scenario, _)| scenario.clone()).collect()
    };
    let mut missing = &scenarios(&direct) - &scenarios(&bridged);
    // For answers that are event streams; those of the bridge are JSON as long as that will do.
    missing.remove("server-sse-polling");
    assert!(missing.is_empty(), "without a check: {missing:?}");
}

/// The scenarios in which a server asks the user.
const QUESTIONS: [&str; 3] =
    ["elicitation-sep1034-defaults", "elicitation-sep1330-enums", "tools-call-elicitation"];

/// Whether the scenarios with questions pass in the suite before 2026-07-28, whose client has a
/// session, against the bridge before a server with these arguments and keys.
async fn questions_pass(server: &[&str], keys: &str) -> bool {
    let peer = peers::conformance_mcp(server).await;
    let url = format!("{}/mcp", peer.url());
    let entry = format!("{{url: \"{url}\", prefix: \"\"{keys}}}");
    let rig = Harness::bare(&format!("auth: off\nmcp:\n  one: {entry}\n")).await;
    rig.bridge.wait_backend("one", "ready").await;
    let (script, url) = (fetch::conformance_of_sessions(), format!("{}/mcp", rig.bridge.url()));
    let mut all_pass = true;
    for scenario in QUESTIONS {
        let checks = suite_of(&script, &["server", "--url", &url, "--scenario", scenario]).await;
        all_pass &= checks.values().all(|passed| *passed);
    }
    all_pass
}

#[tokio::test]
async fn question_of_a_server_of_any_revision_reaches_a_client_of_the_older_suite() {
    for server in [&["--sessions"][..], &[]] {
        assert!(questions_pass(server, "").await, "{server:?}");
    }
}

#[tokio::test]
async fn server_that_asks_in_sessions_alone_is_spoken_to_in_one_where_the_operator_says_so() {
    let server = ["--asks-in-sessions"];
    assert!(!questions_pass(&server, "").await, "in 2026-07-28, it asks nobody");
    assert!(questions_pass(&server, ", sessions: true").await);
}

/// All checks that the suite makes of a server.
async fn against(url: &str, revision: &str) -> Checks {
    suite(&["server", "--url", url, "--requirements", revision]).await
}

async fn suite(args: &[&str]) -> Checks {
    let modules = fetch::mcp_node().modules;
    suite_of(&modules.join("@modelcontextprotocol/conformance/dist/index.js"), args).await
}

/// The checks of the suite with this script.
async fn suite_of(script: &Path, args: &[&str]) -> Checks {
    let (mcp, results) = (fetch::mcp_node(), TempDir::new().unwrap());
    let mut command = Command::new(&mcp.node);
    command.arg(script).args(args).arg("--output-dir").arg(results.path());
    // The status says whether all passed, which the results say in detail.
    let output = command.kill_on_drop(true).output().await.unwrap();
    let checks = read(results.path());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!checks.is_empty(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    checks
}

/// The results below `dir`. A check that was made several times passed if it always did.
fn read(dir: &Path) -> Checks {
    let mut checks = Checks::new();
    for entry in fs::read_dir(dir).unwrap() {
        let dir = entry.unwrap().path();
        if !dir.join("checks.json").exists() {
            checks.append(&mut read(&dir));
            continue;
        }
        let name = dir.file_name().unwrap().to_str().unwrap();
        let name = name.strip_prefix("server-").unwrap_or(name);
        // A time stands behind it.
        let scenario = name.get(..name.len() - "-2026-01-01T00-00-00-000Z".len()).unwrap();
        let text = fs::read(dir.join("checks.json")).unwrap();
        let results: Vec<Value> = serde_json::from_slice(&text).unwrap();
        for result in results {
            let status = result["status"].as_str().unwrap();
            if !["SKIPPED", "INFO"].contains(&status) {
                let check = (scenario.to_owned(), result["id"].as_str().unwrap().to_owned());
                *checks.entry(check).or_insert(true) &= status == "SUCCESS";
            }
        }
    }
    checks
}
