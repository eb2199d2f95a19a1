//! What fits, what does not and why, and what names become.

use super::*;

fn found<'a>(name: &'a str, mime_type: &'a str, data: &'a str) -> DescribedFile<'a> {
    let some = |text: &'a str| Some(text).filter(|text| !text.is_empty());
    DescribedFile { kind: "file", name: some(name), mime_type: some(mime_type), data, twice: false }
}

fn zeros(bytes: usize) -> String {
    STANDARD.encode(vec![0; bytes])
}

/// The line of one file, and the file.
fn one(found: DescribedFile<'_>) -> (String, Option<File>) {
    let mut files = Attachments::default();
    let line = files.add(found);
    (line, files.files.pop())
}

#[test]
fn types_are_those_of_the_protocol() {
    for (stated, passed) in [
        ("image/png", "image/png"),
        ("IMAGE/Png", "image/png"),
        ("text/x-python", "text/x-python"),
        ("text/html; charset=utf-8", "text/html"),
        ("application/json;charset=utf-8", "application/json"),
    ] {
        let (line, file) = one(found("a.b", stated, "AAAA"));
        assert_eq!(line, format!("[file a.b {passed}, 3 bytes: attached]"));
        assert_eq!(file.unwrap().mime_type(), passed);
    }
    for stated in ["application/octet-stream", "video/mp4", "text/", "png", "image/svg+xml"] {
        let (line, file) = one(found("a.b", stated, "AAAA"));
        assert!(line.contains("type"), "{line}");
        assert_eq!(file, None);
    }
    let (line, _) = one(found("a.b", "x]\n[y", "AAAA"));
    assert_eq!(line, "[file a.b xy, 3 bytes: not passed on, as its type is not allowed]");
}

#[test]
fn a_type_that_is_not_stated_is_told_by_the_name() {
    let (line, file) = one(found("photo.JPEG", "", "AAAA"));
    assert_eq!(line, "[file photo.JPEG image/jpeg, 3 bytes: attached]");
    assert_eq!(file.unwrap().mime_type(), "image/jpeg");
    assert!(one(found("photo", "", "AAAA")).0.contains("no MIME type"));
}

#[test]
fn names_lead_nowhere() {
    struct Case {
        given: &'static str,
        mime_type: &'static str,
        name: &'static str,
    }
    for Case { given, mime_type, name } in [
        Case { given: "report.pdf", mime_type: "application/pdf", name: "report.pdf" },
        Case { given: "../../etc/passwd", mime_type: "text/plain", name: "passwd.txt" },
        Case { given: "C:\\temp\\a.csv", mime_type: "text/csv", name: "a.csv" },
        Case { given: ".bashrc", mime_type: "text/plain", name: "bashrc.txt" },
        Case { given: "..", mime_type: "text/plain", name: "file-1.txt" },
        Case { given: "file:///srv/a%20b.md", mime_type: "text/markdown", name: "a_20b.md" },
        Case { given: "https://host.test", mime_type: "text/plain", name: "file-1.txt" },
        Case { given: "https://host.test/x/y.txt?z=/q#/r", mime_type: "text/plain", name: "y.txt" },
        Case { given: "a\n]b.txt", mime_type: "text/plain", name: "a__b.txt" },
        Case { given: "größe (1).csv", mime_type: "text/csv", name: "größe (1).csv" },
        Case { given: "", mime_type: "image/png", name: "file-1.png" },
        Case { given: "", mime_type: "text/x-rust", name: "file-1.txt" },
    ] {
        let (line, file) = one(found(given, mime_type, "AAAA"));
        assert_eq!(file.unwrap().filename(), name, "{given:?}");
        assert!(line.starts_with(&format!("[file {name} ")), "{given:?}: {line}");
    }
    let long = format!("{}.pdf", "x".repeat(5000));
    let (_, file) = one(found(&long, "application/pdf", "AAAA"));
    let file = file.unwrap();
    assert!(file.filename().len() == 100 && file.filename().ends_with("x.pdf"), "{file:?}");
}

#[test]
fn no_two_files_have_one_name() {
    let mut files = Attachments::default();
    for _ in 0..3 {
        files.add(found("a.txt", "", "AAAA"));
    }
    let names: Vec<String> = files.files.into_iter().map(|file| file.filename).collect();
    assert_eq!(names, ["a.txt", "a-2.txt", "a-3.txt"]);
}

#[test]
fn base64_is_written_in_one_form() {
    for (given, data) in [
        ("+/+/", "+/+/"),
        ("-_-_", "+/+/"),
        ("aGk", "aGk="),
        ("aGk=", "aGk="),
        ("aG\r\nk=\n", "aGk="),
        ("", ""),
    ] {
        let (line, file) = one(found("a.txt", "", given));
        assert_eq!(file.unwrap().data(), data, "{line}");
    }
    for broken in ["a", "a===", "a*bc", "data:text/plain;base64,aGk=", "aGk=aGk="] {
        let (line, file) = one(found("a.txt", "", broken));
        assert!(line.contains("base64"), "{line}");
        assert_eq!(file, None);
    }
}

#[test]
fn no_more_files_than_fit() {
    let mut files = Attachments::default();
    for _ in 0..MAX_FILES {
        assert!(files.add(found("", "text/plain", "AAAA")).ends_with("attached]"));
    }
    let line = files.add(found("", "text/plain", "AAAA"));
    assert_eq!(
        line,
        "[file file-21.txt text/plain, 3 bytes: not passed on, as an answer has 20 files at most]"
    );
    assert_eq!(files.files.len(), MAX_FILES);
}

#[test]
fn no_more_bytes_than_fit() {
    let mut files = Attachments::default();
    assert!(files.add(found("a.txt", "", &zeros(MAX_BYTES - 1))).ends_with("attached]"));
    for surplus in [2, 3, 4, 1000] {
        let line = files.add(found("b.txt", "", &zeros(surplus)));
        assert!(line.contains("5,000,000 bytes"), "{line}");
    }
    assert_eq!(
        files.add(found("c.txt", "", &zeros(1))),
        "[file c.txt text/plain, 1 byte: attached]",
        "what is left is still used"
    );
    assert_eq!(files.files.len(), 2);
    let (line, file) = one(found("a.txt", "", &zeros(MAX_BYTES)));
    assert!(file.is_some(), "{line}");
}

#[test]
fn sizes_are_counted_and_written_for_people() {
    assert_eq!(decoded_size(""), 0);
    assert_eq!(decoded_size("YQ=="), 1);
    assert_eq!(decoded_size("YWI="), 2);
    assert_eq!(decoded_size("YWJj\nYWJj"), 6);
    for (number, text) in [(0, "0"), (999, "999"), (1024, "1,024"), (12_345_678, "12,345,678")] {
        assert_eq!(grouped(number), text);
    }
}
