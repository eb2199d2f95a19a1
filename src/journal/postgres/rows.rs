//! The changes of one batch as the rows of one statement.
//!
//! Must not: know a database.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use crate::journal::live;
use crate::journal::live::json;
use crate::journal::record::{CallKey, Change, Key, Slot};
use crate::model::maps::{HashMap, HashSet};
use crate::model::{BackendName, RunId, RunKey, Workspace};

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

/// A run that begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) name: Id,
    /// The backends that it needs.
    pub(super) needs: String,
    /// The record of its owner, if the run had none. If another replica has written that record, the
    /// app has handed the run over there, too, and it may have ended since.
    pub(super) owner: Option<Id>,
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
    /// The runs that begin with this batch.
    pub(super) begun: BTreeMap<Slot, Begun>,
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
                let RunKey { workspace, kind, run: run_id } = &run.key;
                let owner = (workspace.clone(), kind.as_str().to_owned(), run_id.to_string());
                let owner = json(&Key::Owner(owner));
                // A run that is attached again has an owner already.
                let is_new = !run.has_past
                    || self.first.contains_key(&owner)
                    || self.records.contains_key(&owner);
                let owner = is_new.then(|| id(&owner));
                let begun = Begun { name: name(&run.key), needs: needs.join(","), owner };
                self.begun.entry(slot).or_insert(begun);
                self.owned.insert(slot, FIRST_EPOCH);
            }
            (_, Some(slot), None) if self.begun.contains_key(&slot) => {}
            (_, Some(_), None | Some(None)) => return,
            (_, None, _) => {}
        }
        match change {
            Change::Routes(routes) if known.contains(&*routes.digest) => return,
            Change::Routes(routes) => drop(self.routes.insert((&*routes.digest).into())),
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
            Change::Dispatch(key, call) => call.claim.as_ref().map(|claim| claim_id(claim, key)),
            Change::Call(key, call) => call.claim_of_refusal().map(|claim| claim_id(claim, key)),
            // The record of the refused call comes before its answer.
            Change::Refuse(key, _) => {
                let call = self.records.get(&json(&Key::Call(key.clone())));
                call.and_then(|row| row.claim)
            }
            _ => None,
        };
        let is_first = match change {
            Change::Answer(..) | Change::Refuse(..) | Change::Begin(..) => true,
            // Of two apps that attach a run at once, one has it.
            Change::Owner(_, owner) => owner.attached,
            _ => false,
        };
        let is_owners = matches!(change, Change::Refuse(..));
        for (key, value) in live::records(change) {
            let value = match key {
                Key::Calls(slot) => {
                    self.clear(slot);
                    continue;
                }
                // Something must stay, or the answer of a replica that was taken over would be the
                // first.
                Key::Answer(_) => Some(value.unwrap_or_default()),
                _ => value,
            };
            let value = value.map(Vec::from);
            self.set(json(&key), Row { run, value, attempts, claim, is_owners }, is_first);
        }
    }

    fn set(&mut self, key: RowKey, mut row: Row, is_first: bool) {
        // An answer in place of one that is removed is the owner's.
        let is_first = is_first && !self.records.contains_key(&key);
        if is_first && self.first.contains_key(&key) {
            return;
        }
        self.first.remove(&key);
        // What follows a dispatch in its batch stands and falls with it.
        let before = self.records.get(&key);
        let is_sent = before.and_then(|row| row.attempts).is_some_and(|(_, sends)| sends);
        row.claim = row.claim.or(before.and_then(|row| row.claim));
        row.attempts = row.attempts.map(|(count, sends)| (count, sends || is_sent));
        let to = if is_first { &mut self.first } else { &mut self.records };
        to.insert(key, row);
    }

    /// Removes the calls of a run, and their answers.
    fn clear(&mut self, slot: Slot) {
        let is_call = |key: &RowKey, row: &Row| {
            row.run == Some(slot) && matches!(kind(key), "call" | "answer")
        };
        self.records.retain(|key, row| !is_call(key, row));
        self.first.retain(|key, row| !is_call(key, row));
        self.cleared.insert(slot);
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

/// The runs that this replica has got from others, each with how often it had got some by then.
pub(super) type Regained = HashMap<Slot, u64>;

/// Whether `change`, given when this replica had got runs `times` times, is of a driver that its run had
/// before: it may have waited for the database while this replica lost the run and got it back. An
/// answer counts even so.
pub(super) fn is_of_earlier(change: &Change, times: u64, regained: &Regained) -> bool {
    let is_later = |run| regained.get(&run).is_some_and(|at| times < *at);
    !matches!(change, Change::Answer(..)) && run_of(change).is_some_and(is_later)
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

/// The claim of a call: its agent run, and what that calls it.
fn claim_id((workspace, agent_run): &(Workspace, RunId), call: &CallKey) -> Id {
    id(&json(&("claim", workspace, agent_run, &call.tool_use)))
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
