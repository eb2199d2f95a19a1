//! Files in tool results (agent-runs-protocol §8).
//!
//! Must not: keep a file's bytes.

use serde::{Deserialize, Deserializer, Serialize};

/// The description of a file that is kept and shown; never its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileNote {
    pub(super) filename: String,
    pub(super) mime_type: String,
    #[serde(rename(deserialize = "data"), deserialize_with = "decoded_len")]
    pub(super) size_bytes: usize,
}

/// The decoded length of a text that has been checked to be base64.
fn decoded_len<'de, D: Deserializer<'de>>(data: D) -> Result<usize, D::Error> {
    let data = String::deserialize(data)?;
    let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
    Ok(data.len() / 4 * 3 - padding)
}
