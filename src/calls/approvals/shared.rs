//! Approvals among replicas: what waits at one of them is shown at all, and each takes decisions.
//!
//! Must not: have an effect on a call; its own replica has, by the decision that was first.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tracing::{debug, warn};
use uuid::Uuid;

use super::{Approval, Approvals, Decision, Undecidable};
use crate::calls::Calls;
use crate::clock;
use crate::error_chain::error_chain;
use crate::journal::{DatabaseError, Replica, SharedApproval};
use crate::model::AppName;
use crate::model::approval::Outcome;
use crate::model::maps::HashSet;

/// How often replicas look at what waits.
const LOOK: Duration = Duration::from_secs(1);

/// The questions that this replica has shown to the group, each with the id of its holder there.
type SharedHolders = BTreeMap<String, Uuid>;

impl Calls {
    /// Has this replica look at what waits at others, if the question `id` is not known here:
    /// another replica may have listed it a moment ago. Without the look, a person who decides at
    /// once would hear that there is no such question.
    pub async fn look_for_approval(&self, id: &str) {
        if let Some(replica) = self.journal.replica()
            && self.approvals.get(None, id).is_none()
        {
            // Without an answer of the database, the question stays unknown.
            self.approvals.look(replica).await.ok();
        }
    }

    /// Takes what a person says about the question `id` of `app`, or of any app. Among replicas,
    /// the first decision that is durable counts, whichever of them took it.
    pub async fn decide_approval(
        &self,
        app: Option<&AppName>,
        id: &str,
        decision: Decision,
    ) -> Result<Approval, Undecidable> {
        match self.journal.replica() {
            None => self.approvals.decide(app, id, decision),
            Some(replica) => self.approvals.decide_with(replica, app, id, decision).await,
        }
    }
}

impl Approvals {
    /// Shows the group what waits here, and takes what its replicas have decided, for as long as it
    /// is polled.
    pub async fn share(&self, replica: &Replica) {
        let mut holders = SharedHolders::new();
        loop {
            // The keeper tells the operator that the database is away.
            if let Err(error) = self.exchange(replica, &mut holders).await {
                debug!(error = error_chain(&error), "approvals are not shared now");
            }
            timeout(LOOK, self.news.notified()).await.ok();
        }
    }

    /// Shows the group the new questions of this replica, and the ends of those that no longer
    /// wait, and takes the group's news. A question that ended while the database was away is ended
    /// there at the next exchange. Otherwise the other replicas would show it for ever, and a
    /// decision on it would be lost.
    async fn exchange(
        &self,
        replica: &Replica,
        holders: &mut SharedHolders,
    ) -> Result<(), DatabaseError> {
        let waiting = self.own();
        for approval in &waiting {
            let id = approval.id.as_str();
            if !holders.contains_key(id)
                && let Some(holder) = replica.ask(id, &json(approval), approval.until).await?
            {
                holders.insert(id.to_owned(), holder);
            }
        }
        let own: HashSet<&str> = waiting.iter().map(|approval| approval.id.as_str()).collect();
        let over: Vec<_> = holders.extract_if(.., |id, _| !own.contains(id.as_str())).collect();
        for (id, holder) in over {
            let end = self
                .get(None, &id)
                .and_then(|approval| approval.ended)
                .unwrap_or_else(|| (clock::now(), Decision::none(Outcome::Withdrawn)));
            replica.end(&id, Some(holder), &json(&end)).await?;
        }
        self.look(replica).await
    }

    /// Looks at what waits at other replicas.
    async fn look(&self, replica: &Replica) -> Result<(), DatabaseError> {
        let ids: Vec<String> = {
            let inner = self.inner.lock();
            let own = inner.waiting.values().map(|waiting| waiting.approval.id.to_string());
            let others = inner.others.keys().chain(&inner.unreadable).cloned();
            others.chain(own).collect()
        };
        let id_texts: Vec<&str> = ids.iter().map(String::as_str).collect();
        self.learn(replica.approvals(&id_texts).await?);
        Ok(())
    }

