//! The bridge is killed at random moments while other runtimes ask for calls: no effect twice, and
//! each call has exactly one answer that its runtime has taken.
//!
//! `CRASH_SEED` and `CRASH_CYCLES` set the seed and the number of kills. Must not: assert on
//! anything that depends on when the kill struck.

use std::{collections::BTreeMap, fmt, net::SocketAddr, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::Rig;
use crate::{
    crash::{Reproduce, number},
    effects::{Kind, Step},
    http::Head,
    wait,
};

/// Calls of a cycle: more than the server gets at once.
const CALLS: usize = 6;
/// All calls of a cycle are answered so long after the last start.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// loom-mcp's client comes to the bridge.
const LOOM: &str = "loom";

#[tokio::test]
async fn kills_make_no_call_of_hsafa_v3_twice() {
    kill_loop("v3", 3).await;
}

#[tokio::test]
async fn kills_make_no_call_of_hsafa_v7_twice() {
    kill_loop("v7", 3).await;
}

#[tokio::test]
async fn kills_make_no_call_of_claude_twice() {
    kill_loop("claude", 3).await;
}

#[tokio::test]
async fn kills_make_no_call_of_loom_twice() {
    kill_loop(LOOM, 3).await;
}

#[tokio::test]
#[ignore = "takes minutes"]
async fn kill_loop_of_the_runtimes() {
    let kills = number("CRASH_CYCLES").map_or(40, |n| usize::try_from(n).expect("64 bits"));
    for wire in ["v3", "v7", "claude", LOOM] {
        kill_loop(wire, kills).await;
    }
}

/// What all cycles of a wire came to.
#[derive(Debug, Default)]
struct Tally {
    calls: usize,
    kills: usize,
    doubled: usize,
    unanswered: usize,
    /// Answers that tell of an unknown outcome.
    unknown: usize,
    /// Of `unknown`, those that never reached the server.
    needless: usize,
    /// Announced when the bridge was killed before it had noted them; announced again.
    unheard: usize,
    /// Posts of an answer that the runtime had taken already.
    repeated: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, kills, doubled, unanswered, unknown, needless, unheard, repeated } = self;
        write!(
            f,
            "{calls} calls, {kills} kills, {doubled} double effects, {unanswered} unanswered; \
             {unknown} of unknown outcome ({needless} of them never reached the server), {unheard} \
             not heard the first time, {repeated} answers posted after they were taken"
        )
    }
}

async fn kill_loop(wire: &'static str, kills: usize) {
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    let mut reproduce = Reproduce { seed, cycle: 0 };
    println!("{wire}: CRASH_SEED={seed}");
    let rig = Rig::start(if wire == LOOM { "v3" } else { wire }).await;
    if wire == "claude" {
        rig.control("session", json!({ "id": "s1" })).await;
    }
    let (tally, answers) = (Tally::default(), BTreeMap::new());
    let mut it = Loop { rig, wire, tally, answers };
    while it.tally.kills < kills {
        let cycle = reproduce.cycle;
        // Of its own seed, so that a cycle hangs on no cycle before.
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(cycle as u64));
        if wire == LOOM {
            it.post_a_set(cycle, &mut rng).await;
        } else {
            it.announce(cycle, &mut rng).await;
        }
        reproduce.cycle += 1;
    }
    let tally = it.judge().await;
    println!("{wire}: {tally}");
}

struct Loop {
    rig: Rig,
    wire: &'static str,
    tally: Tally,
    /// By call, once it is answered: what was said.
    answers: BTreeMap<String, Vec<String>>,
}

/// A call: its id, tool and arguments.
struct Drawn {
    id: String,
    tool: String,
    args: Value,
}

fn draw(cycle: usize, rng: &mut StdRng) -> Vec<Drawn> {
    let call = |number| {
        let kind = Kind::ALL.choose(rng).expect("there are five");
        let ms = rng.random_range(0..200);
        let (id, tool) = (format!("c{cycle}_{number}"), format!("plain_{}", kind.tool()));
        Drawn { id, tool, args: json!({ "ms": ms }) }
    };
    (0..CALLS).map(call).collect()
}

