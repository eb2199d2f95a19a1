//! Calls that wait for a person, for approval or for the answer to a question of their server: the
//! open questions, who may decide them, and recent decisions.
//!
//! None is kept over a restart. A call that waits for approval has not been dispatched, and the
//! record of a call whose server can be answered later has the server's question. So the next
//! process asks again, under the same id (`model::approval`).
//!
//! Replicas show each other what waits (`shared`).
//!
//! docs/design/trust.md says what it is not, and how it came about.
//!
//! Must not: decide which calls need a person, or make one.

mod shared;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::changes::{Change, Changes};
use crate::clock;
use crate::journal::DatabaseError;
use crate::limits::ring::Ring;
use crate::metrics::{ByLabel, Counter};
use crate::model::approval::Outcome;
use crate::model::catalog::hex;
use crate::model::maps::HashMap;
use crate::model::{
    AppName, ApprovalId, BackendName, CallRequest, RunId, ToolUseId, approval, question,
};
use crate::tasks::in_place_if_large;

/// The most calls of one app that may wait for a person, and the most bytes of what they ask.
const MAX: usize = 256;
const MAX_BYTES: usize = 16 << 20;
/// The most ended questions of one app that are remembered.
pub const KEEP: usize = 100;

/// The questions of all apps.
#[derive(Debug, Default)]
pub struct Approvals {
    /// The number of the next question.
    next: AtomicU64,
    inner: Mutex<Inner>,
    changes: Changes,
    /// Something has been asked, or has ended.
    news: Notify,
    /// Counts the questions that have ended.
    pub ended: ByLabel<Outcome, Counter>,
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they were asked.
    waiting: BTreeMap<u64, Waiting>,
    ended: HashMap<AppName, Ring<Approval, KEEP>>,
    /// What waits at other replicas.
    others: BTreeMap<String, Approval>,
    /// The ids of what waits there and cannot be read here: a later version asks. Without them, the
    /// log would tell of each once a second.
    unreadable: BTreeSet<String>,
}

#[derive(Debug)]
struct Waiting {
    approval: Approval,
    tell: oneshot::Sender<Decision>,
}

/// One question, as it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Approval {
    pub id: ApprovalId,
    pub app: AppName,
    /// The agent run that asked for the call; `None` for a call by hand.
    pub run: Option<RunId>,
    pub tool_use: ToolUseId,
    /// The name that the model called.
    pub name: String,
    pub backend: BackendName,
    /// The peer's own name of the tool; empty for an agent.
    pub tool: String,
    /// Verbatim, while the question waits.
    pub arguments: Option<Arc<RawValue>>,
    /// Its server asks; otherwise the call itself waits.
    pub is_question: bool,
    /// Why a person is asked about the call once more.
    #[serde(default)]
    pub asked_again: Option<String>,
    /// What the server asks, while that waits.
    pub question: Option<Arc<question::Question>>,
    /// SHA-256 of their bytes, in hex.
    pub digest: String,
    pub since: SystemTime,
    /// When it counts as denied.
    pub until: SystemTime,
    /// When and how it ended; without the content of an answer.
    pub ended: Option<(SystemTime, Decision)>,
}

/// What a person has decided, or why no person has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub outcome: Outcome,
    /// The answer, verbatim; none if the server wants a URL opened.
    pub content: Option<String>,
    /// `operator`, or the app whose call it is, which may decide on its own (`approves`); `None` if
    /// no person has decided.
    pub by: Option<String>,
    pub reason: Option<String>,
}

impl Decision {
    /// No person has decided.
    pub(super) fn none(outcome: Outcome) -> Self {
        Self { outcome, content: None, by: None, reason: None }
    }
}

/// Why a decision has no effect.
#[derive(Debug)]
pub enum Undecidable {
    /// There is no such question, or it is another app's.
    Unknown,
    /// It has ended already.
    Ended(Box<Approval>),
    /// It is no decision on such a question; the text says what is.
    Unfit(String),
    /// The database that the replicas share does not answer.
    Away(DatabaseError),
}

/// How a question stands after a decision, or why that has no effect.
type Decided = Result<Approval, Undecidable>;

/// The app has as many waiting calls as it may, or they are as large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

/// A question that waits. Dropped without a decision, it is withdrawn.
#[derive(Debug)]
pub struct OpenQuestion<'a> {
    approvals: &'a Approvals,
    number: u64,
    decision: oneshot::Receiver<Decision>,
    until: Instant,
}