    fn own(&self) -> Vec<Approval> {
        self.inner.lock().waiting.values().map(|waiting| waiting.approval.clone()).collect()
    }

    /// Takes over what the group knows.
    ///
    /// Of a question that waits here, only a person's decision counts. Its end by timeout or
    /// withdrawal is decided here alone: another replica's clock must not deny a call of this one.
    fn learn(&self, shared: Vec<SharedApproval>) {
        let mut changed = Vec::new();
        let mut decided = Vec::new();
        {
            let mut inner = self.inner.lock();
            let mut before = std::mem::take(&mut inner.others);
            let unreadable_before = std::mem::take(&mut inner.unreadable);
            for SharedApproval { id, asked, ended, by_person } in shared {
                let mut waiting = inner.waiting.iter();
                let own = waiting.find(|(_, waiting)| waiting.approval.id.as_str() == id);
                if let Some((number, _)) = own {
                    if by_person && let Some(text) = ended {
                        decided.push((*number, end(&id, &text).1));
                    }
                    continue;
                }
                match (before.remove(&id), ended) {
                    (Some(approval), None) => drop(inner.others.insert(id, approval)),
                    (Some(mut approval), Some(text)) => {
                        let (at, decision) = end(&id, &text);
                        approval.ends(at, decision);
                        changed.push(approval.change());
                        inner.remember(approval);
                    }
                    (None, None) if unreadable_before.contains(&id) => {
                        inner.unreadable.insert(id);
                    }
                    (None, None) => {
                        let Some(text) = asked else { continue };
                        let Some(new) = read::<Approval>(&id, &text) else {
                            inner.unreadable.insert(id);
                            continue;
                        };
                        changed.push(new.change());
                        inner.others.insert(id, new);
                    }
                    (None, Some(_)) => {}
                }
            }
        }
        for (number, decision) in decided {
            self.end(number, decision);
        }
        for change in changed {
            self.changes.tell(|| change);
        }
    }

    /// [`Self::decide`] among replicas: the first decision that is durable counts.
    ///
    /// The database takes one end of a question. Without it, two people at two replicas could each
    /// be told that their decision counts. A question that waits here is shown to the group first,
    /// as the database has no end for a question that it does not know.
    async fn decide_with(
        &self,
        replica: &Replica,
        app: Option<&AppName>,
        id: &str,
        decision: Decision,
    ) -> Result<Approval, Undecidable> {
        let mut approval = self.get(app, id).ok_or(Undecidable::Unknown)?;
        if approval.ended.is_some() {
            return Err(Undecidable::Ended(Box::new(approval)));
        }
        approval.takes(&decision)?;
        let is_own = self.own().iter().any(|own| own.id == approval.id);
        if is_own {
            replica.ask(id, &json(&approval), approval.until).await.map_err(Undecidable::Away)?;
        }
        let at = clock::now();
        let text = json(&(at, &decision));
        let before = replica.end(id, None, &text).await.map_err(Undecidable::Away)?;
        if before == Some(None) {
            if is_own {
                return self.decide(app, id, decision);
            }
            approval.ends(at, decision);
            return Ok(approval);
        }
        let first_end = before.flatten().map(|text| end(id, &text));
        let (ended_at, first_decision) =
            first_end.unwrap_or_else(|| (at, Decision::none(Outcome::Withdrawn)));
        approval.ends(ended_at, first_decision);
        Err(Undecidable::Ended(Box::new(approval)))
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, times and JSON can be written")
}

/// When and how an approval ended. An end that cannot be read is a denial: a later version may know
/// decisions that this one does not, and none of them may have the call made here.
fn end(id: &str, text: &[u8]) -> (SystemTime, Decision) {
    read(id, text).unwrap_or_else(|| (clock::now(), Decision::none(Outcome::Denied)))
}

/// Reads what a replica has written, which may be of a later version.
fn read<T: DeserializeOwned>(id: &str, text: &[u8]) -> Option<T> {
    serde_json::from_slice(text)
        .inspect_err(|error| warn!(%error, approval = id, "an approval cannot be read"))
        .ok()
}

#[cfg(test)]
mod tests {
    //! What replicas of other versions ask and decide.

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::backend::fake::request_of;

