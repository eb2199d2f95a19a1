//! The dialer against a hostile server: a real process on real pipes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Era, McpDialer, Proposal, dialer};
use crate::backend::fake::{request, request_of, tool_call};
use crate::backend::peer::{CallError, Dial as _, NotRead, Peer, ToolCall};
use crate::config::{Mcp, PASSED_ON, Program, ProgramSandbox, Secret, Secrets};
use crate::error_chain::error_chain;
use crate::http_client;
use crate::model::answer::Answer;
use crate::model::call::CallRequest;
use crate::model::catalog::{Catalog, Content};
use crate::model::ids::BackendName;
use crate::model::trace::Trace;

mod starts;

/// Longer than anything here takes on a busy machine; running into it is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn hostile(options: &[&str], env: &[(&str, &str)]) -> McpDialer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/hostile_mcp.py");
    program("python3", &[&[script], options].concat(), env, None)
}

fn program(command: &str, args: &[&str], env: &[(&str, &str)], cwd: Option<PathBuf>) -> McpDialer {
    let mut secrets = Secrets::default();
    env.iter().for_each(|(_, value)| secrets.add(value));
    let env = env.iter().map(|(key, value)| ((*key).to_owned(), Secret::from((*value).to_owned())));
    let config = Mcp::Stdio(Program {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned().into()).collect(),
        env: env.collect::<BTreeMap<_, _>>(),
        cwd,
        sandbox: ProgramSandbox::Masked,
        hidden: Arc::default(),
        secrets: Arc::new(secrets),
    });
    dialer(&BackendName::parse("hostile").unwrap(), &config, None, http_client::new())
}

async fn dial(dialer: &McpDialer) -> Arc<dyn Peer> {
    timeout(PATIENCE, dialer.dial()).await.expect("in time").expect("a connection")
}

async fn cannot_dial(dialer: &McpDialer) -> String {
    error_chain(&timeout(PATIENCE, dialer.dial()).await.expect("in time").unwrap_err())
}

async fn resolve(peer: &Arc<dyn Peer>) -> Arc<Catalog> {
    timeout(PATIENCE, peer.resolve()).await.expect("in time").expect("a catalog")
}

fn tools(catalog: &Catalog) -> Vec<(&str, &str)> {
    let Content::Mcp { tools, .. } = catalog.content() else { panic!("an MCP catalog") };
    tools.iter().map(|tool| (tool.name.as_str(), tool.raw.get())).collect()
}

fn order(tool: &str, arguments: &str) -> ToolCall {
    tool_call(request(tool, arguments))
}

async fn call(peer: &Arc<dyn Peer>, tool: &str, arguments: &str) -> Result<Answer, CallError> {
    timeout(PATIENCE, peer.call(order(tool, arguments)))
        .await
        .expect("in time")
        .map(|outcome| outcome.answer)
}

async fn text(peer: &Arc<dyn Peer>, tool: &str) -> String {
    match call(peer, tool, "{}").await {
        Ok(Answer::Result { text, .. }) => text,
        other => panic!("{tool}: {other:?}"),
    }
}

