//! What is wrong with a configuration, and what to do about it, in words: a function for each
//! mistake.
//!
//! Must not: decide what is a mistake.

use std::fmt::Display;

mod backends;
mod notify;
mod sections;
mod web;

pub(super) use self::{backends::*, notify::*, sections::*, web::*};

/// What is wrong, and how to fix it.
pub struct MistakeText {
    pub message: String,
    pub cure: String,
}

impl MistakeText {
    fn new(message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { message: message.into(), cure: cure.into() }
    }
}

pub fn unread(path: impl Display, why: impl Display, cure: impl Display) -> MistakeText {
    MistakeText::new(format!("{path}: {why}"), format!("{cure}"))
}

pub fn no_apps(app: impl Display) -> MistakeText {
    MistakeText::new(
        format!("there is no app `{app}`, as `apps` is missing"),
        "name the app in `apps`",
    )
}

pub fn no_share() -> MistakeText {
    MistakeText::new("this is no share of the interval", "write a number from 0 to 1")
}

pub fn less_time(least: impl Display) -> MistakeText {
    MistakeText::new(
        "a long call would have less time than any other",
        format!("write at least {least}, which calls.timeout is"),
    )
}

pub fn no_audit_place() -> MistakeText {
    MistakeText::new(
        "`file` is missing: where is the audit log written?",
        "write `audit: {file: /var/log/mantyx-bridge/audit.jsonl}`, or `syslog: {to: \
         \"unix:/dev/log\"}`",
    )
}

pub fn no_receiver() -> MistakeText {
    MistakeText::new("`to` is missing: which receiver gets the lines?", RECEIVERS)
}

pub fn receiver(address: impl Display) -> MistakeText {
    MistakeText::new(format!("`{address}` is no address of a syslog receiver"), RECEIVERS)
}

pub fn tls_of_plain_receiver() -> MistakeText {
    MistakeText::new(
        "`tls` means nothing where the address is not tls://",
        "write tls:// in `to`, or remove this",
    )
}

const RECEIVERS: &str = "write `unix:/dev/log`, `tcp://host:601` or `tls://host:6514`; UDP is left \
                         out, as it loses lines in silence";

pub fn no_state_dir() -> MistakeText {
    MistakeText::new(
        "`state_dir` is missing, and none of STATE_DIRECTORY, XDG_STATE_HOME, HOME is set",
        "write `state_dir: /var/lib/mantyx-bridge`",
    )
}

pub fn flood() -> MistakeText {
    MistakeText::new("a refresh this often is a flood", "write at least 1s")
}

pub fn no_time(most: impl Display) -> MistakeText {
    MistakeText::new("a time of 0 leaves no time", format!("write 1ms to {most}"))
}

pub fn too_long(most: impl Display, why: impl Display) -> MistakeText {
    MistakeText::new("this is too long", format!("write at most {most}{why}"))
}

pub fn secret_here() -> MistakeText {
    MistakeText::new("this is no place for a secret", "write it out, or use ${env:NAME}")
}

pub fn is_empty(which: impl Display) -> MistakeText {
    MistakeText::new(format!("{which} is empty"), "give it a value")
}

pub fn odd_character(name: impl Display, kind: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{name} holds {kind} that an HTTP header cannot have"),
        "it is one word of printable ASCII",
    )
}

pub fn no_path() -> MistakeText {
    MistakeText::new("this is no path", "write a path, such as /srv/bridge")
}

pub fn no_shell(what: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{what} means nothing here, as there is no shell"),
        "write a full path, or one that begins with ${env:HOME}",
    )
}

pub fn open_reference() -> MistakeText {
    MistakeText::new(
        "a reference that begins with `${` has no `}`",
        "a reference is ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`",
    )
}

pub fn shell_path(inside: impl Display, what: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`${{{inside}}}`: {what} means nothing here, as there is no shell"),
        "write a full path",
    )
}

pub fn names_nothing(inside: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`${{{inside}}}` names nothing that there can be"),
        "a reference is ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}",
    )
}

pub fn no_reference(inside: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`${{{inside}}}` is no reference"),
        "a reference is ${env:NAME}, ${file:/path}, ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`",
    )
}

pub fn no_default(reference: impl Display, name: impl Display) -> MistakeText {
    MistakeText::new(
        format!(
            "`${{{reference}:-…}}` is no reference: there are defaults only in entries of `mcp`"
        ),
        format!("write `${{env:{name}}}`, and set {name} where the bridge is started"),
    )
}

pub fn named_default(reference: impl Display, name: impl Display) -> MistakeText {
    MistakeText::new(
        format!(
            "`${{{reference}:-…}}` is no reference: a variable with a default is written without \
             `env:`"
        ),
        format!("write `${{{name}:-default}}`"),
    )
}

pub fn bare_variable(inside: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`${{{inside}}}` is no reference"),
        format!("for the environment variable write `${{env:{inside}}}`"),
    )
}

pub fn unset_variable(reference: impl Display, name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{reference}: the environment variable is not set"),
        format!("set {name} where the bridge is started"),
    )
}

pub fn no_credentials(reference: impl Display, name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{reference}: CREDENTIALS_DIRECTORY is not set"),
        format!("systemd sets it for a unit with LoadCredential={name}:/path/of/the/secret"),
    )
}

pub fn empty_secret(reference: impl Display) -> MistakeText {
    MistakeText::new(format!("{reference}: the file is empty"), "write the secret into it")
}

pub fn too_large(size: impl Display, most: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the file has {size} bytes"),
        format!("a configuration has at most {most} bytes"),
    )
}

pub fn key_twice(key: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{key}` is here twice"),
        "a key may stand once in a map: remove one of the two",
    )
}

pub fn two_documents() -> MistakeText {
    MistakeText::new("the file holds more than one YAML document", "remove the `---` line")
}

pub fn too_deep() -> MistakeText {
    MistakeText::new(
        "the file is nested too deep or expands to too much",
        "write it with less nesting and fewer aliases",
    )
}

pub fn not_yaml(why: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{why}"),
        "this is not YAML; the mistake may stand before this place. Indent with spaces; a text \
         with `: ` in it, or that begins with `*`, stands in quotes",
    )
}

pub fn no_file(places: impl Display) -> MistakeText {
    MistakeText::new(
        format!("there is no configuration, neither {places}"),
        "`mantyx-bridge init` writes one, and `mantyx-bridge demo` needs none; `-c FILE` or the \
         variable MANTYX_BRIDGE_CONFIG names another",
    )
}

pub fn empty_file() -> MistakeText {
    MistakeText::new(
        "the file is empty",
        "the least is `upstream: {sandbox: true}`; docs/configuration.md shows more",
    )
}

pub fn unreadable(why: impl Display, cure: impl Display) -> MistakeText {
    MistakeText::new(format!("the configuration cannot be read: {why}"), format!("{cure}"))
}

pub fn anybodys(file: impl Display) -> MistakeText {
    MistakeText::new(
        "every user can change this file, and it says which programs are started",
        format!("chmod o-w {file}, after a look at what is in it"),
    )
}
