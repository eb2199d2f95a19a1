//! What is a change and what is none, and what is withdrawn for it.

use super::*;
use crate::model::naming::ToolFilter;
use crate::model::offer::tests::raw;

const LS: &str = r#"{"name":"ls","description":"Lists files.","inputSchema":{"type":"object","properties":{"a":{},"b":{}}}}"#;
const CP: &str = r#"{"name":"cp","description":"Copies."}"#;

fn catalog(tools: &[&str]) -> Catalog {
    Catalog::mcp(None, tools.iter().map(|tool| raw(tool)).collect()).0
}

fn judge(accepted: &mut Accepted, mode: Mode, tools: &[&str]) -> Review {
    accepted.judge(mode, Some(&catalog(tools)), &Naming::default())
}

/// A backend that was first used with these tools.
fn used(tools: &[&str]) -> Accepted {
    let mut accepted = Accepted::Nothing;
    let review = judge(&mut accepted, Mode::Enforce, tools);
    assert_eq!((review.findings.len(), review.known), (0, tools.len()), "{review:?}");
    accepted
}

fn changes(review: &Review) -> Vec<(&str, Change)> {
    review.findings.values().map(|found| (found.tool.as_str(), found.change)).collect()
}

/// What `tools` are after a first use of [`LS`] and [`CP`].
fn after(tools: &[&str]) -> Vec<(String, Change)> {
    let review = judge(&mut used(&[LS, CP]), Mode::Enforce, tools);
    changes(&review).into_iter().map(|(tool, change)| (tool.to_owned(), change)).collect()
}

/// A27
#[test]
fn an_order_of_keys_and_whitespace_are_no_change() {
    let same = "{ \"description\": \"Lists \\u0066iles.\",\n\"inputSchema\":{\"properties\":{\"b\":{ },\"a\":{}},\"type\":\"object\"},\"name\":\"ls\"}";
    assert_eq!(after(&[CP, same]), []);
    let unseen =
        r#"{"name":"cp","_meta":{"x":1},"execution":{},"icons":[],"description":"Copies."}"#;
    assert_eq!(after(&[LS, unseen]), [], "the model does not see them");
}

/// A27
#[test]
fn whatever_the_model_sees_is_a_change() {
    for changed in [
        r#"{"name":"cp","description":"Copies, and mails."}"#,
        r#"{"name":"cp","description":"Copies.","description":"Mails."}"#,
        r#"{"name":"cp","description":"Copies.","Description":"Mails."}"#,
        r#"{"name":"cp","description":"Copies.","d\u0065scription":"Mails."}"#,
        r#"{"name":"cp","description":"Copies.","title":"C"}"#,
        r#"{"name":"cp","description":"Copies.","inputSchema":{}}"#,
        r#"{"name":"cp","description":"Copies.","outputSchema":{}}"#,
        r#"{"name":"cp","description":"Copies.","annotations":{"readOnlyHint":true}}"#,
        r#"{"name":"cp"}"#,
    ] {
        assert_eq!(after(&[LS, changed]), [("cp".to_owned(), Change::Changed)], "{changed}");
    }
}

#[test]
fn a_renamed_tool_is_one_that_is_gone_and_a_new_one() {
    let renamed = CP.replace("\"cp\"", "\"copy\"");
    let expected = [("copy".to_owned(), Change::New), ("cp".to_owned(), Change::Gone)];
    assert_eq!(after(&[LS, &renamed]), expected);
}

#[test]
fn only_what_is_not_accepted_is_withdrawn_and_only_under_enforce() {
    let (other, new) = (CP.replace("Copies", "Mails"), CP.replace("\"cp\"", "\"new\""));
    for (mode, withdrawn) in [(Mode::Enforce, 2), (Mode::Warn, 0)] {
        let review = judge(&mut used(&[LS, CP]), mode, &[&other, &new]);
        assert_eq!(review.withdrawn(), withdrawn);
        assert_eq!(review.open().count(), 2, "what is gone is no trouble: {review:?}");
        assert_eq!(review.withdraws("cp"), withdrawn > 0);
        assert!(!review.withdraws("ls"), "it is gone, and may come back as it was");
    }
    let review = judge(&mut used(&[LS, CP]), Mode::Off, &[&other, &new]);
    assert_eq!((review.findings.len(), review.withdraws("cp")), (0, false));
}

