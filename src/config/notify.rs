//! Who is told of what waits for a person, and how.
//!
//! Must not: know what a notice says.

use std::collections::BTreeSet;

use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Program, Unresolved, Written};
use crate::http_client::Tls;
use crate::model::BackendName;
use crate::model::words::words;

words! {
    /// What a receiver is told of.
    #[derive(PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schemars(inline)]
    pub enum Topic {
        /// A call that waits for approval.
        Approval = "approval",
        /// A question of a call's server.
        Question = "question",
        /// A backend that is not as the operator has accepted it.
        Trust = "trust",
        /// Something that is wrong for two minutes.
        Problem = "problem",
    }
}

words! {
    /// A text of others that a notice may have.
    #[derive(PartialOrd, Ord, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schemars(inline)]
    pub enum Detail {
        /// The arguments of a call.
        Arguments = "arguments",
        /// What a server asks.
        Question = "question",
        /// The reason of a decision, and a peer's own words about a problem.
        Reason = "reason",
    }
}

words! {
    /// The form of a webhook's body.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schemars(inline)]
    pub enum NoticeFormat {
        Json = "json",
        Slack = "slack",
        Ntfy = "ntfy",
    }
}

/// One receiver of notices.
#[derive(Debug, Clone, PartialEq)]
pub struct NoticeReceiver {
    pub name: BackendName,
    pub on: BTreeSet<Topic>,
    /// Whose calls and trouble it is told of; `None`: of all, and of the bridge itself.
    pub backends: Option<BTreeSet<BackendName>>,
    pub with: BTreeSet<Detail>,
    pub way: NoticeWay,
}

/// How a notice reaches its receiver.
#[derive(Debug, Clone, PartialEq)]
pub enum NoticeWay {
    Webhook(Webhook),
    /// The program is run for each notice.
    Command(Program),
    /// What the entry refers to is missing.
    Unresolved(Unresolved),
}

/// Where notices are posted.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// A secret: who knows it can post there.
    pub url: Written<Url>,
    pub format: NoticeFormat,
    /// Sent with each notice; the values are marked sensitive.
    pub headers: HeaderMap,
    /// Each of them signs.
    pub secrets: Vec<SigningSecret>,
    pub tls: Option<Tls>,
}

/// The key of a Standard Webhooks signature.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("SigningSecret(..)")]
pub struct SigningSecret(pub Vec<u8>);

impl NoticeWay {
    /// `webhook (json)`, `command`, or why there is none.
    pub fn describe(&self) -> String {
        match self {
            Self::Webhook(webhook) => format!("webhook ({})", webhook.format.as_str()),
            Self::Command(_) => "command".to_owned(),
            Self::Unresolved(_) => "unresolved".to_owned(),
        }
    }
}
