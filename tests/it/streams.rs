//! A run's stream on its way through the bridge: bytes, order, breaks, and readers of every speed.

use std::time::Duration;

use mantyx_bridge::internals::Frame;

use crate::{
    bridge::{API, Submitted},
    frames::Script,
    harness::Harness,
    process,
    sse::{self, Stream},
    wait,
};

const NOTE: &str = r#"{"text":"x"}"#;

#[tokio::test]
async fn an_owned_call_reaches_the_app_as_information() {
    let rig = Harness::start().await;
    let run = rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), [1, 2, 3, 4], "every event once, in order");
    assert!(sse::find(&frames, "local_tool_call").is_none(), "an SDK would answer it");
    let seen = sse::find(&frames, "tool_call").expect("the app is told of the call");
    let expected = serde_json::json!({"toolUseId":"tu_1","name":"plain_note","input":{"text":"x"}});
    assert_eq!(seen, expected);
    assert_eq!(sse::find(&frames, "result").expect("the end")["text"], "done");
}

#[tokio::test]
async fn the_input_of_a_masked_call_keeps_its_bytes() {
    let rig = Harness::start().await;
    let args = r#"{"b":1.0,"a":123456789012345678901234567890}"#;
    let run = rig.run(Script::one_call("tu_1", "plain", "plain_args", args)).await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert!(sse::text(&frames).contains(&format!(r#""input":{args}"#)), "{}", sse::text(&frames));
    let posted = rig.mantyx.answer("tu_1").await;
    assert_eq!(posted["result"], args, "and so did the tool");
}

#[tokio::test]
async fn events_that_nobody_knows_pass_byte_for_byte() {
    let rig = Harness::start().await;
    let odd = "event:  brand_new\nid:1\ndata:{\"seq\":1,\"type\":\"brand_new\",\ndata: \"data\":1.0}\nfuture: field\n\n";
    let delta = "data: {\"type\":\"assistant_delta\" , \"seq\":2,\"data\":{\"text\":\"\u{1f600}\\ud83d\"}}\nid: 2\n\n";
    for script in [Script::new(), Script::new().pieces(7), Script::new().pieces(1)] {
        let run = rig.run(script.raw_event(odd).raw_event(delta).done()).await;
        let text = sse::text(&sse::whole(&rig.bridge, &run.stream).await);
        assert!(text.starts_with(&format!("{odd}{delta}")), "{text:?}");
    }
}

/// Wherever MANTYX's bytes are cut, an app gets them as they are, each event with its own end.
#[tokio::test]
async fn line_ends_pass_as_they_are_wherever_they_are_cut() {
    let rig = Harness::start().await;
    for piece in [1, 2, 3, 5] {
        let script = Script::new().delta("a").delta("b").done().crlf().pieces(piece);
        let sent = String::from_utf8(script.bytes()).expect("scripts are text");
        let run = rig.run(script).await;
        let text = sse::text(&sse::whole(&rig.bridge, &run.stream).await);
        assert_eq!(text, sent, "in pieces of {piece}");
    }
}

#[tokio::test]
async fn line_ends_and_packets_do_not_matter() {
    let rig = Harness::start().await;
    struct Case {
        id: &'static str,
        crlf: bool,
        unframed: bool,
        piece: usize,
    }
    for Case { id, crlf, unframed, piece } in [
        Case { id: "tu_1", crlf: true, unframed: false, piece: 7 },
        Case { id: "tu_2", crlf: true, unframed: true, piece: 1 },
        Case { id: "tu_3", crlf: false, unframed: true, piece: 7 },
        Case { id: "tu_4", crlf: true, unframed: false, piece: 0 },
    ] {
        let mut script = Script::one_call(id, "plain", "plain_note", NOTE).pieces(piece);
        script = if crlf { script.crlf() } else { script };
        script = if unframed { script.unframed() } else { script };
        let run = rig.run(script).await;
        let frames = sse::whole(&rig.bridge, &run.stream).await;
        assert_eq!(sse::seqs(&frames), [1, 2, 3, 4], "{id}");
        assert_eq!(rig.mantyx.answer(id).await["result"], "noted: x");
    }
}

#[tokio::test]
async fn a_cut_at_any_byte_loses_and_repeats_nothing() {
    let rig = Harness::start().await;
    let script = |id: &str| Script::new().mcp(id, "plain", "plain_note", NOTE).answered(id).done();
    let length = script("tu_00").bytes().len();
    // Every seventh byte covers each field of each frame; the last byte is the stream's own end.
    let offsets: Vec<_> = (0..length).step_by(7).collect();
    let mut runs = Vec::new();
    for (number, offset) in offsets.iter().enumerate() {
        let id = format!("tu_{number:02}");
        let cut = script(&id).cut([*offset]);
        let cut = if number % 2 == 0 { cut.unframed() } else { cut };
        runs.push((id, rig.run(cut).await));
    }
    for ((id, run), offset) in runs.iter().zip(&offsets) {
        let frames = sse::whole(&rig.bridge, &run.stream).await;
        assert_eq!(sse::seqs(&frames), [1, 2, 3], "cut after {offset} bytes");
        assert_eq!(rig.mantyx.answer(id).await["result"], "noted: x", "cut after {offset} bytes");
        assert!(rig.mantyx.opened(&run.run_id) >= 2, "the bridge comes back for the rest");
    }
    assert_eq!(rig.executions().len(), offsets.len(), "each call ran once");
}

#[tokio::test]
async fn a_stream_that_breaks_again_and_again_gets_there() {
    let rig = Harness::start().await;
    let script = (0..30).fold(Script::new(), |script, n| script.delta(&format!("part {n}")));
    let script = script.mcp("tu_1", "plain", "plain_note", NOTE).answered("tu_1").done();
    let last = script.last_seq();
    let run = rig.run(script.cut([300, 450, 200, 500])).await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), (1..=last).collect::<Vec<_>>());
    rig.mantyx.answer("tu_1").await;
    let resumed = rig.mantyx.requests("GET", "/stream");
    let resumed = resumed.iter().filter(|request| request.header("last-event-id").is_some());
    for request in resumed {
        let seq = request.header("last-event-id").unwrap_or_default();
        let query = format!("lastSeq={seq}");
        assert!(request.target.contains(&query), "both ways to resume agree: {}", request.target);
    }
}

#[tokio::test]
async fn an_event_that_comes_twice_runs_once() {
    let rig = Harness::start().await;
    let call = r#"{"toolUseId":"tu_1","name":"plain_note","args":{"text":"x"},"kind":"mcp_local","mcpServer":"plain","mcpToolName":"plain_note"}"#;
    let again = format!(
        "id: 1\nevent: local_tool_call\ndata: {{\"seq\":1,\"type\":\"local_tool_call\",\"data\":{call}}}\n\n"
    );
    let script = Script::new().event("local_tool_call", call).raw(&again).delta("x");
    // The same tool use under a new seq is a repetition as well.
    let script = script.event("local_tool_call", call).answered("tu_1").done();
    let run = rig.run(script).await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), [1, 2, 3, 4, 5], "a seq is handed on once");
    rig.mantyx.answer("tu_1").await;
    assert_eq!(rig.executions().len(), 1, "one tool use is one execution");
}

