//! `mantyx-bridge check`: reads only the configuration, and shows what would run, or the mistakes.
//!
//! Must not: start a program, open a socket, or print a secret.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::HeaderMap;
use serde::Serialize;
use url::Url;

use crate::{
    backend::program::hiding::{exposure, possible},
    config::{
        A2a, Action, Auth, Backend, CardSource, ClientCredentials, Config, ConfigErrors,
        Confinement, Credential, Environment, Files, Local, Mantyx, Mcp, OnUnavailable, Pin,
        Program, ProgramSandbox, Signers, Target, Upstream, Written, error::Problem, find,
        value::format_duration,
    },
    http_client::Tls,
};

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
    tls: Option<TlsPlan>,
    auth: Auth,
    apps: Vec<AppPlan>,
    state_dir: String,
    backends: Vec<BackendPlan>,
    disabled: Vec<String>,
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

/// One backend of the plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BackendPlan {
    name: String,
    kind: &'static str,
    #[serde(flatten)]
    reached: Reached,
    /// The prefix of its tools, for an MCP server.
    prefix: Option<String>,
    /// Whether the bridge trusts the annotations of an MCP server.
    trust_annotations: bool,
    /// What the bridge does with tools that were not accepted.
    pin: Pin,
    /// The signature that an agent's card must have, if one is configured.
    signature: Option<SignaturePlan>,
    /// Whether a person is asked before some of its calls.
    approve: bool,
    required: bool,
    on_unavailable: OnUnavailable,
    refresh: String,
    call_timeout: String,
    /// The time after which a call gets a first answer.
    pending_after: Option<String>,
    concurrency: usize,
}

/// The signature that the card of an agent must have.
#[derive(Debug, Serialize)]
struct SignaturePlan {
    /// The number of keys.
    keys: usize,
    required: bool,
}

/// How the bridge reaches a backend.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "reached")]
enum Reached {
    /// A child process with exactly these arguments.
    Stdio(ProgramPlan),
    /// A child process for each call.
    Command(ProgramPlan),
    /// An address, the names of its headers, and the source of its tokens.
    Url { url: String, headers: Vec<String>, oauth: Option<String>, tls: Option<TlsPlan> },
    /// A request for each call, with the names of its headers.
    Request { method: String, url: String, headers: Vec<String>, tls: Option<TlsPlan> },
    /// An Agent Card in a file.
    File { path: String, tls: Option<TlsPlan> },
    /// The example inside the bridge.
    Bundled,
}

/// Unusual TLS settings for one server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TlsPlan {
    /// The number of authorities that replace the machine's; `None` if the machine's are trusted.
    authorities: Option<usize>,
    /// Whether the server gets a client certificate.
    shows_certificate: bool,
}

/// The command line and the environment of a program.
#[derive(Debug, Serialize)]
struct ProgramPlan {
    argv: Vec<String>,
    /// The names of the variables, without values.
    env: Vec<String>,
    cwd: Option<String>,
    /// The limits on the files that it can read and write, if configured.
    sandbox: Option<SandboxPlan>,
}

/// The value of `sandbox`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum SandboxPlan {
    Word(&'static str),
    Lists { read: Vec<String>, write: Vec<String> },
}

/// Checks the file `path`, or the first default one. `look` finds further warnings.
fn report(
    path: Option<&Path>,
    env: &Environment,
    look: impl FnOnce(&Config) -> Vec<String>,
) -> CheckReport {
    let loaded = find(path).and_then(|path| {
        let config = Config::load(&path, env)?;
        Ok((path.display().to_string(), config))
    });
    match loaded {
        Ok((file, config)) => CheckReport {
            file,
            ok: true,
            plan: Some(Plan::new(&config)),
            warnings: [look(&config), config.warnings].concat(),
            ..CheckReport::default()
        },
        Err(errors) => errors.into(),
    }
}

