//! The changes of one batch as the rows of one statement.
//!
//! Must not: know a database.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::journal::live;
use crate::journal::live::Sink;
use crate::journal::record::{Change, Key, Slot};
use crate::model::maps::{HashMap, HashSet};
use crate::model::{BackendName, RunKey};

/// The runs of this replica with the epochs in which it owns them. `None`: it has lost the run.
pub(super) type Epochs = HashMap<Slot, Option<i64>>;

/// The epoch of a run that has had one owner.
pub(super) const FIRST_EPOCH: i64 = 1;

/// A hash.
pub(super) type Id = [u8; 32];

/// A key of the table, as JSON.
pub(super) type RowKey = Vec<u8>;

/// A record to keep.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) run: Option<Slot>,
    /// `None`: the record is removed.
    pub(super) value: Option<Vec<u8>>,
    /// Of a call: how often it was dispatched, and whether this row dispatches it once more.
    pub(super) attempts: Option<(i32, bool)>,
    /// What a driver must have to dispatch it, if those of other runs may read the call, too.
    pub(super) claim: Option<Id>,
    /// Of an answer: the run's owner alone may give it.
    pub(super) is_owners: bool,
}

/// What one statement writes.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The last value of each key: a statement can change a row only once.
    pub(super) records: BTreeMap<RowKey, Row>,
    /// Answers and requests, of which the first one that is durable wins.
    pub(super) first: BTreeMap<RowKey, Row>,
    /// The runs that it must own, with their epochs.
    pub(super) owned: BTreeMap<Slot, i64>,
    /// The runs that begin with this batch, with their names and the backends that they need.
    pub(super) begun: BTreeMap<Slot, (Id, String)>,
    /// The runs that have ended.
    pub(super) ended: BTreeSet<Slot>,
    /// The runs whose calls and answers are removed.
    pub(super) cleared: BTreeSet<Slot>,
    /// The runs that are removed.
    pub(super) forgotten: BTreeSet<Slot>,
    /// The runs that other replicas may take.
    pub(super) released: BTreeSet<Slot>,
    /// The digests of the routes that it writes.
    pub(super) routes: HashSet<Box<str>>,
}

impl Rows {
    /// Adds a change, unless this replica has lost its run. Routes in `known` are in the table.
    pub(super) fn add(&mut self, change: &Change, epochs: &Epochs, known: &HashSet<Box<str>>) {
        let run = run_of(change);
        let known_run = run.and_then(|slot| epochs.get(&slot));
        match (change, run, known_run) {
            // An answer counts even if another replica owns the run by now.
            (Change::Answer(..), ..) => {}
            (_, Some(slot), Some(Some(epoch))) => drop(self.owned.insert(slot, *epoch)),
            (Change::Run(_, run), Some(slot), None) => {
                let needs: Vec<&str> = run.needs.iter().map(BackendName::as_str).collect();
                self.begun.insert(slot, (name(&run.key), needs.join(",")));
                self.owned.insert(slot, FIRST_EPOCH);
            }
            (_, Some(slot), None) if self.begun.contains_key(&slot) => {}
            (_, Some(_), None | Some(None)) => return,
            (_, None, _) => {}
        }
        match change {
            Change::Routes(routes) if !known.contains(&*routes.digest) => {
                self.routes.insert((&*routes.digest).into());
            }
            Change::Run(slot, run) if !run.goes_on() => drop(self.ended.insert(*slot)),
            Change::ForgetRun(slot) => drop(self.forgotten.insert(*slot)),
            Change::Release(slot) => drop(self.released.insert(*slot)),
            _ => {}
        }
        let attempts = match change {
            Change::Call(_, call) => Some((call.attempts, false)),
            Change::Dispatch(_, call) => Some((call.attempts, true)),
            _ => None,
        };
        let attempts =
            attempts.map(|(count, sends)| (i32::try_from(count).unwrap_or(i32::MAX), sends));
        let claim = match change {
            Change::Dispatch(key, call) => call.claim.as_ref().map(|(workspace, agent_run)| {
                id(&json(&("claim", workspace, agent_run, &key.tool_use)))
            }),
            _ => None,
        };
        let mut to = To {
            rows: self,
            run,
            claim,
            is_owners: matches!(change, Change::Refuse(..)),
            is_first: match change {
                Change::Answer(..) | Change::Refuse(..) | Change::Begin(..) => true,
                // Of two apps that attach a run at once, one has it.
                Change::Owner(_, owner) => owner.attached,
                _ => false,
            },
            attempts,
        };
        live::add(&mut to, change, |digest| known.contains(digest));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.first.is_empty() && self.owned.is_empty()
    }
}

