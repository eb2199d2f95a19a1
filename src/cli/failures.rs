//! The failures of commands that take many words.
//!
//! Must not: decide which failure it is.

use std::fmt::Display;

use super::Failure;

pub(super) fn no_token(dir: impl Display) -> Failure {
    Failure::Failed(format!(
        "there is no token in {dir}: no daemon has run with this configuration; start it with \
         `mantyx-bridge serve` (is one running as another user, or under systemd? its directory is \
         to be named with `state_dir`)"
    ))
}

pub(super) fn login_expired(backend: impl Display) -> Failure {
    Failure::Failed(format!(
        "{backend}: the login has not come back within 10 minutes, or another one has begun; begin \
         again with `mantyx-bridge login {backend}`"
    ))
}

pub(super) fn login_failed(backend: impl Display, why: impl Display) -> Failure {
    Failure::Failed(format!("{backend}: not logged in: {why}"))
}

pub(super) fn no_app_token(dir: impl Display) -> Failure {
    Failure::Failed(format!(
        "the daemon wants an app's token here, and the command line has none: give an app of the \
         configuration a `token`. What needs no app works for the user who can read the operator's \
         secret{dir}"
    ))
}

pub(super) fn other_token(place: impl Display, dir: impl Display) -> Failure {
    Failure::Failed(format!(
        "the daemon at {place} does not know the token{dir}: it was started with another \
         configuration"
    ))
}

pub(super) fn wrong_given_token(place: impl Display) -> Failure {
    Failure::Failed(format!(
        "the daemon at {place} does not know the token that was given by --token-file or \
         MANTYX_BRIDGE_TOKEN; `mantyx-bridge token`, run where that daemon runs, prints the right one"
    ))
}

pub(super) fn other_users_daemon(dir: impl Display, user: impl Display) -> Failure {
    Failure::Failed(format!(
        "the daemon's state directory {dir} belongs to the user {user}: run the command as that \
         user, such as `sudo -u {user} mantyx-bridge …`"
    ))
}

pub(super) fn unfit_arguments(tool: impl Display, why: impl Display) -> Failure {
    Failure::Usage(format!("the arguments do not fit `{tool}`: {why}"))
}

pub(super) fn several_daemons(urls: impl Display) -> Failure {
    Failure::Usage(format!(
        "several daemons run, and there is no configuration to say which one is meant: name it \
         with -c FILE or --url; they are at {urls}"
    ))
}

pub(super) fn nothing_listens(place: impl Display) -> Failure {
    Failure::Failed(format!("nothing listens on {place}; start it with `mantyx-bridge serve`"))
}

pub(super) fn stranger_listens(place: impl Display, user: impl Display) -> Failure {
    Failure::Failed(format!(
        "a program of the user {user} listens on {place}, and it is not the daemon: nothing was sent \
         to it, as it would learn the secret of this command. Have it stopped (`sudo ss -ltnp` names \
         it), and start the daemon; if the daemon runs as {user}, name it with --url"
    ))
}

pub(super) fn other_certificate(place: impl Display) -> Failure {
    Failure::Failed(format!(
        "the certificate at {place} is not the one in listen.tls.cert: another program listens \
         there, or the daemon could not take a new file (its log says why)"
    ))
}

pub(super) fn no_answer(place: impl Display, why: impl Display) -> Failure {
    Failure::Failed(format!("the daemon at {place} does not answer: {why}"))
}

pub(super) fn unreadable_certificate(file: impl Display, why: impl Display) -> Failure {
    Failure::Failed(format!(
        "the daemon's certificate {file} cannot be read: {why}; the user of the command line has \
         to be able to read it, but not its key"
    ))
}

pub(super) fn demo_calls(called: impl Display, answered: impl Display) -> Failure {
    Failure::Failed(format!(
        "the run should have made 2 calls and got 2 results; it made {called} and got {answered}"
    ))
}

pub(super) fn listed_apps(app: impl Display) -> Failure {
    Failure::Failed(format!(
        "this configuration lists its apps, and their tokens come from there (`apps.{app}.token` \
         and so on)"
    ))
}

