//! A login as the bridge keeps it, and its form on disk. Pure.
//!
//! Must not: take a damaged record for none.

use std::time::SystemTime;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::seal::{Seal, Sealed};
use crate::clock::rfc3339;
use crate::model::words::words;
use crate::oauth::endpoint::ClientAuthMethod;

/// The format of the records. A record of another one is not read, and not written over.
const FORMAT: u32 = 1;

words! {
    /// The state of a login.
    #[derive(Default, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum LoginState {
        #[default]
        Ok = "ok",
        /// It is useless: a person has to log in again.
        Ended = "ended",
        /// It works, and a call has lacked a scope.
        NeedsScopes = "needs_scopes",
    }
}

/// Who the bridge is at an issuer.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) id: String,
    /// The issuer's, for a registered client. That of a configured one stands in bridge.yaml alone.
    pub(super) secret: Option<SecretString>,
    pub(super) auth_method: ClientAuthMethod,
    pub(super) redirect_uri: Url,
    /// Where the registration can be managed (RFC 7592).
    pub(super) registration_uri: Option<String>,
    pub(super) is_configured: bool,
}

/// The addresses that get a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) token: Url,
    pub(super) revocation: Option<Url>,
}

/// A login.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// The server that it is for.
    pub(super) server: Url,
    pub(super) issuer: String,
    pub(super) endpoints: Endpoints,
    pub(super) resource: Option<String>,
    pub(super) client: Client,
    pub(super) scopes: Vec<String>,
    /// Scopes that a call has lacked.
    pub(super) missing_scopes: Vec<String>,
    pub(super) refresh: Option<SecretString>,
    pub(super) access: Option<SecretString>,
    /// When the access token expires, if the issuer says so.
    pub(super) expires: Option<SystemTime>,
    pub(super) since: SystemTime,
    pub(super) state: LoginState,
    /// Why it has ended.
    pub(super) end: Option<String>,
}

/// A secret in a file: sealed, or in plain text where no `seal_key` is configured.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum StoredSecret {
    Plain(String),
    Sealed(Sealed),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredClient {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<StoredSecret>,
    auth: StoredAuth,
    redirect_uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    registration_uri: Option<String>,
    configured: bool,
}

/// [`ClientAuthMethod`] in a file.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredAuth {
    Basic,
    Post,
    Key,
    None,
}

impl From<ClientAuthMethod> for StoredAuth {
    fn from(auth_method: ClientAuthMethod) -> Self {
        match auth_method {
            ClientAuthMethod::InHeader => Self::Basic,
            ClientAuthMethod::InBody => Self::Post,
            ClientAuthMethod::Signed => Self::Key,
            ClientAuthMethod::Nothing => Self::None,
        }
    }
}

impl From<StoredAuth> for ClientAuthMethod {
    fn from(auth: StoredAuth) -> Self {
        match auth {
            StoredAuth::Basic => Self::InHeader,
            StoredAuth::Post => Self::InBody,
            StoredAuth::Key => Self::Signed,
            StoredAuth::None => Self::Nothing,
        }
    }
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    format: u32,
    server: String,
    issuer: String,
    token_endpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revocation_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    client: StoredClient,
    scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<StoredSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access: Option<StoredSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    since: String,
    /// Whose login it is; `null`: the bridge's.
    person: Option<String>,
    state: LoginState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<String>,
}

/// The head of a file of any format.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Writes and reads the secrets of one owner.
pub(super) struct Sealer<'a> {
    pub(super) seal: &'a Seal,
    /// What the secrets belong to: a backend's login, at an issuer.
    pub(super) owner: String,
}

