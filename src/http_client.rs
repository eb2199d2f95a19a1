//! The HTTP clients of the bridge. All are built here, so that none has the library's defaults: a
//! default client follows redirects to other origins, with the body and custom headers, and never
//! times out.
//!
//! Must not: know the content or the purpose of a request.

pub mod address;
mod client;
#[cfg(test)]
pub(crate) mod fake;
mod link_local;
mod tls;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, Entry, HeaderName, InvalidHeaderValue,
    RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{NoProxy, Proxy};
use url::{Origin, Url};

pub use client::Client;
pub use link_local::{is_link_local, names_link_local, names_this_machine};
pub use tls::{Tls, TlsFlaw, tls_settings};

use crate::budget::{Buffer, NoRoom};
use crate::error_chain::error_chain;
use crate::model::{Trace, trace};

/// How long connecting to a peer on the network may take, name look-up and TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most idle connections to one server that a client keeps. Each takes some 25 KiB, and a
/// thousand runs that end together would leave a thousand of them.
const MAX_IDLE: usize = 128;

/// A client that follows no redirect, speaks HTTP/1.1, and asks for bodies as they are.
///
/// HTTP/1.1, because a run's stream stays open for as long as the run lives. On one HTTP/2
/// connection, the server's limit of streams (often 100) would make the next run wait for ever.
pub fn new() -> Client {
    Client::with_settings(builder)
}

/// Like [`new`], for a foreign address that a peer has named. It refuses names that lead to this
/// machine: a peer must not use the bridge to reach services that only listen locally.
pub fn elsewhere() -> Client {
    Client::with_settings(|| builder().dns_resolver(link_local::Names::Elsewhere))
}

/// Like [`new`], with the TLS settings of one server.
fn with_tls(tls: &Tls) -> Client {
    let settings = tls.clone();
    Client::with_settings(move || settings.apply(builder(), &["http/1.1"]))
}

/// A client for requests that are short in time and size, as results are: over HTTP/2, if the
/// server's TLS offers it. All share a connection then, and it is kept, as a server announces that
/// it closes one.
pub fn sharing(tls: Option<&Tls>) -> Client {
    /// While an answer is due: a dead connection is closed after both times, and not used again.
    const PING_INTERVAL: Duration = Duration::from_secs(4);
    const PING_TIMEOUT: Duration = Duration::from_secs(4);
    let tls = tls.cloned();
    Client::sharing(move || {
        let builder = tls
            .as_ref()
            .map_or_else(any_version, |tls| tls.apply(any_version(), &["h2", "http/1.1"]));
        builder.http2_keep_alive_interval(PING_INTERVAL).http2_keep_alive_timeout(PING_TIMEOUT)
    })
}

/// Like [`new`], for a server on the unix socket `path`. The host in a URL is then only a name.
pub fn over_unix(path: &std::path::Path) -> Client {
    let path = path.to_owned();
    Client::with_settings(move || builder().unix_socket(path.as_path()))
}

/// Like [`new`], with other TLS settings than the usual ones.
pub fn over_tls(settings: rustls::ClientConfig) -> Client {
    Client::with_settings(move || builder().tls_backend_preconfigured(settings.clone()))
}

/// The client for one server, and a client for the others that it may refer to: the one server's
/// TLS settings must not apply to them.
#[derive(Debug, Clone)]
pub struct Clients {
    pub own: Client,
    /// `None` if the server has no URL.
    origin: Option<Origin>,
    others: Client,
    /// The client for a server on a unix socket, where the host in its URL is only a name.
    socket: Option<Client>,
}

impl Clients {
    /// Clients for the server at `url` with the settings `tls`; `others` comes from [`new`].
    pub fn new(url: Option<&Url>, tls: Option<&Tls>, others: Client) -> Self {
        let own = tls.map_or_else(|| others.clone(), with_tls);
        Self { own, origin: url.map(Url::origin), others, socket: None }
    }

    /// The clients for a server that listens on the unix socket `path`, if there is one.
    pub fn on_socket(self, path: Option<&std::path::Path>) -> Self {
        Self { socket: path.map(over_unix), ..self }
    }

