//! Processes of the bench, each ended with its guard, and what the kernel says of one.
//!
//! Must not: find a process by its name.

use std::{fs, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};

use crate::{clock, run::Outcome};

/// However slow the machine is, what takes longer than this does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A port on loopback that was free a moment ago, for a program that has to be told one.
pub(crate) fn free_addr() -> Outcome<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Whether `child` comes to listen at `addr`; not, where it ends before or takes too long.
pub(crate) async fn comes_to_listen(child: &mut Child, addr: SocketAddr) -> Outcome<bool> {
    let end = clock::now() + PATIENCE.as_nanos() as u64;
    while TcpStream::connect(addr).await.is_err() {
        if child.try_wait()?.is_some() || clock::now() > end {
            return Ok(false);
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(true)
}

/// A process that is given orders by its stdin, and answers by its stdout.
#[derive(Debug)]
pub(crate) struct Process {
    /// It ends with this.
    _child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Outcome<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| format!("{command:?} does not start: {error}"))?;
        let stdout = child.stdout.take().ok_or("stdout is piped")?;
        let stdin = child.stdin.take();
        Ok(Self { _child: child, stdin, stdout: BufReader::new(stdout).lines() })
    }

    /// This program again, in a role.
    pub(crate) fn role(role: &str, rest: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--role", role]).args(rest);
        Self::start(command)
    }

    /// A role that listens.
    pub(crate) async fn listening(role: &str, rest: &[&str]) -> Outcome<(Self, SocketAddr)> {
        let mut process = Self::role(role, rest)?;
        let addr = process.line().await?.parse()?;
        Ok((process, addr))
    }

    pub(crate) async fn order(&mut self, order: &impl Serialize) -> Outcome<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let stdin = self.stdin.as_mut().ok_or("stdin is piped")?;
        stdin.write_all(&line).await?;
        Ok(stdin.flush().await?)
    }

    pub(crate) async fn line(&mut self) -> Outcome<String> {
        let line = timeout(PATIENCE, self.stdout.next_line()).await;
        let line =
            line.map_err(|late| format!("a process of the benchmark says nothing: {late}"))??;
        Ok(line.ok_or("a process of the benchmark has ended early")?)
    }
}

/// Asks a child of ours to end, and waits for it.
pub(crate) async fn end(child: &mut Child) -> Outcome<()> {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        kill_process(pid, Signal::TERM)?;
    }
    let status = timeout(PATIENCE, child.wait()).await;
    let status =
        status.map_err(|late| format!("a process does not end when asked to: {late}"))??;
    if status.success() { Ok(()) } else { Err(format!("a process ended with {status}").into()) }
}

/// What the kernel counts in, whatever its own clock: `USER_HZ` is 100 on every Linux of ours.
const TICKS_PER_SECOND: f64 = 100.0;

/// The processor time that a process has used, in seconds: its own, and the kernel's for it.
pub(crate) fn processor_seconds(id: u32) -> Outcome<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name, in brackets, may hold anything; behind it, these are the fields 14 and 15.
    let rest = stat.rsplit_once(") ").ok_or("a stat line")?.1;
    let ticks = rest.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
    Ok(ticks.sum::<u64>() as f64 / TICKS_PER_SECOND)
}

/// How often the threads of a process have waited for something (voluntary context switches).
/// Unlike times, this does not depend on what else the machine does.
pub(crate) fn waits(id: u32) -> Outcome<u64> {
    let mut waits = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        // A thread may have ended since.
        let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(waits)
}

/// Bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) proportional: u64,
    pub(crate) anonymous: u64,
    pub(crate) most: u64,
}

impl Memory {
    pub(crate) fn of(id: u32) -> Outcome<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let maps = fs::read_to_string(format!("/proc/{id}/smaps_rollup"))?;
        let field = |text: &str, name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        Ok(Self {
            resident: field(&status, "VmRSS:").ok_or("no VmRSS")?,
            proportional: field(&maps, "Pss:").ok_or("no Pss")?,
            anonymous: field(&status, "RssAnon:").ok_or("no RssAnon")?,
            most: field(&status, "VmHWM:").ok_or("no VmHWM")?,
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "unit": "bytes", "rss": self.resident, "pss": self.proportional,
            "rssAnon": self.anonymous, "highest": self.most,
        })
    }
}

/// Descriptors that this process, and so those that it starts, may have at most.
pub(crate) fn descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// How many of the processes below `id` have this word among their arguments.
pub(crate) fn below(id: u32, word: &str) -> Outcome<usize> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // A process may have ended since.
        let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
        let rest = stat.rsplit_once(") ").ok_or("a stat line")?.1;
        let parent = rest.split(' ').nth(1).and_then(|word| word.parse().ok());
        parents.push((id, parent.unwrap_or(0)));
    }
    let (mut left, mut found) = (vec![id], 0);
    while let Some(above) = left.pop() {
        for (id, _) in parents.iter().filter(|(_, parent)| *parent == above) {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            found += usize::from(words.split(|byte| *byte == 0).any(|it| it == word.as_bytes()));
            left.push(*id);
        }
    }
    Ok(found)
}

/// The size of a file.
pub(crate) fn size(path: &Path) -> Outcome<u64> {
    Ok(fs::metadata(path)?.len())
}
