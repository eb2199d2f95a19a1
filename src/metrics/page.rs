//! Writes the page: OpenMetrics text, which Prometheus reads.
//!
//! Must not: know which metrics are on it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

use super::{ByLabel, Counter, Label};
use crate::model::words::Words;

/// The `Content-Type` of a page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The prefix of all names, except the common ones that are the same in all programs.
const PREFIX: &str = "mantyx_bridge";

/// A metric of a page.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    help: &'static str,
    /// Its value or values.
    metric: Box<dyn Metric>,
}

impl Row {
    pub fn new(name: &'static str, help: &'static str, metric: Box<dyn Metric>) -> Self {
        Self { name, help, metric }
    }
}

#[derive(Debug)]
struct Rows(Vec<Row>);

impl Collector for Rows {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // A registry that the metrics are registered in would add a full stop to each help text.
        for Row { name, help, metric } in &self.0 {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        Ok(())
    }
}

/// Values in a fixed order, each with its labels. A family of prometheus-client has no order.
#[derive(Debug)]
struct Labelled<M>(Vec<(Vec<(&'static str, String)>, M)>);

impl<M: EncodeMetric + TypedMetric> EncodeMetric for Labelled<M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(labels, value)| value.encode(encoder.encode_family(labels)?))
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

/// The page with the metrics `own`, whose names get the bridge's prefix, and `common`.
pub fn write(own: Vec<Row>, common: Vec<Row>) -> String {
    let mut text = String::new();
    for (mut registry, rows) in
        [(Registry::with_prefix(PREFIX), own), (Registry::default(), common)]
    {
        registry.register_collector(Box::new(Rows(rows)));
        text::encode_registry(&mut text, &registry).expect("a string takes all text");
    }
    text::encode_eof(&mut text).expect("a string takes all text");
    text
}

pub fn counter(value: u64) -> Box<dyn Metric> {
    Box::new(ConstCounter::new(value))
}

pub fn gauge(value: f64) -> Box<dyn Metric> {
    Box::new(ConstGauge::new(value))
}

/// A counter for each value of a label.
pub fn by_label<L: Label>(counters: &ByLabel<L, Counter>) -> Box<dyn Metric> {
    each(L::NAME, &counters.cloned(), Counter::clone)
}

/// A value for each of `all`, which the label `key` names.
pub fn each<T, M: Metric + TypedMetric>(
    key: &'static str,
    all: &[(&str, T)],
    value: impl Fn(&T) -> M,
) -> Box<dyn Metric> {
    let values = all.iter().map(|(name, of)| (vec![(key, (*name).to_owned())], value(of)));
    Box::new(Labelled(values.collect()))
}

/// Values for each of `all`, which the first label names; the second label names each value.
pub fn each_by<'a, T, M: Metric + TypedMetric>(
    [key, by]: [&'static str; 2],
    all: &[(&str, T)],
    values: impl Fn(&T) -> Vec<(&'a str, M)>,
) -> Box<dyn Metric> {
    let mut labelled = Vec::new();
    for (name, of) in all {
        for (word, value) in values(of) {
            let labels = vec![(key, (*name).to_owned()), (by, word.to_owned())];
            labelled.push((labels, value));
        }
    }
    Box::new(Labelled(labelled))
}

/// 1 for the state that holds, 0 for the others.
pub fn one_of<W: Words>(holds: W) -> Vec<(&'static str, ConstGauge<f64>)> {
    W::ALL
        .iter()
        .map(|state| (state.as_str(), ConstGauge::new(f64::from(*state == holds))))
        .collect()
}

#[cfg(test)]
mod tests {
    //! The text, and what its labels may hold.

    use super::*;
    use crate::model::words::words;

    words! {
        enum State {
            Up = "up",
            Down = "down",
        }
    }

    #[test]
    fn a_page() {
        let states = |_: &()| one_of(State::Down);
        let states = each_by(["backend", "state"], &[("a\"\\\nb", ())], states);
        let own =
            vec![Row::new("things", "Things", counter(3)), Row::new("state", "How it is", states)];
        let common = vec![Row::new("process_x", "X", gauge(1.5))];
        let expected = "# HELP mantyx_bridge_things Things\n\
            # TYPE mantyx_bridge_things counter\n\
            mantyx_bridge_things_total 3\n\
            # HELP mantyx_bridge_state How it is\n\
            # TYPE mantyx_bridge_state gauge\n\
            mantyx_bridge_state{backend=\"a\\\"\\\\\\nb\",state=\"up\"} 0.0\n\
            mantyx_bridge_state{backend=\"a\\\"\\\\\\nb\",state=\"down\"} 1.0\n\
            # HELP process_x X\n\
            # TYPE process_x gauge\n\
            process_x 1.5\n\
            # EOF\n";
        assert_eq!(write(own, common), expected);
    }
}