    /// The client for a request to `url`, an address that the server has named. `is_own` says that
    /// the operator has configured this address as well.
    pub fn to_named(&self, url: &Url, is_own: bool) -> Client {
        match &self.socket {
            _ if !is_own => elsewhere(),
            // On the network, this name belongs to another server.
            Some(socket) if self.origin.as_ref() == Some(&url.origin()) => socket.clone(),
            _ => self.to(url).clone(),
        }
    }

    /// The client for a request to `url`.
    pub fn to(&self, url: &Url) -> &Client {
        if self.origin.as_ref() == Some(&url.origin()) { &self.own } else { &self.others }
    }
}

/// A client that only speaks HTTP/2, as gRPC does, for one peer with few concurrent calls.
pub fn http2(tls: Option<&Tls>) -> Client {
    /// gRPC servers take more than one ping in 5 minutes for abuse, and close the connection. TCP
    /// keep-alive notices a dead host long before.
    const PING_INTERVAL: Duration = Duration::from_secs(310);
    const PING_TIMEOUT: Duration = Duration::from_secs(20);
    let tls = tls.cloned();
    Client::with_settings(move || {
        let builder = tls.as_ref().map_or_else(builder, |tls| tls.apply(builder(), &["h2"]));
        builder
            .http2_prior_knowledge()
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
    })
}

fn build(builder: reqwest::ClientBuilder) -> reqwest::Client {
    builder.build().expect("the settings are constants, files were checked when they were read")
}

fn builder() -> reqwest::ClientBuilder {
    any_version().http1_only()
}

fn any_version() -> reqwest::ClientBuilder {
    with_proxies(proxies(|name| std::env::var(name).ok()))
}

fn with_proxies(proxies: Vec<Proxy>) -> reqwest::ClientBuilder {
    // An error means that a provider is already installed, which is just as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    // The first proxy that accepts a request gets it.
    std::iter::once(link_local::refuse_literals())
        .chain(proxies)
        .fold(reqwest::Client::builder().no_proxy(), reqwest::ClientBuilder::proxy)
        .dns_resolver(link_local::Names::All)
        // A request without this header allows any encoding (RFC 9110, section 12.5.3). A header of
        // the request itself stays.
        .default_headers(HeaderMap::from_iter([(
            ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        )]))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(Duration::from_secs(15))
        .pool_max_idle_per_host(MAX_IDLE)
        .referer(false)
        .user_agent(concat!("mantyx-bridge/", env!("CARGO_PKG_VERSION")))
}

/// The header `Keep-Alive` of a server that closes connections after `wait` without a request.
/// Clients that know this do not send a request at that moment.
pub fn keep_alive(wait: Duration) -> HeaderValue {
    HeaderValue::try_from(format!("timeout={}", wait.as_secs())).expect("a number is visible ASCII")
}

/// The value of a header that no log may show.
pub fn sensitive(text: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Adds the headers of a trace, if `headers` has none of them.
pub fn add_trace(headers: &mut HeaderMap, trace: &Trace) {
    for (name, value) in trace.pairs() {
        if let Entry::Vacant(entry) = headers.entry(HeaderName::from_static(name))
            && let Ok(value) = HeaderValue::from_str(value)
        {
            entry.insert(value);
        }
    }
}

/// Replaces the headers of a trace.
pub fn set_trace(headers: &mut HeaderMap, trace: &Trace) {
    headers.remove(trace::PARENT);
    headers.remove(trace::STATE);
    add_trace(headers, trace);
}

/// The proxies that the environment names. Requests to this machine bypass them: a proxy does not
/// lead here, and must not see local traffic.
fn proxies(variable: impl Fn(&str) -> Option<String>) -> Vec<Proxy> {
    // The library knows the form `.corp.test`, and takes the star of `*.corp.test` for a letter.
    let others = first_value(&variable, ["NO_PROXY", "no_proxy"])
        .map_or_else(String::new, |value| value.replace("*.", "."));
    let without = NoProxy::from_string(&format!("localhost,127.0.0.0/8,::1,{others}"));
    let all = first_value(&variable, ["ALL_PROXY", "all_proxy"]);
    let http = first_value(&variable, ["HTTP_PROXY", "http_proxy"]).or_else(|| all.clone());
    let https = first_value(&variable, ["HTTPS_PROXY", "https_proxy"]).or(all);
    // Values that are no address are ignored, as the library ignores them.
    let proxies = [http.map(Proxy::http), https.map(Proxy::https)];
    let usable = proxies.into_iter().flatten().filter_map(Result::ok);
    usable.map(|proxy| proxy.no_proxy(without.clone())).collect()
}

/// The value of the first of the variables `names` that is set and not empty.
fn first_value(variable: impl Fn(&str) -> Option<String>, names: [&str; 2]) -> Option<String> {
    names.into_iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
}

/// A body could not be read completely.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    NotRead(#[from] NotRead),
    #[error("the body broke off")]
    Broken(#[source] reqwest::Error),
}

/// Why a reply was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// The reply is larger than one reply may be.
    #[error("it has {}, and at most {} are read", size_of(*.size, *.limit), mib(*.limit as u64))]
    TooLarge {
        limit: usize,
        /// `None` if the peer did not state the size and the bridge did not count it.
        size: Option<u64>,
    },
    /// All replies that are being read at the moment are too large together.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

fn size_of(size: Option<u64>, limit: usize) -> String {
    size.map_or_else(|| format!("more than {}", mib(limit as u64)), mib)
}

/// `bytes` in MiB with one decimal, rounded up.
fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    match tenths % 10 {
        0 => format!("{} MiB", tenths / 10),
        tenth => format!("{}.{tenth} MiB", tenths / 10),
    }
}

