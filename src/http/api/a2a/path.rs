//! What the paths and the methods of the front mean: `/a2a/NAME` is one address for both bindings
//! and both versions, whose paths and method names differ. Pure.
//!
//! Must not: know an agent.

use http::Method;

use crate::backend::Generation;
use crate::http::proxy::path::decoded;

/// What a request to the front asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrontPath {
    /// The agents of the app.
    Agents,
    Card,
    JsonRpc,
    Rest(Generation, Operation),
}

/// An operation of A2A, and the task that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Send,
    Stream,
    GetTask(String),
    CancelTask(String),
    Subscribe(String),
    ListTasks,
    ExtendedCard,
    /// Any operation on push notifications.
    Push,
}

/// An operation by its name in JSON-RPC; the parameters name the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RpcMethod {
    Send,
    Stream,
    GetTask,
    CancelTask,
    Subscribe,
    ListTasks,
    ExtendedCard,
    Push,
}

/// Reads a path below `/a2a`; `None` if it means nothing.
pub(super) fn read(method: &Method, path: &str) -> Option<FrontPath> {
    let segments: Vec<String> =
        path.split('/').skip(3).filter(|segment| !segment.is_empty()).map(decoded).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let is_get = matches!(*method, Method::GET | Method::HEAD);
    match segments.as_slice() {
        [] if path.split('/').nth(2).is_none_or(str::is_empty) => {
            is_get.then_some(FrontPath::Agents)
        }
        [] => (*method == Method::POST).then_some(FrontPath::JsonRpc),
        [".well-known", "agent-card.json" | "agent.json"] if is_get => Some(FrontPath::Card),
        ["v1", "card"] if is_get => Some(FrontPath::Rest(Generation::V03, Operation::ExtendedCard)),
        ["extendedAgentCard"] if is_get => {
            Some(FrontPath::Rest(Generation::V10, Operation::ExtendedCard))
        }
        ["v1", rest @ ..] => Some(FrontPath::Rest(Generation::V03, operation(method, rest)?)),
        rest => Some(FrontPath::Rest(Generation::V10, operation(method, rest)?)),
    }
}

/// The operation of HTTP+JSON, which both versions write alike.
fn operation(method: &Method, segments: &[&str]) -> Option<Operation> {
    let is_post = *method == Method::POST;
    let is_get = matches!(*method, Method::GET | Method::HEAD);
    match segments {
        ["message:send"] if is_post => Some(Operation::Send),
        ["message:stream"] if is_post => Some(Operation::Stream),
        ["tasks"] if is_get => Some(Operation::ListTasks),
        ["tasks", task] => match task.rsplit_once(':') {
            Some((task, "cancel")) if is_post => Some(Operation::CancelTask(task.to_owned())),
            Some((task, "subscribe")) if is_post || is_get => {
                Some(Operation::Subscribe(task.to_owned()))
            }
            _ if is_get => Some(Operation::GetTask((*task).to_owned())),
            _ => None,
        },
        ["tasks", _, "pushNotificationConfigs", ..] => Some(Operation::Push),
        _ => None,
    }
}

