//! Calls that a person must approve: which ones these are, what a question is bound to, and the
//! model's answer if the call is not approved.
//!
//! Must not: ask a person, wait, or keep a question.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use super::catalog::{hash_of, hex};
use super::globs::Globs;
use super::recovery::LEAST_REMAINING;
use super::routes::{Route, Target};
use super::sentences;
use super::words::words;
use super::{ApprovalId, CallRequest, RunId};

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

    /// The place of what says that a person must approve a call along `route` with these arguments.
    pub fn asks(&self, route: &Route, arguments: &str) -> Option<&str> {
        match self.tools.of_call(own_name(route)?, arguments) {
            Some(rule) => Some(&rule.place),
            None if self.destructive && route.destructive => Some("approve: destructive"),
            None => None,
        }
    }

    /// Whether a person must approve some of the calls along `route`, or all.
    pub fn may_ask(&self, route: &Route) -> bool {
        let by_name = own_name(route).is_some_and(|name| self.tools.has(name));
        by_name || self.destructive && route.destructive
    }
}

/// The tool's name, as its peer gave it; an agent goes by its own. `None` where nothing is called.
fn own_name(route: &Route) -> Option<&str> {
    let Target::Tool { name, .. } = &route.target else { return None };
    Some(if name.is_empty() { route.backend.as_str() } else { name })
}

words! {
    /// How a question ended.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Outcome {
        Approved = "approved",
        /// A person has answered the server's question.
        Answered = "answered",
        Denied = "denied",
        /// No decision came in time.
        Expired = "expired",
        /// The call was cancelled, or the bridge shut down and asks again after the restart.
        Withdrawn = "withdrawn",
    }
}

/// The id of what a person decides on, a call or a question of its server: a hash of all of it. So
/// an approval of an id can only make the call that was shown under it, and what is asked again
/// after a restart keeps its id.
///
/// Of a question, `asked` has the parameters, and what tells it apart from the same asked again; of
/// a call by hand, what tells it apart from others, as their callers choose `tool_use` freely.
pub fn id(call: &CallRequest, asked: [&str; 2]) -> ApprovalId {
    let run = call.run_id();
    let [app, tool_use, backend] =
        [call.app.as_str(), call.tool_use.as_str(), call.route.backend.as_str()];
    let run_id = run.map_or("", RunId::as_str);
    let parts = [app, run_id, tool_use, backend, call.tool(), call.arguments.get()];
    let hash = hash_of(parts.into_iter().chain(asked));
    let digest = hex(&hash.chain_update([u8::from(run.is_some())]).finalize());
    // 96 bits: short enough for a line of a terminal, and too many to try.
    format!("apr_{}", digest.get(..24).unwrap_or(&digest)).into()
}

/// How long to wait for a decision about a call that has `left` until its deadline: a call that is
/// approved in the last moment should still have time to run.
pub fn patience(left: Duration) -> Duration {
    left - LEAST_REMAINING.min(left / 2)
}

/// The model's answer for a call that a person has denied.
pub fn denied(name: &str, reason: Option<&str>) -> String {
    match reason {
        Some(why) => sentences::call_denied_because(name, why),
        None => sentences::call_denied(name),
    }
}

/// What the model is told beside the error of a call if too many calls wait to ask a person what
/// its server asks, or that is too long.
pub const NOT_PUT: &str = "The tool's server had asked the user a question, which was put to \
                           nobody: it is too long, or too many calls of the app wait for a person.";

