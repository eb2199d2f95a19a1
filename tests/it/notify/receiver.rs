//! A receiver of webhooks: writes down what it gets, and answers as it is told to.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::PATIENCE;
use crate::{http::Head, ports, wait};

/// The path of its address, which is a secret.
pub(crate) const PATH: &str = "/hook-0123456789abcdef";

/// How it answers.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    Take,
    /// A status with its reason.
    Status(&'static str),
    Redirect(String),
    /// So many bytes behind this status, as fast as they are read.
    Flood(&'static str, usize),
    /// It reads, and says nothing.
    Silence,
}

/// What it was sent.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

impl Delivery {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("JSON")
    }

    pub(crate) fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }
}

#[derive(Debug)]
struct Shared {
    behaviour: Mutex<Behaviour>,
    deliveries: Mutex<Vec<Delivery>>,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinSet<()>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let address = ports::free();
        let behaviour = Mutex::new(Behaviour::Take);
        let shared = Arc::new(Shared { behaviour, deliveries: Mutex::default() });
        let serving = serve(address, Arc::clone(&shared)).await;
        Self { address, shared, serving }
    }

    /// Goes away: nothing listens there any more.
    pub(crate) async fn stop(&mut self) {
        self.serving.shutdown().await;
    }

    pub(crate) async fn restart(&mut self) {
        self.serving = serve(self.address, Arc::clone(&self.shared)).await;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().expect("no test panics with it") = behaviour;
    }

    pub(crate) fn all(&self) -> Vec<Delivery> {
        self.shared.deliveries.lock().expect("no test panics with it").clone()
    }

    pub(crate) fn forget(&self) {
        self.shared.deliveries.lock().expect("no test panics with it").clear();
    }

    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    /// Waits for the delivery of this number, counted from 1.
    pub(crate) async fn delivery(&self, number: usize) -> Delivery {
        let what = format!("{number} deliveries should come");
        wait::until(&what, PATIENCE, async || self.all().into_iter().nth(number - 1)).await
    }
}

async fn serve(address: SocketAddr, shared: Arc<Shared>) -> JoinSet<()> {
    let listener =
        wait::soon("the address should be free", async || TcpListener::bind(address).await.ok())
            .await;
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            connections.spawn(async move { answer(stream, &shared).await });
        }
    });
    serving
}

/// Reads one request, and answers it; the connection ends with that.
async fn answer(stream: TcpStream, shared: &Shared) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let Ok(Some(head)) = Head::read(&mut reader).await else { return };
    let Ok(body) = head.framing(false).whole(&mut reader).await else { return };
    let path = head.line.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers = head.headers.iter().cloned().collect();
    let text = String::from_utf8(body).expect("the bridge sends UTF-8");
    let behaviour = shared.behaviour.lock().expect("no test panics with it").clone();
    shared.deliveries.lock().expect("no test panics with it").push(Delivery {
        path,
        headers,
        text,
    });
    let close = "connection: close\r\n";
    let answer = match &behaviour {
        Behaviour::Take => format!("HTTP/1.1 204 No Content\r\n{close}\r\n"),
        Behaviour::Status(status) => {
            format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n{close}\r\n")
        }
        Behaviour::Redirect(to) => {
            format!("HTTP/1.1 307 There\r\nlocation: {to}\r\ncontent-length: 0\r\n{close}\r\n")
        }
        Behaviour::Flood(status, bytes) => {
            format!("HTTP/1.1 {status}\r\ncontent-length: {bytes}\r\n{close}\r\n")
        }
        Behaviour::Silence => return std::future::pending().await,
    };
    if writer.write_all(answer.as_bytes()).await.is_err() {
        return;
    }
    if let Behaviour::Flood(_, bytes) = behaviour {
        let piece = vec![b'x'; 64 << 10];
        let mut left = bytes;
        while left > 0 && writer.write_all(&piece[..left.min(piece.len())]).await.is_ok() {
            left = left.saturating_sub(piece.len());
        }
    }
}
