//! From what there is now to what receivers are told of: calls that wait, backends that have
//! changed, problems that last. Pure: it is given the time.
//!
//! Must not: know receivers, beyond what they want to hear.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::Digest as _;
use tokio::time::Instant;

use super::notice::{Details, Ending, MAX_DETAIL, Subject};
use super::outbox::View;
use crate::calls::approvals::{Approval, Decision};
use crate::config::{Detail, NoticeReceiver, Topic};
use crate::model::Review;
use crate::model::approval::Outcome;
use crate::model::catalog::{hash_of, hex};

/// How long a problem has to last before it is told.
const PROBLEM_LASTS: Duration = Duration::from_secs(120);
/// The shortest time between two notices of one backend's changes. A server that changes at each
/// look would have somebody told all day.
const TRUST_GAP: Duration = Duration::from_secs(5 * 60);
/// Within this time, another replica takes over what one has left.
const COMES_BACK: Duration = Duration::from_secs(30);
/// After this time, a problem from before the restart would be there again.
const COMPLETE: Duration = Duration::from_secs(150);

/// Something that is wrong, as `problems` of the status has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// A backend, or a part of the bridge.
    pub subject: String,
    pub backend: Option<String>,
    /// In the bridge's own words, without a path, an address or a peer's text.
    pub summary: String,
    /// All that the operator reads, if that says more.
    pub reason: Option<String>,
    pub cure: String,
    /// The receiver of notices that has it.
    pub receiver: Option<String>,
}

/// What was seen before.
#[derive(Debug)]
pub struct Watcher {
    started: Instant,
    /// Since when there is a problem, by its key.
    problems: BTreeMap<String, (Instant, SystemTime)>,
    /// The last change of a backend that was told.
    changes: BTreeMap<String, LastChange>,
}

#[derive(Debug)]
struct LastChange {
    digest: String,
    at: Instant,
    since: SystemTime,
}

/// What there is now.
#[derive(Debug, Default)]
pub struct Present {
    /// Those that wait, and those that have ended lately.
    pub approvals: Vec<Approval>,
    /// Of each backend.
    pub reviews: Vec<(String, Arc<Review>)>,
    pub troubles: Vec<Trouble>,
}

impl Watcher {
    pub fn new(now: Instant) -> Self {
        Self { started: now, problems: BTreeMap::new(), changes: BTreeMap::new() }
    }

    /// What is to be told of `present`, with the texts `with` of others.
    pub fn view(
        &mut self,
        present: Present,
        with: &BTreeSet<Detail>,
        now: Instant,
        wall: SystemTime,
    ) -> View {
        let mut view = View { is_complete: now >= self.started + COMPLETE, ..View::default() };
        for approval in present.approvals {
            let key = key_of(&approval);
            match &approval.ended {
                Some((at, decision)) if may_come_back(*at, decision, wall) => {
                    view.held.insert(key);
                }
                Some((_, decision)) => {
                    let ending = Ending {
                        outcome: decision.outcome.as_str().to_owned(),
                        by: decision.by.clone(),
                        reason: decision.reason.clone(),
                    };
                    // The first in the list is the latest.
                    view.endings.entry(key).or_insert(ending);
                }
                None => {
                    view.open.insert(key.clone(), of_approval(key, &approval, with));
                }
            }
        }
        for (backend, review) in present.reviews {
            if let Some(subject) = self.change(&backend, &review, now, wall) {
                view.open.insert(subject.key.clone(), subject);
            }
        }
        let subjects = self.lasting(present.troubles, now, wall);
        view.open.extend(subjects.into_iter().map(|subject| (subject.key.clone(), subject)));
        view
    }

    /// A backend that is not as it was accepted.
    fn change(
        &mut self,
        backend: &str,
        review: &Review,
        now: Instant,
        wall: SystemTime,
    ) -> Option<Subject> {
        let open = review.open().count();
        if open == 0 {
            return None;
        }
        let last = self.changes.get(backend);
        let is_same = last.is_some_and(|last| last.digest == review.digest);
        if !is_same {
            if last.is_some_and(|last| now < last.at + TRUST_GAP) {
                return None;
            }
            let change = LastChange { digest: review.digest.clone(), at: now, since: wall };
            self.changes.insert(backend.to_owned(), change);
        }
        let since = self.changes.get(backend).map_or(wall, |last| last.since);
        let withdrawn = review.withdrawn();
        let becomes = if withdrawn > 0 { "withdrawn until then" } else { "offered nevertheless" };
        Some(Subject {
            key: format!("trust/{backend}/{}", review.digest),
            topic: Topic::Trust,
            name: backend.to_owned(),
            app: None,
            backend: Some(backend.to_owned()),
            run: None,
            approval: None,
            since,
            until: None,
            summary: Some(format!(
                "{open} of its definitions are not as they were accepted; {becomes}."
            )),
            cure: Some(format!("Look with `mantyx-bridge trust {backend}`.")),
            receiver: None,
            details: Details::default(),
        })
    }