/// The same, if a person was asked and gave no answer.
pub fn unanswered(outcome: Outcome, reason: Option<&str>) -> Option<String> {
    let put = "The tool's server had asked the user a question, which was put to a person";
    let reason = reason.map(|reason| format!(" The reason: {reason}")).unwrap_or_default();
    match outcome {
        Outcome::Expired => Some(format!("{put}; nobody answered it in time.")),
        Outcome::Denied => Some(format!("{put} and declined.{reason}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Who is asked about what, and what an id stands for.

    use crate::model::maps::HashSet;

    use serde_json::value::RawValue;

    use super::*;
    use crate::model::call::CallingRun;
    use crate::model::event::Call;
    use crate::model::ids::BackendName;
    use crate::model::offer::RefKind;
    use crate::model::own::Own;

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

    /// A policy, a call, and whether a person is asked about it.
    struct Case {
        globs: &'static [&'static str],
        /// Whether the policy has the word `destructive`.
        word: bool,
        target: Target,
        /// What the server says of its tool.
        destroys: bool,
        asks: bool,
    }

    fn cases() -> [Case; 13] {
        [
            Case { globs: &[], word: false, target: tool("write"), destroys: true, asks: false },
            Case { globs: &["*"], word: false, target: tool("write"), destroys: false, asks: true },
            Case {
                globs: &["write_*", "rm"],
                word: false,
                target: tool("rm"),
                destroys: false,
                asks: true,
            },
            Case {
                globs: &["write_*", "rm"],
                word: false,
                target: tool("rmdir"),
                destroys: true,
                asks: false,
            },
            Case {
                globs: &["fs_*"],
                word: false,
                target: tool("write"),
                destroys: true,
                asks: false,
            },
            Case {
                globs: &["a/*"],
                word: false,
                target: tool("a/b/c"),
                destroys: false,
                asks: true,
            },
            Case { globs: &[], word: true, target: tool("write"), destroys: true, asks: true },
            Case { globs: &[], word: true, target: tool("read"), destroys: false, asks: false },
            Case {
                globs: &["read"],
                word: true,
                target: tool("read"),
                destroys: false,
                asks: true,
            },
            // An agent's tool has no name of its own.
            Case { globs: &["fs"], word: false, target: tool(""), destroys: false, asks: true },
            Case { globs: &["hr"], word: false, target: tool(""), destroys: false, asks: false },
            // Nothing of theirs is called.
            Case { globs: &["*"], word: true, target: Target::Stub, destroys: true, asks: false },
            Case {
                globs: &["*"],
                word: true,
                target: Target::Own(Own::Call),
                destroys: true,
                asks: false,
            },
        ]
    }

    #[test]
    fn globs_are_of_the_peers_own_names_and_the_word_is_of_what_it_says() {
        for Case { globs, word, target, destroys, asks } in cases() {
            let told = format!("{globs:?} {word} {target:?} {destroys}");
            let route = route(target, destroys);
            assert_eq!(policy(globs, word).asks(&route, "{}").is_some(), asks, "{told}");
        }
        assert_eq!(Policy::default().asks(&route(tool("x"), true), "{}"), None);
    }

    #[test]
    fn an_id_is_of_one_call_with_its_exact_arguments() {
        let call = |[app, tool_use, tool, arguments]: [&str; 4], run: Option<&str>| {
            let run = run.map(|run| CallingRun {
                workspace: "acme".into(),
                run: run.into(),
                session: None,
            });
            let args = RawValue::from_string(arguments.to_owned()).unwrap();
            let (tool_use, name) = (tool_use.into(), "n".to_owned());
            let call = Call { tool_use, agent_run: None, name, kind: None, args, mcp_server: None };
            CallRequest::new(app.into(), run, call, route(self::tool(tool), false))
        };
        let of = |parts: [&str; 4], run| id(&call(parts, run), ["", ""]).to_string();
        let one = ["a", "t", "w", r#"{"n":1}"#];
        let asks = |asked| id(&call(one, Some("r")), asked).to_string();
        let mut elsewhere = call(one, Some("r"));
        elsewhere.route.backend = BackendName::parse("c").unwrap();
        let all = [
            of(one, Some("r")),
            of(one, None),
            of(one, Some("")),
            of(["b", "t", "w", one[3]], Some("r")),
            of(["a", "u", "w", one[3]], Some("r")),
            of(["a", "t", "x", one[3]], Some("r")),
            of(["a", "t", "w", r#"{"n":1.0}"#], Some("r")),
            of(["a", "t", "w", r#"{"n": 1}"#], Some("r")),
            // The same letters, cut elsewhere.
            of(["ar", "t", "w", one[3]], Some("")),
            id(&elsewhere, ["", ""]).to_string(),
            id(&call(one, None), ["", "1"]).to_string(),
            asks(["{}", "1"]),
            asks(["{}", "2"]),
            asks(["{ }", "1"]),
        ];
        let ids: HashSet<&String> = all.iter().collect();
        assert_eq!(ids.len(), all.len(), "{all:?}");
        assert_eq!(all[0], of(one, Some("r")), "after a restart, too");
        assert!(all[0].starts_with("apr_") && all[0].len() == 28, "{}", all[0]);
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
            sentences::approval_expired("fs_rm"),
            sentences::too_many_approvals("fs_rm"),
            sentences::shutdown_before_call("fs_rm"),
        ] {
            assert!(text.contains("`fs_rm`") && text.contains("not made"), "{text}");
            assert_eq!(text.contains(reason), text.contains("The reason"), "{text}");
        }
    }
}
