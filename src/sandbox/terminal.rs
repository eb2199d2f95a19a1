//! The end of a run: the data of `result`, `error` and `cancelled` (wire-protocol §4.8), and the
//! part of it that a snapshot keeps.
//!
//! Must not: decide how a run ends.

use serde::Serialize;

use super::spec::{Effort, Enforcement, Level, Spec};

/// The name of the only model, in the catalog's form.
pub(super) const MODEL_ID: &str = "sandbox/echo";

/// How a run ended: the data of its terminal event without the report, and what a snapshot shows.
#[derive(Debug, Default, Serialize)]
pub(super) struct RunEnd {
    /// The type of the terminal event.
    #[serde(skip)]
    pub(super) kind: &'static str,
    /// The final status of the run.
    #[serde(skip)]
    pub(super) status: &'static str,
    /// The category of a failure.
    #[serde(skip)]
    pub(super) class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subtype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<PlanView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(flatten)]
    failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    code: &'static str,
    error_class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    partial_text: Option<String>,
    retryable: bool,
}

/// The token counts of the run. Tokens are words.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tokens {
    pub(super) input_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) reasoning_tokens: u64,
    pub(super) output_tokens: u64,
}

/// `structuredOutput`: the scripted model enforces no schema, and reports that.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StructuredOutput {
    schema_requested: bool,
    schema_enforced: bool,
    enforcement_mechanism: &'static str,
    unconstrained_fallback_occurred: bool,
}

/// `model` of a terminal event.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModelInfo {
    id: String,
    provider: &'static str,
    vendor_model_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<Level>,
}

/// The fields that every `result` and `error` has in common.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) structured_output: StructuredOutput,
    pub(super) tokens: Tokens,
    pub(super) turns: u64,
    pub(super) model: ModelInfo,
}

/// `plan` of a plan-only run (agent-runs-protocol §7).
#[derive(Debug, Clone, Serialize)]
pub(super) struct PlanView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) brief: Option<String>,
    pub(super) steps: Vec<PlanStep>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct PlanStep {
    pub(super) title: String,
    pub(super) status: &'static str,
}

impl Report {
    pub(super) fn new(spec: &Spec, tokens: Tokens, turns: u64) -> Self {
        let schema = spec.output_schema.as_ref().map(|schema| schema.enforcement);
        Self {
            structured_output: StructuredOutput {
                schema_requested: schema.is_some(),
                schema_enforced: false,
                enforcement_mechanism: "none",
                unconstrained_fallback_occurred: schema == Some(Enforcement::BestEffort),
            },
            tokens,
            turns,
            model: ModelInfo {
                id: spec.model_id.clone().unwrap_or_else(|| MODEL_ID.to_owned()),
                provider: "sandbox",
                vendor_model_id: "echo",
                reasoning_effort: spec.reasoning_level.map(Effort::level),
            },
        }
    }
}

impl RunEnd {
    pub(super) fn success(text: String, plan: Option<PlanView>) -> Self {
        let (kind, status, subtype) = ("result", "succeeded", Some("success"));
        Self { kind, status, subtype, text: Some(text), plan, ..Self::default() }
    }

    /// A local tool was not answered in time.
    pub(super) fn timed_out(error: String) -> Self {
        let (kind, status, subtype) = ("result", "failed", Some("error_local_tool_timeout"));
        let class = Some("local_timeout");
        Self { kind, status, class, subtype, error: Some(error), ..Self::default() }
    }

    pub(super) fn failed(class: &'static str, error: String, partial_text: Option<String>) -> Self {
        let (code, error_class) = (class, class);
        let failure = Some(Failure { code, error_class, partial_text, retryable: false });
        let (kind, status, class) = ("error", "failed", Some(class));
        Self { kind, status, class, error: Some(error), failure, ..Self::default() }
    }

    /// The run's log has reached the limit of the sandbox.
    pub(super) fn log_full() -> Self {
        Self::failed("server", "the run has more events than the sandbox keeps".to_owned(), None)
    }

    pub(super) fn cancelled(reason: &'static str) -> Self {
        let (kind, status) = ("cancelled", "cancelled");
        Self { kind, status, reason: Some(reason), ..Self::default() }
    }

    /// The reply, or its part so far.
    pub(super) fn reply(&self) -> Option<&str> {
        let partial = || self.failure.as_ref()?.partial_text.as_deref();
        self.text.as_deref().or_else(partial)
    }

    /// The data of the terminal event.
    pub(super) fn data(&self, report: Option<&Report>) -> String {
        #[derive(Serialize)]
        struct Data<'a> {
            #[serde(flatten)]
            end: &'a RunEnd,
            #[serde(flatten)]
            report: Option<&'a Report>,
        }
        let data = Data { end: self, report };
        serde_json::to_string(&data).expect("our own types have string keys")
    }
}
