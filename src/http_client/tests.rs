//! What all clients have in common.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// Answers one request when as many others are there as `all` waits for, and tells when the client
/// has closed the connection.
async fn serve(mut connection: TcpStream, all: Arc<Barrier>, closed: Arc<Semaphore>) {
    let (mut request, mut bytes) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        let length = connection.read(&mut bytes).await.unwrap();
        request.extend_from_slice(&bytes[..length]);
    }
    all.wait().await;
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    if connection.read(&mut bytes).await.is_ok_and(|length| length == 0) {
        closed.add_permits(1);
    }
}

#[tokio::test]
async fn idle_connections_are_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let more = 16;
    let (all, closed) = (Arc::new(Barrier::new(MAX_IDLE + more)), Arc::new(Semaphore::new(0)));
    let (mut server, mut requests) = (JoinSet::new(), JoinSet::new());
    let client = new();
    for _ in 0..MAX_IDLE + more {
        let (client, url) = (client.clone(), url.clone());
        requests.spawn(async move { client.get(url).send().await.unwrap().bytes().await.unwrap() });
        let (connection, _) = listener.accept().await.unwrap();
        server.spawn(serve(connection, Arc::clone(&all), Arc::clone(&closed)));
    }
    while requests.join_next().await.is_some_and(|answered| answered.unwrap().is_empty()) {}
    let waited = timeout(Duration::from_secs(10), closed.acquire_many(more as u32)).await;
    waited.expect("those beyond the limit are closed").unwrap().forget();
    assert_eq!(closed.available_permits(), 0, "and no others");
}

/// A proxy that answers each request with `answer`, and then is silent. Returns its address and the
/// request lines that it gets.
async fn proxy(
    answer: &'static str,
) -> (String, Arc<parking_lot::Mutex<Vec<String>>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let lines = Arc::<parking_lot::Mutex<Vec<String>>>::default();
    let mut server = JoinSet::new();
    server.spawn({
        let lines = Arc::clone(&lines);
        async move {
            let mut open = Vec::new();
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let (mut request, mut bytes) = (Vec::new(), [0; 1024]);
                while !request.ends_with(b"\r\n\r\n") {
                    let length = connection.read(&mut bytes).await.unwrap();
                    request.extend_from_slice(&bytes[..length]);
                }
                let request = String::from_utf8(request).unwrap();
                lines.lock().push(request.lines().next().unwrap().to_owned());
                connection.write_all(answer.as_bytes()).await.unwrap();
                open.push(connection);
            }
        }
    });
    (address, lines, server)
}

/// A client in an environment with these variables, which waits a moment for a connection.
fn client_with(variables: &[(&str, String)]) -> reqwest::Client {
    let value = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    let builder = with_proxies(proxies(value)).connect_timeout(Duration::from_millis(500));
    builder.http1_only().build().unwrap()
}

#[tokio::test]
async fn proxy_without_a_scheme_is_used() {
    let (address, lines, _server) =
        proxy("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let port = address.rsplit(':').next().unwrap();
    for proxy in [address.clone(), format!("localhost:{port}"), format!("ann:pw@{address}")] {
        let client = client_with(&[("http_proxy", proxy.clone()), ("HTTP_PROXY", String::new())]);
        let answer = client.get("http://name.test/x").send().await;
        assert!(answer.is_ok_and(|answer| answer.status() == 200), "{proxy}");
    }
    assert_eq!(*lines.lock(), ["GET http://name.test/x HTTP/1.1"; 3]);
}

#[tokio::test]
async fn hosts_of_a_domain_with_a_star_get_no_proxy() {
    let (address, lines, _server) =
        proxy("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let client = client_with(&[
        ("HTTP_PROXY", format!("http://{address}")),
        ("NO_PROXY", "x.test, *.corp.test".to_owned()),
    ]);
    for (host, is_used) in
        [("a.corp.test", false), ("b.a.corp.test", false), ("x.test", false), ("acorp.test", true)]
    {
        lines.lock().clear();
        // Without the proxy, there is no such host.
        let answer = client.get(format!("http://{host}/")).send().await;
        assert_eq!((answer.is_ok(), lines.lock().len()), (is_used, usize::from(is_used)), "{host}");
    }
}

#[tokio::test]
async fn failures_of_a_proxy_have_a_cure() {
    for (answer, cure) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
            "USER:PASSWORD@",
        ),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "NO_PROXY"),
        // It is silent in the handshake of TLS.
        ("HTTP/1.1 200 OK\r\n\r\n", "swallows"),
    ] {
        let (address, lines, _server) = proxy(answer).await;
        let client = client_with(&[("HTTPS_PROXY", format!("http://{address}"))]);
        let error = client.get("https://name.test/").send().await.unwrap_err();
        assert_eq!(*lines.lock(), ["CONNECT name.test:443 HTTP/1.1"]);
        assert!(error.is_connect(), "nothing was sent: {error:?}");
        let found = crate::error_chain::cure(&error).unwrap_or_default();
        assert!(found.contains(cure), "{}: {found}", error_chain(&error));
    }
}
