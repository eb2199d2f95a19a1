//! Whether this replica may dispatch calls, and which others have died. Times are of this machine's
//! clock alone: no clocks are compared.
//!
//! Must not: ask the database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::database::Beat;
use crate::clock::millis_of;
use crate::model::maps::HashMap;

/// How often a replica says that it lives.
pub(super) const BEAT: Duration = Duration::from_secs(2);
/// For how long after its last heartbeat a replica dispatches calls. Less than [`DEAD`], so that
/// the replica has stopped before others take over.
const WINDOW: Duration = Duration::from_secs(8);
/// A database that has not answered for this long counts as away.
const LATE: Duration = Duration::from_secs(5);
/// A replica that has not been heard for this long is dead.
const DEAD: Duration = Duration::from_secs(10);

/// Until when this replica may dispatch calls.
#[derive(Debug, Default)]
pub struct DispatchWindow(AtomicU64);

impl DispatchWindow {
    /// A heartbeat was written that was sent at `sent_at`. The window counts from there: the others
    /// may have seen this heartbeat at once, although its answer took long.
    pub(super) fn extend(&self, sent_at: Duration) {
        self.0.store(millis_of(sent_at + WINDOW), Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    pub(super) fn holds(&self, now: Duration) -> bool {
        millis_of(now) < self.0.load(Ordering::Acquire)
    }

    /// Whether heartbeats come through: at most one is missing.
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        self.holds(now + WINDOW.saturating_sub(LATE))
    }
}

/// The heartbeats of the other replicas, as this one has seen them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The last heartbeat of each, and when it was seen first.
    seen: HashMap<Uuid, (i64, Duration)>,
    /// Since when this replica's own heartbeats have come through without a gap.
    unbroken: Option<Duration>,
}

impl Peers {
    /// Notes that a heartbeat of this replica failed: while the database is away, all others are
    /// silent, too. Without this, the first replica that is back would take all others for dead.
    pub(super) fn note_gap(&mut self) {
        self.unbroken = None;
    }

    /// Takes the heartbeats that were read at `now`, and returns those of the dead. A replica is
    /// silent since its counter was seen to change, by this machine's clock: the clocks of two
    /// machines may differ by more than the time after which a replica counts as dead.
    pub(super) fn look(&mut self, now: Duration, own: Uuid, beats: &[Beat]) -> Vec<Beat> {
        let since = *self.unbroken.get_or_insert(now);
        self.seen.retain(|replica, _| beats.iter().any(|beat| beat.replica == *replica));
        let mut dead = Vec::new();
        for beat in beats.iter().filter(|beat| beat.replica != own) {
            let (counter, first) = self.seen.entry(beat.replica).or_insert((beat.counter, now));
            if *counter != beat.counter {
                (*counter, *first) = (beat.counter, now);
            }
            if now.saturating_sub(since.max(*first)) >= DEAD {
                dead.push(beat.clone());
            }
        }
        dead
    }
}

#[cfg(test)]
mod tests {
    //! Who is dead, and when this replica itself has to stop.

    use super::*;

    fn beat(replica: u128, counter: i64) -> Beat {
        Beat {
            replica: Uuid::from_u128(replica),
            generation: 1,
            counter,
            host: "h".to_owned(),
            version: "1".to_owned(),
            since: std::time::UNIX_EPOCH,
            backends: <_>::default(),
        }
    }

    #[test]
    fn a_replica_without_heartbeats_is_dead_after_ten_seconds() {
        let mut peers = Peers::default();
        let mut dead_at = None;
        for second in (100..130).step_by(2) {
            let of_two = if second < 106 { second } else { 106 };
            let beats = [beat(1, second), beat(2, of_two), beat(3, second)];
            let now = Duration::from_secs(second.unsigned_abs());
            let dead = peers.look(now, Uuid::from_u128(1), &beats);
            if !dead.is_empty() {
                assert_eq!(dead, [beat(2, 106)]);
                dead_at.get_or_insert(second);
            }
        }
        assert_eq!(dead_at, Some(116));
    }

    #[test]
    fn an_outage_of_the_database_kills_no_replica() {
        let mut peers = Peers::default();
        let at = Duration::from_secs;
        let own = Uuid::from_u128(1);
        peers.look(at(100), own, &[beat(2, 7)]);
        peers.note_gap();
        // The first one that is back must not take the others for dead.
        assert!(peers.look(at(200), own, &[beat(2, 7)]).is_empty());
        assert!(peers.look(at(209), own, &[beat(2, 7)]).is_empty());
        assert_eq!(peers.look(at(210), own, &[beat(2, 7)]), [beat(2, 7)]);
    }

    #[test]
    fn a_lease_begins_before_its_heartbeat_was_sent() {
        let window = DispatchWindow::default();
        let at = Duration::from_secs;
        assert!(!window.holds(at(1)));
        window.extend(at(100));
        assert!(window.holds(at(107)) && !window.holds(at(108)));
        assert!(window.is_fresh(at(104)) && !window.is_fresh(at(105)));
        window.end();
        assert!(!window.holds(at(101)));
    }
}
