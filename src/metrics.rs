//! The counters behind `GET /metrics`. Each part of the bridge holds one of these structs and
//! counts in it; the page is written from them at each request. Values that another part already
//! holds (the registry, the runs, the journal's health) are read there at that time, and not stored
//! twice.
//!
//! Counting costs an atomic addition, or a short lock for a duration. Each label is an enum or a
//! backend's name in the configuration, so that the number of time series is bounded.
//!
//! Must not: know which part counts, or wait.

mod histogram;
mod label;
pub mod page;
pub mod process;

use std::collections::BTreeMap;

use http::StatusCode;
use parking_lot::Mutex;
pub use prometheus_client::metrics::counter::Counter;

pub use self::histogram::Histogram;
use self::label::label;
pub use self::label::{ByLabel, Label};
use crate::model::words::{Words as _, words};
use crate::model::{AppName, Ending, RunEnding, approval};

label!(Ending: "outcome");
label!(RunEnding: "outcome");
label!(approval::Outcome: "outcome");

label! {
    /// The tokens of runs.
    pub enum TokenKind: "kind" {
        Input = "input",
        /// The part of the input that came from the model's prompt cache.
        Cached = "cached",
        Output = "output",
    }
}

label! {
    /// The status class of an answer, of MANTYX or of the bridge.
    pub enum AnswerClass: "status" {
        Success = "2xx",
        Redirection = "3xx",
        TooMany = "429",
        ClientError = "4xx",
        ServerError = "5xx",
        /// The connection failed.
        Nothing = "none",
    }
}

label! {
    /// How an exchange of a login's refresh token ended.
    pub enum RefreshOutcome: "outcome" {
        Renewed = "renewed",
        /// It may succeed later.
        Failed = "failed",
        /// The issuer has ended the login.
        Ended = "ended",
    }
}

label! {
    /// The route of a request.
    pub enum RouteKind: "route" {
        /// `/healthz` and `/readyz`.
        Health = "health",
        /// A route of the bridge itself.
        Own = "own",
        /// `/mcp`: the requests of MCP clients.
        Mcp = "mcp",
        /// `/a2a`: the requests of A2A clients.
        A2a = "a2a",
        /// The status page, its sign-in and sign-out.
        Page = "page",
        CreateRun = "create_run",
        CreateSession = "create_session",
        Message = "message",
        EndSession = "end_session",
        Stream = "stream",
        ToolResult = "tool_result",
        Cancel = "cancel",
        /// Any other request that goes to MANTYX.
        Forwarded = "forwarded",
        /// A path that is no route of the bridge.
        Unknown = "unknown",
    }
}

label! {
    /// Why a request was refused.
    pub enum Refused: "code" {
        NoHost = "invalid_request",
        ForeignHost = "host_refused",
        CrossOrigin = "origin_refused",
        Unauthorized = "unauthorized",
        TooManyConnections = "too_many_connections",
        TooManyFailures = "too_many_failures",
        TooManyRequests = "too_many_requests",
    }
}

label! {
    /// How a connection came in.
    pub enum Way: "listener" {
        Tcp = "tcp",
        Tls = "tls",
        Unix = "unix",
    }
}

label! {
    /// Why a TLS handshake failed.
    pub enum HandshakeFailure: "reason" {
        /// The client does not speak TLS.
        NotTls = "not_tls",
        /// Client and bridge have no version, cipher or extension in common.
        Protocol = "protocol",
        /// The client showed no certificate, and has to.
        NoCertificate = "no_certificate",
        /// The client's certificate is not signed by an authority in `client_ca`.
        BadCertificate = "bad_certificate",
        ExpiredCertificate = "expired_certificate",
        /// The client does not trust the bridge's certificate.
        Distrusted = "distrusted",
        /// It took too long.
        Slow = "timeout",
        /// The client went away.
        Gone = "gone",
    }
}

