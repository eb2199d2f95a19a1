//! The place in which two texts differ, and how a person sees it.

use super::*;

#[test]
fn splice_is_whole_lines_where_that_costs_nothing() {
    let old = "a:\n  b: 1\n  d: 1\n";
    let new = "a:\n  b: 1\n  c: 1\n  d: 1\n";
    let splice = Splice::between(old, new);
    assert_eq!((splice.old.as_str(), splice.new.as_str()), ("", "  c: 1\n"));
    let back = Splice::between(new, old);
    assert_eq!((back.old.as_str(), back.new.as_str()), ("  c: 1\n", ""));
    assert_eq!(Splice::between("ä", "ö"), Splice { at: 0, old: "ä".into(), new: "ö".into() });
    assert_eq!(Splice::between("same", "same").old, "");
    let doubled = Splice::between("aa\n", "aaaa\n");
    assert_eq!((doubled.old.as_str(), doubled.new.as_str()), ("", "aa"));
}

#[test]
fn splice_within_a_line_is_a_whole_member() {
    let old = r#"{"a":{"d":1}}"#;
    let new = r#"{"a":{"c":{"x":1},"d":1}}"#;
    let splice = Splice::between(old, new);
    assert_eq!((splice.old.as_str(), splice.new.as_str()), ("", r#""c":{"x":1},"#));
    let back = Splice::between(new, old);
    assert_eq!((back.old.as_str(), back.new.as_str()), (r#""c":{"x":1},"#, ""));
    let splice = Splice::between(r#"["a"]"#, r#"["a","b"]"#);
    assert_eq!(splice.new, r#","b""#);
}

#[test]
fn change_is_shown_with_its_line_and_no_secret_of_lines_that_go_away() {
    let old = "a:\n  b: secret\n  c: 1\n";
    let splice = Splice::between(old, "a:\n  c: 1\n");
    let text = difference("f.yaml", old, &splice, |lines| {
        assert_eq!(lines, 2..3);
        vec!["  b: ***".to_owned()]
    });
    assert_eq!(text, "f.yaml:2\n-   b: ***\n");
}
