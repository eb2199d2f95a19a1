//! `mantyx-bridge check`: reads only the configuration, and shows what would run, or the mistakes.
//!
//! Must not: start a program, open a socket, or print a secret.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    backend::program::hiding::{exposure, possible},
    config::{
        A2a, Action, Auth, Backend, CardSource, ClientCredentials, Config, ConfigErrors,
        Confinement, Credential, Environment, Files, Mcp, OnUnavailable, Program, ProgramSandbox,
        Signers, Target, Upstream, error::Problem, find, value::format_duration,
    },
    http_client::Tls,
    model::ids::BackendName,
};

/// The result of `check`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    pub file: String,
    pub ok: bool,
    /// The plan; `None` if the file has errors.
    pub plan: Option<Plan>,
    pub warnings: Vec<String>,
    pub errors: Vec<Problem>,
    /// The errors in the form for people.
    #[serde(skip)]
    rendered_errors: String,
}

/// What `serve` would do with this file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub listen: Vec<String>,
    pub upstream: String,
    pub workspace: Option<String>,
    /// The credential for the upstream: `own`, `oauth`, `passthrough`, or none for the sandbox.
    pub credential: Option<&'static str>,
    /// Unusual TLS settings for the upstream.
    pub tls: Option<TlsPlan>,
    pub auth: &'static str,
    pub apps: Vec<AppPlan>,
    pub state_dir: String,
    pub backends: Vec<BackendPlan>,
    pub disabled: Vec<String>,
}

/// One app of the plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppPlan {
    pub name: String,
    /// `None` means all backends.
    pub backends: Option<Vec<String>>,
    /// The servers of which it may use only some tools.
    pub some_tools_of: Vec<String>,
}

/// One backend of the plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendPlan {
    pub name: String,
    pub kind: &'static str,
    #[serde(flatten)]
    pub reached: Reached,
    /// The prefix of its tools, for an MCP server.
    pub prefix: Option<String>,
    /// Whether the bridge trusts the annotations of an MCP server.
    pub trust_annotations: bool,
    /// What the bridge does with tools that were not accepted: the value of `pin`.
    pub pin: &'static str,
    /// The signature that an agent's card must have, if one is configured.
    pub signature: Option<SignaturePlan>,
    /// Whether a person is asked before some of its calls.
    pub approve: bool,
    pub required: bool,
    pub on_unavailable: &'static str,
    pub refresh: String,
    pub call_timeout: String,
    /// The time after which a call gets a first answer.
    pub pending_after: Option<String>,
    pub concurrency: usize,
}

/// The signature that the card of an agent must have.
#[derive(Debug, Serialize)]
pub struct SignaturePlan {
    /// The number of keys.
    pub keys: usize,
    pub required: bool,
}

