//! The journal as the kernel sees it: what is written and synced before what, and what comes of
//! system calls that fail. Long tests, by strace, which has to be allowed to trace a process of
//! ours.
//!
//! Must not: run with the others; durable.rs and storage.rs hold the same rules without strace.

use std::{collections::HashSet, fs, process::Command, time::Duration};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{net::UnixDatagram, time::timeout};

use crate::{
    bridge::{self, Bridge},
    effects_harness::EffectsHarness,
    frames::Script,
    process::Group,
    systemd::told,
    wait,
};

/// A strace that is attached to the bridge.
struct Trace {
    strace: Group,
    dir: TempDir,
}

impl Trace {
    async fn attach(bridge: &mut Bridge, args: &[&str]) -> Self {
        let pid = bridge.process().pid().as_raw_nonzero().to_string();
        Self::attach_to(&pid, &[&["-f"], args].concat()).await
    }

    /// Without `-f`, to one thread alone.
    async fn attach_to(id: &str, args: &[&str]) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let mut command = Command::new("strace");
        command.args(["-yy", "-s", "1000000"]).args(args);
        command.arg("-o").arg(dir.path().join("trace")).arg("-p").arg(id);
        let mut strace = Group::spawn(&mut command, &dir.path().join("log"));
        wait::soon("strace should be attached (apt-get install strace)", async || {
            assert!(strace.exited().is_none(), "strace: {}", strace.log());
            strace.log().contains("attached").then_some(())
        })
        .await;
        Self { strace, dir }
    }

    /// Lets the bridge go, and gives the lines of what it did.
    async fn detach(mut self) -> Vec<String> {
        self.strace.signal(Signal::INT);
        self.strace.ended(Duration::from_secs(20)).await;
        let text = fs::read(self.dir.path().join("trace")).expect("strace writes its output");
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }
}

impl EffectsHarness {
    /// The journal's path.
    fn journal(&self) -> String {
        self.bridge.state("journal").display().to_string()
    }

    /// Makes one call in a run of its own, if the bridge takes the run; whether there was a result.
    /// There is one exactly if the call was made.
    async fn call(&self, id: &str) -> bool {
        self.mantyx.script_instead(Script::one_call(id, "plain", "plain_unsaid", "{}"));
        let target = format!("{}/agent-runs", bridge::API);
        let spec = r#"{"modelId":"m","prompt":"hi"}"#;
        if self.bridge.api("POST", &target, Some(spec)).await.status != 202 {
            assert_eq!(self.plain.begun(id), 0);
            return false;
        }
        let answer = self.mantyx.taken(id).await;
        let made = answer["result"].is_string();
        let refused = answer["error"].to_string().contains("bridge_storage_unavailable");
        assert!(made || refused, "{answer}");
        assert_eq!(self.plain.begun(id), usize::from(made), "{answer}");
        made
    }

    /// Calls are made again within 10 s.
    async fn recovers(&self, name: &str) {
        let mut attempts = 0;
        wait::until("calls should be made again", Duration::from_secs(10), async || {
            attempts += 1;
            self.call(&format!("tu_{name}_after_{attempts}")).await.then_some(())
        })
        .await;
    }
}

/// What is on the disk, as the trace goes on.
#[derive(Default)]
struct Disk {
    /// Written, and not yet synced.
    written: HashSet<String>,
    syncing: HashSet<String>,
    synced: HashSet<String>,
}

impl Disk {
    fn follow(&mut self, line: &str, journal: &str) {
        if line.contains("pwrite64(") && line.contains(journal) {
            self.written.extend(marks(line));
        }
        if line.contains("fdatasync(") && line.contains(journal) {
            self.syncing.extend(self.written.drain());
        }
        let ended = line.contains("fdatasync(") || line.contains("fdatasync resumed");
        if ended && line.ends_with("= 0") {
            self.synced.extend(self.syncing.drain());
        }
    }
}

/// The tool uses in a line of the trace, and the answers to them.
fn marks(line: &str) -> impl Iterator<Item = String> {
    line.match_indices("tu_").flat_map(|(at, _)| {
        let rest = line.get(at..).unwrap_or_default();
        let end = |extra: &[char]| {
            let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || extra.contains(&c);
            rest.find(|c| !part(c)).unwrap_or(rest.len())
        };
        let id = rest.get(..end(&[])).unwrap_or_default().to_owned();
        let answer = rest.get(..end(&[' ', '.'])).unwrap_or_default();
        let answer = answer.contains(" by ").then(|| answer.to_owned());
        [Some(id), answer].into_iter().flatten()
    })
}

