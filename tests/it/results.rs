//! Results that are longer than the operator wants, and what is removed from them.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bridge::Bridge,
    frames::Script,
    harness::Harness,
    http::Request,
    mcp_server::{Client, META},
    peers, wait,
};

/// Makes a call by hand; its answer.
async fn by_hand(bridge: &Bridge, name: &str, args: &Value) -> Value {
    let call = json!({ "toolUseId": "tu", "name": name, "args": args }).to_string();
    bridge.api("POST", "/v1/tool-calls", Some(&call)).await.expect(200)
}

fn text(answer: &Value) -> &str {
    assert!(answer["result"].is_string(), "a result: {answer}");
    answer["result"].as_str().unwrap_or_default()
}

/// Reads the result from `offset` to its end in parts of `limit` bytes.
async fn rest(bridge: &Bridge, call: &str, offset: u64, limit: u64) -> String {
    let (mut whole, mut next) = (String::new(), Some(offset));
    while let Some(offset) = next {
        let args = json!({ "callId": call, "offset": offset, "limit": limit });
        let part = by_hand(bridge, "bridge_call_result", &args).await;
        let part: Value = serde_json::from_str(text(&part)).expect("a part is JSON");
        whole.push_str(part["text"].as_str().expect("a text"));
        next = part["next"].as_u64();
        assert!(next.is_none_or(|next| next > offset), "{part}");
    }
    whole
}

/// The id and the offset that the last line of a cut result names.
fn way_on(cut: &str) -> (String, u64) {
    let line = cut.lines().last().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| {
        let at = words.iter().position(|one| *one == word).expect(line);
        words[at + 1].to_owned()
    };
    (after("callId"), after("offset").parse().expect("a number"))
}

#[tokio::test]
async fn a_long_result_is_read_in_parts_over_a_restart() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("long");
    let whole: String = (0..3000).map(|line| format!("line {line} é\n")).collect();
    fs::write(&file, &whole).expect("the directory is writable");
    // The bridge takes the last line's end away.
    let whole = whole.trim_end();
    let cat = format!("{{command: [cat, {}], max_result: 4KiB}}", file.display());
    let mut rig =
        Harness::bare(&format!("local:\n  cat: {cat}\n  short: {{command: [echo, a]}}\n")).await;

    let answer = by_hand(&rig.bridge, "cat", &json!({})).await;
    let cut = text(&answer);
    assert!(cut.len() <= 4096 && cut.starts_with("line 0 é\nline 1 é\n"), "{cut}");
    let (call, offset) = way_on(cut);
    assert!(cut.contains("é\n[cut by the bridge: these are 3,886 of 37,889 bytes"), "{cut}");
    let (head, tail) = whole.split_at(usize::try_from(offset).unwrap());
    assert!(head.ends_with('\n') && cut.starts_with(head.trim_end()), "cut at a line");
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_eq!(rest(&rig.bridge, &call, offset, 1000).await, tail);
    assert_eq!(rest(&rig.bridge, &call, 0, 1_000_000).await, whole);
    for (args, why) in [
        (json!({ "callId": call, "offset": whole.len() }), "There is nothing at offset"),
        (json!({ "callId": call, "limit": 0 }), "tool_input_invalid"),
        (json!({ "callId": "call_0", "offset": 1 }), "There is no such call"),
    ] {
        let answer = by_hand(&rig.bridge, "bridge_call_result", &args).await;
        assert!(answer["error"].as_str().unwrap_or_default().contains(why), "{args}: {answer}");
    }

    // In a run, whose own call it is.
    let script = Script::new().local("tu_1", "cat", "{}").answered("tu_1").until("@call");
    let args = r#"{"callId":"@call","offset":37880}"#;
    let script = script.local("tu_2", "bridge_call_result", args).answered("tu_2");
    let other = format!(r#"{{"callId":"{call}","offset":0}}"#);
    let script = script.local("tu_3", "bridge_call_result", &other).answered("tu_3").done();
    rig.run(script).await;
    let (in_run, _) = way_on(text(&rig.mantyx.taken("tu_1").await));
    rig.mantyx.fill("@call", &in_run);
    let end = rig.mantyx.answer("tu_2").await;
    assert_eq!(
        text(&end),
        json!({ "total": 37889, "next": null, "text": whole.split_at(37880).1 }).to_string()
    );
    let others = rig.mantyx.answer("tu_3").await;
    assert!(others["error"].as_str().is_some_and(|why| why.contains("no such call")), "{others}");
}

