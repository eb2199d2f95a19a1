//! The shape of bridge.yaml: which keys there are and of which type each is.
//!
//! The doc comments are the descriptions in the JSON Schema, so they speak to whoever writes the
//! file. Every key is optional here: what has to be there, `validate` says with the right words.
//!
//! Must not: check anything beyond types, or fill in defaults.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    A2aBinding, Auth, OnUnavailable, Pin,
    deserialize::{At, Scalar},
    scalars::{
        Count, DurationText, Globs, HttpMethod, ListenValue, McpTransport, OneOrMany, PendingAfter,
        SandboxValue, SchemaMap, Share,
    },
};

/// The configuration of mantyx-bridge.
///
/// Durations are `250ms`, `30s`, `5m`, `2h`. A secret is a reference: `${env:NAME}`,
/// `${file:/path}` or `${cred:NAME}` (a systemd credential); it may stand inside a longer text, and
/// `$${` is a literal `${`. A relative path starts at the directory of this file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
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
    /// `token` (the default): every caller shows a token. `off`: none does, which is refused
    /// unless every listener is loopback or a unix socket.
    pub auth: Option<At<Auth>>,
    /// The programs that use the bridge, each with its own token or certificate. Without this section there is
    /// one, `default`, whose token is created at the first start in `<state_dir>/token`.
    pub apps: Option<At<BTreeMap<String, At<App>>>>,
    /// How catalogs are kept fresh.
    pub refresh: Option<Refresh>,
    /// The limits of all tool calls together.
    pub calls: Option<Calls>,
    /// A line of JSON for each call, in a file.
    pub audit: Option<At<Audit>>,
    /// MCP servers by name.
    pub mcp: Option<At<BTreeMap<String, At<Mcp>>>>,
    /// The same section as `mcp`, under the name that other products use.
    #[serde(rename = "mcpServers")]
    pub mcp_servers: Option<At<BTreeMap<String, At<Mcp>>>>,
    /// A2A agents by name.
    pub a2a: Option<At<BTreeMap<String, At<A2a>>>>,
    /// Tools of the bridge's own by name: an HTTP request or a command.
    pub local: Option<At<BTreeMap<String, At<Local>>>>,
}

/// Several listeners.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an address, a list of addresses, or a map")]
pub struct ListenMap {
    /// One address or a list: `127.0.0.1:7717`, `[::1]:7717`, `localhost:7717`. Other machines may
    /// reach it where there is `tls`.
    pub tcp: Option<At<OneOrMany>>,
    /// The path of a unix socket.
    pub unix: Option<At<String>>,
    /// Encrypts every TCP address, loopback included.
    pub tls: Option<At<Tls>>,
    /// Names by which apps reach the bridge beside its addresses and the names in its certificate:
    /// those of a reverse proxy that hands on `Host`. `name`, or `name:port`.
    pub hosts: Option<At<Vec<At<String>>>>,
}

/// The certificate of the TCP listeners. Its files are read again when they change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with cert and key")]
pub struct Tls {
    /// The certificate, and those between it and its root, PEM.
    pub cert: Option<At<String>>,
    /// Its private key, PEM.
    pub key: Option<At<String>>,
    /// Every caller over TCP must show a certificate that one of these authorities signed, PEM.
    pub client_ca: Option<At<String>>,
}

/// The MANTYX that the bridge stands in front of.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with credential, or with sandbox: true")]
pub struct Upstream {
    /// `true`: the runtime inside the bridge, which needs no account and no network.
    pub sandbox: Option<At<bool>>,
    /// Default: `https://app.mantyx.io`.
    pub base_url: Option<At<String>>,
    /// Used by the bridge's own API and the command line; proxied paths carry their own.
    pub workspace: Option<At<String>>,
    /// An API key or an OAuth access token, as a reference; or `passthrough`: what each app sends.
    pub credential: Option<At<Scalar>>,
    /// Instead of `credential`: access tokens that the bridge fetches, and renews before they expire.
    pub oauth: Option<At<UpstreamOauth>>,
    /// The TLS of MANTYX, where it is not what this machine trusts anyway.
    pub tls: Option<At<ServerTls>>,
}

