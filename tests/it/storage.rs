//! A disk that fails: no call is made that is not written down, whatever else goes on; and a
//! journal that is damaged costs its runs and nothing more.
//!
//! Must not: fill the disk that the tests run on. A limit on the size of files fails the bridge's
//! writes just so.

mod displaced;
mod full;

use std::{fs, process::Stdio, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bridge::{self, Bridge},
    effects_harness::EffectsHarness,
    frames::Script,
    http::Request,
    mantyx::{Mantyx, Reply},
    owners::token,
    recovery::wait_journaled,
    wait,
};

const NOTHING: &str = "{}";

impl EffectsHarness {
    /// The status of the answer to a run that is submitted with one call.
    async fn submit_call(&self, id: &str) -> u16 {
        self.mantyx.script_instead(Script::one_call(id, "plain", "plain_unsaid", NOTHING));
        let target = format!("{}/agent-runs", bridge::API);
        self.bridge.api("POST", &target, Some(r#"{"modelId":"m","prompt":"hi"}"#)).await.status
    }

    /// Waits until a run is accepted and its call is made; the calls are named after `name`.
    async fn wait_calls_made(&self, name: &str, within: Duration) {
        let mut attempts = 0;
        wait::until("calls should be made", within, async || {
            attempts += 1;
            let id = format!("tu_{name}_{attempts}");
            if self.submit_call(&id).await != 202 {
                return None;
            }
            self.mantyx.taken(&id).await["result"].is_string().then_some(())
        })
        .await;
    }

    /// Has a run make a call that does not end, and waits until it has reached its tool; the run's
    /// id.
    async fn begin_open_call(&self, id: &str) -> String {
        let hangs = r#"{"hang":"always"}"#;
        self.mantyx.script(Script::one_call(id, "plain", "plain_destructive", hangs));
        let run = self.bridge.post_run(SPEC).await.run_id;
        self.plain.wait_begun(id, 1).await;
        run
    }
}

/// Lets the process write no file from `bytes` on; `None` lifts that.
pub(crate) fn limit_files(pid: Pid, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(pid), Resource::Fsize, limit).expect("a process of ours");
}

#[tokio::test]
async fn no_call_is_made_that_cannot_be_written_down() {
    let mut rig = EffectsHarness::start(None).await;
    let script = Script::new()
        .mcp("tu_before", "plain", "plain_unsaid", NOTHING)
        .answered("tu_before")
        .until("the disk is full")
        .mcp("tu_full", "plain", "plain_unsaid", NOTHING)
        .answered("tu_full")
        .done();
    rig.mantyx.script(script);
    rig.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    assert!(rig.mantyx.taken("tu_before").await["result"].is_string());

    let pid = rig.bridge.process().pid();
    limit_files(pid, Some(0));
    rig.mantyx.release("the disk is full");
    let answer = rig.mantyx.taken("tu_full").await;
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("it cannot be made: {answer}"));
    assert!(error.contains("bridge_storage_unavailable"), "{error}");
    assert_eq!(rig.plain.begun("tu_full"), 0, "nothing is made that is not written down");
    // The rest goes on.
    rig.bridge.api("GET", "/healthz", None).await.expect(200);
    rig.bridge.status().await;
    let target = format!("{}/agent-runs?limit=1", bridge::API);
    rig.bridge.api("GET", &target, None).await.expect(200);

    limit_files(pid, None);
    rig.wait_calls_made("after", Duration::from_secs(10)).await;
    assert!(!rig.bridge.log().contains("panicked"), "nothing panics over a full disk");
}

const SPEC: &str = r#"{"modelId":"m","prompt":"hi"}"#;

