//! The numbers of the receivers of notices.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::count;
use crate::metrics::page::{Row, each};
use crate::notify::Health;

const RECEIVER: &str = "receiver";

/// Nothing where there are no receivers.
pub(super) fn notices(receivers: &[Health]) -> Vec<Row> {
    if receivers.is_empty() {
        return Vec::new();
    }
    let all: Vec<(&str, &Health)> =
        receivers.iter().map(|receiver| (receiver.name.as_str(), receiver)).collect();
    let counted = |value: fn(&Health) -> u64| {
        each(RECEIVER, &all, |receiver| ConstCounter::new(value(receiver)))
    };
    let deliverable = |receiver: &&Health| {
        let is_failing = receiver.error.is_some() || receiver.flaw.is_some();
        ConstGauge::new(f64::from(!is_failing))
    };
    vec![
        Row::new(
            "notices_sent",
            "Notices that the receiver has taken",
            counted(|receiver| receiver.sent),
        ),
        Row::new(
            "notices_failed",
            "Attempts to deliver a notice that failed",
            counted(|receiver| receiver.failed),
        ),
        Row::new(
            "notices_dropped",
            "Notices dropped because too many waited",
            counted(|receiver| receiver.dropped),
        ),
        Row::new(
            "notices_waiting",
            "Notices that wait",
            each(RECEIVER, &all, |receiver| ConstGauge::new(count(receiver.waiting))),
        ),
        Row::new(
            "notices_deliverable",
            "0 while the receiver takes no notices",
            each(RECEIVER, &all, deliverable),
        ),
    ]
}
