//! The result of a long call is fetched at any replica.

use super::{submitted, two_with};
use crate::{
    bridge::API,
    frames::Script,
    http::{Answer, Request},
    owners::token,
    pending::{Gate, fetch, pending},
};

#[tokio::test]
async fn a_result_is_fetched_at_another_replica() {
    let gate = Gate::new();
    let keys = format!("apps:\n  a: {{token: {}}}\n{}", token("a"), gate.section());
    let it = two_with(&keys, "").await;
    let new_session = async || {
        let request = Request::new("POST", &format!("{API}/agent-sessions")).bearer(&token("a"));
        let made: Answer = request.json("{}").answer(it.one.addr()).await;
        made.expect(201)["sessionId"].as_str().expect("an id").to_owned()
    };
    let (session, other) = (new_session().await, new_session().await);
    let messages = |session: &str| format!("agent-sessions/{session}/messages");
    let hello = r#"{"prompt":"hi"}"#;

    it.mantyx.script(Script::new().local("tu_1", "gate", "{}").answered("tu_1").done());
    submitted(&it.one, &messages(&session), hello).await;
    let first = pending(&it.mantyx.answer("tu_1").await);
    it.mantyx.fill("@call", first["callId"].as_str().expect("an id"));

    for (id, session, expected) in
        [("tu_2", &session, "still runs"), ("tu_3", &other, "There is no such call")]
    {
        it.mantyx.script(fetch(Script::new(), id, 0).answered(id).done());
        submitted(&it.two, &messages(session), hello).await;
        let told = it.mantyx.answer(id).await.to_string();
        assert!(told.contains(expected), "{id}: {told}");
    }
    it.mantyx.script(fetch(Script::new(), "tu_4", 60).answered("tu_4").done());
    submitted(&it.two, &messages(&session), hello).await;
    gate.open();
    assert_eq!(it.mantyx.answer("tu_4").await["result"].as_str().map(str::trim), Some("opened"));
    assert_eq!(gate.calls(), 1);
}
