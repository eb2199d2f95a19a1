//! Requests with an `Idempotency-Key`: for a day, the same request of an app gets the same answer,
//! and its calls are made once, also over restarts.
//!
//! A request is on disk before its first call is made, and its answer before the app gets it. A
//! crash in between leaves a request without an answer: the outcome of its calls is unknown.
//!
//! A call of another runtime is such a request as well, whose key is the runtime's id of the call.
//! Its answer is kept until the runtime has taken it.
//!
//! Must not: know what a request asks for.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;

use super::Calls;
use super::long::AGAIN;
use crate::journal::Replica;
use crate::journal::record::{Change, Key, Millis, RequestKey, RequestRecord};
use crate::journal::room::KEYED_ANSWERS;
use crate::limits::oldest::over_bytes;
use crate::model::AppName;
use crate::model::maps::HashMap;
use crate::{clock, random};

/// How long a request is remembered.
const KEEP: Millis = 24 * 60 * 60 * 1_000;
/// How long the answer for a runtime is kept that the runtime does not take.
const KEEP_UNPOSTED: Millis = 7 * KEEP;
/// The most requests of all apps together that are remembered. Beyond that, the app with the most
/// loses its oldest.
const KEEP_COUNT: usize = 10_000;

/// The requests that are remembered.
pub(super) type Requests = HashMap<RequestKey, Asked>;

/// A request that is under way or has ended.
#[derive(Debug)]
pub(super) struct Asked {
    /// Without the answer.
    record: RequestRecord,
    /// Closed once the request has ended; without a value then, its answer is not kept.
    answer: watch::Receiver<Option<Answered>>,
}

/// The body of the answer to a request.
type Answered = Result<Bytes, NotAnswered>;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAnswered {
    /// No call was made, for lack of a permit; the request may be repeated.
    Busy(String),
    /// The journal cannot be written, so no call was made; the request may be repeated.
    Unwritable,
    /// No call was made, as this body says; the request may be repeated.
    NoCall(Bytes),
    /// Another replica makes the calls, or may have made them: the database does not say.
    Elsewhere,
    /// The key belongs to a request that asked for something else.
    OtherRequest,
    /// The calls may have been made, and their answer is not kept.
    Lost,
}

impl Asked {
    fn is_under_way(&self) -> bool {
        self.answer.borrow().is_none() && self.answer.has_changed().is_ok()
    }

    /// Whether it may be forgotten now, if it is that old.
    fn has_ended(&self, now: Millis) -> bool {
        let waits = self.record.post_to.is_some() && now < self.record.begun_at + KEEP_UNPOSTED;
        !waits && !self.is_under_way()
    }

    /// How many bytes of answer it keeps.
    fn size(&self) -> usize {
        self.answer.borrow().iter().flatten().map(Bytes::len).sum()
    }
}

impl Calls {
    /// Gives the answer of `work`, which makes calls of the key's app, to all requests with this
    /// `key`. The first of them starts `work`, in a task of the daemon, before this returns; the
    /// others wait for its answer.
    ///
    /// # Errors
    ///
    /// There is no answer, or another request has this key: the digest says what is asked for.
    pub fn once<W>(
        self: &Arc<Self>,
        key: RequestKey,
        mut asked: RequestRecord,
        work: W,
    ) -> impl Future<Output = Answered> + Send + use<W>
    where
        W: Future<Output = Answered> + Send + 'static,
    {
        if self.journal.replica().is_some() {
            asked.nonce = Some(random::uuid().as_u64_pair().0);
        }
        let answer = {
            let mut requests = self.requests.lock();
            self.journal.write(make_room(&mut requests));
            match requests.get(&key) {
                Some(it) if it.record.digest != asked.digest => Err(NotAnswered::OtherRequest),
                Some(it) => Ok(it.answer.clone()),
                None => {
                    let (tell, answer) = watch::channel(None);
                    let record = RequestRecord { answer: None, ..asked.clone() };
                    requests.insert(key.clone(), Asked { record, answer: answer.clone() });
                    let app = key.0.clone();
                    self.spawn(&app, Arc::clone(self).answer_once((key, asked), work, tell));
                    Ok(answer)
                }
            }
        };
        async move {
            let mut answer = answer?;
            let answered = answer.wait_for(Option::is_some).await;
            answered.ok().and_then(|answered| answered.clone()).unwrap_or(Err(NotAnswered::Lost))
        }
    }

    /// What the request with this key asks for, if there is one.
    pub fn digest_of(&self, key: &RequestKey) -> Option<String> {
        self.requests.lock().get(key).map(|asked| asked.record.digest.clone())
    }

