//! How long a backend has failed, and when it is tried again: by itself, for a person, for a call.
//!
//! Must not: wait, or know what failed beyond its kind.

use std::time::Duration;

use tokio::time::Instant;

use crate::backend::{PeerError, PeerErrorKind};
use crate::backoff::Backoff;

/// After this long, waits grow up to [`HOUR_CAP`].
const TEN_MINUTES: Duration = Duration::from_secs(10 * 60);
/// After this long, waits grow up to [`DAY_CAP`].
const HOUR: Duration = Duration::from_secs(60 * 60);
const HOUR_CAP: Duration = Duration::from_secs(5 * 60);
const DAY_CAP: Duration = Duration::from_secs(15 * 60);

/// The first wait after a peer refused the credential (HTTP 401 or 403): trying sooner is of no
/// use, and may lock an account. The same holds where an entry refers to something that is missing.
const REFUSED: Duration = Duration::from_secs(60);
const REFUSED_CAP: Duration = HOUR;

/// A connection that lived this long ends the outage when it is lost.
const PROOF_OF_LIFE: Duration = Duration::from_secs(30);
/// A connection that lived this long is no part of a failure that repeats: its loss is told.
const QUIET_LIFE: Duration = Duration::from_secs(10 * 60);

/// The least time between an attempt and one that an operator or app asks for.
const ASKED_GAP: Duration = Duration::from_secs(1);
/// The least time between two attempts that an operator or app asks for while the credential is
/// refused: an app that asks in a loop must not lock the account.
const ASKED_REFUSED_GAP: Duration = Duration::from_secs(60);
/// The least time between an attempt and one that a call needs.
const CALL_GAP: Duration = Duration::from_secs(5);
/// The least time between a program's end and the start that a call needs: a program that ends at
/// once must not be started by each call.
const PROGRAM_GAP: Duration = Duration::from_secs(30);

/// The failures of one backend since it last worked.
#[derive(Debug)]
pub(super) struct Outage {
    is_program: bool,
    /// When the first of these failures was.
    since: Option<Instant>,
    /// How many attempts and connections have failed since the last long life.
    failures: u32,
    /// Whether the last start has failed, so that the backend stays `down` while it is tried again.
    pub(super) start_failed: bool,
    last: Option<Failure>,
    /// The log has told of a failure and not yet of its end.
    is_told: bool,
    /// How many refreshes have failed, without [`QUIET_LIFE`] between two of them.
    refresh_failures: u32,
    last_refresh_failure: Option<Instant>,
    /// The log has said that the peer's resources and prompts were not listed.
    pub(super) features_told: bool,
    /// When the last attempt was that an operator or app asked for.
    last_asked: Option<Instant>,
    waits: Backoff,
    refused_waits: Backoff,
}

/// The last failure.
#[derive(Debug, Clone, Copy)]
struct Failure {
    at: Instant,
    kind: PeerErrorKind,
    /// Until when the peer wants no requests, if it has asked for a pause.
    pause: Option<Instant>,
}

impl Failure {
    /// Whether another attempt is of no use before an operator has changed something.
    fn is_refusal(self) -> bool {
        matches!(self.kind, PeerErrorKind::Unauthorized | PeerErrorKind::Unresolved)
    }
}

impl Outage {
    pub(super) fn new(is_program: bool) -> Self {
        Self {
            is_program,
            since: None,
            failures: 0,
            start_failed: false,
            last: None,
            is_told: false,
            refresh_failures: 0,
            last_refresh_failure: None,
            features_told: false,
            last_asked: None,
            waits: Backoff::for_connections(),
            refused_waits: Backoff::new(REFUSED, REFUSED_CAP),
        }
    }

    /// Notes a failed attempt to connect.
    pub(super) fn attempt_failed(&mut self, error: &PeerError, now: Instant) {
        self.start_failed = true;
        self.failed(error, now);
    }

    /// Notes the loss of a connection that lived for `life`.
    pub(super) fn connection_lost(&mut self, error: &PeerError, life: Duration, now: Instant) {
        self.start_failed = false;
        if life >= PROOF_OF_LIFE {
            self.since = None;
            self.waits.reset();
            self.refused_waits.reset();
        }
        if life >= QUIET_LIFE {
            self.failures = 0;
        }
        self.failed(error, now);
    }

