//! Calls of tools that are not what was accepted.

use std::sync::Mutex;

use futures_util::future::BoxFuture;

use super::*;
use crate::backend::fake::entry;
use crate::backend::peer::{NotRecorded, Recorder};
use crate::model::offer::RefKind;
use crate::model::pin::Mode;

fn enforce(harness: &Harness) {
    let entries = harness.leases.iter().map(|lease| {
        let mut entry = entry(lease);
        entry.source.pin = Mode::Enforce;
        entry
    });
    harness.backends.registry.set(entries.collect());
}

/// What a run has that knows the tool.
fn route(tool: &str) -> Route {
    let target = Target::Tool { name: tool.into(), input: None };
    let backend = BackendName::parse("fs").unwrap();
    Route { backend, kind: RefKind::McpLocal, target, repeatable: false, destructive: false }
}

#[tokio::test(start_paused = true)]
async fn catalog_of_a_new_connection_is_checked_before_the_call() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 1);
    enforce(&harness);
    assert_eq!(harness.call("fs_ls").await, Answer::text(r#"ls {"a":1e400}"#));
    harness.lose(&world).await;
    world.tools.lock().unwrap().push("reads");
    let registry = &harness.backends.registry;
    assert!(!registry.withdraws(&route("reads").backend, "reads"), "nobody knows of it yet");

    let route = route("reads");
    let call = context(&route, "{}");
    let waiting = harness.backends.call(&call);
    let connecting = async { world.dialling.send_replace(Mood::Well) };
    let (made, _) = tokio::join!(waiting, connecting);
    check_failed(&made, Ending::Withdrawn, &["`fs`"]);
    assert_eq!(World::count(&world.calls), 1, "it was not called");
    assert!(registry.offer().route("fs_reads").is_none(), "nor offered");
    assert_eq!(harness.call("fs_ls").await, Answer::text(r#"ls {"a":1e400}"#));
}

/// A disk so slow that the tools are looked at anew while it writes.
#[derive(Debug)]
struct Slow(Arc<Registry>, Mutex<Vec<crate::backend::registry::RegistryEntry>>);

impl Recorder for Slow {
    fn dispatching(&self, _: Option<&Identity>) -> BoxFuture<'_, Result<(), NotRecorded>> {
        self.0.set(std::mem::take(&mut self.1.lock().unwrap()));
        Box::pin(async { Ok(()) })
    }

    fn named(&self, _handle: &Handle) {}
}

#[tokio::test(start_paused = true)]
async fn tool_that_is_withdrawn_while_the_journal_is_written_is_not_called() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 1);
    enforce(&harness);
    harness.backends.registry.settled().await;
    // Nobody looks at what is offered, until the journal is written.
    harness.backends.registry.set(harness.leases.iter().map(entry).collect());
    world.tools.lock().unwrap().push("reads");
    harness.backends.refresh("fs").await;
    let strict = harness.leases.iter().map(|lease| {
        let mut entry = entry(lease);
        entry.source.pin = Mode::Enforce;
        entry
    });
    let slow = Slow(Arc::clone(&harness.backends.registry), Mutex::new(strict.collect()));
    let call = CallContext { recorder: Arc::new(slow), ..context(&route("reads"), "{}") };
    let made = harness.backends.call(&call).await;
    assert_eq!(made.ending, Ending::Withdrawn);
    assert_eq!(World::count(&world.calls), 0, "it was not called");
}

#[tokio::test(start_paused = true)]
async fn a_changed_mode_holds_at_once_and_pins_stay() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 1);
    enforce(&harness);
    harness.backends.registry.settled().await;
    world.tools.lock().unwrap().push("reads");
    harness.backends.refresh("fs").await;
    let offered = || harness.backends.registry.offer().route("fs_reads").is_some();
    assert!(!offered());
    // As the fakes are without more being said.
    harness.backends.registry.set(harness.leases.iter().map(entry).collect());
    assert!(offered(), "nothing is looked at");
    enforce(&harness);
    assert!(!offered(), "what was accepted is known as before");
}
