//! Results of calls as clients get them: the server's own, or one that is made of the bridge's
//! answer.
//!
//! Must not: change a byte of a server's result, other than for what the client's revision wants or
//! its official clients refuse, or to cut a text that is longer than the operator wants.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::calls::Reply;
use super::{RpcError, typed, with_members};
use crate::backend::mcp::result::{described, is_in_form};
use crate::backend::{CallOutcome, Source};
use crate::budget::{Budget, NoRoom};
use crate::model::answer::files::File;
use crate::model::json::quoted;
use crate::model::mcp::error_code;
use crate::model::{Answer, AppName, Members, elements, form, member, string_member};

/// The member of a result that the tool's `outputSchema` is for.
const STRUCTURED: &str = "structuredContent";

/// What the client of a call gets: the server's own result, or one that is made of the bridge's
/// answer; or an error of the server that clients of its revision know.
pub(super) fn call_reply(outcome: CallOutcome, app: &AppName, is_stateless: bool) -> Reply {
    let CallOutcome { answer, source, .. } = outcome;
    let mut room = Budget::of_process().hold_for(Some(app.clone()));
    let text = match source {
        Some(Source::Result { json, is_cut, held }) => {
            room = held;
            result(&answer, json, is_cut, is_stateless)
        }
        Some(Source::NoRoom) => {
            let why = format!("The tool has run, but {NoRoom}, so its result is lost.");
            of_answer(&Answer::Error(why))
        }
        Some(Source::Error(error))
            if (error.code == error_code::CAPABILITY_MISSING) == is_stateless =>
        {
            return (Err(RpcError::of_server(error)), room);
        }
        Some(Source::Error(_)) | None => of_answer(&answer),
    };
    let result = typed(text, is_stateless);
    // Counted for the app until its client has read it, however slowly it does.
    room.follow(result.len());
    (Ok(result), room)
}

/// The `CallToolResult` for a client whose call the server answered with `server_result`.
fn result(
    answer: &Answer,
    server_result: Box<RawValue>,
    is_cut: bool,
    is_stateless: bool,
) -> String {
    let failed = matches!(answer, Answer::Error(_));
    if failed != is_error(&server_result) {
        // The bridge has an error to tell that the server's result has not: an MCP task has failed
        // with_members a result that claims success.
        return of_answer(answer);
    }
    if !is_cut && is_in_form(&server_result) {
        return match fitted(&server_result, is_stateless) {
            Some(fitted) => fitted,
            None => Box::<str>::from(server_result).into_string(),
        };
    }
    match structured(&server_result, is_stateless) {
        Some(structured) if !failed => {
            with_members(&of_answer(answer), &format!("\"{STRUCTURED}\":{structured}"))
        }
        _ => of_answer(answer),
    }
}

/// The structured content of a server's result, if the client's revision has such a one: before
/// 2026-07-28, it is an object.
fn structured(result: &RawValue, is_stateless: bool) -> Option<&RawValue> {
    member(result.get(), STRUCTURED).filter(|json| is_stateless || json.get().starts_with('{'))
}

