//! The rules for files, in attachments of a message and in tool results (agent-runs-protocol
//! §4.0.1, §8): which types, how many, how large.
//!
//! Must not: keep a file's bytes.

use serde::Serialize;

use super::read::{Invalid, Object, Value};
use crate::model::answer::files::{MAX_BYTES, MAX_FILES, is_allowed};

/// The description of a file that is kept and shown; never its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileNote {
    pub(super) filename: String,
    pub(super) mime_type: String,
    pub(super) size_bytes: usize,
}

/// Reads `files` of a tool result.
pub(super) fn read_files(value: &Value<'_>) -> Result<Vec<FileNote>, Invalid> {
    let entries = value.array()?;
    value.fits(entries.len(), MAX_FILES, "files")?;
    let mut notes = Vec::with_capacity(entries.len());
    let mut total = 0;
    for entry in &entries {
        let note = read_inline(&entry.object()?)?;
        total += note.size_bytes;
        notes.push(note);
    }
    value.fits(total, MAX_BYTES, "bytes decoded")?;
    Ok(notes)
}

/// Reads `{filename, mimeType, data}`.
pub(super) fn read_inline(file: &Object<'_>) -> Result<FileNote, Invalid> {
    let filename = file.need("filename")?;
    let mime_type = file.need("mimeType")?;
    let data = file.need("data")?;
    let note = FileNote {
        filename: filename.string()?,
        mime_type: read_mime_type(&mime_type)?,
        size_bytes: decoded_len(&data.string()?).ok_or_else(|| {
            data.invalid("is not base64 (standard alphabet, padded, no data-URL prefix)")
        })?,
    };
    if note.filename.is_empty() {
        return Err(filename.invalid("must not be empty"));
    }
    Ok(note)
}

pub(super) fn read_mime_type(value: &Value<'_>) -> Result<String, Invalid> {
    let mime_type = value.string()?;
    if is_allowed(&mime_type) {
        return Ok(mime_type);
    }
    Err(value.invalid(format_args!("{mime_type:?} is not an allowed attachment type")))
}

/// The decoded length of the base64 text `data`; `None` if it is not base64.
fn decoded_len(data: &str) -> Option<usize> {
    if !data.len().is_multiple_of(4) {
        return None;
    }
    let padding = data.bytes().rev().take(2).take_while(|byte| *byte == b'=').count();
    let digits = data.as_bytes().get(..data.len() - padding)?;
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    digits.iter().all(legal).then(|| data.len() / 4 * 3 - padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_base64() {
        assert_eq!(decoded_len(""), Some(0));
        assert_eq!(decoded_len("aGk="), Some(2));
        assert_eq!(decoded_len("aA=="), Some(1));
        assert_eq!(decoded_len("aGkh"), Some(3));
        assert_eq!(decoded_len("a==="), None);
        assert_eq!(decoded_len("aGk"), None);
        assert_eq!(decoded_len("data:text/plain;base64,aGk="), None);
    }
}
