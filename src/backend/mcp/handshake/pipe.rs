//! The handshake over a program's pipe, which carries all messages in order.
//!
//! `server/discover` goes first. `initialize` follows on the same pipe when that is refused, or
//! after ten seconds: some servers ignore what they do not know. The answer to `server/discover`
//! decides whenever it comes, so that the revision of a program does not depend on how fast it
//! starts.
//!
//! Must not: start or end a program.

use std::future::pending;
use std::sync::Arc;

use tokio::time::{Duration, Instant, interval, sleep_until};

use super::proposal::is_about_proposal;
use super::{
    Agreement, Failure, Opening, Proposal, Proposals, Request, Waits, after_discover,
    agreement_on_discover, agreement_on_initialize,
};
use crate::backend::Reply;
use crate::backend::mcp::rpc::{Link, Rpc, Unanswered};

/// How often a silent program is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The handshake with one process.
pub(in crate::backend::mcp) struct PipeHandshake<'a> {
    link: &'a Link,
    proposals: &'a mut Proposals,
    waits: Waits,
    opening: Opening,
    /// `server/discover` while it has no answer.
    discover: Option<Request>,
    /// How often `server/discover` was sent.
    discovers: usize,
    /// `initialize` while it has no answer, and what it proposes.
    initialize: Option<(Request, Proposal)>,
    /// What the answer to `initialize` agrees to.
    agreement: Option<Agreement>,
    /// How this process has refused its first `initialize`.
    refusal: Option<Failure>,
    /// What is done if `server/discover` has no answer by then.
    due: Option<(Instant, Due)>,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    /// `initialize` is sent.
    Initialize,
    /// What `initialize` has agreed on holds.
    Agreement,
    /// The refusal of `initialize` holds.
    Refusal,
}

impl<'a> PipeHandshake<'a> {
    pub(in crate::backend::mcp) fn new(
        link: &'a Link,
        opening: Opening,
        proposals: &'a mut Proposals,
        waits: Waits,
    ) -> Self {
        Self {
            link,
            proposals,
            waits,
            opening,
            discover: None,
            discovers: 0,
            initialize: None,
            agreement: None,
            refusal: None,
            due: None,
        }
    }

    /// Performs the handshake. `is_read` says whether the program has read anything of it.
    pub(in crate::backend::mcp) async fn run(
        &mut self,
        is_read: impl Fn() -> bool,
    ) -> Result<Agreement, Failure> {
        match self.opening.clone() {
            Opening::Discover => {
                self.send_discover();
                self.due = Some((Instant::now() + self.waits.discover, Due::Initialize));
            }
            Opening::Initialize(proposal) => self.propose(proposal),
        }
        let mut silence = Silence::default();
        let mut look = interval(LOOK.min(self.waits.silence));
        loop {
            let (due, has_due) = self.due.map_or((Instant::now(), false), |(at, _)| (at, true));
            let initialize = self.initialize.as_mut().map(|(request, _)| request);
            let agreement = tokio::select! {
                biased;
                reply = reply_to(self.discover.as_mut()) => {
                    self.discover = None;
                    self.discover_answered(reply)?
                }
                reply = reply_to(initialize) => self.initialize_answered(reply)?,
                () = sleep_until(due), if has_due => self.overdue()?,
                _ = look.tick() => {
                    let silent = silence.lasts(self.rpc(), &is_read);
                    // One that has answered is not deaf, and after `initialize` another process
                    // would get the same message.
                    if self.opening == Opening::Discover
                        && self.refusal.is_none()
                        && silent.is_some_and(|silent| silent >= self.waits.silence)
                    {
                        return Err(Failure::Silent);
                    }
                    None
                }
            };
            if let Some(agreement) = agreement {
                return self.conclude(agreement).await;
            }
        }
    }

    /// What to propose in another process after this one failed; `None` if it would fail, too.
    ///
    /// Some programs end at a message that they do not know, so `initialize` gets a process to
    /// itself. A program that has read nothing failed for another reason.
    pub(in crate::backend::mcp) fn after_end(
        &self,
        failure: &Failure,
        is_read: bool,
        last_words: Option<&str>,
    ) -> Option<Proposal> {
        let unanswered = self.initialize.as_ref().map(|(_, proposal)| proposal.clone());
        if matches!(failure, Failure::Silent) {
            return unanswered.or_else(|| Some(Proposal::newest()));
        }
        if !failure.is_end() || !is_read {
            return None;
        }
        if self.refusal.is_some() {
            return unanswered;
        }
        if self.opening == Opening::Discover {
            return unanswered.or_else(|| Some(Proposal::newest()));
        }
        self.proposals.after(last_words.filter(|words| is_about_proposal(words))?)
    }

    fn rpc(&self) -> &Arc<Rpc> {
        &self.link.rpc
    }

    fn send_discover(&mut self) {
        self.discovers += 1;
        self.discover = Some(Request::discover(self.rpc()));
    }

