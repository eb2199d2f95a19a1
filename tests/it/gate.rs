//! A gate before a real peer: it lets through what carries the token that it issued last, and
//! issues tokens to the one client that it knows.
//!
//! Must not: change what it lets through, but for ending each connection after one answer.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::watch,
    task::JoinSet,
    time::Instant,
};

use crate::http::Head;

/// The client that the gate knows; the second is a canary, too.
pub(crate) const CLIENT: (&str, &str) = ("bridge", "s3cret-canary");
/// `CLIENT` as HTTP Basic has it.
const BASIC: &str = "Basic YnJpZGdlOnMzY3JldC1jYW5hcnk=";

#[derive(Debug)]
pub(crate) struct Gate {
    address: SocketAddr,
    shared: Arc<Mutex<State>>,
    /// Whether answers of the token endpoint are held back.
    held: watch::Sender<bool>,
    /// Ends with the gate.
    _accepting: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the peer listens.
    peer: String,
    rules: Rules,
    /// What is let through, and until when.
    accepted: Option<(String, Instant)>,
    issued: usize,
    refused: usize,
    /// The forms that tokens were asked for with.
    asked: Vec<String>,
    /// The one refresh token that is good, after so many before it.
    refresh: Option<(String, usize)>,
    /// The targets of what was let through.
    passed: Vec<String>,
}

/// How the gate differs from others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) lifetime: Duration,
    /// What everybody may see.
    pub(crate) open: &'static str,
    /// The client shows its secret in the body.
    pub(crate) wants_post: bool,
    /// A 401 says where the metadata is, and it is there.
    pub(crate) has_metadata: bool,
    /// A refresh token is good once, and gives the next one.
    pub(crate) rotates: bool,
}

impl Default for Rules {
    fn default() -> Self {
        let lifetime = Duration::from_secs(3600);
        Self { lifetime, open: "/nothing", wants_post: false, has_metadata: false, rotates: false }
    }
}

impl Gate {
    pub(crate) async fn start(rules: Rules) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Mutex::new(State { rules, ..State::default() }));
        let mut accepting = JoinSet::new();
        let state = Arc::clone(&shared);
        let held = watch::Sender::new(false);
        let holding = held.subscribe();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (state, holding) = (Arc::clone(&state), holding.clone());
                connections.spawn(async move {
                    // A client may go away.
                    serve(client, address, &state, holding).await.ok();
                });
            }
        });
        Self { address, shared, held, _accepting: accepting }
    }

    /// Names the peer behind the gate.
    pub(crate) fn leads_to(&self, url: &str) {
        self.state().peer = url.trim_start_matches("http://").to_owned();
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, no token is good that was issued before.
    pub(crate) fn revoke(&self) {
        self.state().accepted = None;
    }

    /// From now on, this is the refresh token that is good, or none is.
    pub(crate) fn grants(&self, refresh_token: Option<&str>) {
        self.state().refresh = refresh_token.map(|token| (token.to_owned(), 0));
    }

    /// Whether the token endpoint, which has issued a token already, answers later.
    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    pub(crate) fn issued(&self) -> usize {
        self.state().issued
    }

    pub(crate) fn refused(&self) -> usize {
        self.state().refused
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.state().asked.clone()
    }

    pub(crate) fn passed(&self) -> Vec<String> {
        self.state().passed.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.lock().expect("no holder panics")
    }
}

