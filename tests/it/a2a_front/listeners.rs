//! Clients that hang up, and streams that are too long.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Front, agent_of_1_0, data_of, message};

/// Begins a stream of `app` and hangs up after its first event; returns the task.
async fn hang_up(front: &Front, app: &str, id: &str, text: &str) -> String {
    let body = json!({
        "jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message(id, text),
    });
    let request = front.request(app, "POST", "/a2a/hr").json(body.to_string());
    let mut stream = request.send(front.bridge.addr()).await;
    let first = String::from_utf8(stream.chunk().await.expect("an event")).expect("text");
    data_of(&first)[0]["result"]["task"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn call_of_a_client_that_hung_up_gives_its_place_to_the_next() {
    let agent = agent_of_1_0().await;
    // The message that waits for a place would be refused before the task ends.
    let keys = "concurrency: 1, call_timeout: 20s, ";
    let front = Front::before(agent.url.as_str(), keys, ", max_concurrent_calls: 1").await;
    let task = hang_up(&front, "a", "m1", "steps 150").await;
    for app in ["a", "b"] {
        let answer = front.rpc(app, "SendMessage", message("m2", "msg hi")).await;
        assert_eq!(answer["result"]["message"]["parts"][0]["text"], "hi", "{app}: {answer}");
    }
    let answer = front.rpc("a", "GetTask", json!({ "id": task })).await;
    assert_eq!(answer["result"]["status"]["state"], "TASK_STATE_WORKING", "{answer}");
    // The task goes on, and its stream is read to its end.
    let done = front.wait_state("a", &task, "TASK_STATE_COMPLETED").await;
    assert_eq!(done["result"]["artifacts"][0]["parts"][0]["text"], "worked 150", "{done}");
    crate::wait::soon("the call should end", async || {
        let calls = front.ask("a", "GET", "/v1/calls", None).await.expect(200);
        let calls = calls["calls"].as_array().expect("a list").clone();
        calls.iter().all(|call| call["outcome"] == "result").then_some(())
    })
    .await;
}

/// Both wait for a person, and one of them hangs up.
#[tokio::test]
async fn message_of_two_clients_at_once_is_sent_once_and_both_get_its_task() {
    let mut agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "approve: ['*'], ", ", approves: true").await;
    let open = async |id: &str| {
        let body = json!({
            "jsonrpc": "2.0", "id": id, "method": "SendStreamingMessage",
            "params": message("m", "steps 20"),
        });
        let request = front.request("a", "POST", "/a2a/hr").json(body.to_string());
        request.send(front.bridge.addr()).await
    };
    let (first, second, third) = (open("1").await, open("2").await, open("3").await);
    let other = front.rpc("a", "SendMessage", message("m", "task other"));
    assert_eq!(other.await["error"]["code"], -32602, "the id has another message");
    // The call is the first one's; it goes on although that one leaves.
    drop(first);
    let waiting = super::list(&front).await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    super::decide(&front, &waiting, "approve").await;
    let mut tasks = Vec::new();
    for stream in [second, third] {
        let events = data_of(&stream.answer().await.text());
        tasks.push(events[0]["result"]["task"]["id"].clone());
        let last = events.last().expect("an event");
        let state = &last["result"]["statusUpdate"]["status"]["state"];
        assert_eq!(*state, "TASK_STATE_COMPLETED", "{last}");
    }
    assert!(tasks[0].is_string() && tasks[0] == tasks[1], "{tasks:?}");
    assert!(agent.says("MESSAGE steps", Duration::from_secs(20)).await, "it was sent");
    assert!(!agent.says("MESSAGE steps", Duration::from_secs(1)).await, "once");
}

#[tokio::test]
async fn stop_does_not_wait_for_a_stream_without_a_reader() {
    let agent = agent_of_1_0().await;
    let mut front = Front::before(agent.url.as_str(), "", "").await;
    hang_up(&front, "a", "m1", "steps 6000").await;
    let begin = Instant::now();
    front.bridge.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn stream_of_more_than_16_mib_ends_with_an_error_of_the_protocol() {
    let agent = agent_of_1_0().await;
    let front = Front::before(agent.url.as_str(), "", "").await;
    let size = |events: &[Value]| events.iter().map(|event| event.to_string().len()).sum::<usize>();
    let events = front.events("a", "SendStreamingMessage", message("m", "flood 20")).await;
    let last = events.last().expect("an event");
    assert_eq!(last["error"]["code"], -32603, "{last}");
    let why = last["error"]["message"].as_str().expect("a sentence");
    assert!(why.contains("16 MiB") && why.contains("Ask for the task"), "{why}");
    let size_of_all = size(&events);
    assert!((15 << 20..18 << 20).contains(&size_of_all), "{size_of_all}");
    let task = events[0]["result"]["task"]["id"].clone();
    // The task itself is as large, and hides no other one in the list.
    let small = front.begin("a", "o", 1).await;
    let listed = front.rpc("a", "ListTasks", json!({})).await;
    let tasks = listed["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{listed}"));
    let ids: Vec<&Value> = tasks.iter().map(|task| &task["id"]).collect();
    assert_eq!(ids, [&json!(small), &task], "{listed}");
    let why = tasks[1]["metadata"]["mantyx-bridge"].as_str().expect("a sentence");
    assert!(why.contains("at most 16 MiB are read"), "{why}");
    // A stream within the limit is whole.
    let events = front.events("a", "SendStreamingMessage", message("n", "flood 14")).await;
    let last = events.last().expect("an event");
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{last}");
}
