//! One live connection to an MCP server, over any transport.
//!
//! Must not: dial, retry or time out.

mod lists;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, CustomRequest, GetExtensions as _, ProtocolVersion, RequestId,
    RequestMetaObject, ServerCapabilities,
};
use rmcp::service::{Peer as RmcpPeer, PeerRequestOptions, RunningService, ServiceError};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::child::Child;
use super::handler::Handler;
use super::observed::Observed;
use super::pages::List;
use super::questions::Inputs;
use super::stdio::Pipe;
use super::verbatim::{ConnectionState, Marker, RawRequest};
use super::{Era, Memory, handler, http, listen, questions, tasks};
use crate::backend::peer::ReadPermission;
use crate::backend::{
    About, CallError, CallOutcome, Called, ErrorReply, Peer, PeerError, PeerErrorKind, Reply,
    ToolCall, peer,
};
use crate::model::maps::{HashMap, HashSet};
use crate::model::{BackendName, Catalog, Content, Feature, Features, ParamHeaders};
use crate::tasks::{in_background, in_background_if_large};

/// The `_meta` key that tells a server MANTYX's id of the call, so that it can recognise a
/// repetition.
const TOOL_USE_ID: &str = "mantyx-bridge/toolUseId";

/// The JSON-RPC error of a server if headers and arguments do not agree (2026-07-28).
const HEADER_MISMATCH: i32 = -32020;
/// The errors that mean something to the MCP client that has made the call.
const FOR_CLIENTS: [i32; 2] = [ErrorReply::URL_FIRST, ErrorReply::CAPABILITY_MISSING];

/// How long rmcp may take to end a connection: it gives a session's DELETE five seconds.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the end of a connection waits for the cancellations of dropped calls to be sent.
const TELL_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a lost connection waits for the end of the process behind it, to report how it ended.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// A connection whose handshake is done.
#[derive(derive_more::Debug)]
#[debug("Connection({backend}, {agreed:?})")]
pub(super) struct Connection {
    backend: BackendName,
    pub(super) state: Arc<ConnectionState>,
    peer: RmcpPeer<RoleClient>,
    /// The revision that the handshake agreed on; see [`Self::revision`].
    agreed: ProtocolVersion,
    /// Whether the server may get arguments as HTTP headers.
    has_headers: bool,
    /// The tools of the last list whose arguments go along as headers.
    param_headers: Mutex<HashMap<String, Arc<ParamHeaders>>>,
    /// The tools of the last list that may be called as tasks.
    as_tasks: Mutex<HashSet<String>>,
    /// What was said of the last list of tools: what was left out of it, and what cannot be used.
    left_out: Mutex<Vec<String>>,
    /// What was left out of the last lists of resources and prompts, in a sentence.
    features_left_out: Mutex<Option<String>>,
    /// For how long the last list of tools holds.
    ttl: Mutex<Option<Duration>>,
    child: Option<(Child, Pipe)>,
    /// What is kept of the program, if there is one.
    observed: Option<Observed>,
    /// Sends the cancellations of dropped calls.
    cancellations: TaskTracker,
    runtime: Handle,
    /// Watches over rmcp's side and listens for changes; aborted on drop.
    _tasks: JoinSet<()>,
}

/// What a list of tools was found to have.
struct Examined {
    catalog: Catalog,
    /// The tools whose arguments go along as headers.
    param_headers: HashMap<String, Arc<ParamHeaders>>,
    /// The tools that may be called as tasks.
    as_tasks: HashSet<String>,
}