/// A restart would lose it, and leave its calls without answers.
#[tokio::test]
async fn a_run_that_comes_while_the_disk_is_full_is_refused() {
    let mut rig = EffectsHarness::start(None).await;
    let apart = Script::one_call("tu_apart", "plain", "plain_unsaid", NOTHING);
    rig.mantyx.has_run("run_apart", apart);
    limit_files(rig.bridge.process().pid(), Some(0));
    assert_eq!(rig.submit_call("tu_1").await, 503, "the first write shows that the disk fails");
    assert_eq!(rig.mantyx.requests("POST", "/cancel").len(), 1, "MANTYX had it already");
    assert_eq!(rig.submit_call("tu_2").await, 503);
    assert_eq!(rig.mantyx.requests("POST", "/agent-runs").len(), 1, "the second never gets there");
    let submit = |target: &str| rig.bridge.request("POST", target).json(SPEC);
    let [runs, sessions] =
        ["agent-runs", "agent-sessions"].map(|it| format!("{}/{it}", bridge::API));
    for target in [&runs, &sessions] {
        let refused = submit(target).answer(rig.bridge.addr()).await;
        assert_eq!(refused.header("retry-after"), Some("5"));
        let refused = refused.expect_error(503);
        assert_eq!(refused["code"], "not_ready");
        assert!(refused["error"].to_string().contains("cannot write its journal"), "{refused}");
    }
    let attach = rig.bridge.api("POST", "/v1/runs/run_apart/attach", Some("{}")).await;
    assert!(attach.expect_error(503)["message"].to_string().contains("its journal"));
    // What gets no tools needs nothing of the disk.
    rig.mantyx.script(Script::new().done());
    for (target, status) in [(&runs, 202), (&sessions, 201)] {
        let plain = submit(target).header("X-Bridge-Backends", "none");
        plain.answer(rig.bridge.addr()).await.expect(status);
    }

    limit_files(rig.bridge.process().pid(), None);
    wait::until("runs should be accepted again", Duration::from_secs(10), async || {
        (rig.submit_call("tu_3").await == 202).then_some(())
    })
    .await;
    assert!(rig.mantyx.taken("tu_3").await["result"].is_string());
    rig.bridge.api("POST", "/v1/runs/run_apart/attach", Some("{}")).await.expect(202);
    assert!(rig.mantyx.taken("tu_apart").await["result"].is_string());
    assert_eq!(["tu_1", "tu_2"].map(|id| rig.plain.begun(id)), [0, 0]);
}

/// As the disk fills, MANTYX has the session already.
#[tokio::test]
async fn a_session_that_cannot_be_kept_is_ended() {
    let mut rig = EffectsHarness::start(None).await;
    limit_files(rig.bridge.process().pid(), Some(0));
    let sessions = format!("{}/agent-sessions", bridge::API);
    rig.bridge.api("POST", &sessions, Some(SPEC)).await.expect_error(503);
    let recorded = rig.mantyx.recorded();
    let ended: Vec<_> = recorded.iter().filter(|it| it.method == "DELETE").collect();
    assert_eq!(ended.len(), 1, "{ended:?}");
}

#[tokio::test]
async fn call_under_way_when_the_disk_filled_is_answered() {
    let mut rig = EffectsHarness::start(None).await;
    let args = r#"{"ms":300}"#;
    rig.mantyx.script(Script::one_call("tu_1", "plain", "plain_unsaid", args));
    rig.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    rig.plain.wait_begun("tu_1", 1).await;
    limit_files(rig.bridge.process().pid(), Some(0));
    // The effect is there, so the model has to hear of it, written down or not.
    let answer = rig.mantyx.taken("tu_1").await;
    assert!(answer["result"].is_string(), "{answer}");
    assert_eq!(rig.plain.begun("tu_1"), 1);
}

/// The subjects of the problems that the status tells, and their messages.
async fn problems(rig: &EffectsHarness) -> Vec<(String, String)> {
    let status = rig.bridge.status().await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let problems = status["problems"].as_array().cloned().unwrap_or_default();
    problems.iter().map(|one| (text(&one["subject"]), text(&one["message"]))).collect()
}

