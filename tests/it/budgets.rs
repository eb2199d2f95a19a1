//! What nobody has paid for: connections that show nothing, and large bodies at the same time.

use std::{net::SocketAddr, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use crate::{
    bridge::{API, Bridge},
    http::{Answer, Connection, Head, Request},
    process, wait,
};

const MIB: usize = 1 << 20;
const OK: &str =
    "local:\n  ok: {description: d, parameters: {type: object}, command: [echo, hi]}\n";

/// The service may have 512 MiB (`MemoryMax`), and a budget of bodies is most of this.
const ROOM: u64 = 288 << 20;

/// The connections of somebody without a token are all that a listener takes, and each has a
/// request on its way. An app is let in all the same.
#[tokio::test]
async fn clients_without_a_token_keep_no_app_out() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("it may grow");
    let bridge = Bridge::start_confined(&format!("upstream: {{sandbox: true}}\n{OK}")).await;
    let host = bridge.addr();
    let head = format!(
        "POST /sign-in HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n"
    );
    let mut strangers = Vec::new();
    for _ in 0..1_030 {
        let mut stranger = TcpStream::connect(host).await.expect("it listens");
        stranger.write_all(head.as_bytes()).await.ok();
        // The body is waited for, unless as many forms are read as may be.
        let mut told = [0; 12];
        if stranger.read_exact(&mut told).await.is_ok() && &told != b"HTTP/1.1 503" {
            assert_eq!(&told, b"HTTP/1.1 100");
            stranger.write_all(b"t").await.ok();
        }
        strangers.push(stranger);
    }
    for _ in 0..3 {
        bridge.api("GET", "/v1/status", None).await.expect(200);
        Request::new("GET", "/healthz").answer(host).await.expect(200);
    }
    let call = r#"{"toolUseId":"tu","name":"ok","args":{}}"#;
    assert_eq!(bridge.api("POST", "/v1/tool-calls", Some(call)).await.expect(200)["result"], "hi");
}

