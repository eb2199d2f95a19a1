//! The environment variables that stand for the secrets of a file, and for its own references.
//!
//! Must not: show a secret, in `Debug` either.

use std::collections::BTreeMap;

use super::looks::is_everyday_name;
use crate::config::{Environment, is_variable};

/// The variables that the output refers to.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("{:?}", _0.keys())]
pub(super) struct Vault(BTreeMap<String, Variable>);

#[derive(Clone)]
struct Variable {
    /// Its value in the file; `None` if the file had a reference, too.
    secret: Option<String>,
    /// Whether a default stands beside each reference, so that the person need not set it.
    has_default: bool,
    why: String,
}

/// The position of a text in the file.
#[derive(Clone, Copy, Default)]
pub(super) struct Place<'a> {
    pub server: &'a str,
    /// The key, header, variable or option that has this value; empty if none.
    pub key: &'a str,
    /// Whether `key` is an environment variable, whose name can stay.
    pub is_variable: bool,
    /// Whether a shell reads the text.
    pub is_shell: bool,
}

impl Vault {
    /// The variables that are not set in `env`, each with its purpose.
    pub(super) fn variables(&self, env: &Environment) -> Vec<(&str, &str)> {
        let unset = self
            .0
            .iter()
            .filter(|(name, variable)| !variable.has_default && env.var(name).is_none());
        unset.map(|(name, variable)| (name.as_str(), variable.why.as_str())).collect()
    }

    /// Notes the variables that `servers` refer to, so that none of them comes to stand for a
    /// secret.
    pub(super) fn refer_to_all(&mut self, servers: &str) {
        for piece in servers.split("${").skip(1) {
            let inside = piece.split('}').next().unwrap_or_default();
            let reference = inside.strip_prefix("env:").unwrap_or(inside);
            let (name, default) = match reference.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (reference, None),
            };
            if !name.is_empty() && name == variable_name(name) && is_everyday_name(name) {
                match default {
                    Some(_) => self.reserve(name),
                    None => drop(self.refer(name.to_owned(), "named in the file".to_owned())),
                }
            }
        }
    }

    /// Keeps the variable `name` from standing for a secret, as the file refers to it by itself,
    /// with a default.
    fn reserve(&mut self, name: &str) {
        let why = "named in the file".to_owned();
        let variable = Variable { secret: None, has_default: true, why };
        self.0.entry(name.to_owned()).or_insert(variable);
    }

    /// A reference to the variable `name`, which is not in the file, or to another if that name
    /// stands for a secret.
    pub(super) fn refer(&mut self, mut name: String, why: String) -> String {
        while self.0.get(&name).is_some_and(|variable| variable.secret.is_some()) {
            name.insert_str(0, "INPUT_");
        }
        let variable = Variable { secret: None, has_default: false, why };
        self.0.entry(name.clone()).or_insert(variable).has_default = false;
        format!("${{env:{name}}}")
    }

    /// A reference to a variable that stands for `secret`. The name of the key, as far as it is a
    /// person's word, becomes the name of the variable.
    pub(super) fn keep(&mut self, secret: &str, at: Place<'_>) -> String {
        let key = Some(at.key).filter(|key| !key.is_empty() && is_everyday_name(key));
        let own = match key {
            Some(key) if at.is_variable && is_variable(key) => key.to_owned(),
            _ => variable_name(&format!("{}_{}", at.server, key.unwrap_or("secret"))),
        };
        let longer = variable_name(&format!("{}_{own}", at.server));
        let numbered = (2..).map(|count| format!("{longer}_{count}"));
        let mut names = [own, longer.clone()].into_iter().chain(numbered);
        // One variable may stand for the same secret twice, but never for two secrets.
        let name = names
            .find(|name| match self.0.get(name) {
                Some(variable) => variable.secret.as_deref() == Some(secret),
                None => true,
            })
            .unwrap_or_default();
        let why = format!("{} of {}", key.unwrap_or("a secret"), at.server);
        let secret = Some(secret.to_owned());
        self.0.entry(name.clone()).or_insert(Variable { secret, has_default: false, why });
        format!("${{env:{name}}}")
    }
}

/// `text` as the name of an environment variable.
pub(super) fn variable_name(text: &str) -> String {
    let name = text.replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_ascii_uppercase();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
