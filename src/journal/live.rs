//! The state that a file's changes add up to: the live records and their keys.

mod records;
mod unreadable;

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::warn;

use self::records::Records;
use super::frames::{self, Contents, Frame};
use super::losses;
use super::record::{
    CallKey, CallRecord, Change, ConversationRecord, KEEP_CONVERSATION, Key, LongRecord,
    LossRecord, RunRecord, SessionRecord, Slot, StoredCall, StoredRecords, StoredRun,
    StoredSession,
};
use crate::model::RunKey;
use crate::model::maps::{HashMap, HashSet};
use crate::model::moment::Moment;
use crate::model::recovery::Stage;
use crate::model::routes::Routes;

/// What the keys of a call and of an answer begin with.
pub(super) const CALL: &[u8] = b"{\"call\":";
pub(super) const ANSWER: &[u8] = b"{\"answer\":";
/// [`Key::Lost`] as it stands in the file.
const LOST: &[u8] = b"\"lost\"";

/// The live records, by their keys as they stand in the file: the same key is always written the
/// same.
///
/// The writer holds them in memory, as a file that was truncated has none of them any longer. A
/// clone shares their bytes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Live(Records);

/// What was salvaged from a damaged file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// Runs that had not ended.
    pub(super) runs: usize,
    /// Calls that had not been answered.
    pub(super) calls: usize,
    /// Calls whose runs are lost.
    pub(super) orphans: usize,
    /// Runs whose routes are lost.
    pub(super) routeless: usize,
}

/// What `change` sets, in this order: the value of each key, or `None` if its record is removed.
pub(super) fn records(change: &Change) -> Vec<(Key, Option<Bytes>)> {
    fn text(value: &impl Serialize) -> Bytes {
        json(value).into()
    }
    let (key, value) = match change {
        Change::Upstream(upstream) => (Key::Upstream, text(upstream)),
        Change::Routes(routes) => {
            let text = Bytes::copy_from_slice(routes.text.as_bytes());
            (Key::Routes(routes.digest.clone()), text)
        }
        Change::Run(slot, run) => (Key::Run(*slot), text(run)),
        Change::Call(key, call) | Change::Dispatch(key, call) => {
            (Key::Call(key.clone()), text(call))
        }
        Change::Answer(key, body) | Change::Refuse(key, body) | Change::Replace(key, body) => {
            (Key::Answer(key.clone()), body.clone())
        }
        Change::ForgetRun(slot) => return vec![(Key::Calls(*slot), None), (Key::Run(*slot), None)],
        Change::Release(_) => return Vec::new(),
        Change::Session(key, session) => (Key::Session(key.clone()), text(session)),
        Change::Owner(key, owner) => (Key::Owner(key.clone()), text(owner)),
        Change::Long(id, call) => (Key::Long(id.clone()), text(call)),
        Change::Request(key, request) | Change::Begin(key, request) => {
            (Key::Request(key.clone()), text(request))
        }
        Change::Conversation(id, conversation) => {
            (Key::Conversation(id.clone()), text(conversation))
        }
        Change::Lost(loss) => (Key::Lost, text(loss)),
        Change::Forget(key) => return vec![(key.clone(), None)],
    };
    vec![(key, Some(value))]
}

/// A key or a record as the journal keeps it.
pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and JSON can be written")
}

impl Key {
    /// The number of the run that the record belongs to.
    pub(super) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Run(slot) | Self::Calls(slot) => Some(*slot),
            Self::Call(key) | Self::Answer(key) => Some(key.slot),
            _ => None,
        }
    }
}

impl Live {
    /// Applies all changes of the file `bytes`, whose records it shares: [`Self::detach`] ends
    /// that.
    pub(super) fn from_file(bytes: &Bytes, contents: &Contents<'_>) -> Self {
        let mut live = Self::default();
        for (key, value) in contents.entries() {
            live.set(bytes.slice_ref(key), value.map(|value| bytes.slice_ref(value)));
        }
        live
    }

