//! Requests with an `Idempotency-Key`: for a day, the same request of an app gets the same answer,
//! and its calls are made once, also over restarts.
//!
//! A request is on disk before its first call is sent, and its answer before the app gets it. A
//! crash in between leaves a request without an answer: the outcome of its calls is unknown. Before
//! that, such as while a call waits for a person, a crash leaves nothing: the request may be
//! repeated, and its calls are then made.
//!
//! A call of another runtime is such a request as well, whose key is the runtime's id of the call.
//! Its answer is kept until the runtime has taken it.
//!
//! Must not: know what a request asks for.

mod requests;
mod start;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;

use self::requests::RequestEntry;
pub(super) use self::requests::Requests;
use self::start::NotBegun;
pub use self::start::RequestStart;
use super::Calls;
use super::long::AGAIN;
use crate::journal::Replica;
use crate::journal::record::{Change, Key, RequestKey, RequestRecord};
use crate::journal::room::KEYED_ANSWERS;
use crate::model::AppName;
use crate::{clock, random};

/// The body of the answer to a request.
type AnswerResult = Result<Bytes, NotAnswered>;

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

impl Calls {
    /// [`Self::once`] for a request of an app, which takes its answer itself: the bridge posts it
    /// nowhere. `digest` says what is asked for.
    pub fn once_for_app<W, F>(
        self: &Arc<Self>,
        key: RequestKey,
        digest: String,
        work: F,
    ) -> impl Future<Output = AnswerResult> + Send + use<W, F>
    where
        F: FnOnce(Arc<RequestStart>) -> W + Send + 'static,
        W: Future<Output = AnswerResult> + Send + 'static,
    {
        self.once(key, RequestRecord::new(digest), work)
    }

    /// Gives the answer of `work`, which makes calls of the key's app, to all requests with this
    /// `key`. The first of them starts `work`, in a task of the daemon, before this returns; the
    /// others wait for its answer. Each call of `work` begins the request before it is sent.
    ///
    /// # Errors
    ///
    /// There is no answer, or another request has this key: the digest says what is asked for.
    pub fn once<W, F>(
        self: &Arc<Self>,
        key: RequestKey,
        mut record: RequestRecord,
        work: F,
    ) -> impl Future<Output = AnswerResult> + Send + use<W, F>
    where
        F: FnOnce(Arc<RequestStart>) -> W + Send + 'static,
        W: Future<Output = AnswerResult> + Send + 'static,
    {
        if self.journal.replica().is_some() {
            record.nonce = Some(random::uuid().as_u64_pair().0);
        }
        let answer = {
            let mut requests = self.requests.lock();
            self.journal.write(requests.make_room(clock::millis()));
            match requests.get(&key) {
                Some(earlier) if earlier.record.digest != record.digest => {
                    Err(NotAnswered::OtherRequest)
                }
                Some(earlier) => Ok(earlier.answer.clone()),
                None => {
                    let (sender, answer) = watch::channel(None);
                    let without_answer = RequestRecord { answer: None, ..record.clone() };
                    let entry = RequestEntry { record: without_answer, answer: answer.clone() };
                    requests.insert(key.clone(), entry);
                    let app = key.0.clone();
                    self.spawn(&app, Arc::clone(self).answer_once((key, record), work, sender));
                    Ok(answer)
                }
            }
        };
        async move {
            let mut answer = answer?;
            let result = answer.wait_for(Option::is_some).await;
            result.ok().and_then(|result| result.clone()).unwrap_or(Err(NotAnswered::Lost))
        }
    }

    /// What the request with this key asks for, if there is one.
    pub fn digest_of(&self, key: &RequestKey) -> Option<String> {
        self.requests.lock().get(key).map(|entry| entry.record.digest.clone())
    }

    /// The answers for the runtime `app` that an earlier process has not posted, with their keys
    /// and paths.
    pub fn unposted(&self, app: &AppName) -> Vec<(RequestKey, String, Bytes)> {
        let requests = self.requests.lock();
        let app_requests = requests.iter().filter(|(key, _)| key.0 == *app);
        let unposted = app_requests.filter_map(|(key, entry)| {
            let path = entry.record.post_to.clone()?;
            let answer = entry.answer.borrow().clone()?.ok()?;
            Some((key.clone(), path, answer))
        });
        unposted.collect()
    }

    /// Notes that the runtime has taken the answer, or refuses it for good.
    pub fn posted(&self, key: RequestKey) {
        let mut requests = self.requests.lock();
        let Some(record) = requests.posted(&key) else { return };
        self.journal.write(vec![Change::Request(key, record)]);
    }

