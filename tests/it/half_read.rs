//! Connections that a hang-up, an abort or a limit leaves half read, at the app's side and at
//! MANTYX's: no other app gets what is left on them, and nothing of it becomes a request.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    bridge::{API, Bridge},
    http::PATIENCE,
    mantyx::Mantyx,
    wait,
};

const A: &str = "a-token-0123456789abcdef0123456789abcdef";
const B: &str = "b-token-0123456789abcdef0123456789abcdef";
/// What no app but the first may read.
const SECRET: &str = "only-for-a";

/// A head of the app with this token; `more` are further headers.
fn head(bridge: &Bridge, token: &str, line: &str, more: &str) -> String {
    let host = bridge.addr();
    format!("{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
}

/// Writes `bytes`, waits for MANTYX to have `recorded` requests, reads `read` bytes, and hangs up.
async fn leave(bridge: &Bridge, mantyx: &Mantyx, bytes: &str, (recorded, read): (usize, usize)) {
    let mut stream = TcpStream::connect(bridge.addr()).await.expect("it listens");
    stream.write_all(bytes.as_bytes()).await.expect("it reads");
    wait::soon("MANTYX should be asked", async || {
        (mantyx.recorded().len() >= recorded).then_some(())
    })
    .await;
    let mut some = vec![0; read];
    timeout(PATIENCE, stream.read_exact(&mut some)).await.expect("in time").expect("an answer");
}

/// Asks for four things on one connection, in one go; all that is answered.
async fn pipelined(bridge: &Bridge, round: usize) -> String {
    let requests = (0..4).map(|at| {
        let last = if at == 3 { "Connection: close\r\n" } else { "" };
        head(bridge, B, &format!("GET {API}/b/{round}/{at}"), last)
    });
    let mut stream = TcpStream::connect(bridge.addr()).await.expect("it listens");
    let requests: String = requests.collect();
    stream.write_all(requests.as_bytes()).await.expect("it reads");
    let mut said = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut said)).await;
    read.expect("it should be closed").expect("text");
    said
}

#[tokio::test]
async fn rest_of_an_answer_on_a_connection_reaches_no_other_request() {
    let mantyx = Mantyx::start().await;
    let apps = format!("apps:\n  a: {{token: {A}}}\n  b: {{token: {B}}}\n");
    let bridge = Bridge::start(&format!("{}{apps}", mantyx.upstream())).await;
    let big = SECRET.repeat(1 << 20);
    mantyx.canned("GET", &format!("{API}/big"), &["HTTP/1.1 200 OK"], &big);
    let smuggled = head(&bridge, A, &format!("GET {API}/smuggled"), "");
    let post = |more: &str| head(&bridge, A, &format!("POST {API}/files"), more);
    let results = format!("POST {API}/agent-runs/run_1/tool-results");
    let length = |length: usize| format!("Content-Length: {length}\r\n");
    // What is sent, how many requests MANTYX has to have seen of it, how much is read.
    let ways = [
        ("a sized body breaks off", post(&length(1000)) + &smuggled, (0, 0)),
        (
            "a chunked body breaks off",
            post("Transfer-Encoding: chunked\r\n") + "1000\r\n" + &smuggled,
            (0, 0),
        ),
        (
            "an answer is not read to its end",
            head(&bridge, A, &format!("GET {API}/big"), ""),
            (1, 9000),
        ),
        (
            "an answer is not read to its end, and more is asked",
            head(&bridge, A, &format!("GET {API}/big"), "").repeat(3),
            (1, 9000),
        ),
        ("an answer is not waited for", head(&bridge, A, &format!("GET {API}/slow"), ""), (1, 0)),
        // Only as many bytes are read of the answer as every answer has.
        (
            "a body is over its limit",
            head(&bridge, A, &format!("POST {API}/agent-runs"), &length(65 << 20)) + &smuggled,
            (0, 12),
        ),
        ("a chunk is none", post("Transfer-Encoding: chunked\r\n") + "x\r\n" + &smuggled, (0, 0)),
        ("a result breaks off", head(&bridge, A, &results, &length(500)) + &smuggled, (0, 0)),
    ];
    mantyx.hold("GET", "/slow", "slow");
    for (round, (what, bytes, (asked, read))) in ways.iter().enumerate() {
        for at in 0..4 {
            let target = format!("{API}/b/{round}/{at}");
            mantyx.canned("GET", &target, &["HTTP/1.1 200 OK"], &format!("[b {round} {at}]"));
        }
        // Two connections to MANTYX are open and unused, for what comes to take.
        let (one, two) = tokio::join!(pipelined(&bridge, round), pipelined(&bridge, round));
        let before = mantyx.recorded().len();
        leave(&bridge, &mantyx, bytes, (before + asked, *read)).await;
        for said in [one, two, pipelined(&bridge, round).await, pipelined(&bridge, round).await] {
            let bodies = said
                .split("\r\n\r\n")
                .skip(1)
                .map(|body| body.split("HTTP/1.1 ").next().unwrap_or_default().to_owned());
            let expected: Vec<String> = (0..4).map(|at| format!("[b {round} {at}]")).collect();
            assert_eq!(bodies.collect::<Vec<_>>(), expected, "{what}");
            assert!(!said.contains(SECRET), "{what}");
        }
    }
    mantyx.release("slow");
    for request in mantyx.recorded() {
        let known = ["/b/", "/big", "/slow"].iter().any(|part| request.target.contains(part));
        assert!(known && request.body.is_empty(), "{request:?}");
    }
}
