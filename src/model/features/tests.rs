//! The features of several servers together.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Feature, FeatureView, Features, MAX, MAX_BYTES, fits};
use crate::model::ids::BackendName;
use crate::model::naming::Naming;

fn features(kind: Feature, definitions: &[&str]) -> Features {
    let mut features = Features::new(false);
    let raw = |text: &&str| RawValue::from_string((*text).to_owned()).unwrap();
    features.add(kind, definitions.iter().map(raw).collect());
    assert_eq!(features.left_out(), None);
    features
}

fn view(servers: Vec<(&str, Features)>) -> FeatureView {
    let server = |(name, features): (&str, Features)| {
        let naming = Naming { prefix: format!("{name}_"), ..Naming::default() };
        (BackendName::parse(name).unwrap(), Arc::new(naming), Arc::new(features))
    };
    FeatureView::new(servers.into_iter().map(server).collect())
}

#[test]
fn prompts_are_named_as_tools_are_and_uris_stay() {
    let prompts = |name: &str| {
        features(Feature::PROMPT, &[&*format!(r#"{{"x": 1e400, "name" : "{name}"}}"#)])
    };
    let view = view(vec![("a", prompts("ask it")), ("b", prompts("ask it"))]);
    let definitions = view.definitions(Feature::PROMPT);
    assert_eq!(
        definitions,
        [r#"{"x": 1e400, "name" : "a_ask_it"}"#, r#"{"x": 1e400, "name" : "b_ask_it"}"#]
    );
    let (backend, own) = view.find(Feature::PROMPT, "b_ask_it").unwrap();
    assert_eq!((backend.as_str(), own), ("b", "ask it"));
    assert_eq!(view.find(Feature::PROMPT, "ask it"), None);
}

#[test]
fn uri_of_two_servers_belongs_to_the_first() {
    let both = r#"{"uri":"x://both","name":"n"}"#;
    let a = features(Feature::RESOURCE, &[both]);
    let b = features(Feature::RESOURCE, &[r#"{"uri":"x://b","name":"n"}"#, both]);
    assert_eq!(b.shared_with(&a), Some("x://both"));
    let mut of_template = features(Feature::TEMPLATE, &[r#"{"uriTemplate":"x://{a}","name":"n"}"#]);
    of_template.completes = true;
    let view = view(vec![("a", a), ("b", b), ("c", of_template)]);
    assert_eq!(view.definitions(Feature::RESOURCE).len(), 2);
    let server = |uri| view.server_of(uri).map(|name| name.as_str());
    assert_eq!(server("x://both"), Some("a"));
    assert_eq!(server("x://b"), Some("b"));
    assert_eq!(server("x://other/one"), Some("c"), "by its template");
    assert_eq!(server("y://other"), None);
    let completes = |name| view.completes(&BackendName::parse(name).unwrap());
    assert!(completes("c") && !completes("a"));
}

#[test]
fn the_template_that_says_most_of_a_uri_has_it() {
    let of = |template: &str| features(Feature::TEMPLATE, &[template]);
    let all = of(r#"{"uriTemplate":"{x}","name":"n"}"#);
    let notes = of(r#"{"uriTemplate":"notes://{id}","name":"n"}"#);
    let view = view(vec![("a", all), ("notes", notes)]);
    let server = |uri| view.server_of(uri).map(|name| name.as_str());
    assert_eq!(server("notes://7"), Some("notes"), "the template says more of it");
    assert_eq!(server("x://7"), Some("a"));
}

#[test]
fn definition_that_clients_cannot_read_is_left_out_and_told_with_its_member() {
    for (bad, expected) in [
        ("7", "number 0 of resources (it is no object)"),
        (r#"{"uri":"x://a"}"#, r#"number 0 of resources "x://a" (`name` is missing)"#),
        (r#"{"uri":7,"name":"n"}"#, "number 0 of resources (`uri` is no text)"),
        (
            r#"{"uri":"x://a","name":"n","size":"large"}"#,
            r#"number 0 of resources "x://a" (`size` is no whole number)"#,
        ),
        (
            r#"{"uri":"x://a","uri":"x://b","name":"n"}"#,
            "number 0 of resources (`uri` is not there once)",
        ),
    ] {
        let mut features = Features::new(false);
        features.add(Feature::RESOURCE, vec![RawValue::from_string(bad.to_owned()).unwrap()]);
        assert_eq!(features.left_out(), Some(format!("MCP clients do not get: {expected}.")));
        assert_eq!(features.of(Feature::RESOURCE).count(), 0);
    }
}

#[test]
fn member_that_is_null_counts_as_left_out() {
    let nulls = r#","title":null,"description":null,"icons":null,"_meta":null"#;
    struct Case {
        kind: Feature,
        own: &'static str,
        more: &'static str,
    }
    for Case { kind, own, more } in [
        Case {
            kind: Feature::RESOURCE,
            own: r#""uri":"x://a""#,
            more: r#","size":null,"annotations":null"#,
        },
        Case {
            kind: Feature::TEMPLATE,
            own: r#""uriTemplate":"x://{a}""#,
            more: r#","mimeType":null"#,
        },
        Case { kind: Feature::PROMPT, own: r#""x":1"#, more: r#","arguments":null"# },
    ] {
        let definition = format!(r#"{{{own},"name":"a_n"{nulls}{more}}}"#);
        let view = view(vec![("a", features(kind, &[&definition]))]);
        assert_eq!(view.definitions(kind), [format!(r#"{{{own},"name":"a_n"}}"#)], "{own}");
    }
}

#[test]
fn a_server_offers_only_so_much() {
    let mut features = Features::new(false);
    let one = |number: usize, text: &str| {
        let text = format!(r#"{{"uri":"x://{number}","name":"n","description":"{text}"}}"#);
        RawValue::from_string(text).unwrap()
    };
    let large = "x".repeat(MAX_BYTES / 2);
    let all = vec![one(1, &large), one(2, &large), one(3, "")];
    features.add(Feature::RESOURCE, all);
    assert_eq!(features.of(Feature::RESOURCE).count(), 2);
    let mut features = Features::new(false);
    let all = (0..=MAX).map(|number| one(number, "")).collect();
    features.add(Feature::RESOURCE, all);
    assert_eq!(features.of(Feature::RESOURCE).count(), MAX);
    let told = features.left_out().unwrap();
    assert!(told.contains("it is one more than a server may have"), "{told}");
}

#[test]
fn a_digest_changes_with_its_own_kind_alone() {
    let digest = |text| {
        let view = view(vec![("a", features(Feature::RESOURCE, &[text]))]);
        [Feature::RESOURCE, Feature::PROMPT].map(|kind| view.digest(&[kind]))
    };
    let (one, other) =
        (digest(r#"{"uri":"x://a","name":"n"}"#), digest(r#"{"uri":"x://a","name":"m"}"#));
    assert_ne!(one[0], other[0]);
    assert_eq!(one[1], other[1]);
}

#[test]
fn uris_fit_their_templates() {
    struct Case {
        template: &'static str,
        uri: &'static str,
        does: bool,
    }
    for Case { template, uri, does } in [
        Case { template: "file:///{path}", uri: "file:///a/b", does: true },
        Case { template: "file:///{path}", uri: "http:///a", does: false },
        Case { template: "x://{a}/of/{b}", uri: "x://1/of/2", does: true },
        Case { template: "x://{a}/of/{b}", uri: "x://1/2", does: false },
        Case { template: "x://a*[b]/{c}", uri: "x://a*[b]/1", does: true },
        Case { template: "x://a*[b]/{c}", uri: "x://aab/1", does: false },
        Case { template: "x://whole", uri: "x://whole", does: true },
        Case { template: "x://whole", uri: "x://whole/more", does: false },
        Case { template: "x://{broken", uri: "x://1", does: true },
        Case { template: "a{x}/{y}/{z}", uri: "a1/2/", does: true },
        Case { template: "x/{a}/end", uri: "x/1/end/2/end", does: true },
        Case { template: "x/{a}/end", uri: "x/1/end/2", does: false },
    ] {
        assert_eq!(fits(template, uri).is_some(), does, "{template} {uri}");
    }
}

#[test]
fn view_is_of_the_servers_that_it_was_made_of_alone() {
    let source = |name: &str| (BackendName::parse(name).unwrap(), Arc::default(), Arc::default());
    let servers = [source("a"), source("b")];
    let view = FeatureView::new(servers.to_vec());
    assert!(view.is_of(&servers));
    assert!(!view.is_of(&servers[..1]));
    assert!(!view.is_of(&[servers[0].clone(), source("b")]), "the server has listed them again");
}
