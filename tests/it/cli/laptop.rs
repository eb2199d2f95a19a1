//! `add`, `remove`, `connect`, `disconnect`, `secret` and `service`: what they change, and what
//! they leave as it is.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{FAILED, OK, Ran, USAGE};
use crate::{
    bridge::{self, Bridge},
    peers::{self, debian},
};

const CANARY: &str = "canary7Secret9Value3x";

/// A file that a person has written.
const FILE: &str = "\
# mine
upstream: {sandbox: true}   # no account

mcp:
  # the first
  one: &one {command: cat}

  # the second
  two: *one
listen: 127.0.0.1:0
";

/// Puts a stand-in for the command of this client into `directory`.
pub(crate) fn put_client(name: &str, directory: &Path) {
    let script = peers::repository("tests/peers/mcp_clients.py");
    let line = format!("exec python3 {} {name} \"$@\"", script.display());
    put_program(&directory.join(name), &line);
}

fn put_program(path: &Path, line: &str) {
    fs::write(path, format!("#!/bin/sh\n{line}\n")).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

/// A person's home, with a bridge.yaml in it and programs in `bin`.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        fs::create_dir(dir.path().join("bin")).expect("writable");
        let home = Self { dir };
        home.write("bridge.yaml", FILE);
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the home")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).expect("JSON")
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// Runs the binary with this on stdin, and without a secret in what it says.
    fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        self.write("stdin", stdin);
        let mut command: Command = bridge::command();
        let system = std::env::var("PATH").expect("there is a PATH");
        let input = fs::File::open(self.path("stdin")).expect("it was written");
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("PATH", format!("{}:{system}", self.path("bin").display()))
            .stdin(Stdio::from(input));
        let ran = Ran::from(command.output().expect("the binary should start"));
        let said = format!("{}{}", ran.out, ran.err);
        assert!(!said.contains(CANARY), "{said}");
        ran
    }
}

#[test]
fn add_and_remove_change_the_bytes_of_the_entry_alone() {
    let home = Home::new();
    let add = ["add", "new", "-e", "LEVEL=warn", "--yes", "--", "cat", "-u"];
    let ran = home.run(&add).expect(OK);
    let entry = "  new:\n    command: cat\n    args: [-u]\n    env: {LEVEL: warn}\n";
    let expected = FILE.replace("listen:", &format!("{entry}listen:"));
    assert_eq!(home.read("bridge.yaml"), expected);
    assert!(ran.out.contains("bridge.yaml:10\n+   new:\n+     command: cat"), "{}", ran.out);
    assert!(ran.out.contains("No daemon runs"), "{}", ran.out);
    home.run(&add).expect(USAGE);
    let ran = home.run(&["remove", "new", "--yes"]).expect(OK);
    assert!(ran.out.contains("-   new:"), "{}", ran.out);
    assert_eq!(home.read("bridge.yaml"), FILE);
    let unknown = home.run(&["remove", "new", "--yes"]).expect(USAGE);
    assert!(unknown.err.contains("one, two"), "{}", unknown.err);
}

#[test]
fn change_without_a_person_or_with_a_mistake_is_refused() {
    let home = Home::new();
    let asked = home.run(&["add", "new", "--", "cat"]).expect(USAGE);
    assert!(asked.err.contains("--yes") && asked.out.contains("+   new:"), "{}", asked.err);
    let anchored = home.run(&["remove", "one", "--yes"]).expect(FAILED);
    assert!(anchored.err.contains("anchor"), "{}", anchored.err);
    let odd = home.run(&["add", "no name", "--yes", "--", "cat"]).expect(USAGE);
    assert!(odd.err.contains("no_name"), "{}", odd.err);
    let wrong = home.run(&["add", "x", "ftp://x.test", "--yes"]).expect(USAGE);
    assert!(!wrong.err.is_empty());
    assert_eq!(home.read("bridge.yaml"), FILE);
    let used = format!("{FILE}apps: {{a: {{token: 0123456789abcdef, backends: [two]}}}}\n");
    home.write("bridge.yaml", &used);
    let refused = home.run(&["remove", "two", "--yes"]).expect(USAGE);
    assert!(refused.err.contains("apps.a.backends"), "{}", refused.err);
    assert_eq!(home.read("bridge.yaml"), used);
}

