//! Stand-ins of other runtimes, for `demo`: hsafa's gateway in v3, and the service of Claude's
//! self-hosted environments. Each asks the bridge for calls, and takes their answers.
//!
//! A stand-in has the routes that this takes, and no others. Claude's has one item of work.
//!
//! Must not: make a connection of its own, or know which tools there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::routes::{read_body, unknown};
use super::stream::event_stream;
use super::{Body, IDLE, Refusal, Reply, json};
use crate::small_server;

const LIMITS: small_server::Limits = small_server::Limits { connections: 16, idle: IDLE };
const MAX_BODY: usize = 1 << 20;
/// The id of the only run, item of work and session.
const ID: &str = "demo";
/// The environment of Claude's item of work.
pub const ENVIRONMENT: &str = "env_demo";

/// The wire that a stand-in speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    HsafaV3,
    Claude,
}

/// A POST of the bridge.
#[derive(Debug)]
pub struct Post {
    pub meaning: Meaning,
    pub path: String,
    /// As it came.
    pub body: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The bridge claims the item of work.
    Claim,
    /// A call has a result.
    Result,
    /// A call has failed.
    Failure,
    /// The bridge leaves the item of work.
    Stop,
}

#[derive(Debug)]
pub struct StandIn {
    wire: Wire,
    credential: String,
    /// All events so far. A stream has those that come after it was opened.
    events: watch::Sender<Vec<Value>>,
    /// Whether the item of work was given out.
    work_is_out: AtomicBool,
    posts: mpsc::Sender<Post>,
}

impl StandIn {
    /// A stand-in that reports the bridge's `posts`.
    pub fn new(wire: Wire, credential: String, posts: mpsc::Sender<Post>) -> Self {
        let (events, work_is_out) = (watch::Sender::default(), AtomicBool::default());
        Self { wire, credential, events, work_is_out, posts }
    }