/// The server's `result`, which is one of MCP's, without what the client would refuse it for;
/// `None` if nothing is to be changed. Members that are `null` are left out, and so is structured
/// content that the client's revision does not know: without another text, it becomes one.
fn fitted(result: &RawValue, is_stateless: bool) -> Option<String> {
    if is_plain(result.get()) {
        return None;
    }
    let Members(members) = Members::read(result.get()).ok()?;
    let mut changed = false;
    // Room for the content, which comes first.
    let mut fitted_members = Vec::with_capacity(members.len() + 1);
    let mut content = None;
    let mut structured = None;
    for (key, value) in &members {
        let json = value.get();
        let readable = match &**key {
            "content" => {
                content = Some(json).filter(|json| *json != "null");
                continue;
            }
            STRUCTURED => {
                structured = Some(json).filter(|json| *json != "null");
                is_stateless || json.starts_with('{')
            }
            "isError" => matches!(json, "true" | "false"),
            "_meta" => json.starts_with('{'),
            "resultType" => json.starts_with('"'),
            _ => true,
        };
        if readable {
            fitted_members.push(format!("{}:{json}", quoted(key)));
        } else {
            changed = true;
        }
    }
    let mut blocks: Vec<Cow<'_, str>> =
        elements(content.unwrap_or("[]")).ok()?.into_iter().map(block).collect();
    changed |= content.is_none() || blocks.iter().any(|block| matches!(block, Cow::Owned(_)));
    if let Some(structured) = structured
        && (content.is_none() || !is_stateless && !structured.starts_with('{'))
        && !blocks.iter().any(|block| string_member(block, "type").as_deref() == Some("text"))
    {
        // The client would read nothing of it otherwise.
        blocks.push(text_block(structured).to_string().into());
    }
    if !changed {
        return None;
    }
    fitted_members.insert(0, format!("\"content\":[{}]", blocks.join(",")));
    Some(format!("{{{}}}", fitted_members.join(",")))
}

/// Whether `result` has texts alone, as most have: found in one pass, as a result may be large.
fn is_plain(result: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Plain<'a> {
        #[serde(borrow)]
        content: Vec<Text<'a>>,
        #[serde(default, rename = "isError")]
        _is_error: bool,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Text<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow, rename = "text")]
        _text: Cow<'a, str>,
    }
    let plain = serde_json::from_str::<Plain<'_>>(result);
    plain.is_ok_and(|plain| plain.content.iter().all(|block| block.kind == "text"))
}

/// What `prompts/get` was answered with, as clients read it.
pub(super) fn prompt(result: &str) -> Cow<'_, str> {
    let trimmed = form::trimmed(result, &form::MESSAGES);
    let Some(messages) = member(&trimmed, "messages") else { return trimmed };
    let readable = form::trimmed_items(messages.get(), |message| {
        match member(message, "content").map(block) {
            Some(Cow::Owned(content)) => form::replaced(message, "content", &content),
            _ => message.into(),
        }
    });
    match readable {
        Cow::Owned(messages) => form::replaced(&trimmed, "messages", &messages).into_owned().into(),
        Cow::Borrowed(_) => trimmed.clone(),
    }
}

/// A content block as clients read it. One that they cannot read is as the model is told of it.
fn block(block: &RawValue) -> Cow<'_, str> {
    if let Some(block) = form::block(block.get()) {
        return block;
    }
    let (line, file) = described(block);
    let readable = match file {
        Some(file) => file_block(&file),
        None => text_block(&line),
    };
    readable.to_string().into()
}

fn text_block(text: &str) -> serde_json::Value {
    json!({ "type": "text", "text": text })
}

fn is_error(result: &RawValue) -> bool {
    member(result.get(), "isError").is_some_and(|value| value.get() == "true")
}

/// The result of a tool that is no MCP server's, or of a call that was not made.
fn of_answer(answer: &Answer) -> String {
    let result = match answer {
        Answer::Error(why) => json!({ "content": [text_block(why)], "isError": true }),
        Answer::Result { text: words, files } => {
            let content: Vec<_> =
                std::iter::once(text_block(words)).chain(files.iter().map(file_block)).collect();
            json!({ "content": content, "isError": false })
        }
    };
    result.to_string()
}

fn file_block(file: &File) -> serde_json::Value {
    let (mime_type, data) = (file.mime_type(), file.data());
    match mime_type.split('/').next() {
        Some(kind @ ("image" | "audio")) => {
            json!({ "type": kind, "data": data, "mimeType": mime_type })
        }
        _ => {
            let uri = format!("file:///{}", file.filename());
            let resource = json!({ "uri": uri, "mimeType": mime_type, "blob": data });
            json!({ "type": "resource", "resource": resource })
        }
    }
}

#[cfg(test)]
mod tests;
