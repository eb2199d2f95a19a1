//! One live connection to an MCP server, over any transport.
//!
//! Must not: dial, retry or time out.

mod lists;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rmcp::model::ProtocolVersion;
use serde_json::Value;
use serde_json::value::RawValue;

use super::child::Child;
use super::observed::Observed;
use super::pages::List;
use super::questions::Inputs;
use super::rpc::{Kind, Link, Message, OpenRequest, Rpc, ServerInfo, members, without_meta};
use super::{Era, Memory, listen, questions, tasks};
use crate::backend::peer::ReadPermission;
use crate::backend::{
    About, CallError, CallOutcome, Called, ErrorReply, Peer, PeerError, PeerErrorKind, Reply,
    ToolCall, peer,
};
use crate::model::maps::{HashMap, HashSet};
use crate::model::mcp::{error_code, method};
use crate::model::{BackendName, Catalog, Content, Feature, Features, ParamHeaders};
use crate::tasks::{in_background, in_background_if_large};

/// The `_meta` key that tells a server MANTYX's id of the call, so that it can recognise a
/// repetition.
const TOOL_USE_ID: &str = "mantyx-bridge/toolUseId";

/// The errors that mean something to the MCP client that has made the call.
const FOR_CLIENTS: [i32; 2] = [error_code::URL_FIRST, error_code::CAPABILITY_MISSING];

/// How long a lost connection waits for the end of the process behind it, to report how it ended.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// A connection whose handshake is done.
#[derive(derive_more::Debug)]
#[debug("Connection({backend}, {agreed:?})")]
pub(super) struct Connection {
    backend: BackendName,
    link: Link,
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
    child: Option<Child>,
    /// What is kept of the program, if there is one.
    observed: Option<Observed>,
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
    /// Takes into use what the handshake over `link` has agreed on. `memory` is told if the server
    /// turns out to be of a newer revision.
    pub(super) fn new(
        mut link: Link,
        info: ServerInfo,
        child: Option<Child>,
        memory: Option<Memory>,
    ) -> Self {
        let agreed = info.protocol_version.clone();
        let modern = !agreed.has_initialize();
        let rpc = Arc::clone(&link.rpc);
        let tells_changes = info.tells_changes();
        rpc.establish(info);
        if modern && tells_changes && rpc.listens {
            link.tasks.spawn(listen::for_changes(Arc::clone(&rpc)));
        }
        if let Some(memory) = memory.filter(|_| rpc.may_be_discovered()) {
            link.tasks.spawn(follow_discovery(Arc::clone(&rpc), memory));
        }
        Self {
            backend: rpc.backend.clone(),
            link,
            agreed,
            has_headers: modern && child.is_none(),
            param_headers: Mutex::default(),
            as_tasks: Mutex::default(),
            left_out: Mutex::default(),
            ttl: Mutex::default(),
            features_left_out: Mutex::default(),
            child,
            observed: None,
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
        self.rpc().info().map_or(&self.agreed, |info| &info.protocol_version)
    }

    pub(super) fn rpc(&self) -> &Arc<Rpc> {
        &self.link.rpc
    }

    /// Logs what of `catalog` is left out or cannot be used: once, and not with every refresh.
    fn tell(&self, catalog: &Catalog) {
        let left_out = catalog.left_out().map(|omission| omission.message.clone());
        let instructions = catalog.instructions().unusable().map(|(why, _)| why);
        let parts = [left_out, instructions, catalog.unreadable(), catalog.unchecked()];
        let sentences: Vec<String> = parts.into_iter().flatten().collect();
        let before = mem::replace(&mut *self.left_out.lock(), sentences.clone());
        for sentence in sentences.iter().filter(|sentence| !before.contains(sentence)) {
            tracing::warn!(backend = %self.backend, "{sentence}");
        }
    }

    /// Makes a call. `open_questions` are the round and the questions of a call whose server asked
    /// before a restart of the bridge.
    async fn call_tool(
        &self,
        call: ToolCall,
        open_questions: Option<(usize, Box<RawValue>)>,
    ) -> Called<CallOutcome> {
        let (first, mut questions_result) = open_questions.unzip();
        for round in first.unwrap_or_default()..questions::ROUNDS {
            let inputs = match questions_result {
                Some(result) => Some(questions::answer(round, &result, &call).await?),
                None => None,
            };
            let (request, result) = self.send_call(&call, inputs).await?;
            // Earlier revisions know no such results.
            if self.revision().has_initialize() || !questions::asks(&result) {
                return tasks::follow(self, &call, &request, &result).await;
            }
            questions_result = Some(result);
        }
        let why = format!("the server wanted input {} times, and ran no tool", questions::ROUNDS);
        Err(CallError::Refused(why))
    }

    /// Sends a call, and waits for its result.
    async fn send_call(
        &self,
        call: &ToolCall,
        inputs: Option<Inputs>,
    ) -> Called<(Arc<OpenRequest>, Box<RawValue>)> {
        let tool = call.request.tool();
        let rpc = self.rpc();
        let as_task = self.as_tasks.lock().contains(tool) && rpc.handshake.lock().takes_tasks;
        let request = Arc::new(OpenRequest {
            subject: Some(tool.to_owned()),
            headers: self.param_headers(call).await?,
            asks_for_task: as_task,
            progress: call.progress.clone(),
            ..OpenRequest::new(rpc.next_id(), method::CALL_TOOL, Kind::Call)
        });
        let mut meta = rpc.meta(&request);
        if call.request.run.is_some() {
            meta.insert(TOOL_USE_ID.to_owned(), call.request.tool_use.as_str().into());
        }
        for (name, value) in call.trace.iter().flat_map(|trace| trace.pairs()) {
            meta.insert(name.to_owned(), value.into());
        }
        // A task also where the tool merely may be one: after a crash of the bridge, a task can be
        // asked for, but a plain call is lost.
        let ttl = as_task.then_some(tasks::TTL);
        let message = Message::call(&request, &meta, &call.request, ttl, inputs.as_ref());
        match rpc.ask(&request, message).await? {
            Ok(result) => Ok((request, result)),
            Err(error) => Err(self.refusal(call, error)),
        }
    }

    /// The arguments of `call` that go along as headers.
    async fn param_headers(&self, call: &ToolCall) -> Called<Vec<(String, String)>> {
        let Some(marked) = self.param_headers.lock().get(call.request.tool()).cloned() else {
            return Ok(Vec::new());
        };
        let request = Arc::clone(&call.request);
        let size = request.arguments.get().len();
        let headers = in_background_if_large(size, move || marked.headers(&request.arguments));
        headers.await.map_err(CallError::Refused)
    }

    /// What a call comes to that the server has refused with `error`.
    fn refusal(&self, call: &ToolCall, error: ErrorReply) -> CallError {
        let why = error.to_string();
        if FOR_CLIENTS.contains(&error.code) {
            let why = format!("{why}.{}", questions::links(&error));
            return call.progress.refused_with(why, error);
        }
        if error.code == error_code::HEADER_MISMATCH {
            self.rpc().changed.notify_one();
            return CallError::Refused(format!(
                "{why}. The tool has changed and is read anew; call it again in a while."
            ));
        }
        CallError::Refused(why)
    }

    /// Sends a request that only reads.
    pub(super) async fn read(
        &self,
        method: &'static str,
        params: Value,
        permission: Option<ReadPermission>,
    ) -> Called<Reply> {
        let (request, message) = self.reading(method, params, permission);
        self.rpc().ask(&request, message).await
    }

    /// A request that only reads, for a client that may do so with `permission`, or for the bridge.
    fn reading(
        &self,
        method: &'static str,
        params: Value,
        read_permission: Option<ReadPermission>,
    ) -> (Arc<OpenRequest>, Message) {
        let subject = ["name", "uri", "taskId"].into_iter().find_map(|key| params.get(key));
        let request = Arc::new(OpenRequest {
            subject: subject.and_then(Value::as_str).map(str::to_owned),
            read_permission,
            ..self.rpc().reading(method)
        });
        let (params, mut meta) = without_meta(params);
        meta.extend(self.rpc().meta(&request));
        let message = Message::request(&request, Some(&meta), &[&members(&params)]);
        (request, message)
    }

    /// Ends when the connection takes no more requests.
    pub(super) async fn over(&self) {
        self.rpc().ended.cancelled().await;
    }

    pub(super) fn is_over(&self) -> bool {
        self.rpc().ended.is_cancelled()
    }
}

#[async_trait]
impl Peer for Connection {
    fn about(&self) -> About {
        let handshake = self.rpc().handshake.lock();
        let version = handshake.protocol_version.clone();
        About {
            protocol_version: Some(version.unwrap_or_else(|| self.revision().to_string())),
            server_info: handshake.server_info.clone(),
            signature: None,
        }
    }

