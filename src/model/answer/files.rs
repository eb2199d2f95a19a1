//! Files of a tool's answer: which of them MANTYX takes, and the line in the answer's text that
//! names each.
//!
//! Must not: leave a file out without a line that says so, or give one a name that leads anywhere.

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use crate::model::maps::HashSet;

/// The most files of one answer (agent-runs-protocol §8).
pub const MAX_FILES: usize = 20;
/// The most bytes of them together, decoded: "5 MB" in its smaller reading.
pub const MAX_BYTES: usize = 5_000_000;

/// The longest name that a file is given, in characters.
const MAX_NAME: usize = 100;

/// The types that MANTYX takes (agent-runs-protocol §4.0.1) and the endings of their names. It
/// takes every other `text/*` as well.
const TYPES: &str = include_str!("files/types.txt");

/// One file as MANTYX takes it. Only [`Attachments`] makes them, so each is within the limits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[serde(rename_all = "camelCase")]
#[debug("File({filename:?}, {mime_type:?}, {} bytes of base64)", data.len())]
pub struct File {
    filename: String,
    mime_type: String,
    /// Base64 of the standard alphabet, padded.
    data: String,
}

/// A file that a peer sent, as far as the peer described it.
#[derive(Debug, Clone, Copy)]
pub struct DescribedFile<'a> {
    /// The beginning of an invented name: `image`, `audio`, `file`.
    pub kind: &'a str,
    /// The name or the address that the peer gave.
    pub name: Option<&'a str>,
    pub mime_type: Option<&'a str>,
    pub data: &'a str,
    /// The bytes were written in base64 and that text in base64 once more.
    pub twice: bool,
}

/// Collects the files of one answer.
#[derive(Debug, Default)]
pub struct Attachments {
    pub files: Vec<File>,
    /// Their decoded bytes together.
    bytes: usize,
    /// How many files the peer sent, taken or not: the number for invented names.
    found: usize,
    names: HashSet<String>,
    /// The answer is an error, and errors carry no files.
    none_fit: bool,
}

impl Attachments {
    /// For an answer that is an error: its files are named and not passed on.
    pub fn of_an_error() -> Self {
        Self { none_fit: true, ..Self::default() }
    }

    /// Takes `found` if it fits, and returns the line that names it in the answer's text.
    pub fn add(&mut self, found: DescribedFile<'_>) -> String {
        self.found += 1;
        let stated = found.mime_type.map(essence).filter(|mime_type| !mime_type.is_empty());
        let mime_type = stated.or_else(|| found.name.and_then(type_by_name).map(str::to_owned));
        let name = self.name(found, mime_type.as_deref().unwrap_or_default());
        let outcome = self.take(found, mime_type.as_deref());
        let size = outcome.as_ref().map_or_else(|(_, guess)| *guess, Vec::len);
        let mime_type = mime_type.unwrap_or_default();
        let type_text = if mime_type.is_empty() { String::new() } else { format!(" {mime_type}") };
        let unit = if size == 1 { "byte" } else { "bytes" };
        let line = format!("[file {name}{type_text}, {} {unit}: ", grouped(size));
        match outcome {
            Ok(bytes) => {
                self.bytes += size;
                self.names.insert(name.clone());
                let data = STANDARD.encode(bytes);
                self.files.push(File { filename: name, mime_type, data });
                line + "attached]"
            }
            Err((unfit, _)) => line + "not passed on, " + unfit + "]",
        }
    }

    /// The decoded bytes of a file that fits; otherwise the reason, and its size as far as it is
    /// known.
    fn take(
        &self,
        found: DescribedFile<'_>,
        mime_type: Option<&str>,
    ) -> Result<Vec<u8>, (&'static str, usize)> {
        const TOO_MUCH: &str = "as the files of an answer have 5,000,000 bytes at most";
        let size = decoded_size(found.data);
        let guess = if found.twice { size / 4 * 3 } else { size };
        let room = MAX_BYTES - self.bytes;
        let bytes = match mime_type {
            _ if self.none_fit => Err("as an error carries no files"),
            None => Err("as it has no MIME type"),
            Some(mime_type) if !is_allowed(mime_type) => Err("as its type is not allowed"),
            _ if self.files.len() >= MAX_FILES => Err("as an answer has 20 files at most"),
            // A file that is far too large is not even decoded; two bytes are what padding may
            // hide.
            _ if guess > room + 2 => Err(TOO_MUCH),
            _ => decode(found.data, found.twice).ok_or("as its content is not base64"),
        };
        match bytes.map_err(|unfit| (unfit, guess))? {
            bytes if bytes.len() > room => Err((TOO_MUCH, bytes.len())),
            bytes => Ok(bytes),
        }
    }

