//! The requests that are remembered, in the order in which they are forgotten.
//!
//! There are up to 10,000, and each new one may push out an old one. The order is kept with them: a
//! walk over all of them would hold the lock, and a thread of the daemon, for milliseconds at each
//! call.
//!
//! Must not: write to the journal.

use std::collections::BTreeSet;

use bytes::Bytes;
use tokio::sync::watch;

use super::AnswerResult;
use crate::journal::record::{Change, Key, Millis, RequestKey, RequestRecord};
use crate::journal::room::KEYED_ANSWERS;
use crate::model::AppName;
use crate::model::maps::HashMap;

/// How long a request is remembered.
pub(super) const KEEP: Millis = 24 * 60 * 60 * 1_000;
/// How long the answer for a runtime is kept that the runtime does not take.
pub(super) const KEEP_UNPOSTED: Millis = 7 * KEEP;
/// The most requests of all apps together that are remembered. Beyond that, the app with the most
/// loses its oldest.
pub(super) const KEEP_COUNT: usize = 10_000;

/// The requests that are remembered.
#[derive(Debug, Default)]
pub(in crate::calls) struct Requests {
    all: HashMap<RequestKey, RequestEntry>,
    apps: HashMap<AppName, AppRequests>,
    /// The requests of runtimes that have not taken their answers, by age.
    unposted: BTreeSet<Place>,
    /// How many there are beside the unposted ones.
    count: usize,
    /// How many bytes of answers are kept beside those of the unposted.
    bytes: usize,
}

/// When a request began, and its key.
type Place = (Millis, RequestKey);

/// The order of the requests of one app, without the unposted.
#[derive(Debug, Default)]
struct AppRequests {
    by_age: BTreeSet<Place>,
    /// Those whose answer is kept.
    answered: BTreeSet<Place>,
    /// How many bytes their answers have.
    bytes: usize,
}

/// A request that is under way or has ended.
#[derive(Debug)]
pub(super) struct RequestEntry {
    /// Without the answer.
    pub(super) record: RequestRecord,
    /// Closed once the request has ended; without a value then, its answer is not kept.
    pub(super) answer: watch::Receiver<Option<AnswerResult>>,
}

impl RequestEntry {
    pub(super) fn is_under_way(&self) -> bool {
        self.answer.borrow().is_none() && self.answer.has_changed().is_ok()
    }

    /// How many bytes of answer it keeps.
    pub(super) fn size(&self) -> usize {
        self.answer.borrow().iter().flatten().map(Bytes::len).sum()
    }

    /// Only those that wait already get the answer.
    fn drop_answer(&mut self) {
        self.answer = watch::channel(None).1;
    }
}

impl Requests {
    pub(super) fn get(&self, key: &RequestKey) -> Option<&RequestEntry> {
        self.all.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RequestKey, &RequestEntry)> {
        self.all.iter()
    }

    pub(super) fn insert(&mut self, key: RequestKey, entry: RequestEntry) {
        self.remove(&key);
        let place = (entry.record.begun_at, key.clone());
        if entry.record.post_to.is_some() {
            self.unposted.insert(place);
        } else {
            self.count += 1;
            self.apps.entry(key.0.clone()).or_default().by_age.insert(place);
        }
        let inserted = key.clone();
        self.all.insert(key, entry);
        self.note_answer(&inserted);
    }

    pub(super) fn remove(&mut self, key: &RequestKey) {
        self.forget_answer(key);
        let Some(entry) = self.all.remove(key) else { return };
        let place = (entry.record.begun_at, key.clone());
        if self.unposted.remove(&place) {
            return;
        }
        let Some(app) = self.apps.get_mut(&key.0) else { return };
        self.count -= usize::from(app.by_age.remove(&place));
        if app.by_age.is_empty() {
            self.apps.remove(&key.0);
        }
    }

    /// Counts the answer of a request that has ended, if it is kept.
    pub(super) fn note_answer(&mut self, key: &RequestKey) {
        let Some(entry) = self.all.get(key) else { return };
        let size = entry.size();
        let Some(app) = self.apps.get_mut(&key.0).filter(|_| size > 0) else { return };
        let place = (entry.record.begun_at, key.clone());
        if app.by_age.contains(&place) && app.answered.insert(place) {
            app.bytes += size;
            self.bytes += size;
        }
    }

