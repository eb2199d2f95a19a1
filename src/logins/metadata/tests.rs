//! What metadata is believed, and what is not.

use serde_json::{Value, json};

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn resource_is_the_server_or_a_parent_of_its_path() {
    let server = url("https://mcp.test/v1/mcp?x=1");
    let read = |resource: &str| {
        let text = json!({"resource": resource, "authorization_servers": ["https://as.test"]});
        ResourceMetadata::read(&text.to_string(), &server)
    };
    for own in [
        "https://mcp.test/v1/mcp",
        "https://mcp.test/v1/",
        "https://mcp.test",
        "https://mcp.test/v1/mcp/",
    ] {
        assert_eq!(read(own).unwrap().resource.as_deref(), Some(own));
    }
    for foreign in [
        "https://mcp.test/v1/mc",
        "https://mcp.test/v1/mcp/more",
        "https://other.test/v1/mcp",
        "http://mcp.test/v1/mcp",
        "https://user@mcp.test/",
        "mcp",
    ] {
        assert_eq!(read(foreign).unwrap_err(), "is that of another server", "{foreign}");
    }
    let silent = ResourceMetadata::read("{}", &server).unwrap();
    assert_eq!((silent.resource, silent.issuers.len()), (None, 0));
    assert!(ResourceMetadata::read("[]", &server).is_err());
}

fn document(more: &Value) -> String {
    let mut document = json!({
        "issuer": "https://as.test/t",
        "authorization_endpoint": "https://as.test/authorize",
        "token_endpoint": "https://as.test/token",
        "registration_endpoint": "/register",
        "code_challenge_methods_supported": ["plain", "S256"],
        "authorization_response_iss_parameter_supported": true,
    });
    for (key, value) in more.as_object().unwrap() {
        document[key] = value.clone();
    }
    document.to_string()
}

fn read(more: &Value, is_configured: bool) -> Result<IssuerMetadata, String> {
    let issuer = url("https://as.test/t");
    let server = url("https://mcp.test/mcp");
    let namers = Namers { server: &server, issuer: &issuer, is_configured };
    IssuerMetadata::read(&document(more), "https://as.test/t", namers, None)
}

#[test]
fn issuer_metadata_is_read_whole() {
    let metadata = read(&json!({}), false).unwrap();
    assert_eq!(metadata.registration_endpoint, Some(url("https://as.test/register")));
    assert!(metadata.returns_issuer && metadata.unsafe_because(false).is_none());
    assert_eq!((metadata.revocation_endpoint, metadata.auth_methods), (None, None));
}

#[test]
fn issuer_metadata_with_a_foreign_address_is_refused_with_the_place() {
    for (more, expected) in [
        (json!({"issuer": "https://as.test/t/"}), "another issuer"),
        (json!({"issuer": "https://AS.test/t"}), "another issuer"),
        (json!({"token_endpoint": "http://169.254.169.254/t"}), "http://169.254.169.254/t"),
        (json!({"token_endpoint": "http://127.0.0.1:1/t"}), "http://127.0.0.1:1/t"),
        (json!({"token_endpoint": null}), "no token endpoint"),
        (json!({"authorization_endpoint": null}), "no authorization endpoint"),
        (json!({"authorization_endpoint": "http://as.test/a"}), "http://as.test/a"),
        (json!({"authorization_endpoint": "javascript:alert(1)"}), "which is not https"),
        (json!({"authorization_endpoint": "http://127.0.0.1:1/a"}), "which is not https"),
        (json!({"registration_endpoint": "http://127.0.0.1/r"}), "registration_endpoint"),
    ] {
        let why = read(&more, false).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    let local = json!({"authorization_endpoint": "http://127.0.0.1:1/a"});
    assert!(read(&local, true).is_ok(), "the operator has named the issuer");
}

#[test]
fn issuer_without_s256_is_refused_unless_the_client_is_configured() {
    let unsaid = read(&json!({"code_challenge_methods_supported": null}), false);
    // `null` is no list, and says as little as nothing.
    let without = read(&json!({"code_challenge_methods_supported": ["plain"]}), false).unwrap();
    assert!(without.unsafe_because(true).is_some());
    let mut metadata = unsaid.unwrap();
    metadata.pkce = Pkce::Unsaid;
    assert!(metadata.unsafe_because(false).unwrap().contains("auth.oauth.client_id"));
    assert!(metadata.unsafe_because(true).is_none());
}

#[test]
fn issuers_are_the_same_but_for_a_slash_after_the_host() {
    assert!(is_same_issuer("https://as.test", "https://as.test/"));
    for other in ["https://as.test/t", "https://as.test//", "https://AS.test", "http://as.test", ""]
    {
        assert!(!is_same_issuer("https://as.test/", other), "{other}");
    }
    assert!(!is_same_issuer("https://as.test/t", "https://as.test/t/"));
}
