//! Has one call made: when a person has approved it, where one has to, and it is its app's turn.
//!
//! Must not: post an answer, or know how far the journal is.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::info;

use super::{
    AskedBy, Runs,
    approvals::{Asked, Decision, TooMany},
    call_observer::{CallObserver, Of},
    history::Begun,
    long_calls::{Alone, InHand},
    permission_check::PermissionCheck,
};
use crate::{
    backend::{
        calls::Wanted,
        peer::{Origin, PermissionCheck as _},
        queue::{Permit, Rejected},
    },
    model::{
        approval,
        ending::{Ending, Made},
        event::Call,
        ids::AppName,
        offer::{Route, Target},
        rights::Permission,
    },
    traces::Context,
};

/// The bridge goes down before a person has decided: the next process asks anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left;

impl Runs {
    /// Makes one call on behalf of `app`, when it is the app's turn; `asked_by` is the agent run
    /// that waits for it. One that takes long is answered before it has ended, and goes on.
    ///
    /// # Errors
    ///
    /// It is left to the next process. Only calls of runs are: nobody else comes back for an answer.
    pub async fn call(
        self: &Arc<Self>,
        app: &AppName,
        route: &Route,
        call: Call,
        asked_by: Option<Arc<AskedBy>>,
        trace: Context,
    ) -> Result<Made, Left> {
        let Call { tool_use, name, args, .. } = call;
        let begun = Begun {
            app: app.clone(),
            run: asked_by.as_ref().map(|by| by.run.clone()),
            tool_use: tool_use.clone(),
            name: name.clone(),
            backend: route.backend.clone(),
        };
        let of = asked_by.as_ref().map(|by| Of::from(by.driven.as_ref())).unwrap_or_default();
        let observer = Arc::new(self.observe(begun.clone(), route, Some(&args), (of, &trace)));
        let trace = observer.trace().clone();
        if asked_by.as_ref().is_some_and(|by| by.handle.is_some()) {
            observer.resumed();
        }
        let origin = asked_by.as_ref().map(|by| Origin {
            whose: whose(app, by.driven.key.workspace.as_str()),
            run: by.run.clone(),
            session: by.driven.session.clone(),
            tool_use,
        });
        let patience = self.patience(route, asked_by.as_deref());
        // What goes on is kept over a restart. Of any other call by hand, it is only of interest
        // whether its tool was reached.
        let leaving = patience.as_ref().map(|_| self.leave.clone()).unwrap_or_default();
        let alone = match &asked_by {
            None => Some(Arc::new(Alone::new(args.clone(), leaving))),
            Some(_) => None,
        };
        let in_hand = InHand {
            app: app.clone(),
            tool: name,
            route: route.clone(),
            origin: origin.clone(),
            observer: Arc::clone(&observer),
            asked_by: asked_by.clone(),
            alone: alone.clone(),
        };
        let (runs, app) = (Arc::clone(self), app.clone());
        if route.target == Target::Results {
            // The work was permitted when it was begun, and its result belongs to whoever began it.
            if let Permission::Refused(refusal) = self.permission_check(&app).now(route) {
                let made = Made::failed(Ending::Denied, refusal.for_model(&route.backend));
                return self.answer_in_time(async { Ok(made) }, in_hand, None).await;
            }
            let making = async move {
                Ok(Made::from(runs.result_of(&app, args.get(), asked_by.as_deref()).await))
            };
            return self.answer_in_time(making, in_hand, None).await;
        }
        let settings = self.settings();
        let within = match patience {
            Some(_) => settings.calls.pending_timeout,
            None => settings.calls.timeout,
        };
        let permission_check = self.permission_check(&app);
        let mut wanted = Wanted {
            arguments: args,
            origin,
            trace,
            permission_check: Arc::clone(&permission_check) as _,
            recorder: alone.map(|alone| alone as _),
            handle: None,
            peer: None,
            deadline: Instant::now() + within,
        };
        if let Some(by) = asked_by {
            wanted.deadline = Instant::now() + by.recorder.left_of(within);
            wanted.recorder = Some(Arc::clone(&by.recorder) as _);
            wanted.handle.clone_from(&by.handle);
            wanted.peer = by.recorder.peer();
        }
        let route = route.clone();
        let making =
            async move { runs.make(begun, &route, (wanted, permission_check), &observer).await };
        self.answer_in_time(making, in_hand, patience).await
    }

