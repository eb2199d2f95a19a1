//! What a crash leaves of a message that waits for a person: it was not sent, so that it is asked
//! about again, and sent once. The same holds of a request with an `Idempotency-Key`.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Front, decide, list, message};
use crate::{
    a2a_peers::{self as a2a},
    http::Answer,
    peers::fetch,
    wait,
};

const APPROVED: &str = "approve: ['*'], ";
const APPROVES: &str = ", approves: true";

/// What waits for a person, once something does.
async fn waiting(front: &Front) -> Vec<Value> {
    wait::soon("a call should wait for a person", async || {
        Some(list(front).await).filter(|waiting| !waiting.is_empty())
    })
    .await
}

/// Asks by `ask` before and after a crash. Meanwhile a person is asked, and approves the second
/// time.
async fn answer_after_a_crash(front: &mut Front, ask: impl AsyncFn(&Front)) {
    tokio::select! {
        () = ask(front) => panic!("it waits for a person"),
        _ = waiting(front) => {}
    }
    front.bridge.kill9();
    front.bridge.restart().await;
    front.wait_for_agent().await;
    let approve = async { decide(front, &waiting(front).await, "approve").await };
    tokio::join!(ask(front), approve);
}

#[tokio::test]
async fn message_that_waited_for_a_person_in_a_crash_is_asked_about_again_and_sent_once() {
    let mut agent = a2a::start(fetch::python(), "a2a_v1_agent.py", &["--card", "1.0"]).await;
    let mut front = Front::before(agent.url.as_str(), APPROVED, APPROVES).await;
    answer_after_a_crash(&mut front, async |front: &Front| {
        let answer = front.rpc("a", "SendMessage", message("m", "task report")).await;
        assert!(answer["result"]["task"]["id"].is_string(), "{answer}");
    })
    .await;
    // What was sent is not sent again.
    let again = front.rpc("a", "SendMessage", message("m", "task report")).await;
    assert!(again["result"]["task"]["id"].is_string(), "{again}");
    assert!(agent.says("MESSAGE task", Duration::from_secs(20)).await, "it was sent");
    assert!(!agent.says("MESSAGE task", Duration::from_secs(1)).await, "once");
}

#[tokio::test]
async fn keyed_request_that_waited_for_a_person_in_a_crash_is_asked_about_again() {
    let agent = super::agent_of_1_0().await;
    let mut front = Front::before(agent.url.as_str(), APPROVED, APPROVES).await;
    let ask = async |front: &Front| -> Answer {
        let call = json!({"toolUseId": "t", "name": "hr", "args": {"message": "msg hi"}});
        let request = front.request("a", "POST", "/v1/tool-calls").json(call.to_string());
        request.header("Idempotency-Key", "k").answer(front.bridge.addr()).await
    };
    answer_after_a_crash(&mut front, async |front: &Front| {
        let answer = ask(front).await.expect(200);
        assert_eq!(answer["result"], "hi", "{answer}");
    })
    .await;
    assert_eq!(ask(&front).await.expect(200)["result"], "hi", "it is not made again");
}