/// One app's answers that MANTYX does not take fill that app's part of the journal, and no more.
#[tokio::test]
async fn answers_that_mantyx_does_not_take_stop_no_other_apps_calls() {
    let (mantyx, [a, b]) = (Mantyx::start().await, ["a", "b"].map(token));
    let config = format!(
        "{}apps:\n  a: {{token: {a}, credential: of-a}}\n  b: {{token: {b}, credential: of-b}}\n\
         local:\n  big:\n    command: [sh, -c, \"head -c 1900000 /dev/zero | tr '\\\\0' x\"]\n",
        mantyx.upstream()
    );
    let bridge = Bridge::ready(&config).await;
    let submit = async |token: &str, script: Script| {
        mantyx.script(script.until("never").done());
        let post = Request::new("POST", &format!("{}/agent-runs", bridge::API)).bearer(token);
        let post = post.json(r#"{"modelId":"m","prompt":"hi"}"#);
        let answer = post.answer(bridge.addr()).await.expect(202);
        answer["runId"].as_str().expect("an id").to_owned()
    };
    let ids: Vec<String> = (0..40).map(|number| format!("tu_{number}")).collect();
    ids.iter().for_each(|id| mantyx.replies(id, (0..10_000).map(|_| Reply::Status(503))));
    let script = ids.iter().fold(Script::new(), |script, id| script.local(id, "big", NOTHING));
    let run = submit(&a, script).await;
    wait::until("all calls should have answers", Duration::from_secs(60), async || {
        let get = Request::new("GET", &format!("/v1/runs/{run}")).bearer(&a);
        let run = get.answer(bridge.addr()).await.expect(200);
        (run["calls"] == 40 && run["callsInFlight"] == 0).then_some(())
    })
    .await;
    submit(&b, Script::new().local("tu_b", "big", NOTHING)).await;
    let answer = mantyx.answer("tu_b").await;
    assert!(answer["result"].is_string(), "{:.200}", answer.to_string());
    let status = Request::new("GET", "/v1/status").bearer(&b).answer(bridge.addr()).await;
    let status = status.expect(200);
    let problems = status["problems"].as_array().expect("problems");
    assert!(problems.iter().all(|problem| problem["subject"] != "journal"), "{status}");
}

#[tokio::test]
async fn a_full_disk_prevents_no_start() {
    let mut rig = EffectsHarness::start(None).await;
    rig.bridge.kill9();
    rig.bridge.wait_childless().await;
    rig.bridge.restart_on_full_disk().await;
    rig.bridge.wait_backend("plain", "ready").await;
    let told = problems(&rig).await;
    for (subject, part) in [("journal", "a new file beside it takes up to "), ("state", "")] {
        let is_told = |it: &&(String, String)| it.0 == subject && it.1.contains(part);
        assert!(told.iter().any(|it| is_told(&it)), "{subject} in {told:?}");
    }
    let target = format!("{}/agent-runs?limit=1", bridge::API);
    rig.bridge.api("GET", &target, None).await.expect(200);
    // With a key, too, it is said that no call was made.
    let note = r#"{"toolUseId":"1","name":"plain_unsaid","args":{"ms":0}}"#;
    let keyed = rig.bridge.request("POST", "/v1/tool-calls").header("Idempotency-Key", "k");
    let refused = keyed.json(note).answer(rig.bridge.addr()).await.expect(200);
    let why = refused["error"].as_str().expect("a text");
    assert!(why.starts_with("bridge_storage_unavailable: "), "{why}");
    // There is room again.
    let children = rig.bridge.children();
    for pid in children.into_iter().chain([rig.bridge.process().pid()]) {
        limit_files(pid, None);
    }
    wait::until("nothing should be wrong any more", Duration::from_secs(30), async || {
        problems(&rig).await.is_empty().then_some(())
    })
    .await;
    assert!(rig.bridge.state("listen").exists(), "other commands find it");
    assert_eq!(rig.submit_call("tu_1").await, 202);
    assert!(rig.mantyx.taken("tu_1").await["result"].is_string());
    assert!(!rig.bridge.log().contains("panicked"), "nothing panics over a full disk");
}

/// The app may have submitted it again by then.
#[tokio::test]
async fn refused_run_that_mantyx_does_not_cancel_has_its_calls_cancelled_after_a_restart() {
    let mut rig = EffectsHarness::start(None).await;
    let script = Script::new()
        .mcp("tu_before", "plain", "plain_unsaid", NOTHING)
        .answered("tu_before")
        .until("the bridge has begun again")
        .mcp("tu_after", "plain", "plain_unsaid", NOTHING)
        .answered("tu_after")
        .done();
    rig.mantyx.script(script);
    for number in 1..100 {
        let cancel = format!("{}/agent-runs/run_{number}/cancel", bridge::API);
        rig.mantyx.canned("POST", &cancel, &["HTTP/1.1 503 Service Unavailable"], "");
    }
    limit_files(rig.bridge.process().pid(), Some(0));
    let target = format!("{}/agent-runs", bridge::API);
    rig.bridge.api("POST", &target, Some(SPEC)).await.expect_error(503);
    let is_cancelled = |answer: &Value| answer["error"].to_string().contains("was cancelled");
    // The call may come before the run is refused, and finds the disk full itself.
    let before = rig.mantyx.taken("tu_before").await;
    let is_unkept = before["error"].to_string().contains("bridge_storage_unavailable");
    assert!(is_cancelled(&before) || is_unkept, "{before}");

    limit_files(rig.bridge.process().pid(), None);
    wait_journaled(&rig.bridge, r#""refused":true"#).await;
    rig.bridge.kill9();
    let asked = rig.mantyx.requests("POST", "/cancel").len();
    rig.bridge.restart().await;
    rig.mantyx.release("the bridge has begun again");
    let after = rig.mantyx.taken("tu_after").await;
    assert!(is_cancelled(&after), "{after}");
    assert_eq!(rig.plain.begun("tu_before") + rig.plain.begun("tu_after"), 0, "none is made");
    wait::soon("MANTYX should be asked again", async || {
        (rig.mantyx.requests("POST", "/cancel").len() > asked).then_some(())
    })
    .await;
}

/// What is done to the journal, and whether it can be a journal afterwards.
struct Damage {
    what: String,
    bytes: Vec<u8>,
    hopeless: bool,
}

fn damages(whole: &[u8]) -> Vec<Damage> {
    let garbage: Vec<u8> = (0..whole.len()).map(|at| (at * 31 % 251) as u8).collect();
    let mut damages = vec![
        Damage { what: "text".into(), bytes: b"not a journal\n".into(), hopeless: true },
        Damage { what: "garbage".into(), bytes: garbage, hopeless: true },
        Damage { what: "zeroes".into(), bytes: vec![0; whole.len()], hopeless: true },
        Damage { what: "nothing".into(), bytes: Vec::new(), hopeless: true },
    ];
    for part in 1..16 {
        let bytes = whole.get(..whole.len() * part / 16).unwrap_or_default().to_vec();
        let what = format!("the first {} bytes", bytes.len());
        damages.push(Damage { what, bytes, hopeless: false });
    }
    // But for the version: a later one's file is not touched.
    let bytes: Vec<usize> = (0..whole.len()).filter(|at| *at != 7).collect();
    let mut rng = StdRng::seed_from_u64(7);
    for _ in 0..50 {
        let at = bytes.get(rng.random_range(0..bytes.len())).copied().unwrap_or_default();
        let bit = rng.random_range(0..8);
        let mut bytes = whole.to_vec();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
        damages.push(Damage { what: format!("bit {bit} of byte {at}"), bytes, hopeless: true });
    }
    damages
}

/// The file that is said to have been set aside.
fn set_aside(told: &str) -> String {
    let name = told.split_whitespace().find(|word| word.contains("journal.damaged-"));
    let name = name.map(|name| name.trim_matches(['.', ',', '"']));
    name.unwrap_or_else(|| panic!("it was set aside: {told}")).to_owned()
}

#[tokio::test]
async fn a_damaged_journal_is_set_aside_and_the_bridge_works() {
    let mut rig = EffectsHarness::start(None).await;
    for n in 0..3 {
        let id = format!("tu_old_{n}");
        assert_eq!(rig.submit_call(&id).await, 202);
        rig.mantyx.taken(&id).await;
    }
    rig.begin_open_call("tu_open").await;
    rig.bridge.kill9();
    let journal = rig.bridge.state("journal");
    let whole = fs::read(&journal).expect("the bridge has a journal");
    for (n, damage) in damages(&whole).into_iter().enumerate() {
        let Damage { what, bytes, hopeless } = damage;
        fs::write(&journal, bytes).expect("a file of ours");
        let before = rig.bridge.log().len();
        rig.bridge.restart().await;
        let id = format!("tu_new_{n}");
        assert_eq!(rig.submit_call(&id).await, 202, "after {what}");
        let answer = rig.mantyx.taken(&id).await;
        assert!(answer["result"].is_string(), "after {what}: {answer}");
        let log = rig.bridge.log().split_off(before);
        let is_told = problems(&rig).await.iter().any(|(subject, _)| subject == "journal");
        assert!(!hopeless || is_told, "what {what} has cost is told");
        if log.contains("journal.damaged-") {
            let aside = set_aside(&log);
            assert!(fs::exists(&aside).is_ok_and(|there| there), "{aside} is kept, after {what}");
        }
        rig.bridge.kill9();
    }
    assert_eq!(rig.plain.begun("tu_open"), 1, "and nothing was made twice");
}

#[tokio::test]
async fn a_state_directory_is_one_bridges_own() {
    let rig = EffectsHarness::start(None).await;
    let dir = TempDir::new().expect("the temporary directory is writable");
    let config = dir.path().join("bridge.yaml");
    let state = rig.bridge.state("");
    let text =
        format!("{}listen: 127.0.0.1:0\nstate_dir: {}\n", rig.mantyx.upstream(), state.display());
    fs::write(&config, text).expect("the test's directory is writable");
    let mut command = tokio::process::Command::from(bridge::command());
    command.arg("serve").arg("-c").arg(&config).env("HOME", dir.path());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(20), output).await;
    let output = output.expect("it should not start").expect("it can be run");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let names = state.to_str().expect("a path of the tests is UTF-8").trim_end_matches('/');
    assert!(error.contains(names), "it names the directory: {error}");
    assert!(error.contains("runs already, as process"), "and says who has it: {error}");
    assert!(!error.contains("panicked"), "{error}");
    rig.bridge.api("GET", "/healthz", None).await.expect(200);
}

/// A bridge that was killed with a call that hangs, one that waits for the first's turn, and one
/// that the run has not come to.
async fn killed_with_two_calls() -> EffectsHarness {
    let mut rig = EffectsHarness::start(Some("concurrency: 1")).await;
    let script = Script::new()
        .mcp("tu_first", "plain", "plain_unsaid", r#"{"hang":"always"}"#)
        .until("the first has begun")
        .mcp("tu_waiting", "plain", "plain_unsaid", NOTHING)
        .answered("tu_first")
        .answered("tu_waiting")
        .mcp("tu_next", "plain", "plain_unsaid", NOTHING)
        .answered("tu_next")
        .done();
    rig.mantyx.script(script);
    rig.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    rig.plain.wait_begun("tu_first", 1).await;
    rig.mantyx.release("the first has begun");
    wait_journaled(&rig.bridge, "tu_waiting").await;
    rig.bridge.kill9();
    rig
}

fn assert_unknown(answer: &Value) {
    let error = answer["error"].as_str().unwrap_or_else(|| panic!("it may be made: {answer}"));
    assert!(error.contains("OUTCOME_UNKNOWN"), "{error}");
}

/// Where the last `text` begins in `bytes`.
pub(crate) fn last(bytes: &[u8], text: &str) -> usize {
    let found = bytes.windows(text.len()).rposition(|window| window == text.as_bytes());
    found.unwrap_or_else(|| panic!("{text} should be in the journal"))
}

#[tokio::test]
async fn a_flipped_byte_costs_what_it_hits_and_has_no_call_made() {
    // The last is the record of the tools that runs have.
    for hit in ["tu_first", "tu_waiting", "{\"digests\""] {
        let mut rig = killed_with_two_calls().await;
        let journal = rig.bridge.state("journal");
        let mut bytes = fs::read(&journal).expect("the bridge has a journal");
        let at = last(&bytes, hit);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        fs::write(&journal, &bytes).expect("a file of ours");
        rig.bridge.restart().await;
        for id in ["tu_first", "tu_waiting"] {
            assert_unknown(&rig.mantyx.taken(id).await);
        }
        assert!(rig.mantyx.taken("tu_next").await["result"].is_string(), "the run goes on");
        let begun = ["tu_first", "tu_waiting", "tu_next"].map(|id| rig.plain.begun(id));
        assert_eq!(begun, [1, 0, 1], "{hit} was hit");

        let told = problems(&rig).await;
        let (_, message) =
            told.iter().find(|(subject, _)| subject == "journal").expect("it is told");
        let aside = set_aside(message);
        assert_eq!(fs::read(&aside).expect("it was set aside"), bytes);
        let mut doctor = bridge::command();
        doctor.arg("doctor").arg("-c").arg(rig.bridge.config_path());
        let output = tokio::process::Command::from(doctor).output().await.expect("it can be run");
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.contains(&aside), "the doctor has found it: {output}");
    }
}

#[tokio::test]
async fn a_session_whose_tools_are_lost_is_given_tools_with_its_next_message() {
    let mut rig = EffectsHarness::start(None).await;
    let sessions = format!("{}/agent-sessions", bridge::API);
    let created = rig.bridge.api("POST", &sessions, Some("{}")).await.expect(201);
    let session = created["sessionId"].as_str().expect("an id").to_owned();
    wait_journaled(&rig.bridge, &session).await;
    // The next process gives each record a frame of its own.
    rig.bridge.stop().await;
    rig.bridge.restart().await;
    rig.bridge.kill9();
    let journal = rig.bridge.state("journal");
    let mut bytes = fs::read(&journal).expect("the bridge has a journal");
    let at = last(&bytes, "{\"digests\"");
    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
    fs::write(&journal, bytes).expect("a file of ours");
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.mantyx.script(Script::one_call("tu_1", "plain", "plain_unsaid", NOTHING));
    let messages = format!("{sessions}/{session}/messages");
    rig.bridge.api("POST", &messages, Some(r#"{"prompt":"x"}"#)).await.expect(202);
    assert!(rig.mantyx.taken("tu_1").await["result"].is_string(), "the bridge knows the session");
    let sent = rig.mantyx.only("POST", "/messages").value();
    assert!(sent["tools"].to_string().contains("plain_unsaid"), "{sent}");
}

#[tokio::test]
async fn a_journal_that_is_shorter_than_at_the_stop_has_no_call_made() {
    for cut in [0, 1] {
        let mut rig = EffectsHarness::start(Some("approve: \"*\"")).await;
        assert_eq!(rig.submit_call("tu_1").await, 202);
        wait_journaled(&rig.bridge, "tu_1").await;
        // A person is asked: nothing has reached the tool, and after a stop it is asked about anew.
        rig.bridge.stop().await;
        let journal = rig.bridge.state("journal");
        let length = fs::metadata(&journal).expect("the bridge has a journal").len();
        let file = fs::OpenOptions::new().write(true).open(&journal).expect("a file of ours");
        file.set_len(length - cut).expect("a file of ours");
        rig.bridge.restart().await;
        if cut == 0 {
            wait::soon("a person should be asked", async || {
                (rig.bridge.status().await["approvals"]["waiting"] == 1).then_some(())
            })
            .await;
            assert!(problems(&rig).await.is_empty());
        } else {
            assert_unknown(&rig.mantyx.taken("tu_1").await);
            assert_eq!(rig.bridge.status().await["approvals"]["waiting"], 0);
            assert!(problems(&rig).await.iter().any(|(subject, _)| subject == "journal"));
        }
        assert_eq!(rig.plain.begun("tu_1"), 0);
    }
}

#[tokio::test]
async fn a_run_that_is_handed_over_after_its_journal_was_lost_has_no_call_made_twice() {
    for damage in ["removed", "garbage", "of another MANTYX"] {
        let mut rig = killed_with_two_calls().await;
        let journal = rig.bridge.state("journal");
        match damage {
            "removed" => fs::remove_file(&journal).expect("the bridge has a journal"),
            // It is the same one by another name, which nothing tells.
            "of another MANTYX" => {
                rig.bridge
                    .change_config("base_url: \"http://127.0.0.1", "base_url: \"http://localhost");
            }
            _ => fs::write(&journal, "garbage").expect("a file of ours"),
        }
        rig.bridge.restart().await;
        let told = problems(&rig).await;
        assert!(told.iter().any(|(subject, _)| subject == "journal"), "{damage}: {told:?}");
        let run = rig.mantyx.requests("GET", "/stream");
        let run = run.last().expect("the run was driven").target.clone();
        let run = run.rsplit('/').nth(1).expect("a path names its run").to_owned();
        let target = format!("/v1/runs/{run}/attach");
        rig.bridge.api("POST", &target, Some("{}")).await.expect(202);
        for id in ["tu_first", "tu_waiting"] {
            assert_unknown(&rig.mantyx.taken(id).await);
        }
        assert!(rig.mantyx.taken("tu_next").await["result"].is_string(), "the run goes on");
        assert_eq!(["tu_first", "tu_waiting"].map(|id| rig.plain.begun(id)), [1, 0], "{damage}");

        // A run that is younger than the loss is as any other.
        let mut attempts = 0;
        wait::until("calls of new runs should be made", Duration::from_secs(20), async || {
            attempts += 1;
            let id = format!("tu_new_{attempts}");
            rig.mantyx.script(Script::one_call(&id, "plain", "plain_unsaid", NOTHING));
            let run = rig.bridge.post_run_with("{}", &[("X-Bridge-Backends", "none")]).await.run_id;
            #[expect(clippy::disallowed_methods, reason = "a test has the system's clock")]
            let created = humantime::format_rfc3339_millis(std::time::SystemTime::now());
            let head = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
            let snapshot = format!(r#"{{"id":"{run}","createdAt":"{created}"}}"#);
            rig.mantyx.canned(
                "GET",
                &format!("{}/agent-runs/{run}", bridge::API),
                &head,
                &snapshot,
            );
            let target = format!("/v1/runs/{run}/attach");
            rig.bridge.api("POST", &target, Some("{}")).await.expect(202);
            rig.mantyx.taken(&id).await["result"].is_string().then_some(())
        })
        .await;
    }
}
