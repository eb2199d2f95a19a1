//! What the operator wants removed from answers is in no part of them.

use super::*;
use crate::model::answer::files::{Attachments, DescribedFile};
use crate::model::redaction::{Pattern, Redaction};

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
    let Answer::Result { text, files } = backend.redacted(answer).await else {
        panic!("no result")
    };
    let names: Vec<_> = files.iter().map(|file| file.filename()).collect();
    assert_eq!(names, ["removed-1.txt", "plan.txt", "removed-3.txt"]);
    for (line, file) in text.lines().zip(&files) {
        assert_eq!(line, format!("[file {} text/plain, 1 byte: attached]", file.filename()));
        assert_ne!(file.left_out_of(&text), text, "its line is found");
    }
    assert_eq!(backend.metrics().redacted.get(), 2);
}
