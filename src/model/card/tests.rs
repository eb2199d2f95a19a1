//! Cards of both generations, and cards that are none.

use super::*;

fn interface(url: &str, binding: &str, version: Option<&str>) -> Interface {
    Interface {
        url: url.to_owned(),
        binding: binding.to_owned(),
        version: version.map(str::to_owned),
        tenant: None,
    }
}

fn hr(interfaces: Vec<Interface>) -> Card {
    Card { name: "HR".to_owned(), interfaces, streaming: false, token_url: None }
}

#[test]
fn a_card_that_streams_says_so() {
    let streams = |capabilities: &str| {
        let card = format!(r#"{{"name":"HR","capabilities":{capabilities}}}"#);
        Card::read(&card).unwrap().streaming
    };
    assert!(streams(r#"{"streaming":true}"#));
    for capabilities in [r#"{"streaming":false}"#, r#"{"streaming":"yes"}"#, "{}", "[]", "null"] {
        assert!(!streams(capabilities), "{capabilities}");
    }
}

#[test]
fn a_1_0_card() {
    let card = Card::read(
        r#"{"name":"HR","x-own":1e400,"supportedInterfaces":[
            {"url":"https://hr/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"},
            {"url":"https://hr/rest","protocolBinding":"HTTP+JSON","protocolVersion":"1.0","tenant":"t1"},
            {"protocolBinding":"GRPC"}, 7]}"#,
    );
    let mut rest = interface("https://hr/rest", "HTTP+JSON", Some("1.0"));
    rest.tenant = Some("t1".to_owned());
    let interfaces = vec![interface("https://hr/rpc", "JSONRPC", Some("1.0")), rest];
    assert_eq!(card, Ok(hr(interfaces)));
}

#[test]
fn a_0_3_card() {
    let card = Card::read(
        r#"{"name":"HR","protocolVersion":"0.3.0","url":"https://hr/a","preferredTransport":"HTTP+JSON",
            "additionalInterfaces":[{"url":"https://hr/b","transport":"JSONRPC"}]}"#,
    );
    let interfaces = vec![
        interface("https://hr/a", "HTTP+JSON", Some("0.3.0")),
        interface("https://hr/b", "JSONRPC", Some("0.3.0")),
    ];
    assert_eq!(card, Ok(hr(interfaces)));
}

#[test]
fn member_that_is_absent_or_of_another_type_is_left_out() {
    let card = Card::read(r#"{"name":"HR","url":"https://hr","supportedInterfaces":null}"#);
    let interfaces = vec![interface("https://hr", "JSONRPC", None)];
    assert_eq!(card, Ok(hr(interfaces)));
    let card = Card::read(r#"{"name":"HR","url":5,"additionalInterfaces":{}}"#);
    assert_eq!(card, Ok(hr(Vec::new())));
}

#[test]
fn no_card() {
    assert!(matches!(Card::read("[]"), Err(BadCard::NotAnObject(_))));
    assert!(matches!(Card::read("<html>"), Err(BadCard::NotAnObject(_))));
    assert_eq!(Card::read(r#"{"description":"x"}"#), Err(BadCard::NoName));
    assert_eq!(Card::read(r#"{"name":" "}"#), Err(BadCard::NoName));
    assert_eq!(Card::read(r#"{"name":["HR"]}"#), Err(BadCard::NoName));
}

#[test]
fn the_token_url_of_either_generation() {
    let card = |schemes: &str| {
        let text = format!(r#"{{"name":"HR","securitySchemes":{schemes}}}"#);
        Card::read(&text).unwrap().token_url
    };
    let flows = r#"{"clientCredentials":{"tokenUrl":"https://idp/t","scopes":{}}}"#;
    let found = Some("https://idp/t".to_owned());
    assert_eq!(
        card(&format!(r#"{{"k":{{"type":"apiKey"}},"o":{{"type":"oauth2","flows":{flows}}}}}"#)),
        found
    );
    assert_eq!(card(&format!(r#"{{"o":{{"oauth2SecurityScheme":{{"flows":{flows}}}}}}}"#)), found);
    for none in [
        "{}",
        "7",
        r#"{"o":{"type":"oauth2","flows":{"authorizationCode":{"tokenUrl":"https://idp/t"}}}}"#,
        r#"{"o":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"tokenUrl":""}}}}}"#,
    ] {
        assert_eq!(card(none), None, "{none}");
    }
}
