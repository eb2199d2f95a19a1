//! A28: whatever servers call their tools, every name in a run's refs leads to the tool that the
//! ref describes, and no other name leads anywhere; after a restart, too.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::*;
use crate::model::event::Call;
use crate::model::naming::{MAX_LEN, Naming};
use crate::model::offer::Source;
use crate::model::offer::tests::peer_name;

/// The prefix of a backend, and the names of its tools.
type Given = (&'static str, BTreeSet<String>);

/// Servers whose tools get into each other's way: equal names, twins but for the case or a mark,
/// letters that look alike, `a_` + `b_c` and `a_b_` + `c`, long ones, the bridge's own and those
/// that look as if the bridge had given them.
fn servers() -> impl Strategy<Value = BTreeMap<String, Given>> {
    let prefix = prop_oneof![Just("a_"), Just("a_b_"), Just("b_"), Just("")];
    let name = prop_oneof![
        "[ab]{1,2}(_[abc]){0,2}".prop_map(String::from),
        "[aAеａ][_.\\- ][bBЬ]".prop_map(String::from),
        "(a_|a_b_|b_){0,3}c{0,70}".prop_filter("a name", |name| !name.is_empty()),
        Just(pending::TOOL.to_owned()),
        Just("c_unavailable".to_owned()),
        "a_b_[0-9a-f]{8}".prop_map(String::from),
        "\\PC{1,12}".prop_map(String::from),
    ];
    let tools = prop::collection::btree_set(name, 6..20);
    prop::collection::btree_map("[abc]{1,2}", (prefix, tools), 2..5)
}

/// A tool says in its description whose it is.
fn source((backend, (prefix, tools)): (&String, &Given)) -> Source {
    let tool = |name: &String| {
        json!({"name": name, "description": json!([backend, name]).to_string()}).to_string()
    };
    let tools: Vec<String> = tools.iter().map(tool).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let naming = Arc::new(Naming { prefix: (*prefix).to_owned(), ..Naming::default() });
    pends(Source { naming, ..server(backend, &tools) })
}

fn call(kind: &str, server: &str, name: &str) -> Call {
    let data = json!({"toolUseId": "tu", "kind": kind, "mcpServer": server, "name": name});
    Call::read(&data.to_string()).unwrap()
}

/// What the model sees of a run: `(server, name, description)` of each tool that the bridge wrote.
fn written(spec: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut all = Vec::new();
    for one in spec["tools"].as_array().unwrap() {
        for tool in one["tools"].as_array().into_iter().flatten() {
            all.push((text(&one["name"]), text(&tool["name"]), text(&tool["description"])));
        }
    }
    all
}

/// Makes the calls of one run; how many those were.
fn make(servers: &BTreeMap<String, Given>, taken: &BTreeSet<String>) -> usize {
    let mut sources: Vec<Source> = servers.iter().map(source).collect();
    let offer = Arc::new(Offer::build(&sources));
    // The app may not use the last one, and has tools of its own.
    let hidden = servers.keys().next_back().unwrap();
    let own: Vec<Value> = taken
        .iter()
        .map(|name| json!({"kind": "local", "name": name, "parameters": {"type": "object"}}))
        .collect();
    let spec = Spec::read(RunKind::Agent, Bytes::from(json!({"tools": own}).to_string())).unwrap();
    let allowed: Vec<&str> =
        servers.keys().filter(|name| *name != hidden).map(String::as_str).collect();
    let rights = backends(&allowed);
    let injected = spec.inject(&offer.seen_by(&rights), &Selection::All).unwrap();
    // Which `Value` has no number for.
    let text = text(&injected).replace(r#""x":1e400"#, r#""x":1"#);
    let refs = written(&serde_json::from_str(&text).unwrap());
    let mut names: Vec<&str> = refs.iter().map(|(_, name, _)| name.as_str()).collect();
    let of_allowed = servers.iter().filter(|(name, _)| *name != hidden);
    assert_eq!(names.len(), of_allowed.map(|(_, (_, tools))| tools.len()).sum::<usize>());
    names.extend(taken.iter().map(String::as_str));
    let different: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(different.len(), names.len(), "two tools of one name: {names:?}");
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    assert!(names.iter().all(|name| (1..=MAX_LEN).contains(&name.len())), "{names:?}");
    assert!(names.iter().all(|name| name.chars().all(is_legal)), "{names:?}");

    // Whatever the order of the sources is, and after a restart.
    sources.reverse();
    let turned = Arc::new(Offer::build(&sources)).seen_by(&rights);
    let turned = spec.inject(&turned, &Selection::All).unwrap();
    let (stored, routes) = injected.table.stored();
    let restored = Table::restore(&stored, Arc::new(Routes::restore(&routes.text).unwrap()));
    let mut calls = 0;
    for table in [&injected.table, &turned.table, &restored] {
        for (server, name, description) in &refs {
            let route = table.route_of_call(&call("mcp_local", server, name)).expect(name);
            let reached = json!([route.backend.as_str(), peer_name(route)]).to_string();
            assert_eq!(reached, *description, "{name} leads astray");
            calls += 1;
        }
        // The app's own tools, and what the model was never shown.
        let twins = names.iter().map(|name| name.to_ascii_uppercase());
        let unseen = twins.filter(|twin| !different.contains(twin.as_str()));
        for name in taken.iter().cloned().chain(unseen) {
            let is_ours = table.route_of_call(&call("mcp_local", "a", &name)).is_some();
            assert!(!is_ours || table.results() == Some(&name), "{name} is not the bridge's");
            calls += 1;
        }
    }
    calls
}

#[test]
fn a_hundred_thousand_calls_lead_where_their_refs_say() {
    let made = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(1000)
    });
    // Names that the bridge would give are taken before it gives them.
    let taken = prop::collection::btree_set("a_b|a_b_c|b_c|bridge_call_result|[ab]_c", 0..4);
    let cases = (servers(), taken);
    let outcome = runner.run(&cases, |(servers, taken)| {
        made.set(made.get() + make(&servers, &taken));
        Ok(())
    });
    outcome.unwrap();
    assert!(made.get() > 100_000, "{}", made.get());
}