#[test]
fn secrets_of_the_command_line_go_to_files_and_leave_references() {
    let home = Home::new();
    let bearer = format!("Authorization: Bearer {CANARY}");
    let add = ["add", "web", "http://127.0.0.1:9/mcp", "--header", &bearer, "--yes"];
    let ran = home.run(&add).expect(OK);
    assert!(!ran.err.contains("no such file"), "it is kept with the change: {}", ran.err);
    let token = format!("API_TOKEN={CANARY}");
    home.run(&["add", "cat", "-e", &token, "--yes", "--", "cat"]).expect(OK);
    let text = home.read("bridge.yaml");
    assert!(!text.contains(CANARY), "{text}");
    assert!(text.contains("\"Bearer ${secret:WEB_AUTHORIZATION}\""), "{text}");
    let file = home.path(".local/state/mantyx-bridge/secrets/API_TOKEN");
    assert_eq!(fs::read_to_string(&file).expect("it is kept").trim(), CANARY);
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let shown = home.run(&["check"]).expect(OK);
    assert!(!shown.out.contains("warning: web"), "{}", shown.out);
    let removed = home.run(&["remove", "web", "--yes"]).expect(OK);
    assert!(removed.out.contains("-   web:"), "{}", removed.out);
}

#[test]
fn remove_takes_the_secrets_along_that_no_other_entry_has() {
    let home = Home::new();
    for name in ["SHARED", "OWN", "BY_FILE", "OWN_AND_MORE"] {
        home.run_with(&["secret", "set", name], CANARY).expect(OK);
    }
    let file = home.path(".local/state/mantyx-bridge/secrets/BY_FILE");
    let entry = |name: &str, env: &str| format!("  {name}: {{command: cat, env: {env}}}\n");
    let file = format!("'${{file:{}}}'", file.display());
    let first = format!("{{A: '${{secret:SHARED}}', B: '${{secret:OWN}}', C: {file}}}");
    let mcp = [entry("first", &first), entry("second", "{A: '${secret:SHARED}'}")].concat();
    home.write("bridge.yaml", &format!("upstream: {{sandbox: true}}\nmcp:\n{mcp}"));
    let ran = home.run(&["remove", "first", "--yes"]).expect(OK);
    for name in ["OWN", "BY_FILE"] {
        assert!(ran.out.contains(&format!("`{name}` is removed")), "{}", ran.out);
    }
    assert_eq!(home.run(&["secret", "list"]).expect(OK).out, "OWN_AND_MORE\nSHARED\n");
}

#[tokio::test]
async fn running_daemon_takes_an_added_server_and_says_so() {
    let bridge = Bridge::ready("upstream: {sandbox: true}\n").await;
    let config = super::client_config(&bridge);
    fs::rename(&config, bridge.config_path()).expect("one directory");
    let config = bridge.config_path().display().to_string();
    let home = Home::new();
    let ran = tokio::task::spawn_blocking(move || {
        home.run(&["add", "-c", &config, "cat", "--yes", "--", "cat"])
    });
    let ran = ran.await.expect("it does not panic").expect(OK);
    assert!(ran.out.contains("has taken the change"), "{}{}", ran.out, ran.err);
}

