//! Model-facing names: prefixes, characters, length, clashes, and catalogs larger than one ref.

use std::collections::HashSet;

use serde_json::Value;

use crate::{
    frames::Script,
    harness::{Harness, injected, ledger_in, tool_names},
    peers,
};

async fn spec(rig: &Harness, own: &str) -> Value {
    rig.mantyx.script(Script::new().done());
    rig.bridge.post_run(&format!(r#"{{"prompt":"x","tools":[{own}]}}"#)).await;
    rig.mantyx.requests("POST", "/agent-runs").pop().expect("a run").value()
}

#[track_caller]
fn assert_usable(names: &[String]) {
    let unique: HashSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "names are unique: {names:?}");
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for name in names {
        assert!((1..=64).contains(&name.len()) && name.chars().all(word), "not allowed: {name}");
    }
}

#[tokio::test]
async fn a_large_server_becomes_several_refs() {
    let rig = Harness::with("", &["--tools", "150", "--two-pages"], "").await;
    rig.mantyx.script(Script::new().done());
    let run = rig.bridge.post_run("{}").await;
    assert_eq!(injected(run.injected.as_deref()), [("plain".to_owned(), 158)].into());
    let spec = rig.mantyx.only("POST", "/agent-runs").value();
    let refs = spec["tools"].as_array().expect("refs");
    let shape: Vec<_> = refs
        .iter()
        .map(|entry| (entry["name"].as_str(), entry["tools"].as_array().map(Vec::len)))
        .collect();
    let expected =
        [(Some("plain"), Some(64)), (Some("plain__2"), Some(64)), (Some("plain__3"), Some(30))];
    assert_eq!(shape, expected, "64 tools a ref, all pages of the list");
    assert_usable(&tool_names(&spec));

    // A tool of the last ref is as callable as one of the first.
    rig.run(Script::one_call("tu_x", "plain__3", "plain_extra_149", "{}")).await;
    assert_eq!(rig.mantyx.answer("tu_x").await["result"], "extra_149");
}

#[tokio::test]
async fn a_name_that_is_too_long_is_cut_and_hashed() {
    let long = format!("do-it.{}", "x".repeat(90));
    let rig = Harness::with("", &["--long-name", &long], "").await;
    let names = tool_names(&spec(&rig, "").await);
    assert_usable(&names);
    let name = names.iter().find(|name| name.starts_with("plain_do_it_x")).expect("the long one");
    assert_eq!(name.len(), 64, "55 characters, an underscore and 8 of the hash: {name}");
    let hash = name.get(56..).unwrap_or_default();
    assert!(hash.chars().all(|c| c.is_ascii_hexdigit()), "a hash in hex: {name}");
    rig.run(Script::one_call("tu_x", "plain", name, "{}")).await;
    assert_eq!(rig.mantyx.answer("tu_x").await["result"], long, "its route is its own name");
}

#[tokio::test]
async fn a_prefix_is_not_doubled_and_can_be_left_out() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let bare = peers::with(&peers::ledger(&ledger_in(&dir), &[]), "prefix: \"\"");
    let entries = format!("  bare: {bare}\n");
    let rig = Harness::with(&entries, &["--long-name", "plain_already"], "").await;
    rig.bridge.wait_backend("bare", "ready").await;
    let names = tool_names(&spec(&rig, "").await);
    assert_usable(&names);
    assert!(names.contains(&"plain_already".to_owned()), "not plain_plain_already: {names:?}");
    assert!(names.contains(&"note".to_owned()), "an empty prefix: {names:?}");
}

#[tokio::test]
async fn tools_can_be_chosen_and_renamed() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let tools = "tools: {allow: [note, 'p*', hang], deny: [hang], rename: {pid: who}}";
    let entry = peers::with(&peers::ledger(&ledger_in(&dir), &[]), tools);
    let rig = Harness::bare(&format!("mcp:\n  few: {entry}\n")).await;
    rig.bridge.wait_backend("few", "ready").await;
    assert_eq!(tool_names(&spec(&rig, "").await), ["few_note", "few_who"]);
    rig.run(Script::one_call("tu_x", "few", "few_who", "{}")).await;
    let pid = rig.mantyx.answer("tu_x").await["result"].as_str().unwrap_or_default().to_owned();
    assert!(pid.parse::<u32>().is_ok(), "the renamed tool answers: {pid}");
}

#[tokio::test]
async fn the_caller_keeps_its_names() {
    let rig = Harness::start().await;
    let own = r#"{"kind":"local","name":"plain_note","parameters":{"type":"object"}}"#;
    let sent = spec(&rig, own).await;
    let names = tool_names(&sent);
    assert_usable(&names);
    assert_eq!(sent["tools"][0]["name"], "plain_note", "the caller's tool keeps its name");
    let ours = names.iter().skip(1).find(|name| name.starts_with("plain_note_"));
    let ours = ours.expect("the bridge's tool gets a suffix");
    let again = tool_names(&spec(&rig, own).await);
    assert!(again.contains(ours), "the same suffix each time: {ours}, {again:?}");

    // The suffixed name is the bridge's, the plain one is the caller's.
    rig.mantyx.script(
        Script::new()
            .local("tu_theirs", "plain_note", r#"{"text":"a"}"#)
            .mcp("tu_ours", "plain", ours, r#"{"text":"b"}"#)
            .answered("tu_ours")
            .done(),
    );
    let run = rig.bridge.post_run(&format!(r#"{{"tools":[{own}]}}"#)).await;
    assert_eq!(rig.mantyx.answer("tu_ours").await["result"], "noted: b");
    let frames = crate::sse::whole(&rig.bridge, &run.stream).await;
    let theirs = crate::sse::find(&frames, "local_tool_call").expect("the caller's own call");
    assert_eq!(theirs["toolUseId"], "tu_theirs", "it is handed on for the app to answer");
    assert!(rig.mantyx.posts("tu_theirs").is_empty(), "the bridge leaves it alone");
}

#[tokio::test]
async fn names_do_not_depend_on_the_order_of_the_file() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    // Both servers have the same tools and the same prefix, so that every name clashes.
    let one = peers::with(&peers::ledger(&ledger_in(&dir), &[]), "prefix: same_");
    let mut seen = Vec::new();
    for order in [["one", "two"], ["two", "one"]] {
        let entries: String = order.iter().map(|name| format!("  {name}: {one}\n")).collect();
        let rig = Harness::bare(&format!("mcp:\n{entries}")).await;
        rig.bridge.wait_backend("one", "ready").await;
        rig.bridge.wait_backend("two", "ready").await;
        let spec = spec(&rig, "").await;
        assert_usable(&tool_names(&spec));
        let mut by_backend: Vec<_> = spec["tools"].as_array().expect("refs").clone();
        by_backend.sort_by_key(|entry| entry["name"].to_string());
        seen.push(tool_names(&serde_json::json!({ "tools": by_backend })));
    }
    let (first, second) = (seen.pop(), seen.pop());
    assert_eq!(first, second, "the order of the file must not matter");
}
