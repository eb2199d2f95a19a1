//! The log, and what becomes of results in each state of a run.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::*;
use crate::sandbox::byte_limit::take;
use crate::sandbox::spec;

fn run(max_log_bytes: usize, budget: &Arc<Semaphore>) -> Run {
    let read = spec::read_run(br#"{"systemPrompt":"s","prompt":"p"}"#).unwrap();
    Run::new("run_1".into(), read, None, max_log_bytes, take(budget, 0).unwrap())
}

fn plain() -> Run {
    run(1 << 20, &Arc::new(Semaphore::new(1 << 20)))
}

fn success() -> RunEnd {
    RunEnd::success("done")
}

fn text(batch: &Batch) -> &str {
    std::str::from_utf8(&batch.bytes).unwrap()
}

#[test]
fn readers_start_anywhere_and_batches_are_bounded() {
    let run = plain();
    for number in 0..4 {
        run.append("x", &json!({"n": number})).unwrap();
    }
    let first = "id: 1\nevent: x\ndata: {\"seq\":1,\"type\":\"x\",\"data\":{\"n\":0}}\n\n";
    let batch = run.after(0, 2 * first.len());
    assert!(text(&batch).starts_with(first));
    assert_eq!((batch.last, batch.is_end), (2, false));
    assert_eq!(run.after(3, 1).last, 4, "at least one event");
    assert!(run.after(4, 1).bytes.is_empty());
    assert!(run.after(u64::MAX, 1).bytes.is_empty());
    run.finish(success());
    assert!(run.after(4, 1).is_end && run.after(9, 1).is_end);
    assert!(!run.after(0, 1).is_end);
}

#[test]
fn line_breaks_between_tokens_do_not_break_the_frame() {
    let run = plain();
    let data = RawValue::from_string("{\r\n\"a\":\r1,\n\"b\":\"\\n\"}".to_owned()).unwrap();
    run.append("x", &data).unwrap();
    let line = r#"data: {"seq":1,"type":"x","data":{  "a": 1, "b":"\n"}}"#;
    assert_eq!(text(&run.after(0, 1)), format!("id: 1\nevent: x\n{line}\n\n"));
}

#[test]
fn a_result_is_taken_once() {
    let run = plain();
    let call = ToolUseId::from("tu_1");
    let mut waiting = run.publish(call.clone(), &json!({})).unwrap();
    let answer = || Answer::text("ok");
    assert_eq!(run.accept(&"tu_2".into(), answer(), &[]), Accepted::Unknown);
    assert_eq!(run.accept(&call, answer(), &[]), Accepted::Yes);
    assert_eq!(waiting.try_recv(), Ok(answer()));
    let event = r#""type":"local_tool_result_in","data":{"output":"ok","toolUseId":"tu_1"}}"#;
    assert!(text(&run.after(1, 1)).contains(event));
    assert_eq!(run.accept(&call, answer(), &[]), Accepted::Unknown);
    run.finish(success());
    assert_eq!(run.accept(&call, answer(), &[]), Accepted::Terminal);
}

#[test]
fn a_cancelled_run_takes_late_results_and_ignores_them() {
    let run = plain();
    let call = ToolUseId::from("tu_1");
    let waiting = run.publish(call.clone(), &json!({})).unwrap();
    run.cancel("user");
    drop(waiting);
    let answer = || Answer::Error("late".to_owned());
    assert_eq!(run.accept(&call, answer(), &[]), Accepted::Yes);
    assert_eq!(run.accept(&call, answer(), &[]), Accepted::Terminal);
    let last = run.after(0, 1 << 10);
    assert!(text(&last).ends_with("\"type\":\"cancelled\",\"data\":{\"reason\":\"user\"}}\n\n"));
    assert_eq!(last.last, 2);
}

#[test]
fn a_run_ends_once_and_nothing_follows() {
    let run = plain();
    assert!(run.finish(success()));
    run.cancel("user");
    assert_eq!(run.append("x", &json!({})), None);
    let (end, last_seq) = run.view();
    assert_eq!((end.unwrap().outcome.status, last_seq), ("succeeded", 1));
}

#[test]
fn the_log_is_bounded_and_the_end_still_fits() {
    let budget = Arc::new(Semaphore::new(200));
    for run in [run(100, &Arc::new(Semaphore::new(1 << 20))), run(1 << 20, &budget)] {
        assert!((0..10).any(|_| run.append("x", &json!("y".repeat(20))).is_none()));
        assert!(run.finish(RunEnd::log_full()));
        assert_eq!(run.view().0.unwrap().outcome.status, "failed");
    }
    assert!(budget.available_permits() == 200, "a dropped run gives back what it took");
}
