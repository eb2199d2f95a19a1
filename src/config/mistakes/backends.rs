//! Mistakes in the entries of backends.
//!
//! Must not: decide what is a mistake.

use std::fmt::Display;

use super::MistakeText;

pub fn idle_stop() -> MistakeText {
    MistakeText::new("an idle_stop is at least 1s and at most 24h", "write such a time, or `off`")
}

pub fn pin_of_bundled() -> MistakeText {
    MistakeText::new("the bundled agent is the bridge's own", "leave `pin` out")
}

pub fn several_cards() -> MistakeText {
    MistakeText::new(
        "an A2A agent has one of `url`, `card_url`, `card_file` and `bundled`",
        "remove all but one",
    )
}

pub fn card_address() -> MistakeText {
    MistakeText::new(
        "this is the card's address, not the agent's base",
        "write it as `card_url`, or leave out the path",
    )
}

pub fn no_agent() -> MistakeText {
    MistakeText::new(
        "nothing says where this A2A agent is",
        "write `url: https://…`, or `card_url`, or `card_file`, or `bundled: true`",
    )
}

pub fn no_host(host: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{host}` is no host"),
        "write a host or host:port, such as hr.intranet.acme:8443",
    )
}

pub fn plain_endpoint() -> MistakeText {
    MistakeText::new(
        "the entry's credentials would travel without TLS, and others on the network path could \
         read them",
        "write https://; only if you trust the whole network between, add `allow_plain: true`",
    )
}

pub fn no_extension(uri: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{uri}` is no URI of an extension"),
        "write the `uri` that stands in the agent's card, below `capabilities.extensions`",
    )
}

pub fn extended_card_of_grpc() -> MistakeText {
    MistakeText::new(
        "over gRPC an agent's cards are no JSON, and the bridge offers a card byte for byte",
        "choose `transport: jsonrpc` or `http-json`, or leave `extended_card` out",
    )
}

pub fn key_of_bundled(key: impl Display) -> MistakeText {
    MistakeText::new(
        "the bundled agent is the bridge's own, and has one card and one address",
        format!("leave `{key}` out"),
    )
}

pub fn signature_of_bundled() -> MistakeText {
    MistakeText::new("the bundled agent is the bridge's own", "leave `signature` out")
}

pub fn no_signer() -> MistakeText {
    MistakeText::new(
        "`signature` names no key, so that no card could be the agent's",
        "write `keys: /path`, or a list of files",
    )
}

pub fn no_backend(name: impl Display, cure: impl Display) -> MistakeText {
    MistakeText::new(format!("there is no backend `{name}`"), format!("{cure}"))
}

pub fn backend_name(name: impl Display, cure: impl Display) -> MistakeText {
    MistakeText::new(format!("`{name}` is no backend name"), format!("{cure}"))
}

pub fn own_name(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is the name of a tool that the bridge has itself"),
        "choose another name",
    )
}

pub fn backend_twice(name: impl Display, line: impl Display) -> MistakeText {
    MistakeText::new(
        format!("there is a backend `{name}` already, in line {line}"),
        "names are unique over mcp, a2a and local: rename one of the two",
    )
}

pub fn ends_first(which: impl Display, waited: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{which} ends the call first, after {waited}"),
        format!("write less than {waited}, or `off`"),
    )
}

pub fn result_size() -> MistakeText {
    MistakeText::new(
        "no result can have this size",
        "write at least 1KiB, and at most 1MiB: MANTYX takes no more than 2 MB",
    )
}

pub fn pattern_and_use() -> MistakeText {
    MistakeText::new("`pattern` and `use` are two things", "make two entries")
}

pub fn matches_nothing() -> MistakeText {
    MistakeText::new(
        "this matches the empty text, and so between any two letters",
        "write `+` in place of `*`, for example",
    )
}

