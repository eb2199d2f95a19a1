//! One entry of `runtimes`.
//!
//! Must not: know what is said to a runtime.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use secrecy::ExposeSecret as _;
use url::Url;

use super::backend::Backends;
use super::{Validator, mistakes};
use crate::config::file_format::File;
use crate::config::{
    App, At, Dialect, HsafaApi, NodeId, Runtime, RuntimeKind, RuntimeLink, Wire, Written,
    file_format,
};
use crate::http_client::sensitive;

const CLAUDE: &str = "https://api.anthropic.com";
/// The longest that hsafa v3 waits for a result.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

impl Validator<'_> {
    pub(super) fn runtimes(&self, file: &File, backends: &Backends) -> Vec<Runtime> {
        let mut runtimes = Vec::new();
        for (name, at) in file.runtimes.iter().flat_map(|at| &at.value) {
            let At { value: entry, node } = at;
            self.check_app_name(*node, name);
            let default = file.apps.is_none() && name == App::DEFAULT;
            if default || file.apps.as_ref().is_some_and(|apps| apps.value.contains_key(name)) {
                self.error(node.key(), mistakes::runtime_is_app(name));
            }
            let rights = self.rights(entry.backends.as_ref(), entry.tools.as_ref(), backends);
            let Some(link) = self.runtime_link(*node, entry) else { continue };
            let app = App {
                rights: Arc::new(rights),
                max_concurrent_calls: entry.max_concurrent_calls.as_ref().map(|at| at.value.0),
                ..App::named(name)
            };
            runtimes.push(Runtime { app, link });
        }
        runtimes
    }

    fn runtime_link(&self, node: NodeId, entry: &file_format::Runtime) -> Option<RuntimeLink> {
        let kind = self.needed(node, &entry.kind, mistakes::no_kind())?;
        let url = self.runtime_url(node, entry, kind.value);
        let tls = self.server_tls(entry.tls.as_ref(), Dialect::Own, url.as_deref())?;
        let wire = self.wire(node, entry, kind.value)?;
        let (name, scheme) = match wire {
            Wire::HsafaV3 { .. } => (HeaderName::from_static("x-secret-key"), ""),
            Wire::HsafaV7 { .. } => (HeaderName::from_static("x-api-key"), ""),
            Wire::Claude { .. } => (header::AUTHORIZATION, "Bearer "),
        };
        let credential = self.needed_secret(node, &entry.credential, "credential")?;
        let text = format!("{scheme}{}", credential.expose_secret());
        let value = sensitive(&text).expect("`secret` lets only graphic ASCII in");
        let headers = HeaderMap::from_iter([(name, value)]);
        Some(RuntimeLink { wire, url: url?, headers, tls })
    }

    fn runtime_url(
        &self,
        node: NodeId,
        entry: &file_format::Runtime,
        kind: RuntimeKind,
    ) -> Option<Written<Url>> {
        if entry.url.is_none() && kind == RuntimeKind::ClaudeEnvironment {
            return Some(Url::parse(CLAUDE).expect("the constant is a URL").into());
        }
        let at = self.needed(node, &entry.url, mistakes::no_gateway())?;
        self.private_url(at, "the credential travels without TLS; write https:// in the URL")
    }

    fn wire(&self, node: NodeId, entry: &file_format::Runtime, kind: RuntimeKind) -> Option<Wire> {
        if kind == RuntimeKind::ClaudeEnvironment {
            let keys = ["api", "api_base", "skill", "timeout"];
            self.check_foreign_keys(node, &keys, "kind: claude-environment");
            let environment = self.runtime_text(node, &entry.environment, "environment")?;
            return Some(Wire::Claude { environment });
        }
        let api = self.needed(node, &entry.api, mistakes::no_api())?;
        if api.value == HsafaApi::V3 {
            self.check_foreign_keys(node, &["api_base", "skill", "environment"], "api: v3");
            let timeout = self.duration(entry.timeout.as_ref(), MAX_TIMEOUT, "");
            return Some(Wire::HsafaV3 { timeout: timeout.unwrap_or(Duration::from_secs(30)) });
        }
        self.check_foreign_keys(node, &["environment", "timeout"], "api: v7");
        let path = entry.api_base.as_ref().map_or("/api", |at| at.value.as_str());
        let base = path.split('/').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        Some(Wire::HsafaV7 { base, skill: self.runtime_text(node, &entry.skill, "skill")? })
    }

    /// A text that becomes one segment of a path.
    fn runtime_text(&self, node: NodeId, at: &Option<At<String>>, key: &str) -> Option<String> {
        let at = self.needed(node, at, mistakes::no_runtime_key(key))?;
        let text = self.open_text(at.node, &at.value, Dialect::Own)?;
        if matches!(text.as_str(), "" | "." | "..") {
            return self.refuse(at.node, mistakes::runtime_text(text, key));
        }
        Some(text)
    }
}
