//! Tables and lines: straight, cut where there is no room, and never steering the terminal.

use super::*;

const WIDE: Paper = Paper { colours: false, columns: None };

fn piece(text: &str) -> Piece {
    (GOOD, text.to_owned())
}

fn page() -> Page {
    let mut page = Page::default();
    page.line(PLAIN, "a first line");
    page.table(
        ["NAME", "SAYS"],
        vec![[piece("名前"), piece("two\nlines")], [piece("b"), piece("\x1b[2Jgone")]],
    );
    page.note(BAD, "a note that is long");
    page
}

#[test]
fn columns_are_straight_and_nothing_steers() {
    let text = page().text(WIDE);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "a first line",
            "NAME  SAYS",
            "名前  two lines",
            "b     \u{fffd}[2Jgone",
            "a note that is long",
        ]
    );
}

#[test]
fn cell_without_room_is_cut_and_notes_are_not() {
    let text = |columns| page().text(Paper { colours: false, columns: Some(columns) });
    let narrow = text(8);
    let lines: Vec<&str> = narrow.lines().collect();
    assert_eq!(
        lines,
        ["a first…", "NAME  S…", "名前  t…", "b     \u{fffd}…", "a note that is long"]
    );
    // A character of two columns does not stand half outside.
    assert_eq!(text(3).lines().nth(2), Some("名…"));
    assert!(text(0).lines().take(4).all(str::is_empty));
}

#[test]
fn colours_take_no_room() {
    let text = page().text(Paper { colours: true, columns: Some(10) });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "\x1b[1mNAME\x1b[0m  \x1b[1mSAYS\x1b[0m");
    assert_eq!(lines[4], "\x1b[31ma note that is long\x1b[0m");
}
