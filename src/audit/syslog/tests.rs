//! Lines at receivers: on each kind of connection, after their end, and beyond what may wait.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::SystemTime;

use tempfile::TempDir;

use super::super::queue::Queue;
use super::*;

/// A queue with a thread that sends to `receiver`.
fn queue(receiver: &Receiver) -> (Queue, Arc<Shared>) {
    let shared = Arc::new(Shared::new("syslog"));
    let sender = Sender::new(receiver.clone(), Arc::clone(&shared));
    let queue = Queue::start(Arc::clone(&shared), LONGEST, move |lines| sender.run(lines));
    (queue.unwrap(), shared)
}

fn line(text: &str) -> Arc<Line> {
    Arc::new(Line { time: SystemTime::UNIX_EPOCH, text: text.to_owned() })
}

fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// The next message that octet counting frames.
fn message(stream: &mut BufReader<TcpStream>) -> String {
    let mut length = Vec::new();
    stream.read_until(b' ', &mut length).unwrap();
    let length: usize = String::from_utf8(length).unwrap().trim().parse().unwrap();
    let mut message = vec![0; length];
    stream.read_exact(&mut message).unwrap();
    String::from_utf8(message).unwrap()
}

fn tcp() -> (TcpListener, Receiver) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, Receiver::Tcp(Server { host: "127.0.0.1".to_owned(), port }))
}

#[test]
fn socket_of_this_host_gets_a_datagram_for_each_line() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let socket = UnixDatagram::bind(&path).unwrap();
    let (queue, shared) = queue(&Receiver::Unix(path));
    queue.push(&line("{\"a\":1}"));
    let mut buffer = [0; 200];
    let length = socket.recv(&mut buffer).unwrap();
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    assert!(text.starts_with("<110>mantyx-bridge[") && text.ends_with("]: {\"a\":1}"), "{text}");
    queue.close();
    assert_eq!(shared.health().written, 1);
}

#[test]
fn line_that_follows_the_end_of_a_connection_goes_over_the_next() {
    let (listener, receiver) = tcp();
    let (queue, shared) = queue(&receiver);
    queue.push(&line("1"));
    let mut first = BufReader::new(listener.accept().unwrap().0);
    assert!(message(&mut first).ends_with(" audit - 1"));
    wait_for(|| shared.health().written == 1);
    drop(first);
    queue.push(&line("2"));
    let mut second = BufReader::new(listener.accept().unwrap().0);
    assert!(message(&mut second).ends_with(" audit - 2"));
    queue.close();
    let health = shared.health();
    assert_eq!((health.error, health.written, health.lost), (None, 2, 0));
}

#[test]
fn receiver_that_closes_each_connection_gets_no_line_that_counts_as_sent() {
    let (listener, receiver) = tcp();
    let (queue, shared) = queue(&receiver);
    queue.push(&line("1"));
    drop(listener.accept().unwrap());
    wait_for(|| shared.health().error.is_some());
    let health = shared.health();
    assert!(health.error.unwrap().contains("closes the connection"));
    assert_eq!(health.written, 0);
    let mut next = BufReader::new(listener.accept().unwrap().0);
    assert!(message(&mut next).ends_with(" audit - 1"));
    queue.close();
    assert_eq!((shared.health().written, shared.health().lost), (1, 0));
}

#[test]
fn link_local_receiver_is_not_dialled() {
    let server = Server { host: "169.254.169.254".to_owned(), port: 601 };
    let (queue, shared) = queue(&Receiver::Tcp(server));
    queue.push(&line("1"));
    wait_for(|| shared.health().error.is_some());
    assert!(shared.health().error.unwrap().contains("link-local"));
    queue.close();
}

#[test]
fn lines_wait_for_a_receiver_that_is_away() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let (queue, shared) = queue(&Receiver::Unix(path.clone()));
    queue.push(&line("1"));
    wait_for(|| shared.health().error.is_some());
    let error = shared.health().error.unwrap();
    assert!(error.contains(&format!("unix:{}", path.display())), "{error}");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut buffer = [0; 200];
    let length = socket.recv(&mut buffer).unwrap();
    assert!(buffer[..length].ends_with(b": 1"));
    queue.close();
    let health = shared.health();
    assert_eq!((health.error, health.written, health.lost), (None, 1, 0));
}

#[test]
fn lines_that_no_receiver_took_until_the_end_are_counted() {
    let dir = TempDir::new().unwrap();
    let (queue, shared) = queue(&Receiver::Unix(dir.path().join("log")));
    for text in ["1", "2", "3"] {
        queue.push(&line(text));
    }
    queue.close();
    assert_eq!(shared.health().lost, 3);
}

#[test]
fn line_that_no_datagram_holds_holds_up_no_other() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let socket = UnixDatagram::bind(&path).unwrap();
    let (queue, shared) = queue(&Receiver::Unix(path));
    queue.push(&line(&"x".repeat(4 << 20)));
    queue.push(&line("2"));
    let mut buffer = [0; 200];
    let length = socket.recv(&mut buffer).unwrap();
    assert!(buffer[..length].ends_with(b": 2"));
    queue.close();
    let health = shared.health();
    assert_eq!((health.written, health.lost), (1, 1));
}

/// A receiver that reads nothing: the kernel's buffers fill up, and the thread stands still.
#[test]
fn receiver_that_reads_nothing_takes_bounded_memory_and_no_callers_time() {
    let (listener, receiver) = tcp();
    let (queue, shared) = queue(&receiver);
    let text = "x".repeat(LONGEST - 1);
    let (stuck, unread) = mpsc::channel();
    let accepting = std::thread::spawn(move || stuck.send(listener.accept().unwrap().0).unwrap());
    for _ in 0..10_000 {
        queue.push(&line(&text));
    }
    assert!(shared.health().lost > 0, "16 MiB wait, and 80 were pushed");
    drop(unread);
    drop(queue);
    accepting.join().unwrap();
}

#[test]
fn address_of_a_receiver_is_written_as_it_is_configured() {
    let server = |host: &str| Server { host: host.to_owned(), port: 601 };
    assert_eq!(Receiver::Tcp(server("::1")).to_string(), "tcp://[::1]:601");
    assert_eq!(Receiver::Tls(server("siem"), None).to_string(), "tls://siem:601");
}
