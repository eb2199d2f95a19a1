//! A journal that another program takes away, and a disk that cannot be read at the start.

use super::*;

/// While the bridge runs, and then killed before and after it has noticed.
#[tokio::test]
async fn a_journal_that_another_program_removes_has_no_call_made_twice() {
    for fault in ["rm journal", "echo x > x; mv x journal", ": > journal"] {
        for is_noticed in [false, true] {
            let mut rig = EffectsHarness::start(None).await;
            let run = rig.begin_open_call("tu_open").await;
            if !is_noticed {
                // The writer would notice the fault before the kill now and then.
                rig.bridge.process().signal(Signal::STOP);
            }
            let mut shell = std::process::Command::new("sh");
            let status = shell.args(["-c", fault]).current_dir(rig.bridge.state("")).status();
            assert!(status.expect("a shell").success());
            if is_noticed {
                wait::until("it should be told", Duration::from_secs(30), async || {
                    let told = problems(&rig).await;
                    let is_told = |(subject, message): &(String, String)| {
                        subject == "journal" && message.contains("while the bridge ran")
                    };
                    told.iter().any(is_told).then_some(())
                })
                .await;
                wait_journaled(&rig.bridge, "tu_open").await;
            }
            rig.bridge.kill9();
            rig.bridge.restart().await;
            if !is_noticed {
                let told = problems(&rig).await;
                assert!(told.iter().any(|(subject, _)| subject == "journal"), "{fault}: {told:?}");
                let target = format!("/v1/runs/{run}/attach");
                rig.bridge.api("POST", &target, Some("{}")).await.expect(202);
            }
            assert_unknown(&rig.mantyx.taken("tu_open").await);
            assert_eq!(rig.plain.begun("tu_open"), 1, "{fault}, noticed: {is_noticed}");
        }
    }
}

/// A link that leads to itself fails as a broken disk does.
#[tokio::test]
async fn a_broken_disk_prevents_no_start_and_the_journal_is_read_when_it_works() {
    let mut rig = EffectsHarness::start(None).await;
    rig.begin_open_call("tu_open").await;
    rig.bridge.kill9();
    let (journal, apart) = (rig.bridge.state("journal"), rig.bridge.state("apart"));
    fs::rename(&journal, &apart).expect("the bridge has a journal");
    std::os::unix::fs::symlink(&journal, &journal).expect("a directory of ours");
    rig.bridge.restart().await;
    let told = problems(&rig).await;
    assert!(told.iter().any(|(subject, _)| subject == "journal"), "{told:?}");
    assert_eq!(rig.submit_call("tu_refused").await, 503);
    fs::rename(&apart, &journal).expect("a directory of ours");
    assert_unknown(&rig.mantyx.taken("tu_open").await);
    assert_eq!(["tu_open", "tu_refused"].map(|id| rig.plain.begun(id)), [1, 0]);
    wait::until("runs should be accepted again", Duration::from_secs(30), async || {
        (rig.submit_call("tu_new").await == 202).then_some(())
    })
    .await;
    assert!(rig.mantyx.taken("tu_new").await["result"].is_string());
}
