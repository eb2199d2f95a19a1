//! The choice between interfaces, and the refusal of hosts that nobody allowed.

use super::*;

fn card(interfaces: &[(&str, &str, &str)]) -> Card {
    let interfaces = interfaces.iter().map(|(url, binding, version)| Interface {
        url: (*url).to_owned(),
        binding: (*binding).to_owned(),
        version: (!version.is_empty()).then(|| (*version).to_owned()),
        tenant: None,
    });
    Card { name: "HR".to_owned(), interfaces: interfaces.collect(), ..Card::default() }
}

/// The choice for a card at https://hr.acme/.well-known/agent-card.json, in short.
fn chosen(
    interfaces: &[(&str, &str, &str)],
    binding: Option<A2aBinding>,
    allow_hosts: &[&str],
) -> Result<String, String> {
    let card_url = Url::parse("https://hr.acme/.well-known/agent-card.json").unwrap();
    let allow_hosts: Vec<String> = allow_hosts.iter().map(|host| (*host).to_owned()).collect();
    let rules = Rules { allow_hosts: &allow_hosts, binding, ..rules(Some(&card_url)) };
    choose(&card(interfaces), rules)
        .map(|endpoints| endpoints.first().map(short).unwrap_or_default())
        .map_err(|error| format!("{error}; {}", error.cure()))
}

/// The rules of an entry that says nothing but where its card is.
fn rules(card_url: Option<&Url>) -> Rules<'_> {
    Rules { card_url, allow_hosts: &[], binding: None, endpoint: None, keeps_from_plain: true }
}