    fn failed(&mut self, error: &PeerError, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        self.last = Some(Failure {
            at: now,
            kind: error.kind,
            pause: error.open_pause().map(|pause| pause.end),
        });
        let outage = now.duration_since(since);
        if outage >= HOUR {
            self.waits.raise_cap(DAY_CAP);
        } else if outage >= TEN_MINUTES {
            self.waits.raise_cap(HOUR_CAP);
        }
    }

    /// Ends the outage: the program was stopped, as nothing used it.
    pub(super) fn retired(&mut self) {
        *self = Self { failures: self.failures, ..Self::new(self.is_program) };
    }

    /// Notes a failed refresh on a connection that lives; how often refreshes have failed, if the
    /// log tells of this one.
    pub(super) fn refresh_failed(&mut self, now: Instant) -> Option<u32> {
        if self.last_refresh_failure.is_none_or(|last| now.duration_since(last) >= QUIET_LIFE) {
            self.refresh_failures = 0;
        }
        self.last_refresh_failure = Some(now);
        self.refresh_failures = self.refresh_failures.saturating_add(1);
        self.told(self.refresh_failures)
    }

    /// How often it has failed, if the log tells of this failure.
    pub(super) fn told_failures(&mut self) -> Option<u32> {
        self.told(self.failures)
    }

    /// The log tells of the failures 1, 4, 16, 64 and so on: a failure that repeats for a night
    /// must not fill a disk, and the count says that it repeats.
    fn told(&mut self, failures: u32) -> Option<u32> {
        if failures.is_power_of_two() && failures.trailing_zeros().is_multiple_of(2) {
            self.is_told = true;
            Some(failures)
        } else {
            None
        }
    }

    /// Whether the log tells that the backend works now: it has told of a failure, or of nothing
    /// yet.
    pub(super) fn tells_recovery(&mut self) -> bool {
        std::mem::take(&mut self.is_told) || self.failures == 0
    }

    /// Whether nothing has failed yet, so that the log tells of each step of the next attempt.
    pub(super) fn is_over(&self) -> bool {
        self.failures == 0
    }

    /// The wait until the next attempt that no call and no ask causes.
    pub(super) fn next_wait(&mut self) -> Duration {
        let wait = if self.last.is_some_and(Failure::is_refusal) {
            self.refused_waits.next_wait().max(REFUSED)
        } else {
            self.waits.next_wait()
        };
        match self.last.and_then(|last| last.pause) {
            Some(pause_end) => wait.max(pause_end.saturating_duration_since(Instant::now())),
            None => wait,
        }
    }

    /// The earliest time for an attempt that an operator or an app asks for.
    pub(super) fn next_ask_at(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| last.at + ASKED_GAP)
    }

    /// Whether an ask leads to an attempt now. One that does not is answered without an attempt.
    pub(super) fn takes_ask(&mut self, now: Instant) -> bool {
        let asked_lately = self.last_asked.is_some_and(|asked| now < asked + ASKED_REFUSED_GAP);
        if let Some(last) = self.last
            && (last.pause.is_some_and(|end| now < end) || (last.is_refusal() && asked_lately))
        {
            return false;
        }
        self.last_asked = Some(now);
        true
    }

    /// The earliest time for an attempt that a call needs; `None` if no call may cause one.
    pub(super) fn next_call_at(&self) -> Option<Instant> {
        let last = self.last?;
        if last.is_refusal() {
            return None;
        }
        let gap = if self.is_program { PROGRAM_GAP } else { CALL_GAP };
        Some((last.at + gap).max(last.pause.unwrap_or(last.at)))
    }
}

#[cfg(test)]
mod tests {
    //! The waits of an hour and of a day, and who may cut them short.

    use super::*;

    fn error(kind: PeerErrorKind) -> PeerError {
        PeerError::new(kind, "it fails")
    }

    /// The attempts of an outage of this length, and how many of them the log tells of.
    fn outage(kind: PeerErrorKind, length: Duration) -> (Vec<Duration>, usize) {
        let begin = Instant::now();
        let mut outage = Outage::new(true);
        let mut passed = Duration::ZERO;
        let mut waits = Vec::new();
        let mut told = 0;
        while passed < length {
            outage.attempt_failed(&error(kind), begin + passed);
            told += usize::from(outage.told_failures().is_some());
            let wait = outage.next_wait();
            passed += wait;
            waits.push(wait);
        }
        (waits, told)
    }

