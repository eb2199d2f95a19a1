//! The shape of bridge.yaml: which keys there are and of which type each is.
//!
//! The doc comments are the descriptions in the JSON Schema, so they address the author of the
//! file. Every key is optional here: `validate` reports a missing key, in plain words.
//!
//! Must not: check anything beyond types, or fill in defaults.

mod entry;
mod limits;
mod notify;
mod programs;
mod storage;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;

pub use self::entry::CommonKeys;
use self::entry::backend_entry;
pub use self::limits::{Calls, Quota, Rate, Refresh};
pub use self::notify::{Notify, Webhook};
pub use self::programs::{Programs, Sandbox};
pub use self::storage::{Audit, State, Syslog};
use super::scalars::OneOrMany;
use super::{
    A2aBinding, At, Auth, ClientAuth, Count, DurationOrOff, DurationText, Globs, HsafaApi,
    HttpMethod, List, ListenValue, LoginKind, McpTransport, Named, OfferMode, OnUnavailable, Pin,
    RuntimeKind, SandboxValue, Scalar, SchemaMap, SizeText, StartMode,
};
use crate::model::redaction::Known;

/// The configuration of mantyx-bridge.
///
/// Durations are `250ms`, `30s`, `5m`, `2h`. A secret is a reference: `${env:NAME}`,
/// `${file:/path}`, `${secret:NAME}` (of `mantyx-bridge secret set`) or `${cred:NAME}` (a systemd
/// credential); it may stand inside a longer text, and `$${` is a literal `${`. A relative path
/// starts at the directory of this file.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with the sections of bridge.yaml")]
#[schemars(title = "bridge.yaml")]
pub struct File {
    /// Where the bridge listens: `127.0.0.1:7717` (the default), a list of addresses, or a map.
    pub listen: Option<At<ListenValue>>,
    /// The MANTYX that the bridge stands in front of.
    pub upstream: Option<At<Upstream>>,
    /// Where the token, catalogs and the journal are kept. Default: `$STATE_DIRECTORY`, else
    /// `$XDG_STATE_HOME/mantyx-bridge`, else `$HOME/.local/state/mantyx-bridge`.
    pub state_dir: Option<At<String>>,
    /// The journal in PostgreSQL, which replicas of the bridge share (docs/scaling.md). Default: a
    /// file in `state_dir`.
    pub state: Option<At<State>>,
    /// Seals the logins at backends on disk: 32 bytes in base64, as a reference, or a list of them,
    /// of which the first seals.
    pub seal_key: Option<At<OneOrMany>>,
    /// `token` (the default): every caller shows a token. `off`: no caller does. The bridge refuses
    /// `off` unless every listener is a loopback address or a unix socket.
    pub auth: Option<At<Auth>>,
    /// The programs that use the bridge, each with its own token or certificate. Without this
    /// section there is one, `default`; the first start creates its token in `<state_dir>/token`.
    pub apps: Option<Named<App>>,
    /// How catalogs are kept fresh.
    pub refresh: Option<Refresh>,
    /// The limits of all tool calls together.
    pub calls: Option<Calls>,
    /// The audit log: a line of JSON for each call, in a file or to syslog.
    pub audit: Option<At<Audit>>,
    /// Who is told of calls that wait for a person, of changed tools and of problems, by name
    /// (docs/notify.md).
    pub notify: Option<Named<Notify>>,
    /// What is replaced in the results of all backends, before they are kept, logged or posted.
    pub redact: Option<List<Redact>>,
    /// What all programs that the bridge starts have in common (docs/programs.md).
    pub programs: Option<At<Programs>>,
    /// MCP servers by name.
    pub mcp: Option<Named<Mcp>>,
    /// More of them, under the name that other products use.
    #[serde(rename = "mcpServers")]
    pub mcp_servers: Option<Named<Mcp>>,
    /// A2A agents by name.
    pub a2a: Option<Named<A2a>>,
    /// Tools of the bridge's own by name: an HTTP request or a command.
    pub local: Option<Named<Local>>,
    /// Other runtimes whose calls of tools the bridge answers, by name (docs/runtimes.md).
    pub runtimes: Option<Named<Runtime>>,
}