    async fn resolve(&self) -> Result<Arc<Catalog>, PeerError> {
        let List { items: tools, cut, ttl } = self.pages(method::LIST_TOOLS, "tools").await?;
        *self.ttl.lock() = ttl;
        let (server_info, instructions) = {
            let handshake = self.rpc().handshake.lock();
            let server_info = handshake.server_info.as_deref().map(ToOwned::to_owned);
            (server_info, handshake.instructions.clone())
        };
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
            let catalog = catalog.without(&left_out, cut.as_ref()).with_instructions(instructions);
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
        let info = self.rpc().info();
        let capabilities = info.map(|info| info.capabilities.clone()).unwrap_or_default();
        let mut features = Features::new(capabilities.completions.is_some());
        for kind in Feature::ALL {
            let capability_is_there = if kind == Feature::PROMPT {
                capabilities.prompts.is_some()
            } else {
                capabilities.resources.is_some()
            };
            if !capability_is_there {
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
        self.read(method, params, Some(permission)).await
    }

    fn ttl(&self) -> Option<Duration> {
        *self.ttl.lock()
    }

    async fn changed(&self) {
        self.rpc().changed.notified().await;
    }

    fn has_ended(&self) -> bool {
        self.rpc().why_lost().is_some()
    }

    async fn closed(&self) -> PeerError {
        let why = self.rpc().lost().await;
        let (Some(child), Some(observed)) = (&self.child, &self.observed) else {
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
        self.rpc().end_discovery();
        self.call_tool(call, None).await
    }

    async fn resume(&self, handle: peer::Handle, call: ToolCall) -> Called<CallOutcome> {
        self.rpc().end_discovery();
        match questions::kept(&handle) {
            left @ Some(_) => self.call_tool(call, left).await,
            None => tasks::resume(self, &call, &handle).await,
        }
    }

    async fn close(&self) {
        self.rpc().close().await;
        if let Some(child) = &self.child {
            child.stop().await;
        }
    }
}

/// Waits for a late answer to `server/discover`, and then treats the connection as one of the
/// revision that it names.
async fn follow_discovery(rpc: Arc<Rpc>, memory: Memory) {
    let info = rpc.late_discovery().await;
    let backend = &rpc.backend;
    tracing::info!(%backend, revision = %info.protocol_version, "the server answered discover late");
    memory.keep(Era::Modern, None);
    if info.tells_changes() {
        listen::for_changes(Arc::clone(&rpc)).await;
    }
}
