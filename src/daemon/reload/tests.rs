//! What a running daemon cannot change, told by its keys.

use std::path::Path;

use super::*;
use crate::config::Environment;

#[track_caller]
fn parse(yaml: &str) -> Config {
    let env = Environment::bare().with_var("STATE_DIRECTORY", "/var/lib/bridge");
    Config::parse(yaml, Path::new("/srv/bridge.yaml"), &env).expect("a good file")
}

const BOUND: &str = "127.0.0.1:4711";

/// Checks what a daemon that was started with `before`, and listens on [`BOUND`], says of `after`.
#[track_caller]
fn check(before: &str, after: &str, expected: Option<&str>) {
    let (before, after) = (parse(before), parse(after));
    let same_mantyx = mantyx(&after.upstream) == mantyx(&before.upstream);
    let keys = differences(&before, &[BOUND.parse().unwrap()], &after);
    let told = restart_needed(&keys, same_mantyx);
    assert_eq!(told.map(|told| told.to_string()).as_deref(), expected);
}

const MANTYX: &str = "upstream: {base_url: https://a.acme, credential: a-secret}";

#[test]
fn change_that_holds_at_once_is_not_told() {
    for after in [
        MANTYX,
        "upstream: {base_url: https://a.acme, credential: b-secret, workspace: acme}",
        "upstream: {base_url: https://a.acme, credential: passthrough}\ncalls: {timeout: 9s}",
    ] {
        check(MANTYX, after, None);
    }
    // The port was free to choose, and this is the one that was chosen.
    let any = format!("listen: 127.0.0.1:0\n{MANTYX}");
    check(&any, &format!("listen: {BOUND}\n{MANTYX}"), None);
}

#[test]
fn change_that_needs_a_restart_is_told() {
    let told = "taken, but what has changed in listen needs a restart";
    check(MANTYX, &format!("listen: 127.0.0.1:1\n{MANTYX}"), Some(told));
    let unix = format!("listen: {{tcp: 127.0.0.1:7717, unix: /run/b.sock}}\n{MANTYX}");
    check(MANTYX, &unix, Some(told));
    let told = "taken, but what has changed in state_dir, auth needs a restart";
    check(MANTYX, &format!("state_dir: /tmp/s\nauth: off\n{MANTYX}"), Some(told));
}

#[test]
fn another_mantyx_keeps_what_belongs_to_it_waiting() {
    let kept = "; until then, `upstream` and `apps` stay as they were";
    let told = |key: &str| format!("taken, but what has changed in {key} needs a restart{kept}");
    let sandbox = "upstream: {sandbox: true}";
    let base_url = "upstream: {base_url: https://b.acme, credential: a-secret}";
    check(MANTYX, base_url, Some(&told("upstream.base_url")));
    check(MANTYX, sandbox, Some(&told("upstream.sandbox")));
    check(sandbox, MANTYX, Some(&told("upstream.sandbox")));
    let other = "upstream: {sandbox: true, workspace: other}";
    check(sandbox, other, Some(&told("upstream.workspace")));
}
