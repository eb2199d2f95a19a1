//! Any replica serves what another one drives: streams, results, attaches, sessions; and tells no
//! app of another's.

mod agents;
mod backends;
mod cancellations;
mod conversations;
mod credentials;
mod long_calls;
mod notices;
mod people;
mod pins;

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bridge::{API, Bridge},
    evals::call_of,
    frames::Script,
    harness::ledger_in,
    http::{Answer, Request},
    mantyx::Mantyx,
    owners::token,
    peers,
    postgres::Postgres,
    sse::{self, Stream},
    wait,
};

struct Two {
    one: Bridge,
    two: Bridge,
    mantyx: Mantyx,
    postgres: Postgres,
    dir: TempDir,
}

impl Two {
    /// How many calls have reached the server.
    fn executions(&self) -> usize {
        std::fs::read_to_string(ledger_in(&self.dir)).unwrap_or_default().lines().count()
    }
}

async fn two() -> Two {
    let apps = format!("apps:\n  a: {{token: {}}}\n  b: {{token: {}}}\n", token("a"), token("b"));
    let it = two_with(&apps, "").await;
    for bridge in [&it.one, &it.two] {
        wait::soon("the backend should be there", async || {
            let status = ask(bridge, "a", "GET", "/v1/status", "").await.expect(200);
            (status["backends"][0]["state"] == "ready").then_some(())
        })
        .await;
    }
    it
}

/// With `keys` of the backend.
async fn two_with(apps: &str, keys: &str) -> Two {
    let dir = TempDir::new().expect("a directory");
    let plain = peers::ledger(&ledger_in(&dir), &[]).replacen('{', &format!("{{{keys}"), 1);
    two_of(dir, &format!("{apps}mcp:\n  plain: {plain}\n")).await
}

async fn two_of(dir: TempDir, sections: &str) -> Two {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    // What `sections` say of the upstream is in place of the usual.
    let upstream = if sections.contains("upstream:") { String::new() } else { mantyx.upstream() };
    let sections = sections.replace("MANTYX", &mantyx.url());
    let config = format!("{upstream}state: {{postgres: \"{}\"}}\n{sections}", postgres.url());
    let (one, two) = (Bridge::ready(&config).await, Bridge::ready(&config).await);
    Two { one, two, mantyx, postgres, dir }
}

async fn ask(bridge: &Bridge, app: &str, method: &str, target: &str, body: &str) -> Answer {
    let request = Request::new(method, target).bearer(&token(app));
    let request = if body.is_empty() { request } else { request.json(body) };
    request.answer(bridge.addr()).await
}