/// An event with a number of its own.
fn event(seq: u64, kind: &str, data: &str) -> String {
    format!(
        "id: {seq}\nevent: {kind}\ndata: {{\"seq\":{seq},\"type\":\"{kind}\",\"data\":{data}}}\n\n"
    )
}

fn call(seq: u64, id: &str) -> String {
    let data = format!(
        r#"{{"toolUseId":"{id}","name":"plain_note","args":{{"text":"x"}},"kind":"mcp_local","mcpServer":"plain"}}"#
    );
    event(seq, "local_tool_call", &data)
}

#[tokio::test]
async fn a_call_that_comes_behind_a_later_event_is_answered_once() {
    let rig = Harness::start().await;
    let script = Script::new()
        .raw_event(&event(1, "assistant_delta", r#"{"text":"a"}"#))
        .raw_event(&call(3, "tu_3"))
        // Published at once, and numbered before.
        .raw(&call(2, "tu_2"))
        .raw(&call(2, "tu_2"))
        .raw(&call(3, "tu_3"))
        .until("tu_2")
        .until("tu_3")
        .raw_event(&event(4, "result", r#"{"subtype":"success"}"#));
    let run = rig.run(script).await;
    for id in ["tu_2", "tu_3"] {
        assert_eq!(rig.mantyx.answer(id).await["result"], "noted: x", "{id}");
    }
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), [1, 3, 4], "an app's place in the stream only goes on");
    assert_eq!(rig.executions().len(), 2, "{:?}", rig.executions());
}

#[tokio::test]
async fn a_call_that_comes_behind_a_later_event_is_answered_after_a_restart_too() {
    let mut rig = Harness::start().await;
    let script = Script::new()
        .raw_event(&event(1, "assistant_delta", r#"{"text":"a"}"#))
        .raw_event(&event(2, "assistant_delta", r#"{"text":"b"}"#))
        .raw_event(&event(3, "assistant_delta", r#"{"text":"c"}"#))
        .raw_event(&call(4, "tu_4"))
        .until("later")
        .raw_event(&call(3, "tu_3"))
        .until("tu_3")
        .raw_event(&event(5, "result", r#"{"subtype":"success"}"#));
    let run = rig.run(script).await;
    rig.mantyx.taken("tu_4").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.mantyx.release("later");
    assert_eq!(rig.mantyx.taken("tu_3").await["result"], "noted: x");
    let frames = Stream::resume(&rig.bridge, &run.stream, 4).await.rest().await;
    assert_eq!(sse::seqs(&frames), [5]);
    assert_eq!(rig.executions().len(), 2, "{:?}", rig.executions());
}

#[tokio::test]
async fn a_last_event_that_comes_behind_a_later_one_ends_its_run() {
    let rig = Harness::start().await;
    let script = Script::new()
        .raw_event(&event(1, "assistant_delta", r#"{"text":"a"}"#))
        .raw_event(&event(3, "assistant_delta", r#"{"text":"b"}"#))
        .raw_event(&event(2, "result", r#"{"subtype":"success"}"#))
        .until("never");
    let run = rig.run(script).await;
    wait::soon("the run should end", async || {
        let shown = rig.bridge.api("GET", &format!("/v1/runs/{}", run.run_id), None).await;
        (shown.expect(200)["state"] == "ended").then_some(())
    })
    .await;
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), [1, 3, 2], "as MANTYX has sent it");
}

#[tokio::test]
async fn an_app_resumes_where_it_was() {
    let rig = Harness::start().await;
    let script = Script::one_call("tu_1", "plain", "plain_note", NOTE);
    let run = rig.run(script).await;
    sse::whole(&rig.bridge, &run.stream).await;
    let by_header = Stream::resume(&rig.bridge, &run.stream, 2).await.rest().await;
    assert_eq!(sse::seqs(&by_header), [3, 4], "Last-Event-ID");
    let by_query = sse::whole(&rig.bridge, &format!("{}?lastSeq=3", run.stream)).await;
    assert_eq!(sse::seqs(&by_query), [4], "lastSeq");
    let from_start = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&from_start), [1, 2, 3, 4], "a finished run can be read again");
    assert!(sse::find(&from_start, "local_tool_call").is_none(), "a replay is masked as well");
}

#[tokio::test]
async fn two_readers_of_one_run_see_the_same() {
    let rig = Harness::start().await;
    let script = Script::new().delta("a").until("go");
    let run =
        rig.run(script.mcp("tu_1", "plain", "plain_note", NOTE).answered("tu_1").done()).await;
    let mut early = Stream::open(&rig.bridge, &run.stream).await;
    let first = early.event().await.expect("the first event, while the run still goes");
    let mut late = Stream::open(&rig.bridge, &run.stream).await;
    rig.mantyx.release("go");
    let mut seen = vec![first];
    seen.extend(early.rest().await);
    assert_eq!(sse::text(&seen), sse::text(&late.rest().await));
}

#[tokio::test]
async fn calls_are_answered_though_no_app_reads() {
    let rig = Harness::start().await;
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x");
}

#[tokio::test]
async fn an_app_that_stops_reading_costs_little_and_delays_nothing() {
    let mut rig = Harness::start().await;
    let filler = "y".repeat(16 << 10);
    let flood = |script: Script| (0..1500).fold(script, |script, _| script.delta(&filler));
    let before = process::resident(rig.bridge.process().pid());
    // The flood starts only once the app has its stream open and does not read.
    let script = flood(Script::new().delta("first").until("open"));
    let script = script.mcp("tu_1", "plain", "plain_note", NOTE).answered("tu_1").done();
    let last = script.last_seq();
    let run = rig.run(script).await;
    let mut stuck = Stream::open(&rig.bridge, &run.stream).await;
    stuck.event().await.expect("the first event");
    rig.mantyx.release("open");
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "noted: x", "24 MB later");
    let grown = process::resident(rig.bridge.process().pid()).saturating_sub(before);
    assert!(grown < 20 << 20, "{} KiB for an app that does not read", grown >> 10);

    // Its stream was closed; it comes back for the rest and misses nothing.
    let mut seen: Vec<u64> = vec![1];
    seen.extend(sse::seqs(&stuck.rest().await));
    wait::until("the app should get to the end", Duration::from_secs(60), async || {
        let from = seen.last().copied().unwrap_or(0);
        let mut stream = Stream::resume(&rig.bridge, &run.stream, from).await;
        seen.extend(sse::seqs(&stream.rest().await));
        (seen.last() == Some(&last)).then_some(())
    })
    .await;
    assert_eq!(seen, (1..=last).collect::<Vec<_>>(), "no gap and no repetition");
}

#[tokio::test]
async fn two_runs_do_not_mix() {
    let rig = Harness::start().await;
    let script = |name: &str| {
        let id = format!("tu_{name}");
        let args = format!(r#"{{"text":"{name}"}}"#);
        Script::new()
            .delta(name)
            .until("go")
            .mcp(&id, "plain", "plain_note", &args)
            .answered(&id)
            .done()
    };
    let (one, two) = (rig.run(script("one")).await, rig.run(script("two")).await);
    let (mut first, mut second) = (
        Stream::open(&rig.bridge, &one.stream).await,
        Stream::open(&rig.bridge, &two.stream).await,
    );
    rig.mantyx.release("go");
    let (first, second) = (first.rest().await, second.rest().await);
    struct Case<'a> {
        frames: &'a [Frame],
        name: &'static str,
        run: &'a Submitted,
    }
    for Case { frames, name, run } in [
        Case { frames: &first, name: "one", run: &one },
        Case { frames: &second, name: "two", run: &two },
    ] {
        let id = format!("tu_{name}");
        assert_eq!(sse::find(frames, "tool_call").expect("its call")["toolUseId"], id.as_str());
        assert_eq!(rig.mantyx.answer(&id).await["result"], format!("noted: {name}"));
        let post = rig.mantyx.posts(&id).pop().expect("a POST");
        assert_eq!(post.target, format!("{API}/agent-runs/{}/tool-results", run.run_id));
    }
}

#[tokio::test]
async fn an_idle_stream_shows_that_it_lives() {
    let rig = Harness::start().await;
    let run = rig.run(Script::new().delta("a").until("never")).await;
    let mut stream = Stream::open(&rig.bridge, &run.stream).await;
    stream.event().await.expect("the first event");
    let deadline = Duration::from_secs(17);
    let beat = tokio::time::timeout(deadline, stream.next()).await;
    let beat = beat.expect("a comment at least every 15 s").expect("the stream stays open");
    assert!(beat.raw.starts_with(b":"), "a heartbeat is a comment: {beat:?}");
    assert!(beat.fields().id.is_none(), "it moves no seq");
}

#[tokio::test]
async fn a_run_without_the_bridges_tools_is_piped() {
    let rig = Harness::start().await;
    let script = Script::new().delta("a").local("tu_1", "mine", "{}").done().crlf();
    let bytes = script.bytes();
    rig.mantyx.script(script);
    let run = rig.bridge.post_run_with("{}", &[("X-Bridge-Backends", "none")]).await;
    let answer = rig.bridge.api("GET", &run.stream, None).await;
    assert_eq!(answer.text(), String::from_utf8_lossy(&bytes), "byte for byte");
    assert_eq!(rig.bridge.status().await["runs"]["driven"], 0);
    assert!(rig.mantyx.posts("tu_1").is_empty(), "the app's own call");
}

#[tokio::test]
async fn the_apps_own_calls_are_its_own() {
    let rig = Harness::start().await;
    let script = Script::new()
        .local("tu_app", "mine", r#"{"n":1}"#)
        .mcp("tu_bridge", "plain", "plain_note", NOTE)
        .answered("tu_bridge")
        .answered("tu_app")
        .done();
    rig.mantyx.script(script);
    let own = r#"{"tools":[{"kind":"local","name":"mine","parameters":{"type":"object"}}]}"#;
    let run = rig.bridge.post_run(own).await;
    let mut stream = Stream::open(&rig.bridge, &run.stream).await;
    let call = stream.until("local_tool_call").await;
    assert_eq!(sse::find(&call, "local_tool_call").expect("a call")["toolUseId"], "tu_app");
    rig.mantyx.answer("tu_bridge").await;
    let results = format!("{API}/agent-runs/{}/tool-results", run.run_id);
    let theirs =
        rig.bridge.api("POST", &results, Some(r#"{"toolUseId":"tu_bridge","result":"no"}"#));
    assert_eq!(
        theirs.await.expect_error(404)["error"],
        "unknown_tool_use",
        "the bridge answers it"
    );
    rig.bridge
        .api("POST", &results, Some(r#"{"toolUseId":"tu_app","result":"yes"}"#))
        .await
        .expect(200);
    let rest = stream.rest().await;
    assert!(rest.last().is_some_and(sse::is_terminal), "the run ends");
    assert_eq!(rig.mantyx.answer("tu_app").await["result"], "yes", "forwarded, once");
    assert_eq!(rig.mantyx.answer("tu_bridge").await["result"], "noted: x", "one answer, ours");
}
