//! The statements for notices, of which one replica delivers each.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::super::tables::{Lock, NoticeRow, Tx};
use crate::journal::postgres::SharedNotice;
use crate::model::maps::HashMap;

pub(in crate::journal::postgres::tests::simulated) async fn claim_notices(
    mut tx: Tx,
    holder: Uuid,
    notices: BTreeMap<String, String>,
) -> (Tx, HashMap<String, SharedNotice>) {
    let mut claimed = HashMap::default();
    for (id, message) in notices {
        tx.lock(Lock::Notice(id.clone()), true).await;
        let now = tx.now();
        let until = now + Duration::from_mins(1);
        let row = match tx.latest().notices.get(&id) {
            Some(row) if row.holder != holder && row.until >= now => continue,
            Some(row) => NoticeRow { holder, until, ..row.clone() },
            None => NoticeRow { message, holder, until, told: false },
        };
        let notice = SharedNotice { message: row.message.clone(), is_told: row.told };
        claimed.insert(id.clone(), notice);
        tx.write(move |tables| drop(tables.notices.insert(id, row)));
    }
    (tx, claimed)
}

pub(in crate::journal::postgres::tests::simulated) async fn settle_notices(
    mut tx: Tx,
    holder: Uuid,
    settled: Vec<String>,
    released: Vec<String>,
) -> (Tx, ()) {
    let old = tx.now() - Duration::from_hours(48);
    let snapshot = tx.snapshot.clone();
    for (id, row) in &snapshot.notices {
        let is_released = released.contains(id) && row.holder == holder;
        if row.until >= old && !is_released && !settled.contains(id) {
            continue;
        }
        tx.lock(Lock::Notice(id.clone()), true).await;
        let (id, is_removed) = (id.clone(), row.until < old || is_released);
        tx.write(move |tables| {
            if is_removed {
                tables.notices.remove(&id);
            } else if let Some(row) = tables.notices.get_mut(&id) {
                row.told = true;
            }
        });
    }
    (tx, ())
}
