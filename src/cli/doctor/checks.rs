//! The checks: the upstream and each kind of backend, through the daemon's own dialers.
//!
//! Must not: call a tool, or send a message to an agent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;
use url::Url;

use super::report::Check;
use super::{cures, network};
use crate::backend::a2a::{A2aDialer, Conversations};
use crate::backend::program::hiding;
use crate::backend::readiness::{Occasion, Readiness};
use crate::backend::turns::{Rank, StartKeys, Turns};
use crate::backend::{
    Dial, LiveRedaction, Peer, PeerError, PeerErrorKind, Remark, Signature, mcp, program,
};
use crate::cli::page::counted;
use crate::config::{
    Action, Backend, CardSource, Config, Credential, Mantyx, Mcp, Program, Runtime, Target,
    Unresolved, Upstream,
};
use crate::error_chain::error_chain;
use crate::http_client::{Clients, Tls};
use crate::journal::Postgres;
use crate::logins::{LoginProblem, LoginSettings, LoginState, LoginView, Logins};
use crate::model::card::Card;
use crate::model::catalog::{DEFINITION_CURE, Omission};
use crate::model::{Catalog, Content, globs};
use crate::state_dir::StateDir;
use crate::upstream::{OpenError, SendError, UpstreamCredential};
use crate::{http_client, journal, runtimes, upstream};

/// The oldest PostgreSQL that replicas can share.
const OLDEST: i32 = 13;

/// What to do about a program that is ended although a session may rely on it.
const IDLE_CURE: &str = "write `idle_stop: off` if the server keeps something between calls";

/// How long a program may take to exit.
const CLOSE: Duration = Duration::from_secs(8);

/// The parts that every check needs.
pub(super) struct Context<'c> {
    config: &'c Config,
    client: http_client::Client,
    launcher: Option<PathBuf>,
    /// Programs start as they do with the daemon: a few at a time.
    turns: Arc<Turns>,
    /// The backends that MCP clients with sessions use at the running daemon, and how long ago.
    sessions: BTreeMap<String, Duration>,
    /// Upstreams that may have an exchange for a token under way.
    mantyxes: RefCell<Vec<Arc<upstream::Upstream>>>,
}

impl<'c> Context<'c> {
    pub(super) fn new(config: &'c Config, sessions: BTreeMap<String, Duration>) -> Self {
        Self {
            config,
            client: http_client::new(),
            launcher: std::env::current_exe().ok(),
            turns: Turns::for_this_machine(),
            sessions,
            mantyxes: RefCell::default(),
        }
    }

    /// Waits for exchanges with token endpoints. A check that ran out of time leaves one under way,
    /// and its answer may bring the only valid refresh token.
    pub(super) async fn finish(&self) {
        let mantyxes = self.mantyxes.take();
        futures_util::future::join_all(mantyxes.iter().map(|mantyx| mantyx.finish())).await;
    }

    /// Does `check` of `backend`, a program's in its turn.
    pub(super) async fn in_turn<T>(&self, backend: &Backend, check: impl Future<Output = T>) -> T {
        let Target::Mcp(Mcp::Stdio(program)) = &backend.target else { return check.await };
        let keys = StartKeys::new(backend.name.clone(), program);
        let rank = Rank::new(backend.required, backend.place);
        let turn = self.turns.join(keys, rank).granted().await;
        turn.during(check).await
    }

    /// Checks the network path to a server, with its own TLS settings.
    async fn reach(&self, check: &mut Check, url: &Url, tls: Option<&Tls>, key: &str) -> bool {
        let clients = Clients::new(Some(url), tls, self.client.clone());
        network::reach(check, &clients.own, url, key).await
    }
}

