//! What a valid configuration is: the types that the rest of the daemon reads.
//!
//! `file` reads bridge.yaml into them. A value of these types is complete and checked: secrets are
//! resolved, names are unique, defaults are filled in.
//!
//! Must not: open sockets, start programs, or print a secret.

mod agent;
mod deserialize;
mod document;
pub mod environment;
pub mod error;
mod file;
pub mod file_format;
pub mod foreign;
mod mistakes;
pub mod notify;
mod oauth;
mod program;
mod redact;
mod reference;
pub mod scalars;
mod secrets;
mod validate;
pub mod value;
mod written;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{HeaderMap, Method};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use url::Url;

pub use self::agent::{A2a, A2aBinding, CardSource, Signers};
use self::deserialize::{At, List, Named};
use self::document::{Document, NodeId};
pub use self::environment::Environment;
pub use self::error::{ConfigErrors, Problem};
pub use self::file::{ConfigFile, find, state_directory, without_secrets};
pub use self::notify::{
    Detail, NoticeFormat, NoticeReceiver, NoticeWay, SigningSecret, Topic, Webhook,
};
pub use self::oauth::{ClientCredentials, LoginClient, OauthClient, ResourceParameter, SealKey};
pub use self::program::{
    Confinement, PASSED_ON, Program, ProgramSandbox, Start, outermost, quoted,
};
use self::reference::Dialect;
pub(crate) use self::reference::{is_variable, looks_secret};
use self::scalars::{
    ClientAuth, Count, DurationOrOff, DurationText, GlobOrRule, Globs, HsafaApi, HttpMethod,
    ListenValue, LoginKind, McpTransport, RuntimeKind, SandboxValue, Scalar, SchemaMap, SizeText,
    StartMode,
};
pub use self::secrets::{LiveSecrets, Secret, Secrets};
pub use self::validate::listen::only_with_ipv6;
pub use self::written::Written;
use crate::audit::syslog::Receiver;
use crate::http_client::Tls;
use crate::journal::Postgres;
pub use crate::model::pin::Mode as Pin;
use crate::model::rights::Rules;
use crate::model::{AppName, BackendName, InputSchema};
pub use crate::model::{
    Naming, OfferMode, OnUnavailable, Policy, Redaction, Rights, San, ToolFilter,
};
pub use crate::tls::files::Files;

/// One loaded bridge.yaml.
#[derive(Debug)]
pub struct Config {
    pub listen: Listen,
    pub upstream: Upstream,
    /// The directory of the token, catalogs and the journal.
    pub state_dir: PathBuf,
    /// The journal's database; `None`: the journal is a file.
    pub state: Option<Postgres>,
    /// What seals logins on disk; the first key seals.
    pub seal_keys: Vec<SealKey>,
    pub auth: Auth,
    /// The configured apps; empty means the one app `default`, whose token is in `state_dir`.
    pub apps: Vec<App>,
    pub refresh: Refresh,
    pub calls: Calls,
    /// The audit log, if there is to be one.
    pub audit: Option<Audit>,
    /// Who is told of what waits, in the order of their names.
    pub notify: Vec<NoticeReceiver>,
    pub backends: BTreeMap<BackendName, Backend>,
    pub runtimes: Vec<Runtime>,
    /// Backends that the file names and turns off, with `disabled: true` or with `only_on` here.
    pub disabled: Vec<BackendName>,
    /// The secrets that no text of a peer may repeat.
    pub secrets: Arc<Secrets>,
    /// Warnings: settings that work but should be changed, such as a secret in plain text; one
    /// sentence each.
    pub warnings: Vec<String>,
}

/// What a client of the daemon needs of its bridge.yaml. The upstream and the backends are not in
/// it, so that a client can look at a running daemon without their secrets.
#[derive(Debug)]
pub struct Contact {
    pub listen: Listen,
    pub state_dir: PathBuf,
    /// The client's app, and its token if it has one; `None`: the app whose token is in
    /// `state_dir`.
    pub app: Option<(AppName, Option<SecretString>)>,
}

