//! `/v1/trust`: shows how the backends' tools and cards differ from what the operator has accepted,
//! and accepts them.
//!
//! Every app may look, as far as it may use the backends. Only the operator accepts: the effect of
//! tools on a model is judged once for all apps, and no app judges for the others. The operator is
//! the person who can read the file `operator` in the state directory.
//!
//! Must not: accept anything but what was looked at.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::info;

use super::status::words;
use super::{
    Api, ApiRequest, Caller, Code, HandlerResult, bad_request, names, no_backend, response, status,
    unknown_backend,
};
use crate::backend::registry::Snapshot;
use crate::model::pin::{Finding, NotTaken, Subject};
use crate::model::{BackendName, Review, Rights};

/// The largest body that accepts tools, in bytes.
const MAX_ACCEPT: usize = 1 << 20;
/// What an app reads where the operator reads why the pins cannot be read, or not be written.
const DAMAGED: &str = "They cannot be read.";
const UNKEPT: &str = "They are not on disk.";
/// How long an answer waits until the accepted pins are on disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pins of the backends.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Trust {
    pub(crate) backends: Vec<Pinned>,
}

/// The pins of one backend, and its differences from them.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Pinned {
    pub(crate) name: String,
    kind: String,
    /// `off`, `warn` or `enforce`.
    pub(crate) mode: String,
    /// How many tools are as accepted; the card of an agent counts as one.
    pub(crate) accepted: usize,
    /// The hash of the findings. Accepting has to send it back, so that nothing is accepted unseen.
    pub(crate) digest: String,
    pub(crate) findings: Vec<Found>,
    /// Why the pins cannot be read. The operator reads the cause, too.
    pub(crate) damaged: Option<String>,
    /// Why the pins are not on disk; a restart would forget them. The operator reads the cause,
    /// too.
    pub(crate) unkept: Option<String>,
}

/// One tool, card or text that differs from what was accepted.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Found {
    /// `tool`, `card` (of an agent) or `instructions` (of an MCP server).
    pub(crate) subject: String,
    /// The server's own name of the tool; `null` for a card and for instructions, whose name in
    /// `accept` is the empty text.
    pub(crate) tool: Option<String>,
    /// `changed`, `new`, `hidden` (not known before, and with hidden characters) or `gone`.
    pub(crate) change: String,
    /// The bridge neither offers nor calls it.
    pub(crate) withdrawn: bool,
    /// The invisible characters in it.
    pub(crate) hidden: Vec<String>,
    /// Accepted lines begin with `-`, present ones with `+`. Hidden characters are written out.
    pub(crate) diff: Vec<String>,
}

