//! Whether calls to a peer would be answered, where its catalog does not tell: an agent's card may
//! lie on another server than the agent, and be read while each call is refused.
//!
//! The peer writes what calls and questions have shown. The supervisor reads it, and decides when
//! the peer is asked.
//!
//! Must not: ask the peer, or keep a call from it. A wrong judgement must cost no call.

use tokio::sync::watch;
use tokio::time::Instant;

use super::PeerError;

/// Whether a call would be answered.
#[derive(Debug, Clone, Default)]
pub enum Readiness {
    /// The endpoint has answered neither a call nor a question yet.
    #[default]
    Unknown,
    /// It would; what the endpoint has said to the last question.
    Answers(&'static str),
    /// It would not, and why.
    Fails(PeerError),
}

/// Why the endpoint is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The connection is new, an operator asks, or a call has failed: each interface may be asked.
    Doubt,
    /// Nothing was heard of the endpoint for long. One request has to do.
    Idle,
}

/// What calls and questions have shown of one endpoint.
#[derive(Debug, Clone, Default)]
pub struct Vitals {
    pub readiness: Readiness,
    /// When a call was last answered.
    pub answered_at: Option<Instant>,
    /// How many calls have failed, or were given up, since the bridge knows the endpoint.
    pub doubts: u64,
}

/// The vitals of one endpoint, for those who wait for a change.
#[derive(Debug, Default)]
pub struct Health(watch::Sender<Vitals>);

/// One call under way. It counts as failed unless it is told otherwise before this is dropped: a
/// call that is given up may have waited for an endpoint that hangs.
#[derive(Debug)]
pub struct Doubt<'h> {
    health: &'h Health,
    is_over: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.health.0.send_modify(|vitals| vitals.doubts += 1);
        }
    }
}

impl Doubt<'_> {
    /// Ends the call as one that was answered, which proves more than any question.
    pub fn answered(mut self) {
        self.is_over = true;
        self.health.0.send_if_modified(|vitals| {
            vitals.answered_at = Some(Instant::now());
            let is_news = !matches!(vitals.readiness, Readiness::Answers(_));
            if is_news {
                vitals.readiness = Readiness::Answers("it has answered the last call");
            }
            is_news
        });
    }
}

impl Health {
    pub fn call(&self) -> Doubt<'_> {
        Doubt { health: self, is_over: false }
    }

    pub fn readiness(&self) -> Readiness {
        self.0.borrow().readiness.clone()
    }

    /// Forgets the judgement: the endpoint is another one.
    pub fn reset(&self) {
        self.0.send_modify(|vitals| vitals.readiness = Readiness::Unknown);
    }

    /// Takes the answer to a question that was asked at `since`. If a call was answered meanwhile,
    /// that is the newer truth, and a failure of the question says nothing against it.
    pub fn judge(&self, readiness: Readiness, since: Instant) {
        self.0.send_modify(|vitals| {
            let is_outdated = vitals.answered_at.is_some_and(|answered| answered > since);
            if !(is_outdated && matches!(readiness, Readiness::Fails(_))) {
                vitals.readiness = readiness;
            }
        });
    }

    pub fn subscribe(&self) -> watch::Receiver<Vitals> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    //! What outweighs what.

    use super::*;
    use crate::backend::PeerErrorKind;

    fn failure() -> Readiness {
        Readiness::Fails(PeerError::new(PeerErrorKind::Unauthorized, "HTTP 401"))
    }

    #[test]
    fn answered_call_outweighs_a_question_that_was_asked_before_it() {
        let health = Health::default();
        let before = Instant::now();
        health.judge(failure(), before);
        assert!(matches!(health.readiness(), Readiness::Fails(_)));
        health.call().answered();
        health.judge(failure(), before);
        assert!(matches!(health.readiness(), Readiness::Answers(_)));
        health.judge(failure(), Instant::now());
        assert!(matches!(health.readiness(), Readiness::Fails(_)));
    }

    #[test]
    fn call_that_is_dropped_is_a_doubt_and_an_answered_one_is_none() {
        let health = Health::default();
        drop(health.call());
        health.call().answered();
        assert_eq!(health.subscribe().borrow().doubts, 1);
    }
}