    /// Drops the answer of a request; its record, for the journal.
    pub(super) fn forget_answer(&mut self, key: &RequestKey) -> Option<RequestRecord> {
        let entry = self.all.get_mut(key)?;
        let size = entry.size();
        let place = (entry.record.begun_at, key.clone());
        if let Some(app) = self.apps.get_mut(&key.0)
            && app.answered.remove(&place)
        {
            app.bytes -= size;
            self.bytes -= size;
        }
        entry.drop_answer();
        Some(entry.record.clone())
    }

    /// Notes that a runtime has taken the answer; the record, for the journal.
    pub(super) fn posted(&mut self, key: &RequestKey) -> Option<RequestRecord> {
        let mut entry = self.all.remove(key)?;
        self.unposted.remove(&(entry.record.begun_at, key.clone()));
        entry.record.post_to = None;
        entry.drop_answer();
        let record = entry.record.clone();
        self.insert(key.clone(), entry);
        Some(record)
    }

    /// Forgets requests that are too old or too many, and answers that take too much; the changes
    /// are for the journal.
    pub(super) fn make_room(&mut self, now: Millis) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in self.outlived(now) {
            self.remove(&key);
            changes.push(Change::Forget(Key::Request(key)));
        }
        while self.count > KEEP_COUNT {
            let Some(key) = self.oldest() else { break };
            self.remove(&key);
            changes.push(Change::Forget(Key::Request(key)));
        }
        while self.bytes > KEYED_ANSWERS {
            let most = self.apps.values().max_by_key(|app| app.bytes);
            let first = most.and_then(|app| app.answered.first());
            let Some((_, key)) = first.cloned() else { break };
            let record = self.forget_answer(&key);
            changes.extend(record.map(|record| Change::Request(key, record)));
        }
        changes
    }

    /// The requests that have ended and are too old.
    fn outlived(&self, now: Millis) -> Vec<RequestKey> {
        let oldest = now.saturating_sub(KEEP);
        let oldest_unposted = now.saturating_sub(KEEP_UNPOSTED);
        let mut keys = Vec::new();
        for app in self.apps.values() {
            keys.extend(app.by_age.iter().take_while(|(begun_at, _)| *begun_at < oldest));
        }
        keys.extend(self.unposted.iter().take_while(|(begun_at, _)| *begun_at <= oldest_unposted));
        keys.into_iter().map(|(_, key)| key).filter(|key| self.has_ended(key)).cloned().collect()
    }

    /// The oldest request of the app that has the most.
    fn oldest(&self) -> Option<RequestKey> {
        let most = self.apps.values().max_by_key(|app| app.by_age.len())?;
        let mut keys = most.by_age.iter().map(|(_, key)| key);
        keys.find(|key| self.has_ended(key)).cloned()
    }

    fn has_ended(&self, key: &RequestKey) -> bool {
        self.all.get(key).is_some_and(|entry| !entry.is_under_way())
    }
}

#[cfg(test)]
mod tests {
    //! Which requests and answers are forgotten.

    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const NOW: Millis = 100 * KEEP;

    fn key(app: &str, number: usize) -> RequestKey {
        (app.into(), number.to_string())
    }

    fn ended(age: Millis, body: Option<Vec<u8>>) -> RequestEntry {
        let record = RequestRecord { begun_at: NOW - age, ..RequestRecord::new("d".to_owned()) };
        let answer = body.map(|body| Ok(body.into()));
        RequestEntry { record, answer: watch::channel(answer).1 }
    }

    fn requests(all: impl IntoIterator<Item = (RequestKey, RequestEntry)>) -> Requests {
        let mut requests = Requests::default();
        all.into_iter().for_each(|(key, entry)| requests.insert(key, entry));
        requests
    }

