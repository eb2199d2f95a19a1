//! What is asked of an issuer for a login: a client, tokens for a code, and an end.
//!
//! Must not: ask anything of another address than the plan or the record of the login names.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{sleep, timeout};
use tracing::info;
use url::Url;

use super::discovery::{LoginSettings, Network};
use super::failure::{self, LoginResult};
use super::flows::{Plan, Unreturned};
use super::login::issued;
use super::record::{Client, LoginState, Record};
use super::{Logins, registration};
use crate::error_chain::error_chain;
use crate::http_client::address::shown;
use crate::oauth::IssueError;
use crate::oauth::endpoint::{ClientAuthMethod, Granted, PATIENCE, TokenRequest};
use crate::{clock, http_client};

/// The largest answer of a registration endpoint, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// The waits before a code is shown again where the endpoint gave no answer. Codes live for a
/// minute or more.
const CODE_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// What became of a login that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revocation {
    Revoked,
    /// The issuer has no endpoint for that; the login ends there by itself.
    NoEndpoint,
    /// Why the issuer may not have ended it.
    Failed(String),
}

impl Logins {
    /// Exchanges the code, and keeps the login. It is on disk before anything else is made of it.
    pub(super) async fn exchange(&self, plan: Plan, code: &SecretString) -> LoginResult<()> {
        let gone = || failure::no_login(&plan.backend);
        let (shared, tokens) = {
            let entries = self.entries.lock();
            let entry = entries.get(&plan.backend).ok_or_else(gone)?;
            (Arc::clone(&entry.shared), Arc::clone(&entry.tokens))
        };
        let settings = shared.settings().ok_or_else(gone)?;
        let mut auth_method = plan.client.auth_method;
        let granted =
            self.granted(&settings, &plan, code, &mut auth_method).await.map_err(|error| {
                if error.client_refused && !plan.client.is_configured {
                    self.registrations.doubt(Unreturned {
                        issuer: plan.issuer.name.clone(),
                        redirect_uri: plan.client.redirect_uri.clone(),
                    });
                }
                failure::refused(error.text)
            })?;
        self.registrations.confirm(&plan.issuer.name, &plan.client);
        let now = clock::now();
        let has_refresh_token = granted.refresh_token.is_some();
        let scopes = match &granted.scope {
            Some(scope) => scope.split_ascii_whitespace().map(str::to_owned).collect(),
            None => plan.scopes.clone(),
        };
        let lacks: Vec<&str> = plan
            .scopes
            .iter()
            .map(String::as_str)
            .filter(|scope| !scopes.iter().any(|one| one == scope))
            .collect();
        if !lacks.is_empty() {
            info!(backend = %plan.backend, scopes = lacks.join(" "), "the issuer has not granted all scopes");
        }
        let record = Record {
            server: plan.server,
            issuer: plan.issuer.name,
            endpoints: plan.endpoints,
            resource: plan.resource,
            client: Client { auth_method, ..plan.client },
            scopes,
            missing_scopes: Vec::new(),
            refresh: granted.refresh_token,
            access: Some(granted.access_token.clone()),
            expires: granted.issued.lifetime.map(|lifetime| now + lifetime),
            since: now,
            state: LoginState::Ok,
            end: None,
        };
        shared.install(record).await;
        // Without a refresh token, the token is used until the server refuses it.
        let lifetime = granted.issued.lifetime.filter(|_| has_refresh_token);
        tokens.seed(issued(&granted.access_token, lifetime).unwrap_or(granted.issued));
        shared.announce();
        info!(backend = %plan.backend, "a person has logged in for the bridge");
        Ok(())
    }

