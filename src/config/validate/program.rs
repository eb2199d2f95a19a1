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
use crate::config::document::{Kind, Node};
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
        let env = section.and_then(|at| at.value.env.as_ref());
        let env = self.child_env(BTreeMap::new(), env, Dialect::Own);
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
        let is_read = env_file.is_some() && own_env.is_some();
        let mut env = defaults.env.clone();
        env.extend(own_env.unwrap_or_default());
        let args = self.args(keys.args, dialect, &env);
        let cwd = optional(&keys.cwd, |at| self.path_in(at, dialect));
        let sandbox = self.sandbox(keys.sandbox, dialect);
        if !is_read {
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
        for (key, node) in self.given(node, keys) {
            self.error(node.key(), mistakes::foreign_key(key, beside));
        }
    }

    /// Those of `keys` that the map `node` has, each with its place.
    pub(super) fn given<'k>(&self, node: NodeId, keys: &[&'k str]) -> Vec<(&'k str, NodeId)> {
        let Kind::Map(entries) = &self.document.node(node).kind else { return Vec::new() };
        let is_given =
            |at: &Node| !matches!(at.kind, Kind::Null) && !self.left_out.contains(&at.id);
        let given = entries.iter().filter(|(_, at)| is_given(at));
        let known = |key: &str| keys.iter().find(|known| **known == key).copied();
        given.filter_map(|(key, at)| Some((known(key)?, at.id))).collect()
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

    /// Warns of `cmd /c npx …` and `npx.cmd …`. Not of a name with `.exe`: under WSL, such a program
    /// can be started.
    fn warn_of_windows(&self, at: &At<String>, program: &Program) {
        let is_exe = at.value.to_ascii_lowercase().ends_with(".exe");
        if let Some(line) = program.without_windows().filter(|_| !is_exe) {
            self.warn(at.node, format!("`{}` is a program of Windows; write {line}", at.value));
        }
    }

    /// Its arguments, each with the text that may be shown. In them, `${NAME}` stands for a variable
    /// of `env` first.
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
                let message = "arguments show in every list of processes; pass it in `env`";
                self.warn(*node, message);
            }
            if let Some(name) = template.own_secret() {
                let message = format!(
                    "arguments show in every list of processes; if the program replaces the variable \
                     itself, as mcp-remote does, write $${{{name}}}"
                );
                self.warn(*node, message);
            }
            let (option, inline) = text.split_once('=').unwrap_or((text, ""));
            let is_secret_option = option.starts_with('-') && looks_secret(option);
            // `-e API_KEY=abc`, as Docker takes it, has no hyphen.
            let is_assigned = looks_secret(option) && !inline.is_empty();
            let holds_secret = template.is_plain() && (is_assigned || after_secret_option);
            let shown = match holds_secret {
                true if after_secret_option => "***".into(),
                true => format!("{option}=***"),
                false if template.is_plain() => value.clone(),
                false => template.to_string(),
            };
            if holds_secret {
                self.warn(*node, plain_secret("an argument"));
            }
            after_secret_option = is_secret_option && !value.contains('=');
            Some(self.written(value, shown))
        }))
    }

    /// Its access to files.
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
        let paths = |list: &Option<List<String>>| -> Option<Vec<PathBuf>> {
            let list = list.iter().flat_map(|at| &at.value);
            all(list.map(|at| self.path_in(at, dialect)))
        };
        let read = paths(&sandbox.read);
        let write = paths(&sandbox.write);
        Some(ProgramSandbox::Listed(Confinement { read: read?, write: write? }))
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
            let is_value = !value.is_empty() && !value.starts_with('/');
            let is_secret = looks_secret(name) || scheme_and_token(&value).is_some();
            if template.is_plain() && is_value && is_secret {
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