    /// Does `work`, and records the answer.
    ///
    /// The request is on disk before the first call of `work` is sent ([`RequestStart`]): after a
    /// crash, the next request with this key would make the calls a second time otherwise. A
    /// request whose `work` gave no answer is forgotten in the journal first and in memory last, as
    /// the journal would forget the next request with this key as well.
    async fn answer_once<W: Future<Output = AnswerResult>>(
        self: Arc<Self>,
        (key, mut record): (RequestKey, RequestRecord),
        work: impl FnOnce(Arc<RequestStart>) -> W,
        sender: watch::Sender<Option<AnswerResult>>,
    ) {
        let replica = self.journal.replica();
        if let Some(replica) = replica
            && let Some(answer) = answer_elsewhere(replica, &key, &record).await
        {
            // No person is asked about what another replica has made.
            self.requests.lock().remove(&key);
            sender.send_replace(Some(answer));
            return;
        }
        let start = Arc::new(RequestStart::new(&self.journal, &key, &record));
        let mut answer = work(Arc::clone(&start)).await;
        if answer.is_ok() {
            // No call may have been sent, as for a search, or for a call that waits for a person
            // and has had its first answer.
            start.begin().await.ok();
        }
        if let Some(replica) = replica
            && !start.has_begun()
        {
            return self.answer_unbegun(replica, &start, (key, record), answer, &sender).await;
        }
        if start.is_refused() && answer.is_ok() {
            answer = Err(NotAnswered::Unwritable);
        }
        let change = if let Ok(body) = &answer {
            let body = Some(body).filter(|body| body.len() <= KEYED_ANSWERS);
            match body.and_then(|body| serde_json::from_slice(body).ok()) {
                Some(json) => record.answer = Some(json),
                None => drop(self.requests.lock().forget_answer(&key)),
            }
            Change::Request(key.clone(), record)
        } else {
            Change::Forget(Key::Request(key.clone()))
        };
        // While the replicas' database is away, the answer is given nevertheless: this process has
        // it for those who repeat the request, and writes it later.
        self.journal.keep(vec![change]).await;
        if answer.is_err() {
            self.requests.lock().remove(&key);
        }
        sender.send(Some(answer)).ok();
        // The answer counts now, too.
        let mut requests = self.requests.lock();
        requests.note_answer(&key);
        self.journal.write(requests.make_room(clock::millis()));
    }

    /// Ends a request that this replica has not begun. Another one may have got it while a person
    /// was asked here, and that one's answer counts: of two replicas, one may have been told to
    /// make the calls, and the other not to. Its record must stay.
    async fn answer_unbegun(
        &self,
        replica: &Replica,
        start: &RequestStart,
        (key, record): (RequestKey, RequestRecord),
        answer: AnswerResult,
        sender: &watch::Sender<Option<AnswerResult>>,
    ) {
        let elsewhere = match start.refusal() {
            Some(NotBegun { first: Some(first) }) => Some(elsewhere(&record, first)),
            // The database does not say.
            Some(NotBegun { first: None }) => Some(Err(NotAnswered::Elsewhere)),
            None => answer_elsewhere(replica, &key, &record).await,
        };
        // The next request with this key asks again.
        self.requests.lock().remove(&key);
        sender.send_replace(Some(elsewhere.unwrap_or(answer)));
        if start.is_in_doubt() {
            self.withdraw(replica, key, record.nonce).await;
        }
    }

    /// Withdraws a request that the database may write yet. What another replica has written under
    /// its key stays, also where this replica has inherited it.
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
    pub fn restore_requests(&self, mut records: Vec<(RequestKey, RequestRecord)>) {
        let mut requests = self.requests.lock();
        if self.journal.replica().is_some() {
            // This process continues with the requests that came to it. Of a request without an
            // answer, the table knows the present state: its replica may only have been frozen.
            records.retain(|(key, record)| record.answer.is_some() && requests.get(key).is_none());
        }
        for (key, mut record) in records {
            let answer = record.answer.take().map(|body| Ok(String::from(Box::from(body)).into()));
            requests.insert(key, RequestEntry { record, answer: watch::channel(answer).1 });
        }
    }
}

/// The answer to `request`, if another replica has it, or may have it.
async fn answer_elsewhere(
    replica: &Replica,
    key: &RequestKey,
    request: &RequestRecord,
) -> Option<AnswerResult> {
    match replica.request(key).await {
        Ok(None) => None,
        Ok(Some(first)) if first.nonce == request.nonce => None,
        Ok(Some(first)) => Some(elsewhere(request, first)),
        Err(_away) => Some(Err(NotAnswered::Elsewhere)),
    }
}

/// The answer to `request`, if another replica got `first` with the same key before it.
fn elsewhere(request: &RequestRecord, first: RequestRecord) -> AnswerResult {
    match first.answer {
        _ if first.digest != request.digest => Err(NotAnswered::OtherRequest),
        _ if first.lost => Err(NotAnswered::Lost),
        Some(body) if first.post_to.is_none() => Ok(String::from(Box::from(body)).into()),
        _ => Err(NotAnswered::Elsewhere),
    }
}
