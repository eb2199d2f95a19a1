//! Resources, resource templates, prompts and completions: what all servers list, and requests that
//! one of them answers.
//!
//! Must not: change a byte of a server's answer, other than to add the members that 2026-07-28
//! requires, and to leave out those that are `null`.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Client, Era, Replied, Request, RpcError, UNCACHED, codes, message, response, results, typed,
    with,
};
use crate::backend::peer::ReadPermission;
use crate::budget::{Budget, Held};
use crate::config::error::did_you_mean;
use crate::model::rights::CallRefusal;
use crate::model::{BackendName, Feature, FeatureView, form, member};

/// JSON-RPC's code for a resource that is not there, before 2026-07-28.
const RESOURCE_NOT_FOUND: i32 = -32002;
/// The most bytes of the parameters of a request that only reads. People type them, or a text that
/// they have selected is one of them.
const MAX_PARAMS: usize = 1 << 20;
/// About how many bytes a value of JSON takes in memory, beside its text.
const VALUE: usize = 96;

impl Client<'_> {
    pub(super) fn features(&self) -> Arc<FeatureView> {
        self.api.backends().registry.features(&self.caller.app.rights)
    }

    /// Answers `resources/read`.
    pub(super) async fn read(&self, request: &Request<'_>) -> Replied {
        let uri = request.string("uri");
        let uri = uri.ok_or_else(|| RpcError::invalid_params("`uri` must be a string."))?;
        let view = self.features();
        let Some(backend) = view.server_of(&uri) else {
            let code = match self.era {
                Era::Stateless => codes::INVALID_PARAMS,
                Era::Session(_) => RESOURCE_NOT_FOUND,
            };
            let error = RpcError::new(StatusCode::OK, code, "Resource not found");
            return Err(RpcError { data: Some(json!({ "uri": uri }).to_string()), ..error });
        };
        let (params, _held) = self.read_params(request).await?;
        let result = self.ask(backend, "resources/read", params).await?;
        let in_session = matches!(self.era, Era::Session(_));
        let fit = move |result: &str| {
            let result = form::trimmed(result, &form::CONTENTS).into_owned();
            let is_fresh = in_session || member(&result, "ttlMs").is_some();
            if is_fresh { result } else { with(&result, UNCACHED) }
        };
        self.respond(request, result, fit).await
    }

    /// Answers `prompts/get`.
    pub(super) async fn prompt(&self, request: &Request<'_>) -> Replied {
        let name = request.string("name").unwrap_or_default();
        let view = self.features();
        let Some((backend, own)) = view.find(Feature::PROMPT, &name) else {
            return self.unknown_prompt(request, Arc::clone(&view), name).await;
        };
        let (mut params, _held) = self.read_params(request).await?;
        params["name"] = own.into();
        let result = self.ask(backend, "prompts/get", params).await?;
        self.respond(request, result, |result| results::prompt(result).into_owned()).await
    }

    /// Answers `completion/complete`, for an argument of a prompt or of a resource template.
    pub(super) async fn complete(&self, request: &Request<'_>) -> Replied {
        let (mut params, _held) = self.read_params(request).await?;
        let view = self.features();
        let about = |key: &str| params["ref"][key].as_str().unwrap_or_default();
        let found = match about("type") {
            "ref/prompt" => view.find(Feature::PROMPT, about("name")),
            _ => view.find(Feature::TEMPLATE, about("uri")),
        };
        let unknown = || RpcError::invalid_params("`ref` names no prompt and no template.");
        let (backend, own) = found.ok_or_else(unknown)?;
        if about("type") == "ref/prompt" {
            params["ref"]["name"] = own.into();
        }
        let result = match view.completes(backend) {
            true => self.ask(backend, "completion/complete", params).await?,
            false => json!({ "completion": { "values": [] } }).to_string(),
        };
        let fit = |result: &str| form::trimmed(result, &form::COMPLETION).into_owned();
        self.respond(request, result, fit).await
    }

    /// Says that there is no such prompt. To compare thousands of names takes milliseconds.
    async fn unknown_prompt(
        &self,
        request: &Request<'_>,
        view: Arc<FeatureView>,
        name: String,
    ) -> Replied {
        let id = request.id.to_owned();
        let write = move || {
            let near = did_you_mean(&name, view.prompt_names());
            let near = near.map(|near| format!(". Did you mean `{near}`?")).unwrap_or_default();
            RpcError::invalid_params(format!("Unknown prompt: {name}{near}")).response(&id)
        };
        let written = self.api.views.write(&self.caller.app.name, write).await;
        written.map_err(|why| no_room(why.to_string()))
    }

    /// The parameters of a request that only reads, and what counts them for the app: short texts
    /// such as `[]` take many times their length in memory, and the request may wait for minutes.
    async fn read_params(&self, request: &Request<'_>) -> Replied<(Value, Held)> {
        let size = request.params_size();
        if size > MAX_PARAMS {
            let why = format!("The parameters are longer than {MAX_PARAMS} bytes.");
            return Err(RpcError::invalid_params(why));
        }
        let mut held = Budget::of_process().hold_for(Some(self.caller.app.name.clone()));
        let room = held.resize(size + VALUE * request.params_values()).await;
        room.map_err(|no_bytes| no_room(format!("{no_bytes}; try again soon.")))?;
        Ok((request.params(), held))
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
        let error = |why| RpcError::new(StatusCode::OK, codes::INTERNAL_ERROR, why);
        let _permit = self.api.runs.calls.permit(app).await.map_err(error)?;
        let permission = self.read_permission(backend);
        let reply = self.api.backends().ask(app, backend, (method, params), permission).await;
        let result = reply.map_err(error)?.map_err(RpcError::of_server)?;
        Ok(Box::<str>::from(result).into_string())
    }

    /// Whether the client may be answered by `backend`, at each moment of asking.
    fn read_permission(&self, backend: &BackendName) -> ReadPermission {
        let (calls, app) = (Arc::clone(&self.api.runs.calls), Arc::clone(&self.caller.app));
        let backend = backend.clone();
        Arc::new(move || {
            let app = calls.still(&app).ok_or(CallRefusal::App)?;
            match app.rights.include_features(&backend) {
                true => Ok(()),
                false => Err(CallRefusal::Backend),
            }
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
        let full = || {
            let why = "The bridge has no room for the result at the moment; try again soon.";
            no_room(why.to_owned())
        };
        let mut held = Budget::of_process().hold_for(Some(app.clone()));
        let size = result.len();
        if !held.try_resize(size) {
            return Err(full());
        }
        let (id, is_stateless) = (request.id.to_owned(), matches!(self.era, Era::Stateless));
        let write = move || message::response(&id, &typed(fit(&result), is_stateless)).into_bytes();
        let written = self.api.views.work_if_large(app, size, write).await;
        let text = written.map_err(|why| no_room(why.to_string()))?;
        if !held.try_resize(text.len()) {
            return Err(full());
        }
        Ok(response::counted(response::json_text(held.pay_for(text))))
    }
}

pub(super) fn no_room(why: String) -> RpcError {
    RpcError::new(StatusCode::SERVICE_UNAVAILABLE, codes::INTERNAL_ERROR, why)
}
