//! The handshake over a program's pipe, which carries all messages in order.
//!
//! `server/discover` goes first. `initialize` follows on the same pipe when that is refused, or
//! after ten seconds: some servers ignore what they do not know. The answer to `server/discover`
//! decides whenever it comes, so that the revision of a program does not depend on how fast it
//! starts.
//!
//! Must not: start or end a program.

use rmcp::RoleClient;
use rmcp::model::{ErrorData, ServerResult};
use rmcp::transport::Transport;
use tokio::time::{Duration, Instant, interval, sleep_until};

use super::proposal::is_about_proposal;
use super::{
    Agreement, Answer, Conversation, Failure, Opening, Proposal, Proposals, Waits, after_discover,
    agreement_on_discover, agreement_on_initialize,
};
use crate::backend::mcp::verbatim::ConnectionState;

/// How often a silent program is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The handshake with one process.
pub(in crate::backend::mcp) struct PipeHandshake<'a, T> {
    conversation: &'a mut Conversation<T>,
    proposals: &'a mut Proposals,
    waits: Waits,
    opening: Opening,
    /// The id of `server/discover` while it has no answer.
    discover: Option<i64>,
    /// How often `server/discover` was sent.
    discovers: usize,
    /// The id of `initialize` while it has no answer, and what it proposes.
    initialize: Option<(i64, Proposal)>,
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

impl<'a, T: Transport<RoleClient> + 'static> PipeHandshake<'a, T> {
    pub(in crate::backend::mcp) fn new(
        conversation: &'a mut Conversation<T>,
        opening: Opening,
        proposals: &'a mut Proposals,
        waits: Waits,
    ) -> Self {
        Self {
            conversation,
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
                self.send_discover().await?;
                self.due = Some((Instant::now() + self.waits.discover, Due::Initialize));
            }
            Opening::Initialize(proposal) => self.propose(proposal).await?,
        }
        let mut silent_since = None;
        let mut look = interval(LOOK.min(self.waits.silence));
        loop {
            let (due, has_due) = self.due.map_or((Instant::now(), false), |(at, _)| (at, true));
            let message = tokio::select! {
                biased;
                message = self.conversation.transport.receive() => message.ok_or(Failure::Closed)?,
                () = sleep_until(due), if has_due => {
                    if let Some(agreement) = self.overdue().await? {
                        return self.conclude(agreement).await;
                    }
                    continue;
                }
                _ = look.tick() => {
                    if silent_since.is_none() && is_read() {
                        silent_since = Some(Instant::now());
                    }
                    // One that has answered is not deaf, and after `initialize` another process
                    // would get the same message.
                    if self.opening == Opening::Discover
                        && self.refusal.is_none()
                        && silent_since.is_some_and(|since| since.elapsed() >= self.waits.silence)
                    {
                        return Err(Failure::Silent);
                    }
                    continue;
                }
            };
            silent_since = None;
            let Some(answer) = self.conversation.answer_in(message).await? else { continue };
            if let Some(agreement) = self.answered(answer).await? {
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

    fn state(&self) -> &ConnectionState {
        &self.conversation.state
    }

    async fn send_discover(&mut self) -> Result<(), Failure> {
        self.discovers += 1;
        self.discover = Some(self.conversation.send_discover().await?);
        Ok(())
    }

    async fn propose(&mut self, proposal: Proposal) -> Result<(), Failure> {
        self.proposals.add(&proposal);
        self.due = None;
        let id = self.conversation.send_initialize(&proposal).await?;
        self.initialize = Some((id, proposal));
        Ok(())
    }

    /// Handles that `server/discover` has had no answer for too long.
    async fn overdue(&mut self) -> Result<Option<Agreement>, Failure> {
        match self.due.take() {
            Some((_, Due::Initialize)) => {
                let backend = &self.conversation.backend;
                tracing::debug!(%backend, "server/discover has no answer yet, trying initialize");
                self.propose(Proposal::newest()).await?;
                Ok(None)
            }
            Some((_, Due::Refusal)) => Err(self.refusal.take().unwrap_or(Failure::NoHandshake)),
            Some((_, Due::Agreement)) | None => Ok(self.agreement.take()),
        }
    }

    /// Handles an answer. An error without an id is about the first request that has none.
    async fn answered(&mut self, answer: Answer) -> Result<Option<Agreement>, Failure> {
        let Answer { id, outcome } = answer;
        if let Some(discover) = self.discover.filter(|discover| id.is_none_or(|id| id == *discover))
        {
            self.discover = None;
            self.state().forget_handshake(discover);
            return self.discover_answered(outcome).await;
        }
        match self.initialize.take() {
            Some((initialize, proposal)) if id.is_none_or(|id| id == initialize) => {
                self.state().forget_handshake(initialize);
                self.initialize_answered(outcome, proposal).await
            }
            unanswered => {
                self.initialize = unanswered;
                Ok(None)
            }
        }
    }

    async fn discover_answered(
        &mut self,
        outcome: Result<ServerResult, ErrorData>,
    ) -> Result<Option<Agreement>, Failure> {
        let failure = match agreement_on_discover(outcome) {
            Ok(agreement) => return Ok(Some(agreement)),
            Err(failure) => failure,
        };
        let backend = &self.conversation.backend;
        let why = failure.describe(self.state());
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
            self.send_discover().await?;
        } else {
            self.propose(after_discover(&failure.refusal().unwrap_or_default())).await?;
        }
        Ok(None)
    }

    async fn initialize_answered(
        &mut self,
        outcome: Result<ServerResult, ErrorData>,
        proposal: Proposal,
    ) -> Result<Option<Agreement>, Failure> {
        let failure = match agreement_on_initialize(outcome, &proposal) {
            Ok(agreement) if self.discover.is_none() => return Ok(Some(agreement)),
            Ok(agreement) => {
                self.agreement = Some(agreement);
                self.due = Some((Instant::now() + self.waits.late, Due::Agreement));
                return Ok(None);
            }
            Err(failure) => failure,
        };
        let backend = &self.conversation.backend;
        let why = failure.describe(self.state());
        tracing::debug!(%backend, "initialize with {proposal} failed: {why}");
        let refusal = failure.refusal();
        let leaves_modern =
            refusal.as_deref().is_some_and(|refusal| self.proposals.leaves_modern(refusal));
        let next = refusal.and_then(|refusal| self.proposals.after(&refusal));
        let first = self.refusal.take().unwrap_or(failure);
        if let Some(next) = next.filter(|_| !leaves_modern) {
            self.refusal = Some(first);
            self.propose(next).await?;
            return Ok(None);
        }
        if self.discover.is_none() && self.discovers > 0 {
            return Err(first);
        }
        self.refusal = Some(first);
        if self.discover.is_none() {
            self.send_discover().await?;
        }
        // A server that says it is of 2026-07-28 answers in the end.
        let due = (Instant::now() + self.waits.discover, Due::Refusal);
        self.due = if leaves_modern { None } else { Some(due) };
        Ok(None)
    }

    /// Ends the handshake. The answer to `server/discover` still counts until the first call.
    async fn conclude(&mut self, agreement: Agreement) -> Result<Agreement, Failure> {
        if let Some((id, _)) = self.initialize.take() {
            self.state().forget_handshake(id);
        }
        if agreement.proposal.is_some() {
            if let Some(id) = self.discover.take() {
                self.state().await_discovery(id);
            }
            self.conversation.send_initialized().await?;
        }
        Ok(agreement)
    }
}
