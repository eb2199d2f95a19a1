//! Injection changes `tools` and nothing else.

mod routing;
mod searched;

use super::*;
use crate::model::naming::Naming;
use crate::model::offer::tests::{agent, local, peer_name, pends, server};
use crate::model::offer::{OfferMode, OnUnavailable, Source};
use crate::model::pending;
use crate::model::rights::Rights;

const FS: &str = r#"{"kind":"mcp_local","name":"fs","serverInfo":{"name":"S", "x":1e400},"tools":[{"name":"fs_ls"}]}"#;
const HR: &str = r#"{"kind":"a2a_local","name":"hr","agentCard":{ "name": "HR", "x-y": [1.0] }}"#;

fn offer() -> Arc<Offer> {
    Arc::new(Offer::build(&[server("fs", &[r#"{"name":"ls"}"#]), agent("hr")]))
}

fn inject(spec: &str, selection: &Selection) -> Result<Injected, InjectError> {
    Spec::read(RunKind::Agent, Bytes::from(spec.to_owned())).unwrap().inject(&offer(), selection)
}

fn text(injected: &Injected) -> String {
    String::from_utf8(injected.body.concat()).unwrap()
}

#[track_caller]
fn check(spec: &str, expected: &str) {
    assert_eq!(text(&inject(spec, &Selection::All).unwrap()), expected);
}

#[test]
fn every_other_byte_stays() {
    check(
        " { \"z\": 1.0,\r\n\t\"big\":123456789012345678901234567890,\"tools\" : [ {\"kind\":\"local\",\"name\":\"own\"} ] , \"a\":\"\\u00e9\\/\"} \n",
        &format!(
            " {{ \"z\": 1.0,\r\n\t\"big\":123456789012345678901234567890,\"tools\" : [{{\"kind\":\"local\",\"name\":\"own\"}},{FS},{HR}] , \"a\":\"\\u00e9\\/\"}} \n"
        ),
    );
}

#[test]
fn absent_empty_and_null_tools() {
    check(r#"{"prompt":"x"}"#, &format!(r#"{{"tools":[{FS},{HR}],"prompt":"x"}}"#));
    check("{ }", &format!(r#"{{"tools":[{FS},{HR}] }}"#));
    check(r#"{"tools":[]}"#, &format!(r#"{{"tools":[{FS},{HR}]}}"#));
    check(r#"{"tools":null,"a":1}"#, &format!(r#"{{"tools":[{FS},{HR}],"a":1}}"#));
}

#[test]
fn placeholders_choose_and_are_filled_in_place() {
    let own = r#"{"kind":"local","name":"own"}"#;
    check(
        &format!(r#"{{"tools":[{{"kind":"a2a_local","name":"hr"}},{own}]}}"#),
        &format!(r#"{{"tools":[{HR},{own}]}}"#),
    );
    let both = format!(r#"{{"tools":[{{"kind":"mcp_local","name":"fs"}},{own}]}}"#);
    let injected = inject(&both, &Selection::Named(vec!["hr".to_owned()])).unwrap();
    assert_eq!(text(&injected), format!(r#"{{"tools":[{FS},{own},{HR}]}}"#));
    assert!(injected.table.route("hr").is_some());
}

#[test]
fn a_complete_ref_of_the_caller_is_no_placeholder() {
    let own = r#"{"kind":"mcp_local","name":"fs","tools":[{"name":"x"}]}"#;
    check(&format!(r#"{{"tools":[{own}]}}"#), &format!(r#"{{"tools":[{own},{FS},{HR}]}}"#));
}

const PAGE: &str = r#"{"kind":"local","name":"page","parameters":{"type":"object"}}"#;

/// The rights to these backends.
fn backends(names: &[&str]) -> Arc<Rights> {
    let names = names.iter().map(|name| BackendName::parse(name).unwrap()).collect();
    Arc::new(Rights { backends: Some(names), ..Rights::default() })
}

/// Injects the tools of an offer that has a local tool `page`, for an app that may use `allowed`.
fn inject_local(spec: &str, allowed: &[&str]) -> Result<Injected, InjectError> {
    let page = local("page", r#"{"parameters":{"type":"object"}}"#);
    let offer = Arc::new(Offer::build(&[server("fs", &[r#"{"name":"ls"}"#]), page]));
    let spec = Spec::read(RunKind::Agent, Bytes::from(spec.to_owned())).unwrap();
    spec.inject(&offer.seen_by(&backends(allowed)), &Selection::All)
}

#[test]
fn a_local_placeholder_is_filled_in_place() {
    let own = r#"{"kind":"local","name":"own"}"#;
    let spec = format!(r#"{{"tools":[{{"kind":"local","name":"page"}},{own}]}}"#);
    let injected = inject_local(&spec, &["fs", "page"]).unwrap();
    assert_eq!(text(&injected), format!(r#"{{"tools":[{PAGE},{own}]}}"#), "exactly that");
    assert!(injected.table.route("page").is_some() && injected.table.route("own").is_none());
}

#[test]
fn a_local_ref_without_parameters_that_names_no_tool_of_the_bridge_is_the_callers() {
    for name in ["own", "fs", "fs_ls"] {
        let own = format!(r#"{{"kind":"local","name":"{name}"}}"#);
        let injected = inject_local(&format!(r#"{{"tools":[{own}]}}"#), &["page"]).unwrap();
        assert_eq!(text(&injected), format!(r#"{{"tools":[{own},{PAGE}]}}"#));
        assert!(injected.table.route(name).is_none());
    }
    // One that the app may not use is nobody else's either.
    let spec = r#"{"tools":[{"kind":"local","name":"page"}]}"#;
    let injected = inject_local(spec, &["fs"]).unwrap();
    assert_eq!(text(&injected), format!(r#"{{"tools":[{{"kind":"local","name":"page"}},{FS}]}}"#));
    assert!(injected.table.route("page").is_none());
}

#[test]
fn the_caller_keeps_the_name_of_a_local_tool_that_it_describes_itself() {
    let own = r#"{"kind":"local","name":"page","parameters":{}}"#;
    let injected = inject_local(&format!(r#"{{"tools":[{own}]}}"#), &["page"]).unwrap();
    assert!(injected.table.route("page").is_none());
    let given = naming::suffixed("page", "page", "", 0);
    let expected = PAGE.replace("\"page\"", &format!("\"{given}\""));
    assert_eq!(text(&injected), format!(r#"{{"tools":[{own},{expected}]}}"#));
    assert_eq!(injected.table.route(&given).unwrap().kind, RefKind::Local);
}

#[test]
fn a_placeholder_of_another_kind_does_not_take_a_local_ref_of_its_name() {
    let own = r#"{"kind":"local","name":"fs"}"#;
    let spec = format!(r#"{{"tools":[{own},{{"kind":"mcp_local","name":"fs"}}]}}"#);
    let injected = inject_local(&spec, &["fs", "page"]).unwrap();
    assert_eq!(text(&injected), format!(r#"{{"tools":[{own},{FS}]}}"#));
}

#[test]
fn the_header_chooses() {
    let named = |names: &[&str]| Selection::Named(names.iter().map(ToString::to_string).collect());
    let injected = inject("{}", &named(&["fs"])).unwrap();
    assert_eq!(text(&injected), format!(r#"{{"tools":[{FS}]}}"#));
    assert!(injected.table.route("hr").is_none());
    let none = inject(r#"{"a":1}"#, &named(&[])).unwrap();
    assert_eq!(text(&none), r#"{"a":1}"#);
    assert!(none.table.is_empty());
    assert_eq!(
        inject("{}", &named(&["jira"])).unwrap_err(),
        InjectError::UnknownBackend {
            name: "jira".to_owned(),
            candidates: vec!["fs".to_owned(), "hr".to_owned()],
        }
    );
}

#[test]
fn a_placeholder_of_the_wrong_kind_names_what_there_is() {
    let spec = r#"{"tools":[{"kind":"a2a_local","name":"fs"}]}"#;
    let error = inject(spec, &Selection::All).unwrap_err();
    let candidates = vec!["hr".to_owned()];
    assert_eq!(error, InjectError::UnknownBackend { name: "fs".to_owned(), candidates });
}

#[test]
fn an_app_gets_only_what_it_may_use() {
    let spec = Spec::read(RunKind::Agent, Bytes::from_static(b"{}")).unwrap();
    let offer = offer().seen_by(&backends(&["hr"]));
    let injected = spec.inject(&offer, &Selection::All).unwrap();
    assert_eq!(text(&injected), format!(r#"{{"tools":[{HR}]}}"#));
    assert!(injected.table.route("fs_ls").is_none());
}

#[test]
fn the_caller_keeps_a_name_that_it_uses() {
    for own in [
        r#"{"kind":"local","name":"fs_ls"}"#,
        r#"{"kind":"mcp_local","name":"mine","tools":[{"name":"fs_ls"}]}"#,
    ] {
        let injected = inject(&format!(r#"{{"tools":[{own}]}}"#), &Selection::All).unwrap();
        assert!(injected.table.route("fs_ls").is_none(), "{own}");
        let given = naming::suffixed("fs_ls", "fs", "ls", 0);
        let expected = FS.replace("fs_ls", &given);
        assert_eq!(text(&injected), format!(r#"{{"tools":[{own},{expected},{HR}]}}"#));
        assert_eq!(peer_name(injected.table.route(&given).unwrap()), "ls");
    }
}

#[test]
fn a_refused_backend_refuses_the_run() {
    let mut down = server("fs", &[]);
    (down.available, down.on_unavailable) = (false, OnUnavailable::Fail);
    let offer = Arc::new(Offer::build(&[down]));
    let spec = Spec::read(RunKind::Agent, Bytes::from_static(b"{}")).unwrap();
    let error = spec.inject(&offer, &Selection::All).unwrap_err();
    assert_eq!(error, InjectError::Refused(BackendName::parse("fs").unwrap()));
}

#[test]
fn bodies_that_are_no_specs() {
    let read = |text: &'static str| {
        Spec::read(RunKind::Agent, Bytes::from_static(text.as_bytes())).unwrap_err()
    };
    assert_eq!(read("[1]"), SpecError::NotAnObject);
    assert_eq!(read(r#"{"a":1,"b":2,"a":3}"#), SpecError::DuplicateKey("a".to_owned()));
    assert_eq!(read(r#"{"a":1,"\u0061":3}"#), SpecError::DuplicateKey("a".to_owned()));
    assert_eq!(read(r#"{"tools":{}}"#), SpecError::ToolsNotAnArray);
    assert!(matches!(read("{"), SpecError::NotJson(_)));
    assert!(matches!(read(""), SpecError::NotJson(_)));
    assert!(matches!(
        Spec::read(RunKind::Agent, Bytes::from_static(b"{\"a\":\"\xff\"}")),
        Err(SpecError::NotJson(_))
    ));
}

#[test]
fn counts_are_tools_per_backend() {
    let counts = inject("{}", &Selection::All).unwrap().counts;
    let counts: Vec<(&str, usize)> = counts.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(counts, [("fs", 1), ("hr", 1)]);
}

fn inject_eval(body: &str) -> Injected {
    let spec = Spec::read(RunKind::Eval, Bytes::from(body.to_owned())).unwrap();
    spec.inject(&offer(), &Selection::All).unwrap()
}

#[test]
fn an_eval_gets_its_tools_where_its_agent_is() {
    let own = r#"{"kind":"local","name":"own"}"#;
    for (body, expected) in [
        (
            r#" {"dataset":{"tools":[1]}, "agent" : { "modelId":1.0 } ,"agent2":[]}"#.to_owned(),
            format!(
                r#" {{"dataset":{{"tools":[1]}}, "agent" : {{"tools":[{FS},{HR}], "modelId":1.0 }} ,"agent2":[]}}"#
            ),
        ),
        (
            format!(r#"{{"agent":{{"a":1,"tools":[{own}]}},"z":1e400}}"#),
            format!(r#"{{"agent":{{"a":1,"tools":[{own},{FS},{HR}]}},"z":1e400}}"#),
        ),
        (r#"{"agent":{}}"#.to_owned(), format!(r#"{{"agent":{{"tools":[{FS},{HR}]}}}}"#)),
        (
            r#"{"agentId":"a","agent":null}"#.to_owned(),
            format!(r#"{{"tools":[{FS},{HR}],"agentId":"a","agent":null}}"#),
        ),
        (
            format!(r#"{{"agentId":"a","tools":[{own}]}}"#),
            format!(r#"{{"agentId":"a","tools":[{own},{FS},{HR}]}}"#),
        ),
    ] {
        assert_eq!(text(&inject_eval(&body)), expected);
    }
    // In any other spec, `agent` is a word like any other.
    check(
        r#"{"agent":{"tools":[]}}"#,
        &format!(r#"{{"tools":[{FS},{HR}],"agent":{{"tools":[]}}}}"#),
    );
}

#[test]
fn evals_that_cannot_be_read() {
    let read = |text: &'static str| {
        Spec::read(RunKind::Eval, Bytes::from_static(text.as_bytes())).unwrap_err()
    };
    assert_eq!(read(r#"{"agent":[]}"#), SpecError::AgentNotAnObject);
    assert_eq!(read(r#"{"agent":{"a":1,"a":2}}"#), SpecError::DuplicateKey("a".to_owned()));
    assert_eq!(read(r#"{"agent":{"tools":1}}"#), SpecError::ToolsNotAnArray);
}

fn called(name: &str, kind: &str, server: &str) -> Call {
    let payload =
        format!(r#"{{"toolUseId":"tu","name":"{name}","kind":"{kind}","mcpServer":"{server}"}}"#);
    Call::read(&payload).unwrap()
}

#[test]
fn in_a_run_that_is_handed_over_a_name_alone_proves_nothing() {
    let backends: BTreeSet<BackendName> = [BackendName::parse("fs").unwrap()].into();
    let table = Table::assumed(&offer(), backends);
    assert!(table.route_of_call(&called("fs_ls", "mcp_local", "fs")).is_some());
    assert!(table.route_of_call(&called("fs_ls", "mcp_local", "fs__2")).is_some());
    assert!(table.route_of_call(&called("fs_ls", "mcp_local", "theirs")).is_none());
    assert!(table.route_of_call(&called("fs_ls", "local", "fs")).is_none());
    assert!(table.route_of_call(&called("hr", "a2a_local", "")).is_none(), "not asked for");

    let own = r#"{"tools":[{"kind":"local","name":"fs_ls"}]}"#;
    let given = naming::suffixed("fs_ls", "fs", "ls", 0);
    assert!(text(&inject(own, &Selection::All).unwrap()).contains(&given));
    let route = table.route_of_call(&called(&given, "mcp_local", "fs")).unwrap();
    assert_eq!(route.target.tool(), "ls", "the name that a clash had brought");
}

/// An offer in which calls to the agent may go on.
fn pending_offer() -> Arc<Offer> {
    Arc::new(Offer::build(&[server("fs", &[r#"{"name":"ls"}"#]), pends(agent("hr"))]))
}

/// What a spec with these `tools` becomes, and its table.
fn inject_pending(tools: &str, selection: &[&str]) -> (String, Table) {
    let spec = Spec::read(RunKind::Agent, Bytes::from(format!("{{\"tools\":[{tools}]}}"))).unwrap();
    let selection = Selection::Named(selection.iter().map(ToString::to_string).collect());
    let injected = spec.inject(&pending_offer(), &selection).unwrap();
    let counts: Vec<usize> = injected.counts.values().copied().collect();
    assert!(counts.iter().all(|&tools| tools == 1), "it is counted nowhere");
    (text(&injected), injected.table)
}

#[test]
fn the_tool_that_fetches_results_comes_last_and_where_it_is_needed() {
    let offer = pending_offer();
    let results = std::str::from_utf8(&offer.own(|_| true).next().unwrap().1.json).unwrap();
    let (spec, table) = inject_pending("", &["fs", "hr"]);
    assert_eq!(spec, format!(r#"{{"tools":[{FS},{HR},{results}]}}"#));
    assert_eq!(table.results(), Some(pending::TOOL));
    assert_eq!(table.route(pending::TOOL).unwrap().target, Target::Own(Own::Results));
    assert!(!table.backends().contains(pending::TOOL), "it is no backend");
    let placeholder = r#"{"kind":"a2a_local","name":"hr"}"#;
    let own = r#"{"kind":"local","name":"own","parameters":{}}"#;
    let (spec, _) = inject_pending(&format!("{placeholder},{own}"), &[]);
    assert_eq!(spec, format!(r#"{{"tools":[{HR},{own},{results}]}}"#));

    let (spec, table) = inject_pending("", &["fs"]);
    assert_eq!(spec, format!(r#"{{"tools":[{FS}]}}"#));
    assert_eq!((table.results(), table.route(pending::TOOL)), (None, None));
    let (_, table) = inject_pending("", &[]);
    assert!(table.is_empty() && table.route(pending::TOOL).is_none());
}

#[test]
fn the_caller_keeps_the_name_of_the_tool_that_fetches_results() {
    let given = naming::suffixed(pending::TOOL, pending::TOOL, "", 0);
    // With and without `parameters`: it is no placeholder for something of ours.
    for own in [
        r#"{"kind":"local","name":"bridge_call_result"}"#,
        r#"{"kind":"local","name":"bridge_call_result","parameters":{}}"#,
    ] {
        let (spec, table) = inject_pending(own, &["hr"]);
        assert!(
            spec.starts_with(&format!(
                r#"{{"tools":[{own},{HR},{{"kind":"local","name":"{given}","#
            ))
        );
        assert_eq!(table.results(), Some(given.as_str()), "what a pending answer says");
        assert!(table.route(pending::TOOL).is_none());
        assert_eq!(table.route(&given).unwrap().target, Target::Own(Own::Results));
    }
}

#[test]
fn the_tools_of_a_search_name_each_other_as_the_run_has_them() {
    let fs = server("fs", &[r#"{"name":"ls"}"#]);
    let searched = Naming { offer: OfferMode::Search, ..Naming::clone(&fs.naming) };
    let fs = Source { naming: Arc::new(searched), ..fs };
    let given = |own: Own| naming::suffixed(own.name(), own.name(), "", 0);
    // A tool of the caller has the name, or one of a backend.
    let own = |own: Own| {
        format!(r#"{{"tools":[{{"kind":"local","name":"{}","parameters":{{}}}}]}}"#, own.name())
    };
    let clash = server("bridge", &[r#"{"name":"call_tool"}"#]);
    struct Case {
        sources: Vec<Source>,
        body: String,
        find: String,
        call: String,
    }
    for Case { sources, body, find, call } in [
        Case {
            sources: vec![fs.clone()],
            body: "{}".to_owned(),
            find: Own::Find.name().to_owned(),
            call: Own::Call.name().to_owned(),
        },
        Case {
            sources: vec![fs.clone()],
            body: own(Own::Call),
            find: Own::Find.name().to_owned(),
            call: given(Own::Call),
        },
        Case {
            sources: vec![fs.clone()],
            body: own(Own::Find),
            find: given(Own::Find),
            call: Own::Call.name().to_owned(),
        },
        Case {
            sources: vec![fs, clash],
            body: "{}".to_owned(),
            find: Own::Find.name().to_owned(),
            call: given(Own::Call),
        },
    ] {
        let offer = Arc::new(Offer::build(&sources)).seen_by(&Arc::default());
        let spec = Spec::read(RunKind::Agent, Bytes::from(body.clone())).unwrap();
        let injected = spec.inject(&offer, &Selection::All).unwrap();
        let text = text(&injected);
        assert!(text.contains(&format!("Call what you have found with {call}.")), "{text}");
        assert!(text.contains(&format!("Calls a tool that {find} has found.")), "{text}");
        for (name, own) in [(find, Own::Find), (call, Own::Call)] {
            assert!(text.contains(&format!(r#"{{"kind":"local","name":"{name}""#)), "{text}");
            assert_eq!(injected.table.route(&name).unwrap().target, Target::Own(own));
        }
    }
}

#[test]
fn a_run_that_is_handed_over_has_the_tool_that_fetches_results() {
    let table =
        |name: &str| Table::assumed(&pending_offer(), [BackendName::parse(name).unwrap()].into());
    let hr = table("hr");
    assert_eq!(hr.results(), Some(pending::TOOL));
    let given = naming::suffixed(pending::TOOL, pending::TOOL, "", 0);
    for name in [pending::TOOL, &given] {
        let call = |kind: &str| {
            Call::read(&format!(r#"{{"toolUseId":"tu","name":"{name}","kind":"{kind}"}}"#)).unwrap()
        };
        assert_eq!(hr.route_of_call(&call("local")).unwrap().target, Target::Own(Own::Results));
        assert!(
            hr.route_of_call(&call("mcp_local")).is_none(),
            "a tool of the app that has the name"
        );
        assert!(table("fs").route_of_call(&call("local")).is_none());
    }
}

#[test]
fn a_session_is_given_fresh_refs_when_only_the_tool_that_fetches_results_changed() {
    let (_, hr) = inject_pending("", &["hr"]);
    let (_, fs) = inject_pending("", &["fs"]);
    let clash = server("bridge", &[r#"{"name":"call_result"}"#]);
    let later = [server("fs", &[r#"{"name":"ls"}"#]), pends(agent("hr")), clash];
    let later = Arc::new(Offer::build(&later));
    assert!(hr.differs_from(&later) && !fs.differs_from(&later));
    assert!(!hr.differs_from(&pending_offer()));
    // A session of an earlier process, before calls could go on.
    let before = inject("{}", &Selection::Named(vec!["hr".to_owned()])).unwrap().table;
    assert!(before.differs_from(&pending_offer()) && hr.differs_from(&offer()));
}

#[test]
fn a_kept_table_has_the_tool_that_fetches_results() {
    for own in ["", r#"{"kind":"local","name":"bridge_call_result"}"#] {
        let (_, table) = inject_pending(own, &["hr"]);
        let (stored, routes) = table.stored();
        let text = serde_json::to_string(&stored).unwrap();
        let routes = Arc::new(Routes::restore(&routes.text).unwrap());
        let again = Table::restore(&serde_json::from_str(&text).unwrap(), routes);
        assert_eq!(again.results(), table.results());
        let name = again.results().unwrap();
        assert_eq!(again.route(name).unwrap().target, Target::Own(Own::Results));
        assert!(!again.differs_from(&pending_offer()));
    }
}

#[test]
fn a_kept_table_leads_where_it_led() {
    let spec = r#"{"tools":[{"kind":"local","name":"fs_ls"}]}"#;
    let injected = inject(spec, &Selection::Named(vec!["fs".to_owned()])).unwrap();
    let (table, routes) = injected.table.stored();
    let text = serde_json::to_string(&table).unwrap();
    let read: StoredTable = serde_json::from_str(&text).unwrap();
    assert_eq!(read.routes, routes.digest);
    let again = Table::restore(&read, Arc::new(Routes::restore(&routes.text).unwrap()));
    assert_eq!(again.stored(), injected.table.stored());
    assert!(
        again.route("fs_ls").is_none() && again.route("hr").is_none(),
        "the caller's; not given"
    );
    let renamed = read.renamed.keys().next().unwrap();
    assert_eq!(again.route(renamed).unwrap().target.tool(), "ls");
    assert!(!again.differs_from(&offer()));
    assert!(again.differs_from(&Offer::build(&[server("fs", &[r#"{"name":"other"}"#])])));
}

#[test]
fn reading_stops_at_the_limits() {
    let read = |text: String| Spec::read(RunKind::Agent, Bytes::from(text)).map(|_| ());
    let list = |count| vec!["0"; count].join(",");
    assert_eq!(read(format!("{{\"tools\":[{}]}}", list(MAX_TOOLS))), Ok(()));
    let over = Err(SpecError::TooManyTools);
    assert_eq!(read(format!("{{\"tools\":[{}]}}", list(MAX_TOOLS + 1))), over);
    // It is one limit for all the lists inside.
    let server = |tools| format!(r#"{{"kind":"mcp_local","name":"s","tools":[{}]}}"#, list(tools));
    let two = |tools| format!("{{\"tools\":[{},{}]}}", server(tools), server(tools));
    assert_eq!(read(two(MAX_TOOLS / 2 - 1)), Ok(()));
    assert_eq!(read(two(MAX_TOOLS / 2)), over);
    let members = |count| {
        let members = (0..count).map(|at| format!("\"{at}\":0")).collect::<Vec<_>>();
        format!("{{{}}}", members.join(","))
    };
    assert_eq!(read(members(MAX_MEMBERS)), Ok(()));
    assert_eq!(read(members(MAX_MEMBERS + 1)), Err(SpecError::TooManyMembers));
}
