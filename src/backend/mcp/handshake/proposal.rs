//! What `initialize` proposes to a server, and what to propose after a refusal.
//!
//! Must not: do IO, or know how a refusal was carried.

use std::fmt;

use rmcp::model::{ClientCapabilities, ClientConfig, ElicitationCapability, ProtocolVersion};

use crate::backend::PeerError;
use crate::backend::mcp::handler;

/// The most proposals of one dial. A server that refuses so many is not reached.
const MAX_PROPOSALS: usize = 8;

/// The revisions that have `initialize`, newest first.
const REVISIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// What a refusal mentions if it is about the client's capabilities, in small letters. The words
/// are those of the JSON libraries behind the SDKs.
const CAPABILITY_WORDS: [&str; 7] = [
    "elicitation",
    "capabilit",
    "\"form\"",
    "`form`",
    "unrecognized field",
    "unknown field",
    "extra inputs",
];

/// How much the bridge says of what it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::backend::mcp) enum Capabilities {
    Empty,
    /// `elicitation: {}`, as 2025-06-18 has it. Strict SDKs fail at the members that came later.
    PlainElicitation,
    /// All, as 2025-11-25 has them.
    Whole,
}

/// What one `initialize` says of the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend::mcp) struct Proposal {
    pub(in crate::backend::mcp) revision: ProtocolVersion,
    pub(in crate::backend::mcp) capabilities: Capabilities,
}

impl Proposal {
    pub(in crate::backend::mcp) fn newest() -> Self {
        Self::in_revision(ProtocolVersion::V_2025_11_25)
    }

    /// A proposal with the capabilities that clients of `revision` have.
    pub(super) fn in_revision(revision: ProtocolVersion) -> Self {
        let capabilities = capabilities_of(&revision);
        Self { revision, capabilities }
    }

    fn with(revision: ProtocolVersion, capabilities: Capabilities) -> Self {
        Self { revision, capabilities }
    }

    /// The parameters of `initialize`.
    pub(super) fn config(&self) -> ClientConfig {
        let mut config = handler::config();
        match self.capabilities {
            Capabilities::Whole => (),
            Capabilities::PlainElicitation => {
                config.capabilities = ClientCapabilities::default();
                config.capabilities.elicitation = Some(ElicitationCapability::new());
            }
            Capabilities::Empty => config.capabilities = ClientCapabilities::default(),
        }
        config.with_protocol_version(self.revision.clone())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.revision)?;
        match self.capabilities {
            capabilities if capabilities >= capabilities_of(&self.revision) => Ok(()),
            Capabilities::Empty => f.write_str(" without capabilities"),
            Capabilities::PlainElicitation | Capabilities::Whole => {
                f.write_str(" with plain elicitation")
            }
        }
    }
}

fn capabilities_of(revision: &ProtocolVersion) -> Capabilities {
    if *revision >= ProtocolVersion::V_2025_11_25 {
        Capabilities::Whole
    } else if *revision >= ProtocolVersion::V_2025_06_18 {
        Capabilities::PlainElicitation
    } else {
        Capabilities::Empty
    }
}

/// The proposals that one dial has made.
#[derive(Debug, Default)]
pub(in crate::backend::mcp) struct Proposals {
    made: Vec<Proposal>,
}

impl Proposals {
    /// Notes a proposal that is about to be sent.
    pub(in crate::backend::mcp) fn add(&mut self, proposal: &Proposal) {
        if !self.made.contains(proposal) {
            self.made.push(proposal.clone());
        }
    }

    /// The proposal to make after the last one was refused with the text `refusal`; `None` if no
    /// other may be accepted.
    ///
    /// 1. The newest revision that the refusal names: servers list theirs in `data.supported`, in
    ///    `data.expected`, or in the message.
    /// 2. Fewer capabilities in the same revision, if the refusal is about them.
    /// 3. Otherwise the older revisions one by one, and then fewer capabilities. Without this step,
    ///    a server that only says "no" would be down for ever.
    pub(in crate::backend::mcp) fn after(&self, refusal: &str) -> Option<Proposal> {
        if self.made.len() >= MAX_PROPOSALS {
            return None;
        }
        let named = REVISIONS.into_iter().filter(|revision| refusal.contains(revision.as_str()));
        let named = named.map(Proposal::in_revision);
        let simpler = self.made.last().into_iter().flat_map(|last| simpler(last, refusal));
        let older = REVISIONS.into_iter().map(Proposal::in_revision);
        let bare = [Capabilities::PlainElicitation, Capabilities::Empty]
            .map(|capabilities| Proposal::with(ProtocolVersion::V_2025_11_25, capabilities));
        let mut candidates = named.chain(simpler).chain(older).chain(bare);
        candidates.find(|proposal| !self.made.contains(proposal))
    }

    /// Whether a refusal names 2026-07-28 and otherwise only revisions that were proposed, which a
    /// server repeats in its refusal.
    pub(in crate::backend::mcp) fn leaves_modern(&self, refusal: &str) -> bool {
        let mut named = REVISIONS.into_iter().filter(|one| refusal.contains(one.as_str()));
        refusal.contains(ProtocolVersion::V_2026_07_28.as_str())
            && named.all(|named| self.made.iter().any(|proposal| proposal.revision == named))
    }

