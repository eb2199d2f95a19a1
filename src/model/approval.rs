//! Calls that a person must approve: which ones these are, what a question is bound to, and the
//! model's answer if the call is not approved.
//!
//! Must not: ask a person, wait, or keep a question.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::{
    answer::codes::OUTCOME_UNKNOWN,
    catalog::hex,
    globs::Globs,
    ids::ApprovalId,
    recovery::LEAST_BUDGET,
    routes::{Route, Target},
};

/// The longest reason of a decision, in characters: a sentence or two.
pub const MAX_REASON: usize = 1000;

/// Which calls of a backend a person must approve; by default none.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Calls of tools whose name, as the peer gave it, matches; an agent goes by its own name.
    pub tools: Globs,
    /// Calls that may destroy something, as far as the server says ([`Route::destructive`]).
    pub destructive: bool,
}

impl Policy {
    /// Whether no call needs approval.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && !self.destructive
    }

    /// Whether a person must approve a call along `route`.
    pub fn asks(&self, route: &Route) -> bool {
        let Target::Tool { name, .. } = &route.target else { return false };
        let name = if name.is_empty() { route.backend.as_str() } else { name };
        self.tools.is_match(name) || (self.destructive && route.destructive)
    }
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Approved,
    /// A person has answered the server's question.
    Answered,
    Denied,
    /// No decision came in time.
    Expired,
    /// The call was cancelled, or the bridge shut down and asks again after the restart.
    Withdrawn,
}

impl Outcome {
    pub const ALL: [Self; 5] =
        [Self::Approved, Self::Answered, Self::Denied, Self::Expired, Self::Withdrawn];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Answered => "answered",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// What a person decides on: one call, or a question of its server.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub app: &'a str,
    /// `None` for a call by hand.
    pub run: Option<&'a str>,
    pub tool_use: &'a str,
    pub backend: &'a str,
    /// The peer's own name of the tool.
    pub tool: &'a str,
    /// Verbatim.
    pub arguments: &'a str,
    /// The parameters of a question, empty for the call itself; and what tells it apart from the same
    /// asked again, or a call by hand from others.
    pub question: [&'a str; 2],
}

impl Subject<'_> {
    /// The id of the question: a hash of the whole subject. So an approval of an id can only make
    /// the call that was shown under it, and a call that is asked about again after a restart keeps
    /// its id.
    pub fn id(&self) -> ApprovalId {
        let Self { app, run, tool_use, backend, tool, arguments, question } = self;
        let mut hash = Sha256::new();
        // Each with its length, so that no two subjects have one text.
        let call = [*app, run.unwrap_or_default(), tool_use, backend, tool, arguments];
        for part in call.into_iter().chain(*question) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update([u8::from(run.is_some())]);
        let digest = hex(&hash.finalize());
        // 96 bits: short enough for a line of a terminal, and too many to try.
        format!("apr_{}", digest.get(..24).unwrap_or(&digest)).into()
    }
}

/// How long to wait for a decision about a call that has `left` until its deadline: a call that is
/// approved in the last moment should still have time to run.
pub fn patience(left: Duration) -> Duration {
    left - LEAST_BUDGET.min(left / 2)
}

/// The model's answer for a call that a person has denied.
pub fn denied(name: &str, reason: Option<&str>) -> String {
    let told = format!("A person was asked to approve the call of `{name}`, and denied it");
    match reason {
        Some(reason) => format!("{told}; it was not made. The reason: {reason}"),
        None => format!("{told}; it was not made."),
    }
}

/// The model's answer if no decision came in time.
pub fn expired(name: &str) -> String {
    format!(
        "A person has to approve calls of `{name}`, and no decision came in time: the call \
         counts as denied, and was not made."
    )
}

/// The model's answer if too many calls wait for approval already.
pub fn too_many(name: &str) -> String {
    format!(
        "A person has to approve calls of `{name}`, and too many calls wait for approval already: \
         this one counts as denied, and was not made. Try again later, or do without it."
    )
}

/// What the model is told beside the error of a call if too many calls wait to ask a person what its
/// server asks, or that is too long.
pub const NOT_PUT: &str = "The tool's server had asked the user a question, which was put to \
                           nobody: it is too long, or too many calls of the app wait for a person.";

/// The same, if a person was asked and gave no answer.
pub fn unanswered(outcome: Outcome, reason: Option<&str>) -> Option<String> {
    let put = "The tool's server had asked the user a question, which was put to a person";
    match (outcome, reason) {
        (Outcome::Expired, _) => Some(format!("{put}; nobody answered it in time.")),
        (Outcome::Denied, Some(reason)) => {
            Some(format!("{put} and declined. The reason: {reason}"))
        }
        (Outcome::Denied, None) => Some(format!("{put} and declined.")),
        _ => None,
    }
}

