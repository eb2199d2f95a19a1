//! What requests ask about the place of the records: the journal's file, or the database that
//! replicas share.
//!
//! `http` asks these questions and never the journal. So the difference between one process and
//! replicas is decided below `http`, once.
//!
//! Must not: write a record.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{NotStarted, RunStore};
use crate::metrics;
use crate::model::recovery::may_have_been_driven;
use crate::runs::{DrivenRun, NewRun};

/// What is wrong with the place of the records, for operators, and how large the file is.
#[derive(Debug)]
pub struct StorageHealth {
    /// Why nothing can be written at the moment.
    pub error: Option<String>,
    /// What the operator has to mend if there is an `error`.
    pub obstacle: Obstacle,
    /// What another program did to the file, which was then written again from memory.
    pub rewritten: Option<String>,
    /// Which settings of the database put writes at risk.
    pub doubt: Option<&'static str>,
    /// What was lost; `None` if that was too long ago to matter.
    pub loss: Option<String>,
    /// A backend that another replica reaches in another way.
    pub disagreement: Option<String>,
    /// The size of the file.
    pub bytes: u64,
}

/// What stands in the way of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    Disk,
    /// The disk works, but the file has reached its largest size.
    FullFile,
    Database,
}

/// A process of the bridge that shares the database.
#[derive(Debug)]
pub struct GroupMember {
    pub id: String,
    pub host: String,
    /// Of the bridge.
    pub version: String,
    /// When it started, by the database's clock.
    pub since: SystemTime,
    pub is_self: bool,
}

/// Why [`RunStore::attach`] did not take a run over from its app.
#[derive(Debug)]
pub enum NotAttached {
    /// The run has a driver already, which continues.
    Driven(Arc<DrivenRun>),
    /// The run belongs to another app, or is an agent run of an eval.
    Taken,
    /// A restart would lose the run, or other replicas would not know of it.
    Unkept,
}

impl RunStore {
    /// Starts the driver of a run that its app hands over.
    ///
    /// With a file, a run whose driver has started counts as attached even if the disk has failed
    /// since: a restart loses the run, as if the app handed it over later. With a database, another
    /// replica would not know of the run, and would drive it a second time.
    ///
    /// # Errors
    ///
    /// The run has a driver already, belongs to another app, or cannot be kept.
    pub async fn attach(self: &Arc<Self>, new: NewRun) -> Result<Arc<DrivenRun>, NotAttached> {
        if self.disk_fails() {
            return Err(NotAttached::Unkept);
        }
        match self.start(new).await {
            Ok(run) => Ok(run),
            Err(NotStarted::NotKept(run)) if self.journal().replica().is_none() => Ok(run),
            Err(NotStarted::NotKept(_)) => Err(NotAttached::Unkept),
            Err(NotStarted::Driven(run)) => Err(NotAttached::Driven(run)),
            Err(NotStarted::Taken) => Err(NotAttached::Taken),
        }
    }

    /// Whether the disk of a journal file fails, so that a restart would lose what begins now.
    pub fn disk_fails(&self) -> bool {
        self.journal().disk_fails()
    }

    /// Whether replicas share a database, and it does not answer.
    pub fn database_is_away(&self) -> bool {
        self.journal().is_away()
    }

    /// Waits a few seconds for a database that is away. `false`: it has not come back.
    pub async fn wait_for_database(&self) -> bool {
        self.journal().wait_until_back().await
    }

    /// The reason for an app why a run or session cannot be kept now, or its owner not be looked
    /// up.
    pub fn reason_unkept(&self) -> &'static str {
        if self.journal().replica().is_some() {
            "The bridge does not reach its database, so whose run or session this is cannot be told or \
             kept. Try again; `mantyx-bridge status` has the reason."
        } else {
            "The bridge cannot write its journal, so a restart would lose this run or session, and leave \
             its calls without answers. Try again; `mantyx-bridge status` has the reason."
        }
    }

    pub fn storage_health(&self) -> StorageHealth {
        let journal = self.journal().health();
        let replica = self.journal().replica();
        let obstacle = match replica {
            Some(_) => Obstacle::Database,
            None if journal.is_full => Obstacle::FullFile,
            None => Obstacle::Disk,
        };
        StorageHealth {
            error: journal.error,
            obstacle,
            rewritten: journal.rewritten,
            doubt: replica.and_then(|replica| replica.doubt()),
            loss: self.journal().lost().map(|loss| loss.what),
            disagreement: replica.and_then(|replica| replica.disagreement()),
            bytes: journal.bytes,
        }
    }

    pub fn storage_metrics(&self) -> &metrics::Journal {
        self.journal().metrics()
    }

    /// All replicas of the group, also this one; empty where the journal is a file.
    pub fn group(&self) -> Vec<GroupMember> {
        let Some(replica) = self.journal().replica() else { return Vec::new() };
        let (beats, own_id) = replica.members();
        let members = beats.into_iter().map(|beat| GroupMember {
            id: beat.replica.to_string(),
            host: beat.host,
            version: beat.version,
            since: beat.since,
            is_self: own_id == Some(beat.replica),
        });
        members.collect()
    }

    /// Whether records of runs were lost, so that [`Self::may_have_driven`] is worth a question to
    /// MANTYX.
    pub fn has_lost_records(&self) -> bool {
        self.journal().lost().is_some()
    }

    /// Whether the bridge may have driven a run before its record was lost; `age` is the run's, if
    /// that is known. A call of such a run that has no answer may have been made: made again, it
    /// would have its effect twice.
    pub fn may_have_driven(&self, age: Option<Duration>) -> bool {
        let Some(loss) = self.journal().lost() else { return false };
        may_have_been_driven(age, self.journal().since(loss.moment()))
    }
}