impl Approvals {
    /// Reports every change of a question to `changes`.
    pub fn telling(changes: Changes) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Asks about a call, or what its server asks, with what marks that question. Without a
    /// decision before `until`, it counts as denied.
    pub fn ask(
        &self,
        call: &CallRequest,
        question: Option<(question::Question, &str)>,
        until: Instant,
    ) -> Result<OpenQuestion<'_>, TooMany> {
        self.ask_again(call, question, None, until)
    }

    /// As [`Self::ask`], and shows `why_again`: without it, a person who has approved the call
    /// takes the second question for a mistake.
    ///
    /// The questions of one app are bounded in number and bytes. They wait for hours, and an app
    /// that asks without end would fill the memory, and the page on which people decide.
    pub(super) fn ask_again(
        &self,
        call: &CallRequest,
        question: Option<(question::Question, &str)>,
        why_again: Option<&str>,
        until: Instant,
    ) -> Result<OpenQuestion<'_>, TooMany> {
        let (tell, decision) = oneshot::channel();
        let app = &call.app;
        let arguments = call.arguments.get();
        let run = call.run_id();
        let params = question.as_ref().map(|(question, _)| question.params.get());
        let mark = question.as_ref().map(|(_, mark)| *mark);
        let size = arguments.len() + params.map_or(0, str::len);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let by_hand = if run.is_none() { number.to_string() } else { String::new() };
        // Not under the lock: arguments may have megabytes.
        let (id, digest) = in_place_if_large(size, || {
            let id = approval::id(call, [params.unwrap_or(""), mark.unwrap_or(&by_hand)]);
            (id, hex(&Sha256::digest(arguments)))
        });
        let mut inner = self.inner.lock();
        let (mut count, mut bytes) = (0, 0);
        for waiting in inner.waiting.values().filter(|waiting| waiting.approval.app == call.app) {
            count += 1;
            bytes += waiting.approval.size();
        }
        if count >= MAX || bytes + size > MAX_BYTES {
            warn!(%app, tool = call.name, count, "too many calls wait for approval; denying one");
            return Err(TooMany);
        }
        let since = clock::now();
        let approval = Approval {
            id,
            app: app.clone(),
            run: run.cloned(),
            tool_use: call.tool_use.clone(),
            name: call.name.clone(),
            backend: call.route.backend.clone(),
            tool: call.tool().to_owned(),
            arguments: Some(call.arguments.clone().into()),
            is_question: question.is_some(),
            asked_again: why_again.map(str::to_owned),
            question: question.map(|(question, _)| Arc::new(question)),
            digest,
            since,
            until: since + until.saturating_duration_since(Instant::now()),
            ended: None,
        };
        info!(
            %app, run = run.map(RunId::as_str), toolUseId = %call.tool_use, tool = call.name,
            backend = %call.route.backend, approval = %approval.id, "the call waits for a person"
        );
        let id = approval.id.clone();
        inner.waiting.insert(number, Waiting { approval, tell });
        drop(inner);
        self.news.notify_one();
        self.changes.tell(|| Change::Approval(app.clone(), id));
        Ok(OpenQuestion { approvals: self, number, decision, until })
    }

    /// Takes what a person says about the question `id` of `app`, or of any app; how it stands
    /// then.
    pub fn decide(&self, app: Option<&AppName>, id: &str, decision: Decision) -> Decided {
        let number = {
            let inner = self.inner.lock();
            let mut waiting = inner.waiting.iter();
            match waiting.find(|(_, waiting)| waiting.approval.is(app, id)) {
                Some((number, waiting)) => {
                    waiting.approval.takes(&decision)?;
                    Some(*number)
                }
                None => None,
            }
        };
        // Another decision may have come since the lock was released. Then `end` returns `None`,
        // and the person is shown that other decision.
        if let Some(approval) = number.and_then(|number| self.end(number, decision)) {
            return Ok(approval);
        }
        let approval = self.get(app, id).ok_or(Undecidable::Unknown)?;
        Err(Undecidable::Ended(Box::new(approval)))
    }

    /// The question of this id, if it is remembered and `app`'s; `None` stands for any app.
    pub fn get(&self, app: Option<&AppName>, id: &str) -> Option<Approval> {
        let inner = self.inner.lock();
        let newest_ended = inner.ended.values().flat_map(|approvals| approvals.iter().rev());
        inner.all_waiting().chain(newest_ended).find(|approval| approval.is(app, id)).cloned()
    }

    /// The questions of `app`, or of all apps: those that wait in their order, then the others, the
    /// latest first.
    pub fn of(&self, app: Option<&AppName>) -> Vec<Approval> {
        let inner = self.inner.lock();
        let newest_ended = inner.ended.values().flat_map(|approvals| approvals.iter().rev());
        let mut ended: Vec<&Approval> =
            newest_ended.filter(|approval| approval.is_visible_to(app)).collect();
        ended.sort_by_key(|approval| Reverse(approval.ended.as_ref().map(|(at, _)| *at)));
        let waiting = inner.all_waiting().filter(|approval| approval.is_visible_to(app));
        waiting.chain(ended).cloned().collect()
    }

    /// How many calls of `app`, or of all apps, wait for a person.
    pub fn waiting(&self, app: Option<&AppName>) -> usize {
        let inner = self.inner.lock();
        inner.all_waiting().filter(|approval| approval.is_visible_to(app)).count()
    }

    /// Ends the question, if it still waits. Returns its final state, or `None` if the decision has
    /// no effect.
    ///
    /// A question ends once: its removal under the lock decides which of a person's decision, the
    /// timeout and the withdrawal comes first. Without that, a person could be told "approved" of a
    /// call that was denied a moment before.
    fn end(&self, number: u64, decision: Decision) -> Option<Approval> {
        let mut inner = self.inner.lock();
        let Waiting { mut approval, tell } = inner.waiting.remove(&number)?;
        // If the receiver is gone, the call is being dropped, just before its question is: the
        // decision has no effect.
        let has_effect = tell.send(decision.clone()).is_ok();
        let final_decision = if has_effect { decision } else { Decision::none(Outcome::Withdrawn) };
        let outcome = final_decision.outcome;
        info!(
            app = %approval.app, run = approval.run.as_ref().map(RunId::as_str),
            toolUseId = %approval.tool_use, tool = approval.name, approval = %approval.id,
            why = final_decision.reason,
            waited = approval.since.elapsed().unwrap_or_default().as_secs(),
            "the {} is {}", approval.kind(), outcome.as_str()
        );
        approval.ends(clock::now(), final_decision);
        inner.remember(approval.clone());
        drop(inner);
        self.news.notify_one();
        self.ended.of(outcome).inc();
        self.changes.tell(|| approval.change());
        if has_effect { Some(approval) } else { None }
    }
}

