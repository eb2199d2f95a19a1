//! The serving half of the scripted MANTYX: connections, routes, and streams that break on cue.

use std::{io, sync::Arc};

use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
    time::Instant,
};

use super::{Meter, Recorded, Reply, Run, Shared, results};
use crate::{
    frames::{Script, Step},
    http::{Framing, Head},
};

/// Accepts connections for ever and serves each on its own.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            connections.spawn(async move {
                // A connection that breaks is often what the test wants.
                connection(stream, &shared).await.ok();
            });
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(head) = Head::read(&mut reader).await? {
        let framing = head.framing(false);
        let mut words = head.line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default().to_owned();
        if path.ends_with("/echo-stream") {
            echo(framing, &mut reader, &mut writer).await?;
            continue;
        }
        let body = framing.whole(&mut reader).await?;
        let headers = head.headers.clone();
        let recorded = Recorded {
            method: method.clone(),
            target: target.clone(),
            headers,
            body,
            at: Instant::now(),
        };
        shared.change(|state| state.recorded.push(recorded.clone()));
        if !lets_in(shared, &recorded) {
            let body = r#"{"error":"unauthorized","message":"The credential is not good."}"#;
            writer.write_all(&json(401, body)).await?;
            continue;
        }
        if method == "GET" && path.ends_with("/stream") {
            match stream_run(shared, &recorded, &path, &mut writer).await? {
                After::Serves => continue,
                After::Closes => return Ok(()),
            }
        }
        let Some(answer) = route(shared, &recorded, &path) else { return Ok(()) };
        shared.wait_if_held(&method, &path).await;
        writer.write_all(&answer).await?;
    }
    Ok(())
}

impl Shared {
    /// Waits until the answer to `method path` may go, where the test holds it back.
    async fn wait_if_held(&self, method: &str, path: &str) {
        let held = self.change(|state| {
            let is_it = |held: &(&str, &str, String)| held.0 == method && path.ends_with(held.1);
            let at = state.held.iter().position(is_it)?;
            Some(state.held.remove(at).2)
        });
        if let Some(name) = held {
            self.released(&name).await;
        }
    }

