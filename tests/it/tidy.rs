//! Rules of the tree, checked as tests are: what a file opens with, how long it is, who may know
//! whom.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use regex::Regex;

use crate::peers::repository;

/// Files longer than this have more than one job.
const MAX_LINES: usize = 600;

/// A room of `http`, and the other modules that neither it nor those below it may name. The order
/// of all modules is that of the map in ARCHITECTURE.md.
const DIRECTIONS: &[(&str, &str)] = &[
    // What requests ask about the records is answered by `run_store` and `calls`: the difference
    // between one process and replicas is decided there.
    ("http", "journal"),
    ("http::client_info", "backend calls config http run_store runs upstream"),
    ("http::error_code", "backend calls config http run_store runs upstream"),
    (
        "http::router",
        "backend calls config http::server http::service http::status_page run_store runs upstream",
    ),
    (
        "http::auth",
        "backend calls http::api http::proxy http::router http::server http::service http::status_page run_store runs",
    ),
    (
        "http::response",
        "backend calls http::api http::proxy http::router http::server http::service http::status_page run_store runs upstream",
    ),
    (
        "http::status_page",
        "backend calls config http::api http::auth http::proxy http::router http::server http::service model run_store runs upstream",
    ),
    ("http::proxy", "http::api http::router http::server http::service http::status_page"),
    ("http::api", "http::router http::server http::service http::status_page"),
    ("http::service", "backend calls config http::server run_store runs upstream"),
    (
        "http::server",
        "backend calls config http::api http::auth http::proxy http::router http::status_page run_store runs upstream",
    ),
];

/// A comment is wrapped here, as code is.
const COMMENT_WIDTH: usize = 100;

/// What `model` must not name: it decides, and others act.
const NOT_IN_MODEL: &[&str] = &[
    "tokio",
    "reqwest",
    "hyper",
    "rmcp",
    "std::fs",
    "std::net",
    "std::process",
    "std::time::System",
];

struct Source {
    /// Relative to the repository.
    path: String,
    text: String,
}

/// All files of ours with one of these extensions.
fn sources(extensions: &[&str]) -> Vec<Source> {
    let root = repository("");
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = vec![root.clone()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("a directory of the repository") {
            let path = entry.expect("an entry of a directory of ours").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "node_modules" | "__pycache__") {
                    left.push(path);
                }
            } else if extensions.iter().any(|extension| matches_extension(&path, extension)) {
                let relative = path.strip_prefix(&root).expect("below the root");
                let text = fs::read_to_string(&path).expect("a text file");
                found.push(Source { path: relative.display().to_string(), text });
            }
        }
    }
    assert!(!found.is_empty(), "no file with {extensions:?}");
    found
}

/// An empty extension stands for the scripts below `.ci`.
fn matches_extension(path: &Path, extension: &str) -> bool {
    match extension {
        "" => path.parent().and_then(Path::file_name).is_some_and(|dir| dir == ".ci"),
        _ => path.extension().is_some_and(|found| found == extension),
    }
}

#[track_caller]
fn none(what: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{what}:\n  {}", offenders.join("\n  "));
}

#[test]
fn every_file_opens_with_what_it_is() {
    let opens = |source: &Source| {
        let mut lines = source.text.lines();
        let first = lines.next().unwrap_or_default();
        match source.path.rsplit('.').next() {
            Some("rs") => first.starts_with("//! "),
            Some("py") if first.starts_with("#!") => {
                lines.next().is_some_and(|line| line.starts_with("\"\"\""))
            }
            Some("py") => first.starts_with("\"\"\""),
            _ if first.starts_with("#!") => lines.next().is_some_and(|line| line.starts_with("# ")),
            _ => first.starts_with("# "),
        }
    };
    let closed = sources(&["rs", "py", "sh", ""]).into_iter().filter(|source| !opens(source));
    none("these files do not open with what they are", &closed.map(|s| s.path).collect::<Vec<_>>());
}

#[test]
fn no_file_is_too_long() {
    let long = sources(&["rs", "py", "sh", ""]).into_iter().filter_map(|source| {
        let lines = source.text.lines().count();
        (lines > MAX_LINES).then(|| format!("{} ({lines} lines)", source.path))
    });
    none(&format!("these files have over {MAX_LINES} lines"), &long.collect::<Vec<_>>());
}

/// A line that is a comment alone: what stands before its text, and the text.
fn comment(line: &str) -> Option<(&str, &str)> {
    let code = line.trim_start();
    let rest = ["///", "//!", "//"].iter().find_map(|marker| code.strip_prefix(*marker))?;
    let before = line.strip_suffix(rest)?;
    match rest.strip_prefix(' ') {
        Some(text) => Some((before, text)),
        None if rest.is_empty() => Some((before, "")),
        None => None,
    }
}

