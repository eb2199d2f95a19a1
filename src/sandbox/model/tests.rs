//! What each line of a script means.

use super::*;
use crate::sandbox::spec;

fn tools() -> Tools {
    let body = br#"{"systemPrompt":"s","prompt":"p","tools":[{"kind":"local","name":"add"}]}"#;
    spec::read_run(body).unwrap().0.tools
}

#[track_caller]
fn check(script: &str, expected: &[&str]) {
    let show = |step| match step {
        Step::Say(text) => format!("say {text}"),
        Step::Call(call) => format!("call {} {}", call.name, call.args.get()),
    };
    let found: Vec<String> = steps(script, &tools()).map(show).collect();
    assert_eq!(found, expected);
}

#[test]
fn calls_keep_their_arguments_byte_for_byte() {
    check(
        "add {\"n\": 12345678901234567890.0, \"n\":1}\n  add\t{}  ",
        &["call add {\"n\": 12345678901234567890.0, \"n\":1}", "call add {}"],
    );
}

#[test]
fn line_that_is_no_call_is_said() {
    check("add [1]\nadd {\nadd", &["say add [1]", "say add {", "say add"]);
    check("sub {}\n\n hi ", &["say sub {}", "say ", "say  hi "]);
    check("", &[]);
}