/// The ledger once `seen` is in it.
async fn ledger_with(path: &Path, seen: &str) -> String {
    let found = async {
        loop {
            let ledger = tokio::fs::read_to_string(path).await.unwrap_or_default();
            if ledger.contains(seen) {
                return ledger;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("it is in the ledger in time")
}

fn is_alive(pid: &str) -> bool {
    // A killed process whose parent does not reap it stays as a zombie.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
}

async fn wait_for_death(pid: &str) {
    let dead = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), dead).await.expect("it dies");
}

const SERVER_INFO: &str = r#"{"version":"0.1","name":"hostile","x-build":123456789012345678901234567890,"x-limit":1e400,"x-path":"\u00e9\/"}"#;
const STRANGE_TOOL: &str = r#"{"zeta":1,"name":"strange", "description":"Strange \u00e9\/ results","inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":1e400,"minimum":-123456789012345678901234567890,"default":1.10}},"properties":{}},"annotations":{"readOnlyHint":"yes","x-own":2E5},"execution":{"taskSupport":"optional"},"securitySchemes":[{"type":"oauth2"}],"_meta":{"b":1,"a":2}}"#;

#[tokio::test]
async fn a_catalog_is_kept_byte_for_byte_in_every_revision() {
    for (options, revision) in [
        (&["--modern"][..], "2026-07-28"),
        (&[], "2025-11-25"),
        (&["--revision", "2025-06-18"], "2025-06-18"),
        (&["--revision", "2024-11-05"], "2024-11-05"),
    ] {
        let peer = dial(&hostile(options, &[])).await;
        let about = peer.about();
        assert_eq!(about.protocol_version.as_deref(), Some(revision));
        assert_eq!(about.server_info.unwrap().get(), SERVER_INFO, "{revision}");
        let catalog = resolve(&peer).await;
        let Content::Mcp { server_info, .. } = catalog.content() else { panic!("MCP") };
        assert_eq!(server_info.as_ref().unwrap().get(), SERVER_INFO);
        assert_eq!(*tools(&catalog).first().unwrap(), ("strange", STRANGE_TOOL));
        peer.close().await;
    }
}

#[tokio::test]
async fn all_pages_are_read_and_a_circle_ends() {
    let peer = dial(&hostile(&["--pages", "40"], &[])).await;
    let catalog = resolve(&peer).await;
    assert_eq!(catalog.tool_count(), 39 + 22);
    assert_eq!(tools(&catalog).first().unwrap().0, "filler_0");

    let peer = dial(&hostile(&["--pages", "3", "--circle"], &[])).await;
    assert_eq!(resolve(&peer).await.tool_count(), 1);

    let peer = dial(&hostile(&["--pages", "1001"], &[])).await;
    let catalog = timeout(PATIENCE, peer.resolve()).await.unwrap().unwrap();
    assert_eq!(catalog.tool_count(), 1000, "what was read is served");
    let told = &catalog.left_out().unwrap().message;
    assert!(told.contains("tools/list is too long"), "{told}");
}

#[tokio::test]
async fn arguments_go_out_verbatim_and_on_one_line() {
    let peer = dial(&hostile(&[], &[])).await;
    let arguments =
        "{\"b\":1e400,\n \"a\":123456789012345678901234567890,\r\n\"a\":\"\\u00e9\\/\"}";
    let Ok(Answer::Result { text: request, .. }) = call(&peer, "echo", arguments).await else {
        panic!("text")
    };
    let sent = arguments.replace(['\n', '\r'], " ");
    assert!(request.contains(&format!("\"arguments\":{sent}}}")), "{request}");
}

#[tokio::test]
async fn a_call_names_the_tool_use_and_the_trace_that_it_is_for() {
    for options in [&[][..], &["--modern"]] {
        let peer = dial(&hostile(options, &[])).await;
        let asked = request_of("run_1", None, "echo", "{}");
        let mut call = tool_call(CallRequest { tool_use: "toolu_7".into(), ..asked });
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        call.trace = Trace::read(&[parent], &["a=1"]).map(Arc::new);
        let Answer::Result { text: request, .. } = peer.call(call).await.unwrap().answer else {
            panic!("text")
        };
        assert!(request.contains(r#""mantyx-bridge/toolUseId":"toolu_7""#), "{request}");
        assert!(request.contains(&format!(r#""traceparent":"{parent}""#)), "{request}");
        assert!(request.contains(r#""tracestate":"a=1""#), "{request}");
    }
}

#[tokio::test]
async fn every_kind_of_answer_arrives() {
    for options in [&[][..], &["--modern"]] {
        let peer = dial(&hostile(options, &[])).await;
        let strange = text(&peer, "strange").await;
        assert_eq!(
            strange,
            "[hologram, 36 bytes: not passed on]\nkept\n[file image-1.png image/png, 3 bytes: attached]"
        );
        assert_eq!(
            text(&peer, "structured").await,
            r#"{"z":1.10,"a":123456789012345678901234567890,"big":1e400,"a":2}"#
        );
        assert_eq!(text(&peer, "string_id").await, "same to you");
        assert_eq!(text(&peer, "garbage").await, "after the garbage");
        let failed = call(&peer, "fail", "{}").await.unwrap();
        assert_eq!(failed, Answer::Error("the disk is full".to_owned()));
    }
}

#[tokio::test]
async fn refusals_carry_the_server_s_words() {
    let peer = dial(&hostile(&["--modern"], &[])).await;
    for (tool, words) in [
        ("refuse", "refused: not on a Sunday (JSON-RPC error -32050)"),
        ("nonsense", "refused: Unknown tool: nonsense (JSON-RPC error -32602)"),
    ] {
        assert_eq!(call(&peer, tool, "{}").await.unwrap_err().to_string(), words);
    }
    let why = call(&peer, "want_input", "{}").await.unwrap_err();
    assert!(matches!(&why, CallError::Refused(why) if why.contains("input")), "{why:?}");
}

#[tokio::test]
async fn an_error_without_an_id_ends_the_only_call() {
    let peer = dial(&hostile(&[], &[])).await;
    let why = call(&peer, "refuse_without_id", "{}").await.unwrap_err();
    assert!(matches!(&why, CallError::Refused(why) if why.contains("cannot read that")), "{why:?}");
}

#[tokio::test]
async fn a_reply_that_is_too_large_fails_its_call_alone() {
    let peer = dial(&hostile(&[], &[])).await;
    let why = call(&peer, "huge", "{}").await.unwrap_err();
    let CallError::NotRead(NotRead::TooLarge { limit, size: Some(size) }) = why else {
        panic!("{why:?}")
    };
    assert!(size > limit as u64, "{size}");
    assert_eq!(text(&peer, "string_id").await, "same to you");
    let Ok(Answer::Result { text, .. }) = call(&peer, "huge", r#"{"bytes":8000000}"#).await else {
        panic!("it fits")
    };
    assert_eq!(text.len(), 8_000_000);
}

#[tokio::test]
async fn a_crash_loses_the_call_and_tells_the_end_of_stderr() {
    let peer = dial(&hostile(&[], &[])).await;
    let (lost, closed) = tokio::join!(call(&peer, "crash", "{}"), peer.closed());
    assert!(matches!(lost, Err(CallError::Lost(_))), "{lost:?}");
    let why = error_chain(&closed);
    assert!(why.contains("exit status 3") && why.contains("the reactor is gone"), "{why}");
    let why = call(&peer, "echo", "{}").await.unwrap_err();
    assert!(matches!(why, CallError::NotSent(_)), "{why:?}");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_and_the_connection_stays_usable() {
    let ledger = tempfile::NamedTempFile::new().unwrap();
    let path = ledger.path().to_str().unwrap();
    for options in [&[][..], &["--modern"]] {
        std::fs::write(path, "").unwrap();
        let peer = dial(&hostile(options, &[("LEDGER", path)])).await;
        let hanging = timeout(Duration::from_millis(300), peer.call(order("hang", "{}"))).await;
        assert!(hanging.is_err());
        let seen = ledger_with(ledger.path(), "notifications/cancelled").await;
        let request = seen.lines().find(|line| line.contains("\"hang\"")).unwrap();
        let id = serde_json::from_str::<serde_json::Value>(request).unwrap();
        let id = id.get("id").unwrap();
        assert!(seen.contains(&format!("\"requestId\":{id}")), "{seen}");
        assert_eq!(text(&peer, "string_id").await, "same to you");
    }
}

#[tokio::test]
async fn an_answer_that_comes_too_late_goes_to_no_other_call() {
    for options in [&[][..], &["--modern"]] {
        let peer = dial(&hostile(options, &[])).await;
        for number in 0..100 {
            let given_up = order("late", &format!("{{\"number\":{number}}}"));
            let begun = given_up.progress.clone();
            tokio::select! {
                answer = peer.call(given_up) => panic!("{number}: {answer:?}"),
                begun = timeout(PATIENCE, begun.touched()) => begun.expect("it is called"),
            }
            // The server answers the call before first, and then this one.
            let next = format!("{{\"next\":{number}}}");
            let Ok(Answer::Result { text, .. }) = call(&peer, "echo", &next).await else {
                panic!("text")
            };
            assert!(text.contains(&format!("\"arguments\":{next}}}")), "{number}: {text}");
        }
    }
}

#[tokio::test]
async fn a_server_that_stops_reading_blocks_nobody_for_ever() {
    let peer = dial(&hostile(&[], &[])).await;
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(1_000_000));
    let deaf = peer.call(order("deaf", r#"{"seconds":1}"#));
    // More than a pipe holds, so that it cannot be written while the server is deaf.
    let stuck = timeout(Duration::from_millis(300), peer.call(order("echo", &large)));
    let (deaf, stuck) = tokio::join!(deaf, stuck);
    assert_eq!(deaf.unwrap().answer, Answer::text("what?"));
    assert!(stuck.is_err(), "it could not be written");
    assert_eq!(text(&peer, "string_id").await, "same to you");
}

#[tokio::test]
async fn questions_without_a_client_are_cancelled_and_other_requests_refused() {
    let peer = dial(&hostile(&[], &[])).await;
    let replies: serde_json::Value = serde_json::from_str(&text(&peer, "ask").await).unwrap();
    let refused = -32601;
    assert_eq!(
        replies,
        serde_json::json!({
            "ping": "ok", "roots/list": refused, "sampling/createMessage": refused,
            "elicitation/create": "ok", "x/unknown": refused,
        })
    );
}

#[tokio::test]
async fn changes_are_told_once_however_often_the_server_says_so() {
    for options in [&[][..], &["--modern"]] {
        let peer = dial(&hostile(options, &[])).await;
        let before = resolve(&peer).await;
        if !options.is_empty() {
            // The subscription is asked for in the background.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        text(&peer, "change").await;
        timeout(PATIENCE, peer.changed()).await.expect("it is told");
        let after = resolve(&peer).await;
        assert_eq!(after.tool_count(), before.tool_count() + 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Three notifications are at most one more turn, never three.
        let _one_more = timeout(Duration::from_millis(10), peer.changed()).await.is_ok();
        assert!(timeout(Duration::from_millis(100), peer.changed()).await.is_err());
    }
}

#[tokio::test]
async fn servers_that_know_no_discover_are_reached_and_remembered() {
    for options in [&["--exit-on-unknown"][..], &[]] {
        let dialer = hostile(options, &[]);
        let peer = dial(&dialer).await;
        assert_eq!(peer.about().protocol_version.as_deref(), Some("2025-11-25"));
        assert_eq!(dialer.memory.era(), Some(Era::Legacy));
    }
}

#[tokio::test]
async fn a_server_that_ignores_discover_costs_the_wait_only_once() {
    let mut dialer = hostile(&["--ignore-unknown"], &[]);
    dialer.waits.discover = Duration::from_millis(10);
    dialer.waits.late = Duration::from_millis(10);
    let peer = dial(&dialer).await;
    peer.close().await;
    // It would never come to `initialize`.
    dialer.waits.discover = PATIENCE * 2;
    let peer = dial(&dialer).await;
    assert_eq!(text(&peer, "string_id").await, "same to you");
}

#[tokio::test]
async fn a_remembered_revision_that_is_gone_is_not_insisted_on() {
    let dialer = hostile(&[], &[]);
    dialer.memory.keep(Era::Modern, None);
    dial(&dialer).await;
    assert_eq!(dialer.memory.era(), Some(Era::Legacy));

    let dialer = hostile(&["--modern"], &[]);
    dialer.memory.keep(Era::Legacy, Some(Proposal::newest()));
    dial(&dialer).await;
    assert_eq!(dialer.memory.era(), Some(Era::Modern));
}

/// A server that is particular about the handshake, whose waits a test need not sit through.
fn particular(options: &[&str], ledger: &Path) -> McpDialer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/handshake_mcp.py");
    let ledger = ledger.to_str().unwrap();
    let mut dialer =
        program("python3", &[&[script], options].concat(), &[("LEDGER", ledger)], None);
    dialer.waits.discover = Duration::from_millis(100);
    dialer.waits.late = PATIENCE;
    dialer
}

/// The lines of the ledger without the numbers of the processes.
fn events(ledger: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
}

#[tokio::test]
async fn program_that_answers_discover_after_initialize_is_of_2026() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = directory.path().join("ledger");
    for late in ["0", "0.2"] {
        let options = ["--modern", "--discover-last", "--late", late];
        let dialer = particular(&options, &ledger);
        let peer = dial(&dialer).await;
        assert_eq!(peer.about().protocol_version.as_deref(), Some("2026-07-28"));
        let call = text(&peer, "t").await;
        assert!(call.contains("io.modelcontextprotocol/protocolVersion"), "{call}");
        peer.close().await;
    }
    assert_eq!(events(&ledger).iter().filter(|event| *event == "begins").count(), 2);
}

#[tokio::test]
async fn program_that_ends_or_hangs_at_discover_gets_a_process_for_initialize() {
    for options in [
        &["--exit-at", "server/discover", "--words", "KeyError: 'server/discover'"][..],
        &["--deaf-at", "server/discover"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let ledger = directory.path().join("ledger");
        let mut dialer = particular(options, &ledger);
        dialer.waits.silence = Duration::from_millis(100);
        let peer = dial(&dialer).await;
        assert_eq!(peer.about().protocol_version.as_deref(), Some("2025-11-25"));
        let events = events(&ledger);
        let ends: Vec<_> =
            events.iter().filter(|event| *event == "begins" || *event == "ends").collect();
        assert_eq!(ends, ["begins", "ends", "begins"], "one after the other: {events:?}");
        peer.close().await;
        // The next dial begins with what worked.
        dial(&dialer).await;
        let begins = self::events(&ledger).iter().filter(|event| *event == "begins").count();
        assert_eq!(begins, 3);
    }
}

#[tokio::test]
async fn program_that_ends_before_it_reads_is_started_once() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = directory.path().join("ledger");
    let ledger = ledger.to_str().unwrap();
    let script = "echo begins >> $0; echo 'the key is missing' >&2; exit 1";
    let why = cannot_dial(&program("sh", &["-c", script, ledger], &[], None)).await;
    assert!(why.contains("the key is missing"), "{why}");
    assert_eq!(std::fs::read_to_string(ledger).unwrap(), "begins\n");
}

#[tokio::test]
async fn program_that_refuses_the_newest_revision_gets_an_older_one() {
    let supported = r#"{"code":-32602,"message":"no","data":{"supported":["2025-03-26"]}}"#;
    for options in [&["--refusal", supported][..], &[]] {
        let directory = tempfile::tempdir().unwrap();
        let ledger = directory.path().join("ledger");
        let dialer = particular(&[options, &["--accept", "2025-03-26"]].concat(), &ledger);
        for _ in 0..2 {
            let peer = dial(&dialer).await;
            assert_eq!(peer.about().protocol_version.as_deref(), Some("2025-03-26"));
            peer.close().await;
        }
        let initializes = events(&ledger).iter().filter(|event| *event == "initialize").count();
        assert_eq!(initializes, if options.is_empty() { 4 } else { 3 }, "it is remembered");
    }
}

#[tokio::test]
async fn dial_that_is_dropped_leaves_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = directory.path().join("ledger");
    let mut dialer = particular(&["--deaf-at", "server/discover"], &ledger);
    dialer.waits.silence = PATIENCE * 2;
    let seen = tokio::select! {
        _ = dialer.dial() => panic!("nothing is answered"),
        seen = ledger_with(&ledger, "initialize") => seen,
    };
    wait_for_death(seen.split(' ').next().unwrap()).await;
}

#[tokio::test]
async fn a_noisy_server_works_like_any_other() {
    let peer = dial(&hostile(&["--noise"], &[])).await;
    assert_eq!(text(&peer, "string_id").await, "same to you");
}

#[tokio::test]
async fn a_server_that_ends_at_start_is_quoted() {
    let why = cannot_dial(&hostile(&["--die", "ImportError: no module"], &[])).await;
    assert!(why.contains("exit status 7") && why.contains("ImportError: no module"), "{why}");
}

#[tokio::test]
async fn a_missing_program_is_named_with_its_cure() {
    let why = cannot_dial(&program("no-such-program-here", &[], &[], None)).await;
    assert!(why.contains("`no-such-program-here` cannot be started"), "{why}");
    assert!(why.contains("in the PATH"), "{why}");
    let why = cannot_dial(&program("./no/such/program", &[], &[], None)).await;
    assert!(why.contains("./no/such/program"), "{why}");
    let why = cannot_dial(&program("/etc/passwd", &[], &[], None)).await;
    assert!(why.contains("not executable"), "{why}");
    let nowhere = Some(PathBuf::from("/no/such/directory"));
    let why = cannot_dial(&program("python3", &[], &[], nowhere)).await;
    assert!(why.contains("/no/such/directory"), "{why}");
    let why = cannot_dial(&program("true", &[], &[], None)).await;
    assert!(why.contains("exit status 0"), "{why}");
}

#[tokio::test]
async fn a_child_sees_its_own_environment_and_nothing_else_of_ours() {
    let directory = tempfile::tempdir().unwrap();
    let cwd = directory.path().canonicalize().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/hostile_mcp.py");
    let peer = dial(&program("python3", &[script], &[("OWN", "1")], Some(cwd.clone()))).await;
    let seen: serde_json::Value = serde_json::from_str(&text(&peer, "environment").await).unwrap();
    let env = seen.get("env").unwrap().as_object().unwrap();
    // A wrapper around the interpreter adds variables of its own.
    let meant = ["PATH", "HOME", "LANG", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"];
    let meant =
        |key: &str| meant.contains(&key) || PASSED_ON.contains(&key) || key.starts_with("PYENV");
    let leaked = env.keys().filter(|key| std::env::var_os(key).is_some() && !meant(key));
    let leaked: Vec<&String> = leaked.collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    assert_eq!(env.get("OWN").unwrap(), "1");
    assert_eq!(seen.get("group"), seen.get("pid"), "it leads a group of its own");
    assert_eq!(seen.get("cwd").unwrap().as_str(), cwd.to_str());
}

#[tokio::test]
async fn closing_ends_the_grandchildren_too() {
    let peer = dial(&hostile(&[], &[])).await;
    let grandchild = text(&peer, "fork").await;
    assert!(is_alive(&grandchild));
    peer.close().await;
    wait_for_death(&grandchild).await;
}

#[tokio::test]
async fn dropping_kills_the_whole_group() {
    let peer = dial(&hostile(&["--ignore-stdin-end"], &[])).await;
    let grandchild = text(&peer, "fork").await;
    let seen: serde_json::Value = serde_json::from_str(&text(&peer, "environment").await).unwrap();
    let child = seen.get("pid").unwrap().to_string();
    drop(peer);
    wait_for_death(&grandchild).await;
    wait_for_death(&child).await;
}

#[tokio::test]
async fn a_stubborn_server_is_killed_after_its_graces() {
    let peer = dial(&hostile(&["--ignore-stdin-end"], &[])).await;
    let seen: serde_json::Value = serde_json::from_str(&text(&peer, "environment").await).unwrap();
    let start = Instant::now();
    timeout(PATIENCE, peer.close()).await.expect("in time");
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(12), "{took:?}");
    wait_for_death(&seen.get("pid").unwrap().to_string()).await;
}