/// Text that is replaced in results: either `pattern` or `use`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with pattern or use")]
pub struct Redact {
    /// A regular expression, in the syntax of Rust's crate `regex`.
    pub pattern: Option<At<String>>,
    /// A pattern that the bridge knows.
    #[serde(rename = "use")]
    pub known: Option<At<Known>>,
    /// The text in its place. Default: `[removed]`.
    pub with: Option<At<String>>,
}

/// Several listeners.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an address, a list of addresses, or a map")]
pub struct ListenMap {
    /// One address or a list: `127.0.0.1:7717`, `[::1]:7717`, `localhost:7717`. An address that
    /// other machines reach needs `tls`.
    pub tcp: Option<At<OneOrMany>>,
    /// The path of a unix socket.
    pub unix: Option<At<String>>,
    /// Encrypts every TCP address, loopback included.
    pub tls: Option<At<Tls>>,
    /// More names of the bridge, beside its addresses and the names in its certificate: those of a
    /// reverse proxy that forwards `Host`. `name`, or `name:port`.
    pub hosts: Option<List<String>>,
    /// How browsers reach the bridge: `https://bridge.acme.intranet`. Issuers of tokens send them
    /// back here after a login. Left out: https and the first name of the certificate, else http
    /// and the first loopback address.
    pub public_url: Option<At<String>>,
}

/// The certificate of the TCP listeners. Its files are read again when they change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with cert and key")]
pub struct Tls {
    /// The certificate and its intermediate certificates, PEM.
    pub cert: Option<At<String>>,
    /// Its private key, PEM.
    pub key: Option<At<String>>,
    /// Every caller over TCP must show a certificate that one of these authorities signed, PEM.
    pub client_ca: Option<At<String>>,
}

/// The MANTYX that the bridge stands in front of.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with credential, or with sandbox: true")]
pub struct Upstream {
    /// `true`: the runtime inside the bridge, which needs no account and no network.
    pub sandbox: Option<At<bool>>,
    /// Default: `https://app.mantyx.io`.
    pub base_url: Option<At<String>>,
    /// The workspace for the bridge's own API and the command line; proxied paths name their own.
    pub workspace: Option<At<String>>,
    /// An API key or an OAuth access token, as a reference. `passthrough`: each app sends its own.
    pub credential: Option<At<Scalar>>,
    /// Instead of `credential`: the bridge fetches access tokens, and renews them before they
    /// expire.
    pub oauth: Option<At<UpstreamOauth>>,
    /// TLS towards MANTYX: own authorities, or a certificate to show.
    pub tls: Option<At<ServerTls>>,
}

/// An OAuth application that a person has given access to a workspace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with client_id, client_secret, refresh_token")]
pub struct UpstreamOauth {
    /// Where tokens are issued. Default: `<base_url>/api/oauth/token`.
    pub token_url: Option<At<String>>,
    /// The id of the application.
    pub client_id: Option<At<Scalar>>,
    /// Its secret, as a reference.
    pub client_secret: Option<At<Scalar>>,
    /// The token that the application got when a person logged in, as a reference. If the issuer
    /// replaces it, the bridge keeps the new one in `state_dir`, and uses it until this one
    /// changes.
    pub refresh_token: Option<At<Scalar>>,
}

