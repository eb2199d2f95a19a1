//! Whether the right tool is found: questions as models put them, over the catalogs of real
//! servers, and what is saved. The servers only list their tools, those of [`MANY`] without a
//! network.

use std::{collections::HashSet, fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    FIND, by_hand, found,
    questions::{CHECK, FIRST, MORE},
};
use crate::{
    harness::Harness,
    peers::{self, fetch},
    wait,
};

/// The share of questions whose tool is among the first five.
const WANTED: f64 = 0.9;
const SHOWN: usize = 5;

/// Real servers: the name of the backend, the package, arguments, and variables of its environment.
type Server = (&'static str, &'static str, &'static [&'static str], &'static str);

/// From npm, below `@modelcontextprotocol/server-`.
const REFERENCE: &[Server] = &[
    ("fs", "filesystem", &["/tmp"], ""),
    ("memory", "memory", &[], ""),
    ("thinking", "sequential-thinking", &[], ""),
    ("github", "github", &[], "GITHUB_PERSONAL_ACCESS_TOKEN: x"),
    ("gitlab", "gitlab", &[], "GITLAB_PERSONAL_ACCESS_TOKEN: x"),
    ("slack", "slack", &[], "SLACK_BOT_TOKEN: x, SLACK_TEAM_ID: x"),
    ("maps", "google-maps", &[], "GOOGLE_MAPS_API_KEY: x"),
    ("brave", "brave-search", &[], "BRAVE_API_KEY: x"),
];

const GITLAB: &str = "GITLAB_PERSONAL_ACCESS_TOKEN: x, GITLAB_API_URL: 'http://127.0.0.1:9/api/v4'";
const ATLASSIAN: &str = "JIRA_URL: 'http://127.0.0.1:9', JIRA_USERNAME: x, JIRA_API_TOKEN: x, \
                         CONFLUENCE_URL: 'http://127.0.0.1:9', CONFLUENCE_USERNAME: x, \
                         CONFLUENCE_API_TOKEN: x";

/// From npm.
const MANY: &[Server] = &[
    ("puppeteer", "@modelcontextprotocol/server-puppeteer", &[], ""),
    ("playwright", "@playwright/mcp", &[], ""),
    ("devtools", "chrome-devtools-mcp", &["--no-usage-statistics"], ""),
    ("kubernetes", "mcp-server-kubernetes", &[], ""),
    ("mongodb", "mongodb-mcp-server", &[], "MDB_MCP_TELEMETRY: disabled"),
    ("glab", "@zereight/mcp-gitlab", &[], GITLAB),
    ("notion", "@notionhq/notion-mcp-server", &[], "NOTION_TOKEN: x"),
    ("desktop", "@wonderwhy-er/desktop-commander", &[], ""),
    ("hubspot", "@hubspot/mcp-server", &[], "PRIVATE_APP_ACCESS_TOKEN: x"),
    ("circleci", "@circleci/mcp-server-circleci", &[], "CIRCLECI_TOKEN: x"),
    ("firecrawl", "firecrawl-mcp", &[], "FIRECRAWL_API_KEY: x"),
    ("sentry", "@sentry/mcp-server", &["--access-token=x"], ""),
];

/// Some would tell their makers that they are used.
const OFFLINE: &[&str] = &["unshare", "-Un"];

/// The entry of a configuration.
fn entry(name: &str, command: &[&str], env: &str) -> String {
    let (program, args) = command.split_first().expect("a program");
    let args = json!(args);
    format!("  {name}: {{offer: search, command: {program}, args: {args}, env: {{{env}}}}}\n")
}

/// The program that a package of npm names: that of its own name, if it has several.
fn program(modules: &Path, package: &str) -> String {
    let dir = modules.join(package);
    let text = fs::read_to_string(dir.join("package.json")).expect("the package is installed");
    let bin = serde_json::from_str::<Value>(&text).expect("JSON")["bin"].take();
    let own = package.rsplit('/').next().and_then(|name| bin.get(name));
    let program = own.or_else(|| bin.as_object()?.values().next()).unwrap_or(&bin);
    dir.join(program.as_str().expect("it has a program")).display().to_string()
}