/// Where the bridge listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    pub tcp: Vec<SocketAddr>,
    pub unix: Option<PathBuf>,
    /// Every TCP address serves TLS with these files; `None`: none does, and all are loopback.
    pub tls: Option<Files>,
    /// The bridge's other names: `name` or `name:port`, in lower case.
    pub hosts: Vec<String>,
    /// How browsers reach the bridge: an origin.
    pub public_url: Option<Url>,
    /// The file has no `listen`: sockets of a socket unit take the place of the default address.
    pub by_default: bool,
}

/// The MANTYX behind the bridge.
#[derive(Debug)]
pub enum Upstream {
    /// The runtime inside this process (`upstream: {sandbox: true}`).
    Sandbox { workspace: String },
    /// A real one.
    Mantyx(Mantyx),
}

/// The address of MANTYX, and the settings for reaching it.
#[derive(Debug, Clone)]
pub struct Mantyx {
    pub base_url: Url,
    pub workspace: Option<String>,
    pub credential: Credential,
    pub tls: Option<Tls>,
}

/// Whose credential goes to MANTYX.
#[derive(Debug, Clone)]
pub enum Credential {
    /// The bridge's own API key or OAuth access token.
    Own(SecretString),
    /// Access tokens that the bridge fetches itself.
    Oauth(Arc<RefreshGrant>),
    /// The app's own credential, which it sends beside its bridge token.
    Passthrough,
}

/// A registered application, and the access to a workspace that a user has granted it.
#[derive(Debug, Clone, PartialEq)]
pub struct RefreshGrant {
    /// Where tokens are issued.
    pub token_url: Written<Url>,
    pub client_id: String,
    pub client_secret: Secret,
    pub refresh_token: Secret,
}

/// Whether a caller has to show a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Auth {
    Token,
    // Only on loopback and unix sockets; the configuration is refused otherwise.
    Off,
}

/// The name of the operator among apps; no app of the configuration can have it.
const OPERATOR: &str = "(operator)";

/// One local program that uses the bridge.
#[derive(Debug, Clone, Default)]
pub struct App {
    pub name: AppName,
    /// The hash of its token. An app has a token, users or a certificate, or several of them.
    pub token: Option<TokenHash>,
    /// The users of this machine that count as this app on a unix socket, without a token.
    pub users: Vec<u32>,
    /// The names in certificates that identify it over TLS, where only they do; `None`: its token
    /// does.
    pub certificate: Option<Vec<San>>,
    /// The backends and tools that it may use.
    pub rights: Arc<Rights>,
    pub max_concurrent_calls: Option<usize>,
    /// Whether it may decide approvals of its own calls.
    pub approves: bool,
    /// The bridge's names of tools, by those that loom-mcp's runtime gives them.
    pub names: BTreeMap<String, String>,
    /// The rate limit of its requests; `None`: no limit.
    pub rate: Option<Rate>,
    pub quota: Option<Quota>,
    /// The credential for MANTYX, in place of the upstream's.
    pub credential: Option<Credential>,
}

impl Config {
    /// The rights of [`Self::all_apps`].
    pub fn all_rights(&self) -> impl Iterator<Item = &Rights> {
        self.all_apps().map(|app| app.rights.as_ref())
    }

    /// The programs that tell of notices.
    pub fn notice_programs(&self) -> impl Iterator<Item = (&BackendName, &Program)> {
        self.notify.iter().filter_map(|receiver| match &receiver.way {
            NoticeWay::Command(program) => Some((&receiver.name, program)),
            NoticeWay::Webhook(_) | NoticeWay::Unresolved(_) => None,
        })
    }

    /// The apps and the other runtimes.
    pub fn all_apps(&self) -> impl Iterator<Item = &App> {
        self.apps.iter().chain(self.runtimes.iter().map(|runtime| &runtime.app))
    }
}