/// An OAuth application that somebody has given access to a workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with client_id, client_secret, refresh_token")]
pub struct UpstreamOauth {
    /// Where tokens are issued. Default: `<base_url>/api/oauth/token`.
    pub token_url: Option<At<String>>,
    /// The application.
    pub client_id: Option<At<Scalar>>,
    /// As a reference.
    pub client_secret: Option<At<Scalar>>,
    /// What the application was given when somebody logged in, as a reference. One that the issuer
    /// puts in its place is kept in `state_dir`, and used until this one changes.
    pub refresh_token: Option<At<Scalar>>,
}

/// The audit log.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with file")]
pub struct Audit {
    /// Where it is written: appended, made with mode 0600, and made anew after it was renamed.
    pub file: Option<At<String>>,
    /// `true`: the arguments of calls are written, too, and not only their SHA-256. They may hold
    /// what is nobody else's business. Default: `false`.
    pub arguments: Option<At<bool>>,
}

/// A program that uses the bridge.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with token, users or cert")]
pub struct App {
    /// What the app shows as `Authorization: Bearer` or `X-API-Key`, as a reference.
    pub token: Option<At<Scalar>>,
    /// Users of this machine, by number or by their names in `/etc/passwd`: what one of them sends
    /// over a unix socket is this app's, without a token.
    pub users: Option<At<Vec<At<Scalar>>>>,
    /// The app is known by its certificate: names out of the certificate's `subjectAltName`, as
    /// they are there: DNS names, URIs, mail addresses. Over TCP it then needs no token, and no
    /// other certificate will do. Needs `listen.tls.client_ca`.
    pub cert: Option<At<Vec<At<String>>>>,
    /// The backends that it may use. Left out: all. `[]`: none.
    pub backends: Option<At<Vec<At<String>>>>,
    /// The tools that it may use of an MCP server, by the server's name here. Left out: all.
    pub tools: Option<At<BTreeMap<String, At<AppTools>>>>,
    /// Tool calls of this app that may run at once.
    pub max_concurrent_calls: Option<At<Count>>,
    /// Whether it may decide with its own token on its own calls that wait for a person
    /// (`approve`). Default: false, which leaves them to the operator.
    pub approves: Option<At<bool>>,
    /// The requests that it may send. Left out: as many as it likes.
    pub rate: Option<At<Rate>>,
    /// Goes to MANTYX in place of the upstream's credential, for this app.
    pub credential: Option<At<Scalar>>,
}

/// Which tools of an MCP server an app may use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with allow, deny")]
pub struct AppTools {
    /// Globs of the tools that it may use, by the server's own names. Left out: all.
    pub allow: Option<At<Vec<At<String>>>>,
    /// Globs of the tools that it may not use, whatever `allow` says.
    pub deny: Option<At<Vec<At<String>>>>,
}

/// How many requests an app may send.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with per_second and burst")]
pub struct Rate {
    /// So many a second, in the long run.
    pub per_second: Option<At<Count>>,
    /// So many at once, after a time of rest. Default: twice `per_second`.
    pub burst: Option<At<Count>>,
}

/// How catalogs are kept fresh, for all backends that do not say otherwise.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with interval, jitter, timeout")]
pub struct Refresh {
    /// Time from one refresh to the next, at least `1s`. Default: `5m`.
    pub interval: Option<At<DurationText>>,
    /// The share of `interval` by which each wait varies, 0 to 1. Default: 0.1.
    pub jitter: Option<At<Share>>,
    /// How long one connect or one refresh may take. Default: `30s`.
    pub timeout: Option<At<DurationText>>,
}

/// The limits of all tool calls together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with timeout, pending_timeout, max_concurrent")]
pub struct Calls {
    /// How long one call may take, at most `290s`: MANTYX gives up at 300 s. Default: `285s`.
    pub timeout: Option<At<DurationText>>,
    /// The same for calls to backends with `pending_after`, at most `24h`. Default: `1h`.
    pub pending_timeout: Option<At<DurationText>>,
    /// Calls that may run at once. Default: 256.
    pub max_concurrent: Option<At<Count>>,
}