impl State {
    /// What the gate itself answers; `None` lets the request through.
    fn answer(&mut self, own: &str, head: &Head, body: &[u8]) -> Option<String> {
        let target = head.line.split(' ').nth(1).unwrap_or_default().to_owned();
        if target == "/token" {
            return Some(self.issue(head, body));
        }
        if self.rules.has_metadata && target.starts_with("/.well-known/oauth-") {
            let resource = format!(
                r#"{{"resource":"{own}/mcp","authorization_servers":["{own}"],"scopes_supported":[]}}"#
            );
            let issuer = format!(r#"{{"issuer":"{own}","token_endpoint":"{own}/token"}}"#);
            let is_resource = target.contains("protected-resource");
            return Some(json("200 OK", "", if is_resource { &resource } else { &issuer }));
        }
        let token = head.header("authorization").unwrap_or_default();
        let good = self.accepted.as_ref().is_some_and(|(accepted, until)| {
            token == format!("Bearer {accepted}") && Instant::now() < *until
        });
        if good || target.starts_with(self.rules.open) {
            self.passed.push(target);
            return None;
        }
        self.refused += 1;
        let metadata = match self.rules.has_metadata {
            true => format!(
                ", resource_metadata=\"{own}/.well-known/oauth-protected-resource/mcp\", scope=\"mcp\""
            ),
            false => String::new(),
        };
        let challenge = format!("WWW-Authenticate: Bearer error=\"invalid_token\"{metadata}\r\n");
        // Servers repeat what they refuse.
        Some(json("401 Unauthorized", &challenge, &format!(r#"{{"message":"no: {token}"}}"#)))
    }

    fn issue(&mut self, head: &Head, body: &[u8]) -> String {
        let form = String::from_utf8_lossy(body).into_owned();
        let in_body = form.contains(&format!("client_secret={}", CLIENT.1));
        let in_header = head.header("authorization") == Some(BASIC);
        self.asked.push(form.clone());
        if !(if self.rules.wants_post { in_body } else { in_header }) {
            return json("401 Unauthorized", "", r#"{"error":"invalid_client"}"#);
        }
        let mut next = String::new();
        if form.starts_with("grant_type=refresh_token&") {
            let shown = form.split('&').find_map(|pair| pair.strip_prefix("refresh_token="));
            let good = self.refresh.as_mut().filter(|(good, _)| shown == Some(good));
            let Some((good, before)) = good else {
                return json("400 Bad Request", "", r#"{"error":"invalid_grant"}"#);
            };
            if self.rules.rotates {
                *before += 1;
                *good = format!("refresh-canary-{before}");
            }
            next = format!(r#","refresh_token":"{good}""#);
        }
        self.issued += 1;
        let (number, lifetime) = (self.issued, self.rules.lifetime);
        let token = format!("token-canary-{number}");
        let seconds = lifetime.as_secs();
        let answer = format!(
            r#"{{"access_token":"{token}","token_type":"bearer","expires_in":{seconds}{next}}}"#
        );
        self.accepted = Some((token, Instant::now() + lifetime));
        json("200 OK", "", &answer)
    }
}

fn json(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn serve(
    client: TcpStream,
    own: SocketAddr,
    state: &Mutex<State>,
    mut holding: watch::Receiver<bool>,
) -> io::Result<()> {
    let (reader, mut to_client) = client.into_split();
    let mut reader = BufReader::new(reader);
    let Some(head) = Head::read(&mut reader).await? else { return Ok(()) };
    let body = head.framing(false).whole(&mut reader).await?;
    let (answer, peer) = {
        let mut state = state.lock().expect("no holder panics");
        (state.answer(&format!("http://{own}"), &head, &body), state.peer.clone())
    };
    if let Some(answer) = answer {
        if head.line.contains(" /token ") {
            holding.wait_for(|held| !held).await.map_err(io::Error::other)?;
        }
        return to_client.write_all(answer.as_bytes()).await;
    }
    let mut server = TcpStream::connect(peer).await?;
    server.write_all(without_framing(&head).as_bytes()).await?;
    server.write_all(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes()).await?;
    server.write_all(&body).await?;
    let mut closed = [0; 1];
    tokio::select! {
        passed = pass_on(&mut server, &mut to_client) => passed,
        // The client has hung up, so that the peer must hear of it.
        gone = reader.read(&mut closed) => gone.map(drop),
    }
}

/// Passes one answer on. Its end is that of the connection.
async fn pass_on(server: &mut TcpStream, to_client: &mut OwnedWriteHalf) -> io::Result<()> {
    let mut reader = BufReader::new(server);
    let Some(head) = Head::read(&mut reader).await? else { return Ok(()) };
    to_client.write_all(format!("{}\r\n", without_framing(&head)).as_bytes()).await?;
    let mut framing = head.framing(true);
    while let Some(piece) = framing.chunk(&mut reader).await? {
        to_client.write_all(&piece).await?;
    }
    Ok(())
}

/// A head without its end, of a message that is the last one on its connection.
fn without_framing(head: &Head) -> String {
    let framing = ["connection", "keep-alive", "content-length", "transfer-encoding"];
    let mut text = format!("{}\r\nConnection: close\r\n", head.line);
    for (name, value) in &head.headers {
        if !framing.contains(&name.as_str()) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    text
}
