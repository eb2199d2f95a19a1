//! Reads the settings for traces from the environment, by the variables of the OpenTelemetry
//! specification.
//!
//! A setting that cannot be applied is reported and ignored: telemetry must never keep a daemon
//! from starting, and these variables are often set for all programs of a host. Must not: log.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::http_client;
use crate::traces::{Look, Sampler, asked_by};

/// The default address of the collector.
const LOCAL: &str = "http://localhost:4318";
/// The path that is appended to an endpoint for all signals.
const PATH: &str = "v1/traces";
/// `service.name`, and the client's name.
const SERVICE: &str = env!("CARGO_PKG_NAME");

/// The upper limits: waiting spans, spans of a batch, and milliseconds.
const MAX_QUEUE: u64 = 65_536;
const MAX_BATCH: u64 = 8_192;
const MAX_MILLIS: u64 = 60_000;

/// How spans are exported.
#[derive(derive_more::Debug)]
#[debug("ExportSettings({}, {} headers, {sampler:?})", self.shown(), headers.len())]
pub(super) struct ExportSettings {
    pub(super) endpoint: Url,
    /// The values may be secrets.
    pub(super) headers: HeaderMap,
    /// The limit for one attempt.
    pub(super) timeout: Duration,
    /// The attributes that all spans have in common.
    pub(super) resource: Vec<(String, String)>,
    pub(super) sampler: Sampler,
    /// The most spans that may wait.
    pub(super) queue: usize,
    /// The most spans of a batch.
    pub(super) batch: usize,
    /// How long the first span of a batch waits for more.
    pub(super) delay: Duration,
}

// An address may hold a password, and headers are mostly secrets.
impl ExportSettings {
    /// The settings, if traces are asked for and can be exported; and the mistakes in the
    /// variables.
    pub(super) fn read(look: Look<'_>) -> (Option<Self>, Vec<String>) {
        let mut reader = Reader { look, flaws: Vec::new() };
        let settings = reader.settings();
        (settings, reader.flaws)
    }

    /// The collector's address, without the parts that may be secret.
    pub(super) fn shown(&self) -> String {
        let origin = self.endpoint.origin().ascii_serialization();
        format!("{origin}{}", self.endpoint.path())
    }
}

struct Reader<'a> {
    look: Look<'a>,
    flaws: Vec<String>,
}

