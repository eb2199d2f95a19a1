//! Equality of configuration values with secrets in them. A reload leaves equal backends alone; a
//! secret that has changed in its file makes a backend unequal.
//!
//! Must not: skip a field. Each value is destructured, so that the compiler finds a new one.

use secrecy::{ExposeSecret as _, SecretString};

use super::{ClientCredentials, Local, Program, RefreshGrant};

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        // A change of another backend's secret is no reason to restart the program.
        let Self { command, args, env, cwd, sandbox, hidden, secrets: _ } = self;
        let same_env = env.len() == other.env.len()
            && env.iter().zip(&other.env).all(|(a, b)| a.0 == b.0 && same(a.1, b.1));
        (command, args, cwd) == (&other.command, &other.args, &other.cwd)
            && (sandbox, hidden) == (&other.sandbox, &other.hidden)
            && same_env
    }
}

impl PartialEq for ClientCredentials {
    fn eq(&self, other: &Self) -> bool {
        let Self { id, secret, shows, token_url, audience, scopes } = self;
        (id, shows, scopes) == (&other.id, &other.shows, &other.scopes)
            && (token_url, audience) == (&other.token_url, &other.audience)
            && same(secret, &other.secret)
    }
}

impl PartialEq for RefreshGrant {
    fn eq(&self, other: &Self) -> bool {
        let Self { token_url, client_id, client_secret, refresh_token } = self;
        (token_url, client_id) == (&other.token_url, &other.client_id)
            && same(client_secret, &other.client_secret)
            && same(refresh_token, &other.refresh_token)
    }
}

impl PartialEq for Local {
    fn eq(&self, other: &Self) -> bool {
        let Self { definition, action } = self;
        definition.get() == other.definition.get() && *action == other.action
    }
}

fn same(a: &SecretString, b: &SecretString) -> bool {
    a.expose_secret() == b.expose_secret()
}

#[cfg(test)]
mod tests;
