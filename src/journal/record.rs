//! What the journal keeps, as plain data.
//!
//! Must not: decide what it means (model/recovery.rs does), or hold a secret: credentials are not
//! kept.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::clock;
use crate::model::{
    answer::Answer,
    catalog::Identity,
    moment::{Moment, Uptime},
    recovery::Stage,
    routes::{Routes, Stored},
    spec::StoredTable,
};

/// The journal's own number of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

pub use crate::model::moment::Millis;

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    pub workspace: String,
    /// [`crate::model::ids::RunKind::collection`].
    pub kind: String,
    pub run: String,
    pub app: String,
    pub session: Option<String>,
    /// It is driven with the app's own credential, which is not kept.
    pub callers_credential: bool,
    pub table: StoredTable,
    /// Others have fed it, and its past has not been read yet.
    pub has_past: bool,
    /// What was known of its past is lost, and it has not been read anew yet: what has no answer
    /// there may have been called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past_is_lost: bool,
    /// Where its past ended that was read: up to here, its calls are in the journal, or have answers
    /// in its log.
    #[serde(default)]
    pub read_to: u64,
    pub started_at: Millis,
    pub ended_at: Option<Millis>,
    /// It has not ended: since `ended_at` its stream is not read any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// The `traceparent` and the `tracestate` that its calls carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<(String, Option<String>)>,
}

impl RunRecord {
    /// Whether its stream is to be read, now or when an app asks for the run.
    pub fn goes_on(&self) -> bool {
        self.ended_at.is_none() || self.given_up
    }
}

/// What identifies a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallKey {
    pub slot: Slot,
    /// In an eval, the agent run; else empty.
    pub agent_run: String,
    pub tool_use: String,
}

/// A call of the bridge's.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// Up to here, all calls of the run are in the journal.
    pub seq: u64,
    pub received_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_up: Option<Uptime>,
    /// [`crate::model::event::Call::content`].
    pub content: u64,
    pub name: String,
    pub kind: Option<String>,
    pub mcp_server: Option<String>,
    /// Verbatim; `None` once they are not needed any more.
    pub args: Option<Box<RawValue>>,
    /// Another driver answers it: that of its agent run, or of an eval that names the agent run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_others: bool,
}

impl CallRecord {
    /// The call is sent to `peer`.
    pub fn dispatch(&mut self, peer: Option<Identity>) {
        self.stage = Stage::Dispatched;
        self.attempts += 1;
        self.peer = peer;
    }

    /// The last dispatch was not made. An earlier one may have reached the tool.
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

/// A session whose later messages are given tools.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionRecord {
    pub app: String,
    /// The `tools` that the app itself gave.
    pub tools: Option<Box<RawValue>>,
    /// The backends that were asked for; `None` for all.
    pub selection: Option<Vec<String>>,
    pub table: StoredTable,
    pub created_at: Millis,
}

/// Which app a run or a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    pub app: String,
    /// The app has handed it over, and did not create it here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// The eval that it is an agent run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval: Option<String>,
    pub since: Millis,
}

/// What identifies a run or a session among all that have an owner: its workspace, its collection in
/// MANTYX's API, and its id.
pub type OwnedKey = (String, String, String);

/// What identifies a session: its workspace and its id.
pub type SessionKey = (String, String);

/// A call that goes on after a first answer, or went on and has a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LongRecord {
    pub app: String,
    pub of: LongOf,
    /// The name that the model called.
    pub tool: String,
    /// Where it leads: the backend, [`crate::model::offer::RefKind`], and the peer's own name.
    pub backend: String,
    pub kind: String,
    pub target: String,
    /// The run and the tool use that began it; `None` for a call by hand.
    pub origin: Option<(String, String)>,
    /// What the peer calls the work.
    pub handle: Option<String>,
    /// The peer that it was dispatched to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Identity>,
    /// Verbatim, while nothing has reached the tool: it is made after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    pub begun_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_up: Option<Uptime>,
    /// When it ended, and how.
    pub ended: Option<(Millis, Answer)>,
}