pub(super) async fn backend(check: &mut Check, context: &Context<'_>, backend: &Backend) {
    match &backend.target {
        Target::Mcp(server) => {
            let reached = match server {
                Mcp::Stdio(program) => command(check, context, program, &backend.target),
                Mcp::Http { socket: Some(path), .. } => network::socket(check, path).await,
                Mcp::Http { url, tls, .. } => {
                    context.reach(check, url, tls.as_ref(), "`url`").await
                }
            };
            if backend.start.idle_stop.is_some()
                && let Some(ago) = context.sessions.get(backend.name.as_str())
            {
                let minutes = ago.as_secs() / 60;
                let finding = format!("an `/mcp` session has called it {minutes} min ago");
                check.begin("idle_stop").warn(finding, IDLE_CURE);
            }
            if reached {
                let launcher = context.launcher.clone();
                let client = context.client.clone();
                let logins = login(check, context, backend);
                let login = logins.as_ref().map(|logins| logins.login(&backend.name));
                let mut dialer = mcp::dialer_with(&backend.name, server, launcher, client, login);
                dialer.redact = LiveRedaction::for_backend(backend);
                let catalog = mcp_server(check, context, &dialer, backend).await;
                if let (None, Some(logins)) = (&catalog, &logins) {
                    cure_by_login(check, logins, backend).await;
                }
                let rights = context.config.all_rights();
                if let Some(catalog) = catalog
                    && let Some(idle) =
                        globs::idle(&backend.name, &catalog, backend.rules(), rights)
                {
                    check.begin("globs").warn(idle, globs::CURE);
                }
            }
        }
        Target::A2a(agent) => {
            let reached = match &agent.card {
                CardSource::Base(url) | CardSource::Url(url) => {
                    context.reach(check, url, agent.tls.as_ref(), "`url`").await
                }
                CardSource::File(_) => true,
                CardSource::Bundled => {
                    check.begin("card").ok("it is a part of the bridge");
                    false
                }
            };
            if reached {
                let dialer = A2aDialer::new(
                    backend.name.clone(),
                    agent,
                    context.client.clone(),
                    Conversations::default(),
                );
                a2a_agent(check, context, &dialer, &backend.target).await;
            }
        }
        Target::Local(tool) => match &tool.action {
            Action::Http { url, tls, .. } => {
                context.reach(check, url, tls.as_ref(), "`http.url`").await;
            }
            Action::Command(program) => {
                command(check, context, program, &backend.target);
            }
            Action::Internal => (),
        },
        Target::Unresolved(Unresolved { why, cure, .. }) => check.begin("entry").fail(why, cure),
    }
}

/// The login that the bridge keeps for the server. It is read, and not renewed: the daemon alone
/// exchanges refresh tokens.
fn login(check: &mut Check, context: &Context<'_>, backend: &Backend) -> Option<Arc<Logins>> {
    let settings = LoginSettings::for_target(&backend.target)?;
    let state = StateDir::new(context.config.state_dir.clone());
    let logins = Logins::for_reading(state, &context.config.seal_keys);
    // So that it is known to `logins` when it gets its settings.
    drop(logins.login(&backend.name));
    logins.set(BTreeMap::from([(backend.name.clone(), settings)]));
    let name = backend.name.as_str();
    for LoginProblem { message, cure } in logins.problems(name) {
        check.begin("login").warn(message, cure);
    }
    if let Some(LoginView { issuer, state: LoginState::Ok, .. }) = logins.view(name) {
        check.begin("login").ok(format!("at {issuer}; the daemon renews it"));
    }
    Some(logins)
}

/// Says what to do about a refused credential where that is a matter of the login: a person logs
/// in, or the daemon renews the login's token.
async fn cure_by_login(check: &mut Check, logins: &Logins, backend: &Backend) {
    let name = backend.name.as_str();
    let has_login = logins.view(name).is_some();
    if logins.needs_login(name) || !has_login && logins.leads_to_issuer(name).await {
        check.correct_cure("auth", format!("log in: `mantyx-bridge login {name}`"));
    } else if has_login {
        let cure = format!(
            "see that the daemon runs, which alone renews the login; if the server still refuses \
             it then, run `mantyx-bridge login {name}`"
        );
        check.correct_cure("auth", cure);
    }
}

fn command(check: &mut Check, context: &Context<'_>, program: &Program, target: &Target) -> bool {
    check.begin("command");
    match program::locate(program) {
        Ok(file) => {
            check.ok(file.display().to_string());
            // Whether the program could read the bridge's own files.
            let possible = hiding::possible(context.launcher.as_deref());
            if let Some(exposed) = hiding::exposure(program, &possible) {
                check.begin("secrets").warn(exposed.to_string(), exposed.cure());
            }
            true
        }
        Err(error) => {
            check.fail(error_chain(&error), error.cure(target));
            false
        }
    }
}