label! {
    /// Why a span reached no collector.
    pub enum Dropped: "why" {
        /// The queue was full.
        Full = "full",
        /// The collector rejected it.
        Refused = "refused",
        /// The collector could not be reached, or took too long.
        Undelivered = "undelivered",
    }
}

impl AnswerClass {
    pub fn from_status(status: StatusCode) -> Self {
        match status.as_u16() {
            429 => Self::TooMany,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            500.. => Self::ServerError,
            _ => Self::Success,
        }
    }
}

/// The calls of one backend.
#[derive(Debug, Default)]
pub struct Calls {
    pub ended: ByLabel<Ending, Counter>,
    /// From the bridge's receipt of the call to its answer, without the time that a person took to
    /// decide.
    pub duration: Histogram,
    /// How long calls waited for a permit.
    pub turn: Histogram,
    /// What was replaced in results.
    pub redacted: Counter,
}

/// The runs, and the streams on which apps read them.
#[derive(Debug, Default)]
pub struct Runs {
    pub started: Counter,
    pub ended: ByLabel<RunEnding, Counter>,
    /// Streams that broke and were opened again.
    pub reconnects: Counter,
    pub app_streams: Counter,
    pub app_streams_closed: Counter,
    /// Closed because the app reads too slowly.
    pub app_streams_slow: Counter,
    /// By app: what the last events of its runs say.
    pub tokens: Mutex<BTreeMap<AppName, ByLabel<TokenKind, Counter>>>,
}

impl Runs {
    /// Counts the tokens of a run of `app`, in the order of [`TokenKind`].
    pub fn used(&self, app: &AppName, tokens: [u64; 3]) {
        let mut all = self.tokens.lock();
        let of_app = all.entry(app.clone()).or_default();
        for (kind, count) in TokenKind::ALL.iter().zip(tokens) {
            of_app.of(*kind).inc_by(count);
        }
    }
}

/// The posts of results.
#[derive(Debug, Default)]
pub struct Posts {
    /// Every attempt.
    pub answered: ByLabel<AnswerClass, Counter>,
    /// The attempts after the first for the same result.
    pub retries: Counter,
    /// Results that could not be delivered.
    pub failed: Counter,
    /// How long attempts were held back for MANTYX's rate limit.
    pub held_back: Histogram,
}

/// The incoming requests.
#[derive(Debug, Default)]
pub struct Requests {
    pub by_route: ByLabel<RouteKind, Route>,
    pub refused: ByLabel<Refused, Counter>,
    /// The connections of these requests.
    pub connections: Connections,
}

/// The incoming connections.
#[derive(Debug, Default)]
pub struct Connections {
    pub by_way: ByLabel<Way, ListenerConnections>,
    pub handshakes_failed: ByLabel<HandshakeFailure, Counter>,
}

/// The connections of one kind of listener.
#[derive(Debug, Default)]
pub struct ListenerConnections {
    pub opened: Counter,
    pub closed: Counter,
    /// Evicted to make room for others.
    pub evicted: Counter,
}

/// The requests of one kind.
#[derive(Debug, Default)]
pub struct Route {
    pub answered: ByLabel<AnswerClass, Counter>,
    /// Until the head of the answer is sent: a stream continues after it.
    pub duration: Histogram,
}

/// The bridge's own spans.
#[derive(Debug, Default)]
pub struct Spans {
    /// Spans that the collector has accepted.
    pub exported: Counter,
    pub dropped: ByLabel<Dropped, Counter>,
}

/// The work of the journal's thread.
#[derive(Debug)]
pub struct Journal {
    /// Writes, fsync included.
    pub commits: Histogram,
    /// Writes that failed, and attempts to open the file again.
    pub errors: Counter,
    /// Runs that this replica has taken over, and lost to another one.
    pub taken_over: Counter,
    pub lost: Counter,
}

impl Default for Journal {
    fn default() -> Self {
        let [errors, taken_over, lost] = <_>::default();
        Self { commits: Histogram::of_disk(), errors, taken_over, lost }
    }
}
