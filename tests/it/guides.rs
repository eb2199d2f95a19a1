//! The guides in `docs/`, and the README: what they tell to type is typed, word by word, by a new
//! user in an empty directory.
//!
//! In a page, a block of `sh` is run, with what blocks before have exported; a line that begins
//! with `mantyx-bridge serve` is left running, once it is ready. A block of `text` that follows has
//! lines that were printed, in their order; `…` stands for anything. A comment before a block says
//! what else it is: `<!-- file: NAME -->`, or `<!-- not run: WHY -->`. The bridge's port is
//! replaced by a free one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    cli,
    http::Request,
    peers::{self, debian},
    ports,
    process::Group,
    wait,
};

const PORT: &str = "7717";
const START: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq)]
enum Block {
    Run(String),
    File(String, String),
    /// What the block before has printed.
    Printed(String),
}

/// The blocks of a page that mean something here.
fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut directive = None;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ") {
            directive = comment.strip_suffix(" -->").map(str::to_owned);
        } else if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let text = format!("{}\n", inside.join("\n"));
            match (directive.take().as_deref(), language) {
                (Some(why), _) if why.starts_with("not run: ") => {}
                (Some(name), _) => {
                    let name = name.strip_prefix("file: ").expect("a directive that is known");
                    found.push(Block::File(name.to_owned(), text));
                }
                (None, "sh") => found.push(Block::Run(text)),
                (None, "text") => found.push(Block::Printed(text)),
                (None, _) => {}
            }
        } else if !line.trim().is_empty() {
            directive = None;
        }
    }
    found
}

/// The files of a page, by name.
pub(crate) fn files(page: &str) -> Vec<(String, String)> {
    let file = |block| match block {
        Block::File(name, text) => Some((name, text)),
        Block::Run(_) | Block::Printed(_) => None,
    };
    blocks(page).into_iter().filter_map(file).collect()
}

/// A new user at an empty directory.
pub(crate) struct User {
    port: u16,
    home: PathBuf,
    bridge: Option<Group>,
    /// The last field: it must outlive the bridge.
    dir: TempDir,
}

impl User {
    fn new() -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let port = ports::free().port();
        let home = dir.path().join("home");
        fs::create_dir_all(home.join("bin")).expect("a new directory");
        fs::create_dir(dir.path().join("work")).expect("a new directory");
        Self { port, home, bridge: None, dir }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn here(&self, text: &str) -> String {
        text.replace(PORT, &self.port.to_string())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let binary = Path::new(env!("CARGO_BIN_EXE_mantyx-bridge"));
        let mut path =
            vec![self.home.join("bin"), binary.parent().expect("a directory").to_owned()];
        path.push(peers::fetch::python().with_file_name(""));
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        path = debian::with(path, &[("curl", "curl"), ("openssl", "openssl")]);
        command.env_clear().env("LANG", "C.UTF-8").env("HOME", &self.home);
        command.env("PATH", std::env::join_paths(path).expect("ordinary paths"));
        command.current_dir(self.work());
        command
    }

    /// Types a block; what it printed, both streams as they came.
    async fn run(&mut self, block: &str) -> String {
        let mut printed = String::new();
        let mut typed = String::new();
        for line in self.here(block).lines() {
            if line.starts_with("mantyx-bridge serve") {
                printed.push_str(&self.shell(&std::mem::take(&mut typed)));
                self.serve(line).await;
            } else {
                typed.push_str(line);
                typed.push('\n');
            }
        }
        printed.push_str(&self.shell(&typed));
        printed
    }

    fn shell(&self, text: &str) -> String {
        let vars = self.dir.path().join("vars");
        let script = format!(
            "set -euo pipefail\n[ -e {vars} ] && . {vars}\nexec 2>&1\n{text}\nexport -p > {vars}\n",
            vars = vars.display()
        );
        let output = self.command("bash").args(["-c", &script]).stdin(Stdio::null()).output();
        let Output { status, stdout, .. } = output.expect("bash runs");
        let said = String::from_utf8_lossy(&stdout).into_owned();
        assert!(status.success(), "this failed:\n{text}\nand said:\n{said}");
        said
    }

