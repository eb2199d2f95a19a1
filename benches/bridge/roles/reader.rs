//! Apps that read streams: they count the events, see that none is missing, and come back where
//! their stream is closed before its end.
//!
//! One line of JSON in is an order, one out is what came of it. Must not: read slower than it can.

use std::io::Write as _;

use bytes::BytesMut;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    clock,
    run::Outcome,
    wire::{Client, Dechunk},
};

/// Streams to read, each on a connection of its own.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) addr: String,
    pub(crate) token: String,
    pub(crate) target: String,
    pub(crate) readers: usize,
}

/// What one reader saw.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(crate) struct Seen {
    /// Between these the events came.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) events: u64,
    /// Events that were missing, or came twice.
    pub(crate) gaps: u64,
    /// How often the stream was closed before its end.
    pub(crate) resumed: u64,
}

pub(super) async fn play() -> Outcome<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let order: Order = serde_json::from_str(&line)?;
        let mut streams = Vec::new();
        for _ in 0..order.readers {
            streams.push(open(&order, 0).await?);
        }
        say(&json!({ "open": streams.len() }))?;
        let mut readers = JoinSet::new();
        for stream in streams {
            readers.spawn(read(order.clone(), stream));
        }
        let mut all = Vec::new();
        while let Some(seen) = readers.join_next().await {
            all.push(seen??);
        }
        say(&all)?;
    }
    Ok(())
}

fn say(what: &impl Serialize) -> Outcome<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    Ok(stdout.flush()?)
}

async fn open(order: &Order, after: u64) -> Outcome<(TcpStream, BytesMut)> {
    let client = Client::new(order.addr.parse()?).bearer(&order.token);
    if after == 0 {
        return client.open(&order.target).await;
    }
    client.open(&format!("{}?lastSeq={after}", order.target)).await
}

async fn read(order: Order, mut stream: (TcpStream, BytesMut)) -> Outcome<Seen> {
    let (mut seen, mut seq) = (Seen::default(), 0);
    loop {
        if events(&mut stream, &mut seen, &mut seq).await {
            return Ok(seen);
        }
        seen.resumed += 1;
        stream = open(&order, seq).await?;
    }
}

/// Reads a stream until it ends; true behind the last event of the run.
async fn events(
    (stream, buffer): &mut (TcpStream, BytesMut),
    seen: &mut Seen,
    seq: &mut u64,
) -> bool {
    let (mut chunks, mut text) = (Dechunk::default(), Vec::with_capacity(256 * 1024));
    loop {
        let ended = chunks.feed(buffer, &mut text);
        let mut begun = 0;
        let mut over = false;
        while let Some(length) =
            text.get(begun..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        {
            let line = text.get(begun..begun + length).unwrap_or_default();
            if let Some(number) = line.strip_prefix(b"id: ") {
                let number = number.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit & 15));
                seen.gaps += u64::from(number != *seq + 1);
                *seq = number;
                seen.events += 1;
            } else if line == b"event: result" {
                over = true;
            }
            begun += length + 1;
        }
        text.drain(..begun);
        if begun > 0 {
            seen.last = clock::now();
            if seen.first == 0 {
                seen.first = seen.last;
            }
        }
        if over || ended {
            return over;
        }
        buffer.reserve(256 * 1024);
        match stream.read_buf(buffer).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => (),
        }
    }
}