    /// A question as the first version with replicas wrote it.
    const EARLIER: &str = r#"{"id":"ID","app":"a","run":"r","tool_use":"tu_1","name":"fs_rm","backend":"fs","tool":"rm","arguments":{"n" : 1e400},"is_question":false,"question":null,"digest":"d","since":{"secs_since_epoch":1,"nanos_since_epoch":0},"until":{"secs_since_epoch":9,"nanos_since_epoch":0},"ended":null}"#;

    fn shared(text: Option<&str>, ended: Option<&str>) -> SharedApproval {
        SharedApproval {
            id: "ID".to_owned(),
            asked: text.map(|text| text.as_bytes().to_vec()),
            ended: ended.map(|text| text.as_bytes().to_vec()),
            by_person: true,
        }
    }

    #[test]
    fn question_of_another_version_is_shown_as_far_as_it_can_be_read() {
        struct Case {
            name: &'static str,
            text: String,
            is_shown: bool,
        }
        let with = |from: &str, to: &str| EARLIER.replacen(from, to, 1);
        for Case { name, text, is_shown } in [
            Case {
                name: "an earlier one, before `asked_again`",
                text: EARLIER.to_owned(),
                is_shown: true,
            },
            Case {
                name: "one with a member that is not known",
                text: with("\"digest\"", "\"later\":[1],\"digest\""),
                is_shown: true,
            },
            Case {
                name: "one in another form",
                text: with("\"tool\":\"rm\"", "\"tool\":[\"rm\"]"),
                is_shown: false,
            },
        ] {
            let approvals = Approvals::default();
            approvals.learn(vec![shared(Some(&text), None)]);
            assert_eq!(approvals.get(None, "ID").is_some(), is_shown, "{name}");
            // The database is not asked for its text again, and the log tells of it once.
            let unreadable = || approvals.inner.lock().unreadable.contains("ID");
            assert_eq!(unreadable(), !is_shown, "{name}");
            approvals.learn(vec![shared(None, None)]);
            assert_eq!(approvals.get(None, "ID").is_some(), is_shown, "{name}");
            assert_eq!(unreadable(), !is_shown, "{name}");
            approvals.learn(Vec::new());
            assert!(!unreadable(), "{name}");
        }
    }

    #[test]
    fn decision_of_another_version_approves_only_where_it_can_be_read() {
        struct Case {
            name: &'static str,
            decision: serde_json::Value,
            expected: Outcome,
        }
        for Case { name, decision, expected } in [
            Case {
                name: "an earlier approval",
                decision: json!({ "outcome": "approved", "content": null, "by": "operator", "reason": null }),
                expected: Outcome::Approved,
            },
            Case {
                name: "an approval with a member that is not known",
                decision: json!({ "outcome": "approved", "by": "operator", "until": 9 }),
                expected: Outcome::Approved,
            },
            Case {
                name: "an outcome that is not known",
                decision: json!({ "outcome": "approved_for_the_run", "by": "operator" }),
                expected: Outcome::Denied,
            },
        ] {
            let at = json!({ "secs_since_epoch": 5, "nanos_since_epoch": 0 });
            let end = json!([at, decision]).to_string();
            let elsewhere = Approvals::default();
            elsewhere.learn(vec![shared(Some(EARLIER), None)]);
            elsewhere.learn(vec![shared(None, Some(&end))]);
            let there = elsewhere.get(None, "ID").expect(name);
            assert_eq!(there.outcome(), Some(expected), "{name}");

            let here = Approvals::default();
            let call = request_of("run_1", None, "rm", "{}");
            let deadline = Instant::now() + Duration::from_secs(60);
            let question = here.ask(&call, None, deadline).expect("there is room");
            let id = here.own()[0].id.as_str().to_owned();
            here.learn(vec![SharedApproval { id: id.clone(), ..shared(None, Some(&end)) }]);
            let own = here.get(None, &id).expect(name);
            assert_eq!(own.outcome(), Some(expected), "{name}");
            drop(question);
        }
    }
}
