//! Messages. Each is one call, on the way of all calls. A task of the daemon reads the agent's
//! reply to its end, and hands it to the client while that listens. A client that has hung up asks
//! for its task later.
//!
//! A message is sent once. Its id is in the journal before it is sent, and the task's owner before
//! the client learns of the task. So a message that comes again, also after a crash, is answered
//! with its task.
//!
//! Must not: check a call, or know how an agent is reached.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Client;
use super::error::FrontError;
use super::message::SentMessage;
use super::reply::{self, Item};
use crate::backend::{
    A2aClient, AgentError, AgentEvent, AgentResult, Generation, RelayOperation, RelayReply,
    RelayRequest,
};
use crate::budget::{Budget, Held};
use crate::calls::CalledBy;
use crate::calls::once::{NotAnswered, RequestStart};
use crate::config::A2aBinding;
use crate::http::Body;
use crate::model::{Answer, Call, Ending};
use crate::random;
use crate::run_store::{AgentThing, Whose};

/// How many events of an agent wait for a client that reads slowly.
const EVENTS: usize = 4;
/// How long the agent's stream waits for a client that does not read. Then the client is let go: it
/// can subscribe to its task.
const READER_PATIENCE: Duration = Duration::from_secs(30);

/// What the journal keeps as the answer to a message. Later versions read it, too.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum KeptReply {
    /// The id of the task that the agent has made of it.
    Task(String),
    /// The result, where there is no task.
    Result(Box<RawValue>),
    /// The agent's own error, and its status.
    AgentError(u16, Box<RawValue>),
    Error(FrontError),
}

impl KeptReply {
    fn bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("a reply is always JSON").into()
    }

    fn agent_error(error: &AgentError) -> Self {
        Self::AgentError(error.status.as_u16(), error.json.clone())
    }
}

impl Client {
    /// Answers a message, with a stream of what becomes of it or with one result.
    pub(super) async fn send(self, message: SentMessage, is_stream: bool) -> Response<Body> {
        if let Err(error) = self.check_ids(&message).await {
            return reply::failure(&self.form, error, is_stream);
        }
        // The call keeps its parameters when the client has gone.
        let mut room = Budget::of_process().hold_for(Some(self.app.name.clone()));
        let size = message.params.get().len() + message.arguments.get().len();
        if let Err(no_room) = room.resize(size).await {
            let error = FrontError::busy(format!("{no_room}; the message was not sent."));
            return reply::failure(&self.form, error, is_stream);
        }
        let (sender, items) = mpsc::channel(EVENTS);
        let id = message.id.clone();
        let key = (self.app.name.clone(), format!("a2a/{}/{id}", self.agent.name));
        let digest = message.digest.clone();
        let message_relay = MessageRelay {
            client: self.clone(),
            message,
            is_stream,
            begun: None,
            items: Some(sender),
            has_error: false,
            has_task: false,
            _room: room,
        };
        let calls = &self.api.runs.calls;
        let answered = calls.once_for_app(key, digest, |start| message_relay.begin(start));
        let form = self.form.clone();
        let mut replies = self.clone().replies(items, answered, id, is_stream);
        if is_stream {
            return reply::stream_of(form, self.while_permitted(replies)).await;
        }
        match replies.next().await {
            Some(item) => item.response(&form),
            None => {
                reply::failure(&form, FrontError::internal("The agent has said nothing."), false)
            }
        }
    }

