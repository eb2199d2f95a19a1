//! The daemon as a whole, in a world that is made up, and what keeps it from starting.

mod simulation;

use super::*;

#[test]
fn an_audit_log_without_its_directory_is_told_at_once() {
    let log = config::Audit {
        file: Some("/no/such/directory/audit.jsonl".into()),
        syslog: None,
        arguments: false,
    };
    let error = audit(&log).unwrap_err();
    assert!(error.to_string().contains("/no/such/directory/audit.jsonl"), "{error}");
}
