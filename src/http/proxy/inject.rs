//! The requests with a spec: the bridge injects refs into the spec, and a run driver starts before
//! the app gets its answer.
//!
//! Must not: know the shape of a spec (model/spec.rs does).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::timeout;
use tracing::{info, warn};

use super::forward::{ASK_WITHIN, away};
use super::{Body, Code, HandlerResult, Outgoing, id_in, response};
use crate::error_chain::error_chain;
use crate::model::ids::as_segment;
use crate::model::spec::{InjectError, Injected, SpecError};
use crate::model::{
    Offer, RunKey, RunKind, Selection, SessionId, Spec, Table, Trace, Workspace, trace,
};
use crate::run_store::{How, NotStarted, Owned, Session};
use crate::runs::NewRun;

/// The largest spec, in bytes; specs can carry attachments (DESIGN: the proxied body limit).
pub const MAX_SPEC: usize = 64 << 20;
/// About how many bytes of a spec take as long to read as one tool takes to be put into it.
const TOOL: usize = 256;
/// The largest answer to a submission, in bytes; it holds two short strings.
const MAX_ANSWER: usize = 1 << 20;
/// How long MANTYX may take to answer a submission; it needs seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10 * 60);
/// The header that names the backends whose tools a run gets; `none` for none.
pub const SELECT: &str = "x-bridge-backends";
/// The header that says how many tools of each backend went into a spec.
pub const INJECTED: &str = "x-bridge-injected";

/// A request with a spec, all of which has arrived.
struct Submission {
    parts: Parts,
    body: Bytes,
    selection: Selection,
    /// It has a Content-Encoding, so that the bridge cannot parse it.
    is_encoded: bool,
}

/// What goes to MANTYX in place of the app's body, and the tools that the app's own body has.
/// `None` is the app's body as it came: it gets no tools, and the bridge does not drive the run.
type Plan = Option<(Injected, Option<Bytes>)>;

/// MANTYX's answer to a spec.
struct SpecAnswer {
    response: Response<Body>,
    text: Bytes,
    /// The tools that the spec got.
    table: Table,
    /// The first words of the run's prompt.
    prompt: Box<str>,
}