/// An MCP server: a program (`command`) or an address (`url`).
///
/// An entry of a Claude, Cursor or VS Code file works as it is. In it, `${NAME}` and
/// `${NAME:-default}` stand for environment variables too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with command or url")]
pub struct Mcp {
    /// The program that is started, without a shell. `mantyx-bridge` is the bridge's own.
    pub command: Option<At<String>>,
    /// Its arguments.
    pub args: Option<At<Vec<At<Scalar>>>>,
    /// Its environment, besides PATH, HOME, LANG and TMPDIR.
    pub env: Option<At<BTreeMap<String, At<Scalar>>>>,
    /// A file with more of its environment, one NAME=value a line; `env` wins.
    #[serde(rename = "envFile")]
    pub env_file: Option<At<String>>,
    /// The directory that it is started in.
    pub cwd: Option<At<String>>,
    /// What keeps it from files. Without it, the bridge hides its own files from the program where
    /// the system allows that. `secrets`: Landlock keeps the program from them. A map with `read`
    /// and `write`: the program sees what is listed and what programs need to run at all. `off`:
    /// nothing (docs/programs.md).
    pub sandbox: Option<At<SandboxValue>>,
    /// The address of a server that speaks Streamable HTTP, or the older HTTP+SSE. On a unix
    /// socket: `unix:/run/x.sock`, where the path is `/mcp`, or `unix:/run/x.sock:/path`; its Host
    /// is `localhost:80`, unless `headers` has another.
    pub url: Option<At<String>>,
    /// The same as `url`.
    #[serde(rename = "serverUrl")]
    pub server_url: Option<At<String>>,
    /// Sent with every request to `url`, and to nowhere else.
    pub headers: Option<At<BTreeMap<String, At<Scalar>>>>,
    /// Inferred from `command` or `url`: of the two HTTP transports, `streamable-http`, and `sse`
    /// where the server does not know it.
    pub transport: Option<At<McpTransport>>,
    /// The same as `transport`.
    #[serde(rename = "type")]
    pub kind: Option<At<McpTransport>>,
    /// `true`: the entry is left out.
    pub disabled: Option<At<bool>>,
    /// Put before the name of each tool. Default: `<name>_`. `""` for none.
    pub prefix: Option<At<String>>,
    /// Which tools there are, and their names.
    pub tools: Option<Tools>,
    /// `true`: the bridge is not ready before this backend is.
    pub required: Option<At<bool>>,
    /// What a run gets of the backend while it is down. Default: `stale`.
    pub on_unavailable: Option<At<OnUnavailable>>,
    /// Time from one refresh of its catalog to the next. Default: `refresh.interval`.
    pub refresh: Option<At<DurationText>>,
    /// How long one call may go without a sign of progress. `calls.timeout`, which is the default,
    /// ends it in any case; with `pending_after`, it is `calls.pending_timeout` in both respects.
    pub call_timeout: Option<At<DurationText>>,
    /// A call that takes longer is answered with an id and goes on; the model fetches its result
    /// later, with the tool `bridge_call_result`. Default: `off`.
    pub pending_after: Option<At<PendingAfter>>,
    /// Calls that it is given at once. Default: 16, for a program 4.
    pub concurrency: Option<At<Count>>,
    /// Globs of tools whose calls a person has to approve, by the server's own names; `"*"` for all.
    /// The word `destructive` stands for those that may destroy something, as far as the server
    /// says: `destructiveHint` is true, or neither it nor `readOnlyHint` says otherwise.
    pub approve: Option<At<Globs>>,
    /// `true`: believe the server's `readOnlyHint` and `idempotentHint`. A call of such a tool is
    /// made once more where the connection broke before its answer came.
    pub trust_annotations: Option<At<bool>>,
    /// What becomes of a tool that the model would see in another way than the operator has accepted:
    /// `warn` tells of it and offers it, `enforce` withdraws it until `mantyx-bridge trust accept`,
    /// `off` does not look. What the server says first is taken. Default: `warn`.
    pub pin: Option<At<Pin>>,
    /// The token that a server with a `url` wants.
    pub auth: Option<At<BackendAuth>>,
    /// The TLS of a server with a `url`, where it is not what this machine trusts anyway.
    pub tls: Option<At<ServerTls>>,
}

