//! The answer that is posted for one call, and its limits.
//!
//! Must not: know how the call was made, or put an address or a secret into a text.

pub mod files;

use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use files::File;

/// The codes at the start of an error, for cases in which a model needs more than words;
/// docs/errors.md explains them.
pub mod codes {
    /// The call may or may not have taken effect.
    pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";
    /// The arguments do not fit; nothing was called.
    pub const TOOL_INPUT_INVALID: &str = "tool_input_invalid";
    /// The journal cannot be written; nothing was called.
    pub const STORAGE_UNAVAILABLE: &str = "bridge_storage_unavailable";

    #[cfg(test)]
    pub const ALL: [&str; 3] = [TOOL_INPUT_INVALID, OUTCOME_UNKNOWN, STORAGE_UNAVAILABLE];
}

/// The outcome of a tool call in the form of MANTYX's tool-result POST (agent-runs-protocol §8):
/// exactly one of `result` and `error`, and files beside a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Result {
        /// The tool's text; empty when it had nothing to say.
        text: String,
        /// The tool's output that is not text; a line of `text` names each file.
        files: Vec<File>,
    },
    /// A failure, told to the model in words that it can act on.
    Error(String),
}

impl Answer {
    /// The longest `result`, in bytes: "2 MB" in its smaller reading (wire-protocol §5).
    pub const MAX_RESULT: usize = 2_000_000;
    /// The longest `error`, in bytes: "8 KB" in its smaller reading (wire-protocol §5).
    pub const MAX_ERROR: usize = 8_000;

    /// A result without files.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Result { text: text.into(), files: Vec::new() }
    }

    /// A result that begins with `text` and whose full length is not known, as the rest was not
    /// read.
    pub fn unfinished(mut text: String) -> Self {
        const LINE: &str = "\n[cut by the bridge: the rest is missing]";
        text.truncate(text.floor_char_boundary(Self::MAX_RESULT - LINE.len()));
        text.push_str(LINE);
        Self::text(text)
    }

    /// How many bytes it holds.
    pub fn size(&self) -> usize {
        let (text, files) = self.parts();
        text.len() + files.iter().map(File::size).sum::<usize>()
    }

    /// Its text, and its files; an error has none.
    pub fn parts(&self) -> (&str, &[File]) {
        match self {
            Self::Result { text, files } => (text, files),
            Self::Error(text) => (text, &[]),
        }
    }

    /// Cuts text that is longer than MANTYX takes, at a character boundary; the last line then says
    /// how much is missing.
    #[must_use]
    pub fn within_limits(self) -> Self {
        match self {
            // Files are within their limits from the start.
            Self::Result { text, files } => {
                Self::Result { text: cut(text, Self::MAX_RESULT), files }
            }
            Self::Error(text) => Self::Error(cut(text, Self::MAX_ERROR)),
        }
    }

    /// How many bytes its text and its files take in JSON.
    pub fn json_len(&self) -> usize {
        let (text, files) = self.parts();
        let escaped = text.bytes().map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
            0..=31 => 6,
            _ => 1,
        });
        escaped.chain(files.iter().map(|file| file.data().len())).sum()
    }
}

/// The members `result` and `files`, or `error`; `files` only if there are any.
impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Result { text, files } => {
                map.serialize_entry("result", text)?;
                if !files.is_empty() {
                    map.serialize_entry("files", files)?;
                }
            }
            Self::Error(text) => map.serialize_entry("error", text)?,
        }
        map.end()
    }
}

/// Reads the serialized form, in which the journal keeps answers.
impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Members {
            result: Option<String>,
            #[serde(default)]
            files: Vec<File>,
            error: Option<String>,
        }
        match Members::deserialize(deserializer)? {
            Members { result: Some(text), files, error: None } => Ok(Self::Result { text, files }),
            Members { result: None, error: Some(error), .. } => Ok(Self::Error(error)),
            Members { .. } => Err(D::Error::custom("neither a result nor an error, or both")),
        }
    }
}

/// Cuts `text` to at most `max` bytes, the closing line included.
fn cut(mut text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    // The line's length depends on the number in it; the number has at most as many digits as the
    // whole length has.
    let reserve = closing_line(text.len(), text.len()).len();
    let keep = text.floor_char_boundary(max.saturating_sub(reserve));
    let missing = text.len() - keep;
    let line = closing_line(missing, text.len());
    text.truncate(keep);
    text.push_str(&line);
    text
}

fn closing_line(missing: usize, whole: usize) -> String {
    format!("\n[cut by the bridge: {missing} of {whole} bytes are missing]")
}

#[cfg(test)]
mod tests;
