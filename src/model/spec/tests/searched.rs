//! Tools behind a search take no name of the run's caller: not of its tools, nor of its refs.

use super::*;
use crate::model::catalog_search::{find, resolved};

/// A kind of backend whose only tool the model has to find.
struct Hidden {
    source: Source,
    /// The offer's name for the tool.
    name: &'static str,
    /// The name of the backend's refs.
    server: &'static str,
}

fn hidden() -> [Hidden; 4] {
    let more: Vec<String> = (0..64).map(|n| format!(r#"{{"name":"more{n}"}}"#)).collect();
    let mut many: Vec<&str> = more.iter().map(String::as_str).collect();
    many.push(r#"{"name":"gauge","description":"Reads a gauge.","inputSchema":{"type":"object"}}"#);
    [
        Hidden { source: server("s", &[many[64]]), name: "s_gauge", server: "s" },
        Hidden { source: server("s", &many), name: "s_gauge", server: "s__2" },
        Hidden { source: agent("hr"), name: "hr", server: "hr" },
        Hidden {
            source: local("page", r#"{"description":"gauge","parameters":{"type":"object"}}"#),
            name: "page",
            server: "page",
        },
    ]
}

/// The offer of `source` to an app that searches for all tools.
fn searched(source: &Source) -> Arc<Offer> {
    let rights = Rights { offer: Some(OfferMode::Search), ..Rights::default() };
    Arc::new(Offer::build(std::slice::from_ref(source))).seen_by(&Arc::new(rights))
}

/// What a caller brings that has the hidden tool's `name`, or may have it.
struct Brought {
    tool_ref: String,
    /// Whether the bridge can read the name in it.
    is_named: bool,
}

fn brought(name: &str, server: &str) -> Vec<Brought> {
    let named = |tool_ref: String| Brought { tool_ref, is_named: true };
    let unnamed = |tool_ref: String| Brought { tool_ref, is_named: false };
    vec![
        named(format!(r#"{{"kind":"local","name":"{name}","parameters":{{"type":"object"}}}}"#)),
        named(format!(r#"{{"kind":"mcp_local","name":"own","tools":[{{"name":"{name}"}}]}}"#)),
        named(format!(r#"{{"kind":"mcp_local","name":"{server}","tools":[{{"name":"{name}"}}]}}"#)),
        named(format!(r#"{{"kind":"a2a_local","name":"{name}","agentCard":{{}}}}"#)),
        unnamed(format!(
            r#"{{"kind":"mcp_local","name":"{server}","tools":[{{"name":"other"}}]}}"#
        )),
        unnamed(format!(r#"{{"kind":"mcp_local","name":"{server}","tools":"elsewhere"}}"#)),
        unnamed(r#"{"kind":"mcp","name":"remote","url":"https://x.test"}"#.to_owned()),
        unnamed(r#"{"kind":"tool_set","id":"ts_1"}"#.to_owned()),
    ]
}

fn call(kind: &str, server: &str, name: &str) -> Call {
    let data = format!(
        r#"{{"toolUseId":"tu","kind":"{kind}","mcpServer":"{server}","name":"{name}","args":{{}}}}"#
    );
    Call::read(&data).unwrap()
}

/// No call of `name` is the bridge's, whatever it says of itself.
#[track_caller]
fn assert_free(table: &Table, name: &str, servers: [&str; 2], why: &str) {
    for kind in ["local", "mcp_local", "a2a_local"] {
        for server in servers {
            let claimed = table.route_of_call(&call(kind, server, name));
            assert!(claimed.is_none(), "{kind} {server}/{name} is claimed: {why}");
        }
    }
}

/// The names that a search of a run with this `table` finds.
fn names_found(offer: &Offer, table: &Table) -> Vec<String> {
    let answer = find(r#"{"query":"gauge hr page","limit":20}"#, offer, Some(table), None).unwrap();
    let members = Members::read(&answer).unwrap();
    let tools = members.array("tools").unwrap();
    tools.iter().filter_map(|tool| string_member(tool.get(), "name")).collect()
}

/// Where a call of the tool that calls found tools leads, if it names `name`.
fn called(table: &Table, name: &str) -> Option<Route> {
    let args = format!(r#"{{"name":"{name}"}}"#);
    let args = RawValue::from_string(args).unwrap();
    let outer = Call::by_hand("tu", Own::Call.name().to_owned(), Some(&args));
    let (_, route) = resolved(outer, Route::to(Own::Call), |name| table.tool(name));
    (route.target != Target::Own(Own::Call)).then_some(route)
}

#[test]
fn hidden_name_that_the_caller_brings_is_the_callers_in_a_run() {
    for Hidden { source, name, server } in hidden() {
        let offer = searched(&source);
        for Brought { tool_ref, is_named } in brought(name, server) {
            for kind in [RunKind::Agent, RunKind::Eval] {
                let body = match kind {
                    RunKind::Agent => format!(r#"{{"tools":[{tool_ref}]}}"#),
                    RunKind::Eval => format!(r#"{{"agent":{{"tools":[{tool_ref}]}}}}"#),
                };
                let all = Selection::Named(vec![source.name.to_string()]);
                let injected = Spec::read(kind, Bytes::from(body)).unwrap().inject(&offer, &all);
                let Ok(Injected { table, .. }) = injected else {
                    // Without tools of its own it is a placeholder for a backend that is not there.
                    assert!(!is_named, "{tool_ref}");
                    continue;
                };
                let (stored, routes) = table.stored();
                let routes = Arc::new(Routes::restore(&routes.text).unwrap());
                for table in [&table, &Table::restore(&stored, routes)] {
                    assert_free(table, name, [server, "own"], &tool_ref);
                    let found = names_found(&offer, table);
                    let given = found.iter().find(|given| called(table, given).is_some());
                    let given = given.unwrap_or_else(|| panic!("{name} is found: {found:?}"));
                    assert_eq!(*given != name, is_named, "{given}: {tool_ref}");
                    assert_eq!(called(table, name).is_none(), is_named, "{tool_ref}");
                    assert_free(table, given, [server, "own"], &tool_ref);
                    assert_eq!(called(table, given).unwrap().backend, source.name);
                }
            }
        }
    }
}

#[test]
fn hidden_name_is_nothing_to_claim_in_a_run_that_was_attached() {
    for Hidden { source, name, server } in hidden() {
        let offer = searched(&source);
        let table = Table::assumed(&offer, [source.name.clone()].into());
        assert_free(&table, name, [server, "own"], "attached");
        assert_eq!(called(&table, name).unwrap().backend, source.name);
    }
}

#[test]
fn hidden_name_is_no_call_by_hand_and_one_to_an_mcp_client() {
    for Hidden { source, name, .. } in hidden() {
        let offer = searched(&source);
        assert!(offer.route(name).is_none(), "{name}");
        assert_eq!(offer.searched_route(name).unwrap().backend, source.name);
    }
}

#[test]
fn tool_that_is_always_shown_keeps_its_name_and_gives_way_as_before() {
    let mut source = server("s", &[r#"{"name":"gauge"}"#, r#"{"name":"two"}"#]);
    let always = crate::model::globs::globs(&["gauge"]);
    let naming = Naming { offer: OfferMode::Search, always, ..Naming::clone(&source.naming) };
    source.naming = Arc::new(naming);
    let offer = Arc::new(Offer::build(&[source])).seen_by(&Arc::default());
    let own = r#"{"tools":[{"kind":"local","name":"s_gauge","parameters":{}}]}"#;
    for (spec, is_taken) in [("{}", false), (own, true)] {
        let spec = Spec::read(RunKind::Agent, Bytes::from(spec)).unwrap();
        let table = spec.inject(&offer, &Selection::All).unwrap().table;
        assert_eq!(table.route_of_call(&call("mcp_local", "s", "s_gauge")).is_none(), is_taken);
        assert_eq!(called(&table, "s_gauge").is_none(), is_taken);
        let given = naming::suffixed("s_gauge", "s", "gauge", 0);
        assert_eq!(table.route_of_call(&call("mcp_local", "s", &given)).is_some(), is_taken);
        assert!(table.route_of_call(&call("mcp_local", "s", "s_two")).is_none(), "it is not shown");
    }
}

#[test]
fn tool_that_another_backend_has_taken_over_is_not_found_under_its_old_name() {
    let [Hidden { source, .. }, ..] = hidden();
    let offer = searched(&source);
    let spec = Spec::read(RunKind::Agent, Bytes::from("{}")).unwrap();
    let table = spec.inject(&offer, &Selection::All).unwrap().table;
    assert_eq!(names_found(&offer, &table), ["s_gauge"]);
    let mut other = server(
        "t",
        &[r#"{"name":"gauge","description":"Another gauge.","inputSchema":{"type":"object"}}"#],
    );
    other.naming = Arc::clone(&source.naming);
    assert_eq!(names_found(&searched(&other), &table), [""; 0], "the run's leads elsewhere");
}