/// A warning for each program that could read the bridge's own files, on this system and as this
/// user.
fn exposures(config: &Config) -> Vec<String> {
    let programs = config.backends.values().filter_map(|it| Some((&it.name, it.program()?)));
    let launcher = std::env::current_exe().ok();
    let exposed = programs.filter_map(|(name, program)| {
        let exposed = exposure(program, &possible(launcher.as_deref()))?;
        Some(format!("{name}: {exposed} {}", exposed.cure()))
    });
    exposed.collect()
}

/// Runs the command; true if the file is valid.
pub(super) fn run(path: Option<&Path>, json: bool, out: &mut dyn io::Write) -> io::Result<bool> {
    let report = report(path, &Environment::of_process(), exposures);
    if json {
        report.write_json(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(report.ok)
}

impl CheckReport {
    pub(super) fn write_json(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
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
        let count = match plan.backends.len() {
            1 => "1 backend".to_owned(),
            many => format!("{many} backends"),
        };
        writeln!(f, "{} is good: {count}\n", self.file)?;
        write!(f, "{plan}")?;
        if !self.warnings.is_empty() {
            writeln!(f)?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

impl Plan {
    fn new(config: &Config) -> Self {
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
                (base_url.to_string(), workspace.clone(), Some(whose), TlsPlan::new(tls))
            }
        };
        let apps = config.apps.iter().map(|app| AppPlan {
            name: app.name.to_string(),
            backends: app.rights.backends.as_ref().map(texts),
            some_tools_of: texts(app.rights.tools.keys()),
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
            backends: config.backends.values().map(BackendPlan::new).collect(),
            disabled: texts(&config.disabled),
        }
    }
}

impl BackendPlan {
    fn new(backend: &Backend) -> Self {
        let (mut prefix, mut signers) = (None, None);
        match &backend.target {
            Target::Mcp(_) => prefix = Some(backend.naming.prefix.clone()),
            Target::A2a(a2a) => signers = a2a.signers.as_ref(),
            Target::Local(_) => (),
        }
        Self {
            name: backend.name.to_string(),
            kind: backend.target.section(),
            reached: Reached::new(&backend.target),
            prefix,
            trust_annotations: backend.trust_annotations,
            pin: backend.pin,
            signature: signers.map(|Signers { keys, required }| SignaturePlan {
                keys: keys.len(),
                required: *required,
            }),
            approve: !backend.approve.is_empty(),
            required: backend.required,
            on_unavailable: backend.on_unavailable,
            refresh: format_duration(backend.refresh),
            call_timeout: format_duration(backend.call_timeout),
            pending_after: backend.pending_after.map(format_duration),
            concurrency: backend.concurrency,
        }
    }
}

impl Reached {
    fn new(target: &Target) -> Self {
        let at = |url: &Written<Url>,
                  headers: &HeaderMap,
                  oauth: &Option<Arc<ClientCredentials>>,
                  tls| {
            let oauth = oauth.as_deref().map(issuer);
            let (headers, tls) = (texts(headers.keys()), TlsPlan::new(tls));
            Self::Url { url: url.to_string(), headers, oauth, tls }
        };
        match target {
            Target::Mcp(Mcp::Stdio(program)) => Self::Stdio(ProgramPlan::new(program)),
            Target::Mcp(Mcp::Http { url, headers, oauth, tls, .. }) => at(url, headers, oauth, tls),
            Target::A2a(A2a { card, headers, oauth, tls, .. }) => match card {
                CardSource::Base(url) | CardSource::Url(url) => at(url, headers, oauth, tls),
                CardSource::File(path) => {
                    Self::File { path: path.display().to_string(), tls: TlsPlan::new(tls) }
                }
                CardSource::Bundled => Self::Bundled,
            },
            Target::Local(Local { action, .. }) => match action {
                Action::Command(program) => Self::Command(ProgramPlan::new(program)),
                Action::Http { method, url, headers, tls } => Self::Request {
                    method: method.to_string(),
                    url: url.to_string(),
                    headers: texts(headers.keys()),
                    tls: TlsPlan::new(tls),
                },
            },
        }
    }
}

impl TlsPlan {
    fn new(tls: &Option<Tls>) -> Option<Self> {
        let tls = tls.as_ref()?;
        Some(Self { authorities: tls.authorities(), shows_certificate: tls.shows_certificate() })
    }
}

impl ProgramPlan {
    fn new(program: &Program) -> Self {
        Self {
            argv: argv(program).collect(),
            env: texts(program.env.keys()),
            cwd: program.cwd.as_ref().map(|path| path.display().to_string()),
            sandbox: SandboxPlan::new(&program.sandbox),
        }
    }
}

impl SandboxPlan {
    fn new(sandbox: &ProgramSandbox) -> Option<Self> {
        let shown = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect();
        match sandbox {
            ProgramSandbox::Masked => None,
            ProgramSandbox::Off => Some(Self::Word("off")),
            ProgramSandbox::Secrets => Some(Self::Word("secrets")),
            ProgramSandbox::Listed(Confinement { read, write }) => {
                Some(Self::Lists { read: shown(read), write: shown(write) })
            }
        }
    }
}

fn issuer(oauth: &ClientCredentials) -> String {
    match &oauth.token_url {
        Some(url) => format!("as {} from {url}", oauth.id),
        None => format!("as {}, from where the backend says", oauth.id),
    }
}

fn argv(program: &Program) -> impl Iterator<Item = String> {
    std::iter::once(program.command.clone()).chain(program.args.iter().map(ToString::to_string))
}

/// The command line of `program`, as a reader can type it. The bridge itself uses no shell.
pub(super) fn command_line(program: &Program) -> String {
    quoted(&argv(program).collect::<Vec<_>>())
}

fn texts(names: impl IntoIterator<Item: ToString>) -> Vec<String> {
    names.into_iter().map(|name| name.to_string()).collect()
}

/// Writes a line of the text, unless it would say nothing.
fn row(f: &mut fmt::Formatter<'_>, label: &str, text: impl AsRef<str>) -> fmt::Result {
    match text.as_ref() {
        "" => Ok(()),
        text => writeln!(f, "{label:<10} {text}"),
    }
}

/// A value that may be missing, as text.
fn shown(value: Option<impl fmt::Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The word of bridge.yaml for a value.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "listen", self.listen.join(", "))?;
        let workspace = shown(self.workspace.as_ref().map(|it| format!(", workspace {it}")));
        let whose = match self.credential {
            Some("passthrough") => ", with each app's own credential",
            _ => "",
        };
        row(f, "upstream", format!("{}{workspace}{whose}", self.upstream))?;
        row(f, "", shown(self.tls.as_ref().map(|tls| format!("tls: {tls}"))))?;
        row(f, "state", &self.state_dir)?;
        row(f, "auth", word(&self.auth))?;
        if self.apps.is_empty() {
            row(f, "apps", "default (all backends)")?;
        }
        for (at, app) in self.apps.iter().enumerate() {
            let backends = match &app.backends {
                None => "all backends".to_owned(),
                Some(none) if none.is_empty() => "no backends".to_owned(),
                Some(some) => some.join(", "),
            };
            let some = match app.some_tools_of.join(", ") {
                none if none.is_empty() => none,
                some => format!("; not all tools of {some}"),
            };
            let label = if at == 0 { "apps" } else { "" };
            row(f, label, format!("{} ({backends}{some})", app.name))?;
        }
        self.backends.iter().try_for_each(|backend| write!(f, "\n{backend}"))?;
        if !self.disabled.is_empty() {
            writeln!(f)?;
        }
        row(f, "disabled", self.disabled.join(", "))
    }
}

impl fmt::Display for BackendPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.kind, self.name)?;
        write!(f, "{}", self.reached)?;
        if let Some(prefix) = &self.prefix {
            let tools = match prefix.as_str() {
                "" => "names as they are".to_owned(),
                prefix => format!("{prefix}*"),
            };
            let trust =
                if self.trust_annotations { "; their annotations are believed" } else { "" };
            row(f, "  tools", format!("{tools}{trust}"))?;
        }
        row(f, "  signed", shown(self.signature.as_ref()))?;
        if self.approve {
            row(f, "  asks", "a person, before the calls that `approve` names")?;
        }
        let pending = shown(self.pending_after.as_ref().map(|it| format!(", pending after {it}")));
        let required = if self.required { ", required" } else { "" };
        let fetched = match self.kind {
            // A local tool has nothing to fetch, and is never down.
            "local" => String::new(),
            _ => {
                let down = word(&self.on_unavailable);
                format!("; refreshed every {}; {down} while down", self.refresh)
            }
        };
        let (calls, each) = (self.concurrency, &self.call_timeout);
        let limits = format!("{calls} calls at once, {each} each{pending}{fetched}{required}");
        row(f, "  limits", limits)?;
        match (self.pin, &self.reached) {
            (Pin::Enforce, _) => row(f, "  pin", "what changes is withdrawn until it is accepted"),
            // The bundled agent has no pins, and neither has a local tool.
            (Pin::Off, Reached::Stdio(_) | Reached::Url { .. } | Reached::File { .. }) => {
                row(f, "  pin", "off: changes are not reported")
            }
            (Pin::Off | Pin::Warn, _) => Ok(()),
        }
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = match self {
            Self::Stdio(ProgramPlan { argv, env, cwd, sandbox })
            | Self::Command(ProgramPlan { argv, env, cwd, sandbox }) => {
                row(f, "  runs", quoted(argv))?;
                row(f, "  env", env.join(", "))?;
                row(f, "  in", shown(cwd.as_ref()))?;
                return row(f, "  shut in", shown(sandbox.as_ref()));
            }
            Self::Bundled => return row(f, "  runs", "inside the bridge"),
            Self::Url { url, headers, oauth, tls } => {
                row(f, "  at", url)?;
                row(f, "  headers", headers.join(", "))?;
                row(f, "  tokens", shown(oauth.as_ref()))?;
                tls
            }
            Self::Request { method, url, headers, tls } => {
                row(f, "  sends", format!("{method} {url}"))?;
                row(f, "  headers", headers.join(", "))?;
                tls
            }
            Self::File { path, tls } => {
                row(f, "  card", path)?;
                tls
            }
        };
        row(f, "  tls", shown(tls.as_ref()))
    }
}

