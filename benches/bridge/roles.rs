//! The processes that take part in a measurement, each this program again with `--role`.
//!
//! A role that listens says where in the first line of its stdout. Each ends when its stdin does,
//! so that none outlives the bench. Must not: measure for the bench what it could measure itself.

mod agent;
mod catalog;
mod loopback;
mod mantyx;
mod proxy;
mod reader;
mod stdio_tool;
mod task_agent;
mod tools;

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) use reader::{Order, Seen};

use crate::run::Outcome;

/// Plays a role to its end.
pub(crate) async fn play(role: &str, rest: Vec<String>) -> Outcome<()> {
    let first = rest.first().map(String::as_str);
    match role {
        // Their stdin is what they read.
        "stdio-tool" => stdio_tool::play().await,
        "reader" => reader::play().await,
        "mantyx" => until_left(mantyx::play()).await,
        "tools" => until_left(tools::play()).await,
        "loopback" => until_left(loopback::play()).await,
        "proxy" => {
            let target = first.ok_or("a proxy wants the address behind it")?.parse()?;
            let tls = rest.get(1).zip(rest.get(2)).map(|(pem, alpn)| proxy::Tls::read(pem, alpn));
            until_left(proxy::play(target, tls.transpose()?)).await
        }
        _ => Err(format!("there is no role {role:?}").into()),
    }
}

/// Tells whoever has started this process where it listens.
pub(crate) async fn listening(addr: SocketAddr) -> std::io::Result<()> {
    let mut stdout = tokio::io::stdout();
    stdout.write_all(format!("{addr}\n").as_bytes()).await?;
    stdout.flush().await
}

async fn until_left(role: impl Future<Output = Outcome<()>>) -> Outcome<()> {
    let mut stdin = tokio::io::stdin();
    let mut byte = [0];
    tokio::select! {
        outcome = role => outcome,
        _ = stdin.read(&mut byte) => Ok(()),
    }
}
