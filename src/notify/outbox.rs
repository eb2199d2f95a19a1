//! What one receiver is still to be told, and what it knows: decides which notice is due, and what
//! follows from an attempt. Pure: it is given the time.
//!
//! A notice waits until the receiver has taken it, until it is decided, or until its time is over.
//! What the receiver knows, or may know, it is also told the end of.
//!
//! Must not: deliver a notice, or ask the database.

mod stored;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub use self::stored::Stored;
use super::notice::{Details, Ending, News, Notice, Several, Subject};
use crate::config::Topic;

/// The most notices of a receiver that wait.
pub const MAX_WAITING: usize = 256;
/// More than so many at once become one.
pub const MAX_AT_ONCE: usize = 10;
/// How long the end of something is worth telling.
const END_IS_NEWS: Duration = Duration::from_secs(60 * 60);
/// How long a claim is relied on; the database gives it for twice as long.
const CLAIM: Duration = Duration::from_secs(30);
/// When a notice that another replica has claimed is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The notices of one receiver.
#[derive(Debug)]
pub struct Outbox {
    /// Whether other replicas may tell the same.
    is_shared: bool,
    /// In the order in which they are tried.
    waiting: VecDeque<Item>,
    /// One notice in place of many, which waits as they did.
    bundle: Option<Bundle>,
    /// What the receiver knows, by the keys of the subjects.
    told: BTreeMap<String, Told>,
    /// What it is not told, as there was no room.
    skipped: BTreeSet<String>,
    /// How many of them no notice has told of.
    dropped: u64,
    /// The rows in the database that are settled, and those that are to go.
    settled: Vec<String>,
    released: Vec<String>,
    /// The id of the notice that is being sent.
    in_flight: Option<String>,
    /// It is not on disk as it is here.
    is_changed: bool,
}

/// A notice that waits.
#[derive(Debug, Clone)]
struct Item {
    key: String,
    notice: Notice,
    /// An attempt may have reached the receiver.
    may_have_arrived: bool,
    /// Its subject was there since the start of this process.
    is_seen: bool,
    claim: Claim,
}

#[derive(Debug, Clone)]
struct Bundle {
    notice: Notice,
    items: Vec<Item>,
    may_have_arrived: bool,
}

/// What the receiver knows of.
#[derive(Debug, Clone)]
struct Told {
    subject: Subject,
    is_seen: bool,
    claim: Claim,
}

/// Which replica tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Unasked,
    /// This one, as of then.
    Own(Instant),
    /// Another one; it is asked again then.
    Elsewhere(Instant),
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// This replica tells, under this id of the notice.
    Own { message: String },
    /// It was told already, and this replica looks after its end.
    Told,
    /// Another replica has it.
    Elsewhere,
    /// The database does not answer.
    Unknown,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Send(Box<Notice>),
    /// Nothing before that; `None`: before something changes.
    Wait(Option<Instant>),
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    Delivered,
    /// The receiver cannot have it.
    NotDelivered,
    /// It may have it.
    Unclear,
}

/// What there is to tell now.
#[derive(Debug, Default)]
pub struct View {
    /// What waits or is wrong, by its key.
    pub open: BTreeMap<String, Subject>,
    /// How things ended that are known to have ended.
    pub endings: BTreeMap<String, Ending>,
    /// What has ended by itself, and may be there again in a moment: the next owner of a run asks
    /// again what its calls had asked.
    pub held: BTreeSet<String>,
    /// The process has run long enough to know of all that there is.
    pub is_complete: bool,
}

