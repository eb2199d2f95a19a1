//! The usual set-up: a bridge between a scripted MANTYX and one stdio MCP server that writes down
//! every call.
//!
//! Must not: hold anything that only one test needs.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    bridge::{Bridge, Submitted},
    frames::Script,
    mantyx::Mantyx,
    peers, wait,
};

/// The tools of the ledger server, under the names that the model sees.
pub(crate) const LEDGER_TOOLS: [&str; 8] = [
    "plain_note",
    "plain_args",
    "plain_fail",
    "plain_hang",
    "plain_slow",
    "plain_reread",
    "plain_big",
    "plain_pid",
];

/// Fields drop in their order: the bridge before what it talks to.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) bridge: Bridge,
    pub(crate) mantyx: Mantyx,
    dir: TempDir,
}

impl Harness {
    /// A bridge with the one backend `plain`.
    pub(crate) async fn start() -> Self {
        Self::with("", &[], "").await
    }

    /// A bridge whose backend `plain` is started with `args` and whose configuration has `entries`
    /// below `mcp:` (indented by two) and `rest` at its end.
    pub(crate) async fn with(entries: &str, args: &[&str], rest: &str) -> Self {
        Self::with_keys("", entries, args, rest).await
    }

    /// [`Self::with`], where `keys` (each with a comma behind it) stand in the entry of `plain`.
    pub(crate) async fn with_keys(keys: &str, entries: &str, args: &[&str], rest: &str) -> Self {
        let (dir, mantyx) = (new_dir(), Mantyx::start().await);
        let plain = peers::ledger(&dir.path().join("ledger"), args);
        let plain = plain.replacen('{', &format!("{{{keys}"), 1);
        let config = format!("{}mcp:\n  plain: {plain}\n{entries}{rest}", mantyx.upstream());
        let bridge = Bridge::ready(&config).await;
        let rig = Self { bridge, mantyx, dir };
        rig.bridge.wait_backend("plain", "ready").await;
        rig
    }

    /// A bridge with exactly the backends that `config` names; the upstream is added.
    pub(crate) async fn bare(config: &str) -> Self {
        Self::bare_with(config, &[]).await
    }

    /// [`Self::bare`] with further environment variables.
    pub(crate) async fn bare_with(config: &str, env: &[(&str, &str)]) -> Self {
        let mantyx = Mantyx::start().await;
        let config = format!("{}{config}", mantyx.upstream());
        let bridge = Bridge::start_with(&config, env).await;
        bridge.wait_ready().await;
        Self { bridge, mantyx, dir: new_dir() }
    }

    /// Submits a run that follows `script`.
    pub(crate) async fn run(&self, script: Script) -> Submitted {
        self.mantyx.script(script);
        self.bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await
    }

    /// [`Self::call`] of a tool of `plain`, under an id of its own.
    pub(crate) async fn call_again(&self, id: &str, name: &str, args: &str) -> Value {
        self.run(Script::one_call(id, "plain", name, args)).await;
        self.mantyx.answer(id).await
    }

    /// Submits a run that makes one call and returns what is posted as its answer.
    pub(crate) async fn call(&self, backend: &str, name: &str, args: &str) -> Value {
        self.run(Script::one_call("tu_1", backend, name, args)).await;
        self.mantyx.answer("tu_1").await
    }

    /// The calls that reached the server `plain`, in their order.
    pub(crate) fn executions(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("ledger")).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).expect("the ledger is JSON lines")).collect()
    }

    /// Waits until `count` calls have reached the server.
    pub(crate) async fn wait_executions(&self, count: usize) {
        wait::soon(&format!("{count} calls should reach the server"), async || {
            (self.executions().len() >= count).then_some(())
        })
        .await;
    }
}

pub(crate) fn new_dir() -> TempDir {
    TempDir::new().expect("the temporary directory is writable")
}

/// A ledger file for tests that bring their own configuration.
pub(crate) fn ledger_in(dir: &TempDir) -> PathBuf {
    dir.path().join("ledger")
}

/// The header `X-Bridge-Injected` as a map of backend to number of tools.
pub(crate) fn injected(header: Option<&str>) -> BTreeMap<String, usize> {
    let pairs = header.unwrap_or_default().split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let (name, count) = pair.trim().split_once('=').expect("name=count");
            (name.to_owned(), count.parse().expect("a number of tools"))
        })
        .collect()
}

/// The model-facing names of all tools that a spec's refs put in.
pub(crate) fn tool_names(spec: &Value) -> Vec<String> {
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let mut names = Vec::new();
    for entry in spec["tools"].as_array().into_iter().flatten() {
        match entry["tools"].as_array() {
            Some(tools) => names.extend(tools.iter().map(name)),
            None => names.push(name(entry)),
        }
    }
    names
}