impl fmt::Display for TlsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.authorities {
            None => f.write_str("trusts whom this machine trusts")?,
            Some(1) => f.write_str("trusts the authority in `ca` alone")?,
            Some(many) => write!(f, "trusts the {many} authorities in `ca` alone")?,
        }
        f.write_str(if self.shows_certificate { "; shows a certificate" } else { "" })
    }
}

impl fmt::Display for SandboxPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |paths: &[String]| match paths {
            [] => "nothing".to_owned(),
            paths => paths.join(", "),
        };
        match self {
            Self::Word("off") => f.write_str("nowhere: it reads what the bridge's user may"),
            Self::Word(_) => f.write_str("from the bridge's own files alone"),
            Self::Lists { read, write } => {
                write!(f, "besides the system, reads {}; writes {}", list(read), list(write))
            }
        }
    }
}

impl fmt::Display for SignaturePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keys {
            1 => f.write_str("by the key that is configured")?,
            many => write!(f, "by one of {many} keys")?,
        }
        f.write_str(if self.required { "" } else { "; an unsigned one is reported, and taken" })
    }
}

/// A command line, with quotes around an argument that a reader could not tell from the next one.
fn quoted(argv: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@+,%*{}$".contains(c);
    let quoted = |arg: &String| match !arg.is_empty() && arg.chars().all(plain) {
        true => arg.clone(),
        false => format!("{arg:?}"),
    };
    argv.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