impl Outbox {
    pub fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            waiting: VecDeque::new(),
            bundle: None,
            told: BTreeMap::new(),
            skipped: BTreeSet::new(),
            dropped: 0,
            settled: Vec::new(),
            released: Vec::new(),
            in_flight: None,
            is_changed: false,
        }
    }

    /// How many notices wait.
    fn len(&self) -> usize {
        self.items().count()
    }

    /// How many notices wait for this replica to deliver them.
    pub fn waiting(&self) -> usize {
        self.items().filter(|item| !matches!(item.claim, Claim::Elsewhere(_))).count()
    }

    /// Takes over what there is; how many notices were dropped, as there is no room.
    ///
    /// What was told or waits already stays as it is. What ends without having been told is told no
    /// more.
    pub fn update(&mut self, view: &View, wall: SystemTime) -> u64 {
        let dropped_before = self.dropped;
        self.skipped.retain(|key| view.open.contains_key(key));
        self.mark_seen(view);
        self.take_ended(view, wall);
        let mut open: Vec<(&String, &Subject)> = view.open.iter().collect();
        open.sort_by_key(|(_, subject)| subject.since);
        for (key, subject) in open {
            if self.knows(key) || subject.until.is_some_and(|until| until <= wall) {
                continue;
            }
            let (id, news) = (subject.message_id(), News::Began(subject.clone()));
            if !self.push(key.clone(), Notice { id, at: wall, news }) {
                self.skipped.insert(key.clone());
            }
        }
        self.dropped - dropped_before
    }

    /// Has a notice wait; false if there is no room for it.
    fn push(&mut self, key: String, notice: Notice) -> bool {
        self.is_changed = true;
        if self.len() >= MAX_WAITING {
            self.dropped += 1;
            return false;
        }
        let (may_have_arrived, is_seen, claim) = (false, true, Claim::Unasked);
        self.waiting.push_back(Item { key, notice, may_have_arrived, is_seen, claim });
        true
    }

    fn knows(&self, key: &str) -> bool {
        self.told.contains_key(key)
            || self.skipped.contains(key)
            || self.items().any(|item| item.key == key)
    }

    fn items(&self) -> impl Iterator<Item = &Item> {
        self.waiting.iter().chain(self.bundle.iter().flat_map(|bundle| &bundle.items))
    }

    fn mark_seen(&mut self, view: &View) {
        let bundled = self.bundle.iter_mut().flat_map(|bundle| &mut bundle.items);
        for item in self.waiting.iter_mut().chain(bundled) {
            item.is_seen |= view.open.contains_key(&item.key);
        }
        for (key, told) in &mut self.told {
            told.is_seen |= view.open.contains_key(key);
        }
    }

    /// Takes out what has ended. A subject that an earlier process has left counts as ended only
    /// once its time is over, or once all that there is is known: a call that is asked about again
    /// after a restart has not ended in between.
    fn take_ended(&mut self, view: &View, wall: SystemTime) {
        let mut ends = Vec::new();
        let is_over = |subject: &Subject, key: &str, is_seen: bool| {
            let is_late = !is_seen && subject.until.is_some_and(|until| until <= wall);
            let is_settled = is_seen || subject.until.is_none() && view.is_complete;
            let is_known = view.endings.contains_key(key);
            is_late || !view.open.contains_key(key) && (is_settled || is_known)
        };
        let in_flight = self.in_flight.clone();
        let waiting = std::mem::take(&mut self.waiting);
        for item in waiting {
            match &item.notice.news {
                // What comes of the attempt decides whether the receiver knows it.
                _ if in_flight.as_ref() == Some(&item.notice.id) => self.waiting.push_back(item),
                News::Began(subject) if is_over(subject, &item.key, item.is_seen) => {
                    self.is_changed = true;
                    self.settled.push(item.key.clone());
                    if item.may_have_arrived {
                        ends.push((item.key.clone(), subject.clone()));
                    }
                }
                News::Ended(..) if is_old(&item.notice, wall) => {
                    self.is_changed = true;
                    self.settled.push(item.key.clone());
                }
                _ => self.waiting.push_back(item),
            }
        }
        let bundle_is_over = |bundle: &Bundle| {
            bundle.items.iter().all(|item| match &item.notice.news {
                News::Began(subject) => is_over(subject, &item.key, item.is_seen),
                _ => is_old(&item.notice, wall),
            })
        };
        let bundle = self.bundle.take_if(|bundle| {
            let is_sent = bundle.may_have_arrived || in_flight.as_ref() == Some(&bundle.notice.id);
            !is_sent && bundle_is_over(bundle)
        });
        if let Some(bundle) = bundle {
            self.is_changed = true;
            self.settled.extend(bundle.items.into_iter().map(|item| item.key));
        }
        let told: Vec<_> = self
            .told
            .extract_if(.., |key, told| {
                !view.held.contains(key) && is_over(&told.subject, key, told.is_seen)
            })
            .collect();
        for (key, told) in told {
            self.is_changed = true;
            let is_elsewhere = matches!(told.claim, Claim::Elsewhere(_));
            if !is_elsewhere {
                ends.push((key, told.subject));
            }
        }
        for (key, subject) in ends {
            self.push_end(&key, subject, view, wall);
        }
    }

    /// Tells the end of something that the receiver knows.
    fn push_end(&mut self, key: &str, subject: Subject, view: &View, wall: SystemTime) {
        if subject.topic == Topic::Problem {
            // The same problem may come again, and is another one then.
            self.released.push(key.to_owned());
        }
        // Only a person's acceptance ends it, and that person knows.
        if subject.topic == Topic::Trust {
            return;
        }
        let ending = view.endings.get(key).cloned().unwrap_or_else(|| Ending {
            outcome: if subject.topic == Topic::Problem { "over" } else { "withdrawn" }.to_owned(),
            by: None,
            reason: None,
        });
        let id = format!("{}_end", subject.message_id());
        let key = format!("{key}/end/{id}");
        if self.items().any(|item| item.key == key) {
            return;
        }
        let notice = Notice { id, at: wall, news: News::Ended(subject, ending) };
        self.push(key, notice);
    }

    /// What is to be claimed now: the keys and the ids of notices.
    pub fn unclaimed(&self, now: Instant) -> Vec<(String, String)> {
        if !self.is_shared {
            return Vec::new();
        }
        let is_due = |claim: Claim| match claim {
            Claim::Unasked => true,
            Claim::Own(at) => now >= at + CLAIM,
            Claim::Elsewhere(again) => now >= again,
        };
        let mut keys = Vec::new();
        for item in self.items().filter(|item| is_due(item.claim)) {
            keys.push((item.key.clone(), item.notice.id.clone()));
        }
        // The replica that has told of a problem tells its end.
        for (key, told) in &self.told {
            if told.subject.topic == Topic::Problem && is_due(told.claim) {
                keys.push((key.clone(), told.subject.message_id()));
            }
        }
        keys
    }

    /// Takes the answer to a claim of `key`.
    pub fn claimed(&mut self, key: &str, answer: &Claimed, now: Instant) {
        if let Some(told) = self.told.get_mut(key) {
            told.claim = match answer {
                Claimed::Own { .. } | Claimed::Told => Claim::Own(now),
                Claimed::Elsewhere | Claimed::Unknown => Claim::Elsewhere(now + ASK_AGAIN),
            };
            return;
        }
        if let Some(bundle) = &mut self.bundle {
            // It stands for what it was made of, and is told whole, or it would say another number.
            for item in bundle.items.iter_mut().filter(|item| item.key == key) {
                item.claim = Claim::Own(now);
            }
        }
        let Some(at) = self.waiting.iter().position(|item| item.key == key) else { return };
        let item = &mut self.waiting[at];
        match answer {
            Claimed::Own { message } => {
                item.claim = Claim::Own(now);
                if !item.may_have_arrived && item.notice.id != *message {
                    item.notice.id.clone_from(message);
                    self.is_changed = true;
                }
            }
            Claimed::Told => {
                self.is_changed = true;
                let item = self.waiting.remove(at).expect("its place was just found");
                self.has_told(item, Claim::Own(now));
            }
            // The operator has to hear that the database is away, twice rather than not at all.
            Claimed::Unknown if item.notice.news.subject().is_some_and(is_problem) => {
                item.claim = Claim::Own(now);
            }
            Claimed::Elsewhere | Claimed::Unknown => item.claim = Claim::Elsewhere(now + ASK_AGAIN),
        }
    }

    /// What is to be sent next. Many at once become one, which then waits in their place.
    pub fn next(&mut self, now: Instant, wall: SystemTime, id: impl FnOnce() -> String) -> Next {
        if let Some(bundle) = &self.bundle {
            return self.sends(bundle.notice.clone());
        }
        let is_shared = self.is_shared;
        let is_ready = |item: &Item| !is_shared || matches!(item.claim, Claim::Own(_));
        if self.waiting.iter().filter(|item| is_ready(item)).count() > MAX_AT_ONCE {
            let (items, others): (Vec<Item>, Vec<Item>) =
                std::mem::take(&mut self.waiting).into_iter().partition(|item| is_ready(item));
            self.waiting = others.into();
            let notice = self.bundled(items, wall, id());
            return self.sends(notice);
        }
        if let Some(item) = self.waiting.iter().find(|item| is_ready(item)) {
            return self.sends(item.notice.clone());
        }
        let claims = self.items().map(|item| item.claim).chain(
            self.told
                .values()
                .filter(|told| is_shared && is_problem(&told.subject))
                .map(|told| told.claim),
        );
        Next::Wait(
            claims
                .map(|claim| match claim {
                    Claim::Unasked => now,
                    Claim::Own(at) => at + CLAIM,
                    Claim::Elsewhere(again) => again,
                })
                .min(),
        )
    }

    fn sends(&mut self, notice: Notice) -> Next {
        self.in_flight = Some(notice.id.clone());
        Next::Send(Box::new(notice))
    }

    fn bundled(&mut self, items: Vec<Item>, wall: SystemTime, id: String) -> Notice {
        self.is_changed = true;
        let dropped = std::mem::take(&mut self.dropped);
        let several = Several::new(items.iter().map(|item| &item.notice.news), dropped);
        let notice = Notice { id, at: wall, news: News::Several(several) };
        let may_have_arrived = false;
        self.bundle = Some(Bundle { notice: notice.clone(), items, may_have_arrived });
        notice
    }

    /// Takes what came of an attempt to send the notice `id`. One that failed goes behind the
    /// others, so that a receiver that refuses one notice gets the rest.
    pub fn attempted(&mut self, id: &str, attempt: Attempt, now: Instant) {
        self.in_flight = None;
        if let Some(bundle) = self.bundle.take_if(|bundle| bundle.notice.id == id) {
            self.is_changed = true;
            match attempt {
                Attempt::Delivered => {
                    for item in bundle.items {
                        self.settled.push(item.key.clone());
                        self.has_told(item, Claim::Own(now));
                    }
                }
                Attempt::NotDelivered => self.bundle = Some(bundle),
                Attempt::Unclear => self.bundle = Some(Bundle { may_have_arrived: true, ..bundle }),
            }
            return;
        }
        let Some(at) = self.waiting.iter().position(|item| item.notice.id == id) else { return };
        let item = self.waiting.remove(at).expect("its place was just found");
        self.is_changed = true;
        match attempt {
            Attempt::Delivered => {
                self.settled.push(item.key.clone());
                self.has_told(item, Claim::Own(now));
            }
            Attempt::NotDelivered => self.waiting.push_back(item),
            Attempt::Unclear => self.waiting.push_back(Item { may_have_arrived: true, ..item }),
        }
    }

    fn has_told(&mut self, item: Item, claim: Claim) {
        let News::Began(mut subject) = item.notice.news else { return };
        // Its end does not repeat them.
        subject.details = Details::default();
        let told = Told { subject, is_seen: item.is_seen, claim };
        self.told.insert(item.key, told);
    }

    /// The rows that are settled, and those that are to go, since the last call.
    pub fn take_rows(&mut self) -> Rows {
        let (settled, released) =
            (std::mem::take(&mut self.settled), std::mem::take(&mut self.released));
        if self.is_shared { Rows { settled, released } } else { Rows::default() }
    }

    /// What is to be written to disk, if it has changed since the last call.
    pub fn take_change(&mut self) -> Option<Stored> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        Some(self.stored())
    }

    /// The next call of [`Self::take_change`] gives what the last one has given.
    pub fn mark_changed(&mut self) {
        self.is_changed = true;
    }
}

/// Rows of the database that the replicas share.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// No replica has to tell these again.
    pub settled: Vec<String>,
    /// These may be told again.
    pub released: Vec<String>,
}

fn is_problem(subject: &Subject) -> bool {
    subject.topic == Topic::Problem
}

/// Whether the end that it tells is no news.
fn is_old(notice: &Notice, wall: SystemTime) -> bool {
    wall.duration_since(notice.at).is_ok_and(|age| age >= END_IS_NEWS)
}

#[cfg(test)]
mod tests;
