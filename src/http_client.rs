//! The HTTP clients of the bridge, all built here so that none has the library's defaults: a
//! default client follows redirects to other origins with the body and custom headers, and never
//! times out.
//!
//! Must not: know what is asked of whom.

mod client;
mod link_local;
mod tls;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue,
    header::{Entry, HeaderName, RETRY_AFTER},
};
use reqwest::{NoProxy, Proxy};
use url::{Origin, Url};

pub use client::Client;
pub use link_local::{is_link_local, names_link_local};
pub use tls::{Tls, TlsFlaw, certificates};

use crate::{
    budget::{Buffer, NoRoom},
    model::trace::{self, Trace},
};

/// How long a connection to a peer on the network may take, name look-up and TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many connections to one server are kept for later, of those that nobody uses. Each takes some
/// 25 KiB, and a thousand runs that end together would leave a thousand.
const MOST_IDLE: usize = 128;

/// A client that follows no redirect, speaks HTTP/1.1 and takes bodies as they are sent.
///
/// HTTP/1.1, because run streams are held open for as long as a run lives: on one HTTP/2
/// connection, the server's limit of streams (often 100) would make the next run wait for ever.
pub fn new() -> Client {
    Client::of(builder)
}

/// The same, for an address elsewhere that a peer has named: a name that leads to this machine is
/// not dialled, as a peer must not reach by the bridge what listens here for nobody else.
pub fn elsewhere() -> Client {
    Client::of(|| builder().dns_resolver(link_local::Names::Elsewhere))
}

/// The same, for the one server that `tls` is of.
fn with_tls(tls: &Tls) -> Client {
    let tls = tls.clone();
    Client::of(move || tls.apply(builder()))
}

/// The same, for a server on the unix socket `path`; the host in a URL is then only a name.
pub fn over_unix(path: &std::path::Path) -> Client {
    let path = path.to_owned();
    Client::of(move || builder().unix_socket(path.as_path()))
}

/// The same, with settings of TLS that are not the usual ones.
pub fn over_tls(settings: rustls::ClientConfig) -> Client {
    Client::of(move || builder().tls_backend_preconfigured(settings.clone()))
}

/// The client of one server, and the one for the others that it may send us to: what is configured
/// of the one's TLS is nothing to them.
#[derive(Debug, Clone)]
pub struct Clients {
    own: Client,
    /// `None` where the server has no URL.
    origin: Option<Origin>,
    others: Client,
    /// The way to a server that is on a unix socket, where the host in its URL is only a name.
    socket: Option<Client>,
}

impl Clients {
    /// For the server at `url`, to which `tls` belongs; `others` is from [`new`].
    pub fn of(url: Option<&Url>, tls: Option<&Tls>, others: Client) -> Self {
        let own = tls.map_or_else(|| others.clone(), with_tls);
        Self { own, origin: url.map(Url::origin), others, socket: None }
    }

    /// The same, where the server is on this unix socket, if on any.
    pub fn on_socket(self, path: Option<&std::path::Path>) -> Self {
        Self { socket: path.map(over_unix), ..self }
    }

    pub fn own(&self) -> &Client {
        &self.own
    }

    /// The one for a request to `url`, which the server itself has named. `is_own`: it lies where
    /// the operator sends requests, and not only the server.
    pub fn to_named(&self, url: &Url, is_own: bool) -> Client {
        match &self.socket {
            _ if !is_own => elsewhere(),
            // What is at this name on the network is another server.
            Some(socket) if self.origin.as_ref() == Some(&url.origin()) => socket.clone(),
            _ => self.to(url).clone(),
        }
    }

    /// The one for a request to `url`.
    pub fn to(&self, url: &Url) -> &Client {
        if self.origin.as_ref() == Some(&url.origin()) { &self.own } else { &self.others }
    }
}

/// A client that speaks HTTP/2 alone, as gRPC does, for one peer whose calls are few at a time.
pub fn http2(tls: Option<&Tls>) -> Client {
    /// gRPC servers take more pings than one in 5 minutes for abuse, and hang up. A host that is
    /// gone shows by TCP's keep-alive long before.
    const PING_INTERVAL: Duration = Duration::from_secs(310);
    const PING_TIMEOUT: Duration = Duration::from_secs(20);
    let tls = tls.cloned();
    Client::of(move || {
        let builder = tls.as_ref().map_or_else(builder, |tls| tls.apply(builder()));
        let builder = builder.http2_prior_knowledge().http2_keep_alive_interval(PING_INTERVAL);
        builder.http2_keep_alive_timeout(PING_TIMEOUT)
    })
}

