//! What counts in place of a record that cannot be read: a later version has written it in a form
//! that this one does not know.
//!
//! Each errs on the side of no effect: a call counts as made, a request as asked for, and a run as
//! owned. docs/design/records.md has the rules.
//!
//! Must not: change a record in the file. The version that wrote it may read it again.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ANSWER, CALL};
use crate::clock;
use crate::journal::record::{CallRecord, Millis, OwnerRecord, RequestRecord};
use crate::model::ids::AppName;
use crate::model::moment::Uptime;
use crate::model::recovery::Stage;

/// What the keys of records begin with whose loss may have a call made twice.
const GUARDS: [&[u8]; 4] = [CALL, ANSWER, b"{\"run\":", b"{\"request\":"];

/// Whether the key, which cannot be read, is of a record that keeps a call from being made twice.
pub(super) fn guards(key: &[u8]) -> bool {
    GUARDS.iter().any(|prefix| key.starts_with(prefix))
}

/// The members of a call that no later version gives another form.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Call {
    seq: u64,
    received_at: Millis,
    received_up: Option<Uptime>,
    content: u64,
    name: String,
    is_others: bool,
}

/// A call that may have reached its tool, and has no name at its peer. Left out, the run's stream
/// would bring it as a new one, and it would be made a second time.
pub(super) fn call(text: &[u8]) -> CallRecord {
    let Call { seq, received_at, received_up, content, name, is_others } = members(text);
    CallRecord {
        stage: Stage::Dispatched,
        attempts: 1,
        seq,
        received_at,
        received_up,
        content,
        name,
        is_others,
        ..CallRecord::default()
    }
}

/// The members of a request that no later version gives another form.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Request {
    digest: String,
    begun_at: Option<Millis>,
}

/// A request whose calls may have been made and whose answer is not known. Left out, the same
/// request would be taken for the first one with its key.
pub(super) fn request(text: &[u8]) -> RequestRecord {
    let Request { digest, begun_at } = members(text);
    // Of a request that is too old, the next step would be to forget it.
    let begun_at = begun_at.unwrap_or_else(clock::millis);
    RequestRecord { digest, begun_at, lost: true, ..RequestRecord::default() }
}

/// The members of an owner that no later version gives another form.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Owner {
    app: Option<AppName>,
    since: Option<Millis>,
}

/// An owner with the fewest rights, of an app that does not exist if even its name cannot be read.
/// Left out, any app that has the id could take the run or the session.
pub(super) fn owner(text: &[u8]) -> OwnerRecord {
    let Owner { app, since } = members(text);
    let app = app.unwrap_or_else(|| "".into());
    let since = since.unwrap_or_else(clock::millis);
    OwnerRecord { app, attached: true, eval: None, message: None, since }
}

/// The members that can be read; the defaults, if they cannot.
fn members<T: Default + DeserializeOwned>(text: &[u8]) -> T {
    serde_json::from_slice(text).unwrap_or_default()
}