    /// The problems that have lasted long enough.
    fn lasting(&mut self, troubles: Vec<Trouble>, now: Instant, wall: SystemTime) -> Vec<Subject> {
        let mut seen = BTreeMap::new();
        let mut subjects = Vec::new();
        for trouble in troubles {
            let key = problem_key(&trouble);
            let (at, since) = self.problems.get(&key).copied().unwrap_or((now, wall));
            seen.insert(key.clone(), (at, since));
            if now < at + PROBLEM_LASTS {
                continue;
            }
            let reason = trouble.reason.filter(|text| text.len() <= MAX_DETAIL);
            subjects.push(Subject {
                key,
                topic: Topic::Problem,
                name: trouble.subject,
                app: None,
                backend: trouble.backend,
                run: None,
                approval: None,
                since,
                until: None,
                summary: Some(trouble.summary),
                cure: Some(trouble.cure).filter(|cure| !cure.is_empty()),
                receiver: trouble.receiver,
                details: Details { reason, ..Details::default() },
            });
        }
        self.problems = seen;
        subjects
    }
}

impl View {
    /// The part that `receiver` is told.
    pub fn for_receiver(&self, receiver: &NoticeReceiver) -> Self {
        let open = self.open.iter();
        let endings = self.endings.iter();
        Self {
            open: open
                .filter_map(|(key, subject)| Some((key.clone(), subject.for_receiver(receiver)?)))
                .collect(),
            endings: endings
                .map(|(key, ending)| (key.clone(), ending.clone().only(&receiver.with)))
                .collect(),
            held: self.held.clone(),
            is_complete: self.is_complete,
        }
    }
}

/// Whether a call that is asked about no longer may be asked about again: a replica that stops
/// withdraws its questions, and the next owner of the run asks them.
fn may_come_back(ended: SystemTime, decision: &Decision, wall: SystemTime) -> bool {
    let age = wall.duration_since(ended).unwrap_or_default();
    decision.outcome == Outcome::Withdrawn && age < COMES_BACK
}

/// The same after a restart, and at each replica. A call about which a person is asked once more is
/// another thing to look at.
fn key_of(approval: &Approval) -> String {
    let topic = topic_of(approval).as_str();
    let again = match &approval.asked_again {
        Some(why) => format!("/{}", short_hash(why)),
        None => String::new(),
    };
    format!("{topic}/{}{again}", approval.id)
}

fn topic_of(approval: &Approval) -> Topic {
    if approval.is_question { Topic::Question } else { Topic::Approval }
}

fn of_approval(key: String, approval: &Approval, with: &BTreeSet<Detail>) -> Subject {
    let mut details = Details::default();
    let texts = [
        (Detail::Arguments, approval.arguments.as_ref().map(|json| json.get())),
        (Detail::Question, approval.question.as_ref().map(|question| question.params.get())),
    ];
    for (detail, text) in texts {
        let Some(text) = text.filter(|_| with.contains(&detail)) else { continue };
        if text.len() > MAX_DETAIL {
            details.left_out.insert(detail.as_str().to_owned());
        } else if detail == Detail::Arguments {
            details.arguments = Some(text.to_owned());
        } else {
            details.question = Some(text.to_owned());
        }
    }
    Subject {
        key,
        topic: topic_of(approval),
        name: approval.name.clone(),
        app: Some(approval.app.to_string()),
        backend: Some(approval.backend.to_string()),
        run: approval.run.as_ref().map(ToString::to_string),
        approval: Some(approval.id.to_string()),
        since: approval.since,
        until: Some(approval.until),
        summary: None,
        cure: None,
        receiver: None,
        details,
    }
}

/// Names a problem. Numbers in its words change while it is the same one: how often, since when.
fn problem_key(trouble: &Trouble) -> String {
    let words: String = trouble.summary.chars().filter(|c| !c.is_ascii_digit()).collect();
    format!("problem/{}/{}", trouble.subject, short_hash(&words))
}

fn short_hash(text: &str) -> String {
    let digest = hex(&hash_of([text]).finalize());
    digest.get(..12).unwrap_or(&digest).to_owned()
}

#[cfg(test)]
mod tests;
