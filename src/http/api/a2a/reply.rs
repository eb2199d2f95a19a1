//! Answers to a client: one result, an error, or a stream of events that shows that it lives.
//!
//! Must not: ask an agent.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, stream};
use http::{Response, StatusCode};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::error::{FrontError, ReplyForm};
use crate::backend::{AgentEvent, AgentResult};
use crate::budget::{Budget, Held};
use crate::http::{Body, response};
use crate::model::AppName;
use crate::tasks::in_place_if_large;

/// How often a stream without events shows that it lives. The HTTP client of a2a-sdk gives up after
/// 5 s of silence, unless it is told otherwise.
pub(super) const PING_EVERY: Duration = Duration::from_secs(4);
/// A comment in an event stream.
const PING: &[u8] = b": ping\n\n";

/// What a client gets: something of the agent, or an error of the bridge, which is the end.
#[derive(Debug)]
pub(super) enum Item {
    /// With what counts its bytes for the app.
    AgentEvent(AgentEvent, Held),
    Failed(FrontError),
}

impl Item {
    /// What the agent says, counted for `app`: its text, and the response that is made of it.
    pub(super) async fn counted(reply: AgentEvent, app: &AppName) -> Self {
        let size = match &reply {
            AgentEvent::Result(AgentResult { json, .. }) => json.get().len(),
            AgentEvent::Error(error) => error.json.get().len(),
        };
        let mut held = Budget::of_process().hold_for(Some(app.clone()));
        match held.resize(2 * size).await {
            Ok(()) => Self::AgentEvent(reply, held),
            Err(no_room) => Self::Failed(FrontError::busy(format!(
                "{no_room}: the agent's answer was not kept. Ask for its task."
            ))),
        }
    }

    pub(super) fn is_error(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::AgentEvent(AgentEvent::Error(_), _))
    }

    /// The text, and the status of a response that has it alone.
    fn text(self, form: &ReplyForm) -> (StatusCode, Vec<u8>, Option<Held>) {
        match self {
            Self::AgentEvent(AgentEvent::Result(AgentResult { json, .. }), held) => {
                let text = in_place_if_large(json.get().len(), || form.result(json.get()));
                (StatusCode::OK, text, Some(held))
            }
            Self::AgentEvent(AgentEvent::Error(error), held) => {
                let (status, text) = form.agent_error(&error);
                (status, text, Some(held))
            }
            Self::Failed(error) => {
                let (status, text) = form.error(&error);
                (status, text, None)
            }
        }
    }

    /// The response with this alone.
    pub(super) fn response(self, form: &ReplyForm) -> Response<Body> {
        let (status, text, held) = self.text(form);
        let response = match held {
            Some(held) => response::counted(response::json_text(paid(held, text))),
            None => response::json_text(text),
        };
        response::with_status(response, status)
    }

    fn event(self, form: &ReplyForm) -> Bytes {
        let (_, text, held) = self.text(form);
        let event = [b"data: ", text.as_slice(), b"\n\n"].concat();
        match held {
            Some(held) => paid(held, event),
            None => event.into(),
        }
    }
}

fn paid(mut held: Held, bytes: Vec<u8>) -> Bytes {
    held.follow(bytes.len());
    held.pay_for(bytes)
}

/// The stream of `items`, in the form of the client's wire.
pub(super) fn events(
    form: ReplyForm,
    items: impl Stream<Item = Item> + Send + 'static,
) -> Response<Body> {
    let written = stream::unfold(Some((form, Box::pin(items))), |open| async {
        let (form, mut items) = open?;
        match timeout(PING_EVERY, items.next()).await {
            Err(_elapsed) => Some((Bytes::from_static(PING), Some((form, items)))),
            Ok(None) => None,
            Ok(Some(item)) => {
                let is_end = matches!(item, Item::Failed(_));
                let event = item.event(&form);
                Some((event, if is_end { None } else { Some((form, items)) }))
            }
        }
    });
    response::events(written)
}

/// The stream that begins with `first`. Over HTTP+JSON, an error in the place of the first event is
/// a response for itself, as agents answer; clients of JSON-RPC read errors in the stream.
pub(super) fn events_after(
    form: ReplyForm,
    first: Item,
    rest: impl Stream<Item = Item> + Send + 'static,
) -> Response<Body> {
    if first.is_error() && matches!(form, ReplyForm::HttpJson(_)) {
        return first.response(&form);
    }
    events(form, stream::iter([first]).chain(rest))
}

/// The stream of `items`. The first one may be an error that is a response for itself, so it is
/// waited for as long as a silent stream may be.
pub(super) async fn stream_of(
    form: ReplyForm,
    mut items: BoxStream<'static, Item>,
) -> Response<Body> {
    match timeout(PING_EVERY, items.next()).await {
        Ok(Some(first)) => events_after(form, first, items),
        Ok(None) | Err(_) => events(form, items),
    }
}

/// An error in the place of a result or, for a client that reads one, of a stream.
pub(super) fn failure(form: &ReplyForm, error: FrontError, is_stream: bool) -> Response<Body> {
    if is_stream {
        events_after(form.clone(), Item::Failed(error), stream::empty())
    } else {
        Item::Failed(error).response(form)
    }
}

/// What comes through a channel.
pub(super) fn received(items: mpsc::Receiver<Item>) -> impl Stream<Item = Item> + Send {
    stream::unfold(items, |mut items| async { items.recv().await.map(|item| (item, items)) })
}