impl Inner {
    /// All that wait: first at this replica, then at others.
    fn all_waiting(&self) -> impl Iterator<Item = &Approval> {
        self.waiting.values().map(|waiting| &waiting.approval).chain(self.others.values())
    }

    fn remember(&mut self, approval: Approval) {
        self.ended.entry(approval.app.clone()).or_default().push(approval);
    }
}

impl Approval {
    /// `None` stands for the operator, who sees those of all apps.
    fn is_visible_to(&self, app: Option<&AppName>) -> bool {
        app.is_none_or(|app| self.app == *app)
    }

    fn is(&self, app: Option<&AppName>, id: &str) -> bool {
        self.is_visible_to(app) && self.id.as_str() == id
    }

    fn change(&self) -> Change {
        Change::Approval(self.app.clone(), self.id.clone())
    }

    /// The bytes of what the person is shown.
    fn size(&self) -> usize {
        self.arguments.as_ref().map_or(0, |arguments| arguments.get().len())
            + self.question.as_ref().map_or(0, |question| question.params.get().len())
    }

    fn takes(&self, decision: &Decision) -> Result<(), Undecidable> {
        let Decision { outcome, content, .. } = decision;
        question::may_be(self.question.as_deref(), *outcome, content.as_deref())
            .map_err(Undecidable::Unfit)
    }

    fn ends(&mut self, at: SystemTime, decision: Decision) {
        self.ended = Some((at, Decision { content: None, ..decision }));
        (self.arguments, self.question) = (None, None);
    }

    /// `call`, or `question` if its server asks.
    pub fn kind(&self) -> &'static str {
        if self.is_question { "question" } else { "call" }
    }

    pub fn outcome(&self) -> Option<Outcome> {
        self.ended.as_ref().map(|(_, decision)| decision.outcome)
    }
}

impl OpenQuestion<'_> {
    /// The decision, which may be that none came in time.
    ///
    /// A person's decision can come at the same moment as the timeout. The question ends by the one
    /// of them that [`Approvals::end`] sees first, and this returns that one. If it returned
    /// "expired" by its own clock, a person would have read "approved" of a call that is not made.
    pub(super) async fn decided(mut self) -> Decision {
        let in_time = timeout_at(self.until, &mut self.decision).await;
        let decision = match in_time {
            Ok(decision) => decision.ok(),
            Err(_elapsed) => {
                self.approvals.end(self.number, Decision::none(Outcome::Expired));
                self.decision.try_recv().ok()
            }
        };
        decision.unwrap_or_else(|| Decision::none(Outcome::Withdrawn))
    }
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        // Nothing is left to do where it has ended.
        self.approvals.end(self.number, Decision::none(Outcome::Withdrawn));
    }
}

#[cfg(test)]
mod tests;
