//! The trace that a run was created in goes along with its calls, and none is made up.

use crate::{
    bridge::API,
    frames::Script,
    harness::Harness,
    mantyx::{Mantyx, Recorded},
    peers,
};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn rig() -> Harness {
    let rig = Harness::bare(&format!("mcp:\n  bad: {}\n", peers::hostile_mcp(&[]))).await;
    rig.bridge.wait_backend("bad", "ready").await;
    rig
}

/// The request that reached the server, as it says.
async fn echoed(mantyx: &Mantyx, id: &str) -> String {
    let answer = mantyx.answer(id).await;
    answer["result"].as_str().unwrap_or_else(|| panic!("an echo: {answer}")).to_owned()
}

#[tokio::test]
async fn calls_carry_the_trace_of_their_run_over_a_restart_too() {
    let mut rig = rig().await;
    let script = Script::new().mcp("tu_1", "bad", "bad_echo", "{}").answered("tu_1");
    rig.mantyx.script(script.until("later").mcp("tu_2", "bad", "bad_echo", "{}").until("never"));
    let headers = [("traceparent", PARENT), ("tracestate", "a=1"), ("TraceState", "b=2")];
    rig.bridge.post_run_with(r#"{"prompt":"x"}"#, &headers).await;
    let told = format!(r#""traceparent":"{PARENT}","tracestate":"a=1,b=2""#);
    let first = echoed(&rig.mantyx, "tu_1").await;
    assert!(first.contains(&told), "{first}");
    let sent = rig.mantyx.only("POST", "/agent-runs");
    assert_eq!(Recorded::header(&sent, "traceparent"), Some(PARENT), "MANTYX is told, too");
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.bridge.wait_backend("bad", "ready").await;
    rig.mantyx.release("later");
    let second = echoed(&rig.mantyx, "tu_2").await;
    assert!(second.contains(&told), "{second}");
}

#[tokio::test]
async fn run_without_a_trace_gets_none() {
    let rig = rig().await;
    let wrong = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    for (id, headers) in
        [("tu_1", &[][..]), ("tu_2", &[("traceparent", wrong), ("tracestate", "a=1")][..])]
    {
        rig.mantyx.script(Script::one_call(id, "bad", "bad_echo", "{}"));
        rig.bridge.post_run_with("{}", headers).await;
        let told = echoed(&rig.mantyx, id).await;
        assert!(told.contains(id) && !told.contains("trace"), "{told}");
    }
}

#[tokio::test]
async fn a_message_of_a_session_has_its_own_and_so_has_a_call_by_hand() {
    let rig = rig().await;
    let sessions = format!("{API}/agent-sessions");
    let session = rig.bridge.api("POST", &sessions, Some("{}")).await.expect(201);
    let messages = format!("{sessions}/{}/messages", session["sessionId"].as_str().expect("an id"));
    rig.mantyx.script(Script::one_call("tu_1", "bad", "bad_echo", "{}"));
    let message = rig.bridge.request("POST", &messages).header("traceparent", PARENT);
    message.json(r#"{"prompt":"x"}"#).answer(rig.bridge.addr()).await.expect(202);
    let told = echoed(&rig.mantyx, "tu_1").await;
    assert!(told.contains(&format!(r#""traceparent":"{PARENT}""#)), "{told}");
    let by_hand = rig.bridge.request("POST", "/v1/tool-calls").header("traceparent", PARENT);
    let event = r#"{"toolUseId":"tu_2","name":"bad_echo","args":{}}"#;
    let answer = by_hand.json(event).answer(rig.bridge.addr()).await.expect(200);
    let told = answer["result"].as_str().expect("an echo");
    assert!(told.contains(&format!(r#""traceparent":"{PARENT}""#)), "{told}");
}