async fn mcp_server(
    check: &mut Check,
    context: &Context<'_>,
    dialer: &dyn Dial,
    backend: &Backend,
) -> Option<Arc<Catalog>> {
    let target = &backend.target;
    check.begin("initialize");
    let about = (dialer, target);
    let limit = match backend.program() {
        Some(_) => TimeLimit { time: backend.start.timeout, key: "start_timeout" },
        None => TimeLimit::refresh(context),
    };
    let peer = in_time(check, &limit, "the handshake", about, dialer.dial()).await;
    if peer.is_none() {
        // The program may be installing itself.
        let _in_time = timeout(CLOSE, dialer.processes_ended()).await.is_ok();
    }
    let peer = peer?;
    let version = peer.about().protocol_version.unwrap_or_else(|| "an unknown revision".to_owned());
    check.ok(format!("MCP {version} over {}", dialer.transport()));
    check.begin("tools/list");
    let limit = TimeLimit::refresh(context);
    let catalog = in_time(check, &limit, "its list of tools", about, peer.resolve()).await;
    match catalog.as_ref().map(|catalog| catalog.tool_count()) {
        None => (),
        Some(0) => check.warn("the server has no tools", "see what it needs to offer some"),
        Some(count) => check.ok(counted(count, "tool")),
    }
    if let Some(Remark { message, cure, .. }) = dialer.remark().map(Remark::with_quote) {
        check.begin("protocol").warn(message, cure);
    }
    if let Some(catalog) = &catalog {
        definitions(check, context, peer.as_ref(), catalog).await;
    }
    // On a timeout, dropping the peer kills its program.
    let _in_time = timeout(CLOSE, peer.close()).await.is_ok();
    catalog
}

/// Names the definitions of an MCP server that are left out, or cannot be used in part.
async fn definitions(check: &mut Check, context: &Context<'_>, peer: &dyn Peer, catalog: &Catalog) {
    let features = timeout(context.config.refresh.timeout, peer.features()).await;
    let left_out = features.ok().and_then(Result::ok).and_then(|features| features.left_out());
    if let Some(Omission { message, cure }) = catalog.left_out() {
        check.begin("definitions").warn(message, cure);
    }
    if let Some((why, cure)) = catalog.instructions().unusable() {
        check.begin("instructions").warn(why, cure);
    }
    let sentences = [catalog.unreadable(), left_out, catalog.unchecked()];
    for sentence in sentences.into_iter().flatten() {
        check.begin("definitions").warn(sentence, DEFINITION_CURE);
    }
}

async fn a2a_agent(check: &mut Check, context: &Context<'_>, dialer: &dyn Dial, target: &Target) {
    check.begin("card");
    let fetched = async {
        let peer = dialer.dial().await?;
        let catalog = peer.resolve().await?;
        Ok::<_, PeerError>((peer, catalog))
    };
    let limit = TimeLimit::refresh(context);
    let about = (dialer, target);
    let Some((peer, catalog)) = in_time(check, &limit, "the card", about, fetched).await else {
        return;
    };
    let card = match catalog.content() {
        Content::A2a { card, .. } => Card::read(card.get()).ok(),
        Content::Mcp { .. } | Content::Local { .. } => None,
    };
    let name = card.map(|card| card.name).unwrap_or_default();
    let about = peer.about();
    let version = about.protocol_version.unwrap_or_default();
    let summary = format!("{name:?}, A2A {version} over {}", dialer.transport());
    match about.signature.as_deref() {
        None => check.ok(summary),
        Some(Signature { error: Some(why), .. }) => {
            let unsigned = PeerError::new(PeerErrorKind::Unsigned, "").cure(target);
            check.warn(format!("{summary}, not signed: {why}"), unsigned);
        }
        Some(Signature { algorithm, key, .. }) => {
            let key = key.as_ref().map(|key| format!(" by {key:?}")).unwrap_or_default();
            let algorithm = algorithm.as_deref().unwrap_or_default();
            check.ok(format!("{summary}, signed{key} ({algorithm})"));
        }
    }
    endpoint(check, peer.as_ref(), target).await;
    if let Some(Remark { message, cure, .. }) = dialer.remark().map(Remark::with_quote) {
        check.begin("agent").warn(message, cure);
    }
}

