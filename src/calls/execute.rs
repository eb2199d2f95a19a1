//! Makes a call, from its checks to its end: permission, arguments, approval, a permit of its app.
//! Then `send` hands it to its backend.
//!
//! Must not: post an answer, or know how far the journal is.

use std::future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tracing::{error, info};

use super::Calls;
use super::active::{ActiveCall, Deferred};
use super::approvals::Decision;
use crate::backend::CallOutcome;
use crate::backend::peer::PermissionCheck as _;
use crate::model::approval::Outcome;
use crate::model::catalog_search::unresolved;
use crate::model::rights::CallRefusal;
use crate::model::sentences;
use crate::model::{
    Answer, CallRequest, Ending, Own, Permission, Target, approval, catalog_search,
};
use crate::tasks::in_background;

impl Calls {
    /// Makes a call, in whatever task polls this, and ends it for its observers. Every call comes
    /// through here: that of a run, one by hand, and one that an earlier process has left.
    ///
    /// A panic becomes an answer. Without one, MANTYX would wait until the call times out, and the
    /// model would not learn whether the tool was reached.
    pub(super) async fn execute(
        self: Arc<Self>,
        call: Arc<ActiveCall>,
    ) -> Result<CallOutcome, Deferred> {
        let steps = AssertUnwindSafe(self.check_and_send(&call)).catch_unwind().await;
        let outcome = steps.unwrap_or_else(|_panic| {
            let tool = call.tool();
            error!(app = %call.request.app, tool, "a call panicked; answering it with an error");
            Ok(CallOutcome::internal(tool, call.recorder.has_reached_tool()))
        });
        call.end(&outcome);
        outcome
    }

    /// The steps of a call, in their order:
    ///
    /// 1. The permission, so that no person is asked about a call that cannot be made.
    /// 2. The arguments: a person who approves a call could not correct them.
    /// 3. The approval, if the call needs one. The call holds no permit meanwhile.
    /// 4. A permit of the app.
    /// 5. The backend, which asks for the permission once more just before the dispatch, as a
    ///    reload may have changed it while the call waited. If the call now needs an approval that
    ///    it does not have, or its tool has another definition than the person was shown, it begins
    ///    again.
    async fn check_and_send(&self, call: &ActiveCall) -> Result<CallOutcome, Deferred> {
        let request = &call.request;
        if let Target::Own(own) = request.route.target {
            return Ok(self.answer_own(call, own).await);
        }
        // Work that was started before has been permitted and approved.
        if call.handle.is_some() {
            return self.send(call).await;
        }
        loop {
            call.permission_check.prepare(request).await;
            let permission = call.permission_check.now(request);
            if let Permission::Refused(refusal) = permission {
                return Ok(refused(request, &refusal));
            }
            if let Some(invalid) = self.backends.refuse_invalid(request).await {
                return Ok(invalid);
            }
            if permission == Permission::Ask {
                let definition = call.permission_check.definition(request);
                if let Some(not_approved) = self.ask_for_approval(call).await? {
                    return Ok(not_approved);
                }
                // The person has seen this definition, and no later one.
                call.permission_check.approve_as(definition);
            }
            let settings = self.settings();
            let _in_seat = match settings.admit(request, &call.seat).await {
                Ok(in_seat) => in_seat,
                Err(busy) => return Ok(busy),
            };
            let outcome = self.send(call).await?;
            if outcome.ending != Ending::NotApproved {
                return Ok(outcome);
            }
        }
    }

    /// Answers a call of one of the bridge's own tools.
    async fn answer_own(&self, call: &ActiveCall, own: Own) -> CallOutcome {
        let request = &call.request;
        if let Permission::Refused(refusal) = call.permission_check.now(request) {
            return refused(request, &refusal);
        }
        CallOutcome::from(match own {
            // The work was permitted when it began, and only the scope that began it can fetch its
            // result.
            Own::Results => self.result_of(call).await.unwrap_or_else(Answer::Error),
            Own::Find => self.find(call).await,
            Own::Call => Answer::Error(unresolved(request.arguments.get())),
        })
    }

    /// The answer to a search for tools. A run's is limited to the tools that it can call.
    async fn find(&self, call: &ActiveCall) -> Answer {
        let offer = self.offer_in_view(&call.request.app, &call.view);
        let informed = match &call.scope {
            Some(scope) => scope.informed.clone(),
            None => call.view.informed.clone(),
        };
        let table = call.scope.as_ref().map(|scope| Arc::clone(&scope.table));
        let request = Arc::clone(&call.request);
        let search = in_background(move || {
            let arguments = request.arguments.get();
            catalog_search::find(arguments, &offer, table.as_deref(), informed.as_deref())
        });
        match search.await {
            Ok(Ok(tools)) => Answer::text(tools),
            Ok(Err(why)) => Answer::Error(why),
            Err(_panic) => Answer::Error("The search has failed.".to_owned()),
        }
    }

    /// Asks a person. Returns the answer that replaces the call, or `None` if the call was
    /// approved.
    async fn ask_for_approval(&self, call: &ActiveCall) -> Result<Option<CallOutcome>, Deferred> {
        let tool = call.tool();
        let decision = self.decided(call, None, future::pending()).await;
        let why = match decision {
            Err(_too_many) => sentences::too_many_approvals(tool),
            Ok(Decision { outcome, reason, .. }) => match outcome {
                Outcome::Approved | Outcome::Answered => return Ok(None),
                Outcome::Denied => approval::denied(tool, reason.as_deref()),
                Outcome::Expired => sentences::approval_expired(tool),
                Outcome::Withdrawn => return Err(Deferred),
            },
        };
        Ok(Some(CallOutcome::failed(Ending::NotApproved, why)))
    }
}

fn refused(call: &CallRequest, refusal: &CallRefusal) -> CallOutcome {
    info!(app = %call.app, tool = call.name, %refusal, "call refused by permission");
    CallOutcome::failed(Ending::Denied, refusal.for_model(&call.route.backend))
}
