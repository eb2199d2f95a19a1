//! The receivers of notices: how they stand, for the operator, and a test of one of them.
//!
//! Must not: show an address, or a secret.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::routes::ApiRequest;
use super::{Api, Caller, HandlerResult, busy, operator_only, response};
use crate::clock::rfc3339;
use crate::http::Code;
use crate::notify::{Health, Tested};

/// Who is told of what waits.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NoticeReceiver {
    pub(crate) name: String,
    /// `webhook (json)`, `webhook (slack)`, `webhook (ntfy)`, `command`, or `unresolved` where what
    /// its entry refers to is missing.
    pub(crate) way: String,
    /// `approval`, `question`, `trust`, `problem`.
    pub(crate) on: Vec<String>,
    /// Why the last attempt failed.
    pub(crate) last_error: Option<String>,
    /// When it last took a notice, since the daemon started.
    pub(crate) last_sent: Option<String>,
    /// Notices that wait.
    pub(crate) waiting: usize,
    /// Attempts that succeeded, since the daemon started.
    pub(crate) sent: u64,
    /// Attempts that failed.
    pub(crate) failed: u64,
    /// Notices that were dropped, as too many waited.
    pub(crate) dropped: u64,
}

/// What came of a test.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NoticeTest {
    pub(crate) delivered: bool,
    /// Why not.
    pub(crate) error: Option<String>,
}

impl From<Health> for NoticeReceiver {
    fn from(health: Health) -> Self {
        Self {
            name: health.name,
            way: health.way,
            on: health.on.into_iter().map(str::to_owned).collect(),
            last_error: health.error,
            last_sent: health.last_sent.map(rfc3339),
            waiting: health.waiting,
            sent: health.sent,
            failed: health.failed,
            dropped: health.dropped,
        }
    }
}

/// The receivers, for the operator; none for an app.
pub(super) fn receivers(api: &Api, caller: &Caller) -> Vec<NoticeReceiver> {
    if !caller.is_operator {
        return Vec::new();
    }
    api.facts.notifier.health().into_iter().map(NoticeReceiver::from).collect()
}

impl Api {
    /// Sends a test notice, and says what came of it.
    pub(super) async fn test_notice(
        &self,
        ApiRequest { caller, segment, .. }: ApiRequest,
    ) -> HandlerResult {
        operator_only(&caller, "Testing a receiver of notices")?;
        let test = match self.facts.notifier.test(&segment).await {
            None => return Err(self.no_receiver(&segment)),
            Some(Tested::Busy) => {
                return Err(busy(
                    "An attempt to reach it is under way; test again when it is done.",
                ));
            }
            Some(Tested::Delivered) => NoticeTest { delivered: true, error: None },
            Some(Tested::Failed(why)) => NoticeTest { delivered: false, error: Some(why) },
        };
        Ok(response::json(&test))
    }

    fn no_receiver(&self, name: &str) -> super::Response<super::Body> {
        let health = self.facts.notifier.health();
        let names: Vec<&str> = health.iter().map(|receiver| receiver.name.as_str()).collect();
        let candidates = match names.as_slice() {
            [] => "bridge.yaml has no `notify`".to_owned(),
            names => format!("there are: {}", names.join(", ")),
        };
        let message = format!("There is no receiver `{name}` of notices; {candidates}.");
        response::error(Code::NotFound, &message)
    }
}
