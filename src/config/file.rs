//! Finds, reads and checks bridge.yaml.
//!
//! Must not: decide what a key means; `validate` does.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::deserialize::Mistake;
use super::document::{Kind, NotYaml};
use super::environment::SmallFile;
use super::file_format::File;
use super::mistakes;
use super::redact::{Redactor, in_one_line};
use super::reference::{plain_reason, reading_cure};
use super::validate::{UnresolvedEntry, Validator};
use super::{
    Config, ConfigErrors, Contact, Document, Environment, NodeId, NoticeWay, Problem, Target,
    Unresolved, deserialize, foreign,
};
use crate::model::maps::HashSet;

/// The variable that names the configuration.
const VARIABLE: &str = "MANTYX_BRIDGE_CONFIG";

/// The places of a configuration if nothing names one: here, the user's, the machine's.
fn places(env: &Environment) -> Vec<PathBuf> {
    let users = env.users_directory("XDG_CONFIG_HOME", ".config");
    let mut places = vec![PathBuf::from("./bridge.yaml")];
    for directory in users.into_iter().chain([PathBuf::from("/etc")]) {
        places.push(directory.join("mantyx-bridge").join("bridge.yaml"));
    }
    places
}

/// Which file to read: `explicit`, else the one that [`VARIABLE`] names, else the first of its
/// [`places`] that exists.
pub fn find(explicit: Option<&Path>, env: &Environment) -> Result<PathBuf, ConfigErrors> {
    if let Some(path) = explicit.or_else(|| env.filled_var(VARIABLE).map(Path::new)) {
        return Ok(path.to_owned());
    }
    let places = places(env);
    if let Some(path) = places.iter().find(|path| path.exists()) {
        return Ok(path.clone());
    }
    let names: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
    let text = mistakes::no_file(names.join(" nor "));
    Err(ConfigErrors::without_place("./bridge.yaml".into(), text))
}

/// A file that is read again after changes.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    env: Environment,
    /// The hash of the text that was read last.
    last: Option<TextHash>,
    /// The mistakes in that text, and what keeps single backends from being reached.
    mistakes: Option<ConfigErrors>,
}

/// Kept in place of the text, which may hold secrets.
type TextHash = [u8; 32];

impl ConfigFile {
    /// Reads and checks the file at `path`. A backend whose entry refers to something that is
    /// missing is [`Target::Unresolved`].
    pub fn load(path: PathBuf, env: Environment) -> Result<(Config, Self), ConfigErrors> {
        let mut file = Self { path, env, last: None, mistakes: None };
        Ok((file.reload()?, file))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and checks the file, and the files that it refers to.
    pub fn reload(&mut self) -> Result<Config, ConfigErrors> {
        let file = self.env.read(&self.path);
        self.last = text_hash(&file);
        let result = Config::of_file(file, &self.path, &self.env);
        self.mistakes = match &result {
            Ok((_, unresolved)) => unresolved.clone(),
            Err(mistakes) => Some(mistakes.clone()),
        };
        result.map(|(config, _)| config)
    }

    /// [`Self::reload`], if that can change anything. A file without mistakes is read again only
    /// when its text has changed, not when a file that it refers to has. A file with a mistake is
    /// always read again, since the mistake may lie in such a file.
    pub fn reload_if_changed(&mut self) -> Option<Result<Config, ConfigErrors>> {
        let same_text = text_hash(&self.env.read(&self.path)) == self.last;
        let before = self.mistakes.clone();
        if same_text && before.is_none() {
            return None;
        }
        let config = self.reload();
        if same_text && self.mistakes == before {
            return None;
        }
        Some(config)
    }
}

/// `None` if the file cannot be read.
fn text_hash(file: &io::Result<SmallFile>) -> Option<TextHash> {
    file.as_ref().ok().map(|file| Sha256::digest(&file.text).into())
}

impl Config {
    /// Reads and checks the file at `path`. What an entry refers to has to be there, too.
    pub fn load(path: &Path, env: &Environment) -> Result<Self, ConfigErrors> {
        whole(Self::of_file(env.read(path), path, env)?)
    }

    /// [`Self::load`], but a backend that refers to something missing is [`Target::Unresolved`]:
    /// one variable that is not set does not keep the other backends from being checked.
    pub fn load_what_resolves(path: &Path, env: &Environment) -> Result<Self, ConfigErrors> {
        Self::of_file(env.read(path), path, env).map(|(config, _)| config)
    }

    /// The configuration, and why some of its backends cannot be reached.
    fn of_file(
        file: io::Result<SmallFile>,
        path: &Path,
        env: &Environment,
    ) -> Result<(Self, Option<ConfigErrors>), ConfigErrors> {
        let file = file.map_err(|error| unreadable(path, &error))?;
        let warnings = who_may_change(&file, path)?;
        let (mut config, unresolved) = Self::read(&file.text, path, env)?;
        config.warnings.splice(0..0, warnings);
        Ok((config, unresolved))
    }

