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
        let written = self.needed(at.node, &section.postgres, mistakes::no_postgres())?;
        let (text, template) = self.resolve(written.node, &written.value.0, Dialect::Own)?;
        // The error of the library may quote the password.
        let url = text.trim().parse::<tokio_postgres::Config>().ok();
        let Some(url) = url.filter(|url| !url.get_hosts().is_empty()) else {
            return self.refuse(written.node, mistakes::no_database());
        };
        if let Some(password) = url.get_password() {
            self.keep_secret(&String::from_utf8_lossy(password));
            if template.is_plain() {
                self.warn(written.node, plain_secret("`state.postgres`"));
            }
        }
        let schema = section.schema.as_ref().map_or("mantyx_bridge", |at| at.value.as_str());
        let is_part = |byte: u8| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let begins = schema.starts_with(|first: char| first == '_' || first.is_ascii_lowercase());
        // PostgreSQL cuts longer names, and keeps those that begin so for itself.
        let is_free = schema.len() <= 63 && !schema.starts_with("pg_");
        if let Some(at) = &section.schema
            && !(begins && is_free && schema.bytes().all(is_part))
        {
            self.error(at.node, mistakes::schema_name());
        }
        let longest = Duration::from_secs(60);
        let within = self.duration(section.statement_timeout.as_ref(), longest, "");
        Some(Postgres {
            url,
            ca: optional(&section.ca, |at| self.path(at))?,
            schema: schema.to_owned(),
            group: section.group.as_ref().map_or("default", |at| at.value.as_str()).to_owned(),
            statement_timeout: within.unwrap_or(Duration::from_secs(5)),
        })
    }
}
