//! What is kept from an app is in no ref and leads nowhere; what is left is as it was.

use super::*;
use crate::model::globs::globs;
use crate::model::ids::BackendName;
use crate::model::naming::ToolFilter;
use crate::model::offer::OnUnavailable;
use crate::model::offer::tests::{agent, local, peer_name, server};

fn name(name: &str) -> BackendName {
    BackendName::parse(name).unwrap()
}

/// The rights to everything but the tools of `fs` that do not pass.
fn of_fs(allow: &[&str], deny: &[&str]) -> Arc<Rights> {
    let allow = (!allow.is_empty()).then(|| globs(allow));
    let filter = ToolFilter { allow, deny: globs(deny) };
    Arc::new(Rights { tools: BTreeMap::from([(name("fs"), filter)]), ..Rights::default() })
}

const FILES: [&str; 3] = [r#"{"name":"read"}"#, r#"{"name":"read_all"}"#, r#"{"name":"write"}"#];

fn offer() -> Arc<Offer> {
    let page = local("page", r#"{"parameters":{"type":"object"}}"#);
    Arc::new(Offer::build(&[server("fs", &FILES), agent("hr"), page]))
}

fn all(offer: &Offer) -> BTreeMap<&str, Vec<&str>> {
    let names = |offered: &'_ Offered| -> Vec<_> {
        offered.refs.iter().flat_map(|one| one.items.iter().map(|item| item.name.clone())).collect()
    };
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (backend, offered) in offer.backends() {
        let names = names(offered);
        assert_eq!(offered.tools, names.len());
        let kept = offer.routes.iter().filter(|(_, route)| route.backend == *backend);
        let mut kept: Vec<&str> = kept.map(|(name, _)| name.as_ref()).collect();
        kept.sort_unstable();
        assert_eq!(kept, names.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), "refs and routes");
        all.insert(backend.as_str(), kept);
    }
    all
}

#[test]
fn tool_that_does_not_pass_the_filter_is_left_out() {
    let whole = offer();
    let seen = whole.seen_by(&of_fs(&["read*"], &["*all"]));
    let expected = [("fs", vec!["fs_read"]), ("hr", vec!["hr"]), ("page", vec!["page"])];
    assert_eq!(all(&seen), BTreeMap::from(expected));
    let fs = seen.backend("fs").unwrap().refs().next().unwrap();
    assert_eq!(
        std::str::from_utf8(&fs.json).unwrap(),
        r#"{"kind":"mcp_local","name":"fs","serverInfo":{"name":"S", "x":1e400},"tools":[{"name":"fs_read"}]}"#
    );
    let agents = whole.backend("hr").unwrap().refs.iter().zip(&seen.backend("hr").unwrap().refs);
    assert!(agents.into_iter().all(|(one, other)| Arc::ptr_eq(one, other)), "written once");
}

#[test]
fn a_server_without_a_tool_left_has_no_ref() {
    let seen = offer().seen_by(&of_fs(&["nothing"], &[]));
    assert_eq!(all(&seen)["fs"], [""; 0]);
    assert_eq!(seen.backend("fs").unwrap().refs().count(), 0);
}

#[test]
fn a_backend_that_is_not_the_apps_is_not_there() {
    let rights = Rights { backends: Some([name("hr")].into()), ..Rights::default() };
    let seen = offer().seen_by(&Arc::new(rights));
    assert_eq!(all(&seen), BTreeMap::from([("hr", vec!["hr"])]));
    assert!(seen.route("fs_read").is_none() && seen.route("page").is_none());
}

#[test]
fn a_stand_in_is_seen_by_whoever_may_use_its_server() {
    let mut down = server("fs", &[]);
    (down.catalog, down.on_unavailable) = (None, OnUnavailable::Stub);
    let seen = Arc::new(Offer::build(&[down])).seen_by(&of_fs(&["nothing"], &[]));
    assert!(seen.route("fs_unavailable").is_some());
}

#[test]
fn a_tool_has_one_name_for_all_apps() {
    // Two servers want `a_x`, so that both are given a suffix, also where an app sees one alone.
    let whole = Arc::new(Offer::build(&[
        server("a", &[r#"{"name":"x"}"#]),
        server("b", &[r#"{"name":"a_x"}"#]),
    ]));
    let mut other = server("b", &[r#"{"name":"a_x"}"#]);
    other.naming = Arc::default();
    let clash = Arc::new(Offer::build(&[server("a", &[r#"{"name":"x"}"#]), other]));
    for offer in [whole, clash] {
        let rights = Rights { backends: Some([name("a")].into()), ..Rights::default() };
        let seen = offer.seen_by(&Arc::new(rights));
        let names = all(&offer)["a"].clone();
        assert_eq!(all(&seen)["a"], names);
        assert_eq!(peer_name(seen.route(names[0]).unwrap()), "x");
    }
}

#[test]
fn the_same_rights_are_shown_the_same_offer() {
    let offer = offer();
    assert!(Arc::ptr_eq(&offer, &offer.seen_by(&Arc::default())), "nothing is kept back");
    let rights = of_fs(&["read"], &[]);
    let seen = offer.seen_by(&rights);
    assert!(Arc::ptr_eq(&seen, &offer.seen_by(&rights)));
    assert!(!Arc::ptr_eq(&seen, &offer.seen_by(&of_fs(&["read"], &[]))));
    // The one in between is nobody's any more.
    drop(offer.seen_by(&of_fs(&["write"], &[])));
    assert_eq!(offer.views.lock().len(), 2);
}

#[test]
fn a_change_of_what_an_app_may_not_use_is_none_for_it() {
    let rights = of_fs(&["read"], &[]);
    let before = offer().seen_by(&rights);
    let more = [FILES[0], r#"{"name":"remove"}"#];
    let after = Arc::new(Offer::build(&[server("fs", &more)])).seen_by(&rights);
    assert!(before.routes.agree_on(&after.routes, &name("fs")));
    let other = offer().seen_by(&of_fs(&["read", "write"], &[]));
    assert!(!before.routes.agree_on(&other.routes, &name("fs")));
}
