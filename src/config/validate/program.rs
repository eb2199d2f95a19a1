//! A program that the bridge starts: its name, its arguments, its environment.
//!
//! Must not: start the program or look for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::{Validator, all, mistakes, optional, plain_secret};
use crate::config::deserialize::Mistake;
use crate::config::document::Kind;
use crate::config::reference::{looks_secret, scheme_and_token};
use crate::config::{
    At, Confinement, Dialect, DurationOrOff, DurationText, List, Named, NodeId, PASSED_ON, Program,
    ProgramSandbox, SandboxValue, Scalar, Secret, Start, StartMode, Written, file_format,
};

/// As a command, this means the program that reads the file, which need not be on the PATH.
const OWN_PROGRAM: &str = "mantyx-bridge";

/// The keys of an entry that say which program starts, and how.
pub(super) struct ProgramKeys<'s> {
    pub command: &'s At<String>,
    pub args: &'s [At<Scalar>],
    /// Its variables are set before `env`, which overrides them.
    pub env_file: Option<&'s At<String>>,
    pub env: Option<&'s Named<Scalar>>,
    pub cwd: Option<&'s At<String>>,
    pub sandbox: Option<&'s At<SandboxValue>>,
}

/// The keys of an entry whose program and arguments are one list.
pub(super) struct ArgvKeys<'s> {
    pub argv: &'s List<Scalar>,
    pub env: Option<&'s Named<Scalar>>,
    pub cwd: Option<&'s At<String>>,
    pub sandbox: Option<&'s At<SandboxValue>>,
}

/// The keys, of an entry or of `programs`, that say when a program runs.
pub(super) struct StartKeys<'s> {
    pub start: Option<&'s At<StartMode>>,
    pub idle_stop: Option<&'s At<DurationOrOff>>,
    pub start_timeout: Option<&'s At<DurationText>>,
}

/// The longest `start_timeout` and the longest `idle_stop`: a longer one is a mistake in the unit.
const MAX_START: Duration = Duration::from_secs(60 * 60);
const MAX_IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest `idle_stop`: a program that is ended sooner would start all the time.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// What the section `programs` gives to the program of each entry.
#[derive(Default)]
pub(super) struct ProgramDefaults {
    env: BTreeMap<String, Secret>,
    pub(super) start: Start,
    /// What the section refers to, and is missing.
    missing: Vec<Mistake>,
}

