//! More than there is room for: calls to a backend that hangs, readers that do not read,
//! connections, descriptors. What is beyond is refused, others are served meanwhile, and afterwards
//! everything is as before.

use std::{fs, time::Duration};

use futures_util::future::join_all;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use tempfile::TempDir;
use tokio::{net::TcpStream, time::Instant};

use crate::{
    bridge::{API, Bridge, Submitted},
    frames::Script,
    harness::{Harness, ledger_in},
    http::{Answer, Connection, Request},
    mantyx::{Mantyx, Recorded},
    owners::token,
    peers, process,
    sse::{self, Stream},
    wait,
};

/// What the bridge may take in all. As it is built for the tests, it keeps to that, too.
const ROOM: u64 = 256 << 20;
const NOTE: &str = r#"{"text":"x"}"#;
/// The log line of a listener without descriptors.
const NOT_ACCEPTED: &str = "connections cannot be accepted";
/// A local tool that answers at once.
const OK: &str =
    "local:\n  ok: {description: d, parameters: {type: object}, command: [echo, hi]}\n";

/// The calls of `backend` that have ended so.
async fn ended(bridge: &Bridge, backend: &str, outcome: &str) -> usize {
    let series =
        format!(r#"mantyx_bridge_calls_total{{backend="{backend}",outcome="{outcome}"}} "#);
    counted(bridge, &series).await
}

/// What stands behind `series`, which is there.
async fn counted(bridge: &Bridge, series: &str) -> usize {
    let page = bridge.api("GET", "/metrics", None).await.text();
    let value = page.lines().find_map(|line| line.strip_prefix(series));
    let value: f64 = value.expect(series).trim().parse().expect("a number");
    // What is counted is whole and small.
    format!("{value:.0}").parse().expect("it is not negative")
}

async fn by_hand(bridge: &Bridge, id: &str, tool: &str) -> Answer {
    let call = format!(r#"{{"toolUseId":"{id}","name":"{tool}","args":{NOTE}}}"#);
    bridge.api("POST", "/v1/tool-calls", Some(&call)).await
}

/// A run whose events an app does not read: 24 MiB of them, and then a call of `other`.
struct Unread {
    run: Submitted,
    stream: Stream,
    last: u64,
}

impl Unread {
    /// It floods once `open` is released.
    async fn start(rig: &Harness) -> Self {
        let filler = "y".repeat(16 << 10);
        let script = (0..1500)
            .fold(Script::new().delta("first").until("open"), |script, _| script.delta(&filler));
        let script =
            script.mcp("tu_flood", "other", "other_note", NOTE).answered("tu_flood").done();
        let last = script.last_seq();
        let run = rig.run(script).await;
        let mut stream = Stream::open(&rig.bridge, &run.stream).await;
        stream.event().await.expect("the first event");
        Self { run, stream, last }
    }

    /// Its stream was closed, and goes on where it was.
    async fn read_on(mut self, bridge: &Bridge) {
        let (mut seen, stream) = (vec![1], &self.run.stream);
        seen.extend(sse::seqs(&self.stream.rest().await));
        assert!(seen.last() < Some(&self.last), "the log does not hold all of it");
        wait::until("the app should get to the end", Duration::from_secs(60), async || {
            let from = seen.last().copied().unwrap_or(0);
            seen.extend(sse::seqs(&Stream::resume(bridge, stream, from).await.rest().await));
            (seen.last() == Some(&self.last)).then_some(())
        })
        .await;
        assert_eq!(seen, (1..=self.last).collect::<Vec<_>>(), "no gap and no repetition");
    }
}

/// 500 calls of runs, of which 4 reach the program and 32 wait.
const RUNS: usize = 10;
const CALLS: usize = 50;
const REFUSED: usize = RUNS * CALLS - 4 - 32;

/// Waits until those that are beyond the line are answered.
async fn wait_refused(rig: &Harness) {
    wait::until("what is beyond the line should be refused", Duration::from_secs(60), async || {
        (ended(&rig.bridge, "plain", "busy").await == REFUSED).then_some(())
    })
    .await;
    let posts = wait::until("and answered", Duration::from_secs(60), async || {
        let mut posts = rig.mantyx.requests("POST", "/tool-results");
        posts.retain(|post| post.value()["toolUseId"] != "tu_flood");
        (posts.len() >= REFUSED).then_some(posts)
    })
    .await;
    assert_eq!(posts.len(), REFUSED, "once each");
    for post in posts.iter().map(Recorded::value) {
        let error = post["error"].as_str().unwrap_or_else(|| panic!("{post}"));
        assert!(error.starts_with("`plain` is busy") && error.contains("not made"), "{error}");
    }
    assert_eq!(rig.executions().len(), 4, "no more has reached the server");
}

/// Others are served, and whoever asks by hand for what hangs is told so at once.
async fn others_are_made(rig: &Harness) {
    let (bridge, begun) = (&rig.bridge, Instant::now());
    let others = async {
        for n in 0..20 {
            let id = format!("tu_o{n}");
            rig.run(Script::one_call(&id, "other", "other_note", NOTE)).await;
            assert_eq!(rig.mantyx.answer(&id).await["result"], "noted: x");
            assert_eq!(by_hand(bridge, &id, "ok").await.expect(200)["result"], "hi");
        }
    };
    let asked = async |n| by_hand(bridge, &format!("tu_h{n}"), "plain_note").await;
    let (refused, ()) = tokio::join!(join_all((0..20).map(asked)), others);
    assert!(begun.elapsed() < Duration::from_secs(60), "long before what waits gives up");
    for answer in refused {
        assert_eq!(answer.expect_error(503)["error"], "busy");
        assert_eq!(answer.header("retry-after"), Some("3"));
    }
}

/// A19: `plain` hangs with 500 calls of runs, and more by hand. Those beyond its line are refused,
/// the other backends answer as ever, a reader that reads nothing is closed, and when the runs are
/// over, all is as before.
#[tokio::test]
async fn calls_to_a_backend_that_hangs_are_refused_and_others_are_made() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let other = peers::ledger(&ledger_in(&dir), &[]);
    let mut rig = Harness::with(&format!("  other: {other}\n"), &[], OK).await;
    rig.bridge.wait_backend("other", "ready").await;
    let unread = Unread::start(&rig).await;
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let script = (0..CALLS).fold(Script::new(), |script, n| {
            script.mcp(&format!("tu_{run}_{n}"), "plain", "plain_hang", "{}")
        });
        runs.push(rig.run(script.until("never")).await);
    }
    rig.mantyx.release("open");
    wait_refused(&rig).await;
    others_are_made(&rig).await;
    unread.read_on(&rig.bridge).await;

    // Nobody wants the calls any more.
    for run in runs {
        let cancel = format!("{API}/agent-runs/{}/cancel", run.run_id);
        rig.bridge.api("POST", &cancel, None).await.expect(200);
    }
    wait::soon("the calls should end with their runs", async || {
        (rig.bridge.backend("plain").await["callsInFlight"] == 0).then_some(())
    })
    .await;
    let answer = by_hand(&rig.bridge, "tu_after", "plain_note").await.expect(200);
    assert_eq!(answer["result"], "noted: x", "it takes calls again");
    assert_eq!(ended(&rig.bridge, "plain", "cancelled").await, 4 + 32);
    assert_eq!(ended(&rig.bridge, "plain", "busy").await, REFUSED + 20);
    assert_eq!(ended(&rig.bridge, "other", "result").await, 21);
    let most = process::most_resident(rig.bridge.process().pid());
    assert!(most <= ROOM, "it took {} MiB", most >> 20);
}

