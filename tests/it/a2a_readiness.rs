//! Whether `status`, `problems`, the log and `doctor` say alike of each agent whether a call would
//! be answered, against agents on the official SDKs.

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    cli::{FAILED, OK, run},
    peers::{self, Peer},
};

const TOKEN: &str = "hunter2-canary";

/// The SDKs of Python.
const PYTHONS: [&str; 3] = ["0.2", "0.3", "1"];

fn config(entries: &[(&str, &Peer, &str)]) -> String {
    let entries: String = entries
        .iter()
        .map(|(name, agent, keys)| format!("  {name}: {{url: \"{}\"{keys}}}\n", agent.url()))
        .collect();
    format!("upstream: {{sandbox: true}}\na2a:\n{entries}")
}

/// The problems of `name`, as one text.
fn problems(status: &Value, name: &str) -> String {
    let problems = status["problems"].as_array().cloned().unwrap_or_default();
    let own: Vec<Value> = problems.into_iter().filter(|one| one["subject"] == name).collect();
    json!(own).to_string()
}

/// What the doctor says, and the verdict of the step `step` of `name`.
fn verdict(report: &Value, name: &str, step: &str) -> (Value, String) {
    let examined = report["examined"].as_array().cloned().unwrap_or_default();
    let one = examined.into_iter().find(|one| one["name"] == name).unwrap_or_default();
    let steps = one["steps"].as_array().cloned().unwrap_or_default();
    let found = steps.iter().find(|found| found["step"] == step).cloned().unwrap_or_default();
    (found["verdict"].clone(), format!("{} {}", found["finding"], found["cure"]))
}

async fn doctor(bridge: &Bridge, exit: Option<i32>) -> Value {
    let file = bridge.config_path();
    let file = file.to_str().expect("a path of the tests is UTF-8");
    run(&["doctor", "-c", file, "--json"]).await.expect(exit).json()
}

/// Makes one call, and says whether the status shows it as answered.
async fn answered(bridge: &Bridge, name: &str) -> Value {
    let call = json!({"toolUseId": "tu", "name": name, "args": {"message": "hello"}}).to_string();
    bridge.api("POST", "/v1/tool-calls", Some(&call)).await.expect(200);
    bridge.backend(name).await["lastCall"]["answered"].clone()
}

#[tokio::test]
async fn agent_of_each_sdk_is_ready_for_its_answer_to_a_question_without_effect() {
    let mut agents = Vec::new();
    for sdk in PYTHONS {
        agents.push((format!("py{}", sdk.replace('.', "")), peers::a2a_ready(sdk, &[]).await));
        if sdk != "0.2" {
            let rest = peers::a2a_ready(sdk, &["--binding", "HTTP+JSON"]).await;
            agents.push((format!("rest{}", sdk.replace('.', "")), rest));
        }
    }
    for sdk in ["0.3", "1"] {
        for binding in ["JSONRPC", "HTTP+JSON"] {
            let name = format!("js{}_{}", sdk.replace('.', ""), binding.len());
            agents.push((name, peers::a2a_js_ready(sdk, binding).await));
        }
    }
    let entries: Vec<(&str, &Peer, &str)> =
        agents.iter().map(|(name, agent)| (name.as_str(), agent, "")).collect();
    let bridge = Bridge::start(&config(&entries)).await;
    for (name, _) in &agents {
        bridge.wait_backend(name, "ready").await;
    }
    let report = doctor(&bridge, OK).await;
    let status = bridge.status().await;
    for (name, agent) in &agents {
        assert_eq!(problems(&status, name), "[]");
        let (endpoint, finding) = verdict(&report, name, "endpoint");
        assert_eq!(endpoint, "ok", "{name}: {finding}");
        assert!(finding.contains("knows no such task"), "{name}: {finding}");
        assert!(!agent.log().contains("message:send"), "{name}: no message was sent");
        assert_eq!(answered(&bridge, name).await, true, "{name}");
    }
}

/// An agent that would not answer a call, and what has to be told of it.
struct Case {
    name: &'static str,
    arguments: &'static [&'static str],
    message: &'static str,
    cure: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        name: "guarded",
        arguments: &["--token", TOKEN],
        message: "refuses the request (HTTP 401)",
        cure: "ask the agent's operator for a credential",
    },
    Case {
        name: "page",
        arguments: &["--page"],
        message: "answers with a web page",
        cure: "`endpoint`",
    },
    Case {
        name: "astray",
        arguments: &["--path", "/nowhere"],
        message: "has nothing at this path (HTTP 404)",
        cure: "`endpoint`",
    },
];

