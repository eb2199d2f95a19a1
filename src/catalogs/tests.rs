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

fn server() -> Catalog {
    let tools = vec![raw(r#"{"name" : "ls", "x": 1e400, "n": 123456789012345678901234567890}"#)];
    Catalog::mcp(Some(raw(r#"{"name": "S", "é": 1.0}"#)), tools).0
}

#[test]
fn it_comes_back_byte_for_byte() {
    let (_dir, state) = state();
    let identity = Identity::of("npx server");
    for (name, catalog) in
        [("fs", server()), ("hr", Catalog::a2a(raw("{ \"name\": \"HR\",\n\"n\": 1.10 }")))]
    {
        let name = BackendName::parse(name).unwrap();
        assert!(load(&state, &name, &identity).is_none());
        state.write_kept(&file(&name), &write(&catalog, &identity)).unwrap();
        let loaded = load(&state, &name, &identity).unwrap();
        assert_eq!(loaded.digest(), catalog.digest());
    }
}

#[test]
fn a_catalog_of_another_server_is_not_taken() {
    let (_dir, state) = state();
    let name = BackendName::parse("fs").unwrap();
    state.write_kept(&file(&name), &write(&server(), &Identity::of("one"))).unwrap();
    assert!(load(&state, &name, &Identity::of("other")).is_none());
}

#[test]
fn a_damaged_file_is_left_out() {
    let whole = write(&server(), &Identity::of("x"));
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
async fn what_is_there_when_the_bridge_stops_is_kept() {
    for _ in 0..16 {
        let (_dir, state) = state();
        let (registry, leases) = fake::registry(["fs"]);
        registry.write(&leases[0], |known| known.catalog = Some(Arc::new(server())));
        let stop = CancellationToken::new();
        stop.cancel();
        keep(registry, state.clone(), stop).await;
        assert!(load(&state, &leases[0].name, &Identity::of("fs")).is_some());
    }
}