/// A program that uses the bridge.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with token, users or cert")]
pub struct App {
    /// The token that the app shows as `Authorization: Bearer` or `X-API-Key`, as a reference.
    pub token: Option<At<Scalar>>,
    /// Users of this machine, by number or by their names in `/etc/passwd`. A request of one of
    /// them over a unix socket is this app's, without a token.
    pub users: Option<List<Scalar>>,
    /// The names of the app's certificate, as its `subjectAltName` has them: DNS names, URIs, mail
    /// addresses. Over TCP the app then needs no token, and can use no other certificate. Needs
    /// `listen.tls.client_ca`.
    pub cert: Option<List<String>>,
    /// The backends that it may use. Left out: all. `[]`: none.
    pub backends: Option<List<String>>,
    /// The tools that it may use of an MCP server, by the server's name here. Left out: all.
    pub tools: Option<Named<AppTools>>,
    /// Replaces the `offer` of every backend for this app.
    pub offer: Option<At<OfferMode>>,
    /// Tool calls of this app that may run at once.
    pub max_concurrent_calls: Option<At<Count>>,
    /// `true`: the app may decide with its own token on its own calls that wait for a person
    /// (`approve`). Default: `false`; only the operator decides.
    pub approves: Option<At<bool>>,
    /// The bridge's names of tools, by those in the sets of loom-mcp: `{helpers.answer: fs_read}`.
    pub names: Option<At<BTreeMap<String, String>>>,
    /// The requests that it may send. Left out: no limit.
    pub rate: Option<At<Rate>>,
    /// The calls of tools that may be made for it. Left out: no limit.
    pub quota: Option<At<Quota>>,
    /// Replaces the upstream's credential in requests of this app to MANTYX.
    pub credential: Option<At<Scalar>>,
}

/// Another runtime of agents, beside MANTYX.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with kind, credential")]
pub struct Runtime {
    /// `hsafa`, or `claude-environment`: a self-hosted environment of Claude Managed Agents.
    pub kind: Option<At<RuntimeKind>>,
    /// The revision of hsafa's API: `v3` or `v7`.
    pub api: Option<At<HsafaApi>>,
    /// Its address. Default for `claude-environment`: `https://api.anthropic.com`.
    pub url: Option<At<String>>,
    /// The path below which hsafa's v7 API is. Default: `/api`.
    pub api_base: Option<At<String>>,
    /// The key that the bridge shows, as a reference.
    pub credential: Option<At<Scalar>>,
    /// The skill of hsafa v7 under which the bridge registers its tools.
    pub skill: Option<At<String>>,
    /// The id of the environment, `env_…`.
    pub environment: Option<At<String>>,
    /// How long hsafa v3 waits for a result, for `mantyx-bridge tools --as hsafa`. A later result
    /// reaches the agent's inbox. Default: `30s`.
    pub timeout: Option<At<DurationText>>,
    /// The backends that its agents may use. Left out: all. `[]`: none.
    pub backends: Option<List<String>>,
    /// The tools that they may use of an MCP server, by the server's name here. Left out: all.
    pub tools: Option<Named<AppTools>>,
    /// Its tool calls that may run at once.
    pub max_concurrent_calls: Option<At<Count>>,
    /// TLS towards it: own authorities, or a certificate to show.
    pub tls: Option<At<ServerTls>>,
}

/// Which tools of an MCP server an app may use. An agent or a local tool may have rules alone.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with allow, deny below the name of a server")]
pub struct AppTools {
    /// Globs of the tools that it may use, by the server's own names. Left out: all.
    pub allow: Option<List<String>>,
    /// Globs of the tools that it may not use, whatever `allow` says, and rules for single calls.
    pub deny: Option<At<Globs>>,
}

/// Calls with certain arguments, of certain tools.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with tool and when")]
pub struct Rule {
    /// A glob of tools.
    pub tool: Option<At<String>>,
    /// 1 to 20 conditions, which must all hold.
    pub when: Option<List<Condition>>,
}

/// A condition on one argument: `path` and one of the comparisons. It also holds for a value that
/// cannot be compared, and never for an absent one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with path and one of gt, lt, glob")]
pub struct Condition {
    /// A JSON Pointer (RFC 6901) into the arguments: `/amount`, `/options/force`.
    pub path: Option<At<String>>,
    /// The number is greater than this.
    pub gt: Option<At<f64>>,
    /// The number is less than this.
    pub lt: Option<At<f64>>,
    /// The text, number or boolean matches this glob, as it is or as a path without `.`, `..`,
    /// `//`.
    pub glob: Option<At<String>>,
}