    /// Copies the records out of the file that they were read from. Otherwise a single small record
    /// would hold the whole of it in memory.
    pub(super) fn detach(&mut self) {
        let mut copies = Records::default();
        for (key, value) in std::mem::take(&mut self.0) {
            copies.insert(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value));
        }
        self.0 = copies;
    }

    /// Keeps `value` under `key` from now on; `None` removes what the key names. A run that ends
    /// removes all of its calls at once: if one stayed, the next run with its number would answer
    /// that call.
    pub(super) fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        match (value, key.strip_prefix(b"{\"calls\":")) {
            (Some(value), _) => self.0.insert(key, value),
            (None, Some(slot)) => self.forget_calls(slot.strip_suffix(b"}").unwrap_or(slot)),
            (None, None) => self.0.remove(&key),
        }
    }

    /// Applies a change that no file has yet.
    pub(super) fn apply(&mut self, change: &Change) {
        for (key, value) in records(change) {
            self.set(json(&key).into(), value);
        }
    }

    /// The most bytes of a file with these records.
    pub(super) fn file_bytes(&self) -> u64 {
        frames::HEAD as u64 + self.0.bytes()
    }

    /// The keys of what the runs and the sessions refer to: their routes, and the runs' owners.
    pub(super) fn refers(&self) -> Vec<Key> {
        let runs =
            self.beginning_with(b"{\"run\":").map(|(_, value)| record::<RunKey>("run", value));
        let owners = runs.flatten().map(|RunKey { workspace, kind, run }| {
            Key::Owner((workspace, kind.as_str().to_owned(), run.as_str().to_owned()))
        });
        let routes = self.used_routes().into_iter().map(|digest| Key::Routes(digest.into()));
        owners.chain(routes).collect()
    }

    /// The records of a database.
    pub(super) fn of_rows(rows: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        let mut this = Self::default();
        this.add_rows(rows);
        this
    }

    /// Adds records of a database.
    pub(super) fn add_rows(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) {
        for (key, value) in rows {
            self.0.insert(key.into(), value.into());
        }
    }

    fn forget_calls(&mut self, slot: &[u8]) {
        for kind in [CALL, ANSWER] {
            let prefix = [kind, b"[", slot, b","].concat();
            for key in self.keys_beginning_with(&prefix) {
                self.0.remove(&key);
            }
        }
    }

    /// The records whose keys begin with `prefix`.
    fn beginning_with(&self, prefix: &[u8]) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.0.range_from(prefix).take_while(move |(key, _)| key.starts_with(prefix))
    }

    fn keys_beginning_with(&self, prefix: &[u8]) -> Vec<Bytes> {
        self.beginning_with(prefix).map(|(key, _)| key.clone()).collect()
    }

    /// Applies `change` to each record whose key begins with `prefix`. One that cannot be read is
    /// removed, as it cannot be made safe: the version that wrote it would rely on it.
    fn change<T: DeserializeOwned + Serialize>(
        &mut self,
        (what, prefix): (&str, &[u8]),
        mut change: impl FnMut(&mut T),
    ) {
        for key in self.keys_beginning_with(prefix) {
            let Some(value) = self.0.get(&key) else { continue };
            match record::<T>(what, value) {
                Some(mut stored) => {
                    change(&mut stored);
                    self.0.insert(key, json(&stored).into());
                }
                None => self.0.remove(&key),
            }
        }
    }

    /// Changes the records of a damaged file so that drivers can rely on them. A call counts as
    /// dispatched, as the record of its dispatch may be lost. A run has a lost past, as it may have
    /// had more calls.
    pub(super) fn salvage(&mut self) -> Salvaged {
        let mut salvaged = Salvaged::default();
        let digests: HashSet<Box<str>> =
            self.routes().map(|digest| digest.as_ref().into()).collect();
        self.change(("run", b"{\"run\":"), |run: &mut RunRecord| {
            if run.goes_on() {
                salvaged.runs += 1;
                salvaged.routeless += usize::from(!digests.contains(run.table.routes.as_ref()));
                run.past_is_lost = true;
            }
        });
        self.change(("call", CALL), |call: &mut CallRecord| {
            if call.stage == Stage::Received {
                call.stage = Stage::Dispatched;
            }
            call.attempts = call.attempts.max(1);
            salvaged.calls += usize::from(call.stage == Stage::Dispatched);
        });
        self.change(("long call", b"{\"long\":"), |long: &mut LongRecord| long.arguments = None);
        salvaged.orphans = self.forget_orphans();
        salvaged
    }

    /// Forgets the calls whose runs are not known, and returns how many there were: a later run may
    /// get the number of a run that is lost, and would inherit its calls.
    pub(super) fn forget_orphans(&mut self) -> usize {
        let runs: HashSet<Slot> = self.slots_of(b"{\"run\":").map(|(slot, _)| slot).collect();
        let mut count = 0;
        for kind in [CALL, ANSWER] {
            let calls = self.slots_of(kind).filter(|(slot, _)| !runs.contains(slot));
            let orphans: Vec<Bytes> = calls.map(|(_, key)| key.clone()).collect();
            count += if kind == CALL { orphans.len() } else { 0 };
            for key in orphans {
                self.0.remove(&key);
            }
        }
        count
    }

    /// The numbers of runs in the keys that begin with `prefix`.
    fn slots_of(&self, prefix: &'static [u8]) -> impl Iterator<Item = (Slot, &Bytes)> {
        let keys = self.beginning_with(prefix).map(|(key, _)| key);
        keys.filter_map(|key| Some((record::<Key>("key", key)?.slot()?, key)))
    }

    /// The answer to a call.
    pub(super) fn answer(&self, key: &CallKey) -> Option<Bytes> {
        let key = json(&Key::Answer(key.clone()));
        self.0.get(key.as_slice()).cloned()
    }

    /// What counts in place of a call that cannot be read. An answer that is kept is posted: it is
    /// what the call has brought.
    fn unreadable_call(&self, key: &CallKey, value: &[u8]) -> CallRecord {
        let mut record = unreadable::call(value);
        if self.answer(key).is_some_and(|body| !body.is_empty()) {
            record.stage = Stage::Answered;
        }
        record
    }

    pub(super) fn lose(&mut self, loss: &LossRecord) {
        self.0.insert(Bytes::from_static(LOST), json(loss).into());
    }

    /// What was lost last. A note that cannot be read counts as one of now: without it, calls from
    /// before the loss would be made again.
    pub(super) fn lost(&self) -> Option<LossRecord> {
        let note = self.0.get(LOST)?;
        let loss = record("loss", note);
        Some(loss.unwrap_or_else(|| LossRecord::now(losses::UNREADABLE_NOTE.to_owned())))
    }

    /// Forgets a loss that was too long ago to matter, and the conversations that have ended: the
    /// agent that would forget them may no longer be configured.
    pub(super) fn forget_old(&mut self, now: Moment, noted: u64) {
        if self.lost().is_some_and(|loss| !loss.matters(now, noted)) {
            self.0.remove(LOST);
        }
        for key in self.keys_beginning_with(b"{\"conversation\":") {
            let value = self.0.get(&key);
            let conversation: Option<ConversationRecord> =
                value.and_then(|value| record("conversation", value));
            let age = conversation.and_then(|conversation| conversation.moment().until(now, noted));
            if age.is_some_and(|age| age >= KEEP_CONVERSATION) {
                self.0.remove(&key);
            }
        }
    }

    /// The digests of the routes that runs and sessions refer to.
    pub(super) fn used_routes(&self) -> HashSet<Box<str>> {
        /// The part of a run or a session that refers to its routes.
        #[derive(Deserialize)]
        struct Refers {
            table: Table,
        }
        #[derive(Deserialize)]
        struct Table {
            routes: Box<str>,
        }
        let runs = self.beginning_with(b"{\"run\":");
        let sessions = self.beginning_with(b"{\"session\":");
        runs.chain(sessions)
            .filter_map(|(_, value)| {
                Some(serde_json::from_slice::<Refers>(value).ok()?.table.routes)
            })
            .collect()
    }

    /// Leaves out the routes that no run and no session refers to.
    pub(super) fn without_unused_routes(mut self) -> Self {
        let used = self.used_routes();
        for key in self.keys_beginning_with(b"{\"routes\":") {
            if let Some(Key::Routes(digest)) = record("key", &key)
                && !used.contains(&*digest)
            {
                self.0.remove(&key);
            }
        }
        self
    }

    /// The digests of the routes.
    pub(super) fn routes(&self) -> impl Iterator<Item = Arc<str>> {
        self.beginning_with(b"{\"routes\":").filter_map(|(key, _)| match record("key", key)? {
            Key::Routes(digest) => Some(digest),
            _ => None,
        })
    }

    /// Hands all records to `write` in frames, the first with the number `first`; returns the
    /// number after the last. Every record has a frame of its own, so that damage to it costs no
    /// other record; an answer is in the frame of its call.
    pub(super) fn frames<E>(
        &self,
        (first, at): (u64, u64),
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut frame = Frame::new();
        let mut next = first;
        for (key, value) in self.0.iter() {
            if let Some(call_id) = key.strip_prefix(ANSWER)
                && self.0.contains_key([CALL, call_id].concat().as_slice())
            {
                // The frame of the call has it.
                continue;
            }
            frame.set(key, Some(value));
            if let Some(call_id) = key.strip_prefix(CALL) {
                let answer = [ANSWER, call_id].concat();
                if let Some(body) = self.0.get(answer.as_slice()) {
                    frame.set(&answer, Some(body));
                }
            }
            write(frame.bytes(next, at))?;
            frame.clear();
            next += 1;
        }
        Ok(next)
    }

    /// A call, as yet without its answer.
    fn stored_call(&self, key: CallKey, value: &[u8]) -> StoredCall {
        let record = record("call", value).unwrap_or_else(|| self.unreadable_call(&key, value));
        StoredCall { key, record, answer: None }
    }

    /// All records, as the types of `record`.
    ///
    /// A record that cannot be read is logged, and stays in the file for the version that wrote it.
    /// What keeps a call from being made twice still does so: [`unreadable`] has what counts in
    /// place of a call, a request or an owner. Where nothing can, the record counts as lost, so
    /// that a run which is handed over makes no call from before. docs/design/records.md has the
    /// rules.
    pub(super) fn records(&self) -> StoredRecords {
        let mut records = StoredRecords::default();
        let mut routes: HashMap<Arc<str>, Arc<Routes>> = HashMap::default();
        let mut answers: HashMap<CallKey, Bytes> = HashMap::default();
        let mut calls: HashMap<Slot, Vec<StoredCall>> = HashMap::default();
        let mut runs = Vec::new();
        let mut sessions = Vec::new();
        let mut lost = 0;
        for (key_text, value) in self.0.iter() {
            let Some(key) = record::<Key>("key", key_text) else {
                lost += usize::from(unreadable::guards(key_text));
                continue;
            };
            records.last_slot = records.last_slot.max(key.slot().map_or(0, |slot| slot.0));
            match key {
                // It is read below.
                Key::Lost => (),
                Key::Upstream => {
                    records.upstream = record("MANTYX's address", value);
                    lost += usize::from(records.upstream.is_none());
                }
                Key::Routes(digest) => {
                    if let Some(restored) = restore(value) {
                        routes.insert(digest, Arc::new(restored));
                    }
                }
                Key::Run(slot) => runs.push((slot, value)),
                Key::Call(key) => {
                    calls.entry(key.slot).or_default().push(self.stored_call(key, value));
                }
                // MANTYX waits for it no longer.
                Key::Answer(_) if value.is_empty() => (),
                Key::Answer(key) => drop(answers.insert(key, value.clone())),
                Key::Session(key) => sessions.push((key, value)),
                Key::Owner(key) => {
                    let owner = record("owner", value).unwrap_or_else(|| unreadable::owner(value));
                    records.owners.push((key, owner));
                }
                Key::Long(id) => {
                    records.long.extend(record("long call", value).map(|call| (id, call)));
                }
                Key::Request(key) => {
                    let request =
                        record("request", value).unwrap_or_else(|| unreadable::request(value));
                    records.requests.push((key, request));
                }
                Key::Conversation(id) => {
                    let conversation = record("conversation", value);
                    records.conversations.extend(conversation.map(|record| (id, record)));
                }
                // No record has this key.
                Key::Calls(_) => (),
            }
        }
        for call in calls.values_mut().flatten() {
            call.answer = answers.remove(&call.key);
        }
        for (slot, value) in runs {
            let Some(mut record) = record::<RunRecord>("run", value) else {
                lost += 1;
                continue;
            };
            let routes = routes.get(record.table.routes.as_ref()).cloned();
            if routes.is_none() && record.goes_on() {
                // Routes of other catalogs may lead elsewhere: with a lost past, no call from
                // before is made.
                record.past_is_lost = true;
            }
            let calls = calls.remove(&slot).unwrap_or_default();
            records.runs.push(StoredRun { slot, record, routes, calls });
        }
        records.runs.sort_unstable_by_key(|run| run.slot);
        for (key, value) in sessions {
            let Some(record) = record::<SessionRecord>("session", value) else { continue };
            // Without routes, the session differs from every offer, so that its next message gets
            // new refs.
            let routes = routes.get(record.table.routes.as_ref()).cloned().unwrap_or_default();
            records.sessions.push(StoredSession { key, record, routes });
        }
        records.lost = self.lost();
        if lost > 0 {
            let earlier = records.lost.take().map(|loss| loss.what);
            records.lost = Some(LossRecord::now(losses::unreadable(lost, earlier.as_deref())));
        }
        records
    }
}

fn restore(text: &[u8]) -> Option<Routes> {
    let text = String::from_utf8_lossy(text);
    Routes::restore(&text).map_err(|error| warn!(%error, "cannot read routes in the journal")).ok()
}

fn record<'a, T: Deserialize<'a>>(what: &str, text: &'a [u8]) -> Option<T> {
    serde_json::from_slice(text)
        .map_err(|error| warn!(%error, "cannot read a {what} in the journal; leaving it out"))
        .ok()
}

#[cfg(test)]
mod tests;
