//! Mistakes in the other sections: the upstream, apps, rules, quotas, replicas and runtimes.
//!
//! Must not: decide what is a mistake.

use std::fmt::Display;

use super::MistakeText;

pub fn rule_tool() -> MistakeText {
    MistakeText::new(
        "nothing says of which tools this is",
        "write `tool: GLOB`; `\"*\"` is for all",
    )
}

pub fn rule_when() -> MistakeText {
    MistakeText::new(
        "nothing says of which calls this is",
        "write `when: [{path: /amount, gt: 1000}]`, or the glob alone",
    )
}

pub fn no_glob(glob: impl Display, why: impl Display, cure: impl Display) -> MistakeText {
    MistakeText::new(format!("`{glob}` is no glob: {why}"), format!("{cure}"))
}

pub fn no_globs(error: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the globs cannot be compiled: {error}"),
        "write fewer or shorter globs",
    )
}

pub fn condition_path() -> MistakeText {
    MistakeText::new(
        "nothing says which argument this is about",
        "write `path: /amount`: a JSON Pointer into the arguments",
    )
}

pub fn no_pointer(path: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{path}` is no JSON Pointer to an argument"),
        "write `/` before each key, such as /options/force; `~1` stands for a `/` in a key, `~0` \
         for a `~`",
    )
}

pub fn no_comparison() -> MistakeText {
    MistakeText::new(
        "this compares the argument with nothing",
        "write one of `gt`, `lt` and `glob` into it",
    )
}

pub fn two_comparisons() -> MistakeText {
    MistakeText::new(
        "a condition has one comparison",
        "write a condition for each; all of `when` must hold",
    )
}

pub fn no_limit() -> MistakeText {
    MistakeText::new(
        "nothing can be compared with this number",
        "write a number with digits, such as 1000",
    )
}

pub fn agent_destroys() -> MistakeText {
    MistakeText::new(
        "an agent does not say what may destroy something",
        "write `approve: [\"*\"]` to be asked before every message to it, or leave it out",
    )
}

pub fn agent_argument(path: impl Display) -> MistakeText {
    MistakeText::new(
        format!("an agent has no argument `{path}`"),
        "write `path: /message`, its only argument",
    )
}

pub fn agent_glob(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("no glob matches `{name}`, the name of this agent's one tool"),
        "write `approve: [\"*\"]` to be asked before every message to it, or leave it out",
    )
}

pub fn empty_quota() -> MistakeText {
    MistakeText::new("this limits nothing", "write `calls: 100` and `per: 1h`")
}

pub fn no_per() -> MistakeText {
    MistakeText::new("`per` is missing", "write `per: 1h` to it")
}

pub fn no_calls() -> MistakeText {
    MistakeText::new("`calls` is missing", "write `calls: 100` to it")
}

pub fn too_many(count: impl Display, what: impl Display, most: impl Display) -> MistakeText {
    MistakeText::new(format!("these are {count} {what}"), format!("write at most {most}"))
}

pub fn runtime_is_app(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is the name of an app already"),
        "give the runtime another name",
    )
}

pub fn no_kind() -> MistakeText {
    MistakeText::new("`kind` is missing", "write `kind: hsafa`, or `kind: claude-environment`")
}

pub fn no_gateway() -> MistakeText {
    MistakeText::new("`url` is missing", "write `url: https://…`, the address of its gateway")
}

pub fn no_api() -> MistakeText {
    MistakeText::new("`api` is missing", "write `api: v3` or `api: v7`, as the gateway has it")
}

pub fn no_runtime_key(key: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{key}` is missing"),
        format!("write `{key}: …`, as the runtime has it"),
    )
}

pub fn runtime_text(text: impl Display, key: impl Display) -> MistakeText {
    MistakeText::new(format!("`{text}` is no {key}"), "write it as the runtime has it")
}

pub fn sandbox_state() -> MistakeText {
    MistakeText::new(
        "replicas cannot share the sandbox, which is inside one process",
        "leave `state` out, or write `upstream.base_url`",
    )
}

pub fn no_postgres() -> MistakeText {
    MistakeText::new(
        "`postgres` is missing",
        "write `state: {postgres: \"${file:/etc/mantyx-bridge/postgres.url}\"}`",
    )
}

pub fn no_database() -> MistakeText {
    MistakeText::new(
        "this is no address of a PostgreSQL database",
        "write `postgres://user:password@host/database`",
    )
}

