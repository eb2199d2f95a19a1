//! Rules on arguments and quotas: what is asked about, what is refused, and what people are told.

use serde_json::{Value, json};

use crate::{
    approvals, bridge::Bridge, cli, frames::Script, harness::Harness, http::Request,
    mcp_server::Client, owners::Apps, peers, wait,
};

const RULES: &str = "approve: [{tool: 'n*', when: [{path: /text, glob: '/etc/**'}]}],
    tools: {deny: [{tool: args, when: [{path: /amount, gt: 1000}]}, big]},";

fn note(text: &str) -> String {
    json!({ "text": text }).to_string()
}

async fn by_hand(rig: &Harness, name: &str, arguments: &str) -> Value {
    let body = format!(r#"{{"toolUseId":"tu_h","name":"{name}","args":{arguments}}}"#);
    rig.bridge.api("POST", "/v1/tool-calls", Some(&body)).await.expect(200)
}

#[tokio::test]
async fn a_rule_asks_or_refuses_by_the_arguments() {
    let rig = Harness::with_keys(RULES, "", &[], "").await;
    let odd = r#"{"amount":"5","amount":1}"#;
    let script = Script::new()
        .mcp("tu_free", "plain", "plain_note", &note("/tmp/x"))
        .mcp("tu_asked", "plain", "plain_note", &note("/tmp/../etc/x"))
        .mcp("tu_small", "plain", "plain_args", r#"{"amount":1000}"#)
        .mcp("tu_large", "plain", "plain_args", r#"{"amount":1000.5}"#)
        .mcp("tu_odd", "plain", "plain_args", odd);
    rig.run(script.until("never")).await;
    assert_eq!(rig.mantyx.answer("tu_free").await["result"], "noted: /tmp/x");
    assert_eq!(rig.mantyx.answer("tu_small").await["result"], r#"{"amount":1000}"#);
    for refused in ["tu_large", "tu_odd"] {
        let told = rig.mantyx.answer(refused).await["error"].to_string();
        assert!(told.contains("`/amount` is greater than 1000"), "{told}");
        assert!(told.contains("was not made"), "{told}");
    }
    let question = approvals::waiting(&rig.bridge, 1).await.remove(0);
    assert_eq!(question["toolUseId"], "tu_asked");
    assert_eq!(rig.executions().len(), 2, "nothing else has reached the tool");
    approvals::approve(&rig.bridge, &approvals::id(&question)).await;
    assert_eq!(rig.mantyx.answer("tu_asked").await["result"], "noted: /tmp/../etc/x");

    let told = by_hand(&rig, "plain_args", r#"{"Amount":1e9}"#).await["error"].to_string();
    assert!(told.contains("`/amount` is greater than 1000"), "{told}");
    let made = by_hand(&rig, "plain_args", "{}").await;
    assert_eq!(made["result"], "{}", "{made}");
    let list = r#""name":"plain_args","arguments":{"amount":[]}"#;
    let told = Client::stateless(&rig.bridge).answer("tools/call", list).await.text();
    assert!(told.contains("`/amount` is greater than 1000"), "{told}");
    assert_eq!(rig.executions().len(), 4);
}

/// A call, and what `check --explain` says of it.
struct Explained {
    tool: &'static str,
    arguments: &'static str,
    told: &'static str,
}

const EXPLAINED: [Explained; 11] = [
    Explained { tool: "plain_note", arguments: r#"{"text":"/x"}"#, told: "default: made\n" },
    Explained { tool: "plain/note", arguments: r#"{"text":"/x"}"#, told: "default: made\n" },
    // Only the server knows where a relative path begins.
    Explained {
        tool: "plain_note",
        arguments: r#"{"text":"x"}"#,
        told: "made once a person has approved it",
    },
    Explained {
        tool: "plain_note",
        arguments: r#"{"text":"//etc/x"}"#,
        told: "made once a person has approved it (mcp.plain.approve[0], line ",
    },
    Explained {
        tool: "plain_args",
        arguments: r#"{"amount":1001}"#,
        told: "refused: the tool may not be used where `/amount` is greater than 1000 (mcp.plain.tools.deny[0], line ",
    },
    Explained {
        tool: "plain_big",
        arguments: "{}",
        told: "refused: the tool may not be used any more (mcp.plain.tools.deny[1], line ",
    },
    Explained {
        tool: "plain_note",
        arguments: r#"{"text":5}"#,
        told: "refused: tool_input_invalid: /text",
    },
    Explained {
        tool: "bridge_call_tool",
        arguments: r#"{"name":"plain_args","arguments":{"amount":1001}}"#,
        told: "`/amount` is greater than 1000 (mcp.plain.tools.deny[0], line ",
    },
    Explained {
        tool: "bridge_call_tool",
        arguments: r#"{"name":"plain_args","arguments":{"amount":1}}"#,
        told: "default: made\n",
    },
    Explained {
        tool: "bridge_call_tool",
        arguments: r#"{"name":"plain_x"}"#,
        told: "refused: There is no tool `plain_x`",
    },
    Explained {
        tool: "bridge_call_tool",
        arguments: r#"{"name":"plain_args","args":{}}"#,
        told: "refused: tool_input_invalid",
    },
];

#[tokio::test]
async fn check_explains_which_rule_decides() {
    let rig = Harness::with_keys(RULES, "", &[], "").await;
    let path = rig.bridge.config_path().display().to_string();
    let explain = async |tool: &str, arguments: &str, more: &[&str]| {
        let args = ["check", "-c", &path, "--explain", tool, arguments];
        cli::run_with(&[&args, more].concat(), &[]).await
    };
    // The catalog is on disk a moment after it is known.
    wait::soon("the tools should be known", async || {
        (explain("plain_note", "{}", &[]).await.code == cli::OK).then_some(())
    })
    .await;
    for Explained { tool, arguments, told } in EXPLAINED {
        let ran = explain(tool, arguments, &["--app", "default"]).await.expect(cli::OK);
        assert!(
            ran.out.starts_with("default: ") && ran.out.contains(told),
            "{tool} {arguments}: {}",
            ran.out
        );
    }
    struct Case {
        tool: &'static str,
        arguments: &'static str,
        more: &'static [&'static str],
        told: &'static str,
    }
    for Case { tool, arguments, more, told } in [
        Case { tool: "plain_nota", arguments: "{}", more: &[], told: "Did you mean `plain_note`?" },
        Case {
            tool: "nothing_like_it",
            arguments: "{}",
            more: &[],
            told: "There are: plain_args, plain_big",
        },
        Case {
            tool: "plain_note",
            arguments: "[]",
            more: &[],
            told: "the arguments are no JSON object",
        },
        Case {
            tool: "plain_note",
            arguments: "{}",
            more: &["--app", "x"],
            told: "there is no app `x`",
        },
    ] {
        let ran = explain(tool, arguments, more).await.expect(cli::USAGE);
        assert!(ran.err.contains(told), "{tool} {arguments}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_rule_without_effect_is_told_everywhere() {
    let rules = "tools: {rename: {ehco: hi}, deny: [{tool: echo, when: [{path: /mesage, gt: 1}]}, \
                 {tool: 'get-*', when: [{path: /a, gt: 5}]}, {tool: ech, when: [{path: /a, gt: 1}]}]}, \
                 always: [x1, x2, x3], approve: [ehco]";
    let all = peers::with(&peers::everything_stdio(), rules);
    let bridge = Bridge::ready(&format!("upstream: {{sandbox: true}}\nmcp:\n  all: {all}\n")).await;
    let expected = "none matches `ehco` (mcp.all.approve[0], line 3), `echo` with `/mesage` \
                    (mcp.all.tools.deny[0], line 3), `ech` (mcp.all.tools.deny[2], line 3), `x1` \
                    (mcp.all.always[0], line 3), `x2` (mcp.all.always[1], line 3), `x3` \
                    (mcp.all.always[2], line 3), `ehco` (tools.rename of all).";
    let told = wait::soon("the status should tell", async || {
        let problems = bridge.status().await["problems"].clone();
        let mut told = problems.as_array().expect("a list").iter().map(ToString::to_string);
        told.find(|problem| problem.contains("none matches"))
    })
    .await;
    assert!(told.contains(expected), "{told}");
    wait::soon("the log should tell", async || {
        bridge.log().contains("globs of bridge.yaml have no effect").then_some(())
    })
    .await;
    let path = bridge.config_path().display().to_string();
    for command in ["doctor", "check"] {
        wait::soon(&format!("{command} should tell"), async || {
            let ran = cli::run_with(&[command, "-c", &path], &[]).await;
            ran.out.contains(expected).then_some(())
        })
        .await;
    }
    let call = r#"{"toolUseId":"tu","name":"all_get_sum","args":{"a":6,"b":1}}"#;
    let told = bridge.api("POST", "/v1/tool-calls", Some(call)).await.expect(200);
    assert!(told["error"].to_string().contains("`/a` is greater than 5"), "{told}");
}

#[tokio::test]
async fn a_run_makes_as_many_calls_as_its_quota() {
    let rig = Harness::with_keys("quota: {identical: 2},", "", &[], "").await;
    let call = |script: Script, id: &str, text: &str| {
        script.mcp(id, "plain", "plain_note", &note(text)).answered(id)
    };
    let script = call(call(Script::new(), "tu_1", "x"), "tu_2", "x");
    rig.run(call(call(script, "tu_3", "x"), "tu_4", "y").done()).await;
    let told = rig.mantyx.answer("tu_3").await["error"].to_string();
    assert!(told.contains("2 times already") && told.contains("was not made"), "{told}");
    assert_eq!(rig.mantyx.answer("tu_4").await["result"], "noted: y");
    assert_eq!(rig.executions().len(), 3);
    let answer = rig.call_again("tu_5", "plain_note", &note("x")).await;
    assert_eq!(answer["result"], "noted: x", "another run has its own count");
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    let counted = r#"mantyx_bridge_calls_total{backend="plain",outcome="over_quota"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn apps_share_the_quota_of_a_backend() {
    let keys = "quota: {calls: 3, per: 1h},";
    let mut apps = Apps::with(keys, ", quota: {calls: 1, per: 2h}").await;
    let call = async |apps: &Apps, app: &str| {
        let body = format!(r#"{{"toolUseId":"tu","name":"plain_note","args":{}}}"#, note("x"));
        apps.ask(app, "POST", "/v1/tool-calls", Some(&body)).await.expect(200)
    };
    let problems = async |apps: &Apps, app: &str| {
        let status = apps.ask(app, "GET", "/v1/status", None).await.expect(200);
        status["problems"].to_string()
    };
    assert_eq!(call(&apps, "a").await["result"], "noted: x");
    let told = call(&apps, "a").await["error"].to_string();
    assert!(told.contains("The app `a` has used up its quota, 1 in 2h, until 2"), "{told}");
    assert!(told.contains("(for 1h 59m ") || told.contains("(for 2h)"), "{told}");
    assert!(problems(&apps, "a").await.contains("The app `a` has used up"));
    assert!(!problems(&apps, "b").await.contains("has used up"), "it is another app's");
    for _ in 0..2 {
        assert_eq!(call(&apps, "b").await["result"], "noted: x", "a refused call counts nowhere");
    }
    let told = call(&apps, "b").await["error"].to_string();
    assert!(told.contains("This backend has used up its quota, 3 in 1h"), "{told}");
    assert!(problems(&apps, "b").await.contains("This backend has used up"));
    assert_eq!(apps.executions(), 3);
    // A reload keeps the counts of a quota that stays.
    let reloaded = Request::new("GET", "/v1/status").bearer(&crate::owners::token("b"));
    let before = reloaded.clone().answer(apps.bridge.addr()).await.expect(200)["config"].clone();
    apps.bridge.change_config("calls: 1, per: 2h", "calls: 2, per: 2h");
    wait::soon("the configuration should be taken", async || {
        let now = reloaded.clone().answer(apps.bridge.addr()).await.expect(200)["config"].clone();
        (now["loadedAt"] != before["loadedAt"]).then_some(())
    })
    .await;
    let told = call(&apps, "a").await["error"].to_string();
    assert!(told.contains("This backend has used up"), "{told}");
    apps.bridge.change_config("calls: 3, per: 1h", "calls: 4, per: 1h");
    wait::soon("a new quota should begin anew", async || {
        (call(&apps, "a").await["result"] == "noted: x").then_some(())
    })
    .await;
}