    /// What the client gets: what the agent says to its message or, if that was sent before, what
    /// has become of it.
    fn replies(
        self,
        mut items: mpsc::Receiver<Item>,
        answered: impl Future<Output = Result<Bytes, NotAnswered>> + Send + 'static,
        id: String,
        is_stream: bool,
    ) -> BoxStream<'static, Item> {
        let begin = async move {
            match items.recv().await {
                Some(first) => stream::iter([first]).chain(reply::received(items)).boxed(),
                None => self.repeat(answered.await, &id, is_stream).await,
            }
        };
        stream::once(begin).flatten().boxed()
    }

    /// Refuses ids of other apps, and of none: the agent would know them, as to the agent all apps
    /// are one client. A conversation that the bridge does not know is one that this client begins,
    /// and is the app's from now on.
    async fn check_ids(&self, message: &SentMessage) -> Result<(), FrontError> {
        for task in message.task.iter().chain(&message.references) {
            self.check_task(task).await?;
        }
        let Some(context) = &message.context else { return Ok(()) };
        let thing = || AgentThing::context(&self.agent.name, context);
        match self.whose(thing()).await? {
            Whose::Own => Ok(()),
            Whose::Anothers => Err(FrontError::not_found()),
            // That of a run or a session, which may be another app's.
            Whose::Unknown if self.is_of_a_call(context) => Err(FrontError::not_found()),
            Whose::Unknown => {
                let app = &self.app.name;
                self.api.runs.own_of_agent(vec![thing()], app, None).await;
                // Two apps may have begun one with the same id at this moment.
                match self.whose(thing()).await? {
                    Whose::Own => Ok(()),
                    Whose::Anothers | Whose::Unknown => Err(FrontError::not_found()),
                }
            }
        }
    }

    fn is_of_a_call(&self, context: &str) -> bool {
        let connection = self.api.backends().registry.connection(&self.agent.name);
        connection.is_some_and(|connection| connection.peer.has_conversation(context))
    }

    /// Answers a message that was sent before, by what the journal keeps of it.
    async fn repeat(
        self,
        answer: Result<Bytes, NotAnswered>,
        id: &str,
        is_stream: bool,
    ) -> BoxStream<'static, Item> {
        let kept = match answer {
            Ok(body) | Err(NotAnswered::NoCall(body)) => serde_json::from_slice(&body).ok(),
            Err(NotAnswered::Lost) => None,
            Err(why) => {
                let error = match why {
                    NotAnswered::OtherRequest => FrontError::invalid_params(
                        "This `messageId` belongs to another message; a new message has a new one.",
                    ),
                    NotAnswered::Busy(why) => FrontError::busy(why),
                    NotAnswered::Elsewhere => FrontError::busy(
                        "Another replica of the bridge has the message; ask it for the task.",
                    ),
                    _ => FrontError::busy(
                        "The bridge cannot write its journal, so the message was not sent.",
                    ),
                };
                return one(Item::Failed(error));
            }
        };
        one(match kept {
            Some(KeptReply::Task(task)) => return self.answer_with_task(task, is_stream).await,
            Some(KeptReply::Result(json)) => {
                let result =
                    AgentResult { json, task: None, context: None, is_settled: true, state: None };
                Item::counted(AgentEvent::Result(result), &self.app.name).await
            }
            Some(KeptReply::AgentError(status, json)) => {
                let status =
                    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let error = AgentError { status, json, is_refusal: true };
                Item::counted(AgentEvent::Error(error), &self.app.name).await
            }
            Some(KeptReply::Error(error)) => Item::Failed(error),
            None => {
                let (agent, app) = (&self.agent.name, &self.app.name);
                // Another replica may have had the task, and been killed.
                if let Err(away) = self.api.runs.learn_tasks_of_agent(agent, app).await {
                    tracing::debug!(%app, %agent, %away, "tasks of other replicas are not known");
                }
                match self.api.runs.task_of_message(agent, app, id) {
                    Some(task) => return self.answer_with_task(task, is_stream).await,
                    None => Item::Failed(FrontError::internal(
                        "The message was sent before, and the bridge does not know what became of \
                         it: it may have taken effect. It was not sent again.",
                    )),
                }
            }
        })
    }

    /// Answers a message that was sent before with its task as it stands and, in a stream, with
    /// what becomes of it.
    async fn answer_with_task(self, task: String, is_stream: bool) -> BoxStream<'static, Item> {
        let operation = RelayOperation::GetTask { task: task.clone(), history_length: None };
        let result = match self.ask_about(&task, operation).await {
            Ok(RelayReply::One(AgentEvent::Result(result))) => result,
            Ok(RelayReply::One(error)) => return one(Item::counted(error, &self.app.name).await),
            Ok(RelayReply::Events(_)) => return one(Item::Failed(FrontError::other_task())),
            Err(error) => return one(Item::Failed(error)),
        };
        let is_settled = result.is_settled;
        let json = self.as_reply(result.json);
        let result = AgentEvent::Result(AgentResult { json, task: None, context: None, ..result });
        let first = Item::counted(result, &self.app.name).await;
        if !is_stream || is_settled {
            return one(first);
        }
        let rest = stream::once(self.subscription(task)).flatten();
        stream::iter([first]).chain(rest).boxed()
    }

    /// A task in the form that the reply to a message has.
    fn as_reply(&self, task: Box<RawValue>) -> Box<RawValue> {
        if self.wire.generation == Generation::V03 && self.wire.binding == A2aBinding::JsonRpc {
            return task;
        }
        let wrapped = format!("{{\"task\":{task}}}");
        RawValue::from_string(wrapped).expect("an object around JSON is JSON")
    }
}