backend_entry! {
    /// An MCP server: a program (`command`) or an address (`url`).
    ///
    /// An entry of a Claude, Cursor or VS Code file works as it is. In it, `${NAME}` and
    /// `${NAME:-default}` stand for environment variables too.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, expecting = "a map with command or url")]
    #[schemars(transform = |it: &mut Schema| alias(it, "url", "serverUrl"))]
    #[schemars(transform = |it: &mut Schema| alias(it, "transport", "type"))]
    pub struct Mcp {
        /// The program that is started, without a shell. `mantyx-bridge` is the bridge's own.
        pub command: Option<At<String>>,
        /// Its arguments.
        pub args: Option<List<Scalar>>,
        /// Its environment, besides PATH, HOME, LANG, TMPDIR, the variables of proxies and
        /// certificates, and `programs.env`. In `args`, `${NAME}` stands for one of these first.
        pub env: Option<Named<Scalar>>,
        /// A file with more of its environment, one NAME=value a line; `env` wins.
        #[serde(rename = "envFile")]
        pub env_file: Option<At<String>>,
        /// The directory that it is started in.
        pub cwd: Option<At<String>>,
        /// Which files are hidden from the program. Left out: the bridge's own files, where the
        /// system allows that. `secrets`: Landlock keeps the program from them. A map with `read`
        /// and `write`: all but the listed files and those that any program needs to run. `off`:
        /// none (docs/programs.md).
        pub sandbox: Option<At<SandboxValue>>,
        /// The address of a server that speaks Streamable HTTP, or the older HTTP+SSE. On a unix
        /// socket: `unix:/run/x.sock`, where the path is `/mcp`, `unix:/run/x.sock:/path`, or
        /// `unix:///run/x.sock#/path`. The bridge then sends `Host: localhost:80`, unless `headers`
        /// has another.
        #[serde(alias = "serverUrl")]
        pub url: Option<At<String>>,
        /// Sent with every request to `url`, and to nowhere else.
        pub headers: Option<Named<Scalar>>,
        /// Default: `stdio` for a `command`. For a `url`, `streamable-http`, or `sse` if the server
        /// does not know that.
        #[serde(alias = "type")]
        pub transport: Option<At<McpTransport>>,
        /// `false`: the bridge keeps no stream open for what a server with a `url` says unasked,
        /// such as changes of its tools. With HTTP+SSE, it needs the stream in any case. Default:
        /// `true`.
        pub listen: Option<At<bool>>,
        /// `true`: the bridge speaks a revision with sessions to a server with a `url`, even if the
        /// server knows 2026-07-28 as well. For servers that do less in that revision, such as
        /// asking the user nothing. Default: `false`.
        pub sessions: Option<At<bool>>,
        /// `true`: the bridge ignores the entry.
        pub disabled: Option<At<bool>>,
        /// The hosts that have it, where replicas run on several hosts. On others, the entry is
        /// ignored.
        pub only_on: Option<List<String>>,
        /// Put before the name of each tool. Default: `<name>_`. `""` for none.
        pub prefix: Option<At<String>>,
        /// Which tools the bridge offers, and their names.
        pub tools: Option<Tools>,
        /// `all` gives a run all its tools. `search` gives it two tools in place of them, one to
        /// find tools and one to call what was found. `auto` searches above 100 tools, or an
        /// estimated 20,000 tokens of definitions. Default: `all`.
        pub offer: Option<At<OfferMode>>,
        /// Globs of the tools that a run is given in any case, by the server's own names.
        pub always: Option<List<String>>,
        /// For a program: `eager` or `lazy`. Default: `programs.start`.
        pub start: Option<At<StartMode>>,
        /// For a program: ends it when nothing has used it for so long. Default:
        /// `programs.idle_stop`.
        pub idle_stop: Option<At<DurationOrOff>>,
        /// For a program: how long it may take to start. Default: `programs.start_timeout`.
        pub start_timeout: Option<At<DurationText>>,
        /// Globs of tools whose calls a person has to approve, by the server's own names; `"*"` for
        /// all. The word `destructive` stands for tools that may destroy something, by the server's
        /// own hints: `destructiveHint` is true, or neither it nor `readOnlyHint` says otherwise. A
        /// rule stands for calls with certain arguments.
        pub approve: Option<At<Globs>>,
        /// `true`: believe the server's `readOnlyHint` and `idempotentHint`. A call of such a tool
        /// is made once more if the connection breaks before its answer comes.
        pub trust_annotations: Option<At<bool>>,
        /// The token for a server with a `url`.
        pub auth: Option<At<BackendAuth>>,
        /// TLS towards a server with a `url`: own authorities, or a certificate to show.
        pub tls: Option<At<ServerTls>>,
    }
    common {
        /// A call that takes longer is answered with an id and goes on; the model fetches its
        /// result later, with the tool `bridge_call_result`. Default: `off`.
        pending_after,
        /// Calls that may run at once. Default: 16, for a program 4.
        concurrency,
    }
    discovered {
        /// Time from one refresh of its catalog to the next. Default: what the server says of its
        /// list (`ttlMs`), between `30s` and `1h`, or `refresh.interval`.
        refresh,
        /// Applies to a tool that now describes itself otherwise than the operator has accepted.
        /// `warn` reports and offers it. `enforce` withdraws it until `mantyx-bridge trust accept`.
        /// `off` does not compare. The first description is accepted. Default: `warn`.
        pin,
    }
}

