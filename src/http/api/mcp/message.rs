//! JSON-RPC messages of MCP's clients, and the answers to them. Pure.
//!
//! Must not: know a method, or change a byte of a result but halves of characters.

use std::borrow::Cow;

use http::{Response, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Body, response};
use crate::backend::ErrorReply;
use crate::model::Members;
use crate::model::form::without_lone_surrogates;
use crate::model::mcp::error_code;

/// The most members of a message, of its parameters and of `_meta`.
const MAX_MEMBERS: usize = 256;
/// The longest id and the longest progress token, in bytes: the bridge repeats them.
const MAX_ID: usize = 1024;

/// The most bytes of `_meta`, in which the bridge looks for several members of each request.
const MAX_META: usize = 32 << 10;

/// One message of a client.
#[derive(Debug)]
pub enum Message<'a> {
    Request(Request<'a>),
    Notification(Request<'a>),
    /// The client's answer to a question: the id of the bridge's request, and the result; no result
    /// if it is an error.
    Response(&'a str, Option<&'a RawValue>),
}

/// A request or a notification.
#[derive(Debug)]
pub struct Request<'a> {
    /// A number or a string, as the client wrote it; `null` for a notification.
    pub id: &'a str,
    pub method: String,
    params: Members<'a>,
}

/// A message with its own texts: large ones are read on another thread.
#[derive(Debug)]
pub struct OwnMessage {
    form: Form,
    id: String,
    method: String,
    params: Vec<(String, Box<RawValue>)>,
    result: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Request,
    Notification,
    Response,
}

/// A reply to a request, or a value on the way to it.
pub type Replied<T = Response<Body>> = Result<T, RpcError>;

/// A request that is answered with an error.
#[derive(Debug, PartialEq)]
pub struct RpcError {
    /// The HTTP status beside it. A client of 2026-07-28 reads it; earlier revisions answer 200 to
    /// every request that could be read.
    pub status: StatusCode,
    pub code: i32,
    pub message: String,
    /// As JSON.
    pub data: Option<String>,
}

impl RpcError {
    pub fn new(status: StatusCode, code: i32, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// The message is not one that MCP knows.
    pub fn invalid_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error_code::INVALID_REQUEST, why)
    }

    /// The parameters of a known method do not fit.
    pub fn invalid_params(why: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, error_code::INVALID_PARAMS, why)
    }

    /// A server's own error.
    pub fn of_server(error: ErrorReply) -> Self {
        // 2026-07-28, Streamable HTTP: Sending Messages.
        let status = if error.code == error_code::CAPABILITY_MISSING {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::OK
        };
        let data = error.data.map(|data| data.get().to_owned());
        Self { data, ..Self::new(status, error.code, error.message) }
    }

    /// The text of the response to the request `id`.
    pub fn text(&self, id: &str) -> String {
        let data = self.data.as_ref().map(|data| format!(",\"data\":{data}")).unwrap_or_default();
        let code = self.code;
        let message = Value::from(&*self.message);
        let error = format!("{{\"code\":{code},\"message\":{message}{data}}}");
        without_lone_surrogates(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}"))
            .into_owned()
    }

    /// The response to the request `id`.
    pub fn response(&self, id: &str) -> Response<Body> {
        response::with_status(response::json_text(self.text(id)), self.status)
    }
}