pub fn schema_name() -> MistakeText {
    MistakeText::new(
        "this is no name of a schema",
        "write at most 63 lower-case letters, digits and `_`; not `pg_` in front",
    )
}

pub fn no_upstream() -> MistakeText {
    MistakeText::new(
        "`upstream` is missing",
        "write `upstream:` and below it `credential: ${env:MANTYX_API_KEY}`, or `credential: \
         passthrough` to forward what each app sends, or `sandbox: true` to try it without an \
         account",
    )
}

pub fn sandbox_clash(key: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{key}` clashes with `sandbox: true`"),
        "the sandbox is inside the bridge: remove one of the two",
    )
}

pub fn credential_or_oauth() -> MistakeText {
    MistakeText::new("`upstream` has either `credential` or `oauth`", "remove one of the two")
}

pub fn no_credential() -> MistakeText {
    MistakeText::new(
        "`credential` is missing",
        "write `credential: ${env:MANTYX_API_KEY}`, or `credential: passthrough` to forward what \
         each app sends, or `sandbox: true` to try it without an account",
    )
}

pub fn no_app_token(name: impl Display) -> MistakeText {
    MistakeText::new(
        "`token` is missing",
        format!("write `token: ${{file:/etc/mantyx-bridge/{name}.token}}`"),
    )
}

pub fn no_app() -> MistakeText {
    MistakeText::new("`apps` names no app", "remove the section, or name an app in it")
}

pub fn app_name(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is no name for an app"),
        "it has 1 to 64 characters out of a-z, A-Z, 0-9, _, - and .",
    )
}

pub fn no_per_second() -> MistakeText {
    MistakeText::new(
        "`per_second` is missing",
        "write how many requests a second it may send: `per_second: 50`",
    )
}

pub fn same_token(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the app `{name}` has the same token"),
        "every app needs its own, by which it is known",
    )
}

pub fn no_user(text: impl Display) -> MistakeText {
    MistakeText::new(
        format!("there is no user `{text}`"),
        "write a name that is in /etc/passwd, or the number of the user (`id -u`)",
    )
}

pub fn user_twice(uid: impl Display) -> MistakeText {
    MistakeText::new(format!("the user {uid} is here twice"), "remove one")
}

pub fn san_twice() -> MistakeText {
    MistakeText::new("this name is here twice", "remove one")
}

pub fn user_of_another(uid: impl Display, name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the user {uid} is the app `{name}` already"),
        "a user is one app; tell them apart by their tokens",
    )
}

pub fn no_client_ca() -> MistakeText {
    MistakeText::new(
        "no client certificate is asked for",
        "write `client_ca` into `listen.tls`: the authority that signs those of apps",
    )
}

pub fn no_san(value: impl Display, bad: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{value}` is no name: {bad}"),
        "write a DNS name, a URI or a mail address of its subjectAltName",
    )
}

pub fn same_san(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the app `{name}` has the same name"),
        "a certificate stands for one app",
    )
}

pub fn no_token_here(which: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{which} has a token for the command line"),
        "give one of them a `token: ${file:/path}`",
    )
}

pub fn one_tool(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is one tool, not a server with several"),
        "write it into `backends`, or leave it out there; rules on its arguments are \
         `deny: [{tool: '*', when: […]}]`",
    )
}

pub fn not_its_backend(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the app may not use `{name}` at all"),
        "add it to `backends`, or remove this",
    )
}

pub fn empty_filter(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("this says nothing of the tools of `{name}`"),
        "write `allow: [glob…]`, `deny: [glob…]`, or both",
    )
}

pub fn named_twice(name: impl Display) -> MistakeText {
    MistakeText::new(format!("`{name}` is here twice"), "remove one")
}

pub fn unencrypted(what: impl Display) -> MistakeText {
    MistakeText::new(
        format!("without TLS everybody on the way could read the {what}"),
        "write https://; http:// is for loopback addresses only",
    )
}

pub fn no_workspace(value: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{value}` is no workspace"),
        "write its slug: the part after /workspaces/ in MANTYX's addresses",
    )
}

pub fn query() -> MistakeText {
    MistakeText::new("a base URL has no query", "leave out what follows the `?`")
}

pub fn api_path() -> MistakeText {
    MistakeText::new(
        "the path ends in the API, which the bridge adds itself",
        "leave it out, from /api on",
    )
}
