//! An agent of A2A, called directly and through the bridge, with one call in flight: a message that
//! ends at once, and how long after the end of a task of ten seconds its client knows of it.
//!
//! Through the bridge, the client is one of A2A (`/a2a`), or an app that calls the agent as a tool
//! (`POST /v1/tool-calls`). Must not: have two calls in flight where the time of one is measured.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::Setting;
use crate::{
    clock::{self, SECOND},
    daemon::Daemon,
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    wire::Client,
    world::World,
};

/// How long the task takes, in milliseconds.
const TASK: u64 = 10_000;

/// How an agent is called.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// `message/send`, whose reply is a message.
    Message,
    /// `message/stream`, read to its end.
    Stream,
    /// As a tool, by hand.
    Tool(&'static str),
}

/// A client with one way to call an agent.
#[derive(Debug)]
struct Caller {
    name: &'static str,
    client: Client,
    path: String,
    way: Way,
}

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let world = World::start().await?;
    let config = format!(
        "{}  tasks: {{card_url: \"{}\"}}\n  polled: {{card_url: \"{}\"}}\n",
        world.fast_tools()?,
        world.card_url_of("tasks"),
        world.card_url_of("polled"),
    );
    let (program, dir) = (&setting.arguments.daemon, setting.dir.join("agents"));
    let mut daemon = Daemon::start(program, dir, world.mantyx, &config).await?;
    daemon.wait_backends().await?;
    at_once(setting, findings, &world, &daemon).await?;
    at_the_end(setting, findings, &world, &daemon).await?;
    daemon.stop().await
}

fn direct(name: &'static str, addr: SocketAddr, path: &str, way: Way) -> Caller {
    Caller { name, client: Client::new(addr), path: path.to_owned(), way }
}

fn through(name: &'static str, daemon: &Daemon, path: &str, way: Way) -> Caller {
    Caller { name, client: daemon.client(), path: path.to_owned(), way }
}

async fn at_once(
    setting: &Setting,
    findings: &mut Findings,
    world: &World,
    daemon: &Daemon,
) -> Outcome<()> {
    let tool = "/v1/tool-calls";
    let mut callers = [
        direct("directly, message/send", world.tools, "/agent/", Way::Message),
        through("bridge: /a2a, message/send", daemon, "/a2a/agent", Way::Message),
        through("bridge: as a tool", daemon, tool, Way::Tool("agent")),
        direct("directly, message/stream", world.tools, "/tasks/", Way::Stream),
        through("bridge: /a2a, message/stream", daemon, "/a2a/tasks", Way::Stream),
        through("bridge: as a tool, streamed", daemon, tool, Way::Tool("tasks")),
    ];
    let mut samples = vec![Samples::default(); callers.len()];
    let span = setting.size(1_500, 100) * (SECOND / 1_000);
    for _ in 0..setting.size(3, 1) {
        for (caller, found) in callers.iter_mut().zip(&mut samples) {
            let mut took = Vec::new();
            let end = clock::now() + span;
            while clock::now() < end {
                took.push(caller.call(0).await?.0);
            }
            took.drain(..(took.len() / 4).min(5));
            found.round(took);
        }
    }
    let names = callers.iter().map(|caller| caller.name);
    tell(findings, "a message that ends at once, one in flight", "at-once", names.zip(&samples));
    Ok(())
}

/// All callers wait at once, each for a task of its own: they do nothing meanwhile.
async fn at_the_end(
    setting: &Setting,
    findings: &mut Findings,
    world: &World,
    daemon: &Daemon,
) -> Outcome<()> {
    let tool = "/v1/tool-calls";
    let mut callers = vec![
        direct("directly, message/stream", world.tools, "/tasks/", Way::Stream),
        through("bridge: /a2a, message/stream", daemon, "/a2a/tasks", Way::Stream),
        through("bridge: as a tool, streamed", daemon, tool, Way::Tool("tasks")),
        through("bridge: as a tool, polled", daemon, tool, Way::Tool("polled")),
    ];
    let mut samples = vec![Samples::default(); callers.len()];
    for _ in 0..setting.size(5, 1) {
        let mut waiting = JoinSet::new();
        for (place, mut caller) in callers.drain(..).enumerate() {
            let millis = setting.size(TASK, 200);
            waiting.spawn(async move {
                let late = caller.call(millis).await.map(|(_, late)| late);
                (place, caller, late)
            });
        }
        let mut done = waiting.join_all().await;
        done.sort_by_key(|(place, ..)| *place);
        for ((_, caller, late), found) in done.into_iter().zip(&mut samples) {
            found.round(vec![late?]);
            callers.push(caller);
        }
    }
    let names = callers.iter().map(|caller| caller.name);
    let title = "from the end of a task of 10 s until its client knows";
    tell(findings, title, "task-of-10-s", names.zip(&samples));
    Ok(())
}

fn tell<'a>(
    findings: &mut Findings,
    title: &str,
    key: &str,
    rows: impl Iterator<Item = (&'static str, &'a Samples)>,
) {
    let head: Vec<&str> = [""].into_iter().chain(stats::COLUMNS).collect();
    let mut table = Table::new(title, &head);
    let mut json = Map::new();
    for (name, samples) in rows {
        let Some(quantiles) = samples.quantiles() else { continue };
        table.row([name.to_owned()].into_iter().chain(quantiles.cells()));
        json.insert(name.to_owned(), quantiles.json());
    }
    findings.tables.push(table);
    findings.json.insert(key.to_owned(), json.into());
}

impl Caller {
    /// Sends a message for a task of so many milliseconds; gives the time of the whole exchange,
    /// and the time from the end of the task to that of the exchange.
    async fn call(&mut self, millis: u64) -> Outcome<(u64, u64)> {
        let number = clock::now();
        let text = millis.to_string();
        let message = json!({
            "kind": "message", "role": "user", "messageId": number.to_string(),
            "parts": [{ "kind": "text", "text": text }],
        });
        let request = |method: &str| {
            let params = json!({ "message": message });
            json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params })
        };
        let body = match self.way {
            Way::Message => request("message/send"),
            Way::Stream => request("message/stream"),
            Way::Tool(name) => json!({
                "toolUseId": number.to_string(), "name": name, "args": { "message": text },
            }),
        };
        let answer = self.client.post(&self.path, body.to_string().as_bytes()).await?;
        let (sent, done) = (answer.sent, answer.done);
        let body = String::from_utf8(answer.good()?)?;
        let ended = self.ended(&body).ok_or_else(|| format!("{}: {body}", self.name))?;
        Ok((done - sent, done.saturating_sub(ended)))
    }

    /// When the agent has ended what it was asked for, by its own words.
    fn ended(&self, body: &str) -> Option<u64> {
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        let text = match self.way {
            Way::Message => value(body)?["result"]["parts"][0]["text"].clone(),
            Way::Stream => {
                let last = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
                value(last?)?["result"]["status"]["message"]["parts"][0]["text"].clone()
            }
            Way::Tool(_) => value(body)?["result"].clone(),
        };
        let mut numbers = text.as_str()?.split(' ').map_while(|word| word.parse().ok());
        match self.way {
            // The fast agent says its number, when it was asked, and when it answered.
            Way::Message | Way::Tool("agent") => numbers.nth(2),
            Way::Stream | Way::Tool(_) => numbers.next(),
        }
    }
}
