//! The rules for files, in attachments of a message and in tool results (agent-runs-protocol
//! §4.0.1, §8): which types, how many, how large.
//!
//! Must not: keep a file's bytes.

use serde::Serialize;

use super::read::{Invalid, Object, Value};

/// The most files of one message or one tool result.
pub(super) const MAX_FILES: usize = 20;
/// The most decoded bytes of all files together. Of the two readings of "5 MB" this is the smaller
/// one, so that files which pass here pass under either.
pub(super) const MAX_BYTES: usize = 5_000_000;

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
    if entries.len() > MAX_FILES {
        return Err(value.invalid(format_args!("has {} files, {MAX_FILES} fit", entries.len())));
    }
    let mut notes = Vec::with_capacity(entries.len());
    let mut total = 0;
    for entry in &entries {
        let note = read_inline(&entry.object()?)?;
        total += note.size_bytes;
        notes.push(note);
    }
    check_total(value, total)?;
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

/// Refuses more inline bytes than one run or result may have.
pub(super) fn check_total(value: &Value<'_>, bytes: usize) -> Result<(), Invalid> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(value.invalid(format_args!("has {bytes} bytes decoded, {MAX_BYTES} fit")))
}

pub(super) fn read_mime_type(value: &Value<'_>) -> Result<String, Invalid> {
    let mime_type = value.string()?;
    if is_allowed(&mime_type) {
        return Ok(mime_type);
    }
    Err(value.invalid(format_args!("{mime_type:?} is not an allowed attachment type")))
}

fn is_allowed(mime_type: &str) -> bool {
    const ALLOWED: [&str; 13] = [
        "audio/mp4",
        "audio/mpeg",
        "audio/wav",
        "audio/webm",
        "image/jpeg",
        "image/png",
        "image/webp",
        "image/gif",
        "application/pdf",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/csv",
        "application/json",
        "application/xml",
    ];
    ALLOWED.contains(&mime_type)
        || mime_type.strip_prefix("text/").is_some_and(|subtype| !subtype.is_empty())
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

    #[test]
    fn types() {
        assert!(is_allowed("text/x-python") && is_allowed("image/png") && is_allowed("audio/mp4"));
        assert!(!is_allowed("application/zip") && !is_allowed("text/") && !is_allowed("video/mp4"));
    }
}