    /// The answers for the runtime `app` that an earlier process has not posted, with their keys and
    /// paths.
    pub fn unposted(&self, app: &AppName) -> Vec<(RequestKey, String, Bytes)> {
        let requests = self.requests.lock();
        let unposted = requests.iter().filter(|((of, _), _)| of == app).filter_map(|(key, it)| {
            let path = it.record.post_to.clone()?;
            let answer = it.answer.borrow().clone()?.ok()?;
            Some((key.clone(), path, answer))
        });
        unposted.collect()
    }

    /// Notes that the runtime has taken the answer, or refuses it for good.
    pub fn posted(&self, key: RequestKey) {
        let mut requests = self.requests.lock();
        let Some(asked) = requests.get_mut(&key) else { return };
        asked.record.post_to = None;
        asked.answer = watch::channel(None).1;
        let record = asked.record.clone();
        self.journal.write(vec![Change::Request(key, record)]);
    }

    /// Records the request, does `work`, and records the answer.
    async fn answer_once(
        self: Arc<Self>,
        (key, mut record): (RequestKey, RequestRecord),
        work: impl Future<Output = Answered>,
        tell: watch::Sender<Option<Answered>>,
    ) {
        let answer = match (self.journal.begin(&key, &record).await, self.journal.replica()) {
            (Ok(None), _) if self.journal.is_open() => work.await,
            (first, Some(replica)) => {
                // The next request with this key asks again.
                self.requests.lock().remove(&key);
                // Another replica may have made the calls, also where the database does not say.
                let is_written = first.is_ok();
                let first = first.ok().flatten();
                let answer = first.map_or(Err(NotAnswered::Elsewhere), |it| elsewhere(&record, it));
                tell.send_replace(Some(answer));
                if !is_written {
                    self.withdraw(replica, key, record.nonce).await;
                }
                return;
            }
            _ => Err(NotAnswered::Unwritable),
        };
        let ended = if let Ok(body) = &answer {
            let body = (body.len() <= KEYED_ANSWERS).then_some(body);
            let kept = body.and_then(|body| serde_json::from_slice(body).ok());
            let is_kept = kept.is_some();
            record.answer = kept.or(record.answer);
            if !is_kept && let Some(asked) = self.requests.lock().get_mut(&key) {
                // Only those that wait already get it.
                asked.answer = watch::channel(None).1;
            }
            Change::Request(key.clone(), record)
        } else {
            Change::Forget(Key::Request(key.clone()))
        };
        self.journal.keep(vec![ended]).await;
        if answer.is_err() {
            // Only now: the journal would forget the next request with this key as well.
            self.requests.lock().remove(&key);
        }
        tell.send(Some(answer)).ok();
        // The answer counts now, too.
        let forgotten = make_room(&mut self.requests.lock());
        self.journal.write(forgotten);
    }

    /// Withdraws a request that the database may write yet. What another replica has written under its
    /// key stays, also where this replica has inherited it.
    async fn withdraw(&self, replica: &Replica, key: RequestKey, nonce: Option<u64>) {
        self.drain.run_until_cancelled(self.journal.flushed()).await;
        loop {
            match replica.request(&key).await {
                Ok(Some(first)) if first.nonce == nonce => {
                    return self.journal.write(vec![Change::Forget(Key::Request(key))]);
                }
                Err(_) if !self.drain.is_cancelled() => sleep(AGAIN).await,
                _ => return,
            }
        }
    }

    /// Restores the requests that earlier processes have recorded.
    pub fn restore_requests(&self, mut kept: Vec<(RequestKey, RequestRecord)>) {
        let mut requests = self.requests.lock();
        if self.journal.replica().is_some() {
            // This process goes on with what it has been asked itself. Of a request without an answer, the
            // table knows the present state: its replica may only have been frozen.
            kept.retain(|(key, record)| record.answer.is_some() && !requests.contains_key(key));
        }
        let restore = |(key, mut record): (RequestKey, RequestRecord)| {
            let answer = record.answer.take().map(|body| Ok(String::from(Box::from(body)).into()));
            (key, Asked { record, answer: watch::channel(answer).1 })
        };
        requests.extend(kept.into_iter().map(restore));
    }
}

/// The answer to `asked`, as another replica was asked `first`.
fn elsewhere(asked: &RequestRecord, first: RequestRecord) -> Answered {
    match first.answer {
        _ if first.digest != asked.digest => Err(NotAnswered::OtherRequest),
        _ if first.lost => Err(NotAnswered::Lost),
        Some(body) if first.post_to.is_none() => Ok(String::from(Box::from(body)).into()),
        _ => Err(NotAnswered::Elsewhere),
    }
}

