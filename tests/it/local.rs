//! Local tools through the real daemon: a request or a program for each call, beside the tools that
//! apps bring themselves.

use serde_json::json;

use crate::{
    bridge::Bridge,
    frames::Script,
    harness::{Harness, injected, tool_names},
    mantyx::Mantyx,
    sdk, sse, wait,
};

const SCHEMA: &str = "{type: object, required: [text], properties: {text: {type: string}}}";

/// Runs a script that makes each of `calls`, waits for the answers, and ends.
async fn run(rig: &Harness, calls: &[(&str, &str, &str)]) {
    let called = calls
        .iter()
        .fold(Script::new(), |script, (id, name, arguments)| script.local(id, name, arguments));
    let script = calls.iter().fold(called, |script, (id, ..)| script.answered(id));
    let run = rig.run(script.done()).await;
    sse::whole(&rig.bridge, &run.stream).await;
}

/// Calls the tool `hang` and returns what is posted for it.
async fn hang(rig: &Harness) -> serde_json::Value {
    run(rig, &[("tu_hang", "hang", "{}")]).await;
    rig.mantyx.answer("tu_hang").await
}

#[tokio::test]
async fn a_program_runs_for_each_call() {
    let config = format!(
        "local:\n  \
         repeat: {{description: Says it., parameters: {SCHEMA}, command: [cat], retain: true}}\n  \
         broken: {{command: [sh, -c, 'echo on stderr >&2; exit 3']}}\n  \
         flood: {{command: [cat, /dev/zero]}}\n"
    );
    let rig = Harness::bare(&config).await;
    let status = rig.bridge.wait_backend("repeat", "ready").await;
    assert_eq!(status["kind"], "local", "{status}");
    assert_eq!((&status["transport"], &status["tools"]), (&json!("command"), &json!(1)));

    let arguments = r#"{"text":"1.0",  "big":123456789012345678901234567890}"#;
    let calls = [
        ("tu_1", "repeat", arguments),
        ("tu_2", "broken", "{}"),
        ("tu_3", "flood", "{}"),
        ("tu_4", "repeat", r#"{"txt":1}"#),
    ];
    run(&rig, &calls).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], arguments, "as it was printed");
    let answer = rig.mantyx.answer("tu_2").await;
    assert_eq!((&answer["error"], answer.get("result")), (&json!("on stderr"), None), "{answer}");
    let error = rig.mantyx.answer("tu_3").await["error"].to_string();
    assert!(error.contains("flood") && error.contains("8 MiB"), "{error}");
    let error = rig.mantyx.answer("tu_4").await["error"].to_string();
    assert!(error.contains("tool_input_invalid"), "checked before it runs: {error}");

    let sent = rig.mantyx.only("POST", "/agent-runs").text();
    let expected = concat!(
        r#"{"kind":"local","name":"repeat","description":"Says it.","parameters":"#,
        r#"{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}},"#,
        r#""retain":true}"#,
    );
    assert!(sent.contains(expected), "the keys in the order of the file: {sent}");
    assert_eq!(rig.bridge.children(), [], "nothing is left running");
}

