//! The blocks of content in results and prompts.
//!
//! Must not: say what stands for a block that clients cannot read.

use std::borrow::Cow;

use super::{
    ANNOTATIONS, Kind, META, Member, RESOURCE, RESOURCE_CONTENT, Shape, flaw, must, trimmed,
};
use crate::model::{member, string_member};

static TEXT: [Member; 3] = [must("text", Kind::Text), ANNOTATIONS, META];

static DATA: [Member; 4] =
    [must("data", Kind::Base64), must("mimeType", Kind::Text), ANNOTATIONS, META];

static EMBEDDED: [Member; 3] =
    [must("resource", Kind::Members(&RESOURCE_CONTENT)), ANNOTATIONS, META];

/// The block `json` without its null members; `None` if clients cannot read it.
pub fn block(json: &str) -> Option<Cow<'_, str>> {
    let shape: &Shape = match string_member(json, "type")?.as_str() {
        "text" => &TEXT,
        "image" | "audio" => &DATA,
        "resource_link" => &RESOURCE,
        "resource" if has_content(json) => &EMBEDDED,
        _ => return None,
    };
    match flaw(json, shape) {
        None => Some(trimmed(json, shape)),
        Some(_) => None,
    }
}

/// Whether an embedded resource has a text or a blob.
fn has_content(block: &str) -> bool {
    let Some(resource) = member(block, "resource") else { return false };
    ["text", "blob"]
        .into_iter()
        .any(|key| member(resource.get(), key).is_some_and(|value| value.get() != "null"))
}
