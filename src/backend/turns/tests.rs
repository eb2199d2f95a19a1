//! Who starts before whom, and what is held back.

use futures_util::FutureExt as _;

use super::*;

fn keys(backend: &str, package: Option<&str>) -> StartKeys {
    let backend = BackendName::parse(backend).expect("a name");
    StartKeys { backend, package: package.map(str::to_owned) }
}

fn join(turns: &Arc<Turns>, backend: &str, place: usize) -> Waiting {
    turns.join(keys(backend, None), Rank::new(false, place))
}

/// The turn, if it is granted by now.
fn granted(waiting: &mut Waiting) -> Option<Turn> {
    waiting.granted().now_or_never()
}

#[test]
fn place_is_free_after_a_turn_ends() {
    let turns = Turns::with_places(2);
    let mut waiting: Vec<Waiting> =
        ["a", "b", "c"].into_iter().enumerate().map(|(at, name)| join(&turns, name, at)).collect();
    let first = granted(&mut waiting[0]).expect("a place is free");
    let second = granted(&mut waiting[1]).expect("a place is free");
    assert!(granted(&mut waiting[2]).is_none());
    drop(second);
    assert!(granted(&mut waiting[2]).is_some());
    drop(first);
}

#[test]
fn order_is_wanted_then_required_then_untried_then_file() {
    let turns = Turns::with_places(1);
    let running = granted(&mut join(&turns, "running", 9)).expect("a place is free");
    let failed_rank = Rank::new(false, 0).after_failure();
    let mut failed = turns.join(keys("failed", None), failed_rank);
    let mut last = join(&turns, "last", 3);
    let mut early = join(&turns, "early", 1);
    let mut required = turns.join(keys("required", None), Rank::new(true, 7));
    let mut wanted = join(&turns, "wanted", 8);
    wanted.hurry();
    drop(running);
    for waiting in [&mut wanted, &mut required, &mut early, &mut last, &mut failed] {
        granted(waiting).expect("it is next");
    }
}

#[test]
fn same_package_starts_after_the_first_has_ended() {
    let turns = Turns::with_places(2);
    let first_keys = keys("a", Some("npx fs"));
    let first = granted(&mut turns.join(first_keys, Rank::new(false, 0))).expect("it is free");
    let mut second = turns.join(keys("b", Some("npx fs")), Rank::new(false, 1));
    let mut other = turns.join(keys("c", Some("npx git")), Rank::new(false, 2));
    assert!(granted(&mut second).is_none());
    assert!(granted(&mut other).is_some(), "it is not held up");
    // The silent start gives its place away, and keeps the package.
    first.give_place_back();
    assert!(granted(&mut second).is_none());
    drop(first);
    assert!(granted(&mut second).is_some());
}

#[test]
fn silent_start_gives_its_place_to_the_next() {
    let turns = Turns::with_places(1);
    let silent = granted(&mut join(&turns, "silent", 0)).expect("a place is free");
    let mut next = join(&turns, "next", 1);
    assert!(granted(&mut next).is_none());
    silent.give_place_back();
    let started = granted(&mut next).expect("the place is free");
    drop(silent);
    let mut third = join(&turns, "third", 2);
    assert!(granted(&mut third).is_none(), "the silent one had no place to give twice");
    drop(started);
    assert!(granted(&mut third).is_some());
}

#[test]
fn changed_entry_waits_for_its_earlier_process() {
    let turns = Turns::with_places(4);
    let earlier = granted(&mut join(&turns, "a", 0)).expect("a place is free");
    let mut changed = join(&turns, "a", 0);
    assert!(granted(&mut changed).is_none());
    drop(earlier);
    assert!(granted(&mut changed).is_some());
}

#[test]
fn dropped_waiter_leaves_the_queue() {
    let turns = Turns::with_places(1);
    let running = granted(&mut join(&turns, "running", 0)).expect("a place is free");
    drop(join(&turns, "gone", 1));
    let mut next = join(&turns, "next", 2);
    drop(running);
    assert!(granted(&mut next).is_some());
    // A grant that nobody takes is given back as well.
    drop(next);
    drop(join(&turns, "granted", 3));
    assert!(granted(&mut join(&turns, "after", 4)).is_some());
    assert!(turns.queue.lock().entries.is_empty());
}

#[test]
fn package_is_found_in_command_lines() {
    struct Row {
        line: &'static str,
        package: Option<&'static str>,
    }
    let rows = [
        Row { line: "npx -y @scope/server@1.2 /srv", package: Some("npx @scope/server") },
        Row { line: "/usr/bin/npx server", package: Some("npx server") },
        Row { line: "npx -y --package=server@2 run-it", package: Some("npx server") },
        Row { line: "npx -p server run-it", package: Some("npx server") },
        Row { line: "npx --registry http://127.0.0.1 server", package: Some("npx server") },
        Row { line: "npm exec -y -- server", package: Some("npm server") },
        Row { line: "npm start", package: None },
        Row { line: "pnpm dlx server", package: Some("pnpm server") },
        Row { line: "bunx server", package: Some("bunx server") },
        Row { line: "uvx mcp-server-git --repo /r", package: Some("uvx mcp-server-git") },
        Row { line: "uvx --python 3.12 server==1.0", package: Some("uvx server") },
        Row { line: "uvx --from server[cli] run-it", package: Some("uvx server") },
        Row { line: "uv tool run server", package: Some("uv server") },
        Row { line: "uv run server.py", package: None },
        Row { line: "pipx run --spec server run-it", package: Some("pipx server") },
        Row { line: "node server.js", package: None },
        Row { line: "npx -y", package: None },
    ];
    for Row { line, package: expected } in rows {
        let mut words = line.split(' ');
        let command = words.next().expect("a command");
        assert_eq!(package(command, words).as_deref(), expected, "{line}");
    }
}
