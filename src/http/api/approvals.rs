//! Calls that wait for a person, for approval or for the answer to a question of their server:
//! lists the questions, and takes decisions.
//!
//! The operator sees and decides all of them. An app sees its own, and decides them if it has the
//! right. Where apps bring their own credential, MANTYX must have accepted it for the run
//! (`Sight`). Only these routes show arguments: the person who decides has to see them.
//!
//! Must not: make a call.

use http::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::warn;

use super::sight::Sight;
use super::{Api, ApiRequest, Body, Code, HandlerResult, bad_request, response};
use crate::calls::approvals::{Approval, Decision, Undecidable};
use crate::clock::rfc3339;
use crate::error_chain::error_chain;
use crate::model::approval::{MAX_REASON, Outcome};
use crate::model::{RunId, json};
use crate::telemetry;

/// The largest body of a decision, in bytes: two words, a reason, and the content of an answer.
const MAX_DECISION: usize = 64 << 10;
/// The longest description of a tool, in characters.
const MAX_DESCRIPTION: usize = 2_000;

/// One question, as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    pub(crate) id: String,
    /// `waiting`, or how it has ended: `approved`, `answered`, `denied`, `expired` or `withdrawn`.
    pub(crate) state: String,
    /// `call` if the call itself waits, `question` if its server asks the user something.
    pub(crate) kind: String,
    pub(crate) app: String,
    /// `null` for a call by hand.
    pub(crate) run_id: Option<String>,
    pub(crate) tool_use_id: String,
    /// The name that the model called.
    pub(crate) name: String,
    pub(crate) backend: String,
    /// The backend's own name of the tool; empty for an agent.
    tool: String,
    /// What its server says that the tool does, at most 2,000 characters; only in the list, and
    /// only while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Whether the tool may destroy something, as far as its server says; only where `description`
    /// may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destructive: Option<bool>,
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
    /// The parameters of the server's `elicitation/create`, verbatim; only in the list, and only
    /// while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub(crate) question: Option<Box<RawValue>>,
    /// Why a person is asked about the call once more, though one has approved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asked_again: Option<String>,
    /// Why the question has no answer but a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flaw: Option<String>,
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
    pub(crate) may_decide: bool,
    /// First the questions that wait, in the order in which they were asked; then the ended ones,
    /// the latest first.
    pub(crate) approvals: Vec<Shown>,
}

/// What a person decides.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decide {
    decision: Verdict,
    /// The answer to a server's question, as its `requestedSchema` says; none if the server wants a
    /// URL opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    content: Option<Box<RawValue>>,
    /// The bridge passes this reason for a denial on to the model; for a denied question, if the
    /// call then fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Approve,
    Answer,
    Deny,
}

impl Shown {
    /// A question without the arguments that it is about.
    pub(super) fn new(approval: &Approval) -> Self {
        let end = approval.ended.as_ref();
        Self {
            id: approval.id.to_string(),
            state: approval.outcome().map_or("waiting", Outcome::as_str).to_owned(),
            kind: approval.kind().to_owned(),
            app: approval.app.to_string(),
            run_id: approval.run.as_ref().map(RunId::to_string),
            tool_use_id: approval.tool_use.to_string(),
            name: approval.name.clone(),
            backend: approval.backend.to_string(),
            tool: approval.tool.clone(),
            description: None,
            destructive: None,
            arguments: None,
            arguments_text: None,
            arguments_sha256: approval.digest.clone(),
            question: None,
            asked_again: approval.asked_again.clone(),
            flaw: None,
            since: rfc3339(approval.since),
            deadline: rfc3339(approval.until),
            decided_at: end.map(|(at, _)| rfc3339(*at)),
            reason: end.and_then(|(_, decision)| decision.reason.clone()),
        }
    }

    fn whole(approval: &Approval) -> Self {
        let arguments = approval.arguments.as_deref().map(RawValue::to_owned);
        let arguments_text = arguments.as_ref().map(|text| telemetry::plain_json(text.get()));
        let (question, flaw) = match &approval.question {
            Some(question) => (Some(question.params.clone()), question.flaw.clone()),
            None => (None, None),
        };
        Self { arguments, arguments_text, question, flaw, ..Self::new(approval) }
    }
}

