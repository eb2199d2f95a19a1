//! Both kinds of local tools, against a real socket and real processes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Method};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::*;
use crate::backend::CallError;
use crate::backend::fake::{request, tool_call};
use crate::backend::peer::NotRead;
use crate::budget::tests::without_room;
use crate::config::{PASSED_ON, Program, ProgramSandbox, Secret, Secrets};
use crate::http_client;
use crate::model::InputSchema;
use crate::model::json::no_members;
use crate::model::redaction::{Known, Pattern, Redaction};

/// Longer than anything here takes on a busy machine; running into it is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn dialer(action: Action) -> LocalDialer {
    let input = Arc::new(InputSchema::of_local(no_members().into()));
    let name = BackendName::parse("tool").unwrap();
    LocalDialer::new(name, &Local { input, action }, None, http_client::new())
}

fn command(line: &[&str], env: &[(&str, &str)]) -> LocalDialer {
    let (command, args) = line.split_first().unwrap();
    let mut secrets = Secrets::default();
    env.iter().for_each(|(_, value)| secrets.add(value));
    let env = env.iter().map(|(key, value)| ((*key).to_owned(), Secret::from((*value).to_owned())));
    dialer(Action::Command(Program {
        command: (*command).to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned().into()).collect(),
        env: env.collect::<BTreeMap<_, _>>(),
        cwd: None,
        sandbox: ProgramSandbox::Masked,
        hidden: Arc::default(),
        secrets: Arc::new(secrets),
    }))
}

fn order(arguments: &str) -> ToolCall {
    tool_call(request("", arguments))
}

async fn call(dialer: &LocalDialer, arguments: &str) -> Called {
    let peer = dialer.dial().await.unwrap();
    timeout(PATIENCE, peer.call(order(arguments)))
        .await
        .expect("in time")
        .map(|outcome| outcome.answer)
}

async fn shell(script: &str) -> Answer {
    call(&command(&["sh", "-c", script], &[]), "{}").await.expect("an answer")
}

fn result(text: &str) -> Answer {
    Answer::text(text)
}

fn error(text: &str) -> Answer {
    Answer::Error(text.to_owned())
}

#[tokio::test]
async fn a_tool_is_ready_without_a_connection() {
    let dialer = command(&["no-such-program"], &[]);
    assert_eq!(dialer.transport(), "command");
    let peer = dialer.dial().await.unwrap();
    assert_eq!(peer.resolve().await.unwrap().tool_count(), 1);
    let outcome = call(&dialer, "{}").await;
    assert!(matches!(&outcome, Err(CallError::NotSent(why)) if why.contains("no-such-program")));
}