    /// The peer's own name for the file, made harmless, or one that is invented; no two are alike.
    fn name(&self, found: DescribedFile<'_>, mime_type: &str) -> String {
        let extension = extension(mime_type);
        let own = found.name.map(harmless).unwrap_or_default();
        let (stem, extension) = match own.rsplit_once('.') {
            Some((stem, extension)) if !stem.is_empty() && !extension.is_empty() => {
                (stem.to_owned(), extension.to_owned())
            }
            _ if !own.is_empty() => (own, extension.to_owned()),
            _ => (format!("{}-{}", found.kind, self.found), extension.to_owned()),
        };
        let ending = if extension.is_empty() { extension } else { format!(".{extension}") };
        let plain = format!("{stem}{ending}");
        let numbered = (2..).map(|number| format!("{stem}-{number}{ending}"));
        let mut names = std::iter::once(plain).chain(numbered);
        names.find(|name| !self.names.contains(name)).unwrap_or_default()
    }
}

impl File {
    /// The answer's `text`, in which the file's line says that the file is left out.
    pub fn left_out_of(&self, text: &str) -> String {
        let line = format!("[file {} {}, ", self.filename, self.mime_type);
        let Some((before, after)) = text.split_once(&line) else { return text.to_owned() };
        let left_out = "not passed on, as the API of the model takes no such file here]";
        [before, &line, &after.replacen("attached]", left_out, 1)].concat()
    }

    /// Gives it another name, in its line of the answer's `text` too.
    pub fn rename(&mut self, stem: String, text: &mut String) {
        let line = |name: &str| format!("[file {name} {}, ", self.mime_type);
        let ending = extension(&self.mime_type);
        let name = if ending.is_empty() { stem } else { format!("{stem}.{ending}") };
        *text = text.replacen(&line(&self.filename), &line(&name), 1);
        self.filename = name;
    }

    pub fn filename(&self) -> &str {
        &self.filename
    }

    pub fn mime_type(&self) -> &str {
        &self.mime_type
    }

    /// How many bytes the file takes in the POST.
    pub fn size(&self) -> usize {
        self.filename.len() + self.mime_type.len() + self.data.len()
    }

    pub fn data(&self) -> &str {
        &self.data
    }
}

/// A MIME type without its parameters, in lower case, without characters that could end a line of
/// the bridge's.
fn essence(mime_type: &str) -> String {
    let essence = mime_type.split(';').next().unwrap_or_default().trim();
    essence
        .chars()
        .filter(|c| c.is_ascii_graphic() && !matches!(c, '[' | ']'))
        .take(MAX_NAME)
        .collect::<String>()
        .to_ascii_lowercase()
}

/// The lines of [`TYPES`].
fn types() -> impl Iterator<Item = (&'static str, &'static str)> {
    TYPES.lines().filter_map(|line| line.split_once(' '))
}

/// Whether MANTYX takes files of this type.
pub(crate) fn is_allowed(mime_type: &str) -> bool {
    types().any(|(known, _)| known == mime_type)
        || mime_type.strip_prefix("text/").is_some_and(|subtype| !subtype.is_empty())
}

/// How names of files of this type end; nothing for a type that has no usual ending.
fn extension(mime_type: &str) -> &'static str {
    match types().find(|(listed, _)| *listed == mime_type) {
        Some((_, ending)) => ending,
        None if mime_type.starts_with("text/") => "txt",
        None => "",
    }
}

/// The type that the end of a name stands for, for peers that state none.
fn type_by_name(name: &str) -> Option<&'static str> {
    let own = harmless(name).rsplit_once('.')?.1.to_ascii_lowercase();
    let ending = if own == "jpeg" { "jpg" } else { &own };
    types().find(|(_, listed)| *listed == ending).map(|(mime_type, _)| mime_type)
}

/// The last part of a path or an address, of letters, digits and a few signs that have no meaning
/// to any system.
fn harmless(name: &str) -> String {
    let name = match name.split_once("://") {
        // Nothing after the host: the host is no name for a file.
        Some((_, rest)) => {
            let rest = rest.split(['?', '#']).next().unwrap_or_default();
            rest.split_once('/').map_or("", |(_host, path)| path)
        }
        None => name,
    };
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let legal = last.replace(
        |c: char| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '_' | ' ' | '(' | ')'),
        "_",
    );
    let clean = legal.trim_matches(|c: char| c == '.' || c.is_whitespace());
    // The end of a long name is kept, as it says what the file is.
    let surplus = clean.chars().count().saturating_sub(MAX_NAME);
    clean.chars().skip(surplus).collect::<String>().trim_start_matches(['.', ' ']).to_owned()
}

/// The bytes of base64 in any of the forms that peers write: of either alphabet, with or without
/// padding, with line breaks.
fn decode(text: &str, twice: bool) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let plain: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    let bytes = GeneralPurpose::new(&ALPHABET, LENIENT).decode(plain).ok()?;
    // If an agent encodes once, as the protocol says, these bytes are no base64.
    if twice && let Ok(inner) = STANDARD.decode(&bytes) {
        return Some(inner);
    }
    Some(bytes)
}

/// The decoded size of `base64`, in bytes, by its length.
pub(crate) fn decoded_size(base64: &str) -> usize {
    let digits = base64.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=').count();
    digits / 4 * 3 + digits % 4 * 3 / 4
}

/// `number` with a comma between every three digits.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut groups: Vec<_> = digits.as_bytes().rchunks(3).map(String::from_utf8_lossy).collect();
    groups.reverse();
    groups.join(",")
}

#[cfg(test)]
mod tests;
