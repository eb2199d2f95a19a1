//! What replicas share beside the records of the journal: the calls that wait for a person, what
//! was cancelled, the files of backends, and conversations with agents.
//!
//! Must not: know what a person may decide, or what is in a file.

use std::time::SystemTime;

use uuid::Uuid;

use super::{Queried, Replica};
use crate::model::maps::HashMap;

/// A call that waits for a person, or has waited until a minute ago.
#[derive(Debug)]
pub struct SharedApproval {
    pub id: String,
    /// What is asked; `None` if the caller knows it.
    pub asked: Option<Vec<u8>>,
    /// When and how it ended.
    pub ended: Option<Vec<u8>>,
    /// A person has decided.
    pub by_person: bool,
}

/// Where the next message to an agent goes: its context and its task.
pub type Conversation = (Option<String>, Option<String>);

/// A file that replicas share.
#[derive(Debug)]
pub struct SharedFile {
    pub name: String,
    pub version: i64,
    pub text: String,
}

/// A notice that this replica looks after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedNotice {
    /// Its id for the receiver.
    pub message: String,
    /// The receiver has it.
    pub is_told: bool,
}

impl Replica {
    /// The files, except for those that the caller knows, with their versions.
    pub async fn files(&self, known: &HashMap<String, i64>) -> Queried<Vec<SharedFile>> {
        self.with_reader(async |reader| reader.files(known).await).await
    }

    /// Writes a file in place of its version `known`; its new version. `None`: another replica has
    /// written it meanwhile.
    pub async fn write_file(
        &self,
        name: &str,
        known: Option<i64>,
        text: &str,
    ) -> Queried<Option<i64>> {
        self.with_reader(async |reader| reader.write_file(name, known, text).await).await
    }

    /// Shows the group what waits at this replica for a person, until `deadline`. Returns the id of
    /// this replica as its holder; `None` if it is no member of the group now.
    pub async fn ask(&self, id: &str, asked: &[u8], deadline: SystemTime) -> Queried<Option<Uuid>> {
        let Some(member) = *self.member.borrow() else { return Ok(None) };
        self.with_reader(async |reader| reader.ask(member, id, asked, deadline).await).await?;
        Ok(Some(member.id))
    }

    /// Records how the approval `id` has ended; `holder` if no person has decided. Returns how it
    /// had ended before, as the first decision counts. `None`: the group has forgotten it.
    pub async fn end(
        &self,
        id: &str,
        holder: Option<Uuid>,
        ended: &[u8],
    ) -> Queried<Option<Option<Vec<u8>>>> {
        self.with_reader(async |reader| reader.end(id, holder, ended).await).await
    }

    /// Where the next message of a conversation with an agent goes: its context and its task. The
    /// task is given to one message only.
    pub async fn enter_conversation(&self, id: &str) -> Queried<Conversation> {
        self.with_reader(async |reader| reader.enter_conversation(id).await).await
    }

    /// Keeps where a message has led. A task that waits stays, unless there is another one.
    pub async fn leave_conversation(&self, id: &str, led: Conversation) -> Queried {
        self.with_reader(async |reader| reader.leave_conversation(id, led).await).await
    }

    /// Shows the group for half a minute what was cancelled here; `id` names it.
    pub async fn cancel(&self, id: &str, cancelled: &[u8]) -> Queried {
        self.with_reader(async |reader| reader.cancel(id, cancelled).await).await
    }

    /// What was cancelled at any replica within the last half minute.
    pub async fn cancellations(&self) -> Queried<Vec<Vec<u8>>> {
        self.with_reader(async |reader| reader.cancellations().await).await
    }

    /// Claims notices, by their rows and the ids for their receivers, for a minute. Those that
    /// another replica looks after are not in the answer.
    pub async fn claim_notices(
        &self,
        notices: &[(String, String)],
    ) -> Queried<HashMap<String, SharedNotice>> {
        let Some(member) = *self.member.borrow() else { return Ok(HashMap::default()) };
        self.with_reader(async |reader| reader.claim_notices(member.id, notices).await).await
    }

    /// Notes that no replica has to deliver the notices `settled`; forgets those of this replica
    /// that are `released`, so that they may be told again.
    pub async fn settle_notices(&self, settled: &[String], released: &[String]) -> Queried {
        let Some(member) = *self.member.borrow() else { return Ok(()) };
        self.with_reader(async |reader| reader.settle_notices(member.id, settled, released).await)
            .await
    }

    /// All that waits for a person at any replica. The caller knows what is asked under the ids
    /// `known`.
    pub async fn approvals(&self, known: &[&str]) -> Queried<Vec<SharedApproval>> {
        self.with_reader(async |reader| reader.approvals(known).await).await
    }
}
