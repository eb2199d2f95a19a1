//! Tokens by a refresh token (RFC 6749, 6; agent-runs-protocol §2.2).
//!
//! MANTYX returns the same refresh token. If an issuer returns another one, the bridge keeps that
//! in the state directory, and uses it until the configured one changes.
//!
//! Must not: show a token.

use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::stored_token::{GrantId, StoredToken};
use crate::config::RefreshGrant;
use crate::http_client::Client;
use crate::oauth::endpoint::{ClientAuthMethod, TokenRequest};
use crate::oauth::{Issue, IssueResult, Issued};

/// Gets tokens for the application that the bridge is registered as.
#[derive(Debug)]
pub(super) struct RefreshTokenGrant {
    config: Arc<RefreshGrant>,
    http: Client,
    stored: Arc<StoredToken>,
    auth_method: Mutex<ClientAuthMethod>,
}

impl RefreshTokenGrant {
    pub(super) fn new(config: Arc<RefreshGrant>, http: Client, stored: Arc<StoredToken>) -> Self {
        // MANTYX's own clients begin this way.
        let auth_method = Mutex::new(ClientAuthMethod::InBody);
        Self { config, http, stored, auth_method }
    }

    pub(super) fn is_of(&self, config: &RefreshGrant) -> bool {
        *self.config == *config
    }

    /// A hash of the configured grant. A change of the configured refresh token changes the hash,
    /// so that the kept token is not used for it.
    pub(super) fn id(&self) -> GrantId {
        let RefreshGrant { token_url, client_id, refresh_token, client_secret: _ } = &*self.config;
        let mut hash = Sha256::new();
        for part in [token_url.as_str(), client_id, refresh_token.expose_secret()] {
            hash.update(part);
            hash.update([0]);
        }
        hash.finalize().into()
    }

    /// One exchange. A new refresh token is stored before the tokens are given out: if the process
    /// ended between the two, only the issuer would have it, and the grant would be lost.
    async fn ask(&self, refresh_token: &SecretString) -> IssueResult<Issued> {
        let RefreshGrant { token_url, client_id, client_secret, refresh_token: _ } = &*self.config;
        let request = TokenRequest {
            url: token_url,
            place: &token_url.to_string(),
            audience: "",
            client_id,
            client_secret,
            method_is_configured: false,
            grant: "refresh_token",
            fields: &[("refresh_token", Some(refresh_token.expose_secret()))],
        };
        let mut auth_method = *self.auth_method.lock();
        let granted = request
            .send_and_store(&self.http, &mut auth_method, async |next| {
                if next.expose_secret() != refresh_token.expose_secret() {
                    self.stored.put(self.id(), next).await;
                }
            })
            .await;
        *self.auth_method.lock() = auth_method;
        Ok(granted?.issued)
    }

    /// The valid refresh token: the kept one that replaced the configured one, if there is one.
    async fn refresh_token(&self) -> SecretString {
        let replacement = self.stored.get(&self.id()).await;
        replacement.unwrap_or_else(|| SecretString::clone(&self.config.refresh_token))
    }
}

impl Issue for RefreshTokenGrant {
    type Hint = ();

    fn hint(_: &reqwest::Response) {}

    fn is_ready(&self) -> bool {
        true
    }

    /// One exchange at a time: an issuer that rotates refresh tokens ends the grant if the same one
    /// is shown twice. If the issuer says that the grant has ended, the token on disk is read once
    /// more: another process, such as `doctor`, may have exchanged the old one and stored its
    /// successor.
    async fn issue(&self, _: Option<&()>) -> IssueResult<Issued> {
        let _turn = self.stored.turn.lock().await;
        let shown = self.refresh_token().await;
        let ended = match self.ask(&shown).await {
            Err(error) if error.grant_ended => error,
            outcome => return outcome,
        };
        let present = self.refresh_token().await;
        if present.expose_secret() == shown.expose_secret() {
            return Err(ended);
        }
        self.ask(&present).await
    }
}

#[cfg(test)]
mod tests;