/// Lets this process have as many descriptors as the system allows.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("it may grow");
}

/// A19: an app streams as many runs as there are places. Whoever comes then is told to come back,
/// whoever watches over the bridge is answered, and a stream that ends makes room.
#[tokio::test]
async fn connection_beyond_the_limit_is_told_so() {
    more_descriptors();
    let mantyx = Mantyx::start().await;
    let mut bridge = Bridge::start_confined(&format!("{}{OK}", mantyx.upstream())).await;
    mantyx.script(Script::new().delta("first").until("never"));
    let run = bridge.post_run(r#"{"prompt":"x"}"#).await;
    let mut streams = Vec::new();
    while streams.len() < 1024 {
        let mut stream = Stream::open(&bridge, &run.stream).await;
        stream.event().await.expect("the first event");
        streams.push(stream);
    }
    for _ in 0..40 {
        let answer = bridge.api("GET", "/v1/status", None).await;
        assert_eq!(answer.expect_error(503)["error"], "too_many_connections");
        assert_eq!(
            (answer.header("retry-after"), answer.header("connection")),
            (Some("1"), Some("close"))
        );
        Request::new("GET", "/healthz").answer(bridge.addr()).await.expect(200);
    }
    // Those who say nothing keep nobody from being told.
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(bridge.addr()).await.expect("it listens"));
    }
    Request::new("GET", "/readyz").answer(bridge.addr()).await.expect(200);
    drop(silent);
    streams.truncate(512);
    wait::soon("what ends should make room", async || {
        (bridge.api("GET", "/v1/status", None).await.status == 200).then_some(())
    })
    .await;
    let refused = r#"mantyx_bridge_refused_requests_total{code="too_many_connections"} "#;
    assert!(counted(&bridge, refused).await >= 40);
    assert_eq!(by_hand(&bridge, "tu_1", "ok").await.expect(200)["result"], "hi");
    drop(streams);
    let open = r#"mantyx_bridge_connections_open{listener="tcp"} "#;
    wait::soon("no connection should be left but the one that asks", async || {
        (counted(&bridge, open).await == 1).then_some(())
    })
    .await;
    let most = process::most_resident(bridge.process().pid());
    assert!(most <= ROOM, "it took {} MiB", most >> 20);
}

