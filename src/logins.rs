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
mod failure;
mod flows;
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

use http::header::{ACCEPT, CONTENT_TYPE};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};
use url::Url;

use self::authorization::{Authorization, ScopeSources, digest, secret};
use self::callback::{ExpectedIssuer, Return};
use self::discovery::{Discovery, Network};
use self::failure::LoginResult;
use self::flows::{Flows, LIFE, MAX_OPEN, Plan, Proof, Unreturned};
use self::login::{Shared, issued};
use self::record::{Client, Endpoints, Record};
use self::registrations::Registrations;
use self::store::Store;
use crate::config::{LoginClient, ResourceParameter, SealKey};
use crate::error_chain::error_chain;
use crate::http_client::address::shown;
use crate::model::BackendName;
use crate::model::catalog::hex;
use crate::oauth::{Issue as _, IssueError};
use crate::oauth::endpoint::{Granted, PATIENCE, Question, Shows};
use crate::state_dir::StateDir;
use crate::{clock, http_client};

pub use self::discovery::LoginSettings;
pub use self::failure::{FailureKind, LoginFailure};
pub use self::login::{Grant, Login, LoginProblem, LoginView, Tokens};
pub use self::record::LoginState;

/// A token is renewed when this much of its life is left.
const MARGIN: Duration = Duration::from_secs(60);
/// The largest answer of a registration endpoint, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// The waits before a code is shown again where the endpoint gave no answer. Codes live for a
/// minute or more.
const CODE_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
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
    /// The logins that `state` keeps. `is_shared`: the journal is shared with other replicas, and
    /// no login is kept.
    pub fn new(
        state: StateDir,
        seal_keys: &[SealKey],
        public_url: Url,
        is_shared: bool,
    ) -> Arc<Self> {
        let store = Arc::new(Store::new(state, seal_keys));
        Arc::new(Self {
            registrations: Registrations::new(Arc::clone(&store)),
            store,
            public_url,
            http: http_client::new(),
            is_refused: is_shared,
            entries: Mutex::default(),
            flows: Mutex::default(),
            attempts: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
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
            self.tasks.clone(),
            self.stop.clone(),
        );
        let grant = Grant(Arc::clone(&shared));
        let tokens = Tokens::new(Some(backend.clone()), grant, MARGIN, self.tasks.clone());
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
    /// `more_scopes` are asked for beside the usual ones.
    pub async fn begin(&self, backend: &str, more_scopes: &[String]) -> LoginResult<Begun> {
        if self.is_refused {
            return Err(failure::shared_state());
        }
        let shared = self.shared(backend).ok_or_else(|| failure::no_login(backend))?;
        let settings = shared.settings().ok_or_else(|| failure::no_login(backend))?;
        let unreturned = {
            let mut flows = self.flows.lock();
            let unreturned = flows.close_unreturned(Some(&shared.backend), Instant::now());
            flows.check_room()?;
            unreturned
        };
        for client in unreturned {
            self.registrations.doubt(client);
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
        self.open_flow(&shared, &found.issuer.authorization_endpoint, Plan {
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
        })
    }

    /// Opens the login that `plan` describes, which lacks its proofs still.
    fn open_flow(&self, shared: &Shared, endpoint: &Url, plan: Plan) -> LoginResult<Begun> {
        let draw = || secret().map_err(|error| failure::refused(format!("no random bytes: {error}")));
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
        self.flows.lock().open(plan, ticket, state, address.clone(), now)?;
        let mut attempts = self.attempts.lock();
        attempts.retain(|attempt| now < attempt.until);
        if attempts.len() == 2 * MAX_OPEN {
            attempts.pop_front();
        }
        attempts.push_back(Attempt {
            id: id.clone(),
            backend: shared.backend.clone(),
            outcome: None,
            until: now + LIFE,
        });
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
            let shows = match configured.shows {
                Shows::InHeader if !configured.is_chosen && in_body => Shows::InBody,
                shows => shows,
            };
            return Ok(Client {
                id: id.clone(),
                secret: None,
                shows,
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
    pub async fn returned(self: &Arc<Self>, query: &str, cookies: &[&str]) -> LoginResult<BackendName> {
        self.finish_flow(query, Proof::Cookies(cookies)).await
    }

    /// Takes the address that the caller who began a login at `backend` has pasted.
    pub async fn pasted(self: &Arc<Self>, backend: &str, address: &str) -> LoginResult<BackendName> {
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
        let (id, backend) = (plan.id.clone(), plan.backend.clone());
        let outcome = match back.code(&plan.issuer) {
            Err(failure) => Err(failure),
            Ok(code) => {
                let this = Arc::clone(self);
                let exchange = self.tasks.spawn(async move { this.exchange(plan, &code).await });
                exchange.await.unwrap_or_else(|_panic| {
                    Err(failure::refused("the exchange of the code has failed"))
                })
            }
        };
        if let Err(failure) = &outcome {
            info!(%backend, "a login came to nothing: {failure}");
        }
        let mut attempts = self.attempts.lock();
        if let Some(attempt) = attempts.iter_mut().find(|attempt| attempt.id == id) {
            attempt.outcome = Some(outcome.clone());
        }
        outcome.map(|()| backend)
    }

    /// Exchanges the code, and keeps the login. It is on disk before anything else is made of it.
    async fn exchange(&self, plan: Plan, code: &SecretString) -> LoginResult<()> {
        let gone = || failure::no_login(&plan.backend);
        let (shared, tokens) = {
            let entries = self.entries.lock();
            let entry = entries.get(&plan.backend).ok_or_else(gone)?;
            (Arc::clone(&entry.shared), Arc::clone(&entry.tokens))
        };
        let settings = shared.settings().ok_or_else(gone)?;
        let granted = self.granted(&settings, &plan, code).await.map_err(|error| {
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
        let lacks: Vec<&str> = plan.scopes.iter().map(String::as_str).filter(|scope| !scopes.iter().any(|one| one == scope)).collect();
        if !lacks.is_empty() {
            info!(backend = %plan.backend, scopes = lacks.join(" "), "the issuer has not granted all scopes");
        }
        let record = Record {
            server: plan.server,
            issuer: plan.issuer.name,
            endpoints: plan.endpoints,
            resource: plan.resource,
            client: plan.client,
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

    /// Asks for tokens. Where the endpoint gives no answer, the code is shown again while it lives.
    async fn granted(
        &self,
        settings: &LoginSettings,
        plan: &Plan,
        code: &SecretString,
    ) -> Result<Granted, IssueError> {
        let endpoint = &plan.endpoints.token;
        let own_secret = settings.client.secret.as_ref().map(|secret| SecretString::clone(secret));
        let secret = if plan.client.is_configured { own_secret } else { plan.client.secret.clone() };
        let question = Question {
            url: endpoint,
            place: &shown(endpoint),
            audience: &plan.issuer.name,
            client_id: &plan.client.id,
            client_secret: &secret.unwrap_or_default(),
            is_chosen: true,
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
            let outcome = question.ask(&http, &mut plan.client.shows.clone()).await;
            match (outcome, pauses.next()) {
                (Err(error), Some(pause)) if error.passes => sleep(pause).await,
                (outcome, _) => return outcome,
            }
        }
    }

    /// Ends the login at `backend`: at the issuer where it can, and here in any case. `None`: there
    /// is none.
    pub async fn logout(&self, backend: &str) -> Option<Revocation> {
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
        let question = Question {
            url: endpoint,
            place: &shown(endpoint),
            audience: &record.issuer,
            client_id: &record.client.id,
            client_secret: &secret,
            is_chosen: true,
            grant: "",
            fields: &[("token", Some(token.expose_secret())), ("token_type_hint", Some(hint))],
        };
        let http = match shared.settings() {
            Some(settings) => Network::new(&settings, &self.http).client(endpoint),
            None => http_client::elsewhere(),
        };
        match question.revoke(&http, record.client.shows).await {
            Ok(()) => Some(Revocation::Revoked),
            Err(why) => Some(Revocation::Failed(why)),
        }
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

/// Registers the bridge as a client. The error completes "the issuer …".
async fn register(
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
        let response = client.send(request).await.map_err(|error| error_chain(&error.without_url()))?;
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