    /// `bytes` with what the test has filled in.
    fn filled(&self, bytes: &[u8]) -> Vec<u8> {
        let state = self.state();
        if state.fills.is_empty() {
            return bytes.to_vec();
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        let filled = state.fills.iter().fold(text, |text, (mark, with)| text.replace(mark, with));
        filled.into_bytes()
    }
}

fn lets_in(shared: &Shared, request: &Recorded) -> bool {
    let shown = request.header("authorization").unwrap_or_default();
    let is_good = |good: &Vec<String>| good.iter().any(|good| good == shown);
    shared.state().let_in.as_ref().is_none_or(is_good)
}

/// What is answered; `None` closes the connection instead.
fn route(shared: &Shared, request: &Recorded, path: &str) -> Option<Vec<u8>> {
    shared.change(|state| {
        if let Some(canned) = state.canned.get(&format!("{} {}", request.method, request.target)) {
            return Some(canned.clone());
        }
        state.ids += 1;
        let id = state.ids;
        let last = path.rsplit('/').next().unwrap_or_default();
        match (request.method.as_str(), last) {
            ("POST", "agent-runs" | "messages" | "eval-runs") => {
                let run = format!("run_{id}");
                let script = state.scripts.pop_front();
                let script =
                    script.or_else(|| state.author.as_ref().map(|author| author.write(id)));
                let script = script.unwrap_or_else(|| Script::new().done());
                state.runs.insert(run.clone(), Run::new(script));
                let base = path.split("/agent-").next().unwrap_or_default();
                let base = base.trim_end_matches("/eval-runs");
                let kind = if last == "eval-runs" { last } else { "agent-runs" };
                let url = format!("{base}/{kind}/{run}/stream");
                Some(json(202, &format!(r#"{{"runId":"{run}","streamUrl":"{url}"}}"#)))
            }
            ("POST", "agent-sessions") => {
                Some(json(201, &format!(r#"{{"sessionId":"ses_{id}"}}"#)))
            }
            ("POST", "tool-results") => {
                let tool = request.value()["toolUseId"].as_str().unwrap_or_default().to_owned();
                let counted = state.meter.as_mut().map(Meter::count);
                if let Some(Counted { refused: true, headers }) = &counted {
                    let head = format!("HTTP/1.1 429 Too Many Requests\r\n{headers}");
                    let body = r#"{"error":"rate_limit_exceeded","message":"Slow down."}"#;
                    return Some(with_length(&head, body));
                }
                let reply = results::reply(state, &tool);
                results::note(state, &tool, request, reply);
                if matches!(reply, Reply::Status(200..=299 | 404 | 409) | Reply::TakenAndReset) {
                    state.release(&tool);
                }
                if let (Some(counted), Reply::Status(200)) = (counted, reply) {
                    let head = format!("HTTP/1.1 200 OK\r\n{}", counted.headers);
                    return Some(with_length(&head, "{}"));
                }
                answer_result(reply)
            }
            ("GET", run) if path.ends_with(&format!("/eval-runs/{run}")) => {
                let ended = state.runs.get(run).is_some_and(|run| run.ended);
                let status = if ended { "succeeded" } else { "running" };
                Some(json(200, &format!(r#"{{"id":"{run}","status":"{status}"}}"#)))
            }
            _ => Some(json(200, r#"{"ok":true}"#)),
        }
    })
}

/// How one post stands to the rate limit.
struct Counted {
    refused: bool,
    /// What the answer tells of it.
    headers: String,
}

impl Meter {
    fn count(&mut self) -> Counted {
        let now = Instant::now();
        let end = match self.end {
            Some(end) if now < end => end,
            _ => {
                self.used = 0;
                *self.end.insert(now + self.window)
            }
        };
        self.used += 1;
        let (limit, left) = (self.limit, self.limit.saturating_sub(self.used));
        let seconds = (end - now).as_secs_f64().ceil();
        let refused = self.used > limit;
        let retry = if refused { format!("Retry-After: {seconds}\r\n") } else { String::new() };
        let headers = format!(
            "X-RateLimit-Limit: {limit}\r\nX-RateLimit-Remaining: {left}\r\n\
             X-RateLimit-Reset: {seconds}\r\nX-RateLimit-Bucket: lifecycle\r\n{retry}"
        );
        Counted { refused, headers }
    }
}

fn answer_result(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Status(204) => Some(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        Reply::Status(code @ 200..=299) => Some(json(code, "{}")),
        Reply::Status(code) => {
            Some(json(code, r#"{"error":"scripted","message":"The test wants this."}"#))
        }
        Reply::TooMany(seconds) => {
            let body = r#"{"error":"rate_limit_exceeded","message":"Slow down."}"#;
            let head = format!("HTTP/1.1 429 Too Many Requests\r\nRetry-After: {seconds}\r\n");
            Some(with_length(&head, body))
        }
        Reply::Reset | Reply::TakenAndReset => None,
    }
}

fn json(status: u16, body: &str) -> Vec<u8> {
    with_length(&format!("HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\n"), body)
}

fn with_length(head: &str, body: &str) -> Vec<u8> {
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends each piece of the request's body back while the rest is still to come.
async fn echo(
    mut framing: Framing,
    reader: &mut BufReader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    writer.write_all(head.as_bytes()).await?;
    while let Some(piece) = framing.chunk(reader).await? {
        writer.write_all(&chunk(&piece)).await?;
    }
    writer.write_all(b"0\r\n\r\n").await
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Where the reader says that it got to: the larger of the query and the header.
fn resume_from(request: &Recorded) -> u64 {
    let query = request.target.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('&').find_map(|pair| pair.strip_prefix("lastSeq="));
    let numbers = [query, request.header("last-event-id")];
    numbers.into_iter().flatten().filter_map(|text| text.parse().ok()).max().unwrap_or(0)
}

/// What becomes of a connection after a stream. A body that ended as HTTP has it leaves the
/// connection in the client's pool: closing it then would break the next request.
enum After {
    Serves,
    Closes,
}

async fn stream_run(
    shared: &Shared,
    request: &Recorded,
    path: &str,
    writer: &mut OwnedWriteHalf,
) -> io::Result<After> {
    let id = path.rsplit('/').nth(1).unwrap_or_default();
    let refusal = shared.state().refusal.clone();
    if let Some(refusal) = refusal {
        writer.write_all(&refusal).await?;
        return Ok(After::Serves);
    }
    let opened = shared.change(|state| {
        let run = state.runs.get_mut(id)?;
        run.connections += 1;
        Some((run.script.clone(), run.script.cuts.pop_front(), run.sent))
    });
    let Some((script, cut, sent)) = opened else {
        let answer = json(404, r#"{"error":"not_found","message":"No such run."}"#);
        writer.write_all(&answer).await?;
        return Ok(After::Serves);
    };
    let framing = if script.unframed { "Connection: close" } else { "Transfer-Encoding: chunked" };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n\r\n");
    writer.write_all(head.as_bytes()).await?;
    let asked = resume_from(request).saturating_sub(script.rewind);
    let from = if script.forgetful { sent } else { asked };
    let mut out = Out { writer, script: &script, left: cut };
    for step in &script.steps {
        match step {
            Step::Send { seq, bytes } if *seq > from => {
                if out.send(&shared.filled(bytes)).await? {
                    shared.change(|state| {
                        if let Some(run) = state.runs.get_mut(id) {
                            run.sent = run.sent.max(*seq);
                            run.sent_at.entry(*seq).or_insert_with(Instant::now);
                        }
                    });
                }
                // A cut right behind an event has let all of it through.
                if out.left == Some(0) {
                    return Ok(After::Closes);
                }
            }
            Step::Send { .. } => (),
            Step::Await(name) => shared.released(name).await,
        }
    }
    shared.change(|state| {
        if let Some(run) = state.runs.get_mut(id) {
            run.ended = true;
        }
    });
    if script.unframed {
        return Ok(After::Closes);
    }
    out.writer.write_all(b"0\r\n\r\n").await?;
    Ok(After::Serves)
}

struct Out<'a> {
    writer: &'a mut OwnedWriteHalf,
    script: &'a Script,
    /// Bytes until the cut.
    left: Option<usize>,
}

impl Out<'_> {
    /// Sends in pieces, up to the cut; whether all of it was sent.
    async fn send(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let before_cut = self.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        let (sent, kept) = bytes.split_at(before_cut);
        let piece = if self.script.piece == 0 { bytes.len() } else { self.script.piece };
        for piece in sent.chunks(piece.max(1)) {
            let framed = if self.script.unframed { piece.to_vec() } else { chunk(piece) };
            self.writer.write_all(&framed).await?;
        }
        if let Some(left) = &mut self.left {
            *left -= before_cut;
        }
        Ok(kept.is_empty())
    }
}