pub(super) fn part_failed(why: impl Display) -> Failure {
    Failure::Failed(format!("stopped, as a part of the daemon failed: {why}"))
}

pub(super) fn no_page(name: impl Display, names: impl Display) -> Failure {
    Failure::Usage(format!("there is no page of `{name}`; there are: {names}"))
}

pub(super) fn no_backend(name: impl Display, names: impl Display) -> Failure {
    Failure::Usage(format!("there is no backend `{name}`; there are: {names}"))
}

pub(super) fn no_pinned(name: impl Display, names: impl Display) -> Failure {
    Failure::Failed(format!("no MCP server or A2A agent is called `{name}`; there are: {names}"))
}

pub(super) fn has_changed(name: impl Display) -> Failure {
    Failure::Failed(format!(
        "`{name}` has changed since you looked at it, and nothing was accepted; look again with \
         `mantyx-bridge trust {name}`"
    ))
}

pub(super) fn not_kept(why: impl Display) -> Failure {
    Failure::Failed(format!(
        "accepted only until the daemon is restarted, as the disk failed: {why}"
    ))
}

pub(super) fn no_tool(tool: impl Display, hint: impl Display) -> Failure {
    Failure::Usage(format!(
        "no tool `{tool}` is known; the tools of a server are, once the daemon has reached it. \
         {hint}"
    ))
}

pub(super) fn no_tcp(place: impl Display) -> Failure {
    Failure::Failed(format!(
        "the daemon listens on {place} alone, which no browser reaches: add an address to `listen`"
    ))
}

pub(super) fn no_token_given() -> Failure {
    let text = "--url needs the token of an app: in the file --token-file, or in the variable \
                MANTYX_BRIDGE_TOKEN";
    Failure::Usage(text.to_owned())
}

pub(super) fn app_with_url() -> Failure {
    let text = "--app names an app of bridge.yaml; with --url, the token says which app it is";
    Failure::Usage(text.to_owned())
}

pub(super) fn bad_url() -> Failure {
    let text = "--url is no address of a daemon: write http://127.0.0.1:7717, or \
                unix:/run/mantyx-bridge/bridge.sock";
    Failure::Usage(text.to_owned())
}

pub(super) fn user_in_url() -> Failure {
    let text = "--url has a user or a password, which the daemon does not know; its token is in \
                the file --token-file, or in the variable MANTYX_BRIDGE_TOKEN";
    Failure::Usage(text.to_owned())
}

pub(super) fn not_made(id: impl Display) -> Failure {
    Failure::Failed(format!(
        "given up: the call waited for a person (approval {id}), and was not made"
    ))
}

pub(super) fn no_such_tool(
    name: impl Display,
    meant: impl Display,
    backends: impl Display,
) -> Failure {
    Failure::Failed(format!(
        "there is no tool and no backend `{name}`{meant} These backends have tools: {backends}"
    ))
}

pub(super) fn wants_certificate() -> Failure {
    let text = "the daemon wants a certificate from every caller over TCP (listen.tls.client_ca), \
                and the command line has none; add a unix socket (listen.unix)";
    Failure::Usage(text.to_owned())
}

pub(super) fn no_person() -> Failure {
    let text = "nothing is changed: there is no terminal on which a person could agree; --yes agrees \
                in advance";
    Failure::Usage(text.to_owned())
}

pub(super) fn not_agreed() -> Failure {
    Failure::Failed("nothing is changed".to_owned())
}

pub(super) fn not_seen(command: impl Display) -> Failure {
    Failure::Usage(format!(
        "nothing is decided: without its whole id, what is shown above is decided only by a person \
         who has read it, and there is no terminal to ask one. Once you have read it:\n  {command}"
    ))
}

pub(super) fn not_decided(id: impl Display) -> Failure {
    Failure::Failed(format!("nothing is decided; {id} still waits"))
}

pub(super) fn bad_server_name(name: impl Display, instead: impl Display) -> Failure {
    Failure::Usage(format!(
        "`{name}` cannot be the name of a server, which stands in front of its tools' names: write \
         `{instead}`"
    ))
}

