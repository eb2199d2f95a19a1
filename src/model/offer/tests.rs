//! Refs are what the peer sent but for the names; chunks, stubs and digests.

use super::*;
use crate::model::naming::ToolFilter;
use crate::model::schema::Verdict;
use crate::model::{Instructions, Rights};

pub(crate) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// An MCP backend with the prefix `<name>_` and the tools given as JSON.
pub(crate) fn server(name: &str, tools: &[&str]) -> Source {
    let tools = tools.iter().map(|tool| raw(tool)).collect();
    let (catalog, left_out) = Catalog::mcp(Some(raw(r#"{"name":"S", "x":1e400}"#)), tools);
    assert_eq!(left_out, []);
    Source {
        place: 0,
        name: BackendName::parse(name).unwrap(),
        kind: RefKind::McpLocal,
        naming: Arc::new(Naming { prefix: format!("{name}_"), ..Naming::default() }),
        description: None,
        on_unavailable: OnUnavailable::Stale,
        catalog: Some(Arc::new(catalog)),
        available: true,
        can_pend: false,
        trusted: false,
        pin: Mode::Off,
        review: Arc::default(),
    }
}

pub(crate) fn agent(name: &str) -> Source {
    Source {
        kind: RefKind::A2aLocal,
        naming: Arc::default(),
        catalog: Some(Arc::new(Catalog::a2a(raw(r#"{ "name": "HR", "x-y": [1.0] }"#)))),
        ..server(name, &[])
    }
}

/// A local tool with the given definition.
pub(crate) fn local(name: &str, definition: &str) -> Source {
    let input = Arc::new(InputSchema::of_local(raw(definition).into()));
    Source {
        kind: RefKind::Local,
        naming: Arc::default(),
        catalog: Some(Arc::new(Catalog::local(input))),
        ..server(name, &[])
    }
}

/// The peer's own name for the tool.
#[track_caller]
pub(crate) fn peer_name(route: &Route) -> &str {
    match &route.target {
        Target::Tool { name, .. } => name,
        Target::Stub | Target::Own(_) => panic!("no peer's"),
    }
}

fn refs(offer: &Offer, backend: &str) -> Vec<String> {
    let refs = &offer.backend(backend).unwrap().refs;
    refs.iter().map(|one| String::from_utf8(one.json.to_vec()).unwrap()).collect()
}

#[test]
fn a_server_is_written_verbatim_but_for_names() {
    let tool = r#"{"x-vendor":123456789012345678901234567890, "name" : "read-file",  "inputSchema":{"b":1,"a":1e400}}"#;
    let offer = Offer::build(&[server("fs", &[tool, r#"{"name":"fs_ls"}"#])]);
    let expected = concat!(
        r#"{"kind":"mcp_local","name":"fs","serverInfo":{"name":"S", "x":1e400},"tools":["#,
        r#"{"x-vendor":123456789012345678901234567890, "name" : "fs_read_file",  "inputSchema":{"b":1,"a":1e400}},"#,
        r#"{"name":"fs_ls"}]}"#,
    );
    assert_eq!(refs(&offer, "fs"), [expected]);
    let route = offer.route("fs_read_file").unwrap();
    assert_eq!(peer_name(route), "read-file");
    assert_eq!(route.kind, RefKind::McpLocal);
}

#[test]
fn an_agent_is_one_tool_with_its_card() {
    let mut hr = agent("hr");
    hr.description = Some("Ask \"HR\"".to_owned());
    let offer = Offer::build(&[hr]);
    let expected = r#"{"kind":"a2a_local","name":"hr","description":"Ask \"HR\"","agentCard":{ "name": "HR", "x-y": [1.0] }}"#;
    assert_eq!(refs(&offer, "hr"), [expected]);
}

#[test]
fn a_local_tool_is_what_its_definition_says() {
    let definition = r#"{"description":"Page \"ops\"","parameters":{"required":[ "a" ],"z":1.0},"retain":false}"#;
    let offer = Offer::build(&[local("page", definition), local("bare", "{}")]);
    let expected = r#"{"kind":"local","name":"page","description":"Page \"ops\"","parameters":{"required":[ "a" ],"z":1.0},"retain":false}"#;
    assert_eq!(refs(&offer, "page"), [expected]);
    assert_eq!(refs(&offer, "bare"), [r#"{"kind":"local","name":"bare"}"#]);
    let route = offer.route("page").unwrap();
    assert_eq!((route.kind, peer_name(route)), (RefKind::Local, ""));
    let Target::Tool { input: Some(input), .. } = &route.target else { panic!("a schema") };
    assert_eq!(input.check(r#"{"a":1}"#), Verdict::Valid);
    let verdict = input.check("{}");
    assert!(matches!(&verdict, Verdict::Invalid(why) if why.contains("required")), "{verdict:?}");
}

#[test]
fn a_local_tool_that_clashes_gets_a_suffix_like_any_other() {
    let mut fs = server("fs", &[r#"{"name":"page"}"#]);
    fs.naming = Arc::default();
    let offer = Offer::build(&[fs, local("page", "{}")]);
    assert!(offer.route("page").is_none());
    let route = offer.route(&naming::suffixed("page", "page", "", 0)).unwrap();
    assert_eq!(route.kind, RefKind::Local);
}

#[test]
fn a_large_server_becomes_refs_of_64() {
    let tools: Vec<String> = (0..130).map(|n| format!("{{\"name\":\"t{n}\"}}")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let offer = Offer::build(&[server("big", &tools)]);
    let refs = refs(&offer, "big");
    let labels: Vec<Option<String>> =
        refs.iter().map(|one| json::string_member(one, "name")).collect();
    assert_eq!(labels, ["big", "big__2", "big__3"].map(|label| Some(label.to_owned())));
    assert_eq!(refs[0].matches("\"big_t").count(), 64);
    assert_eq!(refs[2].matches("\"big_t").count(), 2);
    assert_eq!(offer.backend("big").unwrap().tools, 130);
}

#[test]
fn backend_that_is_down_is_offered_as_configured() {
    let down = |on_unavailable, catalog: bool| {
        let mut source = server("fs", &[r#"{"name":"ls"}"#]);
        source.available = false;
        source.on_unavailable = on_unavailable;
        if !catalog {
            source.catalog = None;
        }
        Offer::build(&[source])
    };
    let stale = down(OnUnavailable::Stale, true);
    assert_eq!(peer_name(stale.route("fs_ls").unwrap()), "ls");
    for offer in [down(OnUnavailable::Stale, false), down(OnUnavailable::Stub, true)] {
        let route = offer.route("fs_unavailable").unwrap();
        assert_eq!((route.kind, &route.target), (RefKind::Local, &Target::Stub));
        let text = &refs(&offer, "fs")[0];
        assert!(text.starts_with(r#"{"kind":"local","name":"fs_unavailable","description":""#));
        serde_json::from_str::<serde_json::Value>(text).unwrap();
    }
    let omitted = down(OnUnavailable::Omit, true);
    assert_eq!(omitted.backend("fs").unwrap().tools, 0);
    assert!(down(OnUnavailable::Fail, true).backend("fs").unwrap().refused);
}

#[test]
fn the_digest_follows_the_refs() {
    let names = [BackendName::parse("fs").unwrap()].into();
    let one = Offer::build(&[server("fs", &[r#"{"name":"a"}"#]), agent("hr")]);
    let same = Offer::build(&[agent("hr"), server("fs", &[r#"{"name":"a"}"#])]);
    let other = Offer::build(&[server("fs", &[r#"{"name":"a" }"#])]);
    assert_eq!(one.digest(&names), same.digest(&names));
    assert_ne!(one.digest(&names), other.digest(&names));
}

/// `source`, whose calls may go on.
pub(crate) fn pends(source: Source) -> Source {
    Source { can_pend: true, ..source }
}

#[test]
fn a_backend_whose_calls_may_go_on_brings_the_tool_that_fetches_results() {
    let ls = r#"{"name":"ls"}"#;
    let offer = Offer::build(&[server("fs", &[ls]), pends(agent("hr"))]);
    let own = |name: &str| offer.own(|one| one.as_str() == name).next();
    assert!(own("fs").is_none(), "not in runs that cannot need it");
    let (Own::Results, Ref { json: text, .. }) = own("hr").unwrap() else { panic!("another tool") };
    let written: serde_json::Value = serde_json::from_slice(text).unwrap();
    assert!(text.starts_with(br#"{"kind":"local","name":"bridge_call_result","description":"#));
    assert_eq!(written["parameters"]["required"], serde_json::json!(["callId"]));
    let route = offer.route(Own::Results.name()).unwrap();
    assert_eq!((route.kind, &route.target), (RefKind::Local, &Target::Own(Own::Results)));
    assert_eq!(offer.backend("hr").unwrap().tools, 1, "it is no tool of the backend");
    assert!(offer.backend(Own::Results.name()).is_none());

    for sources in [
        vec![server("fs", &[ls])],
        vec![pends(server("fs", &[]))],
        vec![Source { catalog: None, ..pends(server("fs", &[ls])) }],
        vec![],
    ] {
        assert!(Offer::build(&sources).route(Own::Results.name()).is_none(), "nothing can go on");
    }
}

#[test]
fn a_clash_gives_the_tool_that_fetches_results_a_suffix() {
    let clash = server("bridge", &[r#"{"name":"call_result"}"#]);
    let offer = Offer::build(&[clash, pends(agent("hr"))]);
    assert!(offer.route(Own::Results.name()).is_none());
    let given = naming::suffixed(Own::Results.name(), Own::Results.name(), "", 0);
    assert_eq!(offer.route(&given).unwrap().target, Target::Own(Own::Results));
    let others = naming::suffixed(Own::Results.name(), "bridge", "call_result", 0);
    assert_eq!(peer_name(offer.route(&others).unwrap()), "call_result");
    let hr = [BackendName::parse("hr").unwrap()].into();
    let alone = Offer::build(&[pends(agent("hr"))]);
    assert_ne!(offer.digest(&hr), alone.digest(&hr), "the run's refs are others");
}

#[test]
fn calls_are_repeatable_on_the_word_of_the_trusted() {
    let tools = [
        r#"{"name":"read","annotations":{"readOnlyHint":true}}"#,
        r#"{"name":"set","annotations":{"idempotentHint":true,"destructiveHint":true}}"#,
        r#"{"name":"add","annotations":{"destructiveHint":false}}"#,
        r#"{"name":"odd","annotations":{"readOnlyHint":"yes"}}"#,
        r#"{"name":"bare"}"#,
    ];
    let trusted = |source: Source| Source { trusted: true, ..source };
    let hinted = r#"{"name":"HR","annotations":{"readOnlyHint":true},"readOnly":true}"#;
    let card = Arc::new(Catalog::a2a(raw(hinted)));
    let down = Source { available: false, on_unavailable: OnUnavailable::Stub, ..server("d", &[]) };
    let offer = Offer::build(&[
        trusted(server("sure", &tools)),
        server("plain", &tools),
        trusted(Source { catalog: Some(card), ..agent("hr") }),
        trusted(down),
        local("look", r#"{"readOnly":true}"#),
        local("do", r#"{"readOnly":false}"#),
    ]);
    let mut repeatable: Vec<&str> = offer
        .routes
        .iter()
        .filter(|(_, route)| route.repeatable)
        .map(|(name, _)| name.as_ref())
        .collect();
    repeatable.sort_unstable();
    let own = Own::ALL.map(Own::name);
    repeatable.retain(|name| !own.contains(name));
    assert_eq!(repeatable, ["look", "sure_read", "sure_set"]);
    let all = own.len() + 2 * tools.len() + 4;
    assert_eq!(offer.routes.iter().count(), all, "all were looked at");
    let mut destructive: Vec<&str> =
        offer.routes.iter().filter(|(_, r)| r.destructive).map(|(name, _)| name.as_ref()).collect();
    destructive.sort_unstable();
    let expected = ["plain_bare", "plain_odd", "plain_set", "sure_bare", "sure_odd", "sure_set"];
    assert_eq!(destructive, expected, "whomever the operator trusts");
}

/// `source`, whose server has these instructions.
fn with_instructions(source: Source, text: &str) -> Source {
    let tools = vec![raw(r#"{"name":"ls"}"#)];
    let catalog = Catalog::mcp(None, tools).0.with_instructions(Instructions::from_text(text));
    Source { catalog: Some(Arc::new(catalog)), ..source }
}

#[test]
fn instructions_are_of_no_ref_and_of_no_digest() {
    let names = [BackendName::parse("fs").unwrap()].into();
    let plain = Offer::build(&[with_instructions(server("fs", &[]), "")]);
    let offer = Offer::build(&[with_instructions(server("fs", &[]), "Read first.")]);
    assert_eq!(offer.digest(&names), plain.digest(&names));
    assert_eq!(refs(&offer, "fs"), refs(&plain, "fs"));
    let given: Vec<&str> = offer.instructions(&names).iter().map(|(_, text)| *text).collect();
    assert_eq!(given, ["Read first."]);
}

#[test]
fn instructions_are_for_those_who_may_use_all_tools_of_their_server() {
    let names = [BackendName::parse("fs").unwrap()].into();
    let offer = Arc::new(Offer::build(&[with_instructions(server("fs", &[]), "Read first.")]));
    let some_tools = BTreeMap::from([(BackendName::parse("fs").unwrap(), ToolFilter::default())]);
    let limited = Arc::new(Rights { tools: some_tools, ..Rights::default() });
    assert!(offer.seen_by(&limited).instructions(&names).is_empty());
    let searched = Arc::new(Rights { offer: Some(OfferMode::Search), ..Rights::default() });
    assert_eq!(offer.seen_by(&searched).instructions(&names).len(), 1);
    let mut down = with_instructions(server("fs", &[]), "Read first.");
    (down.available, down.on_unavailable) = (false, OnUnavailable::Stub);
    assert!(Offer::build(&[down]).instructions(&names).is_empty(), "a stub is not the server");
}