#[test]
fn connect_uses_the_commands_of_clients_and_writes_no_token() {
    let home = Home::new();
    let config = home.path("bridge.yaml").display().to_string();
    for (client, file) in [
        ("claude", ".claude.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
    ] {
        put_client(client, &home.path("bin"));
        let product = if client == "claude" { "claude-code" } else { client };
        home.run(&["connect", product]).expect(USAGE);
        for _twice in 0..2 {
            let ran = home.run(&["connect", product, "--yes"]).expect(OK);
            assert!(ran.out.contains(&format!("{client} mcp add")), "{}", ran.out);
            assert!(ran.err.contains("no daemon runs"), "{}", ran.err);
        }
        let text = home.read(file);
        assert!(text.contains(&config) && text.contains("\"mcp\""), "{text}");
        let words = home.run(&["disconnect", product, "--yes"]).expect(OK);
        assert!(words.out.contains("mcp remove"), "{}", words.out);
        assert!(!home.read(file).contains("mantyx-bridge"), "{}", home.read(file));
        home.run(&["disconnect", product, "--yes"]).expect(OK);
    }
    put_program(&home.path("bin/claude"), "echo 'not logged in' >&2; exit 3");
    let failed = home.run(&["connect", "claude-code", "--yes"]).expect(FAILED);
    assert!(failed.err.contains("not logged in"), "{}", failed.err);
}

#[test]
fn connect_changes_a_file_by_the_entry_alone_and_disconnect_takes_that_back() {
    let home = Home::new();
    let own = format!(
        "\u{feff}{{\r\n  // mine\r\n  \"mcpServers\": {{\r\n    \"one\": {{\"command\": \"cat\", \
         \"env\": {{\"T\": \"{CANARY}\"}}}}, // last\r\n  }},\r\n}}\r\n"
    );
    home.write("real/mcp.json", &own);
    fs::create_dir(home.path(".cursor")).expect("writable");
    symlink("../real/mcp.json", home.path(".cursor/mcp.json")).expect("writable");
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(home.path("real/mcp.json"), mode).expect("ours");
    let ran = home.run(&["connect", "cursor", "--yes"]).expect(OK);
    assert!(ran.out.contains("mcp.json:3") || ran.out.contains("mcp.json:4"), "{}", ran.out);
    assert!(
        ran.err.contains("has these servers itself, and from the bridge, too: one"),
        "{}",
        ran.err
    );
    let text = home.read(".cursor/mcp.json");
    assert!(text.contains(home.path("bridge.yaml").to_str().expect("UTF-8")), "{text}");
    assert_eq!(home.read("real/mcp.json.before-mantyx-bridge"), own);
    let about = fs::metadata(home.path("real/mcp.json")).expect("it is there");
    assert_eq!(about.permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(home.path(".cursor/mcp.json")).expect("a link").is_symlink());
    home.run(&["disconnect", "cursor", "--yes"]).expect(OK);
    assert_eq!(home.read(".cursor/mcp.json"), own);
}

#[test]
fn disconnect_removes_what_connect_has_made_and_nothing_else() {
    let home = Home::new();
    fs::create_dir(home.path(".cursor")).expect("writable");
    for own in ["{\"theme\": \"dark\"}", "{\n  // mine\n  \"mcpServers\": {}\n}\n", "{}\n"] {
        home.write(".cursor/mcp.json", own);
        home.run(&["connect", "cursor", "--yes"]).expect(OK);
        assert!(home.read(".cursor/mcp.json").contains("bridge.yaml"));
        home.run(&["disconnect", "cursor", "--yes"]).expect(OK);
        assert_eq!(home.read(".cursor/mcp.json"), own);
        fs::remove_file(home.path(".cursor/mcp.json.before-mantyx-bridge")).expect("a backup");
    }
    fs::remove_file(home.path(".cursor/mcp.json")).expect("ours");
    home.run(&["connect", "cursor", "--yes"]).expect(OK);
    let ran = home.run(&["disconnect", "cursor", "--yes"]).expect(OK);
    assert!(ran.out.contains("is removed"), "{}", ran.out);
    assert!(!home.path(".cursor/mcp.json").exists(), "connect had made it");
}

#[test]
fn connect_runs_the_command_of_vs_code_with_one_json_argument() {
    let home = Home::new();
    put_program(&home.path("bin/code"), "printf '%s\\n' \"$@\" > \"$HOME/arguments\"");
    home.run(&["connect", "vscode", "--yes"]).expect(OK);
    let text = home.read("arguments");
    let arguments: Vec<&str> = text.lines().collect();
    let ["--add-mcp", json] = arguments[..] else { panic!("{arguments:?}") };
    let server: Value = serde_json::from_str(json).expect("JSON");
    assert_eq!((&server["name"], &server["type"]), (&"bridge".into(), &"stdio".into()));
    assert!(Path::new(server["command"].as_str().expect("a path")).is_absolute(), "{server}");
    assert_eq!(server["args"][2], home.path("bridge.yaml").display().to_string());
    home.run(&["disconnect", "vscode", "--yes"]).expect(OK);
}

#[test]
fn client_without_its_command_is_refused_with_what_to_do() {
    let home = Home::new();
    let refused = home.run(&["connect", "codex", "--yes"]).expect(FAILED);
    for part in ["`codex` on the PATH", ".codex/config.toml", "[mcp_servers.bridge]\ncommand ="] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    home.write(".codex/config.toml", "[mcp_servers.bridge]\ncommand = \"x\"\n");
    let refused = home.run(&["disconnect", "codex", "--yes"]).expect(FAILED);
    assert!(refused.err.contains("remove [mcp_servers.bridge] from"), "{}", refused.err);
}

#[test]
fn connect_to_gemini_says_that_its_folder_has_to_be_trusted() {
    let home = Home::new();
    put_client("gemini", &home.path("bin"));
    let ran = home.run(&["connect", "gemini", "--yes"]).expect(OK);
    assert!(ran.err.contains("folders that you trust"), "{}", ran.err);
}

#[test]
fn hostile_file_of_a_client_stays_as_it_is() {
    let home = Home::new();
    fs::create_dir(home.path(".cursor")).expect("writable");
    let path = home.path(".cursor/mcp.json");
    for bytes in [
        format!("{{\"{CANARY}\": ").into_bytes(),
        format!("[\"{CANARY}\"]").into_bytes(),
        format!("{{\"mcpServers\": \"{CANARY}\"}}").into_bytes(),
        b"\xff\xfe{\0}\0".to_vec(),
        vec![b' '; 50 << 20],
    ] {
        fs::write(&path, &bytes).expect("writable");
        let ran = home.run(&["connect", "cursor", "--yes"]).expect(FAILED);
        assert!(ran.err.contains("is left as it is"), "{}", ran.err);
        assert!(fs::read(&path).expect("it is there") == bytes);
    }
    fs::remove_file(&path).expect("ours");
    let pipe = Command::new("mkfifo").arg(&path).status().expect("mkfifo is there");
    assert!(pipe.success());
    let ran = home.run(&["connect", "cursor", "--yes"]).expect(FAILED);
    assert!(ran.err.contains("a pipe"), "{}", ran.err);
    let absent = home.run(&["connect", "vscode", "--yes"]).expect(FAILED);
    assert!(absent.err.contains("--print"), "{}", absent.err);
}

#[test]
fn app_without_a_token_is_not_connected() {
    let home = Home::new();
    let apps = "apps: {cursor: {token: 0123456789abcdef}, other: {users: [0]}}\n";
    home.write("bridge.yaml", &format!("{FILE}{apps}"));
    fs::create_dir(home.path(".cursor")).expect("writable");
    for app in ["absent", "other"] {
        let ran = home.run(&["connect", "cursor", "--app", app, "--yes"]);
        assert_ne!(ran.code, OK, "{app}: {}", ran.out);
    }
    home.run(&["connect", "cursor", "--app", "cursor", "--yes"]).expect(OK);
    let args = home.json(".cursor/mcp.json")["mcpServers"]["bridge"]["args"].take();
    assert_eq!(args[3], "--app", "{args}");
    let text = home.read(".cursor/mcp.json");
    assert!(text.find("\"command\"") < text.find("\"args\""), "as Cursor's own docs: {text}");
    let printed = home.run(&["mcp", "--print", "cursor", "--app", "cursor"]).expect(OK);
    assert_eq!(printed.json()["mcpServers"]["bridge"]["args"], args);
    assert!(printed.err.contains(".cursor/mcp.json"), "{}", printed.err);
}

#[test]
fn secret_is_kept_from_stdin_and_used_by_its_name() {
    let home = Home::new();
    let kept = home.run_with(&["secret", "set", "TOKEN"], &format!("{CANARY}\n")).expect(OK);
    assert!(kept.out.contains("${secret:TOKEN}"), "{}", kept.out);
    home.run_with(&["secret", "set", "a/b"], "x").expect(USAGE);
    home.run_with(&["secret", "set", "TOKEN"], "\n").expect(USAGE);
    // A part of a secret is none, and would be found out by the server that refuses it.
    home.run_with(&["secret", "set", "LONG"], &"x".repeat((64 << 10) + 1)).expect(USAGE);
    let text = FILE.replace("{command: cat}", "{command: cat, env: {T: '${secret:TOKEN}'}}");
    home.write("bridge.yaml", &text);
    home.run(&["check"]).expect(OK);
    assert_eq!(home.run(&["secret", "list"]).expect(OK).out, "TOKEN\n");
    home.run(&["secret", "remove", "TOKEN"]).expect(OK);
    let missing = home.run(&["check"]).expect(USAGE);
    assert!(missing.out.contains("mantyx-bridge secret set TOKEN"), "{}", missing.out);
}

#[test]
fn secret_of_an_app_is_kept_while_another_one_is_missing() {
    let home = Home::new();
    let token = |name: &str| format!("{name}: {{token: '${{secret:{name}}}'}}");
    home.write("bridge.yaml", &format!("{FILE}apps: {{{}, {}}}\n", token("WEB"), token("JOBS")));
    let missing = home.run(&["check"]).expect(USAGE);
    for name in ["WEB", "JOBS"] {
        assert!(missing.out.contains(&format!("secret set {name}")), "{}", missing.out);
        home.run(&["token", "--operator"]).expect(OK);
        home.run_with(&["secret", "set", name], &format!("{CANARY}{name}")).expect(OK);
    }
    home.run(&["check"]).expect(OK);
    let refused =
        home.run(&["run", "--url", "http://127.0.0.1:9", "--app", "WEB", "x"]).expect(USAGE);
    assert!(refused.err.contains("the token says which app"), "{}", refused.err);
}

#[test]
fn service_is_installed_and_removed_by_systemctl() {
    let home = Home::new();
    let unit = ".config/systemd/user/mantyx-bridge.service";
    put_program(&home.path("bin/systemctl"), "echo \"$@\" >> \"$HOME/calls\"; echo active");
    home.run(&["service", "install", "--user"]).expect(USAGE);
    let ran = home.run(&["service", "install", "--user", "--yes"]).expect(OK);
    assert!(ran.err.contains("loginctl enable-linger"), "{}", ran.err);
    let text = home.read(unit);
    let config = home.path("bridge.yaml").display().to_string();
    assert!(text.contains(&format!("serve -c \"{config}\"")), "{text}");
    verify_unit(&home, &text);
    home.run(&["service", "status", "--user"]).expect(OK);
    home.run(&["service", "uninstall", "--user", "--yes"]).expect(OK);
    assert!(!home.path(unit).exists());
    home.run(&["service", "status", "--user"]).expect(FAILED);
    let calls = home.read("calls");
    let calls: Vec<&str> = calls.lines().collect();
    assert_eq!(
        calls,
        [
            "--user show-environment",
            "--user daemon-reload",
            "--user enable mantyx-bridge.service",
            "--user restart mantyx-bridge.service",
            "--user is-active mantyx-bridge.service",
            "--user disable --now mantyx-bridge.service",
            "--user daemon-reload",
        ]
    );
}

/// Has systemd read the unit, which is not started.
fn verify_unit(home: &Home, unit: &str) {
    let kill = debian::program("kill", "procps").display().to_string();
    home.write("mantyx-bridge.service", &unit.replace("/bin/kill", &kill));
    let mut command = Command::new(debian::program("systemd-analyze", "systemd"));
    command.args(["verify", "--man=no"]).arg(home.path("mantyx-bridge.service"));
    let ran = Ran::from(command.output().expect("it is there"));
    assert!(!ran.err.contains("mantyx-bridge"), "systemd-analyze verify: {}", ran.err);
    ran.expect(OK);
}

/// What systemctl says where there is no session is no state of the service.
#[test]
fn service_status_without_a_session_is_an_error() {
    let home = Home::new();
    home.write(".config/systemd/user/mantyx-bridge.service", "");
    let no_session = "echo 'Failed to connect to bus: No medium found' >&2; exit 1";
    put_program(&home.path("bin/systemctl"), no_session);
    let ran = home.run(&["service", "status", "--user"]).expect(FAILED);
    assert!(ran.err.contains("No medium found") && !ran.out.contains("state"), "{ran:?}");
    put_program(&home.path("bin/systemctl"), "echo failed; exit 3");
    let ran = home.run(&["service", "status", "--user"]).expect(FAILED);
    assert!(ran.out.contains("state: failed"), "{ran:?}");
}

/// A variable of the shell is not there when systemd starts the daemon.
#[test]
fn service_that_would_not_start_is_not_installed() {
    let home = Home::new();
    put_program(&home.path("bin/systemctl"), "exit 9");
    let text = "upstream: {workspace: acme, credential: '${env:LOGNAME}'}\n";
    home.write("bridge.yaml", text);
    let mut command = bridge::command();
    command.args(["service", "install", "--user", "--yes"]).current_dir(home.dir.path());
    command.env("HOME", home.dir.path()).env("LOGNAME", "a-key-of-mantyx");
    let ran = Ran::from(command.output().expect("it starts")).expect(USAGE);
    assert!(ran.err.contains("secret set"), "{}", ran.err);
    assert!(!home.path(".config/systemd/user/mantyx-bridge.service").exists());
}

#[test]
fn init_names_servers_reads_projects_and_writes_one_that_two_programs_have_once() {
    let home = Home::new();
    let github = format!("{{\"command\": \"cat\", \"env\": {{\"TOKEN\": \"{CANARY}\"}}}}");
    let claude = format!(
        "{{\"mcpServers\": {{\"github\": {github}}}, \"projects\": {{\"/srv/p\": {{\"mcpServers\": \
         {{\"docs\": {{\"command\": \"cat\", \"args\": [\"d\"]}}}}}}}}}}"
    );
    home.write(".claude.json", &claude);
    let bridge = "\"bridge\": {\"command\": \"/usr/bin/mantyx-bridge\", \"args\": [\"mcp\"]}";
    home.write("cursor.json", &format!("{{\"mcpServers\": {{\"gh\": {github}, {bridge}}}}}"));
    let found = home.run(&["init", "--user", "--yes"]).expect(OK);
    assert!(found.err.contains("2 MCP servers (docs, github) in"), "{}", found.err);
    let args = ["init", "--user", "--force", "--import", ".claude.json", "--import", "cursor.json"];
    let ran = home.run(&args).expect(OK);
    assert!(ran.err.contains("`gh` is the server `github`"), "{}", ran.err);
    assert!(ran.err.contains("`bridge` is this bridge"), "{}", ran.err);
    for part in ["mantyx-bridge connect", "mantyx-bridge open", "cursor.json still has its servers"]
    {
        assert!(ran.out.contains(part), "{}", ran.out);
    }
    let text = home.read(".config/mantyx-bridge/bridge.yaml");
    assert!(text.contains("${secret:TOKEN}") && !text.contains("gh:"), "{text}");
    assert!(!text.contains(CANARY), "{text}");
    let secret = home.read(".local/state/mantyx-bridge/secrets/TOKEN");
    assert_eq!(secret.trim(), CANARY);
}

/// The file in the working directory comes first, so that the commands that `init` prints name the
/// one that it has written.
#[test]
fn init_beside_another_bridge_yaml_prints_commands_that_name_its_own() {
    let home = Home::new();
    let ran = home.run(&["init", "--user", "--yes"]).expect(OK);
    let named = format!("serve -c {}", home.path(".config/mantyx-bridge/bridge.yaml").display());
    assert!(ran.out.contains(&named), "{}", ran.out);
    fs::remove_file(home.path("bridge.yaml")).expect("it is there");
    let again = home.run(&["init", "--user", "--yes", "--force"]).expect(OK);
    assert!(!again.out.contains(" -c "), "{}", again.out);
}
