//! What a signature may have been made over.

use proptest::prelude::*;

use super::*;

fn payloads(card: &str) -> Vec<String> {
    let raw = RawValue::from_string(card.to_owned()).unwrap();
    let payloads = Unsigned::read(&raw).unwrap().payloads();
    payloads.into_iter().map(|payload| payload.text).collect()
}

/// The example of A2A 1.0, §8.4.1.
#[test]
fn default_values_go_as_the_specification_has_it() {
    let card = r#"{"name":"Example Agent","description":"","supportedInterfaces":[],
        "capabilities":{"streaming":false,"pushNotifications":false,"extensions":[]},"skills":[]}"#;
    let expected = r#"{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[],"supportedInterfaces":[]}"#;
    assert_eq!(payloads(card)[1], expected);
}

#[test]
fn every_message_knows_which_of_its_fields_need_not_be_there() {
    let flows = r#"{"authorizationCode":{"authorizationUrl":"a","tokenUrl":"t","refreshUrl":"","scopes":{},"pkceRequired":false},"implicit":{"authorizationUrl":"","scopes":{}}}"#;
    let card = format!(
        r#"{{"supportedInterfaces":[{{"url":"","tenant":""}}],
        "capabilities":{{"extensions":[{{"uri":"u","description":"","required":false,"params":{{"kept":"","required":false}}}}]}},
        "securitySchemes":{{"description":{{"oauth2SecurityScheme":{{"description":"","flows":{flows}}}}}}},
        "securityRequirements":[{{"schemes":{{"description":{{"list":[]}}}}}}],
        "skills":[{{"id":"s","tags":[],"securityRequirements":[{{"schemes":{{}}}}]}}],"iconUrl":"","x":""}}"#
    );
    let expected = concat!(
        r#"{"capabilities":{"extensions":[{"params":{"kept":"","required":false},"uri":"u"}]},"iconUrl":"","#,
        r#""securityRequirements":[{"schemes":{"description":{}}}],"#,
        r#""securitySchemes":{"description":{"oauth2SecurityScheme":{"flows":{"authorizationCode":{"authorizationUrl":"a","scopes":{},"tokenUrl":"t"},"implicit":{}}}}},"#,
        r#""skills":[{"id":"s","securityRequirements":[{}],"tags":[]}],"supportedInterfaces":[{"url":""}],"x":""}"#
    );
    let all = payloads(&card);
    assert_eq!(all[1], expected);
    assert_eq!(all[3], expected.replace(r#","x":"""#, ""), "without what the format does not know");
}

#[test]
fn a_card_of_0_3_is_signed_with_its_own_defaults_or_without() {
    let card = r#"{"name":"n","url":"u","protocolVersion":"0.3.0","preferredTransport":"JSONRPC",
        "securitySchemes":{"k":{"type":"apiKey","in":"header","name":"X"}},"skills":[],"signatures":[{}]}"#;
    let all = payloads(card);
    let schemes = r#""securitySchemes":{"k":{"in":"header","name":"X"}}"#;
    assert_eq!(all.last().unwrap(), &format!(r#"{{"name":"n",{schemes},"url":"u"}}"#));
    assert!(all.iter().all(|payload| !payload.contains("signatures")), "{all:?}");
    let other = card.replace("0.3.0", "0.2.6").replace("JSONRPC", "HTTP+JSON");
    let least = payloads(&other).pop().unwrap();
    assert!(least.contains("0.2.6") && least.contains("HTTP+JSON"), "{least}");
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![Just(""), Just("name"), Just("url"), Just("false"), Just("evil")]
        .prop_map(str::to_owned)
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (0..3).prop_map(Into::into),
        texts().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        let names = prop_oneof![
            texts(),
            prop::sample::select(MEMBERS.keys().copied().collect::<Vec<_>>()).prop_map(|at| at
                .rsplit('/')
                .find(|name| *name != "*")
                .unwrap_or("x")
                .to_owned()),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(names, inner, 0..5)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever the card is, its payloads are JSON, and what is left out is found.
    #[test]
    fn nothing_goes_unnoticed(card in json()) {
        let raw = RawValue::from_string(card.to_string()).unwrap();
        let unsigned = Unsigned::read(&raw).unwrap();
        let payloads = unsigned.payloads();
        prop_assert!(payloads[0].leaves_out(&unsigned).is_none(), "the card as it is has all of it");
        for payload in payloads {
            let read: serde_json::Value = serde_json::from_str(&payload.text).unwrap();
            let has = |value: &serde_json::Value| value.to_string().contains("evil");
            if has(&card) && card.get("signatures").is_none() && !has(&read) {
                prop_assert!(payload.leaves_out(&unsigned).is_some(), "{}", payload.text);
            }
        }
    }
}