fn reference() -> String {
    let modules = fetch::tool_servers().join("@modelcontextprotocol");
    let of = |(name, package, args, env): &Server| {
        let script = program(&modules, &format!("server-{package}"));
        entry(name, &[&["node", &*script], *args].concat(), env)
    };
    let python = fetch::python_tool_servers().display().to_string();
    let everything = fetch::everything().display().to_string();
    let time = fetch::python().display().to_string();
    let others = [
        entry("git", &[&python, "-m", "mcp_server_git"], ""),
        entry("web", &[&python, "-m", "mcp_server_fetch"], ""),
        entry("time", &[&time, "-m", "mcp_server_time", "--local-timezone", "UTC"], ""),
        entry("everything", &["node", &everything, "stdio"], ""),
    ];
    REFERENCE.iter().map(of).chain(others).collect()
}

fn many() -> String {
    let modules = fetch::many_tool_servers();
    let of = |(name, package, args, env): &Server| {
        entry(name, &[OFFLINE, &["node", &*program(&modules, package)], *args].concat(), env)
    };
    let program = fetch::python_atlassian().with_file_name("mcp-atlassian").display().to_string();
    let atlassian = entry("atlassian", &[OFFLINE, &[&program]].concat(), ATLASSIAN);
    MANY.iter().map(of).chain([atlassian]).collect()
}

/// 400 tools of an office, with the same verbs as the real ones.
fn office(dir: &TempDir) -> String {
    const VERBS: [&str; 20] = [
        "list",
        "get",
        "search",
        "create",
        "update",
        "delete",
        "archive",
        "export",
        "import",
        "approve",
        "reject",
        "assign",
        "close",
        "reopen",
        "share",
        "print",
        "schedule",
        "cancel",
        "duplicate",
        "validate",
    ];
    const THINGS: [&str; 20] = [
        "invoice",
        "customer",
        "order",
        "contract",
        "shipment",
        "payment",
        "employee",
        "timesheet",
        "budget",
        "campaign",
        "survey",
        "warehouse",
        "supplier",
        "asset",
        "licence",
        "warranty",
        "meeting",
        "room",
        "booking",
        "newsletter",
    ];
    let tool = |thing: &str, verb: &str| {
        json!({
            "name": format!("{verb}_{thing}"),
            "description": format!("{verb}s the {thing} that is named, or several of them."),
            "inputSchema": {"type": "object", "properties": {format!("{thing}_id"): {}, "limit": {}}},
        })
    };
    let all = THINGS.iter().flat_map(|thing| VERBS.iter().map(|verb| tool(thing, verb)));
    let path = dir.path().join("office");
    let listing = json!({ "tools": all.collect::<Vec<_>>() }).to_string();
    fs::write(&path, listing).expect("a new directory");
    format!("  office: {}\n", peers::with(&peers::changing(&path, &[]), "offer: search"))
}

/// The tools' names and descriptions.
fn texts(spec: &Value) -> Vec<(String, String)> {
    let refs = spec["tools"].as_array().expect("refs");
    let tools = refs.iter().filter_map(|one| one["tools"].as_array()).flatten();
    let text = |tool: &Value, key| tool[key].as_str().unwrap_or_default().to_owned();
    tools.map(|tool| (text(tool, "name"), text(tool, "description"))).collect()
}

/// How many questions are answered by a search for the words as they are: that find the right tool
/// among the first five that have all, and among the five that have most of them.
fn by_substring(tools: &[(String, String)], questions: &[(&str, Vec<&str>)]) -> [usize; 2] {
    let texts: Vec<_> =
        tools.iter().map(|(name, text)| format!("{name} {text}").to_lowercase()).collect();
    let mut hits = [0; 2];
    for (question, right) in questions {
        let question = question.to_lowercase();
        let words: Vec<&str> = question.split_whitespace().collect();
        let count = |text: &String| words.iter().filter(|word| text.contains(**word)).count();
        let mut most: Vec<(usize, &str)> =
            texts.iter().zip(tools).map(|(text, (name, _))| (count(text), &**name)).collect();
        let all = most.iter().filter(|(count, _)| *count == words.len()).take(SHOWN);
        hits[0] += usize::from(all.clone().any(|(_, name)| right.contains(name)));
        most.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        hits[1] += usize::from(most.iter().take(SHOWN).any(|(_, name)| right.contains(name)));
    }
    hits
}

