//! `/v1/logins`: the logins that the bridge keeps at backends, for the operator.
//!
//! Must not: show a token; or let an app make a login, which would be everyone's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::routes::ApiRequest;
use super::{
    Api, App, Body, HandlerResult, Response, bad_request, no_backend, operator_only, response,
};
use crate::clock::rfc3339;
use crate::http::Code;
use crate::logins::{Attempt, Begun, FailureKind, LoginFailure, LoginView, Revocation};
use crate::model::BackendName;

/// The largest body, in bytes: a pasted address.
const MAX_BODY: usize = 64 * 1024;
const LOGINS: &str = "The logins at backends";

/// All logins of the bridge.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LoginList {
    pub(crate) logins: Vec<Login>,
    /// The logins that have begun within the last minutes, the oldest first.
    pub(crate) attempts: Vec<LoginAttempt>,
}

/// One login.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Login {
    pub(crate) backend: String,
    /// Whose it is; `null`: the bridge's.
    person: Option<Person>,
    pub(crate) issuer: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) since: String,
    /// When a request has last had its token, since the daemon started.
    pub(crate) last_used: Option<String>,
    /// When it ends by itself; `null` as long as the bridge can renew it.
    pub(crate) expires_at: Option<String>,
    /// `ok`, `ended` or `needs_scopes`.
    pub(crate) state: String,
    /// Why it is not on disk, so that a restart would lose it; only if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unwritten: Option<String>,
}

/// A person, as the issuer names them.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Person {
    id: String,
    name: String,
}

/// A login that a person has begun.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LoginAttempt {
    pub(crate) id: String,
    backend: String,
    /// `open`, `done` or `failed`.
    pub(crate) state: String,
    /// Why it failed.
    pub(crate) error: Option<String>,
}

/// What a new login asks for.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginRequest {
    /// Scopes to ask for in addition.
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
}

/// What a person does next.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoginBegun {
    /// Names it among the `attempts` of `GET /v1/logins`.
    pub(crate) id: String,
    /// The bridge's address to open in a browser, once.
    pub(crate) url: String,
    /// The issuer's address, for a browser that does not reach the bridge: the address that it
    /// comes back to is then pasted.
    pub(crate) issuer_url: String,
    pub(crate) issuer: String,
    pub(crate) expires_at: String,
}

/// The address that a browser came back to.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PastedAddress {
    pub(crate) url: String,
}

/// What became of a login that was removed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LoginEnd {
    /// Whether the issuer has ended it, too.
    pub(crate) revoked: bool,
    /// Why not.
    pub(crate) reason: Option<String>,
}

impl From<LoginView> for Login {
    fn from(view: LoginView) -> Self {
        Self {
            backend: view.backend.to_string(),
            person: None,
            issuer: view.issuer,
            scopes: view.scopes,
            since: rfc3339(view.since),
            last_used: view.last_used.map(rfc3339),
            expires_at: view.expires.map(rfc3339),
            state: view.state.as_str().to_owned(),
            unwritten: view.unwritten,
        }
    }
}

impl From<Attempt> for LoginAttempt {
    fn from(attempt: Attempt) -> Self {
        let (state, error) = match attempt.outcome {
            None => ("open", None),
            Some(Ok(())) => ("done", None),
            Some(Err(failure)) => ("failed", Some(failure.to_string())),
        };
        let backend = attempt.backend.to_string();
        Self { id: attempt.id, backend, state: state.to_owned(), error }
    }
}

impl From<Begun> for LoginBegun {
    fn from(begun: Begun) -> Self {
        let Begun { id, url, issuer_url, issuer, expires } = begun;
        Self { id, url, issuer_url, issuer, expires_at: rfc3339(expires) }
    }
}

impl From<Revocation> for LoginEnd {
    fn from(revocation: Revocation) -> Self {
        let reason = match revocation {
            Revocation::Revoked => None,
            Revocation::NoEndpoint => Some("the issuer has no way to end a login".to_owned()),
            Revocation::Failed(why) => Some(format!("the issuer has not confirmed it: {why}")),
        };
        Self { revoked: reason.is_none(), reason }
    }
}

fn refusal(failure: &LoginFailure) -> Response<Body> {
    let code = match failure.kind {
        FailureKind::NoLogin => Code::InvalidRequest,
        FailureKind::TooMany => Code::TooManyRequests,
        FailureKind::Refused => Code::LoginFailed,
        FailureKind::Ended => Code::LoginEnded,
    };
    response::error(code, &failure.to_string())
}

impl Api {
    pub(super) fn list_logins(&self, ApiRequest { caller, .. }: &ApiRequest) -> HandlerResult {
        operator_only(caller, LOGINS)?;
        let logins = &self.facts.logins;
        Ok(response::json(&LoginList {
            logins: logins.list().into_iter().map(Login::from).collect(),
            attempts: logins.attempts().into_iter().map(LoginAttempt::from).collect(),
        }))
    }

    pub(super) async fn begin_login(&self, mut incoming: ApiRequest) -> HandlerResult {
        let backend = self.backend_of_login(&incoming)?;
        let request: LoginRequest =
            if incoming.request.headers().contains_key(http::header::CONTENT_TYPE) {
                let body = self.read_json(&mut incoming, MAX_BODY).await?;
                serde_json::from_slice(&body).map_err(|error| bad_request(&format!("{error}.")))?
            } else {
                LoginRequest::default()
            };
        let begun = self.facts.logins.begin(backend.as_str(), &request.scopes).await;
        begun.map(|begun| response::json(&LoginBegun::from(begun))).map_err(|why| refusal(&why))
    }

    pub(super) async fn end_login(&self, incoming: ApiRequest) -> HandlerResult {
        operator_only(&incoming.caller, LOGINS)?;
        match self.facts.logins.logout(&incoming.segment).await.map_err(|why| refusal(&why))? {
            Some(revocation) => Ok(response::json(&LoginEnd::from(revocation))),
            None => {
                let message = format!("There is no login at `{}`.", incoming.segment);
                Err(response::error(Code::NotFound, &message))
            }
        }
    }

    pub(super) async fn paste_login(&self, mut incoming: ApiRequest) -> HandlerResult {
        let backend = self.backend_of_login(&incoming)?;
        let body = self.read_json(&mut incoming, MAX_BODY).await?;
        let pasted: PastedAddress = serde_json::from_slice(&body)
            .map_err(|_bad| bad_request("The body is not {\"url\": …}."))?;
        let outcome = self.facts.logins.pasted(backend.as_str(), &pasted.url).await;
        outcome.map(|_| response::json(&json!({ "state": "done" }))).map_err(|why| refusal(&why))
    }

    /// The bridge's own metadata as a client.
    pub(super) fn client_metadata(&self, _app: Option<&App>) -> Response<Body> {
        match self.facts.logins.client_metadata() {
            Some(metadata) => response::json(&metadata),
            None => {
                response::error(Code::NotFound, "The bridge has no https address to be known by.")
            }
        }
    }

    fn backend_of_login(&self, incoming: &ApiRequest) -> HandlerResult<BackendName> {
        operator_only(&incoming.caller, LOGINS)?;
        let handles = self.backends().handles();
        let name = handles.get_key_value(incoming.segment.as_str()).map(|(name, _)| name.clone());
        name.ok_or_else(|| no_backend(incoming.segment.clone(), &handles.keys().cloned().collect()))
    }
}
