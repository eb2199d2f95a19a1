//! Passing a request on to MANTYX and its answer back, streamed and unchanged but for what belongs
//! to a single connection, to the bridge, or to whom the credential is.
//!
//! Must not: read a body into memory.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use reqwest::RequestBuilder;
use tracing::{error, warn};

use crate::{
    door::{
        code::Code,
        guard::Caller,
        reply::{self, Body, BoxError, Paced, Pieces, ReadError},
    },
    http_client,
    runs::Runs,
    upstream::{Authority, SendError, X_API_KEY},
};

/// Headers that are about one connection and go no further (RFC 9110 §7.6.1), beside those that
/// `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What does not go to MANTYX: the caller's credential for the bridge, what the client library
/// writes anew, what the bridge has answered itself, and cookies. A browser keeps cookies for a host,
/// so that those which it sends here are the status page's, or another program's on this machine.
const NOT_UPSTREAM: [HeaderName; 6] = [
    header::HOST,
    header::AUTHORIZATION,
    X_API_KEY,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::COOKIE,
];

/// The headers that apps give to the bridge alone.
const OWN_PREFIX: &str = "x-bridge-";

/// The headers by which a server lets pages of other origins in.
const CORS_PREFIX: &str = "access-control-";

/// A request on its way to MANTYX.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub runs: &'a Arc<Runs>,
    pub caller: &'a Caller,
    pub authority: Authority,
}

impl<'a> Outgoing<'a> {
    /// A request of `caller`, who sent these headers.
    pub fn new(runs: &'a Arc<Runs>, caller: &'a Caller, headers: &HeaderMap) -> Self {
        Self { runs, caller, authority: authority(runs, caller, headers) }
    }

    /// Forwards the request as it is.
    pub async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let length = parts.headers.get(header::CONTENT_LENGTH).cloned();
        if http_body::Body::is_end_stream(&body) {
            return self.send(&parts, Ok).await;
        }
        let body = Mutex::new(Some(reqwest::Body::wrap(Paced::new(body))));
        let fill = |request: RequestBuilder| {
            let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
            let request = request.body(body.ok_or(SendError::NotTwice)?);
            Ok(match &length {
                Some(length) => request.header(header::CONTENT_LENGTH, length),
                None => request,
            })
        };
        self.send(&parts, fill).await
    }

    /// Forwards the request with another body.
    pub async fn forward_bytes(&self, parts: &Parts, body: Vec<Bytes>) -> Response<Body> {
        let body = |request: RequestBuilder| {
            Ok(request.body(reqwest::Body::wrap(Pieces::new(body.clone()))))
        };
        self.send(parts, body).await
    }

    /// Sends the request on, with the body that `fill` gives it.
    async fn send(
        &self,
        parts: &Parts,
        fill: impl Fn(RequestBuilder) -> Result<RequestBuilder, SendError>,
    ) -> Response<Body> {
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let upstream = self.runs.upstream();
        let mut headers = end_to_end(&parts.headers);
        for name in NOT_UPSTREAM {
            headers.remove(name);
        }
        let own: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with(OWN_PREFIX)).cloned().collect();
        for name in own {
            headers.remove(name);
        }
        let sent = upstream.send((parts.method.clone(), path), &self.authority, |request| {
            fill(request.headers(headers.clone()))
        });
        match sent.await {
            Ok(response) => {
                upstream.overheard(&self.authority, response.headers());
                self.back(response)
            }
            Err(error) => unsent(&error),
        }
    }

    /// MANTYX's answer, for the app.
    fn back(&self, response: reqwest::Response) -> Response<Body> {
        if !self.authority.is_callers() && response.status() == StatusCode::UNAUTHORIZED {
            // To the app this would look as if its token for the bridge were wrong.
            error!("MANTYX refuses the bridge's credential (401); check upstream.credential");
            return reply::error(
                StatusCode::BAD_GATEWAY,
                Code::UpstreamUnauthorized,
                "MANTYX refuses the credential of the bridge (401). It is `upstream.credential` \
                 in bridge.yaml that has to be mended; your token for the bridge is right.",
            );
        }
        let response: Response<reqwest::Body> = response.into();
        let (mut parts, body) = response.into_parts();
        parts.headers = end_to_end(&parts.headers);
        // In a browser, a cookie of MANTYX's would become one of the bridge's host.
        parts.headers.remove(header::SET_COOKIE);
        // What MANTYX allows to pages, the bridge does not.
        let cors = parts.headers.keys().filter(|name| name.as_str().starts_with(CORS_PREFIX));
        for name in cors.cloned().collect::<Vec<_>>() {
            parts.headers.remove(name);
        }
        let body = body.map_err(|error| {
            warn!(error = %http_client::chain(&error), "MANTYX's answer broke off");
            BoxError::from(error.without_url())
        });
        Response::from_parts(parts, body.boxed_unsync())
    }
}

/// Why the body of the request could not be read, if that is why it could not be sent.
fn body_error(error: &reqwest::Error) -> Option<&ReadError> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Whose credential goes to MANTYX for `caller`.
fn authority(runs: &Runs, caller: &Caller, headers: &HeaderMap) -> Authority {
    runs.upstream().authority_of(&caller.app).unwrap_or_else(|| {
        let mut own = headers.clone();
        if let Some(name) = &caller.token_in {
            own.remove(name);
        }
        Authority::of_caller(&own)
    })
}

/// The headers that travel further than one connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.into_iter().chain(named) {
        kept.remove(name);
    }
    kept
}

/// The answer to a request that MANTYX did not get, or did not take.
fn unsent(error: &SendError) -> Response<Body> {
    match error {
        SendError::OddPath(odd) => {
            reply::error(StatusCode::BAD_REQUEST, Code::InvalidRequest, &odd.to_string())
        }
        SendError::Token(why) => {
            error!(error = %why, "MANTYX cannot be shown a token; check upstream.oauth");
            reply::error(
                StatusCode::BAD_GATEWAY,
                Code::UpstreamUnauthorized,
                "The bridge has no token that MANTYX takes. It is `upstream.oauth` in bridge.yaml \
                 that has to be mended, or what it refers to; your token for the bridge is right.",
            )
        }
        SendError::NotTwice => {
            let message = "MANTYX refused the bridge's token, which has been renewed since. \
                           Nothing was done: send the request again.";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut again = reply::error(status, Code::UpstreamUnauthorized, message);
            again.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            again
        }
        // It is the app's own doing, where its body did not come.
        SendError::Broken(error) => match body_error(error) {
            Some(error) => error.reply(),
            None => unreachable(&http_client::chain(error)),
        },
    }
}

/// The answer where MANTYX gave none.
pub fn unreachable(error: &str) -> Response<Body> {
    warn!(error, "MANTYX cannot be reached");
    reply::error(
        StatusCode::BAD_GATEWAY,
        Code::UpstreamUnreachable,
        "The bridge cannot reach MANTYX at the moment; its log says why.",
    )
}

#[cfg(test)]
mod tests {
    //! What travels on and what does not.

    use super::*;

    #[test]
    fn connection_headers_go_no_further() {
        let pairs = [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("accept", "application/json"),
            ("content-length", "5"),
        ];
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let kept = end_to_end(&headers);
        let mut kept: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["accept", "content-length"]);
    }
}
