//! Mistakes in addresses, headers, credentials, TLS and listeners.
//!
//! Must not: decide what is a mistake.

use std::fmt::Display;

use super::MistakeText;

pub fn as_said(message: impl Display, cure: impl Display) -> MistakeText {
    MistakeText::new(format!("{message}"), format!("{cure}"))
}

pub fn unusable(path: impl Display, why: impl Display, cure: impl Display) -> MistakeText {
    MistakeText::new(format!("{path} cannot be used: {why}"), format!("{cure}"))
}

pub fn auth_twice() -> MistakeText {
    MistakeText::new(
        "`auth` and the header Authorization say the same thing twice",
        "remove one of the two",
    )
}

pub fn bearer_or_oauth() -> MistakeText {
    MistakeText::new("`auth` has either `bearer` or `oauth`", "remove one of the two")
}

pub fn empty_auth() -> MistakeText {
    MistakeText::new(
        "`auth` says nothing",
        "write `bearer: ${file:/path}`, or `oauth: {client_id: …, client_secret: ${file:/path}}`",
    )
}

pub fn bearer_word() -> MistakeText {
    MistakeText::new("the word Bearer is put before it", "write the token alone")
}

pub fn secret_or_key() -> MistakeText {
    MistakeText::new("`oauth` has either `client_secret` or `private_key`", "remove one of the two")
}

pub fn no_token_url() -> MistakeText {
    MistakeText::new(
        "`token_url` is missing, and cannot be found out on a unix socket",
        "write `token_url: https://…`",
    )
}

pub fn client_auth_of_key() -> MistakeText {
    MistakeText::new(
        "a client with a `private_key` shows no secret, so `client_auth` says nothing",
        "remove `client_auth`",
    )
}

pub fn audience() -> MistakeText {
    MistakeText::new(
        "`audience` is empty, or `token_url` is missing",
        "write both, or leave `audience` out",
    )
}

pub fn no_private_key() -> MistakeText {
    MistakeText::new(
        "this is no private key",
        "write `${file:/path}` of a key in PEM (PKCS #8): P-256, P-384, Ed25519 or RSA",
    )
}

pub fn no_client_id(cure: impl Display) -> MistakeText {
    MistakeText::new("`client_id` is missing", format!("{cure}"))
}

pub fn bad_client_id() -> MistakeText {
    MistakeText::new("this is no client id", "write the id that was registered")
}

pub fn no_secret(key: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{key}` is missing"),
        format!(
            "write `{key}: ${{file:/path}}`, or ${{env:NAME}}, ${{secret:NAME}} or ${{cred:NAME}}"
        ),
    )
}

pub fn tiny_token() -> MistakeText {
    MistakeText::new(
        "the token is so short that it is found by trying",
        "take 32 random bytes, such as of `openssl rand -hex 32`",
    )
}

pub fn listens_nowhere() -> MistakeText {
    MistakeText::new(
        "there is nothing to listen on",
        "write `tcp: 127.0.0.1:7717` or `unix: /run/mantyx-bridge/bridge.sock`",
    )
}

pub fn no_listener_file(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is missing"),
        "write `tls: {cert: bridge.pem, key: bridge.key}`",
    )
}

pub fn no_tcp() -> MistakeText {
    MistakeText::new(
        "a unix socket has no TLS, and there is no TCP address",
        "write `tcp: 0.0.0.0:7717` beside it",
    )
}

pub fn host_name(value: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{value}` is no name of a host"),
        "write it without a scheme or a path: bridge.acme.intranet",
    )
}

pub fn public_url(value: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{value}` is more than an origin"),
        "write the scheme and the host alone: https://bridge.acme.intranet",
    )
}

pub fn seal_key() -> MistakeText {
    MistakeText::new(
        "this is no key: a key is 32 bytes in base64",
        "make one with `openssl rand -base64 32`, and write `seal_key: ${file:/path}`",
    )
}

pub fn login_on_agent() -> MistakeText {
    MistakeText::new(
        "a login is for an MCP server behind a `url`",
        "write `client_id` and `client_secret`, or `bearer`",
    )
}

pub fn login_on_socket() -> MistakeText {
    MistakeText::new(
        "a login is for a server on the network, and this one is behind a unix socket",
        "write `bearer`, or `client_secret` with `token_url`",
    )
}

pub fn login_in_the_open() -> MistakeText {
    MistakeText::new(
        "the tokens of a login would travel to another machine without TLS",
        "write https:// in the URL",
    )
}

pub fn only_with_login(key: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{key}` is for a login, and this client fetches tokens with its own secret"),
        "add `login: bridge`, or remove it",
    )
}

