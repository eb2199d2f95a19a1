//! References in values: `${env:NAME}`, `${file:/path}`, `${cred:NAME}`, `${secret:NAME}`, and
//! `$${` for a plain `${`.
//!
//! Must not: put the value of a reference into a message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;

use super::Secret;
use super::deserialize::Mistake;
use super::environment::{Environment, SmallFile};
use super::mistakes::{self, MistakeText};
use crate::state_dir::stored_secrets;

/// Which references a value may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Own,
    /// The same, and the forms of other products: `${NAME}`, `${NAME:-default}`, `${userHome}`.
    Foreign,
}

/// A value in pieces. Its `Display` may be shown: references stay references.
#[derive(derive_more::Display)]
#[display("{}", _0.iter().map(Part::to_string).collect::<String>())]
pub(super) struct Template(Vec<Part>);

#[derive(derive_more::Display)]
enum Part {
    Literal(String),
    #[display("${{env:{name}}}")]
    Env {
        name: String,
        default: Option<String>,
        /// It was written `${NAME}`.
        is_bare: bool,
    },
    /// A variable of the entry itself.
    #[display("${{{name}}}")]
    Own {
        name: String,
        value: Secret,
    },
    #[display("${{file:{_0}}}")]
    File(String),
    #[display("${{cred:{_0}}}")]
    Cred(String),
    /// Of `mantyx-bridge secret set`.
    #[display("${{secret:{_0}}}")]
    Secret(String),
}

/// Where the files are that references name.
#[derive(Clone, Copy)]
pub(super) struct Directories<'a> {
    /// That of bridge.yaml, where relative paths start.
    pub file: &'a Path,
    /// Where `${secret:NAME}` is looked for; `None`: the state directory is not known, as in the
    /// value of `state_dir` itself.
    pub secrets: Option<&'a Path>,
}

/// A template with every reference replaced.
#[derive(Default)]
pub(super) struct Resolved {
    pub value: String,
    /// Secret files that other users can read.
    pub exposed_files: Vec<PathBuf>,
    /// The sources of its secrets: files, and the directory of systemd's credentials.
    pub sources: Vec<PathBuf>,
}

impl Template {
    pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Self, Mistake> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                literal.push_str(before);
                literal.push_str("${");
                rest = after;
                continue;
            }
            literal.push_str(before);
            let Some((inside, after)) = after.split_once('}') else {
                return Err(Mistake::from(mistakes::open_reference()));
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(Part::parse(inside, dialect)?);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }

    /// The same, where `${NAME}` stands for a variable of `own` if that has one. Files of other
    /// products rely on it: an entry gives a header in `env`, and names the variable in `args`. An
    /// empty variable leaves its default in force, as in a shell.
    pub(super) fn with_own(self, own: &BTreeMap<String, Secret>) -> Self {
        let parts = self.0.into_iter().map(|part| match &part {
            Part::Env { name, default, is_bare: true } => match own.get(name) {
                Some(value) if default.is_none() || !value.expose_secret().is_empty() => {
                    Part::Own { name: name.clone(), value: value.clone() }
                }
                _ => part,
            },
            _ => part,
        });
        Self(parts.collect())
    }

    /// A variable of the entry itself in it that probably holds a secret.
    pub(super) fn own_secret(&self) -> Option<&str> {
        self.0.iter().find_map(|part| match part {
            Part::Own { name, value }
                if looks_secret(name) || scheme_and_token(value.expose_secret()).is_some() =>
            {
                Some(name.as_str())
            }
            _ => None,
        })
    }

    /// Whether it has no reference.
    pub(super) fn is_plain(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// Whether it refers to a secret file or a credential.
    pub(super) fn is_secret(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::File(_) | Part::Cred(_) | Part::Secret(_)))
    }

    /// Replaces the references.
    pub(super) fn resolve(
        &self,
        env: &Environment,
        directories: Directories<'_>,
    ) -> Result<Resolved, Mistake> {
        let mut resolved = Resolved::default();
        for part in &self.0 {
            part.resolve(env, directories, &mut resolved)?;
        }
        Ok(resolved)
    }
}

