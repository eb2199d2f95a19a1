//! `state`: the journal in PostgreSQL.
//!
//! Must not: connect to it.

use std::time::Duration;

use super::{Validator, mistakes, optional, plain_secret};
use crate::config::{At, Dialect, Upstream, file_format};
use crate::journal::Postgres;

impl Validator<'_> {
    pub(super) fn state(
        &self,
        at: &At<file_format::State>,
        upstream: Option<&Upstream>,
    ) -> Option<Postgres> {
        if matches!(upstream, Some(Upstream::Sandbox { .. })) {
            self.error(at.node, mistakes::sandbox_state());
        }
        let section = &at.value;
        let address = self.needed(at.node, &section.postgres, mistakes::no_postgres())?;
        let (text, template) = self.resolve(address.node, &address.value.0, Dialect::Own)?;
        // The error of the library may quote the password.
        let url = text.trim().parse::<tokio_postgres::Config>().ok();
        let Some(url) = url.filter(|url| !url.get_hosts().is_empty()) else {
            return self.refuse(address.node, mistakes::no_database());
        };
        if let Some(password) = url.get_password() {
            self.keep_secret(&String::from_utf8_lossy(password));
            if template.is_plain() {
                self.warn(address.node, plain_secret("`state.postgres`"));
            }
        }
        let schema = section.schema.as_ref().map_or("mantyx_bridge", |at| at.value.as_str());
        if let Some(at) = &section.schema
            && !is_schema_name(schema)
        {
            self.error(at.node, mistakes::schema_name());
        }
        let longest = Duration::from_secs(60);
        let timeout = self.duration(section.statement_timeout.as_ref(), longest, "");
        Some(Postgres {
            url,
            ca: optional(&section.ca, |at| self.path(at))?,
            schema: schema.to_owned(),
            group: section.group.as_ref().map_or("default", |at| at.value.as_str()).to_owned(),
            statement_timeout: timeout.unwrap_or(Duration::from_secs(5)),
        })
    }
}

/// Whether PostgreSQL takes `name` for a schema as it stands. It would cut a longer one, and keeps
/// those with `pg_` for itself. Other characters would need quotes in every statement.
fn is_schema_name(name: &str) -> bool {
    name.len() <= 63
        && !name.starts_with("pg_")
        && name.starts_with(|first: char| first == '_' || first.is_ascii_lowercase())
        && name.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
}