pub fn is_open(open: impl Display) -> MistakeText {
    MistakeText::new(
        format!("whoever reaches {open} could use the bridge"),
        "write `auth: token`, or listen on 127.0.0.1 or a unix socket only",
    )
}

pub fn no_address() -> MistakeText {
    MistakeText::new(
        "there is nothing to listen on",
        "write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: \
         {unix: /run/x.sock}`",
    )
}

pub fn address_twice(address: impl Display) -> MistakeText {
    MistakeText::new(format!("{address} is here twice"), "remove one of the two")
}

pub fn no_port(port: impl Display) -> MistakeText {
    MistakeText::new(format!("{port} is no port"), "ports end at 65535")
}

pub fn bad_address(text: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{text}` is no address to listen on"),
        "write 127.0.0.1:7717, [::1]:7717 or localhost:7717; a unix socket stands in `listen: \
         {unix: /run/x.sock}`",
    )
}

pub fn needs_tls(address: impl Display, port: impl Display) -> MistakeText {
    MistakeText::new(
        format!("{address} can be reached from other machines, which needs TLS"),
        format!(
            "write `listen: {{tcp: '{address}', tls: {{cert: bridge.pem, key: bridge.key}}}}`, or \
             listen on 127.0.0.1:{port}"
        ),
    )
}

pub fn no_scheme(shown: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{shown}` is no URL"),
        format!("the scheme is missing: write https://{shown}"),
    )
}

pub fn no_url(shown: impl Display, error: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{shown}` is no URL: {error}"),
        "write it like https://host.example/mcp",
    )
}

pub fn user_in_url() -> MistakeText {
    MistakeText::new(
        "a URL must not hold a user or a password",
        "write `headers: {Authorization: \"Basic ${file:/path}\"}` beside it",
    )
}

pub fn no_http(scheme: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{scheme}://` is not spoken here"),
        "write https:// or http:// before the host",
    )
}

pub fn no_server_url(shown: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{shown}` is no URL of a server"),
        "write https:// or http:// before the host",
    )
}

pub fn link_local(shown: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{shown}` is a link-local address, which is never called"),
        "give the server another address: clouds keep credentials behind these",
    )
}

pub fn fragment() -> MistakeText {
    MistakeText::new("a fragment is never sent", "leave out what follows the `#`")
}

pub fn no_socket() -> MistakeText {
    MistakeText::new(
        "this names no unix socket",
        "write unix:/run/x.sock, and unix:/run/x.sock:/path where the path is not /mcp",
    )
}

pub fn no_socket_url() -> MistakeText {
    MistakeText::new(
        "what follows the socket is no path of a URL, or `Host` is no host",
        "write unix:/run/x.sock, and unix:/run/x.sock:/path where the path is not /mcp",
    )
}

pub fn socket_path(length: impl Display, most: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the path has {length} bytes"),
        format!("a unix socket's path has at most {most}"),
    )
}

pub fn tls_without_https() -> MistakeText {
    MistakeText::new(
        "`tls` means nothing where the address is not https://",
        "write https:// in the address, or remove this",
    )
}

pub fn empty_tls() -> MistakeText {
    MistakeText::new("`tls` says nothing", "write `ca: /path`, or `cert: /path` and `key: /path`")
}

pub fn cert_and_key() -> MistakeText {
    MistakeText::new(
        "`cert` and `key` stand together: a certificate and its private key",
        "write both, or neither",
    )
}

pub fn header_twice(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the header `{name}` is here twice"),
        "case does not matter: remove one",
    )
}

pub fn header_name(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("`{name}` is no name of a header"),
        "letters, digits and hyphens, such as X-API-Key",
    )
}

pub fn header_of_connection(name: impl Display) -> MistakeText {
    MistakeText::new(format!("`{name}` is set by the connection itself"), "remove the line")
}

pub fn header_value(name: impl Display) -> MistakeText {
    MistakeText::new(
        format!("the value of `{name}` is not allowed in a header"),
        "it is one line of printable ASCII",
    )
}
