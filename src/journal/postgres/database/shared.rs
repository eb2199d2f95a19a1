//! The statements for what replicas share beside records.
//!
//! Must not: try anything twice.

use std::time::SystemTime;

use tokio_postgres::Row as ResultRow;
use uuid::Uuid;

use super::{Database, Member, Queried, Values};
use crate::journal::postgres::shared::Conversation;
use crate::journal::postgres::{SharedApproval, SharedFile, SharedNotice};
use crate::model::maps::HashMap;

impl Database {
    pub async fn files(&self, known: &HashMap<String, i64>) -> Queried<Vec<SharedFile>> {
        let (names, versions): (Vec<&str>, Vec<i64>) =
            known.iter().map(|(name, version)| (name.as_str(), *version)).unzip();
        let text = include_str!("../sql/files.sql");
        let rows = self.query(text, &[&self.group, &names, &versions]).await?;
        rows.iter().map(SharedFile::read).collect()
    }

    pub async fn write_file(
        &self,
        name: &str,
        known: Option<i64>,
        text: &str,
    ) -> Queried<Option<i64>> {
        let statement = include_str!("../sql/write_file.sql");
        let rows = self.query(statement, &[&self.group, &name, &text, &known]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    pub async fn ask(
        &self,
        Member { id: holder, generation }: Member,
        id: &str,
        asked: &[u8],
        deadline: SystemTime,
    ) -> Queried {
        let values: Values<'_> = &[&self.group, &id, &holder, &generation, &asked, &deadline];
        self.query(include_str!("../sql/ask.sql"), values).await.map(drop)
    }

    pub async fn end(
        &self,
        id: &str,
        holder: Option<Uuid>,
        ended: &[u8],
    ) -> Queried<Option<Option<Vec<u8>>>> {
        let values: Values<'_> = &[&self.group, &id, &holder, &ended];
        let rows = self.query(include_str!("../sql/decide.sql"), values).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    pub async fn enter_conversation(&self, id: &str) -> Queried<Conversation> {
        let text = include_str!("../sql/enter_conversation.sql");
        let rows = self.query(text, &[&self.group, &id]).await?;
        let Some(row) = rows.first() else { return Ok((None, None)) };
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    pub async fn leave_conversation(&self, id: &str, (context, task): Conversation) -> Queried {
        let text = include_str!("../sql/leave_conversation.sql");
        self.query(text, &[&self.group, &id, &context, &task]).await.map(drop)
    }

    pub async fn cancel(&self, id: &str, value: &[u8]) -> Queried {
        let values: Values<'_> = &[&self.group, &id, &value];
        self.query(include_str!("../sql/cancel.sql"), values).await.map(drop)
    }

    pub async fn cancellations(&self) -> Queried<Vec<Vec<u8>>> {
        let rows = self.query(include_str!("../sql/cancellations.sql"), &[&self.group]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn claim_notices(
        &self,
        holder: Uuid,
        notices: &[(String, String)],
    ) -> Queried<HashMap<String, SharedNotice>> {
        let (ids, messages): (Vec<&str>, Vec<&str>) =
            notices.iter().map(|(id, message)| (id.as_str(), message.as_str())).unzip();
        let values: Values<'_> = &[&self.group, &holder, &ids, &messages];
        let rows = self.query(include_str!("../sql/claim_notices.sql"), values).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, SharedNotice::read(row)?))).collect()
    }

    pub async fn settle_notices(
        &self,
        holder: Uuid,
        settled: &[String],
        released: &[String],
    ) -> Queried {
        let values: Values<'_> = &[&self.group, &settled, &released, &holder];
        self.query(include_str!("../sql/settle_notices.sql"), values).await.map(drop)
    }

    pub async fn approvals(&self, known: &[&str]) -> Queried<Vec<SharedApproval>> {
        let rows = self.query(include_str!("../sql/approvals.sql"), &[&self.group, &known]).await?;
        rows.iter().map(SharedApproval::read).collect()
    }
}

impl SharedFile {
    fn read(row: &ResultRow) -> Queried<Self> {
        Ok(Self { name: row.try_get(0)?, version: row.try_get(1)?, text: row.try_get(2)? })
    }
}

impl SharedNotice {
    fn read(row: &ResultRow) -> Queried<Self> {
        Ok(Self { message: row.try_get(1)?, is_told: row.try_get(2)? })
    }
}

impl SharedApproval {
    fn read(row: &ResultRow) -> Queried<Self> {
        Ok(Self {
            id: row.try_get(0)?,
            ended: row.try_get(1)?,
            by_person: row.try_get(2)?,
            asked: row.try_get(3)?,
        })
    }
}
