//! What the bridge changes of a card.

use serde_json::Value;

use super::*;

const OLD_RPC: A2aWire = A2aWire { binding: A2aBinding::JsonRpc, generation: Generation::V03 };
const OLD_REST: A2aWire = A2aWire { binding: A2aBinding::HttpJson, generation: Generation::V03 };
const NEW_RPC: A2aWire = A2aWire { binding: A2aBinding::JsonRpc, generation: Generation::V10 };
const NEW_REST: A2aWire = A2aWire { binding: A2aBinding::HttpJson, generation: Generation::V10 };
const URL: &str = "https://bridge.test/a2a/hr";

fn write(card: &Value, wires: &[A2aWire]) -> Value {
    let text = RawValue::from_string(card.to_string()).expect("JSON");
    let view = CardView { url: URL, wires, has_extended_card: false };
    serde_json::from_str(&view.write(&text).expect("a card")).expect("JSON")
}

#[test]
fn card_of_1_0_has_the_bridges_address_and_security() {
    let card = json!({
        "name": "HR", "x": 1.5, "signatures": [{"protected": "p"}],
        "supportedInterfaces": [
            {"url": "http://a.test/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"},
            {"url": "a.test:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "http://a.test/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": "http://b.test/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ],
        "capabilities": {"streaming": true, "pushNotifications": true, "extendedAgentCard": true},
        "securitySchemes": {"own": {"apiKeySecurityScheme": {"name": "k", "location": "header"}}},
        "securityRequirements": [{"schemes": {"own": {"list": []}}}],
        "skills": [{"id": "s", "securityRequirements": []}, {"id": "t"}],
    });
    let interface =
        |binding: &str| json!({"url": URL, "protocolBinding": binding, "protocolVersion": "1.0"});
    let scheme = json!({"httpAuthSecurityScheme": {"scheme": "bearer", "description": "The token of an app of the bridge"}});
    assert_eq!(
        write(&card, &[NEW_RPC, NEW_REST]),
        json!({
            "name": "HR", "x": 1.5,
            "supportedInterfaces": [interface("JSONRPC"), interface("HTTP+JSON")],
            "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": false},
            "securitySchemes": {"bridge": scheme},
            "securityRequirements": [{"schemes": {"bridge": {"list": []}}}],
            "skills": [{"id": "s"}, {"id": "t"}],
        })
    );
    let interfaces = write(&card, &[NEW_REST])["supportedInterfaces"].clone();
    assert_eq!(interfaces, json!([interface("HTTP+JSON")]));
}

/// The Python SDK reads them, and would send the app's token to the address there.
#[test]
fn other_spellings_of_addresses_and_security_are_left_out() {
    let elsewhere = json!([{"url": "http://elsewhere.test/", "transport": "JSONRPC"}]);
    let card = json!({
        "name": "HR", "protocolVersion": "0.3.0", "url": "http://a.test/rpc",
        "additional_interfaces": elsewhere, "supported_interfaces": elsewhere, "URL": "http://b.test",
        "preferred_transport": "GRPC", "security_schemes": {}, "Signatures": [],
        "supports_authenticated_extended_card": true, "capabilities": {"push_notifications": true},
        "skills": [{"id": "s", "security_requirements": []}],
    });
    let written = write(&card, &[OLD_RPC]);
    let text = written.to_string();
    for word in ["elsewhere", "b.test", "_", "Signatures"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    assert_eq!(written["url"], URL);
}

#[test]
fn card_of_0_3_has_the_bridges_address_and_security() {
    let card = json!({
        "name": "HR", "protocolVersion": "0.3.0", "url": "http://a.test/grpc", "preferredTransport": "GRPC",
        "additionalInterfaces": [
            {"url": "http://a.test/rest", "transport": "HTTP+JSON"},
            {"url": "http://a.test/rpc", "transport": "JSONRPC"},
        ],
        "capabilities": {}, "security": [{"own": []}], "supportsAuthenticatedExtendedCard": true,
    });
    let expected = json!({
        "name": "HR", "protocolVersion": "0.3.0", "url": URL, "preferredTransport": "HTTP+JSON",
        "additionalInterfaces": [{"url": URL, "transport": "JSONRPC"}],
        "capabilities": {"pushNotifications": false},
        "security": [{"bridge": []}],
        "securitySchemes": {"bridge": {"type": "http", "scheme": "bearer", "description": "The token of an app of the bridge"}},
        "supportsAuthenticatedExtendedCard": false,
    });
    assert_eq!(write(&card, &[OLD_RPC, OLD_REST]), expected);
    let alone = write(&card, &[OLD_RPC]);
    assert_eq!(
        (&alone["preferredTransport"], &alone["additionalInterfaces"]),
        (&json!("JSONRPC"), &json!(null))
    );
}

#[test]
fn card_of_both_versions_keeps_both() {
    let card = json!({
        "name": "HR", "protocolVersion": "0.3", "url": "http://a.test/rpc",
        "supportedInterfaces": [
            {"url": "http://a.test/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": "http://a.test/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ],
    });
    let written = write(&card, &[OLD_RPC, NEW_RPC]);
    assert_eq!(written["url"], URL);
    assert_eq!(written["supportedInterfaces"].as_array().map(Vec::len), Some(2));
    assert_eq!(written["securitySchemes"]["bridge"]["type"], "http");
    assert!(written["securitySchemes"]["bridge"]["httpAuthSecurityScheme"].is_object());
    let text = RawValue::from_string(card.to_string()).expect("JSON");
    assert_eq!(named_wires(&text), [OLD_RPC, NEW_RPC, OLD_RPC]);
}

#[test]
fn wire_of_the_operators_address_is_in_the_card() {
    let card = json!({"name": "HR", "supportedInterfaces": [{"url": "x", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]});
    let interfaces = write(&card, &[NEW_RPC])["supportedInterfaces"].clone();
    assert_eq!(
        interfaces,
        json!([{"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}])
    );
    let old = json!({"name": "HR", "url": "x", "preferredTransport": "GRPC"});
    assert_eq!(write(&old, &[OLD_REST])["preferredTransport"], "HTTP+JSON");
}
