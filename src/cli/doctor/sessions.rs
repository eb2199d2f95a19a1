//! Which programs MCP clients with sessions use at the running daemon: such a client may expect
//! that its server keeps something between calls, and a program that is ended while it is idle does
//! not.
//!
//! Must not: fail where no daemon runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::time::timeout;

use crate::cli::{Client, Place};
use crate::clock;
use crate::config::{Contact, Environment};

/// A call that is older than this says nothing about the present use.
const RECENT: Duration = Duration::from_secs(60 * 60);
/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The backends that a session has used within the hour, and how long ago. Empty if the daemon
/// cannot be asked.
pub(super) async fn recent(path: &Path, env: &Environment) -> BTreeMap<String, Duration> {
    let request = async {
        let contact = Contact::load(path, env, None).ok()?;
        let client = Client::new(&Place::Configured(Box::new(contact))).ok()?;
        client.get("/v1/backends", client.operator()).await.ok()
    };
    let answer = timeout(PATIENCE, request).await.ok().flatten().unwrap_or_default();
    uses(&answer, clock::now())
}

fn uses(answer: &str, now: SystemTime) -> BTreeMap<String, Duration> {
    let list: Value = serde_json::from_str(answer).unwrap_or_default();
    let mut recent = BTreeMap::new();
    for backend in list["backends"].as_array().into_iter().flatten() {
        let time = backend["lastSessionCall"].as_str().unwrap_or_default();
        let Ok(last_call) = humantime::parse_rfc3339(time) else { continue };
        let ago = now.duration_since(last_call).unwrap_or_default();
        if ago < RECENT {
            recent.insert(backend["name"].as_str().unwrap_or_default().to_owned(), ago);
        }
    }
    recent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_the_last_hour_count() {
        let now = humantime::parse_rfc3339("2026-11-28T12:00:00Z").unwrap();
        let answer = r#"{"backends":[
            {"name":"a","lastSessionCall":"2026-11-28T11:50:00Z"},
            {"name":"b","lastSessionCall":"2026-11-28T10:50:00Z"},
            {"name":"c","lastSessionCall":null}]}"#;
        let expected = BTreeMap::from([("a".to_owned(), Duration::from_secs(600))]);
        assert_eq!(uses(answer, now), expected);
        assert_eq!(uses("no JSON", now), BTreeMap::new());
    }
}
