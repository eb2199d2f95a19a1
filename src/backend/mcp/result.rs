//! Turns the result of an MCP `tools/call` into an answer.
//!
//! Must not: know how the result travelled, or drop a content block without a line that names it.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::backend::{CallError, CallOutcome, Called, Progress};
use crate::model::answer::files::{Attachments, DescribedFile, File, grouped};
use crate::model::redaction::Part;
use crate::model::{Answer, Members, elements, json, member, string_member};
use crate::tasks::in_place_if_large;

/// The error text for a failure that the tool does not describe.
const NO_MESSAGE: &str = "the tool failed and gave no message";

/// The line that ends the text of a result which is none of MCP's.
const OUT_OF_FORM: &str = "[out of form: this is no result of MCP, and is passed on as it came]";

/// The members that say nothing of what a tool has done.
const SILENT: [&str; 5] = ["_meta", "content", "isError", "resultType", "structuredContent"];

/// What `result` is, in the words of 2026-07-28; `None` if it does not say so.
pub(super) fn result_type(result: &RawValue) -> Option<String> {
    const KEY: &str = "resultType";
    // A large result is not read for a member that it has not. Only an escape can hide the key.
    let has = |part: &str| memmem::find(result.get().as_bytes(), part.as_bytes()).is_some();
    (has(KEY) || has("\\u")).then(|| string_member(result.get(), KEY))?
}

/// Turns `result`, the whole result of a call, into an answer, which an MCP client gets with its
/// source. Without an `await`: a caller that goes away at this moment would take the answer with
/// it.
pub(super) fn complete(result: &RawValue, progress: &Progress) -> Called<CallOutcome> {
    in_place_if_large(result.get().len(), || completed(result, progress))
}

fn completed(result: &RawValue, progress: &Progress) -> Called<CallOutcome> {
    let kind = result_type(result);
    if let Some(other) = kind.filter(|kind| kind != "complete") {
        return Err(CallError::Unreadable(format!("a result of the unknown type {other:?}")));
    }
    // Before names and types are cut and changed, in which a pattern would find no secret.
    let changed = progress.without_secrets(result, Part::Result);
    let result = changed.as_deref().unwrap_or(result);
    let source = progress.client.as_ref().map(|client| client.source(result));
    Ok(CallOutcome { source, ..CallOutcome::from(from_mcp(result)) })
}

/// Converts `result`, a `CallToolResult` of any revision, into an answer.
///
/// Its text is the text blocks, joined with a newline; without any, the JSON text of
/// `structuredContent`. An image, a sound or a blob becomes a file. Each file, and each block that
/// becomes neither text nor a file, is named in a line of its own.
///
/// A result that is none of MCP's becomes its own text, and a line that says so: the tool has run,
/// and its output would be lost otherwise.
pub fn from_mcp(result: &RawValue) -> Answer {
    of_text_alone(result.get()).unwrap_or_else(|| of_any(result))
}

/// Whether MCP clients can read `result` as one of MCP's, if its blocks are.
pub fn is_in_form(result: &RawValue) -> bool {
    Parts::read(result).is_some_and(|parts| {
        parts.blocks.iter().all(|block| is_block(block)) && !parts.content_is_odd
    })
}

/// A content block that is not one of MCP's, as its line in an answer, and the file that it brings.
pub fn described(block: &RawValue) -> (String, Option<File>) {
    let mut files = Attachments::default();
    let line = Block::read(block, &mut files).line;
    (line, files.files.into_iter().next())
}

fn of_any(result: &RawValue) -> Answer {
    let Some(Parts { blocks, structured, failed, content_is_odd, is_silent }) = Parts::read(result)
    else {
        return Answer::text(format!("{result}\n{OUT_OF_FORM}"));
    };
    let mut is_out_of_form = content_is_odd || !blocks.iter().all(|block| is_block(block));
    let mut files = if failed { Attachments::of_an_error() } else { Attachments::default() };
    let has_blocks = !blocks.is_empty();
    let blocks: Vec<Block> =
        blocks.into_iter().map(|block| Block::read(block, &mut files)).collect();
    let has_text = blocks.iter().any(|block| block.is_text);
    let mut lines: Vec<String> = blocks.into_iter().map(|block| block.line).collect();
    match structured {
        // A server that gives both repeats the structured content in a text block for the model.
        Some(structured) if !has_text => lines.push(structured.get().to_owned()),
        // Without content, what else there is must not be lost; a failure may have nothing to say.
        None if !has_blocks && content_is_odd && !(failed && is_silent) => {
            lines.push(result.get().to_owned());
        }
        None if failed && is_silent => is_out_of_form = false,
        _ => {}
    }
    if is_out_of_form {
        lines.push(OUT_OF_FORM.to_owned());
    }
    let text = lines.join("\n");
    match failed {
        false => Answer::Result { text, files: files.files },
        true => error(text),
    }
}

/// The members of a result.
struct Parts<'a> {
    blocks: Vec<&'a RawValue>,
    structured: Option<&'a RawValue>,
    failed: bool,
    /// Its `content` is no list, and nothing stands for it.
    content_is_odd: bool,
    /// It has no member that says what the tool has done.
    is_silent: bool,
}