impl Outgoing<'_> {
    /// Forwards the creation of a run below `workspace`, and drives the run.
    pub async fn create_run(
        &mut self,
        workspace: Workspace,
        kind: RunKind,
        request: Request<Incoming>,
    ) -> HandlerResult {
        let submission = self.read_submission(request, false).await?;
        let plan = self.plan(kind, &submission).await?;
        // The plan may have waited for its turn.
        self.renew(&submission.parts.headers)?;
        self.submit(submission, plan, (workspace, kind), None).await
    }

    pub(super) async fn create_session(
        &mut self,
        workspace: Workspace,
        request: Request<Incoming>,
    ) -> HandlerResult {
        let submission = self.read_submission(request, false).await?;
        let app = self.caller.app.name.clone();
        let (injected, tools) = self.plan(RunKind::Agent, &submission).await?.unzip();
        self.renew(&submission.parts.headers)?;
        let SpecAnswer { response, text, table, .. } =
            self.send_spec(&submission.parts, submission.body, injected).await?;
        let session: Option<SessionId> =
            if response.status().is_success() { id_in(&text, "sessionId") } else { None };
        match (session, tools) {
            (Some(id), Some(tools)) => {
                if !table.is_empty() {
                    info!(session = %id, %app, "a session got our tools");
                }
                let contents = (tools, submission.selection, table);
                let key = (workspace, id);
                if !self.runs.remember_session(key.clone(), app, contents).await {
                    return Err(self.end_unkept_session(&key).await);
                }
            }
            // The bridge records the owner of a session without tools, too, so that other apps
            // cannot use it.
            (Some(id), None) => {
                self.runs.own(Owned::Session(workspace, id), &app, How::Created).await;
            }
            (None, Some(_)) if response.status().is_success() => {
                warn!("MANTYX's answer names no sessionId; its runs cannot be driven");
            }
            (None, _) => {}
        }
        Ok(response)
    }

    pub(super) async fn message(
        &mut self,
        workspace: Workspace,
        id: SessionId,
        request: Request<Incoming>,
    ) -> HandlerResult {
        let got_tools = gave_tools(self.runs.session(&workspace, &id).as_deref());
        let submission = self.read_submission(request, got_tools).await?;
        let plan = self.plan_message(&workspace, &id, &submission).await?;
        self.renew(&submission.parts.headers)?;
        self.submit(submission, plan, (workspace, RunKind::Agent), Some(id)).await
    }

    /// What goes to MANTYX in place of a message of the session `id`.
    ///
    /// The session is looked up after the body has arrived: it may have been created or have ended
    /// meanwhile. A message of a session with tools of the bridge is refused if the bridge cannot
    /// read it: MANTYX may accept that spec, and the calls of its run would then stay unanswered.
    async fn plan_message(
        &self,
        workspace: &Workspace,
        id: &SessionId,
        submission: &Submission,
    ) -> HandlerResult<Plan> {
        let session = self.runs.session(workspace, id);
        let got_tools = gave_tools(session.as_deref());
        let gives_nothing = self.gives_nothing(&submission.selection);
        match self.read_spec(RunKind::Agent, submission.body.clone()).await? {
            _ if submission.is_encoded && got_tools => Err(encoded()),
            _ if submission.is_encoded => Ok(None),
            Err(error) if got_tools => Err(error.into()),
            Err(error @ (SpecError::TooManyTools | SpecError::TooManyMembers))
                if !gives_nothing =>
            {
                Err(error.into())
            }
            // The bridge records the owner of a run without tools, too.
            Err(_unreadable) => Ok(None),
            Ok(spec) => match session {
                _ if spec.has_tools() => self.plan_for(spec, submission).await,
                Some(session) => self.follow(spec, session).await,
                None => {
                    info!(session = %id, "an unknown session; forwarded unchanged");
                    Ok(None)
                }
            },
        }
    }

    /// A message without tools, in a session that got tools of the bridge. It keeps those tools; if
    /// catalogs have changed since, the run gets new refs.
    async fn follow(&self, spec: Spec, session: Arc<Session>) -> HandlerResult<Plan> {
        let offer = self.offer();
        if !session.table.differs_from(&offer) {
            let (body, table) = (spec.untouched(), Table::clone(&session.table));
            let counts = std::collections::BTreeMap::new();
            let prompt = Box::default();
            return Ok(Some((Injected { body, table, counts, prompt }, None)));
        }
        let remembered = session.tools.clone().unwrap_or_else(|| Bytes::from_static(b"[]"));
        let bytes = remembered.len() + size(&offer);
        let injected = self
            .views
            .work_if_large(&self.caller.app.name, bytes, move || -> HandlerResult<Injected> {
                let spec = spec.with_tools(&remembered)?;
                Ok(spec.inject(&offer, &session.selection)?)
            })
            .await??;
        Ok(Some((injected, None)))
    }

    /// Parses a spec.
    async fn read_spec(
        &self,
        kind: RunKind,
        body: Bytes,
    ) -> HandlerResult<Result<Spec, SpecError>> {
        let (app, size) = (&self.caller.app.name, body.len());
        Ok(self.views.work_if_large(app, size, move || Spec::read(kind, body)).await?)
    }

    /// Whether a spec without placeholders certainly gets no tools.
    fn gives_nothing(&self, selection: &Selection) -> bool {
        match selection {
            Selection::Named(names) => names.is_empty(),
            Selection::All => self.offer().backends().next().is_none(),
        }
    }

    /// The tools that the app may use now; its rights may have changed while the spec arrived.
    fn offer(&self) -> Arc<Offer> {
        self.runs.calls.offer_for(&self.caller.app)
    }

    /// Reads the spec into memory: what is forwarded depends on all of it. `got_tools` says that
    /// its session has tools of the bridge.
    async fn read_submission(
        &mut self,
        request: Request<Incoming>,
        got_tools: bool,
    ) -> HandlerResult<Submission> {
        // Without its owner on record, another replica would give the run to any app that asks.
        if !self.runs.wait_for_database().await {
            return Err(away(self.runs));
        }
        let (mut parts, body) = request.into_parts();
        let selection = selection(&parts.headers);
        let is_encoded = is_encoded(&parts.headers);
        if is_encoded && (got_tools || !self.gives_nothing(&selection)) {
            return Err(encoded());
        }
        let body = response::read(body, MAX_SPEC).await?;
        // The bridge has to read MANTYX's answer, so it must not be compressed.
        parts.headers.remove(header::ACCEPT_ENCODING);
        // Waits until backends that are starting are known: a stub in place of their tools would
        // stay in the spec.
        self.runs.calls.backends.registry.started().await;
        self.renew(&parts.headers)?;
        Ok(Submission { parts, body, selection, is_encoded })
    }

    async fn plan(&self, kind: RunKind, submission: &Submission) -> HandlerResult<Plan> {
        if submission.is_encoded {
            return Ok(None);
        }
        match self.read_spec(kind, submission.body.clone()).await? {
            Ok(spec) => self.plan_for(spec, submission).await,
            Err(_unreadable) if self.gives_nothing(&submission.selection) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn plan_for(&self, spec: Spec, submission: &Submission) -> HandlerResult<Plan> {
        let selection = submission.selection.clone();
        let bytes = submission.body.len() + size(&self.offer());
        let (runs, app) = (Arc::clone(self.runs), Arc::clone(&self.caller.app));
        let plan = self
            .views
            .work_if_large(&self.caller.app.name, bytes, move || -> HandlerResult<_> {
                Ok((spec.inject(&runs.calls.offer_for(&app), &selection)?, spec.tools()))
            })
            .await??;
        Ok(Some(plan))
    }

    /// Sends a spec and drives the run that MANTYX creates.
    async fn submit(
        &self,
        submission: Submission,
        plan: Plan,
        (workspace, kind): (Workspace, RunKind),
        session: Option<SessionId>,
    ) -> HandlerResult {
        let injected = plan.map(|(injected, _)| injected);
        let SpecAnswer { response, text, table, prompt } =
            self.send_spec(&submission.parts, submission.body, injected).await?;
        if !response.status().is_success() {
            return Ok(response);
        }
        let Some(run) = id_in(&text, "runId") else {
            warn!("MANTYX's answer names no runId; the calls of this run cannot be answered");
            return Ok(response);
        };
        let app = &self.caller.app.name;
        if let Some(session) = &session {
            let owned = Owned::Session(workspace.clone(), session.clone());
            self.runs.own(owned, app, How::Attached).await;
        }
        if table.is_empty() {
            self.runs.own(Owned::Run(RunKey { workspace, kind, run }), app, How::Created).await;
            return Ok(response);
        }
        let new = NewRun {
            key: RunKey { workspace, kind, run },
            app: app.clone(),
            session,
            credential: self.credential.clone(),
            table: Arc::new(table),
            prompt,
            has_past: false,
            past_is_lost: false,
            trace: self.runs.context.traces.context(trace(&submission.parts.headers)),
        };
        match self.runs.start(new).await {
            Ok(_) => {}
            Err(NotStarted::Driven(run)) => {
                warn!(run = %run.key.run, "MANTYX gave out an id again; that run is driven already");
            }
            Err(NotStarted::Taken) => {
                warn!("MANTYX gave out an id again; that run is another app's, and not driven");
            }
            Err(NotStarted::NotKept(run)) => {
                // Whatever MANTYX says: the app may submit the run again, and no call of both is to
                // be made.
                self.runs.refuse(&run).await;
                return Err(away(self.runs));
            }
        }
        Ok(response)
    }

    /// Sends a spec, or the app's own body.
    async fn send_spec(
        &self,
        parts: &Parts,
        body: Bytes,
        injected: Option<Injected>,
    ) -> HandlerResult<SpecAnswer> {
        let Some(injected) = injected else {
            let (response, text) = self.exchange(parts, vec![body]).await?;
            let (table, prompt) = (Table::empty(), Box::default());
            return Ok(SpecAnswer { response, text, table, prompt });
        };
        // A restart would lose the run, and leave its calls without answers.
        if self.runs.disk_fails() && !injected.table.is_empty() {
            return Err(away(self.runs));
        }
        let counts = injected_header(&injected);
        let Injected { body, table, prompt, .. } = injected;
        let (mut response, text) = self.exchange(parts, body).await?;
        if response.status().is_success() {
            response.headers_mut().insert(INJECTED, counts);
        }
        Ok(SpecAnswer { response, text, table, prompt })
    }

    /// Ends a session at MANTYX that a restart would lose, or of which other replicas cannot know:
    /// to them, it would be any app's.
    async fn end_unkept_session(&self, (workspace, id): &(Workspace, SessionId)) -> Response<Body> {
        let [workspace_segment, id_segment] = [workspace.as_str(), id.as_str()].map(as_segment);
        let path = format!("/api/v1/workspaces/{workspace_segment}/agent-sessions/{id_segment}");
        let answer =
            self.runs.upstream.send((Method::DELETE, &path), &self.credential, |request| {
                Ok(request.body(Vec::new()).timeout(ASK_WITHIN))
            });
        let outcome = match answer.await {
            Ok(answer) => answer.status().to_string(),
            Err(error) => error_chain(&error),
        };
        warn!(path, outcome, "asked MANTYX to end a session that cannot be kept");
        away(self.runs)
    }

    /// Forwards a request whose effect concerns the bridge, with a time limit for MANTYX's answer.
    pub(super) async fn forward_in_time(&self, request: Request<Incoming>) -> Response<Body> {
        in_time(self.forward(request)).await.unwrap_or_else(|late| late)
    }

    /// Sends a body and reads the short answer: returns the answer for the app, and its text.
    async fn exchange(
        &self,
        parts: &Parts,
        body: Vec<Bytes>,
    ) -> HandlerResult<(Response<Body>, Bytes)> {
        let (parts, body) = in_time(self.forward_bytes(parts, body)).await?.into_parts();
        let text = response::read_anyway(body, MAX_ANSWER).await.map_err(|error| {
            warn!(%error, "MANTYX's answer to a submission cannot be read");
            response::error(
                Code::UpstreamBroken,
                "MANTYX's answer broke off. The run may have been created; look before you send \
                 it again.",
            )
        })?;
        Ok((Response::from_parts(parts, response::full(text.clone())), text))
    }
}

/// MANTYX's answer, within `ANSWER_WITHIN`. The limit covers only this wait, not the whole request:
/// once MANTYX has answered, the bridge records the effect and drives the run, however long that
/// takes.
async fn in_time(answer: impl Future<Output = Response<Body>>) -> HandlerResult {
    timeout(ANSWER_WITHIN, answer).await.map_err(|_late| {
        warn!("MANTYX has not answered a request within {ANSWER_WITHIN:?}");
        let message = "MANTYX has not answered for too long. The request may have taken effect; \
                       look before you send it again.";
        let late = response::error(Code::UpstreamBroken, message);
        response::with_status(late, StatusCode::GATEWAY_TIMEOUT)
    })
}

/// Whether the bridge gave tools to `session`.
fn gave_tools(session: Option<&Session>) -> bool {
    session.is_some_and(|session| !session.table.is_empty())
}

/// As many bytes of a spec as take as long to read as the tools of `offer` take to be put into one.
fn size(offer: &Offer) -> usize {
    offer.backends().map(|(_, offered)| offered.tools * TOOL).sum()
}

/// Whether a body has to be decoded before it can be parsed. `identity` means that it need not.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    codings.any(|coding| {
        let coding = coding.trim_ascii();
        !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
    })
}

