//! What a client reads of a file whose secrets are another's.

use std::path::Path;

use secrecy::ExposeSecret as _;

use crate::config::Contact;
use crate::config::file::tests::environment;

#[track_caller]
fn contact(rest: &str) -> Result<Contact, String> {
    contact_of(rest, None)
}

#[track_caller]
fn contact_of(rest: &str, app: Option<&str>) -> Result<Contact, String> {
    let path = "/srv/bridge.yaml";
    let text = format!(
        "upstream: {{credential: '${{env:GONE}}'}}\nmcp: {{a: {{url: '${{env:GONE}}'}}}}\n{rest}\n"
    );
    let env = environment().with_file(path, &text, 0o600);
    Contact::load(Path::new(path), &env, app).map_err(|errors| errors.to_string())
}

#[test]
fn the_secrets_of_backends_need_not_be_there() {
    let contact = contact("listen: 127.0.0.1:1234\nstate_dir: s").unwrap();
    assert_eq!(contact.listen.tcp, ["127.0.0.1:1234".parse().unwrap()]);
    assert_eq!(contact.state_dir, Path::new("/srv/s"));
    assert!(contact.app.is_none(), "its token is in the state directory");
}

#[test]
fn a_person_is_the_app_that_sees_most() {
    let app = |apps: &str| {
        let (name, token) = contact(&format!("apps: {{{apps}}}"))?.app.unwrap();
        Ok::<_, String>(format!("{name} {}", token.as_ref().map_or("-", |it| it.expose_secret())))
    };
    let (few, all) = ("backends: [a], token: '${env:TOKEN}'", "token: '${env:TOKEN2}'");
    assert_eq!(app(&format!("a: {{{few}}}, b: {{{all}}}")).unwrap(), "b fedcba9876543210");
    assert_eq!(app(&format!("a: {{{few}}}")).unwrap(), "a 0123456789abcdef");
    let (one, two) = ("backends: [a]", "backends: [a, b]");
    assert_eq!(
        app(&format!(
            "a: {{{one}, token: '${{env:TOKEN}}'}}, b: {{{two}, token: '${{env:TOKEN2}}'}}"
        ))
        .unwrap(),
        "b fedcba9876543210"
    );
    // The tokens of the others need not be there, either.
    assert_eq!(
        app("a: {token: '${env:TOKEN}'}, b: {token: '${env:GONE}'}").unwrap(),
        "a 0123456789abcdef"
    );
    assert!(app("a: {token: '${env:GONE}'}").unwrap_err().contains("GONE"));
    assert_eq!(
        app("a: {users: [1000]}, b: {backends: [a], token: '${env:TOKEN}'}").unwrap(),
        "b 0123456789abcdef"
    );
    assert_eq!(app("a: {users: [1000]}").unwrap(), "a -", "the operator acts as it");
    assert!(app("").unwrap_err().contains("(apps)"));
}

#[test]
fn a_client_is_the_app_that_it_names() {
    let apps = "apps: {a: {token: '${env:TOKEN}'}, b: {token: '${env:TOKEN2}'}, c: {users: [1]}}";
    let (name, token) = contact_of(apps, Some("b")).unwrap().app.unwrap();
    assert_eq!((name.as_str(), token.unwrap().expose_secret()), ("b", "fedcba9876543210"));
    let error = |rest: &str, app: &str| contact_of(rest, Some(app)).unwrap_err();
    assert!(error(apps, "c").contains("no app `c` has a token"));
    assert!(error(apps, "d").contains("no app `d` has a token"));
    assert!(error("", "a").contains("`apps` is missing"), "not the token that may do all");
}

#[test]
fn mistake_elsewhere_in_the_file_is_left_to_check() {
    let wrong = "local: {x: {comand: [a]}}\na2a: {'no name': {}}\nrefresh: {interval: soon}";
    let contact = contact(&format!("{wrong}\nlisten: 127.0.0.1:1234")).unwrap();
    assert_eq!(contact.listen.tcp, ["127.0.0.1:1234".parse().unwrap()]);
}

#[test]
fn mistake_in_an_address_or_an_app_is_told() {
    assert!(contact("listen: {unix: 5}").is_err(), "another address is not guessed");
    assert!(contact("apps: {a: {token: '${env:TOKEN}', tokn: x}}").is_err());
    assert!(contact("listn: x").unwrap_err().contains("`listen`"));
    assert!(contact("listen: nowhere").is_err());
}