#[test]
fn accepted_pin_is_the_one_that_was_looked_at() {
    let mut accepted = used(&[LS, CP]);
    let (other, new) = (CP.replace("Copies", "Mails"), CP.replace("\"cp\"", "\"new\""));
    let looked_at = judge(&mut accepted, Mode::Enforce, &[&other, &new]);
    let moved = judge(&mut accepted, Mode::Enforce, &[&other.replace("Mails", "Pays"), &new]);
    assert_eq!(accepted.accept(&moved, &looked_at.digest, None), Err(NotTaken::Moved));
    let digest = moved.digest.clone();
    let tools = ["cp".to_owned(), "rm".to_owned()];
    let unknown = accepted.accept(&moved, &digest, Some(&tools));
    assert_eq!(unknown, Err(NotTaken::NoSuchTool("rm".to_owned())));
    assert_eq!(accepted.accept(&moved, &digest, Some(&tools[..1])), Ok(()));
    let review = judge(&mut accepted, Mode::Enforce, &[&other.replace("Mails", "Pays"), &new]);
    assert_eq!(changes(&review), [("ls", Change::Gone), ("new", Change::New)]);
    assert_eq!(accepted.accept(&review, &review.digest, None), Ok(()));
    let review = judge(&mut accepted, Mode::Enforce, &[&other.replace("Mails", "Pays"), &new]);
    assert_eq!((review.findings.len(), review.known), (0, 2), "what is gone is forgotten, too");
}

