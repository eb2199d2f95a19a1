//! The real daemon under test: started on a free port with a directory of its own, stopped clean,
//! and asserted to leave no process behind.
//!
//! Must not: know what a test is about, or reach into the daemon other than from outside.

use std::{
    cell::RefCell,
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    panic,
    path::{Path, PathBuf},
    process::Command,
    sync::Once,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    http::{Answer, Request},
    ports,
    process::{self, Group},
    wait,
};

/// The daemon may take this long to finish calls in flight, and then ends (DESIGN.md: drain).
pub(crate) const DRAIN: Duration = Duration::from_secs(40);

const START: Duration = Duration::from_secs(30);

/// Where the routes of MANTYX live on the bridge, for the workspace that all tests use.
pub(crate) const API: &str = "/api/v1/workspaces/acme";

/// A running `mantyx-bridge serve`.
#[derive(Debug)]
pub(crate) struct Bridge {
    config: String,
    env: Vec<(String, String)>,
    log_format: &'static str,
    /// What starts the daemon, if it is not the test.
    under: &'static [&'static str],
    /// `None` while it is down.
    process: Option<Group>,
    addr: SocketAddr,
    token: String,
    // The last field: the directory must outlive the process.
    dir: TempDir,
}

/// What the bridge answered to a submitted run.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) run_id: String,
    pub(crate) stream: String,
    pub(crate) injected: Option<String>,
}

impl Bridge {
    /// Starts the daemon with `config`, to which `listen` and `state_dir` are added where they are
    /// missing, and waits until it listens.
    pub(crate) async fn start(config: &str) -> Self {
        Self::start_with(config, &[]).await
    }

    /// [`Self::start`] with a log for people.
    pub(crate) async fn start_pretty(config: &str) -> Self {
        let mut bridge = Self::new(config, &[("RUST_LOG", "debug")]);
        bridge.log_format = "pretty";
        bridge.restart().await;
        bridge
    }

    /// [`Self::start`] with further environment variables.
    pub(crate) async fn start_with(config: &str, env: &[(&str, &str)]) -> Self {
        let mut bridge = Self::new(config, env);
        bridge.restart().await;
        bridge
    }

    /// [`Self::start`] by somebody who may have few files open, and may ask for more.
    pub(crate) async fn start_with_few_files(config: &str) -> Self {
        let mut bridge = Self::new(config, &[]);
        bridge.under = &["prlimit", "--nofile=512:4096"];
        bridge.restart().await;
        bridge
    }

    /// [`Self::start`] without a capability, as the service runs.
    pub(crate) async fn start_powerless(config: &str) -> Self {
        let mut bridge = Self::new(config, &[]);
        // Those of others than root have none.
        if rustix::process::geteuid().is_root() {
            bridge.under = &["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
        }
        bridge.restart().await;
        bridge
    }

    /// [`Self::start`] under another program.
    pub(crate) async fn start_under(under: &'static [&'static str], config: &str) -> Self {
        let mut bridge = Self::new(config, &[]);
        bridge.under = under;
        bridge.restart().await;
        bridge
    }

    /// [`Self::start`] by a shell that allows few descriptors, as long as nobody asks for more.
    pub(crate) async fn start_confined(config: &str) -> Self {
        let mut bridge = Self::new(config, &[]);
        bridge.under = &["sh", "-c", "ulimit -S -n 256; exec \"$@\"", "sh"];
        bridge.restart().await;
        bridge
    }

    /// Another bridge with the same configuration.
    pub(crate) async fn replica(&self) -> Self {
        Self::ready(&self.config).await
    }

    fn new(config: &str, env: &[(&str, &str)]) -> Self {
        remember_panics();
        let dir = TempDir::new().expect("the temporary directory is writable");
        for part in ["state", "tmp", "home"] {
            fs::create_dir(dir.path().join(part)).expect("a new directory is empty");
        }
        Self {
            config: config.to_owned(),
            env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            log_format: "json",
            under: &[],
            process: None,
            addr: ports::free(),
            token: String::new(),
            dir,
        }
    }

    /// [`Self::start`], and waits until every backend that `/readyz` waits for is there.
    pub(crate) async fn ready(config: &str) -> Self {
        let bridge = Self::start(config).await;
        bridge.wait_ready().await;
        bridge
    }

    /// Starts the daemon again on the same port, with what it left in its state directory.
    pub(crate) async fn restart(&mut self) {
        self.spawn();
        self.wait_listening().await;
    }

