//! What a bridge that was killed does about each call when it starts again, by how far the call was
//! and what its tool and its peer allow.
//!
//! Must not: kill at random (crash.rs does): here every kill comes at a known stage.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bridge::{Bridge, Submitted},
    effects::{Effects, Kind},
    frames::Script,
    harness,
    mantyx::{Mantyx, Reply},
    peers::{self, Peer},
    sse, wait,
};

const NOTE: &str = r#"{"text":"x"}"#;
const NOTHING: &str = "{}";
const HANG: &str = r#"{"hang":"always"}"#;
const HANG_FIRST: &str = r#"{"hang":"first"}"#;

/// A bridge with a server `sure` that is trusted and a server `plain` that is not.
struct Harness {
    bridge: Bridge,
    mantyx: Mantyx,
    sure: Effects,
    plain: Effects,
}

impl Harness {
    /// `lanes` calls at once to each server; `rest` is added to the configuration.
    async fn start(lanes: usize, rest: &str) -> Self {
        let (mantyx, sure, plain) = (Mantyx::start().await, Effects::new(), Effects::new());
        let lanes = format!("concurrency: {lanes}");
        let servers = [sure.trusted_server(), plain.server()];
        let [first, second] = servers.map(|server| peers::with(&server, &lanes));
        let upstream = mantyx.upstream();
        let config = format!("{upstream}mcp:\n  sure: {first}\n  plain: {second}\n{rest}");
        let bridge = Bridge::ready(&config).await;
        for name in ["sure", "plain"] {
            bridge.wait_backend(name, "ready").await;
        }
        Self { bridge, mantyx, sure, plain }
    }

    async fn run(&self, script: Script) -> Submitted {
        self.mantyx.script(script);
        self.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await
    }

    /// Starts a call to `plain` that never ends and one that waits for the turn of the first, and
    /// kills the bridge.
    async fn kill_with_one_waiting(&mut self, script: impl FnOnce(Script) -> Script) -> Submitted {
        let calls = Script::new()
            .mcp("tu_first", "plain", "plain_unsaid", HANG)
            .until("the first has begun")
            .mcp("tu_waiting", "plain", "plain_unsaid", NOTHING);
        let run = self.run(script(calls)).await;
        self.plain.wait_begun("tu_first", 1).await;
        self.mantyx.release("the first has begun");
        wait::soon("the second call should wait in line", async || {
            (self.bridge.backend("plain").await["callsInFlight"] == 2).then_some(())
        })
        .await;
        wait_journaled(&self.bridge, "tu_waiting").await;
        self.bridge.kill9();
        run
    }
}

#[track_caller]
fn assert_unknown(answer: &Value, what: &str) {
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("{what}: {answer}"));
    assert!(error.contains("OUTCOME_UNKNOWN"), "{what}: its effect is unknown: {error}");
    assert!(error.contains("heck"), "{what}: the model is to check before it repeats: {error}");
}

/// Waits until `agent` has begun a task; its id.
pub(crate) async fn begun_task(agent: &Peer) -> String {
    wait::soon("the agent should begin a task", async || {
        agent.log().lines().find_map(|line| Some(line.strip_prefix("TASK ")?.to_owned()))
    })
    .await
}