/// How the bridge reaches a backend.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "reached")]
pub enum Reached {
    /// A child process with exactly these arguments.
    Stdio(Line),
    /// A child process for each call.
    Command(Line),
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
pub struct TlsPlan {
    /// The number of authorities that replace the machine's; `None` if the machine's are trusted.
    pub authorities: Option<usize>,
    /// Whether the server gets a client certificate.
    pub shows_certificate: bool,
}

/// The command line and the environment of a program.
#[derive(Debug, Serialize)]
pub struct Line {
    pub argv: Vec<String>,
    /// The names of the variables, without values.
    pub env: Vec<String>,
    pub cwd: Option<String>,
    /// The limits on the files that it can read and write, if configured.
    pub sandbox: Option<SandboxLine>,
}

/// The value of `sandbox`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum SandboxLine {
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
            errors: Vec::new(),
            rendered_errors: String::new(),
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
pub fn run(path: Option<&Path>, json: bool, out: &mut dyn io::Write) -> io::Result<bool> {
    let report = report(path, &Environment::of_process(), exposures);
    if json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(report.ok)
}

impl From<ConfigErrors> for CheckReport {
    fn from(errors: ConfigErrors) -> Self {
        Self {
            rendered_errors: errors.to_string(),
            ok: false,
            plan: None,
            warnings: Vec::new(),
            file: errors.file,
            errors: errors.problems,
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
            Upstream::Mantyx { base_url, workspace, credential, tls } => {
                let whose = match credential {
                    Credential::Own(_) => "own",
                    Credential::Oauth(_) => "oauth",
                    Credential::Passthrough => "passthrough",
                };
                (base_url.to_string(), workspace.clone(), Some(whose), TlsPlan::of(tls))
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
            auth: match config.auth {
                Auth::Token => "token",
                Auth::Off => "off",
            },
            apps: apps.collect(),
            state_dir: config.state_dir.display().to_string(),
            backends: config.backends.values().map(BackendPlan::new).collect(),
            disabled: config.disabled.iter().map(ToString::to_string).collect(),
        }
    }
}

impl BackendPlan {
    fn new(backend: &Backend) -> Self {
        let signers = match &backend.target {
            Target::A2a(a2a) => a2a.signers.as_ref(),
            Target::Mcp(_) | Target::Local(_) => None,
        };
        let (reached, prefix) = match &backend.target {
            Target::Mcp(mcp) => (Reached::mcp(mcp), Some(backend.naming.prefix.clone())),
            Target::A2a(a2a) => (Reached::a2a(a2a), None),
            Target::Local(local) => (Reached::local(&local.action), None),
        };
        Self {
            name: backend.name.to_string(),
            kind: backend.target.section(),
            reached,
            prefix,
            trust_annotations: backend.trust_annotations,
            pin: backend.pin.as_str(),
            signature: signers.map(|Signers { keys, required }| SignaturePlan {
                keys: keys.len(),
                required: *required,
            }),
            approve: !backend.approve.is_empty(),
            required: backend.required,
            on_unavailable: match backend.on_unavailable {
                OnUnavailable::Stub => "stub",
                OnUnavailable::Stale => "stale",
                OnUnavailable::Omit => "omit",
                OnUnavailable::Fail => "fail",
            },
            refresh: format_duration(backend.refresh),
            call_timeout: format_duration(backend.call_timeout),
            pending_after: backend.pending_after.map(format_duration),
            concurrency: backend.concurrency,
        }
    }
}

impl Reached {
    fn mcp(mcp: &Mcp) -> Self {
        match mcp {
            Mcp::Stdio(program) => Self::Stdio(Line::new(program)),
            Mcp::Http { url, headers, oauth, tls, .. } => Self::Url {
                url: url.to_string(),
                headers: names(headers),
                oauth: oauth.as_deref().map(issuer),
                tls: TlsPlan::of(tls),
            },
        }
    }

    fn tls(&self) -> Option<&TlsPlan> {
        match self {
            Self::Url { tls, .. } | Self::Request { tls, .. } | Self::File { tls, .. } => {
                tls.as_ref()
            }
            Self::Stdio(_) | Self::Command(_) | Self::Bundled => None,
        }
    }

    fn local(action: &Action) -> Self {
        match action {
            Action::Http { method, url, headers, tls } => Self::Request {
                method: method.to_string(),
                url: url.to_string(),
                headers: names(headers),
                tls: TlsPlan::of(tls),
            },
            Action::Command(program) => Self::Command(Line::new(program)),
        }
    }

