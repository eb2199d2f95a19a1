//! The bridge that is measured: started with a configuration and a state directory of its own.
//!
//! Must not: set anything that an operator would not.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    time::sleep,
};

use crate::{
    clock,
    process::{self, PATIENCE},
    run::Outcome,
    wire::{Answer, Client},
};

/// The workspace that the bridge's own routes use.
pub(crate) const WORKSPACE: &str = "acme";

#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    /// For status and the like.
    client: Client,
    addr: SocketAddr,
    token: String,
    dir: PathBuf,
}

impl Daemon {
    /// Starts `program` in `dir` in front of the MANTYX at `mantyx`, and waits until all its
    /// backends are there. `rest` is the configuration but for the upstream, where to listen and
    /// the state.
    pub(crate) async fn start(
        program: &Path,
        dir: PathBuf,
        mantyx: SocketAddr,
        rest: &str,
    ) -> Outcome<Self> {
        Self::start_at(program, dir, &format!("base_url: \"http://{mantyx}\""), rest).await
    }

    /// The same in front of the MANTYX that `upstream` says how to reach.
    pub(crate) async fn start_at(
        program: &Path,
        dir: PathBuf,
        upstream: &str,
        rest: &str,
    ) -> Outcome<Self> {
        fs::remove_dir_all(&dir).ok();
        fs::create_dir_all(dir.join("state"))?;
        // A later start is to find the same one.
        let addr = process::free_addr()?;
        let state = dir.join("state");
        let config = format!(
            "listen: {addr}\nstate_dir: {}\nupstream: {{{upstream}, workspace: \
             {WORKSPACE}, credential: benchmark}}\n{rest}",
            state.display()
        );
        fs::write(dir.join("bridge.yaml"), config)?;
        let child = spawn(program, &dir)?;
        let client = Client::new(addr);
        let mut daemon = Self { child, client, addr, token: String::new(), dir };
        daemon.wait_listening().await?;
        daemon.token = fs::read_to_string(state.join("token"))?.trim().to_owned();
        daemon.client = Client::new(addr).bearer(&daemon.token);
        daemon.wait_backends().await?;
        Ok(daemon)
    }

    /// Starts it again on its state, and tells how long it took until `/readyz` said yes.
    pub(crate) async fn restart(&mut self, program: &Path) -> Outcome<u64> {
        process::end(&mut self.child).await?;
        self.client = Client::new(self.addr).bearer(&self.token);
        let begun = clock::now();
        self.child = spawn(program, &self.dir)?;
        let end = begun + PATIENCE.as_nanos() as u64;
        loop {
            if let Ok(answer) = self.client.get("/readyz").await
                && answer.status == 200
            {
                return Ok(answer.done - begun);
            }
            if clock::now() > end {
                return Err(format!("it does not become ready: {}", self.log()).into());
            }
            sleep(Duration::from_micros(500)).await;
        }
    }

    async fn wait_listening(&mut self) -> Outcome<()> {
        match process::comes_to_listen(&mut self.child, self.addr).await? {
            true => Ok(()),
            false => Err(format!("the bridge does not start: {}", self.log()).into()),
        }
    }

    /// Waits until every backend is ready.
    pub(crate) async fn wait_backends(&mut self) -> Outcome<()> {
        let end = clock::now() + PATIENCE.as_nanos() as u64;
        loop {
            let status = self.client.get("/v1/status").await?.json()?;
            let backends = status["backends"].as_array().ok_or("the status has backends")?;
            if backends.iter().all(|backend| backend["state"] == "ready") {
                return Ok(());
            }
            if clock::now() > end {
                return Err(format!("backends are not ready: {}", status["backends"]).into());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// A client with the app's token.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.addr).bearer(&self.token)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn id(&self) -> Outcome<u32> {
        Ok(self.child.id().ok_or_else(|| format!("the bridge has ended: {}", self.log()))?)
    }

    /// One of the samples at `/metrics`, by the start of its line.
    pub(crate) async fn metric(&mut self, name: &str) -> Outcome<f64> {
        let text = self.client.get("/metrics").await.and_then(Answer::good)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Ok(found.ok_or_else(|| format!("there is no metric {name}"))?)
    }

    /// What its log ends with.
    pub(crate) fn log(&self) -> String {
        let text = fs::read(self.dir.join("state/log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default();
        last.join("\n")
    }

    /// Asks it to stop. It must do so clean.
    pub(crate) async fn stop(mut self) -> Outcome<()> {
        process::end(&mut self.child)
            .await
            .map_err(|error| format!("{error}: {}", self.log()).into())
    }
}

fn spawn(program: &Path, dir: &Path) -> Outcome<Child> {
    // Not beside bridge.yaml, whose directory the bridge watches.
    let log = File::options().create(true).append(true).open(dir.join("state/log"))?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--log-format", "json", "-c"])
        .arg(dir.join("bridge.yaml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true);
    Ok(command.spawn().map_err(|error| format!("{}: {error}", program.display()))?)
}
