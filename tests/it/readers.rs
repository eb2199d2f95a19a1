//! Who reads what: apps read the bridge's own words, the operator the words of peers and of the
//! configuration, and nobody a secret.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    bridge::API,
    cli::{self, FAILED, OK},
    frames::Script,
    harness::Harness,
    owners::Apps,
    sse::Stream,
    wait,
};

const SECRET: &str = "s3cret-readers-4711";

/// A program that refuses each request with an error that repeats its token, and that tells its
/// stderr of it and of what bridge.yaml wants redacted.
const REFUSES: &str = r#"sh, args: ['-c', "n=$((123000+456)); echo \"told $TOK ORDER-$n\" >&2; while read -r l; do id=$(printf %s \"$l\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/'); printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32001,\"message\":\"bad token %s of ORDER-%s\\\\nplain: ready, 3 tools\"}}\\n' \"$id\" \"$TOK\" $n; done"]"#;

fn refusing(name: &str) -> String {
    format!(
        "redact: [{{pattern: 'ORDER-[0-9]+'}}]\nmcp:\n  {name}: {{command: {REFUSES}, env: {{TOK: \
         '{SECRET}'}}}}\n  dying: {{command: sh, args: ['-c', 'echo \"no $TOK ORDER-$((123000+456))\" >&2; \
         exit 3'], env: {{TOK: '{SECRET}'}}}}\n"
    )
}

fn is_free_of_secrets(text: &str) -> bool {
    !text.contains(SECRET) && !text.contains("ORDER-123456")
}