    fn propose(&mut self, proposal: Proposal) {
        self.proposals.add(&proposal);
        self.due = None;
        self.initialize = Some((Request::initialize(self.rpc(), &proposal), proposal));
    }

    /// Handles that `server/discover` has had no answer for too long.
    fn overdue(&mut self) -> Result<Option<Agreement>, Failure> {
        match self.due.take() {
            Some((_, Due::Initialize)) => {
                let backend = &self.rpc().backend;
                tracing::debug!(%backend, "server/discover has no answer yet, trying initialize");
                self.propose(Proposal::newest());
                Ok(None)
            }
            Some((_, Due::Refusal)) => Err(self.refusal.take().unwrap_or(Failure::NoHandshake)),
            Some((_, Due::Agreement)) | None => Ok(self.agreement.take()),
        }
    }

    fn discover_answered(
        &mut self,
        reply: Result<Reply, Unanswered>,
    ) -> Result<Option<Agreement>, Failure> {
        let failure = match agreement_on_discover(self.rpc(), reply) {
            Ok(agreement) => return Ok(Some(agreement)),
            Err(failure) if failure.ends_handshake() => return Err(failure),
            Err(failure) => failure,
        };
        let backend = &self.rpc().backend;
        let why = failure.describe(self.rpc());
        tracing::debug!(%backend, "server/discover failed: {why}");
        if let Some(agreement) = self.agreement.take() {
            return Ok(Some(agreement));
        }
        if self.initialize.is_some() {
            return Ok(None);
        }
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        if failure.wants_repeat() && self.discovers == 1 {
            self.send_discover();
        } else {
            self.propose(after_discover(&failure.refusal().unwrap_or_default()));
        }
        Ok(None)
    }

    fn initialize_answered(
        &mut self,
        reply: Result<Reply, Unanswered>,
    ) -> Result<Option<Agreement>, Failure> {
        let Some((_, proposal)) = &self.initialize else { return Ok(None) };
        let proposal = proposal.clone();
        let outcome = agreement_on_initialize(self.rpc(), reply, &proposal);
        if outcome.as_ref().is_err_and(Failure::ends_handshake) {
            // The next process may get what this one has not answered.
            return outcome.map(Some);
        }
        self.initialize = None;
        let failure = match outcome {
            Ok(agreement) if self.discover.is_none() => return Ok(Some(agreement)),
            Ok(agreement) => {
                self.agreement = Some(agreement);
                self.due = Some((Instant::now() + self.waits.late, Due::Agreement));
                return Ok(None);
            }
            Err(failure) => failure,
        };
        let backend = &self.rpc().backend;
        let why = failure.describe(self.rpc());
        tracing::debug!(%backend, "initialize with {proposal} failed: {why}");
        let refusal = failure.refusal();
        let leaves_modern =
            refusal.as_deref().is_some_and(|refusal| self.proposals.leaves_modern(refusal));
        let next = refusal.and_then(|refusal| self.proposals.after(&refusal));
        let first = self.refusal.take().unwrap_or(failure);
        if let Some(next) = next.filter(|_| !leaves_modern) {
            self.refusal = Some(first);
            self.propose(next);
            return Ok(None);
        }
        if self.discover.is_none() && self.discovers > 0 {
            return Err(first);
        }
        self.refusal = Some(first);
        if self.discover.is_none() {
            self.send_discover();
        }
        // A server that says it is of 2026-07-28 answers in the end.
        let due = (Instant::now() + self.waits.discover, Due::Refusal);
        self.due = if leaves_modern { None } else { Some(due) };
        Ok(None)
    }

    /// Ends the handshake. The answer to `server/discover` still counts until the first call.
    async fn conclude(&mut self, agreement: Agreement) -> Result<Agreement, Failure> {
        self.initialize = None;
        if agreement.proposal.is_some() {
            if let Some(Request { id, .. }) = self.discover.take() {
                self.rpc().await_discovery(id);
            }
            self.link.send_initialized().await?;
        }
        Ok(agreement)
    }
}

/// The reply to `request`; never, if there is none.
async fn reply_to(request: Option<&mut Request>) -> Result<Reply, Unanswered> {
    match request {
        Some(request) => (&mut request.reply).await,
        None => pending().await,
    }
}

/// How long a program has said nothing after it has read.
#[derive(Default)]
struct Silence {
    since: Option<Instant>,
    /// How many messages the program had sent at the last look.
    messages: u64,
}

impl Silence {
    fn lasts(&mut self, rpc: &Rpc, is_read: impl Fn() -> bool) -> Option<Duration> {
        let messages = rpc.messages();
        if messages != self.messages {
            *self = Self { since: None, messages };
        }
        if self.since.is_none() && is_read() {
            self.since = Some(Instant::now());
        }
        self.since.map(|since| since.elapsed())
    }
}
