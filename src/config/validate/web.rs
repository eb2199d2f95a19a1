//! URLs and headers of backends.
//!
//! Must not: resolve a host name or show a header's value.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use url::{Host, Url};

use super::{Validator, plain_secret};
use crate::config::reference::looks_secret;
use crate::config::{At, Dialect, Named, NodeId, Scalar, Written};
use crate::http_client::names_link_local;

impl Validator<'_> {
    /// The address of a backend.
    pub(super) fn url(&self, at: &At<String>, dialect: Dialect) -> Option<Written<Url>> {
        let (text, template) = self.resolve(at.node, &at.value, dialect)?;
        let mut shown = template.to_string();
        let url = self.checked_url(at.node, &text, &shown)?;
        if template.is_plain() {
            let (open, hidden) = without_secret_query(&url);
            if hidden {
                self.warn(at.node, plain_secret("a query parameter"));
            }
            shown = open;
        }
        Some(self.written(url, shown))
    }

    /// Checks a resolved URL; messages have `shown` in its place.
    pub(super) fn checked_url(&self, node: NodeId, text: &str, shown: &str) -> Option<Url> {
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                let cure = format!("the scheme is missing: write https://{shown}");
                return self.refuse(node, format!("`{shown}` is no URL"), cure);
            }
            Err(error) => {
                let message = format!("`{shown}` is no URL: {error}");
                return self.refuse(node, message, "write it like https://host.example/mcp");
            }
        };
        // First of all, since any other message would show the password.
        if !url.username().is_empty() || url.password().is_some() {
            let message = "a URL must not hold a user or a password";
            let cure = "write `headers: {Authorization: \"Basic ${file:/path}\"}` beside it";
            return self.refuse(node, message, cure);
        }
        if !matches!(url.scheme(), "http" | "https") {
            let message = match url.host() {
                // Do not show the scheme of a resolved reference.
                _ if shown.contains("${") => format!("`{shown}` is no URL of a server"),
                Some(_) => format!("`{}://` is not spoken here", url.scheme()),
                None => format!("`{shown}` is no URL of a server"),
            };
            return self.refuse(node, message, "write https:// or http:// before the host");
        }
        if names_link_local(&url) {
            let message = format!("`{shown}` is a link-local address, which is never called");
            let cure = "give the server another address: clouds keep credentials behind these";
            self.error(node, message, cure);
        }
        if url.fragment().is_some() {
            self.error(node, "a fragment is never sent", "leave out what follows the `#`");
        }
        Some(url)
    }

    /// The headers of a backend at `url`, their values marked sensitive.
    pub(super) fn headers(
        &self,
        section: Option<&Named<Scalar>>,
        dialect: Dialect,
        url: Option<&Url>,
    ) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let Some(section) = section else { return Some(headers) };
        let mut complete = true;
        for (name, at) in &section.value {
            let Some((name, value)) = self.header(name, at, dialect) else {
                complete = false;
                continue;
            };
            if headers.contains_key(&name) {
                let message = format!("the header `{name}` is here twice");
                self.error(at.node.key(), message, "case does not matter: remove one");
            }
            if url.is_some_and(is_in_the_open) && looks_secret(name.as_str()) {
                let message = format!("`{name}` travels without TLS; write https:// in the URL");
                self.warn(at.node, message);
            }
            headers.insert(name, value);
        }
        complete.then_some(headers)
    }

    fn header(
        &self,
        name: &str,
        at: &At<Scalar>,
        dialect: Dialect,
    ) -> Option<(HeaderName, HeaderValue)> {
        let Ok(parsed) = name.parse::<HeaderName>() else {
            let cure = "letters, digits and hyphens, such as X-API-Key";
            return self.refuse(at.node.key(), format!("`{name}` is no name of a header"), cure);
        };
        let framing = [
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
        ];
        if framing.contains(&parsed) {
            let message = format!("`{name}` is set by the connection itself");
            return self.refuse(at.node.key(), message, "remove the line");
        }
        let (value, template) = self.resolve(at.node, &at.value.0, dialect)?;
        let Ok(mut header) = HeaderValue::from_str(&value) else {
            let message = format!("the value of `{name}` is not allowed in a header");
            return self.refuse(at.node, message, "it is one line of printable ASCII");
        };
        header.set_sensitive(true);
        // Also without its scheme.
        [value.as_str(), value.rsplit(' ').next().unwrap_or_default()]
            .into_iter()
            .for_each(|value| self.keep_secret(value));
        if template.is_plain() && !value.is_empty() && looks_secret(name) {
            self.warn(at.node, plain_secret(&format!("the header {name}")));
        }
        Some((parsed, header))
    }
}

/// Whether others on the network path can read requests to `url`.
pub(super) fn is_in_the_open(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    };
    url.scheme() == "http" && !is_loopback
}

/// The URL without the values of secret query parameters, and whether there were any.
pub(super) fn without_secret_query(url: &Url) -> (String, bool) {
    let Some(query) = url.query() else { return (url.to_string(), false) };
    let mut hidden = false;
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, _)) if looks_secret(name) => {
                hidden = true;
                format!("{name}=***")
            }
            _ => pair.to_owned(),
        })
        .collect();
    let mut shown = url.clone();
    shown.set_query(Some(&pairs.join("&")));
    (shown.to_string(), hidden)
}
