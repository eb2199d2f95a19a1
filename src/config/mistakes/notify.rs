//! Mistakes in the receivers of notices.
//!
//! Must not: decide what is a mistake.

use std::fmt::Display;

use super::MistakeText;

pub fn receiver_name(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is no name for a receiver of notices"),
        "write letters, digits and `_`, at most 40",
    )
}

pub fn no_topics() -> MistakeText {
    MistakeText::new(
        "`on` is missing: what is this receiver told of?",
        "write `on: [approval, question, trust, problem]`, or some of them",
    )
}

pub fn idle_detail(detail: impl Display, topics: impl Display) -> MistakeText {
    MistakeText::new(
        format!("no notice of this receiver has `{detail}`"),
        format!("remove it, or add one of these to `on`: {topics}"),
    )
}

pub fn webhook_or_command() -> MistakeText {
    MistakeText::new(
        "`webhook` and `command` are two ways to tell",
        "keep one, and write another entry for the other",
    )
}

pub fn no_way() -> MistakeText {
    MistakeText::new(
        "how is this receiver told?",
        "write `webhook: {url: ...}` or `command: [program, ...]`",
    )
}

pub fn no_webhook_url() -> MistakeText {
    MistakeText::new(
        "`url` is missing: where are notices posted?",
        "write `url: ${file:/etc/mantyx-bridge/hook.url}`",
    )
}

pub fn no_ntfy_topic() -> MistakeText {
    MistakeText::new("the address names no topic of ntfy", "write https://, the server, and /TOPIC")
}

pub fn signing_secret() -> MistakeText {
    MistakeText::new(
        "this is no secret of Standard Webhooks",
        "write `whsec_` and 24 to 64 random bytes in base64; `echo whsec_$(openssl rand -base64 32)` \
         makes one",
    )
}