#[tokio::test]
async fn app_reads_no_word_of_a_peer() {
    let rig = Harness::bare(&refusing("refusing")).await;
    for name in ["refusing", "dying"] {
        rig.bridge.wait_backend(name, "down").await;
    }
    let status = rig.bridge.status().await.to_string();
    assert!(is_free_of_secrets(&status), "{status}");
    assert!(status.contains("bad token") && status.contains("[hidden]"), "{status}");
    let mut seen = vec![rig.bridge.app_status().await.to_string()];
    for name in ["refusing", "dying"] {
        let path = format!("/v1/backends/{name}/refresh");
        seen.push(rig.bridge.api("POST", &path, None).await.text());
    }
    seen.push(rig.bridge.api("GET", "/v1/backends", None).await.text());
    let mut events = Stream::request(&rig.bridge, rig.bridge.request("GET", "/v1/events")).await;
    for _ in 0..3 {
        let frame = events.event().await.expect("the states as they are");
        seen.push(frame.fields().data.unwrap_or_default());
    }
    for text in &seen {
        assert!(is_free_of_secrets(text), "{text}");
        for word in ["bad token", "told", "exit status 3", "sh, args", "no [hidden]"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
    assert!(seen[0].contains("Its program does not start, or has ended"), "{}", seen[0]);
    let log = rig.bridge.log();
    assert!(is_free_of_secrets(&log), "{log}");
}

#[tokio::test]
async fn app_reads_of_a_mistake_in_the_file_only_that_there_is_one() {
    let mut rig = Harness::start().await;
    let mistakes = format!(
        "\nlocal:\n  others_tool: {{description: d, tokn: {SECRET}, command: [x], env: \
         API_KEY={SECRET}}}\n"
    );
    let config = std::fs::read_to_string(rig.bridge.config_path()).expect("it is there");
    rig.bridge.set_config(&format!("{config}{mistakes}"));
    rig.bridge.process().signal(Signal::HUP);
    let told = wait::soon("the mistake should be told", async || {
        rig.bridge.status().await["config"]["lastError"].as_str().map(str::to_owned)
    })
    .await;
    assert!(told.contains("others_tool") && told.contains("tokn"), "{told}");
    let seen = rig.bridge.app_status().await;
    let expected =
        "The configuration on disk has a mistake, and was not taken; the earlier one stays.";
    assert_eq!(seen["config"]["lastError"], expected);
    let problems = seen["problems"].as_array().expect("problems");
    let problem = problems.iter().find(|problem| problem["subject"] == "config");
    assert_eq!(problem.expect("a problem")["message"], expected);
    assert!(!seen.to_string().contains("others_tool"), "{seen}");
    let all = format!("{}{told}{}", rig.bridge.log(), rig.bridge.status().await);
    assert!(!all.contains(SECRET), "{all}");
    assert!(rig.bridge.log().contains("API_KEY=***") || rig.bridge.log().contains("env: ***"));
}

#[tokio::test]
async fn count_of_driven_runs_is_the_callers() {
    let apps = Apps::start().await;
    let script = Script::one_call("tu_1", "plain", "plain_hang", "{}");
    apps.mantyx.script(script);
    let spec = r#"{"modelId":"m","prompt":"hi"}"#;
    apps.ask("a", "POST", &format!("{API}/agent-runs"), Some(spec)).await.expect(202);
    let driven = async |app: &str| {
        let status = apps.ask(app, "GET", "/v1/status", None).await.expect(200);
        status["runs"]["driven"].clone()
    };
    wait::soon("the run should be driven", async || (driven("a").await == 1).then_some(())).await;
    assert_eq!(driven("b").await, 0);
    let all = apps.request("b", "GET", "/v1/status");
    let all = all.header("X-Bridge-Operator", &apps.bridge.operator());
    let all: Value = all.answer(apps.bridge.addr()).await.expect(200);
    assert_eq!(all["runs"]["driven"], 1, "the operator sees all");
}

#[tokio::test]
async fn doctor_redacts_as_the_status_does() {
    let config = format!("upstream: {{sandbox: true}}\n{}", refusing("refusing"));
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("bridge.yaml");
    let text = format!("state_dir: {}\n{config}", dir.path().join("state").display());
    std::fs::write(&path, text).expect("the test's directory is writable");
    let path = path.to_str().expect("a path of the tests is UTF-8");
    for more in [&[][..], &["--json"]] {
        let ran = cli::run(&[&["doctor", "-c", path], more].concat()).await.expect(FAILED);
        let all = format!("{}{}", ran.out, ran.err);
        assert!(is_free_of_secrets(&all), "{all}");
        assert!(all.contains("bad token"), "{all}");
        assert!(!all.lines().any(|line| line.starts_with("plain: ready")), "{all}");
    }
}

/// What a peer may write to steer a terminal, in UTF-8 and as `printf` takes it.
const STEERING: [char; 4] = ['\u{9b}', '\u{2028}', '\u{202e}', '\u{7f}'];
const PRINTED: &str = r"a\302\2332J\342\200\250b\342\200\256c\177d";

#[tokio::test]
async fn json_of_the_command_line_steers_no_terminal() {
    let local = format!(
        "local:\n  odd: {{description: \"a\\u009b2J\\u2028b\\u202ec\\u007fd\", parameters: {{type: \
         object}}, command: [printf, '{PRINTED}']}}\n"
    );
    let rig = Harness::bare(&local).await;
    rig.bridge.wait_backend("odd", "ready").await;
    for args in [
        &["tools", "--json"][..],
        &["tools", "--as", "hsafa"],
        &["tools", "--as", "claude"],
        &["call", "odd", "--json"],
        &["status", "--json"],
    ] {
        let ran = cli::with(&rig, args).await.expect(OK);
        assert!(!ran.out.contains(STEERING), "{args:?}: {:?}", ran.out);
        let json = ran.json();
        if args[0] == "call" {
            assert_eq!(json["result"], "a\u{9b}2J\u{2028}b\u{202e}c\u{7f}d", "the same JSON");
        }
    }
    let table = cli::with(&rig, &["tools"]).await.expect(OK);
    assert!(!table.out.contains(STEERING), "{:?}", table.out);
}

#[tokio::test]
async fn refresh_has_one_line_for_what_a_peer_says() {
    let rig = Harness::bare(&refusing("refusing")).await;
    rig.bridge.wait_backend("refusing", "down").await;
    wait::until("the reason should be told", Duration::from_secs(30), async || {
        let ran = cli::with(&rig, &["refresh", "refusing"]).await.expect(FAILED);
        let all = format!("{}{}", ran.out, ran.err);
        assert!(!all.lines().any(|line| line.starts_with("plain: ready")), "{all}");
        ran.err.contains("bad token").then_some(())
    })
    .await;
}
