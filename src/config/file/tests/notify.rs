//! `notify`: who is told, and that no address and no key is shown.

use std::collections::BTreeSet;
use std::path::Path;

use super::environment;
use crate::config::{
    Config, ConfigErrors, Environment, NoticeFormat, NoticeReceiver, NoticeWay, Topic,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SANDBOX: &str = "upstream: {sandbox: true}\nmcp: {fs: {command: a}}\n";

fn bridge() -> Environment {
    environment()
        .with_var("HOOK", "https://hooks.example/services/T0/B0/0123456789abcdef")
        .with_var("KEY", SECRET)
}

fn read(notify: &str) -> Result<Config, ConfigErrors> {
    let text = format!("{SANDBOX}notify:\n  ops: {notify}\n");
    Config::parse(&text, Path::new("/srv/bridge.yaml"), &bridge())
}

fn good(notify: &str) -> NoticeReceiver {
    let config = read(notify).unwrap_or_else(|errors| panic!("{notify}: {errors}"));
    config.notify.into_iter().next().expect("there is one entry")
}

#[test]
fn webhook_is_read_whole_and_its_address_is_shown_as_the_reference() {
    let receiver = good(
        "{on: [approval, question], backends: [fs], with: [arguments, question, reason], \
         webhook: {url: '${env:HOOK}', secret: ['${env:KEY}'], format: slack}}",
    );
    assert_eq!(receiver.on, [Topic::Approval, Topic::Question].into());
    assert_eq!(receiver.with.len(), 3);
    assert_eq!(receiver.backends.as_ref().map(BTreeSet::len), Some(1));
    let NoticeWay::Webhook(webhook) = &receiver.way else { panic!("a webhook") };
    assert_eq!(webhook.format, NoticeFormat::Slack);
    assert_eq!((webhook.secrets.len(), webhook.secrets[0].0.len()), (1, 24));
    assert_eq!(webhook.url.host_str(), Some("hooks.example"));
    let shown = format!("{receiver:?}");
    assert!(shown.contains("${env:HOOK}") && !shown.contains("hooks.example"), "{shown}");
    assert!(!shown.contains("MfKQ9r8G"), "{shown}");
}

#[test]
fn command_is_a_program_with_the_environment_that_it_is_given() {
    let receiver = good("{on: [problem], command: [notify-send, '{title}'], env: {A: b}}");
    let NoticeWay::Command(program) = &receiver.way else { panic!("a program") };
    assert_eq!(program.argv(), ["notify-send", "{title}"]);
    assert!(program.env.contains_key("A"));
    assert!(!program.hidden.is_empty(), "the bridge's own files are hidden from it");
}

#[test]
fn address_and_key_that_are_written_out_are_warned_of_and_hidden() {
    let entry =
        format!("{{on: [trust], webhook: {{url: 'https://hooks.example/T0', secret: {SECRET}}}}}");
    let config = read(&entry).unwrap();
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
    assert!(!format!("{:?} {:?}", config.warnings, config.notify).contains("hooks.example"));
    let entry = "{on: [trust], webhook: {url: 'http://hook.example/a'}}";
    assert!(read(entry).unwrap().warnings[0].contains("without TLS"));
    let own = "{on: [trust], webhook: {url: 'http://127.0.0.1:9000/hook'}}";
    assert_eq!(read(own).unwrap().warnings, [""; 0], "the operator's own host");
    let secrets = config.secrets.hide(format!("at https://hooks.example/T0 {SECRET}"));
    assert_eq!(secrets, "at [hidden] [hidden]", "in texts of others, too");
}

#[test]
fn missing_reference_keeps_only_the_receiver_from_being_told() {
    let text =
        format!("{SANDBOX}notify: {{ops: {{on: [trust], webhook: {{url: '${{env:NONE}}'}}}}}}");
    let (config, errors) = Config::read(&text, Path::new("/srv/bridge.yaml"), &bridge()).unwrap();
    assert!(errors.is_some(), "`check` takes it for a mistake");
    let NoticeWay::Unresolved(unresolved) = &config.notify[0].way else { panic!("it is missing") };
    assert!(unresolved.why.contains("NONE"), "{}", unresolved.why);
}

/// An entry, and what is said of it.
struct Mistake {
    entry: &'static str,
    told: &'static str,
}

#[test]
fn mistakes_are_told_without_the_address() {
    for Mistake { entry, told } in [
        Mistake { entry: "{webhook: {url: 'https://h.example'}}", told: "`on` is missing" },
        Mistake { entry: "{on: [], command: [a]}", told: "`on` is missing" },
        Mistake { entry: "{on: [approvals], command: [a]}", told: "approval" },
        Mistake { entry: "{on: [trust]}", told: "how is this receiver told?" },
        Mistake {
            entry: "{on: [trust], command: [a], webhook: {url: 'https://h.example'}}",
            told: "two ways",
        },
        Mistake { entry: "{on: [trust], command: []}", told: "nothing says what program" },
        Mistake { entry: "{on: [trust], backends: [hr], command: [a]}", told: "no backend `hr`" },
        Mistake { entry: "{on: [trust], with: [arguments], command: [a]}", told: "`arguments`" },
        Mistake { entry: "{on: [trust], webhook: {}}", told: "`url` is missing" },
        Mistake {
            entry: "{on: [trust], webhook: {url: 'secret-t0ken.example/x'}}",
            told: "scheme",
        },
        Mistake {
            entry: "{on: [trust], webhook: {url: 'http://169.254.169.254/x'}}",
            told: "link-local",
        },
        Mistake {
            entry: "{on: [trust], webhook: {url: 'https://h.example/', format: ntfy}}",
            told: "no topic",
        },
        Mistake {
            entry: "{on: [trust], webhook: {url: 'https://h.example/x', secret: whsec_c2hvcnQ=}}",
            told: "no secret of Standard Webhooks",
        },
        Mistake {
            entry: "{on: [trust], webhook: {url: 'https://h.example/x'}, env: {A: b}}",
            told: "`env`",
        },
    ] {
        let errors = read(entry).expect_err(entry).to_string();
        assert!(errors.contains(told), "{entry}: {errors}");
        for secret in ["secret-t0ken", "169.254", "c2hvcnQ"] {
            assert!(!errors.contains(secret), "{entry}: {errors}");
        }
    }
}