impl Api {
    /// The questions that the caller may see; waiting ones come first.
    pub(super) fn list_approvals(&self, incoming: &ApiRequest) -> HandlerResult {
        let caller = &incoming.caller;
        let sight = Sight::new(&self.runs, caller, incoming.request.headers());
        let mut all = self.runs.calls.approvals.of(caller.sees());
        all.retain(|one| sight.has_call(&self.runs, &one.app, one.run.as_ref()));
        // Serialized without a `Value` in between, which would lose digits of the arguments.
        let approvals = all.iter().map(|approval| self.described(approval)).collect();
        let list = ApprovalList { approvals, may_decide: caller.may_decide() };
        Ok(response::json(&list))
    }

    /// A question with what its server says of the tool now: a person decides on more than a name.
    fn described(&self, approval: &Approval) -> Shown {
        let mut shown = Shown::whole(approval);
        if approval.ended.is_some() {
            return shown;
        }
        let registry = &self.backends().registry;
        let offer = registry.offer();
        let Some(route) = offer.searched_route(&approval.name) else { return shown };
        if let Some(tool) = registry.definition(route) {
            shown.destructive = Some(route.destructive);
            shown.description = json::member(tool.raw.get(), "description")
                .and_then(|text| serde_json::from_str::<String>(text.get()).ok())
                .map(|text| text.chars().take(MAX_DESCRIPTION).collect());
        }
        shown
    }

    pub(super) async fn decide(&self, mut incoming: ApiRequest) -> HandlerResult {
        if !incoming.caller.may_decide() {
            return Err(not_yours_to_decide());
        }
        let body = self.read_json(&mut incoming, MAX_DECISION).await?;
        let ApiRequest { mut caller, request, segment: id } = incoming;
        self.runs.calls.look_for_approval(&id).await;
        // A reload may have removed the right while the body or the database's answer arrived.
        if !caller.app.is_operator() {
            caller.app = self.runs.calls.still(&caller.app).ok_or_else(response::not_let_in)?;
        }
        if !caller.may_decide() {
            return Err(not_yours_to_decide());
        }
        let Decide { decision, content, reason } = serde_json::from_slice(&body).map_err(|error| {
            bad_request(&format!(
                "The body is not {{\"decision\":\"approve\", \"answer\" or \"deny\", \"content\":{{…}}, \
                 \"reason\":\"…\"}}, content and reason optional: {error}."
            ))
        })?;
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON) {
            return Err(bad_request(&format!(
                "The reason is longer than {MAX_REASON} characters."
            )));
        }
        let outcome = match decision {
            Verdict::Approve => Outcome::Approved,
            Verdict::Answer => Outcome::Answered,
            Verdict::Deny => Outcome::Denied,
        };
        let content = content.map(|content| Box::<str>::from(content).into_string());
        let reason = reason.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let by = if caller.is_operator { "operator" } else { caller.app.name.as_str() };
        let decision = Decision { outcome, content, by: Some(by.to_owned()), reason };
        let sight = Sight::new(&self.runs, &caller, request.headers());
        let approval = self.runs.calls.approvals.get(caller.sees(), &id);
        let sees_approval = approval.is_some_and(|approval| {
            sight.has_call(&self.runs, &approval.app, approval.run.as_ref())
        });
        let verdict = if sees_approval {
            self.runs.calls.decide_approval(caller.sees(), &id, decision).await
        } else {
            Err(Undecidable::Unknown)
        };
        match verdict {
            Ok(approval) => Ok(response::json(&Shown::new(&approval))),
            Err(Undecidable::Unknown) => Err(response::error(
                Code::NotFound,
                "There is no such question; GET /v1/approvals lists those that there are.",
            )),
            Err(Undecidable::Unfit(why)) => Err(bad_request(&why)),
            Err(Undecidable::Away(error)) => {
                warn!(error = error_chain(&error), "a decision could not be recorded");
                Err(response::error(
                    Code::NotReady,
                    "The replicas' database does not answer, so the decision has no effect. Decide \
                     again once GET /readyz answers 200.",
                ))
            }
            Err(Undecidable::Ended(approval)) => {
                let Shown { kind, state, .. } = Shown::new(&approval);
                let cause = match approval.outcome() {
                    Some(Outcome::Expired) => "The deadline has passed.",
                    Some(Outcome::Withdrawn) => {
                        "Its caller or run has ended, or its server does not wait any more."
                    }
                    _ => "A decision was made before.",
                };
                let message = format!("The {kind} is {state} already. {cause}");
                Err(response::error(Code::AlreadyDecided, &message))
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
