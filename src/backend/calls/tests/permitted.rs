//! Permission is asked for where a call is dispatched, each time.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use futures_util::future::BoxFuture;

use super::*;
use crate::backend::peer::{NotRecorded, Recorder};
use crate::model::rights::{CallRefusal, Permission};

/// A call with a permission that the test can take away.
fn context_under(permission_check: &Arc<Permitted>, route: &Route) -> CallContext {
    CallContext { permission_check: Arc::clone(permission_check) as _, ..context(route, "{}") }
}

#[tokio::test(start_paused = true)]
async fn call_whose_right_ends_while_it_waits_is_not_made() {
    for (permission, ending) in [
        (Permission::Refused(CallRefusal::App), Ending::Denied),
        (Permission::Refused(CallRefusal::Backend), Ending::Denied),
        (Permission::Refused(CallRefusal::Tool), Ending::Denied),
        (Permission::Ask, Ending::NotApproved),
    ] {
        let world = World::new();
        let harness = start(&[("fs", &world)], 4);
        harness.backends.registry.settled().await;
        let route = harness.backends.registry.offer().route("fs_ls").unwrap().clone();
        harness.lose(&world).await;
        let permission_check = Permitted::new();
        let wants = context_under(&permission_check, &route);
        let (made, ()) = tokio::join!(harness.backends.call(&wants), async {
            tokio::task::yield_now().await;
            permission_check.0.send_replace(permission.clone());
            world.dialling.send_replace(Mood::Well);
        });
        let told = match &permission {
            Permission::Refused(refusal) => refusal.for_model(&route.backend),
            _ => CallFailure::NotApproved.for_model(&route.backend),
        };
        assert_eq!((made.ending, made.answer), (ending, Answer::Error(told)), "{permission:?}");
        assert_eq!(World::count(&world.calls), 0, "{permission:?}");
    }
}

/// A permission that is given so many times. A dispatch asks twice: before it is recorded, and
/// after.
#[derive(Debug)]
struct Times(AtomicUsize);

impl PermissionCheck for Times {
    fn now(&self, _call: &CallRequest) -> Permission {
        let fewer = |left: usize| left.checked_sub(1);
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
            Ok(_) => Permission::Given,
            Err(_) => Permission::Refused(CallRefusal::Backend),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_is_a_dispatch_and_its_refusal_says_nothing_of_the_first() {
    let (world, harness) = start_breaking(1).await;
    let route = harness.backends.registry.offer().route("fs_reads").unwrap().clone();
    let wants = CallContext {
        permission_check: Arc::new(Times(AtomicUsize::new(2))),
        ..context(&route, "{}")
    };
    let made = harness.backends.call(&wants).await;
    check_failed(&made, Ending::ConnectionLost, &[OUTCOME_UNKNOWN]);
    assert_eq!(World::count(&world.calls), 1, "it is not repeated");
}

/// A permission that is given once it was prepared.
#[derive(Debug, Default)]
struct Prepared(AtomicBool);

impl PermissionCheck for Prepared {
    fn now(&self, _call: &CallRequest) -> Permission {
        match self.0.load(Ordering::SeqCst) {
            true => Permission::Given,
            false => Permission::Ask,
        }
    }

    fn prepare<'a>(&'a self, _call: &'a Arc<CallRequest>) -> BoxFuture<'a, ()> {
        Box::pin(async {
            tokio::task::yield_now().await;
            self.0.store(true, Ordering::SeqCst);
        })
    }
}

#[tokio::test(start_paused = true)]
async fn dispatch_prepares_its_permission_before_it_asks() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    let route = harness.backends.registry.offer().route("fs_ls").unwrap().clone();
    let permission_check = Arc::new(Prepared::default());
    let wants = CallContext { permission_check, ..context(&route, "{}") };
    harness.backends.call(&wants).await;
    assert_eq!(World::count(&world.calls), 1);
}

/// Whether the last dispatch that it was told of stands.
#[derive(Debug, Default)]
struct Stands(AtomicUsize);

impl Recorder for Stands {
    fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }

    fn not_dispatched(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn named(&self, _handle: &Handle) {}
}

#[tokio::test(start_paused = true)]
async fn call_whose_right_ends_while_the_journal_is_written_is_taken_back_there() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    let route = harness.backends.registry.offer().route("fs_ls").unwrap().clone();
    let recorder = Arc::new(Stands::default());
    let wants = CallContext {
        permission_check: Arc::new(Times(AtomicUsize::new(1))),
        recorder: Arc::clone(&recorder) as _,
        ..context(&route, "{}")
    };
    assert_eq!(harness.backends.call(&wants).await.ending, Ending::Denied);
    assert_eq!(World::count(&world.calls), 0);
    assert_eq!(recorder.0.load(Ordering::SeqCst), 0, "nothing was dispatched");

    let wants = CallContext { recorder: Arc::clone(&recorder) as _, ..context(&route, "{}") };
    harness.backends.call(&wants).await;
    assert_eq!((World::count(&world.calls), recorder.0.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn work_that_was_begun_is_asked_for_without_a_permission() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    let route = harness.backends.registry.offer().route("fs_ls").unwrap().clone();
    let permission_check = Permitted::new();
    permission_check.0.send_replace(Permission::Refused(CallRefusal::App));
    let handle = Some(Handle("work".to_owned()));
    let wants = CallContext { handle, ..context_under(&permission_check, &route) };
    let made = harness.backends.call(&wants).await;
    assert_ne!(made.ending, Ending::Denied, "{made:?}");
}
