//! What is forgotten of runs, and when.

mod panics;

use tokio::time::advance;

use super::{log::EventLog, *};
use crate::{config::Credential, model::ids::RunKind, state::StateDir};

/// A run with one event, which is put into `inner`.
fn run(inner: &mut Inner, id: &str, room: &Room) -> Arc<DrivenRun> {
    let url = "http://127.0.0.1:1/".parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    let upstream = Upstream::new(url, None, &Credential::Own("token".into()), state);
    let key = RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: id.into() };
    let new = NewRun {
        key: key.clone(),
        app: "a".into(),
        session: None,
        authority: upstream.own().unwrap(),
        table: Arc::new(Table::empty()),
        has_past: false,
        past_is_lost: false,
        trace: Context::default(),
    };
    let run = Arc::new(DrivenRun::new(Slot(1), new, room));
    run.log.push(Some(1), Bytes::from_static(b"data: x\n\n"));
    inner.runs.insert(key, Arc::clone(&run));
    run
}

#[tokio::test(start_paused = true)]
async fn an_app_pushes_out_its_own_ended_runs_alone() {
    let now = Instant::now();
    let apps: [AppName; 2] = ["a".into(), "b".into()];
    let [a, b] = &apps;
    let of_a = (0..5).map(|number| (a, (now + Duration::from_secs(number), number)));
    let of_b = (5..7).map(|number| (b, (now, number)));
    assert_eq!(beyond(3, of_a.chain(of_b)), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn where_room_is_scarce_the_events_of_ended_runs_are_forgotten() {
    let (room, mut inner) = (Room::default(), Inner::default());
    let [ended, driven] = ["ended", "driven"].map(|id| run(&mut inner, id, &room));
    ended.set_ended();
    inner.sweep(Instant::now(), &room);
    assert!(ended.log.after(0).is_some(), "an app may yet come for them");

    let large = EventLog::new(&room);
    large.push(Some(1), Bytes::from(vec![b'x'; 65 << 20]));
    advance(Duration::from_secs(10)).await;
    inner.sweep(Instant::now(), &room);
    assert!(ended.log.after(0).is_none(), "MANTYX has them");
    assert!(driven.log.after(0).is_some());
    assert_eq!(inner.runs.len(), 2, "whose the runs are is known all the same");
}

#[tokio::test(start_paused = true)]
async fn what_apps_put_into_sessions_is_bounded() {
    let mut inner = Inner::default();
    for number in 0..3 {
        let session = Session {
            app: "a".into(),
            tools: (number != 1).then(|| Bytes::from(vec![b' '; 3 << 20])),
            selection: Selection::All,
            table: Arc::new(Table::empty()),
            created_at: journal::now(),
            created: Instant::now(),
        };
        let key = ("acme".into(), SessionId::from(format!("s{number}")));
        inner.sessions.insert(key, Arc::new(session));
        advance(Duration::from_secs(1)).await;
    }
    // Of two apps, each has 8 MiB.
    let (a, b) = ("a".into(), "b".into());
    assert_eq!(inner.make_room_for_tools(&a, 2 << 20, 2).len(), 0);
    assert_eq!(inner.make_room_for_tools(&b, 8 << 20, 2).len(), 0, "that of others stays");
    let forgotten = inner.make_room_for_tools(&a, 3 << 20, 2);
    assert!(
        matches!(&forgotten[..], [Change::ForgetSession((_, id))] if id == "s0"),
        "the oldest that has tools: {forgotten:?}"
    );
    assert_eq!(inner.sessions.len(), 2);
}
