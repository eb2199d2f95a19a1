//! Whether the code and the files of sentences name the same ones, with the same values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use regex::Regex;

use super::*;
use crate::model::answer::codes;

/// The text of all files of code below a directory of the repository.
pub fn code(below: &str) -> String {
    let mut code = String::new();
    let mut left = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(below)];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code += &fs::read_to_string(&path).unwrap();
        }
    }
    code
}

/// Whether `code` asks `cure` for the texts of `list`, for each and for no other.
#[track_caller]
pub fn check_cures(list: &str, code: &str) {
    let asked = code.split("cure(\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
    let known = list.lines().filter_map(|line| Some(line.split_once(": ")?.0));
    assert_eq!(asked.collect::<BTreeSet<_>>(), known.collect::<BTreeSet<_>>());
}

/// Whether the calls of one of the functions `by` in `code` name the sentences of `list`, each and no
/// other, with the values for its places.
#[track_caller]
pub fn check_sentences(list: &str, code: &str, by: &str) {
    let places = |text: &str| -> BTreeSet<String> {
        text.split(['{', '}']).skip(1).step_by(2).map(str::to_owned).collect()
    };
    let known = list.lines().map(|line| line.split_once(": ").unwrap());
    let known: Vec<_> = known.map(|(name, text)| (name.to_owned(), places(text))).collect();
    let one_use = Regex::new(&format!(r#"\b(?:{by})\(\s*"(\w+)",\s*&\[([^\]]*)\]"#)).unwrap();
    let one_key = Regex::new(r#"\(\s*"(\w+)","#).unwrap();
    let used = one_use.captures_iter(code).map(|found| {
        let keys = one_key.captures_iter(&found[2]).map(|key| key[1].to_owned());
        (found[1].to_owned(), keys.collect())
    });
    let used: BTreeMap<String, BTreeSet<String>> = used.collect();
    assert_eq!(used, known.iter().cloned().collect());
    assert_eq!(used.len(), known.len(), "no name is in the file twice");
}

#[test]
fn the_code_says_the_sentences_of_the_list_and_no_others() {
    check_sentences(SENTENCES, &code("src"), "sentence");
}

#[test]
fn a_value_is_not_read_as_a_place() {
    let said = filled("x: {a} of {b}, {c}", "x", &[("a", &"{b}"), ("b", &2)]);
    assert_eq!(said, "{b} of 2, c");
}

#[test]
fn every_code_begins_a_sentence() {
    for code in codes::ALL {
        assert!(SENTENCES.contains(&format!(": {code}: ")), "{code}");
    }
}
