//! Runs for tests.

use bytes::Bytes;

use super::*;
use crate::config::Credential;
use crate::journal::record::Slot;
use crate::model::RunKind;
use crate::state_dir::StateDir;

/// The credential of all runs.
pub fn credential() -> UpstreamCredential {
    let url = "http://127.0.0.1:1/".parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    let upstream = Upstream::new(url, None, &Credential::Own("token".into()), state);
    upstream.own().unwrap()
}

/// A run with one event.
pub fn run(credential: UpstreamCredential, id: &str, room: &Room) -> Arc<DrivenRun> {
    let new = NewRun {
        key: RunKey { workspace: "acme".into(), kind: RunKind::Agent, run: id.into() },
        app: "a".into(),
        session: None,
        credential,
        table: Arc::new(Table::empty()),
        prompt: Box::default(),
        has_past: false,
        past_is_lost: false,
        trace: Context::default(),
    };
    let run = Arc::new(DrivenRun::new(Slot(1), new, room));
    run.log.push(Some(1), Bytes::from_static(b"data: x\n\n"));
    run
}
