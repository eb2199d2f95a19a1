//! The journal's records, as plain data. docs/design/records.md has the rules for a change: other
//! versions read and write them, too.
//!
//! Must not: decide what they mean (model/recovery.rs does), or hold a secret: credentials are not
//! kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock;
use crate::model::answer::Answer;
use crate::model::call::CallOwner;
use crate::model::catalog::Identity;
use crate::model::ids::{
    AppName, BackendName, CallId, RunId, RunKey, SessionId, ToolUseId, Workspace,
};
use crate::model::moment::{Moment, Uptime};
use crate::model::offer::RefKind;
use crate::model::recovery::Stage;
use crate::model::routes::{Routes, Stored};
use crate::model::spec::StoredTable;

/// The journal's own number of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(pub u64);

pub use crate::model::moment::Millis;

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(flatten)]
    pub key: RunKey,
    pub app: AppName,
    pub session: Option<SessionId>,
    /// The run is driven with the app's own credential, which is not kept.
    pub callers_credential: bool,
    pub table: StoredTable,
    /// Other clients have answered its calls, and the driver has not read its past yet.
    pub has_past: bool,
    /// The record of its past is lost, and the driver has not read its stream from the beginning
    /// yet: a call without an answer there may have been made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past_is_lost: bool,
    /// The last event of its past that was read. All calls up to it are in the journal, or have
    /// answers in the run's log.
    #[serde(default)]
    pub read_to: u64,
    pub started_at: Millis,
    /// The backends of its tools, which a replica has to have that takes it over. A column of its
    /// own.
    #[serde(skip)]
    pub needs: Vec<BackendName>,
    pub ended_at: Option<Millis>,
    /// The run may not have ended: since `ended_at`, no driver reads its stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// Its app was told that the bridge does not drive it: its calls are answered as cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The `traceparent` and the `tracestate` that its calls carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<(String, Option<String>)>,
}

impl RunRecord {
    /// Whether a driver reads its stream, now or when an app asks for the run.
    pub fn goes_on(&self) -> bool {
        self.ended_at.is_none() || self.given_up
    }
}

/// What identifies a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "StoredCallKey", into = "StoredCallKey")]
pub struct CallKey {
    pub slot: Slot,
    /// The agent run, in an eval.
    pub agent_run: Option<RunId>,
    pub tool_use: ToolUseId,
}

/// A [`CallKey`] in the file; without an agent run, that is empty.
type StoredCallKey = (Slot, RunId, ToolUseId);

impl From<StoredCallKey> for CallKey {
    fn from((slot, agent_run, tool_use): StoredCallKey) -> Self {
        let agent_run = Some(agent_run).filter(|run| !run.as_str().is_empty());
        Self { slot, agent_run, tool_use }
    }
}

impl From<CallKey> for StoredCallKey {
    fn from(key: CallKey) -> Self {
        (key.slot, key.agent_run.unwrap_or_default(), key.tool_use)
    }
}

/// A call that is the bridge's to answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CallRecord {
    pub stage: Stage,
    /// How often it was dispatched.
    pub attempts: u32,
    /// What the peer calls the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// The peer that it was dispatched to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Identity>,
    /// The last event up to which the journal has all calls of the run.
    pub seq: u64,
    pub received_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_up: Option<Uptime>,
    /// [`crate::model::event::Call::content`].
    pub content: u64,
    pub name: String,
    pub kind: Option<RefKind>,
    pub mcp_server: Option<String>,
    /// Verbatim; `None` once they are no longer needed.
    pub args: Option<Box<RawValue>>,
    /// The agent run that asks, if other drivers may read the call: one of all replicas sends it,
    /// or refuses it.
    #[serde(skip)]
    pub claim: Option<(Workspace, RunId)>,
    /// Another driver answers the call: that of its agent run, or that of an eval with this agent
    /// run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_others: bool,
}

impl CallRecord {
    /// The record of a call that has just come, without its content; `seq` is the last event of its
    /// run that was read.
    pub fn received(seq: u64) -> Self {
        let now = clock::moment();
        Self { seq, received_at: now.wall, received_up: now.up, ..Self::default() }
    }

    /// Notes that the call is about to be sent to `peer`, or once more to the same peer.
    pub fn dispatch(&mut self, peer: Option<Identity>) {
        self.stage = Stage::Dispatched;
        self.attempts += 1;
        self.peer = peer.or(self.peer.take());
        self.handle = None;
    }

    /// By what this driver claims the call in answering it, if it has not sent the call and others
    /// may read it, too.
    ///
    /// Without a claim, a replica whose database was away would answer that the call was not made,
    /// while the driver of another run makes it.
    pub fn claim_of_refusal(&self) -> Option<&(Workspace, RunId)> {
        match self.stage {
            Stage::Answered if self.attempts == 0 => self.claim.as_ref(),
            _ => None,
        }
    }

