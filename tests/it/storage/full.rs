//! A small disk that the journal fills, and one that is mounted read-only.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::effects::Effects;

use super::*;

/// How long a bridge may take to make calls after its disk has room.
const RECOVERY: Duration = Duration::from_secs(30);

/// A disk of its own, in the namespace of a shell.
struct SmallDisk {
    shell: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
    mount: TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let mount = TempDir::new().expect("the temporary directory is writable");
        let mut shell = Command::new("unshare");
        shell.args(["-rm", "sh"]).env("DISK", mount.path());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("unshare is installed");
        let lines = shell.stdin.take().expect("a pipe");
        let answers = BufReader::new(shell.stdout.take().expect("a pipe"));
        let mut disk = Self { shell, lines, answers, mount };
        disk.run(&format!("mount -t tmpfs -o size={size} tmpfs \"$DISK\""));
        disk
    }

    /// Runs a command where the disk is mounted.
    fn run(&mut self, command: &str) {
        writeln!(self.lines, "{command}; echo $?").expect("the shell lives");
        let mut status = String::new();
        self.answers.read_line(&mut status).expect("the shell lives");
        assert_eq!(status.trim(), "0", "{command}");
    }

    fn remount(&mut self, how: &str) {
        self.run(&format!("mount -o remount,{how} \"$DISK\""));
    }

    /// The disk as processes outside of the namespace reach it.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.shell.id(), self.mount.path().display()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.shell.kill().ok();
        self.shell.wait().ok();
    }
}

/// A bridge whose state is on a small disk.
async fn start_on(disk: &SmallDisk) -> EffectsHarness {
    let (mantyx, plain) = (Mantyx::start().await, Effects::new());
    let config = format!(
        "{}mcp:\n  plain: {}\nlocal:\n  big:\n    \
         command: [sh, -c, \"head -c 60000 /dev/zero | tr '\\\\0' x\"]\n",
        mantyx.upstream(),
        plain.server()
    );
    let bridge = Bridge::ready_with_state(&config, &disk.path()).await;
    bridge.wait_backend("plain", "ready").await;
    EffectsHarness { bridge, mantyx, plain }
}

#[tokio::test]
async fn journal_that_fills_its_disk_works_again_by_itself_and_loses_nothing() {
    let mut disk = SmallDisk::mount("1m");
    let mut rig = start_on(&disk).await;
    rig.begin_open_call("tu_open").await;
    // Some three times the disk, of which one call at a time is live.
    for number in 0..40 {
        let id = format!("tu_{number}");
        let pad = format!(r#"{{"pad":"{}"}}"#, "x".repeat(60_000));
        rig.mantyx.script(Script::one_call(&id, "plain", "plain_unsaid", &pad));
        rig.bridge.post_run(SPEC).await;
        let answer = rig.mantyx.taken(&id).await;
        assert!(answer["result"].is_string(), "{number}: {answer}");
    }
    // Answers that MANTYX does not take fill the rest of the disk with what is live.
    disk.run("head -c 500000 /dev/zero > \"$DISK/other\"");
    let ids: Vec<String> = (0..20).map(|number| format!("tu_big_{number}")).collect();
    ids.iter().for_each(|id| rig.mantyx.replies(id, [Reply::Status(503); 10_000]));
    let script = ids.iter().fold(Script::new(), |script, id| script.local(id, "big", NOTHING));
    rig.mantyx.script(script.until("never").done());
    rig.bridge.post_run(SPEC).await;
    let mut attempts = 0;
    wait::until("runs should be refused", Duration::from_secs(30), async || {
        attempts += 1;
        (rig.submit_call(&format!("tu_full_{attempts}")).await == 503).then_some(())
    })
    .await;
    let refused = format!("tu_full_{attempts}");
    let told = problems(&rig).await;
    assert!(told.iter().any(|(subject, _)| subject == "journal"), "{told:?}");
    rig.bridge.kill9();
    rig.bridge.wait_childless().await;
    rig.bridge.restart_without_disk().await;
    assert_unknown(&rig.mantyx.taken("tu_open").await);
    // MANTYX takes them.
    ids.iter().for_each(|id| rig.mantyx.replies(id, []));
    wait::soon("all answers should be taken", async || {
        ids.iter().all(|id| rig.mantyx.is_answered(id)).then_some(())
    })
    .await;
    rig.wait_calls_made("after", RECOVERY).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.wait_calls_made("restarted", RECOVERY).await;
    assert_eq!(["tu_open", &refused].map(|id| rig.plain.begun(id)), [1, 0]);
}

#[tokio::test]
async fn read_only_disk_prevents_no_start_and_is_used_once_it_can_be_written() {
    let mut disk = SmallDisk::mount("4m");
    let mut rig = start_on(&disk).await;
    rig.begin_open_call("tu_open").await;
    rig.bridge.kill9();
    rig.bridge.wait_childless().await;
    disk.remount("ro");
    rig.bridge.restart_without_disk().await;
    rig.bridge.wait_backend("plain", "ready").await;
    let told = problems(&rig).await;
    let mut of_journal = told.iter().filter(|(subject, _)| subject == "journal");
    assert!(of_journal.any(|(_, why)| why.contains("Read-only")), "{told:?}");
    assert_eq!(rig.submit_call("tu_refused").await, 503);
    let target = format!("{}/agent-runs", bridge::API);
    let refused = rig.bridge.api("POST", &target, Some(SPEC)).await.expect_error(503);
    assert_eq!(refused["code"], "not_ready");
    let by_hand = r#"{"toolUseId":"tu_hand","name":"big","args":{}}"#;
    let made = rig.bridge.api("POST", "/v1/tool-calls", Some(by_hand)).await.expect(200);
    assert!(made["result"].is_string(), "what needs no journal is made: {made}");
    disk.remount("rw");
    assert_unknown(&rig.mantyx.taken("tu_open").await);
    rig.wait_calls_made("after", RECOVERY).await;
    assert_eq!(["tu_open", "tu_refused"].map(|id| rig.plain.begun(id)), [1, 0]);
    assert!(!rig.bridge.log().contains("panicked"), "nothing panics over a read-only disk");
}