/// Who may fetch its result, besides the app being the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LongOf {
    Session { workspace: String, session: String },
    Run { workspace: String, kind: String, run: String, agent_run: String },
    App,
}

/// That the journal has lost something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRecord {
    /// When that was found out.
    pub at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Uptime>,
    /// What was lost, and what is done about it: for people.
    pub what: String,
}

/// How long it is remembered that something was lost. MANTYX waits 5 min for an answer by default, so
/// no call that was lost waits any longer.
const LOSS_MATTERS: Duration = Duration::from_secs(24 * 60 * 60);

impl LossRecord {
    /// It was found out just now.
    pub(super) fn now(what: String) -> Self {
        let now = clock::moment();
        Self { at: now.wall, up: now.up, what }
    }

    pub fn moment(&self) -> Moment {
        Moment { wall: self.at, up: self.up }
    }

    /// Whether it is not so long ago that it can be forgotten.
    pub fn matters(&self, now: Moment, noted: Millis) -> bool {
        self.moment().until(now, noted).is_none_or(|ago| ago < LOSS_MATTERS)
    }
}

/// One change of what is kept.
#[derive(Debug, Clone)]
pub enum Change {
    /// What the runs are driven against from now on.
    Upstream(String),
    /// Routes that a table of a run or a session refers to; written before it.
    Routes(Stored),
    Run(Slot, RunRecord),
    Call(CallKey, CallRecord),
    /// The body that is to be posted.
    Answer(CallKey, Bytes),
    ForgetAnswer(CallKey),
    /// The calls of a run that has ended.
    ForgetCalls(Slot),
    /// A run and its calls.
    ForgetRun(Slot),
    Session(SessionKey, SessionRecord),
    ForgetSession(SessionKey),
    Owner(OwnedKey, OwnerRecord),
    ForgetOwner(OwnedKey),
    /// A long call, by its id.
    Long(String, LongRecord),
    ForgetLong(String),
    Lost(LossRecord),
    ForgetLost,
}

impl Change {
    pub(super) fn is_routes(&self) -> bool {
        matches!(self, Self::Routes(_))
    }

    /// About how many bytes it takes, where that may be many.
    pub fn weight(&self) -> usize {
        let text = |text: &Option<Box<RawValue>>| text.as_ref().map_or(0, |text| text.get().len());
        match self {
            Self::Routes(routes) => routes.text.len(),
            Self::Call(_, call) => text(&call.args),
            Self::Answer(_, body) => body.len(),
            Self::Session(_, session) => text(&session.tools),
            Self::Long(_, long) => {
                let answer = long.ended.as_ref().map_or(0, |(_, answer)| answer.size());
                text(&long.arguments) + answer
            }
            _ => 0,
        }
    }
}

/// What was kept of one run.
#[derive(Debug)]
pub struct KeptRun {
    pub slot: Slot,
    pub record: RunRecord,
    /// `None` where they are lost.
    pub routes: Option<Arc<Routes>>,
    pub calls: Vec<KeptCall>,
}

/// What was kept of one call.
#[derive(Debug)]
pub struct KeptCall {
    pub key: CallKey,
    pub record: CallRecord,
    pub answer: Option<Bytes>,
}

/// What was kept of one session.
#[derive(Debug)]
pub struct KeptSession {
    pub key: SessionKey,
    pub record: SessionRecord,
    pub routes: Arc<Routes>,
}

/// All that was kept when the bridge started.
#[derive(Debug, Default)]
pub struct Kept {
    /// What the runs were driven against.
    pub upstream: Option<String>,
    pub runs: Vec<KeptRun>,
    pub sessions: Vec<KeptSession>,
    /// The owners of runs and sessions, in no order.
    pub owners: Vec<(OwnedKey, OwnerRecord)>,
    /// The long calls, by their ids.
    pub long: Vec<(String, LongRecord)>,
    /// The highest number of a run that stands anywhere.
    pub last_slot: u64,
    /// The latest time that it knows of.
    pub noted: Millis,
    /// What was lost of late.
    pub lost: Option<LossRecord>,
}
