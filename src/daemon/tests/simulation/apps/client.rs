//! An HTTP client on a connection that may break at any byte.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::daemon::tests::simulation::world::World;

/// How long an app waits for an answer.
const PATIENCE: Duration = Duration::from_secs(400);

/// A request of an app.
#[derive(Default)]
pub(in crate::daemon::tests::simulation) struct Asked {
    pub(in crate::daemon::tests::simulation) app: usize,
    pub(in crate::daemon::tests::simulation) method: &'static str,
    pub(in crate::daemon::tests::simulation) path: String,
    pub(in crate::daemon::tests::simulation) body: String,
    /// The operator's secret goes with it.
    pub(in crate::daemon::tests::simulation) operator: bool,
    /// In place of the app's own credential for MANTYX, one goes with it that MANTYX does not know.
    pub(in crate::daemon::tests::simulation) is_strangers: bool,
    /// The tool that is called over MCP.
    pub(in crate::daemon::tests::simulation) mcp: Option<&'static str>,
    pub(in crate::daemon::tests::simulation) key: Option<String>,
    pub(in crate::daemon::tests::simulation) last_event: Option<usize>,
    /// After how many bytes, in both directions, the app hangs up.
    pub(in crate::daemon::tests::simulation) breaks_after: Option<usize>,
    /// The process that it goes to, if not to any.
    pub(in crate::daemon::tests::simulation) to: Option<usize>,
    /// How long it waits for the answer, if not as long as usual.
    pub(in crate::daemon::tests::simulation) patience: Option<Duration>,
}

impl Asked {
    pub(in crate::daemon::tests::simulation) fn new(
        app: usize,
        method: &'static str,
        path: &str,
    ) -> Self {
        Self { app, method, path: path.to_owned(), ..Self::default() }
    }

    /// The same; the app may hang up at some byte.
    pub(super) fn breaking(mut self, world: &World) -> Self {
        let mut state = world.state();
        if state.fault(200) {
            self.breaks_after = Some(state.below(3000));
        } else if state.fault(100) {
            // While the bridge waits for MANTYX.
            self.patience = Some(state.wait(Duration::from_millis(200)));
        }
        self
    }
}

/// The app's end of a connection.
struct Near {
    stream: DuplexStream,
    world: Arc<World>,
    /// The death of the process at the other end.
    death: Pin<Box<WaitForCancellationFutureOwned>>,
    left: Option<usize>,
}

impl Near {
    /// Whether so many bytes may pass; `Err` once the app has hung up.
    fn pass(&mut self, bytes: usize) -> io::Result<()> {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }
}

impl AsyncRead for Near {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Polled, so that the apps hear of a death in an order that does not depend on how the
        // process's tasks are dropped.
        if self.death.as_mut().poll(cx).is_ready() {
            // Without replicas, the app's own life ends with that of the process.
            return match self.world.state().are_replicas() {
                true => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                false => Poll::Pending,
            };
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        match read {
            Poll::Ready(Ok(())) => Poll::Ready(self.pass(bytes)),
            other => other,
        }
    }
}

impl AsyncWrite for Near {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let most = self.left.unwrap_or(usize::MAX).min(bytes.len());
        let written = Pin::new(&mut self.stream).poll_write(cx, &bytes[..most]);
        match written {
            Poll::Ready(Ok(written)) => Poll::Ready(self.pass(written).map(|()| written)),
            other => other,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An answer whose body is still to be read. Dropping it hangs up.
pub(super) struct Opened {
    pub(super) response: Response<Incoming>,
    pub(super) _connection: JoinSet<()>,
}

/// Sends a request; `None` if the connection breaks before there is an answer.
pub(super) async fn open(world: &Arc<World>, asked: Asked) -> Option<Opened> {
    let (near, far) = duplex([64, 1024, 65_536][world.state().below(3)]);
    let (doors, death) = {
        let mut state = world.state();
        let at = match (asked.to, state.are_replicas()) {
            (Some(at), _) => at,
            (None, true) => state.below(2),
            (None, false) => 0,
        };
        state.door(at)?
    };
    doors.send(far).await.ok()?;
    let (token, credential, secret) = {
        let state = world.state();
        let app = &state.apps[asked.app];
        let token = format!("token_of_the_app_{}", app.name);
        let credential = match (app.name, asked.is_strangers) {
            (_, true) => Some("a_strangers".to_owned()),
            ("b", false) => Some(format!("of_b_{}", app.credential)),
            _ => None,
        };
        (token, credential, asked.operator.then(|| state.rules.secret()))
    };
    let near = Near {
        stream: near,
        world: Arc::clone(world),
        death: Box::pin(death.cancelled_owned()),
        left: asked.breaks_after,
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.ok()?;
    let mut connections = JoinSet::new();
    connections.spawn(async move {
        connection.await.ok();
    });
    let mut request = Request::builder()
        .method(asked.method)
        .uri(asked.path)
        .header("host", "bridge")
        .header("content-type", "application/json")
        .header("x-api-key", token);
    if let Some(credential) = credential {
        request = request.header("authorization", format!("Bearer {credential}"));
    }
    if let Some(file) = secret {
        request = request.header("x-bridge-operator", file.trim());
    }
    if let Some(tool) = asked.mcp {
        request = request
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool);
    }
    if let Some(key) = asked.key {
        request = request.header("idempotency-key", key);
    }
    if let Some(last) = asked.last_event {
        request = request.header("last-event-id", last);
    }
    let request = request.body(Full::new(Bytes::from(asked.body))).expect("it is well-formed");
    let response = sender.send_request(request).await.ok()?;
    Some(Opened { response, _connection: connections })
}

/// The status and the JSON of an answer; `None` if the connection breaks.
pub(in crate::daemon::tests::simulation) async fn ask(
    world: &Arc<World>,
    asked: Asked,
) -> Option<(u16, Value)> {
    let patience = asked.patience.unwrap_or(PATIENCE);
    let asking = async {
        let Opened { response, _connection } = open(world, asked).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).unwrap_or_default()))
    };
    timeout(patience, asking).await.ok().flatten()
}
