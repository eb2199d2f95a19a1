//! One connection, from its first byte to its end.
//!
//! Must not: answer a request, except one whose framing is refused.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::activity::{Doing, IDLE};
use super::answer::{Answer, Taking};
use super::connection_limit::Slot;
use super::framing::Gate;
use super::stream::{Requests, Watched};
use crate::error_chain::error_chain;
use crate::http::service::Service;
use crate::http::{Body, ClientInfo, Code, Process, response};
use crate::http_client::keep_alive;
use crate::model::AppName;
use crate::tls::Tls;
use crate::tls::handshake::Secured;

/// The most bytes of one request's line and headers.
pub(super) const HEAD_BYTES: usize = 64 << 10;
/// How long a connection without open requests may take to close.
const CLOSE: Duration = Duration::from_secs(1);

/// The limits of HTTP/2 are Envoy's for an edge proxy. Here: the most concurrent requests.
const STREAMS: u32 = 100;
/// The most requests that are open on a connection without an authenticated one. Without this, five
/// hundred strangers who read no answer could have fifty thousand requests open.
const STREAMS_OF_STRANGERS: u32 = 16;
/// The receive windows, in bytes: of one request's body, and of all bodies of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The most bytes of a request's headers, and of an answer that waits to be sent.
const HEADER_LIST: u32 = 32 << 10;
const SEND_BUFFER: usize = 64 << 10;
/// The interval of HTTP/2 pings, and the time that a peer has to answer one.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

/// A stream of bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Duplex for S {}

/// An accepted connection.
pub(super) enum Socket {
    /// With TLS, it begins with a handshake.
    Tcp(TcpStream, Option<Arc<Tls>>),
    Unix(UnixStream),
    #[cfg(test)]
    Simulated(tokio::io::DuplexStream),
}

