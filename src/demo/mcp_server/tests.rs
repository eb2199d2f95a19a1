//! The demo's tools, and the dates that they tell.

use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;

use super::{Add, DemoServer, WordCount, date, rfc3339};

#[test]
fn dates_are_right_around_every_kind_of_leap_year() {
    for (days, expected) in [
        (0, (1970, 1, 1)),
        (58, (1970, 2, 28)),
        (59, (1970, 3, 1)),
        (789, (1972, 2, 29)),
        (11_016, (2000, 2, 29)),
        (11_017, (2000, 3, 1)),
        (19_722, (2023, 12, 31)),
        (47_540, (2100, 2, 28)),
        (47_541, (2100, 3, 1)),
    ] {
        assert_eq!(date(days), expected, "{days}");
    }
}

#[test]
fn a_time_is_written_as_rfc_3339_has_it() {
    assert_eq!(rfc3339(Duration::from_millis(951_868_799_999)), "2000-02-29T23:59:59Z");
}

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