    /// `error` with what was proposed, if it was more than usual.
    pub(in crate::backend::mcp) fn add_summary(&self, error: PeerError) -> PeerError {
        if self.made.len() < 2 {
            return error;
        }
        let made: Vec<_> = self.made.iter().map(Proposal::to_string).collect();
        error.with_more(&format!("`initialize` was tried with {}", made.join(", ")))
    }
}

/// The same revision as in `last` with fewer capabilities, if `refusal` is about capabilities.
fn simpler(last: &Proposal, refusal: &str) -> Vec<Proposal> {
    let refusal = refusal.to_lowercase();
    if !CAPABILITY_WORDS.iter().any(|word| refusal.contains(word)) {
        return Vec::new();
    }
    let fewer = [Capabilities::PlainElicitation, Capabilities::Empty]
        .into_iter()
        .filter(|capabilities| *capabilities < last.capabilities);
    fewer.map(|capabilities| Proposal::with(last.revision.clone(), capabilities)).collect()
}

/// The first proposal to a server that has answered `server/discover` with the text `refusal`.
pub(in crate::backend::mcp) fn after_discover(refusal: &str) -> Proposal {
    let named = REVISIONS.into_iter().find(|revision| refusal.contains(revision.as_str()));
    named.map_or_else(Proposal::newest, Proposal::in_revision)
}

/// Whether the last words of a program that has ended are about what was proposed to it. Without
/// this question, each crash of a program would be taken for a refusal, and started many times.
pub(in crate::backend::mcp) fn is_about_proposal(words: &str) -> bool {
    let words = words.to_lowercase();
    words.contains("protocol version")
        || words.contains("protocolversion")
        || REVISIONS.iter().any(|revision| words.contains(revision.as_str()))
        || CAPABILITY_WORDS.iter().any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    //! What is proposed after which refusal.

    use super::*;

    /// All proposals to a server that refuses each with `refusal`.
    fn proposals(refusal: &str) -> Vec<String> {
        let mut proposals = Proposals::default();
        let mut next = Some(Proposal::newest());
        while let Some(proposal) = next {
            proposals.add(&proposal);
            next = proposals.after(refusal);
        }
        proposals.made.iter().map(Proposal::to_string).collect()
    }

    #[test]
    fn refusal_that_names_revisions_is_followed_by_the_newest_of_them() {
        struct Row {
            refusal: &'static str,
            second: &'static str,
        }
        let rows = [
            Row {
                refusal: r#"no {"supported":["2024-11-05","2025-03-26"],"requested":"2025-11-25"}"#,
                second: "2025-03-26",
            },
            Row { refusal: r#"no {"expected":"2024-11-05"}"#, second: "2024-11-05" },
            Row { refusal: "Unsupported version 2025-11-25, use 2025-06-18", second: "2025-06-18" },
        ];
        for Row { refusal, second } in rows {
            let made = proposals(refusal);
            assert_eq!(made.get(1).map(String::as_str), Some(second), "{refusal}");
        }
    }

    #[test]
    fn refusal_about_capabilities_is_followed_by_fewer_of_the_same_revision() {
        let made = proposals("Unrecognized field \"form\" (class McpSchema$Elicitation)");
        let first =
            ["2025-11-25", "2025-11-25 with plain elicitation", "2025-11-25 without capabilities"];
        assert!(made.iter().zip(first).all(|(made, first)| made == first), "{made:?}");
    }

    #[test]
    fn refusal_without_a_reason_is_followed_by_older_revisions_and_an_end() {
        assert_eq!(
            proposals("Internal error"),
            [
                "2025-11-25",
                "2025-06-18",
                "2025-03-26",
                "2024-11-05",
                "2025-11-25 with plain elicitation",
                "2025-11-25 without capabilities",
            ]
        );
    }

    #[test]
    fn proposal_says_only_what_its_revision_has() {
        struct Row {
            proposal: Proposal,
            capabilities: &'static str,
        }
        let revision = ProtocolVersion::V_2025_11_25;
        let rows = [
            Row {
                proposal: Proposal::with(revision.clone(), Capabilities::PlainElicitation),
                capabilities: r#"{"elicitation":{}}"#,
            },
            Row { proposal: Proposal::with(revision, Capabilities::Empty), capabilities: "{}" },
            Row {
                proposal: Proposal::in_revision(ProtocolVersion::V_2025_06_18),
                capabilities: r#"{"elicitation":{}}"#,
            },
            Row {
                proposal: Proposal::in_revision(ProtocolVersion::V_2024_11_05),
                capabilities: "{}",
            },
        ];
        for Row { proposal, capabilities } in rows {
            let config = proposal.config();
            assert_eq!(serde_json::to_string(&config.capabilities).unwrap(), capabilities);
            assert_eq!(config.protocol_version, proposal.revision);
        }
    }
}
