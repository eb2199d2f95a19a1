//! Writes the page: OpenMetrics text, which Prometheus reads.
//!
//! Must not: know which metrics are on it.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{ByLabel, Counter, Histogram, Label};

/// The `Content-Type` of a page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The prefix of all names, except the common ones that are the same in all programs.
const PREFIX: &str = "mantyx_bridge";

/// Writes a part of a page.
pub type Part = Box<dyn Fn(&mut Page<'_>) -> fmt::Result + Send + Sync>;

/// A page that is being written.
#[derive(Debug)]
pub struct Page<'a>(DescriptorEncoder<'a>);

/// One metric of a page; its values follow, each with its labels.
#[derive(Debug)]
pub struct Metric<'a>(MetricEncoder<'a>);

struct Collected(Part);

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

impl Collector for Collected {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut Page(encoder))
    }
}

/// The page with the parts `own`, whose names get the bridge's prefix, and `common`.
pub fn write(own: Part, common: Part) -> Result<String, fmt::Error> {
    let mut text = String::new();
    for (mut registry, part) in
        [(Registry::with_prefix(PREFIX), own), (Registry::default(), common)]
    {
        registry.register_collector(Box::new(Collected(part)));
        text::encode_registry(&mut text, &registry)?;
    }
    text::encode_eof(&mut text)?;
    Ok(text)
}

impl Page<'_> {
    /// A metric with labels, which counts up.
    pub fn counters<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Metric<'s>, fmt::Error> {
        self.metric(name, help, MetricType::Counter)
    }

    /// A metric with labels, which goes up and down.
    pub fn gauges<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Metric<'s>, fmt::Error> {
        self.metric(name, help, MetricType::Gauge)
    }

    /// A metric with labels, of histograms.
    pub fn histograms<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
    ) -> Result<Metric<'s>, fmt::Error> {
        self.metric(name, help, MetricType::Histogram)
    }

    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.counters(name, help)?;
        ConstCounter::new(value).encode(metric.0)
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let metric = self.gauges(name, help)?;
        ConstGauge::new(value).encode(metric.0)
    }

    pub fn histogram(&mut self, name: &str, help: &str, value: &Histogram) -> fmt::Result {
        let metric = self.histograms(name, help)?;
        value.encode(metric.0)
    }

    /// A counter for each value of a label.
    pub fn by_label<L: Label>(
        &mut self,
        name: &str,
        help: &str,
        values: &ByLabel<L, Counter>,
    ) -> fmt::Result {
        let mut metric = self.counters(name, help)?;
        for (label, counter) in values.iter() {
            metric.count(&[(L::NAME, label.as_str())], counter.get())?;
        }
        Ok(())
    }

    fn metric<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<Metric<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind).map(Metric)
    }
}

impl Metric<'_> {
    pub fn count(&mut self, labels: &[(&str, &str)], value: u64) -> fmt::Result {
        ConstCounter::new(value).encode(self.0.encode_family(&labels)?)
    }

    pub fn set(&mut self, labels: &[(&str, &str)], value: f64) -> fmt::Result {
        ConstGauge::new(value).encode(self.0.encode_family(&labels)?)
    }

    pub fn times(&mut self, labels: &[(&str, &str)], value: &Histogram) -> fmt::Result {
        value.encode(self.0.encode_family(&labels)?)
    }

    /// 1 for the state that holds, 0 for the others.
    pub fn one_of(&mut self, labels: &[(&str, &str)], states: &[&str], holds: &str) -> fmt::Result {
        for state in states {
            let mut labels = labels.to_vec();
            labels.push(("state", state));
            self.set(&labels, if *state == holds { 1.0 } else { 0.0 })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! The text, and what its labels may hold.

    use super::*;

    #[test]
    fn a_page() {
        let own: Part = Box::new(|page| {
            page.counter("things", "Things", 3)?;
            let mut metric = page.gauges("state", "How it is")?;
            metric.one_of(&[("backend", "a\"\\\nb")], &["up", "down"], "down")
        });
        let common: Part = Box::new(|page| page.gauge("process_x", "X", 1.5));
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
        assert_eq!(write(own, common).unwrap(), expected);
    }
}