pub(super) fn server_there(name: impl Display, file: impl Display) -> Failure {
    Failure::Usage(format!(
        "{file} has `{name}` already: choose another name, or `mantyx-bridge remove {name}` first"
    ))
}

pub(super) fn not_a_url(text: impl Display) -> Failure {
    Failure::Usage(format!(
        "`{text}` is no URL of an MCP server; a program stands behind `--`: mantyx-bridge add NAME \
         -- COMMAND ARGUMENT…"
    ))
}

pub(super) fn not_a_pair(option: impl Display, form: impl Display) -> Failure {
    Failure::Usage(format!("--{option} takes {form}"))
}

pub(super) fn only_with(option: impl Display, what: impl Display) -> Failure {
    Failure::Usage(format!("--{option} is for {what}"))
}

pub(super) fn by_hand(file: impl Display, why: impl Display, entry: impl Display) -> Failure {
    Failure::Failed(format!(
        "{file} is left as it is: {why}. Change it in an editor; this is the entry:\n{entry}"
    ))
}

pub(super) fn would_not_be_good(file: impl Display, why: impl Display) -> Failure {
    Failure::Usage(format!("{file} is left as it is, as it would not be good any longer:\n{why}"))
}

pub(super) fn client_absent(client: impl Display, places: impl Display) -> Failure {
    Failure::Failed(format!(
        "{client} is not on this machine: there is neither {places}. `--print` prints the entry \
         for it"
    ))
}

pub(super) fn client_without_command(
    client: impl Display,
    program: impl Display,
    by_hand: impl Display,
) -> Failure {
    Failure::Failed(format!(
        "{client} changes its list itself, and there is no command `{program}` on the PATH: run \
         this again where `{program}` can be started, or {by_hand}"
    ))
}

pub(super) fn command_failed(line: impl Display, why: impl Display) -> Failure {
    Failure::Failed(format!("`{line}` failed: {why}"))
}

pub(super) fn no_service_manager(why: impl Display) -> Failure {
    Failure::Failed(format!(
        "systemctl cannot be started: {why}. Without systemd, start `mantyx-bridge serve` by what \
         starts programs on this machine"
    ))
}

pub(super) fn no_session(failure: Failure) -> Failure {
    let Failure::Failed(why) = failure else { return failure };
    Failure::Failed(format!(
        "{why}\nsystemd has no session of this user: log in as the user itself, not by `su` or \
         `sudo`, and run the command again; nothing is changed"
    ))
}

pub(super) fn package_unit(file: impl Display) -> Failure {
    Failure::Usage(format!(
        "the package has installed the service, {file}: start it with `systemctl enable --now \
         mantyx-bridge`; its configuration is /etc/mantyx-bridge/bridge.yaml"
    ))
}

pub(super) fn variables_of_a_shell(file: impl Display, why: impl Display) -> Failure {
    Failure::Usage(format!(
        "the service would not start: it has no variables of your shell.\n{why}Keep the value with \
         `mantyx-bridge secret set NAME`, and write ${{secret:NAME}} in {file}"
    ))
}

pub(super) fn bad_secret_name(name: impl Display) -> Failure {
    Failure::Usage(format!(
        "`{name}` cannot be the name of a secret: letters, digits, `_` and `-`, such as \
         MANTYX_API_KEY"
    ))
}

pub(super) fn no_secret_given() -> Failure {
    Failure::Usage("no secret was given; nothing is kept".to_owned())
}

pub(super) fn secret_too_long(max_bytes: u64) -> Failure {
    Failure::Usage(format!("the secret has more than {max_bytes} bytes; nothing is kept"))
}

pub(super) fn notice_not_taken(name: impl Display, why: impl Display) -> Failure {
    Failure::Failed(format!("`{name}` did not take the notice: {why}"))
}

pub(super) fn no_such_secret(name: impl Display, dir: impl Display) -> Failure {
    Failure::Failed(format!("there is no secret `{name}` in {dir}"))
}