#[tokio::test]
async fn app_with_many_open_streams_leaves_connections_to_the_others() {
    more_descriptors();
    let config = format!(
        "upstream: {{sandbox: true}}\napps:\n  a: {{token: {}}}\n  b: {{token: {}}}\n",
        token("a"),
        token("b")
    );
    let bridge = Bridge::start(&config).await;
    let events = Request::new("GET", "/v1/events").bearer(&token("a"));
    let mut open = Vec::new();
    for _ in 0..600 {
        open.push(events.clone().send(bridge.addr()).await);
    }
    let refused = open.iter().filter(|stream| stream.status == 503).count();
    assert!((80..=100).contains(&refused), "half of the 1,024 connections: {refused} of 600");
    let status = Request::new("GET", "/v1/status").bearer(&token("b"));
    status.answer(bridge.addr()).await.expect(200);
    open.truncate(100);
    wait::soon("the app should have streams again", async || {
        (events.clone().send(bridge.addr()).await.status == 200).then_some(())
    })
    .await;
}

/// The ticks of a second, which Linux has been telling programs since 2.6: USER_HZ.
const TICKS: u64 = 100;

/// The processor time that a process has taken.
fn busy(pid: Pid) -> Duration {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let text = fs::read_to_string(path).expect("the process should be alive");
    // Behind the name, which may hold anything, in ticks: fields 14 and 15 of proc_pid_stat(5).
    let (_, rest) = text.rsplit_once(')').expect("a name in brackets");
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS)
}

/// A26: without a descriptor for the next connection, the bridge waits and does not spin; once some
/// are free, it serves.
#[tokio::test]
async fn daemon_without_descriptors_waits_and_then_serves_again() {
    let mantyx = Mantyx::start().await;
    let mut bridge = Bridge::ready(&mantyx.upstream()).await;
    let pid = bridge.process().pid();
    let held = || fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("ours").count();
    // Requests whose bodies are still to come: none of them can be cut to make room.
    let head = format!(
        "POST /v1/specs/inject HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{",
        bridge.addr(),
        bridge.token()
    );
    let room = u64::try_from(held() + 8).expect("few");
    let limit = Rlimit { current: Some(room), ..getrlimit(Resource::Nofile) };
    prlimit(Some(pid), Resource::Nofile, limit).expect("a process of ours");
    let mut waiting = Vec::new();
    for _ in 0..24 {
        let mut connection = Connection::open(bridge.addr()).await;
        connection.write(head.as_bytes()).await;
        waiting.push(connection);
    }
    wait::soon("it should run out of descriptors", async || {
        bridge.log().contains(NOT_ACCEPTED).then_some(())
    })
    .await;
    let (begun, before) = (Instant::now(), busy(pid));
    wait::until("some time should pass", Duration::from_secs(20), async || {
        (begun.elapsed() > Duration::from_secs(3)).then_some(())
    })
    .await;
    let (took, of) = (busy(pid) - before, begun.elapsed());
    assert!(took < of / 5, "{took:?} of {of:?}: it spins");

    drop(waiting);
    let answer = Request::new("GET", "/healthz").answer(bridge.addr()).await;
    answer.expect(200);
    bridge.status().await;
    let told = bridge.log().matches(NOT_ACCEPTED).count();
    assert_eq!(told, 1, "however often it was tried");
}
