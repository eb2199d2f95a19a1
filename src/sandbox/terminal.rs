//! The end of a run: the data of `result`, `error` and `cancelled` (wire-protocol §4.8).
//!
//! Must not: decide how a run ends.

use serde_json::{Value, json};

/// The name of the only model, in the catalog's form.
pub(super) const MODEL_ID: &str = "sandbox/echo";

/// How a run ended.
#[derive(Debug)]
pub(super) struct RunEnd {
    /// The type of the terminal event.
    pub(super) kind: &'static str,
    /// The final status of the run.
    pub(super) status: &'static str,
    /// The category of a failure.
    pub(super) class: Option<&'static str>,
    /// The data of the terminal event.
    pub(super) data: Value,
}

impl RunEnd {
    pub(super) fn success(text: &str) -> Self {
        let data = json!({"subtype": "success", "text": text});
        Self { kind: "result", status: "succeeded", class: None, data }
    }

    /// A local tool was not answered in time.
    pub(super) fn timed_out(error: &str) -> Self {
        let data = json!({"subtype": "error_local_tool_timeout", "error": error});
        Self { kind: "result", status: "failed", class: Some("local_timeout"), data }
    }

    /// The run's log has reached the limit of the sandbox.
    pub(super) fn log_full() -> Self {
        let (error, class) = ("the run has more events than the sandbox keeps", "server");
        let data = json!({"error": error, "code": class, "errorClass": class, "retryable": false});
        Self { kind: "error", status: "failed", class: Some(class), data }
    }

    pub(super) fn cancelled(reason: &str) -> Self {
        let data = json!({"reason": reason});
        Self { kind: "cancelled", status: "cancelled", class: None, data }
    }

    /// The reply of a run that succeeded.
    pub(super) fn reply(&self) -> Option<&str> {
        self.data["text"].as_str()
    }
}
