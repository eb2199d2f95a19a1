//! Each variable: what it settles, and what is said of a wrong one.

use http::HeaderValue;

use super::*;

fn read(vars: &[(&str, &str)]) -> (Option<ExportSettings>, Vec<String>) {
    let look = |name: &str| {
        let found = vars.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    ExportSettings::read(&look)
}

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318");

/// What is read beside an endpoint, without a flaw.
#[track_caller]
fn good(vars: &[(&str, &str)]) -> ExportSettings {
    let (settings, flaws) = read(&[&[ENDPOINT], vars].concat());
    assert_eq!(flaws, [""; 0], "{vars:?}");
    settings.unwrap()
}

#[track_caller]
fn flawed(vars: &[(&str, &str)], variable: &str) -> Option<ExportSettings> {
    let (settings, flaws) = read(&[&[ENDPOINT], vars].concat());
    let [flaw] = &flaws[..] else { panic!("{vars:?}: {flaws:?}") };
    assert!(flaw.starts_with(&format!("{variable} ")) && !flaw.contains("canary"), "{flaw}");
    settings
}

#[test]
fn settings_without_an_endpoint_export_nothing() {
    let (settings, flaws) = read(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_SAMPLER", "?")]);
    assert!(settings.is_none() && flaws.is_empty());
}

#[test]
fn defaults_are_those_of_the_specification() {
    let settings = good(&[]);
    assert_eq!((settings.queue, settings.batch), (2048, 512));
    assert_eq!(settings.delay, Duration::from_secs(5));
    assert_eq!(settings.timeout, Duration::from_secs(10));
    assert_eq!(settings.sampler, Sampler::default());
    assert!(settings.headers.is_empty());
    let resource = settings.resource.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        resource.collect::<Vec<_>>(),
        [("service.name", "mantyx-bridge"), ("service.version", version)]
    );
}

#[test]
fn collector_is_found_by_the_environment() {
    let at = |vars: &[(&str, &str)]| read(vars).0.unwrap().endpoint.to_string();
    let (all, traces) = (ENDPOINT.0, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    assert_eq!(at(&[ENDPOINT]), "http://otel:4318/v1/traces");
    assert_eq!(at(&[(all, "https://otel/base/")]), "https://otel/base/v1/traces");
    assert_eq!(at(&[ENDPOINT, (traces, "http://other/x")]), "http://other/x", "as it is");
    let local = "http://localhost:4318/v1/traces";
    assert_eq!(at(&[("OTEL_TRACES_EXPORTER", "otlp")]), local);
    for (name, wrong) in [(all, "otel:4317"), (all, "x"), (traces, "grpc://x"), (traces, "//x")] {
        let (settings, flaws) = read(&[(name, wrong)]);
        assert!(settings.is_none(), "{wrong}");
        assert!(flaws.len() == 1 && flaws[0].starts_with(&format!("{name} ")), "{flaws:?}");
    }
}

#[test]
fn secret_of_the_collector_is_not_shown() {
    let endpoint = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://me:canary1@otel/x?k=canary2");
    let settings = good(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "key=canary3")]);
    assert_eq!(settings.shown(), "https://otel/x");
    assert!(!format!("{settings:?} {:?}", settings.headers).contains("canary"));
    let headers = "OTEL_EXPORTER_OTLP_HEADERS";
    flawed(&[(headers, "canary")], headers);
}

#[test]
fn headers() {
    let all = ("OTEL_EXPORTER_OTLP_HEADERS", " Authorization = Bearer%20a%3D%3D , x-b=c=d,");
    let headers = good(&[all]).headers;
    assert_eq!(
        (headers.len(), &headers["authorization"], &headers["x-b"]),
        (2, &HeaderValue::from_static("Bearer a=="), &HeaderValue::from_static("c=d"))
    );
    let traces = good(&[all, ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-c=1")]).headers;
    assert_eq!(traces.keys().collect::<Vec<_>>(), ["x-c"], "instead of the others");
    for wrong in ["a b=c", "=c", "a=%0a", "a=%ff"] {
        let name = "OTEL_EXPORTER_OTLP_HEADERS";
        let settings = flawed(&[(name, wrong)], name);
        assert!(settings.unwrap().headers.is_empty(), "{wrong}");
    }
}

#[test]
fn the_resource() {
    let resource = |vars: &[(&str, &str)]| good(vars).resource;
    let has = |resource: &[(String, String)], key: &str| {
        let found: Vec<_> = resource.iter().filter(|(known, _)| known == key).collect();
        assert_eq!(found.len(), 1, "{key} once in {resource:?}");
        found.first().map(|(_, value)| value.clone()).unwrap()
    };
    let given = "deployment.environment=prod,service.name=a%20b,service.version=7";
    let attributes = ("OTEL_RESOURCE_ATTRIBUTES", given);
    let own = resource(&[attributes]);
    assert_eq!(has(&own, "service.name"), "a b");
    assert_eq!(has(&own, "service.version"), "7");
    assert_eq!(has(&own, "deployment.environment"), "prod");
    let named = resource(&[attributes, ("OTEL_SERVICE_NAME", "n")]);
    assert_eq!(has(&named, "service.name"), "n", "it comes first");
    let name = "OTEL_RESOURCE_ATTRIBUTES";
    assert_eq!(flawed(&[(name, "x")], name).unwrap().resource.len(), 2);
}

#[test]
fn samplers() {
    let sampler = |name, arg| {
        good(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", arg)]).sampler
    };
    assert_eq!(sampler("parentbased_always_on", ""), Sampler::default());
    assert_eq!(sampler("parentbased_traceidratio", "0.25"), Sampler::with_share(0.25));
    let alone = good(&[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")]).sampler;
    assert_eq!(alone, Sampler::default());
    let name = "OTEL_TRACES_SAMPLER";
    let unknown = flawed(&[(name, "always_off")], name).unwrap().sampler;
    assert_eq!(unknown, Sampler::default());
    for wrong in ["-0.1", "1.1", "NaN", "half"] {
        let vars = [
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", wrong),
        ];
        let sampler = flawed(&vars, "OTEL_TRACES_SAMPLER_ARG").unwrap().sampler;
        assert_eq!(sampler, alone, "{wrong}");
    }
}

#[test]
fn numbers() {
    let settings = good(&[
        ("OTEL_BSP_MAX_QUEUE_SIZE", "7"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "3"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2000"),
    ]);
    assert_eq!((settings.queue, settings.batch), (7, 3));
    assert_eq!((settings.delay.as_millis(), settings.timeout.as_millis()), (20, 2000));
    for wrong in ["0", "65537", "-1", "many"] {
        let name = "OTEL_BSP_MAX_QUEUE_SIZE";
        assert_eq!(flawed(&[(name, wrong)], name).unwrap().queue, 2048);
    }
}

#[test]
fn unsupported_setting_is_told() {
    let protocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
    good(&[(protocol, "http/protobuf")]);
    assert!(flawed(&[(protocol, "grpc")], protocol).is_none());
    let exporter = "OTEL_TRACES_EXPORTER";
    assert!(flawed(&[(exporter, "zipkin")], exporter).is_none());
}
