//! Resources, resource templates, prompts and completions: what all servers list, and requests that
//! one of them answers.
//!
//! Must not: change a byte of a server's answer, other than to add the members that 2026-07-28
//! requires, and to leave out those that are `null`.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Client, Era, Replied, Request, RpcError, UNCACHED, message, response, results, typed,
    with_members,
};
use crate::backend::peer::ReadPermission;
use crate::budget::{Budget, Held};
use crate::config::error::did_you_mean;
use crate::model::mcp::error_code;
use crate::model::rights::CallRefusal;
use crate::model::{BackendName, Feature, FeatureView, form, member};

/// JSON-RPC's code for a resource that is not there, before 2026-07-28.
const RESOURCE_NOT_FOUND: i32 = -32002;
/// The most bytes of the parameters of a request that only reads. People type them, or a text that
/// they have selected is one of them.
const MAX_PARAMS: usize = 1 << 20;
/// About how many bytes a value of JSON takes in memory, its text apart.
const VALUE: usize = 96;
const NO_ROOM_FOR_RESULT: &str =
    "The bridge has no room for the result at the moment; try again soon.";

impl Client<'_> {
    pub(super) fn features(&self) -> Arc<FeatureView> {
        self.api.features_within(&self.caller.app, &self.selection)
    }

    /// Answers `resources/read`.
    pub(super) async fn read(&self, request: &Request<'_>) -> Replied {
        let Some(uri) = request.string("uri") else {
            return Err(RpcError::invalid_params("`uri` must be a string."));
        };
        let view = self.features();
        let Some(backend) = view.server_of(&uri) else {
            let code = match self.era {
                Era::Stateless => error_code::INVALID_PARAMS,
                Era::Session(_) => RESOURCE_NOT_FOUND,
            };
            let error = RpcError::new(StatusCode::OK, code, "Resource not found");
            return Err(RpcError { data: Some(json!({ "uri": uri }).to_string()), ..error });
        };
        let (params, _held) = self.read_params(request).await?;
        let result = self.ask(backend, "resources/read", params).await?;
        let stateless = self.era.is_stateless();
        self.respond(request, result, move |result| {
            let contents = form::trimmed(result, &form::CONTENTS).into_owned();
            if stateless && member(&contents, "ttlMs").is_none() {
                with_members(&contents, UNCACHED)
            } else {
                contents
            }
        })
        .await
    }

    /// Answers `prompts/get`.
    pub(super) async fn prompt(&self, request: &Request<'_>) -> Replied {
        let name = request.string("name").unwrap_or_default();
        let view = self.features();
        let Some((backend, own_name)) = view.find(Feature::PROMPT, &name) else {
            return self.unknown_prompt(request, Arc::clone(&view), name).await;
        };
        let (mut params, _held) = self.read_params(request).await?;
        params["name"] = own_name.into();
        let result = self.ask(backend, "prompts/get", params).await?;
        self.respond(request, result, |result| results::prompt(result).into_owned()).await
    }

    /// Answers `completion/complete`, for an argument of a prompt or of a resource template.
    pub(super) async fn complete(&self, request: &Request<'_>) -> Replied {
        let (mut params, _held) = self.read_params(request).await?;
        let view = self.features();
        let (kind, key) = if params["ref"]["type"] == "ref/prompt" {
            (Feature::PROMPT, "name")
        } else {
            (Feature::TEMPLATE, "uri")
        };
        let name = params["ref"][key].as_str().unwrap_or_default();
        let Some((backend, own_name)) = view.find(kind, name) else {
            return Err(RpcError::invalid_params("`ref` names no prompt and no template."));
        };
        if kind == Feature::PROMPT {
            params["ref"]["name"] = own_name.into();
        }
        let result = if view.completes(backend) {
            self.ask(backend, "completion/complete", params).await?
        } else {
            json!({ "completion": { "values": [] } }).to_string()
        };
        self.respond(request, result, |result| {
            form::trimmed(result, &form::COMPLETION).into_owned()
        })
        .await
    }

    /// Says that there is no such prompt. To compare thousands of names takes milliseconds.
    async fn unknown_prompt(
        &self,
        request: &Request<'_>,
        view: Arc<FeatureView>,
        name: String,
    ) -> Replied {
        let id = request.id.to_owned();
        self.api
            .views
            .write(&self.caller.app.name, move || {
                let suggestion = match did_you_mean(&name, view.prompt_names()) {
                    Some(near) => format!(". Did you mean `{near}`?"),
                    None => String::new(),
                };
                RpcError::invalid_params(format!("Unknown prompt: {name}{suggestion}"))
                    .response(&id)
            })
            .await
            .map_err(|why| no_room(why.to_string()))
    }

    /// The parameters of a request that only reads, and what counts them for the app: short texts
    /// such as `[]` take many times their length in memory, and the request may wait for minutes.
    async fn read_params(&self, request: &Request<'_>) -> Replied<(Value, Held)> {
        let size = request.params_size();
        if size > MAX_PARAMS {
            let why = format!("The parameters are longer than {MAX_PARAMS} bytes.");
            return Err(RpcError::invalid_params(why));
        }
        let mut room = Budget::of_process().hold_for(Some(self.caller.app.name.clone()));
        room.resize(size + VALUE * request.params_values())
            .await
            .map_err(|no_bytes| no_room(format!("{no_bytes}; try again soon.")))?;
        Ok((request.params(), room))
    }

    /// Asks a server; returns its result.
    async fn ask(
        &self,
        backend: &BackendName,
        method: &'static str,
        params: Value,
    ) -> Replied<String> {
        self.note_use(backend);
        let app = &self.caller.app.name;
        let internal_error = |why| RpcError::new(StatusCode::OK, error_code::INTERNAL_ERROR, why);
        let _permit = self.api.runs.calls.permit(app).await.map_err(internal_error)?;
        let permission = self.read_permission(backend);
        let reply = self.api.backends().ask(app, backend, (method, params), permission).await;
        let result = reply.map_err(internal_error)?.map_err(RpcError::of_server)?;
        Ok(Box::<str>::from(result).into_string())
    }

    /// Whether the client may be answered by `backend`, at each moment of asking.
    fn read_permission(&self, backend: &BackendName) -> ReadPermission {
        let (calls, app) = (Arc::clone(&self.api.runs.calls), Arc::clone(&self.caller.app));
        let backend = backend.clone();
        Arc::new(move || {
            let app = calls.still(&app).ok_or(CallRefusal::App)?;
            if app.rights.include_features(&backend) { Ok(()) } else { Err(CallRefusal::Backend) }
        })
    }

    /// The response with a server's result as `fit` changes it, counted for the app until its
    /// client has read it. A large result is changed in the turn of the app, and counted while it
    /// waits for that.
    async fn respond(
        &self,
        request: &Request<'_>,
        result: String,
        fit: impl FnOnce(&str) -> String + Send + 'static,
    ) -> Replied {
        let app = &self.caller.app.name;
        let mut room = Budget::of_process().hold_for(Some(app.clone()));
        let size = result.len();
        if !room.try_resize(size) {
            return Err(no_room(NO_ROOM_FOR_RESULT.to_owned()));
        }
        let (id, stateless) = (request.id.to_owned(), self.era.is_stateless());
        let text = self
            .api
            .views
            .work_if_large(app, size, move || {
                message::response(&id, &typed(fit(&result), stateless)).into_bytes()
            })
            .await
            .map_err(|why| no_room(why.to_string()))?;
        if !room.try_resize(text.len()) {
            return Err(no_room(NO_ROOM_FOR_RESULT.to_owned()));
        }
        Ok(response::counted(response::json_text(room.pay_for(text))))
    }
}

/// The bridge cannot do it at the moment; a client that tries again later may succeed.
pub(super) fn no_room(why: String) -> RpcError {
    RpcError::new(StatusCode::SERVICE_UNAVAILABLE, error_code::INTERNAL_ERROR, why)
}