async fn submitted(bridge: &Bridge, target: &str, body: &str) -> String {
    let answer = ask(bridge, "a", "POST", &format!("{API}/{target}"), body).await.expect(202);
    answer["runId"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_run_of_another_replica_is_served_masked() {
    let it = two().await;
    let script = Script::new()
        .delta("a")
        .mcp("tu_1", "plain", "plain_note", r#"{"text":"x"}"#)
        .answered("tu_1")
        .until("looked")
        .delta("b")
        .done();
    it.mantyx.script(script);
    let run = submitted(&it.one, "agent-runs", r#"{"modelId":"m","prompt":"hi"}"#).await;
    it.mantyx.answer("tu_1").await;

    let stream = format!("{API}/agent-runs/{run}/stream");
    let request = Request::new("GET", &stream).bearer(&token("a"));
    let mut seen = Stream::request(&it.two, request).await;
    for (app, count) in [("a", 1), ("b", 0)] {
        let listed = ask(&it.two, app, "GET", "/v1/runs", "").await.expect(200);
        assert_eq!(listed["runs"].as_array().map(Vec::len), Some(count), "{app}: {listed}");
    }
    let shown = ask(&it.two, "a", "GET", &format!("/v1/runs/{run}"), "").await.expect(200);
    assert_eq!((&shown["state"], &shown["endedAt"]), (&"driven".into(), &Value::Null), "{shown}");
    assert_eq!((&shown["calls"], &shown["backends"]), (&1.into(), &json!(["plain"])), "{shown}");
    it.mantyx.release("looked");
    let frames = seen.rest().await;
    let kinds: Vec<String> = frames.iter().map(sse::event_type).collect();
    assert!(kinds.iter().any(|kind| kind == "tool_call"), "{kinds:?}");
    assert!(!kinds.iter().any(|kind| kind == "local_tool_call"), "{kinds:?}");
    assert!(sse::is_terminal(frames.last().expect("there are events")), "{kinds:?}");
    let seqs = sse::seqs(&frames);
    let expected: Vec<u64> = (seqs[0]..).take(seqs.len()).collect();
    assert_eq!(seqs, expected, "no gap, and no event twice");
    wait::soon("both should say that it has ended", async || {
        let shown = ask(&it.two, "a", "GET", &format!("/v1/runs/{run}"), "").await.expect(200);
        (shown["state"] == "ended").then_some(())
    })
    .await;
    ask(&it.two, "b", "GET", &format!("/v1/runs/{run}"), "").await.expect_error(404);

    // The other app gets none of it, however it spells the id.
    for id in [run.clone(), run.to_uppercase()] {
        let target = format!("{API}/agent-runs/{id}/stream");
        ask(&it.two, "b", "GET", &target, "").await.expect_error(404);
    }
}

#[tokio::test]
async fn a_call_of_another_replica_is_the_bridges() {
    let it = two().await;
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_hang", "{}"));
    let run = submitted(&it.one, "agent-runs", r#"{"modelId":"m","prompt":"hi"}"#).await;
    // A call counts as in flight before it is recorded, and the other replica reads the record.
    wait::soon("the other replica should know the call", async || {
        let shown = ask(&it.two, "a", "GET", &format!("/v1/runs/{run}"), "").await.expect(200);
        (shown["calls"] == 1).then_some(())
    })
    .await;
    let results = format!("{API}/agent-runs/{run}/tool-results");
    let forged = ask(&it.two, "a", "POST", &results, r#"{"toolUseId":"tu_1","result":"x"}"#).await;
    let error = forged.expect_error(404);
    assert_eq!(error["error"], "unknown_tool_use", "{error}");
    assert!(it.mantyx.posts("tu_1").is_empty());
    // A second driver would make its calls again.
    let attach = format!("/v1/runs/{run}/attach");
    let attached = ask(&it.two, "a", "POST", &attach, "{}").await;
    assert!(attached.status < 500, "{}", attached.text());
    ask(&it.two, "b", "POST", &attach, "{}").await.expect_error(404);
    let cancel = format!("{API}/agent-runs/{run}/cancel");
    ask(&it.two, "a", "POST", &cancel, "{}").await;
}

#[tokio::test]
async fn a_session_of_another_replica_keeps_its_tools() {
    let it = two().await;
    let session = ask(&it.one, "a", "POST", &format!("{API}/agent-sessions"), "{}").await;
    let session = session.value()["sessionId"].as_str().expect("an id").to_owned();
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    let messages = format!("agent-sessions/{session}/messages");
    submitted(&it.two, &messages, r#"{"prompt":"hi"}"#).await;
    assert_eq!(it.mantyx.answer("tu_1").await["toolUseId"], "tu_1");
    let target = format!("{API}/{messages}");
    ask(&it.two, "b", "POST", &target, r#"{"prompt":"hi"}"#).await.expect_error(404);
}

/// A client that got no answer asks the next replica.
#[tokio::test]
async fn calls_with_a_key_are_made_once_for_all_replicas() {
    let it = two().await;
    let call = |tool: &str| {
        format!(
            r#"{{"toolUseId":"tu_1","name":"plain_{tool}","args":{{"text":"x"}},"kind":"mcp_local"}}"#
        )
    };
    let keyed = async |bridge: &Bridge, key: &str, tool: &str| {
        let request = Request::new("POST", "/v1/tool-calls").bearer(&token("a"));
        request.header("Idempotency-Key", key).json(call(tool)).answer(bridge.addr()).await
    };
    let first = keyed(&it.one, "k1", "note").await.expect(200);
    assert_eq!(keyed(&it.two, "k1", "note").await.expect(200), first);
    let other = keyed(&it.two, "k1", "args").await.expect_error(422);
    assert_eq!(other["error"], "idempotency_key_reused");
    assert_eq!(it.executions(), 1);

    // While one replica makes the call, the other tells the client to come back.
    let mut slow = tokio::task::JoinSet::new();
    slow.spawn({
        let request = Request::new("POST", "/v1/tool-calls").bearer(&token("a"));
        let request = request.header("Idempotency-Key", "k2").json(call("hang"));
        let addr = it.one.addr();
        async move { request.answer(addr).await }
    });
    wait::soon("the call should be under way", async || (it.executions() == 2).then_some(())).await;
    let told = keyed(&it.two, "k2", "hang").await.expect_error(503);
    assert!(told["message"].as_str().unwrap_or_default().contains("replica"), "{told}");
    assert_eq!(it.executions(), 2);
    drop(slow);
}

/// Two requests in one millisecond are two.
#[tokio::test]
async fn a_key_at_two_replicas_at_once_makes_its_call_once() {
    let it = two().await;
    let body = r#"{"toolUseId":"tu_1","name":"plain_note","args":{"text":"x"},"kind":"mcp_local"}"#;
    for round in 0..40 {
        let key = format!("k{round}");
        let at = async |bridge: &Bridge| {
            let request = Request::new("POST", "/v1/tool-calls").bearer(&token("a"));
            let request = request.header("Idempotency-Key", &key).json(body);
            request.answer(bridge.addr()).await.status
        };
        let (one, two) = tokio::join!(at(&it.one), at(&it.two));
        assert!([one, two].contains(&200) && [one, two].iter().all(|it| [200, 503].contains(it)));
        assert_eq!(it.executions(), round + 1, "{key}");
    }
}

#[tokio::test]
async fn run_that_two_apps_attach_at_two_replicas_is_given_to_one() {
    let it = two().await;
    for round in 0..10 {
        let run = format!("run_at_once_{round}");
        let script = Script::one_call(&format!("tu_{round}"), "plain", "plain_hang", "{}");
        it.mantyx.has_run(&run, script);
        let attach = format!("/v1/runs/{run}/attach");
        let (a, b) = tokio::join!(
            ask(&it.one, "a", "POST", &attach, "{}"),
            ask(&it.two, "b", "POST", &attach, "{}")
        );
        let statuses = [a.status, b.status];
        assert!(statuses == [202, 404] || statuses == [404, 202], "{statuses:?}");
        let loser = if a.status == 404 { "a" } else { "b" };
        let stream = format!("{API}/agent-runs/{run}/stream");
        for bridge in [&it.one, &it.two] {
            ask(bridge, loser, "GET", &stream, "").await.expect_error(404);
        }
    }
}

/// Nothing tells the second replica that the run which an app hands over to it is an eval's.
#[tokio::test]
async fn a_call_of_an_eval_and_of_its_agent_run_at_another_replica_is_made_once() {
    let it = two().await;
    for round in 0..10 {
        let (run, call) = (format!("run_{round}_a"), format!("tu_{round}"));
        let (named, never) = (format!("named{round}"), "never");
        let own = Script::new().delta("x").until(&named);
        let own = own.mcp(&call, "plain", "plain_note", &format!(r#"{{"text":"{call}"}}"#));
        it.mantyx.has_run(&run, own.until(never));
        let attached = ask(&it.two, "a", "POST", &format!("/v1/runs/{run}/attach"), "{}").await;
        assert_eq!(attached.status, 202, "{}", attached.text());
        let eval = Script::new().until(&named).raw_event(&call_of(&run, &call, "plain_note"));
        it.mantyx.script(eval.until(never));
        submitted(&it.one, "eval-runs", r#"{"modelId":"m","prompt":"hi"}"#).await;
        wait::soon("its past should be read", async || {
            let shown = ask(&it.two, "a", "GET", &format!("/v1/runs/{run}"), "").await.expect(200);
            (shown["state"] == "driven").then_some(())
        })
        .await;
        it.mantyx.release(&named);
        assert_eq!(it.mantyx.taken(&call).await["result"], format!("noted: {call}"));
        assert_eq!(it.executions(), round + 1);
    }
}

/// Without the database, a replica does not know what the others do.
#[tokio::test]
async fn replica_without_the_database_takes_no_run_and_answers_no_key_of_another() {
    let mut it = two().await;
    let body = r#"{"toolUseId":"tu_1","name":"plain_note","args":{"text":"x"},"kind":"mcp_local"}"#;
    let keyed = async |bridge: &Bridge| {
        let request = Request::new("POST", "/v1/tool-calls").bearer(&token("a"));
        request.header("Idempotency-Key", "k").json(body).answer(bridge.addr()).await
    };
    let first = keyed(&it.one).await.expect(200);
    it.postgres.stop().await;
    wait::until("the replica should miss it", Duration::from_secs(20), async || {
        let answer = Request::new("GET", "/readyz").answer(it.two.addr()).await;
        (answer.status == 503).then_some(())
    })
    .await;
    let target = format!("{API}/agent-runs");
    ask(&it.two, "a", "POST", &target, r#"{"modelId":"m","prompt":"hi"}"#).await.expect_error(503);
    assert!(it.mantyx.requests("POST", "/agent-runs").is_empty());
    keyed(&it.two).await.expect_error(503);

    it.postgres.restart().await;
    it.two.wait_ready().await;
    assert_eq!(keyed(&it.two).await.expect(200), first);
    assert_eq!(it.executions(), 1);
}

/// To the other replicas, a run that is not written is nobody's, and any app could hand it over.
#[tokio::test]
async fn a_run_that_cannot_be_written_is_refused_and_cancelled() {
    let it = two().await;
    let lock = "begin; select from mantyx_bridge.replica for update; select pg_sleep(14)";
    let locking = it.postgres.start_query(lock);
    wait::soon("the replicas' rows should be locked", async || {
        let sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
        (it.postgres.query(sleeping) == ["1"]).then_some(())
    })
    .await;
    let target = format!("{API}/agent-runs");
    let script = Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#);
    it.mantyx.script(script.until("never"));
    let run = r#"{"modelId":"m","prompt":"hi"}"#;
    ask(&it.one, "a", "POST", &target, run).await.expect_error(503);
    assert_eq!(it.mantyx.requests("POST", "/cancel").len(), 1);
    drop(locking);
    it.mantyx.script(Script::one_call("tu_2", "plain", "plain_note", r#"{"text":"y"}"#));
    ask(&it.one, "a", "POST", &target, run).await.expect(202);
    assert_eq!(it.mantyx.answer("tu_2").await["result"], "noted: y");
    assert_eq!(it.executions(), 1);
}

/// A load balancer has the time to see that no more requests may come.
#[tokio::test]
async fn a_replica_that_is_asked_to_stop_says_so_and_serves_on_for_a_while() {
    let mut it = two().await;
    it.one.process().signal(Signal::TERM);
    wait::soon("it should not be ready any more", async || {
        let answer = Request::new("GET", "/readyz").answer(it.one.addr()).await;
        (answer.status == 503).then_some(())
    })
    .await;
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    submitted(&it.one, "agent-runs", r#"{"modelId":"m","prompt":"hi"}"#).await;
    assert_eq!(it.mantyx.answer("tu_1").await["result"], "noted: x");
    it.one.process().ended(Duration::from_secs(20)).await;
    assert_eq!(it.executions(), 1);
}

/// A request that comes while the database restarts waits for it.
#[tokio::test]
async fn a_short_outage_of_the_database_costs_a_request_only_time() {
    let mut it = two().await;
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    it.postgres.stop().await;
    wait::until("the replica should miss it", Duration::from_secs(20), async || {
        let answer = Request::new("GET", "/readyz").answer(it.one.addr()).await;
        (answer.status == 503).then_some(())
    })
    .await;
    let (target, spec) = (format!("{API}/agent-runs"), r#"{"modelId":"m","prompt":"hi"}"#);
    let (answer, ()) =
        tokio::join!(ask(&it.one, "a", "POST", &target, spec), it.postgres.restart());
    answer.expect(202);
    assert_eq!(it.mantyx.answer("tu_1").await["result"], "noted: x");
}

/// An app whose replica has died reads the rest at another one, which has never known the run.
#[tokio::test]
async fn a_run_that_has_ended_is_served_masked() {
    let it = two().await;
    it.mantyx.script(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#));
    let run = submitted(&it.one, "agent-runs", r#"{"modelId":"m","prompt":"hi"}"#).await;
    wait::soon("the run should end", async || {
        let run = ask(&it.one, "a", "GET", &format!("/v1/runs/{run}"), "").await.expect(200);
        (run["state"] == "ended").then_some(())
    })
    .await;
    for bridge in [&it.one, &it.two] {
        let stream = Request::new("GET", &format!("{API}/agent-runs/{run}/stream"));
        let frames = Stream::request(bridge, stream.bearer(&token("a"))).await.rest().await;
        let kinds: Vec<String> = frames.iter().map(sse::event_type).collect();
        assert!(kinds.iter().any(|kind| kind == "tool_call"), "{kinds:?}");
        assert!(!kinds.iter().any(|kind| kind == "local_tool_call"), "{kinds:?}");
    }
}