#[tokio::test]
async fn a_request_is_sent_for_each_call() {
    let server = Mantyx::start().await;
    server.canned("POST", "/page", &["HTTP/1.1 200 OK"], "päged\n");
    server.canned("GET", "/find?q=a+b&n=1.50", &["HTTP/1.1 200 OK"], r#"{"found":1.0}"#);
    server.canned("POST", "/busy", &["HTTP/1.1 503 Busy"], "come back later");
    let url = server.url();
    let config = format!(
        "local:\n  \
         page: {{parameters: {SCHEMA}, http: {{url: '{url}/page', headers: {{X-Key: canary}}}}}}\n  \
         find: {{http: {{method: GET, url: '{url}/find'}}, readOnly: true}}\n  \
         busy: {{http: {{url: '{url}/busy'}}}}\n  \
         gone: {{http: {{url: 'http://127.0.0.1:9/'}}}}\n"
    );
    let rig = Harness::bare(&config).await;
    let page = r#"{"text":"1.0",  "big":123456789012345678901234567890}"#;
    let calls = [
        ("tu_page", "page", page),
        ("tu_find", "find", r#"{"q":"a b","n":1.50}"#),
        ("tu_busy", "busy", "{}"),
        ("tu_gone", "gone", "{}"),
    ];
    run(&rig, &calls).await;
    assert_eq!(rig.mantyx.answer("tu_page").await["result"], "päged\n");
    assert_eq!(rig.mantyx.answer("tu_find").await["result"], r#"{"found":1.0}"#);
    let error = rig.mantyx.answer("tu_busy").await["error"].to_string();
    assert!(error.contains("503") && error.contains("come back later"), "{error}");
    let error = rig.mantyx.answer("tu_gone").await["error"].to_string();
    assert!(error.contains("gone") && error.contains("not made"), "{error}");
    assert!(!error.contains("127.0.0.1"), "no address: {error}");
    let seen = server.only("POST", "/page");
    assert_eq!((seen.text().as_str(), seen.header("x-key")), (page, Some("canary")));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert!(server.only("GET", "/find").body.is_empty(), "a GET has its arguments in the query");
}

#[tokio::test]
async fn a_program_that_hangs_is_ended_with_all_that_it_started() {
    let script = "(trap \"\" TERM; sleep 600; sleep 600) & sleep 600";
    let config = format!(
        "local:\n  hang: {{command: [sh, -c, '{script}'], timeout: 2s}}\n  \
         quick: {{command: [cat]}}\n"
    );
    let rig = Harness::bare(&config).await;
    let started = async {
        wait::soon("the program and what it starts should run", async || {
            (rig.bridge.children().len() >= 3).then_some(())
        })
        .await;
    };
    let (answer, ()) = tokio::join!(hang(&rig), started);
    let error = answer["error"].as_str().expect("an error").to_owned();
    assert!(error.contains("hang") && error.contains("2 s"), "who, and how long: {error}");
    wait::soon("the whole group should be gone", async || {
        rig.bridge.children().is_empty().then_some(())
    })
    .await;
    run(&rig, &[("tu_2", "quick", "{}")]).await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "{}");
}

#[tokio::test]
async fn a_program_dies_with_the_daemon() {
    let mut rig = Harness::bare("local:\n  hang: {command: [sleep, '600']}\n").await;
    rig.run(Script::new().local("tu_1", "hang", "{}").until("never")).await;
    wait::soon("the program should run", async || {
        (!rig.bridge.children().is_empty()).then_some(())
    })
    .await;
    rig.bridge.kill9();
    wait::soon("it should be gone", async || rig.bridge.children().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_program_that_cannot_be_started_was_not_called() {
    let dir = tempfile::TempDir::new().expect("the temporary directory is writable");
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("a new file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("the file is ours");
    let config = format!(
        "local:\n  bad: {{command: ['{}']}}\n  gone: {{command: [no-such-program]}}\n",
        script.display()
    );
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("gone", "ready").await;
    run(&rig, &[("tu_1", "bad", "{}"), ("tu_2", "gone", "{}")]).await;
    for id in ["tu_1", "tu_2"] {
        let error = rig.mantyx.answer(id).await["error"].to_string();
        assert!(error.contains("not made"), "{error}");
        assert!(!error.contains("script") && !error.contains("no-such"), "no path: {error}");
    }
    let log = rig.bridge.log();
    assert!(log.contains("no-such-program") && log.contains("script"), "the log tells: {log}");
}

#[tokio::test]
async fn placeholders_and_the_tools_of_the_app() {
    let tool = format!("{{parameters: {SCHEMA}, command: [cat]}}");
    let config = format!("local:\n  page_oncall: {tool}\n  other: {{command: [cat]}}\n");
    let rig = Harness::bare(&config).await;
    let own = r#"{"kind":"local","name":"own"}"#;
    let spec =
        format!(r#"{{"prompt":"x","tools":[{{"kind":"local","name":"page_oncall"}},{own}]}}"#);
    let script =
        Script::new().local("tu_own", "own", "{}").local("tu_1", "page_oncall", r#"{"text":"x"}"#);
    rig.mantyx.script(script.answered("tu_1").done());
    let run = rig.bridge.post_run(&spec).await;
    assert_eq!(injected(run.injected.as_deref()), [("page_oncall".to_owned(), 1)].into());
    let sent = rig.mantyx.only("POST", "/agent-runs");
    assert_eq!(tool_names(&sent.value()), ["page_oncall", "own"], "in place, and nothing else");
    assert_eq!(sent.value()["tools"][0]["parameters"]["required"], json!(["text"]));
    assert!(sent.text().contains(own), "the app's own, as it wrote it: {}", sent.text());
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], r#"{"text":"x"}"#);
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    let asked = sse::find(&frames, "local_tool_call").expect("the app is asked for its own tool");
    assert_eq!(asked["toolUseId"], "tu_own");
    assert!(rig.mantyx.posts("tu_own").is_empty(), "and the bridge does not answer it");

    let spec = r#"{"prompt":"x","tools":[{"kind":"local","name":"other","parameters":{}}]}"#;
    rig.mantyx.script(Script::new().local("tu_2", "other", "{}").done());
    let run = rig.bridge.post_run(spec).await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    let asked = sse::find(&frames, "local_tool_call").expect("the name is the app's");
    assert_eq!(asked["toolUseId"], "tu_2");
}

#[tokio::test]
async fn the_python_sdk_runs_its_own_tool_beside_a_local_tool_of_the_bridge() {
    let config = format!(
        "upstream: {{sandbox: true, workspace: acme}}\n\
         local:\n  page_oncall: {{description: Pages., parameters: {SCHEMA}, command: [cat]}}\n"
    );
    let bridge = Bridge::ready(&config).await;
    let prompt = "add_numbers {\"a\": 2, \"b\": 3}\npage_oncall {\"text\": \"fire\"}\nbye";
    let seen = sdk::run(&bridge, "async_run.py", &[prompt]).await;
    assert_eq!(seen["ownCalls"], json!([{"a": 2, "b": 3}]), "its own tool ran once");
    let own = sdk::of_type(&seen["events"], "local_tool_call");
    assert_eq!(own.len(), 1, "the SDK is asked for its own tool alone: {own:?}");
    let answers = sdk::of_type(&seen["events"], "local_tool_result_in");
    let outputs: Vec<_> = answers.iter().map(|data| data["output"].to_string()).collect();
    assert_eq!(outputs.len(), 2, "{outputs:?}");
    assert!(outputs.iter().any(|output| output.contains("fire")), "{outputs:?}");
}
