//! Why a login cannot be made, in sentences for operators.
//!
//! Must not: repeat what an issuer writes, beyond codes that OAuth knows.

use std::fmt::Display;

/// A login could not begin, or came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct LoginFailure {
    pub kind: FailureKind,
    text: String,
}

/// What kind of failure it is, as far as the answer to a request depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The backend takes no login.
    NoLogin,
    /// Too many are open, or a limit of registrations is used up.
    TooMany,
    /// The server or its issuer does not allow it, or answers what cannot be used.
    Refused,
    /// The address that came back belongs to no open login, or proves nothing.
    Ended,
}

pub(super) type LoginResult<T> = Result<T, LoginFailure>;

fn failure(kind: FailureKind, text: String) -> LoginFailure {
    LoginFailure { kind, text }
}

pub(super) fn refused(text: impl Into<String>) -> LoginFailure {
    failure(FailureKind::Refused, text.into())
}

pub(super) fn not_removed(backend: impl Display, why: impl Display) -> LoginFailure {
    failure(
        FailureKind::Refused,
        format!(
            "the login at `{backend}` has ended here, and its file is still there: {why}. The \
             bridge tries to remove it again; a restart before that takes the login up again"
        ),
    )
}

pub(super) fn no_login(backend: impl Display) -> LoginFailure {
    failure(
        FailureKind::NoLogin,
        format!(
            "`{backend}` takes no login: only an MCP server with a `url` does, whose `auth` is \
             left out or says `oauth: {{login: bridge}}`"
        ),
    )
}

/// Replicas would refresh the same login at the same time, which ends it at many issuers.
pub(super) fn shared_state() -> LoginFailure {
    failure(
        FailureKind::NoLogin,
        "logins are not kept with `state.postgres` yet: replicas that renew the same login would \
         end it at the issuer; use `bearer` or client credentials for this backend"
            .to_owned(),
    )
}

pub(super) fn too_many_open(most: usize) -> LoginFailure {
    failure(FailureKind::TooMany, format!("{most} logins are open; finish one, or wait 10 minutes"))
}

pub(super) fn too_many_registrations(issuer: impl Display, most: usize) -> LoginFailure {
    failure(
        FailureKind::TooMany,
        format!(
            "the bridge has registered {most} clients at {issuer} within the hour; wait, or \
             register a client there by hand and set `auth.oauth.client_id`"
        ),
    )
}

pub(super) fn no_registration(
    issuer: impl Display,
    why: impl Display,
    redirect_uri: impl Display,
) -> LoginFailure {
    refused(format!(
        "{issuer} {why}: register a client there by hand, with the redirect URI {redirect_uri}, \
         and set `auth.oauth.client_id`"
    ))
}

pub(super) fn no_issuer(server: impl Display) -> LoginFailure {
    refused(format!(
        "{server} does not say where its tokens are issued; set `auth.oauth.issuer`, or give it \
         another credential"
    ))
}

pub(super) fn other_issuer(server: impl Display, issuer: impl Display) -> LoginFailure {
    refused(format!(
        "{server} does not name {issuer} as an issuer of its tokens; correct `auth.oauth.issuer`"
    ))
}

pub(super) fn unusable(place: impl Display, why: impl Display) -> LoginFailure {
    refused(format!("the metadata at {place} cannot be used: it {why}"))
}

/// The exchange panicked; the log has why.
pub(super) fn exchange_failed() -> LoginFailure {
    refused("the exchange of the code has failed")
}

pub(super) fn ended() -> LoginFailure {
    failure(
        FailureKind::Ended,
        "this login has ended; begin again with `mantyx-bridge login`".to_owned(),
    )
}

pub(super) fn replaced() -> LoginFailure {
    failure(
        FailureKind::Ended,
        "another login at this backend has begun, which ends this one: finish that one, or begin \
         again"
            .to_owned(),
    )
}

pub(super) fn declined() -> LoginFailure {
    refused("the login was declined")
}

pub(super) fn issuer_error(code: Option<&str>) -> LoginFailure {
    match code {
        Some(code) => refused(format!("the issuer refused the login ({code})")),
        None => refused("the issuer refused the login, with an error that OAuth does not know"),
    }
}
