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
        Step::Sleep(duration) => format!("sleep {duration:?}"),
        Step::Event { kind, data } => format!("event {kind} {}", data.get()),
        Step::Fail(message) => format!("fail {message}"),
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
fn what_is_no_call_is_said() {
    check("add [1]\nadd {\nadd", &["say add [1]", "say add {", "say add"]);
    check("sub {}\n\n hi ", &["say sub {}", "say ", "say  hi "]);
    check("", &[]);
}

#[test]
fn directives() {
    check("!sleep 250ms\n!sleep 2m", &["sleep 250ms", "sleep 120s"]);
    check("!sleep soon\n!sleep 1", &["say !sleep soon", "say !sleep 1"]);
    check("!fail out of luck", &["fail out of luck"]);
    check(r#"!event {"type":"x","data":{"a": 1.0}}"#, &[r#"event x {"a": 1.0}"#]);
    check(r#"!event {"type":"x"}"#, &["event x {}"]);
    // A run ends once, and a type stands on one line.
    check(r#"!event {"type":"result"}"#, &[r#"say !event {"type":"result"}"#]);
    check(r#"!event {"type":"a\nb"}"#, &[r#"say !event {"type":"a\nb"}"#]);
}
