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
async fn of_many_connections_few_are_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let more = 16;
    let (all, closed) = (Arc::new(Barrier::new(MOST_IDLE + more)), Arc::new(Semaphore::new(0)));
    let (mut server, mut requests) = (JoinSet::new(), JoinSet::new());
    let client = new();
    for _ in 0..MOST_IDLE + more {
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