/// Waits until the journal holds `text`.
pub(crate) async fn wait_journaled(bridge: &Bridge, text: &str) {
    wait::soon(&format!("the journal should hold {text}"), async || {
        let bytes = fs::read(bridge.state("journal")).ok()?;
        bytes.windows(text.len()).any(|window| window == text.as_bytes()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_that_was_made_is_made_again_only_where_that_does_no_harm() {
    let mut rig = Harness::start(16, "").await;
    struct Cell {
        server: &'static str,
        kind: Kind,
        id: String,
    }
    let mut cells = Vec::new();
    for server in ["sure", "plain"] {
        for kind in Kind::ALL {
            cells.push(Cell { server, kind, id: format!("tu_{server}_{}", kind.tool()) });
        }
    }
    let called = cells.iter().fold(Script::new(), |script, Cell { server, kind, id }| {
        script.mcp(id, server, &format!("{server}_{}", kind.tool()), HANG_FIRST)
    });
    let script = cells.iter().fold(called, |script, cell| script.answered(&cell.id));
    rig.run(script.done()).await;
    let effects = |rig: &Harness, server: &str, id: &str| {
        [&rig.plain, &rig.sure][usize::from(server == "sure")].begun(id)
    };
    for Cell { server, id, .. } in &cells {
        wait::soon(&format!("{id} should reach its server"), async || {
            (effects(&rig, server, id) == 1).then_some(())
        })
        .await;
    }
    rig.bridge.kill9();
    rig.bridge.restart().await;
    for Cell { server, kind, id } in &cells {
        let answer = rig.mantyx.taken(id).await;
        let again = *server == "sure" && kind.is_harmless();
        if again {
            let result = answer["result"].as_str().unwrap_or_else(|| panic!("{id}: {answer}"));
            assert!(result.contains(id.as_str()), "the answer of the second time: {result}");
        } else {
            assert_unknown(&answer, id);
        }
        assert_eq!(effects(&rig, server, id), 1 + usize::from(again), "{id}");
    }
}

#[tokio::test]
async fn a_local_tool_is_run_again_where_it_only_reads() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let tool = |name: &str, keys: &str| {
        let path = dir.path().join(name).display().to_string();
        // Ends at the second time only.
        let script =
            format!("echo . >> {path}; [ $(wc -l < {path}) -gt 1 ] || exec sleep 600; echo {name}");
        format!(
            "  {name}: {{description: x, parameters: {{type: object}}, {keys}command: [sh, -c, '{script}']}}\n"
        )
    };
    let local = format!("local:\n{}{}", tool("peek", "readOnly: true, "), tool("poke", ""));
    let mantyx = Mantyx::start().await;
    let mut bridge = Bridge::ready(&format!("{}{local}", mantyx.upstream())).await;
    let script = Script::new().local("tu_peek", "peek", NOTHING).local("tu_poke", "poke", NOTHING);
    mantyx.script(script.answered("tu_peek").answered("tu_poke").done());
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    let runs = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default().len() / 2;
    wait::soon("both programs should run", async || {
        (runs("peek") == 1 && runs("poke") == 1).then_some(())
    })
    .await;
    bridge.kill9();
    bridge.restart().await;
    assert_eq!(mantyx.taken("tu_peek").await["result"], "peek");
    assert_unknown(&mantyx.taken("tu_poke").await, "poke");
    assert_eq!((runs("peek"), runs("poke")), (2, 1));
}

#[tokio::test]
async fn a_call_is_not_made_again_where_its_tool_is_not_marked_any_more() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("made").display().to_string();
    let tool = |script: &str| {
        format!(
            "local:\n  peek: {{description: x, parameters: {{type: object}}, readOnly: true, command: \
             [sh, -c, 'echo . >> {path}; {script}']}}\n"
        )
    };
    let made = || fs::read_to_string(&path).unwrap_or_default().len() / 2;
    struct Case {
        id: &'static str,
        from: &'static str,
        with: &'static str,
    }
    for Case { id, from, with } in [
        Case { id: "tu_mark", from: "readOnly: true, ", with: "" },
        Case { id: "tu_program", from: "exec sleep 600", with: "exec sleep 601" },
    ] {
        let mantyx = Mantyx::start().await;
        let config = format!("{}{}", mantyx.upstream(), tool("exec sleep 600"));
        let mut bridge = Bridge::ready(&config).await;
        mantyx.script(Script::new().local(id, "peek", NOTHING).answered(id).done());
        let before = made();
        bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
        wait::soon("the program should run", async || (made() == before + 1).then_some(())).await;
        bridge.kill9();
        bridge.change_config(from, with);
        bridge.restart().await;
        assert_unknown(&mantyx.taken(id).await, id);
        assert_eq!(made(), before + 1, "{id}");
    }
}

#[tokio::test]
async fn a_killed_bridge_takes_up_its_runs() {
    let mut rig = Harness::start(4, "").await;
    let script = Script::new()
        .mcp("tu_done", "plain", "plain_unsaid", NOTHING)
        .answered("tu_done")
        .mcp("tu_open", "plain", "plain_unsaid", HANG)
        .answered("tu_open")
        .mcp("tu_next", "plain", "plain_unsaid", NOTHING)
        .answered("tu_next")
        .done();
    let run = rig.run(script).await;
    rig.plain.wait_begun("tu_open", 1).await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    assert_unknown(&rig.mantyx.taken("tu_open").await, "the call that was cut off");
    assert!(rig.mantyx.taken("tu_next").await["result"].is_string(), "the run goes on");
    rig.mantyx.taken("tu_done").await;
    for id in ["tu_done", "tu_open", "tu_next"] {
        assert_eq!(rig.plain.begun(id), 1, "{id}");
    }
    let frames = sse::whole(&rig.bridge, &run.stream).await;
    assert_eq!(sse::seqs(&frames), (1..=7).collect::<Vec<_>>(), "an app can read it all");
}

#[tokio::test]
async fn a_result_that_was_not_taken_is_posted_again_as_it_was() {
    let mut rig = harness::Harness::start().await;
    rig.mantyx.replies("tu_1", [Reply::Reset; 50]);
    rig.run(Script::one_call("tu_1", "plain", "plain_note", NOTE)).await;
    rig.mantyx.wait_posts("tu_1", 2).await;
    rig.bridge.kill9();
    rig.mantyx.replies("tu_1", []);
    let before = rig.mantyx.posts("tu_1").len();
    rig.bridge.restart().await;
    let posts = rig.mantyx.wait_posts("tu_1", before + 1).await;
    let first = posts.first().map(|post| post.body.clone());
    assert!(posts.iter().all(|post| Some(&post.body) == first.as_ref()), "the stored bytes");
    assert_eq!(rig.executions().len(), 1, "a stored result is not made again");
}

#[tokio::test]
async fn an_old_id_with_other_arguments_is_known_after_a_crash() {
    let mut rig = Harness::start(4, "").await;
    let script = Script::new()
        .mcp("tu_1", "plain", "plain_unsaid", NOTHING)
        .answered("tu_1")
        .until("the bridge is up again")
        .mcp("tu_1", "plain", "plain_unsaid", r#"{"ms":1}"#)
        .mcp("tu_2", "plain", "plain_unsaid", NOTHING)
        .answered("tu_2")
        .done();
    rig.run(script).await;
    rig.mantyx.taken("tu_1").await;
    rig.bridge.kill9();
    rig.bridge.restart().await;
    rig.mantyx.release("the bridge is up again");
    assert!(rig.mantyx.taken("tu_2").await["result"].is_string(), "the run goes on");
    assert_eq!(rig.plain.begun("tu_1"), 1, "the same id is the same call");
    assert!(rig.bridge.log().contains("another content"), "and the operator hears of it");
}

#[tokio::test]
async fn a_call_that_waited_for_its_turn_is_made() {
    let mut rig = Harness::start(1, "").await;
    rig.kill_with_one_waiting(|calls| calls.answered("tu_first").answered("tu_waiting").done())
        .await;
    assert_eq!(rig.plain.begun("tu_waiting"), 0, "it waits for the first");
    rig.bridge.restart().await;
    assert_unknown(&rig.mantyx.taken("tu_first").await, "the call that was cut off");
    let answer = rig.mantyx.taken("tu_waiting").await;
    assert!(answer["result"].is_string(), "it had not begun, so it is made: {answer}");
    assert_eq!(rig.plain.begun("tu_waiting"), 1);
}

/// Kills the bridge with a call that has not begun, and starts it with its clock moved by
/// `seconds`; if `booted`, on a machine that was booted meanwhile.
async fn start_at_another_time(seconds: &str, booted: bool) -> Harness {
    let mut rig = Harness::start(1, "").await;
    rig.kill_with_one_waiting(|calls| calls.answered("tu_first").answered("tu_waiting").done())
        .await;
    let clock = peers::clock();
    let clock = clock.to_str().expect("a path of the tests is UTF-8");
    let boot = rig.bridge.state("boot");
    fs::write(&boot, "6f1d1c5e-0000-4000-8000-000000000000\n").expect("a directory of ours");
    let boot = boot.to_str().expect("a path of the tests is UTF-8");
    let env = [("LD_PRELOAD", clock), ("CLOCK_MOVED_BY", seconds), ("BOOT_ID", boot)];
    rig.bridge.set_env(if booted { &env } else { &env[..2] });
    rig.bridge.restart().await;
    assert_unknown(&rig.mantyx.taken("tu_first").await, "the call that was cut off");
    rig
}

#[tokio::test]
async fn a_call_whose_time_ran_out_meanwhile_is_not_made() {
    // MANTYX waits 300 s, and a call is not begun with less than 10 s left.
    let rig = start_at_another_time("295", true).await;
    assert_too_late(&rig).await;
}

/// Whether there is time left, nobody can tell: the machine was booted, and its clock put back.
#[tokio::test]
async fn a_call_is_not_made_where_nobody_knows_how_long_it_waited() {
    let rig = start_at_another_time("-3600", true).await;
    assert_too_late(&rig).await;
}

async fn assert_too_late(rig: &Harness) {
    let answer = rig.mantyx.taken("tu_waiting").await;
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("too late: {answer}"));
    assert!(!error.contains("OUTCOME_UNKNOWN"), "it is known that nothing happened: {error}");
    assert_eq!(rig.plain.begun("tu_waiting"), 0);
}

#[tokio::test]
async fn a_clock_that_is_moved_without_a_boot_changes_nothing() {
    for seconds in ["-3600", "3600"] {
        let rig = start_at_another_time(seconds, false).await;
        let answer = rig.mantyx.taken("tu_waiting").await;
        assert!(answer["result"].is_string(), "it is made, {seconds} s away: {answer}");
    }
}

#[tokio::test]
async fn a_call_that_was_answered_meanwhile_is_not_made() {
    let mut rig = Harness::start(1, "").await;
    let answer = |id: &str| format!(r#"{{"toolUseId":"{id}","error":"timed out"}}"#);
    rig.kill_with_one_waiting(|calls| {
        calls
            .until("MANTYX gives the calls up")
            .event("local_tool_result_in", &answer("tu_first"))
            .event("local_tool_result_in", &answer("tu_waiting"))
            .mcp("tu_next", "plain", "plain_unsaid", NOTHING)
            .answered("tu_next")
            .done()
    })
    .await;
    rig.mantyx.release("MANTYX gives the calls up");
    rig.bridge.restart().await;
    assert!(rig.mantyx.taken("tu_next").await["result"].is_string(), "the run goes on");
    assert_eq!(rig.plain.begun("tu_waiting"), 0, "nobody waits for it any more");
    assert!(!rig.mantyx.is_answered("tu_waiting"), "and nobody is told of it");
}

#[tokio::test]
async fn a_run_that_ended_meanwhile_has_no_more_calls() {
    let mut rig = Harness::start(1, "").await;
    let run = rig
        .kill_with_one_waiting(|calls| calls.until("cancelled").event("cancelled", NOTHING))
        .await;
    rig.mantyx.release("cancelled");
    rig.bridge.restart().await;
    wait::soon("the run should have ended", async || {
        let answer = rig.bridge.api("GET", &format!("/v1/runs/{}", run.run_id), None).await;
        (answer.status == 200 && answer.expect(200)["state"] == "ended").then_some(())
    })
    .await;
    wait::soon("its calls, too", async || {
        (rig.bridge.backend("plain").await["callsInFlight"] == 0).then_some(())
    })
    .await;
    assert_eq!(rig.plain.begun("tu_waiting"), 0);
}

#[tokio::test]
async fn a_second_crash_changes_nothing() {
    let mut rig = Harness::start(4, "").await;
    let called = Script::new().mcp("tu_sure", "sure", "sure_read", HANG).mcp(
        "tu_plain",
        "plain",
        "plain_read",
        HANG,
    );
    rig.mantyx.replies("tu_plain", [Reply::Status(503); 50]);
    rig.run(called.answered("tu_sure").answered("tu_plain").done()).await;
    rig.sure.wait_begun("tu_sure", 1).await;
    rig.plain.wait_begun("tu_plain", 1).await;
    for _ in 0..2 {
        rig.bridge.kill9();
        rig.bridge.restart().await;
        let posts = rig.mantyx.posts("tu_plain").len();
        rig.mantyx.wait_posts("tu_plain", posts + 1).await;
        rig.sure.wait_begun("tu_sure", 2).await;
    }
    rig.mantyx.replies("tu_plain", []);
    assert_unknown(&rig.mantyx.taken("tu_sure").await, "made twice, and then never again");
    assert_eq!(rig.sure.begun("tu_sure"), 2);
    assert_unknown(&rig.mantyx.taken("tu_plain").await, "one answer, whatever happens");
    assert_eq!(rig.plain.begun("tu_plain"), 1);
}

/// A bridge with one agent.
pub(crate) async fn with_agent(card: &str, agent: &Peer) -> (Bridge, Mantyx) {
    let mantyx = Mantyx::start().await;
    let config = format!("{}a2a:\n  hr: {{url: \"{}\"}}\n", mantyx.upstream(), agent.url());
    let bridge = Bridge::ready(&config).await;
    let ready = bridge.wait_backend("hr", "ready").await;
    assert_eq!(ready["protocolVersion"], card, "{ready}");
    (bridge, mantyx)
}

/// How often the agent was sent a message.
pub(crate) fn messages(agent: &Peer) -> usize {
    agent.log().lines().filter(|line| line.starts_with("MESSAGE ")).count()
}

/// A task that the agent has named is asked for after the crash, however its first reply came.
async fn check_task(message: &str, expected: &str) {
    let agent = peers::a2a_v1("1.0").await;
    let (mut bridge, mantyx) = with_agent("1.0", &agent).await;
    mantyx.script(Script::new().a2a("tu_1", "hr", message).answered("tu_1").done());
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    let task = begun_task(&agent).await;
    wait_journaled(&bridge, &task).await;
    bridge.kill9();
    bridge.restart().await;
    assert_eq!(mantyx.taken("tu_1").await["result"], expected, "the task's own result");
    assert_eq!(messages(&agent), 1, "the message is sent once: {}", agent.log());
    assert!(!agent.log().contains("CANCELLED"), "a crash cancels nothing: {}", agent.log());
}

#[tokio::test]
async fn the_task_of_an_agent_is_picked_up() {
    check_task("long 40", "worked 40").await;
}

#[tokio::test]
async fn the_task_of_an_agent_that_answered_early_is_picked_up() {
    check_task("early 40", "worked 40").await;
}

/// The name of a backend leads to another address after the restart. The bridge cannot tell whether
/// that is the same agent, so it asks for no task there.
#[tokio::test]
async fn a_task_is_not_asked_of_another_agent_of_the_name() {
    let agent = peers::a2a_v1("1.0").await;
    let (mut bridge, mantyx) = with_agent("1.0", &agent).await;
    mantyx.script(Script::new().a2a("tu_1", "hr", "long 40").answered("tu_1").done());
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    wait_journaled(&bridge, &begun_task(&agent).await).await;
    bridge.kill9();
    let url = agent.url().replace("127.0.0.1", "localhost");
    bridge.set_config(&format!("{}a2a:\n  hr: {{url: \"{url}\"}}\n", mantyx.upstream()));
    bridge.restart().await;
    let answer = mantyx.taken("tu_1").await;
    assert_unknown(&answer, "the task of an earlier agent");
    assert_eq!(messages(&agent), 1, "nothing is sent again: {}", agent.log());
}

#[tokio::test]
async fn a_message_that_an_agent_has_and_has_not_answered_is_not_sent_again() {
    let agent = peers::a2a_v1("1.0").await;
    let (mut bridge, mantyx) = with_agent("1.0", &agent).await;
    mantyx.script(Script::new().a2a("tu_1", "hr", "mute").answered("tu_1").done());
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    wait::soon("the agent should have the message", async || (messages(&agent) == 1).then_some(()))
        .await;
    bridge.kill9();
    bridge.restart().await;
    assert_unknown(&mantyx.taken("tu_1").await, "a message without a task");
    assert_eq!(messages(&agent), 1, "{}", agent.log());
}
