//! Reads a run's stream as an app does, and keeps the exact bytes of every frame.
//!
//! Must not: reconnect. A test that resumes says so.

use std::collections::VecDeque;

use mantyx_bridge::internals::{Frame, Framer};
use serde_json::Value;

use crate::{
    bridge::Bridge,
    http::{Request, Response},
};

/// An open event stream.
#[derive(Debug)]
pub(crate) struct Stream {
    response: Response,
    framer: Framer,
    ready: VecDeque<Frame>,
}

impl Stream {
    /// Opens `target` with the token of the bridge's app.
    pub(crate) async fn open(bridge: &Bridge, target: &str) -> Self {
        Self::request(bridge, bridge.request("GET", target)).await
    }

    /// Opens a stream that goes on after `seq`.
    pub(crate) async fn resume(bridge: &Bridge, target: &str, seq: u64) -> Self {
        let request = bridge.request("GET", target).header("Last-Event-ID", &seq.to_string());
        Self::request(bridge, request).await
    }

    pub(crate) async fn request(bridge: &Bridge, request: Request) -> Self {
        let response = request.header("Accept", "text/event-stream").send(bridge.addr()).await;
        assert_eq!(response.status, 200, "a run's stream should open");
        let kind = response.head.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("text/event-stream"), "content type of a stream: {kind}");
        Self::over(response)
    }

    /// The stream that `response` is.
    pub(crate) fn over(response: Response) -> Self {
        Self { response, framer: Framer::new(64 << 20), ready: VecDeque::new() }
    }

    /// The next frame, comments included; `None` when the stream is closed.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            self.framer.push(&self.response.chunk().await?);
            while let Some(frame) = self.framer.next_frame().expect("frames are bounded") {
                self.ready.push_back(frame);
            }
        }
    }

    /// The next frame that carries data.
    pub(crate) async fn event(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.fields().data.is_some() {
                return Some(frame);
            }
        }
    }

    /// All events up to the end of the stream, the comments left out.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.event().await {
            let last = is_terminal(&frame);
            frames.push(frame);
            if last {
                break;
            }
        }
        frames
    }

    /// The events up to the first of `kind`, that one included.
    pub(crate) async fn until(&mut self, kind: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.event().await;
            let frame = frame.unwrap_or_else(|| panic!("no {kind} before the end: {frames:?}"));
            let found = event_type(&frame) == kind;
            frames.push(frame);
            if found {
                return frames;
            }
        }
    }
}

/// Opens a run's stream and reads it to its terminal event.
pub(crate) async fn whole(bridge: &Bridge, target: &str) -> Vec<Frame> {
    let frames = Stream::open(bridge, target).await.rest().await;
    assert!(frames.last().is_some_and(is_terminal), "no terminal event: {}", text(&frames));
    frames
}

/// The JSON envelope of a frame: `{"seq","type","data"}`.
pub(crate) fn envelope(frame: &Frame) -> Value {
    let data = frame.fields().data.expect("an event has data");
    serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error} in {data}"))
}

pub(crate) fn event_type(frame: &Frame) -> String {
    frame.fields().event.unwrap_or_default()
}

pub(crate) fn is_terminal(frame: &Frame) -> bool {
    matches!(event_type(frame).as_str(), "result" | "error" | "cancelled")
}

/// The sequence numbers, which must be the frames' ids as well.
pub(crate) fn seqs(frames: &[Frame]) -> Vec<u64> {
    frames
        .iter()
        .map(|frame| {
            let seq = envelope(frame)["seq"].as_u64().expect("an event carries its seq");
            assert_eq!(frame.fields().id, Some(seq.to_string()), "id and seq of one event");
            seq
        })
        .collect()
}

/// The `data` of the first event of `kind`.
pub(crate) fn find(frames: &[Frame], kind: &str) -> Option<Value> {
    let found = frames.iter().find(|frame| event_type(frame) == kind)?;
    Some(envelope(found)["data"].clone())
}

/// The frames as one text, for comparison and for messages.
pub(crate) fn text(frames: &[Frame]) -> String {
    frames.iter().map(|frame| String::from_utf8_lossy(&frame.raw).into_owned()).collect()
}
