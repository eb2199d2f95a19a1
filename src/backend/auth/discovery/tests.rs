//! What a server's metadata leads to, and where it must not.

use serde_json::{Value, json};

use super::*;
use crate::fake_http::{Agent, Reply, Seen};
use crate::http_client;

/// A server that has these documents; `BASE` in them is its own address.
async fn server(documents: &[(&'static str, Value)]) -> Agent {
    let documents: Vec<(&str, String)> =
        documents.iter().map(|(path, document)| (*path, document.to_string())).collect();
    Agent::start(move |seen: &Seen| {
        let found = documents.iter().find(|(path, _)| *path == seen.path);
        found.map_or(Reply::status(404), |(_, document)| {
            Reply::json(document.replace("BASE", &format!("http://{}", seen.header("host"))))
        })
    })
    .await
}

async fn found(
    agent: &Agent,
    metadata: Option<&str>,
) -> Result<(Endpoint, ClientAuthMethod), IssueError> {
    let url = agent.url.join("mcp").unwrap();
    let challenge =
        Challenge { url, metadata: metadata.map(str::to_owned), scope: None, error: None };
    find(&Clients::new(None, None, http_client::new()), &challenge).await
}

fn resource() -> Value {
    json!({"resource": "BASE/mcp", "authorization_servers": ["BASE/as"]})
}

fn issuer() -> Value {
    json!({"issuer": "BASE/as", "token_endpoint": "BASE/as/token"})
}

#[tokio::test]
async fn the_metadata_is_found_wherever_it_may_be() {
    let oauth = "/.well-known/oauth-authorization-server/as";
    struct Case {
        at_resource: &'static str,
        named: Option<&'static str>,
        at_issuer: &'static str,
    }
    for Case { at_resource, named, at_issuer } in [
        Case {
            at_resource: "/.well-known/oauth-protected-resource/mcp",
            named: None,
            at_issuer: oauth,
        },
        Case {
            at_resource: "/.well-known/oauth-protected-resource",
            named: None,
            at_issuer: "/.well-known/openid-configuration/as",
        },
        Case {
            at_resource: "/meta",
            named: Some("/meta"),
            at_issuer: "/as/.well-known/openid-configuration",
        },
    ] {
        let agent = server(&[(at_resource, resource()), (at_issuer, issuer())]).await;
        let (found, auth_method) = found(&agent, named).await.unwrap();
        assert_eq!(found.url, agent.url.join("as/token").unwrap(), "{at_resource}");
        assert_eq!(found.resource, Some(agent.url.join("mcp").unwrap().to_string()));
        assert_eq!(auth_method, ClientAuthMethod::InHeader, "{at_resource}");
        assert_eq!(found.audience, agent.url.join("as").unwrap().as_str(), "for whom a key signs");
        for seen in agent.seen() {
            assert_eq!(seen.header("authorization"), "", "no secret is needed to ask");
        }
    }
    // Before there was such metadata, a server issued its tokens itself.
    let own = json!({"issuer": "BASE", "token_endpoint": "/token",
        "token_endpoint_auth_methods_supported": ["client_secret_post"]});
    let agent = server(&[("/.well-known/oauth-authorization-server", own)]).await;
    let (found, auth_method) = found(&agent, None).await.unwrap();
    assert_eq!(found.url, agent.url.join("token").unwrap());
    assert_eq!((found.resource, auth_method), (None, ClientAuthMethod::InBody));
}

#[tokio::test]
async fn metadata_that_cannot_be_used_says_why() {
    let at_issuer = "/.well-known/oauth-authorization-server/as";
    let with = |document: Value, key: &str, value: Value| {
        let mut document = document;
        document[key] = value;
        document
    };
    struct Case {
        resource: Value,
        issuer: Value,
        expected: &'static str,
    }
    for Case { resource, issuer, expected } in [
        Case {
            resource: with(resource(), "resource", json!("https://other/mcp")),
            issuer: issuer(),
            expected: "another server",
        },
        Case {
            resource: with(resource(), "authorization_servers", json!([])),
            issuer: issuer(),
            expected: "no authorization server",
        },
        Case {
            resource: with(resource(), "authorization_servers", json!(["http://idp.test"])),
            issuer: issuer(),
            expected: "http://idp.test/",
        },
        Case {
            resource: resource(),
            issuer: with(issuer(), "issuer", json!("https://evil")),
            expected: "another issuer",
        },
        Case {
            resource: resource(),
            issuer: with(issuer(), "token_endpoint", json!(7)),
            expected: "no token endpoint",
        },
        Case {
            resource: resource(),
            issuer: with(issuer(), "token_endpoint", json!("http://169.254.169.254/token")),
            expected: "http://169.254.169.254/token",
        },
        Case { resource: json!([]), issuer: issuer(), expected: "no JSON object" },
    ] {
        let documents =
            [("/.well-known/oauth-protected-resource/mcp", resource), (at_issuer, issuer)];
        let error = found(&server(&documents).await, None).await.unwrap_err();
        assert!(error.text.contains(expected), "{expected}: {}", error.text);
        assert!(error.text.contains("set `auth.oauth.token_url`"), "{expected}: {}", error.text);
    }
    let agent = server(&[]).await;
    let error = found(&agent, None).await.unwrap_err();
    assert!(error.text.contains("set `auth.oauth.token_url`"), "{}", error.text);
    let error = found(&agent, Some("http://idp.test/meta")).await.unwrap_err();
    assert!(error.text.contains("`resource_metadata`"), "{}", error.text);
    agent.stop().await;
    let gone = Challenge::silent(Url::parse("http://127.0.0.1:1/").unwrap());
    assert!(find(&Clients::new(None, None, http_client::new()), &gone).await.unwrap_err().passes);
}

/// What listens on a port of this machine may trust whoever is on it.
#[tokio::test]
async fn a_server_on_this_machine_leads_to_no_other_port_of_it() {
    let victim = server(&[]).await;
    let url = |path: &str| victim.url.join(path).unwrap().to_string();
    let documents = |named: &str| {
        let issuer = json!({"issuer": "BASE/as", "token_endpoint": named});
        [
            ("/.well-known/oauth-protected-resource/mcp", resource()),
            ("/.well-known/oauth-authorization-server/as", issuer),
            ("/meta", json!({"resource": "BASE/mcp", "authorization_servers": [named]})),
        ]
    };
    for named in [url("secret"), url("secret").replacen("http", "https", 1)] {
        let agent = server(&documents(&named)).await;
        for metadata in [Some(named.as_str()), Some("/meta"), None] {
            let error = found(&agent, metadata).await.unwrap_err();
            assert!(!error.passes && error.text.contains("auth.oauth.token_url"), "{}", error.text);
        }
    }
    assert!(victim.seen().is_empty(), "{:?}", victim.seen());
    // The operator's word leads anywhere.
    assert_eq!(endpoint(None, &url("token")).unwrap().as_str(), url("token"));
}

#[tokio::test]
async fn a_server_on_a_unix_socket_is_asked_over_it() {
    let victim = server(&[]).await;
    let socket = std::env::temp_dir().join("mantyx-bridge-no-such-socket");
    let base = victim.url.join("mcp").unwrap();
    let clients = Clients::new(Some(&base), None, http_client::new()).on_socket(Some(&socket));
    let challenge = Challenge::silent(base);
    assert!(find(&clients, &challenge).await.unwrap_err().passes);
    assert!(victim.seen().is_empty(), "what is at this name is another: {:?}", victim.seen());
}

#[test]
fn server_may_name_its_own_origin_or_https_elsewhere() {
    let url = |text: &str| Url::parse(text).unwrap();
    struct Case {
        base: &'static str,
        target: &'static str,
        may: bool,
    }
    for Case { base, target, may } in [
        Case { base: "https://rs", target: "https://idp/t", may: true },
        Case { base: "https://rs", target: "http://idp/t", may: false },
        Case { base: "http://rs", target: "http://rs/t", may: true },
        Case { base: "http://rs", target: "http://rs:81/t", may: false },
        Case { base: "http://rs", target: "https://idp/t", may: true },
        Case { base: "http://127.0.0.1:1", target: "http://127.0.0.1:1/t", may: true },
        Case { base: "http://127.0.0.1:1", target: "http://127.0.0.1:2/t", may: false },
        Case { base: "https://127.0.0.1:1", target: "https://127.0.0.1:2/t", may: false },
        Case { base: "http://localhost:1", target: "http://[::1]:2/t", may: false },
        Case { base: "http://localhost:1", target: "http://127.0.0.1:1/t", may: false },
        Case { base: "http://127.0.0.1:1", target: "https://idp/t", may: true },
        Case { base: "https://rs", target: "https://10.0.0.1/t", may: true },
        Case { base: "https://rs", target: "http://127.0.0.1/t", may: false },
        Case { base: "https://rs", target: "https://127.0.0.1/t", may: false },
        Case { base: "https://rs", target: "https://localhost./t", may: false },
        Case { base: "https://rs", target: "https://[::ffff:127.0.0.1]/t", may: false },
        Case { base: "https://rs", target: "https://0.0.0.0/t", may: false },
        Case { base: "https://rs", target: "https://169.254.169.254/t", may: false },
        Case { base: "https://rs", target: "https://[::ffff:169.254.169.254]/t", may: false },
        Case { base: "https://rs", target: "https://[fe80::1]/t", may: false },
        Case { base: "http://169.254.169.254", target: "http://169.254.169.254/t", may: false },
        Case { base: "https://rs", target: "https://user@idp/t", may: false },
        Case { base: "https://rs", target: "file:///etc/passwd", may: false },
    ] {
        assert_eq!(may_name(Some(&url(base)), &url(target)), may, "{base} {target}");
    }
    // An operator's own file may name anything that is called at all.
    assert!(may_name(None, &url("http://127.0.0.1/t")));
    assert!(!may_name(None, &url("http://169.254.169.254/t")));
}
