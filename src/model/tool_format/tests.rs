//! The forms of each API, as its clients' types have them.

use super::*;
use crate::model::answer::files::{Attachments, DescribedFile};

const SCHEMA: &str = r#"{"type": "object", "properties": {"n": {"maximum": 1e400}}}"#;

fn tools(format: Format, tools: &[&str]) -> (Value, Vec<String>) {
    let (text, notes) = format.tools(tools.iter().map(|&tool| tool.to_owned()), "");
    // A schema may have numbers that no reader here keeps.
    (serde_json::from_str(&text.replace("1e400", "1")).unwrap(), notes)
}

fn tool(schema: &str) -> String {
    format!(r#"{{"name":"x","title":"X","description":"Does \"x\".","inputSchema":{schema}}}"#)
}

#[test]
fn each_api_has_its_own_definitions_and_schemas_stay_as_they_are() {
    let definition = tool(SCHEMA);
    let schema: Value = serde_json::from_str(&SCHEMA.replace("1e400", "1")).unwrap();
    let text = "Does \"x\".";
    for (format, expected) in [
        (
            Format::Chat,
            json!([{ "type": "function", "function": {
                "name": "x", "description": text, "parameters": schema,
            } }]),
        ),
        (
            Format::Responses,
            json!([{
                "type": "function", "strict": false, "name": "x", "description": text,
                "parameters": schema,
            }]),
        ),
        (Format::Anthropic, json!([{ "name": "x", "description": text, "input_schema": schema }])),
        (
            Format::Gemini,
            json!([{ "functionDeclarations": [
                { "name": "x", "description": text, "parametersJsonSchema": schema },
            ] }]),
        ),
        (Format::Mcp, json!([serde_json::from_str::<Value>(&tool(&schema.to_string())).unwrap()])),
    ] {
        assert_eq!(tools(format, &[&definition]), (expected, vec![]), "{format:?}");
        let (written, _) = format.tools([definition.clone()].into_iter(), "");
        assert!(written.contains(SCHEMA), "{format:?}: {written}");
        assert_eq!(tools(format, &[]), (json!([]), vec![]), "{format:?}");
    }
}

#[test]
fn runtimes_that_need_a_description_get_the_name_where_there_is_none() {
    for text in ["", r#""description":"","#] {
        let bare = format!(r#"{{"name":"x",{text}"inputSchema":{SCHEMA}}}"#);
        for format in [Format::Hsafa, Format::Claude] {
            assert_eq!(tools(format, &[&bare]).0[0]["description"], "x");
        }
    }
}

#[test]
fn the_parts_that_an_api_refuses_are_changed_and_noted() {
    let combined = tool(r#"{"type":"object","anyOf":[{"required":["a"]}],"enum":[{}]}"#);
    struct Case {
        format: Format,
        key: &'static str,
        schema: Value,
        count: usize,
    }
    for Case { format, key, schema, count } in [
        Case {
            format: Format::Chat,
            key: "parameters",
            schema: json!({ "type": "object", "properties": {} }),
            count: 3,
        },
        Case {
            format: Format::Responses,
            key: "parameters",
            schema: json!({ "type": "object", "properties": {} }),
            count: 3,
        },
        Case {
            format: Format::Anthropic,
            key: "input_schema",
            schema: json!({ "type": "object", "enum": [{}] }),
            count: 1,
        },
        Case {
            format: Format::Gemini,
            key: "parametersJsonSchema",
            schema: json!({ "type": "object", "anyOf": [{ "required": ["a"] }], "enum": [{}] }),
            count: 0,
        },
    ] {
        let (made, notes) = tools(format, &[&combined]);
        let one = match format {
            Format::Chat => &made[0]["function"],
            Format::Gemini => &made[0]["functionDeclarations"][0],
            _ => &made[0],
        };
        assert_eq!((&one[key], notes.len()), (&schema, count), "{format:?}: {notes:?}");
    }
    let long = format!(
        r#"{{"name":"x","description":"{}","inputSchema":{SCHEMA}}}"#,
        "é".repeat(CHAT_DESCRIPTION + 1)
    );
    let (made, notes) = tools(Format::Chat, &[&long]);
    let length = made[0]["function"]["description"].as_str().unwrap().chars().count();
    assert_eq!((length, notes.len()), (CHAT_DESCRIPTION, 1));
    assert_eq!(tools(Format::Responses, &[&long]).1, Vec::<String>::new());
}

#[test]
fn keyword_that_is_of_no_draft_is_left_out_and_noted_with_its_place() {
    struct Case {
        schema: &'static str,
        expected: Value,
        place: &'static str,
    }
    for Case { schema, expected, place } in [
        Case {
            schema: r#"{"type":"object","properties":{"n":{"minimum":0,"exclusiveMinimum":true}}}"#,
            expected: json!({ "type": "object", "properties": { "n": { "minimum": 0 } } }),
            place: "/properties/n/exclusiveMinimum",
        },
        Case {
            schema: r#"{"type":"object","properties":{"a/b":{"enum":null,"pattern":"("}},"required":null}"#,
            expected: json!({ "type": "object", "properties": { "a/b": {} } }),
            place: "/properties/a~1b/pattern",
        },
        Case {
            schema: r#"{"type":"object","properties":{"n":{"anyOf":[{"type":"strin"},7]}}}"#,
            expected: json!({ "type": "object", "properties": { "n": { "anyOf": [{}, {}] } } }),
            place: "/properties/n/anyOf/1",
        },
    ] {
        for format in [Format::Chat, Format::Responses, Format::Anthropic, Format::Gemini] {
            let (made, notes) = tools(format, &[&tool(schema)]);
            let (one, key) = match format {
                Format::Chat => (&made[0]["function"], "parameters"),
                Format::Responses => (&made[0], "parameters"),
                Format::Gemini => (&made[0]["functionDeclarations"][0], "parametersJsonSchema"),
                _ => (&made[0], "input_schema"),
            };
            assert_eq!(one[key], expected, "{format:?} {schema}");
            assert!(notes.len() == 1 && notes[0].contains(place), "{format:?}: {notes:?}");
        }
        let (text, notes) = Format::Mcp.tools([tool(schema)].into_iter(), "");
        assert!(text.contains(schema) && notes.is_empty(), "{text}");
    }
    // Look-around is of JavaScript, though the bridge cannot check it.
    let look = r#"{"type":"object","properties":{"n":{"pattern":"^(?=a)"}}}"#;
    assert_eq!(tools(Format::Anthropic, &[&tool(look)]).1, Vec::<String>::new());
}

#[test]
fn half_of_a_character_costs_no_description() {
    let tool =
        r#"{"name":"x","description":"a\ud800b","inputSchema":{"type":"object","title":"\ud800"}}"#;
    let (made, _) = tools(Format::Anthropic, &[tool]);
    let description = made[0]["description"].as_str().unwrap();
    assert!(description.starts_with('a') && description.ends_with('b'), "{description}");
    assert_eq!(made[0]["input_schema"]["title"], "\u{fffd}");
}

#[test]
fn gemini_gets_no_name_that_begins_with_a_digit() {
    for (own, shown) in [("a", "a"), ("_a", "_a"), ("3d", "_3d"), ("_3d", "__3d")] {
        let definition = format!(r#"{{"name":"{own}","inputSchema":{SCHEMA}}}"#);
        let (made, notes) = tools(Format::Gemini, &[&definition]);
        assert_eq!(made[0]["functionDeclarations"][0]["name"], shown);
        assert_eq!(notes.is_empty(), own == shown);
        let call = read(Format::Gemini, &format!(r#"{{"name":"{shown}"}}"#));
        assert_eq!(call.name, own);
        let result = result(Format::Gemini, &call, &Answer::text("hi"));
        assert_eq!(result["functionResponse"]["name"], shown);
    }
}

fn read(format: Format, body: &str) -> Call {
    format.read(body).unwrap().remove(0)
}

fn result(format: Format, call: &Call, answer: &Answer) -> Value {
    serde_json::from_str(&format.result(call, answer)).unwrap()
}

/// A call of each API, with `args` as they stand there.
fn calls(args: &str) -> [(Format, String); 5] {
    let text = json!(args);
    [
        (
            Format::Chat,
            format!(
                r#"{{"id":"1","type":"function","function":{{"name":"x","arguments":{text}}}}}"#
            ),
        ),
        (
            Format::Responses,
            format!(
                r#"{{"id":"fc","call_id":"1","type":"function_call","name":"x","arguments":{text}}}"#
            ),
        ),
        (Format::Anthropic, format!(r#"{{"id":"1","type":"tool_use","name":"x","input":{args}}}"#)),
        (Format::Gemini, format!(r#"{{"id":"1","name":"x","args":{args}}}"#)),
        (Format::Gemini, format!(r#"{{"functionCall":{{"id":"1","name":"x","args":{args}}}}}"#)),
    ]
}

#[test]
fn calls_are_read_as_they_came_one_or_a_list() {
    let args = r#"{"n": 12345678901234567890123, "n": 1}"#;
    for (format, body) in calls(args) {
        for body in [body.clone(), format!(" [{body}] ")] {
            let call = read(format, &body);
            let parts = (call.tool_use.as_str(), &*call.name, call.args.get());
            assert_eq!(parts, ("1", "x", args), "{format:?}");
        }
        let two = format.read(&format!("[{body},{body}]")).unwrap();
        assert_eq!(two.len(), 2, "ids need not differ");
        let many = vec![body.as_str(); MAX_CALLS + 1].join(",");
        assert!(format.read(&format!("[{many}]")).is_err());
        assert!(format.read("[]").is_err());
    }
    for (format, body) in calls("null") {
        assert_eq!(read(format, &body).args.get(), "{}", "{format:?} {body}");
    }
    let null = r#"{"id":"1","function":{"name":"x","arguments":null}}"#;
    assert_eq!(read(Format::Chat, null).args.get(), "{}");
    let blank = r#"{"id":"1","function":{"name":"x","arguments":" "}}"#;
    assert_eq!(read(Format::Chat, blank).args.get(), "{}");
    let broken = r#"{"id":"1","function":{"name":"x","arguments":"{\"a\":"}}"#;
    assert_eq!(read(Format::Chat, broken).args.get(), r#""{\"a\":""#);
}

#[test]
fn a_member_that_stands_twice_is_refused() {
    for (format, body) in calls("{}") {
        for key in ["name", "arguments", "input", "args", "type", "function", "functionCall"] {
            let whole = format!(r#""{key}":"#);
            if !body.contains(&whole) {
                continue;
            }
            let twice = body.replacen(&whole, &format!(r#"{whole}0,{whole}"#), 1);
            let why = format.read(&twice).expect_err(&twice);
            assert_eq!(why, format!("`{key}` of the call stands twice."));
        }
    }
    let args = r#"[{"name":"x","args":{"n":1},"args":{"n":2}}]"#;
    assert_eq!(Format::Gemini.read(args).unwrap_err(), "`args` of [0] stands twice.");
}

#[test]
fn a_refusal_names_the_place() {
    struct Case {
        format: Format,
        body: &'static str,
        place: &'static str,
    }
    let cases = [
        Case {
            format: Format::Chat,
            body: r#"[{"id":"1","function":{"name":7}}]"#,
            place: "`name` of [0]",
        },
        Case {
            format: Format::Chat,
            body: r#"{"function":{"name":"x"}}"#,
            place: "`id` of the call",
        },
        Case { format: Format::Chat, body: r#"[{"type":"custom"}]"#, place: "`type` of [0]" },
        Case {
            format: Format::Responses,
            body: r#"{"id":"1","name":"x"}"#,
            place: "`call_id` of the call",
        },
        Case {
            format: Format::Anthropic,
            body: r#"[{"id":"1","name":"x","input":{}},"x"]"#,
            place: "[1]",
        },
        Case {
            format: Format::Anthropic,
            body: r#"{"type":"text","text":"x"}"#,
            place: "`type` of the call",
        },
        Case { format: Format::Gemini, body: "7", place: "`name` of the call" },
        Case { format: Format::Anthropic, body: "{\"id\":", place: "no JSON" },
        Case { format: Format::Event, body: r#"{"toolUseId":"1"}"#, place: "name" },
        Case {
            format: Format::Event,
            body: r#"{"toolUseId":"1","name":"x","kind":"other"}"#,
            place: "`kind`",
        },
        Case { format: Format::Mcp, body: r#"{"name":"x"}"#, place: "/mcp" },
    ];
    for Case { format, body, place } in cases {
        let why = format.read(body).expect_err(body);
        assert!(why.contains(place), "{body}: {why}");
    }
}

/// An answer with files of these types.
fn with_files(types: &[&str]) -> Answer {
    let mut files = Attachments::default();
    let lines = types.iter().map(|&mime_type| {
        let (name, mime_type) = (None, Some(mime_type));
        files.add(DescribedFile { kind: "file", name, mime_type, data: "aGk=", twice: false })
    });
    let lines: Vec<_> = lines.collect();
    Answer::Result { text: lines.join("\n"), files: files.files }
}

#[test]
fn results_have_the_form_of_the_api() {
    let (good, bad) = (Answer::text("hi"), Answer::Error("no".to_owned()));
    let of_gemini = |said: Value| json!({ "functionResponse": { "id": "1", "name": "x", "response": said, "parts": [] } });
    for (format, body) in calls("{}") {
        let call = read(format, &body);
        let expected = |text: &str, error: &str, is_error: bool| match format {
            Format::Chat => json!({ "role": "tool", "tool_call_id": "1", "content": error }),
            Format::Responses => {
                json!({ "type": "function_call_output", "call_id": "1", "output": error })
            }
            Format::Anthropic => json!({
                "type": "tool_result", "tool_use_id": "1", "content": text, "is_error": is_error,
            }),
            _ if is_error => of_gemini(json!({ "error": text })),
            _ => of_gemini(json!({ "output": text })),
        };
        assert_eq!(result(format, &call, &good), expected("hi", "hi", false));
        assert_eq!(result(format, &call, &bad), expected("no", "Error: no", true));
    }
    let event = read(Format::Event, r#"{"toolUseId":"1","name":"x"}"#);
    let said = result(Format::Event, &event, &good);
    assert_eq!(said, json!({ "toolUseId": "1", "result": "hi" }));
    let unnamed = read(Format::Gemini, r#"{"name":"x"}"#);
    assert_eq!(result(Format::Gemini, &unnamed, &good)["functionResponse"]["id"], Value::Null);
    let two = ["{}", "{}"];
    assert_eq!(Format::Event.answer(&two[..1]), "{}");
    assert_eq!(Format::Chat.answer(&two), r#"{"messages":[{},{}]}"#);
    let message = r#"{"messages":[{"role":"user","content":[{},{}]}]}"#;
    assert_eq!(Format::Anthropic.answer(&two), message);
    assert_eq!(Format::Gemini.answer(&two), message.replace("content", "parts"));
}

#[test]
fn files_are_passed_where_the_api_has_them_and_named_elsewhere() {
    let types = ["image/png", "image/gif", "application/pdf", "audio/wav", "text/csv"];
    let answer = with_files(&types);
    for (format, passed) in [
        (Format::Chat, [false; 5]),
        (Format::Responses, [true, true, true, false, true]),
        (Format::Anthropic, [true, true, true, false, false]),
        (Format::Gemini, [true, false, true, false, false]),
    ] {
        let (_, body) = calls("{}").into_iter().find(|(of, _)| *of == format).unwrap();
        let said = result(format, &read(format, &body), &answer);
        let (text, blocks) = match format {
            Format::Chat => (&said["content"], &Value::Null),
            Format::Gemini => {
                let said = &said["functionResponse"];
                (&said["response"]["output"], &said["parts"])
            }
            Format::Responses => (&said["output"][0]["text"], &said["output"]),
            _ => (&said["content"][0]["text"], &said["content"]),
        };
        let texts = usize::from(matches!(format, Format::Responses | Format::Anthropic));
        let blocks = blocks.as_array().map_or(0, Vec::len) - texts;
        assert_eq!(blocks, passed.iter().filter(|passed| **passed).count(), "{said}");
        let lines: Vec<_> = text.as_str().unwrap().lines().collect();
        for ((line, of), passed) in lines.iter().zip(types).zip(passed) {
            assert!(line.contains(of) && line.ends_with("attached]") == passed, "{line}");
        }
    }
    let Answer::Result { files, .. } = answer else { unreachable!() };
    let url = "data:image/png;base64,aGk=";
    let of = |format: Format| format.file(&files[0]).unwrap();
    assert_eq!(of(Format::Responses), json!({ "type": "input_image", "image_url": url }));
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" });
    assert_eq!(of(Format::Anthropic), json!({ "type": "image", "source": source }));
    let inline = json!({ "inlineData": { "mimeType": "image/png", "data": "aGk=" } });
    assert_eq!(of(Format::Gemini), inline);
    assert_eq!(files[0].left_out_of("cut"), "cut", "its line is gone");
}
