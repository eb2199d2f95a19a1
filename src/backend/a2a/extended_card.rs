//! Asks an agent for the card that it shows to clients with a credential.
//!
//! Must not: judge the card, or ask over gRPC, where a card is no JSON.

use http::Method;
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

use super::card_fetch::MAX_CARD;
use super::failure::A2aFailure;
use super::interface::{Endpoint, Generation};
use super::link::Link;
use super::links::Links;
use super::wire::{self, Request};
use crate::backend::CallError;
use crate::config::A2aBinding;
use crate::http_client;
use crate::random;

/// The extended card, from the first interface that can be reached; the error is for operators.
pub(super) async fn fetch(links: &Links) -> Result<Box<RawValue>, String> {
    let mut why = "the card offers gRPC alone, over which a card is no JSON".to_owned();
    for link in links.by_preference() {
        let Some(request) = request(&link.endpoint) else { continue };
        match exchange(link, request).await {
            Ok(card) => return Ok(card),
            // Nothing was sent, so that another interface may do.
            Err(failure @ A2aFailure::Call(CallError::NotSent(_))) => {
                why = CallError::from(failure).to_string();
            }
            Err(failure) => return Err(CallError::from(failure).to_string()),
        }
    }
    Err(why)
}

async fn exchange(link: &Link, request: Request) -> Result<Box<RawValue>, A2aFailure> {
    let headers = link.headers(link.endpoint.generation);
    // A card of 0.2 has an address of its own, outside of the binding.
    let is_document = request.method == Method::GET;
    let response = link.send(request, headers, true).await?;
    let status = response.status();
    let body = http_client::body(response, MAX_CARD).await.map_err(CallError::from)?;
    let binding = if is_document { A2aBinding::HttpJson } else { link.endpoint.binding };
    wire::decode(binding, status, &body)
}

/// The request for the extended card; `None` over gRPC.
fn request(endpoint: &Endpoint) -> Option<Request> {
    let Endpoint { url, generation, version, tenant, .. } = endpoint;
    let (method, url, body) = match (endpoint.binding, generation) {
        (A2aBinding::Grpc, _) => return None,
        (A2aBinding::JsonRpc, Generation::V10) => {
            let params = tenant.as_ref().map_or(json!({}), |tenant| json!({"tenant": tenant}));
            (Method::POST, url.clone(), Some(json_rpc("GetExtendedAgentCard", Some(&params))))
        }
        (A2aBinding::JsonRpc, Generation::V03) if version.starts_with("0.2") => {
            (Method::GET, url.join("/agent/authenticatedExtendedCard").ok()?, None)
        }
        (A2aBinding::JsonRpc, Generation::V03) => {
            let body = json_rpc("agent/getAuthenticatedExtendedCard", None);
            (Method::POST, url.clone(), Some(body))
        }
        (A2aBinding::HttpJson, Generation::V10) => {
            let tenant = tenant.as_deref().into_iter();
            (Method::GET, below(url, tenant.chain(["extendedAgentCard"])), None)
        }
        (A2aBinding::HttpJson, Generation::V03) => {
            (Method::GET, below(url, ["v1", "card"].into_iter()), None)
        }
    };
    Some(Request { method, url, body: body.map(Into::into) })
}

fn json_rpc(method: &str, params: Option<&serde_json::Value>) -> String {
    let id = random::uuid().to_string();
    let mut body = json!({"jsonrpc": "2.0", "id": id, "method": method});
    if let Some(params) = params {
        body["params"] = params.clone();
    }
    body.to_string()
}

fn below<'p>(url: &Url, path: impl Iterator<Item = &'p str>) -> Url {
    let mut url = url.clone();
    url.path_segments_mut().expect("an http URL has a path").pop_if_empty().extend(path);
    url
}
