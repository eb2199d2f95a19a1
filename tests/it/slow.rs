//! Clients that take their time, and what becomes of the others meanwhile.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use crate::{bridge::Bridge, http::Request, mantyx::Mantyx, wait};

/// Longer than any limit of the bridge.
const LONG: Duration = Duration::from_secs(60);

/// Sends `head`, then a byte now and then until the bridge closes; what it said.
async fn drip(bridge: &Bridge, head: &str) -> String {
    let mut stream = TcpStream::connect(bridge.addr()).await.expect("it listens");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let (mut reader, mut writer) = stream.into_split();
    let mut said = Vec::new();
    let dripping = async {
        // It ends when nobody reads any more.
        while writer.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(500)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // A reset is an end as well.
        _ = reader.read_to_end(&mut said) => (),
        () = dripping => (),
        () = sleep(LONG) => panic!("it should be closed: {head}"),
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// The connections over TCP that the bridge has.
async fn open(bridge: &Bridge) -> String {
    let page = bridge.api("GET", "/metrics", None).await.text();
    let line = page.lines().find(|line| line.contains("connections_open{listener=\"tcp\"}"));
    line.expect("they are counted").rsplit(' ').next().unwrap_or_default().to_owned()
}

/// A21: slow headers, slow bodies and answers that nobody takes end with their connections, and a
/// normal request is answered meanwhile.
#[tokio::test]
async fn slow_clients_are_closed_and_hold_nobody_up() {
    let mantyx = Mantyx::start().await;
    let bridge = Bridge::start(&mantyx.upstream()).await;
    let to = format!("{}\r\nAuthorization: Bearer {}", bridge.addr(), bridge.token());
    let done = AtomicBool::new(false);
    let headers = async {
        let heads = ["", "GET /healthz HTTP/1.1\r\nX-Slow: "].map(|head| drip(&bridge, head));
        for said in futures_util::future::join_all(heads).await {
            assert!(!said.contains(" 200 "), "{said}");
        }
    };
    let json = "Content-Type: application/json";
    let body = async {
        let routes = ["/v1/specs/inject", "/api/v1/workspaces/acme/anything"];
        let heads = routes.map(|route| {
            format!("POST {route} HTTP/1.1\r\nHost: {to}\r\n{json}\r\nContent-Length: 9999\r\n\r\n")
        });
        let said = futures_util::future::join_all(heads.iter().map(|head| drip(&bridge, head)));
        for said in said.await {
            assert!(said.starts_with("HTTP/1.1 408") && said.contains("body_too_slow"), "{said}");
        }
    };
    let reading = async {
        // More than the system keeps for a reader that does not read.
        let spec = format!("{{\"prompt\":\"{}\"}}", "x".repeat(24 << 20));
        let head = format!("POST /v1/specs/inject HTTP/1.1\r\nHost: {to}\r\n{json}\r\n");
        let mut stream = TcpStream::connect(bridge.addr()).await.expect("it listens");
        let request = format!("{head}Content-Length: {}\r\n\r\n{spec}", spec.len());
        stream.write_all(request.as_bytes()).await.expect("it reads");
        stream
    };
    let all = async {
        let (_held, (), ()) = tokio::join!(reading, headers, body);
        // The one that asks is open, too.
        wait::until("the one that does not read should be closed", LONG, async || {
            (open(&bridge).await == "1.0").then_some(())
        })
        .await;
        done.store(true, Ordering::Relaxed);
    };
    let normal = async {
        while !done.load(Ordering::Relaxed) {
            Request::new("GET", "/healthz").answer(bridge.addr()).await.expect(200);
            bridge.status().await;
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::join!(all, normal);
}