impl Connection {
    /// Takes over the service that rmcp has connected. `memory` is told if the server turns out to
    /// be of a newer revision.
    pub(super) fn new(
        backend: BackendName,
        state: Arc<ConnectionState>,
        running: RunningService<RoleClient, Handler>,
        child: Option<(Child, Pipe)>,
        memory: Option<Memory>,
    ) -> Self {
        let peer = running.peer().clone();
        let info = peer.peer_info();
        let agreed = info.as_ref().map(|info| info.protocol_version.clone()).unwrap_or_default();
        let tells_changes = info.is_some_and(|info| tells_changes(&info.capabilities));
        state.handshake.lock().established = true;

        let modern = !agreed.has_initialize();
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_over(running, Arc::clone(&state)));
        if modern && tells_changes && state.listens {
            tasks.spawn(listen::for_changes(backend.clone(), peer.clone(), Arc::clone(&state)));
        }
        if let Some(memory) = memory.filter(|_| state.may_be_discovered()) {
            tasks.spawn(follow_discovery(
                backend.clone(),
                peer.clone(),
                Arc::clone(&state),
                memory,
            ));
        }
        Self {
            backend,
            state,
            peer,
            agreed,
            has_headers: modern && child.is_none(),
            param_headers: Mutex::default(),
            as_tasks: Mutex::default(),
            left_out: Mutex::default(),
            ttl: Mutex::default(),
            features_left_out: Mutex::default(),
            child,
            observed: None,
            cancellations: TaskTracker::new(),
            runtime: Handle::current(),
            _tasks: tasks,
        }
    }

    /// The same, with what is kept of its program.
    pub(super) fn observed(self, observed: Observed) -> Self {
        observed.oddities.shook_hands();
        Self { observed: Some(observed), ..self }
    }

    /// The revision in use: the one that the handshake agreed on, or the newer one that the server
    /// has named before the first call.
    pub(super) fn revision(&self) -> &ProtocolVersion {
        self.state.discovered().map_or(&self.agreed, |info| &info.protocol_version)
    }

    /// Logs what of `catalog` is left out or cannot be used: once, and not with every refresh.
    fn tell(&self, catalog: &Catalog) {
        let left_out = catalog.left_out().map(|omission| omission.message.clone());
        let all = [left_out, catalog.unreadable(), catalog.unchecked()];
        let all: Vec<String> = all.into_iter().flatten().collect();
        let before = mem::replace(&mut *self.left_out.lock(), all.clone());
        for sentence in all.iter().filter(|sentence| !before.contains(sentence)) {
            tracing::warn!(backend = %self.backend, "{sentence}");
        }
    }

    /// Makes a call. `left` are the round and the questions of a call whose server asked before a
    /// restart of the bridge.
    async fn call_tool(
        &self,
        call: ToolCall,
        left: Option<(usize, Box<RawValue>)>,
    ) -> Called<CallOutcome> {
        let (first, mut asked) = left.unzip();
        for round in first.unwrap_or_default()..questions::ROUNDS {
            let inputs = match asked {
                Some(result) => Some(questions::answer(round, &result, &call).await?),
                None => None,
            };
            let (raw_request, result) = self.send_call(&call, inputs).await?;
            // Earlier revisions know no such results.
            if self.revision().has_initialize() || !questions::asks(&result) {
                return tasks::follow(self, &call, &raw_request, &result).await;
            }
            asked = Some(result);
        }
        let why = format!("the server wanted input {} times, and ran no tool", questions::ROUNDS);
        Err(CallError::Refused(why))
    }

    /// Sends a call, and waits for its result.
    async fn send_call(
        &self,
        call: &ToolCall,
        inputs: Option<Inputs>,
    ) -> Called<(Arc<RawRequest>, Box<RawValue>)> {
        let tool = call.request.tool();
        let request = CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()));
        let marked = self.param_headers.lock().get(tool).cloned();
        let headers = match marked {
            Some(marked) => {
                let of_call = Arc::clone(&call.request);
                let size = of_call.arguments.get().len();
                let headers =
                    in_background_if_large(size, move || marked.headers(&of_call.arguments));
                headers.await.map_err(CallError::Refused)?
            }
            None => Vec::new(),
        };
        let as_task =
            self.as_tasks.lock().contains(tool) && self.state.handshake.lock().takes_tasks;
        // A task also where the tool merely may be one: after a crash of the bridge, a task can be
        // asked for, but a plain call is lost.
        let ttl = as_task.then_some(tasks::TTL);
        let asked = Arc::clone(&call.request);
        let raw_request = RawRequest::of_call(asked, headers, call.progress.clone(), ttl, inputs);
        let mut meta = RequestMetaObject::new();
        if call.request.run.is_some() {
            meta.insert(TOOL_USE_ID.to_owned(), call.request.tool_use.as_str().into());
        }
        for (name, value) in call.trace.iter().flat_map(|trace| trace.pairs()) {
            meta.insert(name.to_owned(), value.into());
        }
        let reply = match self.send_direct(tool, &raw_request, &meta).await {
            Some(reply) => reply,
            None => self.send_raw(request, &raw_request, meta).await,
        };
        let error = match reply? {
            Ok(result) => return Ok((raw_request, result)),
            Err(error) => error,
        };
        Err(self.refusal(call, error))
    }

    /// What a call comes to that the server has refused with `error`.
    fn refusal(&self, call: &ToolCall, error: ErrorReply) -> CallError {
        let why = error.to_string();
        if FOR_CLIENTS.contains(&error.code) {
            let why = format!("{why}.{}", questions::links(&error));
            return call.progress.refused_with(why, error);
        }
        if error.code == HEADER_MISMATCH {
            self.state.changed.notify_one();
            return CallError::Refused(format!(
                "{why}. The tool has changed and is read anew; call it again in a while."
            ));
        }
        CallError::Refused(why)
    }

    /// Sends a call past rmcp, and waits for its result: by rmcp, it would wake three tasks more.
    /// `None` if it cannot go that way: it is too large, or the server's transport is another one.
    async fn send_direct(
        &self,
        tool: &str,
        raw_request: &Arc<RawRequest>,
        meta: &RequestMetaObject,
    ) -> Option<Called<Reply>> {
        let (_, pipe) = self.child.as_ref()?;
        if !Pipe::fits(raw_request.size()) || self.is_over() {
            return None;
        }
        let mut meta = meta.clone();
        if !self.revision().has_initialize() {
            // As rmcp does.
            meta.extend(handler::request_context());
        }
        let (id, line) = self.state.direct(meta, tool, raw_request).ok()?;
        if !Pipe::fits(line.len()) {
            return None;
        }
        self.state.expect_direct(&id, raw_request);
        let mut pending = Pending { connection: self, id: Some(id.clone()) };
        let written = pipe.write(&line).await;
        raw_request.set_written(written.is_ok());
        let ended = async {
            written.map_err(CallError::NotSent)?;
            tokio::select! {
                biased;
                () = raw_request.ended() => {}
                () = self.state.ended.cancelled() => {}
            }
            let lost = || Err(self.unanswered(raw_request, &ServiceError::TransportClosed));
            raw_request.take_outcome().unwrap_or_else(lost)
        };
        let reply = ended.await;
        pending.id = None;
        self.state.forget(&id);
        Some(reply)
    }

    /// Sends a request that only reads.
    pub(super) async fn read(
        &self,
        method: &'static str,
        params: Value,
        raw_request: &Arc<RawRequest>,
    ) -> Called<Reply> {
        let request = CustomRequest::new(method, Some(params));
        self.send_raw(request, raw_request, RequestMetaObject::new()).await
    }

    /// Sends a request that carries `raw_request` and waits for its result.
    async fn send_raw(
        &self,
        request: impl Into<ClientRequest>,
        raw_request: &Arc<RawRequest>,
        meta: RequestMetaObject,
    ) -> Called<Reply> {
        let mut request = request.into();
        request.extensions_mut().insert(Marker(Arc::clone(raw_request)));
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let sent = self.peer.send_cancellable_request(request, options).await;
        let handle = sent.map_err(|error| self.unanswered(raw_request, &error))?;
        let id = handle.id.clone();
        let mut pending = Pending { connection: self, id: Some(id.clone()) };
        let response = handle.await_response().await;
        pending.id = None;
        // A request that rmcp ended by itself still has its entry here.
        self.state.forget(&id);
        match (raw_request.take_outcome(), response) {
            (Some(outcome), _) => outcome,
            (None, Err(error)) => Err(self.unanswered(raw_request, &error)),
            (None, Ok(_)) => Err(CallError::Unreadable("the reply has no result".to_owned())),
        }
    }

    /// Sends a request without waiting for the answer, which may take at most `within`.
    pub(super) fn send_aside(&self, request: ClientRequest, within: Duration) {
        let peer = self.peer.clone();
        let state = Arc::clone(&self.state);
        let send = async move {
            let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
            // The connection has ended, so the request cannot be sent.
            let Ok(handle) = sent.await else { return };
            let id = handle.id.clone();
            let _answer = timeout(within, handle.await_response()).await.is_ok();
            state.forget(&id);
        };
        self.cancellations.spawn_on(send, &self.runtime);
    }

    /// Ends when the connection takes no more requests.
    pub(super) async fn over(&self) {
        self.state.ended.cancelled().await;
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.ended.is_cancelled() || self.peer.is_transport_closed()
    }

    /// The error of a call whose request rmcp ended by itself.
    fn unanswered(&self, raw_request: &RawRequest, error: &ServiceError) -> CallError {
        let why = match error {
            ServiceError::TransportSend(error) => http::words(error),
            ServiceError::TransportClosed => {
                let why = self.state.why_lost();
                why.unwrap_or_else(|| "the connection to the server ended".to_owned())
            }
            error => error.to_string(),
        };
        match (raw_request.is_written(), raw_request.lost_sessions()) {
            (true, _) => CallError::Lost(why),
            (false, 0) => CallError::NotSent(why),
            (false, lost_sessions) => self.without_session(lost_sessions, &why),
        }
    }

    /// The error of a request that the server did not run, as it does not know the session, where
    /// rmcp could not begin another one. The connection is given up: otherwise the backend looks
    /// ready, and every call fails.
    fn without_session(&self, lost_sessions: usize, why: &str) -> CallError {
        if lost_sessions > 1 {
            let why = "the server forgets each new session at once; behind a load balancer, all \
                       requests of a session have to reach the same server";
            self.state.lose(why);
            return CallError::NotSent(why.to_owned());
        }
        let why = format!("the server has forgotten the session, and began no other one: {why}");
        self.state.lose(why.clone());
        CallError::NoSession(why)
    }
}