/// The trace that a request belongs to.
pub fn trace(headers: &HeaderMap) -> Option<Arc<Trace>> {
    let states = texts_of(headers, trace::STATE).unwrap_or_default();
    Trace::read(&texts_of(headers, trace::PARENT)?, &states).map(Arc::new)
}

/// All values of a header; `None` if one of them is no text.
fn texts_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<Vec<&'a str>> {
    headers.get_all(name).iter().map(|value| value.to_str().ok()).collect()
}

/// The selection in `X-Bridge-Backends`.
pub fn selection(headers: &HeaderMap) -> Selection {
    let Some(value) = headers.get(SELECT) else { return Selection::All };
    Selection::Named(names(&String::from_utf8_lossy(value.as_bytes())))
}

/// The names in a list such as `fs,hr`; none in `none`.
pub fn names(list: &str) -> Vec<String> {
    let names = list.split(',').map(str::trim);
    names.filter(|name| !name.is_empty() && *name != "none").map(str::to_owned).collect()
}

/// `X-Bridge-Injected: fs=11, hr=1`.
pub fn injected_header(injected: &Injected) -> HeaderValue {
    let counts = injected.counts.iter().map(|(name, tools)| format!("{name}={tools}"));
    let text = counts.collect::<Vec<_>>().join(", ");
    HeaderValue::try_from(text).expect("backend names and numbers are ASCII")
}