/// Which tools of an MCP server there are, and their names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with allow, deny, rename")]
pub struct Tools {
    /// Globs of the tools to offer, by the server's own names. Left out: all.
    pub allow: Option<At<Vec<At<String>>>>,
    /// Globs of the tools not to offer, whatever `allow` says.
    pub deny: Option<At<Vec<At<String>>>>,
    /// The server's name of a tool to the name that replaces it, before the prefix.
    pub rename: Option<At<BTreeMap<String, At<String>>>>,
}

/// An A2A agent: exactly one of `url`, `card_url`, `card_file`, `bundled`.
#[derive(Debug, Deserialize, JsonSchema)]
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
    pub headers: Option<At<BTreeMap<String, At<Scalar>>>>,
    /// Replaces the description that the model sees.
    pub description: Option<At<String>>,
    /// Default: the card's preferred one that the bridge speaks; gRPC, if it offers nothing else.
    pub transport: Option<At<A2aBinding>>,
    /// Hosts (`host` or `host:port`) beyond the card's own that its endpoints may name. Another
    /// port of the same host, which gRPC often has, counts as another host.
    pub allow_hosts: Option<At<Vec<At<String>>>>,
    /// `true`: the bridge is not ready before this backend is.
    pub required: Option<At<bool>>,
    /// What a run gets of the backend while it is down. Default: `stale`.
    pub on_unavailable: Option<At<OnUnavailable>>,
    /// Time from one refresh of its card to the next. Default: `refresh.interval`.
    pub refresh: Option<At<DurationText>>,
    /// How long one call may go without a sign of progress. `calls.timeout`, which is the default,
    /// ends it in any case; with `pending_after`, it is `calls.pending_timeout` in both respects.
    pub call_timeout: Option<At<DurationText>>,
    /// A call that takes longer is answered with an id and goes on; the model fetches its result
    /// later, with the tool `bridge_call_result`. Default: `4m`, where that is less than
    /// `call_timeout` and `calls.timeout`. `off`: no call goes on.
    pub pending_after: Option<At<PendingAfter>>,
    /// Calls that it is given at once. Default: 16.
    pub concurrency: Option<At<Count>>,
    /// `["*"]`: a person has to approve every message to it. A glob of the agent's name, which its
    /// one tool has.
    pub approve: Option<At<Globs>>,
    /// What becomes of the agent when its card is not the one that the operator has accepted: `warn`
    /// tells of it and offers it, `enforce` withdraws it until `mantyx-bridge trust accept`, `off`
    /// does not look. The first card is taken. Default: `warn`.
    pub pin: Option<At<Pin>>,
    /// The token that the agent wants, for the fetch of the card and for every call.
    pub auth: Option<At<BackendAuth>>,
    /// The TLS of the agent, where it is not what this machine trusts anyway.
    pub tls: Option<At<ServerTls>>,
    /// Whose signature the card has to have. Default: signatures are not looked at.
    pub signature: Option<At<CardSignature>>,
}

/// Whose signature an Agent Card has to have (A2A 1.0, §8.4).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with keys and required")]
pub struct CardSignature {
    /// A file or a list of files with public keys of which one must have signed the card: PEM, a
    /// JWK, or a set of them. ES256, ES384, EdDSA, RS256 and PS256 are taken.
    pub keys: Option<At<OneOrMany>>,
    /// `true` (the default): a card that none of them has signed is refused, as one that cannot be
    /// read. `false`: it is taken, and told of.
    pub required: Option<At<bool>>,
}

/// The TLS of one server: `ca`, or `cert` and `key`, or all three, as PEM files.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with ca, cert, key")]
pub struct ServerTls {
    /// The authorities of which one must have signed the server's certificate. They take the place
    /// of those that this machine trusts. Default: these.
    pub ca: Option<At<String>>,
    /// The certificate that the server is shown, with those that lead to its authority.
    pub cert: Option<At<String>>,
    /// Its private key, without a passphrase.
    pub key: Option<At<String>>,
}

