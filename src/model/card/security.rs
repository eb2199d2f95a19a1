//! How an agent wants its clients to prove who they are, as its card says, and how the operator
//! writes that into bridge.yaml.
//!
//! Must not: be shown to apps. Names and addresses in a card are the agent's words.

use crate::model::json::Members;
use crate::model::visible;

/// The most schemes of a card that are read: a cure that lists more helps nobody.
const MAX_SCHEMES: usize = 8;
/// The longest name or address of a card in a cure, in bytes.
const MAX_WORD: usize = 200;

/// One scheme of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// A key in the header, the query or the cookie of this name.
    Key {
        place: String,
        name: String,
    },
    /// `Authorization` with this scheme, such as `bearer` or `basic`.
    Http(String),
    /// A token that the bridge can fetch, from here, with these scopes.
    ClientCredentials {
        token_url: String,
        scopes: Vec<String>,
    },
    /// A token that a person has to log in for.
    Login,
    ClientCertificate,
}

/// The schemes of a card of 0.3, which have a `type`, or of 1.0, where a member's name says it.
pub(super) fn schemes(card: &Members<'_>) -> Vec<Scheme> {
    let Some(entries) = card.object("securitySchemes") else { return Vec::new() };
    let schemes = entries.0.iter().take(MAX_SCHEMES);
    schemes.filter_map(|(_, entry)| scheme(&Members::read(entry.get()).ok()?)).collect()
}

fn scheme(entry: &Members<'_>) -> Option<Scheme> {
    let kinds = [
        ("apiKeySecurityScheme", "apiKey"),
        ("httpAuthSecurityScheme", "http"),
        ("oauth2SecurityScheme", "oauth2"),
        ("openIdConnectSecurityScheme", "openIdConnect"),
        ("mtlsSecurityScheme", "mutualTLS"),
    ];
    let wrapped = kinds.iter().find_map(|(member, kind)| Some((*kind, entry.object(member)?)));
    match wrapped {
        Some((kind, members)) => scheme_of_kind(kind, &members),
        None => scheme_of_kind(&entry.string("type")?, entry),
    }
}

fn scheme_of_kind(kind: &str, members: &Members<'_>) -> Option<Scheme> {
    Some(match kind {
        "apiKey" => Scheme::Key {
            place: members.string("in").or_else(|| members.string("location"))?,
            name: word(&members.string("name")?),
        },
        "http" => Scheme::Http(word(&members.string("scheme")?).to_ascii_lowercase()),
        "oauth2" => oauth(members),
        "openIdConnect" => Scheme::Login,
        "mutualTLS" => Scheme::ClientCertificate,
        _ => return None,
    })
}

fn oauth(members: &Members<'_>) -> Scheme {
    let flow = members.object("flows").and_then(|flows| flows.object("clientCredentials"));
    let Some(flow) = flow else { return Scheme::Login };
    let scopes = flow.object("scopes").map(|scopes| scopes.0).unwrap_or_default();
    Scheme::ClientCredentials {
        token_url: word(&flow.string("tokenUrl").unwrap_or_default()),
        scopes: scopes.iter().take(MAX_SCHEMES).map(|(name, _)| word(name)).collect(),
    }
}

/// A word of the card in one line, without what would end the quotes around it.
fn word(text: &str) -> String {
    visible::line(&text.replace(['"', '`'], "'"), MAX_WORD)
}

impl Scheme {
    /// What the operator writes for it.
    fn cure(&self) -> String {
        match self {
            Self::Key { place, name } if place == "header" => {
                format!("a key in the header {name}: `headers: {{{name}: \"${{file:/PATH}}\"}}`")
            }
            Self::Key { place, name } if place == "cookie" => format!(
                "a key in the cookie {name}: `headers: {{Cookie: \"{name}=${{file:/PATH}}\"}}`"
            ),
            Self::Key { name, .. } => format!(
                "a key in the query as {name}: `endpoint: \"https://…?{name}=${{file:/PATH}}\"`"
            ),
            Self::Http(scheme) if scheme == "bearer" => {
                "a bearer token: `auth: {bearer: \"${file:/PATH}\"}`".to_owned()
            }
            Self::Http(scheme) => format!(
                "the HTTP scheme {scheme}: `headers: {{Authorization: \"${{file:/PATH}}\"}}`"
            ),
            Self::ClientCredentials { token_url, scopes } => {
                let scopes = scopes.join(", ");
                format!(
                    "an OAuth client's token: `auth: {{oauth: {{client_id: …, client_secret: \
                     \"${{file:/PATH}}\", token_url: \"{token_url}\", scopes: [{scopes}]}}}}`"
                )
            }
            Self::Login => {
                "the token of a person who logs in, which the bridge does not have: ask \
                            the agent's operator for a token or an OAuth client of its own"
                    .to_owned()
            }
            Self::ClientCertificate => {
                "a client certificate: `tls: {cert: /PATH, key: /PATH}`".to_owned()
            }
        }
    }
}

/// What the operator writes so that requests carry what the agent's card asks for; `None` if the
/// card names no scheme.
pub fn cure(schemes: &[Scheme]) -> Option<String> {
    let cures: Vec<String> = schemes.iter().map(Scheme::cure).collect();
    if cures.is_empty() {
        return None;
    }
    Some(format!("the agent's card asks for {}", cures.join("; or for ")))
}

#[cfg(test)]
mod tests;
