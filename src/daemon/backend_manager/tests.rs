//! Which changes of an entry make its backend another peer.

use super::*;

fn url(text: &str, value: &str) -> Written<Url> {
    Written::new(Url::parse(value).unwrap(), text.to_owned())
}

fn server(text: &str, value: &str, socket: Option<&str>) -> Target {
    Target::Mcp(Mcp::Http {
        url: url(text, value),
        headers: http::HeaderMap::new(),
        socket: socket.map(PathBuf::from),
        transport: crate::config::HttpTransport::Streamable,
        oauth: None,
        tls: None,
        listen: false,
        sessions: false,
    })
}

#[test]
fn reference_that_leads_elsewhere_makes_another_peer() {
    let at = |host: &str| format!("https://{host}/mcp?key=1");
    let text = "https://${MCP_HOST}/mcp?key=${KEY}";
    let peer = identity(&server(text, &at("a"), None));
    assert_ne!(peer, identity(&server(text, &at("b"), None)));
    assert_eq!(peer, identity(&server(text, "https://a/mcp?key=2", None)), "another secret");
    let over = |socket| identity(&server("unix:${SOCK}", "http://localhost/", Some(socket)));
    assert_ne!(over("/run/a"), over("/run/b"));
    let agent = |host: &str| {
        let card = CardSource::Base(url("https://${AGENT}/", &format!("https://{host}/")));
        identity(&Target::A2a(A2a::new(card)))
    };
    assert_ne!(agent("a"), agent("b"));
}

/// The hashes are on disk: with another one, catalogs and open calls of before an upgrade are lost.
#[test]
fn peers_keep_their_identities_over_upgrades() {
    let plain = server("https://a/mcp", "https://a/mcp", None);
    assert_eq!(endpoint(&plain), "https://a/mcp");
    let card = CardSource::Base(url("https://a/", "https://a/"));
    assert_eq!(endpoint(&Target::A2a(A2a::new(card))), "Base(\"https://a/\")");
}
