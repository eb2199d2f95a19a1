//! Requests that only read are sent only with a permission of the moment in which they are sent.

use serde_json::json;

use super::*;
use crate::backend::peer::ReadPermission;
use crate::backend::registry::Phase;
use crate::model::AppName;
use crate::model::rights::CallRefusal;

/// Whether the client may read, until a test takes that away.
type Readable = watch::Sender<bool>;

impl Harness {
    async fn read(&self, permission: &Readable) -> Result<String, String> {
        let app = AppName::from("app");
        let fs = BackendName::parse("fs").unwrap();
        let request = ("resources/read", json!({"uri": "x://y"}));
        let may_read = permission.subscribe();
        let permission: ReadPermission = Arc::new(move || match *may_read.borrow() {
            true => Ok(()),
            false => Err(CallRefusal::Backend),
        });
        let reply = self.backends.ask(&app, &fs, request, permission).await?;
        Ok(reply.expect("the server refuses nothing").get().to_owned())
    }
}

#[track_caller]
fn assert_refused(read: Result<String, String>, world: &World) {
    let why = read.expect_err("it was taken away");
    assert_eq!(why, CallRefusal::Backend.for_model(&BackendName::parse("fs").unwrap()));
    assert_eq!(World::count(&world.reads), 0, "nothing was sent");
}

fn take_away(permission: &Readable) {
    permission.send_replace(false);
}

#[tokio::test(start_paused = true)]
async fn read_whose_permission_goes_while_it_waits_for_a_turn_is_not_sent() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 1);
    harness.backends.registry.settled().await;
    world.calling.send_replace(Mood::Hanging);
    let offer = harness.backends.registry.offer();
    let call = context(offer.route("fs_ls").unwrap(), "{}");
    let permission = Readable::new(true);
    let (made, read, ()) =
        tokio::join!(harness.backends.call(&call), harness.read(&permission), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(World::count(&world.calls), 1);
            take_away(&permission);
            world.calling.send_replace(Mood::Well);
        });
    assert_eq!(made.answer, Answer::text("ls {}".to_owned()));
    assert_refused(read, &world);
}

#[tokio::test(start_paused = true)]
async fn read_whose_permission_goes_while_it_waits_for_a_connection_is_not_sent() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    harness.lose(&world).await;
    let permission = Readable::new(true);
    let (read, ()) = tokio::join!(harness.read(&permission), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        take_away(&permission);
        world.dialling.send_replace(Mood::Well);
    });
    assert_refused(read, &world);
}

#[tokio::test(start_paused = true)]
async fn read_whose_permission_goes_while_a_program_starts_is_not_sent() {
    let world = World::new();
    let timing = Timing { idle_stop: Some(Duration::from_secs(900)), ..timing() };
    let harness = start_program(&world, timing);
    let idle = |registry: &Registry| registry.snapshot("fs").filter(|it| it.phase == Phase::Idle);
    harness.backends.registry.wait_for(idle).await;
    world.dialling.send_replace(Mood::Hanging);
    let permission = Readable::new(true);
    let (read, ()) = tokio::join!(harness.read(&permission), async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        take_away(&permission);
        world.dialling.send_replace(Mood::Well);
    });
    assert_refused(read, &world);
    permission.send_replace(true);
    assert_eq!(harness.read(&permission).await.unwrap(), r#"{"read":"resources/read"}"#);
}

#[tokio::test(start_paused = true)]
async fn reads_that_fail_end_no_calls_of_others() {
    let world = World::new();
    let harness = start(&[("fs", &world)], 4);
    harness.backends.registry.settled().await;
    let permission = Readable::new(true);
    for mood in [Mood::Failing, Mood::Hanging] {
        world.calling.send_replace(mood);
        for _ in 0..10 {
            harness.read(&permission).await.expect_err("it fails");
        }
        world.calling.send_replace(Mood::Well);
        assert_eq!(harness.make("fs_ls").await.ending, Ending::Result, "{mood:?}");
    }
    assert_eq!(World::count(&world.reads), 20, "each was sent");
}
