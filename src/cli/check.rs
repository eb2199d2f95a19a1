//! `mantyx-bridge check`: reads only the configuration, and shows what would run, or the mistakes.
//!
//! Must not: start a program, open a socket, or print a secret.

mod explain;
mod limits;
mod own_keys;
pub(super) mod places;
mod stored;

use std::fmt;
use std::path::{Path, PathBuf};

use http::HeaderMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

pub(super) use self::explain::explain;
use self::own_keys::own_keys;
use self::stored::CatalogFindings;
use super::page::counted;
use super::{Failure, Outcome, pretty, print, print_json};
use crate::backend::program::hiding::{exposure, possible};
use crate::config::value::format_duration;
use crate::config::{
    A2a, Action, Auth, Backend, CardSource, ClientCredentials, Config, ConfigErrors, Confinement,
    Credential, Environment, Files, HttpTransport, Local, LoginClient, Mantyx, Mcp, NoticeReceiver,
    OauthClient, Problem, Program, ProgramSandbox, Runtime, Signers, Target, Upstream, find,
    quoted,
};
use crate::http_client::Tls;
use crate::model::offer::cost::{Cost, Injected, OfBackend};

/// The result of `check`: `--json` writes it, and the text for people is made of it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckReport {
    file: String,
    ok: bool,
    /// The plan; `None` if the file has errors.
    plan: Option<Plan>,
    warnings: Vec<String>,
    errors: Vec<Problem>,
    /// The errors in the form for people.
    #[serde(skip)]
    rendered_errors: String,
}

/// What `serve` would do with this file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    listen: Vec<String>,
    upstream: String,
    workspace: Option<String>,
    /// The credential for the upstream: `own`, `oauth`, `passthrough`, or none for the sandbox.
    credential: Option<&'static str>,
    /// Unusual TLS settings for the upstream.
    tls: Option<Value>,
    auth: Auth,
    apps: Vec<AppPlan>,
    state_dir: String,
    /// Where replicas share their state, without the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    backends: Vec<BackendPlan>,
    runtimes: Vec<RuntimePlan>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notify: Vec<ReceiverPlan>,
    disabled: Vec<String>,
    /// What the runs of each app would be given, by the catalogs that the daemon has stored.
    injected: Vec<Injected>,
    /// The backends without a stored catalog: `injected` is without their tools.
    not_counted: Vec<String>,
}

/// One app of the plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AppPlan {
    name: String,
    /// `None` means all backends.
    backends: Option<Vec<String>>,
    /// The servers of which it may use only some tools.
    some_tools_of: Vec<String>,
}

/// Another runtime of the plan.
#[derive(Debug, Serialize)]
struct RuntimePlan {
    name: String,
    kind: &'static str,
    url: String,
    /// `None` means all backends.
    backends: Option<Vec<String>>,
}

/// A receiver of notices.
#[derive(Debug, Serialize)]
struct ReceiverPlan {
    name: String,
    way: String,
    on: Vec<&'static str>,
}

/// One backend of the plan: its name, its kind, and how it is reached and used.
#[derive(Debug)]
struct BackendPlan(Vec<Member>);