#[tokio::test]
async fn redacted_text_is_nowhere() {
    let card = "4111 1111 1111 1111";
    let token = format!("ghp_{}", "aB3".repeat(12));
    let secret = format!("PRJ-1234 {card} {token}");
    let print = format!("{{command: [printf, '%s', '{secret}'], redact: [{{use: card_numbers}}]}}");
    let config = format!(
        "redact: [{{use: access_tokens}}, {{pattern: 'PRJ-[0-9]+', with: '[project]'}}]\n\
         mcp:\n  plain: {}\nlocal:\n  print: {print}\n  fails: {{command: [sh, -c, 'echo {secret} >&2; exit 3']}}\n",
        peers::everything_stdio(),
    );
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("plain", "ready").await;
    // Arguments are kept as they are.
    let echoed = secret.replace("aB3", "bC4");
    let echo = json!({ "message": echoed }).to_string();
    let script = Script::new().local("tu_1", "print", "{}").answered("tu_1");
    let script = script.local("tu_2", "fails", "{}").answered("tu_2");
    rig.run(script.mcp("tu_3", "plain", "plain_echo", &echo).answered("tu_3").done()).await;
    let removed = "[project] [card number removed] [access token removed]";
    assert_eq!(text(&rig.mantyx.answer("tu_1").await), removed);
    let failed = rig.mantyx.answer("tu_2").await;
    let failed = failed["error"].as_str().expect("an error");
    assert!(failed.contains("[project]") && !failed.contains(&token), "{failed}");
    // `card_numbers` is for one backend only.
    let echoed = rig.mantyx.answer("tu_3").await;
    assert_eq!(text(&echoed), format!("Echo: [project] {card} [access token removed]"));
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    for line in ["redactions_total{backend=\"print\"} 3", "redactions_total{backend=\"plain\"} 2"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let log = rig.bridge.log();
    assert!(!log.contains(&token) && !log.contains("PRJ-1234"), "{log}");
    wait::soon("the answers should be in the journal", async || {
        let journal = fs::read(rig.bridge.state("journal")).unwrap_or_default();
        let journal = String::from_utf8_lossy(&journal).into_owned();
        journal.contains("[card number removed]").then(|| assert!(!journal.contains(&token)))
    })
    .await;
}

/// Calls the tool `say` over `/mcp` with these arguments, as a client that takes progress and
/// questions; all that comes of it.
async fn say(bridge: &Bridge, arguments: &Value) -> String {
    let meta = META
        .replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}},\"progressToken\":7");
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"it_say","arguments":{arguments},{meta}}}}}"#
    );
    let client = Client::stateless(bridge);
    let request = client.post(&message).header("MCP-Protocol-Version", "2026-07-28");
    let request = request.header("Mcp-Method", "tools/call").header("Mcp-Name", "it_say");
    request.answer(bridge.addr()).await.text()
}