/// Asks the endpoint of an agent's calls, as the daemon does.
async fn endpoint(check: &mut Check, peer: &dyn Peer, target: &Target) {
    let Some(health) = peer.health() else { return };
    check.begin("endpoint");
    peer.probe(Occasion::Doubt).await;
    match health.readiness() {
        Readiness::Answers(answer) => check.ok(answer),
        Readiness::Fails(failure) => {
            if matches!(failure.kind, PeerErrorKind::Unauthorized | PeerErrorKind::NoToken) {
                check.is_about("auth");
            }
            check.fail(error_chain(&failure), failure.cure(target));
        }
        Readiness::Unknown => check.warn("it was not asked", "try again"),
    }
}

/// A limit of the daemon's own.
struct TimeLimit {
    time: Duration,
    /// Its key in bridge.yaml.
    key: &'static str,
}

impl TimeLimit {
    fn refresh(context: &Context<'_>) -> Self {
        Self { time: context.config.refresh.timeout, key: "refresh.timeout" }
    }
}

/// What `work` gives within the time limit. A failure is reported with its cure.
async fn in_time<T>(
    check: &mut Check,
    limit: &TimeLimit,
    what: &str,
    (dialer, target): (&dyn Dial, &Target),
    work: impl Future<Output = Result<T, PeerError>>,
) -> Option<T> {
    let error = match timeout(limit.time, work).await {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(error)) => error,
        Err(_elapsed) => {
            let seconds = limit.time.as_secs_f64().round();
            dialer.overdue(format!("{what} did not come within {seconds} s (`{}`)", limit.key))
        }
    };
    if matches!(error.kind, PeerErrorKind::Unauthorized | PeerErrorKind::NoToken) {
        check.is_about("auth");
    }
    check.fail(error_chain(&error), error.cure(target));
    None
}

/// The database of replicas.
pub(super) async fn state(check: &mut Check, postgres: &Postgres) {
    check.begin("connect");
    let facts = match journal::probe(postgres).await {
        Ok(facts) => facts,
        Err(error) => return check.fail(error_chain(&error), error.cure()),
    };
    let version = facts.version / 10_000;
    match facts.tables {
        _ if facts.is_standby => {
            check.fail("the server is a standby", "name the primary in `state.postgres`");
        }
        _ if version < OLDEST => check.fail(
            format!(
                "it is PostgreSQL {version}, and {OLDEST} is the oldest that has what is needed"
            ),
            "use a newer server",
        ),
        None => check.ok(format!("PostgreSQL {version}; the daemon makes its tables")),
        Some(tables) => {
            check.ok(format!("PostgreSQL {version}; the tables are of version {tables}"));
        }
    }
    check.begin("durability");
    match facts.doubt() {
        Some(doubt) => check.warn(doubt, cures::DURABILITY),
        None => check.ok(format!(
            "PostgreSQL waits for a synchronous standby ({}), which loses no write if it is promoted",
            facts.synchronous_standbys
        )),
    }
}

