//! Windows of a history.

use super::*;

fn bounds(query: &str, forgotten: u64, total: u64) -> (u64, u64) {
    Window::read(query).unwrap().bounds(forgotten, total)
}

#[test]
fn windows() {
    assert_eq!(bounds("", 0, 300), (0, 300));
    assert_eq!(bounds("full=1&lastMessages=2", 0, 300), (0, 300));
    assert_eq!(bounds("lastMessages=2", 0, 4), (2, 4));
    assert_eq!(bounds("lastMessages=2&beforeSeq=3", 0, 4), (0, 2));
    assert_eq!(bounds("beforeSeq=201", 0, 300), (100, 200));
    assert_eq!(bounds("beforeSeq=1", 0, 300), (0, 0));
    assert_eq!(bounds("beforeSeq=5", 10, 300), (10, 10));
    assert!(Window::read("lastMessages=501").is_err() && Window::read("beforeSeq=0").is_err());
}
