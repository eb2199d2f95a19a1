//! The proxy in front of MANTYX. It forwards requests below `/api/` unchanged, except the few that
//! start, feed, follow or end a run with tools of the bridge in it.
//!
//! Must not: answer a tool call (runs does), or change a body anywhere but in `tools`.

pub mod forward;
mod inject;
pub mod path;
mod redirect;
pub mod route;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tracing::{debug, warn};

pub use self::forward::Outgoing;
pub use self::inject::{INJECTED, MAX_SPEC, SELECT, injected_header, names, selection, trace};
pub use self::route::{Proxied, Resource};
use crate::http::views::Views;
use crate::http::{Body, Caller, Code, HandlerResult, response};
use crate::model::{RunKey, RunKind, SessionId, ToolUseId, Workspace, string_member};
use crate::run_store::RunStore;
use crate::runs::app_stream;

/// The largest tool result that an app may post, in bytes. MANTYX takes 2 MB of text and 5 MB of
/// files, which become 7 MB in base64.
const MAX_RESULT_BODY: usize = 16 << 20;

/// Answers a request below `/api/`.
pub async fn handle(
    (runs, views): (&Arc<RunStore>, &Views),
    (route, resource): (Proxied, Resource),
    caller: Caller,
    request: Request<Incoming>,
) -> HandlerResult {
    let mut from = Outgoing::new((runs, views), &caller, request.headers(), resource);
    from.learn().await?;
    Ok(match route {
        Proxied::CreateRun(workspace, kind) => from.create_run(workspace, kind, request).await?,
        Proxied::CreateSession(workspace) => from.create_session(workspace, request).await?,
        Proxied::Message(workspace, session) => from.message(workspace, session, request).await?,
        Proxied::EndSession(workspace, session) => {
            from.end_session(workspace, session, request).await
        }
        Proxied::Stream(key) => from.stream(key, request).await?,
        Proxied::ToolResult(key) => from.tool_result(key, request).await?,
        Proxied::Cancel(key) => from.cancel(key, request).await,
        Proxied::Other => from.forward(request).await,
    })
}

impl Outgoing<'_> {
    async fn stream(&self, key: RunKey, request: Request<Incoming>) -> HandlerResult {
        // An eval's agent run has a stream of its own, which the bridge does not read.
        let Some(run) = self.own_run(&key).await? else {
            return Ok(self.forward(request).await);
        };
        let last_seq = resume_point(request.uri().query(), request.headers());
        debug!(run = %key.run, last_seq, app = %run.app, "an app reads the run's stream");
        // A request of the app is a reason to try a lost run once more.
        self.runs.revive(&run);
        // Once MANTYX refuses a token, that token opens no stream, and an open stream of it ends.
        let reader = Arc::clone(&run);
        let credential = self.credential.clone();
        let refusal = async move { reader.wait_until_refused(&credential).await };
        match app_stream::open(&self.runs.context, Arc::clone(self.runs) as _, run, last_seq).await
        {
            Ok(events) => Ok(response::events(events).map(|body| response::until(body, refusal))),
            Err(failure) => Err(self.refused(&failure.error)),
        }
    }

    async fn tool_result(&mut self, key: RunKey, request: Request<Incoming>) -> HandlerResult {
        let (parts, body) = request.into_parts();
        let body = response::read(body, MAX_RESULT_BODY).await?;
        self.renew(&parts.headers)?;
        // Looked up after the body has arrived, as the run may have been handed over meanwhile.
        let Some(run) = self.own_run_or_eval(&key).await? else {
            return Ok(self.forward_bytes(&parts, vec![body]).await);
        };
        // An encoded result hides its `toolUseId`: it might be for a call that the bridge answers
        // itself.
        if inject::is_encoded(&parts.headers) {
            return Err(response::error(
                Code::UnsupportedEncoding,
                "The bridge has to read for which call of its run a result is; send it without \
                 Content-Encoding.",
            ));
        }
        let text = std::str::from_utf8(&body).ok();
        let Some(tool_use) = text.and_then(|text| string_member(text, "toolUseId")) else {
            return Err(response::error(
                Code::InvalidRequest,
                "The body is not one JSON object with a text as `toolUseId`, once.",
            ));
        };
        let tool_use = ToolUseId::from(tool_use);
        if run.owns(&key.run, &tool_use) {
            warn!(run = %key.run, toolUseId = %tool_use, app = %run.app, "an app answered a call of ours");
            return Err(response::error(
                Code::UnknownToolUse,
                "The bridge answers this call itself.",
            ));
        }
        Ok(self.forward_bytes(&parts, vec![body]).await)
    }

    async fn cancel(&self, key: RunKey, request: Request<Incoming>) -> Response<Body> {
        let response = self.forward_in_time(request).await;
        // MANTYX decides who may end a run, so the bridge acts only on its success.
        if response.status().is_success() {
            let app = &self.caller.app.name;
            let own = self.runs.get_or_resume(&key, app, &self.credential);
            let run = match key.kind {
                RunKind::Agent => own.or_else(|| self.runs.eval_of(&key)),
                RunKind::Eval => own,
            };
            if let Some(run) = run.filter(|run| run.app == *app) {
                self.runs.cancel(&run, &key);
            }
        }
        response
    }

    async fn end_session(
        &self,
        workspace: Workspace,
        session: SessionId,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let response = self.forward_in_time(request).await;
        if response.status().is_success() {
            self.runs.end_session(&workspace, &session);
        }
        response
    }
}

/// Where an app wants to resume: `?lastSeq=`, else `Last-Event-ID`, else the start
/// (agent-runs-protocol §7).
fn resume_point(query: Option<&str>, headers: &HeaderMap) -> u64 {
    let in_query = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .find(|(key, _)| key == "lastSeq")
        .and_then(|(_, value)| value.parse().ok());
    in_query
        .or_else(|| headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok())
        .unwrap_or(0)
}

/// The id under `key` in MANTYX's answer to a submission or a creation.
pub fn id_in<T: From<String>>(body: &Bytes, key: &str) -> Option<T> {
    Some(string_member(std::str::from_utf8(body).ok()?, key)?.into())
}

#[cfg(test)]
mod tests {
    //! Where a stream resumes.

    use super::*;

    #[track_caller]
    fn check(query: Option<&str>, header: Option<&str>, expected: u64) {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert("last-event-id", header.parse().unwrap());
        }
        assert_eq!(resume_point(query, &headers), expected);
    }

    #[test]
    fn the_query_comes_before_the_header() {
        check(None, None, 0);
        check(Some("lastSeq=7"), None, 7);
        check(Some("a=b&lastSeq=7"), Some("5"), 7);
        check(None, Some("5"), 5);
        check(Some("lastSeq=x"), Some("5"), 5);
        check(None, Some("-1"), 0);
    }
}