/// A decision to accept.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Acceptance {
    accept: Accept,
    /// The digest of the findings that the operator has looked at.
    digest: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Accept {
    Everything(Everything),
    /// The tools, by the server's own names.
    Tools(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Everything {
    All,
}

impl Pinned {
    /// The pins as `caller` may see them.
    fn new(name: &BackendName, kind: &'static str, snapshot: &Snapshot, caller: &Caller) -> Self {
        let all_rights = &Rights::default();
        let rights = if caller.is_operator { all_rights } else { &caller.app.rights };
        let review = &snapshot.review;
        let findings = review
            .findings
            .values()
            .filter(|finding| match finding.subject {
                Subject::Instructions => rights.include_features(name),
                Subject::Tool | Subject::Card => rights.include_tool(name, &finding.tool),
            })
            .map(|finding| Found::new(finding, review));
        Self {
            name: name.to_string(),
            kind: kind.to_owned(),
            mode: review.mode.as_str().to_owned(),
            accepted: review.known,
            digest: review.digest.clone(),
            findings: findings.collect(),
            damaged: words(caller, review.damaged.as_deref().map(str::to_owned), DAMAGED),
            unkept: words(caller, snapshot.pins_error.clone(), UNKEPT),
        }
    }
}

impl Found {
    fn new(finding: &Finding, review: &Review) -> Self {
        let hidden = finding.hidden.iter().map(|c| format!("U+{:04X}", u32::from(*c)));
        Self {
            subject: finding.subject.as_str().to_owned(),
            tool: match finding.subject {
                Subject::Tool => Some(finding.tool.clone()),
                Subject::Card | Subject::Instructions => None,
            },
            change: finding.change.as_str().to_owned(),
            withdrawn: review.withdraws(&finding.tool),
            hidden: hidden.collect(),
            diff: finding.diff(),
        }
    }
}

impl Api {
    /// The pins of the backends that the caller may use; for the operator, of all backends.
    pub(super) fn trust(&self, ApiRequest { caller, .. }: &ApiRequest) -> HandlerResult {
        let all_rights = &Rights::default();
        let rights = if caller.is_operator { all_rights } else { caller.app.rights.as_ref() };
        let all = names(&self.backends().registry.offer());
        let mine = all.iter().filter(|name| rights.include(name));
        let backends = mine.filter_map(|name| self.pinned(name, caller)).collect();
        Ok(response::json(&Trust { backends }))
    }

    /// `None` for a backend without pins: a local tool is the operator's own program. Also for a
    /// backend that the caller may not use, so that its name does not leak.
    fn pinned(&self, name: &BackendName, caller: &Caller) -> Option<Pinned> {
        let kind = status::kind(&self.backends().registry.offer(), name)?;
        let snapshot = self.backends().registry.snapshot(name.as_str())?;
        if kind == "local" { None } else { Some(Pinned::new(name, kind, &snapshot, caller)) }
    }

    /// Accepts a backend as the operator has looked at it.
    pub(super) async fn accept(&self, mut incoming: ApiRequest) -> HandlerResult {
        if !incoming.caller.is_operator {
            return Err(response::error(
                Code::OperatorOnly,
                "Accepting is for the operator of the bridge, who shows what stands in the file \
                 `operator` of its state directory as X-Bridge-Operator, or signs in to the page \
                 with it; `mantyx-bridge trust accept` does so.",
            ));
        }
        let body = self.read_json(&mut incoming, MAX_ACCEPT).await?;
        if !self.runs.wait_for_database().await {
            return Err(response::error(
                Code::NotReady,
                "The replicas' database does not answer, so nothing was accepted. Accept again once \
                 GET /readyz answers 200.",
            ));
        }
        let acceptance: Acceptance = serde_json::from_slice(&body)
            .map_err(|error| bad_request(&format!("The body cannot be used: {error}.")))?;
        let tools = match &acceptance.accept {
            Accept::Everything(Everything::All) => None,
            Accept::Tools(tools) => Some(tools.as_slice()),
        };
        let registry = &self.backends().registry;
        let all = names(&registry.offer());
        let backend = all
            .get(incoming.segment.as_str())
            .filter(|name| self.pinned(name, &incoming.caller).is_some())
            .and_then(|name| Some((name, registry.accept(name, &acceptance.digest, tools)?)));
        let Some((name, outcome)) = backend else {
            return Err(no_backend(incoming.segment, &all));
        };
        outcome.map_err(|not_taken| match not_taken {
            NotTaken::Moved => response::error(
                Code::CatalogChanged,
                "The digest is not that of what there is now, so nothing was accepted: it has \
                 changed since it was looked at. Look again.",
            ),
            NotTaken::NoSuchTool(tool) => bad_request(&format!(
                "There is nothing to accept of a tool {tool:?}, so nothing was accepted."
            )),
        })?;
        info!(backend = %name, "the operator has accepted what the backend shows");
        // If the disk is slow, the answer says so instead of waiting on.
        let on_disk = registry
            .wait_for(|registry| if registry.pins_are_settled(name) { Some(()) } else { None });
        let in_time = timeout(PATIENCE, on_disk).await.is_ok();
        let Some(mut pinned) = self.pinned(name, &incoming.caller) else {
            return Err(unknown_backend(name.to_string(), &all));
        };
        if !in_time && pinned.unkept.is_none() {
            pinned.unkept = Some("it has not been written yet".to_owned());
        }
        Ok(response::json(&pinned))
    }
}
