//! `upstream` and `apps`: MANTYX, and the programs that reach it through the bridge.
//!
//! Must not: show a token or a credential.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::backend::Backends;
use super::web::is_in_the_open;
use super::{Validator, mistakes, optional};
use crate::config::{
    App, At, Auth, Count, Credential, Dialect, GlobOrRule, List, Listen, Mantyx, Named, NodeId,
    Rate, RefreshGrant, San, Scalar, TokenHash, Upstream, file_format,
};
use crate::model::{AppName, BackendName, Rights};

const DEFAULT_BASE_URL: &str = "https://app.mantyx.io";
/// The path at which MANTYX issues tokens, below the base URL.
const TOKEN_PATH: &str = "/api/oauth/token";
const PASSTHROUGH: &str = "passthrough";
/// The workspace of the sandbox if the file names none.
const SANDBOX_WORKSPACE: &str = "sandbox";
/// The least length of a token, in characters: shorter ones can be found by trying.
const SHORT_TOKEN: usize = 16;
/// A shorter one is found by trying before the lockout begins.
const LEAST_TOKEN: usize = 4;

impl Validator<'_> {
    pub(super) fn upstream(&self, section: Option<&At<file_format::Upstream>>) -> Option<Upstream> {
        let Some(At { value: upstream, node }) = section else {
            return self.missing(self.document.root.id, mistakes::no_upstream());
        };
        let workspace = optional(&upstream.workspace, |at| self.workspace(at));
        if upstream.sandbox.as_ref().is_some_and(|at| at.value) {
            for (key, node) in self.present_keys(*node, &["base_url", "credential", "oauth", "tls"])
            {
                self.error(node.key(), mistakes::sandbox_clash(key));
            }
            let workspace = workspace?.unwrap_or_else(|| SANDBOX_WORKSPACE.to_owned());
            return Some(Upstream::Sandbox { workspace });
        }
        let base_url = match &upstream.base_url {
            Some(at) => self.base_url(at),
            None => Some(Url::parse(DEFAULT_BASE_URL).expect("the constant is a URL")),
        };
        let credential = match (&upstream.credential, &upstream.oauth) {
            (Some(at), None) => self.credential(at),
            (None, Some(at)) => self.refresh_grant(at, base_url.as_ref()),
            (Some(_), Some(oauth)) => {
                self.refuse(oauth.node.key(), mistakes::credential_or_oauth())
            }
            (None, None) => self.missing(*node, mistakes::no_credential()),
        };
        let tls = self.server_tls(upstream.tls.as_ref(), Dialect::Own, base_url.as_ref());
        Some(Upstream::Mantyx(Mantyx {
            base_url: base_url?,
            workspace: workspace?,
            credential: credential?,
            tls: tls?,
        }))
    }

    pub(super) fn apps(
        &self,
        section: Option<&Named<file_format::App>>,
        backends: &Backends,
        auth: Auth,
        listen: Option<&Listen>,
    ) -> Vec<App> {
        let Some(At { value: entries, node }) = section else { return Vec::new() };
        if auth == Auth::Off && !entries.is_empty() {
            let message = "with `auth: off` no app is told from another, so `apps` has no effect";
            self.warn(*node, message);
        }
        let mut apps: Vec<App> = Vec::new();
        for (name, At { value: app, node }) in entries {
            self.check_app_name(*node, name);
            let mut rights = self.rights(app.backends.as_ref(), app.tools.as_ref(), backends);
            rights.offer = app.offer.as_ref().map(|at| at.value);
            let credential = app.credential.as_ref().and_then(|at| self.credential(at));
            let certificate = app.cert.as_ref().map(|at| self.app_certificates(at, listen, &apps));
            if app.token.is_none() && app.users.is_none() && app.cert.is_none() {
                self.missing::<()>(*node, mistakes::no_app_token(name));
                continue;
            }
            let token = optional(&app.token, |written| self.app_token(written, &apps));
            let Some(token) = token else { continue };
            let users = app.users.as_ref().map(|at| self.app_users(at, &apps));
            apps.push(App {
                name: name.as_str().into(),
                token,
                users: users.unwrap_or_default(),
                certificate,
                rights: Arc::new(rights),
                max_concurrent_calls: app.max_concurrent_calls.as_ref().map(|at| at.value.0),
                approves: app.approves.as_ref().is_some_and(|at| at.value),
                names: app.names.as_ref().map(|at| at.value.clone()).unwrap_or_default(),
                rate: app.rate.as_ref().and_then(|at| self.rate(at)),
                quota: app.quota.as_ref().and_then(|at| self.quota(at)),
                credential,
            });
        }
        if entries.is_empty() {
            self.no_app(*node);
        }
        apps
    }

    fn no_app(&self, apps: NodeId) {
        self.missing::<()>(apps, mistakes::no_app());
    }

    /// Checks the name of an app or a runtime.
    pub(super) fn check_app_name(&self, node: NodeId, name: &str) {
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_name_char) {
            self.error(node.key(), mistakes::app_name(name));
        }
    }

    fn rate(&self, At { value: rate, node }: &At<file_format::Rate>) -> Option<Rate> {
        let per_second =
            as_number(self.needed(*node, &rate.per_second, mistakes::no_per_second())?);
        Some(Rate { per_second, burst: rate.burst.as_ref().map_or(2.0 * per_second, as_number) })
    }

    /// Reads the token of the app with these keys.
    fn app_token(&self, written: &At<Scalar>, apps: &[App]) -> Option<TokenHash> {
        let token = self.token(written.node, &written.value.0, "token")?;
        if token.expose_secret().len() < LEAST_TOKEN {
            self.error(written.node, mistakes::tiny_token());
        } else if token.expose_secret().len() < SHORT_TOKEN {
            let message = "the token is short enough to be guessed; take 32 random bytes";
            self.warn(written.node, message);
        }
        let token = TokenHash::new(token.expose_secret().as_bytes());
        if let Some(other) = apps.iter().find(|app| app.token == Some(token)) {
            self.error(written.node, mistakes::same_token(&other.name));
        }
        Some(token)
    }

    /// Reads the users of the app with these keys.
    fn app_users(&self, at: &List<Scalar>, apps: &[App]) -> Vec<u32> {
        let mut users = Vec::new();
        for At { value, node } in &at.value {
            let Some(text) = self.open_text(*node, &value.0, Dialect::Own) else { continue };
            let Some(uid) = self.uid(&text) else {
                self.error(*node, mistakes::no_user(text));
                continue;
            };
            let other = apps.iter().find(|app| app.users.contains(&uid));
            if users.contains(&uid) {
                self.error(*node, mistakes::user_twice(uid));
            } else if let Some(other) = other {
                self.error(*node, mistakes::user_of_another(uid, &other.name));
            }
            users.push(uid);
        }
        users
    }

    /// The id of the user with this name or number.
    fn uid(&self, user: &str) -> Option<u32> {
        if let Ok(uid) = user.parse() {
            return Some(uid);
        }
        let passwd = self.env.read(Path::new("/etc/passwd")).ok()?;
        let mut users = passwd.text.lines().map(|line| line.split(':'));
        let mut fields = users.find(|fields| fields.clone().next() == Some(user))?;
        fields.nth(2)?.parse().ok()
    }

    /// Reads the names in an app's certificate.
    fn app_certificates(
        &self,
        at: &List<String>,
        listen: Option<&Listen>,
        apps: &[App],
    ) -> Vec<San> {
        if listen.is_some_and(|listen| !takes_certificates(listen)) {
            self.error(at.node.key(), mistakes::no_client_ca());
        }
        let mut names = Vec::new();
        for At { value, node } in &at.value {
            let Some(text) = self.open_text(*node, value, Dialect::Own) else { continue };
            let name = match San::parse(&text) {
                Ok(name) => name,
                Err(bad) => {
                    self.error(*node, mistakes::no_san(value, bad));
                    continue;
                }
            };
            let other =
                apps.iter().find(|app| app.certificate.iter().flatten().any(|n| *n == name));
            if let Some(other) = other {
                self.error(*node, mistakes::same_san(&other.name));
            }
            if names.contains(&name) {
                self.error(*node, mistakes::san_twice());
                continue;
            }
            names.push(name);
        }
        names
    }

    /// The app of a client at the command line, with its token: the one called `name`, else the
    /// first of those that may use most backends; one with a token, if there is one.
    pub(super) fn first_app(
        &self,
        At { value: apps, node }: &Named<file_format::App>,
        name: Option<&str>,
    ) -> Option<(AppName, Option<SecretString>)> {
        if apps.is_empty() {
            self.no_app(*node);
        }
        let entry = match name {
            Some(name) => apps.get_key_value(name).filter(|(_, app)| app.value.token.is_some()),
            None => apps.iter().rev().max_by_key(|(_, app)| {
                let backends = app.value.backends.as_ref();
                (app.value.token.is_some(), backends.map_or(usize::MAX, |at| at.value.len()))
            }),
        };
        let Some((app_name, app)) = entry else {
            let which = name.map_or("no app".to_owned(), |name| format!("no app `{name}`"));
            return self.missing(*node, mistakes::no_token_here(which));
        };
        let token = match &app.value.token {
            Some(at) => Some(self.token(at.node, &at.value.0, "token")?),
            None => None,
        };
        Some((app_name.as_str().into(), token))
    }

    /// The rights of an app or a runtime with these keys.
    pub(super) fn rights(
        &self,
        chosen: Option<&List<String>>,
        filters: Option<&Named<file_format::AppTools>>,
        backends: &Backends,
    ) -> Rights {
        let chosen = chosen.map(|at| self.app_backends(at, backends));
        let mut tools = BTreeMap::new();
        for (name, At { value: filter, node }) in filters.iter().flat_map(|at| &at.value) {
            let Some(backend) = self.named_backend(node.key(), name, backends) else { continue };
            // Others have no tools to choose from, and calls with arguments that a rule may be for.
            if backends.ready[&backend].target.section() != "mcp" && !has_rules_alone(filter) {
                self.error(node.key(), mistakes::one_tool(name));
            }
            if chosen.as_ref().is_some_and(|chosen| !chosen.contains(&backend)) {
                self.error(node.key(), mistakes::not_its_backend(name));
            }
            if filter.allow.is_none() && filter.deny.is_none() {
                self.missing::<()>(*node, mistakes::empty_filter(name));
            }
            let filter = self.tool_filter(filter.allow.as_ref(), filter.deny.as_ref());
            tools.insert(backend, filter);
        }
        Rights { backends: chosen, tools, offer: None }
    }

    fn app_backends(&self, names: &List<String>, backends: &Backends) -> BTreeSet<BackendName> {
        let mut chosen = BTreeSet::new();
        for At { value: name, node } in &names.value {
            let Some(backend) = self.named_backend(*node, name, backends) else { continue };
            if !chosen.insert(backend) {
                self.error(*node, mistakes::named_twice(name));
            }
        }
        chosen
    }

    fn credential(&self, at: &At<Scalar>) -> Option<Credential> {
        let text = at.value.0.as_str();
        if text == PASSTHROUGH {
            return Some(Credential::Passthrough);
        }
        self.secret(at.node, text, "credential").map(Credential::Own)
    }

    fn refresh_grant(
        &self,
        At { value: oauth, node }: &At<file_format::UpstreamOauth>,
        base: Option<&Url>,
    ) -> Option<Credential> {
        let cure = "write the client id of the application that is registered at MANTYX";
        let client_id = self.client_id(*node, &oauth.client_id, cure);
        let client_secret = self.needed_secret(*node, &oauth.client_secret, "client_secret");
        let refresh_token = self.needed_secret(*node, &oauth.refresh_token, "refresh_token");
        let token_url = match &oauth.token_url {
            Some(at) => {
                let url = self.url(at, Dialect::Own)?;
                self.check_encrypted(at.node, &url, "secrets");
                url
            }
            None => {
                let base = base?.as_str().trim_end_matches('/');
                Url::parse(&format!("{base}{TOKEN_PATH}")).expect("a base URL and a path").into()
            }
        };
        Some(Credential::Oauth(Arc::new(RefreshGrant {
            token_url,
            client_id: client_id?,
            client_secret: client_secret?,
            refresh_token: refresh_token?,
        })))
    }

    fn check_encrypted(&self, node: NodeId, url: &Url, what: &str) {
        if is_in_the_open(url) {
            self.error(node, mistakes::unencrypted(what));
        }
    }

    fn workspace(&self, at: &At<String>) -> Option<String> {
        let name = self.open_text(at.node, &at.value, Dialect::Own)?;
        // It becomes one segment of a path.
        if name.is_empty() || name == "." || name == ".." || !name.chars().all(is_name_char) {
            return self.refuse(at.node, mistakes::no_workspace(&at.value));
        }
        Some(name)
    }

    fn base_url(&self, at: &At<String>) -> Option<Url> {
        let text = self.open_text(at.node, &at.value, Dialect::Own)?;
        let url = self.checked_url(at.node, &text, &at.value)?;
        let node = at.node;
        if url.query().is_some() {
            self.error(node, mistakes::query());
        }
        self.check_encrypted(node, &url, "credential");
        if url.path().trim_end_matches('/').ends_with("/api") || url.path().contains("/api/v1") {
            self.error(node, mistakes::api_path());
        }
        Some(url)
    }
}

/// Exact up to 2^53, which is more than any client sends.
fn as_number(at: &At<Count>) -> f64 {
    at.value.0 as f64
}

/// Without an authority for clients, no caller can show a certificate.
fn takes_certificates(listen: &Listen) -> bool {
    listen.tls.as_ref().is_some_and(|files| files.client_ca.is_some())
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Whether the filter has nothing but rules on the arguments of all calls.
fn has_rules_alone(filter: &file_format::AppTools) -> bool {
    let denied = filter.deny.iter().flat_map(|list| &list.value.0);
    let mut are_rules = denied.map(|at| match &at.value {
        GlobOrRule::Glob(_) => false,
        // It has no name of its own that another glob could match.
        GlobOrRule::Rule(rule) => rule.tool.as_ref().is_some_and(|tool| tool.value == "*"),
    });
    filter.allow.is_none() && are_rules.all(|is_rule| is_rule)
}
