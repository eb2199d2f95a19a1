//! Logins: what a person has granted the bridge at the issuer of a backend's tokens. The bridge
//! keeps the refresh token, and renews the access token; a person comes back only when the issuer
//! has ended the login.
//!
//! A login begins with [`Logins::begin`], which finds the issuer and gives an address for a
//! browser. The issuer sends the browser back, and [`Logins::returned`] exchanges its code.
//!
//! Only the daemon exchanges tokens, one exchange at a time for each login, in a task that outlives
//! its caller. Commands such as `doctor` never do: a refresh token that is shown twice ends the
//! login at issuers that rotate them.
//!
//! Must not: send a token anywhere but to its issuer and its backend; or let a token, a code, a
//! verifier, a state, or an issuer's free text into a message.

mod authorization;
mod callback;
mod discovery;
mod exchange;
mod failure;
mod flows;
mod grant;
mod login;
mod metadata;
mod record;
mod registration;
mod registrations;
mod seal;
mod store;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};
use url::Url;

use self::authorization::{Authorization, ScopeSources, digest, secret};
use self::callback::{ExpectedIssuer, Return};
use self::discovery::{Discovery, Network};
use self::exchange::register;
use self::failure::LoginResult;
use self::flows::{Closed, Flows, LIFE, MAX_OPEN, Plan, Proof, Unreturned};
use self::login::Shared;
use self::record::{Client, Endpoints};
use self::registrations::Registrations;
use self::store::Store;
use crate::config::{LoginClient, ResourceParameter, SealKey};
use crate::http_client::address::shown;
use crate::metrics::Counter;
use crate::model::BackendName;
use crate::model::catalog::hex;
use crate::oauth::Issue as _;
use crate::oauth::endpoint::ClientAuthMethod;
use crate::state_dir::StateDir;
use crate::{clock, http_client};

pub use self::discovery::LoginSettings;
pub use self::exchange::Revocation;
pub use self::failure::{FailureKind, LoginFailure};
pub use self::grant::Grant;
pub use self::login::{Login, LoginProblem, LoginView, Tokens};
pub use self::record::LoginState;

/// A token is renewed when this much of its life is left.
const MARGIN: Duration = Duration::from_secs(60);
/// The path that issuers send browsers to.
pub const CALLBACK: &str = "/oauth/callback";
/// The path below which a login begins in a browser.
pub const START: &str = "/oauth/start";
/// The path of the bridge's own client metadata, where the operator has named it as a `client_id`.
pub const CLIENT: &str = "/oauth/client.json";

/// All logins of the daemon.
#[derive(Debug)]
pub struct Logins {
    store: Arc<Store>,
    public_url: Url,
    http: http_client::Client,
    /// Logins are not kept at all: the journal is shared with other replicas.
    is_refused: bool,
    is_reader: bool,
    entries: Mutex<BTreeMap<BackendName, Entry>>,
    flows: Mutex<Flows>,
    /// The logins of the last minutes, the oldest first, for those who wait for their ends.
    attempts: Mutex<VecDeque<Attempt>>,
    registrations: Registrations,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The login of one backend.
#[derive(Debug)]
struct Entry {
    shared: Arc<Shared>,
    tokens: Arc<Tokens>,
}

/// A login that has begun.
#[derive(derive_more::Debug)]
#[debug("Begun({id})")]
pub struct Begun {
    pub id: String,
    /// The bridge's address for a browser of this machine.
    pub url: String,
    /// The issuer's address, for a browser that does not reach the bridge.
    pub issuer_url: String,
    /// The issuer, for people.
    pub issuer: String,
    pub expires: SystemTime,
}

/// How a login that has begun stands.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub id: String,
    pub backend: BackendName,
    /// `None` while it is open.
    pub outcome: Option<Result<(), LoginFailure>>,
    until: Instant,
}

