//! ContextForge, a registry of MCP servers over HTTP with users and rights, before the one that the
//! benchmark has.
//!
//! Must not: be given Redis or PostgreSQL, which it wants for more than one process.

use std::{net::SocketAddr, path::Path};

use serde_json::json;
use tokio::{
    process::{Child, Command},
    time::timeout,
};
use uuid::Uuid;

use super::{Gateway, listening, place};
use crate::{
    parts::Setting,
    process::{PATIENCE, free_addr},
    python::{self, Packages},
    run::Outcome,
    wire::Client,
    world::World,
};

pub(super) const NAME: &str = "ContextForge 1.0.7 (Python)";
const PACKAGES: Packages =
    Packages { name: "contextforge", packages: &["mcp-contextforge-gateway==1.0.7"] };

pub(super) async fn start(
    setting: &Setting,
    world: &World,
    most: usize,
) -> Outcome<(Child, Vec<Gateway>)> {
    if setting.arguments.short {
        return Err("it takes a minute to fetch and to start".into());
    }
    let python = python::prepare(&setting.dir, PACKAGES).await?;
    let (dir, addr) = (place(setting, "gateways-contextforge")?, free_addr()?);
    let settings = settings(&dir);
    let mut command = Command::new(python.with_file_name("mcpgateway"));
    command.args(["--host", "127.0.0.1", "--port", &addr.port().to_string()]);
    command.args(["--log-level", "warning"]).envs(settings.clone());
    let child = listening(command, &dir, addr).await?;
    let mut command = Command::new(python);
    command.args(["-m", "mcpgateway.utils.create_jwt_token", "--admin"]);
    command.args(["--username", "admin@example.com"]);
    let token = command.current_dir(&dir).envs(settings).kill_on_drop(true).output();
    let token = timeout(PATIENCE, token).await.map_err(|late| format!("no token: {late}"))??;
    let token = String::from_utf8(token.stdout)?.trim().to_owned();
    let client = || Client::new(addr).bearer(&token);
    register(client(), world.tools).await?;
    let gateway = Gateway::of_mcp(NAME, "http", ("/mcp/", "bench-echo"), most, client).await?;
    let gateways = vec![gateway.of_process(child.id())];
    Ok((child, gateways))
}

/// Beside what it does not start without: a server on loopback may be registered, calls are not
/// limited to 100 a minute, and a session has one with the server behind it, where otherwise each
/// call has a new one.
fn settings(dir: &Path) -> Vec<(&'static str, String)> {
    let secret = || format!("{}-{}", Uuid::new_v4(), Uuid::new_v4());
    vec![
        ("DATABASE_URL", format!("sqlite:///{}", dir.join("mcp.db").display())),
        ("CACHE_TYPE", "memory".into()),
        ("JWT_SECRET_KEY", secret()),
        ("AUTH_ENCRYPTION_SECRET", secret()),
        ("PLATFORM_ADMIN_PASSWORD", secret()),
        ("LOG_LEVEL", "WARNING".into()),
        ("SSRF_ALLOW_LOCALHOST", "true".into()),
        ("RATE_LIMITING_ENABLED", "false".into()),
        ("USE_STATEFUL_SESSIONS", "true".into()),
    ]
}

/// Has it know the server as `bench`, so that its tool is `bench-echo`.
async fn register(mut client: Client, tools: SocketAddr) -> Outcome<()> {
    let url = format!("http://{tools}/mcp");
    let server = json!({ "name": "bench", "url": url, "transport": "STREAMABLEHTTP" }).to_string();
    let answer = timeout(PATIENCE, client.post("/v1/gateways", server.as_bytes())).await;
    answer.map_err(|late| format!("it does not register the server: {late}"))??.good()?;
    Ok(())
}
