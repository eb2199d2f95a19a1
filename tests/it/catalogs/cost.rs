//! What the tools cost a run: the same figures in the status, on the command line and in the
//! metrics, and they are those of the spec that MANTYX gets.

use serde_json::{Value, json};

use super::{FIND, SEARCH};
use crate::{
    cli::{self, OK},
    evals::flat,
    frames::Script,
    harness::{Harness, tool_names},
    peers, wait,
};

/// The refs in the body of a run, byte for byte.
fn refs(body: &str) -> Vec<String> {
    let tools: Value = serde_json::from_str(body).expect("JSON");
    let mut rest = body.split_once("\"tools\":[").expect("tools").1;
    let count = tools["tools"].as_array().expect("a list").len();
    let mut refs = Vec::new();
    for _ in 0..count {
        let mut values =
            serde_json::Deserializer::from_str(rest).into_iter::<&serde_json::value::RawValue>();
        let one = values.next().expect("a ref").expect("JSON").get();
        refs.push(one.to_owned());
        rest = rest.split_at(one.len()).1.trim_start_matches(',');
    }
    refs
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    let parts = parts.iter().map(|part| String::from_utf8_lossy(part));
    parts.collect::<Vec<_>>().join(",")
}

/// `check` says the same of the stored catalogs; they are on disk a moment after they are known.
async fn assert_check_agrees(rig: &Harness, injected: &Value, said: &str) {
    let path = rig.bridge.config_path().display().to_string();
    let check = wait::soon("`check` should count both catalogs", async || {
        let check = cli::run(&["check", "--json", "-c", &path]).await.expect(OK).json();
        (check["plan"]["notCounted"] == json!([])).then_some(check)
    })
    .await;
    assert_eq!(&check["plan"]["injected"], injected);
    let shown = cli::run(&["check", "-c", &path]).await.expect(OK).out;
    assert!(
        shown.contains(&format!("each run of default: {said}\n  plain            ")),
        "{shown}"
    );
    assert!(!shown.contains("not counted"), "{shown}");
}

#[tokio::test]
async fn the_cost_is_that_of_the_spec() {
    let all = peers::with(&peers::everything_stdio(), "offer: all");
    let rig = Harness::with_keys(SEARCH, &format!("  all: {all}\n"), &["--tools", "70"], "").await;
    rig.bridge.wait_backend("all", "ready").await;
    rig.run(Script::new().done()).await;
    let sent = rig.mantyx.only("POST", "/agent-runs");
    let names = tool_names(&sent.value());
    let refs = refs(&sent.text());
    let bytes: usize = refs.iter().map(String::len).sum();

    let status = rig.bridge.status().await;
    let [injected] = status["injected"].as_array().expect("a list").as_slice() else {
        panic!("one app: {status}")
    };
    let expected = json!({
        "app": "default", "tools": names.len(), "searched": 77, "bytes": bytes,
        "tokens": bytes.div_ceil(4), "backends": injected["backends"], "largest": injected["largest"],
    });
    assert_eq!(injected, &expected);
    let backends = injected["backends"].as_array().expect("a list");
    assert_eq!((&backends[0]["name"], &backends[1]["name"]), (&"plain".into(), &"all".into()));
    assert_eq!((&backends[0]["tools"], &backends[0]["searched"]), (&1.into(), &77.into()));
    assert_eq!(
        (&backends[0]["bytes"], &backends[1]["bytes"]),
        (&refs[0].len().into(), &refs[1].len().into())
    );
    let largest = injected["largest"].as_array().expect("a list");
    assert_eq!(largest.len(), 10);
    let sizes: Vec<u64> = largest.iter().map(|one| one["bytes"].as_u64().expect("bytes")).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    for one in largest {
        let name = one["name"].as_str().expect("a name");
        let size = one["bytes"].as_u64().expect("bytes");
        let text = refs.iter().find(|text| text.contains(&format!("\"{name}\""))).expect(name);
        assert!(size as usize <= text.len() && names.iter().any(|it| it == name), "{name}");
    }

    let said = format!(
        "{} tools, about {} tokens ({} bytes), and 77 to search for",
        names.len(),
        grouped(bytes.div_ceil(4) as u64),
        grouped(bytes as u64)
    );
    let shown = cli::with(&rig, &["tools"]).await.expect(OK).out;
    assert!(shown.contains(&format!("Each run: {said}.")), "{said}: {shown}");
    assert!(shown.contains(FIND) && shown.contains("(the bridge)"), "{shown}");
    let shown = cli::with(&rig, &["status"]).await.expect(OK).out;
    assert!(shown.contains(&format!("each run of default: {said}")), "{said}: {shown}");
    let of_plain = cli::with(&rig, &["tools", "plain"]).await.expect(OK).out;
    let plain = refs[0].len();
    assert!(
        of_plain.contains(&format!("({} bytes), and 77 to search for", grouped(plain as u64))),
        "{of_plain}"
    );
    let of_others = largest.iter().filter(|one| one["backend"] != "plain");
    for one in of_others {
        let name = one["name"].as_str().expect("a name");
        assert!(!of_plain.contains(name), "{name} is another backend's: {of_plain}");
    }

    assert_check_agrees(&rig, &status["injected"], &said).await;

    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    for (backend, text) in ["plain", "all"].into_iter().zip(&refs) {
        for (name, value) in [("bytes", text.len()), ("tokens", text.len().div_ceil(4))] {
            let line = format!(
                r#"mantyx_bridge_injected_{name}{{app="default",backend="{backend}"}} {value}"#
            );
            assert!(
                metrics.lines().any(|it| it.trim_end_matches(".0") == line),
                "{line}: {metrics}"
            );
        }
    }
}

/// agent-runs-protocol §7.1.
#[tokio::test]
async fn tokens_of_ended_runs_are_counted() {
    let rig = Harness::start().await;
    let tokens = r#""tokens":{"inputTokens":1283,"cachedTokens":512,"reasoningTokens":96,"outputTokens":240},"turns":2"#;
    let ends = [
        ("result", format!(r#"{{"subtype":"success","text":"x",{tokens}}}"#)),
        ("error", format!(r#"{{"error":"x",{tokens}}}"#)),
        // An older server says nothing.
        ("result", r#"{"subtype":"success","text":"x"}"#.to_owned()),
    ];
    for (kind, data) in &ends {
        rig.run(Script::new().event(kind, data)).await;
    }
    let eval = flat("run_completed", &format!(",{tokens}"));
    crate::evals::start(&rig, Script::new().raw_event(&eval)).await;
    let lines: Vec<String> = [("cached", 512 * 3), ("input", 1283 * 3), ("output", 240 * 3)]
        .map(|(kind, count)| {
            format!(r#"mantyx_bridge_tokens_total{{app="default",kind="{kind}"}} {count}"#)
        })
        .to_vec();
    wait::soon("the tokens of three runs should be counted", async || {
        let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
        let has = |line: &String| metrics.lines().any(|it| it.trim_end_matches(".0") == line);
        lines.iter().all(has).then_some(())
    })
    .await;
}