/// A mistake outside of the file: the reference is right, and what it names is missing.
fn outside(text: MistakeText) -> Mistake {
    Mistake { is_outside: true, ..text.into() }
}

impl Part {
    /// Reads the text between `${` and `}`.
    fn parse(inside: &str, dialect: Dialect) -> Result<Self, Mistake> {
        let display = shown_inside(inside);
        match inside.split_once(':').filter(|(_, rest)| !rest.starts_with('-')) {
            Some(("env", name)) if is_variable(name) => {
                Ok(Self::Env { name: name.into(), default: None, is_bare: false })
            }
            Some(("file", path)) if !path.is_empty() => match for_a_shell(path) {
                None => Ok(Self::File(path.into())),
                Some(what) => Err(Mistake::from(mistakes::shell_path(display, what))),
            },
            // systemd's rule for these names, which keeps them inside their directory.
            Some(("cred", name))
                if !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']) =>
            {
                Ok(Self::Cred(name.into()))
            }
            Some(("secret", name)) if stored_secrets::is_name(name) => {
                Ok(Self::Secret(name.into()))
            }
            // Its default may be a secret, so that the message has the name alone.
            Some(("env", name)) if default_of(name).is_some() => {
                let (name, _) = default_of(name).unwrap_or_default();
                let reference = format!("env:{name}");
                Err(Mistake::from(match dialect {
                    Dialect::Own => mistakes::no_default(reference, name),
                    Dialect::Foreign => mistakes::named_default(reference, name),
                }))
            }
            Some(("env" | "file" | "cred" | "secret", _)) => {
                Err(Mistake::from(mistakes::names_nothing(display)))
            }
            Some(_) => Err(Mistake::from(mistakes::no_reference(display))),
            None => Self::parse_unnamed(inside, dialect),
        }
    }

    fn parse_unnamed(inside: &str, dialect: Dialect) -> Result<Self, Mistake> {
        let (name, default) = match default_of(inside) {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (inside, None),
        };
        if dialect == Dialect::Foreign && is_variable(name) {
            return Ok(match name {
                "userHome" => Self::Env { name: "HOME".into(), default, is_bare: false },
                _ => Self::Env { name: name.into(), default, is_bare: true },
            });
        }
        Err(Mistake::from(if is_variable(inside) {
            mistakes::bare_variable(inside)
        } else if let Some((name, _)) = default_of(inside) {
            mistakes::no_default(name, name)
        } else {
            mistakes::no_reference(shown_inside(inside))
        }))
    }

    fn resolve(
        &self,
        env: &Environment,
        directories: Directories<'_>,
        into: &mut Resolved,
    ) -> Result<(), Mistake> {
        match self {
            Self::Literal(text) => into.value.push_str(text),
            Self::Own { value, .. } => into.value.push_str(value.expose_secret()),
            Self::Env { name, default, is_bare: _ } => {
                // As in a shell, `:-` covers a variable that is set to nothing.
                let variable = match default {
                    Some(default) => env.filled_var(name).or(Some(default)),
                    None => env.var(name),
                };
                let value =
                    variable.ok_or_else(|| outside(mistakes::unset_variable(self, name)))?;
                into.value.push_str(value);
            }
            Self::File(path) => {
                let path = directories.file.join(path);
                let file =
                    self.read(env, &path, "create it, readable by the bridge's user alone")?;
                if file.mode & 0o004 != 0 {
                    into.exposed_files.push(path.clone());
                }
                into.sources.push(path);
                into.value.push_str(without_newline(&file.text));
            }
            Self::Cred(name) => {
                let Some(directory) = env.filled_var("CREDENTIALS_DIRECTORY") else {
                    return Err(outside(mistakes::no_credentials(self, name)));
                };
                let cure = format!("add LoadCredential={name}:/path/of/the/secret to the unit");
                let file = self.read(env, &Path::new(directory).join(name), &cure)?;
                into.sources.push(directory.into());
                into.value.push_str(without_newline(&file.text));
            }
            Self::Secret(name) => {
                let Some(directory) = directories.secrets else {
                    return Err(mistakes::secret_here().into());
                };
                let path = directory.join(name);
                let cure = format!("`mantyx-bridge secret set {name}` keeps it there");
                let file = self.read(env, &path, &cure)?;
                if file.mode & 0o004 != 0 {
                    into.exposed_files.push(path.clone());
                }
                into.sources.push(path);
                into.value.push_str(without_newline(&file.text));
            }
        }
        Ok(())
    }

