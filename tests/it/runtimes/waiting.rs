//! Answers that their runtime has not taken yet: which address, credential and bridge they go to.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{KEY, Rig};
use crate::{storage::limit_files, wait};

impl Rig {
    /// Has all posts of answers to `path` refused from now on.
    async fn refuses(&self, path: &str, status: u16) {
        let refusal = json!({ "path": path, "method": "POST", "status": status, "always": true });
        self.control("refuse", refusal).await;
    }

    /// Waits until an answer was refused once more.
    async fn wait_refused(&self) {
        let before = self.state().await["refused"].as_u64();
        wait::soon("an answer should be refused", async || {
            (self.state().await["refused"].as_u64() > before).then_some(())
        })
        .await;
    }

    async fn takes_answers(&self) {
        self.control("forgive", json!({})).await;
    }

    async fn problem(&self) -> Option<String> {
        let status = self.bridge.status().await;
        let problems = status["problems"].as_array().expect("a list").iter();
        let own = problems.filter(|problem| problem["subject"] == "other");
        let own: Vec<_> = own.filter_map(|problem| problem["message"].as_str()).collect();
        own.first().map(|&message| message.to_owned())
    }
}

#[tokio::test]
async fn answers_of_a_session_take_the_token_of_its_next_claim() {
    let mut rig = Rig::start("claude").await;
    let token = json!({ "sessions_token": format!("session-{KEY}") }).to_string();
    let secret = URL_SAFE_NO_PAD.encode(token);
    rig.control("session", json!({ "id": "s1", "secret": secret })).await;
    rig.hears("claude").await;
    rig.refuses("s1/events", 503).await;
    rig.ask("s1", "c1", "plain_additive", json!({})).await;
    rig.wait_refused().await;
    rig.bridge.kill9();
    // Without the token, which comes with the next claim only.
    rig.takes_answers().await;
    rig.refuses("s1/events", 403).await;
    rig.bridge.restart().await;
    rig.wait_refused().await;
    let problem = wait::soon("the status should tell", async || rig.problem().await).await;
    assert!(problem.contains("not taken answers that wait"), "{problem}");
    assert!(!problem.contains("s1"), "apps see it, and it names no session: {problem}");
    rig.control("lapse", json!({})).await;
    rig.hears("claude").await;
    rig.takes_answers().await;
    let post = rig.posts("c1").await.remove(0);
    assert_eq!((&post["status"], &post["key"]), (&json!(200), &json!(format!("session-{KEY}"))));
    rig.settled().await;
    assert_eq!((rig.problem().await, rig.plain.begun("c1")), (None, 1));
}

#[tokio::test]
async fn an_answer_is_taken_once_though_its_runtime_changes_or_goes_and_returns() {
    let mut rig = Rig::start("v7").await;
    rig.refuses("/result", 503).await;
    rig.ask("v7/intranet", "a1", "plain_additive", json!({})).await;
    rig.wait_refused().await;
    rig.bridge.change_config("skill: intranet", "skill: another");
    wait::soon("the other skill should be heard", async || {
        (rig.state().await["listeners"]["v7/another"] == 1).then_some(())
    })
    .await;
    rig.wait_refused().await;
    rig.bridge.change_config("runtimes:\n  other:", "#runtimes:\n#  other:");
    wait::soon("the runtime should be gone", async || {
        let status = rig.bridge.status().await;
        (status["runtimes"].as_array().expect("a list").is_empty()).then_some(())
    })
    .await;
    rig.takes_answers().await;
    let refused = rig.state().await["refused"].clone();
    rig.bridge.change_config("#runtimes:\n#  other:", "runtimes:\n  other:");
    assert_eq!(rig.posts("a1").await[0]["status"], 200);
    rig.settled().await;
    let state = rig.state().await;
    assert_eq!((&state["refused"], state["posts"].as_array().map(Vec::len)), (&refused, Some(1)));
    assert_eq!(rig.plain.begun("a1"), 1);
}

