//! An HTTP server that answers each request as a closure says and remembers what it saw, and a
//! clock that runs fast.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time;
use url::Url;

/// One request that came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// What becomes of a stream behind its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    Closed,
    Broken,
    Open,
}

/// What the server answers; `None` closes the connection instead.
pub(crate) struct Reply(Option<Response<UnsyncBoxBody<Bytes, io::Error>>>);

pub(crate) struct Agent {
    pub(crate) url: Url,
    seen: Arc<Mutex<Vec<Seen>>>,
    tasks: JoinSet<()>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Reply {
    pub(crate) fn json(body: String) -> Self {
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        Self(Some(Response::new(body.boxed_unsync())))
    }

    /// The same, whose body comes when the sender of `when` says so or is dropped.
    pub(crate) fn json_after(when: oneshot::Receiver<()>, body: String) -> Self {
        let frame = stream::once(async move {
            when.await.ok();
            Ok(Frame::data(Bytes::from(body)))
        });
        Self(Some(Response::new(StreamBody::new(frame).boxed_unsync())))
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::json(String::new()).but(status)
    }

    /// The same with this status.
    pub(crate) fn but(self, status: u16) -> Self {
        let Self(mut response) = self;
        let head = response.as_mut().unwrap();
        *head.status_mut() = StatusCode::from_u16(status).unwrap();
        Self(response)
    }

    /// A stream of events with these `data`, after which nothing comes any more.
    pub(crate) fn events<T: AsRef<str>>(events: &[T]) -> Self {
        let frame = |event: &T| {
            let event = event.as_ref();
            Ok(Frame::data(Bytes::from(format!(": ping\r\n\r\ndata: {event}\r\n\r\n"))))
        };
        let frames: Vec<io::Result<_>> = events.iter().map(frame).collect();
        let frames = stream::iter(frames).chain(stream::pending());
        let body = StreamBody::new(frames).boxed_unsync();
        Self(Some(Response::new(body))).with("content-type", "text/event-stream; charset=utf-8")
    }

    /// A stream of events whose bytes are these, which then goes on as `end` says.
    pub(crate) fn event_bytes(bytes: &[u8], end: StreamEnd) -> Self {
        let first: io::Result<_> = Ok(Frame::data(Bytes::copy_from_slice(bytes)));
        let last = stream::once(async move {
            match end {
                StreamEnd::Closed => None,
                StreamEnd::Broken => {
                    // The server sends what it has when it has to wait.
                    tokio::task::yield_now().await;
                    Some(Err(io::Error::other("the test breaks it")))
                }
                StreamEnd::Open => std::future::pending().await,
            }
        });
        let frames = stream::iter([Some(first)]).chain(last);
        let body = StreamBody::new(frames.filter_map(std::future::ready)).boxed_unsync();
        Self(Some(Response::new(body))).with("content-type", "text/event-stream")
    }

    pub(crate) fn hang_up() -> Self {
        Self(None)
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        let response = self.0.as_mut().unwrap();
        response.headers_mut().insert(name, value.parse().unwrap());
        self
    }
}

impl Agent {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let answer = Arc::new(answer);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (log.clone(), answer.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (log, answer) = (log.clone(), answer.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap_or_else(|e| panic!("{e}"));
                        let seen = Seen {
                            path: head.uri.path().to_owned(),
                            headers: head.headers,
                            body: String::from_utf8(body.to_bytes().to_vec()).unwrap(),
                        };
                        log.lock().unwrap().push(seen.clone());
                        let reply = answer(&seen);
                        reply.0.ok_or_else(|| io::Error::other("the test hangs up"))
                    }
                });
                connections.spawn(async move {
                    let io = TokioIo::new(stream);
                    drop(http1::Builder::new().serve_connection(io, service).await);
                });
            }
        });
        Self { url, seen, tasks }
    }

    /// All requests so far, in their order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Closes the listener and all connections.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Lets time go on when dropped.
struct Frozen;

impl Drop for Frozen {
    fn drop(&mut self) {
        time::resume();
    }
}

/// The output of `future`, for which time passes faster as soon as `begins` says so.
pub(crate) async fn hurried<F: Future>(begins: impl Fn() -> bool, future: F) -> F::Output {
    let hurry = async {
        loop {
            time::sleep(Duration::from_millis(5)).await;
            if begins() {
                time::pause();
                // The future may end, or be dropped, in the middle of the advance.
                let _frozen = Frozen;
                time::advance(Duration::from_millis(500)).await;
            }
        }
    };
    tokio::select! {
        output = future => output,
        () = hurry => unreachable!("it has no end"),
    }
}
