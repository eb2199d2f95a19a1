//! What is refused, and where the message says it is.

use super::*;

fn run(text: &str) -> Result<(Spec, Turn), String> {
    read_run(text.as_bytes())
}

/// A run with `members` besides what every run needs.
fn with(members: &str) -> Result<(Spec, Turn), String> {
    run(&format!(r#"{{"systemPrompt":"s","prompt":"p",{members}}}"#))
}

#[track_caller]
fn refused(result: Result<(Spec, Turn), String>, start: &str) {
    let message = result.unwrap_err();
    assert!(message.starts_with(start), "{message:?} does not start with {start:?}");
}

#[track_caller]
fn bad(members: &str, start: &str) {
    refused(with(members), start);
}

fn local(name: &str) -> String {
    format!(r#"{{"kind":"local","name":"{name}"}}"#)
}

fn catalog(count: usize) -> String {
    let tool = |index| format!(r#"{{"name":"t{index}","inputSchema":{{}}}}"#);
    let tools: Vec<String> = (0..count).map(tool).collect();
    format!(r#""tools":[{{"kind":"mcp_local","name":"fs","tools":[{}]}}]"#, tools.join(","))
}

#[test]
fn bodies() {
    refused(run("[]"), "the body: the value is not of type");
    refused(run("{"), "the body must be one JSON object");
    refused(run(r#"{"systemPrompt":"s"}"#), "`prompt` or `messages` is required");
    refused(run(r#"{"systemPrompt":"s","prompt":"p","messages":[]}"#), "send `prompt` or");
    refused(run(r#"{"prompt":"p"}"#), "a run needs `systemPrompt`");
    refused(run(r#"{"systemPrompt":"","prompt":"p"}"#), "a run needs `systemPrompt`");
    run(r#"{"agentId":"a","prompt":"p"}"#).unwrap();
    run(r#"{"messages":[{"role":"system","content":"x"},{"role":"user","content":"p"}]}"#).unwrap();
}

#[test]
fn last_of_two_equal_keys_counts() {
    let (_, turn) = run(r#"{"systemPrompt":"s","prompt":"a","prompt":"b"}"#).unwrap();
    assert_eq!(turn.script(), "b");
}

#[test]
fn names_of_tools() {
    with(&format!(r#""tools":[{}]"#, local(&"x".repeat(64)))).unwrap();
    bad(
        &format!(r#""tools":[{}]"#, local(&"x".repeat(65))),
        "/tools/0/name: the value does not match",
    );
    bad(
        &format!(r#""tools":[{},{}]"#, local("a"), local("b-c")),
        "/tools/1/name: the value does not match",
    );
    bad(
        &format!(r#""tools":[{},{}]"#, local("a"), local("a")),
        "/tools: two tools of this spec are called \"a\"",
    );
    let twice = r#""tools":[{"kind":"local","name":"t"},
        {"kind":"mcp_local","name":"fs","tools":[{"name":"u"},{"name":"t"}]}]"#;
    bad(twice, "/tools: two tools of this spec are called \"t\"");
}

#[test]
fn shapes_of_tools() {
    bad(r#""tools":{}"#, "/tools: the value is not");
    bad(r#""tools":null"#, "/tools: the value is not");
    bad(r#""tools":[1]"#, "/tools/0: the value is not");
    bad(r#""tools":[{"name":"x"}]"#, "/tools/0: \"kind\" is a required");
    bad(r#""tools":[{"kind":"magic","name":"x"}]"#, "/tools/0/kind: the value is not one of");
    bad(r#""tools":[{"kind":"local"}]"#, "/tools/0: \"name\" is a required");
    bad(
        r#""tools":[{"kind":"local","name":"x","readOnly":1}]"#,
        "/tools/0/readOnly: the value is not",
    );
    bad(r#""tools":[{"kind":"a2a_local","name":"hr"}]"#, "/tools/0: \"agentCard\" is a required");
    let card = r#""tools":[{"kind":"a2a_local","name":"hr","agentCard":[]}]"#;
    bad(card, "/tools/0/agentCard: the value is not");
    bad(r#""tools":[{"kind":"mcp","name":"gh"}]"#, "/tools/0: \"url\" is a required");
    bad(
        r#""tools":[{"kind":"mcp","name":"gh","url":"gh"}]"#,
        "/tools/0/url: the value does not match",
    );
    bad(&catalog(0), "/tools/0/tools: the value has less than 1 item");
    bad(&catalog(65), "/tools/0/tools: the value has more than 64 items");
    with(&catalog(64)).unwrap();
}

#[test]
fn metadata() {
    let many: Vec<String> = (0..17).map(|index| format!(r#""k{index}":"v""#)).collect();
    bad(
        &format!(r#""metadata":{{{}}}"#, many.join(",")),
        "/metadata: the value has more than 16 properties",
    );
    bad(r#""metadata":{"a b":"v"}"#, "/metadata: \"a b\" does not match");
    bad(r#""metadata":{"a":1}"#, "/metadata/a: the value is not");
    bad(
        &format!(r#""metadata":{{"a":"{}"}}"#, "é".repeat(257)),
        "/metadata/a: the value is longer than 256",
    );
    with(&format!(r#""metadata":{{"a":"{}"}}"#, "é".repeat(256))).unwrap();
}

#[test]
fn knobs() {
    bad(r#""outputSchema":{}"#, "/outputSchema: \"schema\" is a required");
    bad(r#""outputSchema":{"schema":[]}"#, "/outputSchema/schema: the value is not");
    bad(
        r#""outputSchema":{"schema":{},"name":"a b"}"#,
        "/outputSchema/name: the value does not match",
    );
    let large = format!(r#""outputSchema":{{"schema":{{"x":"{}"}}}}"#, "y".repeat(32_000));
    bad(&large, "/outputSchema: has 32019 bytes, 32000 fit");
    bad(r#""reasoningLevel":"max""#, "/reasoningLevel: the value is");
    bad(r#""reasoningLevel":101"#, "/reasoningLevel: the value is");
    bad(r#""reasoningLevel":1.5"#, "/reasoningLevel: the value is");
    bad(r#""loopDetection":true"#, "/loopDetection: ");
    bad(r#""toolBudgets":{"a":{}}"#, "/toolBudgets/a: \"maxCalls\" is a required");
    bad(r#""plan":"maybe""#, "/plan: the value is not one of");
    let all = r#""outputSchema":{"schema":{},"enforcement":"strict"},"reasoningLevel":50,
        "loopDetection":false,"toolBudgets":{"a":{"maxCalls":0}},"supervisor":{"interval":5},
        "plan":{"mode":"auto","steps":["x"]},"budgets":{"maxToolTurns":32},"unknown":[]"#;
    with(all).unwrap();
}

#[test]
fn messages() {
    let of = |messages: &str| run(&format!(r#"{{"systemPrompt":"s","messages":[{messages}]}}"#));
    let must = "/messages: the last message that is not `system` must be the `user`'s";
    refused(of(""), must);
    refused(of(r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#), must);
    refused(of(r#"{"role":"tool","content":"a"}"#), "/messages/0/role: the value is not one of");
    refused(of(r#"{"role":"user"}"#), "/messages/0: \"content\" is a required");
    let long = "x".repeat(200_001);
    let long = format!(r#"{{"role":"user","content":"{long}"}}"#);
    refused(of(&long), "/messages/0/content: the value is longer than 200000");
    let many = vec![r#"{"role":"user","content":"a"}"#; 201].join(",");
    refused(of(&many), "/messages: the value has more than 200 items");
    let (_, turn) = of(r#"{"role":"user","content":"a"},{"role":"system","content":"b"}"#).unwrap();
    assert_eq!(turn.script(), "a");
}

#[test]
fn attachments() {
    let of = |files: &str| {
        run(&format!(
            r#"{{"systemPrompt":"s","messages":[
                {{"role":"user","content":"a","attachments":[{{"type":"input_file","size":3}}]}},
                {{"role":"user","content":"b","attachments":[{files}]}}]}}"#
        ))
    };
    let file = |mime: &str, data: &str| {
        format!(r#"{{"type":"input_file","mimeType":"{mime}","filename":"f","data":"{data}"}}"#)
    };
    let at = "/messages/1/attachments";
    refused(of(&file("application/zip", "")), &format!("{at}/0/mimeType: the value is not"));
    refused(of(&file("text/plain", "?")), &format!("{at}/0/data: the value does not match"));
    refused(
        of(&vec![file("text/plain", ""); 21].join(",")),
        &format!("{at}: the value has more than 20 items"),
    );
    let large = file("text/plain", &"AAAA".repeat(1_666_668));
    refused(of(&large), &format!("{at}/0/data: the value is longer than 6666668"));
    let link = r#"{"type":"input_file_url","url":"http://example.com/a.png"}"#;
    refused(of(link), &format!("{at}/0/url: the value does not match \"^https:"));
    of(&file("text/plain", "aGkh")).unwrap();
}

#[test]
fn a_session_has_no_input_and_needs_an_identity() {
    let session = |text: &str| read_session(text.as_bytes());
    assert!(session(r#"{"systemPrompt":"s","prompt":"p"}"#).unwrap_err().starts_with("/prompt: "));
    assert_eq!(session("{}").unwrap_err(), "a session needs `systemPrompt` or `agentId`");
}

#[test]
fn a_message_replaces_what_it_carries_for_its_run() {
    let session = format!(
        r#"{{"systemPrompt":"s","tools":[{}],"metadata":{{"a":"1","b":"1"}},"plan":true}}"#,
        local("old")
    );
    let session = read_session(session.as_bytes()).unwrap();
    let message = |text: &str| session.for_message(read_message(text.as_bytes()).unwrap()).unwrap();

    let (plain, _) = message(r#"{"prompt":"p"}"#);
    assert!(plain.tools.get("old").is_some());
    assert_eq!(plain.raw.get(), session.raw.get());

    let (own, _) = message(&format!(
        r#"{{"prompt":"p","tools":[{}],"metadata":{{"b":"2"}},"plan":false}}"#,
        local("new")
    ));
    assert!(own.tools.get("old").is_none() && own.tools.get("new").is_some());
    assert_eq!((own.metadata["a"].as_str(), own.metadata["b"].as_str()), ("1", "2"));
    let raw = r#"{"systemPrompt":"s","tools":[{"kind":"local","name":"new"}],"metadata":{"b":"2"},"plan":false}"#;
    assert_eq!(own.raw.get(), raw);
}

#[test]
fn the_spec_is_kept_as_it_was_sent_without_the_input() {
    let text = r#"{"prompt":"p","big": 12345678901234567890123, "systemPrompt":"s","x":1.0}"#;
    let (spec, _) = run(text).unwrap();
    assert_eq!(spec.raw.get(), r#"{"big":12345678901234567890123,"systemPrompt":"s","x":1.0}"#);
}

#[test]
fn tool_that_mantyx_would_run_is_allowed_and_cannot_be_called() {
    let (spec, _) = with(
        r#""tools":[{"kind":"mantyx_plugin","name":"web"},
            {"kind":"mcp","name":"gh","url":"https://a.b"}]"#,
    )
    .unwrap();
    assert!(spec.tools.get("web").is_none() && spec.tools.get("gh_x").is_none());
}
