//! The state that a file's changes add up to: the live records and their keys.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tracing::warn;

use super::{
    frames::{Contents, Frame},
    record::{
        CallKey, CallRecord, Change, Kept, KeptCall, KeptRun, KeptSession, LongRecord, LossRecord,
        OwnedKey, RunRecord, SessionRecord, Slot,
    },
};
use crate::model::{moment::Moment, recovery::Stage, routes::Routes};

/// The key of a record; JSON in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Key<'a> {
    Upstream,
    Lost,
    Routes(#[serde(borrow)] Text<'a>),
    Run(u64),
    Call(u64, #[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    Answer(u64, #[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    /// All calls of a run, and the answers to them. No record has this key; only its removal is
    /// written.
    Calls(u64),
    Session(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    Owner(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    Long(#[serde(borrow)] Text<'a>),
    Request(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
}

type Text<'a> = Cow<'a, str>;

/// What the keys of a call and of an answer begin with.
const CALL: &[u8] = b"{\"call\":";
const ANSWER: &[u8] = b"{\"answer\":";
/// [`Key::Lost`] as it stands in the file.
const LOST: &[u8] = b"\"lost\"";

/// The live records, by their keys as they stand in the file: the same key is always written the
/// same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Live<'a>(BTreeMap<Cow<'a, [u8]>, Cow<'a, [u8]>>);

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

/// Adds `change` to `frame`. Routes that the file has already, by `has_routes`, are not written
/// again.
pub(super) fn add(frame: &mut Frame, change: &Change, has_routes: impl FnOnce(&str) -> bool) {
    match change {
        Change::Upstream(upstream) => frame.put(&Key::Upstream, upstream),
        Change::Routes(routes) if has_routes(&routes.digest) => (),
        Change::Routes(routes) => {
            frame.put_bytes(&Key::Routes((&*routes.digest).into()), routes.text.as_bytes());
        }
        Change::Run(Slot(slot), run) => frame.put(&Key::Run(*slot), run),
        Change::Call(key, call) => frame.put(&Key::call(key), call),
        Change::Answer(key, body) => frame.put_bytes(&Key::answer(key), body),
        Change::ForgetAnswer(key) => frame.remove(&Key::answer(key)),
        Change::ForgetCalls(Slot(slot)) => frame.remove(&Key::Calls(*slot)),
        Change::ForgetRun(Slot(slot)) => {
            frame.remove(&Key::Calls(*slot));
            frame.remove(&Key::Run(*slot));
        }
        Change::Session((workspace, session), record) => {
            frame.put(&Key::Session(workspace.into(), session.into()), record);
        }
        Change::ForgetSession((workspace, session)) => {
            frame.remove(&Key::Session(workspace.into(), session.into()));
        }
        Change::Owner(key, owner) => frame.put(&Key::owner(key), owner),
        Change::ForgetOwner(key) => frame.remove(&Key::owner(key)),
        Change::Long(id, call) => frame.put(&Key::Long(id.into()), call),
        Change::ForgetLong(id) => frame.remove(&Key::Long(id.into())),
        Change::Request((app, key), it) => frame.put(&Key::Request(app.into(), key.into()), it),
        Change::ForgetRequest((app, key)) => frame.remove(&Key::Request(app.into(), key.into())),
        Change::Lost(loss) => frame.put(&Key::Lost, loss),
    }
}

impl<'a> Key<'a> {
    fn call(key: &'a CallKey) -> Self {
        Self::Call(key.slot.0, (&key.agent_run).into(), (&key.tool_use).into())
    }

    fn owner((workspace, kind, id): &'a OwnedKey) -> Self {
        Self::Owner(workspace.into(), kind.into(), id.into())
    }

    fn answer(key: &'a CallKey) -> Self {
        Self::Answer(key.slot.0, (&key.agent_run).into(), (&key.tool_use).into())
    }

    /// The number of the run that the record belongs to.
    fn slot(&self) -> Option<u64> {
        match self {
            Self::Run(slot) | Self::Call(slot, ..) | Self::Answer(slot, ..) | Self::Calls(slot) => {
                Some(*slot)
            }
            _ => None,
        }
    }
}

impl<'a> Live<'a> {
    /// Applies all changes.
    pub(super) fn of(contents: &Contents<'a>) -> Self {
        let mut live = Self::default();
        for (key, value) in contents.entries() {
            match value {
                Some(value) => drop(live.0.insert(key.into(), value.into())),
                None => match key.strip_prefix(b"{\"calls\":") {
                    Some(slot) => live.forget_calls(slot.strip_suffix(b"}").unwrap_or(slot)),
                    None => drop(live.0.remove(key)),
                },
            }
        }
        live
    }

    fn forget_calls(&mut self, slot: &[u8]) {
        for kind in [CALL, ANSWER] {
            let prefix = [kind, b"[", slot, b","].concat();
            for key in self.keys_beginning_with(&prefix) {
                self.0.remove(key.as_ref());
            }
        }
    }

    /// The records whose keys begin with `prefix`.
    fn beginning_with(
        &self,
        prefix: &[u8],
    ) -> impl Iterator<Item = (&Cow<'a, [u8]>, &Cow<'a, [u8]>)> {
        let from = self.0.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }

    fn keys_beginning_with(&self, prefix: &[u8]) -> Vec<Cow<'a, [u8]>> {
        self.beginning_with(prefix).map(|(key, _)| key.clone()).collect()
    }

    /// Applies `change` to each record whose key begins with `prefix`.
    fn change<T: DeserializeOwned + Serialize>(
        &mut self,
        (what, prefix): (&str, &[u8]),
        mut change: impl FnMut(&mut T),
    ) {
        for key in self.keys_beginning_with(prefix) {
            let Some(value) = self.0.get_mut(key.as_ref()) else { continue };
            let Some(mut kept) = record::<T>(what, value) else { continue };
            change(&mut kept);
            let text = serde_json::to_vec(&kept).expect("what was JSON can be JSON again");
            *value = text.into();
        }
    }

    /// Changes the records of a damaged file so that they can be relied on. A call counts as
    /// dispatched, as the record of its dispatch may be lost. A run has a lost past, as it may have
    /// had more calls.
    pub(super) fn salvage(&mut self) -> Salvaged {
        let mut salvaged = Salvaged::default();
        let known: HashSet<Box<str>> = self.routes().map(|digest| digest.as_ref().into()).collect();
        self.change(("run", b"{\"run\":"), |run: &mut RunRecord| {
            if run.goes_on() {
                salvaged.runs += 1;
                salvaged.routeless += usize::from(!known.contains(run.table.routes.as_ref()));
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
        let runs: HashSet<u64> = self.slots_of(b"{\"run\":").map(|(slot, _)| slot).collect();
        let mut count = 0;
        for kind in [CALL, ANSWER] {
            let calls = self.slots_of(kind).filter(|(slot, _)| !runs.contains(slot));
            let orphans: Vec<Cow<'a, [u8]>> = calls.map(|(_, key)| key.clone()).collect();
            count += if kind == CALL { orphans.len() } else { 0 };
            for key in orphans {
                self.0.remove(key.as_ref());
            }
        }
        count
    }

    /// The numbers of runs in the keys that begin with `prefix`.
    fn slots_of(&self, prefix: &'static [u8]) -> impl Iterator<Item = (u64, &Cow<'a, [u8]>)> {
        let keys = self.beginning_with(prefix).map(|(key, _)| key);
        keys.filter_map(|key| Some((record::<Key<'_>>("key", key)?.slot()?, key)))
    }

    /// The answer to a call.
    pub(super) fn answer(&self, key: &CallKey) -> Option<Bytes> {
        let key = serde_json::to_vec(&Key::answer(key)).expect("text and numbers can be written");
        self.0.get(key.as_slice()).map(|body| Bytes::copy_from_slice(body))
    }

    pub(super) fn lose(&mut self, loss: &LossRecord) {
        let text = serde_json::to_vec(loss).expect("text and numbers can be written");
        self.0.insert(LOST.into(), text.into());
    }

    /// What was lost last.
    pub(super) fn lost(&self) -> Option<LossRecord> {
        record("loss", self.0.get(LOST)?)
    }

    /// Forgets a loss that was too long ago to matter.
    pub(super) fn forget_old_loss(&mut self, now: Moment, noted: u64) {
        if self.lost().is_some_and(|loss| !loss.matters(now, noted)) {
            self.0.remove(LOST);
        }
    }

    /// The records with their keys. A key that cannot be read is left out and logged.
    fn entries(&self) -> impl Iterator<Item = (Key<'_>, &[u8])> {
        self.0.iter().filter_map(|(key, value)| Some((record("key", key)?, value.as_ref())))
    }

    /// Leaves out the routes that no run and no session refers to.
    pub(super) fn without_unused_routes(mut self) -> Self {
        /// The part of a run or a session that refers to its routes.
        #[derive(Deserialize)]
        struct Refers {
            table: Table,
        }
        #[derive(Deserialize)]
        struct Table {
            routes: Box<str>,
        }
        let routes =
            |value: &[u8]| Some(serde_json::from_slice::<Refers>(value).ok()?.table.routes);
        let sessions = self.beginning_with(b"{\"session\":");
        let referring = self.beginning_with(b"{\"run\":").chain(sessions);
        let used: HashSet<Box<str>> = referring.filter_map(|(_, value)| routes(value)).collect();
        for key in self.keys_beginning_with(b"{\"routes\":") {
            let is_unused = match record("key", &key) {
                Some(Key::Routes(digest)) => !used.contains(&*digest),
                _ => false,
            };
            if is_unused {
                self.0.remove(key.as_ref());
            }
        }
        self
    }

    /// The digests of the routes.
    pub(super) fn routes(&self) -> impl Iterator<Item = Text<'_>> {
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
        for (key, value) in &self.0 {
            let is_with_its_call = key.strip_prefix(ANSWER).is_some_and(|of| {
                let call = [CALL, of].concat();
                self.0.contains_key(call.as_slice())
            });
            if is_with_its_call {
                continue;
            }
            frame.put_read(key, value);
            if let Some(of) = key.strip_prefix(CALL) {
                let answer = [ANSWER, of].concat();
                let body = self.0.get(answer.as_slice());
                body.into_iter().for_each(|body| frame.put_read(&answer, body));
            }
            write(frame.bytes(next, at))?;
            frame.clear();
            next += 1;
        }
        Ok(next)
    }

    /// All records, as the types of `record`. One that cannot be read is left out and logged.
    pub(super) fn kept(&self) -> Kept {
        let mut kept = Kept::default();
        let mut routes: HashMap<Text<'_>, Arc<Routes>> = HashMap::new();
        let mut answers: HashMap<CallKey, Bytes> = HashMap::new();
        let mut calls: HashMap<u64, Vec<KeptCall>> = HashMap::new();
        let mut runs = Vec::new();
        let mut sessions = Vec::new();
        kept.lost = self.lost();
        for (key, value) in self.entries() {
            kept.last_slot = kept.last_slot.max(key.slot().unwrap_or(0));
            match key {
                // It has been read above.
                Key::Lost => (),
                Key::Upstream => kept.upstream = record("MANTYX's address", value),
                Key::Routes(digest) => {
                    if let Some(read) = restore(value) {
                        routes.insert(digest, Arc::new(read));
                    }
                }
                Key::Run(slot) => runs.push((slot, value)),
                Key::Call(slot, agent_run, tool_use) => {
                    let Some(record) = record("call", value) else { continue };
                    let key = call_key(slot, agent_run, tool_use);
                    calls.entry(slot).or_default().push(KeptCall { key, record, answer: None });
                }
                Key::Answer(slot, agent_run, tool_use) => {
                    let body = Bytes::copy_from_slice(value);
                    answers.insert(call_key(slot, agent_run, tool_use), body);
                }
                Key::Session(workspace, session) => {
                    sessions.push(((workspace.into_owned(), session.into_owned()), value));
                }
                Key::Owner(workspace, kind, id) => {
                    let key = (workspace.into_owned(), kind.into_owned(), id.into_owned());
                    kept.owners.extend(record("owner", value).map(|owner| (key, owner)));
                }
                Key::Long(id) => {
                    let long = record("long call", value);
                    kept.long.extend(long.map(|long| (id.into_owned(), long)));
                }
                Key::Request(app, key) => {
                    let restore = |request| ((app.into_owned(), key.into_owned()), request);
                    kept.requests.extend(record("request", value).map(restore));
                }
                // No record has this key.
                Key::Calls(_) => (),
            }
        }
        for call in calls.values_mut().flatten() {
            call.answer = answers.remove(&call.key);
        }
        for (slot, value) in runs {
            let Some(mut record) = record::<RunRecord>("run", value) else { continue };
            let routes = routes.get(record.table.routes.as_ref()).cloned();
            if routes.is_none() && record.goes_on() {
                // Routes of other catalogs may lead elsewhere: with a lost past, no call from
                // before is made.
                record.past_is_lost = true;
            }
            let calls = calls.remove(&slot).unwrap_or_default();
            kept.runs.push(KeptRun { slot: Slot(slot), record, routes, calls });
        }
        kept.runs.sort_unstable_by_key(|run| run.slot);
        for (key, value) in sessions {
            let Some(record) = record::<SessionRecord>("session", value) else { continue };
            // Without routes, the session differs from every offer, so that its next message gets
            // new refs.
            let routes = routes.get(record.table.routes.as_ref()).cloned().unwrap_or_default();
            kept.sessions.push(KeptSession { key, record, routes });
        }
        kept
    }
}

fn call_key(slot: u64, agent_run: Text<'_>, tool_use: Text<'_>) -> CallKey {
    CallKey { slot: Slot(slot), agent_run: agent_run.into_owned(), tool_use: tool_use.into_owned() }
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
