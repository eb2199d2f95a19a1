//! Requests about tasks: how one is, its end, its stream, and the tasks of an app.
//!
//! Must not: answer about a task of another app, or say that there is one.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use http::Response;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::Client;
use super::error::FrontError;
use super::message::TaskParams;
use super::reply::{self, Item};
use super::request::ListParams;
use crate::backend::calls::relay::NotRelayed;
use crate::backend::peer::ReadPermission;
use crate::backend::{
    AgentEvent, AgentResult, CallError, RelayOperation, RelayReply, RelayRequest,
};
use crate::calls::Reloads;
use crate::http::Body;
use crate::model::json::quoted;
use crate::model::{AppName, Ending, Members};
use crate::run_store::{AgentThing, Whose};

/// How many tasks one request for a list asks the agent for, and how many bytes of them it answers
/// with.
const MAX_ASKED: usize = 200;
const MAX_LIST: usize = 16 << 20;

impl Client {
    /// Whose something of the agent is.
    pub(super) async fn whose(&self, thing: AgentThing) -> Result<Whose, FrontError> {
        let runs = &self.api.runs;
        let whose = runs.whose(thing, &self.app.name).await;
        whose.map_err(|_away| FrontError::busy(runs.reason_unkept()))
    }

    /// Refuses a task that is not the app's: the agent would show it, as to the agent all apps are
    /// one client.
    pub(super) async fn check_task(&self, task: &str) -> Result<(), FrontError> {
        match self.whose(AgentThing::task(&self.agent.name, task)).await? {
            Whose::Own => Ok(()),
            Whose::Anothers | Whose::Unknown => Err(FrontError::not_found()),
        }
    }

    /// Answers with the task as it stands.
    pub(super) async fn get_task(self, params: TaskParams) -> Response<Body> {
        let TaskParams { id, history_length, .. } = params;
        let operation = RelayOperation::GetTask { task: id.clone(), history_length };
        let item = self.item_about(&id, operation).await;
        item.response(&self.form)
    }

    /// Cancels the task, in a task of the daemon: it is cancelled although the client hangs up.
    pub(super) async fn cancel_task(self, params: TaskParams) -> Response<Body> {
        let TaskParams { id, metadata, .. } = params;
        let form = self.form.clone();
        let (sender, cancelled) = oneshot::channel();
        let (calls, app) = (Arc::clone(&self.api.runs.calls), self.app.name.clone());
        calls.spawn(&app, async move {
            let operation = RelayOperation::CancelTask { task: id.clone(), metadata };
            let item = self.item_about(&id, operation).await;
            let (app, agent) = (&self.app.name, &self.agent.name);
            tracing::info!(%app, %agent, is_error = item.is_error(), "a client has cancelled a task of an agent");
            // The client may have hung up.
            sender.send(item).ok();
        });
        let stopped = || Item::Failed(FrontError::busy("The bridge stops; ask for the task."));
        cancelled.await.unwrap_or_else(|_| stopped()).response(&form)
    }

    /// Answers with the stream of what becomes of the task from now on.
    pub(super) async fn subscribe(self, task: String) -> Response<Body> {
        if let Err(error) = self.check_task(&task).await {
            return reply::failure(&self.form, error, true);
        }
        let form = self.form.clone();
        let items = self.clone().subscription(task).await;
        reply::stream_of(form, self.while_permitted(items)).await
    }