impl Validator<'_> {
    /// Reads `programs`. What is missing there keeps only the entries with a program from being
    /// reached, so [`Self::program`] reports it for each of them.
    pub(super) fn program_defaults(
        &self,
        section: Option<&At<file_format::Programs>>,
    ) -> ProgramDefaults {
        let before = self.findings.borrow().mistakes.len();
        let variables = section.and_then(|at| at.value.env.as_ref());
        let env = self.child_env(BTreeMap::new(), variables, Dialect::Own);
        let mut findings = self.findings.borrow_mut();
        let mistakes = findings.mistakes.split_off(before);
        let (missing, wrong): (Vec<_>, Vec<_>) =
            mistakes.into_iter().partition(|mistake| mistake.is_outside);
        findings.mistakes.extend(wrong);
        drop(findings);
        let start = section.map_or_else(Start::default, |at| {
            let keys = StartKeys {
                start: at.value.start.as_ref(),
                idle_stop: at.value.idle_stop.as_ref(),
                start_timeout: at.value.start_timeout.as_ref(),
            };
            self.start(&keys, Start::default())
        });
        ProgramDefaults { env: env.unwrap_or_default(), start, missing }
    }

    /// When a program runs, where `inherited` holds for what the keys leave out.
    pub(super) fn start(&self, keys: &StartKeys<'_>, inherited: Start) -> Start {
        let idle_stop = match keys.idle_stop {
            None => inherited.idle_stop,
            Some(At { value: DurationOrOff(None), .. }) => None,
            Some(At { value: DurationOrOff(Some(time)), node }) => {
                if !(MIN_IDLE..=MAX_IDLE).contains(time) {
                    self.error(*node, mistakes::idle_stop());
                }
                Some(*time)
            }
        };
        Start {
            timeout: self.duration(keys.start_timeout, MAX_START, "").unwrap_or(inherited.timeout),
            is_lazy: keys.start.map_or(inherited.is_lazy, |at| at.value == StartMode::Lazy),
            idle_stop,
        }
    }

    /// [`Self::program`] of an entry in which it and its arguments are one list.
    pub(super) fn argv_program(
        &self,
        keys: &ArgvKeys<'_>,
        defaults: &ProgramDefaults,
    ) -> Option<Program> {
        let ArgvKeys { argv, env, cwd, sandbox } = *keys;
        let Some((program, args)) = argv.value.split_first() else {
            return self.refuse(argv.node, mistakes::empty_command());
        };
        let command = &At { value: program.value.0.clone(), node: program.node };
        let keys = ProgramKeys { command, args, env_file: None, env, cwd, sandbox };
        self.program(&keys, Dialect::Own, defaults)
    }

    /// The program of an entry. Its own variables win over those of `programs.env`; its arguments
    /// are read last, as `${NAME}` in them stands for one of its variables first.
    pub(super) fn program(
        &self,
        keys: &ProgramKeys<'_>,
        dialect: Dialect,
        defaults: &ProgramDefaults,
    ) -> Option<Program> {
        self.findings.borrow_mut().mistakes.extend(defaults.missing.iter().cloned());
        let command = self.command(keys.command, dialect);
        let env_file = optional(&keys.env_file, |at| self.env_file(at));
        let own_env = self.child_env(
            env_file.as_ref().and_then(Clone::clone).unwrap_or_default(),
            keys.env,
            dialect,
        );
        let env_complete = env_file.is_some() && own_env.is_some();
        let mut env = defaults.env.clone();
        env.extend(own_env.unwrap_or_default());
        let args = self.args(keys.args, dialect, &env);
        let cwd = optional(&keys.cwd, |at| self.path_in(at, dialect));
        let sandbox = self.sandbox(keys.sandbox, dialect);
        if !env_complete {
            return None;
        }
        let program = Program {
            command: command?,
            args: args?,
            env,
            cwd: cwd?,
            sandbox: sandbox?,
            // These are known once all of the file has been read.
            hidden: Arc::default(),
            secrets: Arc::default(),
        };
        self.warn_of_windows(keys.command, &program);
        Some(program)
    }

    /// Registers the passwords in the addresses of proxies. Programs get these addresses, and may
    /// repeat them in their output.
    pub(super) fn keep_proxies_secret(&self) {
        for address in PASSED_ON.iter().filter_map(|name| self.env.filled_var(name)) {
            let Some((login, _)) = address.rsplit_once('@') else { continue };
            let login = login.rsplit_once("://").map_or(login, |(_, login)| login);
            self.keep_secret(login);
            self.keep_secret(login.split_once(':').map_or("", |(_, password)| password));
        }
    }

    /// Refuses keys of another kind of entry in the map `node`.
    pub(super) fn check_foreign_keys(&self, node: NodeId, keys: &[&str], beside: &str) {
        for (key, node) in self.present_keys(node, keys) {
            self.error(node.key(), mistakes::foreign_key(key, beside));
        }
    }

    /// Which of `keys` the map `node` has, and where. A key without a value counts as absent, as
    /// serde reads it so; and a key with a mistake, so that the mistake is reported only once.
    pub(super) fn present_keys<'k>(
        &self,
        node: NodeId,
        keys: &[&'k str],
    ) -> Vec<(&'k str, NodeId)> {
        let Kind::Map(entries) = &self.document.node(node).kind else { return Vec::new() };
        let mut present = Vec::new();
        for (name, at) in entries {
            if matches!(at.kind, Kind::Null) || self.left_out.contains(&at.id) {
                continue;
            }
            if let Some(key) = keys.iter().find(|key| **key == name) {
                present.push((*key, at.id));
            }
        }
        present
    }

    fn command(&self, at: &At<String>, dialect: Dialect) -> Option<String> {
        let command = self.open_text(at.node, &at.value, dialect)?;
        if command.is_empty() || command.contains('\0') {
            return self.refuse(at.node, mistakes::no_program());
        }
        if command == OWN_PROGRAM {
            let own = self.env.own_program.as_deref().and_then(Path::to_str);
            return Some(own.unwrap_or(OWN_PROGRAM).to_owned());
        }
        self.check_shell(at.node, &at.value);
        let name = at.value.rsplit('/').next().unwrap_or_default();
        if name.contains(' ') && at.value.contains('/') {
            self.warn(at.node, "the program's name has a space; arguments go into `args`");
        }
        if at.value.contains(' ') && !at.value.contains(['/', '$']) {
            self.error(at.node, mistakes::spaces());
        }
        // A path with a slash starts at the file's directory, like every path in the file.
        if command.contains('/') {
            return self.directory.join(&command).to_str().map(str::to_owned);
        }
        Some(command)
    }

    /// Warns of `cmd /c npx …` and `npx.cmd …`. Not of a name with `.exe`: under WSL, such a
    /// program can be started.
    fn warn_of_windows(&self, at: &At<String>, program: &Program) {
        if at.value.to_ascii_lowercase().ends_with(".exe") {
            return;
        }
        if let Some(line) = program.without_windows() {
            self.warn(at.node, format!("`{}` is a program of Windows; write {line}", at.value));
        }
    }

    /// The arguments, each with the text that may be shown: a list of backends, a log or `check`
    /// would repeat a password otherwise. In them, `${NAME}` stands for a variable of `env` first.
    fn args(
        &self,
        items: &[At<Scalar>],
        dialect: Dialect,
        env: &BTreeMap<String, Secret>,
    ) -> Option<Vec<Written<String>>> {
        let mut after_secret_option = false;
        all(items.iter().map(|At { value: Scalar(text), node }| {
            let (value, template) = self.resolve_with(*node, text, dialect, env)?;
            if value.contains('\0') {
                self.outside(Some(&template), || self.error(*node, mistakes::zero_in_argument()));
            }
            if text.starts_with("~/") || text.starts_with("$HOME") {
                self.warn(*node, "there is no shell that replaces this; write ${env:HOME}");
            }
            if template.is_secret() {
                self.warn(*node, "arguments show in every list of processes; pass it in `env`");
            }
            if let Some(name) = template.own_secret() {
                let message = format!(
                    "arguments show in every list of processes; if the program replaces the variable \
                     itself, as mcp-remote does, write $${{{name}}}"
                );
                self.warn(*node, message);
            }
            let (option, inline) = text.split_once('=').unwrap_or((text, ""));
            let names_secret = looks_secret(option);
            // `-e API_KEY=abc`, as Docker takes it, has no hyphen.
            let holds_secret = template.is_plain()
                && (after_secret_option || names_secret && !inline.is_empty());
            let display = if !template.is_plain() {
                template.to_string()
            } else if !holds_secret {
                value.clone()
            } else if after_secret_option {
                "***".into()
            } else {
                format!("{option}=***")
            };
            if holds_secret {
                self.warn(*node, plain_secret("an argument"));
            }
            after_secret_option =
                names_secret && option.starts_with('-') && !value.contains('=');
            Some(self.written(value, display))
        }))
    }

    fn sandbox(
        &self,
        written: Option<&At<SandboxValue>>,
        dialect: Dialect,
    ) -> Option<ProgramSandbox> {
        let sandbox = match written.map(|at| &at.value) {
            None => return Some(ProgramSandbox::Masked),
            Some(SandboxValue::Off) => return Some(ProgramSandbox::Off),
            Some(SandboxValue::Secrets) => return Some(ProgramSandbox::Secrets),
            Some(SandboxValue::Lists(lists)) => lists,
        };
        let readable = self.paths(sandbox.read.as_ref(), dialect);
        let writable = self.paths(sandbox.write.as_ref(), dialect);
        Some(ProgramSandbox::Listed(Confinement { read: readable?, write: writable? }))
    }

    fn paths(&self, list: Option<&List<String>>, dialect: Dialect) -> Option<Vec<PathBuf>> {
        all(list.iter().flat_map(|list| &list.value).map(|at| self.path_in(at, dialect)))
    }

    fn child_env(
        &self,
        before: BTreeMap<String, Secret>,
        section: Option<&Named<Scalar>>,
        dialect: Dialect,
    ) -> Option<BTreeMap<String, Secret>> {
        let own = section.iter().flat_map(|section| &section.value).map(|(name, at)| {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.error(at.node.key(), mistakes::variable_name(name));
            }
            let (value, template) = self.resolve(at.node, &at.value.0, dialect)?;
            if value.contains('\0') {
                self.outside(Some(&template), || self.error(at.node, mistakes::zero_in_variable()));
            }
            if template.is_plain()
                && !value.is_empty()
                && !value.starts_with('/')
                && (looks_secret(name) || scheme_and_token(&value).is_some())
            {
                self.warn(at.node, plain_secret(name));
            }
            Some((name.clone(), Secret::from(value)))
        });
        let env: BTreeMap<_, _> = all(before.into_iter().map(Some).chain(own))?;
        // A path is more useful in a log than hidden.
        let values = env.values().map(|value| value.expose_secret());
        for value in values.filter(|value| !value.starts_with('/')) {
            self.keep_secret(value);
            if let Some(token) = scheme_and_token(value) {
                self.keep_secret(token);
            }
        }
        Some(env)
    }
}