/// The questions that one of the tools is right for, with the right ones.
fn askable<'q>(
    questions: &[(&'q str, &'q str)],
    names: &HashSet<&str>,
    backends: &HashSet<&str>,
) -> Vec<(&'q str, Vec<&'q str>)> {
    let mut askable = Vec::new();
    for (question, right) in questions {
        let right: Vec<&str> = right.split(' ').collect();
        for name in &right {
            let backend = name.split('_').next().expect("a prefix");
            assert!(!backends.contains(backend) || names.contains(name), "no tool {name}");
        }
        if right.iter().any(|name| names.contains(name)) {
            askable.push((*question, right));
        }
    }
    askable
}

async fn measure(config: &str, least: usize) {
    let mut rig =
        Harness::bare(&format!("mcp:\n{}", config.replace("offer: search", "offer: all"))).await;
    wait::until("all servers should be ready", std::time::Duration::from_secs(300), async || {
        let status = rig.bridge.status().await;
        let backends = status["backends"].as_array().expect("backends").clone();
        backends.iter().all(|backend| backend["state"] == "ready").then_some(())
    })
    .await;
    let given = texts(&rig.bridge.api("GET", "/v1/tool-refs", None).await.expect(200));
    let all = rig.bridge.status().await["injected"][0].clone();
    assert!(given.len() >= least, "{} tools", given.len());

    rig.bridge.stop().await;
    rig.bridge.change_config("offer: all", "offer: search");
    rig.bridge.restart().await;
    rig.bridge.wait_ready().await;
    let searched = rig.bridge.status().await["injected"][0].clone();
    println!("{} tools of {} servers", given.len(), config.lines().count());
    for one in all["backends"].as_array().expect("backends") {
        println!("  {} {} tools, {} tokens", one["name"], one["tools"], one["tokens"]);
    }
    println!("tokens with `all`: {}, with `search`: {}", all["tokens"], searched["tokens"]);
    assert_eq!((&searched["searched"], &searched["tools"]), (&given.len().into(), &2.into()));

    let names: HashSet<&str> = given.iter().map(|(name, _)| &**name).collect();
    let backends: HashSet<&str> =
        config.lines().filter_map(|line| Some(line.trim().split_once(':')?.0)).collect();
    let (mut hits, mut asked, mut number) = (0, 0, 0);
    for (set, questions) in [("tuned on", FIRST), ("tuned on, too", MORE), ("not tuned on", CHECK)]
    {
        let of_set = askable(questions, &names, &backends);
        let mut found_of_set = 0;
        for (question, right) in &of_set {
            number += 1;
            let args = json!({"query": question, "limit": SHOWN}).to_string();
            let answer = by_hand(&rig.bridge, &format!("tu_{number}"), FIND, &args).await;
            let names = found(answer.expect(200)["result"].as_str().expect("a result"));
            match names.iter().any(|name| right.contains(&&**name)) {
                true => found_of_set += 1,
                false => println!("  missed: {question}: {names:?}"),
            }
        }
        let [whole, most] = by_substring(&given, &of_set);
        println!(
            "{set}: {found_of_set} of {} among the first {SHOWN}; by substrings: {whole} with all \
             words, {most} with most of them",
            of_set.len()
        );
        hits += found_of_set;
        asked += of_set.len();
    }
    println!("{hits} of {asked}");
    assert!(
        asked >= 60 && f64::from(hits) >= WANTED * f64::from(asked as u32),
        "{hits} of {asked}"
    );
}

#[tokio::test]
async fn the_right_tool_is_among_the_first_five() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    measure(&(reference() + &office(&dir)), 500).await;
}

/// The catalogs of 25 real servers.
#[tokio::test]
#[ignore = "installs a gigabyte of servers"]
async fn the_right_tool_of_many_servers_is_among_the_first_five() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    measure(&(reference() + &many() + &office(&dir)), 900).await;
}