impl App {
    /// The app of a configuration without `apps`.
    pub const DEFAULT: &str = "default";

    /// An app that may use all backends, within no limits of its own, and that no request is known
    /// to be from.
    pub fn named(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The operator, for requests that name no app: it may see everything. No configured app can
    /// have this name.
    pub fn operator() -> Arc<Self> {
        static APP: LazyLock<Arc<App>> =
            LazyLock::new(|| Arc::new(App { approves: true, ..App::named(OPERATOR) }));
        Arc::clone(&APP)
    }

    /// Whether it is [`Self::operator`].
    pub fn is_operator(&self) -> bool {
        self.name.as_str() == OPERATOR
    }

    /// Whether `other` has the same token, users and certificate.
    pub fn is_known_like(&self, other: &Self) -> bool {
        self.token == other.token
            && self.users == other.users
            && self.certificate == other.certificate
    }
}

/// The hash of an app's token: no token stays in memory. It is compared in constant time, so that
/// the time reveals nothing about it. It is not shown, as a short token could be found by trying.
#[derive(Clone, Copy, Eq, derive_more::Debug)]
#[debug("TokenHash(..)")]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn new(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    /// How many may come at once.
    pub burst: f64,
}

/// How many calls of an app, or to a backend, may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// So many in any time of this length.
    pub calls: Option<(usize, Duration)>,
    /// How often a run may make the same call with the same arguments.
    pub identical: Option<usize>,
}

/// Another runtime whose calls of tools the bridge answers.
#[derive(Debug)]
pub struct Runtime {
    /// Its name and its rights, which are those of an app without a token.
    pub app: App,
    pub link: RuntimeLink,
}

/// How a runtime is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimeLink {
    pub wire: Wire,
    pub url: Written<Url>,
    /// The header with the credential, which is marked sensitive.
    pub headers: HeaderMap,
    pub tls: Option<Tls>,
}

/// The protocol of a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wire {
    /// `timeout`: how long the runtime waits for a result.
    HsafaV3 {
        timeout: Duration,
    },
    /// `base`: the segments of the path below which its API is.
    HsafaV7 {
        base: Vec<String>,
        skill: String,
    },
    Claude {
        environment: String,
    },
}

impl Wire {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::HsafaV3 { .. } => "hsafa v3",
            Self::HsafaV7 { .. } => "hsafa v7",
            Self::Claude { .. } => "claude-environment",
        }
    }
}

/// How catalogs are kept fresh, for all backends that do not say otherwise.
#[derive(Debug, Clone)]
pub struct Refresh {
    pub interval: Duration,
    /// The share of `interval` by which each wait varies, 0 to 1.
    pub jitter: f64,
    /// How long one connect or one refresh may take.
    pub timeout: Duration,
}

/// The limits of all calls together.
#[derive(Debug, Clone)]
pub struct Calls {
    pub timeout: Duration,
    /// How long a call may take that continues after a first answer.
    pub pending_timeout: Duration,
    pub max_concurrent: usize,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    pub file: Option<PathBuf>,
    pub syslog: Option<Receiver>,
    /// Whether the arguments of calls are written.
    pub arguments: bool,
}

/// One backend: an MCP server, an A2A agent or a local tool.
#[derive(Debug)]
pub struct Backend {
    pub name: BackendName,
    /// Its place among the backends in the file.
    pub place: usize,
    pub target: Target,
    /// How tool names become model-facing names.
    pub naming: Naming,
    /// `/readyz` waits for it.
    pub required: bool,
    pub on_unavailable: OnUnavailable,
    pub refresh: Duration,
    /// Whether the entry itself says `refresh`: then no server's `ttlMs` replaces it.
    pub refresh_is_own: bool,
    /// When the program of an MCP server runs.
    pub start: Start,
    /// How long a call may go without a sign of progress.
    pub call_timeout: Duration,
    /// After how long a call gets a first answer, and continues as a long call.
    pub pending_after: Option<Duration>,
    /// The longest text of a result, in bytes; the rest is kept.
    pub max_result: Option<usize>,
    /// What is replaced in results.
    pub redact: Arc<Redaction>,
    /// The secrets that no text of its peer may repeat.
    pub secrets: Arc<Secrets>,
    /// How many calls it may have at once.
    pub concurrency: usize,
    /// Whether the operator trusts what an MCP server says about its tools: that a call reads only,
    /// or is idempotent.
    pub trust_annotations: bool,
    /// What happens to tools that differ from what the operator has accepted.
    pub pin: Pin,
    /// Which calls a person must approve.
    pub approve: Policy,
    pub quota: Option<Quota>,
}

