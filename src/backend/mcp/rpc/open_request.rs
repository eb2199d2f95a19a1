//! One request to a server, from before it is sent until its outcome is taken.
//!
//! Must not: do IO, or know which transport carries it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::backend::peer::ReadPermission;
use crate::backend::{Called, Progress, Reply};
use crate::model::mcp::method;

/// What a request is for. It decides what its end means for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::mcp) enum Kind {
    /// It belongs to a handshake: no server is told that it was given up.
    Handshake,
    /// A tool call.
    Call,
    /// It only reads, and a user may wait for it.
    Read,
    /// It lists what the server offers, so no user is behind it.
    List,
    /// A subscription or a cancellation: no caller waits for its result.
    Aside,
}

/// One request, shared by the caller that waits for it and the transport that carries it.
#[derive(derive_more::Debug)]
pub(in crate::backend::mcp) struct OpenRequest {
    /// Its JSON-RPC id, and its progress token.
    pub(in crate::backend::mcp) id: i64,
    pub(in crate::backend::mcp) method: &'static str,
    pub(in crate::backend::mcp) kind: Kind,
    /// The tool, prompt, resource or task that it is about; HTTP repeats it in a header.
    pub(in crate::backend::mcp) subject: Option<String>,
    /// The arguments that go along as HTTP headers: names and values.
    pub(in crate::backend::mcp) headers: Vec<(String, String)>,
    /// Whether the server was asked to run the call as a task (2025-11-25).
    pub(in crate::backend::mcp) asks_for_task: bool,
    /// Whether it may be sent, if it only reads for a client.
    #[debug(skip)]
    pub(in crate::backend::mcp) read_permission: Option<ReadPermission>,
    /// Touched when the server reports progress of the request.
    pub(in crate::backend::mcp) progress: Progress,
    pub(in crate::backend::mcp) state: State,
}

/// What has become of a request.
#[derive(Debug, Default)]
pub(in crate::backend::mcp) struct State {
    /// Told when the request has an outcome.
    settled: Notify,
    /// Whether the server may have received the request.
    written: AtomicBool,
    /// How often the server refused it, as it did not know the session.
    lost_sessions: AtomicUsize,
    outcome: Mutex<Option<Called<Reply>>>,
    /// Counts the outcome until it is taken.
    untaken: Mutex<Option<Untaken>>,
}

/// The bytes of a response that was read, and whose outcome was not taken yet; and where they
/// count.
#[derive(Debug)]
pub(super) struct Untaken(usize, watch::Sender<usize>);

impl Untaken {
    pub(super) fn new(size: usize, total: &watch::Sender<usize>) -> Self {
        total.send_modify(|bytes| *bytes += size);
        Self(size, total.clone())
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.1.send_modify(|bytes| *bytes -= self.0);
    }
}

impl OpenRequest {
    pub(in crate::backend::mcp) fn new(id: i64, method: &'static str, kind: Kind) -> Self {
        Self {
            id,
            method,
            kind,
            subject: None,
            headers: Vec::new(),
            asks_for_task: false,
            read_permission: None,
            progress: Progress::default(),
            state: State::default(),
        }
    }

    /// Notes whether the server may have received the request. A transport that notes too little
    /// has a call made twice; one that notes too much has it told as lost.
    pub(in crate::backend::mcp) fn set_written(&self, written: bool) {
        self.state.written.store(written, Ordering::Release);
    }

    pub(in crate::backend::mcp) fn is_written(&self) -> bool {
        self.state.written.load(Ordering::Acquire)
    }

    /// Notes that the server did not run the request, as it does not know the session.
    pub(in crate::backend::mcp) fn without_session(&self) {
        self.set_written(false);
        self.state.lost_sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::backend::mcp) fn lost_sessions(&self) -> usize {
        self.state.lost_sessions.load(Ordering::Relaxed)
    }

    /// Whether its call, or its read for a client, may still be sent.
    pub(in crate::backend::mcp) async fn is_permitted(&self) -> bool {
        match &self.read_permission {
            Some(permission) => permission().is_ok(),
            None => self.progress.is_permitted().await,
        }
    }

    /// Whether the request may be sent twice, as it only reads.
    pub(in crate::backend::mcp) fn only_reads(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::List) || self.method == method::DISCOVER
    }

    /// Whether the server may work on something that a user waits for.
    pub(super) fn is_for_user(&self) -> bool {
        matches!(self.kind, Kind::Call | Kind::Read)
    }

    /// Whether its late answer is kept from being taken for another one's, and the server is told
    /// that the caller has gone.
    pub(super) fn may_be_given_up(&self) -> bool {
        matches!(self.kind, Kind::Call | Kind::Read | Kind::List)
    }

    /// Ends the request; only the first end counts.
    pub(in crate::backend::mcp) fn settle(&self, outcome: Called<Reply>) {
        self.state.outcome.lock().get_or_insert(outcome);
        self.state.settled.notify_one();
    }

    /// Ends when the request has an outcome.
    pub(super) async fn settled(&self) {
        self.state.settled.notified().await;
    }

    /// Counts the bytes of the response until its outcome is taken.
    pub(super) fn count(&self, untaken: Untaken) {
        *self.state.untaken.lock() = Some(untaken);
    }

    pub(in crate::backend::mcp) fn has_outcome(&self) -> bool {
        self.state.outcome.lock().is_some()
    }

    /// The result, if the outcome is one and was not taken yet.
    pub(in crate::backend::mcp) fn result_with<T>(
        &self,
        reading: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        match &*self.state.outcome.lock() {
            Some(Ok(Ok(result))) => reading(result.get()),
            _ => None,
        }
    }

    /// Takes the outcome of the request; `None` if there is none yet, or if it was taken before.
    pub(in crate::backend::mcp) fn take_outcome(&self) -> Option<Called<Reply>> {
        drop(self.state.untaken.lock().take());
        self.state.outcome.lock().take()
    }
}