    /// The events of a task of the app.
    pub(super) async fn subscription(self, task: String) -> BoxStream<'static, Item> {
        let app = self.app.name.clone();
        let operation = RelayOperation::Subscribe { task: task.clone() };
        match self.ask(operation).await {
            Ok(RelayReply::Events(events)) => about(task, app, events).boxed(),
            Ok(RelayReply::One(reply)) => {
                about(task, app, stream::iter([Ok(reply)]).boxed()).boxed()
            }
            Err(error) => stream::iter([Item::Failed(error)]).boxed(),
        }
    }

    /// The agent's reply to a request about a task of the app.
    async fn item_about(&self, task: &str, operation: RelayOperation) -> Item {
        match self.ask_about(task, operation).await {
            Ok(RelayReply::One(reply)) => Item::counted(reply, &self.app.name).await,
            Ok(RelayReply::Events(mut events)) => match events.next().await {
                Some(Ok(reply)) => Item::counted(reply, &self.app.name).await,
                _ => Item::Failed(FrontError::busy("The agent's reply broke off.")),
            },
            Err(error) => Item::Failed(error),
        }
    }

    /// Asks the agent about a task of the app, and checks that the reply is about that one.
    pub(super) async fn ask_about(
        &self,
        task: &str,
        operation: RelayOperation,
    ) -> Result<RelayReply, FrontError> {
        self.check_task(task).await?;
        let reply = self.ask(operation).await?;
        match &reply {
            RelayReply::One(AgentEvent::Result(AgentResult { task: about, .. }))
                if about.as_deref() != Some(task) =>
            {
                Err(FrontError::other_task())
            }
            _ => Ok(reply),
        }
    }

    async fn ask(&self, operation: RelayOperation) -> Result<RelayReply, FrontError> {
        self.relay(operation).await?.map_err(|failure| FrontError::not_relayed(&failure))
    }

    /// Sends the agent a request. The inner error is one of the agent, or of the way to it.
    async fn relay(
        &self,
        operation: RelayOperation,
    ) -> Result<Result<RelayReply, NotRelayed>, FrontError> {
        let Self { api, app, agent, wire, .. } = self;
        let _permit = api.runs.calls.permit(&app.name).await.map_err(FrontError::busy)?;
        let request = RelayRequest { wire: *wire, operation };
        let reply = api.backends().relay(&app.name, &agent.name, &request, self.permission());
        Ok(reply.await)
    }

    /// `items` until a reload takes the agent away from the app. A client that may no longer ask
    /// for its task must not go on reading about it.
    pub(super) fn while_permitted(
        self,
        items: BoxStream<'static, Item>,
    ) -> BoxStream<'static, Item> {
        let reloads = self.api.runs.calls.reloads();
        let permitted = stream::unfold(Some((self, items, reloads)), |open| async {
            let (client, mut items, mut reloads) = open?;
            let next = tokio::select! {
                biased;
                refusal = client.refusal_by_reload(&mut reloads) => Some(Item::Failed(refusal)),
                item = items.next() => item,
            };
            let item = next?;
            let is_end = matches!(item, Item::Failed(_));
            Some((item, if is_end { None } else { Some((client, items, reloads)) }))
        });
        permitted.boxed()
    }

    /// Waits until a reload refuses the agent to the app.
    async fn refusal_by_reload(&self, reloads: &mut Reloads) -> FrontError {
        loop {
            if let Err(refusal) = self.api.runs.calls.may_ask(&self.app, &self.agent.route) {
                let why = refusal.for_model(&self.agent.name);
                let ended = "The stream ends here; the agent's task is not cancelled.";
                return FrontError::ended(Ending::Denied, &format!("{why} {ended}"));
            }
            reloads.next().await;
        }
    }

    /// Whether the app may ask the agent, at each moment of asking.
    fn permission(&self) -> ReadPermission {
        let (calls, app) = (Arc::clone(&self.api.runs.calls), Arc::clone(&self.app));
        let route = self.agent.route.clone();
        Arc::new(move || calls.may_ask(&app, &route))
    }

    /// Answers with the tasks of the app, the last one first, each as the agent has it now. Tasks
    /// that the agent no longer knows are left out.
    pub(super) async fn list_tasks(self, params: ListParams) -> Response<Body> {
        let item = match self.task_list(&params).await {
            Ok(list) => {
                let json = RawValue::from_string(list).expect("a list of JSON is JSON");
                let result =
                    AgentResult { json, task: None, context: None, is_settled: true, state: None };
                Item::counted(AgentEvent::Result(result), &self.app.name).await
            }
            Err(error) => Item::Failed(error),
        };
        item.response(&self.form)
    }

    async fn task_list(&self, params: &ListParams) -> Result<String, FrontError> {
        let (runs, agent, app) = (&self.api.runs, &self.agent.name, &self.app.name);
        let learnt = runs.learn_tasks_of_agent(agent, app).await;
        learnt.map_err(|_away| FrontError::busy(runs.reason_unkept()))?;
        let own = runs.tasks_of_agent(agent, app);
        let begin = match &params.page_token {
            None => 0,
            Some(last) => {
                let place = own.iter().position(|task| task == last);
                1 + place.ok_or_else(|| FrontError::invalid_params("There is no such page."))?
            }
        };
        let (mut tasks, mut bytes, mut last) = (Vec::new(), 0, None);
        for task in own.iter().skip(begin).take(MAX_ASKED) {
            if tasks.len() == params.page_size || bytes > MAX_LIST {
                break;
            }
            last = Some(task);
            let (id, history_length) = (task.clone(), params.history_length);
            let operation = RelayOperation::GetTask { task: id, history_length };
            let reply = match self.relay(operation).await? {
                Ok(reply) => reply,
                // One task that is too large must not hide all others.
                Err(NotRelayed { ending: Ending::Unreadable, why }) => {
                    if params.status.is_none() && params.context.is_none() {
                        tasks.push(unread_task(task, &why));
                    }
                    continue;
                }
                Err(failure) => return Err(FrontError::not_relayed(&failure)),
            };
            let RelayReply::One(AgentEvent::Result(result)) = reply else { continue };
            if params.shows(&result) && result.task.as_ref() == Some(task) {
                let text = params.shown(result.json.get());
                bytes += text.len();
                tasks.push(text);
            }
        }
        let is_last = last.is_none_or(|last| own.last() == Some(last));
        let next = if is_last { "" } else { last.map_or("", String::as_str) };
        Ok(format!(
            "{{\"tasks\":[{}],\"nextPageToken\":{},\"pageSize\":{},\"totalSize\":{}}}",
            tasks.join(","),
            quoted(next),
            params.page_size,
            own.len()
        ))
    }
}