    /// Makes the call that `begun` tells of.
    ///
    /// The permission is looked at here so that no person is asked about a call that cannot be made,
    /// and asked for again where the call is dispatched: it has waited for a person and a turn then.
    pub(super) async fn make(
        &self,
        begun: Begun,
        route: &Route,
        (wanted, permission_check): (Wanted, Arc<PermissionCheck>),
        observer: &CallObserver,
    ) -> Result<Made, Left> {
        // What was started before has been permitted and approved.
        if wanted.handle.is_some() {
            return Ok(self.call_in_turn(&begun.app, route, &wanted).await);
        }
        loop {
            match permission_check.now(route) {
                Permission::Given => {}
                Permission::Refused(refusal) => {
                    let why = refusal.for_model(&route.backend);
                    info!(app = %begun.app, tool = begun.name, %refusal, "a call is refused");
                    return Ok(Made::failed(Ending::Denied, why));
                }
                Permission::Ask => {
                    // Arguments that are wrong are answered at once: no person can mend them.
                    if let Some(mistaken) = self.backends.mistaken(route, &wanted) {
                        return Ok(mistaken);
                    }
                    if let Some(refused) = self.ask(begun.clone(), route, &wanted, observer).await?
                    {
                        return Ok(refused);
                    }
                    permission_check.approve();
                }
            }
            let made = self.call_in_turn(&begun.app, route, &wanted).await;
            // `approve` came to cover the call while it waited for its turn.
            if made.ending != Ending::NotApproved {
                return Ok(made);
            }
        }
    }

    /// Asks a person; what is answered in place of making the call, unless it was approved. Holds
    /// nobody's turn meanwhile.
    async fn ask(
        &self,
        begun: Begun,
        route: &Route,
        wanted: &Wanted,
        observer: &CallObserver,
    ) -> Result<Option<Made>, Left> {
        let Begun { app, run, tool_use, name, backend } = begun;
        let told_as = name.clone();
        let not_made = |why: String| Ok(Some(Made::failed(Ending::NotApproved, why)));
        let (tool, arguments) = (route.target.tool().to_owned(), wanted.arguments.clone());
        let asked = Asked { app, run, tool_use, name, backend, tool, arguments };
        let left = wanted.deadline.saturating_duration_since(Instant::now());
        let until = Instant::now() + approval::patience(left);
        let question = match self.approvals.ask(asked, until) {
            Ok(question) => question,
            Err(TooMany) => return not_made(approval::too_many(&told_as)),
        };
        observer.waits();
        let decision = tokio::select! {
            decision = question.decided() => decision,
            () = self.drain.cancelled() => return Err(Left),
        };
        observer.decided(decision.as_ref());
        match decision {
            Some(Decision { approved: true, .. }) => Ok(None),
            Some(Decision { reason, .. }) => {
                not_made(approval::denied(&told_as, reason.as_deref()))
            }
            None => not_made(approval::expired(&told_as)),
        }
    }

    async fn call_in_turn(&self, app: &AppName, route: &Route, wanted: &Wanted) -> Made {
        let settings = self.settings();
        let turns = settings.apps.get(app).and_then(|app| app.turns.as_deref());
        let patience = settings.calls.timeout / 4;
        let turn: Result<Option<Permit<'_>>, Rejected> = match turns {
            // What has begun runs already, whoever asks for it.
            Some(turns) if wanted.handle.is_none() => {
                turns.acquire(Instant::now() + patience).await.map(Some)
            }
            _ => Ok(None),
        };
        let why = match turn {
            Ok(_turn) => return self.backends.call(route, wanted).await,
            Err(Rejected::QueueFull) => "too many others wait already".to_owned(),
            Err(Rejected::Late) => {
                format!("this one got no turn within {:.0} s", patience.as_secs_f64())
            }
        };
        let why = format!(
            "The app has as many calls running as it may, and {why}. It was not made; try again \
             later."
        );
        Made::failed(Ending::Busy, why)
    }
}

/// What keeps the conversations of an app in a workspace apart from all others.
pub(super) fn whose(app: &AppName, workspace: &str) -> Arc<str> {
    format!("{app}/{workspace}").into()
}