impl<'a> Parts<'a> {
    /// `None` if `result` is no object.
    fn read(result: &'a RawValue) -> Option<Self> {
        let members = Members::read(result.get()).ok()?;
        let is_there = |value: &&RawValue| value.get() != "null";
        let structured = members.get("structuredContent").filter(is_there);
        let failed = members.get("isError").is_some_and(|value| value.get() == "true");
        let content = members.get("content").filter(is_there);
        let is_silent =
            content.is_none() && members.0.iter().all(|(key, _)| SILENT.contains(&key.as_ref()));
        let (blocks, content_is_odd) = match content.map(|content| (content, content.get())) {
            Some((_, list)) if list.starts_with('[') => (elements(list).ok()?, false),
            // One block, or the text of one, without the list around it.
            Some((block, json)) if json.starts_with(['{', '"']) => (vec![block], true),
            Some(_) => (Vec::new(), true),
            None => (Vec::new(), structured.is_none()),
        };
        Some(Self { blocks, structured, failed, content_is_odd, is_silent })
    }
}

/// Whether `block` is of a type, and a text has one.
fn is_block(block: &RawValue) -> bool {
    match string_member(block.get(), "type").as_deref() {
        Some("text") => member(block.get(), "text").is_some_and(|it| it.get().starts_with('"')),
        kind => kind.is_some(),
    }
}

fn error(text: String) -> Answer {
    Answer::Error(if text.is_empty() { NO_MESSAGE.to_owned() } else { text })
}

/// The usual result, which has text blocks alone, in one pass over its bytes: a search for the
/// members, the blocks and their members, and then for escapes, is four. `None`: it is another one,
/// or odd.
fn of_text_alone(result: &str) -> Option<Answer> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Plain {
        content: Vec<TextBlock>,
        is_error: Option<bool>,
    }
    #[derive(Deserialize)]
    struct TextBlock {
        #[serde(rename = "type")]
        _kind: Kind,
        text: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Text,
    }
    let Plain { mut content, is_error } = serde_json::from_str(result).ok()?;
    let first = content.first_mut()?;
    let mut text = std::mem::take(&mut first.text);
    for block in content.drain(1..) {
        text.push('\n');
        text.push_str(&block.text);
    }
    Some(if is_error == Some(true) { error(text) } else { Answer::text(text) })
}

/// One content block, as far as the answer needs it.
struct Block {
    /// Text, or the line that describes a file, or a block that cannot become text.
    line: String,
    /// It is text of the tool, of an embedded resource, or a linked resource's URI.
    is_text: bool,
}

impl Block {
    fn read(raw: &RawValue, files: &mut Attachments) -> Self {
        let as_it_came = |json: &RawValue| {
            let line = json::lossy(json.get()).map_or(json.get().to_owned(), Cow::into_owned);
            Self { line, is_text: true }
        };
        let Ok(block) = Members::read(raw.get()) else { return as_it_came(raw) };
        let kind = text(&block, "type");
        let content = match kind.as_deref() {
            None => return as_it_came(raw),
            Some("text") => match block.get("text").filter(|text| text.get() != "null") {
                Some(text) => return as_it_came(text),
                None => None,
            },
            Some("resource_link") => text(&block, "uri"),
            Some("resource") => return Self::read_resource(&block, raw, files),
            Some(kind @ ("image" | "audio")) => {
                return match text(&block, "data") {
                    Some(data) => Self::file(kind, None, &block, &data, files),
                    None => Self::not_passed_on(&format!("{kind} without data"), raw.get().len()),
                };
            }
            _ => None,
        };
        match content {
            Some(line) => Self { line, is_text: true },
            None => {
                let kind = kind.as_deref().unwrap_or_default();
                Self::not_passed_on(&with_mime_type(kind, &block), raw.get().len())
            }
        }
    }

    fn read_resource(block: &Members<'_>, raw: &RawValue, files: &mut Attachments) -> Self {
        let Some(resource) = block.object("resource") else {
            return Self::not_passed_on("resource without content", raw.get().len());
        };
        match (text(&resource, "text"), text(&resource, "blob")) {
            (Some(line), _) => Self { line, is_text: true },
            (None, Some(blob)) => {
                let uri = text(&resource, "uri");
                Self::file("file", uri.as_deref(), &resource, &blob, files)
            }
            (None, None) => {
                Self::not_passed_on(&with_mime_type("resource", &resource), raw.get().len())
            }
        }
    }

    /// `holder` has the `mimeType` of `base64`.
    fn file(
        kind: &str,
        name: Option<&str>,
        holder: &Members<'_>,
        base64: &str,
        files: &mut Attachments,
    ) -> Self {
        let mime_type = text(holder, "mimeType");
        let mime_type = mime_type.as_deref();
        let file = DescribedFile { kind, name, mime_type, data: base64, twice: false };
        Self { line: files.add(file), is_text: false }
    }

    fn not_passed_on(what: &str, size: usize) -> Self {
        let unit = if size == 1 { "byte" } else { "bytes" };
        let size = grouped(size);
        Self { line: format!("[{what}, {size} {unit}: not passed on]"), is_text: false }
    }
}

/// `kind`, followed by the holder's `mimeType` if it has one. Both come from the server, and must
/// not break out of the bridge's line.
fn with_mime_type(kind: &str, holder: &Members<'_>) -> String {
    let mut what = one_line(kind);
    if let Some(mime_type) = text(holder, "mimeType") {
        what.push(' ');
        what.push_str(&one_line(&mime_type));
    }
    what
}

/// `text` without control characters and brackets, at most 100 characters of it.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !matches!(c, '[' | ']')).take(100).collect()
}

/// The string under `key`, `None` if there is none.
fn text(members: &Members<'_>, key: &str) -> Option<String> {
    json::lossy(members.get(key)?.get()).map(Cow::into_owned)
}

#[cfg(test)]
mod tests;