impl Logins {
    /// The logins that `state` keeps. `is_shared`: the journal is shared with other replicas, and
    /// no login is kept.
    pub fn new(
        state: StateDir,
        seal_keys: &[SealKey],
        public_url: Url,
        is_shared: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            is_refused: is_shared,
            ..Self::open_in(state, seal_keys, public_url, false)
        })
    }

    /// The logins for a command that only looks at them, while a daemon may run.
    pub fn for_reading(state: StateDir, seal_keys: &[SealKey]) -> Arc<Self> {
        let public_url = Url::parse("http://127.0.0.1").expect("an address");
        Arc::new(Self::open_in(state, seal_keys, public_url, true))
    }

    fn open_in(state: StateDir, seal_keys: &[SealKey], public_url: Url, is_reader: bool) -> Self {
        let store = Arc::new(Store::new(state, seal_keys));
        Self {
            registrations: Registrations::new(Arc::clone(&store)),
            store,
            public_url,
            http: http_client::new(),
            is_refused: false,
            is_reader,
            entries: Mutex::default(),
            flows: Mutex::default(),
            attempts: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// The login for a connection to `backend`, which may be none yet.
    pub fn login(&self, backend: &BackendName) -> Arc<Login> {
        let mut entries = self.entries.lock();
        let entry = entries.entry(backend.clone()).or_insert_with(|| self.open(backend));
        Arc::new(entry.shared.login(&entry.tokens))
    }

    fn open(&self, backend: &BackendName) -> Entry {
        let shared = Shared::new(
            backend.clone(),
            Arc::clone(&self.store),
            self.http.clone(),
            (self.tasks.clone(), self.stop.clone()),
            self.is_reader,
        );
        let grant = Grant(Arc::clone(&shared));
        let tokens = Tokens::new(Some(backend.clone()), grant, MARGIN, self.tasks.clone());
        if self.is_reader {
            return Entry { shared, tokens };
        }
        let keeper = keep_fresh(Arc::clone(&shared), Arc::clone(&tokens));
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(keeper).await;
        });
        Entry { shared, tokens }
    }

    /// Takes the settings of a new configuration. A backend without settings takes no login; one
    /// that was removed keeps its login on disk, and nothing renews it.
    pub fn set(&self, mut settings: BTreeMap<BackendName, LoginSettings>) {
        if self.is_refused {
            settings.clear();
        }
        let entries = self.entries.lock();
        for (backend, Entry { shared, tokens }) in &*entries {
            shared.set(settings.remove(backend));
            if !tokens.issuer.is_ready() {
                // The address of the backend may be another server's now.
                tokens.forget();
            }
            if let Some(kept) = shared.kept_token()
                && !tokens.has_token()
            {
                tokens.seed(kept);
            }
            // Not earlier: a token would be renewed in place of the one that is kept.
            shared.announce_settings();
        }
    }

    fn shared(&self, backend: &str) -> Option<Arc<Shared>> {
        self.entries.lock().get(backend).map(|entry| Arc::clone(&entry.shared))
    }

    /// Where issuers send browsers back to.
    pub fn redirect_uri(&self) -> Url {
        self.public_url.join(CALLBACK).expect("an origin and a path")
    }

    /// The metadata of the bridge as a client, for issuers that fetch it from an address which is
    /// the client's id. `None` where the address of the bridge is none that they take.
    pub fn client_metadata(&self) -> Option<serde_json::Value> {
        if self.public_url.scheme() != "https" {
            return None;
        }
        let id = self.public_url.join(CLIENT).expect("an origin and a path");
        Some(serde_json::json!({
            "client_id": id.as_str(),
            "client_name": "mantyx-bridge",
            "redirect_uris": [self.redirect_uri().as_str()],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }))
    }

    pub fn needs_login(&self, backend: &str) -> bool {
        self.shared(backend).is_some_and(|shared| shared.needs_login())
    }

    pub fn problems(&self, backend: &str) -> Vec<LoginProblem> {
        let shared = self.shared(backend);
        shared.map(|shared| shared.problems(&self.redirect_uri())).unwrap_or_default()
    }

    /// The login at `backend`, if there is one.
    pub fn view(&self, backend: &str) -> Option<LoginView> {
        self.shared(backend)?.view()
    }

    /// Why the login at `backend` is not on disk, if so.
    pub fn why_unwritten(&self, backend: &str) -> Option<String> {
        self.shared(backend)?.why_unwritten()
    }

    /// The exchanges of the login at `backend`, by outcome.
    pub fn refreshes(&self, backend: &str) -> Option<Vec<(&'static str, Counter)>> {
        Some(self.shared(backend)?.refreshes.cloned())
    }

    /// Whether the server's refusal leads to an issuer, so that a login may help.
    pub async fn leads_to_issuer(&self, backend: &str) -> bool {
        let Some(shared) = self.shared(backend) else { return false };
        let Some(settings) = shared.settings() else { return false };
        let challenge = shared.challenge().unwrap_or_else(|| settings.silent());
        Network::new(&settings, &self.http).leads_to_issuer(&challenge).await
    }

    pub fn list(&self) -> Vec<LoginView> {
        let entries = self.entries.lock();
        entries.values().filter_map(|entry| entry.shared.view()).collect()
    }

    /// The logins that have begun within the last minutes.
    pub fn attempts(&self) -> Vec<Attempt> {
        let now = Instant::now();
        let attempts = self.attempts.lock();
        attempts.iter().filter(|attempt| now < attempt.until).cloned().collect()
    }

    /// Begins a login at `backend`: finds its issuer, and registers the bridge there if need be.
    /// `more_scopes` are asked for in addition.
    pub async fn begin(&self, backend: &str, more_scopes: &[String]) -> LoginResult<Begun> {
        if self.is_refused {
            return Err(failure::shared_state());
        }
        let shared = self.shared(backend).ok_or_else(|| failure::no_login(backend))?;
        let settings = shared.settings().ok_or_else(|| failure::no_login(backend))?;
        let (unreturned, room) = {
            let mut flows = self.flows.lock();
            (self.close_earlier(&mut flows, &shared.backend), flows.check_room())
        };
        for client in unreturned {
            self.registrations.doubt(client);
        }
        room?;
        if let Some((issuer, redirect_uri)) = shared.take_refused_client() {
            self.registrations.doubt(Unreturned { issuer, redirect_uri });
        }
        let network = Network::new(&settings, &self.http);
        let challenge = match shared.challenge() {
            Some(challenge) => challenge,
            None => network.probe().await,
        };
        let found = network.discover(&challenge).await?;
        let is_configured = settings.client.id.is_some();
        if let Some(why) = found.issuer.unsafe_because(is_configured) {
            return Err(failure::unusable(&found.issuer.issuer, why));
        }
        let client = self.client(&network, &settings.client, &found).await?;
        let mut more = shared.missing_scopes();
        more.extend_from_slice(more_scopes);
        let scopes = ScopeSources {
            configured: &settings.client.scopes,
            of_challenge: &challenge.scopes(),
            of_resource: &found.resource_scopes,
            more: &more,
            of_issuer: &found.issuer.scopes,
        };
        self.open_flow(
            &shared,
            &found.issuer.authorization_endpoint,
            Plan {
                id: String::new(),
                backend: shared.backend.clone(),
                server: settings.server.clone(),
                resource: match &settings.client.resource {
                    ResourceParameter::ByBackend => Some(found.resource.clone()),
                    ResourceParameter::Text(text) => Some(text.clone()),
                    ResourceParameter::Off => None,
                },
                audience: settings.client.audience.clone(),
                scopes: scopes.chosen(),
                client,
                issuer: ExpectedIssuer {
                    name: found.issuer.issuer.clone(),
                    is_sent: found.issuer.returns_issuer,
                },
                endpoints: Endpoints {
                    token: found.issuer.token_endpoint.clone(),
                    revocation: found.issuer.revocation_endpoint.clone(),
                },
                verifier: SecretString::default(),
            },
        )
    }

    /// Closes the open logins of `backend`, which begins another one, and tells those who wait for
    /// them; and all that have taken too long.
    fn close_earlier(&self, flows: &mut Flows, backend: &BackendName) -> Vec<Unreturned> {
        let Closed { replaced, unreturned } = flows.close_unreturned(Some(backend), Instant::now());
        let mut attempts = self.attempts.lock();
        for attempt in attempts.iter_mut().filter(|attempt| replaced.contains(&attempt.id)) {
            attempt.outcome = Some(Err(failure::replaced()));
        }
        unreturned
    }

    fn list_attempt(&self, attempt: Attempt, now: Instant) {
        let mut attempts = self.attempts.lock();
        attempts.retain(|attempt| now < attempt.until);
        if attempts.len() == 2 * MAX_OPEN {
            attempts.pop_front();
        }
        attempts.push_back(attempt);
    }

    /// Opens the login that `plan` describes, which lacks its proofs still.
    fn open_flow(&self, shared: &Shared, endpoint: &Url, plan: Plan) -> LoginResult<Begun> {
        let draw =
            || secret().map_err(|error| failure::refused(format!("no random bytes: {error}")));
        let (ticket, state, verifier) = (draw()?, draw()?, draw()?);
        let address = Authorization {
            endpoint,
            client_id: &plan.client.id,
            redirect_uri: &plan.client.redirect_uri,
            state: &state,
            verifier: &verifier,
            scopes: &plan.scopes,
            resource: plan.resource.as_deref(),
            audience: plan.audience.as_deref(),
        }
        .address();
        let issuer = plan.issuer.name.clone();
        let id = hex(&digest(state.expose_secret())).get(..16).unwrap_or_default().to_owned();
        let plan = Plan { id: id.clone(), verifier, ..plan };
        let now = Instant::now();
        let (ticket, state) = (ticket.expose_secret(), state.expose_secret());
        let attempt = Attempt {
            id: id.clone(),
            backend: shared.backend.clone(),
            outcome: None,
            until: now + LIFE,
        };
        let (unreturned, opened) = {
            let mut flows = self.flows.lock();
            // Another one may have begun while the issuer was asked. One lock closes that one,
            // opens this one and lists it: of a backend, one login is open, and one attempt.
            let unreturned = self.close_earlier(&mut flows, &shared.backend);
            let opened = flows.open(plan, ticket, state, address.clone(), now);
            if opened.is_ok() {
                self.list_attempt(attempt, now);
            }
            (unreturned, opened)
        };
        for client in unreturned {
            self.registrations.doubt(client);
        }
        opened?;
        let url = self.public_url.join(&format!("{START}/{ticket}"));
        Ok(Begun {
            id,
            url: url.expect("an origin and a path").into(),
            issuer_url: address.into(),
            issuer: Url::parse(&issuer).map_or(issuer, |url| shown(&url)),
            expires: clock::now() + LIFE,
        })
    }

    /// The client for a login: the configured one, or a registered one.
    async fn client(
        &self,
        network: &Network<'_>,
        configured: &LoginClient,
        found: &Discovery,
    ) -> LoginResult<Client> {
        let redirect_uri = self.redirect_uri();
        let methods = found.issuer.auth_methods.as_deref();
        if let Some(id) = &configured.id {
            let in_body = methods.is_some_and(|methods| {
                let has = |name: &str| methods.iter().any(|method| method == name);
                has("client_secret_post") && !has("client_secret_basic")
            });
            let auth_method = match configured.auth_method {
                ClientAuthMethod::InHeader if !configured.method_is_configured && in_body => {
                    ClientAuthMethod::InBody
                }
                auth_method => auth_method,
            };
            return Ok(Client {
                id: id.clone(),
                secret: None,
                auth_method,
                redirect_uri,
                registration_uri: None,
                is_configured: true,
            });
        }
        let name = &found.issuer.issuer;
        let Some(endpoint) = &found.issuer.registration_endpoint else {
            let why = "lets no client register itself";
            return Err(failure::no_registration(name, why, &redirect_uri));
        };
        let register = async {
            let client = register(network, endpoint, &redirect_uri, methods).await;
            client.map_err(|why| failure::no_registration(name, why, &redirect_uri))
        };
        self.registrations.client(name, &redirect_uri, register).await
    }

    /// The issuer's address for the browser that has opened the bridge's with `ticket`, once; and
    /// the value of the cookie that the browser is to keep.
    pub fn start(&self, ticket: &str) -> Option<(Url, SecretString)> {
        let cookie = secret().ok()?;
        let address = self.flows.lock().start(ticket, cookie.expose_secret(), Instant::now())?;
        Some((address, cookie))
    }

    /// Takes the query with which an issuer has sent a browser back that has these cookies.
    pub async fn returned(
        self: &Arc<Self>,
        query: &str,
        cookies: &[&str],
    ) -> LoginResult<BackendName> {
        self.finish_flow(query, Proof::Cookies(cookies)).await
    }

    /// Takes the address that the caller who began a login at `backend` has pasted.
    pub async fn pasted(
        self: &Arc<Self>,
        backend: &str,
        address: &str,
    ) -> LoginResult<BackendName> {
        let shared = self.shared(backend).ok_or_else(|| failure::no_login(backend))?;
        let query = address.split_once('?').map_or("", |(_, query)| query);
        let query = query.split('#').next().unwrap_or_default();
        self.finish_flow(query, Proof::Beginner(&shared.backend)).await
    }

    /// Ends an open login with what the issuer says. The code is exchanged in a task: the browser
    /// may be gone before the answer is there, which alone has the tokens.
    async fn finish_flow(
        self: &Arc<Self>,
        query: &str,
        proof: Proof<'_>,
    ) -> LoginResult<BackendName> {
        let back = Return::read(query).ok_or_else(failure::ended)?;
        let plan = self.flows.lock().take(&back.state, proof, Instant::now())?;
        let (this, backend) = (Arc::clone(self), plan.backend.clone());
        let code = back.code(&plan.issuer);
        // A browser that goes away does not end a login for those who wait for its outcome.
        let flow_end = self.tasks.spawn(async move { this.end_flow(plan, code).await });
        flow_end.await.unwrap_or_else(|_panic| Err(failure::exchange_failed())).map(|()| backend)
    }

    /// Exchanges the code, and tells the outcome to those who wait for the attempt.
    async fn end_flow(
        self: Arc<Self>,
        plan: Plan,
        code: LoginResult<SecretString>,
    ) -> LoginResult<()> {
        let (id, backend) = (plan.id.clone(), plan.backend.clone());
        let outcome = match code {
            Err(failure) => Err(failure),
            Ok(code) => {
                let this = Arc::clone(&self);
                let exchange = self.tasks.spawn(async move { this.exchange(plan, &code).await });
                exchange.await.unwrap_or_else(|_panic| Err(failure::exchange_failed()))
            }
        };
        if let Err(failure) = &outcome {
            info!(%backend, "a login came to nothing: {failure}");
        }
        let mut attempts = self.attempts.lock();
        if let Some(attempt) = attempts.iter_mut().find(|attempt| attempt.id == id) {
            attempt.outcome = Some(outcome.clone());
        }
        outcome
    }

    /// Waits at most `within` until exchanges have ended and their tokens are written.
    pub async fn finish(&self, within: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(within, self.tasks.wait()).await.is_err() {
            error!("an exchange of a login has not ended in time");
        }
    }
}

/// Keeps a fresh token ready as long as there is a login that can be renewed.
async fn keep_fresh(shared: Arc<Shared>, tokens: Arc<Tokens>) {
    let mut states = shared.states();
    loop {
        states.borrow_and_update();
        let is_renewed = shared.is_renewed();
        let renewal = async {
            if is_renewed {
                tokens.keep_fresh().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            changed = states.changed() => if changed.is_err() { return },
            () = renewal => {}
        }
    }
}

#[cfg(test)]
mod tests;