#[tokio::test]
async fn a_client_of_mcp_gets_nothing_that_is_to_be_removed() {
    let it = peers::with(&peers::saying("PRJ-1"), "redact: [{pattern: 'PRJ-[0-9]+', with: gone}]");
    let rig = Harness::bare(&format!("mcp:\n  it: {it}\n")).await;
    rig.bridge.wait_backend("it", "ready").await;
    let removed = async || {
        let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
        let (_, count) = metrics.split_once("redactions_total{backend=\"it\"} ").expect("a count");
        count.lines().next().and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    let client = Client::with_session(&rig.bridge).await;
    // Resources are listed after the tools.
    let read = wait::soon("the resource", async || {
        let read = client.answer("resources/read", r#""uri":"say://it""#).await.expect(200);
        read["result"]["contents"][0]["text"].as_str().map(str::to_owned)
    });
    assert_eq!(read.await, "gone");
    assert_eq!(removed().await, 1);
    let prompt = client.answer("prompts/get", r#""name":"it_say""#).await.expect(200);
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "gone", "{prompt}");
    assert_eq!(removed().await, 2);

    let result = json!({ "content": [], "structuredContent": { "PRJ-2": { "a": "PRJ-3" } } });
    let text =
        json!({ "content": [{ "type": "text", "text": "x" }], "structuredContent": "PRJ-4" });
    // Three of each are in the progress.
    for (result, count) in [(&result, 7), (&text, 11)] {
        let told = say(&rig.bridge, &json!({ "result": result, "progress": "PRJ-5" })).await;
        assert!(told.contains(r#""message":"gone""#) && !told.contains("PRJ-"), "{told}");
        assert_eq!(removed().await, count);
    }
    // Keys that the protocol does not know, and a type that the bridge changes.
    let image = json!({ "type": "image", "data": "eA==", "mimeType": "image/PRJ-8", "PRJ-8": 1 });
    let result = json!({ "content": [image], "PRJ-8": 1, "_meta": { "PRJ-8": 1 } });
    let told = say(&rig.bridge, &json!({ "result": result })).await;
    assert!(told.contains("image/gone") && !told.contains("PRJ-"), "{told}");
    let told = by_hand(&rig.bridge, "it_say", &json!({ "result": result })).await;
    let told = told.to_string();
    assert!(told.contains("image/gone") && !told.contains("rj-8"), "{told}");

    // The link is for the user, and the rest is text.
    let link =
        json!({ "url": "https://a.example/PRJ-9", "message": "PRJ-9", "elicitationId": "e" });
    let error = json!({ "code": -32042, "message": "PRJ-9", "data": { "elicitations": [link] } });
    let arguments = json!({ "error": error });
    let params = format!(r#""name":"it_say","arguments":{arguments}"#);
    let told = client.answer("tools/call", &params).await.expect(200);
    assert_eq!(told["error"]["message"], "gone", "{told}");
    let link = &told["error"]["data"]["elicitations"][0];
    assert_eq!(
        (&link["url"], &link["message"]),
        (&"https://a.example/PRJ-9".into(), &"gone".into())
    );

    // The server waits for the answer from here on.
    let schema = json!({ "type": "object", "properties": { "PRJ-6": { "type": "string" } } });
    let asks = json!({ "result": {}, "params": { "message": "PRJ-7?", "requestedSchema": &schema, "_meta": { "a": "PRJ-7?" }, "PRJ-7?": 1 } });
    let asked = say(&rig.bridge, &asks).await;
    let asked: Value = serde_json::from_str(&asked).expect("one response");
    let question = &asked["result"]["inputRequests"]["question"]["params"];
    assert_eq!((&question["message"], &question["requestedSchema"]), (&"gone?".into(), &schema));
    assert_eq!((&question["_meta"]["a"], &question["gone?"]), (&"gone?".into(), &1.into()));
}

#[tokio::test]
async fn servers_output_beside_its_protocol_is_redacted() {
    let (key, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    let redact = "redact: [{pattern: 'PRJ-[0-9]+', with: gone}, {use: private_keys}]";
    let it = peers::with(&peers::saying("-"), redact);
    let mut rig = Harness::bare(&format!("mcp:\n  it: {it}\n")).await;
    rig.bridge.wait_backend("it", "ready").await;
    let stderr = format!("PRJ-1\n{key}\nKEYLINE\n{end}\nover");
    let said = json!({ "result": {}, "stderr": stderr, "line": "{\"PRJ-2" });
    by_hand(&rig.bridge, "it_say", &said).await;
    wait::soon("the lines in the log", async || {
        let log = rig.bridge.log();
        (log.contains("stderr: over") && log.contains("{\\\"gone")).then_some(())
    })
    .await;
    let log = rig.bridge.log();
    assert!(log.contains("stderr: gone") && log.contains("stderr: [private key removed]"), "{log}");
    assert!(!log.contains("PRJ-") && !log.contains("KEYLINE"), "{log}");

    // The pattern of a new configuration is for the process that runs.
    rig.bridge.change_config("PRJ-[0-9]+", "OBJ-[0-9]+");
    wait::soon("the new pattern", async || {
        by_hand(&rig.bridge, "it_say", &json!({ "result": {}, "stderr": "x OBJ-3" })).await;
        rig.bridge.log().contains("stderr: x gone").then_some(())
    })
    .await;
    assert_eq!(rig.bridge.log().matches("started the server").count(), 1);
    by_hand(&rig.bridge, "it_say", &json!({ "exits": 1, "stderr": "dying OBJ-4" })).await;
    wait::soon("the end in the log", async || {
        let log = rig.bridge.log();
        log.contains("ended with exit status 3: it said: dying gone").then_some(())
    })
    .await;
    let status = rig.bridge.status().await.to_string();
    assert!(!rig.bridge.log().contains("OBJ-4") && !status.contains("OBJ-4"), "{status}");
}

#[tokio::test]
async fn structured_result_is_never_cut_and_the_text_beside_it_is() {
    let it = peers::with(&peers::saying("-"), "max_result: 4KiB");
    let rig = Harness::bare(&format!("mcp:\n  it: {it}\n")).await;
    rig.bridge.wait_backend("it", "ready").await;
    let long = "y".repeat(20_000);
    let told = async |text: &str, structured: &Value| -> Value {
        let content = json!([{ "type": "text", "text": text }]);
        let result = json!({ "content": content, "structuredContent": structured });
        let told = say(&rig.bridge, &json!({ "result": result })).await;
        serde_json::from_str::<Value>(&told).expect("one response")["result"].clone()
    };
    let short = json!({ "a": 1 });
    let cut = told(&long, &short).await;
    assert_eq!((&cut["structuredContent"], &cut["isError"]), (&short, &json!(false)), "{cut}");
    let text = cut["content"][0]["text"].as_str().expect("a text");
    let (call, offset) = way_on(text);
    assert!(text.len() <= 4096 && text.starts_with("yyy"), "{text}");
    assert_eq!(rest(&rig.bridge, &call, offset, 30_000).await.len(), 20_000 - 3896);

    let structured = json!({ "a": long });
    let refused = told("y", &structured).await;
    assert_eq!((&refused["structuredContent"], &refused["isError"]), (&Value::Null, &json!(true)));
    let text = refused["content"][0]["text"].as_str().expect("a text");
    let (_, call) = text.split_once("callId ").expect(text);
    let whole = rest(&rig.bridge, call.trim_end_matches('.'), 0, 30_000).await;
    assert!(serde_json::from_str::<Value>(&whole).is_ok_and(|whole| whole == structured), "{text}");
}

#[tokio::test]
async fn only_a_rest_that_is_kept_is_promised() {
    let much = |bytes: u32| {
        format!(
            "{{command: [sh, -c, 'head -c {bytes} /dev/zero | tr \"\\0\" a'], max_result: 4KiB}}"
        )
    };
    let config = format!(
        "apps:\n  a: {{token: aaaaaaaaaaaaaaaa}}\n  b: {{token: bbbbbbbbbbbbbbbb}}\n\
         local:\n  much: {}\n  more: {}\n",
        much(4_000_000),
        much(5_000_000)
    );
    let rig = Harness::bare(&config).await;
    let call = async |token: &str, name: &str, args: Value| -> Value {
        let call = json!({ "toolUseId": "tu", "name": name, "args": args }).to_string();
        let request = Request::new("POST", "/v1/tool-calls").bearer(token).json(call);
        request.answer(rig.bridge.addr()).await.expect(200)
    };
    let (a, b) = ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb");
    let kept = call(a, "much", json!({})).await;
    let (id, _) = way_on(text(&kept));
    // Together they would take more than there is room for, and this app takes more of it.
    let lost = call(b, "more", json!({})).await;
    assert!(
        text(&lost).ends_with("of 5,000,000 bytes. The rest is lost: ask for less.]"),
        "{lost}"
    );
    let part = json!({ "callId": id, "offset": 3_999_999 });
    assert!(text(&call(a, "bridge_call_result", part.clone()).await).contains("\"a\""));
    // A later result of the same app replaces the earlier.
    let later = call(a, "more", json!({})).await;
    way_on(text(&later));
    let gone = call(a, "bridge_call_result", part).await;
    let why = gone["error"].as_str().expect("an error");
    assert!(why.contains("the oldest are forgotten"), "{why}");
}