#[tokio::test]
async fn arguments_go_in_and_output_comes_back_as_it_is() {
    let cat = command(&["cat"], &[]);
    for arguments in [r#"{"n": 1.0,  "big":123456789012345678901234567890}"#, "{}"] {
        assert_eq!(call(&cat, arguments).await.unwrap(), result(arguments));
    }
    assert_eq!(shell("printf ' a\\n\\n'").await, result(" a\n"), "one line end is cut");
    assert_eq!(shell("exit 0").await, result(""), "nothing is a result");
    // Far more than a pipe holds, in both directions at once.
    let long = format!(r#"{{"a":"{}"}}"#, "é".repeat(500_000));
    assert_eq!(call(&cat, &long).await.unwrap(), result(&long));
    assert_eq!(call(&command(&["true"], &[]), &long).await.unwrap(), result(""), "unread");
}

#[tokio::test]
async fn a_program_gets_little_of_our_environment() {
    let tool = command(&["sh", "-c", "env | cut -d= -f1 | sort | tr '\\n' ' '"], &[("OWN", "x")]);
    let Answer::Result { text: names, .. } = call(&tool, "{}").await.unwrap() else {
        panic!("a result")
    };
    let allowed = ["HOME", "LANG", "OWN", "PATH", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "_"];
    let is_allowed = |name: &str| {
        allowed.contains(&name) || PASSED_ON.contains(&name) || name == "MANTYX_BRIDGE_PROGRAM"
    };
    assert!(names.contains("OWN"), "{names}");
    assert!(names.split_whitespace().all(is_allowed), "{names}");
}

#[tokio::test]
async fn a_failure_is_told_in_the_words_of_the_program() {
    assert_eq!(shell("echo out; echo why >&2; echo how >&2; exit 3").await, error("why\nhow"));
    let silent = "`tool` failed with exit status 3 and did not say why.";
    assert_eq!(shell("exit 3").await, error(silent));
    let killed = "`tool` failed with signal 9 and did not say why.";
    assert_eq!(shell("kill -9 $$").await, error(killed));
    let rude = shell("printf '\\033[31mred\\033[0m\\n' >&2; exit 1").await;
    assert_eq!(rude, error("\\u{1b}[31mred\\u{1b}[0m"));
    assert_eq!(shell("echo fine; echo noise >&2").await, result("fine"), "no failure, no words");
}

#[tokio::test]
async fn long_stderr_is_told_by_its_end() {
    let Answer::Error(said) =
        shell("i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1").await
    else {
        panic!("an error")
    };
    assert!(said.starts_with('[') && said.ends_with("line 1999"), "{said}");
    assert!(said.len() < 4 * 1024 + 50, "{}", said.len());
}

/// A call whose answer is without private keys and what this pattern matches.
async fn redacted_call(dialer: &LocalDialer) -> Answer {
    let pattern = Pattern::new("SECRET-[0-9]{6}", None).unwrap();
    let patterns = vec![pattern, Pattern::known(Known::PrivateKeys, None)];
    let mut order = order("{}");
    order.progress.redactor.redact = Arc::new(Redaction(patterns));
    let peer = dialer.dial().await.unwrap();
    timeout(PATIENCE, peer.call(order)).await.expect("in time").expect("an answer").answer
}

#[tokio::test]
async fn secret_that_the_cut_of_stderr_divides_is_removed() {
    let key = "echo -----BEGIN RSA PRIVATE KEY-----; yes KEYLINE777123 | head -n 500; \
               echo -----END RSA PRIVATE KEY-----";
    for (script, end) in [
        (key.to_owned(), "[private key removed]"),
        (format!("{key}; yes abc | head -n 1024"), "bc\nabc"),
        ("printf aSECRET-777123; yes abc | head -n 1022".into(), "bc\nabc"),
    ] {
        let tool = command(&["sh", "-c", &format!("({script}) >&2; exit 3")], &[]);
        let Answer::Error(said) = redacted_call(&tool).await else { panic!("an error") };
        assert!(said.starts_with('[') && said.ends_with(end), "{said}");
        assert!(!said.contains("KEY-") && !said.contains("7123"), "{said}");
    }
}

#[tokio::test]
async fn a_secret_of_the_environment_is_hidden_in_an_error() {
    let tool = command(&["sh", "-c", "echo bad $KEY >&2; exit 1"], &[("KEY", "hunter22-canary")]);
    assert_eq!(call(&tool, "{}").await.unwrap(), error("bad [hidden]"));
}

#[tokio::test]
async fn output_that_is_no_text_is_named() {
    let answer = shell("printf '\\377\\376'").await;
    assert!(matches!(&answer, Answer::Error(why) if why.contains("2 bytes")), "{answer:?}");
}

#[tokio::test]
async fn a_flood_is_stopped() {
    let answer = shell("exec cat /dev/zero").await;
    assert!(matches!(&answer, Answer::Error(why) if why.contains("8 MiB")), "{answer:?}");
}

#[tokio::test]
async fn process_in_the_background_holds_up_no_call() {
    let dir = tempfile::TempDir::new().unwrap();
    let pid = dir.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; echo done", pid.display());
    assert_eq!(shell(&script).await, result("done"));
    wait_for_death(&pid).await;
}

/// Waits until the process whose id is in the file `pid` is gone.
async fn wait_for_death(pid: &std::path::Path) {
    let id = wait_for_file(pid).await;
    let gone = async {
        while PathBuf::from(format!("/proc/{}", id.trim())).exists() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("it should end");
}

async fn wait_for_file(path: &std::path::Path) -> String {
    let written = async {
        loop {
            match std::fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(PATIENCE, written).await.expect("it should be written")
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_ends_its_program_and_the_grandchild() {
    let dir = tempfile::TempDir::new().unwrap();
    let (own, child) = (dir.path().join("own"), dir.path().join("child"));
    // The grandchild is deaf to SIGTERM.
    let script = format!(
        "(trap '' TERM; sleep 600; sleep 600) & echo $! > {}; echo $$ > {}; wait",
        child.display(),
        own.display()
    );
    let tool = command(&["sh", "-c", &script], &[]);
    let peer = tool.dial().await.unwrap();
    tokio::select! {
        outcome = peer.call(order("{}")) => panic!("{outcome:?}"),
        _ = wait_for_file(&own) => (),
    }
    wait_for_death(&own).await;
    wait_for_death(&child).await;
    timeout(PATIENCE, peer.close()).await.expect("nothing is left to wait for");
}

#[tokio::test]
async fn closing_ends_what_runs() {
    let dir = tempfile::TempDir::new().unwrap();
    let pid = dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", pid.display());
    let tool = command(&["sh", "-c", &script], &[]);
    let peer = tool.dial().await.unwrap();
    let close = async {
        wait_for_file(&pid).await;
        peer.close().await;
    };
    let both = async { tokio::join!(peer.call(order("{}")), close) };
    let (outcome, ()) = timeout(PATIENCE, both).await.expect("in time");
    assert!(matches!(outcome, Err(CallError::Lost(_))), "{outcome:?}");
    wait_for_death(&pid).await;
}

/// Answers one request with `answer`; the request as it came.
async fn serve(listener: TcpListener, answer: Vec<u8>) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if text
            .split_once("\r\n\r\n")
            .is_some_and(|(head, _)| seen.len() >= head.len() + 4 + length)
        {
            break;
        }
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "{text}");
    }
    stream.write_all(&answer).await.unwrap();
    String::from_utf8(seen).unwrap()
}

async fn exchange(
    method: Method,
    target: &str,
    arguments: &str,
    answer: Vec<u8>,
) -> (String, Called) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{target}", listener.local_addr().unwrap());
    let url = url::Url::parse(&url).unwrap().into();
    let mut headers = HeaderMap::new();
    headers.insert("x-key", HeaderValue::from_static("canary"));
    let tool = dialer(Action::Http { method, url, headers, tls: None });
    assert_eq!(tool.transport(), "http");
    tokio::join!(serve(listener, answer), call(&tool, arguments))
}

fn reply(head: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    [format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n").as_bytes(), body].concat()
}

#[tokio::test]
async fn arguments_are_the_body_of_a_post() {
    let arguments = r#"{"n": 1.0,  "é":123456789012345678901234567890}"#;
    let ok = reply("201 Created", "päged\n".as_bytes());
    let (seen, answer) = exchange(Method::POST, "/page?x=1", arguments, ok).await;
    assert_eq!(answer.unwrap(), result("päged\n"), "as it came");
    assert!(seen.starts_with("POST /page?x=1 HTTP/1.1\r\n"), "{seen}");
    assert!(seen.to_lowercase().contains("content-type: application/json\r\n"), "{seen}");
    assert!(seen.contains("x-key: canary\r\n") && seen.ends_with(arguments), "{seen}");
}

#[tokio::test]
async fn arguments_are_the_query_of_a_get() {
    let arguments = r#"{"q":"a b&c","n":1.50,"on":true,"list":[1, "x"],"none":null}"#;
    let (seen, answer) =
        exchange(Method::GET, "/find?key=1", arguments, reply("200 OK", b"")).await;
    assert_eq!(answer.unwrap(), result(""));
    let line = "GET /find?key=1&q=a+b%26c&n=1.50&on=true&list=%5B1%2C+%22x%22%5D HTTP/1.1\r\n";
    assert!(seen.starts_with(line), "{seen}");
    assert!(seen.ends_with("\r\n\r\n"), "no body: {seen}");
    let (seen, _) = exchange(Method::DELETE, "/x", "{}", reply("204 No Content", b"")).await;
    assert!(seen.starts_with("DELETE /x HTTP/1.1\r\n"), "no empty query: {seen}");
}

#[tokio::test]
async fn a_status_that_is_no_success_is_an_error_with_its_body() {
    let (_, answer) =
        exchange(Method::POST, "/", "{}", reply("503 Busy", b" try\x1b later \n")).await;
    let expected = "`tool` failed with HTTP 503 Service Unavailable: try\\u{1b} later";
    assert_eq!(answer.unwrap(), error(expected));
    let (_, answer) = exchange(Method::POST, "/", "{}", reply("400 Bad", &[b'x'; 5000])).await;
    let expected = format!("`tool` failed with HTTP 400 Bad Request: {}…", "x".repeat(1024));
    assert_eq!(answer.unwrap(), error(&expected));
    let moved = reply("302 Found\r\nLocation: http://127.0.0.1:1/", b"http://intranet/");
    let (_, answer) = exchange(Method::POST, "/", "{}", moved).await;
    let expected = "`tool` failed with HTTP 302 Found, a redirect, which is not followed";
    assert_eq!(answer.unwrap(), error(expected));
}

#[tokio::test]
async fn secret_that_the_cut_of_a_body_divides_is_removed() {
    struct Case {
        status: &'static str,
        size: usize,
        end: &'static str,
    }
    for Case { status, size, end } in [
        Case { status: "500 X", size: 1024 - 9, end: "a…" },
        Case { status: "200 OK", size: Answer::MAX_RESULT - 9, end: "]" },
    ] {
        let body = [&"a".repeat(size), "SECRET-777123", &"b".repeat(200_000)].concat();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: url::Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let url = url.into();
        let headers = HeaderMap::new();
        let tool = dialer(Action::Http { method: Method::POST, url, headers, tls: None });
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = [0; 1024];
            assert_ne!(stream.read(&mut seen).await.unwrap(), 0);
            stream.write_all(&reply(status, body.as_bytes())).await.ok();
        };
        let ((), answer) = tokio::join!(server, redacted_call(&tool));
        let (Answer::Error(text) | Answer::Result { text, .. }) = answer;
        assert!(
            !text.contains("SECRET") && text.ends_with(end),
            "{status}: {}",
            text.split_at(900).1
        );
    }
}

#[tokio::test]
async fn a_body_that_is_no_text_is_named() {
    let image = reply("200 OK\r\nContent-Type: image/png; q=1", b"\x89PNG\xff");
    let (_, answer) = exchange(Method::POST, "/", "{}", image).await;
    let Answer::Error(why) = answer.unwrap() else { panic!("an error") };
    assert!(why.contains("image/png") && why.contains("5 bytes"), "{why}");
}

#[tokio::test]
async fn a_body_without_end_is_cut() {
    // A byte, then characters of two: the cut falls into one of them.
    let body = ["x", &"é".repeat(2_000_000)].concat();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let url = url::Url::parse(&url).unwrap().into();
    let tool =
        dialer(Action::Http { method: Method::POST, url, headers: HeaderMap::new(), tls: None });
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = [0; 1024];
        assert_ne!(stream.read(&mut seen).await.unwrap(), 0);
        // The bridge hangs up when it has enough.
        stream.write_all(&reply("200 OK", body.as_bytes())).await.ok();
    };
    let ((), answer) = tokio::join!(server, call(&tool, "{}"));
    let Answer::Result { text, .. } = answer.unwrap() else { panic!("a result") };
    assert!(text.len() <= Answer::MAX_RESULT && text.len() > Answer::MAX_RESULT - 100);
    assert!(text.ends_with("é\n[cut by the bridge: the rest is missing]"));
}