#[tokio::test]
#[ignore = "needs strace"]
async fn every_record_is_synced_before_it_counts() {
    let mut rig = EffectsHarness::start(Some("concurrency: 16")).await;
    let calls = "trace=pwrite64,fdatasync,write,writev,sendto,sendmsg";
    let trace = Trace::attach(&mut rig.bridge, &["-e", calls]).await;
    for run in 0..10 {
        let ids: Vec<String> = (0..50).map(|call| format!("tu_{run}_{call}")).collect();
        let called = ids
            .iter()
            .fold(Script::new(), |script, id| script.mcp(id, "plain", "plain_unsaid", "{}"));
        rig.mantyx.script(ids.iter().fold(called, |script, id| script.answered(id)).done());
        rig.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
        for id in &ids {
            rig.mantyx.taken(id).await;
        }
    }
    let journal = rig.journal();
    let (mut disk, mut dispatched, mut posted) = (Disk::default(), HashSet::new(), 0);
    for line in trace.detach().await {
        disk.follow(&line, &journal);
        if line.contains("<pipe:[") && line.contains("tools/call") {
            for id in marks(&line) {
                assert!(disk.synced.contains(&id), "{id} was called before it was on disk: {line}");
                dispatched.insert(id);
            }
        }
        if line.contains("<TCP:[") && line.contains(r#"\"result\""#) {
            for answer in marks(&line).filter(|mark| mark.contains(" by ")) {
                assert!(disk.synced.contains(&answer), "`{answer}` was posted too soon: {line}");
                posted += 1;
            }
        }
    }
    assert_eq!((dispatched.len(), posted), (500, 500), "the trace has them all");
}

#[tokio::test]
#[ignore = "needs strace"]
async fn a_disk_that_fails_has_no_call_made_and_is_used_again() {
    let mut rig = EffectsHarness::start(Some("concurrency: 16")).await;
    let journal = rig.journal();
    for fault in ["pwrite64:error=ENOSPC", "fdatasync:error=EIO"] {
        let name = fault.split(':').next().unwrap_or_default();
        assert!(rig.call(&format!("tu_{name}_before")).await, "all is well");
        let inject = format!("inject={fault}:when=1+");
        let trace = Trace::attach(&mut rig.bridge, &["-P", &journal, "-e", &inject]).await;
        for n in 0..5 {
            assert!(!rig.call(&format!("tu_{name}_{n}")).await, "{fault}: nothing is on disk");
        }
        trace.detach().await;
        rig.recovers(name).await;
    }
}

#[tokio::test]
#[ignore = "needs strace"]
async fn a_disk_that_fails_once_leaves_a_journal_that_can_be_read() {
    let mut rig = EffectsHarness::start(Some("concurrency: 16")).await;
    let journal = rig.journal();
    for fault in ["pwrite64:error=ENOSPC", "fdatasync:error=EIO"] {
        let name = fault.split(':').next().unwrap_or_default();
        for when in 1..=20 {
            let inject = format!("inject={fault}:when={when}");
            let trace = Trace::attach(&mut rig.bridge, &["-P", &journal, "-e", &inject]).await;
            for n in 0..3 {
                rig.call(&format!("tu_{name}_{when}_{n}")).await;
            }
            let lines = trace.detach().await;
            assert!(when > 2 || lines.iter().any(|line| line.contains("INJECTED")), "{lines:?}");
            rig.bridge.kill9();
            rig.bridge.restart().await;
            rig.recovers(&format!("{name}_{when}")).await;
            let log = rig.bridge.log();
            assert!(!log.contains("panicked"), "{inject}: nothing panics");
            assert!(!log.contains(r#""aside""#), "{inject}: the journal is sound");
        }
    }
}

#[tokio::test]
#[ignore = "needs strace"]
async fn journal_that_hangs_keeps_the_bridge_from_telling_systemd_that_it_lives() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a new path");
    let notify = path.to_str().expect("a path of the tests is UTF-8");
    let env = [("NOTIFY_SOCKET", notify), ("WATCHDOG_USEC", "600000")];
    let config = "upstream: {sandbox: true}\nlocal: {now: {command: [date]}}\n";
    let mut bridge = Bridge::start_with(config, &env).await;
    told(&socket, "WATCHDOG=1").await;
    // The next write waits ten minutes for the disk.
    let hang = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=600000000"];
    let trace = Trace::attach(&mut bridge, &hang).await;
    let target = "/api/v1/workspaces/sandbox/agent-runs";
    let spec = r#"{"modelId":"m","systemPrompt":"s","prompt":"hi"}"#;
    let written = bridge.api("POST", target, Some(spec));
    let quiet = wait::soon("systemd should not be told for longer than the limit", async || {
        let mut told = [0; 4096];
        let next = timeout(Duration::from_secs(2), socket.recv(&mut told)).await;
        next.is_err().then_some(())
    });
    tokio::select! {
        told = written => panic!("nothing is on disk, and the answer came: {told:?}"),
        () = quiet => {}
    }
    bridge.api("GET", "/v1/status", None).await.expect(200);
    trace.detach().await;
    told(&socket, "WATCHDOG=1").await;
    bridge.stop().await;
}