    /// [`Self::ready`] with its state on another disk.
    pub(crate) async fn ready_with_state(config: &str, state: &Path) -> Self {
        let mut bridge = Self::new(config, &[]);
        let link = bridge.dir.path().join("state");
        fs::remove_dir(&link).expect("it is empty");
        symlink(state, &link).expect("a directory of ours");
        bridge.restart().await;
        bridge.wait_ready().await;
        bridge
    }

    /// Starts the daemon where no file can be written, as on a full disk.
    pub(crate) async fn restart_on_full_disk(&mut self) {
        self.under = &["prlimit", "--fsize=0:unlimited"];
        self.restart_without_disk().await;
        self.under = &[];
    }

    /// Starts the daemon where it cannot write its address, and waits until it serves: on the port
    /// that it had before.
    pub(crate) async fn restart_without_disk(&mut self) {
        self.spawn();
        let addr = self.addr;
        wait::until("the daemon should listen", START, async || {
            tokio::net::TcpStream::connect(addr).await.ok().map(drop)
        })
        .await;
        self.wait_ready().await;
    }

    /// Starts the daemon and waits for nothing.
    pub(crate) fn spawn(&mut self) {
        assert!(self.process.is_none(), "stop or kill the daemon before it is started again");
        self.write_config();
        // A file of the last start would be read before the new one is written.
        fs::remove_file(self.state("listen")).ok();
        // With a descriptor too many, as a careless parent leaves them: no child may inherit it.
        let mut command = clean(Command::new("sh"));
        command
            .args(["-c", "exec 9</dev/null; exec \"$@\"", "sh"])
            .args(self.under)
            .args([BINARY, "serve"])
            .arg("-c")
            .arg(self.config_path())
            .args(["--log-format", self.log_format])
            .env("HOME", self.dir.path().join("home"))
            .env("TMPDIR", self.tmp())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path());
        self.process = Some(Group::spawn(&mut command, &self.dir.path().join("log")));
    }

    /// Waits until the daemon that was spawned listens.
    pub(crate) async fn wait_listening(&mut self) {
        let path = self.state("listen");
        let process = self.process();
        self.addr = wait::until("the daemon should write its address", START, async || {
            if let Some(status) = process.exited() {
                panic!("the daemon ended at its start: {}", process::describe(status));
            }
            let text = fs::read_to_string(&path).ok()?;
            let line = text.split_inclusive('\n').find(|line| line.ends_with('\n'))?;
            line.trim().trim_start_matches("https://").trim_start_matches("http://").parse().ok()
        })
        .await;
        if !self.config.contains("apps:") {
            let token = fs::read_to_string(self.state("token"));
            self.token = token.expect("the token is there before the address").trim().to_owned();
        }
    }

    fn write_config(&self) {
        let mut text = self.config.clone();
        if !text.lines().any(|line| line.starts_with("listen:")) {
            text.push_str(&format!("\nlisten: {}\n", self.addr));
        }
        if !text.lines().any(|line| line.starts_with("state_dir:")) {
            text.push_str(&format!("\nstate_dir: {}\n", self.state("").display()));
        }
        fs::write(self.config_path(), text).expect("the test's directory is writable");
    }

    /// Replaces the configuration that the next start, or a reload, reads.
    pub(crate) fn set_config(&mut self, config: &str) {
        config.clone_into(&mut self.config);
        self.write_config();
    }

    /// Replaces `from` in it.
    pub(crate) fn change_config(&mut self, from: &str, with: &str) {
        assert!(self.config.contains(from), "{from} should be in {}", self.config);
        self.set_config(&self.config.replace(from, with));
    }

    /// The variables that the next start adds to its environment.
    pub(crate) fn set_env(&mut self, env: &[(&str, &str)]) {
        self.env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.dir.path().join("bridge.yaml")
    }

    /// A file of the state directory.
    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.dir.path().join("state").join(name)
    }

    fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn process(&mut self) -> &mut Group {
        self.process.as_mut().expect("the daemon should run")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The processes that the daemon started and that live. They are known by their `TMPDIR`: the
    /// one variable of the daemon's environment that is unique and that its children are given.
    pub(crate) fn children(&self) -> Vec<rustix::process::Pid> {
        let mark = format!("TMPDIR={}", self.tmp().display());
        process::marked(&mark, self.process.as_ref().map(Group::pid))
    }

    /// Waits for `/readyz` to say yes.
    pub(crate) async fn wait_ready(&self) {
        wait::until("/readyz should answer 200", START, async || {
            let answer = Request::new("GET", "/readyz").answer(self.addr).await;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    /// `GET /v1/status` as an app sees it.
    pub(crate) async fn app_status(&self) -> Value {
        self.api("GET", "/v1/status", None).await.expect(200)
    }

    /// `GET /v1/status` as the operator sees it.
    pub(crate) async fn status(&self) -> Value {
        let request = self.request("GET", "/v1/status");
        let request = request.header("X-Bridge-Operator", &self.operator());
        request.answer(self.addr).await.expect(200)
    }

    /// The entry of one backend in the status.
    pub(crate) async fn backend(&self, name: &str) -> Value {
        let status = self.status().await;
        let backends = status["backends"].as_array().expect("the status lists the backends");
        let found = backends.iter().find(|backend| backend["name"] == name);
        found.unwrap_or_else(|| panic!("no backend {name} in {status}")).clone()
    }

    /// Waits until a backend is in `state`.
    pub(crate) async fn wait_backend(&self, name: &str, state: &str) -> Value {
        let what = format!("backend {name} should become {state}");
        wait::until(&what, START, async || {
            Some(self.backend(name).await).filter(|backend| backend["state"] == state)
        })
        .await
    }

    /// What the operator shows.
    pub(crate) fn operator(&self) -> String {
        let secret = fs::read_to_string(self.state("operator")).expect("made at the start");
        secret.trim().to_owned()
    }

    /// A request with this app's token.
    pub(crate) fn request(&self, method: &str, target: &str) -> Request {
        Request::new(method, target).bearer(&self.token)
    }

    /// One call of the bridge's own API, or of a proxied route.
    pub(crate) async fn api(&self, method: &str, target: &str, body: Option<&str>) -> Answer {
        let mut request = self.request(method, target);
        if let Some(body) = body {
            request = request.json(body);
        }
        request.answer(self.addr).await
    }

    /// Submits a run through the proxy.
    pub(crate) async fn post_run(&self, spec: &str) -> Submitted {
        self.post_run_with(spec, &[]).await
    }

    /// [`Self::post_run`] with further headers.
    pub(crate) async fn post_run_with(&self, spec: &str, headers: &[(&str, &str)]) -> Submitted {
        let mut request = self.request("POST", &format!("{API}/agent-runs")).json(spec);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = request.answer(self.addr).await;
        let body = answer.expect(202);
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        Submitted {
            run_id: text("runId"),
            stream: text("streamUrl"),
            injected: answer.header("x-bridge-injected").map(str::to_owned),
        }
    }

    /// Kills the daemon alone, as a crash does.
    pub(crate) fn kill9(&mut self) {
        self.process().kill9();
        self.process = None;
    }

    /// Waits until all that a killed daemon had started is dead, too.
    pub(crate) async fn wait_childless(&self) {
        let soon = Duration::from_secs(2);
        wait::until("children should die with the daemon", soon, async || {
            self.children().is_empty().then_some(())
        })
        .await;
    }

    /// Asks the daemon to stop and asserts that it does so clean and leaves no process behind.
    pub(crate) async fn stop(&mut self) {
        self.process().signal(Signal::TERM);
        let status = self.process().ended(DRAIN).await;
        assert_eq!(status.code(), Some(0), "SIGTERM should end it clean: {}", self.log());
        self.process = None;
        // What was killed last may still be on its way out.
        self.wait_childless().await;
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the daemon:\n{}--- end of the log", self.log());
            // Once more, as thousands of lines may stand between.
            PANIC.with_borrow(|panic| eprintln!("this test failed: {panic}"));
        }
        if let Some(mut process) = self.process.take() {
            // Of a killed daemon the children must die too, so this is asserted after SIGKILL.
            process.kill9();
        }
        if std::thread::panicking() {
            for pid in self.children() {
                rustix::process::kill_process(pid, Signal::KILL).ok();
            }
            return;
        }
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        while !self.children().is_empty() {
            assert!(
                tokio::time::Instant::now() < end,
                "children should die with the daemon: {:?}",
                self.children()
            );
            std::thread::yield_now();
        }
    }
}

thread_local! {
    /// Why the test of this thread fails.
    static PANIC: RefCell<String> = RefCell::default();
}

/// Has every panic leave its message in [`PANIC`].
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANIC.set(panic.to_string());
            print(panic);
        }));
    });
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_mantyx-bridge");

/// A command line of the binary under test.
pub(crate) fn command() -> Command {
    command_of(BINARY)
}

/// One of another program, with as little of an environment.
pub(crate) fn command_of(program: &str) -> Command {
    clean(Command::new(program))
}

/// Takes the environment of the test run away, but for what any program needs.
fn clean(mut command: Command) -> Command {
    command.env_clear().env("LANG", "C.UTF-8");
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}