impl Sealer<'_> {
    fn store(
        &self,
        field: &str,
        secret: Option<&SecretString>,
    ) -> Result<Option<StoredSecret>, String> {
        let Some(secret) = secret else { return Ok(None) };
        let sealed = self.seal.seal(secret, &format!("{}\n{field}", self.owner));
        Ok(Some(match sealed.map_err(|error| format!("no random bytes: {error}"))? {
            Some(sealed) => StoredSecret::Sealed(sealed),
            None => StoredSecret::Plain(secret.expose_secret().to_owned()),
        }))
    }

    fn read(
        &self,
        field: &str,
        stored: Option<StoredSecret>,
    ) -> Result<Option<SecretString>, String> {
        match stored {
            None => Ok(None),
            Some(StoredSecret::Plain(text)) => Ok(Some(text.into())),
            Some(StoredSecret::Sealed(sealed)) => {
                self.seal.open(&sealed, &format!("{}\n{field}", self.owner)).map(Some)
            }
        }
    }

    pub(super) fn store_client(&self, client: &Client) -> Result<StoredClient, String> {
        Ok(StoredClient {
            id: client.id.clone(),
            secret: self.store("secret", client.secret.as_ref())?,
            auth: client.auth_method.into(),
            redirect_uri: client.redirect_uri.to_string(),
            registration_uri: client.registration_uri.clone(),
            configured: client.is_configured,
        })
    }

    pub(super) fn read_client(&self, stored: StoredClient) -> Result<Client, String> {
        Ok(Client {
            id: stored.id,
            secret: self.read("secret", stored.secret)?,
            auth_method: stored.auth.into(),
            redirect_uri: address(&stored.redirect_uri)?,
            registration_uri: stored.registration_uri,
            is_configured: stored.configured,
        })
    }
}

fn address(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| format!("an address in it is no URL: {error}"))
}

/// The owner of the secrets of the login at `backend`. The issuer and its token endpoint belong to
/// it: a record whose endpoint was changed does not open, and so no refresh token goes there.
fn owner(backend: &str, issuer: &str, token_endpoint: &str) -> String {
    format!("login\n{backend}\n\n{issuer}\n{token_endpoint}")
}

impl Record {
    /// The text of its file.
    pub(super) fn write(&self, backend: &str, seal: &Seal) -> Result<String, String> {
        let token_endpoint = self.endpoints.token.to_string();
        let sealer = Sealer { seal, owner: owner(backend, &self.issuer, &token_endpoint) };
        let stored = Stored {
            format: FORMAT,
            server: self.server.to_string(),
            issuer: self.issuer.clone(),
            token_endpoint,
            revocation_endpoint: self.endpoints.revocation.as_ref().map(Url::to_string),
            resource: self.resource.clone(),
            client: sealer.store_client(&self.client)?,
            scopes: self.scopes.clone(),
            missing_scopes: self.missing_scopes.clone(),
            refresh: sealer.store("refresh", self.refresh.as_ref())?,
            access: sealer.store("access", self.access.as_ref())?,
            expires_at: self.expires.map(rfc3339),
            since: rfc3339(self.since),
            person: None,
            state: self.state,
            end: self.end.clone(),
        };
        serde_json::to_string(&stored).map_err(|error| error.to_string())
    }

