//! The two programs called mcp-proxy: Python's, before one server on stdio, and Cargo's, before
//! many of any transport.
//!
//! Must not: build the latter; it takes longer than all of the benchmark.

use std::fs;

use tokio::process::{Child, Command};

use super::{Gateway, listening, place};
use crate::{
    parts::Setting,
    process::free_addr,
    python::{self, Packages},
    run::Outcome,
    wire::Client,
    world::World,
};

pub(in crate::parts) const PYTHON: &str = "mcp-proxy 0.13.0 (Python)";
pub(in crate::parts) const CARGO: &str = "mcp-proxy 0.6.0 (Cargo)";
const PACKAGES: Packages = Packages { name: "mcp-proxy", packages: &["mcp-proxy==0.13.0"] };
/// What cargo notes below its root of what it has installed there.
const INSTALLED: &str = "\"mcp-proxy 0.6.0 ";
const INSTALL: &str = "cargo install mcp-proxy@0.6.0 --locked --no-default-features --root";

pub(in crate::parts) async fn of_python(
    setting: &Setting,
    most: usize,
) -> Outcome<(Child, Vec<Gateway>)> {
    let python = python::prepare(&setting.dir, PACKAGES).await?;
    let (dir, addr) = (place(setting, "gateways-pypi")?, free_addr()?);
    let mut command = Command::new(python);
    command.args(["-m", "mcp_proxy", "--log-level", "WARNING"]);
    command.args(["--port", &addr.port().to_string(), "--"]);
    command.arg(std::env::current_exe()?).args(["--role", "stdio-tool"]);
    let child = listening(command, &dir, addr).await?;
    let client = || Client::new(addr);
    let gateway = Gateway::of_mcp(PYTHON, "stdio", ("/mcp", "echo"), most, client).await?;
    let gateways = vec![gateway.of_process(child.id())];
    Ok((child, gateways))
}

pub(in crate::parts) async fn of_cargo(
    setting: &Setting,
    world: &World,
    most: usize,
) -> Outcome<(Child, Vec<Gateway>)> {
    let root = setting.dir.join("mcp-proxy-cargo");
    if !fs::read_to_string(root.join(".crates.toml")).is_ok_and(|text| text.contains(INSTALLED)) {
        return Err(format!("to have it: {INSTALL} {}", root.display()).into());
    }
    let (dir, addr) = (place(setting, "gateways-cargo")?, free_addr()?);
    let config = format!(
        "[proxy]
name = \"bench\"
listen = {{ host = \"127.0.0.1\", port = {port} }}
[observability]
log_level = \"warn\"
[[backends]]
name = \"stdio\"
transport = \"stdio\"
command = {program:?}
args = [\"--role\", \"stdio-tool\"]
[[backends]]
name = \"http\"
transport = \"http\"
url = \"http://{tools}/mcp\"
",
        port = addr.port(),
        program = std::env::current_exe()?,
        tools = world.tools,
    );
    fs::write(dir.join("proxy.toml"), config)?;
    let child = listening(Command::new(root.join("bin/mcp-proxy")), &dir, addr).await?;
    let mut gateways = Vec::new();
    for (server, tool) in [("stdio", "stdio/echo"), ("http", "http/echo")] {
        let client = || Client::new(addr);
        let gateway = Gateway::of_mcp(CARGO, server, ("/", tool), most, client).await?;
        gateways.push(gateway.of_process(child.id()));
    }
    Ok((child, gateways))
}
