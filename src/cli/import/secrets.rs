//! The environment variables that stand for the secrets of a file, and for its own references.
//!
//! Must not: show a secret, in `Debug` either.

use std::collections::BTreeMap;

use super::looks::is_everyday_name;
use crate::config::{Environment, is_variable};

/// The variables that the output refers to.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("{:?}", variables.keys())]
pub(super) struct Vault {
    variables: BTreeMap<String, Variable>,
    /// The secrets that the state directory has already, by name, where the bridge keeps them;
    /// `None`: each is a variable that a person sets.
    stored: Option<BTreeMap<String, String>>,
}

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
    /// The secrets become `${secret:NAME}`, as the state directory will have them beside those that
    /// it has: `stored`.
    pub(super) fn beside_stored(stored: BTreeMap<String, String>) -> Self {
        Self { variables: BTreeMap::new(), stored: Some(stored) }
    }

    /// The secrets that the state directory has to keep.
    pub(super) fn secrets(&self) -> Vec<(&str, &str)> {
        if self.stored.is_none() {
            return Vec::new();
        }
        let secrets = self
            .variables
            .iter()
            .filter_map(|(name, variable)| Some((name.as_str(), variable.secret.as_deref()?)));
        secrets.collect()
    }

    /// `text` with the secrets in place of the references to them. Two entries that differ in the
    /// names of their secrets alone are the same then.
    pub(super) fn revealed(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, variable) in &self.variables {
            if let Some(secret) = &variable.secret {
                out = out.replace(&self.reference(name), secret);
            }
        }
        out
    }

    fn reference(&self, name: &str) -> String {
        let scheme = if self.stored.is_some() { "secret" } else { "env" };
        format!("${{{scheme}:{name}}}")
    }

    /// Whether `name` can stand for `secret`: it stands for nothing else.
    fn is_free_for(&self, name: &str, secret: &str) -> bool {
        let stored = self.stored.as_ref().and_then(|stored| stored.get(name));
        stored.is_none_or(|stored| stored == secret)
            && match self.variables.get(name) {
                Some(variable) => variable.secret.as_deref() == Some(secret),
                None => true,
            }
    }

    /// The variables that are not set in `env`, each with its purpose.
    pub(super) fn variables(&self, env: &Environment) -> Vec<(&str, &str)> {
        let unset = self.variables.iter().filter(|(name, variable)| {
            let is_kept = self.stored.is_some() && variable.secret.is_some();
            !variable.has_default && !is_kept && env.var(name).is_none()
        });
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
        self.variables.entry(name.to_owned()).or_insert(variable);
    }

    /// A reference to the variable `name`, which is not in the file, or to another if that name
    /// stands for a secret.
    pub(super) fn refer(&mut self, mut name: String, why: String) -> String {
        while self.variables.get(&name).is_some_and(|variable| variable.secret.is_some()) {
            name.insert_str(0, "INPUT_");
        }
        let variable = Variable { secret: None, has_default: false, why };
        self.variables.entry(name.clone()).or_insert(variable).has_default = false;
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
        let name = names.find(|name| self.is_free_for(name, secret)).unwrap_or_default();
        let why = format!("{} of {}", key.unwrap_or("a secret"), at.server);
        let secret = Some(secret.to_owned());
        self.variables.entry(name.clone()).or_insert(Variable { secret, has_default: false, why });
        self.reference(&name)
    }
}

/// `text` as the name of an environment variable.
pub(super) fn variable_name(text: &str) -> String {
    let name = text.replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_ascii_uppercase();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