/// How a backend is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    Mcp(Mcp),
    A2a(A2a),
    Local(Local),
    /// In no way: what its entry refers to is missing, or cannot be used.
    Unresolved(Unresolved),
}

/// Why a backend cannot be reached: a missing secret, or another file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unresolved {
    /// The section of its entry.
    pub section: &'static str,
    /// What is missing, with its place in bridge.yaml.
    pub why: String,
    pub cure: String,
}

impl Target {
    /// One that cannot be reached; why is to be said.
    pub fn unresolved(section: &'static str) -> Self {
        Self::Unresolved(Unresolved { section, ..Unresolved::default() })
    }

    /// Its section of bridge.yaml.
    pub fn section(&self) -> &'static str {
        match self {
            Self::Mcp(_) => "mcp",
            Self::A2a(_) => "a2a",
            Self::Local(_) => "local",
            Self::Unresolved(unresolved) => unresolved.section,
        }
    }
}

/// An MCP server.
#[derive(Debug, Clone, PartialEq)]
pub enum Mcp {
    /// A child process that speaks on stdin and stdout.
    Stdio(Program),
    /// A server that speaks one of MCP's HTTP transports.
    Http {
        url: Written<Url>,
        /// The values are marked sensitive.
        headers: HeaderMap,
        /// The unix socket that the server listens on; the host in `url` is then only a name.
        socket: Option<PathBuf>,
        transport: HttpTransport,
        oauth: Option<OauthClient>,
        tls: Option<Tls>,
        /// Whether the bridge keeps a stream open for what the server says unasked.
        listen: bool,
        /// Whether the bridge speaks revisions with sessions alone.
        sessions: bool,
    },
}

/// Which of MCP's HTTP transports a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpTransport {
    /// Not configured: Streamable HTTP, or the older HTTP+SSE if the server does not know it.
    Either,
    Streamable,
    /// HTTP+SSE, of 2024-11-05.
    Sse,
}

impl Backend {
    /// What decides about its calls.
    pub fn rules(&self) -> Rules<'_> {
        Rules { naming: &self.naming, approve: &self.approve }
    }

    /// The program of an MCP server, or the one that each call of a local tool runs.
    pub fn program(&self) -> Option<&Program> {
        match &self.target {
            Target::Mcp(Mcp::Stdio(program)) => Some(program),
            Target::Local(Local { action: Action::Command(program), .. }) => Some(program),
            _ => None,
        }
    }

    /// [`Self::program`], to change.
    pub fn program_mut(&mut self) -> Option<&mut Program> {
        match &mut self.target {
            Target::Mcp(Mcp::Stdio(program)) => Some(program),
            Target::Local(Local { action: Action::Command(program), .. }) => Some(program),
            _ => None,
        }
    }
}

/// A tool of the bridge's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Local {
    /// Its ref without `kind` and `name`: a JSON object with the members that MANTYX gets, each as
    /// the file has it.
    pub input: Arc<InputSchema>,
    pub action: Action,
}

/// What a local tool does when it is called.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Sends a request. The header values are marked sensitive.
    Http { method: Method, url: Written<Url>, headers: HeaderMap, tls: Option<Tls> },
    /// Runs a program.
    Command(Program),
    /// Executes nothing: a call's arguments are its result.
    Internal,
}

#[cfg(test)]
mod tests;