    /// Reads a file. The error says what is wrong with it, without its content.
    pub(super) fn read(text: &str, backend: &str, seal: &Seal) -> Result<Self, String> {
        let damaged = |_bad| "it is damaged".to_owned();
        let Head { format } = serde_json::from_str(text).map_err(damaged)?;
        crate::state_dir::check_format(format, FORMAT)?;
        let stored: Stored = serde_json::from_str(text).map_err(damaged)?;
        let owner = owner(backend, &stored.issuer, &stored.token_endpoint);
        let sealer = Sealer { seal, owner };
        let time = |text: &str| humantime::parse_rfc3339(text).map_err(|_bad| "it is damaged");
        Ok(Self {
            server: address(&stored.server)?,
            endpoints: Endpoints {
                token: address(&stored.token_endpoint)?,
                revocation: stored.revocation_endpoint.as_deref().map(address).transpose()?,
            },
            issuer: stored.issuer,
            resource: stored.resource,
            client: sealer.read_client(stored.client)?,
            scopes: stored.scopes,
            missing_scopes: stored.missing_scopes,
            refresh: sealer.read("refresh", stored.refresh)?,
            access: sealer.read("access", stored.access)?,
            expires: stored.expires_at.as_deref().map(time).transpose()?,
            since: time(&stored.since)?,
            state: stored.state,
            end: stored.end,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    //! What is written, and what is read of it.

    use super::*;
    use crate::config::SealKey;

    pub(in crate::logins) fn record() -> Record {
        let url = |text: &str| Url::parse(text).unwrap();
        Record {
            server: url("https://mcp.test/mcp"),
            issuer: "https://as.test".to_owned(),
            endpoints: Endpoints { token: url("https://as.test/token"), revocation: None },
            resource: Some("https://mcp.test/mcp".to_owned()),
            client: Client {
                id: "c".to_owned(),
                secret: Some("canary-secret".into()),
                auth_method: ClientAuthMethod::InBody,
                redirect_uri: url("http://127.0.0.1:7717/oauth/callback"),
                registration_uri: None,
                is_configured: false,
            },
            scopes: vec!["read".to_owned()],
            missing_scopes: Vec::new(),
            refresh: Some("canary-refresh".into()),
            access: Some("canary-access".into()),
            expires: Some(SystemTime::UNIX_EPOCH),
            since: SystemTime::UNIX_EPOCH,
            state: LoginState::NeedsScopes,
            end: None,
        }
    }

    #[test]
    fn record_is_read_as_it_was_written_sealed_or_not() {
        for seal in [Seal::default(), Seal::new(&[SealKey([7; 32])])] {
            let text = record().write("notion", &seal).unwrap();
            let sealed = seal.seal(&"x".to_owned().into(), "").unwrap().is_some();
            assert_eq!(text.contains("canary"), !sealed, "{text}");
            let read = Record::read(&text, "notion", &seal).unwrap();
            assert_eq!(read.refresh.unwrap().expose_secret(), "canary-refresh");
            assert_eq!(read.access.unwrap().expose_secret(), "canary-access");
            assert_eq!(read.client.secret.unwrap().expose_secret(), "canary-secret");
            assert_eq!(
                (read.state, read.client.auth_method),
                (LoginState::NeedsScopes, ClientAuthMethod::InBody)
            );
            assert_eq!(read.expires, Some(SystemTime::UNIX_EPOCH));
        }
    }

    #[test]
    fn plain_record_is_read_once_there_is_a_key_and_a_sealed_one_not_without() {
        let key = Seal::new(&[SealKey([7; 32])]);
        let plain = record().write("a", &Seal::default()).unwrap();
        assert!(Record::read(&plain, "a", &key).is_ok());
        let sealed = record().write("a", &key).unwrap();
        let why = Record::read(&sealed, "a", &Seal::default()).unwrap_err();
        assert!(why.contains("`seal_key`"), "{why}");
    }

    #[test]
    fn sealed_record_does_not_stand_for_another_one() {
        let key = Seal::new(&[SealKey([7; 32])]);
        let text = record().write("a", &key).unwrap();
        assert!(Record::read(&text, "b", &key).is_err(), "another backend");
        let moved = text.replace("https://as.test/token", "https://evil.test/token");
        assert!(Record::read(&moved, "a", &key).is_err(), "another token endpoint");
        let swapped = text.replace("\"refresh\":", "\"x\":").replace("\"access\":", "\"refresh\":");
        assert!(Record::read(&swapped, "a", &key).is_err(), "another field");
    }

    /// A later version of the bridge may have added them.
    #[test]
    fn members_that_are_not_known_are_ignored() {
        let text = record().write("a", &Seal::default()).unwrap();
        let text = text.replacen('{', r#"{"later":{"n":1e400},"#, 1);
        assert!(Record::read(&text, "a", &Seal::default()).is_ok());
    }

    #[test]
    fn damaged_record_is_an_error_and_a_newer_one_is_named() {
        for damage in ["", "{", "{}", "[]", "\0\0\0", r#"{"format":1}"#] {
            assert_eq!(Record::read(damage, "a", &Seal::default()).unwrap_err(), "it is damaged");
        }
        let why = Record::read(r#"{"format":2}"#, "a", &Seal::default()).unwrap_err();
        assert!(why.contains("format 2"), "{why}");
        let text = record().write("a", &Seal::default()).unwrap();
        let cut = text.get(..text.len() - 20).unwrap();
        assert!(!Record::read(cut, "a", &Seal::default()).unwrap_err().contains("canary"));
    }
}
