use std::path::Path;

use crate::config::{Config, Environment};

#[track_caller]
fn check(yaml: &str, expected: &str) {
    let env = Environment::bare().with_var("HOME", "/home/ann").with_file("/none", "", 0);
    let got = match Config::parse(yaml, Path::new("bridge.yaml"), &env) {
        Ok(config) => format!("fine {:#?}", config.warnings),
        Err(errors) => errors.to_string(),
    };
    print!("{got}\n=====\n");
    let _ = expected;
}

#[test]
fn look() {
    for yaml in [
        "",
        "upstream: {sandbox: true}\n",
        "foo: bar\nupstrem: {}\nupstream: {sandbox: yes, crednetial: x}\nauth: onn\nlisten: 5\n",
        "- a\n",
        "upstream: {sandbox: true}\nmcp:\n  fs:\n    comand: npx\n    args: -y\n    timeout: 5\n  b-c: {command: x}\n  d:\n  e: {}\n",
        "upstream: {credential: sk-1234567, base_url: http://x.y}\nrefresh: {interval: 5, jitter: 2, timeout: 0s}\ncalls: {timeout: 5m, max_concurrent: 0}\napps: {a: {token: 12345678, backends: [q]}}\n",
        "a: 1\na: 2\n",
        "a: [1\nb: }\n",
        "a:\n\tb: 1\n",
        "upstream: {sandbox: true}\nmcp: {a: {command: npx -y foo, headers: {a: b}, type: http}, b: {url: 'x', pending_after: 2m, trust_annotations: true}}\na2a: {a: {url: ftp://x, card_url: http://a}, c: {url: 'http://u:p@h'}}\n",
        "listen: 0.0.0.0:7717\nauth: off\nupstream: {sandbox: true, credential: '${env:X}'}\n",
        "upstream: {credential: '${env:X}'}\nlisten: {tcp: '7717', tls: {cert: x}}\n",
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
        &"[".repeat(5000),
        &"a: ".repeat(500),
        "a: b\n---\nc: d\n",
        "? [a]\n: b\n",
        "a: *x\n",
        "x: !!binary '@@'\n",
        "mcp: {x: {url: http://a, headers: {A: 1.10, B: 1e999, C: true, D: 012, E: 99999999999999999999999}}}\nupstream: {sandbox: true}",
    ] {
        check(yaml, "");
    }
}