/// The text of the response to the request `id`.
pub fn response(id: &str, result: &str) -> String {
    let result = without_lone_surrogates(result);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

impl<'a> Message<'a> {
    /// The id of the request that an error of this message is for.
    pub fn id(&self) -> &'a str {
        match self {
            Self::Request(request) => request.id,
            Self::Notification(_) | Self::Response(..) => "null",
        }
    }

    pub fn read(text: &'a str) -> Replied<Self> {
        let whole: &RawValue = serde_json::from_str(text).map_err(|error| {
            RpcError::new(StatusCode::BAD_REQUEST, error_code::PARSE_ERROR, error.to_string())
        })?;
        if whole.get().starts_with('[') {
            return Err(RpcError::invalid_request(
                "Send one message at a time; MCP has no batches.",
            ));
        }
        let Some(members) = object(whole) else {
            return Err(RpcError::invalid_request("A message is a JSON object of few members."));
        };
        if members.get("jsonrpc").is_none_or(|version| version.get() != "\"2.0\"") {
            return Err(RpcError::invalid_request("`jsonrpc` must be \"2.0\"."));
        }
        if let Some(twice) = members.duplicate() {
            return Err(RpcError::invalid_request(format!("The member `{twice}` is there twice.")));
        }
        if members.get("method").is_none() {
            let result = members.get("result");
            return match members.get("id") {
                Some(id) if result.is_some() || members.get("error").is_some() => {
                    Ok(Self::Response(id.get(), result))
                }
                _ => Err(RpcError::invalid_request(
                    "A message has a `method`, or an `id` and a `result` or an `error`.",
                )),
            };
        }
        let Some(method) = members.string("method") else {
            return Err(RpcError::invalid_request("`method` must be a string."));
        };
        let params = match members.get("params").filter(|params| params.get() != "null") {
            None => Members(Vec::new()),
            Some(params) => object(params)
                .ok_or_else(|| RpcError::invalid_request("`params` must be an object."))?,
        };
        if params.get("_meta").is_some_and(|meta| meta.get().len() > MAX_META) {
            let why = format!("`params._meta` is longer than {MAX_META} bytes.");
            return Err(RpcError::invalid_request(why));
        }
        match members.get("id").map(RawValue::get) {
            None => Ok(Self::Notification(Request { id: "null", method, params })),
            Some(id) if is_id(id) => Ok(Self::Request(Request { id, method, params })),
            Some(_) => Err(RpcError::invalid_request("`id` must be an integer or a short string.")),
        }
    }
}

impl Message<'_> {
    pub fn to_owned(&self) -> OwnMessage {
        let (form, request) = match self {
            Self::Request(request) => (Form::Request, request),
            Self::Notification(request) => (Form::Notification, request),
            Self::Response(id, result) => {
                return OwnMessage {
                    form: Form::Response,
                    id: (*id).to_owned(),
                    method: String::new(),
                    params: Vec::new(),
                    result: result.map(ToOwned::to_owned),
                };
            }
        };
        let params = &request.params.0;
        OwnMessage {
            form,
            id: request.id.to_owned(),
            method: request.method.clone(),
            params: params
                .iter()
                .map(|(key, value)| (key.to_string(), (*value).to_owned()))
                .collect(),
            result: None,
        }
    }
}

impl OwnMessage {
    pub fn message(&self) -> Message<'_> {
        let params = self.params.iter().map(|(key, value)| (Cow::Borrowed(&**key), &**value));
        let request = Request {
            id: &self.id,
            method: self.method.clone(),
            params: Members(params.collect()),
        };
        match self.form {
            Form::Request => Message::Request(request),
            Form::Notification => Message::Notification(request),
            Form::Response => Message::Response(&self.id, self.result.as_deref()),
        }
    }
}

/// Whether `json` is an id: a string or an integer (2026-07-28, basic: Requests).
pub(super) fn is_id(json: &str) -> bool {
    let digits = json.strip_prefix('-').unwrap_or(json);
    let integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    json.len() <= MAX_ID && (json.starts_with('"') || integer)
}

fn object(json: &RawValue) -> Option<Members<'_>> {
    Members::read_at_most(json.get(), MAX_MEMBERS).ok()
}

