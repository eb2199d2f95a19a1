//! The entry that a command line stands for.

use clap::Parser as _;

use super::*;

fn entry(args: &[&str]) -> Outcome<Value> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }
    let line = Line::try_parse_from([&["add"], args].concat());
    command_line_entry(&line.map_err(|error| Failure::Usage(error.to_string()))?.settings)
}

#[test]
fn command_line_becomes_an_entry() {
    let program =
        entry(&["fs", "-e", "LEVEL=a=b", "--", "npx", "-y", "pkg", "--", "--yes"]).unwrap();
    let expected = json!({
        "command": "npx", "args": ["-y", "pkg", "--", "--yes"], "env": {"LEVEL": "a=b"},
    });
    assert_eq!(program, expected);
    let server = entry(&["x", "https://x.test/mcp", "--header", "A: b: c", "--yes"]).unwrap();
    assert_eq!(server, json!({ "url": "https://x.test/mcp", "headers": {"A": "b: c"} }));
    let here = entry(&["x", "--", "./server.py"]).unwrap();
    assert!(here["command"].as_str().unwrap().starts_with('/'), "{here}");
}

#[test]
fn wrong_command_lines_are_usage_errors_with_their_cure() {
    for (args, part) in [
        (&["x", "npx"][..], "behind `--`"),
        (&["x"], "required"),
        (&["x", "https://x.test", "-e", "A=b"], "a program"),
        (&["x", "--header", "A: b", "--", "cat"], "URL"),
        (&["x", "-e", "A", "--", "cat"], "KEY=VALUE"),
        (&["x", "https://x.test", "--header", "word"], "Name: value"),
    ] {
        match entry(args) {
            Err(Failure::Usage(why)) => assert!(why.contains(part), "{args:?}: {why}"),
            other => panic!("{args:?}: {other:?}"),
        }
    }
}