/// How a backend lets the bridge in: exactly one of `bearer` and `oauth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with bearer or oauth")]
pub struct BackendAuth {
    /// A token, as a reference; sent as `Authorization: Bearer`.
    pub bearer: Option<At<Scalar>>,
    /// OAuth client credentials: tokens are fetched, and renewed before they expire.
    pub oauth: Option<At<BackendOauth>>,
}

/// An OAuth client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with client_id, client_secret, token_url, scopes")]
pub struct BackendOauth {
    /// Who the bridge is where tokens are issued.
    pub client_id: Option<At<Scalar>>,
    /// As a reference.
    pub client_secret: Option<At<Scalar>>,
    /// Where tokens are issued; the client's secret goes there and nowhere else. Left out: where
    /// the backend says that they are.
    pub token_url: Option<At<String>>,
    /// What the tokens are to be good for. Left out: what the backend asks for.
    pub scopes: Option<At<Vec<At<String>>>>,
}

/// A tool of the bridge's own: exactly one of `http` and `command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with description, parameters, http or command")]
pub struct Local {
    /// What the model reads.
    pub description: Option<At<String>>,
    /// The JSON Schema of its arguments, which reaches the model as it stands here.
    pub parameters: Option<At<SchemaMap>>,
    /// The request that is sent for a call.
    pub http: Option<At<LocalHttp>>,
    /// The program that is run for a call and its arguments, without a shell: the call's arguments
    /// as JSON on stdin, the result on stdout; an exit status other than 0 is an error with stderr.
    pub command: Option<At<Vec<At<Scalar>>>>,
    /// The program's environment, besides PATH, HOME, LANG and TMPDIR.
    pub env: Option<At<BTreeMap<String, At<Scalar>>>>,
    /// The directory that the program is started in.
    pub cwd: Option<At<String>>,
    /// What keeps the program from files. Without it, the bridge hides its own files from the
    /// program where the system allows that. `secrets`: Landlock keeps the program from them. A map
    /// with `read` and `write`: the program sees what is listed and what programs need to run at
    /// all. `off`: nothing (docs/programs.md).
    pub sandbox: Option<At<SandboxValue>>,
    /// The JSON Schema of its result, which reaches MANTYX as it stands here.
    #[serde(rename = "outputSchema")]
    pub output_schema: Option<At<SchemaMap>>,
    /// The model is told not to call it again while it works.
    #[serde(rename = "longRunning")]
    pub long_running: Option<At<bool>>,
    /// It changes nothing, so MANTYX may have it called beside other tools that change nothing, and
    /// a call whose connection broke is made once more.
    #[serde(rename = "readOnly")]
    pub read_only: Option<At<bool>>,
    /// Its result stays in the session's history for later turns.
    pub retain: Option<At<bool>>,
    /// How long one call may take. Default: `calls.timeout`; with `pending_after`,
    /// `calls.pending_timeout`.
    pub timeout: Option<At<DurationText>>,
    /// A call that takes longer is answered with an id and goes on; the model fetches its result
    /// later, with the tool `bridge_call_result`. Default: `off`.
    pub pending_after: Option<At<PendingAfter>>,
    /// Calls that run at once. Default: 16, for a program 4.
    pub concurrency: Option<At<Count>>,
    /// `true`: the bridge is not ready before this backend is.
    pub required: Option<At<bool>>,
}

/// What a program may see of the file system. Relative paths start at the directory of this file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with read, write")]
pub struct Sandbox {
    /// Files and directories, with all below them, to read and to run.
    pub read: Option<At<Vec<At<String>>>>,
    /// The same, to change as well.
    pub write: Option<At<Vec<At<String>>>>,
}

/// The request of a local tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with method and url")]
pub struct LocalHttp {
    /// Default: POST. The arguments are the JSON body; for GET, HEAD and DELETE the query string.
    pub method: Option<At<HttpMethod>>,
    /// Where it is sent.
    pub url: Option<At<String>>,
    /// Sent with it, and to nowhere else.
    pub headers: Option<At<BTreeMap<String, At<Scalar>>>>,
    /// The TLS of the server, where it is not what this machine trusts anyway.
    pub tls: Option<At<ServerTls>>,
}
