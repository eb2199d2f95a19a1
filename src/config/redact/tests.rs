//! What the lines and messages of a mistake show, whatever the shape in which a secret is written.

use std::path::Path;

use crate::config::{Config, ConfigErrors, Environment};

/// The mistakes of `yaml`, below an upstream that is right.
fn mistakes(yaml: &str) -> ConfigErrors {
    let text = format!("upstream: {{sandbox: true}}\nstate_dir: /tmp/x\n{yaml}\n");
    let parsed = Config::parse(&text, Path::new("/srv/bridge.yaml"), &Environment::bare());
    parsed.err().unwrap_or_else(|| panic!("there is a mistake in {yaml}"))
}

/// All that is told of the mistakes: their report, their summary, and each part of it in the log.
fn told(yaml: &str) -> String {
    let errors = mistakes(yaml);
    format!("{errors}\n{}\n{}", errors.summary(), serde_json::to_string(&errors.problems).unwrap())
}

/// A secret in each place and shape in which someone may write one by mistake.
const MISPLACED: &[&str] = &[
    // A mistyped key, above each shape of a value.
    "mcp: {a: {url: 'https://a', tokn: s3cret}}",
    "mcp: {a: {url: 'https://a', tokn: 's3cret'}}",
    "mcp: {a: {url: 'https://a', tokn: \"s3\\x63ret\"}}",
    "mcp: {a: {url: 'https://a', tokn: [x, s3cret]}}",
    "mcp: {a: {url: 'https://a', tokn: {s3cret: x}}}",
    "mcp: {a: {url: 'https://a', tokn: {x: {y: s3cret}}}}",
    "mcp:\n  a:\n    url: https://a\n    tokn: |\n      x\n      s3cret\n    bad: x",
    "mcp:\n  a:\n    url: https://a\n    tokn: >-\n      s3cret\n      x",
    "mcp:\n  a:\n    url: https://a\n    tokn:\n      s3cret",
    "mcp:\n  a:\n    url: https://a\n    tokn:\n      - s3cret",
    "mcp:\n  a:\n    url: https://a\n    tokn: &x s3cret\n  b: {url: *x}",
    "tokn: &x s3cret\nmcp: {a: {url: 'https://a', auth: *x}}",
    "tokn: &x {v: s3cret}\nmcp: {a: {<<: *x, url: 'https://a'}}",
    "tokn: !!str s3cret",
    // A known key with another shape.
    "mcp: {a: {command: x, env: API_KEY=s3cret}}",
    "mcp: {a: {command: x, env: s3cret}}",
    "mcp: {a: {command: x, env: [API_KEY=s3cret]}}",
    "mcp:\n  a:\n    command: x\n    env:\n      - API_KEY=s3cret",
    "mcp:\n  a:\n    command: x\n    env:\n      - API_KEY: s3cret",
    "mcp: {a: {command: x, env: {API_KEY=s3cret}}}",
    "mcp: {a: {command: x, env: {API_KEY: {s3cret: x}}}}",
    "mcp: {a: {command: x, env: {'API_KEY: s3cret': }}}",
    "mcp: {a: {url: 'https://a', headers: 'X-Any: s3cret'}}",
    "mcp: {a: {url: 'https://a', headers: ['X-Any: s3cret']}}",
    "mcp: {a: {url: 'https://a', headers: {'X-Any: s3cret'}}}",
    "mcp: {a: {url: 'https://a', auth: s3cret}}",
    "mcp: {a: {url: 'https://a', auth: {bearer: {s3cret: x}}}}",
    "mcp: {a: {url: 'https://a', auth: {bearer: [s3cret]}}}",
    "mcp: {a: {command: x, args: {s3cret: x}}}",
    "mcp: {a: {command: x, call_timeout: s3cret}}",
    "mcp: {a: {command: x, max_result: s3cret}}",
    "mcp: {a: {command: x, pin: s3cret}}",
    "mcp: {a: {command: x, concurrency: s3cret}}",
    "mcp: {a: {command: x, required: s3cret}}",
    "mcp: {a: {API_KEY=s3cret}}",
    "mcp: {a: s3cret}",
    "mcp: s3cret",
    "mcp: [s3cret]",
    "auth: s3cret",
    "apps: {a: s3cret}",
    "apps: {a: {token: [s3cret]}}",
    "listen: {tls: s3cret}",
    "state: s3cret",
    "redact: [s3cret]",
    "redact: [{pattern: 's3cret('}]",
    "redact: ['s3cret']",
    // In the line of another mistake, which is beside it, behind it or above it.
    "mcp: {a: {command: x, bad: 1, env: API_KEY=s3cret}}",
    "mcp: {a: {command: [x], tokn: s3cret}}",
    "bad: 1 # the old token is s3cret",
    "mcp: {a: {command: x, bad: 1}} # s3cret",
    "mcp: {a: {command: x, bad: 1, args: ['-e', API_KEY=s3cret]}}",
    "mcp: {a: {command: x, bad: 1, args: ['--token s3cret']}}",
    "mcp: {a: {command: 'npx -y x --api-key s3cret'}}",
    "mcp: {a: {command: 'API_KEY=s3cret npx x'}}",
    "mcp: {a: {url: 'https://a?api_key=s3cret', bad: 1}}",
    "mcp: {a: {url: 'https://s3cret@a'}}",
    "mcp: {a: {url: 'https://u:s3cret@a', bad: 1}}",
    // A text beside a reference, or in the place of one.
    "mcp: {a: {url: 'https://a', bad: 1, headers: {X-Any: 's3cret${env:HOME}'}}}",
    "mcp: {a: {url: 'https://a', bad: 1, headers: {Authorization: 'Bearer ${env:HOME}s3cret'}}}",
    "mcp: {a: {url: 'https://a', bad: 1, headers: {X-Any: 's3cret${env:GONE}'}}}",
    "mcp: {a: {url: 'https://a', bad: 1, headers: {X-Any: '${env:GONE:-s3cret}'}}}",
    "mcp: {a: {url: 'https://a', bad: 1, headers: {X-Any: '${GONE:-s3cret}'}}}",
    "mcp: {a: {url: 'https://a', bad: 1, headers: {X-Any: '${a=s3cret}'}}}",
    "mcp: {a: {url: 'https://a', bad: 1, headers: {X-Any: '${env:GONE s3cret'}}}",
    "mcp: {a: {command: x, bad: 1, env: {API_KEY: 's3cret${env:HOME}'}}}",
    // No YAML.
    "mcp: {a: {tokn: s3cret, x\n y: ]",
    "tokn: s3cret\n\tx: y",
    "tokn: |\n  s3cret\n x: {",
    "tokn: 's3cret",
    "- s3cret\nx: y",
    "x: *s3cret_gone s3cret",
    "s3cret\nx: [",
    "a: 1\na: s3cret",
    "tokn: s3cret: x",
    "x: \"s3cret\\q\"",
];