    fn a2a(a2a: &A2a) -> Self {
        match &a2a.card {
            CardSource::Base(url) | CardSource::Url(url) => Self::Url {
                url: url.to_string(),
                headers: names(&a2a.headers),
                oauth: a2a.oauth.as_deref().map(issuer),
                tls: TlsPlan::of(&a2a.tls),
            },
            CardSource::File(path) => {
                Self::File { path: path.display().to_string(), tls: TlsPlan::of(&a2a.tls) }
            }
            CardSource::Bundled => Self::Bundled,
        }
    }
}

impl TlsPlan {
    fn of(tls: &Option<Tls>) -> Option<Self> {
        let tls = tls.as_ref()?;
        Some(Self { authorities: tls.authorities(), shows_certificate: tls.shows_certificate() })
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

impl Line {
    fn new(Program { command, args, env, cwd, sandbox, .. }: &Program) -> Self {
        let args = args.iter().map(ToString::to_string);
        Self {
            argv: std::iter::once(command.clone()).chain(args).collect(),
            env: env.keys().cloned().collect(),
            cwd: cwd.as_ref().map(|path| path.display().to_string()),
            sandbox: SandboxLine::new(sandbox),
        }
    }
}

impl SandboxLine {
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

impl fmt::Display for SandboxLine {
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

fn issuer(oauth: &ClientCredentials) -> String {
    match &oauth.token_url {
        Some(url) => format!("as {} from {url}", oauth.id),
        None => format!("as {}, from where the backend says", oauth.id),
    }
}

fn names(headers: &http::HeaderMap) -> Vec<String> {
    headers.keys().map(ToString::to_string).collect()
}

fn texts<'n>(names: impl IntoIterator<Item = &'n BackendName>) -> Vec<String> {
    names.into_iter().map(ToString::to_string).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "listen     {}", self.listen.join(", "))?;
        write!(f, "upstream   {}", self.upstream)?;
        if let Some(workspace) = &self.workspace {
            write!(f, ", workspace {workspace}")?;
        }
        match self.credential {
            Some("passthrough") => writeln!(f, ", with each app's own credential")?,
            _ => writeln!(f)?,
        }
        if let Some(tls) = &self.tls {
            writeln!(f, "           tls: {tls}")?;
        }
        writeln!(f, "state      {}", self.state_dir)?;
        writeln!(f, "auth       {}", self.auth)?;
        if self.apps.is_empty() {
            writeln!(f, "apps       default (all backends)")?;
        }
        for (at, app) in self.apps.iter().enumerate() {
            let label = if at == 0 { "apps" } else { "" };
            let backends = match &app.backends {
                None => "all backends".to_owned(),
                Some(none) if none.is_empty() => "no backends".to_owned(),
                Some(some) => some.join(", "),
            };
            let some = match app.some_tools_of.join(", ") {
                none if none.is_empty() => none,
                some => format!("; not all tools of {some}"),
            };
            writeln!(f, "{label:<10} {} ({backends}{some})", app.name)?;
        }
        for backend in &self.backends {
            writeln!(f)?;
            write!(f, "{backend}")?;
        }
        if !self.disabled.is_empty() {
            writeln!(f, "\ndisabled   {}", self.disabled.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for BackendPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.kind, self.name)?;
        match &self.reached {
            Reached::Stdio(line) | Reached::Command(line) => {
                let Line { argv, env, cwd, sandbox } = line;
                let argv: Vec<String> = argv.iter().map(|arg| quoted(arg)).collect();
                writeln!(f, "  runs     {}", argv.join(" "))?;
                if !env.is_empty() {
                    writeln!(f, "  env      {}", env.join(", "))?;
                }
                if let Some(cwd) = cwd {
                    writeln!(f, "  in       {cwd}")?;
                }
                if let Some(sandbox) = sandbox {
                    writeln!(f, "  shut in  {sandbox}")?;
                }
            }
            Reached::Url { url, headers, oauth, .. } => {
                writeln!(f, "  at       {url}")?;
                if !headers.is_empty() {
                    writeln!(f, "  headers  {}", headers.join(", "))?;
                }
                if let Some(issuer) = oauth {
                    writeln!(f, "  tokens   {issuer}")?;
                }
            }
            Reached::Request { method, url, headers, .. } => {
                writeln!(f, "  sends    {method} {url}")?;
                if !headers.is_empty() {
                    writeln!(f, "  headers  {}", headers.join(", "))?;
                }
            }
            Reached::File { path, .. } => writeln!(f, "  card     {path}")?,
            Reached::Bundled => writeln!(f, "  runs     inside the bridge")?,
        }
        if let Some(tls) = self.reached.tls() {
            writeln!(f, "  tls      {tls}")?;
        }
        if let Some(prefix) = &self.prefix {
            let tools = match prefix.as_str() {
                "" => "names as they are".to_owned(),
                prefix => format!("{prefix}*"),
            };
            let trust =
                if self.trust_annotations { "; their annotations are believed" } else { "" };
            writeln!(f, "  tools    {tools}{trust}")?;
        }
        if let Some(SignaturePlan { keys, required }) = &self.signature {
            let otherwise = if *required { "" } else { "; an unsigned one is reported, and taken" };
            let whose = match keys {
                1 => "the key that is configured".to_owned(),
                many => format!("one of {many} keys"),
            };
            writeln!(f, "  signed   by {whose}{otherwise}")?;
        }
        if self.approve {
            writeln!(f, "  asks     a person, before the calls that `approve` names")?;
        }
        let required = if self.required { ", required" } else { "" };
        let pending = self.pending_after.as_ref();
        let pending = pending.map(|after| format!(", pending after {after}")).unwrap_or_default();
        if self.kind == "local" {
            // A local tool has nothing to fetch, and is never down.
            let (calls, each) = (self.concurrency, &self.call_timeout);
            return writeln!(f, "  limits   {calls} calls at once, {each} each{pending}{required}");
        }
        writeln!(
            f,
            "  limits   {} calls at once, {} each{pending}; refreshed every {}; {} while down{required}",
            self.concurrency, self.call_timeout, self.refresh, self.on_unavailable
        )?;
        match (self.pin, &self.reached) {
            ("enforce", _) => {
                writeln!(f, "  pin      what changes is withdrawn until it is accepted")
            }
            // The bundled agent has no pins.
            ("warn", _) | (_, Reached::Bundled) => Ok(()),
            _ => writeln!(f, "  pin      off: changes are not reported"),
        }
    }
}

/// An argument, quoted where a reader could not tell it from the next one. The bridge uses no
/// shell.
fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@+,%*{}$".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("{arg:?}") }
}

#[cfg(test)]
mod tests;
