//! Sends one HTTP request, and follows redirects as far as that is safe: to the same origin, with
//! the same method and body.
//!
//! Must not: send a header or a body to an origin that the configuration does not name.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header::LOCATION};
use url::Url;

use super::{Failure, Shared};
use crate::http_client;

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 5;

/// A request brought no response.
pub(super) struct SendError {
    pub(super) failure: Failure,
    /// Whether it is certain that no server saw the request.
    pub(super) nothing_sent: bool,
}

impl Shared {
    pub(super) async fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, SendError> {
        let mut url = self.url.clone();
        for _hop in 0..=MOST_REDIRECTS {
            let request = self.client.request(method.clone(), url.clone());
            let request = request.headers(headers.clone()).body(body.clone());
            let response = request.send().await.map_err(|error| {
                let nothing_sent = error.is_connect() || error.is_builder();
                let error = http_client::chain(&error.without_url());
                SendError {
                    failure: Failure::Lost(format!("{}: {error}", origin(&url))),
                    nothing_sent,
                }
            })?;
            // Others turn a POST into a GET.
            let status = response.status();
            let repeats =
                matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            let target = target(&url, &response);
            match target {
                Some(target) if repeats && target.origin() == url.origin() => url = target,
                Some(target) => {
                    return Err(refuse(format!(
                        "the server redirects to {} (HTTP {status}), which is not followed: \
                         correct `url` in the configuration",
                        origin(&target)
                    )));
                }
                None => {
                    return Err(refuse(format!("the server redirects nowhere (HTTP {status})")));
                }
            }
        }
        Err(refuse(format!("the server redirects more than {MOST_REDIRECTS} times")))
    }
}

/// A redirect was answered in place of the request, which therefore has not run.
fn refuse(why: String) -> SendError {
    SendError { failure: Failure::Lost(why), nothing_sent: true }
}

fn target(url: &Url, response: &reqwest::Response) -> Option<Url> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    url.join(location).ok()
}

/// The part of `url` that is no secret.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}