/// A connection's slot, and the part of the bridge that answers its requests.
pub(super) struct Connection {
    pub(super) slot: Slot,
    pub(super) service: Arc<Service>,
    pub(super) stop: CancellationToken,
    /// The connection has no regular slot: one request gets an answer, and then it stops.
    pub(super) is_overflow: bool,
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>, client: ClientInfo) -> Response<Body> {
        if self.is_overflow {
            self.stop.cancel();
        }
        let let_in = if self.is_overflow {
            None
        } else {
            Some(|one_of_several: Option<&AppName>| {
                self.slot.let_in();
                one_of_several.is_none_or(|app| self.slot.has_room_for(app))
            })
        };
        Arc::clone(&self.service).handle(request, client, let_in).await
    }

    /// Serves the connection of `socket` to its end.
    pub(super) async fn run(self: Arc<Self>, socket: Socket, client: ClientInfo) {
        // Without Nagle's algorithm: events are small, and must not wait for more data.
        if let Socket::Tcp(stream, _) = &socket
            && let Err(error) = stream.set_nodelay(true)
        {
            debug!(%error, "TCP_NODELAY");
        }
        let served = async {
            match socket {
                Socket::Unix(stream) => self.http1(stream, client).await,
                #[cfg(test)]
                Socket::Simulated(stream) => self.http1(stream, client).await,
                Socket::Tcp(stream, None) => self.http1(stream, client).await,
                Socket::Tcp(stream, Some(tls)) => self.secured(stream, client, &tls).await,
            }
        };
        tokio::select! {
            () = served => (),
            () = self.slot.evicted.cancelled() => debug!("a connection was evicted for another"),
        }
    }

    /// Performs the TLS handshake, and serves the connection.
    async fn secured(self: &Arc<Self>, stream: TcpStream, mut client: ClientInfo, tls: &Tls) {
        let secured = tokio::select! {
            secured = tls.shake_hands(stream) => secured,
            () = self.stop.cancelled() => return,
        };
        let Secured { stream, names, h2 } = match secured {
            Ok(secured) => secured,
            Err(failed) => {
                let connections = &self.service.api.requests.connections;
                connections.handshakes_failed.of(failed.kind).inc();
                return debug!(peer = %client, error = %failed, "the TLS handshake failed");
            }
        };
        if let ClientInfo::Tls { names: of_client, .. } = &mut client {
            *of_client = names;
        }
        if h2 {
            self.http2(stream, client).await;
        } else {
            self.http1(stream, client).await;
        }
    }

    async fn http1(self: &Arc<Self>, stream: impl Duplex, client: ClientInfo) {
        let gate = Arc::new(Mutex::new(Gate::default()));
        let requests =
            Requests { activity: Arc::clone(&self.slot.activity), gate: Arc::clone(&gate) };
        let watched = Watched::new(stream, Some(requests));
        let service = service_fn(|request: Request<Incoming>| {
            let is_clear = gate.lock().next();
            let last = self.is_overflow
                || !is_clear
                || request.headers().contains_key(header::TRANSFER_ENCODING);
            let connection = Arc::clone(self);
            let client = client.clone();
            let open = self.slot.activity.request();
            async move {
                let mut answer = if is_clear {
                    // Boxed, as the connection keeps the room of a request's future while it idles.
                    Box::pin(connection.answer(request, client)).await
                } else {
                    ambiguous()
                };
                let headers = answer.headers_mut();
                if last {
                    // The connection closes after this answer: it has no slot, or the gate cannot
                    // find the begin of the next request.
                    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
                } else {
                    headers.insert("keep-alive", keep_alive(IDLE));
                }
                Ok::<_, Infallible>(answer.map(|body| Answer::new(body, open, None)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // `Activity` has the time limit: unlike hyper's, it can tell a request from a pause
            // between requests.
            .header_read_timeout(None)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(watched), service);
        self.drive(connection).await;
    }

    async fn http2(self: &Arc<Self>, stream: impl Duplex, client: ClientInfo) {
        let streams = TaskTracker::new();
        let service = service_fn(|mut request: Request<Incoming>| {
            let connection = Arc::clone(self);
            let client = client.clone();
            let open = self.slot.activity.request();
            name_host(&mut request);
            async move {
                let answer = Box::pin(connection.answer(request, client)).await;
                let slot = &connection.slot;
                if slot.is_unknown() && slot.activity.open() > STREAMS_OF_STRANGERS {
                    slot.evicted.cancel();
                }
                let taking = TAKING.try_with(Arc::clone).ok();
                Ok::<_, Infallible>(answer.map(|body| Answer::new(body, open, taking)))
            }
        });
        let connection = http2::Builder::new(Streams(streams.clone()))
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .serve_connection(TokioIo::new(Watched::new(stream, None)), service);
        self.drive(connection).await;
        // Their connection is gone, so these tasks end by themselves.
        streams.close();
        streams.wait().await;
    }

    /// Runs a connection until it ends, exceeds the limit of its activity, or has to stop.
    async fn drive(&self, connection: impl GracefulConnection<Error: std::error::Error + 'static>) {
        let mut connection = pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    outcome = connection.as_mut() => outcome,
                    overdue = self.slot.activity.overdue() => return debug!(?overdue, "a connection was cut"),
                }
            }
            overdue = self.slot.activity.overdue() => {
                debug!(?overdue, "a connection is closed");
                if overdue == Doing::Head {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                match timeout(CLOSE, connection.as_mut()).await {
                    Ok(outcome) => outcome,
                    // On HTTP/2, a request may have arrived in between.
                    Err(_elapsed) => tokio::select! {
                        outcome = connection.as_mut() => outcome,
                        _ = self.slot.activity.overdue() => return,
                    },
                }
            }
        };
        if let Err(error) = outcome {
            debug!(error = %error_chain(&error), "connection ended");
        }
    }
}

/// The process that opened the connection. The kernel records it at that moment, and it does not
/// change when the socket is passed to another process.
pub(super) fn process(stream: &UnixStream) -> Option<Process> {
    match stream.peer_cred() {
        Ok(peer) => Some(Process { uid: peer.uid(), pid: peer.pid() }),
        Err(error) => {
            warn!(%error, "the kernel does not report the peer of a Unix connection");
            None
        }
    }
}

/// Copies the host of an HTTP/2 target into `Host`, where the checks look for it as in HTTP/1.1.
fn name_host(request: &mut Request<Incoming>) {
    let host = request.uri().authority().map(|host| HeaderValue::from_str(host.as_str()));
    if let (Some(Ok(host)), false) = (host, request.headers().contains_key(header::HOST)) {
        request.headers_mut().insert(header::HOST, host);
    }
    debug_assert_eq!(request.version(), Version::HTTP_2);
}

/// The answer to a request with refused framing.
fn ambiguous() -> Response<Body> {
    response::error(
        Code::InvalidRequest,
        "The request says of its length what two readers could understand in two ways: it has both \
         Content-Length and Transfer-Encoding, a length that is none, or a line that ends without a \
         carriage return.",
    )
}

tokio::task_local! {
    /// How the peer takes the answer to the request that this task handles.
    static TAKING: Arc<Taking>;
}

/// Runs the requests of an HTTP/2 connection.
#[derive(Clone)]
struct Streams(TaskTracker);

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let taking = Arc::new(Taking::new());
        self.0.spawn(async move {
            tokio::select! {
                () = TAKING.scope(Arc::clone(&taking), stream) => (),
                // When its task ends, hyper resets the stream.
                () = taking.given_up() => debug!("the peer does not read its answer"),
            }
        });
    }
}