    async fn serve(&mut self, line: &str) {
        // The one before is stopped, as one is told to.
        self.bridge = None;
        let line = line.split(" #").next().unwrap_or(line);
        // `init` may have written it, with the port of every new file.
        let config = self.work().join("bridge.yaml");
        let text = fs::read_to_string(&config).expect("there is a configuration");
        fs::write(&config, self.here(&text)).expect("the test's directory is writable");
        let vars = self.dir.path().join("vars");
        let mut command = self.command("bash");
        command.args(["-c", &format!(". {}; exec {line}", vars.display())]);
        let log = self.dir.path().join("log");
        let bridge = self.bridge.insert(Group::spawn(&mut command, &log));
        let to = ([127, 0, 0, 1], self.port).into();
        wait::until("the bridge should be ready", START, async || {
            assert!(bridge.exited().is_none(), "the bridge ended: {}", bridge.log());
            tokio::net::TcpStream::connect(to).await.ok()?;
            match Request::new("GET", "/readyz").answer(to).await.status {
                200 => Some(()),
                // It speaks TLS, and says in its log that it is ready.
                400 => bridge.log().contains("serving; ").then_some(()),
                _ => None,
            }
        })
        .await;
    }
}

/// Does what a page tells.
async fn follow(page: &str) {
    follow_with(page, &[]).await;
}

/// [`follow`], where other texts stand in place of some; the bridge that was started last runs on.
pub(crate) async fn follow_with(page: &str, others: &[(&str, &str)]) -> User {
    let text = fs::read_to_string(peers::repository(page)).expect("a page of the repository");
    let text = others.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let mut user = User::new();
    if page == "README.md" {
        // Its reader is in a clone.
        let config = fs::read_to_string(peers::repository("bridge.yaml")).expect("a file of ours");
        fs::write(user.work().join("bridge.yaml"), user.here(&config)).expect("an empty directory");
    }
    if page == "docs/laptop.md" {
        // Its reader has Claude Code.
        cli::laptop::put_client("claude", &user.home.join("bin"));
    }
    let mut printed = String::new();
    for block in blocks(&text) {
        match block {
            Block::File(name, text) => {
                let path = user.work().join(name);
                fs::write(path, user.here(&text)).expect("the test's directory is writable");
            }
            Block::Run(text) => printed = user.run(&text).await,
            Block::Printed(text) => assert_printed(&user.here(&text), &printed),
        }
    }
    user
}

#[track_caller]
fn assert_printed(wanted: &str, printed: &str) {
    let mut lines = printed.lines();
    for line in wanted.lines().filter(|line| !line.trim().is_empty()) {
        let parts: Vec<&str> = line.split('…').collect();
        assert!(
            lines.any(|found| has_parts(found.trim_end(), &parts)),
            "`{line}` should be printed, in its place:\n{printed}"
        );
    }
}

/// Whether the parts make up the whole line, with anything between them.
fn has_parts(line: &str, parts: &[&str]) -> bool {
    let [first, rest @ ..] = parts else { return true };
    let Some(mut left) = line.strip_prefix(first) else { return false };
    let Some((last, middle)) = rest.split_last() else { return left.is_empty() };
    for part in middle {
        let Some((_, behind)) = left.split_once(part) else { return false };
        left = behind;
    }
    left.ends_with(last)
}

#[test]
fn a_page_is_read_as_it_is_written() {
    let page = "Text.\n\n```sh\none\ntwo\n```\n\n```text\nprinted\n```\n<!-- file: a.py -->\n```python\n\
                x\n```\n\n<!-- not run: why -->\n```sh\nno\n```\n```yaml\nonly: shown\n```\n";
    let expected = [
        Block::Run("one\ntwo\n".into()),
        Block::Printed("printed\n".into()),
        Block::File("a.py".into(), "x\n".into()),
    ];
    assert_eq!(blocks(page), expected);
    assert!(has_parts("a line of text", &["a ", " of text"]));
    assert!(has_parts("whole", &["whole"]) && !has_parts("whole and more", &["whole"]));
    assert!(!has_parts("ab", &["b", ""]) && has_parts("xaby", &["", "ab", ""]));
}

#[tokio::test]
async fn the_readme() {
    follow("README.md").await;
}

/// The servers of npm and PyPI are others' work, and slow to fetch.
#[tokio::test]
async fn laptop() {
    let text = fs::read_to_string(peers::repository("docs/laptop.md")).expect("a page");
    let (_, list) = text.split_once("mcpServers\": {").expect("its list of servers");
    let entries: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split_once("{\"command\"").map(|(_, entry)| entry))
        .filter_map(|entry| entry.split_once(']').map(|(command, _)| command))
        .collect();
    assert_eq!(entries.len(), 8, "{entries:?}");
    let mut others: Vec<(&str, &str)> = entries
        .iter()
        .map(|entry| (*entry, ": \"mantyx-bridge\", \"args\": [\"demo-mcp-server\""))
        .collect();
    // The configuration of a page's reader is in the directory.
    others.push(("init --user ", "init "));
    follow_with("docs/laptop.md", &others).await;
}

