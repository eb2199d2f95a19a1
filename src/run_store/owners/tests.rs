//! Who owns what, who is pushed out, and who makes a call.

use super::*;
use crate::journal::Journal;

fn run(id: &str) -> Owned {
    Owned::Run(RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: id.into() })
}

fn eval() -> How {
    How::OfEval("eval_1".into())
}

#[test]
fn owned_run_stays_owned() {
    let other_eval = || How::OfEval("eval_2".into());
    struct Case {
        first: How,
        app: &'static str,
        then: How,
        expected: bool,
    }
    for Case { first, app, then, expected } in [
        Case { first: How::Created, app: "a", then: How::Created, expected: true },
        Case { first: How::Created, app: "a", then: How::Attached, expected: true },
        Case { first: How::Created, app: "b", then: How::Created, expected: false },
        Case { first: How::Created, app: "b", then: How::Attached, expected: false },
        Case { first: How::Created, app: "b", then: eval(), expected: false },
        // The app has its own driver for it.
        Case { first: How::Created, app: "a", then: eval(), expected: false },
        Case { first: How::Attached, app: "b", then: How::Attached, expected: false },
        Case { first: How::Attached, app: "b", then: How::Created, expected: true },
        Case { first: How::Attached, app: "b", then: eval(), expected: true },
        Case { first: How::Attached, app: "a", then: eval(), expected: true },
        Case { first: eval(), app: "a", then: eval(), expected: true },
        Case { first: eval(), app: "a", then: other_eval(), expected: true },
        Case { first: eval(), app: "a", then: How::Attached, expected: false },
        Case { first: eval(), app: "b", then: How::Attached, expected: false },
        Case { first: eval(), app: "b", then: eval(), expected: false },
    ] {
        let told = format!("{first:?}, then {app} {then:?}");
        let mut owners = Owners::default();
        owners.own(run("r"), &"a".into(), first.clone(), 1).expect("nobody has it");
        assert_eq!(owners.own(run("r"), &app.into(), then, 2).is_ok(), expected, "{told}");
        let owner = owners.get(&run("r")).expect("it has an owner").app.as_str();
        assert_eq!(owner, if expected { app } else { "a" }, "{told}");
    }
}

#[test]
fn the_journal_knows_a_thing_by_one_spelling() {
    let mut owners = Owners::default();
    owners.own(run("r"), &"a".into(), How::Attached, 1).expect("nobody has it");
    let taken = owners.own(run("R"), &"b".into(), How::Attached, 2);
    assert!(taken.is_err(), "it is the same run");
    let changes = owners.own(run("R"), &"b".into(), How::Created, 2).expect("its creator");
    assert!(matches!(&changes[..], [Change::Owner((_, _, id), _)] if id == "r"), "{changes:?}");
}

#[test]
fn an_app_pushes_out_its_own_alone() {
    let mut owners = Owners::default();
    let session = Owned::Session("acme".into(), "s".into());
    for (owned, app) in [(run("of_b"), "b"), (session.clone(), "a"), (run("first"), "a")] {
        owners.own(owned, &app.into(), How::Created, 1).expect("nobody has it");
    }
    let mut forgotten = Vec::new();
    for number in 0..KEEP_OWNED {
        let changes = owners.own(run(&number.to_string()), &"a".into(), How::Created, 2);
        forgotten.extend(changes.expect("nobody has it").into_iter().skip(1));
    }
    assert!(owners.get(&run("first")).is_none() && owners.get(&run("0")).is_some());
    assert!(owners.get(&run("of_b")).is_some() && owners.get(&session).is_some());
    let [Change::Forget(Key::Owner((_, kind, id)))] = forgotten.as_slice() else {
        panic!("{forgotten:?}")
    };
    assert_eq!((kind.as_str(), id.as_str()), ("agent-runs", "first"));
}

/// However many apps there are, their owners take no more of the journal than they may.
#[tokio::test]
async fn owners_of_all_apps_have_a_share_of_the_journal() {
    let long = "x".repeat(400);
    let mut owners = Owners::default();
    let mut kept = HashMap::default();
    let mut own = |app: usize, id: usize| {
        let app = AppName::from(format!("app_{app}").as_str());
        for change in owners.own(run(&format!("{id}_{app}_{long}")), &app, How::Created, 1).unwrap()
        {
            match change {
                Change::Owner(key, record) => drop(kept.insert(key, record)),
                Change::Forget(Key::Owner(key)) => drop(kept.remove(&key)),
                other => panic!("{other:?}"),
            }
        }
    };
    own(0, 0);
    for id in 0..2_000 {
        (1..30).for_each(|app| own(app, id));
    }
    let of = |app: &str| kept.values().filter(|record| record.app.as_str() == app).count();
    assert_eq!(of("app_0"), 1, "it has taken less than its share");
    let others = [of("app_1"), of("app_29")];
    assert!(others[0].abs_diff(others[1]) <= 10, "the others have lost alike: {others:?}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    for _ in 0..2 {
        let (journal, _) = Journal::open(&path, false).unwrap();
        let changes = kept.clone().into_iter().map(|(key, owner)| Change::Owner(key, owner));
        journal.commit(changes.collect()).await.unwrap();
        journal.close();
    }
    let (journal, _) = Journal::open(&path, false).unwrap();
    let bytes = usize::try_from(journal.health().bytes).unwrap();
    assert!((room::OWNERS / 2..=room::OWNERS).contains(&bytes), "{bytes}");
}