#[async_trait]
impl Peer for Connection {
    fn about(&self) -> About {
        let handshake = self.state.handshake.lock();
        let version = handshake.protocol_version.clone();
        About {
            protocol_version: Some(version.unwrap_or_else(|| self.revision().to_string())),
            server_info: handshake.server_info.clone(),
            signature: None,
        }
    }

    async fn resolve(&self) -> Result<Arc<Catalog>, PeerError> {
        let List { items: tools, cut, ttl } = self.pages("tools/list", "tools").await?;
        *self.ttl.lock() = ttl;
        let server_info = self.state.handshake.lock().server_info.as_deref().map(ToOwned::to_owned);
        let has_headers = self.has_headers;
        // A list may have megabytes.
        let examined = in_background(move || {
            let mut param_headers = HashMap::default();
            let fits = |name: &str, tool: &RawValue| {
                if has_headers {
                    param_headers
                        .insert(name.to_owned(), Arc::new(ParamHeaders::read(tool.get())?));
                }
                Ok(())
            };
            let (catalog, left_out) = Catalog::mcp_if(server_info, tools, fits);
            let catalog = catalog.without(&left_out, cut.as_ref());
            catalog.examine();
            param_headers.retain(|_, found| !found.is_empty());
            let as_tasks = match catalog.content() {
                Content::Mcp { tools, .. } => {
                    let as_tasks = tools.iter().filter(|tool| tasks::may_be_task(&tool.raw));
                    as_tasks.map(|tool| tool.name.clone()).collect()
                }
                _ => HashSet::default(),
            };
            Examined { catalog, param_headers, as_tasks }
        });
        let Examined { catalog, param_headers, as_tasks } = examined.await.map_err(|panic| {
            PeerError::new(PeerErrorKind::Protocol, "its tools cannot be read").because(panic)
        })?;
        self.tell(&catalog);
        *self.param_headers.lock() = param_headers;
        *self.as_tasks.lock() = as_tasks;
        Ok(Arc::new(catalog))
    }

