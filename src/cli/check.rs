//! `mantyx-bridge check`: reads only the configuration, and shows what would run, or the mistakes.
//!
//! Must not: start a program, open a socket, or print a secret.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use http::HeaderMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{
    backend::program::hiding::{exposure, possible},
    config::{
        A2a, Action, Auth, Backend, CardSource, ClientCredentials, Config, ConfigErrors,
        Confinement, Credential, Environment, Files, Local, Mantyx, Mcp, Pin, Program,
        ProgramSandbox, Signers, Target, Upstream, error::Problem, find, value::format_duration,
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
#[derive(Debug)]
struct BackendPlan(Backend);

/// Unusual TLS settings for one server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TlsPlan {
    /// The number of authorities that replace the machine's; `None` if the machine's are trusted.
    authorities: Option<usize>,
    /// Whether the server gets a client certificate.
    shows_certificate: bool,
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
            warnings: [look(&config), config.warnings.clone()].concat(),
            plan: Some(Plan::new(config)),
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
    fn new(config: Config) -> Self {
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
            backends: config.backends.into_values().map(BackendPlan).collect(),
            disabled: texts(&config.disabled),
        }
    }
}

impl Serialize for BackendPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(backend) = self;
        let signature = self
            .signers()
            .map(|Signers { keys, required }| json!({ "keys": keys.len(), "required": required }));
        let mut members =
            vec![("name", json!(backend.name.as_str())), ("kind", json!(backend.target.section()))];
        members.extend(reached(&backend.target).into_iter().map(|(key, value, ..)| (key, value)));
        members.extend([
            ("prefix", json!(self.prefix())),
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
        serializer.collect_map(members)
    }
}

impl BackendPlan {
    /// The prefix of its tools, for an MCP server.
    fn prefix(&self) -> Option<&str> {
        matches!(self.0.target, Target::Mcp(_)).then_some(self.0.naming.prefix.as_str())
    }

    /// The signature that an agent's card must have, if one is configured.
    fn signers(&self) -> Option<&Signers> {
        match &self.0.target {
            Target::A2a(agent) => agent.signers.as_ref(),
            Target::Mcp(_) | Target::Local(_) => None,
        }
    }
}

/// A member of a backend in the JSON, and the line of the text that says the same.
type Fact = (&'static str, Value, &'static str, String);

/// A member whose line of the text has its strings.
fn fact(key: &'static str, value: Value, label: &'static str) -> Fact {
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let text = match &value {
        Value::Array(all) => all.iter().map(string).collect::<Vec<_>>().join(", "),
        one => string(one),
    };
    (key, value, label, text)
}

/// How a backend is reached: the exact arguments of a program, but only the names of its variables,
/// and of headers.
fn reached(target: &Target) -> Vec<Fact> {
    let kind = |kind| ("reached", json!(kind), "", String::new());
    let headers = |all: &HeaderMap| fact("headers", json!(texts(all.keys())), "  headers");
    let secured = |tls| ("tls", json!(TlsPlan::new(tls)), "  tls", shown(TlsPlan::new(tls)));
    match target {
        Target::Mcp(Mcp::Stdio(program))
        | Target::Local(Local { action: Action::Command(program), .. }) => {
            let Program { env, cwd, sandbox, .. } = program;
            let list = |listed: &[PathBuf]| match listed {
                [] => "nothing".to_owned(),
                listed => paths(listed).join(", "),
            };
            let (sandbox, shut_in) = match sandbox {
                ProgramSandbox::Masked => (Value::Null, String::new()),
                ProgramSandbox::Off => {
                    (json!("off"), "nowhere: it reads what the bridge's user may".to_owned())
                }
                ProgramSandbox::Secrets => {
                    (json!("secrets"), "from the bridge's own files alone".to_owned())
                }
                ProgramSandbox::Listed(Confinement { read, write }) => (
                    json!({ "read": paths(read), "write": paths(write) }),
                    format!("besides the system, reads {}; writes {}", list(read), list(write)),
                ),
            };
            vec![
                kind(if matches!(target, Target::Mcp(_)) { "stdio" } else { "command" }),
                ("argv", json!(argv(program)), "  runs", command_line(program)),
                fact("env", json!(texts(env.keys())), "  env"),
                fact("cwd", json!(cwd.as_ref().map(|path| path.display().to_string())), "  in"),
                ("sandbox", sandbox, "  shut in", shut_in),
            ]
        }
        Target::A2a(A2a { card: CardSource::Bundled, .. }) => {
            vec![("reached", json!("bundled"), "  runs", "inside the bridge".to_owned())]
        }
        Target::A2a(A2a { card: CardSource::File(path), tls, .. }) => {
            let path = json!(path.display().to_string());
            vec![kind("file"), fact("path", path, "  card"), secured(tls)]
        }
        Target::Mcp(Mcp::Http { url, headers: names, oauth, tls, .. })
        | Target::A2a(A2a {
            card: CardSource::Base(url) | CardSource::Url(url),
            headers: names,
            oauth,
            tls,
            ..
        }) => vec![
            kind("url"),
            fact("url", json!(url.to_string()), "  at"),
            headers(names),
            fact("oauth", json!(oauth.as_deref().map(issuer)), "  tokens"),
            secured(tls),
        ],
        Target::Local(Local {
            action: Action::Http { method, url, headers: names, tls }, ..
        }) => {
            vec![
                kind("request"),
                ("method", json!(method.as_str()), "  sends", format!("{method} {url}")),
                ("url", json!(url.to_string()), "", String::new()),
                headers(names),
                secured(tls),
            ]
        }
        Target::Local(Local { action: Action::Internal, .. }) => vec![kind("internal")],
    }
}