/// A MANTYX that reads every body to its end, keeps nothing of it, and gives out runs.
struct Sink {
    addr: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Sink {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(Self::serve(stream));
            }
        });
        Self { addr, _tasks: tasks }
    }

    async fn serve(stream: TcpStream) {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let mut runs = 0;
        while let Ok(Some(head)) = Head::read(&mut reader).await {
            let length =
                head.header("content-length").map_or(0, |length| length.parse().expect("a number"));
            let mut left = length;
            let mut piece = vec![0; MIB];
            while left > 0 {
                let most = piece.len().min(left);
                match reader.read(&mut piece[..most]).await {
                    Ok(read @ 1..) => left -= read,
                    _ => return,
                }
            }
            runs += 1;
            let port = writer.peer_addr().map_or(0, |peer| peer.port());
            let (status, body) = match head.line.starts_with("POST") {
                true => (201, format!(r#"{{"runId":"run_{port}_{runs}","status":"queued"}}"#)),
                false => (404, r#"{"error":"not_found","message":"no"}"#.to_owned()),
            };
            let answer = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            if writer.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Sends the first `sent` MiB of a spec of 60.
async fn send(to: SocketAddr, token: &str, sent: usize) -> Connection {
    const SPEC: usize = 60 * MIB;
    let (start, end) = (r#"{"prompt":""#, r#""}"#);
    let mut connection = Connection::open(to).await;
    let head = format!(
        "POST {API}/agent-runs HTTP/1.1\r\nHost: {to}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {SPEC}\r\n\r\n{start}"
    );
    connection.write(head.as_bytes()).await;
    connection.flood(&vec![b'a'; MIB], sent.min(59)).await.expect("it should be read");
    if sent == 60 {
        connection.write(&vec![b'a'; MIB - start.len() - end.len()]).await;
        connection.write(end.as_bytes()).await;
    }
    connection
}

/// One app has three specs on the way and stops in the middle of each. Others find room all the
/// same, and `problems` says what takes it.
#[tokio::test]
async fn app_with_large_requests_leaves_room_for_the_others() {
    let (sink, token) =
        (Sink::start().await, |app| format!("token-of-{app}-1234567890123456789012"));
    let (a, b) = (token("one"), token("two"));
    let config = format!(
        "upstream: {{base_url: 'http://{}', workspace: acme, credential: x}}\n\
         apps:\n  one: {{token: {a}}}\n  two: {{token: {b}}}\n{OK}",
        sink.addr
    );
    let bridge = Bridge::start(&config).await;
    let to = bridge.addr();
    // One after the other: the second has the room for the last, and the third gets none.
    let mut stopped = Vec::new();
    for _ in 0..3 {
        stopped.push(send(to, &a, 59).await);
    }
    let spec = format!(r#"{{"prompt":"{}"}}"#, "b".repeat(MIB));
    let begun = Instant::now();
    for _ in 0..3 {
        let post = Request::new("POST", &format!("{API}/agent-runs")).bearer(&b);
        post.json(spec.clone()).answer(to).await.expect(201);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "none had to wait for room");
    let problems = async |token: &str| {
        let status = Request::new("GET", "/v1/status").bearer(token).answer(to).await.expect(200);
        let all = status["problems"].as_array().expect("a list").clone();
        let found = all.iter().find(|problem| problem["subject"] == "memory");
        found.expect("it is told")["message"].as_str().expect("a text").to_owned()
    };
    assert!(problems(&a).await.contains("`one`"));
    let others = problems(&b).await;
    assert!(others.contains("another app") && !others.contains("one`"), "{others}");
    drop(stopped);
}

async fn spec(to: SocketAddr, token: String) -> Answer {
    send(to, &token, 60).await.response().await.answer().await
}

/// Ten specs of 60 MiB at once, and others on the way whose senders have stopped, cost no more than
/// the budget: those for which there is no room are told to come back.
#[tokio::test]
async fn large_specs_at_once_take_no_more_than_their_room() {
    let sink = Sink::start().await;
    let config = format!(
        "upstream: {{base_url: 'http://{}', workspace: acme, credential: x}}\n{OK}",
        sink.addr
    );
    let mut bridge = Bridge::start(&config).await;
    let (to, token) = (bridge.addr(), bridge.token().to_owned());
    let before = process::resident(bridge.process().pid());
    // They announce 600 MiB in all, and take next to nothing from others.
    let mut stopped = Vec::new();
    for _ in 0..10 {
        stopped.push(send(to, &token, 0).await);
    }
    let mut at_once = JoinSet::new();
    for _ in 0..10 {
        at_once.spawn(spec(to, token.clone()));
    }
    let mut taken = 0;
    while let Some(answer) = at_once.join_next().await {
        let answer = answer.expect("no task panics");
        match answer.status {
            201 => taken += 1,
            _ => {
                assert_eq!(answer.expect_error(503)["code"], "busy");
                assert!(answer.header("retry-after").is_some());
            }
        }
        // What is small is answered meanwhile.
        let call = format!(r#"{{"toolUseId":"tu_{taken}","name":"ok","args":{{}}}}"#);
        bridge.api("POST", "/v1/tool-calls", Some(&call)).await.expect(200);
    }
    assert!(taken >= 2, "{taken} of 10 were taken");
    spec(to, token.clone()).await.expect(201);
    let most = process::most_resident(bridge.process().pid()) - before;
    println!("{taken} of 10 were taken; it took {} MiB more", most >> 20);
    assert!(most <= ROOM, "it took {} MiB more", most >> 20);
    drop(stopped);
    wait::until("the memory should be given back", Duration::from_secs(30), async || {
        let now = process::resident(bridge.process().pid());
        (now <= before + 64 * (MIB as u64)).then_some(())
    })
    .await;
}