/// The run whose owner alone may make this change.
pub(super) fn run_of(change: &Change) -> Option<Slot> {
    match change {
        Change::Run(slot, _) | Change::ForgetRun(slot) | Change::Release(slot) => Some(*slot),
        Change::Long(_, long) => long.slot,
        Change::Call(key, _) | Change::Dispatch(key, _) => Some(key.slot),
        Change::Answer(key, _) | Change::Refuse(key, _) | Change::Replace(key, _) => Some(key.slot),
        Change::Forget(key) => key.slot(),
        _ => None,
    }
}

/// The hash under which the table has a key. Ids of MANTYX that stand in paths count without letter
/// case.
pub(super) fn id(key: &[u8]) -> Id {
    match kind(key) {
        "owner" | "session" => Sha256::digest(key.to_ascii_lowercase()).into(),
        _ => Sha256::digest(key).into(),
    }
}

pub(super) fn id_of(key: &Key) -> Id {
    id(&json(key))
}

/// The name of a run in the table.
pub(super) fn name(run: &RunKey) -> Id {
    Sha256::digest(json(run).to_ascii_lowercase()).into()
}

/// The key of the call that an answer is to.
pub(super) fn call_of(answer: &[u8]) -> RowKey {
    let rest = answer.strip_prefix(live::ANSWER).unwrap_or(answer);
    [live::CALL, rest].concat()
}

/// What a key says that its record is: the first word in it.
pub(super) fn kind(key: &[u8]) -> &str {
    let word = key.split(|byte| *byte == b'"').nth(1).unwrap_or_default();
    str::from_utf8(word).unwrap_or_default()
}

struct To<'a> {
    rows: &'a mut Rows,
    run: Option<Slot>,
    is_first: bool,
    attempts: Option<(i32, bool)>,
    claim: Option<Id>,
    is_owners: bool,
}

impl To<'_> {
    fn set(&mut self, key: &Key, value: Option<Vec<u8>>) {
        let Self { rows, run, is_first, attempts, claim, is_owners } = self;
        let text = json(key);
        // An answer in place of one that is removed is the owner's.
        let is_first = *is_first && !rows.records.contains_key(&text);
        if is_first && rows.first.contains_key(&text) {
            return;
        }
        rows.first.remove(&text);
        // What follows a dispatch in its batch stands and falls with it.
        let before = rows.records.get(&text);
        let is_sent = before.and_then(|row| row.attempts).is_some_and(|(_, sends)| sends);
        let claim = claim.or(before.and_then(|row| row.claim));
        let attempts = attempts.map(|(count, sends)| (count, sends || is_sent));
        let to = if is_first { &mut rows.first } else { &mut rows.records };
        to.insert(text, Row { run: *run, value, attempts, claim, is_owners: *is_owners });
    }
}

impl Sink for To<'_> {
    fn put(&mut self, key: &Key, value: &impl Serialize) {
        self.set(key, Some(json(value)));
    }

    fn put_bytes(&mut self, key: &Key, value: &[u8]) {
        self.set(key, Some(value.to_vec()));
    }

    fn remove(&mut self, key: &Key) {
        let slot = match key {
            Key::Calls(slot) => slot,
            // Something must stay, or the answer of a replica that was taken over would be the first.
            Key::Answer(_) => return self.set(key, Some(Vec::new())),
            _ => return self.set(key, None),
        };
        let is_call = |key: &RowKey, row: &Row| {
            row.run == Some(*slot) && matches!(kind(key), "call" | "answer")
        };
        self.rows.records.retain(|key, row| !is_call(key, row));
        self.rows.first.retain(|key, row| !is_call(key, row));
        self.rows.cleared.insert(*slot);
    }
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and JSON can be written")
}
