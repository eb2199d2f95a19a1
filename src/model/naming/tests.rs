//! Names are legal, unique, and the same whatever the order of the tools.

use proptest::prelude::*;

use super::*;

fn naming(prefix: &str) -> Naming {
    Naming { prefix: prefix.to_owned(), ..Naming::default() }
}

#[track_caller]
fn check(tools: &[(&str, &str, &str)], expected: &[&str]) {
    let prefixes: Vec<Naming> = tools.iter().map(|(_, prefix, _)| naming(prefix)).collect();
    let nameless: Vec<Nameless<'_>> = tools
        .iter()
        .zip(&prefixes)
        .map(|((backend, _, tool), naming)| Nameless { backend, tool, wanted: naming.wanted(tool) })
        .collect();
    assert_eq!(assign(&nameless), expected);
}

#[test]
fn the_prefix_is_not_doubled() {
    check(&[("fs", "fs_", "read")], &["fs_read"]);
    check(&[("fs", "fs_", "fs_read")], &["fs_read"]);
    check(&[("fs", "", "read")], &["read"]);
}

#[test]
fn illegal_characters_become_underscores() {
    check(&[("fs", "fs_", "read-file.v2 é")], &["fs_read_file_v2__"]);
}

#[test]
fn a_rename_comes_before_the_prefix() {
    let mut naming = naming("fs_");
    naming.rename.insert("read".to_owned(), "look".to_owned());
    assert_eq!(naming.wanted("read"), "fs_look");
    assert_eq!(naming.wanted("write"), "fs_write");
}

#[test]
fn a_long_name_is_cut_to_55_and_a_hash() {
    let tool = "x".repeat(80);
    let nameless = [Nameless { backend: "b", tool: &tool, wanted: naming("b_").wanted(&tool) }];
    let names = assign(&nameless);
    assert_eq!(names[0].len(), MAX_LEN);
    assert!(names[0].starts_with(&format!("b_{}_", "x".repeat(53))), "{names:?}");
    let exact = "x".repeat(62);
    check(&[("b", "b_", &exact)], &[&format!("b_{exact}")]);
}

#[test]
fn both_sides_of_a_clash_get_a_suffix() {
    let names = |order: [&str; 2]| {
        let tools = order.map(|tool| Nameless { backend: "b", tool, wanted: legal(tool) });
        assign(&tools)
    };
    let [first, second] = <[String; 2]>::try_from(names(["a-b", "a_b"])).unwrap();
    assert_ne!(first, second);
    assert!(first.starts_with("a_b_") && second.starts_with("a_b_"), "{first} {second}");
    assert_eq!(names(["a_b", "a-b"]), [second, first]);
}

#[test]
fn a_name_that_looks_like_a_suffixed_one_is_not_hit() {
    let forged = suffixed("a_b", "b", "a-b", 0);
    let tools: Vec<Nameless<'_>> = ["a-b", "a_b", &forged]
        .iter()
        .map(|tool| Nameless { backend: "b", tool, wanted: legal(tool) })
        .collect();
    let names = assign(&tools);
    let unique: std::collections::HashSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), 3, "{names:?}");
}

#[test]
fn filters_look_at_the_servers_name() {
    let glob = |pattern: &str| crate::model::globs::globs(&[pattern]);
    let filter = ToolFilter { allow: Some(glob("read*")), deny: glob("*secret*") };
    assert!(filter.passes("read_file"));
    assert!(!filter.passes("write_file"));
    assert!(!filter.passes("read_secret"));
}

proptest! {
    #[test]
    fn names_are_legal_unique_and_free_of_order(
        tools in prop::collection::hash_set(("[ab]", "[aA_\\-.é ]{1,4}|[x_]{60,70}"), 1..24),
        turn in any::<prop::sample::Index>(),
    ) {
        let tools: Vec<(String, String)> = tools.into_iter().collect();
        let nameless: Vec<Nameless<'_>> = tools
            .iter()
            .map(|(backend, tool)| Nameless { backend, tool, wanted: legal(tool) })
            .collect();
        let names = assign(&nameless);
        for name in &names {
            let legal = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            prop_assert!(legal && (1..=MAX_LEN).contains(&name.len()), "{name}");
        }
        let unique: std::collections::HashSet<&String> = names.iter().collect();
        prop_assert_eq!(unique.len(), names.len());

        let at = turn.index(nameless.len());
        let mut turned = nameless.clone();
        turned.rotate_left(at);
        let mut turned_names = assign(&turned);
        turned_names.rotate_right(at);
        prop_assert_eq!(turned_names, names);
    }
}

/// The prefix of a backend: its own, none, or that of another one.
fn prefixes() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a_"), Just("a_b_"), Just("b_"), Just("")]
}

/// Names that get into each other's way: equal ones, twins but for the case or a mark, Cyrillic and
/// full-width letters, those that end where another prefix begins, long ones, the bridge's own.
fn tool_names() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab]{1,2}(_[abc]){0,3}".prop_map(String::from),
        "[aAеａ][_.\\- ][bBЬ]".prop_map(String::from),
        "(a_|a_b_|b_){0,3}c{0,70}".prop_map(String::from),
        Just("bridge_call_result".to_owned()),
        "c_[0-9a-f]{8}".prop_map(String::from),
        any::<String>().prop_filter("servers' tools have names", |name| !name.is_empty()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A28: every name leads to one tool, and the same ones do so whatever the order; a server that
    /// comes later, or whose tools are named to look like another's, takes over no name.
    #[test]
    fn no_name_leads_astray(
        backends in prop::collection::btree_map(
            "[abc]{1,2}",
            (prefixes(), prop::collection::btree_set(tool_names(), 1..12)),
            1..4,
        ),
        turn in any::<prop::sample::Index>(),
    ) {
        let wanted = |(backend, (prefix, tools)): (&String, &(&str, std::collections::BTreeSet<String>))| {
            let naming = naming(prefix);
            let all = tools.iter().map(|tool| (backend.clone(), tool.clone(), naming.wanted(tool)));
            all.collect::<Vec<_>>()
        };
        let mut all: Vec<(String, String, String)> = backends.iter().flat_map(wanted).collect();
        // The bridge's own tool, as the offer adds it.
        let own = "bridge_call_result".to_owned();
        all.push((own.clone(), String::new(), own));
        let assigned = |all: &[(String, String, String)]| {
            let nameless: Vec<Nameless<'_>> = all
                .iter()
                .map(|(backend, tool, wanted)| Nameless { backend, tool, wanted: wanted.clone() })
                .collect();
            let names = assign(&nameless).into_iter();
            let places = all.iter().map(|(backend, tool, _)| (backend.clone(), tool.clone()));
            names.zip(places).collect::<BTreeMap<_, _>>()
        };
        let routes = assigned(&all);
        prop_assert_eq!(routes.len(), all.len(), "two tools of one name");
        for name in routes.keys() {
            let legal = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            prop_assert!(legal && (1..=MAX_LEN).contains(&name.len()), "{name}");
        }
        let mut turned = all.clone();
        turned.rotate_left(turn.index(all.len()));
        prop_assert_eq!(&assigned(&turned), &routes, "the order matters");

        // Without the last backend, no name leads to a tool other than the one it had led to.
        let last = backends.keys().next_back().unwrap();
        all.retain(|(backend, ..)| backend != last);
        for (name, place) in assigned(&all) {
            let then = routes.get(&name);
            prop_assert!(then.is_none_or(|then| *then == place), "{name} was taken over");
        }
    }
}
