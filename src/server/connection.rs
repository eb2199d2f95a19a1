//! One connection, from its first byte to its end.
//!
//! Must not: answer a request, but those that cannot be told apart.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::{
    body::Incoming,
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::{
    activity::{Activity, Doing, IDLE},
    answer::{Answer, Taking},
    framing::{Gate, Refusal},
    places::Place,
    stream::{Requests, Watched},
};
use crate::{
    door::{
        Arrival, LetIn, Process,
        code::Code,
        failures::Peer,
        reply::{self, Body},
    },
    error_chain::error_chain,
    front::Front,
    http_client::keep_alive,
    tls::{Tls, handshake::Secured},
};

/// The room for one request's line and headers.
pub(super) const HEAD_BYTES: usize = 64 << 10;
/// How long a connection that was asked to end may take, if no request is on it.
const CLOSE: Duration = Duration::from_secs(1);

/// The limits of HTTP/2, which are Envoy's for an edge: requests at once,
const STREAMS: u32 = 100;
/// bytes of a request's body that may be on their way, and of all bodies of a connection,
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// bytes of a request's headers, and of an answer that waits.
const HEADER_LIST: u32 = 32 << 10;
const SEND_BUFFER: usize = 64 << 10;
/// How often a peer is asked whether it is still there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

/// An accepted connection.
pub(super) enum Socket {
    Tcp(TcpStream, SocketAddr),
    /// TLS is to be spoken first.
    Tls(TcpStream, SocketAddr, Arc<Tls>),
    Unix(UnixStream),
}

/// A connection that has its place.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) place: Place,
    pub(super) desk: Desk,
    pub(super) stop: CancellationToken,
}

/// Who answers the requests of a connection.
#[derive(Clone)]
pub(super) enum Desk {
    Front(Arc<Front>, LetIn),
    /// There is no room for the connection: one request is answered, and then this is cancelled.
    Spare(Arc<Front>, CancellationToken),
}

impl Socket {
    /// For whom its place is counted.
    pub(super) fn peer(&self) -> Peer {
        match self {
            Self::Tcp(_, peer) | Self::Tls(_, peer, _) => Peer::of(&Arrival::Tcp { peer: *peer }),
            Self::Unix(stream) => Peer::of(&Arrival::Unix { peer: process(stream) }),
        }
    }
}

impl Desk {
    async fn handle(self, mut request: Request<Incoming>, arrival: Arrival) -> Response<Body> {
        match self {
            Self::Front(front, let_in) => {
                request.extensions_mut().insert(let_in);
                front.handle(request, arrival).await
            }
            Self::Spare(front, last) => {
                last.cancel();
                front.turn_away(request, arrival).await
            }
        }
    }

    fn is_spare(&self) -> bool {
        matches!(self, Self::Spare(..))
    }

    fn front(&self) -> &Front {
        match self {
            Self::Front(front, _) | Self::Spare(front, _) => front,
        }
    }
}

impl Connection {
    /// Serves the connection to its end.
    pub(super) async fn run(self) {
        let Self { socket, place, desk, stop } = self;
        let served = async {
            match socket {
                Socket::Unix(stream) => {
                    let arrival = Arrival::Unix { peer: process(&stream) };
                    http1(stream, arrival, &place.activity, desk, &stop).await;
                }
                Socket::Tcp(stream, peer) => {
                    without_delay(&stream);
                    http1(stream, Arrival::Tcp { peer }, &place.activity, desk, &stop).await;
                }
                Socket::Tls(stream, peer, tls) => {
                    without_delay(&stream);
                    secured(stream, peer, &tls, &place.activity, desk, &stop).await;
                }
            }
        };
        tokio::select! {
            () = served => (),
            () = place.evicted.cancelled() => debug!("a connection made room for another"),
        }
    }
}

/// Events are small and must not wait for more.
fn without_delay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY");
    }
}

/// The process that opened the connection. The kernel notes it then, and it does not change when the
/// socket is handed to another.
fn process(stream: &UnixStream) -> Option<Process> {
    match stream.peer_cred() {
        Ok(peer) => Some(Process { uid: peer.uid(), pid: peer.pid() }),
        Err(error) => {
            warn!(%error, "the kernel does not report the peer of a Unix connection");
            None
        }
    }
}