fn one(item: Item) -> BoxStream<'static, Item> {
    stream::iter([item]).boxed()
}

/// The relay of one message, in a task of the daemon.
struct MessageRelay {
    client: Client,
    message: SentMessage,
    is_stream: bool,
    /// Takes what the message has led to, once that is known.
    begun: Option<oneshot::Sender<Result<Bytes, NotAnswered>>>,
    /// `None` once the client has hung up.
    items: Option<mpsc::Sender<Item>>,
    /// The last thing that the agent has said is an error.
    has_error: bool,
    /// The agent has named a task, and the app owns it.
    has_task: bool,
    _room: Held,
}

impl MessageRelay {
    /// Makes the call in a task of its own; returns what the journal keeps, as soon as that is
    /// known. The call may last for an hour longer.
    async fn begin(mut self, start: Arc<RequestStart>) -> Result<Bytes, NotAnswered> {
        let (sender, begun) = oneshot::channel();
        self.begun = Some(sender);
        let calls = Arc::clone(&self.client.api.runs.calls);
        let app = self.client.app.name.clone();
        calls.spawn(&app, self.run(start));
        begun.await.unwrap_or(Err(NotAnswered::Lost))
    }

    /// Has the call made, and hands over what the agent says.
    ///
    /// Once the client has hung up and its app can ask for the task, the call gives its permits
    /// back: many clients that come and go would otherwise use up those of their app. The agent's
    /// stream is read on, while the app has a place for that. Without one, the stream is closed,
    /// which cancels no task of A2A. A stop of the bridge does not wait for such a stream.
    async fn run(mut self, start: Arc<RequestStart>) {
        let Client { api, app, agent, wire, trace, .. } = self.client.clone();
        let params = self.message.params.clone();
        let operation = if self.is_stream {
            RelayOperation::Stream(params)
        } else {
            RelayOperation::Send(params)
        };
        let (sender, mut events) = mpsc::channel(1);
        let hung_up = CancellationToken::new();
        let request = RelayRequest { wire, operation };
        let a2a_client = A2aClient { request, events: sender, hung_up: hung_up.clone() };
        let by = CalledBy {
            a2a_client: Some(Arc::new(a2a_client)),
            requests: vec![start],
            ..CalledBy::default()
        };
        let id = format!("a2a_{}", random::uuid().simple());
        let call = Call::by_hand(&id, agent.tool.clone(), Some(&self.message.arguments));
        let calls = &api.runs.calls;
        let mut calling = pin!(calls.call_by_hand(&app.name, &agent.route, call, &trace, by));
        let mut unread_slot = None;
        let outcome = loop {
            tokio::select! {
                biased;
                () = calls.drain.cancelled(), if unread_slot.is_some() => return,
                Some(reply) = events.recv() => self.take(reply).await,
                outcome = &mut calling => break outcome,
                () = self.left_with_a_task(), if unread_slot.is_none() => {
                    unread_slot = calls.unread_streams.take(&app.name);
                    if unread_slot.is_none() {
                        tracing::info!(
                            app = %app.name, agent = %agent.name,
                            "too many streams of agents have no reader: this one is closed, its task goes on"
                        );
                        return;
                    }
                    hung_up.cancel();
                }
            }
        };
        while let Ok(reply) = events.try_recv() {
            self.take(reply).await;
        }
        self.end(outcome.ending, &outcome.answer).await;
    }