    async fn features(&self) -> Result<Features, PeerError> {
        let capabilities = self.peer.peer_info().map(|info| info.capabilities.clone());
        let capabilities = capabilities.unwrap_or_default();
        let mut features = Features::new(capabilities.completions.is_some());
        for kind in Feature::ALL {
            let is_offered = match kind == Feature::PROMPT {
                true => capabilities.prompts.is_some(),
                false => capabilities.resources.is_some(),
            };
            if !is_offered {
                continue;
            }
            let List { items, cut, .. } = self.pages(kind.method, kind.list).await?;
            features.add(kind, items);
            if let Some(cut) = cut {
                features.cut(kind, &cut.why);
            }
        }
        let left_out = features.left_out();
        let before = mem::replace(&mut *self.features_left_out.lock(), left_out.clone());
        if let Some(left_out) = left_out.filter(|left_out| before.as_ref() != Some(left_out)) {
            tracing::warn!(backend = %self.backend, "{left_out}");
        }
        Ok(features)
    }

    async fn ask(
        &self,
        method: &'static str,
        params: Value,
        permission: ReadPermission,
    ) -> Called<Reply> {
        self.read(method, params, &RawRequest::reading_for_client(permission)).await
    }

    fn ttl(&self) -> Option<Duration> {
        *self.ttl.lock()
    }

