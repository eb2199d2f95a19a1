//! Who may change the file, and where backends must not be.

use std::path::Path;

use super::{environment, parse};
use crate::config::{Config, Contact, Environment};

const PATH: &str = "/etc/mantyx-bridge/bridge.yaml";
const GOOD: &str = "upstream: {sandbox: true}\nstate_dir: /var/lib/bridge\n";

fn load(env: &Environment) -> Result<Vec<String>, String> {
    let loaded = Config::load(Path::new(PATH), env);
    loaded.map(|config| config.warnings).map_err(|errors| errors.to_string())
}

#[test]
fn a_file_that_everybody_may_change_is_refused() {
    for mode in [0o666, 0o602, 0o777] {
        let env = environment().with_file(PATH, GOOD, mode);
        let error = load(&env).unwrap_err();
        assert!(error.contains(&format!("chmod o-w {PATH}")), "{error}");
        Contact::load(Path::new(PATH), &env, None).unwrap_err();
    }
}

#[test]
fn others_who_may_change_it_are_told_of() {
    for mode in [0o600, 0o644, 0o640] {
        assert_eq!(load(&environment().with_file(PATH, GOOD, mode)), Ok(Vec::new()), "{mode:o}");
    }
    let warnings = load(&environment().with_foreign_file(PATH, GOOD, 0o664)).unwrap();
    let [owner, group] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(owner.contains(PATH) && !owner.contains("chmod"), "{owner}");
    assert!(group.contains("chmod g-w"), "{group}");
}

/// However the address is written, and wherever a backend has one.
#[test]
fn link_local_addresses_are_refused_where_they_stand() {
    let local = "description: d, parameters: {type: object}";
    for (entry, place) in [
        ("mcp:\n  a: {url: 'http://169.254.169.254/mcp'}".to_owned(), "mcp.a.url"),
        ("mcp:\n  a: {url: 'https://[::ffff:169.254.169.254]/mcp'}".to_owned(), "mcp.a.url"),
        ("a2a:\n  a: {url: 'http://0xa9fea9fe'}".to_owned(), "a2a.a.url"),
        ("a2a:\n  a: {card_url: 'http://025177524776/card'}".to_owned(), "a2a.a.card_url"),
        (
            format!("local:\n  a: {{{local}, http: {{url: 'http://[fe80::1]/'}}}}"),
            "local.a.http.url",
        ),
        (
            "mcp:\n  a: {url: 'https://a/mcp', auth: {oauth: {client_id: a, \
             client_secret: '${env:TOKEN}', token_url: 'https://[fd00:ec2::254]/token'}}}"
                .to_owned(),
            "mcp.a.auth.oauth.token_url",
        ),
    ] {
        let errors = parse(&format!("upstream: {{sandbox: true}}\n{entry}\n")).unwrap_err();
        let [problem] = &errors.problems[..] else { panic!("{entry}: {errors}") };
        assert_eq!(problem.path, place, "{errors}");
        assert!(problem.message.contains("link-local"), "{errors}");
    }
    let errors =
        parse("upstream: {base_url: 'https://169.254.169.254', credential: '${env:TOKEN}'}");
    assert!(errors.unwrap_err().to_string().contains("link-local"));
}
