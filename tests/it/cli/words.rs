//! The words of the command line: one voice for one mistake, and help that is found.

use std::fs;

use super::{FAILED, OK, USAGE, run, with};
use crate::harness::Harness;

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_in_one_voice() {
    let rig = Harness::start().await;
    for arguments in [&["text=x", "other=1"][..], &[], &["{\"text\": 7}"]] {
        let call = [&["call", "plain_note"], arguments].concat();
        let ran = with(&rig, &call).await.expect(USAGE);
        let voice = "the arguments do not fit `plain_note`: ";
        assert!(ran.err.starts_with(voice) && !ran.err.contains("call again"), "{}", ran.err);
    }
    for arguments in [&["a=1"][..], &[]] {
        let call = [&["call", "plain_absent"], arguments].concat();
        let ran = with(&rig, &call).await.expect(FAILED);
        assert!(ran.err.to_lowercase().contains("there is no tool"), "{}", ran.err);
        assert!(!ran.err.contains("kind"), "{}", ran.err);
    }
}

#[tokio::test]
async fn wrong_token_file_is_not_taken_for_another_configuration() {
    let rig = Harness::start().await;
    let file = rig.bridge.config_path().with_file_name("wrong-token");
    fs::write(&file, "0123456789abcdef").expect("writable");
    let file = file.to_str().expect("a path of the tests is UTF-8");
    let args = ["status", "--url", &rig.bridge.url(), "--token-file", file];
    let ran = run(&args).await.expect(FAILED);
    assert!(ran.err.contains("--token-file"), "{}", ran.err);
    assert!(!ran.err.contains("another configuration"), "{}", ran.err);
}

#[tokio::test]
async fn help_tells_own_options_from_common_ones_and_pages_have_examples() {
    let help = run(&["call", "--help"]).await.expect(OK).out;
    let (own, common) = help.split_once("Common options:").expect("two lists");
    assert!(own.contains("--json") && !own.contains("--url"), "{help}");
    assert!(common.contains("--url") && common.contains("--config"), "{help}");
    let all = run(&["--help"]).await.expect(OK).out;
    assert!(all.contains("Exit codes:"), "{all}");
    let page = run(&["man", "call"]).await.expect(OK).out;
    assert!(page.contains(".SH EXAMPLES") && !page.contains(".SH EXTRA"), "{page}");
    let serve = run(&["man", "serve"]).await.expect(OK).out;
    assert!(serve.contains("SIGHUP") && serve.contains("SIGTERM"), "{serve}");
}
