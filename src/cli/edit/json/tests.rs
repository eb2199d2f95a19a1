//! What stays of another program's file, byte for byte, and what is refused.

use serde_json::json;

use super::*;

fn entry() -> Value {
    json!({ "command": "/usr/bin/mantyx-bridge", "args": ["mcp", "-c", "/home/ann/b.yaml"] })
}

#[track_caller]
fn check_added(text: &str) -> Edit {
    let edit = with_server(text, "mcpServers", "bridge", &entry());
    let edit = edit.unwrap_or_else(|why| panic!("{why}: {text:?}"));
    let (front, back) = text.split_at(edit.splice.at);
    let back = back.strip_prefix(edit.splice.old.as_str()).unwrap();
    assert_eq!(edit.text, format!("{front}{}{back}", edit.splice.new));
    assert!(!edit.splice.new.contains("canary"), "no other server is shown: {:?}", edit.splice);
    let removed = without_server(&edit.text, "mcpServers", "bridge").unwrap().unwrap();
    assert!(!removed.splice.old.contains("canary"), "{:?}", removed.splice);
    edit
}

#[test]
fn server_is_added_and_every_other_byte_stays() {
    let mut texts = Vec::new();
    for text in [
        "{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"env\": {\"T\": \"canary\"}}, // last\n  },\n}\n",
        "{\"mcpServers\":{\"a\":{\"env\":{\"T\":\"canary\"}}}}",
        "{\n\t\"mcpServers\": {\n\t\t\"a\": {\"url\": \"https://x\"}\n\t},\n\t\"z\": [1, 2.50, 1e9]\n}\n",
        "{\n  \"theme\": \"dark\" /* why */\n}\n",
        "{\"mcpServers\": {}}",
        "{}",
        "",
        "\n",
    ] {
        texts.push(text.to_owned());
        texts.push(text.replace('\n', "\r\n"));
        texts.push(format!("\u{feff}{text}"));
    }
    for text in texts {
        let edit = check_added(&text);
        assert_eq!(edit.text.starts_with(BOM), text.starts_with(BOM));
        if text.contains("\r\n") && text.contains('{') {
            assert!(!edit.text.replace("\r\n", "").contains('\n'), "{:?}", edit.text);
        }
    }
}

#[test]
fn server_of_the_same_name_is_replaced() {
    let text =
        "{\n  \"mcpServers\": {\n    \"bridge\": {\"command\": \"old\"},\n    \"b\": {}\n  }\n}\n";
    let edit = with_server(text, "mcpServers", "bridge", &entry()).unwrap();
    assert_eq!(tree(&edit.text).unwrap()["mcpServers"]["bridge"], entry());
    let again = with_server(&edit.text, "mcpServers", "bridge", &entry()).unwrap();
    assert_eq!(again.text, edit.text, "a second time changes nothing");
}

#[test]
fn entry_is_written_in_the_order_of_the_programs_documentation() {
    let entry = json!({ "args": ["mcp"], "command": "bridge", "type": "stdio" });
    let in_line = r#"{"type":"stdio","command":"bridge","args":["mcp"]}"#;
    assert_eq!(on_one_line(&entry), in_line);
    let edit = with_server(r#"{"mcpServers":{"a":{}}}"#, "mcpServers", "bridge", &entry).unwrap();
    assert_eq!(edit.splice.new, format!("\"bridge\":{in_line},"));
    let edit = with_server("{}", "mcpServers", "bridge", &entry).unwrap();
    let places = ["\"type\"", "\"command\"", "\"args\""].map(|key| edit.text.find(key));
    assert!(places.is_sorted() && places[0].is_some(), "{}", edit.text);
}

#[test]
fn file_that_is_no_list_of_servers_is_refused_without_its_words() {
    let deep = "[".repeat(100_000);
    for text in [
        "[1]",
        "1",
        "\"canary\"",
        "{\"mcpServers\": \"canary\"}",
        "{\"mcpServers\": [\"canary\"]}",
        "{\"canary\"",
        "{'mcpServers': {}}",
        "{mcpServers: {}}",
        "{} canary",
        "{\"mcpServers\": {}, \"mcpServers\": {\"a\": {}}}",
        &deep,
    ] {
        let why = with_server(text, "mcpServers", "bridge", &entry()).unwrap_err();
        assert!(!why.contains("canary") && !why.is_empty(), "{text:.40}: {why}");
    }
}

/// What `disconnect` makes of `text` after `connect`; `None`: the list stays.
fn text_after_removal(text: &str) -> Option<String> {
    let added = with_server(text, "mcpServers", "bridge", &entry()).unwrap().text;
    let emptied = without_server(&added, "mcpServers", "bridge").unwrap().unwrap();
    Some(without_list(&added, &emptied, "mcpServers", text)?.text)
}

#[test]
fn list_that_was_made_for_the_entry_goes_with_it() {
    for text in ["{\n  \"theme\": \"dark\" /* why */\n}\n", "{\"a\": {\"b\": 1}}", "{}", "", "\n"] {
        for text in [text.to_owned(), text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
            assert_eq!(text_after_removal(&text).as_ref(), Some(&text));
        }
    }
    for text in ["{\"mcpServers\": {}}", "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n"] {
        assert_eq!(text_after_removal(text), None, "{text}");
    }
}

#[test]
fn list_goes_while_what_changed_since_stays() {
    let before = "{\n  \"theme\": \"dark\"\n}\n";
    let added = with_server(before, "mcpServers", "bridge", &entry()).unwrap().text;
    let changed = added.replace("dark\"", "light\" // mine");
    let emptied = without_server(&changed, "mcpServers", "bridge").unwrap().unwrap();
    let edit = without_list(&changed, &emptied, "mcpServers", before).unwrap();
    assert!(edit.text.contains("\"light\" // mine"), "{}", edit.text);
    assert!(!edit.text.contains("mcpServers"), "{}", edit.text);
    let with_another = added.replace("\"bridge\"", "\"other\": {}, \"bridge\"");
    let emptied = without_server(&with_another, "mcpServers", "bridge").unwrap().unwrap();
    assert!(without_list(&with_another, &emptied, "mcpServers", before).is_none());
}

#[test]
fn list_alone_is_told_from_a_file_with_more() {
    assert!(is_empty_list("{\n  \"mcpServers\": {}\n}\n", "mcpServers"));
    for text in ["{\"mcpServers\": {\"a\": {}}}", "{\"mcpServers\": {}, \"b\": 1}", "{}"] {
        assert!(!is_empty_list(text, "mcpServers"), "{text}");
    }
    assert!(!is_empty_list("{\"mcpServers\": {/* mine */}}", "mcpServers"));
}

#[test]
fn absent_server_is_not_removed() {
    assert!(
        without_server("{\"mcpServers\": {\"a\": {}}}", "mcpServers", "bridge").unwrap().is_none()
    );
    assert!(without_server("{}", "mcpServers", "bridge").unwrap().is_none());
}
