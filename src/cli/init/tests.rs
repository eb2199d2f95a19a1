//! What is asked, and what the file says afterwards.

use std::io::Cursor;

use super::*;
use crate::config::Config;

fn settings(args: &[&str]) -> Settings {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }
    let line: Line = clap::Parser::try_parse_from([&["init"], args].concat()).unwrap();
    line.settings
}

fn draft(args: &[&str], answers: Option<&'static str>) -> (Draft, Config) {
    let input = Box::new(Cursor::new(answers.unwrap_or_default()));
    let mut asker = Asker { input, on: answers.is_some() };
    let env = Environment::bare().with_var("HOME", "/nonexistent");
    let draft = collect(&settings(args), &mut asker, &env, None).unwrap();
    let wanted = ["MANTYX_API_KEY", "SERVER_API_KEY", "SERVER_2_API_KEY"];
    let env = wanted.into_iter().fold(env, |env, name| env.with_var(name, "v"));
    let text = draft.yaml();
    let config = Config::parse(&text, Path::new("/etc/bridge.yaml"), &env);
    let config = config.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert!(config.warnings.is_empty(), "{:?}\n{text}", config.warnings);
    (draft, config)
}

fn names(config: &Config) -> Vec<String> {
    config.backends.keys().map(ToString::to_string).collect()
}

#[test]
fn init_without_options_writes_the_sandbox_with_the_examples() {
    let (_, config) = draft(&[], None);
    assert!(matches!(config.upstream, crate::config::Upstream::Sandbox { .. }));
    assert_eq!(names(&config), ["demo", "desk"]);
}

#[test]
fn answers_are_taken_and_what_is_no_address_is_not() {
    let answers = "no slug\nacme\nhttp://jira.test/mcp\nnot an address\nhttp://jira.test/mcp\n";
    let (draft, config) = draft(&[], Some(answers));
    assert_eq!(draft.workspace.as_deref(), Some("acme"));
    assert_eq!(names(&config), ["jira", "jira_2"], "every name once");
}

#[test]
fn flags_are_added_up_or_not_and_their_secrets_are_not_written() {
    let secret = "canary7Secret9Value3x";
    let url = format!("http://127.0.0.1:1/mcp?api_key={secret}");
    let args = [
        "--workspace",
        "acme",
        "--mcp",
        &url,
        "--mcp",
        &url,
        "--a2a",
        "http://127.0.0.1:1",
        "--yes",
    ];
    let (draft, config) = draft(&args, None);
    assert_eq!(names(&config), ["agent", "server", "server_2"], "every name once");
    let text = draft.yaml();
    assert!(!text.contains(secret) && text.contains("${env:SERVER_API_KEY}"), "{text}");
    assert!(draft.backends.remarks(&Environment::bare()).contains("SERVER_API_KEY"));
}

#[test]
fn file_with_imported_servers_is_its_owners_alone_and_overwritten_only_by_force() {
    let dir = tempfile::TempDir::new().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let private = Writing { force: false, is_private: true };
    let new = dir.path().join("new.yaml");
    write(&new, "a", private).unwrap();
    assert_eq!(mode(&new), 0o600);
    let old = dir.path().join("old.yaml");
    fs::write(&old, "mine").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(write(&old, "a", private).is_err());
    assert_eq!((fs::read_to_string(&old).unwrap().as_str(), mode(&old)), ("mine", 0o644));
    write(&old, "a", Writing { force: true, ..private }).unwrap();
    assert_eq!((fs::read_to_string(&old).unwrap().as_str(), mode(&old)), ("a", 0o600));
}