/// Which tools of an MCP server the bridge offers, and their names.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with allow, deny, rename")]
pub struct Tools {
    /// Globs of the tools to offer, by the server's own names. Left out: all.
    pub allow: Option<List<String>>,
    /// Globs of the tools not to offer, whatever `allow` says. With a rule, the tool stays on
    /// offer, and calls with such arguments are refused.
    pub deny: Option<At<Globs>>,
    /// The server's name of a tool to the name that replaces it, before the prefix.
    pub rename: Option<Named<String>>,
}

backend_entry! {
    /// An A2A agent: exactly one of `url`, `card_url`, `card_file`, `bundled`.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, expecting = "a map with url, card_url, card_file or bundled")]
    pub struct A2a {
        /// Its base: the Agent Card is looked for below `/.well-known/`.
        pub url: Option<At<String>>,
        /// The address of the Agent Card itself.
        pub card_url: Option<At<String>>,
        /// The Agent Card as a file, read at each refresh.
        pub card_file: Option<At<String>>,
        /// `true`: the example agent inside the bridge.
        pub bundled: Option<At<bool>>,
        /// Sent with the fetch of the card and with every call.
        pub headers: Option<Named<Scalar>>,
        /// Replaces the description that the model sees.
        pub description: Option<At<String>>,
        /// Default: the card's preferred one that the bridge speaks; gRPC, if it offers nothing
        /// else.
        pub transport: Option<At<A2aBinding>>,
        /// Hosts (`host` or `host:port`) beyond the card's own that its endpoints may name. Another
        /// port of the same host, which gRPC often has, counts as another host.
        pub allow_hosts: Option<List<String>>,
        /// `true`: each message waits for its reply until the task is done, without a stream or
        /// polls. For agents that need it: after a break or a restart, the outcome of a call is
        /// unknown, and proxies may cut a long reply.
        pub blocking: Option<At<bool>>,
        /// The address for calls, in place of those that the card names. The binding and the
        /// version stay the card's.
        pub endpoint: Option<At<String>>,
        /// URIs of A2A extensions that each request asks the agent to use.
        pub extensions: Option<List<String>>,
        /// `true`: the bridge also asks the agent for the card that it shows to clients with a
        /// credential, and offers that one. Default: `false`.
        pub extended_card: Option<At<bool>>,
        /// `true`: the entry's credentials may go over plain http, although the card came over
        /// https. Others on the network path can then read them. Default: `false`.
        pub allow_plain: Option<At<bool>>,
        /// `["*"]`: a person has to approve every message to it. A glob of the agent's name, which
        /// its one tool has, or a rule for some messages.
        pub approve: Option<At<Globs>>,
        /// The token for the fetch of the card and for every call.
        pub auth: Option<At<BackendAuth>>,
        /// TLS towards the agent: own authorities, or a certificate to show.
        pub tls: Option<At<ServerTls>>,
        /// The signature that the card has to have. Default: signatures are not checked.
        pub signature: Option<At<CardSignature>>,
    }
    common {
        /// A call that takes longer is answered with an id and goes on; the model fetches its
        /// result later, with the tool `bridge_call_result`. Default: `4m`, where that is less than
        /// `call_timeout` and `calls.timeout`. `off`: no call goes on.
        pending_after,
        /// Calls that may run at once. Default: 16.
        concurrency,
    }
    discovered {
        /// Time from one refresh of its card to the next. Default: `refresh.interval`.
        refresh,
        /// Applies to an agent whose card is not the one that the operator has accepted. `warn`
        /// reports and offers it. `enforce` withdraws it until `mantyx-bridge trust accept`. `off`
        /// does not compare. The first card is accepted. Default: `warn`.
        pin,
    }
}