    /// Ends when the client has hung up and its app can ask for the task.
    async fn left_with_a_task(&self) {
        if !self.has_task {
            std::future::pending::<()>().await;
        }
        if let Some(items) = &self.items {
            items.closed().await;
        }
    }

    /// Takes what the agent says: its ids get their owner, then the client gets it.
    async fn take(&mut self, reply: AgentEvent) {
        self.has_error = matches!(reply, AgentEvent::Error(_));
        let (app, agent) = (self.client.app.name.clone(), self.client.agent.name.clone());
        let kept = match &reply {
            AgentEvent::Result(AgentResult { json, task, context, .. }) => {
                let task_thing = task.iter().map(|id| AgentThing::task(&agent, id));
                let context_thing = context.iter().map(|id| AgentThing::context(&agent, id));
                let things = task_thing.chain(context_thing).collect();
                let message = Some(self.message.id.as_str());
                self.client.api.runs.own_of_agent(things, &app, message).await;
                if self.is_anothers(task.as_deref(), context.as_deref()).await {
                    // An agent that mixes tasks up must not show one app's to another.
                    self.has_error = true;
                    let error = FrontError::other_task();
                    self.keep(Ok(KeptReply::Error(error.clone())));
                    self.give(Item::Failed(error)).await;
                    return;
                }
                self.has_task |= task.is_some();
                Ok(match task {
                    Some(task) => KeptReply::Task(task.clone()),
                    None => KeptReply::Result(json.clone()),
                })
            }
            // The agent has refused the message, so that it may be sent again.
            AgentEvent::Error(error) if error.is_refusal => Err(KeptReply::agent_error(error)),
            AgentEvent::Error(error) => Ok(KeptReply::agent_error(error)),
        };
        self.keep(kept);
        if self.items.is_some() {
            let item = Item::counted(reply, &app).await;
            self.give(item).await;
        }
    }

    /// Whether the task or the conversation that the agent names belongs to another app.
    async fn is_anothers(&self, task: Option<&str>, context: Option<&str>) -> bool {
        let agent = &self.client.agent.name;
        let task = task.map(|id| AgentThing::task(agent, id));
        let context = context.map(|id| AgentThing::context(agent, id));
        for thing in task.into_iter().chain(context) {
            if matches!(self.client.whose(thing).await, Ok(Whose::Anothers)) {
                return true;
            }
        }
        false
    }

    /// Has the journal keep what the message has led to. `Err`: nothing has run.
    fn keep(&mut self, kept: Result<KeptReply, KeptReply>) {
        let Some(begun) = self.begun.take() else { return };
        let answer = match kept {
            Ok(reply) => Ok(reply.bytes()),
            Err(reply) => Err(NotAnswered::NoCall(reply.bytes())),
        };
        begun.send(answer).ok();
    }

    async fn give(&mut self, item: Item) {
        let Some(items) = &self.items else { return };
        let is_end = matches!(item, Item::Failed(_));
        let taken = timeout(READER_PATIENCE, items.send(item)).await;
        if is_end || !matches!(taken, Ok(Ok(()))) {
            self.items = None;
        }
    }

    /// Ends the relay. Where the call brought nothing of the agent's, the client reads why.
    async fn end(&mut self, ending: Ending, answer: &Answer) {
        let is_agents = matches!(ending, Ending::Result | Ending::ToolError);
        if is_agents || self.has_error {
            return;
        }
        let mut why = answer.parts().0.to_owned();
        if self.has_task {
            why.push_str(" Ask for the task, or subscribe to it.");
        }
        let error = FrontError::ended(ending, &why);
        let reply = KeptReply::Error(error.clone());
        if ending.is_of_no_call() {
            // The client gets this by way of the journal: another replica may have the message, and
            // then its task is the answer.
            self.items = None;
            return self.keep(Err(reply));
        }
        self.keep(Ok(reply));
        self.give(Item::Failed(error)).await;
    }
}
