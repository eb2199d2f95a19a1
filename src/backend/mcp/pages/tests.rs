//! Pages of all shapes.

use std::time::Duration;

use serde_json::value::RawValue;

use super::{BadPages, MOST_ITEMS, MOST_PAGES, Next, Pages};

fn add(pages: &mut Pages, page: &str) -> Result<Next, BadPages> {
    pages.add(&RawValue::from_string(page.to_owned()).unwrap())
}

#[test]
fn tools_stay_as_they_are_and_in_order() {
    let mut pages = Pages::of("tools");
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
        assert_eq!(add(&mut Pages::of("tools"), end), Ok(Next::Done), "{end}");
    }
}

#[test]
fn a_circle_is_seen() {
    let mut pages = Pages::of("tools");
    let page = |cursor| format!(r#"{{"tools":[],"nextCursor":"{cursor}"}}"#);
    assert_eq!(add(&mut pages, &page("a")), Ok(Next::Page("a".to_owned())));
    assert_eq!(add(&mut pages, &page("b")), Ok(Next::Page("b".to_owned())));
    assert_eq!(add(&mut pages, &page("a")), Ok(Next::Cut));
}

#[test]
fn beyond_the_limits_what_came_before_is_kept() {
    let mut pages = Pages::of("tools");
    for number in 1..MOST_PAGES {
        let next = add(&mut pages, &format!(r#"{{"tools":[],"nextCursor":"{number}"}}"#));
        assert!(matches!(next, Ok(Next::Page(_))));
    }
    assert_eq!(add(&mut pages, r#"{"tools":[],"nextCursor":"end"}"#), Ok(Next::Cut));

    let many = vec!["0"; MOST_ITEMS].join(",");
    assert_eq!(add(&mut Pages::of("tools"), &format!(r#"{{"tools":[{many}]}}"#)), Ok(Next::Done));
    let page = format!(r#"{{"tools":[{many},0]}}"#);
    let mut pages = Pages::of("tools");
    assert_eq!(add(&mut pages, &page), Ok(Next::Cut));
    assert_eq!(pages.items.len(), MOST_ITEMS);

    let mut pages = Pages::of("tools");
    let large = format!(r#"{{"tools":["a","{}","b"]}}"#, "x".repeat(33 * 1024 * 1024));
    assert_eq!(add(&mut pages, &large), Ok(Next::Cut));
    assert_eq!(pages.items.len(), 1);
}

#[test]
fn other_shapes_are_errors() {
    for page in ["[]", "{}", r#"{"tools":{}}"#, r#"{"tools":null}"#] {
        assert_eq!(add(&mut Pages::of("tools"), page), Err(BadPages::NoItems("tools")), "{page}");
    }
    let page = r#"{"tools":[],"nextCursor":5}"#;
    assert_eq!(add(&mut Pages::of("tools"), page), Err(BadPages::BadCursor));
}

#[test]
fn ttl_is_the_shortest_and_missing_once_a_page_has_none() {
    let ttl = |pages: &[&str]| {
        let mut list = Pages::of("tools");
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