    /// Asks for tokens; `auth_method` becomes the way in which the client's secret was taken. Where
    /// the endpoint gives no answer, the code is shown again while it lives.
    async fn granted(
        &self,
        settings: &LoginSettings,
        plan: &Plan,
        code: &SecretString,
        auth_method: &mut ClientAuthMethod,
    ) -> Result<Granted, IssueError> {
        let endpoint = &plan.endpoints.token;
        let own_secret = settings.client.secret.as_deref().cloned();
        let secret =
            if plan.client.is_configured { own_secret } else { plan.client.secret.clone() };
        let request = TokenRequest {
            url: endpoint,
            place: &shown(endpoint),
            audience: &plan.issuer.name,
            client_id: &plan.client.id,
            client_secret: &secret.unwrap_or_default(),
            // Some issuers take a secret in another way than they have registered it for.
            method_is_configured: settings.client.method_is_configured && plan.client.is_configured,
            grant: "authorization_code",
            fields: &[
                ("code", Some(code.expose_secret())),
                ("redirect_uri", Some(plan.client.redirect_uri.as_str())),
                ("code_verifier", Some(plan.verifier.expose_secret())),
                ("resource", plan.resource.as_deref()),
                ("audience", plan.audience.as_deref()),
            ],
        };
        let http = Network::new(settings, &self.http).client(endpoint);
        let mut pauses = CODE_PAUSES.into_iter();
        loop {
            let outcome = request.send(&http, auth_method).await;
            match (outcome, pauses.next()) {
                (Err(error), Some(pause)) if error.passes => sleep(pause).await,
                (outcome, _) => return outcome,
            }
        }
    }

    /// Ends the login at `backend`: at the issuer where it can, and here in any case. `None`: there
    /// is none.
    ///
    /// # Errors
    ///
    /// Its file is still there, so that the next process would have the login again.
    pub async fn logout(&self, backend: &str) -> LoginResult<Option<Revocation>> {
        let Some(revocation) = self.end(backend).await else { return Ok(None) };
        let entries = self.entries.lock();
        match entries.get(backend).and_then(|entry| entry.shared.why_unwritten()) {
            Some(why) => Err(failure::not_removed(backend, why)),
            None => Ok(Some(revocation)),
        }
    }

    async fn end(&self, backend: &str) -> Option<Revocation> {
        let (shared, tokens) = {
            let entries = self.entries.lock();
            let entry = entries.get(backend)?;
            (Arc::clone(&entry.shared), Arc::clone(&entry.tokens))
        };
        if !shared.has_login() {
            return None;
        }
        let forgotten = shared.forget().await;
        tokens.forget();
        shared.announce();
        info!(backend, "the login was removed");
        let Some((record, own_secret)) = forgotten else { return Some(Revocation::NoEndpoint) };
        let Some(endpoint) = &record.endpoints.revocation else {
            return Some(Revocation::NoEndpoint);
        };
        let (token, hint) = match (&record.refresh, &record.access) {
            (Some(refresh), _) => (refresh, "refresh_token"),
            (None, Some(access)) => (access, "access_token"),
            (None, None) => return Some(Revocation::NoEndpoint),
        };
        let secret = match (record.client.is_configured, own_secret) {
            (true, Some(own)) => SecretString::clone(&own),
            (true, None) => SecretString::default(),
            (false, _) => record.client.secret.clone().unwrap_or_default(),
        };
        let request = TokenRequest {
            url: endpoint,
            place: &shown(endpoint),
            audience: &record.issuer,
            client_id: &record.client.id,
            client_secret: &secret,
            method_is_configured: true,
            grant: "",
            fields: &[("token", Some(token.expose_secret())), ("token_type_hint", Some(hint))],
        };
        let http = match shared.settings() {
            Some(settings) => Network::new(&settings, &self.http).client(endpoint),
            None => http_client::elsewhere(),
        };
        match request.revoke(&http, record.client.auth_method).await {
            Ok(()) => Some(Revocation::Revoked),
            Err(why) => Some(Revocation::Failed(why)),
        }
    }
}

/// Registers the bridge as a client. The error completes "the issuer …".
pub(super) async fn register(
    network: &Network<'_>,
    endpoint: &Url,
    redirect_uri: &Url,
    methods: Option<&[String]>,
) -> Result<Client, String> {
    let client = network.client(endpoint);
    let request = client
        .post(endpoint.clone())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(registration::request(redirect_uri, methods));
    let exchange = async {
        let response =
            client.send(request).await.map_err(|error| error_chain(&error.without_url()))?;
        let status = response.status();
        let body = http_client::body(response, MAX_ANSWER).await;
        Ok((status, body.map_err(|error| error.to_string())?))
    };
    let answer = timeout(PATIENCE, exchange)
        .await
        .unwrap_or_else(|_late| Err(format!("none in {} s", PATIENCE.as_secs())));
    let (status, body) =
        answer.map_err(|why| format!("gave no answer to the registration of a client: {why}"))?;
    registration::read(status, &String::from_utf8_lossy(&body), redirect_uri, methods)
}