impl<'a> Request<'a> {
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.params.get(key)
    }

    /// All parameters but `_meta`, which is between the client and the bridge. Those that are
    /// `null` count as left out: many servers refuse such a request.
    pub fn params(&self) -> Value {
        let mut params = serde_json::Map::new();
        for (key, value) in &self.params.0 {
            if key != "_meta"
                && value.get() != "null"
                && let Ok(value) = serde_json::from_str(value.get())
            {
                params.insert(key.to_string(), value);
            }
        }
        params.into()
    }

    /// How many bytes the texts of all parameters have.
    pub fn params_size(&self) -> usize {
        self.params.0.iter().map(|(key, value)| key.len() + value.get().len()).sum()
    }

    /// The most values that the parameters can have: behind each bracket or comma, one may begin.
    pub fn params_values(&self) -> usize {
        let texts = self.params.0.iter().map(|(_, value)| value.get().as_bytes());
        texts.map(|text| 1 + memchr::memchr3_iter(b'[', b'{', b',', text).count()).sum()
    }

    /// The string under `key`; `None` if it is missing or no string.
    pub fn string(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// The member `key` of `_meta`.
    pub fn meta(&self, key: &str) -> Option<&'a RawValue> {
        object(self.get("_meta")?)?.get(key)
    }

    /// The token under which the client wants to be told of progress, as JSON.
    pub fn progress_token(&self) -> Option<String> {
        let token = self.meta("progressToken")?.get();
        is_id(token).then(|| token.to_owned())
    }
}

#[cfg(test)]
mod tests {
    //! What is a message, and what is refused as none.

    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let read = |text| match Message::read(text) {
            Ok(Message::Request(request)) => format!("{} {}", request.method, request.id),
            Ok(Message::Notification(notification)) => notification.method,
            Ok(Message::Response(id, result)) => format!("response {id} {}", result.is_some()),
            Err(error) => error.code.to_string(),
        };
        for (text, is) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, "ping 7"),
            (
                r#"{"jsonrpc":"2.0","id":"a\"","method":"tools\/list","params":{}}"#,
                r#"tools/list "a\"""#,
            ),
            (r#"{"jsonrpc":"2.0","id":-7,"method":"ping"}"#, "ping -7"),
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":null}"#, "ping 7"),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                "notifications/initialized",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response 1 true"),
            (r#"{"jsonrpc":"2.0","id":"a","error":{}}"#, "response \"a\" false"),
            (r#"{"jsonrpc":"2.0","result":{}}"#, "-32600"),
            ("{", "-32700"),
            ("[]", "-32600"),
            ("7", "-32600"),
            (r#"{"id":1,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "-32600"),
        ] {
            assert_eq!(read(text), is, "{text}");
        }
    }

    #[test]
    fn message_with_its_own_texts_is_the_same() {
        for text in [
            r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"b":[1],"c\n":null}}"#,
            r#"{"jsonrpc":"2.0","method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
        ] {
            let message = Message::read(text).expect("a message");
            assert_eq!(format!("{:?}", message.to_owned().message()), format!("{message:?}"));
        }
        let meta = format!(r#"{{"x":"{}"}}"#, "y".repeat(MAX_META));
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{meta}}}}}"#);
        assert_eq!(Message::read(&text).expect_err("too long").code, error_code::INVALID_REQUEST);
    }

    #[test]
    fn values_of_the_parameters_are_counted_with_those_inside_others() {
        let count = |params: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            match Message::read(&text) {
                Ok(Message::Request(request)) => (request.params_size(), request.params_values()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(count("{}"), (0, 0));
        assert_eq!(count(r#"{"a":7}"#), (2, 1));
        assert!(count(r#"{"a":[[],{},{"b":1}],"c":"d"}"#).1 >= 6);
    }

    #[test]
    fn the_data_of_a_servers_error_stays_as_it_is() {
        let data = r#"{"b":12345678901234567890123,"a":1.10}"#;
        let reply = |code| ErrorReply {
            code,
            message: "no \"x\"".to_owned(),
            data: RawValue::from_string(data.to_owned()).ok(),
        };
        let error = RpcError::of_server(reply(error_code::CAPABILITY_MISSING));
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-32021,"message":"no \"x\"","data":{data}}}}}"#
        );
        assert_eq!(error.text("7"), expected);
        assert_eq!(RpcError::of_server(reply(error_code::URL_FIRST)).status, StatusCode::OK);
    }
}
