//! Calls to real peers, and what is posted for every way that a call can end.

use std::time::Duration;

use crate::{
    bridge::Bridge,
    frames::Script,
    harness::{Harness, tool_names},
    mantyx::Reply,
    peers, sse, wait,
};

const NOTE: &str = r#"{"text":"x"}"#;
/// Three bytes of the agents' report.pdf, which is one letter 12,345 times.
const REPORT: &str = "eHh4";

/// A bridge with one backend `name`, whose entry stands below `section`.
async fn with(section: &str, name: &str, entry: &str) -> Harness {
    let rig = Harness::bare(&format!("{section}:\n  {name}: {entry}\n")).await;
    rig.bridge.wait_backend(name, "ready").await;
    rig
}

#[tokio::test]
async fn a_python_mcp_server_over_stdio() {
    let rig = with("mcp", "time", &peers::mcp_time()).await;
    let backend = rig.bridge.backend("time").await;
    assert_eq!(backend["serverInfo"]["name"], "mcp-time", "{backend}");
    assert_eq!(backend["protocolVersion"], "2026-07-28", "the newest revision that both speak");
    let args =
        r#"{"source_timezone":"Europe/Berlin","time":"12:30","target_timezone":"Asia/Tokyo"}"#;
    let answer = rig.call("time", "time_convert_time", args).await;
    let result = answer["result"].as_str().expect("a result is a string");
    assert!(result.contains("T20:30:00+09:00") || result.contains("T19:30:00+09:00"), "{result}");

    let script =
        Script::one_call("tu_2", "time", "time_get_current_time", r#"{"timezone":"No/Where"}"#);
    rig.run(script).await;
    let answer = rig.mantyx.answer("tu_2").await;
    let error = answer["error"].as_str().expect("isError is an error");
    assert!(error.contains("No/Where") && answer.get("result").is_none(), "{answer}");
}

async fn everything(rig: &Harness) {
    let calls = [
        ("everything_echo", r#"{"message":"hé"}"#, "Echo: hé"),
        ("everything_get_sum", r#"{"a":2,"b":3}"#, "The sum of 2 and 3 is 5."),
    ];
    let script = calls.iter().enumerate().fold(Script::new(), |script, (n, (name, args, _))| {
        script.mcp(&format!("tu_{n}"), "everything", name, args)
    });
    let run = rig.run(script.answered("tu_0").answered("tu_1").done()).await;
    for (n, (_, _, expected)) in calls.iter().enumerate() {
        assert_eq!(rig.mantyx.answer(&format!("tu_{n}")).await["result"], *expected);
    }
    sse::whole(&rig.bridge, &run.stream).await;
}

#[tokio::test]
async fn a_typescript_mcp_server_over_stdio() {
    let rig = with("mcp", "everything", &peers::everything_stdio()).await;
    everything(&rig).await;
    let backend = rig.bridge.backend("everything").await;
    assert_eq!(backend["protocolVersion"], "2025-11-25", "{backend}");

    rig.run(Script::one_call(
        "tu_s",
        "everything",
        "everything_get_structured_content",
        r#"{"location":"Chicago"}"#,
    ))
    .await;
    let result = rig.mantyx.answer("tu_s").await["result"].to_string();
    assert!(result.contains("temperature"), "{result}");

    rig.run(Script::one_call("tu_i", "everything", "everything_get_tiny_image", "{}")).await;
    let answer = rig.mantyx.answer("tu_i").await;
    let result = answer["result"].as_str().expect("a result");
    let line = "[file image-1.png image/png, ";
    assert!(result.contains("Here's the image") && result.contains(line), "{result}");
    assert_eq!(answer["files"][0]["filename"], "image-1.png", "{answer}");
    let data = answer["files"][0]["data"].as_str().expect("base64");
    assert!(data.starts_with("iVBORw0KGgo"), "as the server sent it");

    rig.run(Script::one_call(
        "tu_l",
        "everything",
        "everything_get_resource_links",
        r#"{"count":2}"#,
    ))
    .await;
    let result = rig.mantyx.answer("tu_l").await["result"].to_string();
    assert!(result.matches("demo://").count() >= 2, "links by their URIs: {result}");
}

#[tokio::test]
async fn a_typescript_mcp_server_over_http() {
    let server = peers::everything_http().await;
    let rig = with("mcp", "everything", &format!("{{url: \"{}/mcp\"}}", server.url())).await;
    everything(&rig).await;
    let backend = rig.bridge.backend("everything").await;
    assert_eq!(backend["transport"], "streamable-http", "{backend}");
}

/// What every A2A agent of the tests answers, whatever wire it speaks.
async fn agent(url: &str, binding: &str) {
    let rig = with("a2a", "hr", &format!("{{url: \"{url}\", transport: {binding}}}")).await;
    let spec = r#"{"prompt":"hi"}"#;
    rig.mantyx.script(
        Script::new()
            .a2a("tu_msg", "hr", "msg good day")
            .a2a("tu_task", "hr", "task report")
            .a2a("tu_long", "hr", "long 3")
            .a2a("tu_early", "hr", "early 3")
            .a2a("tu_fail", "hr", "fail")
            .a2a("tu_file", "hr", "file")
            .until("tu_msg")
            .until("tu_task")
            .until("tu_long")
            .until("tu_early")
            .until("tu_fail")
            .until("tu_file")
            .done(),
    );
    rig.bridge.post_run(spec).await;
    let sent = rig.mantyx.only("POST", "/agent-runs").value();
    let names = tool_names(&sent);
    assert_eq!(names, ["hr", "bridge_call_result"], "one tool, and one as it may take long");
    assert_eq!(sent["tools"][0]["kind"], "a2a_local");
    assert!(sent["tools"][0]["agentCard"]["skills"].is_array(), "the whole card: {sent}");
    for (id, expected) in [
        ("tu_msg", "good day"),
        ("tu_task", "report"),
        ("tu_long", "worked 3"),
        ("tu_early", "worked 3"),
    ] {
        assert_eq!(rig.mantyx.answer(id).await["result"], expected, "{id} at {url} by {binding}");
    }
    let failed = rig.mantyx.answer("tu_fail").await;
    let error = failed["error"].as_str().expect("a failed task is an error");
    assert!(error.contains("it went wrong"), "the agent's own words: {error}");
    let file = rig.mantyx.answer("tu_file").await;
    let result = file["result"].as_str().expect("a result");
    assert!(result.starts_with("see the report") && result.contains("12"), "{result}");
    let line = "[file report.pdf application/pdf, 12,345 bytes: attached]";
    assert!(result.contains(line), "a file has its line: {result}");
    assert!(result.contains("http://files.test/r.pdf"), "one by its address has that: {result}");
    assert_eq!(file["files"].as_array().map(Vec::len), Some(1), "{result}");
    let expected = serde_json::json!({
        "filename": "report.pdf", "mimeType": "application/pdf", "data": REPORT.repeat(4115)
    });
    assert!(file["files"][0] == expected, "the agent's bytes, in base64 once: {file}");
}

#[tokio::test]
async fn an_agent_of_1_0_over_json_rpc() {
    agent(peers::a2a_v1("1.0").await.url(), "jsonrpc").await;
}

#[tokio::test]
async fn an_agent_of_1_0_over_http_json() {
    agent(peers::a2a_v1("1.0").await.url(), "http-json").await;
}

#[tokio::test]
async fn an_agent_of_1_0_with_a_card_of_0_3() {
    agent(peers::a2a_v1("0.3").await.url(), "jsonrpc").await;
}

#[tokio::test]
async fn an_agent_of_0_3() {
    agent(peers::a2a_v03().await.url(), "jsonrpc").await;
}

#[tokio::test]
async fn an_agent_of_0_3_over_http_json() {
    agent(peers::a2a_v03().await.url(), "http-json").await;
}

#[tokio::test]
async fn images_and_files_are_passed_on() {
    let agent = peers::a2a_v1("1.0").await;
    let config = format!(
        "mcp:\n  everything: {}\na2a:\n  hr: {{url: \"{}\"}}\n",
        peers::everything_stdio(),
        agent.url()
    );
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("everything", "ready").await;
    rig.bridge.wait_backend("hr", "ready").await;
    let script = Script::new().mcp("tu_i", "everything", "everything_get_tiny_image", "{}");
    rig.run(script.a2a("tu_f", "hr", "file").answered("tu_i").answered("tu_f").done()).await;
    let answer = rig.mantyx.answer("tu_i").await;
    assert_eq!(answer["files"][0]["mimeType"], "image/png", "an image is a file: {answer}");
    let data = answer["files"][0]["data"].as_str().expect("base64");
    assert!(data.starts_with("iVBORw0KGgo"), "as the server sent it");
    let name = answer["files"][0]["filename"].as_str().expect("a file has a name");
    let result = answer["result"].as_str().expect("a result");
    assert!(result.contains(name), "a line names it: {result}");
    let answer = rig.mantyx.answer("tu_f").await;
    assert_eq!(answer["files"][0]["filename"], "report.pdf", "{answer}");
}

#[tokio::test]
async fn an_embedded_resource_is_a_file_where_it_is_no_text() {
    let rig = with("mcp", "everything", &peers::everything_stdio()).await;
    let resource = |kind: &str| format!(r#"{{"resourceType":"{kind}","resourceId":1}}"#);
    let tool = "everything_get_resource_reference";
    let script = Script::new().mcp("tu_b", "everything", tool, &resource("Blob"));
    let script = script.mcp("tu_t", "everything", tool, &resource("Text"));
    rig.run(script.answered("tu_b").answered("tu_t").done()).await;
    let blob = rig.mantyx.answer("tu_b").await;
    assert_eq!(blob["files"][0]["filename"], "1.txt", "named by its address: {blob}");
    assert_eq!(blob["files"][0]["mimeType"], "text/plain", "{blob}");
    let result = blob["result"].as_str().expect("a result");
    assert!(result.contains("\n[file 1.txt text/plain, "), "{result}");
    let text = rig.mantyx.answer("tu_t").await;
    assert!(text.get("files").is_none(), "no empty list: {text}");
    assert!(text["result"].as_str().is_some_and(|text| text.contains("plaintext")), "{text}");
}

#[tokio::test]
async fn the_sandbox_takes_files_and_the_api_hands_them_back() {
    let config = format!(
        "upstream: {{sandbox: true, workspace: acme}}\nmcp:\n  everything: {}\n",
        peers::everything_stdio()
    );
    let bridge = Bridge::ready(&config).await;
    bridge.wait_backend("everything", "ready").await;
    let run =
        bridge.post_run(r#"{"systemPrompt":"s","prompt":"everything_get_tiny_image {}"}"#).await;
    let frames = sse::whole(&bridge, &run.stream).await;
    let taken = sse::find(&frames, "local_tool_result_in").expect("the sandbox took the answer");
    assert_eq!(taken["files"][0]["filename"], "image-1.png", "{taken}");
    assert_eq!(taken["files"][0]["mimeType"], "image/png", "{taken}");
    assert!(taken["files"][0]["sizeBytes"].as_u64().is_some_and(|size| size > 1000), "{taken}");

    let call = r#"{"toolUseId":"tu_1","name":"everything_get_tiny_image","args":{}}"#;
    let answer = bridge.api("POST", "/v1/tool-calls", Some(call)).await.expect(200);
    assert_eq!(answer["files"][0]["filename"], "image-1.png", "{answer}");
    let wrong = r#"{"toolUseId":"tu_2","name":"everything_get_sum","args":{"a":"x","b":1}}"#;
    let answer = bridge.api("POST", "/v1/tool-calls", Some(wrong)).await.expect(200);
    let error = answer["error"].as_str().expect("an error");
    assert!(error.starts_with("tool_input_invalid: /a: ") && error.contains("number"), "{error}");
}

#[tokio::test]
async fn an_agent_that_asks_back_is_heard() {
    let agent = peers::a2a_v1("1.0").await;
    let rig = with("a2a", "hr", &format!("{{url: \"{}\"}}", agent.url())).await;
    rig.run(Script::new().a2a("tu_ask", "hr", "input").answered("tu_ask").done()).await;
    let answer = rig.mantyx.answer("tu_ask").await;
    let result = answer["result"].as_str().expect("a question is no error");
    assert!(result.starts_with("Which day?"), "the agent's words: {result}");
}

#[tokio::test]
async fn an_error_of_a_tool_is_an_error() {
    let rig = Harness::start().await;
    let answer = rig.call("plain", "plain_fail", "{}").await;
    assert_eq!(answer["error"], "it failed on purpose", "{answer}");
    assert!(answer.get("result").is_none(), "either, not both: {answer}");
}

#[tokio::test]
async fn arguments_are_checked_before_the_call() {
    let rig = Harness::start().await;
    let answer = rig.call("plain", "plain_note", r#"{"text":7}"#).await;
    let error = answer["error"].as_str().expect("an error");
    assert!(error.starts_with("tool_input_invalid:") && error.contains("text"), "{error}");
    assert!(rig.executions().is_empty(), "the server never sees them");
}

#[tokio::test]
async fn a_tool_that_nobody_has_is_not_the_bridges() {
    let rig = Harness::start().await;
    // The server's prefix, and no such tool: the bridge put no such name into the run.
    let script = Script::new().mcp("tu_1", "plain", "plain_nothing", "{}").delta("x").done();
    let run = rig.run(script).await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    let call = sse::find(&frames, "local_tool_call").expect("it is handed on as it came");
    assert_eq!(call["toolUseId"], "tu_1");
    assert!(rig.mantyx.posts("tu_1").is_empty() && rig.executions().is_empty(), "no one is called");
    let data = r#"{"toolUseId":"tu_2","name":"plain_nothing","args":{}}"#;
    let answer = rig.bridge.api("POST", "/v1/tool-calls", Some(data)).await;
    assert!(answer.text().contains("plain_nothing"), "refused by its name: {}", answer.text());
    assert!(answer.value()["error"].is_string(), "{}", answer.text());
}

#[tokio::test]
async fn a_tool_that_does_not_answer_times_out() {
    let rig = Harness::with("", &[], "calls: {timeout: 1s}\n").await;
    let answer = rig.call("plain", "plain_hang", "{}").await;
    let error = answer["error"].as_str().expect("an error");
    assert!(error.contains("plain") && error.contains('1'), "who, and how long: {error}");
    assert!(!error.contains("127.0.0.1") && !error.contains('/'), "no address, no path: {error}");
    rig.run(Script::one_call("tu_2", "plain", "plain_note", NOTE)).await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "noted: x", "the server is still used");
}

#[tokio::test]
async fn calls_of_one_run_run_at_once() {
    let rig = Harness::start().await;
    let slow = r#"{"text":"2"}"#;
    let script = Script::new()
        .mcp("tu_slow", "plain", "plain_slow", slow)
        .mcp("tu_fast", "plain", "plain_note", NOTE)
        .until("tu_fast")
        .until("tu_slow");
    rig.run(script.done()).await;
    rig.mantyx.answer("tu_fast").await;
    assert!(rig.mantyx.posts("tu_slow").is_empty(), "the slow call does not hold up the fast one");
    assert_eq!(rig.mantyx.answer("tu_slow").await["result"], "slept");
}

#[tokio::test]
async fn a_large_result_is_cut_where_a_character_ends() {
    let rig = Harness::start().await;
    let answer = rig.call("plain", "plain_big", r#"{"bytes":2500001}"#).await;
    let result = answer["result"].as_str().expect("a result");
    assert!(result.len() <= 2_000_000, "{} bytes", result.len());
    assert!(result.len() > 1_990_000, "as much as may be: {} bytes", result.len());
    let closing = result.lines().last().unwrap_or_default();
    assert!(!closing.starts_with('é') && closing.chars().any(|c| c.is_ascii_digit()), "{closing}");
}

#[tokio::test]
async fn a_post_is_repeated_until_it_is_accepted() {
    let rig = Harness::start().await;
    let faults = [Reply::Status(500), Reply::Reset, Reply::Status(503), Reply::Status(502)];
    rig.mantyx.replies("tu_1", faults);
    let run = rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    sse::whole(&rig.bridge, &run.stream).await;
    let posts = rig.mantyx.posts("tu_1");
    assert_eq!(posts.len(), 5, "four faults and a success");
    assert!(
        posts.iter().all(|post| Some(&post.body) == posts.first().map(|post| &post.body)),
        "the same bytes"
    );
    assert_eq!(rig.executions().len(), 1, "a repeated POST is no repeated call");
}

#[tokio::test]
async fn retry_after_is_obeyed() {
    let rig = Harness::start().await;
    rig.mantyx.replies("tu_1", [Reply::TooMany(2)]);
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let posts = rig.mantyx.wait_posts("tu_1", 2).await;
    let times: Vec<_> = posts.iter().map(|post| post.at).collect();
    let [first, second] = times.as_slice() else { panic!("two POSTs: {posts:?}") };
    let waited = second.duration_since(*first);
    assert!(waited >= Duration::from_secs(2), "it waited {waited:?} of the 2 s that it was told");
}

#[tokio::test]
async fn retry_after_holds_for_all_runs_of_a_credential() {
    let rig = Harness::start().await;
    rig.mantyx.replies("tu_1", [Reply::TooMany(2)]);
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let first = rig.mantyx.wait_posts("tu_1", 1).await.remove(0);
    wait::soon("the bridge should have read the 429", async || {
        rig.bridge.log().contains("\"status\":\"429").then_some(())
    })
    .await;
    rig.run(Script::one_call("tu_2", "plain", "plain_note", NOTE)).await;
    let second = rig.mantyx.wait_posts("tu_2", 1).await.remove(0);
    let waited = second.at.duration_since(first.at);
    assert!(waited >= Duration::from_secs(2), "another run waits, too: {waited:?}");
}

#[tokio::test]
async fn posts_keep_to_the_rate_limit_that_answers_tell_of() {
    let rig = Harness::start().await;
    rig.mantyx.meter(20, Duration::from_secs(2));
    let ids: Vec<String> = (0..60).map(|n| format!("tu_{n}")).collect();
    let script =
        ids.iter().fold(Script::new(), |script, id| script.mcp(id, "plain", "plain_note", NOTE));
    let script = ids.iter().fold(script, |script, id| script.until(id));
    let run = rig.run(script.done()).await;
    sse::whole(&rig.bridge, &run.stream).await;
    for id in &ids {
        let posts = rig.mantyx.wait_posts(id, 1).await;
        assert!(posts.iter().all(|post| post.value()["result"] == "noted: x"), "{posts:?}");
    }
    let posts = rig.mantyx.requests("POST", "/tool-results");
    let refused = posts.len() - ids.len();
    assert!(refused <= 3, "{refused} posts met the limit");
    let took = posts[59].at.duration_since(posts[0].at);
    assert!(took >= Duration::from_secs(4), "60 are three windows: {took:?}");
}

#[tokio::test]
async fn answers_that_mantyx_no_longer_wants_end_quietly() {
    let rig = Harness::start().await;
    for (id, status) in [("tu_404", 404), ("tu_409", 409), ("tu_204", 204)] {
        rig.mantyx.replies(id, [Reply::Status(status)]);
        let run = rig.run(Script::one_call(id, "plain", "plain_note", NOTE)).await;
        sse::whole(&rig.bridge, &run.stream).await;
        assert_eq!(rig.mantyx.posts(id).len(), 1, "{status} ends it");
    }
    assert_eq!(rig.executions().len(), 3);
    let alarms = rig.bridge.log();
    let alarms = alarms.lines().filter(|line| line.contains("\"ERROR\""));
    assert_eq!(alarms.count(), 0, "none of these is an error: {}", rig.bridge.log());
}

#[tokio::test]
async fn the_server_is_told_which_tool_use_it_serves() {
    let rig = Harness::start().await;
    rig.call("plain", "plain_note", NOTE).await;
    let meta = rig.executions().pop().expect("one call")["meta"].to_string();
    assert!(meta.contains("tu_1"), "a server can tell a repetition by it: {meta}");
}
