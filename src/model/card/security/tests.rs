//! The schemes of both generations, and what the operator is told to write.

use super::*;

/// The cure of a card with these schemes.
fn told(schemes: &str) -> Option<String> {
    let card = format!(r#"{{"securitySchemes":{schemes}}}"#);
    cure(&super::schemes(&Members::read(&card).unwrap()))
}

#[test]
fn scheme_of_either_generation_tells_what_to_write() {
    let rows = [
        (r#"{"k":{"type":"apiKey","in":"header","name":"X-Key"}}"#, "headers: {X-Key: "),
        (
            r#"{"k":{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}}}"#,
            "headers: {X-Key: ",
        ),
        (r#"{"k":{"type":"apiKey","in":"query","name":"key"}}"#, "?key="),
        (r#"{"k":{"type":"http","scheme":"Bearer"}}"#, "auth: {bearer"),
        (r#"{"k":{"httpAuthSecurityScheme":{"scheme":"basic"}}}"#, "headers: {Authorization"),
        (
            r#"{"k":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"https://t","scopes":{"a":""}}}}}"#,
            "token_url: \"https://t\", scopes: [a]",
        ),
        (r#"{"k":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://i"}}}"#, "a person"),
        (r#"{"k":{"mtlsSecurityScheme":{}}}"#, "tls: {cert"),
    ];
    for (schemes, expected) in rows {
        let cure = told(schemes).unwrap_or_default();
        assert!(cure.contains(expected), "{schemes}: {cure}");
    }
}

#[test]
fn several_schemes_are_alternatives_and_unknown_ones_are_left_out() {
    let both =
        r#"{"a":{"type":"mutualTLS"},"x":{"type":"magic"},"b":{"type":"http","scheme":"bearer"}}"#;
    assert!(told(both).is_some_and(|cure| cure.contains("; or for a bearer token")));
    for none in ["{}", "[]", "7", r#"{"x":{"type":"magic"}}"#, r#"{"x":7}"#] {
        assert_eq!(told(none), None, "{none}");
    }
}

#[test]
fn word_of_the_card_stays_in_its_quotes_and_in_one_line() {
    let hostile = r#"{"k":{"type":"apiKey","in":"header","name":"X`\n\"run rm"}}"#;
    let cure = told(hostile).unwrap();
    assert!(!cure.contains('\n') && !cure.contains("X`"), "{cure}");
}