    async fn changed(&self) {
        self.state.changed.notified().await;
    }

    async fn closed(&self) -> PeerError {
        let why = self.state.lost().await;
        let (Some((child, _)), Some(observed)) = (&self.child, &self.observed) else {
            return PeerError::new(PeerErrorKind::Connect, why);
        };
        match child.end(EXIT_PATIENCE).await {
            Some(end) => observed.ended(&end),
            None => {
                let why = format!("{why}, but its process is still running");
                PeerError::new(PeerErrorKind::Connect, why)
            }
        }
    }

    async fn call(&self, call: ToolCall) -> Called<CallOutcome> {
        self.state.end_discovery();
        self.call_tool(call, None).await
    }

    async fn resume(&self, handle: peer::Handle, call: ToolCall) -> Called<CallOutcome> {
        self.state.end_discovery();
        match questions::kept(&handle) {
            left @ Some(_) => self.call_tool(call, left).await,
            None => tasks::resume(self, &call, &handle).await,
        }
    }

    async fn close(&self) {
        self.cancellations.close();
        if timeout(TELL_TIMEOUT, self.cancellations.wait()).await.is_err() {
            tracing::debug!(backend = %self.backend, "the server does not answer a cancellation");
        }
        self.state.stop.cancel();
        if timeout(CLOSE_TIMEOUT, self.state.ended.cancelled()).await.is_err() {
            tracing::warn!(backend = %self.backend, "the connection did not end in time");
        }
        if let Some((child, _)) = &self.child {
            child.stop().await;
        }
    }
}

/// Whether a server with these capabilities says so when a list of its changes.
fn tells_changes(capabilities: &ServerCapabilities) -> bool {
    let ServerCapabilities { tools, resources, prompts, .. } = capabilities;
    let of_tools = tools.as_ref().and_then(|it| it.list_changed);
    let of_resources = resources.as_ref().and_then(|it| it.list_changed);
    let of_prompts = prompts.as_ref().and_then(|it| it.list_changed);
    [of_tools, of_resources, of_prompts].contains(&Some(true))
}

/// Waits for a late answer to `server/discover`, and then treats the connection as one of the
/// revision that it names.
async fn follow_discovery(
    backend: BackendName,
    peer: RmcpPeer<RoleClient>,
    state: Arc<ConnectionState>,
    memory: Memory,
) {
    let info = state.late_discovery().await.clone();
    tracing::info!(%backend, revision = %info.protocol_version, "the server answered discover late");
    memory.keep(Era::Modern, None);
    let tells_changes = tells_changes(&info.capabilities);
    peer.set_peer_info(info);
    if tells_changes {
        listen::for_changes(backend, peer, state).await;
    }
}

/// Waits for the end of rmcp's side and notes the reason.
async fn watch_over(running: RunningService<RoleClient, Handler>, state: Arc<ConnectionState>) {
    // Once the connection is lost, calls whose answers are still coming get them.
    let quit = running.waiting().await;
    state.ended.cancel();
    match quit {
        Ok(_) => state.lose("the server closed the connection"),
        Err(error) => state.lose(format!("the connection broke down: {error}")),
    }
}

/// A request without an answer. On drop, it sends the server a cancellation; rmcp does that for its
/// typed calls alone.
struct Pending<'a> {
    connection: &'a Connection,
    id: Option<RequestId>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let Connection { state, peer, cancellations, runtime, .. } = self.connection;
        state.forget(&id);
        let reason = "the caller does not wait any longer".to_owned();
        let params = CancelledNotificationParam::new(Some(id), Some(reason));
        let notification = CancelledNotification::new(params);
        let peer = peer.clone();
        let send = async move {
            // If the connection has ended, there is nothing to cancel.
            let _sent = peer.send_notification(notification.into()).await.is_ok();
        };
        cancellations.spawn_on(send, runtime);
    }
}