    /// Checks `text` as the content of the file `path`, whose directory is the start of relative
    /// paths. What an entry refers to has to be there, too.
    pub fn parse(text: &str, path: &Path, env: &Environment) -> Result<Self, ConfigErrors> {
        whole(Self::read(text, path, env)?)
    }

    fn read(
        text: &str,
        path: &Path,
        env: &Environment,
    ) -> Result<(Self, Option<ConfigErrors>), ConfigErrors> {
        let Validated { value: mut config, warnings, unresolved } =
            validated(text, path, env, |_| true, |validator, file| validator.config(file))?;
        config.warnings = warnings;
        let mut errors: Option<ConfigErrors> = None;
        for (entry, why) in unresolved {
            if let Some(unresolved) = config.unresolved_mut(&entry) {
                let first = why.problems.first();
                unresolved.why = why.summary();
                unresolved.cure =
                    first.and_then(|problem| problem.cure.clone()).unwrap_or_default();
            }
            match &mut errors {
                Some(errors) => errors.problems.extend(why.problems),
                None => errors = Some(why),
            }
        }
        Ok((config, errors))
    }

    fn unresolved_mut(&mut self, entry: &UnresolvedEntry) -> Option<&mut Unresolved> {
        match entry {
            UnresolvedEntry::Backend(name) => match &mut self.backends.get_mut(name)?.target {
                Target::Unresolved(unresolved) => Some(unresolved),
                Target::Mcp(_) | Target::A2a(_) | Target::Local(_) => None,
            },
            UnresolvedEntry::Receiver(name) => {
                let receiver = self.notify.iter_mut().find(|receiver| receiver.name == *name)?;
                match &mut receiver.way {
                    NoticeWay::Unresolved(unresolved) => Some(unresolved),
                    NoticeWay::Webhook(_) | NoticeWay::Command(_) => None,
                }
            }
        }
    }
}

/// A configuration in which nothing is missing.
fn whole((config, unresolved): (Config, Option<ConfigErrors>)) -> Result<Config, ConfigErrors> {
    unresolved.map_or(Ok(config), Err)
}

impl Contact {
    /// Reads the file at `path`, and of the files that it refers to only those that a client needs.
    /// Other mistakes do not matter: the daemon may still run with an earlier version of the file.
    /// The client is `app`, or the app that may use most.
    pub fn load(path: &Path, env: &Environment, app: Option<&str>) -> Result<Self, ConfigErrors> {
        let file = env.read(path).map_err(|error| unreadable(path, &error))?;
        who_may_change(&file, path)?;
        let checks = validated(&file.text, path, env, matters_to_clients, |validator, file| {
            validator.contact(file, app)
        });
        // `check` tells of the rest.
        checks.map(|checks| checks.value)
    }
}

/// The state directory of the daemon with the configuration at `path`. What else the file has may
/// be missing still: `secret set` is what brings it.
pub fn state_directory(path: &Path, env: &Environment) -> Result<PathBuf, ConfigErrors> {
    let file = env.read(path).map_err(|error| unreadable(path, &error))?;
    who_may_change(&file, path)?;
    // A key at the top may be a misspelling of `state_dir`.
    let matters = |at: &str| at.starts_with("state_dir") || !at.contains(['.', '[']);
    let checks = validated(&file.text, path, env, matters, |validator, file| {
        validator.state_dir(file.state_dir.as_ref())
    });
    checks.map(|checks| checks.value)
}

/// Whether a mistake at `path` keeps a client from reaching the daemon.
fn matters_to_clients(path: &str) -> bool {
    match path.split_once(['.', '[']) {
        Some((section, _)) => matches!(section, "listen" | "state_dir" | "apps"),
        // The key may be a misspelling of one of these.
        None => true,
    }
}

/// What the checks of a file's text give.
struct Validated<T> {
    value: T,
    warnings: Vec<String>,
    /// What is missing to reach single backends and receivers of notices.
    unresolved: Vec<(UnresolvedEntry, ConfigErrors)>,
}

/// The result of `validate` for `text`. A mistake counts only if its path `matters`.
///
/// All checks run before any mistake is reported, so that a person corrects the file once. A value
/// that did not fit its type is hidden in every message: it may be a secret under a wrong key.
fn validated<T>(
    text: &str,
    path: &Path,
    env: &Environment,
    matters: impl Fn(&str) -> bool,
    validate: impl FnOnce(&Validator<'_>, &File) -> Option<T>,
) -> Result<Validated<T>, ConfigErrors> {
    let name = path.display().to_string();
    // A byte order mark is no part of the first key.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = Document::parse(text).map_err(|flaw| not_yaml(&name, text, flaw))?;
    if matches!(document.root.kind, Kind::Null) {
        return Err(ConfigErrors::without_place(name, mistakes::empty_file()));
    }
    // Absolute, if the working directory is known.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = absolute.parent().unwrap_or(Path::new(""));
    let mut left_out = HashSet::default();
    let mut mistakes = Vec::new();
    let file: Option<File> = deserialize::read(&document, &mut left_out, |mistake| {
        let cure = foreign::cure(&document, mistake.node).or(mistake.cure);
        mistakes.push(Mistake { cure, ..mistake });
    });
    let mut warnings = Vec::new();
    let mut unresolved = Vec::new();
    let mut validated = None;
    if let Some(file) = file {
        let checks = Validator::new(&document, env, path, directory, &left_out);
        validated = validate(&checks, &file);
        let findings = checks.findings.into_inner();
        mistakes.extend(findings.mistakes);
        warnings = findings.warnings;
        unresolved = findings.unresolved;
    }
    let unfit: Vec<NodeId> =
        mistakes.iter().filter(|mistake| mistake.is_unfit).map(|mistake| mistake.node).collect();
    let all_unfit = unfit.len() >= deserialize::MAX_MISTAKES;
    let redactor = Redactor::new(&document, text, &unfit, all_unfit);
    let refused = mistakes.iter().any(|mistake| matters(&document.path(mistake.node)));
    let Some(value) = validated.filter(|_| !refused) else {
        // What is missing would only keep single backends from working.
        let missing = unresolved.into_iter().flat_map(|(_, missing)| missing).collect();
        let mut all = errors(name.clone(), &redactor, &document, mistakes);
        all.problems.extend(errors(name, &redactor, &document, missing).problems);
        return Err(all);
    };
    let unresolved = unresolved
        .into_iter()
        .map(|(entry, missing)| (entry, errors(name.clone(), &redactor, &document, missing)))
        .collect();
    warnings.sort_by_key(|&(node, _)| node);
    let lines = warnings.into_iter().map(|(node, message)| {
        let line = document.place(node.key()).line;
        in_one_line(&format!("{name}:{line}: {}: {message}", document.path(node)))
    });
    Ok(Validated { value, warnings: lines.collect(), unresolved })
}

/// Some lines of bridge.yaml, counted from 1, without its secrets, for a person who sees what
/// changes; none if they cannot be told from the rest.
pub fn without_secrets(text: &str, lines: Range<usize>) -> Vec<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Ok(document) = Document::parse(text) else { return Vec::new() };
    Redactor::new(&document, text, &[], false).lines(lines)
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigErrors {
    let cure = "name an existing file with `-c FILE`; `mantyx-bridge demo` needs none";
    let (why, cure) = (plain_reason(error), reading_cure(error, cure));
    ConfigErrors::without_place(path.display().to_string(), mistakes::unreadable(why, cure))
}

/// Refuses a file that every user may change, since it names the programs that the bridge starts.
/// Warns if other users than root and the bridge's own may change it.
fn who_may_change(file: &SmallFile, path: &Path) -> Result<Vec<String>, ConfigErrors> {
    let name = path.display();
    if file.mode & 0o002 != 0 {
        return Err(ConfigErrors::without_place(name.to_string(), mistakes::anybodys(name)));
    }
    let mut warnings = Vec::new();
    if !file.is_ours {
        let why = "the file belongs to a user who is neither root nor the bridge's, and can change";
        warnings.push(format!("{name}: {why} it; run chown root on it"));
    }
    if file.mode & 0o020 != 0 {
        warnings.push(format!("{name}: its group can change this file; run chmod g-w on it"));
    }
    Ok(warnings)
}

fn not_yaml(name: &str, text: &str, flaw: NotYaml) -> ConfigErrors {
    let redactor = Redactor::unparsed(text);
    let problem = Problem {
        path: String::new(),
        line: flaw.place.map(|place| place.line),
        column: flaw.place.map(|place| place.column),
        message: flaw.message,
        cure: Some(flaw.cure),
        snippet: flaw.place.and_then(|place| redactor.snippet(place)),
    };
    ConfigErrors { file: name.to_owned(), problems: vec![problem] }
}

fn errors(
    file: String,
    redactor: &Redactor<'_>,
    document: &Document,
    mistakes: Vec<Mistake>,
) -> ConfigErrors {
    let mut problems: Vec<Problem> = mistakes
        .into_iter()
        .map(|mistake| {
            let place = document.place(mistake.node);
            let node = document.node(mistake.node);
            Problem {
                path: in_one_line(&document.path(mistake.node)),
                line: Some(place.line),
                column: Some(place.column),
                message: redactor.message(&mistake, node, &mistake.message),
                cure: mistake.cure.as_ref().map(|cure| redactor.message(&mistake, node, cure)),
                snippet: redactor.snippet(place),
            }
        })
        .collect();
    problems.sort_by_key(|problem| (problem.line, problem.column));
    // A mistake behind an alias is found at every use of it, but shown only once, at its source.
    problems.dedup_by(|a, b| (a.line, a.column, &a.message) == (b.line, b.column, &b.message));
    ConfigErrors { file, problems }
}

#[cfg(test)]
mod tests;
