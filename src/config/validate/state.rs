//! `state`: the journal in PostgreSQL. `audit`: where the lines of the audit log go.
//!
//! Must not: connect to one of them.

use std::path::Path;
use std::time::Duration;

use url::Url;

use super::{Validator, mistakes, optional, plain_secret};
use crate::audit::syslog::{Receiver, Server};
use crate::config::{At, Audit, Dialect, Upstream, file_format};
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

impl Validator<'_> {
    pub(super) fn audit(&self, at: &At<file_format::Audit>) -> Option<Audit> {
        let section = &at.value;
        if section.file.is_none() && section.syslog.is_none() {
            return self.missing(at.node, mistakes::no_audit_place());
        }
        let file = optional(&section.file, |at| self.path(at));
        let syslog = optional(&section.syslog, |at| self.syslog(at));
        let arguments = section.arguments.as_ref().is_some_and(|at| at.value);
        Some(Audit { file: file?, syslog: syslog?, arguments })
    }

    fn syslog(&self, at: &At<file_format::Syslog>) -> Option<Receiver> {
        let section = &at.value;
        let address = self.needed(at.node, &section.to, mistakes::no_receiver())?;
        let text = self.open_text(address.node, &address.value, Dialect::Own)?;
        let Some(receiver) = receiver(&text) else {
            return self.refuse(address.node, mistakes::receiver(&text));
        };
        let Some(tls) = &section.tls else { return Some(receiver) };
        let Receiver::Tls(server, _) = receiver else {
            return self.refuse(tls.node.key(), mistakes::tls_of_plain_receiver());
        };
        let settings = self.server_tls(Some(tls), Dialect::Own, None)?;
        Some(Receiver::Tls(server, settings))
    }
}

/// The receiver at an address: `unix:` and a path, or `tcp://` or `tls://` with a host.
fn receiver(address: &str) -> Option<Receiver> {
    if let Some(path) = address.strip_prefix("unix:") {
        let path = Path::new(path.strip_prefix("//").unwrap_or(path));
        return if path.is_absolute() { Some(Receiver::Unix(path.to_owned())) } else { None };
    }
    let url = Url::parse(address).ok()?;
    let has_rest = !matches!(url.path(), "" | "/") || url.query().is_some();
    if has_rest || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let host = host.trim_matches(['[', ']']).to_owned();
    // The ports that IANA has for both (RFC 6587, RFC 5425).
    match url.scheme() {
        "tcp" => Some(Receiver::Tcp(Server { host, port: url.port().unwrap_or(601) })),
        "tls" => Some(Receiver::Tls(Server { host, port: url.port().unwrap_or(6514) }, None)),
        _ => None,
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
