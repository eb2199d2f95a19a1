//! Credentials, the workspace in the path, and the routes.
//!
//! Must not: know the content of a body.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Body, Refusal, Reply, Sandbox, json, results, runs, sessions, stream};

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_mins(2);
/// How much of a refused request is still read, and for how long, so that the client gets to read
/// the refusal. If the connection closed while it writes, it would see a broken connection.
const DRAIN_BYTES: usize = 128 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The catalog of models (agent-runs-protocol §3).
const MODELS: &str = include_str!("models.json");

/// Answers one request.
pub(super) async fn answer(
    sandbox: &Arc<Sandbox>,
    stop: &CancellationToken,
    request: Request<Incoming>,
) -> Response<Body> {
    let (parts, mut body) = request.into_parts();
    match dispatch(sandbox, stop, &parts, &mut body).await {
        Ok(response) => response,
        Err(refusal) => {
            drain(&mut body).await;
            refusal.into_response()
        }
    }
}

async fn dispatch(
    sandbox: &Arc<Sandbox>,
    stop: &CancellationToken,
    parts: &Parts,
    body: &mut Incoming,
) -> Reply {
    let path = parts.uri.path();
    let Some(below) = path.strip_prefix("/api/v1/workspaces/") else { return Err(unknown(path)) };
    authorize(sandbox, &parts.headers)?;
    let (workspace, below) = below.split_once('/').unwrap_or((below, ""));
    let path_workspace = percent_decode_str(workspace).decode_utf8();
    let workspace = &sandbox.config.workspace;
    if path_workspace.ok().as_deref() != Some(workspace) {
        // §2 calls this error `not_found`; §2.3 shows this text as `error`.
        let text = "Workspace path does not match this credential";
        let mut refusal = Refusal::only(StatusCode::NOT_FOUND, text);
        refusal.body["code"] = "not_found".into();
        refusal.body["hint"] = format!("Use /api/v1/workspaces/{workspace}/").into();
        return Err(refusal);
    }
    // The sandbox's own ids contain no encoded characters.
    let segments: Vec<&str> = below.split('/').collect();
    let query = parts.uri.query().unwrap_or_default();
    let body = match parts.method {
        Method::POST => read_body(body, sandbox.config.limits.body_bytes).await?,
        _ => Bytes::new(),
    };
    match (parts.method.as_str(), segments.as_slice()) {
        ("GET", ["models"]) => {
            let models: Value = serde_json::from_str(MODELS).expect("the file is JSON");
            Ok(json(StatusCode::OK, &models))
        }
        ("POST", ["agent-runs"]) => runs::create(sandbox, &body),
        ("GET", ["agent-runs", id]) => runs::snapshot(sandbox, id),
        ("GET", ["agent-runs", id, "stream"]) => {
            let run = runs::find(sandbox, id)?;
            let seq = stream::place(query, &parts.headers)?;
            Ok(stream::respond(run, seq, sandbox.config.heartbeat, stop.clone()))
        }
        ("POST", ["agent-runs", id, "tool-results"]) => results::post(sandbox, id, &body),
        ("POST", ["agent-runs", id, "cancel"]) => runs::cancel(sandbox, id),
        ("POST", ["agent-sessions"]) => sessions::create(sandbox, &body),
        ("GET", ["agent-sessions", id]) => sessions::snapshot(sandbox, id),
        ("DELETE", ["agent-sessions", id]) => sessions::end(sandbox, id),
        ("POST", ["agent-sessions", id, "messages"]) => sessions::message(sandbox, id, &body),
        (method, _) => Err(unknown(&format!("{method} {path}"))),
    }
}

pub(super) fn unknown(what: &str) -> Refusal {
    Refusal::not_found(format!("the sandbox does not have {what}"))
}

/// Checks the credential (agent-runs-protocol §2.3).
fn authorize(sandbox: &Sandbox, headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization")
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let Some(credential) = bearer.or_else(|| text("x-api-key")) else {
        return Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "API key or OAuth access token required: send Authorization: Bearer or X-API-Key",
        ));
    };
    let ours = sandbox.config.credential.expose_secret();
    if bool::from(credential.as_bytes().ct_eq(ours.as_bytes())) {
        return Ok(());
    }
    Err(Refusal::only(StatusCode::UNAUTHORIZED, "Invalid API key or OAuth access token"))
}

pub(super) async fn read_body(body: &mut Incoming, limit: usize) -> Result<Bytes, Refusal> {
    match timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body is larger than {limit} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message))
        }
        Ok(Err(error)) => Err(format!("the body broke off: {error}").into()),
        Err(_elapsed) => {
            let message = "the body did not come in time";
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}

async fn drain(body: &mut Incoming) {
    let mut limited = Limited::new(body, DRAIN_BYTES);
    // The rest is cut off with the connection.
    drop(timeout(DRAIN_TIMEOUT, async { while let Some(Ok(_)) = limited.frame().await {} }).await);
}
