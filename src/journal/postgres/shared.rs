//! What replicas share beside the records of the journal: the calls that wait for a person, the files of
//! backends, and conversations with agents.
//!
//! Must not: know what a person may decide, or what is in a file.

use std::time::SystemTime;

use tokio_postgres::Row;
use uuid::Uuid;

use super::{DatabaseError, Replica};
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

/// A file that replicas share.
#[derive(Debug)]
pub struct SharedFile {
    pub name: String,
    pub version: i64,
    pub text: String,
}

impl Replica {
    /// The files, except for those that the caller knows, with their versions.
    pub async fn files(
        &self,
        known: &HashMap<String, i64>,
    ) -> Result<Vec<SharedFile>, DatabaseError> {
        let (names, versions): (Vec<&str>, Vec<i64>) =
            known.iter().map(|(name, version)| (name.as_str(), *version)).unzip();
        let text = "select name, version, value from file where grp = $1 and not exists (select \
                    from unnest($2::text[], $3::bigint[]) as known(name, version) \
                    where known.name = file.name and known.version = file.version)";
        let rows = self.with_reader(async |reader| {
            reader.query(text, &[&reader.group, &names, &versions]).await
        });
        let file = |row: &Row| {
            Ok(SharedFile {
                name: row.try_get(0)?,
                version: row.try_get(1)?,
                text: row.try_get(2)?,
            })
        };
        rows.await?.iter().map(file).collect()
    }

    /// Writes a file in place of its version `known`; its new version. `None`: another replica has
    /// written it meanwhile.
    pub async fn write_file(
        &self,
        name: &str,
        known: Option<i64>,
        text: &str,
    ) -> Result<Option<i64>, DatabaseError> {
        let statement = "insert into file (grp, name, value) values ($1, $2, $3) \
                         on conflict (grp, name) do update \
                         set value = excluded.value, version = file.version + 1 \
                         where file.version = $4 returning version";
        let rows = self.with_reader(async |reader| {
            reader.query(statement, &[&reader.group, &name, &text, &known]).await
        });
        Ok(rows.await?.first().map(|row| row.try_get(0)).transpose()?)
    }

    /// Shows the group what waits at this replica for a person, until `deadline`. Returns the id of this
    /// replica as its holder; `None` if it is no member of the group now.
    pub async fn ask(
        &self,
        id: &str,
        asked: &[u8],
        deadline: SystemTime,
    ) -> Result<Option<Uuid>, DatabaseError> {
        let Some(member) = *self.member.borrow() else { return Ok(None) };
        let asking = self.with_reader(async |reader| {
            let text = include_str!("sql/ask.sql");
            let (holder, generation) = (&member.id, &member.generation);
            reader.query(text, &[&reader.group, &id, holder, generation, &asked, &deadline]).await
        });
        asking.await.map(|_| Some(member.id))
    }

    /// Records how `id` has ended; `holder` if no person has decided. Returns how it had ended before.
    /// `None`: it is not known any more.
    pub async fn end(
        &self,
        id: &str,
        holder: Option<Uuid>,
        ended: &[u8],
    ) -> Result<Option<Option<Vec<u8>>>, DatabaseError> {
        let rows = self.with_reader(async |reader| {
            let text = include_str!("sql/decide.sql");
            reader.query(text, &[&reader.group, &id, &holder, &ended]).await
        });
        Ok(rows.await?.first().map(|row| row.try_get(0)).transpose()?)
    }

    /// Where the next message of a conversation with an agent goes: its context and its task. The task is
    /// given to one message only.
    pub async fn enter_conversation(
        &self,
        id: &str,
    ) -> Result<(Option<String>, Option<String>), DatabaseError> {
        let rows = self.with_reader(async |reader| {
            let text = include_str!("sql/enter_conversation.sql");
            reader.query(text, &[&reader.group, &id]).await
        });
        let found = rows.await?;
        let Some(row) = found.first() else { return Ok((None, None)) };
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Keeps where a message has led. A task that waits stays, unless there is another one.
    pub async fn leave_conversation(
        &self,
        id: &str,
        context: Option<String>,
        task: Option<String>,
    ) -> Result<(), DatabaseError> {
        let left = self.with_reader(async |reader| {
            let text = include_str!("sql/leave_conversation.sql");
            reader.query(text, &[&reader.group, &id, &context, &task]).await
        });
        left.await.map(drop)
    }

    /// All that waits for a person at any replica. The caller knows what is asked under the ids `known`.
    pub async fn approvals(&self, known: &[&str]) -> Result<Vec<SharedApproval>, DatabaseError> {
        let rows = self.with_reader(async |reader| {
            reader.query(include_str!("sql/approvals.sql"), &[&reader.group, &known]).await
        });
        let approval = |row: &Row| {
            Ok(SharedApproval {
                id: row.try_get(0)?,
                ended: row.try_get(1)?,
                by_person: row.try_get(2)?,
                asked: row.try_get(3)?,
            })
        };
        rows.await?.iter().map(approval).collect()
    }
}