fn build(builder: reqwest::ClientBuilder) -> reqwest::Client {
    builder.build().expect("the settings are constants, files were checked when they were read")
}

fn builder() -> reqwest::ClientBuilder {
    // An error means that a provider is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    // The first that takes a request has it.
    std::iter::once(link_local::refuse_literals())
        .chain(proxies())
        .fold(reqwest::Client::builder().no_proxy(), reqwest::ClientBuilder::proxy)
        .dns_resolver(link_local::Names::All)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(Duration::from_secs(15))
        .pool_max_idle_per_host(MOST_IDLE)
        .http1_only()
        .referer(false)
        .user_agent(concat!("mantyx-bridge/", env!("CARGO_PKG_VERSION")))
}

/// The header `Keep-Alive` of a server that closes connections that were idle for `wait`, so that
/// clients do not send a request at that moment.
pub fn keep_alive(wait: Duration) -> HeaderValue {
    HeaderValue::try_from(format!("timeout={}", wait.as_secs())).expect("a number is visible ASCII")
}

/// Adds the headers of a trace, where `headers` has none of these names.
pub fn add_trace(headers: &mut HeaderMap, trace: &Trace) {
    for (name, value) in trace.pairs() {
        if let Entry::Vacant(entry) = headers.entry(HeaderName::from_static(name))
            && let Ok(value) = HeaderValue::from_str(value)
        {
            entry.insert(value);
        }
    }
}

/// Puts the headers of a trace in the place of others of these names.
pub fn set_trace(headers: &mut HeaderMap, trace: &Trace) {
    headers.remove(trace::PARENT);
    headers.remove(trace::STATE);
    add_trace(headers, trace);
}

/// The proxies that the environment names. This machine is reached without them: they do not lead
/// here, and what is meant for it is not theirs to see.
fn proxies() -> Vec<Proxy> {
    let set = |names: [&str; 2]| {
        let value = names.into_iter().find_map(|name| std::env::var(name).ok());
        value.filter(|value| !value.is_empty())
    };
    let others = set(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let without = NoProxy::from_string(&format!("localhost,127.0.0.0/8,::1,{others}"));
    let all = || set(["ALL_PROXY", "all_proxy"]);
    let http = set(["HTTP_PROXY", "http_proxy"]).or_else(all).map(Proxy::http);
    let https = set(["HTTPS_PROXY", "https_proxy"]).or_else(all).map(Proxy::https);
    // What is no address is passed over, as the library does.
    let named = [http, https].into_iter().flatten().filter_map(Result::ok);
    named.map(|proxy| proxy.no_proxy(without.clone())).collect()
}

/// A body could not be read whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        limit: usize,
        /// As far as the server says it.
        size: Option<u64>,
    },
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error("the body broke off")]
    Broken(#[source] reqwest::Error),
}

/// Reads the whole body of `response`, at most `limit` bytes.
pub async fn body(mut response: reqwest::Response, limit: usize) -> Result<Bytes, BodyError> {
    let size = response.content_length();
    let declared = size.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX));
    if declared > limit {
        return Err(BodyError::TooLarge { limit, size });
    }
    let mut whole = Buffer::new(declared);
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if whole.len() + chunk.len() > limit {
            return Err(BodyError::TooLarge { limit, size: None });
        }
        whole.push(&chunk).await?;
    }
    Ok(whole.into_bytes())
}

/// Reads the body of `response`, but no more than `limit` bytes; whether that is the whole of it.
/// Errors do not have the address.
pub async fn body_up_to(
    mut response: reqwest::Response,
    limit: usize,
) -> Result<(Bytes, bool), BodyError> {
    let broken = |error: reqwest::Error| BodyError::Broken(error.without_url());
    let mut read = Buffer::new(0);
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        let fits = chunk.len().min(limit - read.len());
        let piece = chunk.get(..fits).unwrap_or_default();
        read.push(piece).await?;
        if fits < chunk.len() {
            return Ok((read.into_bytes(), false));
        }
    }
    Ok((read.into_bytes(), true))
}

/// How long a server wants to be left alone: `Retry-After`, in seconds or as a date.
pub fn retry_after(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    match text.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(wall).ok(),
    }
}

#[cfg(test)]
mod tests;
