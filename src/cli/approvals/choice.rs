//! Which approval a person means by an id, by its first characters, or by none. Pure.
//!
//! Must not: choose one of several.

use super::subject;
use crate::cli::terminal::one_line;
use crate::cli::{Failure, Outcome};
use crate::http::api::approvals::Shown;

/// What every id begins with; a person may leave it out.
const PREFIX: &str = "apr_";

/// What a person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Approve,
    Answer,
    Deny,
}

impl Choice {
    /// The decision's word in the daemon's API, and the subcommand's name.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Answer => "answer",
            Self::Deny => "deny",
        }
    }

    /// What a person is asked who has been shown what it is about.
    pub(super) fn question(self) -> &'static str {
        match self {
            Self::Approve => "Have this call made? ",
            Self::Answer => "Send this answer? ",
            Self::Deny => "Deny this? ",
        }
    }

    /// Whether this can be decided about `approval`, by its kind.
    fn suits(self, approval: &Shown) -> bool {
        match self {
            Self::Approve => approval.kind == "call",
            Self::Answer => approval.kind == "question",
            Self::Deny => true,
        }
    }
}

/// The whole id of the approval that is meant. An id that no approval begins with is returned
/// unchanged: the daemon may know of it by now, and says so if not.
///
/// # Errors
///
/// Several may be meant, or nothing waits; the message lists those that do.
pub(super) fn whole_id(
    all: &[Shown],
    choice: Choice,
    id: Option<&str>,
    program: &str,
) -> Outcome<String> {
    let waiting = all.iter().filter(|approval| approval.state == "waiting");
    let Some(id) = id else {
        let candidates: Vec<&Shown> = waiting.filter(|approval| choice.suits(approval)).collect();
        return match candidates.as_slice() {
            [] => Err(nothing_waits(choice, program)),
            [approval] => Ok(approval.id.clone()),
            _ => Err(several("several wait for that", &candidates, choice, program)),
        };
    };
    if all.iter().any(|approval| approval.id == id) {
        return Ok(id.to_owned());
    }
    let candidates: Vec<&Shown> = waiting.filter(|approval| begins(approval, id)).collect();
    match candidates.as_slice() {
        [approval] => Ok(approval.id.clone()),
        [] => {
            // What has ended is named whole, for the daemon to say how it ended.
            let mut ended = all.iter().filter(|approval| begins(approval, id));
            match (ended.next(), ended.next()) {
                (Some(approval), None) => Ok(approval.id.clone()),
                _ => Ok(id.to_owned()),
            }
        }
        _ => {
            let what = format!("`{}` begins several ids", one_line(id));
            Err(several(&what, &candidates, choice, program))
        }
    }
}

/// Whether `start` is the first part of the approval's id.
fn begins(approval: &Shown, start: &str) -> bool {
    let number = approval.id.strip_prefix(PREFIX).unwrap_or(&approval.id);
    !start.is_empty() && (approval.id.starts_with(start) || number.starts_with(start))
}

fn nothing_waits(choice: Choice, program: &str) -> Failure {
    let what = match choice {
        Choice::Approve => "no call waits for approval",
        Choice::Answer => "no server of a call asks anything",
        Choice::Deny => "no call waits for a person",
    };
    Failure::Failed(format!("{what}; `{program} approvals --watch` shows what begins to wait"))
}

/// The refusal of what several approvals fit, with a line for each.
fn several(what: &str, candidates: &[&Shown], choice: Choice, program: &str) -> Failure {
    let mut text = format!("{what}; say which one:");
    for Shown { id, name, backend, app, arguments_text, .. } in candidates {
        let arguments = one_line(arguments_text.as_deref().unwrap_or_default());
        let about = one_line(&subject(name, backend));
        text += &format!("\n  {program} {} {id}  ({about}, app {app}: {arguments})", choice.verb());
    }
    Failure::Usage(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of approvals; each word is an id, its kind and its state.
    fn approvals(words: &[&str]) -> Vec<Shown> {
        let mut all = Vec::new();
        for word in words {
            let mut parts = word.split(' ');
            let mut part = || parts.next().expect("an id, a kind and a state");
            let (id, kind, state) = (part(), part(), part());
            let text = format!(
                r#"{{"id":"{id}","state":"{state}","kind":"{kind}","app":"a","runId":null,
                    "toolUseId":"u","tool":"","argumentsSha256":"","name":"fs_rm","backend":"fs",
                    "argumentsText":"{{}}","since":"","deadline":"","decidedAt":null,"reason":null}}"#
            );
            all.push(serde_json::from_str(&text).expect("an approval"));
        }
        all
    }

    struct Case {
        choice: Choice,
        id: Option<&'static str>,
        whole: &'static str,
    }

    #[test]
    fn id_is_cut_to_what_is_unique_or_left_out_where_one_waits() {
        let all = approvals(&[
            "apr_ab1 call waiting",
            "apr_ac1 question waiting",
            "apr_ab2 call denied",
            "apr_b call approved",
        ]);
        use Choice::{Answer, Approve, Deny};
        let cases = [
            Case { choice: Approve, id: None, whole: "apr_ab1" },
            Case { choice: Answer, id: None, whole: "apr_ac1" },
            Case { choice: Deny, id: Some("apr_ac"), whole: "apr_ac1" },
            Case { choice: Deny, id: Some("ab"), whole: "apr_ab1" },
            Case { choice: Deny, id: Some("apr_ab2"), whole: "apr_ab2" },
            Case { choice: Approve, id: Some("b"), whole: "apr_b" },
            Case { choice: Approve, id: Some("apr_zz"), whole: "apr_zz" },
            Case { choice: Approve, id: Some(""), whole: "" },
        ];
        for Case { choice, id, whole } in cases {
            match whole_id(&all, choice, id, "mantyx-bridge") {
                Ok(text) => assert_eq!(text, whole, "{choice:?} {id:?}"),
                Err(failure) => panic!("{id:?}: {failure:?}"),
            }
        }
    }

    #[test]
    fn ambiguous_id_is_refused_with_the_candidates() {
        let all = approvals(&["apr_ab1 call waiting", "apr_ab2 question waiting"]);
        for id in [Some("apr_ab"), None] {
            let refusal = whole_id(&all, Choice::Deny, id, "mantyx-bridge");
            let Err(Failure::Usage(text)) = refusal else { panic!("{refusal:?}") };
            for line in ["mantyx-bridge deny apr_ab1  (fs_rm of fs, app a: {})", "deny apr_ab2"] {
                assert!(text.contains(line), "{text}");
            }
        }
        let nothing = whole_id(&[], Choice::Approve, None, "mantyx-bridge");
        assert!(matches!(nothing, Err(Failure::Failed(text)) if text.contains("--watch")));
    }
}