/// A member of the JSON, and a line of the text.
type Member = (&'static str, Value);

/// Checks the file `path`, or the first default one. `look` reads what else is on this machine.
fn report(
    path: Option<&Path>,
    env: &Environment,
    look: fn(&Config) -> CatalogFindings,
) -> CheckReport {
    let loaded = find(path, env).and_then(|path| {
        let config = Config::load(&path, env)?;
        Ok((path.display().to_string(), config))
    });
    match loaded {
        Ok((file, config)) => {
            let findings = look(&config);
            CheckReport {
                file,
                ok: true,
                warnings: [&findings.warnings[..], &config.warnings].concat(),
                plan: Some(Plan::new(&config, findings)),
                ..CheckReport::default()
            }
        }
        Err(errors) => errors.into(),
    }
}

/// A warning for each program that could read the bridge's own files, on this system and as this
/// user.
fn exposures(config: &Config) -> Vec<String> {
    let programs =
        config.backends.values().filter_map(|backend| Some((&backend.name, backend.program()?)));
    let programs = programs.chain(config.notice_programs());
    let launcher = std::env::current_exe().ok();
    let warnings = programs.filter_map(|(name, program)| {
        let exposed = exposure(program, &possible(launcher.as_deref()))?;
        Some(format!("{name}: {exposed} {}", exposed.cure()))
    });
    warnings.collect()
}

/// `mantyx-bridge check`.
pub(super) fn run(path: Option<&Path>, json: bool) -> Outcome {
    let report = report(path, &Environment::of_process(), |config| {
        let findings = CatalogFindings::new(config);
        let warnings = [places::missing(config), exposures(config), findings.warnings].concat();
        CatalogFindings { warnings, ..findings }
    });
    if json {
        print_json(&pretty(&report))?;
    } else {
        print(&report.to_string())?;
    }
    // The report names the mistakes.
    if report.ok { Ok(()) } else { Err(Failure::Usage(String::new())) }
}

impl From<ConfigErrors> for CheckReport {
    fn from(errors: ConfigErrors) -> Self {
        Self {
            rendered_errors: errors.to_string(),
            file: errors.file,
            errors: errors.problems,
            ..Self::default()
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(plan) = &self.plan else { return f.write_str(&self.rendered_errors) };
        let count = counted(plan.backends.len(), "backend");
        writeln!(f, "{} is good: {count}\n", self.file)?;
        write!(f, "{plan}")?;
        if !self.warnings.is_empty() {
            writeln!(f)?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

impl Plan {
    fn new(config: &Config, findings: CatalogFindings) -> Self {
        let speaks = match &config.listen.tls {
            None => "",
            Some(Files { client_ca: None, .. }) => " (TLS)",
            Some(Files { client_ca: Some(_), .. }) => " (TLS, for callers with a certificate)",
        };
        let tcp = config.listen.tcp.iter().map(|address| format!("{address}{speaks}"));
        let unix = config.listen.unix.iter().map(|path| format!("unix:{}", path.display()));
        let (upstream, workspace, credential, tls) = match &config.upstream {
            Upstream::Sandbox { workspace } => {
                ("sandbox".to_owned(), Some(workspace.clone()), None, None)
            }
            Upstream::Mantyx(Mantyx { base_url, workspace, credential, tls }) => {
                let whose = match credential {
                    Credential::Own(_) => "own",
                    Credential::Oauth(_) => "oauth",
                    Credential::Passthrough => "passthrough",
                };
                (base_url.to_string(), workspace.clone(), Some(whose), tls_plan(tls))
            }
        };
        let apps = config.apps.iter().map(|app| AppPlan {
            name: app.name.to_string(),
            backends: app.rights.backends.as_ref().map(texts),
            some_tools_of: texts(app.rights.tools.keys()),
        });
        let runtimes = config.runtimes.iter().map(|Runtime { app, link }| RuntimePlan {
            name: app.name.to_string(),
            kind: link.wire.as_str(),
            url: link.url.to_string(),
            backends: app.rights.backends.as_ref().map(texts),
        });
        Self {
            listen: tcp.chain(unix).collect(),
            upstream,
            workspace,
            credential,
            tls,
            auth: config.auth,
            apps: apps.collect(),
            state_dir: config.state_dir.display().to_string(),
            database: config.state.as_ref().map(ToString::to_string),
            backends: config.backends.values().map(BackendPlan::new).collect(),
            runtimes: runtimes.collect(),
            notify: config.notify.iter().map(ReceiverPlan::new).collect(),
            disabled: texts(&config.disabled),
            injected: findings.injected,
            not_counted: findings.not_counted,
        }
    }
}

impl ReceiverPlan {
    fn new(receiver: &NoticeReceiver) -> Self {
        Self {
            name: receiver.name.to_string(),
            way: receiver.way.describe(),
            on: receiver.on.iter().map(|topic| topic.as_str()).collect(),
        }
    }
}

impl BackendPlan {
    fn new(backend: &Backend) -> Self {
        let (prefix, signers) = match &backend.target {
            Target::Mcp(_) => (Some(backend.naming.prefix.as_str()), None),
            Target::A2a(agent) => (None, agent.signers.as_ref()),
            Target::Local(_) | Target::Unresolved(_) => (None, None),
        };
        let signature = signers
            .map(|Signers { keys, required }| json!({ "keys": keys.len(), "required": required }));
        let mut members =
            vec![("name", json!(backend.name.as_str())), ("kind", json!(backend.target.section()))];
        members.extend(reached(&backend.target));
        if let Target::A2a(agent) = &backend.target {
            members.extend(agent_plan(agent));
        }
        members.extend([
            ("prefix", json!(prefix)),
            ("trustAnnotations", json!(backend.trust_annotations)),
            ("pin", json!(backend.pin)),
            ("signature", json!(signature)),
            ("approve", json!(!backend.approve.is_empty())),
            ("required", json!(backend.required)),
            ("onUnavailable", json!(backend.on_unavailable)),
            ("refresh", json!(format_duration(backend.refresh))),
            ("callTimeout", json!(format_duration(backend.call_timeout))),
            ("pendingAfter", json!(backend.pending_after.map(format_duration))),
            ("concurrency", json!(backend.concurrency)),
        ]);
        members.extend(limits::limits(backend));
        Self(members)
    }
}

impl Serialize for BackendPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// How calls go to an agent beyond what its card says.
fn agent_plan(agent: &A2a) -> [Member; 5] {
    [
        ("endpoint", json!(agent.endpoint.as_ref().map(ToString::to_string))),
        ("extensions", json!(agent.extensions)),
        ("extendedCard", json!(agent.extended_card)),
        ("allowPlain", json!(agent.allow_plain)),
        ("blocking", json!(agent.blocking)),
    ]
}

/// How a backend is reached: the exact arguments of a program, but only the names of its variables,
/// and of headers.
fn reached(target: &Target) -> Vec<Member> {
    match target {
        Target::Mcp(Mcp::Stdio(program))
        | Target::Local(Local { action: Action::Command(program), .. }) => {
            let Program { env, cwd, sandbox, .. } = program;
            let kind = if matches!(target, Target::Mcp(_)) { "stdio" } else { "command" };
            let sandbox = match sandbox {
                ProgramSandbox::Masked => Value::Null,
                ProgramSandbox::Off => json!("off"),
                ProgramSandbox::Secrets => json!("secrets"),
                ProgramSandbox::Listed(Confinement { read, write }) => {
                    json!({ "read": paths(read), "write": paths(write) })
                }
            };
            vec![
                ("reached", json!(kind)),
                ("argv", json!(program.argv())),
                ("env", json!(texts(env.keys()))),
                ("cwd", json!(cwd.as_ref().map(|path| path.display().to_string()))),
                ("sandbox", sandbox),
            ]
        }
        Target::A2a(A2a { card: CardSource::Bundled, .. }) => vec![("reached", json!("bundled"))],
        Target::A2a(A2a { card: CardSource::File(path), tls, .. }) => {
            let path = ("path", json!(path.display().to_string()));
            vec![("reached", json!("file")), path, secured(tls)]
        }
        Target::Mcp(Mcp::Http {
            url,
            headers: names,
            oauth,
            tls,
            transport,
            listen,
            sessions,
            socket: _,
        }) => {
            let oauth = oauth.as_ref().map(|client| match client {
                OauthClient::Credentials(credentials) => issuer(credentials),
                OauthClient::Login(client) => login(client),
            });
            let transport = match transport {
                HttpTransport::Either => None,
                HttpTransport::Streamable => Some("streamable-http"),
                HttpTransport::Sse => Some("sse"),
            };
            let mut members = by_url(url, names, oauth.as_deref(), tls);
            members.extend([
                ("transport", json!(transport)),
                ("listen", json!(listen)),
                ("sessions", json!(sessions)),
            ]);
            members
        }
        Target::A2a(A2a {
            card: CardSource::Base(url) | CardSource::Url(url),
            headers: names,
            oauth,
            tls,
            ..
        }) => by_url(url, names, oauth.as_deref().map(issuer).as_deref(), tls),
        Target::Local(Local {
            action: Action::Http { method, url, headers: names, tls }, ..
        }) => vec![
            ("reached", json!("request")),
            ("method", json!(method.as_str())),
            ("url", json!(url.to_string())),
            headers(names),
            secured(tls),
        ],
        Target::Local(Local { action: Action::Internal, .. }) => {
            vec![("reached", json!("internal"))]
        }
        Target::Unresolved(_) => vec![("reached", json!("unresolved"))],
    }
}

fn by_url(
    url: &impl ToString,
    names: &HeaderMap,
    oauth: Option<&str>,
    tls: &Option<Tls>,
) -> Vec<Member> {
    vec![
        ("reached", json!("url")),
        ("url", json!(url.to_string())),
        headers(names),
        ("oauth", json!(oauth)),
        secured(tls),
    ]
}

/// How the bridge's login at a backend is made.
fn login(client: &LoginClient) -> String {
    let id = client.id.as_ref().map(|id| format!(" as {id}")).unwrap_or_default();
    let issuer = client.issuer.as_ref().map(|url| format!(" at {url}")).unwrap_or_default();
    format!("by `mantyx-bridge login`{id}{issuer}")
}

fn headers(headers: &HeaderMap) -> Member {
    ("headers", json!(texts(headers.keys())))
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    texts(paths.iter().map(|path| path.display()))
}

fn secured(tls: &Option<Tls>) -> Member {
    ("tls", json!(tls_plan(tls)))
}

/// Unusual TLS settings for one server: the number of authorities that replace the machine's, and
/// whether the server gets a client certificate.
fn tls_plan(tls: &Option<Tls>) -> Option<Value> {
    let tls = tls.as_ref()?;
    let (authorities, shows) = (tls.authority_count(), tls.shows_certificate());
    Some(json!({ "authorities": authorities, "showsCertificate": shows }))
}

fn issuer(oauth: &ClientCredentials) -> String {
    match &oauth.token_url {
        Some(url) => format!("as {} from {url}", oauth.id),
        None => format!("as {}, from where the backend says", oauth.id),
    }
}

fn texts(names: impl IntoIterator<Item: ToString>) -> Vec<String> {
    names.into_iter().map(|name| name.to_string()).collect()
}

/// Writes a line of the text, unless it would say nothing.
fn row(f: &mut fmt::Formatter<'_>, label: &str, value: &Value) -> fmt::Result {
    match text(value) {
        nothing if nothing.is_empty() => Ok(()),
        text => writeln!(f, "{label:<10} {text}"),
    }
}

/// A value for people; empty for one that says nothing.
fn text(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(false) => String::new(),
        Value::Bool(true) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => quoted(&items.iter().map(text).collect::<Vec<_>>()),
        Value::Object(members) => {
            let mut pieces = Vec::new();
            for (key, value) in members {
                let words = text(value);
                if !words.is_empty() {
                    pieces.push(format!("{key} {words}"));
                }
            }
            pieces.join("; ")
        }
    }
}

/// The backends of an app or a runtime, in words.
fn backends_of(backends: Option<&Vec<String>>) -> String {
    match backends {
        None => "all backends".to_owned(),
        Some(none) if none.is_empty() => "no backends".to_owned(),
        Some(some) => some.join(", "),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "listen", &json!(self.listen))?;
        row(f, "upstream", &json!(self.upstream))?;
        row(f, "workspace", &json!(self.workspace))?;
        row(f, "credential", &json!(self.credential))?;
        row(f, "tls", &json!(self.tls))?;
        row(f, "state", &json!(self.state_dir))?;
        row(f, "database", &json!(self.database))?;
        row(f, "auth", &json!(self.auth))?;
        if self.apps.is_empty() {
            row(f, "apps", &json!("default (all backends)"))?;
        }
        for (at, app) in self.apps.iter().enumerate() {
            let backends = backends_of(app.backends.as_ref());
            let some = match app.some_tools_of.join(", ") {
                none if none.is_empty() => none,
                some => format!("; not all tools of {some}"),
            };
            let label = if at == 0 { "apps" } else { "" };
            row(f, label, &json!(format!("{} ({backends}{some})", app.name)))?;
        }
        for (at, RuntimePlan { name, kind, url, backends }) in self.runtimes.iter().enumerate() {
            let label = if at == 0 { "runtimes" } else { "" };
            let backends = backends_of(backends.as_ref());
            row(f, label, &json!(format!("{name} ({kind} at {url}, {backends})")))?;
        }
        for (at, ReceiverPlan { name, way, on }) in self.notify.iter().enumerate() {
            let label = if at == 0 { "notify" } else { "" };
            row(f, label, &json!(format!("{name} ({way}: {})", on.join(", "))))?;
        }
        self.backends.iter().try_for_each(|backend| write!(f, "\n{backend}"))?;
        if !self.disabled.is_empty() {
            writeln!(f)?;
        }
        row(f, "disabled", &json!(self.disabled))?;
        if !self.injected.is_empty() {
            writeln!(f)?;
        }
        let counts_something =
            |one: &&Injected| one.cost != Cost::default() || self.not_counted.is_empty();
        for one in self.injected.iter().filter(counts_something) {
            writeln!(f, "each run of {}: {}", one.app, one.cost)?;
            for OfBackend { name, cost } in
                one.backends.iter().filter(|backend| backend.cost != Cost::default())
            {
                row(f, &format!("  {name:<16}"), &json!(cost.to_string()))?;
            }
            row(f, &format!("  {:<16}", "largest"), &json!(one.largest(None)))?;
        }
        match self.not_counted.join(", ") {
            none if none.is_empty() => Ok(()),
            some => writeln!(f, "not counted, as the daemon has not stored their tools: {some}"),
        }
    }
}

impl fmt::Display for BackendPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(_, name), (_, kind), members @ ..] = self.0.as_slice() else { return Ok(()) };
        writeln!(f, "{} {}", text(kind), text(name))?;
        let shown = own_keys(name, kind, members);
        shown.iter().try_for_each(|(key, value)| row(f, &format!("  {key:<17}"), value))
    }
}

#[cfg(test)]
mod tests;