/// Reads the whole body of `response`, at most `limit` bytes. Errors do not contain the address.
pub async fn body(response: reqwest::Response, limit: usize) -> Result<Bytes, BodyError> {
    let size = response.content_length();
    if size.is_some_and(|size| size > limit as u64) {
        return Err(NotRead::TooLarge { limit, size }.into());
    }
    match body_up_to(response, limit).await? {
        (whole, true) => Ok(whole),
        (_, false) => Err(NotRead::TooLarge { limit, size: None }.into()),
    }
}

/// Reads the body of `response`, at most `limit` bytes; also says whether that is all of it. Errors
/// do not contain the address.
pub async fn body_up_to(
    mut response: reqwest::Response,
    limit: usize,
) -> Result<(Bytes, bool), BodyError> {
    let declared = response.content_length().and_then(|size| usize::try_from(size).ok());
    let mut buffer = Buffer::new(declared.map_or(0, |declared| declared.min(limit)));
    loop {
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|error| BodyError::Broken(error.without_url()))? else {
            return Ok((buffer.into_bytes(), true));
        };
        let fits = chunk.len().min(limit - buffer.len());
        let piece = chunk.get(..fits).unwrap_or_default();
        buffer.push(piece).await.map_err(NotRead::from)?;
        if fits < chunk.len() {
            return Ok((buffer.into_bytes(), false));
        }
    }
}

/// The media type that the headers name, without its parameters.
pub fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.split(';').next()).unwrap_or_default().trim()
}

/// Whether a body is an event stream.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).eq_ignore_ascii_case("text/event-stream")
}

/// The encoding of a body that cannot be read as it stands: some servers compress although the
/// request allows only `identity`.
pub fn encoding(headers: &HeaderMap) -> Option<String> {
    /// The longest name of an encoding that is shown, in bytes.
    const MAX_NAME: usize = 40;
    let encoding = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim();
    if encoding.is_empty() || encoding.eq_ignore_ascii_case("identity") {
        return None;
    }
    let is_part_of_name =
        |letter: &char| letter.is_ascii_alphanumeric() || "-_, .".contains(*letter);
    Some(encoding.chars().filter(is_part_of_name).take(MAX_NAME).collect())
}

/// Whether a request that got no answer was certainly not sent; and why it got none, without the
/// address.
pub fn why_no_answer(error: reqwest::Error) -> (bool, String) {
    (error.is_connect() || error.is_builder(), error_chain(&error.without_url()))
}

/// Whether a gateway gave up on the server behind it, which may have taken the request. 520 and 524
/// are Cloudflare's.
pub fn leaves_outcome_open(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502 | 504 | 520 | 524)
}

/// The pause that a server asks for: `Retry-After`, in seconds or as a date.
pub fn retry_after(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large to be read is a long time, and no reason to go on at once.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    httpdate::parse_http_date(text).ok()?.duration_since(wall).ok()
}

#[cfg(test)]
mod tests;