#[tokio::test]
async fn answers_that_wait_keep_no_call_from_being_made() {
    let rig = Rig::start("v3").await;
    rig.refuses("run_1/tool-results", 503).await;
    // More than the bridge makes at once.
    let calls: Vec<String> = (0..300).map(|number| format!("c{number}")).collect();
    for id in &calls {
        rig.ask("v3", id, "plain_read", json!({})).await;
    }
    let call = json!({
        "wire": "v3", "id": "last", "tool": "plain_additive", "args": {}, "run": "run_2",
    });
    rig.control("call", call).await;
    assert_eq!(rig.posts("last").await[0]["status"], 200);
    wait::soon("the others should wait", async || {
        let status = rig.bridge.status().await;
        (status["runtimes"][0]["openCalls"] == calls.len()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_id_belongs_to_its_run_and_to_what_it_asked_for_first() {
    let mut rig = Rig::start("v3").await;
    let call = |run: &str, args: Value| json!({ "wire": "v3", "id": "call_0", "tool": "plain_additive", "args": args, "run": run });
    for run in ["run_1", "run_2"] {
        rig.control("call", call(run, json!({ "ms": 1 }))).await;
    }
    wait::soon("both should be answered", async || {
        (rig.posts("call_0").await.len() == 2).then_some(())
    })
    .await;
    rig.control("call", call("run_1", json!({ "ms": 2 }))).await;
    rig.ask("v3", "after", "plain_additive", json!({})).await;
    rig.posts("after").await;
    rig.settled().await;
    assert_eq!((rig.posts("call_0").await.len(), rig.plain.begun("call_0")), (2, 2));
    rig.bridge.stop().await;
    assert!(rig.bridge.log().contains("another call had its id"), "{}", rig.bridge.log());
}

#[tokio::test]
async fn a_registration_that_fails_ends_no_stream() {
    let mut rig = Rig::start("v7").await;
    let refusal =
        json!({ "path": "intranet/tools", "method": "PUT", "status": 500, "always": true });
    rig.control("refuse", refusal).await;
    rig.bridge.change_config("backends: [plain]", "backends: [plain, echo]");
    rig.bridge.change_config(
        "mcp:",
        "local: {echo: {internal: true}}
mcp:",
    );
    wait::soon("the registration should be refused", async || {
        (rig.state().await["refused"].as_u64() > Some(0)).then_some(())
    })
    .await;
    rig.ask("v7/intranet", "a1", "plain_additive", json!({})).await;
    assert_eq!(rig.posts("a1").await[0]["status"], 200);
    let state = rig.state().await;
    let requests = state["requests"].as_array().expect("a list").iter();
    let opened = requests.filter(|one| one.as_str().expect("a text").ends_with("/stream"));
    assert_eq!(opened.count(), 1);
}

#[tokio::test]
async fn a_long_call_outlives_the_sandbox() {
    let mut rig = Rig::start("v7").await;
    let release = rig.bridge.config_path().with_file_name("release");
    let script = format!("until [ -e {} ]; do sleep 0.01; done; echo done", release.display());
    let local =
        format!("local: {{later: {{command: [sh, -c, '{script}'], pending_after: 0s}}}}\nmcp:");
    rig.bridge.change_config("mcp:", &local);
    rig.bridge.change_config("backends: [plain]", "backends: [plain, later]");
    wait::soon("the tool should be registered", async || {
        rig.state().await["tools"]["intranet"][0].to_string().contains("\"later\"").then_some(())
    })
    .await;
    let mut ids = Vec::new();
    for id in ["a1", "a2"] {
        rig.ask("v7/intranet", id, "later", json!({})).await;
        let first = rig.posts(id).await[0]["body"]["result"].clone();
        let first: Value = serde_json::from_str(first.as_str().expect("a text")).expect("JSON");
        ids.push(first["callId"].clone());
        if id == "a1" {
            std::fs::write(&release, "").expect("the test's directory is writable");
            let asked = json!({ "callId": ids[0], "wait": 20 });
            rig.ask("v7/intranet", "fetch", "bridge_call_result", asked).await;
            assert_eq!(rig.posts("fetch").await[0]["body"], json!({ "result": "done" }));
            std::fs::remove_file(&release).expect("it is there");
        }
    }
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.hears("v7").await;
    for (id, part) in ids.into_iter().zip(["done", "OUTCOME_UNKNOWN"]) {
        let fetch = format!("again_{part}");
        rig.ask("v7/intranet", &fetch, "bridge_call_result", json!({ "callId": id })).await;
        let post = rig.posts(&fetch).await.remove(0);
        assert!(post["body"].to_string().contains(part), "{post}");
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_written_down_is_answered_as_not_made() {
    let mut rig = Rig::start("v3").await;
    rig.ask("v3", "before", "plain_additive", json!({})).await;
    assert_eq!(rig.posts("before").await[0]["status"], 200);
    rig.settled().await;
    limit_files(rig.bridge.process().pid(), Some(0));
    // The answer is posted again as any other.
    rig.control("refuse", json!({ "path": "tool-results", "status": 503 })).await;
    rig.ask("v3", "full", "plain_additive", json!({})).await;
    let post = rig.posts("full").await.remove(0);
    let error = post["body"]["result"]["error"].as_str().expect("an error");
    assert!(post["status"] == 200 && error.contains("bridge_storage_unavailable"), "{post}");
    assert_eq!(rig.plain.begun("full"), 0);
}
