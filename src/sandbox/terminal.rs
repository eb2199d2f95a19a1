//! The end of a run: the data of `result`, `error` and `cancelled` (wire-protocol §4.8), and the
//! part of it that a snapshot keeps.
//!
//! Must not: decide how a run ends.

use serde::Serialize;

use super::spec::{Effort, Schema, Spec};

/// The name of the only model, in the catalog's form.
pub(super) const MODEL_ID: &str = "sandbox/echo";

/// How a run ended.
#[derive(Debug)]
pub(super) enum RunEnd {
    Success {
        text: String,
        plan: Option<PlanView>,
    },
    /// A local tool was not answered in time.
    TimedOut {
        error: String,
    },
    Failed {
        error: String,
        class: &'static str,
        partial_text: Option<String>,
    },
    Cancelled {
        reason: &'static str,
    },
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
    reasoning_effort: Option<&'static str>,
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
        let schema = spec.options.schema;
        Self {
            structured_output: StructuredOutput {
                schema_requested: schema.is_some(),
                schema_enforced: false,
                enforcement_mechanism: "none",
                unconstrained_fallback_occurred: schema == Some(Schema::BestEffort),
            },
            tokens,
            turns,
            model: ModelInfo {
                id: spec.model_id.clone().unwrap_or_else(|| MODEL_ID.to_owned()),
                provider: "sandbox",
                vendor_model_id: "echo",
                reasoning_effort: spec.options.effort.map(|effort| match effort {
                    Effort::Off => "off",
                    Effort::Low => "low",
                    Effort::Medium => "medium",
                    Effort::High => "high",
                }),
            },
        }
    }
}

impl RunEnd {
    /// The run's log has reached the limit of the sandbox.
    pub(super) fn log_full() -> Self {
        let error = "the run has more events than the sandbox keeps".to_owned();
        Self::Failed { error, class: "server", partial_text: None }
    }

    /// The type of the terminal event.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Success { .. } | Self::TimedOut { .. } => "result",
            Self::Failed { .. } => "error",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// The final status of the run.
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::Success { .. } => "succeeded",
            Self::TimedOut { .. } | Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// The reply, or its part so far.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Success { text, .. } => Some(text),
            Self::Failed { partial_text, .. } => partial_text.as_deref(),
            Self::TimedOut { .. } | Self::Cancelled { .. } => None,
        }
    }

    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::TimedOut { error } | Self::Failed { error, .. } => Some(error),
            Self::Success { .. } | Self::Cancelled { .. } => None,
        }
    }

    /// The category of a failure.
    pub(super) fn class(&self) -> Option<&'static str> {
        match self {
            Self::TimedOut { .. } => Some("local_timeout"),
            Self::Failed { class, .. } => Some(class),
            Self::Success { .. } | Self::Cancelled { .. } => None,
        }
    }

    /// The data of the terminal event.
    pub(super) fn data(&self, report: Option<&Report>) -> String {
        let data = Data {
            subtype: match self {
                Self::Success { .. } => Some("success"),
                Self::TimedOut { .. } => Some("error_local_tool_timeout"),
                Self::Failed { .. } | Self::Cancelled { .. } => None,
            },
            text: matches!(self, Self::Success { .. }).then(|| self.text().unwrap_or_default()),
            plan: match self {
                Self::Success { plan, .. } => plan.as_ref(),
                _ => None,
            },
            error: self.error(),
            failure: match self {
                Self::Failed { class, partial_text, .. } => Some(FailureView {
                    code: class,
                    error_class: class,
                    partial_text: partial_text.as_deref(),
                    retryable: false,
                }),
                _ => None,
            },
            reason: match self {
                Self::Cancelled { reason } => Some(reason),
                _ => None,
            },
            report,
        };
        serde_json::to_string(&data).expect("our own types have string keys")
    }
}

#[derive(Serialize)]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    subtype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a PlanView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(flatten)]
    failure: Option<FailureView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(flatten)]
    report: Option<&'a Report>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FailureView<'a> {
    code: &'static str,
    error_class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    partial_text: Option<&'a str>,
    retryable: bool,
}
