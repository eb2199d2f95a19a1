//! Sockets that systemd opens: the daemon under systemd-socket-activate, which starts it as a
//! socket unit does, when the first client comes.
//!
//! Must not: need a running systemd.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixDatagram, UnixStream},
    time::timeout,
};

use crate::{
    bridge::{self, DRAIN},
    certs::{Authority, Client},
    http::{Connection, PATIENCE, Request},
    peers, ports,
    process::{self, Group},
    systemd::{program, told},
    wait,
};

const BINARY: &str = env!("CARGO_BIN_EXE_mantyx-bridge");
const OK: &str = "HTTP/1.1 200 OK";

/// A daemon that its first client starts.
struct Activated {
    process: Group,
    tcp: SocketAddr,
    notify: UnixDatagram,
    // The last field: the directory must outlive the process.
    dir: TempDir,
}

impl Activated {
    /// Opens a TCP socket at `ip` and a unix socket for a daemon whose configuration `config` makes
    /// of their addresses.
    async fn new(ip: Ipv4Addr, config: impl Fn(SocketAddr, &Path) -> String) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        fs::create_dir(dir.path().join("tmp")).expect("a new directory is empty");
        let notify = dir.path().join("notify");
        let notified = UnixDatagram::bind(&notify).expect("a new path");
        // systemd-socket-activate takes no port 0.
        let tcp = SocketAddr::from((ip, ports::free().port()));
        let unix = dir.path().join("bridge.sock");
        let file = dir.path().join("bridge.yaml");
        let state = dir.path().join("state");
        let text = format!("{}state_dir: {}\n", config(tcp, &unix), state.display());
        fs::write(&file, text).expect("the test's directory is writable");

        let activate = program("systemd-socket-activate");
        let mut command = bridge::command_of(activate.to_str().expect("a path of UTF-8"));
        let env = [("NOTIFY_SOCKET", &notify), ("TMPDIR", &dir.path().join("tmp"))];
        for (name, value) in env {
            command.arg("-E").arg(format!("{name}={}", value.display()));
        }
        command.arg("-l").arg(tcp.to_string()).arg("-l").arg(&unix);
        command.args([BINARY, "serve", "--log-format", "json", "-c"]).arg(&file);
        let process = Group::spawn(&mut command, &dir.path().join("log"));
        wait::soon("the sockets should be open", async || {
            let log = process.log();
            (log.matches("Listening on").count() == 2).then_some(())
        })
        .await;
        Self { process, tcp, notify: notified, dir }
    }

    fn unix(&self) -> PathBuf {
        self.dir.path().join("bridge.sock")
    }

    fn state(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join("state").join(name)).unwrap_or_default()
    }

    /// The status line of `GET /healthz` on a unix socket.
    async fn health_over(path: &Path) -> String {
        let mut stream = UnixStream::connect(path).await.expect("somebody listens");
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("the daemon reads");
        let mut answer = String::new();
        let read = timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
        read.expect("the daemon answers in time").expect("it answers in UTF-8");
        answer.lines().next().unwrap_or_default().to_owned()
    }

    async fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        let status = self.process.ended(DRAIN).await;
        assert_eq!(status.code(), Some(0), "SIGTERM should end it clean: {}", self.process.log());
    }

    /// The programs that the daemon started.
    fn children(&self) -> Vec<rustix::process::Pid> {
        let mark = format!("TMPDIR={}", self.dir.path().join("tmp").display());
        process::marked(&mark, Some(self.process.pid()))
    }

    /// The sockets that a process has open.
    fn sockets(pid: rustix::process::Pid) -> Vec<PathBuf> {
        let fds = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("it runs");
        let links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).collect()
    }
}

#[tokio::test]
async fn sockets_of_systemd_are_served_and_left_as_they_were() {
    let ledger = TempDir::new().expect("the temporary directory is writable");
    let plain = peers::ledger(&ledger.path().join("ledger"), &[]);
    let config = |_, _: &Path| format!("upstream: {{sandbox: true}}\nmcp:\n  plain: {plain}\n");
    let mut daemon = Activated::new(Ipv4Addr::LOCALHOST, config).await;

    // The first request waits while the daemon starts; its Host is the address of that socket.
    Request::new("GET", "/healthz").answer(daemon.tcp).await.expect(200);
    told(&daemon.notify, "READY=1").await;
    let urls = format!("http://{}\nunix:{}\n", daemon.tcp, daemon.unix().display());
    assert_eq!(daemon.state("listen"), urls, "these two, and no default beside them");
    assert_eq!(Activated::health_over(&daemon.unix()).await, OK);
    let foreign = Request::new("GET", "/healthz").header("Host", "127.0.0.1:1");
    foreign.answer(daemon.tcp).await.expect_error(403);

    let children = daemon.children();
    assert!(!children.is_empty(), "the server runs");
    for pid in children {
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let environment = String::from_utf8_lossy(&environment.expect("it runs")).into_owned();
        assert!(!environment.contains("LISTEN_"), "{environment}");
        let shared = Activated::sockets(daemon.process.pid());
        let inherited: Vec<_> =
            Activated::sockets(pid).into_iter().filter(|own| shared.contains(own)).collect();
        assert!(inherited.is_empty(), "a child has the daemon's sockets: {inherited:?}");
    }

    // A call that is under way when the daemon is stopped is answered.
    let token = daemon.state("token");
    let data = r#"{"toolUseId":"tu_1","name":"plain_slow","args":{"text":"2"},"kind":"mcp_local","mcpServer":"plain"}"#;
    let request = Request::new("POST", "/v1/tool-calls").bearer(token.trim()).json(data);
    let call = request.answer(daemon.tcp);
    let stopped = async {
        wait::soon("the call should reach its tool", async || {
            let calls = fs::read_to_string(ledger.path().join("ledger")).unwrap_or_default();
            calls.contains("slow").then_some(())
        })
        .await;
        daemon.stop().await;
    };
    let (answer, ()) = tokio::join!(call, stopped);
    assert_eq!(answer.expect(200)["result"], "slept");
    told(&daemon.notify, "STOPPING=1").await;
    let kind = fs::metadata(daemon.unix()).expect("systemd's file stays").file_type();
    assert!(kind.is_socket());
}