pub fn no_regex(why: impl Display) -> MistakeText {
    MistakeText::new(
        format!("this is no regular expression: {why}"),
        "the syntax is that of Rust's crate `regex`: no look-around, no back-references; put it \
         into 'single quotes'",
    )
}

pub fn no_pattern() -> MistakeText {
    MistakeText::new(
        "neither `pattern` nor `use` says what is replaced",
        "write `pattern: 'REGEX'`, or `use: private_keys`",
    )
}

pub fn schema_of_object() -> MistakeText {
    MistakeText::new(
        "MANTYX takes the schema of an object only",
        "write `type: object`, and what there is below `properties`",
    )
}

pub fn schema_type() -> MistakeText {
    MistakeText::new(
        "the schema does not say that it is one of an object",
        "write `type: object` into it",
    )
}

pub fn http_or_command() -> MistakeText {
    MistakeText::new(
        "a local tool has either `http` or a `command`",
        "remove one of the two, or make two entries of it",
    )
}

pub fn no_action() -> MistakeText {
    MistakeText::new(
        "none of `http`, `command` and `internal` says what this tool does",
        "write `http: {url: https://…}`, or `command: [PROGRAM, …]`",
    )
}

pub fn empty_command() -> MistakeText {
    MistakeText::new("nothing says what program this is", "write `command: [PROGRAM, ARGUMENT, …]`")
}

pub fn no_request() -> MistakeText {
    MistakeText::new("nothing says where this request is sent", "write `url: https://…` into it")
}

pub fn no_json_number() -> MistakeText {
    MistakeText::new("JSON has no such number", "write a finite number, or a text in quotes")
}

pub fn command_or_url() -> MistakeText {
    MistakeText::new(
        "an MCP server has either a `command` or a `url`",
        "remove one of the two, or make two entries of it",
    )
}

pub fn no_server() -> MistakeText {
    MistakeText::new(
        "neither `command` nor `url` says what this MCP server is",
        "write `command: PROGRAM` with `args: […]`, or `url: https://…`",
    )
}

pub fn url_on_stdio() -> MistakeText {
    MistakeText::new("a server with a `url` is not on stdio", "leave this out")
}

pub fn command_on_stdio() -> MistakeText {
    MistakeText::new(
        "a server with a `command` is on stdio",
        "leave this out, or write a `url` in place of the `command`",
    )
}

pub fn no_assignment(path: impl Display, number: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{path}, line {number}: no NAME=value"),
        "write one NAME=value a line, comments after a #",
    )
}

pub fn bad_prefix(prefix: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{prefix}` is no prefix"),
        "up to 41 characters out of a-z, A-Z, 0-9 and _; \"\" for none",
    )
}

pub fn tool_name(new: impl Display, most: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{new}` is no name for a tool"),
        format!("1 to {most} characters out of a-z, A-Z, 0-9 and _"),
    )
}

pub fn renamed_already(first: impl Display, new: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{first}` is renamed to `{new}` already"),
        "give every tool its own name",
    )
}

pub fn foreign_key(key: impl Display, beside: impl Display) -> MistakeText {
    MistakeText::new(format!("`{key}` means nothing beside `{beside}`"), "remove it")
}

pub fn no_program() -> MistakeText {
    MistakeText::new("this is no program", "write its name or its path")
}

pub fn spaces() -> MistakeText {
    MistakeText::new(
        "this is one program's name with spaces in it: there is no shell",
        "write its arguments into `args: [ARGUMENT, …]`; those of a local tool into `command: \
         [PROGRAM, ARGUMENT, …]`",
    )
}

pub fn zero_in_argument() -> MistakeText {
    MistakeText::new("an argument cannot hold a zero byte", "remove it")
}

pub fn variable_name(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is no name of an environment variable"),
        "letters, digits and _, such as API_KEY",
    )
}

pub fn zero_in_variable() -> MistakeText {
    MistakeText::new("a variable cannot hold a zero byte", "remove it")
}
