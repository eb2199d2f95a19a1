//! How the bridge becomes a client of an issuer (RFC 7591): the request and the answer. Pure.
//!
//! Must not: do IO, or name the scopes of a server: issuers that do not know them refuse the whole
//! request.

use http::StatusCode;
use secrecy::SecretString;
use serde_json::json;
use url::Url;

use super::metadata::names_loopback;
use super::record::Client;
use crate::model::Members;
use crate::oauth::endpoint::ClientAuthMethod;

/// The errors of registration that are shown (RFC 7591, 3.2.2); other text is the issuer's own.
const ERRORS: [&str; 6] = [
    "invalid_redirect_uri",
    "invalid_client_metadata",
    "invalid_software_statement",
    "unapproved_software_statement",
    "access_denied",
    "invalid_request",
];

/// The ways to authenticate, in the order of preference. A client without a secret has nothing that
/// could leak. In the body before in the header: some servers want `client_id` in the body in any
/// case.
const METHODS: [(&str, ClientAuthMethod); 3] = [
    ("none", ClientAuthMethod::Nothing),
    ("client_secret_post", ClientAuthMethod::InBody),
    ("client_secret_basic", ClientAuthMethod::InHeader),
];

/// The way to authenticate at an issuer that lists `methods`; without a list, none is needed.
pub(super) fn auth_method(methods: Option<&[String]>) -> (&'static str, ClientAuthMethod) {
    let [first, ..] = METHODS;
    let Some(methods) = methods else { return first };
    let is_listed =
        |(name, _): &&(&str, ClientAuthMethod)| methods.iter().any(|method| method == name);
    METHODS.iter().find(is_listed).copied().unwrap_or(first)
}

/// The body of the request.
pub(super) fn request(redirect_uri: &Url, methods: Option<&[String]>) -> String {
    let is_local = redirect_uri.scheme() == "http" || names_loopback(redirect_uri);
    json!({
        "client_name": "mantyx-bridge",
        "redirect_uris": [redirect_uri.as_str()],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": auth_method(methods).0,
        "application_type": if is_local { "native" } else { "web" },
    })
    .to_string()
}

/// What the issuer has answered.
pub(super) fn read(
    status: StatusCode,
    body: &str,
    redirect_uri: &Url,
    methods: Option<&[String]>,
) -> Result<Client, String> {
    let members = Members::read(body).ok();
    let text = |name: &str| members.as_ref().and_then(|members| members.string(name));
    if !status.is_success() {
        let word = text("error");
        let error = ERRORS.iter().find(|error| word.as_deref() == Some(*error));
        let code = status.as_u16();
        return Err(match error {
            Some(error) => format!("registers no client for the bridge ({code} {error})"),
            None => format!("registers no client for the bridge (HTTP {code})"),
        });
    }
    let Some(id) = text("client_id").filter(|id| !id.is_empty()) else {
        return Err(format!("answered HTTP {} without a `client_id`", status.as_u16()));
    };
    let secret = text("client_secret").filter(|secret| !secret.is_empty());
    let named = text("token_endpoint_auth_method");
    let method = METHODS.iter().find(|(name, _)| named.as_deref() == Some(name));
    let auth_method = match (&secret, method) {
        (None, _) => ClientAuthMethod::Nothing,
        (Some(_), Some((_, auth_method))) => *auth_method,
        (Some(_), None) => match auth_method(methods).1 {
            // It gave a secret without being asked for one.
            ClientAuthMethod::Nothing => ClientAuthMethod::InHeader,
            auth_method => auth_method,
        },
    };
    Ok(Client {
        id,
        secret: secret.map(SecretString::from),
        auth_method,
        redirect_uri: redirect_uri.clone(),
        registration_uri: text("registration_client_uri"),
        is_configured: false,
    })
}

#[cfg(test)]
mod tests {
    //! What is asked for, and what is made of the answer.

    use serde_json::Value;

    use super::*;

    fn uri(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn methods(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn request_names_the_redirect_uri_and_no_scope() {
        for (redirect_uri, kind) in [
            ("http://127.0.0.1:7717/oauth/callback", "native"),
            ("https://localhost/oauth/callback", "native"),
            ("https://bridge.test/oauth/callback", "web"),
        ] {
            let body: Value = serde_json::from_str(&request(&uri(redirect_uri), None)).unwrap();
            assert_eq!(body["redirect_uris"][0], redirect_uri);
            assert_eq!(body["application_type"], kind);
            assert_eq!(body["token_endpoint_auth_method"], "none");
            assert!(body.get("scope").is_none());
        }
        let listed = methods(&["private_key_jwt", "client_secret_post"]);
        assert!(request(&uri("http://localhost/"), Some(&listed)).contains("client_secret_post"));
    }

    #[test]
    fn answer_is_a_client_or_says_why_there_is_none() {
        let redirect_uri = uri("http://127.0.0.1:7717/oauth/callback");
        let read = |status: u16, body: &str| {
            read(StatusCode::from_u16(status).unwrap(), body, &redirect_uri, None)
        };
        let public = read(201, r#"{"client_id":"c"}"#).unwrap();
        assert_eq!((public.id.as_str(), public.auth_method), ("c", ClientAuthMethod::Nothing));
        for (method, auth_method) in [
            ("client_secret_post", ClientAuthMethod::InBody),
            ("client_secret_basic", ClientAuthMethod::InHeader),
            ("unknown", ClientAuthMethod::InHeader),
        ] {
            let body = format!(
                r#"{{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"{method}"}}"#
            );
            assert_eq!(read(200, &body).unwrap().auth_method, auth_method, "{method}");
        }
        for (status, body, expected) in [
            (403, "<html>hunter2", "(HTTP 403)"),
            (400, r#"{"error":"invalid_redirect_uri"}"#, "400 invalid_redirect_uri"),
            (400, r#"{"error":"hunter2"}"#, "(HTTP 400)"),
            (201, "{}", "without a `client_id`"),
        ] {
            let why = read(status, body).unwrap_err();
            assert!(why.contains(expected) && !why.contains("hunter2"), "{why}");
        }
    }
}
