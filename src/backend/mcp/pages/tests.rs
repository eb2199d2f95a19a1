//! Pages of all shapes.

use std::time::Duration;

use serde_json::value::RawValue;

use super::{BadPages, MAX_ITEMS, MAX_PAGES, Next, Pages};

fn add(pages: &mut Pages, page: &str) -> Result<Next, BadPages> {
    pages.add(&RawValue::from_string(page.to_owned()).unwrap())
}

#[test]
fn tools_stay_as_they_are_and_in_order() {
    let mut pages = Pages::new("tools", false);
    let next = add(&mut pages, r#"{"tools":[{"b":1e400, "a":1}],"nextCursor":"x","y":0}"#);
    assert_eq!(next, Ok(Next::Page("x".to_owned())));
    assert_eq!(add(&mut pages, r#"{"tools":[7]}"#), Ok(Next::Done));
    let tools: Vec<String> = pages.items.iter().map(|tool| tool.get().to_owned()).collect();
    assert_eq!(tools, [r#"{"b":1e400, "a":1}"#, "7"]);
}

#[test]
fn the_end_has_several_spellings() {
    for end in
        [r#"{"tools":[]}"#, r#"{"tools":[],"nextCursor":null}"#, r#"{"tools":[],"nextCursor":""}"#]
    {
        assert_eq!(add(&mut Pages::new("tools", false), end), Ok(Next::Done), "{end}");
    }
}

#[test]
fn empty_cursor_of_2026_is_a_cursor() {
    let mut pages = Pages::new("tools", true);
    let first = r#"{"tools":["a","b"],"nextCursor":""}"#;
    assert_eq!(add(&mut pages, first), Ok(Next::Page(String::new())));
    assert_eq!(add(&mut pages, r#"{"tools":["c"]}"#), Ok(Next::Done));
    assert_eq!(pages.items.len(), 3);
}

#[test]
fn empty_cursor_that_brings_the_first_page_again_is_the_end() {
    for end in ["", r#","nextCursor":"""#] {
        let mut pages = Pages::new("tools", true);
        let first = r#"{"tools":["a","b"],"nextCursor":""}"#;
        assert_eq!(add(&mut pages, first), Ok(Next::Page(String::new())));
        assert_eq!(add(&mut pages, &format!(r#"{{"tools":["a","b"]{end}}}"#)), Ok(Next::Done));
        assert_eq!(pages.items.len(), 2);
    }
    // Another page with an empty cursor again has no end.
    let mut pages = Pages::new("tools", true);
    assert_eq!(
        add(&mut pages, r#"{"tools":["a"],"nextCursor":""}"#),
        Ok(Next::Page(String::new()))
    );
    assert_eq!(add(&mut pages, r#"{"tools":["b"],"nextCursor":""}"#), Ok(Next::Cut));
}

#[test]
fn null_list_is_empty() {
    let mut pages = Pages::new("tools", false);
    assert_eq!(add(&mut pages, r#"{"tools":null}"#), Ok(Next::Done));
    assert!(pages.items.is_empty());
}

#[test]
fn a_circle_is_seen() {
    let mut pages = Pages::new("tools", false);
    let page = |cursor| format!(r#"{{"tools":[],"nextCursor":"{cursor}"}}"#);
    assert_eq!(add(&mut pages, &page("a")), Ok(Next::Page("a".to_owned())));
    assert_eq!(add(&mut pages, &page("b")), Ok(Next::Page("b".to_owned())));
    assert_eq!(add(&mut pages, &page("a")), Ok(Next::Cut));
}

#[test]
fn beyond_the_limits_what_came_before_is_kept() {
    let mut pages = Pages::new("tools", false);
    for number in 1..MAX_PAGES {
        let next = add(&mut pages, &format!(r#"{{"tools":[],"nextCursor":"{number}"}}"#));
        assert!(matches!(next, Ok(Next::Page(_))));
    }
    assert_eq!(add(&mut pages, r#"{"tools":[],"nextCursor":"end"}"#), Ok(Next::Cut));

    let many = vec!["0"; MAX_ITEMS].join(",");
    assert_eq!(
        add(&mut Pages::new("tools", false), &format!(r#"{{"tools":[{many}]}}"#)),
        Ok(Next::Done)
    );
    let page = format!(r#"{{"tools":[{many},0]}}"#);
    let mut pages = Pages::new("tools", false);
    assert_eq!(add(&mut pages, &page), Ok(Next::Cut));
    assert_eq!(pages.items.len(), MAX_ITEMS);

    let mut pages = Pages::new("tools", false);
    let large = format!(r#"{{"tools":["a","{}","b"]}}"#, "x".repeat(33 * 1024 * 1024));
    assert_eq!(add(&mut pages, &large), Ok(Next::Cut));
    assert_eq!(pages.items.len(), 1);
}

#[test]
fn other_shapes_are_errors() {
    for page in ["[]", "{}", r#"{"tools":{}}"#, r#"{"tools":"a"}"#] {
        assert_eq!(
            add(&mut Pages::new("tools", false), page),
            Err(BadPages::NoItems("tools")),
            "{page}"
        );
    }
    let page = r#"{"tools":[],"nextCursor":5}"#;
    assert_eq!(add(&mut Pages::new("tools", false), page), Ok(Next::BadCursor));
}

#[test]
fn ttl_is_the_shortest_and_missing_once_a_page_has_none() {
    let ttl = |pages: &[&str]| {
        let mut list = Pages::new("tools", true);
        for page in pages {
            list.add(&RawValue::from_string((*page).to_owned()).unwrap()).unwrap();
        }
        list.ttl
    };
    let long = r#"{"tools":[],"ttlMs":60000,"nextCursor":"a"}"#;
    assert_eq!(ttl(&[long]), Some(Duration::from_secs(60)));
    let short = r#"{"tools":[],"ttlMs":40000}"#;
    assert_eq!(ttl(&[long, short]), Some(Duration::from_secs(40)));
    assert_eq!(ttl(&[long, r#"{"tools":[]}"#]), None);
    for bad in [r#"{"tools":[],"ttlMs":-1}"#, r#"{"tools":[],"ttlMs":"long"}"#] {
        assert_eq!(ttl(&[bad]), None, "{bad}");
    }
}