impl TlsPlan {
    fn new(tls: &Option<Tls>) -> Option<Self> {
        let tls = tls.as_ref()?;
        Some(Self { authorities: tls.authorities(), shows_certificate: tls.shows_certificate() })
    }
}

fn issuer(oauth: &ClientCredentials) -> String {
    match &oauth.token_url {
        Some(url) => format!("as {} from {url}", oauth.id),
        None => format!("as {}, from where the backend says", oauth.id),
    }
}

fn argv(program: &Program) -> Vec<String> {
    std::iter::once(program.command.clone())
        .chain(program.args.iter().map(ToString::to_string))
        .collect()
}

/// The command line of `program`, as a reader can type it, with quotes around an argument that a
/// reader could not tell from the next one. The bridge itself uses no shell.
pub(super) fn command_line(program: &Program) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@+,%*{}$".contains(c);
    let quoted = |arg: String| match !arg.is_empty() && arg.chars().all(plain) {
        true => arg,
        false => format!("{arg:?}"),
    };
    argv(program).into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    texts(paths.iter().map(|path| path.display()))
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
        let Self(backend) = self;
        writeln!(f, "{} {}", backend.target.section(), backend.name)?;
        for (_, _, label, text) in reached(&backend.target) {
            row(f, label, text)?;
        }
        if let Some(prefix) = self.prefix() {
            let tools = match prefix {
                "" => "names as they are".to_owned(),
                prefix => format!("{prefix}*"),
            };
            let trust =
                if backend.trust_annotations { "; their annotations are believed" } else { "" };
            row(f, "  tools", format!("{tools}{trust}"))?;
        }
        row(f, "  signed", self.signers().map(signature).unwrap_or_default())?;
        if !backend.approve.is_empty() {
            row(f, "  asks", "a person, before the calls that `approve` names")?;
        }
        let pending = backend.pending_after.map(format_duration);
        let pending = shown(pending.map(|it| format!(", pending after {it}")));
        let required = if backend.required { ", required" } else { "" };
        let fetched = match backend.target {
            // A local tool has nothing to fetch, and is never down.
            Target::Local(_) => String::new(),
            Target::Mcp(_) | Target::A2a(_) => {
                let (refresh, down) = (backend.refresh, word(&backend.on_unavailable));
                format!("; refreshed every {}; {down} while down", format_duration(refresh))
            }
        };
        let calls = backend.concurrency;
        let each = format_duration(backend.call_timeout);
        let limits = format!("{calls} calls at once, {each} each{pending}{fetched}{required}");
        row(f, "  limits", limits)?;
        match (backend.pin, &backend.target) {
            (Pin::Enforce, _) => row(f, "  pin", "what changes is withdrawn until it is accepted"),
            // The bundled agent has no pins, and neither has a local tool.
            (Pin::Off, Target::Local(_) | Target::A2a(A2a { card: CardSource::Bundled, .. }))
            | (Pin::Warn, _) => Ok(()),
            (Pin::Off, _) => row(f, "  pin", "off: changes are not reported"),
        }
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

fn signature(Signers { keys, required }: &Signers) -> String {
    let signed = match keys.len() {
        1 => "by the key that is configured".to_owned(),
        many => format!("by one of {many} keys"),
    };
    format!("{signed}{}", if *required { "" } else { "; an unsigned one is reported, and taken" })
}

#[cfg(test)]
mod tests;