/// Forgets requests that are too old or too many, and answers that take too much; the changes are
/// for the journal.
fn make_room(requests: &mut Requests) -> Vec<Change> {
    let now = clock::millis();
    let oldest = |requests: &Requests, most, size: fn(&Asked) -> usize| {
        let ended = requests.iter().filter(|(_, it)| it.has_ended(now) && size(it) > 0);
        let ended = ended.map(|(key, it)| (&key.0, (it.record.begun_at, size(it), key)));
        over_bytes(most, ended).into_iter().cloned().collect::<Vec<_>>()
    };
    let since = now.saturating_sub(KEEP);
    let old = requests.extract_if(|_, it| it.record.begun_at < since && it.has_ended(now));
    let mut changes: Vec<_> = old.map(|(key, _)| Change::Forget(Key::Request(key))).collect();
    for key in oldest(requests, KEEP_COUNT, |_| 1) {
        requests.remove(&key);
        changes.push(Change::Forget(Key::Request(key)));
    }
    for key in oldest(requests, KEYED_ANSWERS, Asked::size) {
        let asked = requests.get_mut(&key).expect("it was there");
        asked.answer = watch::channel(None).1;
        changes.push(Change::Request(key, asked.record.clone()));
    }
    changes
}

#[cfg(test)]
mod tests {
    //! Which requests and answers are forgotten.

    use super::*;

    fn key(app: &str, number: usize) -> RequestKey {
        (app.into(), number.to_string())
    }

    fn ended(age: Millis, body: Option<Vec<u8>>) -> Asked {
        let begun_at = clock::millis() - age;
        let record = RequestRecord { begun_at, ..RequestRecord::new("d".to_owned()) };
        let answer = body.map(|body| Ok(body.into()));
        Asked { record, answer: watch::channel(answer).1 }
    }

    #[test]
    fn a_day_later_a_request_is_forgotten_unless_it_is_under_way() {
        let (tell, answer) = watch::channel(None);
        let under_way = Asked { answer, ..ended(KEEP + 1_000, None) };
        let mut requests = Requests::from_iter([
            (key("a", 1), ended(KEEP + 1_000, Some(b"{}".to_vec()))),
            (key("a", 2), ended(KEEP + 1_000, None)),
            (key("a", 3), ended(KEEP - 60_000, None)),
            (key("a", 4), under_way),
        ]);
        assert_eq!(make_room(&mut requests).len(), 2);
        let mut left: Vec<_> = requests.keys().map(|(_, number)| number.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["3", "4"]);
        drop(tell);
        assert_eq!(make_room(&mut requests).len(), 1);
    }

    #[test]
    fn an_answer_for_a_runtime_is_kept_for_a_week_unless_it_was_taken() {
        let unposted = |age| {
            let mut asked = ended(age, Some(b"{}".to_vec()));
            asked.record.post_to = Some("/result".to_owned());
            asked
        };
        let mut requests = Requests::from_iter([
            (key("hsafa", 1), unposted(KEEP_UNPOSTED - 60_000)),
            (key("hsafa", 2), unposted(KEEP_UNPOSTED + 1_000)),
        ]);
        assert_eq!(make_room(&mut requests).len(), 1);
        let asked = requests.get_mut(&key("hsafa", 1)).expect("its answer still waits");
        asked.record.post_to = None;
        assert_eq!(make_room(&mut requests).len(), 1);
        assert!(requests.is_empty());
    }

    #[test]
    fn the_app_that_takes_most_loses_its_oldest_answers_and_then_its_oldest_keys() {
        let large = || Some(vec![b' '; KEYED_ANSWERS / 4]);
        let mut requests: Requests = (1..=5)
            .map(|number| (key("a", number), ended(60_000 - number as Millis, large())))
            .chain([(key("b", 1), ended(120_000, Some(b"{}".to_vec())))])
            .collect();
        let changes = make_room(&mut requests);
        assert_eq!((changes.len(), requests.len()), (2, 6), "their keys stay");
        let kept = |key: RequestKey| requests[&key].size() > 0;
        assert!(kept(key("b", 1)) && !kept(key("a", 1)) && !kept(key("a", 2)) && kept(key("a", 3)));

        let many = (0..KEEP_COUNT).map(|number| (key("a", number), ended(60_000, None)));
        let mut requests: Requests = many.collect();
        requests.insert(key("a", 7), ended(90_000, None));
        requests.insert(key("b", 1), ended(120_000, None));
        assert_eq!(make_room(&mut requests).len(), 1);
        assert!(!requests.contains_key(&key("a", 7)) && requests.contains_key(&key("b", 1)));
    }
}