/// The bridge is short of room, which is not the tool's doing: nothing is cut.
#[tokio::test]
async fn a_body_for_which_there_is_no_room_is_not_cut() {
    without_room(async {
        let answer = reply("200 OK", &vec![b'a'; 500_000]);
        let (_, answer) = exchange(Method::POST, "/", "{}", answer).await;
        let failure = answer.expect_err("it is not read");
        assert!(matches!(failure, CallError::NotRead(NotRead::NoRoom(_))), "{failure}");
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_breaks_tells_whether_the_request_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: url::Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let tool = |url: &url::Url| {
        let url = url.clone().into();
        dialer(Action::Http { method: Method::POST, url, headers: HeaderMap::new(), tls: None })
    };
    let hang_up = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = [0; 1024];
        assert_ne!(stream.read(&mut seen).await.unwrap(), 0);
    };
    let open = tool(&url);
    let ((), outcome) = tokio::join!(hang_up, call(&open, "{}"));
    assert!(matches!(outcome, Err(CallError::Lost(_))), "{outcome:?}");
    drop(listener);
    let outcome = call(&tool(&url), "{}").await;
    assert!(matches!(&outcome, Err(CallError::NotSent(why)) if !why.contains("127.0.0.1")));
}

/// Also where the program has ended meanwhile, and what it wrote lies in the pipe.
#[tokio::test]
async fn output_for_which_there_is_no_room_is_not_taken_for_all() {
    without_room(async {
        assert_eq!(shell("echo hi").await, result("hi"), "what is small has room");
        for end in ["", "; sleep 60"] {
            let script = format!("head -c 100000 /dev/zero | tr '\\0' a{end}");
            let failure = call(&command(&["sh", "-c", &script], &[]), "{}").await;
            let failure = failure.expect_err("it is not read to its end");
            assert!(matches!(failure, CallError::NotRead(NotRead::NoRoom(_))), "{failure}");
        }
    })
    .await;
}
