//! When the endpoint of a peer is asked whether it would answer a call: at connect, when somebody
//! asks for a refresh, after a failed call, and else once an hour if no call was answered.
//!
//! A judgement stops no call, and an idle peer gets one request an hour. So a trouble that goes
//! away by itself is found out by the next call, by a refresh, or by the hourly question.
//!
//! Must not: know how a peer is asked.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{End, Reason, Supervisor, over};
use crate::backend::readiness::{Health, Occasion, Readiness, Vitals};
use crate::backend::{Peer, PeerError, PeerErrorKind};
use crate::backoff::Backoff;

/// The time from the last answer to a call, or to a question, to the next question.
const HOURLY: Duration = Duration::from_secs(60 * 60);
/// The least time between two questions after failed calls: an agent that refuses each call gets
/// one more request a minute, and not one more for each call.
const DOUBT_GAP: Duration = Duration::from_secs(60);
/// How long all of one examination may take. Each interface has a part of it.
const PATIENCE: Duration = Duration::from_secs(45);

/// The examinations of one connection's endpoint.
#[derive(Debug)]
pub(super) struct Checkups {
    /// `None` for a peer without vitals of its own: it is never asked.
    vitals: Option<watch::Receiver<Vitals>>,
    last: Option<Instant>,
    /// The doubts that the last examination has settled.
    settled_doubts: u64,
    /// The waits while nothing can be connected to, and an attempt costs the peer no request.
    unreachable_waits: Backoff,
    next_attempt: Option<Instant>,
    /// The trouble that the log has told of; `None` inside: it has told that there is none.
    logged: Option<Option<String>>,
}

impl Checkups {
    pub(super) fn new(health: Option<&Health>) -> Self {
        let vitals = health.map(Health::subscribe);
        let settled_doubts = vitals.as_ref().map_or(0, |vitals| vitals.borrow().doubts);
        Self {
            vitals,
            last: None,
            settled_doubts,
            unreachable_waits: Backoff::new(DOUBT_GAP, HOURLY),
            next_attempt: None,
            logged: None,
        }
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.vitals.as_ref().map(|vitals| vitals.borrow().readiness.clone()).unwrap_or_default()
    }

    /// Whether the log tells of this trouble, or that there is none: it has not told of it last.
    pub(super) fn takes_news(&mut self, trouble: Option<&str>) -> bool {
        let news = Some(trouble.map(str::to_owned));
        let is_news = self.logged != news;
        self.logged = news;
        is_news
    }

    /// Ends when the endpoint is to be asked, or, with `None`, when the peer has written something
    /// new of it. Stays pending for a peer that is never asked.
    pub(super) async fn due(&mut self) -> Option<Occasion> {
        let (time, occasion) = self.next();
        let Some(vitals) = &mut self.vitals else { return std::future::pending().await };
        tokio::select! {
            () = sleep_until(time) => Some(occasion),
            changed = vitals.changed() => match changed {
                Ok(()) => None,
                // The peer is gone, and the connection with it.
                Err(_gone) => std::future::pending().await,
            },
        }
    }

    /// When the endpoint is asked next, and why.
    fn next(&self) -> (Instant, Occasion) {
        let now = Instant::now();
        let Some(vitals) = &self.vitals else { return (now + HOURLY, Occasion::Idle) };
        let vitals = vitals.borrow();
        let Some(last) = self.last else { return (now, Occasion::Doubt) };
        let is_unknown = matches!(vitals.readiness, Readiness::Unknown);
        if is_unknown || vitals.doubts != self.settled_doubts {
            return (last + DOUBT_GAP, Occasion::Doubt);
        }
        if let Some(next_attempt) = self.next_attempt {
            return (next_attempt, Occasion::Doubt);
        }
        let answered = vitals.answered_at.map_or(last, |answered| answered.max(last));
        (answered + HOURLY, Occasion::Idle)
    }

    /// Notes that an examination begins now. The doubts until now are settled by it.
    fn begin(&mut self) {
        if let Some(vitals) = &mut self.vitals {
            self.settled_doubts = vitals.borrow_and_update().doubts;
        }
        self.last = Some(Instant::now());
    }

    /// Notes the end of an examination. What it has written is no news for [`Self::due`].
    fn end(&mut self) {
        let Some(vitals) = &mut self.vitals else { return };
        let readiness = vitals.borrow_and_update().readiness.clone();
        let is_unreachable = matches!(
            &readiness,
            Readiness::Fails(failure) if failure.kind == PeerErrorKind::Connect
        );
        if is_unreachable {
            self.next_attempt = Some(Instant::now() + self.unreachable_waits.next_wait());
        } else {
            self.unreachable_waits.reset();
            self.next_attempt = None;
        }
    }
}

impl Supervisor {
    /// Asks the endpoint after a refresh, where that is due: at connect, because somebody has asked
    /// for the refresh, or as the refresh has brought another endpoint.
    pub(super) async fn check_up(
        &self,
        peer: &dyn Peer,
        reason: Reason,
        checkups: &mut Checkups,
        stop: &CancellationToken,
    ) -> Result<(), End> {
        if peer.health().is_none() {
            return Ok(());
        }
        let is_unknown = matches!(checkups.readiness(), Readiness::Unknown);
        if is_unknown || matches!(reason, Reason::Connected | Reason::Asked) {
            self.probe(peer, Occasion::Doubt, checkups, stop).await?;
            self.tell_readiness(&checkups.readiness(), checkups);
        }
        Ok(())
    }

    /// Asks the endpoint. The error is the end of the connection.
    pub(super) async fn probe(
        &self,
        peer: &dyn Peer,
        occasion: Occasion,
        checkups: &mut Checkups,
        stop: &CancellationToken,
    ) -> Result<(), End> {
        checkups.begin();
        let begin = Instant::now();
        let probed = tokio::select! {
            end = over(&self.lease, peer, stop) => return Err(end),
            probed = timeout(PATIENCE, peer.probe(occasion)) => probed,
        };
        if let (Err(_elapsed), Some(health)) = (probed, peer.health()) {
            let text = format!("its endpoint did not answer within {PATIENCE:?}");
            let failure = PeerError::new(PeerErrorKind::Timeout, text);
            health.judge(Readiness::Fails(failure), begin);
        }
        checkups.end();
        Ok(())
    }
}