    /// The counts agree with what there is.
    fn assert_counts(requests: &Requests) {
        let (unposted, posted): (Vec<_>, Vec<_>) =
            requests.all.values().partition(|entry| entry.record.post_to.is_some());
        let bytes: usize = posted.iter().map(|entry| entry.size()).sum();
        assert_eq!((requests.count, requests.bytes), (posted.len(), bytes));
        assert_eq!(requests.unposted.len(), unposted.len());
        let of_apps = requests.apps.values();
        let sums = of_apps.map(|app| (app.by_age.len(), app.bytes));
        assert_eq!(sums.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), (posted.len(), bytes));
    }

    #[test]
    fn request_is_forgotten_after_a_day_unless_it_is_under_way() {
        let (tell, answer) = watch::channel(None);
        let under_way = RequestEntry { answer, ..ended(KEEP + 1_000, None) };
        let mut requests = requests([
            (key("a", 1), ended(KEEP + 1_000, Some(b"{}".to_vec()))),
            (key("a", 2), ended(KEEP + 1_000, None)),
            (key("a", 3), ended(KEEP - 60_000, None)),
            (key("a", 4), under_way),
        ]);
        assert_eq!(requests.make_room(NOW).len(), 2);
        let mut left: Vec<_> = requests.iter().map(|((_, number), _)| number.clone()).collect();
        left.sort_unstable();
        assert_eq!(left, ["3", "4"]);
        assert_counts(&requests);
        drop(tell);
        assert_eq!(requests.make_room(NOW).len(), 1);
        assert_counts(&requests);
    }

    #[test]
    fn answer_for_a_runtime_is_kept_for_a_week_unless_it_was_taken() {
        let unposted = |age| {
            let mut entry = ended(age, Some(b"{}".to_vec()));
            entry.record.post_to = Some("/result".to_owned());
            entry
        };
        let mut requests = requests([
            (key("hsafa", 1), unposted(KEEP_UNPOSTED - 60_000)),
            (key("hsafa", 2), unposted(KEEP_UNPOSTED + 1_000)),
        ]);
        assert_eq!(requests.make_room(NOW).len(), 1);
        assert_counts(&requests);
        let record = requests.posted(&key("hsafa", 1)).expect("its answer still waits");
        assert_eq!(record.post_to, None);
        assert_counts(&requests);
        assert_eq!(requests.make_room(NOW).len(), 1);
        assert_eq!(requests.iter().count(), 0);
        assert_counts(&requests);
    }

    #[test]
    fn app_that_takes_most_loses_its_oldest_answers_and_then_its_oldest_keys() {
        let large = || Some(vec![b' '; KEYED_ANSWERS / 4]);
        let of_a =
            (1..=5).map(|number| (key("a", number), ended(60_000 - number as Millis, large())));
        let of_b = (key("b", 1), ended(120_000, Some(b"{}".to_vec())));
        let mut few = requests(of_a.chain([of_b]));
        assert_counts(&few);
        let changes = few.make_room(NOW);
        assert_eq!((changes.len(), few.iter().count()), (2, 6), "their keys stay");
        let has_answer = |key: RequestKey| few.all[&key].size() > 0;
        assert!(has_answer(key("b", 1)) && has_answer(key("a", 3)));
        assert!(!has_answer(key("a", 1)) && !has_answer(key("a", 2)));
        assert_counts(&few);

        let mut many =
            requests((0..KEEP_COUNT).map(|number| (key("a", number), ended(60_000, None))));
        many.insert(key("a", 7), ended(90_000, None));
        many.insert(key("b", 1), ended(120_000, None));
        assert_eq!(many.make_room(NOW).len(), 1);
        assert!(many.get(&key("a", 7)).is_none() && many.get(&key("b", 1)).is_some());
        assert_counts(&many);
    }

    /// A walk over all of them at each request takes minutes.
    #[test]
    fn room_among_many_requests_is_made_at_once() {
        let mut requests =
            requests((0..KEEP_COUNT).map(|number| (key("a", number), ended(60_000, None))));
        let begun = Instant::now();
        for number in 0..2 * KEEP_COUNT {
            let entry = ended(50_000, Some(b"{}".to_vec()));
            requests.insert(key("a", KEEP_COUNT + number), entry);
            assert_eq!(requests.make_room(NOW).len(), 1);
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_counts(&requests);
    }
}
