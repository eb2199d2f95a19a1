//! What the operator wants removed from answers is in no part of them.

use futures_util::FutureExt as _;

use super::*;
use crate::model::answer::files::{Attachments, DescribedFile};
use crate::model::redaction::{Pattern, Redaction};
use crate::tasks::LARGE;

#[tokio::test]
async fn names_of_files_are_removed_in_both_places() {
    let pattern = Pattern::new("PRJ-[0-9]+", None).unwrap();
    let rules = Backend {
        redact: Arc::new(Redaction(vec![pattern])),
        ..crate::backend::fake::config("fs")
    };
    let breaker = Arc::new(CircuitBreaker::new(rules.name.clone()));
    let (asks, _asked) = mpsc::channel(1);
    let backend =
        BackendHandle::new(Arc::new(rules), Arc::new(FakeDial(World::new())), breaker, asks);
    let mut files = Attachments::default();
    let lines = ["PRJ-1.txt", "plan.txt", "PRJ-2 b.txt"].map(|name| {
        let mime_type = Some("text/plain");
        let file =
            DescribedFile { kind: "file", name: Some(name), mime_type, data: "eA==", twice: false };
        files.add(file)
    });
    let answer = Answer::Result { text: lines.join("\n"), files: files.files };
    let Answer::Result { text, files } = backend.redacted(answer) else { panic!("no result") };
    let names: Vec<_> = files.iter().map(|file| file.filename()).collect();
    assert_eq!(names, ["removed-1.txt", "plan.txt", "removed-3.txt"]);
    for (line, file) in text.lines().zip(&files) {
        assert_eq!(line, format!("[file {} text/plain, 1 byte: attached]", file.filename()));
        assert_ne!(file.left_out_of(&text), text, "its line is found");
    }
    assert_eq!(backend.metrics().redacted.get(), 2);
}

/// Between the two, its caller could go away and take the answer with it.
#[tokio::test(start_paused = true)]
async fn large_answer_is_redacted_at_the_moment_at_which_its_peer_gives_it() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    let handles = harness.backends.handles();
    let (name, before) = handles.first_key_value().expect("there is one");
    let pattern = Pattern::new("PRJ-[0-9]+", Some("X")).unwrap();
    let redact = Arc::new(Redaction(vec![pattern]));
    let rules = Backend { redact, ..crate::backend::fake::config("fs") };
    let handle = Arc::new(before.under(Arc::new(rules)));
    harness.backends.set(BTreeMap::from([(name.clone(), handle)]), 256);
    let offer = harness.backends.registry.offer();
    let arguments = format!("{{\"a\":\"PRJ-1 {}\"}}", "x".repeat(LARGE));
    let call = context(offer.route("fs_ls").unwrap(), &arguments);
    let made = harness.backends.call(&call).now_or_never().expect("it is there at once");
    let Answer::Result { text, .. } = made.answer else { panic!("no result") };
    assert!(text.starts_with("ls {\"a\":\"X x"), "{}", text.split_at(20).0);
}