pub(super) async fn upstream(check: &mut Check, context: &Context<'_>) {
    let config = context.config;
    check.begin("upstream");
    let Upstream::Mantyx(Mantyx { base_url: base, workspace, credential, tls }) = &config.upstream
    else {
        return check.ok("the sandbox, which is a part of the bridge");
    };
    if !context.reach(check, base, tls.as_ref(), "`upstream.base_url`").await {
        return;
    }
    let apps = config.apps.iter().filter_map(|app| {
        Some((format!("apps.{}.credential", app.name), app.credential.as_ref()?))
    });
    let own = match credential {
        Credential::Oauth(_) => "upstream.oauth",
        Credential::Own(_) | Credential::Passthrough => "upstream.credential",
    };
    let all = std::iter::once((own.to_owned(), credential)).chain(apps);
    for (key, credential) in all {
        check.begin("auth");
        match (credential, workspace) {
            (Credential::Passthrough, _) => {
                check.ok(format!("`{key}`: each app sends its own, so there is none to check"));
            }
            (Credential::Own(_) | Credential::Oauth(_), None) => check.warn(
                format!("`{key}` was not checked, as no workspace is configured"),
                "write `upstream.workspace`",
            ),
            (Credential::Own(_) | Credential::Oauth(_), Some(workspace)) => {
                let state = StateDir::new(config.state_dir.clone());
                let mantyx =
                    Arc::new(upstream::Upstream::new(base.clone(), tls.clone(), credential, state));
                context.mantyxes.borrow_mut().push(Arc::clone(&mantyx));
                match mantyx.own() {
                    Some(credential) => models(check, &mantyx, workspace, &key, &credential).await,
                    None => check
                        .fail(format!("`{key}` is no valid value of a header"), "see its value"),
                }
            }
        }
    }
}

pub(super) async fn runtime(check: &mut Check, context: &Context<'_>, runtime: &Runtime) {
    let Runtime { app, link } = runtime;
    if !context.reach(check, &link.url, link.tls.as_ref(), "`url`").await {
        return;
    }
    check.begin("credential");
    match runtimes::probe(&app.name, link).await {
        Some(Ok(())) => check.ok("the runtime takes it"),
        Some(Err(why)) => check.fail(
            format!("asked with the credential, the runtime cannot be used: {why}"),
            cures::RUNTIME,
        ),
        None => check.ok("not tried, as a second listener would take calls from the daemon"),
    }
}

/// The cure for a missing token.
fn token_cure(mantyx: &upstream::Upstream) -> &'static str {
    match mantyx.token_failure() {
        Some(failure) if failure.grant_ended => upstream::LOG_IN_AGAIN,
        Some(failure) if failure.passes => cures::BUSY,
        _ => cures::OAUTH,
    }
}

/// The cheapest request that needs a credential (agent-runs-protocol §3).
async fn models(
    check: &mut Check,
    mantyx: &upstream::Upstream,
    workspace: &str,
    key: &str,
    credential: &UpstreamCredential,
) {
    #[derive(Deserialize)]
    struct Models<'a> {
        #[serde(borrow)]
        models: Vec<&'a RawValue>,
    }
    let path = format!("/api/v1/workspaces/{workspace}/models");
    let response = match mantyx.ask(&path, credential).await {
        Ok(response) => response,
        Err(OpenError::Unsent(SendError::Token(error))) => {
            return check.fail(format!("`{key}`: {error}"), token_cure(mantyx));
        }
        Err(error) => return check.fail(error.to_string(), cures::NOT_MANTYX),
    };
    let status = response.status();
    let outcome = format!("MANTYX answers GET {path} with HTTP {status}");
    match status {
        StatusCode::OK => {
            let body = mantyx.text(response).await.unwrap_or_default();
            match serde_json::from_slice::<Models<'_>>(&body) {
                Ok(Models { models }) => {
                    let count = models.len();
                    check.ok(format!("`{key}` is good; workspace {workspace} has {count} models"));
                }
                Err(_) => check.fail(
                    "the server is not MANTYX: it gives no list of models",
                    "correct `upstream.base_url`",
                ),
            }
        }
        StatusCode::UNAUTHORIZED => check.fail(
            format!("{outcome}: the credential is not known, has expired or was revoked"),
            format!("make a new API key in MANTYX and put it where `{key}` refers to"),
        ),
        // A token may be valid for runs without the right to list models.
        StatusCode::FORBIDDEN => check.warn(
            format!("{outcome}: the credential is valid, but may not do this"),
            cures::SCOPES,
        ),
        StatusCode::NOT_FOUND => check.fail(
            format!("{outcome}: the credential belongs to another workspace"),
            cures::WORKSPACE,
        ),
        _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            check.warn(outcome, cures::BUSY);
        }
        _ => check.fail(outcome, cures::NOT_MANTYX),
    }
}