#[tokio::test]
async fn configured_addresses_are_served_beside_sockets_of_systemd_and_none_twice() {
    let config = |tcp, unix: &Path| {
        let own = unix.with_file_name("own.sock");
        format!(
            "upstream: {{sandbox: true}}\nlisten: {{tcp: ['127.0.0.1:0', '{tcp}'], unix: {}}}\n",
            own.display()
        )
    };
    let mut daemon = Activated::new(Ipv4Addr::LOCALHOST, config).await;
    Request::new("GET", "/healthz").answer(daemon.tcp).await.expect(200);
    told(&daemon.notify, "READY=1").await;
    let own = daemon.unix().with_file_name("own.sock");
    let urls = daemon.state("listen");
    let [tcp, unix, bound, second] = urls.lines().collect::<Vec<_>>()[..] else { panic!("{urls}") };
    assert_eq!(tcp, format!("http://{}", daemon.tcp));
    assert_eq!(unix, format!("unix:{}", daemon.unix().display()));
    assert_eq!(second, format!("unix:{}", own.display()));
    let bound = bound.strip_prefix("http://").and_then(|address| address.parse().ok());
    let bound: SocketAddr = bound.unwrap_or_else(|| panic!("{urls}"));
    Request::new("GET", "/healthz").answer(bound).await.expect(200);
    assert_eq!(Activated::health_over(&own).await, OK);
    daemon.stop().await;
    assert!(!own.exists(), "the daemon removes what it made");
    assert!(daemon.unix().exists(), "and nothing else");
}

#[tokio::test]
async fn socket_of_systemd_that_other_machines_reach_is_refused() {
    let config = |_, _: &Path| "upstream: {sandbox: true}\n".to_owned();
    let mut daemon = Activated::new(Ipv4Addr::UNSPECIFIED, config).await;
    let _client = UnixStream::connect(daemon.unix()).await.expect("it listens");
    let status = daemon.process.ended(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(1));
    let log = daemon.process.log();
    let cure = format!("ListenStream=127.0.0.1:{}", daemon.tcp.port());
    assert!(log.contains(&daemon.tcp.to_string()) && log.contains(&cure), "{log}");
}

#[tokio::test]
async fn socket_of_systemd_that_other_machines_reach_is_served_with_tls() {
    let (authority, files) = (Authority::new(), TempDir::new().expect("it is writable"));
    let pair = authority.sign(&["127.0.0.1"]);
    for (name, text) in [("cert", &pair.cert), ("key", &pair.key)] {
        fs::write(files.path().join(name), text).expect("a new file");
    }
    let config = |tcp, _: &Path| {
        let at = files.path().display();
        let tls = format!("{{cert: {at}/cert, key: {at}/key}}");
        format!("upstream: {{sandbox: true}}\nlisten: {{tcp: '{tcp}', tls: {tls}}}\n")
    };
    let mut daemon = Activated::new(Ipv4Addr::UNSPECIFIED, config).await;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, daemon.tcp.port()));
    let stream = Client::new(&authority.pem(), None).connect(to).await.expect("a handshake");
    let health = Request::new("GET", "/healthz");
    health.send_on(Connection::over(stream), &to.to_string()).await.answer().await.expect(200);
    assert_eq!(Activated::health_over(&daemon.unix()).await, OK, "this one is in the clear");
    let urls = format!("https://{}\nunix:{}\n", daemon.tcp, daemon.unix().display());
    assert_eq!(daemon.state("listen"), urls);
    daemon.stop().await;
}

#[test]
fn socket_of_systemd_that_does_not_listen_is_refused() {
    // A file, and no descriptor at all.
    for handed in ["3</dev/null", "3<&-"] {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let file = dir.path().join("bridge.yaml");
        let config = format!("upstream: {{sandbox: true}}\nstate_dir: {}\n", dir.path().display());
        fs::write(&file, config).expect("the test's directory is writable");
        let line = format!("LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve -c \"$1\" {handed}");
        let output = bridge::command_of("sh").args(["-c", &line, BINARY]).arg(&file).output();
        let output = output.expect("sh is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("descriptor 3 of LISTEN_FDS"), "{said}");
    }
}