impl Reader<'_> {
    fn settings(&mut self) -> Option<ExportSettings> {
        asked_by(self.look)?;
        if let Some((name, exporter)) = self.var(["OTEL_TRACES_EXPORTER"])
            && exporter != "otlp"
        {
            return self.flaw(name, "is not `otlp`, the only one here; no spans are exported");
        }
        let protocol = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
        if let Some((name, protocol)) = self.var(protocol)
            && protocol != "http/protobuf"
        {
            return self
                .flaw(name, "is not `http/protobuf`, the only one here; no spans are exported");
        }
        let endpoint = self.endpoint()?;
        let queue = self.number(["OTEL_BSP_MAX_QUEUE_SIZE"], 2048, MAX_QUEUE);
        let batch = self.number(["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"], 512, MAX_BATCH);
        let timeout = self.number(
            ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
            10_000,
            MAX_MILLIS,
        );
        let delay = self.number(["OTEL_BSP_SCHEDULE_DELAY"], 5_000, MAX_MILLIS);
        Some(ExportSettings {
            endpoint,
            headers: self.headers(),
            timeout: Duration::from_millis(timeout),
            resource: self.resource(),
            sampler: self.sampler(),
            queue: usize::try_from(queue).unwrap_or(usize::MAX),
            batch: usize::try_from(batch).unwrap_or(usize::MAX),
            delay: Duration::from_millis(delay),
        })
    }

    /// The first of these variables that is set: its name and its value, trimmed. A variable for
    /// traces stands before the one for all signals.
    fn var<const N: usize>(&self, names: [&'static str; N]) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, (self.look)(name)?.trim().to_owned())))
    }

    fn flaw<T>(&mut self, name: &str, what: &str) -> Option<T> {
        self.flaws.push(format!("{name} {what}"));
        None
    }

    fn endpoint(&mut self) -> Option<Url> {
        let (name, text) = match self.var(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]) {
            Some(endpoint) => endpoint,
            None => {
                let base = self.var(["OTEL_EXPORTER_OTLP_ENDPOINT"]);
                let (name, base) = base.unwrap_or(("OTEL_TRACES_EXPORTER", LOCAL.to_owned()));
                (name, format!("{}/{PATH}", base.trim_end_matches('/')))
            }
        };
        match Url::parse(&text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Some(url),
            _ => self.flaw(name, "is no http or https address; no spans are exported"),
        }
    }

    /// A number from 1 to `most`, or else `usual`.
    fn number<const N: usize>(&mut self, names: [&'static str; N], usual: u64, most: u64) -> u64 {
        let Some((name, text)) = self.var(names) else { return usual };
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => number,
            _ => {
                let what = format!("is not a number of 1 to {most}; it is {usual}");
                self.flaw(name, &what).unwrap_or(usual)
            }
        }
    }

    fn headers(&mut self) -> HeaderMap {
        let names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        let Some((name, text)) = self.var(names) else { return HeaderMap::new() };
        // The message must not quote the value, which may be secret.
        parse_headers(&text)
            .or_else(|| self.flaw(name, "is no list of `name=value`; no headers are sent"))
            .unwrap_or_default()
    }

    /// The attributes of the resource, each key once.
    fn resource(&mut self) -> Vec<(String, String)> {
        let mut attributes = match self.var(["OTEL_RESOURCE_ATTRIBUTES"]) {
            None => Vec::new(),
            Some((name, text)) => pairs(&text)
                .or_else(|| self.flaw(name, "is no list of `key=value`; it is passed over"))
                .unwrap_or_default(),
        };
        if let Some((_, service)) = self.var(["OTEL_SERVICE_NAME"]) {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.push(("service.name".to_owned(), service));
        }
        for (name, value) in
            [("service.name", SERVICE), ("service.version", env!("CARGO_PKG_VERSION"))]
        {
            if !attributes.iter().any(|(key, _)| key == name) {
                attributes.push((name.to_owned(), value.to_owned()));
            }
        }
        attributes
    }

    fn sampler(&mut self) -> Sampler {
        match self.var(["OTEL_TRACES_SAMPLER"]) {
            Some((_, sampler)) if sampler == "parentbased_traceidratio" => self.share(),
            Some((name, sampler)) if sampler != "parentbased_always_on" => self
                .flaw(name, "is no sampler of this version; it is parentbased_always_on")
                .unwrap_or_default(),
            _ => Sampler::default(),
        }
    }

    fn share(&mut self) -> Sampler {
        let Some((name, text)) = self.var(["OTEL_TRACES_SAMPLER_ARG"]) else {
            return Sampler::default();
        };
        match text.parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => Sampler::with_share(share),
            _ => self.flaw(name, "is not a number of 0 to 1; it is 1").unwrap_or_default(),
        }
    }
}

/// A list in the form of W3C Baggage: `key=value,…`, with percent-encoded values. A `;` and what
/// follows it belong to the value, as in other implementations.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, encoded) = text.split_once('=')?;
    let key = name.trim();
    if key.is_empty() {
        return None;
    }
    let value = percent_decode_str(encoded.trim()).decode_utf8().ok()?;
    Some((key.to_owned(), value.into_owned()))
}

fn parse_headers(text: &str) -> Option<HeaderMap> {
    let mut headers = Vec::new();
    for (key, value) in pairs(text)? {
        headers.push((HeaderName::try_from(key).ok()?, http_client::sensitive(&value).ok()?));
    }
    Some(headers.into_iter().collect())
}

#[cfg(test)]
mod tests;
