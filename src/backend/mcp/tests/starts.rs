//! Programs that fail before their handshake: the cause and the lines that an operator reads.

use super::*;

#[tokio::test]
async fn silent_program_is_told_by_what_it_has_written_meanwhile() {
    let script = "echo 'Uvicorn running on http://0.0.0.0:8000' >&2; exec sleep 600";
    let dialer = program("sh", &["-c", script], &[], None);
    let seen = async {
        while dialer.stderr().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let seen = async {
        tokio::select! {
            () = seen => (),
            dialled = dialer.dial() => panic!("it answers nothing: {dialled:?}"),
        }
    };
    timeout(PATIENCE, seen).await.expect("its stderr");
    let error = dialer.overdue("no connection in time".to_owned());
    assert_eq!(
        error.to_string(),
        "no connection in time: it serves HTTP instead of stdin and stdout: Uvicorn running on \
         http://0.0.0.0:8000"
    );
    assert!(error.own_cure().is_some_and(|cure| cure.contains("--stdio")), "{error:?}");
}

#[tokio::test]
async fn program_that_starts_is_shown_with_what_is_wrong_with_it() {
    struct Case {
        script: &'static str,
        message: &'static str,
        cure: &'static str,
    }
    let cases = [
        Case {
            script: "echo 'Listening on http://127.0.0.1:8000/mcp'; exec sleep 600",
            message: "It still runs, and it serves HTTP instead of stdin and stdout: Listening on",
            cure: "--stdio",
        },
        // That may be an installer's line.
        Case {
            script: "echo 'installing'; exec sleep 600",
            message: "lines that are no MCP messages. The first: installing",
            cure: "skips them",
        },
    ];
    for Case { script, message, cure } in cases {
        let dialer = program("sh", &["-c", script], &[], None);
        let seen = async {
            loop {
                if let Some(remark) = dialer.remark() {
                    return remark;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let seen = async {
            tokio::select! {
                remark = seen => remark,
                dialled = dialer.dial() => panic!("it answers nothing: {dialled:?}"),
            }
        };
        let remark = timeout(PATIENCE, seen).await.expect("a remark");
        assert!(remark.cure.contains(cure), "{remark:?}");
        let shown = remark.with_quote().message;
        assert!(shown.contains(message), "{shown}");
    }
}

#[tokio::test]
async fn program_that_repeats_what_it_gets_is_named() {
    let dialled = timeout(PATIENCE, program("cat", &[], &[], None).dial()).await.expect("in time");
    let error = dialled.expect_err("no server");
    assert_eq!(error.to_string(), "`cat`: it sends back what it gets, so it is no MCP server");
    assert!(error.own_cure().is_some_and(|cure| cure.contains("the MCP server itself")));
}
