//! `mantyx-bridge approvals --watch`: each call as it begins to wait for a person, and what becomes
//! of it.
//!
//! Must not: decide, or end because the daemon is away.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::{list, subject, whole};
use crate::cli::page::{GOOD, PLAIN, Page};
use crate::cli::{
    Client, Failure, Outcome, Place, Stop, complain, print_json, print_page, waiting,
};
use crate::clock;
use crate::http::api::approvals::Shown;
use crate::model::maps::HashSet;

/// How often the approvals are read.
const EVERY: Duration = Duration::from_secs(1);

/// Shows what waits, until Ctrl-C.
pub(super) async fn watch(place: &Place, json: bool, program: &str) -> Outcome {
    let mut stop = Stop::new()?;
    let mut client = Client::new(place)?;
    let mut news = News::default();
    let first = list(&client).await?.approvals;
    if !first.iter().any(|approval| approval.state == "waiting") {
        complain("No call waits for a person yet; Ctrl-C ends this.");
    }
    show(news.take_first(first), json, program)?;
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    let mut away = false;
    loop {
        let look = async {
            tick.tick().await;
            list(&client).await
        };
        let answer = tokio::select! {
            () = stop.asked() => return Ok(()),
            answer = look => answer,
        };
        match answer {
            Ok(list) => {
                if away {
                    away = false;
                    tell_of_daemon("back", "the daemon is back", json)?;
                }
                show(news.take(list.approvals), json, program)?;
            }
            // The daemon may come back, with another port or token.
            Err(Failure::Failed(why)) => {
                if !away {
                    away = true;
                    tell_of_daemon("away", &format!("the daemon is away: {why}"), json)?;
                }
                client = Client::new(place).unwrap_or(client);
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Says that the daemon is away, or back: to a program on stdout, too.
fn tell_of_daemon(event: &str, message: &str, json: bool) -> Outcome {
    complain(message);
    if json {
        print_json(&format!("{}\n", json!({ "event": event, "message": message })))?;
    }
    Ok(())
}

/// Something that has happened to an approval.
#[derive(Debug)]
enum Event {
    Waits(Shown),
    Ended(Shown),
    /// The daemon does not list it any more.
    Lost(Shown),
}

/// What was shown so far.
#[derive(Debug, Default)]
struct News {
    waiting: BTreeMap<String, Shown>,
    /// The ids of ended approvals in the last list.
    ended: HashSet<String>,
}

impl News {
    /// The events of the first list: what ended before is no news.
    fn take_first(&mut self, list: Vec<Shown>) -> Vec<Event> {
        let ended = list.iter().filter(|approval| approval.state != "waiting");
        self.ended = ended.map(|approval| approval.id.clone()).collect();
        self.take(list)
    }

    /// What is new in `list`. An approval that came and ended between two looks is told, too.
    fn take(&mut self, list: Vec<Shown>) -> Vec<Event> {
        let mut events = Vec::new();
        let mut waiting = BTreeMap::new();
        let mut ended = HashSet::default();
        for approval in list {
            let id = approval.id.clone();
            if approval.state == "waiting" {
                if !self.waiting.contains_key(&id) {
                    events.push(Event::Waits(approval.clone()));
                }
                waiting.insert(id, approval);
            } else {
                if !self.ended.contains(&id) {
                    events.push(Event::Ended(approval));
                }
                ended.insert(id);
            }
        }
        for (id, approval) in std::mem::take(&mut self.waiting) {
            if !waiting.contains_key(&id) && !ended.contains(&id) {
                events.push(Event::Lost(approval));
            }
        }
        (self.waiting, self.ended) = (waiting, ended);
        events
    }
}

fn show(events: Vec<Event>, json: bool, program: &str) -> Outcome {
    for event in events {
        if json {
            print_json(&line(&event))?;
        } else {
            print_page(&page(&event, clock::now(), program))?;
        }
    }
    Ok(())
}

/// The event as a line of JSON. The arguments stay as the daemon has given them.
fn line(event: &Event) -> String {
    let (word, approval) = match event {
        Event::Waits(approval) => ("waiting", approval),
        Event::Ended(approval) => ("ended", approval),
        Event::Lost(approval) => ("lost", approval),
    };
    let approval = serde_json::to_string(approval).expect("texts can be written");
    format!("{{\"event\":\"{word}\",\"approval\":{approval}}}\n")
}

/// The event for people: a block for what begins to wait, a line for its end.
fn page(event: &Event, now: SystemTime, program: &str) -> Page {
    let mut page = Page::default();
    match event {
        Event::Waits(approval) => {
            whole(approval, now, program, &mut page);
            // A question has its own command.
            if approval.question.is_none() {
                page.note(PLAIN, waiting::command(program, approval));
            }
            page.line(PLAIN, "");
        }
        Event::Ended(Shown { id, kind, name, backend, state, reason, .. }) => {
            let why = match reason {
                Some(reason) => format!(": {reason}"),
                None => String::new(),
            };
            let what = subject(name, backend);
            page.note(GOOD, format!("{id}: the {kind} of {what} is {state}{why}"));
        }
        Event::Lost(Shown { id, kind, name, backend, .. }) => {
            let what = subject(name, backend);
            page.note(PLAIN, format!("{id}: the {kind} of {what} does not wait any longer"));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::page::Paper;

    fn approval(id: &str, state: &str) -> Shown {
        let text = format!(
            r#"{{"id":"{id}","state":"{state}","kind":"call","app":"a","runId":null,"toolUseId":"u",
                "tool":"","argumentsSha256":"","name":"fs_rm","backend":"fs","argumentsText":"{{}}",
                "arguments":{{"n": 1.50}},"since":"2026-01-01T00:00:00Z",
                "deadline":"2026-01-01T00:05:00Z","decidedAt":null,"reason":null}}"#
        );
        serde_json::from_str(&text).expect("an approval")
    }

    fn words(events: &[Event]) -> Vec<String> {
        let texts = events.iter().map(|event| match event {
            Event::Waits(approval) => format!("waits {}", approval.id),
            Event::Ended(approval) => format!("{} {}", approval.state, approval.id),
            Event::Lost(approval) => format!("lost {}", approval.id),
        });
        texts.collect()
    }

    #[test]
    fn approval_is_told_when_it_begins_to_wait_and_when_it_ends() {
        let mut news = News::default();
        let first = vec![approval("apr_1", "waiting"), approval("apr_0", "denied")];
        assert_eq!(words(&news.take_first(first)), ["waits apr_1"]);
        let unchanged = vec![approval("apr_1", "waiting"), approval("apr_0", "denied")];
        assert!(news.take(unchanged).is_empty());
        let next = vec![
            approval("apr_3", "waiting"),
            approval("apr_2", "expired"),
            approval("apr_1", "approved"),
            approval("apr_0", "denied"),
        ];
        let events = words(&news.take(next));
        assert_eq!(events, ["waits apr_3", "expired apr_2", "approved apr_1"]);
    }

    #[test]
    fn approval_that_a_restarted_daemon_asks_for_again_is_told_once() {
        let mut news = News::default();
        news.take_first(vec![approval("apr_1", "waiting"), approval("apr_2", "waiting")]);
        let after_restart = vec![approval("apr_1", "waiting")];
        assert_eq!(words(&news.take(after_restart)), ["lost apr_2"]);
    }

    #[test]
    fn event_is_one_line_of_json_with_the_arguments_unchanged() {
        let line = line(&Event::Waits(approval("apr_1", "waiting")));
        assert!(line.starts_with(r#"{"event":"waiting","approval":{"id":"apr_1""#), "{line}");
        assert!(line.contains(r#""arguments":{"n": 1.50}"#) && line.ends_with("}\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn event_is_a_block_with_the_command_or_a_line() {
        let now = humantime::parse_rfc3339("2026-01-01T00:01:00Z").expect("a time");
        let paper = Paper { colours: false, columns: None };
        let ended = page(&Event::Ended(approval("apr_1", "denied")), now, "mantyx-bridge");
        assert_eq!(ended.text(paper), "apr_1: the call of fs_rm of fs is denied\n");
        let waits = page(&Event::Waits(approval("apr_1", "waiting")), now, "mantyx-bridge");
        let text = waits.text(paper);
        assert!(text.contains("expires in 4m\n{}\nmantyx-bridge approve apr_1\n\n"), "{text}");
    }
}