    /// Takes back the last dispatch, which did not happen. An earlier one may have reached the
    /// tool.
    pub fn take_back_dispatch(&mut self) {
        if self.stage == Stage::Dispatched {
            self.attempts = self.attempts.saturating_sub(1);
            if self.attempts == 0 {
                self.stage = Stage::Received;
                self.peer = None;
            }
        }
    }
}

/// A session, for its later messages, which are given tools as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionRecord {
    pub app: AppName,
    /// The `tools` that the app itself gave.
    pub tools: Option<Box<RawValue>>,
    /// The backends that were asked for; `None` for all.
    pub selection: Option<Vec<String>>,
    pub table: StoredTable,
    pub created_at: Millis,
}

/// Which app a run, a session, or what an A2A agent has made belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    pub app: AppName,
    /// The app has attached it, and did not create it here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// The eval whose agent run it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval: Option<RunId>,
    /// The id of the message that an A2A agent has made the task of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of what an A2A agent has made: when its app used it last, to the day.
    pub since: Millis,
}

/// What identifies a run or a session among all that have an owner: its workspace, its collection
/// in MANTYX's API, and its id. What an A2A agent has made has the agent's name in the place of the
/// workspace.
pub type OwnedKey = (Workspace, String, String);

/// What identifies a session: its workspace and its id.
pub type SessionKey = (Workspace, SessionId);

/// A long call that runs, or that has ended and has a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LongRecord {
    pub app: AppName,
    pub of: CallOwner,
    /// The name that the model called.
    pub tool: String,
    /// Its route: the backend, the kind, and the peer's own name of the tool.
    pub backend: BackendName,
    pub kind: RefKind,
    pub target: Arc<str>,
    /// The run and the tool use that began it; `None` for a call by hand.
    pub origin: Option<(RunId, ToolUseId)>,
    /// The journal's number of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// What the peer calls the work.
    pub handle: Option<String>,
    /// The peer that it was dispatched to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Identity>,
    /// Verbatim, as long as the call has not reached its tool: a restart then makes the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    pub begun_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_up: Option<Uptime>,
    /// When it ended, and how.
    pub ended: Option<(Millis, Answer)>,
}

/// What identifies a request with an `Idempotency-Key`: its app and the key.
pub type RequestKey = (AppName, String);

/// A request for calls with an `Idempotency-Key`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RequestRecord {
    /// SHA-256 of what was asked for, in hex.
    pub digest: String,
    pub begun_at: Millis,
    /// The body of the answer, once all of its calls have ended. Of a runtime's call: what it is
    /// told if the bridge crashes meanwhile.
    pub answer: Option<Box<RawValue>>,
    /// The path to which the bridge posts the answer, until the runtime has it. `None` for a
    /// request of an app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_to: Option<String>,
    /// Tells the requests of two replicas apart; `None` in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<u64>,
    /// The process that made its calls has died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

impl RequestRecord {
    /// A request that begins now.
    pub fn new(digest: String) -> Self {
        Self { digest, begun_at: clock::moment().wall, ..Self::default() }
    }
}

/// Where the next message of a conversation with an A2A agent goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationRecord {
    pub context: Option<String>,
    /// The task that waits for the message. It may have got one since, as only replies are written.
    pub task: Option<String>,
    /// When the agent last replied.
    pub used_at: Millis,
}

/// How long a conversation is kept after its last message.
pub const KEEP_CONVERSATION: Duration = Duration::from_secs(24 * 60 * 60);

impl ConversationRecord {
    pub fn moment(&self) -> Moment {
        Moment { wall: self.used_at, up: None }
    }
}

/// The note that the journal has lost something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRecord {
    /// When the bridge found out.
    pub at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Uptime>,
    /// What was lost, and what the bridge does about it: for people.
    pub what: String,
}

/// How long a loss is remembered. MANTYX waits 5 min for an answer by default, so no lost call
/// waits for longer than this.
const LOSS_MATTERS: Duration = Duration::from_secs(24 * 60 * 60);

impl LossRecord {
    /// A loss that the bridge has just found out.
    pub(super) fn now(what: String) -> Self {
        let now = clock::moment();
        Self { at: now.wall, up: now.up, what }
    }

    pub fn moment(&self) -> Moment {
        Moment { wall: self.at, up: self.up }
    }

    /// Whether the loss is too recent to be forgotten. `noted` is the latest time that the file
    /// has.
    pub fn matters(&self, now: Moment, noted: Millis) -> bool {
        self.moment().until(now, noted).is_none_or(|ago| ago < LOSS_MATTERS)
    }
}

