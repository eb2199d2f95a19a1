//! What a client asks for, read from a body of JSON-RPC or from a path, a query and a body of
//! HTTP+JSON. Pure.
//!
//! Must not: know an agent, or whose a task is.

use url::form_urlencoded;

use super::error::{FrontError, ReplyForm};
use super::message::{BadRpc, RpcRequest, SentMessage, TaskParams};
use super::path::{Operation, RpcMethod, rpc_method};
use crate::backend::Generation;
use crate::model::Members;

/// The most tasks on one page of a list, and how many there are if the client does not say.
const MAX_PAGE: usize = 100;
const USUAL_PAGE: usize = 50;

/// A request of a client, in either binding.
#[derive(Debug)]
pub(super) enum FrontRequest {
    Send(SentMessage),
    Stream(SentMessage),
    GetTask(TaskParams),
    CancelTask(TaskParams),
    Subscribe(String),
    ListTasks(ListParams),
    ExtendedCard,
}

/// Which of its tasks a client wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListParams {
    pub context: Option<String>,
    /// The state, as 1.0 writes it.
    pub status: Option<String>,
    pub page_size: usize,
    /// The last task of the page before.
    pub page_token: Option<String>,
    pub history_length: Option<i64>,
    pub with_artifacts: bool,
}

/// A request of JSON-RPC: how it is answered, and what it asks for.
#[derive(Debug)]
pub(super) struct RpcCall {
    pub form: ReplyForm,
    pub request: Result<(Generation, FrontRequest), FrontError>,
    /// The client reads a stream, also where that is an error.
    pub is_stream: bool,
}

/// Reads a body of JSON-RPC.
pub(super) fn read_rpc(body: &[u8]) -> RpcCall {
    let bad = |BadRpc { id, error }| RpcCall {
        form: ReplyForm::JsonRpc { id },
        request: Err(error),
        is_stream: false,
    };
    let Ok(text) = std::str::from_utf8(body) else {
        return bad(BadRpc {
            id: "null".to_owned(),
            error: FrontError::not_json("The body is not UTF-8."),
        });
    };
    let rpc = match RpcRequest::read(text) {
        Ok(rpc) => rpc,
        Err(error) => return bad(error),
    };
    let form = ReplyForm::JsonRpc { id: rpc.id.to_owned() };
    let Some((generation, method)) = rpc_method(&rpc.method) else {
        let request = Err(FrontError::no_method(&rpc.method));
        return RpcCall { form, request, is_stream: false };
    };
    let is_stream = matches!(method, RpcMethod::Stream | RpcMethod::Subscribe);
    let request = rpc_request(method, generation, rpc.params);
    RpcCall { form, request: request.map(|request| (generation, request)), is_stream }
}

fn rpc_request(
    method: RpcMethod,
    generation: Generation,
    params: &str,
) -> Result<FrontRequest, FrontError> {
    Ok(match method {
        RpcMethod::Send => FrontRequest::Send(SentMessage::read(params, generation)?),
        RpcMethod::Stream => FrontRequest::Stream(SentMessage::read(params, generation)?),
        RpcMethod::GetTask => FrontRequest::GetTask(TaskParams::read(params)?),
        RpcMethod::CancelTask => FrontRequest::CancelTask(TaskParams::read(params)?),
        RpcMethod::Subscribe => FrontRequest::Subscribe(TaskParams::read(params)?.id),
        RpcMethod::ListTasks => FrontRequest::ListTasks(ListParams::of_json(params)?),
        RpcMethod::ExtendedCard => FrontRequest::ExtendedCard,
        RpcMethod::Push => return Err(FrontError::no_push()),
    })
}

/// Reads a request of HTTP+JSON.
pub(super) fn read_rest(
    operation: Operation,
    generation: Generation,
    query: &str,
    body: &[u8],
) -> Result<FrontRequest, FrontError> {
    let text = std::str::from_utf8(body)
        .map_err(|_not_utf8| FrontError::not_json("The body is not UTF-8."))?;
    let parameter = |names: &[&str]| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| names.contains(&&**key)).map(|(_, value)| value.into_owned())
    };
    let history_length = match parameter(&["historyLength", "history_length"]) {
        None => None,
        Some(length) => Some(length.parse().map_err(|_no_number| {
            FrontError::invalid_params("`historyLength` must be a number.")
        })?),
    };
    Ok(match operation {
        Operation::Send => FrontRequest::Send(SentMessage::read(text, generation)?),
        Operation::Stream => FrontRequest::Stream(SentMessage::read(text, generation)?),
        Operation::GetTask(id) => {
            FrontRequest::GetTask(TaskParams { id, history_length, metadata: None })
        }
        Operation::CancelTask(id) => {
            let metadata = Members::read(text).ok().and_then(|body| body.get("metadata"));
            let metadata = metadata.filter(|value| value.get().starts_with('{'));
            let metadata = metadata.map(ToOwned::to_owned);
            FrontRequest::CancelTask(TaskParams { id, history_length: None, metadata })
        }
        Operation::Subscribe(id) => FrontRequest::Subscribe(id),
        Operation::ListTasks => FrontRequest::ListTasks(ListParams {
            context: parameter(&["contextId", "context_id"]).filter(|id| !id.is_empty()),
            status: parameter(&["status"]).filter(|status| !status.is_empty()),
            page_size: page_size(
                parameter(&["pageSize", "page_size"]).and_then(|size| size.parse().ok()),
            ),
            page_token: parameter(&["pageToken", "page_token"]).filter(|token| !token.is_empty()),
            history_length,
            with_artifacts: parameter(&["includeArtifacts", "include_artifacts"])
                .is_some_and(|value| value == "true"),
        }),
        Operation::ExtendedCard => FrontRequest::ExtendedCard,
        Operation::Push => return Err(FrontError::no_push()),
    })
}