    /// Answers requests until `stop`.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        small_server::serve(&listener, LIMITS, &stop.clone(), move |request| {
            let (stand_in, stop) = (Arc::clone(&self), stop.clone());
            async move {
                let reply = stand_in.answer(request, stop).await;
                reply.unwrap_or_else(Refusal::into_response)
            }
        })
        .await;
    }

    /// Asks for a call; returns the event that does so.
    pub fn ask(&self, id: &str, tool: &str, args: &Value) -> Value {
        let event = match self.wire {
            Wire::HsafaV3 => json!({
                "type": "tool.call", "toolCallId": id, "toolName": tool, "args": args,
                "runId": ID, "agentEntityId": "agent_demo",
            }),
            Wire::Claude => json!({
                "type": "agent.custom_tool_use", "id": id, "name": tool, "input": args,
            }),
        };
        self.tell(event.clone());
        event
    }

    /// Sends an event.
    pub fn tell(&self, event: Value) {
        self.events.send_modify(|events| events.push(event));
    }

    async fn answer(&self, request: Request<Incoming>, stop: CancellationToken) -> Reply {
        let (parts, mut body) = request.into_parts();
        let body = read_body(&mut body, MAX_BODY).await?;
        let (header, right) = match self.wire {
            Wire::HsafaV3 => ("x-secret-key", self.credential.clone()),
            Wire::Claude => ("authorization", format!("Bearer {}", self.credential)),
        };
        if parts.headers.get(header).is_none_or(|shown| shown.as_bytes() != right.as_bytes()) {
            return Err(Refusal::only(StatusCode::UNAUTHORIZED, "Unauthorized"));
        }
        let segments: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
        match (self.wire, &parts.method, segments.as_slice()) {
            (Wire::HsafaV3, &Method::GET, ["api", "tools", "stream"])
            | (Wire::Claude, &Method::GET, ["v1", "sessions", ID, "events", "stream"]) => {
                Ok(self.stream(stop))
            }
            (Wire::HsafaV3, &Method::POST, ["api", "runs", ID, "tool-results"])
            | (Wire::Claude, &Method::POST, ["v1", "sessions", ID, "events"]) => {
                self.take_answers(&parts, &body)
            }
            (Wire::Claude, &Method::GET, ["v1", "sessions", ID]) => {
                Ok(good(&json!({ "id": ID, "type": "session", "status": "running" })))
            }
            (Wire::Claude, &Method::GET, ["v1", "sessions", ID, "events"]) => {
                let events = self.events.borrow();
                Ok(good(&json!({ "data": *events, "next_page": null })))
            }
            (Wire::Claude, method, ["v1", "environments", ENVIRONMENT, "work", rest @ ..]) => {
                self.work(method, rest, &parts, &body)
            }
            (_, method, _) => Err(unknown(&format!("{method} {}", parts.uri.path()))),
        }
    }

    /// The events from now on.
    fn stream(&self, stop: CancellationToken) -> Response<Body> {
        let events = self.events.subscribe();
        let position = events.borrow().len();
        event_stream(stream::unfold((events, position), move |(mut events, position)| {
            let stop = stop.clone();
            async move {
                let more = events.wait_for(|all| all.len() > position);
                let text =
                    format!("data: {}\n\n", stop.run_until_cancelled(more).await?.ok()?[position]);
                Some((Ok(Frame::data(Bytes::from(text))), (events, position + 1)))
            }
        }))
    }

    /// Claude's items of work: poll, ack, heartbeat and stop.
    fn work(&self, method: &Method, rest: &[&str], parts: &Parts, body: &[u8]) -> Reply {
        let item = json!({ "id": ID, "type": "work", "data": { "type": "session", "id": ID } });
        match (method, rest) {
            (&Method::GET, ["poll"]) => {
                let again = self.work_is_out.swap(true, Ordering::Relaxed);
                return Ok(good(if again { &Value::Null } else { &item }));
            }
            (&Method::POST, [ID, "ack"]) => self.report(Meaning::Claim, parts, body)?,
            (&Method::POST, [ID, "stop"]) => self.report(Meaning::Stop, parts, body)?,
            (&Method::POST, [ID, "heartbeat"]) => {
                return Ok(good(&json!({
                    "type": "work_heartbeat", "last_heartbeat": "1", "ttl_seconds": 60,
                    "lease_extended": true, "state": "active",
                })));
            }
            _ => return Err(unknown(parts.uri.path())),
        }
        Ok(good(&item))
    }

    /// Takes the answers of calls. Those of Claude become events of the session.
    fn take_answers(&self, parts: &Parts, body: &[u8]) -> Reply {
        let whole: Value = serde_json::from_slice(body).unwrap_or_default();
        let (call_key, answer_key, answers) = match self.wire {
            Wire::HsafaV3 => ("toolCallId", "callId", vec![&whole]),
            Wire::Claude => {
                let events = whole["events"].as_array().into_iter().flatten();
                ("id", "custom_tool_use_id", events.collect())
            }
        };
        let mut meaning = Meaning::Result;
        for answer in &answers {
            let id = &answer[answer_key];
            if !id.is_string() || !self.events.borrow().iter().any(|event| event[call_key] == *id) {
                return Err(Refusal::not_found(format!("there is no call {id}")));
            }
            if answer["is_error"] == true || !answer["result"]["error"].is_null() {
                meaning = Meaning::Failure;
            }
        }
        self.report(meaning, parts, body)?;
        if self.wire == Wire::Claude {
            answers.into_iter().for_each(|event| self.tell(event.clone()));
        }
        Ok(good(&json!({})))
    }

    fn report(&self, meaning: Meaning, parts: &Parts, body: &[u8]) -> Result<(), Refusal> {
        let (path, body) = (parts.uri.to_string(), String::from_utf8_lossy(body).into_owned());
        self.posts
            .try_send(Post { meaning, path, body })
            .map_err(|_full| Refusal::full("too many answers wait to be shown"))
    }
}

fn good(body: &Value) -> Response<Body> {
    json(StatusCode::OK, body)
}

#[cfg(test)]
mod tests {
    //! What the stand-ins refuse.

    use super::*;

    #[tokio::test]
    async fn only_answers_of_calls_are_taken_and_only_with_the_credential() {
        let (posts, mut posted) = mpsc::channel(1);
        let stand_in = Arc::new(StandIn::new(Wire::HsafaV3, "right".to_owned(), posts));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/runs/demo/tool-results", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(Arc::clone(&stand_in).serve(listener, stop.clone()));
        stand_in.ask("c1", "add", &json!({}));
        let client = crate::http_client::new();
        let post = async |credential: &'static str, body: &'static str| {
            let request = client.request(Method::POST, &url).header("x-secret-key", credential);
            request.body(body).send().await.unwrap().status().as_u16()
        };
        assert_eq!(post("wrong", r#"{"callId":"c1","result":"1"}"#).await, 401);
        for body in [r#"{"callId":"c2","result":"1"}"#, r#"{"result":"1"}"#, "no json"] {
            assert_eq!(post("right", body).await, 404, "{body}");
        }
        assert_eq!(post("right", r#"{"callId":"c1","result":{"error":"no"}}"#).await, 200);
        assert_eq!(posted.recv().await.unwrap().meaning, Meaning::Failure);
        stop.cancel();
        serving.join_all().await;
    }
}