/// A29: they are not taken at the first use either.
#[test]
fn invisible_characters_have_to_be_accepted() {
    for hidden in ["\\u202e", "\u{200b}", "\\udb40\\udc41", "\u{9b}", "\\u001b[2J", "\\ud800"] {
        for tool in [
            format!(r#"{{"name":"odd","description":"x{hidden}y"}}"#),
            format!(r#"{{"name":"odd","inputSchema":{{"properties":{{"a{hidden}b":{{}}}}}}}}"#),
            format!(r#"{{"name":"odd","inputSchema":{{"description":"{hidden}"}}}}"#),
        ] {
            let mut accepted = Accepted::Nothing;
            judge(&mut accepted, Mode::Warn, &[LS, &tool]);
            let review = judge(&mut accepted, Mode::Enforce, &[LS, &tool]);
            assert_eq!(changes(&review), [("odd", Change::Hidden)], "{tool}");
            assert!(review.withdraws("odd") && !review.findings["odd"].hidden.is_empty());
            accepted.accept(&review, &review.digest, None).unwrap();
            let review = judge(&mut accepted, Mode::Enforce, &[LS, &tool]);
            assert_eq!(review.findings.len(), 0, "the operator wants it");
        }
    }
}

/// A27
#[test]
fn nothing_is_known_after_pins_were_damaged() {
    let mut accepted = Accepted::Damaged("it is cut off".into());
    let review = judge(&mut accepted, Mode::Enforce, &[LS, CP]);
    assert!(review.withdraws("ls") && review.withdraws("cp"), "{review:?}");
    assert_eq!(review.damaged.as_deref(), Some("it is cut off"));
    let away = accepted.judge(Mode::Warn, None, &Naming::default());
    assert!(away.damaged.is_some());
    assert_eq!(accepted.accept(&away, &away.digest, None), Ok(()), "there is nothing to take");
    assert!(matches!(accepted, Accepted::Damaged(_)));
    accepted.accept(&review, &review.digest, None).unwrap();
    assert_eq!(judge(&mut accepted, Mode::Enforce, &[LS, CP]).known, 2);
}

#[test]
fn a_server_without_tools_has_not_been_used() {
    let mut accepted = Accepted::Nothing;
    judge(&mut accepted, Mode::Enforce, &[]);
    assert_eq!(judge(&mut accepted, Mode::Enforce, &[LS]).findings.len(), 0);
    let away = accepted.judge(Mode::Enforce, None, &Naming::default());
    assert_eq!(away.findings.len(), 0, "nothing is gone that cannot be asked for");
}

#[test]
fn tools_that_are_not_offered_are_not_told_of() {
    let deny = crate::model::globs::globs(&["cp"]);
    let naming = Naming { tools: ToolFilter { allow: None, deny }, ..Naming::default() };
    let other = CP.replace("Copies", "Mails");
    let mut accepted = used(&[LS, CP]);
    for tools in [&[LS, &*other][..], &[LS]] {
        let review = accepted.judge(Mode::Enforce, Some(&catalog(tools)), &naming);
        assert_eq!((review.findings.len(), review.known), (0, 1));
    }
}

#[test]
fn an_agent_is_its_card_without_the_signatures() {
    let card = |text: &str| Catalog::a2a(raw(text));
    let mut accepted = Accepted::Nothing;
    let mut judge = |text: &str| {
        let review = accepted.judge(Mode::Enforce, Some(&card(text)), &Naming::default());
        review.withdraws(CARD)
    };
    assert!(!judge(r#"{"name":"HR","url":"https://hr/","signatures":[{"a":1}]}"#));
    assert!(!judge(r#"{ "signatures":[], "url":"https://hr/", "name":"HR"}"#));
    assert!(judge(r#"{"name":"HR","url":"https://evil/"}"#));
}

#[test]
fn extended_card_is_pinned_apart_from_the_public_one() {
    let public = r#"{"name":"HR"}"#;
    let extended = r#"{"name":"HR","skills":[1]}"#;
    let catalog = |extended: Option<&str>| {
        let card = Catalog::a2a(raw(public));
        match extended {
            Some(extended) => card.with_extended_card(raw(extended)),
            None => card,
        }
    };
    let mut accepted = Accepted::Nothing;
    let mut judge = |extended: Option<&str>| {
        accepted.judge(Mode::Enforce, Some(&catalog(extended)), &Naming::default())
    };
    assert!(!judge(None).withdraws(CARD));
    let hidden = judge(Some("{\"name\":\"H\u{202e}R\"}"));
    assert!(hidden.withdraws(CARD), "one with hidden characters is not accepted as the first");
    assert!(!judge(Some(extended)).withdraws(CARD), "the first one is accepted");
    let gone = judge(None);
    assert!(!gone.withdraws(CARD) && gone.open().count() == 0, "it may be left out again");
    let changed = judge(Some(r#"{"name":"HR","skills":[2]}"#));
    assert!(changed.withdraws(CARD), "the agent is withdrawn for either card");
    assert_eq!(changed.open().map(|finding| &*finding.tool).collect::<Vec<_>>(), [EXTENDED_CARD]);
}

#[test]
fn a_difference_can_be_read() {
    let before = r#"{"name":"t","description":"One.\nTwo.\nThree.","inputSchema":{"a":1}}"#;
    let now = r#"{"name":"t","description":"One.\n\u202eTwo.\nThree.","inputSchema":{"a":2}}"#;
    let mut accepted = used(&[before]);
    let review = judge(&mut accepted, Mode::Warn, &[now]);
    let expected = [
        "  description:",
        "    One.",
        "-   Two.",
        "+   \\u{202e}Two.",
        "    Three.",
        "  inputSchema: {",
        "-   \"a\": 1",
        "+   \"a\": 2",
        "  }",
        "  name: t",
    ];
    assert_eq!(review.findings["t"].diff(), expected);
}

/// A29: nothing in a name of a member looks like a line of the difference.
#[test]
fn a_key_begins_no_line() {
    let card = |text: &str| Catalog::a2a(raw(text));
    let mut accepted = Accepted::Nothing;
    accepted.judge(Mode::Warn, Some(&card(r#"{"name":"hr"}"#)), &Naming::default());
    let forged = card(r#"{"name":"hr","a\r\n- b":"c","d\n- e":{"f":1},"g":{"h\n- i":1}}"#);
    let review = accepted.judge(Mode::Warn, Some(&forged), &Naming::default());
    let diff: Vec<String> = review.findings.values().flat_map(Finding::diff).collect();
    assert!(diff.len() > 3 && diff.iter().all(|line| !line.contains(['\r', '\n'])), "{diff:?}");
}

#[test]
fn news_are_told_once() {
    let mut accepted = used(&[LS, CP]);
    let other = CP.replace("Copies", "Mails");
    let first = judge(&mut accepted, Mode::Warn, &[LS, &other]);
    assert_eq!(first.news(&Review::default()).count(), 1);
    assert_eq!(judge(&mut accepted, Mode::Warn, &[LS, &other]).news(&first).count(), 0);
    let again = judge(&mut accepted, Mode::Warn, &[LS, &other.replace("Mails", "Pays")]);
    assert_eq!(again.news(&first).count(), 1);
}

/// What becomes of `instructions` of a server with the tool [`LS`].
fn judged(accepted: &mut Accepted, mode: Mode, instructions: Instructions) -> Review {
    let catalog = catalog(&[LS]).with_instructions(instructions);
    accepted.judge(mode, Some(&catalog), &Naming::default())
}

fn text(instructions: &str) -> Instructions {
    Instructions::from_text(instructions)
}

#[test]
fn changed_instructions_are_withheld_alone() {
    let mut accepted = Accepted::Nothing;
    let first = judged(&mut accepted, Mode::Enforce, text("Read first."));
    assert_eq!((first.findings.len(), first.known), (0, 1), "{first:?}");
    let review = judged(&mut accepted, Mode::Enforce, text("Read first. Send all."));
    assert_eq!(changes(&review), [(INSTRUCTIONS, Change::Changed)]);
    assert_eq!(review.findings[INSTRUCTIONS].subject, Subject::Instructions);
    assert!(review.withdraws(INSTRUCTIONS) && !review.withdraws("ls"));
    let expected = ["- Read first.", "+ Read first. Send all."];
    assert_eq!(review.findings[INSTRUCTIONS].diff(), expected);
    accepted.accept(&review, &review.digest, None).unwrap();
    let later = judged(&mut accepted, Mode::Enforce, text("Read first. Send all."));
    assert_eq!(changes(&later), []);
    let warned = judged(&mut accepted, Mode::Warn, text("Other."));
    assert!(warned.open().count() == 1 && !warned.withdraws(INSTRUCTIONS));
}

#[test]
fn pin_without_instructions_takes_those_that_come_first() {
    let pins = used(&[LS]).pins().unwrap().clone();
    let mut old = Accepted::Pins(pins.clone());
    assert!(!pins.0.contains_key(INSTRUCTIONS), "as an earlier version has written it");
    let stored = judged(&mut old, Mode::Enforce, Instructions::Unknown);
    assert_eq!(changes(&stored), [], "an old catalog says nothing of them");
    assert_eq!(changes(&judged(&mut old, Mode::Enforce, text("a"))), []);
    let other = judged(&mut old, Mode::Enforce, text("b"));
    assert_eq!(changes(&other), [(INSTRUCTIONS, Change::Changed)]);
}

#[test]
fn instructions_of_a_known_server_without_some_are_new() {
    let mut accepted = Accepted::Nothing;
    assert_eq!(changes(&judged(&mut accepted, Mode::Enforce, Instructions::Absent)), []);
    assert_eq!(changes(&judged(&mut accepted, Mode::Enforce, Instructions::Absent)), []);
    let review = judged(&mut accepted, Mode::Enforce, text("a"));
    assert_eq!(changes(&review), [(INSTRUCTIONS, Change::New)]);
    assert_eq!(review.findings[INSTRUCTIONS].diff(), ["+ a"]);
    accepted.accept(&review, &review.digest, Some(&[INSTRUCTIONS.to_owned()])).unwrap();
    let gone = judged(&mut accepted, Mode::Enforce, Instructions::Absent);
    assert_eq!(changes(&gone), [(INSTRUCTIONS, Change::Gone)]);
    assert_eq!(gone.open().count(), 0, "that is no trouble");
    accepted.accept(&gone, &gone.digest, None).unwrap();
    let again = judged(&mut accepted, Mode::Enforce, text("a"));
    assert_eq!(changes(&again), [(INSTRUCTIONS, Change::New)]);
}

#[test]
fn instructions_with_hidden_characters_are_accepted_by_the_operator_alone() {
    let mut accepted = Accepted::Nothing;
    let odd = text("Add\u{202e}s.");
    let review = judged(&mut accepted, Mode::Enforce, odd.clone());
    assert_eq!(changes(&review), [(INSTRUCTIONS, Change::Hidden)]);
    assert!(review.findings[INSTRUCTIONS].hidden.contains(&'\u{202e}'));
    let plain = judged(&mut accepted, Mode::Enforce, text("Adds."));
    assert_eq!(changes(&plain), [(INSTRUCTIONS, Change::New)], "not even if they become plain");
    let review = judged(&mut accepted, Mode::Enforce, odd.clone());
    accepted.accept(&review, &review.digest, None).unwrap();
    assert_eq!(changes(&judged(&mut accepted, Mode::Enforce, odd)), []);
}

#[test]
fn server_without_tools_has_no_pins_and_its_instructions_are_offered() {
    let mut accepted = Accepted::Nothing;
    let bare = catalog(&[]).with_instructions(text("a"));
    let review = accepted.judge(Mode::Enforce, Some(&bare), &Naming::default());
    assert!(matches!(accepted, Accepted::Nothing) && review.findings.is_empty(), "{review:?}");
    let with_tools = judged(&mut accepted, Mode::Enforce, text("a"));
    assert_eq!(changes(&with_tools), [], "all of its first tools are accepted");
}

#[test]
fn damaged_pins_accept_no_instructions() {
    let mut damaged = Accepted::Damaged("torn".into());
    let review = judged(&mut damaged, Mode::Enforce, text("a"));
    assert!(review.withdraws(INSTRUCTIONS), "{review:?}");
}
