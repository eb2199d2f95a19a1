//! A conversation with an agent goes on at any replica.

use tempfile::TempDir;

use super::{submitted, two_of};
use crate::{bridge::API, frames::Script, http::Request, owners::token, peers, wait};

#[tokio::test]
async fn a_question_of_an_agent_is_answered_at_another_replica() {
    let agent = peers::a2a_v1("1.0").await;
    let apps = format!("apps:\n  a: {{token: {}}}\n", token("a"));
    let sections = format!("{apps}a2a:\n  hr: {{url: \"{}\"}}\n", agent.url());
    let it = two_of(TempDir::new().expect("a directory"), &sections).await;
    for bridge in [&it.one, &it.two] {
        wait::soon("the agent should be known", async || {
            let status = super::ask(bridge, "a", "GET", "/v1/status", "").await.expect(200);
            (status["backends"][0]["state"] == "ready").then_some(())
        })
        .await;
    }
    let session = async || {
        let request = Request::new("POST", &format!("{API}/agent-sessions")).bearer(&token("a"));
        let made = request.json("{}").answer(it.one.addr()).await.expect(201);
        made["sessionId"].as_str().expect("an id").to_owned()
    };
    let (own, other) = (session().await, session().await);
    let says = async |bridge, session: &str, id: &str, message: &str| {
        it.mantyx.script(Script::new().a2a(id, "hr", message).answered(id).done());
        submitted(bridge, &format!("agent-sessions/{session}/messages"), r#"{"prompt":"hi"}"#)
            .await;
        it.mantyx.answer(id).await["result"].as_str().expect("a result").to_owned()
    };
    let asked = says(&it.one, &own, "tu_1", "input").await;
    assert!(asked.starts_with("Which day?"), "{asked}");
    assert_eq!(says(&it.two, &other, "tu_2", "msg Monday").await, "Monday");
    assert_eq!(says(&it.two, &own, "tu_3", "Friday").await, "day: Friday");
}
