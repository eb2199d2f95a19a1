//! What is said, and whether lists of cures are whole. That all lists are, tests/it/tidy.rs checks.

use std::collections::BTreeSet;

use super::*;
use crate::model::answer::codes;

/// Whether `code` asks `cure` for the texts of `list`, for each and for no other.
#[track_caller]
pub fn check_cures(list: &str, code: &str) {
    let asked = code.split("cure(\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
    let known = list.lines().filter_map(|line| Some(line.split_once(": ")?.0));
    assert_eq!(asked.collect::<BTreeSet<_>>(), known.collect::<BTreeSet<_>>());
}

#[test]
fn a_value_is_not_read_as_a_place() {
    let said = filled("x: {a} of {b}, ${c} {d: {b}}", "x", &[("a", &"{b}"), ("b", &2)]);
    assert_eq!(said, "{b} of 2, ${c} {d: 2}");
}

#[test]
fn every_code_begins_a_sentence() {
    for code in codes::ALL {
        assert!(SENTENCES.contains(&format!(": {code}: ")), "{code}");
    }
}