/// Whether a line of a comment begins something that stands on a line of its own: an item of a
/// list, a row of a table, a heading, a quotation, or code.
fn stands_alone(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_item = text.starts_with(['-', '*']) || number != text && number.starts_with(". ");
    is_item || text.is_empty() || text.starts_with("    ") || text.starts_with(['|', '#', '>', '`'])
}

/// The lines of a text whose comments are too long, or break before a word for which there is room:
/// their numbers.
fn unwrapped_lines(text: &str) -> Vec<usize> {
    let mut offenders = Vec::new();
    let mut in_code = false;
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((before, text)) = comment(line) else { continue };
        in_code ^= text.starts_with("```");
        let width = line.chars().count();
        let next = lines.get(at + 1).and_then(|next| comment(next));
        let next_word = next
            .filter(|(next_before, text)| *next_before == before && !stands_alone(text))
            .and_then(|(_, text)| text.split_whitespace().next());
        let breaks_early = next_word.is_some_and(|word| {
            !text.is_empty() && width + 1 + word.chars().count() <= COMMENT_WIDTH
        });
        let is_quoted = in_code || text.starts_with("    ");
        if width > COMMENT_WIDTH || breaks_early && !is_quoted {
            offenders.push(at + 1);
        }
    }
    offenders
}

#[test]
fn comments_are_wrapped() {
    let mut offenders = Vec::new();
    for source in sources(&["rs"]) {
        for line in unwrapped_lines(&source.text) {
            offenders.push(format!("{}:{line}", source.path));
        }
    }
    none(&format!("these comments are not wrapped at {COMMENT_WIDTH} columns"), &offenders);
}

#[test]
fn unwrapped_comment_is_found() {
    let word = "x".repeat(40);
    let line = |words: usize| format!("/// {}", vec![word.as_str(); words].join(" "));
    let two = line(2);
    assert_eq!(unwrapped_lines(&format!("{two}\n{two}")), [0; 0]);
    assert_eq!(unwrapped_lines(&line(3)), [1], "it is too long");
    assert_eq!(unwrapped_lines(&format!("{two}\n/// is")), [1], "there is room for `is`");
    for next in ["///", "// is", "/// - is", "/// 1. is", "fn f() {}"] {
        assert_eq!(unwrapped_lines(&format!("{two}\n{next}")), [0; 0], "{next}");
    }
}

/// The module that a file of `src` is: `backend::mcp` for src/backend/mcp.rs.
fn module(path: &str) -> Option<String> {
    let path = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    Some(path.replace('/', "::"))
}

/// Whether `path` is `module` or something below it.
fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The paths of ours that `text` names, `use` lists taken apart, each with its line.
fn named_paths(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let before = text.get(..at).unwrap_or_default();
        if is_comment(before.rsplit('\n').next().unwrap_or_default()) {
            continue;
        }
        let mut paths = Vec::new();
        take_tree(text.get(at + "crate::".len()..).unwrap_or_default(), "", &mut paths);
        let line = before.matches('\n').count() + 1;
        found.extend(paths.into_iter().map(|path| (line, path)));
    }
    found
}

/// Reads one path or list of a `use`; what follows it.
fn take_tree<'a>(text: &'a str, prefix: &str, paths: &mut Vec<String>) -> &'a str {
    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !is_path(c)).unwrap_or(text.len());
    let (path, mut rest) = text.split_at(end);
    let path = format!("{prefix}{path}");
    let Some(list) = rest.strip_prefix('{').filter(|_| path.is_empty() || path.ends_with("::"))
    else {
        paths.push(path);
        return rest;
    };
    rest = list.trim_start();
    while !rest.is_empty() && !rest.starts_with('}') {
        rest = take_tree(rest, &path, paths);
        rest =
            rest.trim_start_matches(|c| c != ',' && c != '}').trim_start_matches(',').trim_start();
    }
    rest.strip_prefix('}').unwrap_or_default()
}

/// Whether `line` names the word `name` and not a longer one.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + name.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(word) && !after.is_some_and(word)
    })
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The modules in the order of the map in ARCHITECTURE.md: the first word of each row's names.
fn map_order() -> Vec<String> {
    let text = fs::read_to_string(repository("ARCHITECTURE.md")).expect("a text file");
    let (_, map) = text.split_once("## Map").expect("it has a map");
    let (map, _) = map.split_once("\n## ").expect("another section follows");
    let rows = map.lines().filter_map(|line| line.strip_prefix("| `"));
    let first_names = rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name);
    first_names.filter(|name| !name.contains("::")).map(str::to_owned).collect()
}

/// A test may use what stands above its module: it builds the world around it.
fn is_test(path: &str) -> bool {
    let is_fake =
        |part: &str| matches!(part, "tests" | "tests.rs" | "fake" | "fake.rs" | "simulated.rs");
    path.split('/').any(|part| is_fake(part) || part.starts_with("fake_"))
}