impl ListParams {
    fn shows(&self, task: &AgentResult) -> bool {
        let is_in_context = match &self.context {
            Some(context) => task.context.as_ref() == Some(context),
            None => true,
        };
        let has_state = match &self.status {
            Some(status) => task.state.as_ref() == Some(status),
            None => true,
        };
        is_in_context && has_state
    }

    /// The task as it is listed: without its artifacts, unless the client wants them.
    fn shown(&self, task: &str) -> String {
        let Ok(members) = Members::read(task) else { return task.to_owned() };
        let members = members.0.iter().filter(|(key, _)| self.with_artifacts || key != "artifacts");
        let members = members.map(|(key, value)| format!("{}:{value}", quoted(key)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

/// What is listed of a task that the agent has, and whose answer was not read.
fn unread_task(task: &str, why: &str) -> String {
    let metadata = json!({ "mantyx-bridge": why });
    let status = json!({ "state": "TASK_STATE_UNSPECIFIED" });
    json!({ "id": task, "status": status, "metadata": metadata }).to_string()
}

/// The events that are about `task`; one about another task is the end.
fn about(
    task: String,
    app: AppName,
    events: BoxStream<'static, Result<AgentEvent, CallError>>,
) -> impl Stream<Item = Item> + Send {
    events.then(move |next| {
        let (task, app) = (task.clone(), app.clone());
        async move {
            match next {
                Ok(AgentEvent::Result(AgentResult { task: Some(other), .. })) if other != task => {
                    Item::Failed(FrontError::other_task())
                }
                Ok(reply) => Item::counted(reply, &app).await,
                Err(CallError::NotRead(why)) => Item::Failed(FrontError::internal(format!(
                    "The bridge reads no more of this stream: {why}. The task goes on. Ask for it, \
                     or subscribe to it again."
                ))),
                Err(_broken) => Item::Failed(FrontError::busy(
                    "The agent's stream broke off. Ask for the task, or subscribe to it again.",
                )),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    //! Which events of a stream a client gets.

    use super::*;

    fn event(task: &str) -> Result<AgentEvent, CallError> {
        let json = RawValue::from_string(json!({ "taskId": task }).to_string()).expect("JSON");
        let (task, context) = (Some(task.to_owned()), None);
        let state = Some("TASK_STATE_WORKING".to_owned());
        Ok(AgentEvent::Result(AgentResult { json, task, context, is_settled: false, state }))
    }

    #[tokio::test]
    async fn event_about_another_task_ends_the_stream() {
        let broken = Err(CallError::Lost("x".to_owned()));
        let events = stream::iter([event("t"), event("u"), broken]).boxed();
        let items: Vec<Item> = about("t".to_owned(), "a".into(), events).collect().await;
        let [Item::AgentEvent(..), Item::Failed(other), Item::Failed(lost)] = items.as_slice()
        else {
            panic!("{items:?}")
        };
        assert_eq!((other.code, lost.code), (-32006, -32603));
    }

    #[test]
    fn list_shows_what_its_parameters_ask_for() {
        let Ok(AgentEvent::Result(task)) = event("t") else { panic!() };
        let params = |status: Option<&str>, context: Option<&str>| ListParams {
            context: context.map(ToOwned::to_owned),
            status: status.map(ToOwned::to_owned),
            page_size: 1,
            page_token: None,
            history_length: None,
            with_artifacts: false,
        };
        assert!(params(None, None).shows(&task));
        assert!(params(Some("TASK_STATE_WORKING"), None).shows(&task));
        assert!(!params(Some("TASK_STATE_COMPLETED"), None).shows(&task));
        assert!(!params(None, Some("c")).shows(&task));
        let shown = params(None, None).shown(r#"{"id":"t","artifacts":[1],"n":1.0}"#);
        assert_eq!(shown, r#"{"id":"t","n":1.0}"#);
    }
}