#[test]
fn value_that_does_not_fit_is_not_shown_in_any_shape() {
    for yaml in MISPLACED {
        let told = told(yaml);
        // The name of an anchor is no value.
        let told = told.replace("s3cret_gone", "");
        let is_told = told.contains("s3cret") || told.contains("s3\\x63ret");
        assert!(!is_told, "{yaml}\n{told}");
    }
}

#[test]
fn line_keeps_the_key_and_masks_the_value() {
    for (yaml, shown) in [
        ("mcp: {a: {command: x, tokn: s3cret}}", "3 | mcp: {a: {command: x, tokn: ***}}"),
        ("mcp: {a: {command: x, env: API_KEY=s3cret}}", "3 | mcp: {a: {command: x, env: ***}}"),
        (
            "mcp: {a: {command: x, env: {API_KEY=s3cret}}}",
            "3 | mcp: {a: {command: x, env: {API_KEY=***}}}",
        ),
        ("bad: x # s3cret", "3 | bad: *** ***"),
        (
            "mcp: {a: {command: x, call_timeout: 5 mins}}",
            "3 | mcp: {a: {command: x, call_timeout: 5 mins}}",
        ),
        ("mcp: {a: {command: x, pin: enforced}}", "3 | mcp: {a: {command: x, pin: enforced}}"),
        (
            "mcp: {a: {url: 'ftp://a', headers: {Authorization: 'Bearer s3cret${env:X}'}}}",
            "3 | mcp: {a: {url: 'ftp://a', headers: {Authorization: 'Bearer ***${env:X}'}}}",
        ),
        ("tokn: {s3cret, y: ]", "3 | tokn: ***"),
    ] {
        let errors = mistakes(yaml).to_string();
        assert!(errors.contains(&format!("{shown}\n")), "{yaml}\n{errors}");
    }
}

#[test]
fn caret_stands_below_what_is_shown() {
    let errors = mistakes("mcp: {a: {command: x, env: API_KEY=s3cret, pin: enforced}}");
    let text = errors.to_string();
    let lines: Vec<&str> = text.lines().collect();
    let carets: Vec<&str> = lines
        .windows(2)
        .filter(|pair| pair[0].starts_with("3 | "))
        .map(|pair| {
            let caret = pair[1];
            let from = caret.find('^').unwrap();
            pair[0].get(from..=caret.rfind('^').unwrap()).unwrap()
        })
        .collect();
    assert_eq!(carets, ["***", "enforced"], "{text}");
}

#[test]
fn too_many_mistakes_hide_all_values() {
    let keys: String = (0..60).map(|number| format!("k{number}: 1, ")).collect();
    let told = told(&format!("mcp: {{a: {{command: x, {keys} tokn: s3cret}}}}"));
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn value_of_several_lines_begins_no_line_of_the_report() {
    let errors = mistakes("mcp: {a: {command: x, prefix: \"x\\nerror: forged\"}}").to_string();
    assert!(!errors.lines().any(|line| line.starts_with("error: forged")), "{errors}");
}
