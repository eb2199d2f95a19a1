//! The choice between interfaces, and the refusal of hosts that nobody allowed.

use super::*;

fn card(interfaces: &[(&str, &str, &str)]) -> Card {
    let interfaces = interfaces.iter().map(|(url, binding, version)| Interface {
        url: (*url).to_owned(),
        binding: (*binding).to_owned(),
        version: (!version.is_empty()).then(|| (*version).to_owned()),
        tenant: None,
    });
    Card {
        name: "HR".to_owned(),
        interfaces: interfaces.collect(),
        streaming: false,
        token_url: None,
    }
}

/// The choice for a card at https://hr.acme/.well-known/agent-card.json, in short.
fn chosen(
    interfaces: &[(&str, &str, &str)],
    binding: Option<A2aBinding>,
    allow_hosts: &[&str],
) -> Result<String, String> {
    let card_url = Url::parse("https://hr.acme/.well-known/agent-card.json").unwrap();
    let allow_hosts: Vec<String> = allow_hosts.iter().map(|host| (*host).to_owned()).collect();
    let rules = Rules { card_url: Some(&card_url), allow_hosts: &allow_hosts, binding };
    let endpoint = choose(&card(interfaces), rules).map_err(|error| error.to_string())?;
    let Endpoint { url, binding, generation, .. } = endpoint;
    Ok(format!("{url} {} {generation:?}", binding.as_str()))
}

#[test]
fn the_cards_order_decides_among_what_we_speak() {
    let offered = [
        ("https://hr.acme/grpc", "GRPC", "1.0"),
        ("https://hr.acme/rest", "HTTP+JSON", "1.0"),
        ("https://hr.acme/rpc", "JSONRPC", "1.0"),
    ];
    assert_eq!(chosen(&offered, None, &[]).unwrap(), "https://hr.acme/rest http-json V10");
    assert_eq!(
        chosen(&offered, Some(A2aBinding::JsonRpc), &[]).unwrap(),
        "https://hr.acme/rpc jsonrpc V10"
    );
}

#[test]
fn the_newer_generation_of_the_chosen_binding_wins() {
    let offered = [
        ("https://hr.acme/old", "JSONRPC", "0.3.0"),
        ("https://hr.acme/rest", "HTTP+JSON", "1.0"),
        ("https://hr.acme/new", "jsonrpc", "1.0"),
    ];
    assert_eq!(chosen(&offered, None, &[]).unwrap(), "https://hr.acme/new jsonrpc V10");
}

#[test]
fn no_version_is_0_3_and_2_is_not_spoken() {
    assert_eq!(
        chosen(&[("https://hr.acme/", "JSONRPC", "")], None, &[]).unwrap(),
        "https://hr.acme/ jsonrpc V03"
    );
    let error = chosen(&[("https://hr.acme/", "JSONRPC", "2.0")], None, &[]).unwrap_err();
    assert!(error.contains("https://hr.acme/ (JSONRPC 2.0) is neither"), "{error}");
}

#[test]
fn relative_urls_stand_below_the_cards() {
    assert_eq!(
        chosen(&[("/a2a", "JSONRPC", "1.0")], None, &[]).unwrap(),
        "https://hr.acme/a2a jsonrpc V10"
    );
}

#[test]
fn another_origin_must_be_allowed() {
    for other in
        ["https://evil.example/a2a", "http://hr.acme/a2a", "https://hr.acme:8443/a2a", "//evil/x"]
    {
        let error = chosen(&[(other, "JSONRPC", "1.0")], None, &[]).unwrap_err();
        assert!(error.contains("`allow_hosts`") && error.contains("origin"), "{error}");
    }
    let other = [("https://agents.acme:8443/a2a", "JSONRPC", "1.0")];
    let error = chosen(&other, None, &[]).unwrap_err();
    assert!(error.contains("https://agents.acme:8443/a2a"), "{error}");
    assert!(error.contains("add `agents.acme:8443`"), "{error}");
    for allowed in ["agents.acme", "Agents.acme:8443"] {
        assert!(chosen(&other, None, &[allowed]).is_ok(), "{allowed}");
    }
    for allowed in ["agents.acme:443", "acme", "evil"] {
        assert!(chosen(&other, None, &[allowed]).is_err(), "{allowed}");
    }
    let v6 = [("http://[fd00::1]:80/", "JSONRPC", "1.0")];
    for allowed in ["[fd00::1]", "fd00::1", "[fd00::1]:80"] {
        assert!(chosen(&v6, None, &[allowed]).is_ok(), "{allowed}");
    }
}