/// Its reader has a browser, and an account at an issuer.
#[tokio::test]
async fn people() {
    let issuer = peers::issuer(3600).await;
    let person = peers::repository("tests/peers/person.py");
    let login = format!("mantyx-bridge login notion | python3 -u {} --reads\n", person.display());
    let server = format!("{}/mcp", issuer.url());
    let others = [
        ("https://mcp.notion.com/mcp", server.as_str()),
        ("mantyx-bridge login notion\n", login.as_str()),
    ];
    follow_with("docs/people.md", &others).await;
}

#[tokio::test]
async fn python() {
    follow("docs/python.md").await;
}

#[tokio::test]
async fn node() {
    follow("docs/node.md").await;
}

#[tokio::test]
async fn oauth() {
    follow("docs/oauth.md").await;
}

#[tokio::test]
async fn several_apps() {
    follow("docs/several-apps.md").await;
}

#[tokio::test]
async fn gateway() {
    follow("docs/gateway.md").await;
}

#[tokio::test]
async fn agents_for_a2a_clients() {
    follow("docs/a2a.md").await;
}

#[tokio::test]
async fn mcp() {
    follow("docs/mcp.md").await;
}

#[tokio::test]
async fn loom() {
    follow("docs/loom.md").await;
}

#[tokio::test]
async fn mcp_servers() {
    follow("docs/mcp-servers.md").await;
}

#[tokio::test]
async fn systemd() {
    follow("docs/systemd.md").await;
}

#[tokio::test]
async fn trust() {
    follow("docs/trust.md").await;
}

#[tokio::test]
async fn troubleshooting() {
    follow("docs/troubleshooting.md").await;
}

#[tokio::test]
async fn catalogs() {
    follow("docs/catalogs.md").await;
}

#[tokio::test]
async fn programs() {
    follow("docs/programs.md").await;
}

#[tokio::test]
async fn notify() {
    follow("docs/notify.md").await;
}

#[test]
fn every_guide_is_followed() {
    let here = include_str!("guides.rs");
    let runtimes = include_str!("runtimes.rs");
    for entry in fs::read_dir(peers::repository("docs")).expect("a directory of the repository") {
        let entry = entry.expect("an entry of it");
        if entry.path().extension().is_none_or(|extension| extension != "md") {
            continue; // a picture
        }
        let text = fs::read_to_string(entry.path()).expect("a page");
        if !blocks(&text).iter().any(|block| matches!(block, Block::Run(_))) {
            continue; // a list, of codes or names
        }
        let name = entry.file_name().into_string().expect("a plain name");
        let is_followed = here.contains(&format!("follow(\"docs/{name}\")"))
            || here.contains(&format!("follow_with(\"docs/{name}\""))
            || runtimes.contains(&format!("check_page(\"docs/{name}\""));
        assert!(is_followed, "{name} is a guide that no test follows");
    }
}

/// The text of every page, by its path below the repository.
fn pages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for directory in ["", "docs", "docs/design"] {
        let entries = fs::read_dir(peers::repository(directory)).expect("a directory of ours");
        for entry in entries {
            let path = entry.expect("an entry of it").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).expect("a page");
                found.push((path, text));
            }
        }
    }
    found
}

/// The anchor that a heading gets: lower case, hyphens for spaces, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
            let directory = page.parent().expect("it is in a directory");
            let to = if path.is_empty() { page.clone() } else { directory.join(path) };
            let there = if fragment.is_empty() {
                to.exists()
            } else {
                let text = fs::read_to_string(&to).unwrap_or_default();
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                headings.any(|line| anchor(line.trim_start_matches('#').trim_start()) == fragment)
            };
            if !there {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

/// The README is what somebody reads in one go; the manual is in `docs/`, and its index names all
/// of it.
#[test]
fn the_readme_is_short_and_the_manual_has_an_index() {
    let index = fs::read_to_string(peers::repository("docs/README.md")).expect("a page of ours");
    let map = fs::read_to_string(peers::repository("ARCHITECTURE.md")).expect("a page of ours");
    for (page, text) in pages() {
        let name = page.file_name().expect("a file").to_string_lossy().into_owned();
        if page == peers::repository("README.md") {
            assert!(text.len() <= 9 << 10, "README.md has {} bytes", text.len());
        } else if page.parent() == Some(&peers::repository("docs/design")) {
            assert!(map.contains(&format!("(docs/design/{name})")), "ARCHITECTURE.md: {name}");
        } else if page.parent() != Some(&peers::repository("")) && name != "README.md" {
            assert!(index.contains(&format!("({name})")), "docs/README.md does not name {name}");
        }
    }
}