/// The answer to a caller by hand if the bridge shuts down before a decision.
pub fn going_down(name: &str) -> String {
    format!("The bridge shuts down, and the call of `{name}` had not begun yet. It was not made.")
}

/// The answer to a call that was cancelled at its tool, as the bridge shuts down.
pub fn cut(name: &str) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge shuts down, and `{name}` has not answered in time. The call \
         was cancelled; it may or may not have taken effect. Check before you repeat it."
    )
}

#[cfg(test)]
mod tests {
    //! Who is asked about what, and what an id stands for.

    use std::collections::HashSet;

    use super::*;
    use crate::model::{ids::BackendName, offer::RefKind};

    fn policy(globs: &[&str], destructive: bool) -> Policy {
        Policy { tools: crate::model::globs::globs(globs), destructive }
    }

    fn route(target: Target, destructive: bool) -> Route {
        let backend = BackendName::parse("fs").unwrap();
        Route { backend, kind: RefKind::McpLocal, target, repeatable: false, destructive }
    }

    fn tool(name: &str) -> Target {
        Target::Tool { name: name.into(), input: None }
    }

    #[test]
    fn globs_are_of_the_peers_own_names_and_the_word_is_of_what_it_says() {
        for (globs, destructive, target, is_destructive, asks) in [
            (&[][..], false, tool("write"), true, false),
            (&["*"], false, tool("write"), false, true),
            (&["write_*", "rm"], false, tool("rm"), false, true),
            (&["write_*", "rm"], false, tool("rmdir"), true, false),
            (&["fs_*"], false, tool("write"), true, false),
            (&["a/*"], false, tool("a/b/c"), false, true),
            (&[], true, tool("write"), true, true),
            (&[], true, tool("read"), false, false),
            (&["read"], true, tool("read"), false, true),
            // An agent's tool has no name of its own.
            (&["fs"], false, tool(""), false, true),
            (&["hr"], false, tool(""), false, false),
            // Nothing of theirs is called.
            (&["*"], true, Target::Stub, true, false),
            (&["*"], true, Target::Results, true, false),
        ] {
            let told = format!("{globs:?} {destructive} {target:?} {is_destructive}");
            let route = route(target, is_destructive);
            assert_eq!(policy(globs, destructive).asks(&route), asks, "{told}");
        }
        assert!(!Policy::default().asks(&route(tool("x"), true)));
    }

    #[test]
    fn an_id_is_of_one_call_with_its_exact_arguments() {
        let one = Subject {
            app: "a",
            run: Some("r"),
            tool_use: "t",
            backend: "b",
            tool: "w",
            arguments: r#"{"n":1}"#,
            question: ["", ""],
        };
        let others = [
            Subject { app: "b", ..one },
            Subject { run: None, ..one },
            Subject { run: Some(""), ..one },
            Subject { run: None, question: ["", "1"], ..one },
            Subject { tool_use: "u", ..one },
            Subject { backend: "c", ..one },
            Subject { tool: "x", ..one },
            Subject { arguments: r#"{"n":1.0}"#, ..one },
            Subject { arguments: r#"{"n": 1}"#, ..one },
            Subject { question: ["{}", "1"], ..one },
            Subject { question: ["{}", "2"], ..one },
            Subject { question: ["{ }", "1"], ..one },
            // The same letters, cut elsewhere.
            Subject { app: "ar", run: Some(""), ..one },
            Subject { tool_use: "tb", backend: "", ..one },
        ];
        let ids: HashSet<String> =
            others.iter().chain([&one]).map(|subject| subject.id().to_string()).collect();
        assert_eq!(ids.len(), others.len() + 1, "{ids:?}");
        assert_eq!(one.id(), Subject { ..one }.id(), "after a restart, too");
        let id = one.id().to_string();
        assert!(id.starts_with("apr_") && id.len() == 28, "{id}");
    }

    #[test]
    fn an_approved_call_has_time_to_run() {
        let seconds = Duration::from_secs;
        for (left, waits) in [(285, 275), (3600, 3590), (20, 10), (8, 4), (0, 0)] {
            assert_eq!(patience(seconds(left)), seconds(waits), "{left}");
        }
    }

    #[test]
    fn the_model_is_told_that_nothing_was_called() {
        let reason = "use the test server";
        for text in [
            denied("fs_rm", Some(reason)),
            denied("fs_rm", None),
            expired("fs_rm"),
            too_many("fs_rm"),
            going_down("fs_rm"),
        ] {
            assert!(text.contains("`fs_rm`") && text.contains("not made"), "{text}");
            assert_eq!(text.contains(reason), text.contains("The reason"), "{text}");
        }
    }

    #[test]
    fn the_list_of_outcomes_is_in_order() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at, "{outcome:?}");
        }
    }
}