#[tokio::test]
async fn agent_that_would_not_answer_is_told_alike_everywhere_and_no_call_is_kept_from_it() {
    for sdk in PYTHONS {
        let mut agents = Vec::new();
        for case in &CASES {
            agents.push((case.name, peers::a2a_ready(sdk, case.arguments).await, ""));
        }
        let entries: Vec<(&str, &Peer, &str)> =
            agents.iter().map(|(name, agent, keys)| (*name, agent, *keys)).collect();
        let bridge = Bridge::start(&config(&entries)).await;
        for case in &CASES {
            bridge.wait_backend(case.name, "degraded").await;
        }
        let status = bridge.status().await;
        let report = doctor(&bridge, FAILED).await;
        for Case { name, message, cure, .. } in &CASES {
            let backend = bridge.backend(name).await;
            assert_eq!((&backend["stale"], &backend["tools"]), (&json!(false), &json!(1)));
            let told = backend["lastError"].to_string();
            assert!(told.contains(message), "{sdk} {name}: {told}");
            let told = problems(&status, name);
            let told_lower = told.to_lowercase();
            assert!(told.contains(message) && told_lower.contains(cure), "{sdk} {name}: {told}");
            let step = if *name == "guarded" { "auth" } else { "endpoint" };
            let (endpoint, told) = verdict(&report, name, step);
            assert_eq!(endpoint, "fail", "{sdk} {name}: {report}");
            assert!(told.contains(message) && told.contains(cure), "{sdk} {name}: {told}");
            assert!(bridge.log().contains(message), "{sdk} {name}");
            assert_eq!(answered(&bridge, name).await, false, "{sdk} {name}");
            let log =
                agents.iter().find(|(other, ..)| other == name).map(|(_, agent, _)| agent.log());
            assert!(
                log.unwrap_or_default().matches("POST").count() >= 3,
                "{name}: the call went out"
            );
        }
    }
}

#[tokio::test]
async fn agent_is_ready_again_as_soon_as_its_operator_has_mended_the_entry() {
    let agent = peers::a2a_ready("1", &["--token", TOKEN]).await;
    let mut bridge = Bridge::start(&config(&[("hr", &agent, "")])).await;
    bridge.wait_backend("hr", "degraded").await;
    let keys = format!(", headers: {{Authorization: 'Bearer {TOKEN}'}}");
    bridge.set_config(&config(&[("hr", &agent, &keys)]));
    bridge.process().signal(rustix::process::Signal::HUP);
    bridge.wait_backend("hr", "ready").await;
    assert_eq!(problems(&bridge.status().await, "hr"), "[]");
    assert_eq!(answered(&bridge, "hr").await, true);
}

#[tokio::test]
async fn card_that_says_another_version_than_its_agent_speaks_is_told() {
    let agent = peers::a2a_ready("1", &["--version", "0.3"]).await;
    let bridge = Bridge::start(&config(&[("hr", &agent, "")])).await;
    let backend = bridge.wait_backend("hr", "degraded").await;
    let told = backend["lastError"].to_string();
    assert!(told.contains("does not speak A2A 0.3"), "{told}");
}

#[tokio::test]
async fn required_extension_that_is_not_configured_is_told_of_each_sdk() {
    for sdk in PYTHONS {
        let agent = peers::a2a_ready(sdk, &["--extension", "urn:test:x"]).await;
        let named = ", extensions: ['urn:test:x']";
        let entries = [("bare", &agent, ""), ("named", &agent, named)];
        let bridge = Bridge::start(&config(&entries)).await;
        bridge.wait_backend("bare", "ready").await;
        bridge.wait_backend("named", "ready").await;
        let status = bridge.status().await;
        let told = problems(&status, "bare");
        assert!(told.contains("urn:test:x") && told.contains("`extensions"), "{sdk}: {told}");
        assert_eq!(problems(&status, "named"), "[]", "{sdk}");
        let report = doctor(&bridge, OK).await;
        assert_eq!(verdict(&report, "bare", "agent").0, "warn", "{sdk}: {report}");
        assert_eq!(verdict(&report, "bare", "endpoint").0, "ok", "{sdk}: {report}");
    }
}

#[tokio::test]
async fn extended_card_of_each_sdk_is_offered_and_pinned_apart() {
    let mut agents = Vec::new();
    for sdk in PYTHONS {
        let agent = peers::a2a_ready(sdk, &["--extended", "--token", TOKEN]).await;
        agents.push((format!("py{}", sdk.replace('.', "")), agent));
    }
    for sdk in ["0.3", "1"] {
        let name = format!("js{}", sdk.replace('.', ""));
        agents.push((name, peers::a2a_js_ready(sdk, "HTTP+JSON").await));
    }
    let keys = format!(
        ", extended_card: true, pin: enforce, headers: {{Authorization: 'Bearer {TOKEN}'}}"
    );
    let entries: Vec<(&str, &Peer, &str)> =
        agents.iter().map(|(name, agent)| (name.as_str(), agent, keys.as_str())).collect();
    let bridge = Bridge::start(&config(&entries)).await;
    for (name, _) in &agents {
        bridge.wait_backend(name, "ready").await;
        let pins = bridge.state("pins").join(format!("{name}.json"));
        let pins = crate::wait::soon("both cards should be pinned", async || {
            std::fs::read_to_string(&pins).ok().filter(|pins| pins.contains("(extended card)"))
        })
        .await;
        assert!(pins.contains("Extended agent"), "{name}: {pins}");
        let catalog = bridge.state("catalogs").join(format!("{name}.json"));
        crate::wait::soon("both cards should be kept", async || {
            let kept = std::fs::read_to_string(&catalog).ok()?;
            kept.contains("\"extendedCard\"").then_some(())
        })
        .await;
    }
    let status = bridge.status().await;
    for (name, _) in &agents {
        assert_eq!(problems(&status, name), "[]");
    }
}

#[tokio::test]
async fn extended_card_that_an_agent_does_not_have_is_told() {
    for sdk in PYTHONS {
        let agent = peers::a2a_ready(sdk, &[]).await;
        let bridge = Bridge::start(&config(&[("hr", &agent, ", extended_card: true")])).await;
        bridge.wait_backend("hr", "ready").await;
        let told = problems(&bridge.status().await, "hr");
        assert!(told.contains("did not give its extended card"), "{sdk}: {told}");
        assert!(told.contains("leave `extended_card` out"), "{sdk}: {told}");
    }
}
