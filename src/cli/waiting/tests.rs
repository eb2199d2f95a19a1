//! What a command says of a call that waits for a person.

use super::*;

/// An approval that waits, with these members in place of none.
fn approval(members: &Value) -> Shown {
    let mut shown = json!({
        "id": "apr_1", "state": "waiting", "kind": "call", "app": "a", "runId": null,
        "toolUseId": "u", "tool": "", "argumentsSha256": "", "name": "fs_rm", "backend": "fs",
        "since": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T00:05:00Z", "decidedAt": null,
        "reason": null,
    });
    for (key, value) in members.as_object().expect("members") {
        shown[key] = value.clone();
    }
    serde_json::from_str(&shown.to_string()).expect("an approval")
}

struct Case {
    name: &'static str,
    members: Value,
    text: &'static str,
}

#[test]
fn waiting_call_is_told_with_the_command_that_decides() {
    let cases = [
        Case {
            name: "a call",
            members: json!({}),
            text: "fs_rm waits for a person\n  mantyx-bridge -c x approve apr_1",
        },
        Case {
            name: "a call with its arguments",
            members: json!({"argumentsText": "{\"path\":  \"/srv\"}"}),
            text: "fs_rm waits for a person\n  {\"path\":  \"/srv\"}\n  \
                   mantyx-bridge -c x approve apr_1",
        },
        Case {
            name: "a question",
            members: json!({"question": {"message": "Who\nis it?", "requestedSchema":
                {"type": "object", "properties": {"who": {"type": "string"}}}}}),
            text: "fs_rm waits for a person: its server asks: Who is it? (who)\n  \
                   mantyx-bridge -c x answer apr_1 KEY=VALUE …",
        },
        Case {
            name: "an address to open",
            members: json!({"question":
                {"message": "Log in", "mode": "url", "url": "https://a.example/x"}}),
            text: "fs_rm waits for a person: its server asks: Log in; open https://a.example/x\n  \
                   mantyx-bridge -c x answer apr_1",
        },
        Case {
            name: "a question with a flaw",
            members: json!({"flaw": "its `url` is odd", "question":
                {"message": "Go", "mode": "url", "url": "javascript:x"}}),
            text: "fs_rm waits for a person: its server asks: Go; open javascript:x; it can only \
                   be denied: its `url` is odd\n  mantyx-bridge -c x deny apr_1",
        },
    ];
    for Case { name, members, text } in cases {
        assert_eq!(announcement("mantyx-bridge -c x", &approval(&members), true), text, "{name}");
    }
}

#[test]
fn waiting_call_names_the_operator_where_the_caller_may_not_decide() {
    let text = announcement("mantyx-bridge", &approval(&json!({})), false);
    assert!(text.contains("approve apr_1") && text.contains("operator's secret"), "{text}");
}
