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
use super::{Validator, optional};
use crate::config::{
    App, At, Auth, Count, Credential, Dialect, List, Listen, Mantyx, Named, NodeId, Rate,
    RefreshGrant, San, Scalar, TokenHash, Upstream, file_format,
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

const CREDENTIAL_CURE: &str = "write `credential: ${env:MANTYX_API_KEY}`, or \
    `credential: passthrough` to forward what each app sends, or `sandbox: true` to try it without \
    an account";

impl Validator<'_> {
    pub(super) fn upstream(&self, section: Option<&At<file_format::Upstream>>) -> Option<Upstream> {
        let Some(At { value: upstream, node }) = section else {
            let cure = CREDENTIAL_CURE.replacen("write `", "write `upstream:` and below it `", 1);
            return self.missing(self.document.root.id, "`upstream` is missing", cure);
        };
        let workspace = optional(&upstream.workspace, |at| self.workspace(at));
        if upstream.sandbox.as_ref().is_some_and(|at| at.value) {
            for (key, node) in self.given(*node, &["base_url", "credential", "oauth", "tls"]) {
                let message = format!("`{key}` clashes with `sandbox: true`");
                let cure = "the sandbox is inside the bridge: remove one of the two";
                self.error(node.key(), message, cure);
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
                let message = "`upstream` has either `credential` or `oauth`";
                self.refuse(oauth.node.key(), message, "remove one of the two")
            }
            (None, None) => self.missing(*node, "`credential` is missing", CREDENTIAL_CURE),
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
            let certificate = app.cert.as_ref().map(|at| self.app_names(at, listen, &apps));
            if app.token.is_none() && app.users.is_none() && app.cert.is_none() {
                let cure = format!("write `token: ${{file:/etc/mantyx-bridge/{name}.token}}`");
                self.missing::<()>(*node, "`token` is missing", cure);
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
        let cure = "remove the section, or name an app in it";
        self.missing::<()>(apps, "`apps` names no app", cure);
    }

    /// Checks the name of an app or a runtime.
    pub(super) fn check_app_name(&self, node: NodeId, name: &str) {
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_name_char) {
            let message = format!("`{name}` is no name for an app");
            let cure = "it has 1 to 64 characters out of a-z, A-Z, 0-9, _, - and .";
            self.error(node.key(), message, cure);
        }
    }

    fn rate(&self, At { value: rate, node }: &At<file_format::Rate>) -> Option<Rate> {
        let cure = "write how many requests a second it may send: `per_second: 50`";
        let per_second = self.needed(*node, &rate.per_second, "`per_second` is missing", cure)?;
        // Exact up to 2^53, which is more than any client sends.
        let number = |at: &At<Count>| at.value.0 as f64;
        let per_second = number(per_second);
        Some(Rate { per_second, burst: rate.burst.as_ref().map_or(2.0 * per_second, number) })
    }

    /// Reads the token of the app with these keys.
    fn app_token(&self, written: &At<Scalar>, apps: &[App]) -> Option<TokenHash> {
        let token = self.token(written.node, &written.value.0, "token")?;
        if token.expose_secret().len() < SHORT_TOKEN {
            let message = "the token is short enough to be guessed; take 32 random bytes";
            self.warn(written.node, message);
        }
        let token = TokenHash::of(token.expose_secret().as_bytes());
        if let Some(other) = apps.iter().find(|app| app.token == Some(token)) {
            let message = format!("the app `{}` has the same token", other.name);
            self.error(written.node, message, "every app needs its own, by which it is known");
        }
        Some(token)
    }

    /// Reads the users of the app with these keys.
    fn app_users(&self, at: &List<Scalar>, apps: &[App]) -> Vec<u32> {
        let mut users = Vec::new();
        for At { value, node } in &at.value {
            let Some(text) = self.open_text(*node, &value.0, Dialect::Own) else { continue };
            let Some(uid) = self.uid(&text) else {
                let cure =
                    "write a name that is in /etc/passwd, or the number of the user (`id -u`)";
                self.error(*node, format!("there is no user `{text}`"), cure);
                continue;
            };
            let other = apps.iter().find(|app| app.users.contains(&uid));
            if users.contains(&uid) {
                self.error(*node, format!("the user {uid} is here twice"), "remove one");
            } else if let Some(other) = other {
                let message = format!("the user {uid} is the app `{}` already", other.name);
                self.error(*node, message, "a user is one app; tell them apart by their tokens");
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
        let mut found = users.find(|fields| fields.clone().next() == Some(user))?;
        found.nth(2)?.parse().ok()
    }

    /// Reads the certificate names of the app with these keys.
    fn app_names(&self, at: &List<String>, listen: Option<&Listen>, apps: &[App]) -> Vec<San> {
        let asked =
            |listen: &Listen| listen.tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        if listen.is_some_and(|listen| !asked(listen)) {
            let cure =
                "write `client_ca` into `listen.tls`: the authority that signs those of apps";
            self.error(at.node.key(), "no client certificate is asked for", cure);
        }
        let mut names = Vec::new();
        for At { value, node } in &at.value {
            let Some(text) = self.open_text(*node, value, Dialect::Own) else { continue };
            let name = match San::parse(&text) {
                Ok(name) => name,
                Err(bad) => {
                    let cure = "write a DNS name, a URI or a mail address of its subjectAltName";
                    self.error(*node, format!("`{value}` is no name: {bad}"), cure);
                    continue;
                }
            };
            let others =
                apps.iter().find(|app| app.certificate.iter().flatten().any(|n| *n == name));
            if let Some(other) = others {
                let message = format!("the app `{}` has the same name", other.name);
                self.error(*node, message, "a certificate stands for one app");
            }
            names.push(name);
        }
        names
    }

    /// The app of a client at the command line, with its token: the `asked` one, else the first of
    /// those that may use most backends; one with a token, if there is one.
    pub(super) fn first_app(
        &self,
        At { value: apps, node }: &Named<file_format::App>,
        asked: Option<&str>,
    ) -> Option<(AppName, Option<SecretString>)> {
        let sees = |(_, app): &(&String, &At<file_format::App>)| {
            let backends = app.value.backends.as_ref();
            (app.value.token.is_some(), backends.map_or(usize::MAX, |at| at.value.len()))
        };
        if apps.is_empty() {
            self.no_app(*node);
        }
        let found = match asked {
            Some(asked) => {
                apps.iter().find(|(name, app)| *name == asked && app.value.token.is_some())
            }
            None => apps.iter().rev().max_by_key(sees),
        };
        let Some((name, app)) = found else {
            let asked = asked.map(|app| format!(" `{app}`")).unwrap_or_default();
            let message = format!("no app{asked} has a token for the command line");
            return self.missing(*node, message, "give one of them a `token: ${file:/path}`");
        };
        let token = match &app.value.token {
            Some(at) => Some(self.token(at.node, &at.value.0, "token")?),
            None => None,
        };
        Some((name.as_str().into(), token))
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
            // Others have no tools to choose from.
            if backends.ready[&backend].target.section() != "mcp" {
                let message = format!("`{name}` is one tool, not a server with several");
                self.error(node.key(), message, "write it into `backends`, or leave it out there");
            }
            if chosen.as_ref().is_some_and(|chosen| !chosen.contains(&backend)) {
                let message = format!("the app may not use `{name}` at all");
                self.error(node.key(), message, "add it to `backends`, or remove this");
            }
            if filter.allow.is_none() && filter.deny.is_none() {
                let cure = "write `allow: [glob…]`, `deny: [glob…]`, or both";
                let message = format!("this says nothing of the tools of `{name}`");
                self.missing::<()>(*node, message, cure);
            }
            let filter = self.tool_filter(filter.allow.as_ref(), filter.deny.as_ref());
            tools.insert(backend, filter);
        }
        Rights { backends: chosen, tools, offer: None }
    }

    fn app_backends(&self, names: &List<String>, backends: &Backends) -> BTreeSet<BackendName> {
        let mut chosen = BTreeSet::new();
        for At { value: name, node } in &names.value {
            let found = self.named_backend(*node, name, backends);
            if found.is_some_and(|found| !chosen.insert(found)) {
                self.error(*node, format!("`{name}` is here twice"), "remove one");
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
            let message = format!("without TLS everybody on the way could read the {what}");
            self.error(node, message, "write https://; http:// is for loopback addresses only");
        }
    }

    fn workspace(&self, at: &At<String>) -> Option<String> {
        let name = self.open_text(at.node, &at.value, Dialect::Own)?;
        // It becomes one segment of a path.
        if name.is_empty() || name == "." || name == ".." || !name.chars().all(is_name_char) {
            let message = format!("`{}` is no workspace", at.value);
            let cure = "write its slug: the part after /workspaces/ in MANTYX's addresses";
            return self.refuse(at.node, message, cure);
        }
        Some(name)
    }

    fn base_url(&self, at: &At<String>) -> Option<Url> {
        let text = self.open_text(at.node, &at.value, Dialect::Own)?;
        let url = self.checked_url(at.node, &text, &at.value)?;
        let node = at.node;
        if url.query().is_some() {
            self.error(node, "a base URL has no query", "leave out what follows the `?`");
        }
        self.check_encrypted(node, &url, "credential");
        if url.path().trim_end_matches('/').ends_with("/api") || url.path().contains("/api/v1") {
            let message = "the path ends in the API, which the bridge adds itself";
            self.error(node, message, "leave it out, from /api on");
        }
        Some(url)
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}