/// The signature that an Agent Card has to have (A2A 1.0, §8.4).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with keys and required")]
pub struct CardSignature {
    /// A file or a list of files with public keys: PEM, a JWK, or a set of them. One of the keys
    /// must have signed the card, by ES256, ES384, EdDSA, RS256 or PS256.
    pub keys: Option<At<OneOrMany>>,
    /// `true` (the default): the bridge refuses a card without such a signature, like an unreadable
    /// one. `false`: it uses the card, and reports it.
    pub required: Option<At<bool>>,
}

/// The TLS of one server: `ca`, or `cert` and `key`, or all three, as PEM files.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with ca, cert, key")]
pub struct ServerTls {
    /// The authorities of which one must have signed the server's certificate, in place of those
    /// that this machine trusts. Default: those that this machine trusts.
    pub ca: Option<At<String>>,
    /// The certificate that the bridge shows to the server, with its intermediate certificates.
    pub cert: Option<At<String>>,
    /// Its private key, without a passphrase.
    pub key: Option<At<String>>,
}

/// How the bridge authenticates at a backend: exactly one of `bearer` and `oauth`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with bearer or oauth")]
pub struct BackendAuth {
    /// A token, as a reference; the bridge sends it as `Authorization: Bearer`.
    pub bearer: Option<At<Scalar>>,
    /// OAuth client credentials: the bridge fetches tokens, and renews them before they expire.
    pub oauth: Option<At<BackendOauth>>,
}

/// An OAuth client: with a secret of its own, or with the login of a person.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with client_id, client_secret, token_url, scopes")]
pub struct BackendOauth {
    /// `bridge`: an operator logs in once (`mantyx-bridge login`), and the bridge keeps the login.
    /// The default without `client_secret` and `private_key`; with one of them, the bridge fetches
    /// tokens for the client itself.
    pub login: Option<At<LoginKind>>,
    /// The issuer of tokens, for a login. Left out: the one that the backend names.
    pub issuer: Option<At<String>>,
    /// The `resource` of a login's requests, or `off`. Left out: what the backend calls itself.
    pub resource: Option<At<String>>,
    /// The TLS settings of a login's issuer.
    pub tls: Option<At<ServerTls>>,
    /// The id of the bridge at the issuer of tokens.
    pub client_id: Option<At<Scalar>>,
    /// Its secret, as a reference.
    pub client_secret: Option<At<Scalar>>,
    /// Where the secret stands: `basic` in a header, `post` in the body. Left out: what the issuer
    /// takes.
    pub client_auth: Option<At<ClientAuth>>,
    /// In its place, the private key that signs (`private_key_jwt`), as a reference: PEM, PKCS #8.
    pub private_key: Option<At<Scalar>>,
    /// Where tokens are issued; the client's secret goes there and nowhere else. Left out: the
    /// address that the backend names.
    pub token_url: Option<At<String>>,
    /// For whom a private key signs where `token_url` is set. Left out: `token_url`.
    pub audience: Option<At<String>>,
    /// The scopes of the tokens. Left out: those that the backend asks for.
    pub scopes: Option<List<String>>,
}

