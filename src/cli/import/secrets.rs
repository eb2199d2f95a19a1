//! Finds values that look like secrets, and replaces them by references to environment variables.
//!
//! Must not: show a secret, in `Debug` either.

use std::collections::BTreeMap;

use crate::config::{Environment, looks_secret};

/// The variables that the output refers to.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("{:?}", _0.keys())]
pub(super) struct Vault(BTreeMap<String, Variable>);

#[derive(Clone)]
struct Variable {
    /// Its value in the file; `None` if the file had a reference, too.
    secret: Option<String>,
    why: String,
}

/// The position of a text in the file.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub server: &'a str,
    /// The key, header, variable or option that has this value; empty if none.
    pub key: &'a str,
    /// Whether `key` is an environment variable, whose name can stay.
    pub is_variable: bool,
}

/// The schemes in front of a credential in a header.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

impl Vault {
    /// The variables that are not set in `env`, each with its purpose.
    pub(super) fn variables(&self, env: &Environment) -> Vec<(&str, &str)> {
        let unset = self.0.iter().filter(|(name, _)| env.var(name).is_none());
        unset.map(|(name, variable)| (name.as_str(), variable.why.as_str())).collect()
    }

    /// Notes the variables that `servers` refer to, so that none of them comes to stand for a secret.
    pub(super) fn refer_to_all(&mut self, servers: &str) {
        for piece in servers.split("${").skip(1) {
            let name = piece.split('}').next().unwrap_or_default();
            let name = name.strip_prefix("env:").unwrap_or(name);
            if !name.is_empty() && name == variable_name(name) {
                self.refer(name.to_owned(), "named in the file".to_owned());
            }
        }
    }

    /// A reference to the variable `name`, which is not in the file, or to another if that name
    /// stands for a secret.
    pub(super) fn refer(&mut self, mut name: String, why: String) -> String {
        while self.0.get(&name).is_some_and(|variable| variable.secret.is_some()) {
            name.insert_str(0, "INPUT_");
        }
        self.0.entry(name.clone()).or_insert(Variable { secret: None, why });
        format!("${{env:{name}}}")
    }

    /// `text` with references in place of its secrets.
    pub(super) fn hide(&mut self, text: &str, at: Place<'_>) -> String {
        if text.contains("://") {
            return self.hide_in_url(text, at);
        }
        // An option or a header that has its value in the same argument.
        if let Some((key, separator, value)) = assignment(text).filter(|_| !at.is_variable)
            && is_secret(key, value)
        {
            let key_only = key.trim_start_matches('-');
            let value = self.keep(value, Place { key: key_only, ..at });
            return format!("{key}{separator}{value}");
        }
        self.hide_one(text, at)
    }

    fn keep(&mut self, value: &str, at: Place<'_>) -> String {
        let space = value.len() - value.trim_start().len();
        let (before, value) = value.split_at(space);
        let scheme = SCHEMES.iter().find(|scheme| {
            value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        let (scheme, secret) = value.split_at(scheme.map_or(0, |scheme| scheme.len()));
        let key = if at.key.is_empty() { "secret" } else { at.key };
        let own = match at.is_variable {
            true => at.key.to_owned(),
            false => variable_name(&format!("{}_{key}", at.server)),
        };
        let longer = variable_name(&format!("{}_{own}", at.server));
        let numbered = (2..).map(|count| format!("{longer}_{count}"));
        let mut names = [own, longer.clone()].into_iter().chain(numbered);
        // One variable may stand for the same secret twice, but never for two secrets.
        let is_free = |name: &String| {
            self.0.get(name).is_none_or(|kept| kept.secret.as_deref() == Some(secret))
        };
        let name = names.find(is_free).unwrap_or_default();
        let why =
            format!("{} of {}", if at.key.is_empty() { "a secret" } else { at.key }, at.server);
        let secret = Some(secret.to_owned());
        self.0.entry(name.clone()).or_insert(Variable { secret, why });
        format!("{before}{scheme}${{env:{name}}}")
    }

    /// Hides the secrets in an address: user, password, and parameters. Not parsed as a URL, as it
    /// may contain references.
    fn hide_in_url(&mut self, text: &str, at: Place<'_>) -> String {
        let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q)));
        let at = Place { is_variable: false, ..at };
        let mut out = format!("{scheme}://");
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                out += &self.hide_one(user, Place { key: "user", ..at });
                if !password.is_empty() {
                    out = out + ":" + &self.hide_one(password, Place { key: "password", ..at });
                }
                out = out + "@" + host;
            }
            None => out += authority,
        }
        out += path;
        for (count, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            out.push(if count == 0 { '?' } else { '&' });
            out += &match pair.split_once('=') {
                Some((key, value)) => {
                    format!("{key}={}", self.hide_one(value, Place { key, ..at }))
                }
                None => pair.to_owned(),
            };
        }
        out
    }

    fn hide_one(&mut self, text: &str, at: Place<'_>) -> String {
        if is_secret(at.key, text) { self.keep(text, at) } else { text.to_owned() }
    }
}

/// The three parts of `--option=value`, `NAME=value` or `Header: value`.
fn assignment(text: &str) -> Option<(&str, char, &str)> {
    let at = text.find(['=', ':'])?;
    let (key, rest) = text.split_at(at);
    let separator = rest.chars().next()?;
    let value = rest.get(1..)?;
    let name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!key.is_empty() && key.chars().all(name) && !value.is_empty())
        .then_some((key, separator, value))
}

fn is_secret(key: &str, value: &str) -> bool {
    let value = value.trim();
    // A value with a reference in it is no plain secret.
    let plain = value.is_empty()
        || value.starts_with('/')
        || value.contains("${")
        || matches!(value, "true" | "false");
    !plain && (looks_secret(key) || looks_random(value))
}

/// Whether `text` looks generated: long, with letters of both cases and digits, or with hexadecimal
/// digits.
pub(super) fn looks_random(text: &str) -> bool {
    const PREFIXES: [&str; 8] =
        ["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "eyJ"];
    let text = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_+/=.".contains(c);
    if text.len() < 16 || !text.chars().all(legal) {
        return false;
    }
    if PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
        return true;
    }
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let is_hex = text.len() >= 32 && digits > 4 && text.chars().all(|c| c.is_ascii_hexdigit());
    let mixed = text.chars().any(|c| c.is_ascii_uppercase())
        && text.chars().any(|c| c.is_ascii_lowercase());
    // Paths, package names and versions contain many separators.
    let separators = text.chars().filter(|c| "-_/.".contains(*c)).count();
    is_hex || (text.len() >= 24 && mixed && digits >= 3 && separators * 10 <= text.len())
}

/// `text` as the name of an environment variable.
pub(super) fn variable_name(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = text.chars().map(legal).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
