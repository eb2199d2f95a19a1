//! What is forgotten of runs, and when.

mod at_once;
mod harness;
mod panics;
mod questions;
mod shares;
mod unwanted;

use tokio::time::advance;

use super::*;
use crate::clock;
use crate::model::ids::RunKind;
use crate::runs::Access;
use crate::runs::log::{EventLog, Room};
use crate::runs::tests::credential;
use crate::upstream::UpstreamCredential;

/// A run with one event, which is put into `inner`.
fn run(inner: &mut Inner, id: &str, room: &Room) -> Arc<DrivenRun> {
    run_with(credential(), inner, id, room)
}

fn run_with(
    credential: UpstreamCredential,
    inner: &mut Inner,
    id: &str,
    room: &Room,
) -> Arc<DrivenRun> {
    let run = crate::runs::tests::run(credential, id, room);
    inner.runs.insert(run.key.clone(), Arc::clone(&run));
    run
}

#[tokio::test(start_paused = true)]
async fn events_of_ended_runs_are_forgotten_where_room_is_scarce() {
    let (room, mut inner) = (Room::default(), Inner::default());
    let [ended, driven] = ["ended", "driven"].map(|id| run(&mut inner, id, &room));
    ended.set_ended();
    inner.sweep(Instant::now(), &room);
    assert!(ended.log.after(0).is_some(), "an app may yet come for them");

    let large: Vec<EventLog> = (0..69).map(|_| EventLog::new(&room)).collect();
    large.iter().for_each(|log| log.push(Some(1), Bytes::from(vec![b'x'; 1_000_000])));
    advance(Duration::from_secs(10)).await;
    inner.sweep(Instant::now(), &room);
    assert!(ended.log.after(0).is_none(), "MANTYX has them");
    assert!(driven.log.after(0).is_some());
    assert_eq!(inner.runs.len(), 2, "whose the runs are is known all the same");
}

#[tokio::test(start_paused = true)]
async fn the_events_of_an_ended_run_are_kept_for_a_minute_or_its_reader() {
    let (room, mut inner) = (Room::default(), Inner::default());
    let [ended, read] = ["ended", "read"].map(|id| run(&mut inner, id, &room));
    for run in [&ended, &read] {
        run.log.push(Some(1), Bytes::from("x"));
        run.set_ended();
    }
    let reader = read.log.subscribe();
    advance(KEEP_EVENTS).await;
    inner.sweep(Instant::now(), &room);
    assert!(ended.log.after(0).is_some());
    advance(Duration::from_secs(1)).await;
    inner.sweep(Instant::now(), &room);
    assert!(ended.log.after(0).is_none() && read.log.after(0).is_some());
    drop(reader);
    inner.sweep(Instant::now(), &room);
    assert!(read.log.after(0).is_none());
}

#[tokio::test(start_paused = true)]
async fn given_up_run_is_remembered_as_long_as_its_owner() {
    let (room, mut inner) = (Room::default(), Inner::default());
    let ids = ["ended", "given_up", "nobodys"];
    let [ended, given_up, nobodys] = ids.map(|id| run(&mut inner, id, &room));
    for run in [&ended, &given_up] {
        let owned = Owned::Run(run.key.clone());
        inner.own(owned, &run.app, How::Attached).expect("nobody has it");
    }
    ended.set_ended();
    given_up.give_up();
    nobodys.give_up();
    advance(KEEP_ENDED).await;
    inner.sweep(Instant::now(), &room);
    let known: Vec<_> = inner.runs.keys().map(|key| key.run.as_str()).collect();
    assert_eq!(known, ["given_up"], "its calls could be made again");
}

#[tokio::test(start_paused = true)]
async fn many_ended_runs_push_out_none_that_was_given_up() {
    let (room, mut inner, credential) = (Room::default(), Inner::default(), credential());
    let mut add = |id: &str| run_with(credential.clone(), &mut inner, id, &room);
    add("given_up").give_up();
    add("first").set_ended();
    advance(Duration::from_secs(1)).await;
    for number in 0..KEEP_RUNS {
        add(&number.to_string()).set_ended();
    }
    let forgotten = inner.sweep(Instant::now(), &room);
    assert_eq!(forgotten.len(), 1);
    let is_known = |id: &str| inner.runs.contains_key(&harness::key(id));
    assert!(is_known("given_up") && is_known("0") && !is_known("first"));
}

#[tokio::test]
async fn a_stream_that_is_open_stays_so_when_another_credential_is_accepted() {
    let (room, mut inner) = (Room::default(), Inner::default());
    let run = run(&mut inner, "run", &room);
    run.access.send_replace(Access::Open);
    run.expect_attempt();
    assert!(matches!(run.access(), Access::Open));
    run.note_failure(crate::upstream::OpenError::Unreachable("nobody".to_owned()));
    run.expect_attempt();
    assert!(matches!(run.access(), Access::Untried));
}

#[tokio::test(start_paused = true)]
async fn content_of_sessions_is_bounded() {
    let mut inner = Inner::default();
    let add = |inner: &mut Inner, app: &str, number: usize, mib: usize| {
        let session = Session {
            app: app.into(),
            tools: (mib > 0).then(|| Bytes::from(vec![b' '; mib << 20])),
            selection: Selection::All,
            table: Arc::new(Table::empty()),
            created_at: clock::millis(),
            created: Instant::now(),
        };
        let key = ("acme".into(), SessionId::from(format!("s{number}")));
        inner.sessions.insert(key, Arc::new(session));
    };
    for (number, mib) in [3, 0, 3].into_iter().enumerate() {
        add(&mut inner, "a", number, mib);
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(inner.make_room_for_sessions().len(), 0, "all apps together have 8 MiB");
    add(&mut inner, "b", 3, 3);
    let forgotten = inner.make_room_for_sessions();
    assert!(
        matches!(&forgotten[..], [Change::Forget(Key::Session((_, id)))] if *id == "s0".into()),
        "of the app that has most, the oldest with tools: {forgotten:?}"
    );
    add(&mut inner, "c", 4, 9);
    let forgotten = inner.make_room_for_sessions();
    assert!(
        matches!(&forgotten[..], [Change::Forget(Key::Session((_, id)))] if *id == "s4".into()),
        "no app pushes out another's: {forgotten:?}"
    );
    assert_eq!(inner.sessions.len(), 3);
}