#[test]
fn modules_use_only_what_stands_above_them_in_the_map() {
    let order = map_order();
    let place = |module: &str| {
        let top = module.split("::").next().unwrap_or_default();
        order.iter().position(|name| name == top)
    };
    let mut offenders = Vec::new();
    for source in sources(&["rs"]).into_iter().filter(|source| !is_test(&source.path)) {
        let Some(module) = module(&source.path) else { continue };
        if matches!(module.as_str(), "lib" | "main") {
            continue;
        }
        let Some(own_place) = place(&module) else {
            offenders.push(format!("{}: its module is not in the map", source.path));
            continue;
        };
        let code = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (line, path) in named_paths(code) {
            if place(&path).is_some_and(|other| other > own_place) {
                offenders.push(format!("{}:{line}: names crate::{path}", source.path));
            }
        }
    }
    none("these lines use a module that stands below theirs", &offenders);
}

#[test]
fn modules_name_only_what_they_may() {
    let mut offenders = Vec::new();
    for source in sources(&["rs"]) {
        let Some(module) = module(&source.path) else { continue };
        let rules = DIRECTIONS.iter().filter(|(name, _)| is_within(&module, name));
        let forbidden: Vec<&str> = rules.flat_map(|(_, list)| list.split(' ')).collect();
        for (line, path) in named_paths(&source.text) {
            let is_other = is_within(&module, "model") && !is_within(&path, "model");
            let is_forbidden = forbidden.iter().any(|other| is_within(&path, other));
            if is_other || is_forbidden {
                offenders.push(format!("{}:{line}: names crate::{path}", source.path));
            }
        }
        if is_within(&module, "model") {
            for (number, line) in source.text.lines().enumerate().filter(|(_, l)| !is_comment(l)) {
                for name in NOT_IN_MODEL.iter().filter(|name| names(line, name)) {
                    offenders.push(format!("{}:{}: names {name}", source.path, number + 1));
                }
            }
        }
    }
    none("these lines break the direction rules", &offenders);
}

/// `RunStore::journal` is for the rooms below `http`, and an import alone would not show its use.
#[test]
fn http_asks_run_store_and_calls_and_never_the_journal() {
    let asks_journal = Regex::new(r"\.\s*journal\b").expect("a pattern");
    let mut offenders = Vec::new();
    for source in sources(&["rs"]) {
        if module(&source.path).is_some_and(|module| is_within(&module, "http")) {
            let lines = source.text.lines().enumerate().filter(|(_, line)| !is_comment(line));
            let asking = lines.filter(|(_, line)| asks_journal.is_match(line));
            offenders.extend(asking.map(|(at, _)| format!("{}:{}", source.path, at + 1)));
        }
    }
    none("these lines ask the journal", &offenders);
}

/// The files of `src` that may start a process by themselves: the function for all others, a
/// process that adopts no orphans, and commands that end at once.
const STARTERS: [&str; 4] = [
    "src/backend/program/orphans.rs",
    "src/backend/program/mask.rs",
    "src/cli/commands.rs",
    "src/cli/open.rs",
];

/// The daemon waits for orphans, so a process that it has started in another way would be taken for
/// one, and its exit status lost (`orphans::start_own`).
#[test]
fn processes_are_started_by_start_own() {
    let starts = Regex::new(r"\.(spawn|output|status)\(\)").expect("a pattern");
    let has_commands = Regex::new(r"process::(Command|\{[^}]*\bCommand)").expect("a pattern");
    let mut starters = BTreeSet::new();
    for source in sources(&["rs"]) {
        let is_test = source.path.ends_with("/tests.rs") || source.path.contains("/tests/");
        let code = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        if source.path.starts_with("src/")
            && !is_test
            && has_commands.is_match(code)
            && code.lines().any(|line| !is_comment(line) && starts.is_match(line))
        {
            starters.insert(source.path);
        }
    }
    let expected = STARTERS.map(str::to_owned);
    assert_eq!(starters, BTreeSet::from(expected), "processes are begun by `orphans::start_own`");
}

/// The order of std's maps is another one in each process, and a seed of the simulation would take
/// another way each time.
#[test]
fn maps_by_hash_are_those_of_model_maps() {
    let is_std_map = Regex::new(r"std::collections::(\{[^}]*)?Hash(Map|Set)").expect("a pattern");
    let exceptions = ["src/model/maps.rs"];
    let offenders = sources(&["rs"]).into_iter().filter(|source| {
        source.path.starts_with("src/")
            && !is_test(&source.path)
            && !exceptions.contains(&source.path.as_str())
            && is_std_map.is_match(&source.text)
    });
    none(
        "these files use std's HashMap or HashSet",
        &offenders.map(|s| s.path).collect::<Vec<_>>(),
    );
}

