//! The changes of one batch as the rows of one statement.
//!
//! Must not: know a database.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use crate::journal::live;
use crate::journal::live::json;
use crate::journal::record::{CallKey, Change, Key, RunRecord, Slot};
use crate::model::maps::{HashMap, HashSet};
use crate::model::{AppName, BackendName, RunId, RunKey, Workspace};

/// The runs of this replica with the epochs in which it owns them. `None`: it has lost the run.
pub(super) type Epochs = HashMap<Slot, Option<i64>>;

/// The epoch of a run that has had one owner.
pub(super) const FIRST_EPOCH: i64 = 1;

/// A hash, under which the table has a key or a name.
pub(super) type Id = [u8; 32];

/// A key of the table, as JSON.
pub(super) type RowKey = Vec<u8>;

/// A record to keep.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) run: Option<Slot>,
    /// `None`: the record is removed.
    pub(super) value: Option<Vec<u8>>,
    /// Of a call: how often it was dispatched, and whether this row dispatches it once more. The
    /// statement writes such a row only if the table has a lower count: of two drivers, one sends.
    pub(super) attempts: Option<(i32, bool)>,
    /// What a driver must have to dispatch it, if those of other runs may read the call, too.
    pub(super) claim: Option<Id>,
    /// Of an answer: the run's owner alone may give it, as it says that the call was not sent.
    pub(super) from_owner_only: bool,
}

/// A run that begins.
#[derive(Debug)]
pub(super) struct NewRun {
    pub(super) name: Id,
    /// The backends that it needs.
    pub(super) needs: String,
    /// The record of its owner, if the run had none. If another replica has written that record,
    /// the app has handed the run over there, too, and it may have ended since.
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
    pub(super) new_runs: BTreeMap<Slot, NewRun>,
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
    /// Adds a change, unless this replica has lost its run: the statement would fail for it, or, of
    /// a run that this replica believes to be new, write a second one. The table has the routes in
    /// `written_routes`.
    pub(super) fn add(
        &mut self,
        change: &Change,
        epochs: &Epochs,
        written_routes: &HashSet<Box<str>>,
    ) {
        let run = run_of(change);
        let epoch = run.and_then(|slot| epochs.get(&slot));
        match (change, run, epoch) {
            // An answer counts even if another replica owns the run by now.
            (Change::Answer(..), ..) => {}
            (_, Some(slot), Some(Some(epoch))) => drop(self.owned.insert(slot, *epoch)),
            (Change::Run(_, run), Some(slot), None) => {
                let new_run = self.new_run(run);
                self.new_runs.entry(slot).or_insert(new_run);
                self.owned.insert(slot, FIRST_EPOCH);
            }
            (_, Some(slot), None) if self.new_runs.contains_key(&slot) => {}
            (_, Some(_), None | Some(None)) => return,
            (_, None, _) => {}
        }
        match change {
            Change::Routes(routes) if written_routes.contains(&*routes.digest) => return,
            Change::Routes(routes) => drop(self.routes.insert((&*routes.digest).into())),
            Change::Run(slot, run) if !run.goes_on() => drop(self.ended.insert(*slot)),
            Change::ForgetRun(slot) => drop(self.forgotten.insert(*slot)),
            Change::Release(slot) => drop(self.released.insert(*slot)),
            _ => {}
        }
        let attempts = match change {
            Change::Call(_, call) => Some((small_count(call.attempts), false)),
            Change::Dispatch(_, call) => Some((small_count(call.attempts), true)),
            _ => None,
        };
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
        let only_first_counts = match change {
            Change::Answer(..) | Change::Refuse(..) | Change::Begin(..) => true,
            // Of two apps that attach a run at once, one has it.
            Change::Owner(_, owner) => owner.attached,
            _ => false,
        };
        let from_owner_only = matches!(change, Change::Refuse(..));
        for (key, value) in live::records(change) {
            let bytes = match key {
                Key::Calls(slot) => {
                    self.clear(slot);
                    continue;
                }
                // Something must stay, or the answer of a replica that was taken over would be the
                // first.
                Key::Answer(_) => Some(value.unwrap_or_default()),
                _ => value,
            };
            let value = bytes.map(Vec::from);
            let row = Row { run, value, attempts, claim, from_owner_only };
            if only_first_counts {
                self.set_first(json(&key), row);
            } else {
                self.set(json(&key), row);
            }
        }
    }