#[test]
fn kept_owner_is_restored() {
    let all = [
        (run("r"), How::Created),
        (run("q"), How::Attached),
        (run("p"), eval()),
        (Owned::Session("acme".into(), "s".into()), How::Created),
        (task("t"), How::OfMessage("m".to_owned())),
        (Owned::OfAgent(AgentThing::context(&agent(), "c")), How::Attached),
    ];
    for (owned, how) in all {
        let mut owners = Owners::default();
        let changes = owners.own(owned.clone(), &"a".into(), how.clone(), 7);
        let changes = changes.expect("nobody has it");
        let [Change::Owner(key, record)] = changes.as_slice() else { panic!("{changes:?}") };
        let read = Owned::restore(key).expect("of a known kind");
        let mut again = Owners::default();
        assert!(again.restore(read.clone(), record).is_empty(), "it is kept already");
        let owner = again.get(&owned).expect("it has an owner");
        assert_eq!((owner.app.as_str(), &owner.how, owner.since), ("a", &how, 7));
    }
}

#[test]
fn a_call_is_claimed_once_until_its_driver_is_forgotten() {
    let mut claims = Claims::default();
    let agent_run = |id: &str| ("acme".into(), RunId::from(id));
    assert!(claims.take(agent_run("r"), "t".into(), Slot(1)));
    assert!(claims.take(agent_run("r"), "t".into(), Slot(1)), "the same driver, restarted");
    assert!(!claims.take(agent_run("r"), "t".into(), Slot(2)));
    assert!(claims.take(agent_run("r"), "u".into(), Slot(2)));
    assert!(claims.take(agent_run("q"), "t".into(), Slot(2)), "of another agent run");
    claims.forget(Slot(1));
    assert!(claims.take(agent_run("r"), "t".into(), Slot(2)));
    claims.forget(Slot(2));
    assert!(claims.calls.is_empty() && claims.by_driver.is_empty());
}

fn agent() -> BackendName {
    BackendName::parse("hr").expect("a name")
}

fn task(id: &str) -> Owned {
    Owned::OfAgent(AgentThing::task(&agent(), id))
}

fn days(days: u64) -> Millis {
    days * 24 * 60 * 60 * 1000
}

#[test]
fn task_of_an_agent_belongs_to_the_first_app() {
    let mut owners = Owners::default();
    let by = |message: &str| How::OfMessage(message.to_owned());
    owners.own(task("t"), &"a".into(), by("m"), 1).expect("nobody has it");
    let taken = owners.own(task("t"), &"b".into(), by("n"), 2);
    assert!(taken.is_err_and(|owner| owner.app.as_str() == "a"));
    assert!(owners.own(task("t"), &"a".into(), by("n"), 2).expect("it is its own").is_empty());
    owners.own(task("T"), &"b".into(), by("n"), 2).expect("agents tell case apart");
    let context = || Owned::OfAgent(AgentThing::context(&agent(), "t"));
    owners.own(context(), &"b".into(), How::Attached, 2).expect("nobody has it");
    owners.own(context(), &"a".into(), How::Attached, 2).expect_err("it is another's");
    owners.own(task("u"), &"a".into(), by("o"), 3).expect("nobody has it");
    let tasks = |app: &str| -> Vec<(String, Option<String>)> {
        let (agent, app) = (agent(), AppName::from(app));
        let tasks = owners.tasks(&agent, &app);
        tasks.map(|task| (task.id.to_owned(), task.message.map(str::to_owned))).collect()
    };
    let listed = |id: &str, message: &str| (id.to_owned(), Some(message.to_owned()));
    assert_eq!(tasks("a"), [listed("u", "o"), listed("t", "m")], "the last one first");
    assert_eq!(tasks("b"), [listed("T", "n")]);
}

#[test]
fn task_of_an_agent_is_forgotten_a_month_after_its_last_use() {
    let mut owners = Owners::default();
    for id in ["used", "unused"] {
        owners
            .own(task(id), &"a".into(), How::OfMessage("m".to_owned()), 1)
            .expect("nobody has it");
    }
    owners.own(run("r"), &"a".into(), How::Created, 1).expect("nobody has it");
    assert!(owners.renew(&task("used"), days(1)).is_empty(), "it is noted once a day");
    let renewed = owners.renew(&task("used"), days(2));
    let [Change::Owner(_, record)] = renewed.as_slice() else { panic!("{renewed:?}") };
    assert!(record.since == days(2) && !record.attached && record.message.is_some(), "{record:?}");
    assert!(owners.expire(days(29)).is_empty());
    let expired = owners.expire(days(31));
    let [Change::Forget(Key::Owner((_, kind, id)))] = expired.as_slice() else {
        panic!("{expired:?}")
    };
    assert_eq!((kind.as_str(), id.as_str()), ("a2a-tasks", "unused"));
    assert!(owners.get(&task("used")).is_some() && owners.get(&run("r")).is_some());
    assert_eq!(owners.expire(days(33)).len(), 1);
    assert!(owners.get(&task("used")).is_none() && owners.get(&run("r")).is_some());
}
