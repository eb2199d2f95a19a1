//! A search in 10,000 tools: how long the first one takes, which reads all of them, how long the
//! next ones take, and what the daemon holds for it.
//!
//! Must not: judge what is found (tests/it/catalogs does).

use serde_json::{Value, json};

use super::{Setting, memory};
use crate::{
    clock,
    daemon::Daemon,
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    wire::Client,
    world::World,
};

/// Tools of each server; the most that the stand-in of one has.
const EACH: u64 = 2_000;
const VERBS: [&str; 5] = ["list", "make", "find", "remove", "how do I change"];
const THINGS: [&str; 7] =
    ["an invoice", "a ticket", "the pages", "calendar", "all orders", "a customer", "reports"];

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let world = World::start().await?;
    let servers = setting.size(5, 1);
    let mut config = String::from("mcp:\n");
    for number in 0..servers {
        let url = format!("http://{}/catalog/{EACH}", world.tools);
        config
            .push_str(&format!("  c{number}: {{url: \"{url}\", offer: search, required: true}}\n"));
    }
    let tools = servers * EACH;
    let dir = setting.dir.join("catalogs");
    let mut daemon = Daemon::start(&setting.arguments.daemon, dir, world.mantyx, &config).await?;
    daemon.wait_backends().await?;
    let mut held = Table::new("memory", &["", "VmRSS", "Pss", "RssAnon", "highest"]);
    let before = format!("{tools} tools, no search yet");
    let before = memory::row(setting, findings, &mut held, &daemon, &before).await?;

    let mut client = daemon.client();
    let first = search(&mut client, "first", "delete an invoice").await?;
    let mut samples = Samples::default();
    for round in 0..setting.size(5, 1) {
        let mut took = Vec::new();
        for (number, verb) in VERBS.iter().enumerate() {
            for thing in THINGS {
                let id = format!("{round}-{number}-{thing}").replace(' ', "_");
                took.push(search(&mut client, &id, &format!("{verb} {thing}")).await?);
            }
        }
        samples.round(took);
    }
    let after = memory::row(setting, findings, &mut held, &daemon, "after the searches").await?;
    let grown = after.anonymous.saturating_sub(before.anonymous);
    findings.note(format!(
        "the first search in {tools} tools took {}, and the daemon holds {:.1} MiB more than before",
        stats::time(first),
        memory::mebibytes(grown)
    ));
    let head: Vec<&str> = [""].into_iter().chain(stats::COLUMNS).collect();
    let mut table = Table::new(&format!("a search in {tools} tools"), &head);
    if let Some(found) = samples.quantiles() {
        table.row(["by hand, over HTTP".to_owned()].into_iter().chain(found.cells()));
        findings.json.insert("search".into(), found.json());
    }
    findings.json.insert("first".into(), json!(first));
    findings.json.insert("bytes".into(), json!(grown));
    findings.tables.extend([table, held]);
    daemon.stop().await
}

/// How long a search takes; it has to find something.
async fn search(client: &mut Client, id: &str, query: &str) -> Outcome<u64> {
    let args = json!({ "query": query });
    let call = json!({ "toolUseId": id, "name": "bridge_find_tools", "args": args }).to_string();
    let begun = clock::now();
    let answer = client.post("/v1/tool-calls", call.as_bytes()).await?.json()?;
    let took = clock::now() - begun;
    let found = answer["result"].as_str().map(serde_json::from_str::<Value>).transpose()?;
    let count = found.and_then(|found| found["tools"].as_array().map(Vec::len));
    if count != Some(5) {
        return Err(format!("{query:?} finds {count:?} tools: {answer}").into());
    }
    Ok(took)
}