fn short(endpoint: &Endpoint) -> String {
    let Endpoint { url, binding, generation, .. } = endpoint;
    format!("{url} {} {generation:?}", binding.as_str())
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
    for other in ["https://evil.example/a2a", "https://hr.acme:8443/a2a", "//evil/x"] {
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
    let v6 = [("https://[fd00::1]:80/", "JSONRPC", "1.0")];
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
    let rules = rules(None);
    let endpoints = choose(&card(&[("http://10.0.0.7:9000/", "JSONRPC", "1.0")]), rules).unwrap();
    assert_eq!(endpoints[0].url.as_str(), "http://10.0.0.7:9000/");
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
            let rules = Rules { allow_hosts: &allowed, ..rules(card_url) };
            assert_eq!(choose(&card(&bare), rules).unwrap()[0].url.as_str(), expected);
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

mod plain {
    use super::*;

    const CARD: &str = "https://hr.acme/.well-known/agent-card.json";

    fn rules_of<'a>(card_url: &'a Url, allow_hosts: &'a [String]) -> Rules<'a> {
        Rules { allow_hosts, ..rules(Some(card_url)) }
    }

    fn refusal(url: &str, rules: Rules<'_>) -> String {
        let error = choose(&card(&[(url, "JSONRPC", "1.0")]), rules).unwrap_err();
        format!("{error}; {}", error.cure())
    }

    #[test]
    fn credentials_do_not_go_over_http_where_the_card_came_over_https() {
        let card_url = Url::parse(CARD).unwrap();
        let allowed = ["hr.acme".to_owned()];
        for allow_hosts in [&[][..], &allowed] {
            let told = refusal("http://hr.acme/a2a", rules_of(&card_url, allow_hosts));
            assert!(told.contains("is plain http") && told.contains("credentials"), "{told}");
            let (first, last) = told.split_once("only if").unwrap();
            assert!(first.contains("https address") && first.contains("`endpoint`"), "{told}");
            assert!(last.contains("allow_plain: true") && last.contains("plain text"), "{told}");
        }
        let with_secrets_allowed =
            Rules { keeps_from_plain: false, ..rules_of(&card_url, &allowed) };
        let plain = card(&[("http://hr.acme/a2a", "JSONRPC", "1.0")]);
        assert!(choose(&plain, with_secrets_allowed).is_ok());
    }

    #[test]
    fn host_that_is_allowed_over_http_is_told_to_be_readable() {
        let card_url = Url::parse(CARD).unwrap();
        let rules = Rules { keeps_from_plain: false, ..rules_of(&card_url, &[]) };
        let told = refusal("http://hr.acme/a2a", rules);
        assert!(told.contains("add `hr.acme:80`") && told.contains("plain text"), "{told}");
    }

    #[test]
    fn interface_over_https_is_chosen_before_a_plain_one_is_needed() {
        let card_url = Url::parse(CARD).unwrap();
        let allowed = ["hr.acme".to_owned()];
        let both = [("http://hr.acme/a", "JSONRPC", "1.0"), ("/b", "HTTP+JSON", "1.0")];
        let endpoints = choose(&card(&both), rules_of(&card_url, &allowed)).unwrap();
        let shown: Vec<String> = endpoints.iter().map(short).collect();
        assert_eq!(shown, ["https://hr.acme/b http-json V10"]);
    }

    #[test]
    fn card_that_came_over_http_may_name_http() {
        let card_url = Url::parse("http://hr.acme/card").unwrap();
        let plain = card(&[("/a2a", "JSONRPC", "1.0")]);
        assert!(choose(&plain, rules(Some(&card_url))).is_ok());
    }
}

mod unusable {
    use super::*;

    #[test]
    fn url_that_is_none_says_so_and_that_endpoint_helps() {
        for (url, expected) in [
            ("", "has an empty URL"),
            ("  ", "has an empty URL"),
            ("https://REPLACE_BY_HOST/a2a", "placeholder"),
            ("REPLACE_BY_URL", "placeholder"),
            ("{BASE_URL}/x", "placeholder"),
            ("https://<your-host>/", "placeholder"),
            ("${A2A_URL}", "placeholder"),
            ("localhost:8000", "begins neither"),
            ("hr.acme/a2a", "begins neither"),
            ("http://[::]:9999/", "address to listen at"),
            ("http://0.0.0.0:9999/", "address to listen at"),
        ] {
            let error = chosen(&[(url, "JSONRPC", "1.0")], None, &[]).unwrap_err();
            assert!(error.contains(expected) && error.contains("`endpoint`"), "{url}: {error}");
        }
        let guess = chosen(&[("http://0.0.0.0:9999/x", "JSONRPC", "1.0")], None, &[]).unwrap_err();
        assert!(guess.contains("such as http://hr.acme:9999/x"), "{guess}");
    }

    #[test]
    fn listening_address_that_the_operator_allows_is_called() {
        let url = [("https://0.0.0.0:9999/", "JSONRPC", "1.0")];
        assert!(chosen(&url, None, &["0.0.0.0"]).is_ok());
    }

    #[test]
    fn interface_that_cannot_be_used_makes_room_for_those_after_it_in_order() {
        let card_url = Url::parse("https://hr.acme/card").unwrap();
        let offered = [
            ("", "JSONRPC", "1.0"),
            ("https://hr.acme/grpc", "GRPC", "1.0"),
            ("/rest", "HTTP+JSON", "1.0"),
            ("/old", "JSONRPC", "0.3"),
            ("/rest", "HTTP+JSON", "1.0"),
        ];
        let endpoints = choose(&card(&offered), rules(Some(&card_url))).unwrap();
        let shown: Vec<String> = endpoints.iter().map(short).collect();
        assert_eq!(
            shown,
            [
                "https://hr.acme/rest http-json V10",
                "https://hr.acme/grpc grpc V10",
                "https://hr.acme/old jsonrpc V03"
            ]
        );
    }
}

mod endpoint {
    use super::*;

    /// How the operator's own address is called.
    fn called(interfaces: &[(&str, &str, &str)], binding: Option<A2aBinding>) -> String {
        let card_url = Url::parse("https://hr.acme/card").unwrap();
        let endpoint = Url::parse("http://10.0.0.7/a2a").unwrap();
        let rules = Rules { binding, endpoint: Some(&endpoint), ..rules(Some(&card_url)) };
        let endpoints = choose(&card(interfaces), rules).unwrap();
        assert_eq!(endpoints.len(), 1, "the card's other addresses are not tried");
        short(&endpoints[0])
    }

    #[test]
    fn operators_address_has_the_binding_and_version_that_the_card_prefers() {
        let both = [("", "GRPC", "1.0"), ("{x}", "HTTP+JSON", "1.0"), ("/a", "JSONRPC", "0.3")];
        assert_eq!(called(&both, None), "http://10.0.0.7/a2a http-json V10");
        assert_eq!(called(&both, Some(A2aBinding::JsonRpc)), "http://10.0.0.7/a2a jsonrpc V03");
    }

    #[test]
    fn interface_with_the_same_address_decides() {
        let both = [("/a", "HTTP+JSON", "1.0"), ("http://10.0.0.7/a2a", "JSONRPC", "0.3")];
        assert_eq!(called(&both, None), "http://10.0.0.7/a2a jsonrpc V03");
    }

    #[test]
    fn card_that_does_not_have_the_binding_lends_its_version() {
        let other = [("/a", "JSONRPC", "1.0")];
        assert_eq!(called(&other, Some(A2aBinding::HttpJson)), "http://10.0.0.7/a2a http-json V10");
        assert_eq!(called(&[], None), "http://10.0.0.7/a2a jsonrpc V03");
        let old = [("/a", "JSONRPC", "0.3")];
        assert_eq!(called(&old, Some(A2aBinding::Grpc)), "http://10.0.0.7/a2a grpc V10");
    }
}
