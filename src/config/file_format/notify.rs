//! `notify`: who is told of what waits for a person.
//!
//! Must not: check anything.

use schemars::JsonSchema;
use serde::Deserialize;

use super::ServerTls;
use crate::config::deserialize::{At, List, Named};
use crate::config::notify::{Detail, NoticeFormat, Topic};
use crate::config::scalars::{OneOrMany, SandboxValue, Scalar};

/// A receiver of notices: `on`, and exactly one of `webhook` and `command`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with on, and webhook or command")]
pub struct Notify {
    /// What it is told of: `approval` (a call waits for approval), `question` (a call's server asks
    /// a person), `trust` (a backend is not as it was accepted), `problem` (something is wrong for
    /// two minutes, and its end).
    pub on: Option<List<Topic>>,
    /// Only what concerns these backends. Left out: all, and the bridge itself.
    pub backends: Option<List<String>>,
    /// The texts of models, servers and people that a notice has: `arguments` (of a call),
    /// `question` (of a server), `reason` (of a decision, or in a peer's words of a problem). Left
    /// out: none.
    pub with: Option<List<Detail>>,
    /// An address that each notice is posted to.
    pub webhook: Option<At<Webhook>>,
    /// A program that is run for each notice, without a shell. In its arguments, `{title}`,
    /// `{text}` and `{link}` stand for those of the notice. It gets the JSON of a webhook on stdin.
    /// An exit status other than 0 is a failure; it has 10 s.
    pub command: Option<List<Scalar>>,
    /// The program's environment, besides PATH, HOME, LANG, TMPDIR, the variables of proxies and
    /// certificates, and `programs.env`.
    pub env: Option<Named<Scalar>>,
    /// The directory that the program is started in.
    pub cwd: Option<At<String>>,
    /// Which files are hidden from the program, as for a local tool (docs/programs.md).
    pub sandbox: Option<At<SandboxValue>>,
}

/// Where notices are posted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with url")]
pub struct Webhook {
    /// The address, as a reference: it is a secret. Redirects are not followed. For ntfy, the
    /// topic's.
    pub url: Option<At<String>>,
    /// Signs each notice as Standard Webhooks are signed: `whsec_…`, as a reference, or a list
    /// while it rotates.
    pub secret: Option<At<OneOrMany>>,
    /// The form of the body: `json` (the default), `slack` (Slack, Mattermost, Rocket.Chat) or
    /// `ntfy`.
    pub format: Option<At<NoticeFormat>>,
    /// Sent with each notice, such as the token of an ntfy server.
    pub headers: Option<Named<Scalar>>,
    /// TLS towards the server: own authorities, or a certificate to show.
    pub tls: Option<At<ServerTls>>,
}