/// The answer to a spec that the bridge cannot parse because of its Content-Encoding.
fn encoded() -> Response<Body> {
    response::error(
        Code::UnsupportedEncoding,
        "The bridge has to read a spec that it puts tools into; send it without Content-Encoding.",
    )
}

impl From<SpecError> for Response<Body> {
    fn from(error: SpecError) -> Self {
        response::error(Code::InvalidRequest, &format!("The spec cannot be given tools: {error}."))
    }
}

/// The answer to a spec that asks for tools that the bridge cannot inject.
impl From<InjectError> for Response<Body> {
    fn from(error: InjectError) -> Self {
        let message = error.to_string();
        match error {
            InjectError::UnknownBackend { candidates, .. } => {
                let candidates = serde_json::json!({ "candidates": candidates });
                response::error_with(Code::UnknownBackend, &message, candidates)
            }
            InjectError::Refused(_) => response::error(Code::BackendUnavailable, &message),
        }
    }
}

#[cfg(test)]
mod tests {
    //! How long a submission waits.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_submission_that_is_not_answered_has_an_end() {
        let late = in_time(std::future::pending()).await.expect_err("it never comes");
        assert_eq!(late.status(), StatusCode::GATEWAY_TIMEOUT);
        let slow = async {
            tokio::time::sleep(ANSWER_WITHIN / 2).await;
            Response::new(response::full("a"))
        };
        assert!(in_time(slow).await.is_ok());
    }
}
