//! Calls that wait for a person: lists the questions, and takes decisions.
//!
//! The operator sees and decides all of them. An app sees its own, and decides them if it has the
//! right. Where apps bring their own credential, MANTYX must have accepted it for the run
//! (`Sight`). Only these routes show arguments: the person who decides has to see them.
//!
//! Must not: make a call.

use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Api, bad_request, routes::ApiRequest, sight::Sight, time};
use crate::{
    http::{
        error_code::Code,
        response::{self, Answered, Body},
    },
    model::{
        approval::{MAX_REASON, Outcome},
        ids::RunId,
    },
    runs::approvals::{Approval, Decider, Decision, Undecidable},
    telemetry,
};

/// The largest body of a decision, in bytes: two words and a reason.
const MAX_DECISION: usize = 16 << 10;

/// One question, as it is shown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    pub(crate) id: String,
    /// `waiting`, or how it has ended: `approved`, `denied`, `expired` or `withdrawn`.
    pub(crate) state: String,
    pub(crate) app: String,
    /// `null` for a call by hand.
    pub(crate) run_id: Option<String>,
    tool_use_id: String,
    /// The name that the model called.
    pub(crate) name: String,
    pub(crate) backend: String,
    /// The backend's own name of the tool; empty for an agent.
    tool: String,
    /// The exact arguments; only in the list, and only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    arguments: Option<Box<RawValue>>,
    /// The arguments as text for people: verbatim, except that invisible characters are written
    /// out. A program that parses `arguments` may lose digits and duplicate keys, and so show
    /// another call than the one that will be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments_text: Option<String>,
    arguments_sha256: String,
    pub(crate) since: String,
    /// The time at which the question counts as denied.
    pub(crate) deadline: String,
    /// The time at which it ended.
    pub(crate) decided_at: Option<String>,
    /// The reason that came with the decision.
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalList {
    /// Whether the caller may decide: the operator, and an app with `approves: true`.
    may_decide: bool,
    /// First the questions that wait, in the order in which they were asked; then the ended ones,
    /// the latest first.
    pub(crate) approvals: Vec<Shown>,
}

/// What a person decides.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decide {
    decision: Verdict,
    /// The bridge passes this reason for a denial on to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Approve,
    Deny,
}

impl Shown {
    /// A question without the arguments that it is about.
    pub(super) fn of(approval: &Approval) -> Self {
        let ended = approval.ended.as_ref();
        Self {
            id: approval.id.to_string(),
            state: approval.outcome().map_or("waiting", Outcome::as_str).to_owned(),
            app: approval.app.to_string(),
            run_id: approval.run.as_ref().map(RunId::to_string),
            tool_use_id: approval.tool_use.to_string(),
            name: approval.name.clone(),
            backend: approval.backend.to_string(),
            tool: approval.tool.clone(),
            arguments: None,
            arguments_text: None,
            arguments_sha256: approval.digest.clone(),
            since: time(approval.since),
            deadline: time(approval.until),
            decided_at: ended.map(|ended| time(ended.at)),
            reason: ended.and_then(|ended| ended.reason.clone()),
        }
    }

    fn whole(approval: &Approval) -> Self {
        let arguments = approval.arguments.as_deref().map(RawValue::to_owned);
        let arguments_text = arguments.as_ref().map(|text| telemetry::plain_json(text.get()));
        Self { arguments, arguments_text, ..Self::of(approval) }
    }
}

impl Api {
    /// The questions that the caller may see; waiting ones come first.
    pub(super) fn list_approvals(&self, asked: &ApiRequest) -> Answered {
        let caller = &asked.caller;
        let sight = Sight::of(&self.runs, caller, asked.request.headers());
        let mut all = self.runs.calls.approvals.of(caller.sees());
        all.retain(|one| sight.has_call(&self.runs, &one.app, one.run.as_ref()));
        // Serialized without a `Value` in between, which would lose digits of the arguments.
        let approvals = all.iter().map(Shown::whole).collect();
        let list = ApprovalList { approvals, may_decide: caller.may_decide() };
        Ok(response::json(StatusCode::OK, &list))
    }

    pub(super) async fn decide(&self, asked: ApiRequest) -> Answered {
        let ApiRequest { mut caller, request, segment: id } = asked;
        if !caller.may_decide() {
            return Err(not_yours_to_decide());
        }
        let (headers, body) = self.read_json(&mut caller, request, MAX_DECISION).await?;
        // A reload may have removed the right while the body arrived.
        if !caller.may_decide() {
            return Err(not_yours_to_decide());
        }
        let Decide { decision, reason } = serde_json::from_slice(&body).map_err(|error| {
            let shape = r#"{"decision": "approve" or "deny", "reason": "…"}, reason optional"#;
            bad_request(&format!("The body is not {shape}: {error}."))
        })?;
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON) {
            return Err(bad_request(&format!(
                "The reason is longer than {MAX_REASON} characters."
            )));
        }
        let approved = decision == Verdict::Approve;
        let reason = reason.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let by = if caller.is_operator { Decider::Operator } else { Decider::App };
        let decision = Decision { approved, by, reason };
        let sight = Sight::of(&self.runs, &caller, &headers);
        let seen = self.runs.calls.approvals.get(caller.sees(), &id);
        let seen = seen.filter(|one| sight.has_call(&self.runs, &one.app, one.run.as_ref()));
        let decide = |_| self.runs.calls.approvals.decide(caller.sees(), &id, decision);
        match seen.ok_or(Undecidable::Unknown).and_then(decide) {
            Ok(approval) => Ok(response::json(StatusCode::OK, &Shown::of(&approval))),
            Err(Undecidable::Unknown) => Err(response::error(
                Code::NotFound,
                "There is no such question; GET /v1/approvals lists those that there are.",
            )),
            Err(Undecidable::Ended(approval)) => {
                let outcome = approval.outcome().map_or("decided", Outcome::as_str);
                let message = match approval.outcome() {
                    Some(Outcome::Expired) => "The deadline has passed; the call was not made.",
                    Some(Outcome::Withdrawn) => "Its caller or run has ended; it is not made.",
                    _ => "A decision was made before.",
                };
                Err(response::error(
                    Code::AlreadyDecided,
                    &format!("The call is {outcome} already. {message}"),
                ))
            }
        }
    }
}

fn not_yours_to_decide() -> Response<Body> {
    response::error(
        Code::OperatorOnly,
        "Whether a call is made is for the operator of the bridge to decide, who shows what stands \
         in the file `operator` of its state directory as X-Bridge-Operator, or signs in to the page \
         with it; `mantyx-bridge approvals` does so. `approves: true` lets an app decide on its own \
         calls.",
    )
}
