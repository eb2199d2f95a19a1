//! Requests whose length two readers could take for different ones, byte by byte: none is answered
//! but with an error, and what they carry behind them is never a request.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    bridge::{API, Bridge},
    http::PATIENCE,
    mantyx::Mantyx,
};

/// All that the bridge says to `bytes`, up to the end of the connection.
async fn said_to(bridge: &Bridge, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(bridge.addr()).await.expect("it listens");
    stream.write_all(bytes).await.expect("it reads");
    let mut said = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut said)).await;
    // It closes before it has read all, which is a reset then.
    drop(read.expect("the connection should be closed"));
    String::from_utf8_lossy(&said).into_owned()
}

/// Why a request is ambiguous, the headers that frame its body, and the body.
struct Case {
    what: &'static str,
    framing: &'static str,
    body: &'static str,
}

const CHUNKED: &str = "0\r\n\r\n";

const CASES: [Case; 18] = [
    Case {
        what: "both lengths",
        framing: "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        body: CHUNKED,
    },
    Case {
        what: "both, in turn",
        framing: "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        body: CHUNKED,
    },
    Case { what: "two lengths", framing: "Content-Length: 2\r\nContent-Length: 5\r\n", body: "{}" },
    Case { what: "two lengths in one", framing: "Content-Length: 2, 5\r\n", body: "{}" },
    Case { what: "a signed length", framing: "Content-Length: +2\r\n", body: "{}" },
    Case { what: "a length that is none", framing: "Content-Length: 0x2\r\n", body: "{}" },
    Case {
        what: "a folded header",
        framing: "X-A: b\r\n Content-Length: 2\r\nContent-Length: 2\r\n",
        body: "{}",
    },
    Case { what: "a bare line feed", framing: "X-A: b\nContent-Length: 2\r\n", body: "{}" },
    Case {
        what: "a bare carriage return",
        framing: "X-A: b\rContent-Length: 9\r\nContent-Length: 2\r\n",
        body: "{}",
    },
    Case { what: "a null", framing: "X-A: b\0\r\nContent-Length: 2\r\n", body: "{}" },
    Case {
        what: "a name with a space",
        framing: "Content-Length : 9\r\nContent-Length: 2\r\n",
        body: "{}",
    },
    Case { what: "an unknown coding", framing: "Transfer-Encoding: xchunked\r\n", body: CHUNKED },
    Case {
        what: "chunked, but not last",
        framing: "Transfer-Encoding: chunked, identity\r\n",
        body: CHUNKED,
    },
    Case {
        what: "a chunk without a size",
        framing: "Transfer-Encoding: chunked\r\n",
        body: "x\r\n{}\r\n0\r\n\r\n",
    },
    Case {
        what: "a signed chunk",
        framing: "Transfer-Encoding: chunked\r\n",
        body: "+2\r\n{}\r\n0\r\n\r\n",
    },
    Case {
        what: "a chunk extension with a line feed",
        framing: "Transfer-Encoding: chunked\r\n",
        body: "2;a\n{}\r\n0\r\n\r\n",
    },
    Case {
        what: "a chunk that is too long",
        framing: "Transfer-Encoding: chunked\r\n",
        body: "2\r\n{}}}\r\n0\r\n\r\n",
    },
    Case {
        what: "a huge chunk",
        framing: "Transfer-Encoding: chunked\r\n",
        body: "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    },
];

/// A31: whatever is ambiguous is 400 and the end of its connection, and what is smuggled behind it
/// is not handled.
#[tokio::test]
async fn ambiguous_request_is_refused_and_carries_nothing() {
    let mantyx = Mantyx::start().await;
    let bridge = Bridge::start(&mantyx.upstream()).await;
    let host = format!("Host: {}\r\nAuthorization: Bearer {}", bridge.addr(), bridge.token());
    let smuggled = format!("GET {API}/smuggled HTTP/1.1\r\n{host}\r\n\r\n");
    for Case { what, framing, body } in CASES {
        let json = "Content-Type: application/json";
        let head = format!("POST /v1/specs/inject HTTP/1.1\r\n{host}\r\n{json}\r\n{framing}\r\n");
        let said = said_to(&bridge, format!("{head}{body}{smuggled}").as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 400 "), "{what}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{what}: one answer: {said}");
    }
    let asked = mantyx.recorded();
    assert!(asked.is_empty(), "nothing reaches MANTYX: {asked:?}");
    // The request that was to be smuggled is one that is answered.
    let plain = smuggled.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    said_to(&bridge, plain.as_bytes()).await;
    assert_eq!(mantyx.recorded().len(), 1);
}

/// Requests behind others are looked at as the first is, wherever reads cut them: what stands
/// before an ambiguous one is answered, it is refused, and nothing behind it is handled.
#[tokio::test]
async fn ambiguous_request_is_refused_behind_other_requests_too() {
    let mantyx = Mantyx::start().await;
    let bridge = Bridge::start(&mantyx.upstream()).await;
    let host = format!("Host: {}\r\nAuthorization: Bearer {}", bridge.addr(), bridge.token());
    let json = "Content-Type: application/json";
    let smuggled = format!("GET {API}/smuggled HTTP/1.1\r\n{host}\r\n\r\n");
    let inject = format!("POST /v1/specs/inject HTTP/1.1\r\n{host}\r\n{json}\r\n");
    let before = [
        format!("GET /healthz HTTP/1.1\r\n{host}\r\n\r\n"),
        format!("{inject}Content-Length: 4\r\n\r\n{{\n\n}}"),
        format!("{inject}Transfer-Encoding: chunked\r\n\r\n4;x\r\n{{\n\n}}\r\n0\r\nX: y\r\n\r\n"),
    ];
    let odd = [
        format!("GET /healthz HTTP/1.1\n{host}\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\n{host}\r\nX: y\n\r\n"),
        format!("{inject}X: y\nContent-Length: 2\r\n\r\n{{}}"),
        format!("{inject}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ];
    for (which, good) in before.iter().enumerate() {
        for bad in &odd {
            let bytes = format!("{good}{bad}{smuggled}");
            let middle = good.len() + bad.len() / 2;
            for cut in [0, good.len() - 1, good.len(), middle, good.len() + bad.len()] {
                let mut stream = TcpStream::connect(bridge.addr()).await.expect("it listens");
                let (one, two) = bytes.split_at(cut);
                stream.set_nodelay(true).expect("a connected socket takes the option");
                stream.write_all(one.as_bytes()).await.expect("it reads");
                // The next read of the bridge finds the rest, or both: each has to do.
                tokio::task::yield_now().await;
                stream.write_all(two.as_bytes()).await.ok();
                let mut said = Vec::new();
                let read = timeout(PATIENCE, stream.read_to_end(&mut said)).await;
                drop(read.expect("the connection should be closed"));
                let said = String::from_utf8_lossy(&said);
                let statuses: Vec<&str> =
                    said.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
                // A chunked request is the last of its connection.
                let answered = if good.contains("chunked") { 1 } else { 2 };
                let expected = &["200", "400"][..answered];
                assert_eq!(statuses, expected, "{which} {cut} {bad:?}: {said}");
                assert_eq!(said.contains("invalid_request"), answered == 2, "{said}");
            }
        }
    }
    let asked = mantyx.recorded();
    assert!(asked.is_empty(), "nothing reaches MANTYX: {asked:?}");
}
