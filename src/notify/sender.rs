//! The task of one receiver: delivers what its outbox has, one notice after the other.
//!
//! Must not: decide what is due; the outbox does.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::outbox::{Attempt, Claimed, Next};
use super::{Failure, Place, Receiver, file};
use crate::backoff::Backoff;
use crate::calls::Calls;
use crate::config::NoticeWay;
use crate::error_chain::error_chain;
use crate::journal::Replica;
use crate::{clock, random};

/// When rows are claimed again while the database does not answer.
const CLAIM_AGAIN: Duration = Duration::from_secs(2);

/// Delivers until `stop`, or until bridge.yaml has no such receiver.
pub async fn run(receiver: &Receiver, place: &Place, calls: &Calls, stop: &CancellationToken) {
    let replica = calls.journal.replica();
    let mut backoff = Backoff::for_connections();
    loop {
        keep(receiver, place).await;
        if let Some(replica) = replica {
            settle(receiver, replica).await;
        }
        let until = match step(receiver, place, replica, stop).await {
            Step::Delivered => {
                backoff.reset();
                continue;
            }
            Step::Failed(failure) => {
                let wait = backoff.next_wait().max(failure.pause.unwrap_or_default());
                tokio::select! {
                    () = sleep(wait) => {}
                    () = receiver.renewed.notified() => backoff.reset(),
                    () = stop.cancelled() => break,
                    () = receiver.removed.cancelled() => return,
                }
                continue;
            }
            Step::Nothing(until) => until,
        };
        let due = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = receiver.wake.notified() => {}
            () = stop.cancelled() => break,
            () = receiver.removed.cancelled() => return,
        }
    }
    keep(receiver, place).await;
}

enum Step {
    Delivered,
    Failed(Failure),
    /// Nothing is due before that; `None`: before something changes.
    Nothing(Option<Instant>),
}

/// Sends the next notice, if there is one.
async fn step(
    receiver: &Receiver,
    place: &Place,
    replica: Option<&Replica>,
    stop: &CancellationToken,
) -> Step {
    if stop.is_cancelled() || matches!(receiver.contact().receiver.way, NoticeWay::Unresolved(_)) {
        return Step::Nothing(None);
    }
    let mut claims_fail = false;
    if let Some(replica) = replica {
        claims_fail = !claim(receiver, replica).await;
    }
    let id = || format!("msg_{}", random::uuid().simple());
    let next = receiver.outbox.lock().next(Instant::now(), clock::now(), id);
    let notice = match next {
        Next::Send(notice) => notice,
        Next::Wait(_) if claims_fail => return Step::Nothing(Some(Instant::now() + CLAIM_AGAIN)),
        Next::Wait(until) => return Step::Nothing(until),
    };
    // Its id is on disk before the receiver has it: a process that is killed during the attempt
    // would otherwise tell the same under another id.
    keep(receiver, place).await;
    let _turn = receiver.delivering.lock().await;
    let outcome = tokio::select! {
        outcome = receiver.deliver(place, &notice, stop) => outcome,
        () = receiver.removed.cancelled() => return Step::Nothing(None),
        () = stop.cancelled(), if !is_command(receiver) => {
            Err(Failure::new(Attempt::Unclear, "the bridge stops".to_owned()))
        }
    };
    let attempt = outcome.as_ref().map_or_else(|failure| failure.attempt, |()| Attempt::Delivered);
    receiver.outbox.lock().attempted(&notice.id, attempt, Instant::now());
    match outcome {
        Ok(()) => Step::Delivered,
        Err(failure) => Step::Failed(failure),
    }
}

/// A program is ended by `deliver` itself, which waits for its end.
fn is_command(receiver: &Receiver) -> bool {
    matches!(receiver.contact().receiver.way, NoticeWay::Command(_))
}

/// Asks for what this replica may tell; false if the database does not answer.
async fn claim(receiver: &Receiver, replica: &Replica) -> bool {
    let keys = receiver.outbox.lock().unclaimed(Instant::now());
    if keys.is_empty() {
        return true;
    }
    let rows: Vec<(String, String)> =
        keys.iter().map(|(key, message)| (row(receiver, key), message.clone())).collect();
    let answer = replica.claim_notices(&rows).await;
    let now = Instant::now();
    let mut outbox = receiver.outbox.lock();
    let claimed = match answer {
        Ok(claimed) => claimed,
        Err(error) => {
            // The keeper tells the operator that the database is away.
            debug!(error = error_chain(&error), "notices cannot be claimed now");
            for (key, _) in &keys {
                outbox.claimed(key, &Claimed::Unknown, now);
            }
            return false;
        }
    };
    for (key, _) in &keys {
        let answer = match claimed.get(&row(receiver, key)) {
            Some(notice) if notice.is_told => Claimed::Told,
            Some(notice) => Claimed::Own { message: notice.message.clone() },
            None => Claimed::Elsewhere,
        };
        outbox.claimed(key, &answer, now);
    }
    true
}

/// Tells the database which notices are delivered, or are to be told again if they come again.
async fn settle(receiver: &Receiver, replica: &Replica) {
    let rows = receiver.outbox.lock().take_rows();
    let names = |keys: &[String]| keys.iter().map(|key| row(receiver, key)).collect::<Vec<_>>();
    let (settled, released) = (names(&rows.settled), names(&rows.released));
    if settled.is_empty() && released.is_empty() {
        return;
    }
    // Without it, another replica delivers them once more, under the same ids.
    if let Err(error) = replica.settle_notices(&settled, &released).await {
        debug!(error = error_chain(&error), "delivered notices cannot be noted now");
    }
}

fn row(receiver: &Receiver, key: &str) -> String {
    format!("{}/{key}", receiver.name)
}

/// Writes the outbox, if it has changed.
async fn keep(receiver: &Receiver, place: &Place) {
    let Some(stored) = receiver.outbox.lock().take_change() else { return };
    let path = file(&receiver.name);
    let text = stored.write();
    let written = place.state.in_background(move |state| state.write_noted(&path, &text)).await;
    if let Err(error) = written {
        let receiver_name = &receiver.name;
        warn!(receiver = receiver_name, error, "the notices are not kept; a restart may lose them");
        receiver.outbox.lock().mark_changed();
    }
}
