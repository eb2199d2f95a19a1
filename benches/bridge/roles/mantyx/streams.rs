//! The streams of runs.
//!
//! Must not: write an event in two pieces, or look at the clock anywhere but right before it.

use std::{io, time::Duration};

use tokio::{sync::watch, time::sleep};

use super::{
    Run,
    plan::{Calls, What},
};
use crate::{
    clock,
    wire::{Served, chunk, response},
};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
/// A stream without a sign of life is taken for dead after a while.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Events that are written as fast as they are taken go out in pieces of this size.
const PIECE: usize = 32 * 1024;

/// Sends the stream of `run` behind the event `from`.
pub(super) async fn stream(
    client: &mut Served,
    run: &Run,
    from: u64,
    gate: &watch::Sender<bool>,
) -> io::Result<()> {
    run.ledger().opened += 1;
    if *run.ended.borrow() && !matches!(run.plan.what, What::Events(_)) {
        return client.write(&response(410, r#"{"error":"gone"}"#)).await;
    }
    client.write(HEAD).await?;
    if run.plan.gated {
        let mut open = gate.subscribe();
        // The gate is there as long as the process is.
        open.wait_for(|open| *open).await.map_err(io::Error::other)?;
    }
    match &run.plan.what {
        What::Calls(calls) => self::calls(client, run, calls).await?,
        What::Events(count) => events(client, *count, from).await?,
        What::Idle => return idle(client).await,
        What::End => (),
    }
    let seq = match run.plan.what {
        What::Events(count) => count + 1,
        _ => run.ledger().seq + 1,
    };
    let mut out = Vec::new();
    chunk(&mut out, event(seq, "result", r#"{"subtype":"success","text":"done"}"#).as_bytes());
    out.extend_from_slice(b"0\r\n\r\n");
    client.write(&out).await?;
    run.ended.send_replace(true);
    Ok(())
}

/// An event in the layout of the protocol's document.
fn event(seq: u64, kind: &str, data: &str) -> String {
    format!(
        "id: {seq}\nevent: {kind}\ndata: {{\"seq\":{seq},\"type\":\"{kind}\",\"data\":{data}}}\n\n"
    )
}

async fn calls(client: &mut Served, run: &Run, plan: &Calls) -> io::Result<()> {
    let begun = clock::now();
    let mut told = 0;
    let mut random = seed(&run.id);
    loop {
        if plan.pause > 0 {
            // Between a half and one and a half of the pause.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let share = plan.pause / 2 + (random >> 33) % plan.pause.max(1);
            sleep(Duration::from_nanos(share)).await;
        }
        let mut text = String::new();
        let done = {
            let mut ledger = run.ledger();
            for number in ledger.answered_after(told).to_vec() {
                ledger.seq += 1;
                let data = format!(r#"{{"toolUseId":"c{number}","output":"(its answer)"}}"#);
                text.push_str(&event(ledger.seq, "local_tool_result_in", &data));
                told += 1;
            }
            let first = ledger.made();
            let open = clock::now().saturating_sub(begun) < plan.span || first == 0;
            let room = if open { plan.flight.saturating_sub(first - told) } else { 0 };
            let last = (first + room).min(plan.most);
            for number in first..last {
                ledger.seq += 1;
                let data = call(plan.tool_of(number), number);
                text.push_str(&event(ledger.seq, "local_tool_call", &data));
            }
            let sent = clock::now();
            (first..last).for_each(|_| ledger.call(sent));
            last == first && ledger.is_quiet()
        };
        if !text.is_empty() {
            let mut out = Vec::with_capacity(text.len() + 16);
            chunk(&mut out, text.as_bytes());
            client.write(&out).await?;
        }
        if done {
            return Ok(());
        }
        run.answered.notified().await;
    }
}

/// The data of a call's event; the arguments are as long as those of an ordinary call.
fn call(tool: &str, number: usize) -> String {
    const TEXT: &str = "What a model says to a tool is rarely longer than this sentence of its, \
                        which has a hundred and twenty letters.";
    if tool == "agent" {
        return format!(
            r#"{{"toolUseId":"c{number}","name":"agent","args":{{"message":"{number} {TEXT}"}},"kind":"a2a_local","agentCard":{{"name":"Echo"}}}}"#
        );
    }
    format!(
        r#"{{"toolUseId":"c{number}","name":"{tool}_echo","args":{{"id":{number},"text":"{TEXT}"}},"kind":"mcp_local","mcpServer":"{tool}","mcpToolName":"{tool}_echo"}}"#
    )
}

fn seed(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

async fn events(client: &mut Served, count: u64, from: u64) -> io::Result<()> {
    let (mut out, mut text) = (Vec::with_capacity(2 * PIECE), String::with_capacity(2 * PIECE));
    for seq in from + 1..=count {
        text.push_str(&event(seq, "assistant_delta", r#"{"text":"four or five words"}"#));
        if text.len() >= PIECE || seq == count {
            out.clear();
            chunk(&mut out, text.as_bytes());
            text.clear();
            client.write(&out).await?;
        }
    }
    Ok(())
}

async fn idle(client: &mut Served) -> io::Result<()> {
    let mut out = Vec::new();
    chunk(&mut out, event(1, "assistant_delta", r#"{"text":"hm"}"#).as_bytes());
    client.write(&out).await?;
    out.clear();
    chunk(&mut out, b": ping\n\n");
    loop {
        tokio::select! {
            () = client.hung_up() => return Err(io::ErrorKind::ConnectionAborted.into()),
            () = sleep(HEARTBEAT) => (),
        }
        client.write(&out).await?;
    }
}