    /// A run that begins with this batch. Its row names the record of its owner, unless the run is
    /// attached again and has an owner already: the statement would take that record for one of
    /// another replica, and not begin the run.
    fn new_run(&self, run: &RunRecord) -> NewRun {
        let needs: Vec<&str> = run.needs.iter().map(BackendName::as_str).collect();
        let RunKey { workspace, kind, run: run_id } = &run.key;
        let owner_key = (workspace.clone(), kind.as_str().to_owned(), run_id.to_string());
        let owner = json(&Key::Owner(owner_key));
        let owner_is_new =
            !run.has_past || self.first.contains_key(&owner) || self.records.contains_key(&owner);
        NewRun {
            name: name(&run.key),
            needs: needs.join(","),
            owner: if owner_is_new { Some(id(&owner)) } else { None },
        }
    }

    /// Sets a row of which the first one counts. An answer in place of one that this batch removes
    /// is the owner's, and replaces it.
    fn set_first(&mut self, key: RowKey, row: Row) {
        if self.records.contains_key(&key) {
            self.set(key, row);
        } else {
            self.first.entry(key).or_insert(row);
        }
    }

    /// Sets a row of which the last one counts. What follows a dispatch in its batch stands and
    /// falls with it: if another driver sends the call, the later stage of the call must not be
    /// written either.
    fn set(&mut self, key: RowKey, mut row: Row) {
        self.first.remove(&key);
        if let Some(before) = self.records.get(&key) {
            let was_sent = before.attempts.is_some_and(|(_, sends)| sends);
            row.claim = row.claim.or(before.claim);
            row.attempts = row.attempts.map(|(count, sends)| (count, sends || was_sent));
        }
        self.records.insert(key, row);
    }

    /// Removes the calls of a run, and their answers, also those that this batch has: the statement
    /// removes nothing that it writes, and they would stay.
    fn clear(&mut self, slot: Slot) {
        for rows in [&mut self.records, &mut self.first] {
            rows.retain(|key, row| {
                row.run != Some(slot) || !matches!(kind(key), "call" | "answer")
            });
        }
        self.cleared.insert(slot);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.first.is_empty() && self.owned.is_empty()
    }
}

/// The run whose owner alone may make this change. The change is dropped if another replica owns
/// it.
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

/// Whether `change`, given when this replica had got runs `times` times, is of a driver that its
/// run had before: it may have waited for the database while this replica lost the run and got it
/// back. An answer counts even so.
pub(super) fn is_of_earlier(change: &Change, times: u64, regained: &Regained) -> bool {
    if let Change::Answer(..) = change {
        return false;
    }
    match run_of(change).and_then(|run| regained.get(&run)) {
        Some(regained_at) => times < *regained_at,
        None => false,
    }
}

/// The count as the table has it.
fn small_count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
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

/// What the keys of the owners in a collection begin with.
pub(super) fn key_start(collection: &(Workspace, &'static str)) -> Vec<u8> {
    let (workspace, kind) = collection;
    let whole = json(&Key::Owner((workspace.clone(), (*kind).to_owned(), String::new())));
    // Without the end of the empty id, and what closes the key.
    let end = whole.len().saturating_sub(b"\"]}".len());
    whole[..end].to_vec()
}

/// What the record of each owner of `app` begins with.
pub(super) fn value_start(app: &AppName) -> Vec<u8> {
    let mut start = json(&serde_json::json!({ "app": app }));
    start.pop();
    start
}

/// What a key says that its record is: the first word in it.
pub(super) fn kind(key: &[u8]) -> &str {
    let word = key.split(|byte| *byte == b'"').nth(1).unwrap_or_default();
    str::from_utf8(word).unwrap_or_default()
}
