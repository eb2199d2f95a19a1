//! What the bridge counts for `GET /metrics`. Whoever has something to count holds one of these
//! structs, and the page is written from them at each request; what is known elsewhere (the registry,
//! the runs, the journal's health) is read there then and not kept twice.
//!
//! Counting costs an atomic addition or two. Each label is an enum or a backend's name in the
//! configuration, so the number of series is known.
//!
//! Must not: know who counts, or wait.

mod histogram;
mod label;
pub mod page;
pub mod process;

use http::StatusCode;
pub use prometheus_client::metrics::counter::Counter;

use self::label::label;
pub use self::{
    histogram::Histogram,
    label::{ByLabel, Label},
};
use crate::model::{approval, ending::Ending};

impl Label for Ending {
    const NAME: &'static str = "outcome";
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl Label for approval::Outcome {
    const NAME: &'static str = "outcome";
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }

    fn index(self) -> usize {
        self as usize
    }
}

label! {
    /// How the driving of a run ended.
    pub enum RunEnding: "outcome" {
        Result = "result",
        Error = "error",
        Cancelled = "cancelled",
        /// Its stream could not be had.
        GivenUp = "given_up",
        /// The bridge went down; the next process drives it on.
        Left = "left",
    }
}

label! {
    /// How MANTYX answered, or anybody.
    pub enum Answered: "status" {
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
    /// Where a request went.
    pub enum RouteKind: "route" {
        /// `/healthz` and `/readyz`.
        Health = "health",
        /// The bridge's own.
        Own = "own",
        /// The status page, its sign-in and sign-out.
        Page = "page",
        CreateRun = "create_run",
        CreateSession = "create_session",
        Message = "message",
        EndSession = "end_session",
        Stream = "stream",
        ToolResult = "tool_result",
        Cancel = "cancel",
        /// Anything else that goes to MANTYX.
        Forwarded = "forwarded",
        /// No route of the bridge.
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
        /// No version, cipher or extension that both have.
        Protocol = "protocol",
        /// The client showed none, and has to.
        NoCertificate = "no_certificate",
        /// The client's is none of an authority in `client_ca`.
        BadCertificate = "bad_certificate",
        ExpiredCertificate = "expired_certificate",
        /// The client does not trust the bridge's.
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
        /// Too many waited.
        Full = "full",
        /// The collector did not want it.
        Refused = "refused",
        /// The collector could not be reached, or took too long.
        Undelivered = "undelivered",
    }
}

impl Answered {
    pub fn of(status: StatusCode) -> Self {
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
#[derive(Debug)]
pub struct Calls {
    pub ended: ByLabel<Ending, Counter>,
    /// From the moment that the bridge has the call to its answer, without the time that a person
    /// was asked.
    pub duration: Histogram,
    /// How long calls waited for their turn.
    pub turn: Histogram,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            ended: ByLabel::default(),
            duration: Histogram::of_calls(),
            turn: Histogram::of_calls(),
        }
    }
}

/// The runs, and the streams of apps that read them.
#[derive(Debug, Default)]
pub struct Runs {
    pub started: Counter,
    pub ended: ByLabel<RunEnding, Counter>,
    /// Streams that broke and were opened anew.
    pub reconnects: Counter,
    pub app_streams: Counter,
    pub app_streams_closed: Counter,
    /// Closed because the app reads too slowly.
    pub app_streams_slow: Counter,
}

/// The posts of results.
#[derive(Debug)]
pub struct Posts {
    /// Every attempt.
    pub answered: ByLabel<Answered, Counter>,
    /// The attempts after a first one.
    pub retries: Counter,
    /// Results that could not be delivered.
    pub failed: Counter,
    /// How long attempts were held back for MANTYX's rate limit.
    pub held_back: Histogram,
}

impl Default for Posts {
    fn default() -> Self {
        Self {
            answered: ByLabel::default(),
            retries: Counter::default(),
            failed: Counter::default(),
            held_back: Histogram::of_calls(),
        }
    }
}

/// The requests that came in.
#[derive(Debug, Default)]
pub struct Requests {
    pub by_route: ByLabel<RouteKind, Route>,
    pub refused: ByLabel<Refused, Counter>,
    /// What they came on.
    pub connections: Connections,
}

/// The connections that came in.
#[derive(Debug, Default)]
pub struct Connections {
    pub by_way: ByLabel<Way, OfListener>,
    pub handshakes_failed: ByLabel<HandshakeFailure, Counter>,
}

/// The connections of one kind of listener.
#[derive(Debug, Default)]
pub struct OfListener {
    pub opened: Counter,
    pub closed: Counter,
    /// Closed before their time, to make room.
    pub evicted: Counter,
}

/// The requests of one kind.
#[derive(Debug)]
pub struct Route {
    pub answered: ByLabel<Answered, Counter>,
    /// Until the head of the answer: a stream goes on.
    pub duration: Histogram,
}

impl Default for Route {
    fn default() -> Self {
        Self { answered: ByLabel::default(), duration: Histogram::of_calls() }
    }
}

/// The bridge's own spans.
#[derive(Debug, Default)]
pub struct Spans {
    /// The collector has taken them.
    pub exported: Counter,
    pub dropped: ByLabel<Dropped, Counter>,
}

/// What the journal's thread does.
#[derive(Debug)]
pub struct Journal {
    /// Writes, fsync included.
    pub commits: Histogram,
    /// Writes that failed, and attempts to open the file again.
    pub errors: Counter,
}

impl Default for Journal {
    fn default() -> Self {
        Self { commits: Histogram::of_disk(), errors: Counter::default() }
    }
}
