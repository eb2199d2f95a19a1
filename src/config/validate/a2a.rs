//! One entry of `a2a`, and the keys that may sign its card.
//!
//! Must not: fetch or read the Agent Card.

use std::time::Duration;

use url::Url;

use super::auth::AuthPlace;
use super::web::is_in_the_open;
use super::{Defaults, Inherited, Validator, all, everybody_writes, mistakes};
use crate::config::{
    A2a, A2aBinding, At, Backend, CardSource, Dialect, List, NodeId, OauthClient, Pin, Signers,
    Target, Written, file_format,
};
use crate::model::BackendName;
use crate::public_keys::PublicKey;

/// The default `pending_after` of agents, as their tasks take long.
const A2A_PENDING: Duration = Duration::from_secs(240);

/// What an operator who has allowed it is told.
const PLAIN: &str = "the entry's credentials may travel without TLS, where others on the network \
                     path can read them; use an https endpoint as soon as the agent has one";

const PUBLIC: &str = "name a file with the agent's public key: PEM (-----BEGIN PUBLIC KEY-----, which \
                      `openssl x509 -pubkey -noout` makes of a certificate), a JWK, or a set of them";

impl Validator<'_> {
    pub(super) fn a2a(
        &self,
        name: &BackendName,
        at: &At<file_format::A2a>,
        inherited: Inherited<'_>,
    ) -> Backend {
        let At { value: entry, node } = at;
        let card = self.card(*node, entry);
        let url = match &card {
            Some(CardSource::Base(url) | CardSource::Url(url)) => Some(&**url),
            Some(CardSource::File(_) | CardSource::Bundled) | None => None,
        };
        let allow_hosts = self.allow_hosts(entry.allow_hosts.as_ref());
        let own_headers = self.headers(entry.headers.as_ref(), Dialect::Own, url);
        let headers_valid = own_headers.is_some();
        let mut headers = own_headers.unwrap_or_default();
        let oauth = self.backend_auth(entry.auth.as_ref(), &mut headers, url, AuthPlace::Agent);
        let oauth = oauth.map(|client| match client {
            Some(OauthClient::Credentials(credentials)) => Some(credentials),
            // A login was reported as a mistake.
            Some(OauthClient::Login(_)) | None => None,
        });
        let is_bundled = matches!(card, Some(CardSource::Bundled));
        if let Some(at) = entry.pin.as_ref().filter(|_| is_bundled) {
            self.error(at.node.key(), mistakes::pin_of_bundled());
        }
        let tls = self.server_tls(entry.tls.as_ref(), Dialect::Own, url);
        let signers = self.signature(entry.signature.as_ref(), is_bundled);
        let defaults = Defaults {
            pending_after: Some(A2A_PENDING),
            concurrency: 16,
            // The card of the bundled agent is the bridge's own, and its port changes with every
            // start.
            pin: if is_bundled { Pin::Off } else { Pin::Warn },
        };
        let has_credentials = !headers.is_empty() || entry.auth.is_some();
        let endpoint = self.endpoint(entry, url, has_credentials);
        if is_bundled {
            self.refuse_keys_of_bundled(entry);
        }
        let extensions = self.extensions(entry.extensions.as_ref());
        let extended_card = self.extended_card(entry);
        let allow_plain = entry.allow_plain.as_ref().is_some_and(|at| at.value);
        if let Some(at) = entry.allow_plain.as_ref().filter(|at| at.value && has_credentials) {
            self.warn(at.node, PLAIN);
        }
        let target = match (card, oauth, tls, signers) {
            (Some(card), Some(oauth), Some(tls), Some(signers)) if headers_valid => {
                Target::A2a(A2a {
                    card,
                    headers,
                    description: entry.description.as_ref().map(|at| at.value.clone()),
                    binding: entry.transport.as_ref().map(|at| at.value),
                    allow_hosts,
                    blocking: entry.blocking.as_ref().is_some_and(|at| at.value),
                    oauth,
                    tls,
                    signers,
                    endpoint,
                    extensions,
                    extended_card,
                    allow_plain,
                })
            }
            _ => Target::unresolved("a2a"),
        };
        let backend = self.backend(name, target, &entry.common_keys(), &defaults, inherited);
        Backend { approve: self.approve_agent(name, entry.approve.as_ref()), ..backend }
    }

    fn card(&self, node: NodeId, entry: &file_format::A2a) -> Option<CardSource> {
        let bundled = entry.bundled.as_ref().filter(|at| at.value);
        let mut sources = self.present_keys(node, &["url", "card_url", "card_file", "bundled"]);
        sources.retain(|(key, _)| *key != "bundled" || bundled.is_some());
        if let [_, (_, second), ..] = sources[..] {
            return self.refuse(second.key(), mistakes::several_cards());
        }
        match (&entry.url, &entry.card_url, &entry.card_file, bundled) {
            (Some(at), ..) => {
                let url = self.url(at, Dialect::Own)?;
                if url.path().contains("/.well-known/agent") {
                    self.error(at.node, mistakes::card_address());
                }
                Some(CardSource::Base(url))
            }
            (_, Some(at), ..) => self.url(at, Dialect::Own).map(CardSource::Url),
            (_, _, Some(at), _) => self.path(at).map(CardSource::File),
            (.., Some(_)) => Some(CardSource::Bundled),
            (None, None, None, None) => self.missing(node, mistakes::no_agent()),
        }
    }

    /// The address for calls. `card_url` is where the card comes from.
    ///
    /// An http address beside an https one is refused where the entry has credentials: it was
    /// written to mend a broken card, and would send in plain text what is protected elsewhere.
    fn endpoint(
        &self,
        entry: &file_format::A2a,
        card_url: Option<&Url>,
        has_credentials: bool,
    ) -> Option<Written<Url>> {
        let at = entry.endpoint.as_ref()?;
        let url = self.url(at, Dialect::Own)?;
        let is_allowed = entry.allow_plain.as_ref().is_some_and(|at| at.value);
        let is_downgrade =
            url.scheme() == "http" && card_url.is_some_and(|card_url| card_url.scheme() == "https");
        if !has_credentials || !is_in_the_open(&url) {
            return Some(url);
        }
        if is_downgrade && !is_allowed {
            return self.refuse(at.node, mistakes::plain_endpoint());
        }
        if !is_allowed {
            self.warn(at.node, "the entry's credentials travel without TLS; write https://");
        }
        Some(url)
    }

    fn extensions(&self, section: Option<&List<String>>) -> Vec<String> {
        let items = section.map(|at| at.value.as_slice()).unwrap_or_default();
        for At { value: uri, node } in items {
            // They share one header, where a comma is between two of them.
            let is_clean = uri.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
            if !is_clean || Url::parse(uri).is_err() {
                self.error(*node, mistakes::no_extension(uri));
            }
        }
        items.iter().map(|at| at.value.clone()).collect()
    }

    fn extended_card(&self, entry: &file_format::A2a) -> bool {
        let Some(at) = entry.extended_card.as_ref().filter(|at| at.value) else { return false };
        // Its bytes are offered as they are, and over gRPC there are none in JSON.
        if entry.transport.as_ref().is_some_and(|at| at.value == A2aBinding::Grpc) {
            self.error(at.node, mistakes::extended_card_of_grpc());
        }
        true
    }

    /// The bundled agent is a part of the bridge: it has one address, and one card.
    fn refuse_keys_of_bundled(&self, entry: &file_format::A2a) {
        let nodes = [
            ("endpoint", entry.endpoint.as_ref().map(|at| at.node)),
            ("extended_card", entry.extended_card.as_ref().map(|at| at.node)),
            ("allow_plain", entry.allow_plain.as_ref().map(|at| at.node)),
        ];
        for (key, node) in nodes {
            if let Some(node) = node {
                self.error(node.key(), mistakes::key_of_bundled(key));
            }
        }
    }

    fn allow_hosts(&self, section: Option<&List<String>>) -> Vec<String> {
        let items = section.map(|at| at.value.as_slice()).unwrap_or_default();
        for At { value: host, node } in items {
            // A host that parses to itself: no scheme, path, user or upper case.
            let parsed = Url::parse(&format!("http://{host}/"));
            let same = parsed.is_ok_and(|url| {
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                // The parser drops `:80` as the scheme's default.
                let host = host.strip_suffix(":80").unwrap_or(host);
                url.host_str().is_some_and(|name| format!("{name}{port}") == *host)
            });
            if !same {
                self.error(*node, mistakes::no_host(host));
            }
        }
        items.iter().map(|at| at.value.clone()).collect()
    }

    /// The required signers of the card. `None` outside: a mistake was reported.
    pub(super) fn signature(
        &self,
        section: Option<&At<file_format::CardSignature>>,
        is_bundled: bool,
    ) -> Option<Option<Signers>> {
        let Some(At { value: section, node }) = section else { return Some(None) };
        if is_bundled {
            return self.refuse(node.key(), mistakes::signature_of_bundled());
        }
        let files = section.keys.as_ref().map(|at| at.value.0.as_slice()).unwrap_or_default();
        if files.is_empty() {
            let at = section.keys.as_ref().map_or(*node, |at| at.node);
            return self.missing(at, mistakes::no_signer());
        }
        let keys: Vec<Vec<PublicKey>> = all(files.iter().map(|at| self.public_keys(at)))?;
        let required = section.required.as_ref().is_none_or(|at| at.value);
        Some(Some(Signers { keys: keys.concat(), required }))
    }

    fn public_keys(&self, at: &At<String>) -> Option<Vec<PublicKey>> {
        let path = self.path(at)?;
        let file = self.file(at.node, &path, PUBLIC)?;
        match PublicKey::read_all(&file.text) {
            Ok(keys) => {
                if file.mode & 0o002 != 0 {
                    self.warn(at.node, everybody_writes(&path));
                }
                Some(keys)
            }
            Err(flaw) => self.outside(None, || {
                self.refuse(at.node, mistakes::unusable(path.display(), flaw, PUBLIC))
            }),
        }
    }
}