impl ListParams {
    fn of_json(params: &str) -> Result<Self, FrontError> {
        let members = Members::read_at_most(params, 32).map_err(|_unread| {
            FrontError::invalid_params("The parameters must be a JSON object of few members.")
        })?;
        let text = |names: [&str; 2]| {
            let text = names.into_iter().find_map(|name| members.string(name));
            text.filter(|text| !text.is_empty())
        };
        let number = |names: [&str; 2]| {
            let value = names.into_iter().find_map(|name| members.get(name))?;
            serde_json::from_str::<i64>(value.get()).ok()
        };
        let with_artifacts = ["includeArtifacts", "include_artifacts"];
        let with_artifacts = with_artifacts.into_iter().find_map(|name| members.get(name));
        Ok(Self {
            context: text(["contextId", "context_id"]),
            status: text(["status", "status"]),
            page_size: page_size(number(["pageSize", "page_size"])),
            page_token: text(["pageToken", "page_token"]),
            history_length: number(["historyLength", "history_length"]),
            with_artifacts: with_artifacts.is_some_and(|value| value.get() == "true"),
        })
    }
}

fn page_size(wanted: Option<i64>) -> usize {
    let wanted = wanted.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
    wanted.unwrap_or(USUAL_PAGE).min(MAX_PAGE)
}

#[cfg(test)]
mod tests {
    //! What each request is read as.

    use super::*;

    #[test]
    fn request_of_json_rpc_is_read_with_its_version() {
        let read = |method: &str, params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
            read_rpc(text.as_bytes())
        };
        let stream = read("message/stream", r#"{"message":{"messageId":"m"}}"#);
        assert!(stream.is_stream && stream.form == ReplyForm::JsonRpc { id: "7".to_owned() });
        let Ok((Generation::V03, FrontRequest::Stream(message))) = stream.request else { panic!() };
        assert_eq!(message.id, "m");
        let get = read("GetTask", r#"{"id":"t","historyLength":0}"#).request;
        let Ok((Generation::V10, FrontRequest::GetTask(params))) = get else { panic!("{get:?}") };
        assert_eq!((params.id.as_str(), params.history_length), ("t", Some(0)));
        let list = read("ListTasks", r#"{"pageSize":1000,"contextId":"c"}"#).request;
        let Ok((_, FrontRequest::ListTasks(params))) = list else { panic!("{list:?}") };
        assert_eq!((params.page_size, params.context.as_deref()), (MAX_PAGE, Some("c")));
        let code = |method: &str| read(method, "{}").request.expect_err(method).code;
        assert_eq!(code("tasks/all"), -32601);
        let old_list = read("tasks/list", "{}").request;
        assert!(matches!(old_list, Ok((Generation::V03, FrontRequest::ListTasks(_)))));
        assert_eq!(code("tasks/pushNotificationConfig/set"), -32003);
        assert_eq!(code("message/send"), -32602);
    }

    #[test]
    fn request_of_http_json_is_read_from_path_query_and_body() {
        let read = |operation, query: &str, body: &str| {
            read_rest(operation, Generation::V10, query, body.as_bytes())
        };
        let get = read(Operation::GetTask("t".to_owned()), "historyLength=2", "");
        let Ok(FrontRequest::GetTask(params)) = get else { panic!("{get:?}") };
        assert_eq!((params.id.as_str(), params.history_length), ("t", Some(2)));
        read(Operation::GetTask("t".to_owned()), "historyLength=x", "").expect_err("no number");
        let cancel = read(Operation::CancelTask("t".to_owned()), "", r#"{"metadata":{"a":1.0}}"#);
        let Ok(FrontRequest::CancelTask(params)) = cancel else { panic!("{cancel:?}") };
        assert_eq!(params.metadata.expect("metadata").get(), r#"{"a":1.0}"#);
        let list = read(Operation::ListTasks, "page_size=2&includeArtifacts=true&status=", "");
        let Ok(FrontRequest::ListTasks(params)) = list else { panic!("{list:?}") };
        assert!(params.page_size == 2 && params.with_artifacts && params.status.is_none());
        assert_eq!(read(Operation::Push, "", "").expect_err("refused").code, -32003);
    }
}
