//! An outbox on disk: what the next process is to tell, and what its receiver knows.
//!
//! Must not: read or write a file.

use serde::{Deserialize, Serialize};

use super::{Bundle, Claim, Item, Outbox, Told};
use crate::notify::notice::{Notice, Subject};
use crate::state_dir::check_format;

/// The format of the files; files of other formats are ignored.
const VERSION: u32 = 1;

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    version: u32,
    waiting: Vec<StoredItem>,
    bundle: Option<StoredBundle>,
    told: Vec<Subject>,
    dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredItem {
    key: String,
    notice: Notice,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredBundle {
    notice: Notice,
    items: Vec<StoredItem>,
}

impl Stored {
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("strings and times can be written")
    }

    /// # Errors
    ///
    /// The text is damaged, or of another version.
    pub fn read(text: &str) -> Result<Self, String> {
        let stored: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        check_format(stored.version, VERSION)?;
        Ok(stored)
    }
}

impl Outbox {
    pub(super) fn stored(&self) -> Stored {
        Stored {
            version: VERSION,
            waiting: self.waiting.iter().map(Item::stored).collect(),
            bundle: self.bundle.as_ref().map(|bundle| StoredBundle {
                notice: bundle.notice.clone(),
                items: bundle.items.iter().map(Item::stored).collect(),
            }),
            told: self.told.values().map(|told| told.subject.clone()).collect(),
            dropped: self.dropped,
        }
    }

    /// The outbox that an earlier process has left. Whether an attempt was under way at its end is
    /// not known, so each notice that waits counts as one that may have arrived.
    pub fn restored(is_shared: bool, stored: Stored) -> Self {
        let mut outbox = Self::new(is_shared);
        outbox.waiting = stored.waiting.into_iter().map(Item::restored).collect();
        outbox.bundle = stored.bundle.map(|bundle| Bundle {
            notice: bundle.notice,
            items: bundle.items.into_iter().map(Item::restored).collect(),
            may_have_arrived: true,
        });
        for subject in stored.told {
            let told = Told { subject, is_seen: false, claim: Claim::Unasked };
            outbox.told.insert(told.subject.key.clone(), told);
        }
        outbox.dropped = stored.dropped;
        outbox
    }
}

impl Item {
    fn stored(&self) -> StoredItem {
        StoredItem { key: self.key.clone(), notice: self.notice.clone() }
    }

    fn restored(stored: StoredItem) -> Self {
        Self {
            key: stored.key,
            notice: stored.notice,
            may_have_arrived: true,
            is_seen: false,
            claim: Claim::Unasked,
        }
    }
}
