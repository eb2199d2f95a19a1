//! Large catalogs: a model finds tools in place of being given all of them, and calls what it
//! found.

mod cost;
mod names;
mod order;
mod quality;
mod questions;

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    approvals,
    bridge::Bridge,
    frames::Script,
    harness::{Harness, injected, ledger_in, tool_names},
    http::Answer,
    owners::Apps,
    peers::{self, fetch, repository},
    pending::shown,
    wait,
};

const SEARCH: &str = "offer: search, always: [big], ";
const FIND: &str = "bridge_find_tools";
const CALL: &str = "bridge_call_tool";

/// What a search found, by names.
fn found(text: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("JSON: {text}"));
    let tools = answer["tools"].as_array().unwrap_or_else(|| panic!("tools: {text}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

async fn by_hand(bridge: &Bridge, id: &str, name: &str, args: &str) -> Answer {
    let call = format!(r#"{{"toolUseId":"{id}","name":"{name}","args":{args}}}"#);
    bridge.api("POST", "/v1/tool-calls", Some(&call)).await
}

/// The names that a search by hand finds.
async fn find(bridge: &Bridge, id: &str, query: &str) -> Vec<String> {
    let args = json!({"query": query, "limit": 20}).to_string();
    let answer = by_hand(bridge, id, FIND, &args).await.expect(200);
    found(answer["result"].as_str().unwrap_or_else(|| panic!("a result: {answer}")))
}

/// A run that makes these calls, one after the other; their answers.
async fn answers(rig: &Harness, calls: &[(&str, &str, &str)]) -> Vec<Value> {
    let script = calls
        .iter()
        .fold(Script::new(), |script, (id, name, args)| script.local(id, name, args).answered(id));
    rig.run(script.done()).await;
    let mut all = Vec::new();
    for (id, ..) in calls {
        all.push(rig.mantyx.answer(id).await);
    }
    all
}

#[track_caller]
fn error_of(answer: &Value) -> &str {
    answer["error"].as_str().unwrap_or_else(|| panic!("an error: {answer}"))
}

#[tokio::test]
async fn a_run_finds_a_tool_and_calls_it() {
    let rest = "audit: {file: state/audit.jsonl}\n";
    let rig = Harness::with_keys(SEARCH, "", &["--tools", "150"], rest).await;
    let script = Script::new()
        .local("tu_1", FIND, r#"{"query":"note a text","limit":1}"#)
        .answered("tu_1")
        .local("tu_2", CALL, r#"{"name":"plain_note","arguments":{"text":  "1.10"}}"#)
        .answered("tu_2");
    let run = rig.run(script.done()).await;
    assert_eq!(injected(run.injected.as_deref()), [("plain".to_owned(), 1)].into());
    let sent = rig.mantyx.only("POST", "/agent-runs");
    assert_eq!(tool_names(&sent.value()), ["plain_big", FIND, CALL]);

    let answer = rig.mantyx.answer("tu_1").await;
    let text = answer["result"].as_str().expect("what was found");
    assert_eq!(found(text), ["plain_note"]);
    let verbatim = r#"{"tools":[{"x-vendor": {"b": 1.0, "a": 123456789012345678901234567890}, "name": "plain_note",  "description": "Notes a text.", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}, "_meta": {"z": 1, "a": 2}}]}"#;
    assert_eq!(text, verbatim);

    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: 1.10");
    let made = rig.executions();
    assert_eq!((made.len(), &made[0]["tool"]), (1, &"note".into()));
    let raw = made[0]["raw"].as_str().expect("the line");
    assert!(raw.contains(r#""arguments":{"text":  "1.10"}"#), "verbatim: {raw}");
    let call = shown(&rig.bridge, "tu_2").await;
    assert_eq!((&call["name"], &call["backend"]), (&"plain_note".into(), &"plain".into()));
    let audit = rig.bridge.state("audit.jsonl");
    let line = wait::soon("both calls should be in the audit log", async || {
        let text = fs::read_to_string(&audit).unwrap_or_default();
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        lines.into_iter().find(|line| line["toolUseId"] == "tu_2")
    })
    .await;
    assert_eq!(
        [&line["name"], &line["backend"], &line["tool"]],
        ["plain_note", "plain", "note"],
        "the real call: {line}"
    );
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    let counted = r#"mantyx_bridge_calls_total{backend="plain",outcome="result"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_found_tool_has_the_rights_approval_and_schema_of_its_own() {
    let keys = format!("{SEARCH}approve: [args], tools: {{deny: [pid, re*]}}, ");
    let rig = Harness::with_keys(&keys, "", &[], "").await;
    let calls = [
        ("tu_1", FIND, r#"{"query":"id of this process"}"#),
        ("tu_2", CALL, r#"{"name":"plain_pid","arguments":{}}"#),
        ("tu_3", CALL, r#"{"name":"plain_note","arguments":{"text":7}}"#),
    ];
    let all = answers(&rig, &calls).await;
    let names = found(all[0]["result"].as_str().expect("what was found"));
    assert!(!names.contains(&"plain_pid".to_owned()), "{names:?}");
    assert!(error_of(&all[1]).contains("no tool `plain_pid`"), "{}", all[1]);
    let invalid = error_of(&all[2]);
    assert!(invalid.starts_with("tool_input_invalid") && invalid.contains("text"), "{invalid}");
    assert!(rig.executions().is_empty());

    let script = Script::new().local("tu_5", CALL, r#"{"name":"plain_args","arguments":{"a":1}}"#);
    rig.run(script.answered("tu_5").done()).await;
    let asked = approvals::waiting(&rig.bridge, 1).await.remove(0);
    assert_eq!(
        [&asked["name"], &asked["backend"], &asked["tool"], &asked["argumentsText"]],
        ["plain_args", "plain", "args", r#"{"a":1}"#]
    );
    approvals::approve(&rig.bridge, asked["id"].as_str().expect("an id")).await;
    assert_eq!(rig.mantyx.answer("tu_5").await["result"], r#"{"a":1}"#);
    // What the model was given can be called by the other way as well.
    let args = r#"{"name":"plain_big","arguments":{"bytes":4}}"#;
    let answer = by_hand(&rig.bridge, "tu_4", CALL, args).await.expect(200);
    assert_eq!(answer["result"], "éé", "{answer}");
}

#[tokio::test]
async fn search_that_cannot_be_understood_is_told_and_calls_nothing() {
    let rig = Harness::with_keys(SEARCH, "", &[], "").await;
    let long = json!({"query": "x".repeat(5_000)}).to_string();
    let calls = [
        (CALL, r#"{"name":"plain_nothing","arguments":{}}"#, "no tool `plain_nothing`"),
        (CALL, r#"{"arguments":{}}"#, "name"),
        (CALL, r#"{"name":7,"arguments":{}}"#, "name"),
        (CALL, r#"{"name":"plain_note","arguments":[]}"#, "arguments"),
        (CALL, r#"{"name":"plain_note","arguments":"text"}"#, "arguments"),
        (CALL, r#"{"name":"bridge_call_tool","arguments":{}}"#, "no tool `bridge_call_tool`"),
        // Under another key, they would be lost, and the tool takes a call without them.
        (CALL, r#"{"name":"plain_args","args":{"a":1}}"#, "tool_input_invalid"),
        (CALL, r#"{"name":"plain_args","Arguments":{"a":1}}"#, "tool_input_invalid"),
        (CALL, r#"{"name":"plain_args","args":{"a":1e400}}"#, "tool_input_invalid"),
        (CALL, r#"{"name":"plain_args","arguments":"{}","args":{"a":1}}"#, "tool_input_invalid"),
        (CALL, r#"{"name":"plain_args","arguments":{"a":1},"arguments":{}}"#, "each once"),
        (CALL, r#"{"name":"plain_args","name":"plain_args","arguments":{}}"#, "each once"),
        (FIND, "{}", "query"),
        (FIND, r#"{"query":""}"#, "query"),
        (FIND, r#"{"query":"note","query":"note"}"#, "query"),
        (FIND, r#"{"query":"note","limit":1e400}"#, "limit"),
        (FIND, &long, "query"),
        (FIND, r#"{"query":"note","limit":0}"#, "limit"),
        (FIND, r#"{"query":"note","limit":21}"#, "limit"),
    ];
    for (number, (name, args, says)) in calls.into_iter().enumerate() {
        let id = format!("tu_{number}");
        rig.run(Script::new().local(&id, name, args).answered(&id).done()).await;
        let answer = rig.mantyx.answer(&id).await;
        let error = error_of(&answer);
        assert!(error.contains(says), "{name} {args}: {error}");
        assert!(error.len() < 1_000, "{error}");
    }
    assert!(rig.executions().is_empty());
    for (id, query) in [("tu_x", "zzyzx"), ("tu_y", "   ")] {
        let args = json!({"query": query}).to_string();
        let answer = answers(&rig, &[(id, FIND, &args)]).await.remove(0);
        let text = answer["result"].as_str().expect("a result");
        assert!(found(text).is_empty() && text.contains("Try other words"), "{text}");
    }
    // Some models write the object as a text.
    let quoted = r#"{"name":"plain_note","arguments":"{\"text\":\"q\"}"}"#;
    let whole = r#"{"query":"note","limit":1.0}"#;
    let all = answers(&rig, &[("tu_q", CALL, quoted), ("tu_w", FIND, whole)]).await;
    assert_eq!(all[0]["result"], "noted: q");
    assert_eq!(found(all[1]["result"].as_str().expect("a result")).len(), 1, "{all:?}");
}

#[tokio::test]
async fn a_call_by_search_is_made_once() {
    let mut rig = Harness::with_keys(SEARCH, "", &[], "").await;
    let args = r#"{"name":"plain_note","arguments":{"text":"a"}}"#;
    rig.run(
        Script::new()
            .local("tu_1", CALL, args)
            .local("tu_1", CALL, args)
            .answered("tu_1")
            .local("tu_1", CALL, args)
            .done(),
    )
    .await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: a");
    // A crash in the call: it is not made again, as for a call of the tool itself.
    let hang = r#"{"name":"plain_hang","arguments":{}}"#;
    rig.run(Script::new().local("tu_2", CALL, hang).answered("tu_2").done()).await;
    rig.wait_executions(2).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    let answer = rig.mantyx.answer("tu_2").await;
    let error = error_of(&answer);
    assert!(error.contains("OUTCOME_UNKNOWN") && error.contains("plain_hang"), "{error}");
    assert_eq!(rig.executions().len(), 2);
}

#[tokio::test]
async fn search_works_by_hand_and_over_mcp() {
    let all = peers::with(&peers::everything_stdio(), "offer: search");
    let rig = Harness::with_keys(SEARCH, &format!("  all: {all}\n"), &[], "").await;
    rig.bridge.wait_backend("all", "ready").await;
    let names = find(&rig.bridge, "tu_1", "add two numbers").await;
    assert_eq!(names.first().map(String::as_str), Some("all_get_sum"), "{names:?}");
    let args = r#"{"name":"all_get_sum","arguments":{"a":2,"b":3}}"#;
    let answer = by_hand(&rig.bridge, "tu_2", CALL, args).await.expect(200);
    assert!(answer["result"].as_str().is_some_and(|text| text.contains('5')), "{answer}");
    assert_eq!(shown(&rig.bridge, "tu_2").await["name"], "all_get_sum");

    let script = repository("tests/peers/mcp_search.py");
    let mut client = Command::new(fetch::python());
    client.arg(script).arg(format!("{}/mcp", rig.bridge.url())).arg(rig.bridge.token());
    let output = client.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let said: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    assert_eq!(said["tools"], json!(["plain_big", FIND, CALL]));
    assert_eq!(said["found"][0], "all_get_structured_content", "{said}");
    assert!(said["structured"]["temperature"].is_number(), "{said}");
    assert_eq!(said["direct"], said["structured"], "a tool that was found keeps its name: {said}");
    assert_eq!(said["image"], json!(["text", "image", "text"]), "{said}");
    assert_eq!(said["failed"], json!([true, "it failed on purpose"]));
    assert_eq!(said["invalid"][0], true, "{said}");
    assert_eq!(said["unknown"][0], true, "{said}");
}

#[tokio::test]
async fn auto_searches_above_a_hundred_tools() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let entry = |name: &str, tools: &str, keys: &str| {
        let entry = peers::ledger(&ledger_in(&dir), &["--tools", tools]);
        format!("  {name}: {}\n", peers::with(&entry, keys))
    };
    // The ledger has eight tools of its own.
    let few = entry("few", "92", "offer: auto");
    let many = entry("many", "93", "offer: auto");
    let rig = Harness::bare(&format!("mcp:\n{few}{many}")).await;
    for backend in ["few", "many"] {
        rig.bridge.wait_backend(backend, "ready").await;
    }
    let run = rig.run(Script::new().done()).await;
    let given = injected(run.injected.as_deref());
    assert_eq!(given.get("few"), Some(&100), "{given:?}");
    assert_eq!(given.get("many").copied().unwrap_or(0), 0, "{given:?}");
    assert!(find(&rig.bridge, "tu_1", "note").await.contains(&"many_note".to_owned()));
    let found = find(&rig.bridge, "tu_2", "note").await;
    assert!(!found.contains(&"few_note".to_owned()), "the model has it: {found:?}");
}

/// The app's own setting wins over the backend's, in both directions; and an app finds no tool that
/// it may not use.
#[tokio::test]
async fn an_apps_own_setting_wins() {
    let of_a = ", offer: all";
    let apps = Apps::with("offer: search, ", of_a).await;
    let names = async |app: &str| {
        let refs = apps.ask(app, "GET", "/v1/tool-refs", None).await.expect(200);
        tool_names(&refs)
    };
    assert_eq!(names("a").await.len(), 8);
    assert_eq!(names("b").await, [FIND, CALL]);

    let of_a = ", offer: search, tools: {plain: {deny: [note]}}";
    let apps = Apps::with("", of_a).await;
    let names = async |app: &str| {
        let refs = apps.ask(app, "GET", "/v1/tool-refs", None).await.expect(200);
        tool_names(&refs)
    };
    assert_eq!(names("a").await, [FIND, CALL]);
    assert_eq!(names("b").await.len(), 8);
    let ask = async |app: &str, id: &str, name: &str, args: &str| {
        let call = format!(r#"{{"toolUseId":"{id}","name":"{name}","args":{args}}}"#);
        apps.ask(app, "POST", "/v1/tool-calls", Some(&call)).await
    };
    let notes = ask("a", "tu_1", FIND, r#"{"query":"notes a text"}"#).await.expect(200);
    let notes = found(notes["result"].as_str().expect("a result"));
    assert!(!notes.contains(&"plain_note".to_owned()), "{notes:?}");
    let args = r#"{"name":"plain_note","arguments":{"text":"x"}}"#;
    let refused = ask("a", "tu_2", CALL, args).await.expect(200);
    assert!(error_of(&refused).contains("no tool `plain_note`"), "{refused}");
    let unknown = ask("b", "tu_3", CALL, args).await.expect(200);
    let why = error_of(&unknown);
    assert!(why.contains("no tool `bridge_call_tool`"), "it is given all: {why}");
}
