//! Hostile files end soon and without a panic.

use std::path::Path;

use proptest::prelude::*;

use super::parse;
use crate::config::{Config, Environment};

#[track_caller]
fn refused_soon(yaml: &str) {
    let start = tokio::time::Instant::now();
    assert!(parse(yaml).is_err());
    // A debug build on a busy machine is slow; an alias bomb would take hours.
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn aliases_of_aliases() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let list = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    refused_soon(&bomb);
}

#[test]
fn deep_nesting() {
    refused_soon(&"[".repeat(100_000));
    refused_soon(&"{a: ".repeat(10_000));
    refused_soon(&"- ".repeat(10_000));
    let block: String = (0..500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    refused_soon(&block);
}

#[test]
fn a_large_file() {
    refused_soon(&"#".repeat(2 << 20));
    let keys: String = (0..50_000).map(|n| format!("k{n}: 1\n")).collect();
    refused_soon(&keys);
}

#[test]
fn many_mistakes() {
    let entries: String = (0..2_000).map(|n| format!("  b{n}: {{comand: x}}\n")).collect();
    let errors = parse(&format!("upstream: {{sandbox: true}}\nmcp:\n{entries}")).unwrap_err();
    assert!(errors.problems.len() <= 50);
}

proptest! {
    #[test]
    fn any_text(text in any::<String>()) {
        let result = Config::parse(&text, Path::new("bridge.yaml"), &Environment::bare());
        prop_assert!(result.is_ok() || !result.unwrap_err().to_string().is_empty());
    }

    /// Text of the pieces that YAML and bridge.yaml are made of gets further than any text.
    #[test]
    fn any_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        let result = Config::parse(&pieces.concat(), Path::new("bridge.yaml"), &Environment::bare());
        if let Err(errors) = result {
            prop_assert!(!errors.problems.is_empty());
            prop_assert!(!errors.to_string().is_empty());
        }
    }
}

const PIECES: &[&str] = &[
    "upstream",
    "mcp",
    "a2a",
    "apps",
    "listen",
    "local",
    "sandbox",
    "credential",
    "command",
    "url",
    "token",
    "args",
    "env",
    "headers",
    "tls",
    "true",
    "null",
    "5m",
    "0.5",
    "-1",
    "1e999",
    "\"",
    "'",
    ": ",
    ": ",
    ": ",
    ":\n",
    "\n",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "&a ",
    "*a",
    "<<",
    "!!str ",
    "!!binary ",
    "|",
    ">",
    "#",
    "\t",
    "é",
    "${env:",
    "${file:/x}",
    "http://",
    "?",
    "%",
    "---",
];
