//! What a file's changes come to: what is kept at their end, and under which keys.
//!
//! Pure.
//!
//! Must not: decide what a record means.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{
    frames::{Contents, Frame},
    record::{
        CallKey, Change, Kept, KeptCall, KeptRun, KeptSession, OwnedKey, RunRecord, SessionRecord,
        Slot,
    },
};
use crate::model::routes::Routes;

/// What something is kept under; in the file as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Key<'a> {
    Upstream,
    Routes(#[serde(borrow)] Text<'a>),
    Run(u64),
    Call(u64, #[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    Answer(u64, #[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    /// All calls of a run, and the answers to them: nothing is kept under it, but it is removed.
    Calls(u64),
    Session(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    Owner(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    Long(#[serde(borrow)] Text<'a>),
}

type Text<'a> = Cow<'a, str>;

/// A key as it stands in the file, and what is kept under it.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// What is kept, by the keys as they stand in the file: the same key is always written the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Live<'a>(BTreeMap<&'a [u8], &'a [u8]>);

/// Adds `change` to `frame`, where `has_routes` says which routes need not be written again.
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
}

impl<'a> Live<'a> {
    /// Goes through all changes.
    pub(super) fn of(contents: &Contents<'a>) -> Self {
        let mut live = Self::default();
        for (key, value) in contents.entries() {
            match value {
                Some(value) => drop(live.0.insert(key, value)),
                None => match key.strip_prefix(b"{\"calls\":") {
                    Some(slot) => live.forget_calls(slot.strip_suffix(b"}").unwrap_or(slot)),
                    None => drop(live.0.remove(key)),
                },
            }
        }
        live
    }

    fn forget_calls(&mut self, slot: &[u8]) {
        for kind in ["call", "answer"] {
            let prefix = [b"{\"", kind.as_bytes(), b"\":[", slot, b","].concat();
            for (key, _) in self.beginning_with(&prefix) {
                self.0.remove(key);
            }
        }
    }

    fn beginning_with(&self, prefix: &[u8]) -> Vec<Pair<'a>> {
        let from = self.0.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        let all = from.take_while(|(key, _)| key.starts_with(prefix));
        all.map(|(key, value)| (*key, *value)).collect()
    }

    /// The keys, and what is kept under them. A key that cannot be read is left out and told.
    fn entries(&self) -> impl Iterator<Item = (Key<'a>, &'a [u8])> {
        self.0.iter().filter_map(|(key, value)| Some((record("key", key)?, *value)))
    }

    /// All keys of one kind.
    fn of_kind(&self, kind: &str) -> Vec<Pair<'a>> {
        self.beginning_with(format!("{{\"{kind}\":").as_bytes())
    }

    /// Leaves out the routes that no run and no session refers to.
    pub(super) fn without_unused_routes(mut self) -> Self {
        /// The part of a run and of a session that refers to them.
        #[derive(Deserialize)]
        struct Refers {
            table: Table,
        }
        #[derive(Deserialize)]
        struct Table {
            routes: Box<str>,
        }
        let routes =
            |(_, value): Pair<'_>| Some(serde_json::from_slice::<Refers>(value).ok()?.table.routes);
        let referring = self.of_kind("run").into_iter().chain(self.of_kind("session"));
        let used: HashSet<Box<str>> = referring.filter_map(routes).collect();
        let unused = self.routes().filter(|(digest, _)| !used.contains(&**digest));
        for (_, key) in unused.collect::<Vec<_>>() {
            self.0.remove(key);
        }
        self
    }

    /// The digests of the routes, and their keys.
    pub(super) fn routes(&self) -> impl Iterator<Item = (Text<'a>, &'a [u8])> {
        self.of_kind("routes").into_iter().filter_map(|(key, _)| match record("key", key)? {
            Key::Routes(digest) => Some((digest, key)),
            _ => None,
        })
    }

    /// Hands all of it to `write`, in frames that are not much larger than `size`.
    pub(super) fn frames<E>(
        &self,
        size: usize,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut frame = Frame::new();
        for (key, value) in &self.0 {
            frame.put_read(key, value);
            if frame.len() >= size {
                write(frame.bytes())?;
                frame.clear();
            }
        }
        if frame.is_empty() { Ok(()) } else { write(frame.bytes()) }
    }

    /// The same as records. One that cannot be read is left out and told.
    pub(super) fn kept(&self) -> Kept {
        let mut kept = Kept::default();
        let mut routes: HashMap<Text<'_>, Arc<Routes>> = HashMap::new();
        let mut answers: HashMap<CallKey, Bytes> = HashMap::new();
        let mut calls: HashMap<u64, Vec<KeptCall>> = HashMap::new();
        let (mut runs, mut sessions) = (Vec::new(), Vec::new());
        for (key, value) in self.entries() {
            match key {
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
                // Nothing is kept under it.
                Key::Calls(_) => (),
            }
        }
        for call in calls.values_mut().flatten() {
            call.answer = answers.remove(&call.key);
        }
        for (slot, value) in runs {
            let Some(record) = record::<RunRecord>("run", value) else { continue };
            let Some(routes) = routes.get(record.table.routes.as_ref()) else {
                warn!(run = record.run, "the journal has a run without its routes; left out");
                continue;
            };
            let calls = calls.remove(&slot).unwrap_or_default();
            let (slot, routes) = (Slot(slot), Arc::clone(routes));
            kept.runs.push(KeptRun { slot, record, routes, calls });
        }
        kept.runs.sort_unstable_by_key(|run| run.slot);
        for (key, value) in sessions {
            let Some(record) = record::<SessionRecord>("session", value) else { continue };
            let Some(routes) = routes.get(record.table.routes.as_ref()) else {
                let session = key.1;
                warn!(session, "the journal has a session without its routes; left out");
                continue;
            };
            kept.sessions.push(KeptSession { key, record, routes: Arc::clone(routes) });
        }
        kept
    }
}

fn call_key(slot: u64, agent_run: Text<'_>, tool_use: Text<'_>) -> CallKey {
    let (agent_run, tool_use) = (agent_run.into_owned(), tool_use.into_owned());
    CallKey { slot: Slot(slot), agent_run, tool_use }
}

fn restore(text: &[u8]) -> Option<Routes> {
    let text = String::from_utf8_lossy(text);
    Routes::restore(&text)
        .map_err(|error| warn!(%error, "the journal has routes that cannot be read"))
        .ok()
}

fn record<'a, T: Deserialize<'a>>(what: &str, text: &'a [u8]) -> Option<T> {
    serde_json::from_slice(text)
        .map_err(|error| warn!(%error, "the journal has a {what} that cannot be read; left out"))
        .ok()
}