#[test]
fn a_refused_interface_makes_room_for_the_next() {
    let offered = [
        ("https://evil.example/a2a", "JSONRPC", "1.0"),
        ("https://hr.acme/a2a", "HTTP+JSON", "0.3"),
    ];
    assert_eq!(chosen(&offered, None, &[]).unwrap(), "https://hr.acme/a2a http-json V03");
}

#[test]
fn link_local_addresses_are_never_called() {
    for url in [
        "http://169.254.169.254/latest",
        "http://2852039166/",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
    ] {
        let error =
            chosen(&[(url, "JSONRPC", "1.0")], None, &["169.254.169.254", "fe80::1"]).unwrap_err();
        assert!(error.contains("link-local"), "{error}");
    }
}

#[test]
fn urls_with_credentials_or_other_schemes_are_refused_and_not_shown() {
    let error = chosen(&[("https://u:hunter2@hr.acme/?k=hunter2", "JSONRPC", "1.0")], None, &[])
        .unwrap_err();
    assert!(error.contains("`headers`") && !error.contains("hunter2"), "{error}");
    let error = chosen(&[("file:///etc/passwd", "JSONRPC", "1.0")], None, &[]).unwrap_err();
    assert!(error.contains("https"), "{error}");
}

#[test]
fn a_file_is_the_operators_word() {
    let rules = Rules { card_url: None, allow_hosts: &[], binding: None };
    let endpoint = choose(&card(&[("http://10.0.0.7:9000/", "JSONRPC", "1.0")]), rules).unwrap();
    assert_eq!(endpoint.url.as_str(), "http://10.0.0.7:9000/");
    assert!(choose(&card(&[("/a2a", "JSONRPC", "1.0")]), rules).is_err());
    assert!(choose(&card(&[("http://169.254.169.254/", "JSONRPC", "1.0")]), rules).is_err());
}

#[test]
fn a_card_without_interfaces_says_what_is_missing() {
    let error = chosen(&[], None, &[]).unwrap_err();
    assert!(error.contains("`supportedInterfaces`"), "{error}");
    let error = chosen(&[("https://hr.acme/", "JSONRPC", "1.0")], Some(A2aBinding::HttpJson), &[])
        .unwrap_err();
    assert!(error.contains("`transport: http-json`"), "{error}");
}

mod grpc {
    use super::*;

    #[test]
    fn grpc_comes_after_the_other_bindings() {
        let offered =
            [("https://hr.acme/grpc", "grpc", "1.0"), ("https://hr.acme/rest", "HTTP+JSON", "1.0")];
        assert_eq!(chosen(&offered, None, &[]).unwrap(), "https://hr.acme/rest http-json V10");
        let grpc = "https://hr.acme/grpc grpc V10";
        assert_eq!(chosen(&offered, Some(A2aBinding::Grpc), &[]).unwrap(), grpc);
        assert_eq!(chosen(&offered[..1], None, &[]).unwrap(), grpc);
    }

    #[test]
    fn an_address_without_a_scheme_has_its_cards() {
        let bare = [("agents.acme:8443", "GRPC", "1.0")];
        let allowed = ["agents.acme:8443"];
        assert_eq!(chosen(&bare, None, &allowed).unwrap(), "https://agents.acme:8443/ grpc V10");
        let error = chosen(&bare, None, &[]).unwrap_err();
        assert!(error.contains("add `agents.acme:8443`"), "{error}");
        let plain = Url::parse("http://hr.acme/").unwrap();
        let allowed = ["agents.acme".to_owned()];
        for (card_url, expected) in
            [(Some(&plain), "http://agents.acme:8443/"), (None, "https://agents.acme:8443/")]
        {
            let rules = Rules { card_url, allow_hosts: &allowed, binding: None };
            assert_eq!(choose(&card(&bare), rules).unwrap().url.as_str(), expected);
        }
        for (hidden, why) in
            [("u:hunter2@hr.acme:443", "`headers`"), ("169.254.169.254:80", "link-local")]
        {
            let error = chosen(&[(hidden, "GRPC", "1.0")], None, &["169.254.169.254"]).unwrap_err();
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
        // Only gRPC has such addresses.
        assert!(chosen(&[("agents.acme:8443", "JSONRPC", "1.0")], None, &["agents.acme"]).is_err());
    }

    #[test]
    fn grpc_of_0_3_is_another_service() {
        for version in ["0.3.0", ""] {
            let error =
                chosen(&[("https://hr.acme/grpc", "GRPC", version)], None, &[]).unwrap_err();
            assert!(error.contains("https://hr.acme/grpc") && error.contains("0.x"), "{error}");
        }
    }
}
