//! The command line as a client of the running daemon.
//!
//! Must not: start a daemon, or show its token.

use http::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;

use super::Failure;
use crate::{config::Config, http_client, state::StateDir};

/// The largest answer that is read.
const MAX_ANSWER: usize = 64 << 20;

/// A connection to the daemon that a configuration describes.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    token: SecretString,
}

/// An answer of the daemon.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Client {
    /// The daemon that runs with `config`.
    pub(super) fn new(config: &Config) -> Result<Self, Failure> {
        let state = StateDir::new(config.state_dir.clone());
        let failed = |error: &dyn std::error::Error| Failure::Failed(error.to_string());
        let token = match config.apps.first() {
            Some(app) => app.token.clone(),
            None => state.existing_token().map_err(|error| failed(&error))?.ok_or_else(|| {
                Failure::Failed(format!(
                    "there is no token in {}: no daemon has run with this configuration; start \
                     one with `mantyx-bridge serve`",
                    state.path().display()
                ))
            })?,
        };
        let address = config.listen.tcp.first();
        let mut builder = None;
        let base = match (address, &config.listen.unix) {
            (Some(address), _) if address.port() != 0 => format!("http://{address}"),
            (Some(_), _) => {
                // The port was free to choose; the daemon noted which it got.
                let urls = state.listen().map_err(|error| failed(&error))?;
                urls.into_iter().find(|url| url.starts_with("http://")).unwrap_or_default()
            }
            (None, Some(path)) => {
                builder = Some(path.clone());
                "http://localhost".to_owned()
            }
            (None, None) => String::new(),
        };
        let http = match builder {
            Some(path) => http_client::over_unix(&path),
            None => http_client::new(),
        };
        Ok(Self { http, base, token })
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Reply, Failure> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(self.token.expose_secret());
        if let Some(body) = body {
            request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| {
            Failure::Failed(format!(
                "no daemon answers at {} ({}); start it with `mantyx-bridge serve`",
                self.base,
                http_client::chain(&error.without_url())
            ))
        })?;
        let status = response.status();
        let body = http_client::body(response, MAX_ANSWER)
            .await
            .map_err(|error| Failure::Failed(http_client::chain(&error)))?;
        Ok(Reply { status, text: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Asks for `path`; anything but a success is a failure in the daemon's words.
    pub(super) async fn get(&self, path: &str) -> Result<String, Failure> {
        self.send(Method::GET, path, None).await?.success()
    }
}

impl Reply {
    pub(super) fn success(self) -> Result<String, Failure> {
        #[derive(serde::Deserialize)]
        struct Refusal {
            message: String,
        }
        if self.status.is_success() {
            return Ok(self.text);
        }
        let words = serde_json::from_str::<Refusal>(&self.text).map(|refusal| refusal.message);
        let words = words.unwrap_or(self.text);
        Err(Failure::Failed(format!("the daemon answered {}: {words}", self.status)))
    }
}

/// Reads the daemon's JSON.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Failed(format!("the daemon's answer cannot be read: {error}")))
}
