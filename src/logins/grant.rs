//! Renews the tokens of a login, and notes what its backend's answers say about it.
//!
//! Must not: show a refresh token to an issuer twice. `oauth::Tokens` has one exchange under way at
//! a time, and what it brings is written before it is judged.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use tracing::warn;

use super::discovery::Network;
use super::login::{Shared, Usable};
use super::metadata::is_same_issuer;
use super::record::{Client, LoginState};
use crate::clock;
use crate::http_client::address::shown;
use crate::metrics::RefreshOutcome;
use crate::oauth::challenge::Challenge;
use crate::oauth::endpoint::{Granted, TokenRequest};
use crate::oauth::{Issue, IssueError, IssueResult, Issued};

/// Renews the tokens of a login.
#[derive(Debug, Clone)]
pub struct Grant(pub(super) Arc<Shared>);

impl Shared {
    /// Ends the login if the server names another issuer by now, which refuses the tokens of the
    /// earlier one.
    async fn check_issuer(self: &Arc<Self>, challenge: &Challenge, usable: &Usable) -> bool {
        let network = Network::new(&usable.settings, &self.http);
        let Ok(Some(metadata)) = network.resource(challenge).await else { return true };
        let is_named =
            metadata.issuers.iter().any(|name| is_same_issuer(name, &usable.record.issuer));
        if is_named || metadata.issuers.is_empty() {
            return true;
        }
        self.end(usable.generation, "the server names another issuer of its tokens").await;
        false
    }

    /// Exchanges the refresh token.
    async fn refresh(
        self: &Arc<Self>,
        usable: &Usable,
        refresh_token: &SecretString,
    ) -> IssueResult<Granted> {
        let Usable { settings, record, generation } = usable;
        let Client { id, secret, mut auth_method, .. } = record.client.clone();
        let own_secret = settings.client.secret.as_deref().cloned();
        let secret = if record.client.is_configured { own_secret } else { secret };
        let endpoint = &record.endpoints.token;
        let request = TokenRequest {
            url: endpoint,
            place: &shown(endpoint),
            audience: &record.issuer,
            client_id: &id,
            client_secret: &secret.unwrap_or_default(),
            method_is_configured: true,
            grant: "refresh_token",
            fields: &[
                ("refresh_token", Some(refresh_token.expose_secret())),
                ("resource", record.resource.as_deref()),
            ],
        };
        let http = Network::new(settings, &self.http).client(endpoint);
        let keep = async |next: SecretString| {
            self.secrets.add(&next);
            if self.update(*generation, |record| record.refresh = Some(next)) {
                self.save().await;
            }
        };
        request.send_and_store(&http, &mut auth_method, keep).await
    }

    /// Notes what an exchange has brought.
    async fn take(self: &Arc<Self>, generation: u64, granted: &Granted) {
        let expires = granted.issued.lifetime.map(|lifetime| clock::now() + lifetime);
        self.secrets.add(&granted.access_token);
        self.update(generation, |record| {
            record.access = Some(granted.access_token.clone());
            record.expires = expires;
            if let Some(scope) = &granted.scope {
                record.scopes = scope.split_ascii_whitespace().map(str::to_owned).collect();
            }
        });
        self.save().await;
    }
}

impl Issue for Grant {
    type Hint = Challenge;

    fn hint(response: &reqwest::Response) -> Challenge {
        Challenge::read(response)
    }

    fn is_ready(&self) -> bool {
        self.0.usable().is_some()
    }

    /// Without a login, a refusal is the server's answer; it may say where a login is made.
    fn answers_refusal(&self, challenge: &Challenge) -> bool {
        self.0.refused(challenge);
        self.0.usable().is_some()
    }

    /// Notes the use, and a scope that the token lacks. The server has not run such a request.
    fn note(&self, response: &reqwest::Response) {
        let shared = &self.0;
        let Some(usable) = shared.used() else { return };
        if response.status() != http::StatusCode::FORBIDDEN {
            return;
        }
        let challenge = Challenge::read(response);
        if !challenge.wants_more_scope() {
            return;
        }
        let mut scopes = usable.record.scopes.clone();
        scopes.extend(usable.record.missing_scopes.iter().cloned());
        scopes.extend(challenge.scopes());
        scopes.sort_unstable();
        scopes.dedup();
        let is_news = shared.update(usable.generation, |record| {
            record.state = LoginState::NeedsScopes;
            record.missing_scopes = scopes;
        });
        if is_news {
            let cure = format!("mantyx-bridge login {}", shared.backend);
            warn!(backend = %shared.backend, cure, "a call has lacked a scope");
            let this = Arc::clone(shared);
            shared.tasks.spawn(async move { this.save().await });
        }
    }

    async fn issue(&self, challenge: Option<&Challenge>) -> IssueResult<Issued> {
        let shared = &self.0;
        let cure = format!("log in with `mantyx-bridge login {}`", shared.backend);
        let ended = |why: &str| IssueError {
            grant_ended: true,
            ..IssueError::lasting(format!("{why}; {cure}"))
        };
        let Some(usable) = shared.usable() else {
            return Err(ended("there is no login"));
        };
        if shared.is_reader() {
            let why = "its token has expired, and only the daemon renews the login";
            return Err(IssueError::lasting(why.to_owned()));
        }
        if let Some(challenge) = challenge
            && !shared.check_issuer(challenge, &usable).await
        {
            return Err(ended("the server names another issuer of its tokens"));
        }
        let Some(refresh_token) = usable.record.refresh.clone() else {
            let why = "its token has expired, and the issuer gave no refresh token";
            shared.end(usable.generation, why).await;
            return Err(ended(why));
        };
        let outcome = shared.refresh(&usable, &refresh_token).await;
        shared.count(match &outcome {
            Ok(_) => RefreshOutcome::Renewed,
            Err(error) if error.grant_ended || error.client_refused => RefreshOutcome::Ended,
            Err(_) => RefreshOutcome::Failed,
        });
        match outcome {
            Ok(granted) => {
                shared.take(usable.generation, &granted).await;
                Ok(granted.issued)
            }
            Err(error) if error.grant_ended => {
                shared.end(usable.generation, "the issuer has ended it (invalid_grant)").await;
                Err(ended(&error.text))
            }
            Err(error) if error.client_refused => {
                let why = "the issuer knows no such client (invalid_client)";
                shared.refuse_client();
                shared.end(usable.generation, why).await;
                Err(ended(&error.text))
            }
            Err(error) => Err(error),
        }
    }
}
