//! A catalog comes back from disk as it went, or not at all.

use super::*;
use crate::backend::fake;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn state() -> (tempfile::TempDir, StateDir) {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    (dir, state)
}

/// What a server offers beside its tools.
fn features() -> Features {
    let mut features = Features::new(true);
    features.add(Feature::RESOURCE, vec![raw(r#"{"uri": "a:b", "name":"b", "x": 1e400}"#)]);
    features.add(Feature::TEMPLATE, vec![raw(r#"{"uriTemplate":"a:{x}","name":"x"}"#)]);
    features.add(Feature::PROMPT, vec![raw(r#"{"name":"ask"}"#), raw(r#"{"name":"tell"}"#)]);
    assert_eq!(features.left_out(), None);
    features
}

fn server() -> Catalog {
    let tools = vec![raw(r#"{"name" : "ls", "x": 1e400, "n": 123456789012345678901234567890}"#)];
    Catalog::mcp(Some(raw(r#"{"name": "S", "é": 1.0}"#)), tools).0
}

#[test]
fn catalog_comes_back_byte_for_byte() {
    let (_dir, state) = state();
    let identity = Identity::from_text("npx server");
    for (name, catalog) in
        [("fs", server()), ("hr", Catalog::a2a(raw("{ \"name\": \"HR\",\n\"n\": 1.10 }")))]
    {
        let name = BackendName::parse(name).unwrap();
        assert!(load(&state, &name, &identity).is_none());
        state.write_kept(&file(&name), &write(&catalog, &Features::default(), &identity)).unwrap();
        let loaded = load(&state, &name, &identity).unwrap();
        assert_eq!(loaded.catalog.digest(), catalog.digest());
        assert_eq!(loaded.features.digest(), Features::default().digest());
    }
}

#[test]
fn extended_card_comes_back_and_an_older_bridge_reads_the_public_one() {
    let identity = Identity::from_text("x");
    let both =
        Catalog::a2a(raw(r#"{"name":"HR"}"#)).with_extended_card(raw(r#"{"name":"HR","x":1}"#));
    let text = write(&both, &Features::default(), &identity);
    let read = read(&text).unwrap().catalog;
    assert_eq!(read.digest(), both.digest());
    assert_eq!(read.extended_card().map(RawValue::get), Some(r#"{"name":"HR","x":1}"#));
    let for_older: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(for_older["card"], serde_json::json!({"name": "HR"}));
}

#[test]
fn a_catalog_of_another_server_is_not_taken() {
    let (_dir, state) = state();
    let name = BackendName::parse("fs").unwrap();
    state
        .write_kept(&file(&name), &write(&server(), &features(), &Identity::from_text("one")))
        .unwrap();
    assert!(load(&state, &name, &Identity::from_text("other")).is_none());
}

#[test]
fn a_damaged_file_is_left_out() {
    let whole = write(&server(), &features(), &Identity::from_text("x"));
    for cut in 0..whole.len() {
        if let Some(part) = whole.get(..cut) {
            assert!(read(part).is_err(), "{part}");
        }
    }
    for text in [
        r#"{"version":2,"identity":"x","tools":[]}"#,
        r#"{"version":1,"identity":"x"}"#,
        r#"{"version":1,"identity":"x","tools":[1]}"#,
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn catalog_is_kept_at_a_stop() {
    for _ in 0..16 {
        let (_dir, state) = state();
        let (registry, leases) = fake::registry(["fs"]);
        registry.write(&leases[0], |known| known.catalog = Some(Arc::new(server())));
        let stop = CancellationToken::new();
        stop.cancel();
        keep(registry, state.clone(), stop).await;
        assert!(load(&state, &leases[0].name, &Identity::from_text("fs")).is_some());
    }
}

#[test]
fn features_come_back_with_the_catalog() {
    let (_dir, state) = state();
    let (identity, name) = (Identity::from_text("npx server"), BackendName::parse("fs").unwrap());
    state.write_kept(&file(&name), &write(&server(), &features(), &identity)).unwrap();
    let loaded = load(&state, &name, &identity).unwrap();
    assert_eq!(loaded.catalog.digest(), server().digest());
    assert_eq!(loaded.features.digest(), features().digest());
    let resources: Vec<&str> = loaded.features.definitions(Feature::RESOURCE).collect();
    assert_eq!(resources, [r#"{"uri": "a:b", "name":"b", "x": 1e400}"#], "byte for byte");
}

#[test]
fn damaged_features_leave_the_catalog() {
    let (_dir, state) = state();
    let (identity, name) = (Identity::from_text("x"), BackendName::parse("fs").unwrap());
    let whole = write(&server(), &features(), &identity);
    for (part, other) in [
        (r#""completes":true"#, r#""completes":1"#),
        (r#""prompts":[{"name":"ask"}"#, r#""prompts":[{"nome":"ask"}"#),
        (r#""resources":"#, r#""resoorces":"#),
        (r#""features":{"#, r#""features":7,"other":{"#),
    ] {
        assert!(whole.contains(part), "{whole}");
        let damaged = whole.replacen(part, other, 1);
        assert!(read(&damaged).unwrap().features.is_err(), "{damaged}");
        state.write_kept(&file(&name), &damaged).unwrap();
        let loaded = load(&state, &name, &identity).unwrap();
        assert_eq!(loaded.catalog.digest(), server().digest(), "{damaged}");
        assert_eq!(loaded.features.digest(), Features::default().digest(), "{damaged}");
    }
}

#[test]
fn file_of_another_version_is_read_as_far_as_it_is_known() {
    struct Case {
        name: &'static str,
        text: &'static str,
        /// What this version writes in its place.
        today: &'static str,
    }
    for Case { name, text, today } in [
        Case {
            name: "a server of an earlier version, before places and features",
            text: r#"{"version":1,"identity":"x","tools":[{"name" : "ls"}],"serverInfo":{"name":"S"}}"#,
            today: r#"{"version":1,"identity":"x","tools":[{"name" : "ls"}],"serverInfo":{"name":"S"}}"#,
        },
        Case {
            name: "an agent of an earlier version",
            text: r#"{"version":1,"identity":"x","card":{"name" : "HR"}}"#,
            today: r#"{"version":1,"identity":"x","card":{"name" : "HR"}}"#,
        },
        Case {
            name: "a server with places, before features",
            text: r#"{"version":1,"identity":"x","tools":[{"name":"ls"}],"gone":[{"name":"rm","place":1,"since":5}]}"#,
            today: r#"{"version":1,"identity":"x","tools":[{"name":"ls"}],"gone":[{"name":"rm","place":1,"since":5}]}"#,
        },
        Case {
            name: "a server of a later version: what is not known is asked for again",
            text: r#"{"version":1,"identity":"x","tools":[{"name":"ls","later":1}],"gone":[{"name":"rm","place":1,"since":5,"later":1}],"features":{"completes":true,"resources":[],"resourceTemplates":[],"prompts":[],"later":[]},"later":{}}"#,
            today: r#"{"version":1,"identity":"x","tools":[{"name":"ls","later":1}],"gone":[{"name":"rm","place":1,"since":5}],"features":{"completes":true,"resources":[],"resourceTemplates":[],"prompts":[]}}"#,
        },
    ] {
        let stored = read(text).expect(name);
        let features = stored.features.expect(name);
        assert_eq!(write(&stored.catalog, &features, &stored.identity), today, "{name}");
        assert!(!is_later(text), "{name}");
    }
}

#[test]
fn file_of_a_later_format_is_ignored_and_written_over() {
    let (_dir, state) = state();
    let (identity, name) = (Identity::from_text("x"), BackendName::parse("fs").unwrap());
    let later =
        write(&server(), &features(), &identity).replacen("\"version\":1", "\"version\":2", 1);
    assert!(is_later(&later) && read(&later).is_err());
    state.write_kept(&file(&name), &later).unwrap();
    assert!(load(&state, &name, &identity).is_none(), "its server is asked");
    // The last good catalog is what the server shows: nothing is lost with the file.
    state.write_kept(&file(&name), &write(&server(), &features(), &identity)).unwrap();
    assert!(load(&state, &name, &identity).is_some());
}

#[tokio::test]
async fn features_that_come_after_the_catalog_are_kept() {
    let (_dir, state) = state();
    let (registry, leases) = fake::registry(["fs"]);
    let lease = &leases[0];
    let stop = CancellationToken::new();
    stop.cancel();
    registry.write(lease, |known| known.catalog = Some(Arc::new(server())));
    keep(Arc::clone(&registry), state.clone(), stop.clone()).await;
    registry.write(lease, |known| known.features = Arc::new(features()));
    keep(registry, state.clone(), stop).await;
    let loaded = load(&state, &lease.name, &Identity::from_text("fs")).unwrap();
    assert_eq!(loaded.features.digest(), features().digest());
}

#[test]
fn instructions_come_back_with_their_catalog() {
    let identity = Identity::from_text("npx server");
    for instructions in [
        Instructions::Unknown,
        Instructions::Absent,
        Instructions::from_text("Read \"first\".\n\u{202e}"),
    ] {
        let catalog = server().with_instructions(instructions.clone());
        let text = write(&catalog, &Features::default(), &identity);
        let stored = read(&text).unwrap().catalog;
        assert_eq!(stored.instructions(), &instructions, "{text}");
        assert_eq!(stored.digest(), catalog.digest(), "{text}");
    }
}

#[test]
fn file_without_instructions_says_nothing_of_them() {
    let text = write(&server(), &Features::default(), &Identity::from_text("x"));
    assert!(!text.contains("instructions"), "{text}");
    assert_eq!(read(&text).unwrap().catalog.instructions(), &Instructions::Unknown);
}