/// A connection on which TLS is to be spoken.
async fn secured(
    stream: TcpStream,
    peer: SocketAddr,
    tls: &Tls,
    activity: &Arc<Activity>,
    desk: Desk,
    stop: &CancellationToken,
) {
    let secured = tokio::select! {
        secured = tls.shake_hands(stream) => secured,
        () = stop.cancelled() => return,
    };
    let Secured { stream, names, h2 } = match secured {
        Ok(secured) => secured,
        Err(failed) => {
            desk.front().api.requests.connections.handshakes_failed.of(failed.kind).inc();
            return debug!(%peer, error = %failed, "there was no TLS connection");
        }
    };
    let arrival = Arrival::Tls { peer, names };
    if h2 {
        http2(stream, arrival, activity, desk, stop).await;
    } else {
        http1(stream, arrival, activity, desk, stop).await;
    }
}

async fn http1<S>(
    stream: S,
    arrival: Arrival,
    activity: &Arc<Activity>,
    desk: Desk,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let gate = Arc::new(Mutex::new(Gate::default()));
    let requests = Requests { activity: Arc::clone(activity), gate: Arc::clone(&gate) };
    let watched = Watched::new(stream, Some(requests));
    let service = service_fn(|request: Request<Incoming>| {
        let refusal = gate.lock().unwrap_or_else(PoisonError::into_inner).next();
        let last = desk.is_spare() || refusal.is_some();
        let (desk, arrival, open) = (desk.clone(), arrival.clone(), activity.request());
        async move {
            let mut answer = match refusal {
                Some(refusal) => refused(refusal),
                None => desk.handle(request, arrival).await,
            };
            let headers = answer.headers_mut();
            if last {
                // There is no room for more, or nobody can be sure where the next one begins.
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            } else {
                headers.insert("keep-alive", keep_alive(IDLE));
            }
            Ok::<_, Infallible>(answer.map(|body| Answer::new(body, open, None)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // `Activity` has the limit, which tells a request from a pause.
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(watched), service);
    drive(connection, activity, stop).await;
}

async fn http2<S>(
    stream: S,
    arrival: Arrival,
    activity: &Arc<Activity>,
    desk: Desk,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = TaskTracker::new();
    let own = Arc::clone(activity);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (desk, arrival, open) = (desk.clone(), arrival.clone(), own.request());
        name_host(&mut request);
        async move {
            let answer = desk.handle(request, arrival).await;
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
    drive(connection, activity, stop).await;
    // Without their connection, they end by themselves.
    streams.close();
    streams.wait().await;
}

/// Runs a connection until it ends, has nothing to do for too long, or is to stop.
async fn drive<C>(connection: C, activity: &Activity, stop: &CancellationToken)
where
    C: GracefulConnection,
    C::Error: std::error::Error + 'static,
{
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                overdue = activity.overdue() => return debug!(?overdue, "a connection was cut"),
            }
        }
        overdue = activity.overdue() => {
            debug!(?overdue, "a connection is closed");
            if overdue == Doing::Head {
                return;
            }
            connection.as_mut().graceful_shutdown();
            match timeout(CLOSE, connection.as_mut()).await {
                Ok(ended) => ended,
                // Of HTTP/2, a request may have come in between.
                Err(_elapsed) => tokio::select! {
                    ended = connection.as_mut() => ended,
                    _ = activity.overdue() => return,
                },
            }
        }
    };
    if let Err(error) = ended {
        debug!(error = %error_chain(&error), "connection ended");
    }
}

/// HTTP/2 has the host in its target; what follows looks for it where HTTP/1.1 has it.
fn name_host(request: &mut Request<Incoming>) {
    let host = request.uri().authority().map(|host| HeaderValue::from_str(host.as_str()));
    if let (Some(Ok(host)), false) = (host, request.headers().contains_key(header::HOST)) {
        request.headers_mut().insert(header::HOST, host);
    }
    debug_assert_eq!(request.version(), Version::HTTP_2);
}

/// The answer to a request that is not handled.
fn refused(refusal: Refusal) -> Response<Body> {
    let answer = |message| reply::error(StatusCode::BAD_REQUEST, Code::InvalidRequest, message);
    match refusal {
        Refusal::Ambiguous => answer(
            "The request says of its length what two readers could understand in two ways: it has \
             both Content-Length and Transfer-Encoding, a length that is none, or a line that ends \
             without a carriage return.",
        ),
        Refusal::Target { proxied } => {
            let answer = answer(
                "The path or the query has a character that HTTP does not allow there; write it \
                 percent-encoded.",
            );
            if proxied { reply::as_mantyx_does(answer) } else { answer }
        }
    }
}

tokio::task_local! {
    /// How the answer is taken to the request that runs here.
    static TAKING: Arc<Taking>;
}

/// Where the requests of an HTTP/2 connection run.
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
                // Without its task, the stream is reset.
                () = taking.given_up() => debug!("the peer does not read its answer"),
            }
        });
    }
}