/// The key of a record; JSON in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    Upstream,
    Lost,
    /// By their digest.
    Routes(Arc<str>),
    Run(Slot),
    Call(CallKey),
    Answer(CallKey),
    /// All calls of a run, and the answers to them. No record has this key; only its removal is
    /// written, for a run that has ended.
    Calls(Slot),
    Session(SessionKey),
    Owner(OwnedKey),
    Long(CallId),
    Request(RequestKey),
    /// By an id that names the agent and whose conversation it is.
    Conversation(String),
}

/// One change of the records.
#[derive(Debug, Clone)]
pub enum Change {
    /// The address of the MANTYX that the runs belong to from now on.
    Upstream(String),
    /// The routes that the table of a run or a session refers to; written before that record.
    Routes(Stored),
    Run(Slot, RunRecord),
    Call(CallKey, CallRecord),
    /// A call that is about to be sent. Among drivers that read the same stage of it, one may send
    /// it.
    Dispatch(CallKey, CallRecord),
    /// The body to post. Among replicas, the first one that is durable is posted.
    Answer(CallKey, Bytes),
    /// The body to post for a call that has not been sent. Only the replica that drives the run may
    /// write it: another one may be about to send the call.
    Refuse(CallKey, Bytes),
    /// The body to post in place of one that MANTYX does not take. Only the replica that drives the
    /// run may write it.
    Replace(CallKey, Bytes),
    /// A run and its calls.
    ForgetRun(Slot),
    /// Another replica may drive the run from now on. A file has only one process.
    Release(Slot),
    Session(SessionKey, SessionRecord),
    Owner(OwnedKey, OwnerRecord),
    /// A long call, by its id.
    Long(CallId, LongRecord),
    Request(RequestKey, RequestRecord),
    /// A new request. Among replicas, the first one with its key counts.
    Begin(RequestKey, RequestRecord),
    /// Of a file only: replicas have a table of their own for conversations.
    Conversation(String, ConversationRecord),
    Lost(LossRecord),
    /// The record with this key.
    Forget(Key),
}

impl Change {
    /// About how many bytes its large parts take; 0 if it has none.
    pub fn weight(&self) -> usize {
        fn text(json: Option<&RawValue>) -> usize {
            json.map_or(0, |json| json.get().len())
        }
        match self {
            Self::Routes(routes) => routes.text.len(),
            Self::Call(_, call) | Self::Dispatch(_, call) => text(call.args.as_deref()),
            Self::Answer(_, body) | Self::Refuse(_, body) | Self::Replace(_, body) => body.len(),
            Self::Session(_, session) => text(session.tools.as_deref()),
            Self::Request(_, request) | Self::Begin(_, request) => text(request.answer.as_deref()),
            Self::Long(_, long) => {
                let answer = long.ended.as_ref().map_or(0, |(_, answer)| answer.size());
                text(long.arguments.as_deref()) + answer
            }
            _ => 0,
        }
    }
}

/// The records of one run, with the routes that its calls lead to.
#[derive(Debug)]
pub struct StoredRun {
    pub slot: Slot,
    pub record: RunRecord,
    /// `None` where they are lost.
    pub routes: Option<Arc<Routes>>,
    pub calls: Vec<StoredCall>,
}

/// The record of one call, and its answer if that is still to be posted.
#[derive(Debug)]
pub struct StoredCall {
    pub key: CallKey,
    pub record: CallRecord,
    pub answer: Option<Bytes>,
}

/// The record of one session, and the routes of its runs.
#[derive(Debug)]
pub struct StoredSession {
    pub key: SessionKey,
    pub record: SessionRecord,
    pub routes: Arc<Routes>,
}

/// All records, as they were when the bridge started.
#[derive(Debug, Default)]
pub struct StoredRecords {
    /// The address of the MANTYX that the runs belong to.
    pub upstream: Option<String>,
    pub runs: Vec<StoredRun>,
    pub sessions: Vec<StoredSession>,
    /// The owners of runs and sessions, in no order.
    pub owners: Vec<(OwnedKey, OwnerRecord)>,
    /// The long calls, by their ids.
    pub long: Vec<(CallId, LongRecord)>,
    pub requests: Vec<(RequestKey, RequestRecord)>,
    /// The conversations with agents, which [`super::Journal::take_conversations`] hands out.
    pub conversations: Vec<(String, ConversationRecord)>,
    /// The highest number of a run that any key has.
    pub last_slot: u64,
    /// The latest time at which a frame was written.
    pub noted: Millis,
    /// What the journal lost last.
    pub lost: Option<LossRecord>,
}
