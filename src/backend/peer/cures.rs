//! What operators do about the failures of peers that show no cause of their own.
//!
//! Must not: know a failure's text. A failure with a cause brings its own cure.

use super::PeerErrorKind;
use crate::config::{Mcp, Target};

pub(super) const UNSIGNED: &str = "ask the agent's operator which key it signs its card with, and \
     compare it with `signature: {keys: …}`";
const TOKENS: &str = "see that the authorization server can be reached, and that `auth.oauth` has \
     the client_id, the client_secret, the token_url and the scopes that it knows";
const NO_CREDENTIAL: &str = "give it a credential: `auth: {bearer: \
     \"${file:/path/of/the/token}\"}`, `auth: {oauth: …}`, or what else it wants in `headers`";
const CREDENTIAL: &str = "the credential that is configured is not taken: get a new one, and see \
     that it is meant for this server and may do this";

/// What to do if a peer refuses what its requests carry.
fn credential_cure(target: &Target) -> &'static str {
    let (headers, oauth) = match target {
        Target::Mcp(Mcp::Http { headers, oauth, .. }) => (Some(headers), oauth.is_some()),
        Target::A2a(agent) => (Some(&agent.headers), agent.oauth.is_some()),
        _ => (None, false),
    };
    match headers {
        _ if oauth => TOKENS,
        Some(headers) if !headers.is_empty() => CREDENTIAL,
        _ => NO_CREDENTIAL,
    }
}

/// What to do about a failure of this kind, where the failure itself says nothing about that.
pub(super) fn generic(kind: PeerErrorKind, target: &Target) -> String {
    let text = match (kind, target) {
        (_, Target::Unresolved(unresolved)) => return unresolved.cure.clone(),
        (PeerErrorKind::Unauthorized | PeerErrorKind::NoToken, _) => credential_cure(target),
        (PeerErrorKind::Unsigned, _) => UNSIGNED,
        (kind, Target::Mcp(Mcp::Stdio(program))) => {
            let what = match kind {
                PeerErrorKind::Timeout => {
                    "run it by hand, and see whether it answers or still installs something"
                }
                PeerErrorKind::Protocol => {
                    "see whether it is an MCP server, and whether there is a newer version of it"
                }
                _ => "run it by hand, and see what it says",
            };
            return format!("{what}: {}", program.command_line());
        }
        (PeerErrorKind::Connect, Target::Mcp(Mcp::Http { .. })) => {
            "see the server's own log for why the connection ended, and what stands between"
        }
        (PeerErrorKind::Timeout, Target::Mcp(Mcp::Http { .. })) => {
            "see the server's own log for whether it hangs or is busy"
        }
        (_, Target::Mcp(Mcp::Http { .. })) => {
            "see whether this `url` has the path of the MCP endpoint (often /mcp or /sse), and read \
             the server's log"
        }
        (PeerErrorKind::Timeout | PeerErrorKind::Connect, Target::A2a(_)) => {
            "see the agent's own log for whether it runs, and whether it hangs or is busy"
        }
        (_, Target::A2a(_)) => {
            "see the agent's log; its card has to be at the address that is configured"
        }
        (_, Target::Local(_)) => "see that its address can be reached, or that its program runs",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    //! Whether each kind of failure has a cure.

    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::config::{Program, ProgramSandbox};

    #[test]
    fn each_kind_of_failure_of_a_program_has_a_cure() {
        let target = Target::Mcp(Mcp::Stdio(Program {
            command: "sqlite-mcp".to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            sandbox: ProgramSandbox::Masked,
            hidden: Arc::default(),
            secrets: Arc::default(),
        }));
        use PeerErrorKind::{Connect, Program as Ended, Protocol, Timeout};
        for kind in [Connect, Ended, Protocol, Timeout] {
            assert!(generic(kind, &target).ends_with(": sqlite-mcp"), "{kind:?}");
        }
        assert!(generic(PeerErrorKind::Unauthorized, &target).contains("auth: {bearer"));
        assert!(generic(PeerErrorKind::Unsigned, &target).contains("signature"));
    }
}
