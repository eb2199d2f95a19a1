//! What stands below every figure: the tools called directly, an exchange over loopback, and a
//! record on the disk.
//!
//! Must not: go through the bridge.

use std::{
    fs::File,
    io::Write as _,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use rmcp::{
    RoleClient, ServiceExt as _,
    model::CallToolRequestParams,
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    task::JoinSet,
};

use crate::{clock, run::Outcome, wire::Client, world::World};

/// The arguments of a call are about as long as this.
pub(crate) const TEXT: &str = "What a model says to a tool is rarely longer than this sentence of its, which \
                    has a hundred and twenty letters.";

/// One of the fast tools, called by rmcp or, the agent, by a plain client.
#[derive(Debug)]
pub(crate) enum Tool {
    Mcp {
        client: Box<RunningService<RoleClient, ()>>,
        /// It ends with this.
        _child: Option<Child>,
    },
    Agent(SocketAddr),
}

impl Tool {
    pub(crate) async fn start(name: &str, world: &World) -> Outcome<Self> {
        match name {
            "stdio" => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["--role", "stdio-tool"]).kill_on_drop(true);
                let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
                let pipes = child.stdout.take().zip(child.stdin.take());
                let client = ().serve(pipes.ok_or("both are piped")?).await?;
                Ok(Self::Mcp { client: Box::new(client), _child: Some(child) })
            }
            "http" => {
                let url = format!("http://{}/mcp", world.tools);
                let settings = StreamableHttpClientTransportConfig::with_uri(url);
                // An error means that there is one already.
                drop(rustls::crypto::ring::default_provider().install_default());
                let http = reqwest::Client::builder().no_proxy().build()?;
                let transport = StreamableHttpClientTransport::with_client(http, settings);
                let client = ().serve(transport).await?;
                Ok(Self::Mcp { client: Box::new(client), _child: None })
            }
            _ => Ok(Self::Agent(world.tools)),
        }
    }

    /// Calls it for `span` nanoseconds, `flight` calls at a time; gives for each call the time that
    /// was not the tool's own.
    pub(crate) async fn load(&self, flight: usize, span: u64) -> Outcome<Vec<u64>> {
        let (numbers, end) = (Arc::new(AtomicU64::new(0)), clock::now() + span);
        let mut callers = JoinSet::new();
        for _ in 0..flight {
            let numbers = Arc::clone(&numbers);
            match self {
                Self::Mcp { client, .. } => {
                    let peer = client.peer().clone();
                    callers.spawn(async move {
                        let mut took = Vec::new();
                        while clock::now() < end {
                            let number = numbers.fetch_add(1, Ordering::Relaxed);
                            let Value::Object(args) = json!({ "id": number, "text": TEXT }) else {
                                continue;
                            };
                            let call = CallToolRequestParams::new("echo").with_arguments(args);
                            let begun = clock::now();
                            let result = peer.call_tool(call).await?;
                            let whole = clock::now() - begun;
                            let text = result.content.first().and_then(|block| block.as_text());
                            let text = text.map(|text| text.text.as_str()).unwrap_or_default();
                            took.push(whole.saturating_sub(own_time(text, number)?));
                        }
                        Outcome::Ok(took)
                    });
                }
                Self::Agent(addr) => {
                    callers.spawn(messages(*addr, numbers, end));
                }
            }
        }
        let mut all = Vec::new();
        while let Some(took) = callers.join_next().await {
            all.extend(took??);
        }
        Ok(all)
    }

    pub(crate) async fn end(self) -> Outcome<()> {
        if let Self::Mcp { client, .. } = self {
            client.cancel().await?;
        }
        Ok(())
    }
}

async fn messages(addr: SocketAddr, numbers: Arc<AtomicU64>, end: u64) -> Outcome<Vec<u64>> {
    let (mut client, mut took) = (Client::new(addr), Vec::new());
    while clock::now() < end {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let part = json!({ "kind": "text", "text": format!("{number} {TEXT}") });
        let message = json!({
            "kind": "message", "role": "user", "messageId": number.to_string(), "parts": [part],
        });
        let request = json!({
            "jsonrpc": "2.0", "id": number, "method": "message/send",
            "params": { "message": message },
        });
        let body = request.to_string();
        let begun = clock::now();
        let answer = client.post("/agent/", body.as_bytes()).await?;
        let whole = answer.done - begun;
        let reply = answer.json()?;
        let text = reply["result"]["parts"][0]["text"].as_str().unwrap_or_default();
        took.push(whole.saturating_sub(own_time(text, number)?));
    }
    Ok(took)
}

/// The tool's own time, as its answer to call `number` has it.
pub(crate) fn own_time(text: &str, number: u64) -> Outcome<u64> {
    let mut words = text.split(' ').filter_map(|word| word.parse::<u64>().ok());
    match (words.next(), words.next(), words.next()) {
        (Some(id), Some(asked), Some(answered)) if id == number => Ok(answered - asked),
        _ => Err(format!("the direct answer to call {number} is {text:?}").into()),
    }
}

/// Exchanges with a server of hyper's for `span` nanoseconds, `flight` at a time; a body of
/// `length` bytes there, a few bytes back.
pub(crate) async fn loopback(
    addr: SocketAddr,
    flight: usize,
    span: u64,
    length: usize,
) -> Outcome<Vec<u64>> {
    let body = Bytes::from(vec![b'x'; length]);
    let end = clock::now() + span;
    let (mut connections, mut callers) = (JoinSet::new(), JoinSet::new());
    for _ in 0..flight {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        connections.spawn(connection);
        callers.spawn(exchanges(sender, addr, body.clone(), end));
    }
    let mut all = Vec::new();
    while let Some(took) = callers.join_next().await {
        all.extend(took??);
    }
    Ok(all)
}

async fn exchanges(
    mut sender: SendRequest<Full<Bytes>>,
    addr: SocketAddr,
    body: Bytes,
    end: u64,
) -> Outcome<Vec<u64>> {
    let mut took = Vec::new();
    while clock::now() < end {
        let request = Request::post("/").header("host", addr.to_string());
        let request = request.body(Full::new(body.clone()))?;
        sender.ready().await?;
        let begun = clock::now();
        let response = sender.send_request(request).await?;
        response.into_body().collect().await?;
        took.push(clock::now() - begun);
    }
    Ok(took)
}

/// Appends records of `length` bytes to a file of `dir`, each with its `fdatasync`.
pub(crate) fn records(dir: &Path, count: usize, length: usize) -> Outcome<Vec<u64>> {
    let path = dir.join("records");
    let mut file = File::options().create(true).append(true).open(&path)?;
    let record = vec![b'x'; length];
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = clock::now();
        file.write_all(&record)?;
        file.sync_data()?;
        took.push(clock::now() - begun);
    }
    std::fs::remove_file(path)?;
    Ok(took)
}