    fn read(&self, env: &Environment, path: &Path, cure: &str) -> Result<SmallFile, Mistake> {
        let file = env.read(path).map_err(|error| {
            let (why, cure) = (plain_reason(&error), reading_cure(&error, cure));
            outside(mistakes::unread(self, why, cure))
        })?;
        if file.text.trim().is_empty() {
            return Err(outside(mistakes::empty_secret(self)));
        }
        Ok(file)
    }
}

/// The end of the reference that begins at `at` in `text`. `None` if there is none that may be
/// shown: its name is one, and it has no default.
pub(super) fn reference_end(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?.strip_prefix("${")?;
    let Some((inside, _)) = rest.split_once('}') else {
        let odd = rest.contains(|c: char| !c.is_ascii_alphanumeric() && !"_:/.".contains(c));
        return if odd { None } else { Some(text.len()) };
    };
    if shown_inside(inside) == inside { Some(at + 3 + inside.len()) } else { None }
}

/// The text between `${` and `}` as messages have it: a default may be a secret, and so may what
/// names nothing.
fn shown_inside(inside: &str) -> Cow<'_, str> {
    let name = inside.split(":-").next().unwrap_or_default();
    let names_something = match name.split_once(':') {
        Some((scheme, rest)) => {
            scheme.bytes().all(|b| b.is_ascii_alphabetic()) && !rest.contains(['=', ' '])
        }
        None => is_variable(name),
    };
    if !names_something {
        "***".into()
    } else if name == inside {
        inside.into()
    } else {
        format!("{name}:-***").into()
    }
}

/// The reason without the operating system's error number.
pub(super) fn plain_reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "the bridge's user may not read it".into(),
        _ => error.to_string(),
    }
}

/// What to do about it; `missing` if there is no such file.
pub(super) fn reading_cure<'a>(error: &std::io::Error, missing: &'a str) -> &'a str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "let it: `chown` or `chmod` the file",
        std::io::ErrorKind::InvalidData => "save the file as UTF-8",
        std::io::ErrorKind::Other => "name a regular file that has only this",
        _ => missing,
    }
}

/// What only a shell would replace at the beginning of a path, in words.
pub(super) fn for_a_shell(path: &str) -> Option<&'static str> {
    let home = path.strip_prefix('~').map(|rest| rest.split('/').next().unwrap_or_default());
    let variable = path.strip_prefix('$').is_some_and(|rest| rest.starts_with(char::is_alphabetic));
    match home {
        Some(user) if user.is_empty() || path.contains('/') => Some("`~`"),
        _ if variable => Some("a variable"),
        _ => None,
    }
}

fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The name and the default of `NAME:-default`.
fn default_of(inside: &str) -> Option<(&str, &str)> {
    inside.split_once(":-").filter(|(name, _)| is_variable(name))
}

pub(crate) fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The token in the value of an `Authorization` header, such as `Bearer abc`.
pub(super) fn scheme_and_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let mut schemes = ["Bearer", "Basic", "Token"].iter();
    if token.contains(' ') || !schemes.any(|other| other.eq_ignore_ascii_case(scheme)) {
        return None;
    }
    Some(token)
}

/// Whether a key, a header, a variable or an option of this name probably holds a secret.
pub(crate) fn looks_secret(name: &str) -> bool {
    const SECRET: &str = "apikey accesskey authorization bearer cookie credential passphrase passwd \
                          password privatekey secret";
    let words: Vec<String> =
        name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase).collect();
    let last = words.last().map_or("", String::as_str);
    if matches!(last, "url" | "uri" | "file" | "path" | "dir" | "endpoint") {
        return false;
    }
    let joined = words.concat();
    SECRET.split(' ').any(|secret| joined.contains(secret))
        || joined.ends_with("token")
        || words.iter().any(|word| matches!(word.as_str(), "token" | "pat" | "pwd" | "key"))
}

#[cfg(test)]
mod tests;
