//! A haproxy before several bridges, as docs/scaling.md wants it: round robin, and no request for a
//! bridge whose `/readyz` does not say yes.
//!
//! Must not: repeat a request that a bridge may have read.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::{bridge::command_of, peers::debian, ports, process::Group, wait};

const START: Duration = Duration::from_secs(10);

/// The host that apps ask for; each bridge has it in `listen.hosts`.
pub(crate) const HOST: &str = "bridge.acme.intranet";

/// A running haproxy.
#[derive(Debug)]
pub(crate) struct Haproxy {
    addr: SocketAddr,
    process: Group,
    // The last field: the directory must outlive the process.
    _dir: TempDir,
}

impl Haproxy {
    /// A haproxy before the bridges at `servers`, which need not run yet.
    pub(crate) async fn before(servers: &[SocketAddr]) -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let addr = ports::free();
        let file = dir.path().join("haproxy.cfg");
        fs::write(&file, config(addr, servers)).expect("the directory is writable");
        let program = program();
        let mut command = command_of(program.to_str().expect("a path of UTF-8"));
        command.arg("-db").arg("-f").arg(&file);
        let mut process = Group::spawn(&mut command, &dir.path().join("log"));
        wait::until("haproxy should listen", START, async || {
            assert!(process.exited().is_none(), "haproxy ended: {}", process.log());
            TcpStream::connect(addr).await.ok().map(drop)
        })
        .await;
        Self { addr, process, _dir: dir }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until it asks the bridge no more.
    pub(crate) async fn wait_down(&self, server: usize) {
        wait::soon("haproxy should notice that the bridge is not ready", async || {
            (!self.is_up(server)).then_some(())
        })
        .await;
    }

    /// Waits until it asks the bridge again.
    pub(crate) async fn wait_up(&self, server: usize) {
        wait::soon("haproxy should notice that the bridge is ready", async || {
            self.is_up(server).then_some(())
        })
        .await;
    }

    /// At first it takes each for ready.
    fn is_up(&self, server: usize) -> bool {
        let log = self.log();
        let name = format!("Server replicas/replica{server} is ");
        log.lines().rfind(|line| line.contains(&name)).is_none_or(|line| line.contains("is UP"))
    }

    /// What it has logged: each request that failed, and each change of a bridge's state.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let states =
                log.lines().filter(|line| line.contains("Server ") || line.contains("ALERT"));
            eprintln!("--- haproxy:\n{}\n---", states.collect::<Vec<_>>().join("\n"));
        }
        self.process.signal(Signal::TERM);
    }
}

/// A silent stream has a comment every 15 s, so that one without is dead long before the limits
/// here. A replica that is frozen or cut off holds its connections: they are cut when its check
/// fails.
fn config(addr: SocketAddr, servers: &[SocketAddr]) -> String {
    let servers = servers
        .iter()
        .enumerate()
        .map(|(index, server)| format!("    server replica{index} {server} check\n"));
    format!(
        "global
    log stdout format raw local0
    maxconn 8000
defaults
    mode http
    log global
    option httplog
    option dontlog-normal
    option redispatch
    retries 3
    timeout connect 2s
    timeout check 2s
    timeout client 60s
    timeout server 60s
frontend apps
    bind {addr}
    default_backend replicas
backend replicas
    balance roundrobin
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host {HOST}
    http-check expect status 200
    default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{}",
        servers.collect::<String>()
    )
}

/// haproxy itself.
pub(crate) fn program() -> PathBuf {
    debian::program("haproxy", "haproxy")
}