/// Posts a set to the bridge until it is answered, as loom-mcp's client does.
async fn post(to: SocketAddr, token: String, set: String) -> Value {
    loop {
        if let Some(answer) = post_once(to, &token, &set).await {
            return answer;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn post_once(to: SocketAddr, token: &str, set: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(to).await.ok()?;
    let request = format!(
        "POST /v1/external-tools HTTP/1.1\r\nHost: {to}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{set}",
        set.len()
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut reader = BufReader::new(stream);
    let head = Head::read(&mut reader).await.ok()??;
    let body = head.framing(true).whole(&mut reader).await.ok()?;
    head.line.contains(" 200 ").then(|| serde_json::from_slice(&body).expect("it is JSON"))
}

impl Loop {
    /// Kills the bridge at a random moment, perhaps again while it recovers, and starts it.
    async fn kill(&mut self, rng: &mut StdRng) {
        sleep(Duration::from_millis(rng.random_range(0..400))).await;
        self.rig.bridge.kill9();
        self.tally.kills += 1;
        if rng.random_bool(0.25) {
            self.rig.bridge.spawn();
            sleep(Duration::from_millis(rng.random_range(0..300))).await;
            self.rig.bridge.kill9();
            self.tally.kills += 1;
        }
        // As after a while.
        self.rig.control("lapse", json!({})).await;
        self.rig.bridge.restart().await;
    }

    async fn post_a_set(&mut self, cycle: usize, rng: &mut StdRng) {
        self.rig.bridge.wait_backend("plain", "ready").await;
        let calls = draw(cycle, rng);
        let mut items = Vec::new();
        for Drawn { id, tool, args } in &calls {
            items.push(json!({ "tool_name": tool, "tool_call_id": id, "payload": args }));
        }
        let set = json!({ "id": format!("w{cycle}"), "runId": "r", "items": items }).to_string();
        let (to, token) = (self.rig.bridge.addr(), self.rig.bridge.token().to_owned());
        let mut client = JoinSet::new();
        client.spawn(post(to, token.clone(), set.clone()));
        self.kill(rng).await;
        let answer = timeout(ANSWERED_WITHIN, client.join_next()).await.expect("an answer in time");
        let answer = answer.expect("a client").expect("it ends");
        // An answer that the client has lost comes again as it was.
        assert_eq!(post(to, token, set).await, answer);
        let results = answer["Results"].as_array().expect("a list");
        assert_eq!(results.len(), calls.len());
        self.tally.calls += calls.len();
        for (Drawn { id, .. }, result) in calls.into_iter().zip(results) {
            assert_eq!(result["ToolCallID"], id);
            let said = result["Result"].as_str().or(result["Error"]["Message"].as_str());
            self.answers.insert(id, vec![said.expect("a result or an error").to_owned()]);
        }
    }

    async fn announce(&mut self, cycle: usize, rng: &mut StdRng) {
        let to = self.rig.hears(self.wire).await;
        // An answer meets a server that fails, a connection that breaks, or one that breaks after
        // the answer was taken.
        let path = match self.wire {
            "v3" => "tool-results",
            "v7" => "/result",
            _ => "s1/events",
        };
        for (status, taken) in [(503, false), (0, false), (0, true)] {
            if rng.random_bool(0.3) {
                let refusal = json!({
                    "path": path, "method": "POST", "status": status, "taken": taken,
                });
                self.rig.control("refuse", refusal).await;
            }
        }
        let calls = draw(cycle, rng);
        self.tally.calls += calls.len();
        for Drawn { id, tool, args } in &calls {
            assert_eq!(self.rig.ask(to, id, tool, args.clone()).await, 1);
        }
        self.kill(rng).await;
        let to = self.rig.hears(self.wire).await;
        let may_be_lost = self.wire != "claude";
        let open = self.wait_answered(&calls, may_be_lost).await;
        // hsafa replays nothing. A call that the bridge does not know is made the second time.
        for Drawn { id, tool, args } in calls.iter().filter(|call| open.contains(&call.id)) {
            self.tally.unheard += 1;
            self.rig.ask(to, id, tool, args.clone()).await;
        }
        self.wait_answered(&calls, false).await;
        self.rig.settled().await;
    }

    /// Waits until `calls` are answered; or, where they may be lost, those that were begun. Returns
    /// the others.
    async fn wait_answered(&self, calls: &[Drawn], may_be_lost: bool) -> Vec<String> {
        wait::until("the calls should be answered", ANSWERED_WITHIN, async || {
            let state = self.rig.state().await;
            let posts = state["posts"].as_array().expect("a list");
            let is_open =
                |id: &str| !posts.iter().any(|post| post["call"] == *id && post["status"] == 200);
            let ids = calls.iter().map(|call| call.id.clone());
            let open: Vec<String> = ids.filter(|id| is_open(id)).collect();
            let is_unheard = |id: &String| may_be_lost && self.rig.plain.begun(id) == 0;
            if open.is_empty() || !open.iter().all(is_unheard) {
                return open.is_empty().then_some(open);
            }
            let status = self.rig.bridge.status().await;
            (status["runtimes"][0]["openCalls"] == 0).then_some(open)
        })
        .await
    }

    /// What the runtime was told, by call, with the number of answers that it has taken.
    async fn judge(mut self) -> Tally {
        let state = self.rig.state().await;
        let mut bodies = BTreeMap::<String, Vec<String>>::new();
        for post in state["posts"].as_array().expect("a list") {
            let (id, body) = (post["call"].as_str().expect("a text").to_owned(), &post["body"]);
            if post["status"] == 200 {
                let said = [&body["result"], &body["result"]["error"], &body["content"][0]["text"]];
                let said = said.into_iter().find_map(Value::as_str).expect("a text").to_owned();
                self.answers.entry(id.clone()).or_default().push(said);
            } else {
                self.tally.repeated += 1;
            }
            bodies.entry(id).or_default().push(body.to_string());
        }
        let mut wrong = Vec::new();
        for (id, bodies) in bodies {
            if bodies.iter().any(|body| *body != bodies[0]) {
                wrong.push(format!("{id}: different answers were posted: {bodies:?}"));
            }
        }
        let ledger = self.rig.plain.entries();
        let of = |id: &str, step| {
            let entries = ledger.iter().filter(|it| it.tool_use == id && it.step == step);
            entries.map(|it| it.text.as_str()).collect::<Vec<_>>()
        };
        for (id, said) in &self.answers {
            let begun = of(id, Step::Begun).len();
            if begun > 1 {
                self.tally.doubled += 1;
                wrong.push(format!("{id}: made {begun} times"));
            }
            let [said] = said.as_slice() else {
                wrong.push(format!("{id}: {} answers were taken", said.len()));
                continue;
            };
            if said.contains("OUTCOME_UNKNOWN") {
                self.tally.unknown += 1;
                self.tally.needless += usize::from(begun == 0);
            } else if !of(id, Step::Done).contains(&said.as_str()) {
                wrong.push(format!("{id}: `{said}` was never done"));
            }
        }
        self.tally.unanswered = self.tally.calls - self.answers.len();
        let panicked = self.rig.bridge.log().lines().any(|line| line.contains("panicked"));
        assert!(
            !panicked && wrong.is_empty() && self.tally.unanswered == 0,
            "{wrong:#?} {}",
            self.tally
        );
        self.tally
    }
}
