//! loom-mcp's external tools and confirmations, for the app's own process to hand to its runtime.
//!
//! Must not: answer a part of a set.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::to_raw_value;

use super::calls::{Batch, Form, check_ids};
use super::{Api, ApiRequest, App, HandlerResult, MAX_CALL, bad_request, busy, response};
use crate::model::approval::Outcome;
use crate::model::loom::{Confirmation, Item, Set};
use crate::model::{Call, CallRequest, CallingRun};

impl Api {
    pub(super) async fn external_tools(&self, mut incoming: ApiRequest) -> HandlerResult {
        let body = self.read_json(&mut incoming, MAX_CALL).await?;
        let app = &incoming.caller.app;
        let text = body.clone();
        let set = self
            .views
            .work_if_large(&app.name, body.len(), move || {
                Set::read(std::str::from_utf8(&text).map_err(|_bad| "The body is not UTF-8.")?)
            })
            .await?
            .map_err(|why| bad_request(&why))?;
        let calls: Arc<[Call]> =
            set.items.iter().map(|item| item.call(own_name(app, item))).collect();
        let form = Form::Loom(Arc::new(set));
        self.answer_calls(Arc::new(self.origin(&incoming)), Batch { form, calls, body }, None).await
    }

    /// Asks a person by an approval. If the app hangs up, the question is withdrawn.
    pub(super) async fn confirm(&self, mut incoming: ApiRequest) -> HandlerResult {
        let body = self.read_json(&mut incoming, MAX_CALL).await?;
        let text = body.clone();
        // What is shown is written here, so that no tree of values waits for the person.
        let app = &incoming.caller.app;
        let (Confirmation { id, run, .. }, item, args) = self
            .views
            .work_if_large(&app.name, body.len(), move || {
                let (confirmation, item) = Confirmation::read(&text)?;
                let Confirmation { title, prompt, .. } = &confirmation;
                let arguments =
                    json!({ "title": title, "prompt": prompt, "payload": item.payload });
                let args = to_raw_value(&arguments).expect("it is JSON");
                Ok::<_, String>((confirmation, item, args))
            })
            .await?
            .map_err(|why| bad_request(&why))?;
        check_ids([&*item.tool_name, &*item.tool_call_id].into_iter().chain(run.as_deref()))?;
        let name = own_name(app, &item);
        let route = self
            .offer(app)
            .searched_route(&name)
            .cloned()
            .unwrap_or_else(|| item.confirmed_route());
        let call = Call { args, ..item.call(name) };
        let calling_run = run.as_deref().map(|run| CallingRun {
            workspace: app.name.as_str().into(),
            run: run.into(),
            session: None,
        });
        let request = CallRequest::new(app.name.clone(), calling_run, call, route);
        let decision = self.runs.calls.confirm(&request).await.map_err(|why| {
            busy(&format!("The question was not put to a person: {why}. Send it again."))
        })?;
        let answer = json!({
            "RunID": run.unwrap_or_default(),
            "ID": id,
            "Approved": decision.outcome == Outcome::Approved,
            "RequestedBy": decision.by.as_deref().unwrap_or("nobody"),
        });
        Ok(response::json(&answer))
    }
}

/// The name under which the bridge knows the tool of an item.
fn own_name(app: &App, item: &Item) -> String {
    app.names.get(&item.tool_name).unwrap_or(&item.tool_name).clone()
}