#[test]
fn chance_is_drawn_from_random_alone() {
    let draws = Regex::new(r"new_v4|rand::(rng|random)|getrandom::fill").expect("a pattern");
    let offenders = sources(&["rs"]).into_iter().filter(|source| {
        let code = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        source.path.starts_with("src/")
            && !is_test(&source.path)
            && source.path != "src/random.rs"
            && draws.is_match(code)
    });
    none(
        "these files draw chance that no seed decides",
        &offenders.map(|s| s.path).collect::<Vec<_>>(),
    );
}

/// The check of directions sees into nested lists.
#[test]
fn lists_of_uses_are_taken_apart() {
    let text =
        "use crate::{\n    a::{self, b::C},\n    d,\n};\n// crate::no\nlet x = crate::e::f();";
    let found: Vec<String> = named_paths(text).into_iter().map(|(_, path)| path).collect();
    assert_eq!(found, ["a::self", "a::b::C", "d", "e::f"]);
}

/// What is promised is held: SECURITY.md names a test as `module::name`.
#[test]
fn every_test_that_is_named_as_holding_a_promise_exists() {
    let text = fs::read_to_string(repository("SECURITY.md")).expect("a text file");
    let named: Vec<&str> =
        text.split('`').skip(1).step_by(2).filter(|n| n.contains("::")).collect();
    let missing = named.iter().filter(|name| {
        let (module, test) = name.rsplit_once("::").expect("it has the two parts");
        let file = repository("tests/it").join(format!("{}.rs", module.replace("::", "/")));
        let source = fs::read_to_string(file).unwrap_or_default();
        !source.contains(&format!("fn {test}()"))
    });
    none(
        "SECURITY.md names tests that are not there",
        &missing.map(|n| (*n).into()).collect::<Vec<_>>(),
    );
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    let held = rows.iter().filter(|row| row.contains("::")).count();
    let promised = rows.iter().skip_while(|row| !row.starts_with("| promise |")).count();
    assert_eq!(held + 1, promised, "every promise has its test, below the head of the table");
}

/// A test is found by its subject. With one of these words in front, its name is a sentence that
/// needs the test before, or a question.
const NO_SUBJECTS: &str = "it nor of so such that there they those what where who whoever";

#[test]
fn test_names_begin_with_their_subject() {
    let one_test =
        Regex::new(r"#\[(?:tokio::)?test[^\]]*\]\s+(?:#\[[^\]]*\]\s+)*(?:async )?fn (\w+)")
            .expect("a pattern");
    let mut offenders = Vec::new();
    for source in sources(&["rs"]) {
        for found in one_test.captures_iter(&source.text) {
            let first_word = found[1].split('_').next().unwrap_or_default();
            if NO_SUBJECTS.split(' ').any(|word| word == first_word) {
                offenders.push(format!("{}: {}", source.path, &found[1]));
            }
        }
    }
    none("these tests are not named by their subject", &offenders);
}

#[test]
fn nothing_is_left_undone_and_no_machine_is_named() {
    // In two parts, so that this file does not offend itself.
    let marks = [("FIX", "ME"), ("TO", "DO"), ("XX", "X")].map(|(a, b)| format!("{a}{b}"));
    let paths = [("/tmp", "/wt"), ("/tmp", "/ref"), ("/wo", "rk/"), ("/ro", "ot/")]
        .map(|(a, b)| format!("{a}{b}"));
    let mut offenders = Vec::new();
    for source in
        sources(&["rs", "py", "sh", "", "md", "yaml", "toml", "service", "socket", "conf"])
    {
        for (number, line) in source.text.lines().enumerate() {
            let mark = marks.iter().find(|mark| names(line, mark));
            let path = paths.iter().find(|path| line.contains(path.as_str()));
            if let Some(found) = mark.or(path) {
                offenders.push(format!("{}:{}: {found}", source.path, number + 1));
            }
        }
    }
    none("these lines are unfinished or name a machine", &offenders);
}

/// `.ci/mutations` takes hours, and a patch that fits no more would be found then.
#[test]
fn the_mutations_fit_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patches = fs::read_dir(root.join("tests/mutations")).expect("it is there");
    let mut unfit = Vec::new();
    for patch in patches.map(|entry| entry.expect("it can be read").path()) {
        let mut git = Command::new("git");
        git.args(["apply", "--check"]).arg(&patch).current_dir(root);
        let ran = git.output().expect("git is installed");
        if !ran.status.success() {
            unfit.push(format!("{}: {}", patch.display(), String::from_utf8_lossy(&ran.stderr)));
        }
    }
    none("these patches do not fit the code", &unfit);
}