backend_entry! {
    /// A tool of the bridge's own: exactly one of `http` and `command`.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, expecting = "a map with description, parameters, http or command")]
    pub struct Local {
        /// The description that the model reads.
        pub description: Option<At<String>>,
        /// The JSON Schema of its arguments, which reaches the model unchanged.
        pub parameters: Option<At<SchemaMap>>,
        /// The request that is sent for a call.
        pub http: Option<At<LocalHttp>>,
        /// `true`: nothing is executed, and a call's arguments are its result.
        pub internal: Option<At<bool>>,
        /// The program for a call and its own arguments, without a shell. It gets the call's
        /// arguments as JSON on stdin, and prints the result on stdout. An exit status other than 0
        /// is an error with stderr.
        pub command: Option<List<Scalar>>,
        /// The program's environment, besides PATH, HOME, LANG, TMPDIR, the variables of proxies
        /// and certificates, and `programs.env`.
        pub env: Option<Named<Scalar>>,
        /// The directory that the program is started in.
        pub cwd: Option<At<String>>,
        /// Which files are hidden from the program. Left out: the bridge's own files, where the
        /// system allows that. `secrets`: Landlock keeps the program from them. A map with `read`
        /// and `write`: all but the listed files and those that any program needs to run. `off`:
        /// none (docs/programs.md).
        pub sandbox: Option<At<SandboxValue>>,
        /// The hosts that have it, where replicas run on several hosts. On others, the entry is
        /// ignored.
        pub only_on: Option<List<String>>,
        /// The JSON Schema of its result, which reaches MANTYX unchanged.
        #[serde(rename = "outputSchema")]
        pub output_schema: Option<At<SchemaMap>>,
        /// `true`: tells the model not to call it again while it works.
        #[serde(rename = "longRunning")]
        pub long_running: Option<At<bool>>,
        /// `true`: it changes nothing. So MANTYX may have it called beside other such tools, and a
        /// call whose connection broke is made once more.
        #[serde(rename = "readOnly")]
        pub read_only: Option<At<bool>>,
        /// `true`: its result stays in the session's history for later turns.
        pub retain: Option<At<bool>>,
        /// How long one call may take. Default: `calls.timeout`; with `pending_after`,
        /// `calls.pending_timeout`.
        pub timeout: Option<At<DurationText>>,
    }
    common {
        /// A call that takes longer is answered with an id and goes on; the model fetches its
        /// result later, with the tool `bridge_call_result`. Default: `off`.
        pending_after,
        /// Calls that may run at once. Default: 16, for a program 4.
        concurrency,
    }
}

/// The request of a local tool.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with method and url")]
pub struct LocalHttp {
    /// Default: POST. The arguments are the JSON body; for GET, HEAD and DELETE the query string.
    pub method: Option<At<HttpMethod>>,
    /// Where it is sent.
    pub url: Option<At<String>>,
    /// Sent with it, and to nowhere else.
    pub headers: Option<Named<Scalar>>,
    /// TLS towards the server: own authorities, or a certificate to show.
    pub tls: Option<At<ServerTls>>,
}

/// Adds a second name of a key to the schema of its map, which knows nothing of serde's aliases.
fn alias(schema: &mut Schema, key: &str, second: &str) {
    if let Some(keys) = schema.get_mut("properties").and_then(|keys| keys.as_object_mut())
        && let Some(value) = keys.get(key).cloned()
    {
        keys.insert(second.to_owned(), value);
    }
}