/// The method of JSON-RPC with this name, and its version.
pub(super) fn rpc_method(name: &str) -> Option<(Generation, RpcMethod)> {
    use Generation::{V03, V10};
    Some(match name {
        "message/send" => (V03, RpcMethod::Send),
        "message/stream" => (V03, RpcMethod::Stream),
        "tasks/get" => (V03, RpcMethod::GetTask),
        "tasks/cancel" => (V03, RpcMethod::CancelTask),
        "tasks/resubscribe" => (V03, RpcMethod::Subscribe),
        "tasks/list" => (V03, RpcMethod::ListTasks),
        "agent/getAuthenticatedExtendedCard" => (V03, RpcMethod::ExtendedCard),
        "SendMessage" => (V10, RpcMethod::Send),
        "SendStreamingMessage" => (V10, RpcMethod::Stream),
        "GetTask" => (V10, RpcMethod::GetTask),
        "CancelTask" => (V10, RpcMethod::CancelTask),
        "SubscribeToTask" => (V10, RpcMethod::Subscribe),
        "ListTasks" => (V10, RpcMethod::ListTasks),
        "GetExtendedAgentCard" => (V10, RpcMethod::ExtendedCard),
        _ if name.starts_with("tasks/pushNotificationConfig/") => (V03, RpcMethod::Push),
        "CreateTaskPushNotificationConfig"
        | "GetTaskPushNotificationConfig"
        | "ListTaskPushNotificationConfigs"
        | "ListTaskPushNotificationConfig"
        | "DeleteTaskPushNotificationConfig" => (V10, RpcMethod::Push),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    //! Where each path leads.

    use super::*;

    #[test]
    fn path_of_each_operation_is_read() {
        use Generation::{V03, V10};
        let task = || "a/b".to_owned();
        for (method, path, asked) in [
            (Method::GET, "/a2a", Some(FrontPath::Agents)),
            (Method::GET, "/a2a/", Some(FrontPath::Agents)),
            (Method::POST, "/a2a/hr", Some(FrontPath::JsonRpc)),
            (Method::POST, "/a2a/hr/", Some(FrontPath::JsonRpc)),
            (Method::GET, "/a2a/hr", None),
            (Method::GET, "/a2a/hr/.well-known/agent-card.json", Some(FrontPath::Card)),
            (Method::HEAD, "/a2a/hr/.well-known/agent.json", Some(FrontPath::Card)),
            (Method::POST, "/a2a/hr/.well-known/agent.json", None),
            (Method::POST, "/a2a/hr/v1/message:send", Some(FrontPath::Rest(V03, Operation::Send))),
            (Method::POST, "/a2a/hr/message:stream", Some(FrontPath::Rest(V10, Operation::Stream))),
            (
                Method::POST,
                "/a2a/hr/message%3Astream",
                Some(FrontPath::Rest(V10, Operation::Stream)),
            ),
            (Method::GET, "/a2a/hr/message:stream", None),
            (
                Method::GET,
                "/a2a/hr/v1/tasks/a%2Fb",
                Some(FrontPath::Rest(V03, Operation::GetTask(task()))),
            ),
            (
                Method::POST,
                "/a2a/hr/tasks/a%2Fb:cancel",
                Some(FrontPath::Rest(V10, Operation::CancelTask(task()))),
            ),
            (
                Method::GET,
                "/a2a/hr/tasks/a%2Fb:subscribe",
                Some(FrontPath::Rest(V10, Operation::Subscribe(task()))),
            ),
            (Method::GET, "/a2a/hr/tasks", Some(FrontPath::Rest(V10, Operation::ListTasks))),
            (Method::GET, "/a2a/hr/v1/card", Some(FrontPath::Rest(V03, Operation::ExtendedCard))),
            (
                Method::GET,
                "/a2a/hr/extendedAgentCard",
                Some(FrontPath::Rest(V10, Operation::ExtendedCard)),
            ),
            (
                Method::POST,
                "/a2a/hr/v1/tasks/t/pushNotificationConfigs",
                Some(FrontPath::Rest(V03, Operation::Push)),
            ),
            (Method::GET, "/a2a/hr/else", None),
        ] {
            assert_eq!(read(&method, path), asked, "{method} {path}");
        }
    }

    #[test]
    fn method_of_json_rpc_tells_its_version() {
        for (name, generation, method) in [
            ("message/send", Generation::V03, RpcMethod::Send),
            ("SendMessage", Generation::V10, RpcMethod::Send),
            ("tasks/resubscribe", Generation::V03, RpcMethod::Subscribe),
            ("SubscribeToTask", Generation::V10, RpcMethod::Subscribe),
            ("tasks/pushNotificationConfig/set", Generation::V03, RpcMethod::Push),
            ("CreateTaskPushNotificationConfig", Generation::V10, RpcMethod::Push),
        ] {
            assert_eq!(rpc_method(name), Some((generation, method)), "{name}");
        }
        assert_eq!(rpc_method("message/Send"), None);
    }
}
