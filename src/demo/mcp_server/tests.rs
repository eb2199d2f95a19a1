//! The demo's tools.

use rmcp::handler::server::wrapper::Parameters;

use super::{Add, DemoServer, WordCount};

#[test]
fn the_tools_do_what_they_say() {
    let text = "one two\nthree é".to_owned();
    assert_eq!(
        DemoServer.word_count(Parameters(WordCount { text })),
        "words: 4, lines: 2, characters: 15"
    );
    assert_eq!(DemoServer.add(Parameters(Add { a: 0.5, b: 2.0 })), "2.5");
    assert_eq!(DemoServer.add(Parameters(Add { a: 40.0, b: 2.0 })), "42");
    assert!(DemoServer.clock().ends_with('Z'));
}

#[test]
fn every_tool_has_a_title_and_a_description() {
    let tools = DemoServer::tool_router().list_all();
    assert_eq!(tools.len(), 3);
    for tool in tools {
        assert!(tool.description.is_some_and(|text| !text.is_empty()), "{}", tool.name);
        let annotations = tool.annotations.unwrap();
        assert!(annotations.title.is_some() && annotations.read_only_hint == Some(true));
    }
}