    #[test]
    fn waits_grow_with_the_length_of_the_outage() {
        let (waits, _) = outage(PeerErrorKind::Connect, TEN_MINUTES);
        assert!(waits.len() <= 40 && *waits.iter().max().unwrap() <= Duration::from_secs(30));
        let (waits, _) = outage(PeerErrorKind::Connect, HOUR);
        let longest = *waits.iter().max().unwrap();
        assert!((HOUR_CAP / 3..=HOUR_CAP).contains(&longest), "{longest:?}");
        let (waits, told) = outage(PeerErrorKind::Connect, 24 * HOUR);
        let longest = *waits.iter().max().unwrap();
        assert!((DAY_CAP / 3..=DAY_CAP).contains(&longest), "{longest:?}");
        assert!(waits.len() < 260, "{} attempts in a day", waits.len());
        assert!(told <= 4, "the log tells of {told}");
    }

    #[test]
    fn refused_credential_is_tried_after_a_minute_and_then_up_to_an_hour() {
        let (waits, _) = outage(PeerErrorKind::Unauthorized, 24 * HOUR);
        assert_eq!(waits.first(), Some(&REFUSED));
        let longest = *waits.iter().max().unwrap();
        assert!((HOUR / 3..=HOUR).contains(&longest), "{longest:?}");
        assert!(waits.iter().all(|wait| *wait >= REFUSED) && waits.len() < 60);
    }

    #[test]
    fn calls_cut_waits_short_unless_it_is_of_no_use() {
        let now = Instant::now();
        let mut away = Outage::new(false);
        away.attempt_failed(&error(PeerErrorKind::Connect), now);
        assert_eq!(away.next_call_at(), Some(now + CALL_GAP));
        away.attempt_failed(&error(PeerErrorKind::Unauthorized), now);
        assert_eq!(away.next_call_at(), None);
        let mut program = Outage::new(true);
        program.attempt_failed(&error(PeerErrorKind::Program), now);
        assert_eq!(program.next_call_at(), Some(now + PROGRAM_GAP));
    }

    #[test]
    fn asks_cut_waits_short_once_a_minute_while_the_credential_is_refused() {
        let now = Instant::now();
        let mut outage = Outage::new(false);
        outage.attempt_failed(&error(PeerErrorKind::Unauthorized), now);
        assert_eq!(outage.next_ask_at(now), now + ASKED_GAP);
        assert!(outage.takes_ask(now + ASKED_GAP));
        assert!(!outage.takes_ask(now + Duration::from_secs(30)));
        assert!(outage.takes_ask(now + ASKED_GAP + ASKED_REFUSED_GAP));
        outage.attempt_failed(&error(PeerErrorKind::Connect), now);
        assert!(outage.takes_ask(now) && outage.takes_ask(now));
    }

    #[test]
    fn failed_refreshes_are_told_less_and_less_often() {
        let begin = Instant::now();
        let mut outage = Outage::new(false);
        let mut fail = |seconds| outage.refresh_failed(begin + Duration::from_secs(seconds));
        let told: Vec<u32> = (0..20).filter_map(|number| fail(number * 15)).collect();
        assert_eq!(told, [1, 4, 16]);
        assert_eq!(fail(1200), Some(1), "after a quiet time it is news again");
    }

    #[test]
    fn long_life_ends_an_outage_and_a_short_one_does_not() {
        let now = Instant::now();
        let mut outage = Outage::new(true);
        for _ in 0..10 {
            outage.attempt_failed(&error(PeerErrorKind::Program), now);
            outage.next_wait();
        }
        assert!(outage.next_wait() > Duration::from_secs(10));
        outage.connection_lost(&error(PeerErrorKind::Program), PROOF_OF_LIFE, now);
        assert!(outage.next_wait() <= Duration::from_millis(250));
        assert!(outage.told_failures().is_none(), "a life of half a minute is told like the rest");
        outage.connection_lost(&error(PeerErrorKind::Program), QUIET_LIFE, now);
        assert_eq!(outage.told_failures(), Some(1));
    }
}
