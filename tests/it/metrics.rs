//! `GET /metrics`: what is counted, and that docs/metrics.md has each name and each word.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use crate::{
    bridge::{API, Bridge},
    frames::Script,
    harness::Harness,
    http::Request,
    mantyx::Reply,
    peers::{self, repository},
    wait,
};

/// A page as it was read.
#[derive(Debug, Default)]
struct Page {
    /// Types by name.
    types: BTreeMap<String, String>,
    /// Values by the whole series.
    values: BTreeMap<String, f64>,
}

impl Page {
    async fn of(bridge: &Bridge) -> Self {
        let answer = bridge.api("GET", "/metrics", None).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
        let text = answer.text();
        assert!(text.ends_with("\n# EOF\n"), "the end is marked: {text}");
        let mut page = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                let before = page.types.insert(name.into(), kind.into());
                assert_eq!(before, None, "{name} is on the page twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                let value = value.parse().expect("a number");
                let before = page.values.insert(series.into(), value);
                assert_eq!(before, None, "{series} is on the page twice");
            }
        }
        page
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let found = self.values.get(series);
        *found.unwrap_or_else(|| panic!("no {series} in {:#?}", self.values.keys()))
    }

    /// Of each name, the labels that its series have, and their values.
    fn labels(&self) -> BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> {
        let mut all: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for series in self.values.keys() {
            let (full, labels) = series.split_once('{').unwrap_or((series, "}"));
            let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
            let name = suffixes.iter().filter_map(|suffix| full.strip_suffix(suffix));
            let name = name.filter(|name| self.types.contains_key(*name)).min_by_key(|n| n.len());
            let of_name = all.entry(name.expect("a series has a type")).or_default();
            for label in labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()) {
                let (key, value) = label.split_once('=').expect("a label");
                if key != "le" {
                    of_name.entry(key).or_default().insert(value.trim_matches('"'));
                }
            }
        }
        all
    }
}

/// A name as docs/metrics.md has it: its type, its labels, and the words in its line.
type Documented = BTreeMap<String, (String, BTreeSet<String>, String)>;

fn documented() -> (Documented, String) {
    let text = fs::read_to_string(repository("docs/metrics.md")).expect("the page of the metrics");
    let mut all = Documented::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, what] = cells[..] else { continue };
        if !name.starts_with('`') {
            continue;
        }
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        let name = name.trim_matches('`').to_owned();
        assert_eq!(all.insert(name.clone(), (kind.into(), labels, what.into())), None, "{name}");
    }
    (all, text)
}

pub(crate) const WITH_TLS: &str = "mantyx_bridge_tls_certificate_end_timestamp_seconds";
pub(crate) const WITH_LOGINS: [&str; 3] =
    ["mantyx_bridge_logins", "mantyx_bridge_login_refreshes", "mantyx_bridge_login_needed"];

/// A daemon that has everything to show that there is.
async fn with_everything() -> Harness {
    let rest = "audit: {file: audit.jsonl, syslog: {to: 'tcp://127.0.0.1:1'}}\nruntimes: {team: {kind: hsafa, api: v3, url: \
                'http://127.0.0.1:1', credential: k}}\nnotify: {ops: {on: [trust], \
                command: ['true']}}\n";
    let mut rig = Harness::with("", &[], rest).await;
    rig.bridge.stop().await;
    rig.bridge.set_env(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")]);
    rig.bridge.restart().await;
    rig.bridge.wait_backend("plain", "ready").await;
    rig.call("plain", "plain_note", r#"{"text":"x"}"#).await;
    let end =
        r#"{"subtype":"success","tokens":{"inputTokens":1,"cachedTokens":1,"outputTokens":1}}"#;
    let run = rig.run(Script::new().event("result", end)).await;
    crate::sse::whole(&rig.bridge, &run.stream).await;
    rig
}

#[tokio::test]
async fn the_page_is_documented_word_by_word() {
    let rig = with_everything().await;
    let page = Page::of(&rig.bridge).await;
    let (mut documented, text) = documented();
    // The tests of the gateway have this one, which only TLS has.
    documented.remove(WITH_TLS).expect("it is documented");
    for name in WITH_LOGINS {
        documented.remove(name).expect("the tests of the logins have it, and it is documented");
    }
    let named: BTreeSet<&String> = documented.keys().collect();
    assert_eq!(page.types.keys().collect::<BTreeSet<_>>(), named, "docs/metrics.md has each name");
    let labels = page.labels();
    for (name, (kind, keys, _)) in &documented {
        assert_eq!(&page.types[name], kind, "the type of {name}");
        let found = labels.get(name.as_str()).expect("a series of it");
        let found_keys: BTreeSet<String> = found.keys().map(|key| (*key).to_owned()).collect();
        assert_eq!(&found_keys, keys, "the labels of {name}");
        for (key, values) in found {
            for value in values {
                match *key {
                    "backend" => assert_eq!(*value, "plain", "a name of the configuration"),
                    "runtime" => assert_eq!(*value, "team", "a name of the configuration"),
                    "receiver" => assert_eq!(*value, "ops", "a name of the configuration"),
                    "app" => assert!(["default", "team"].contains(value), "{name}: {value}"),
                    "version" => assert_eq!(*value, env!("CARGO_PKG_VERSION")),
                    _ => assert!(text.contains(&format!("`{value}`")), "{name}: {key}={value}"),
                }
            }
        }
    }
    // And the words that the page has no more.
    let outcomes = &labels["mantyx_bridge_calls"]["outcome"];
    let rows = text.split("| `outcome` | the call |").nth(1).expect("the table of outcomes");
    let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
    let words: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(*outcomes, words);
}

#[tokio::test]
async fn calls_are_counted_by_how_they_end() {
    let rig = Harness::with("", &[], "").await;
    let call = async |id: &str, name: &str, args: &str| {
        rig.run(Script::one_call(id, "plain", name, args)).await;
        rig.mantyx.answer(id).await
    };
    let before = Page::of(&rig.bridge).await;
    call("tu_1", "plain_note", r#"{"text":"x"}"#).await;
    call("tu_2", "plain_note", r#"{"text":"y"}"#).await;
    call("tu_3", "plain_fail", "{}").await;
    call("tu_4", "plain_note", r#"{"text":7}"#).await;
    let page = wait::soon("all runs should have ended", async || {
        let page = Page::of(&rig.bridge).await;
        (page.value(r#"mantyx_bridge_runs_ended_total{outcome="result"}"#) == 4.0).then_some(page)
    })
    .await;
    let calls = |page: &Page, outcome: &str| {
        page.value(&format!(r#"mantyx_bridge_calls_total{{backend="plain",outcome="{outcome}"}}"#))
    };
    for (outcome, count) in
        [("result", 2.0), ("tool_error", 1.0), ("input_invalid", 1.0), ("cancelled", 0.0)]
    {
        assert_eq!(calls(&before, outcome), 0.0, "there from the start: {outcome}");
        assert_eq!(calls(&page, outcome), count, "{outcome}");
    }
    for (series, value) in [
        (r#"mantyx_bridge_call_duration_seconds_count{backend="plain"}"#, 4.0),
        (r#"mantyx_bridge_call_duration_seconds_bucket{le="+Inf",backend="plain"}"#, 4.0),
        (r#"mantyx_bridge_call_turn_seconds_count{backend="plain"}"#, 3.0),
        (r#"mantyx_bridge_calls_in_flight{backend="plain"}"#, 0.0),
        (r#"mantyx_bridge_backend_state{backend="plain",state="ready"}"#, 1.0),
        (r#"mantyx_bridge_backend_state{backend="plain",state="down"}"#, 0.0),
        (r#"mantyx_bridge_backend_breaker{backend="plain",state="closed"}"#, 1.0),
        (r#"mantyx_bridge_backend_tools{backend="plain"}"#, 8.0),
        ("mantyx_bridge_runs_driven", 0.0),
        ("mantyx_bridge_runs_started_total", 4.0),
        (r#"mantyx_bridge_result_posts_total{status="2xx"}"#, 4.0),
        ("mantyx_bridge_result_post_retries_total", 0.0),
        ("mantyx_bridge_upstream_reachable", 1.0),
        (r#"mantyx_bridge_requests_total{route="create_run",status="2xx"}"#, 4.0),
        (r#"mantyx_bridge_request_duration_seconds_count{route="create_run"}"#, 4.0),
        ("mantyx_bridge_journal_writable", 1.0),
        ("mantyx_bridge_journal_errors_total", 0.0),
    ] {
        assert_eq!(page.value(series), value, "{series}");
    }
    for positive in [
        "mantyx_bridge_journal_bytes",
        "mantyx_bridge_journal_commit_duration_seconds_count",
        "mantyx_bridge_journal_commit_duration_seconds_sum",
        "process_resident_memory_bytes",
        "process_open_fds",
    ] {
        assert!(page.value(positive) > 0.0, "{positive}");
    }
    #[expect(clippy::disallowed_methods, reason = "a test has the system's clock")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after");
    let started = page.value("process_start_time_seconds");
    assert!((now.as_secs_f64() - 600.0..=now.as_secs_f64()).contains(&started), "{started}");
}

#[tokio::test]
async fn a_call_in_flight_one_that_goes_on_and_a_cancelled_one() {
    let rig = Harness::with_keys("pending_after: 1s,", "", &[], "").await;
    let script = Script::new().mcp("tu_1", "plain", "plain_hang", "{}").until("the test").done();
    let run = rig.run(script).await;
    let value = async |series: &str, expected: f64| {
        wait::soon(&format!("{series} should be {expected}"), async || {
            (Page::of(&rig.bridge).await.value(series) == expected).then_some(())
        })
        .await;
    };
    value(r#"mantyx_bridge_calls_in_flight{backend="plain"}"#, 1.0).await;
    value("mantyx_bridge_calls_pending", 1.0).await;
    value("mantyx_bridge_runs_driven", 1.0).await;
    let cancel = format!("{API}/agent-runs/{}/cancel", run.run_id);
    rig.bridge.api("POST", &cancel, Some("{}")).await.expect(200);
    value(r#"mantyx_bridge_calls_total{backend="plain",outcome="cancelled"}"#, 1.0).await;
    value("mantyx_bridge_calls_pending", 0.0).await;
    value(r#"mantyx_bridge_calls_in_flight{backend="plain"}"#, 0.0).await;
    value(r#"mantyx_bridge_requests_total{route="cancel",status="2xx"}"#, 1.0).await;
}

#[tokio::test]
async fn posts_that_are_refused_and_made_again() {
    let rig = Harness::start().await;
    rig.mantyx.replies("tu_1", [Reply::Status(503), Reply::TooMany(1), Reply::Reset]);
    rig.run(Script::one_call("tu_1", "plain", "plain_note", r#"{"text":"x"}"#)).await;
    rig.mantyx.wait_posts("tu_1", 4).await;
    let page = wait::soon("the last post should be counted", async || {
        let page = Page::of(&rig.bridge).await;
        let taken = page.value(r#"mantyx_bridge_result_posts_total{status="2xx"}"#);
        (taken == 1.0).then_some(page)
    })
    .await;
    for (status, count) in [("5xx", 1.0), ("429", 1.0), ("none", 1.0), ("4xx", 0.0)] {
        let series = format!(r#"mantyx_bridge_result_posts_total{{status="{status}"}}"#);
        assert_eq!(page.value(&series), count, "{series}");
    }
    assert_eq!(page.value("mantyx_bridge_result_post_retries_total"), 3.0);
    let held_back = page.value("mantyx_bridge_result_post_wait_seconds_sum");
    assert!(held_back > 0.5, "a second is waited out: {held_back}");
}

#[tokio::test]
async fn refused_requests_are_counted_by_their_reason() {
    let rig = Harness::start().await;
    let to = rig.bridge.addr();
    Request::new("GET", "/metrics").answer(to).await.expect_error(401);
    let foreign = rig.bridge.request("GET", "/metrics").header("Host", "evil.example");
    foreign.answer(to).await.expect_error(403);
    let page = rig.bridge.request("GET", "/healthz").header("Origin", "http://evil.example");
    page.answer(to).await.expect_error(403);
    let page = Page::of(&rig.bridge).await;
    for code in ["unauthorized", "host_refused", "origin_refused"] {
        let series = format!(r#"mantyx_bridge_refused_requests_total{{code="{code}"}}"#);
        assert_eq!(page.value(&series), 1.0, "{series}");
    }
}

#[tokio::test]
async fn a_backend_that_dies_is_told_of() {
    let rig = Harness::bare(&format!("mcp:\n  bad: {}\n", peers::hostile_mcp(&[]))).await;
    rig.bridge.wait_backend("bad", "ready").await;
    let first = Page::of(&rig.bridge).await;
    assert_eq!(first.value(r#"mantyx_bridge_backend_reconnects_total{backend="bad"}"#), 0.0);
    rig.run(Script::one_call("tu_1", "bad", "bad_crash", "{}")).await;
    rig.mantyx.answer("tu_1").await;
    let page = wait::until("it should come back", Duration::from_secs(30), async || {
        let page = Page::of(&rig.bridge).await;
        let again = page.value(r#"mantyx_bridge_backend_reconnects_total{backend="bad"}"#);
        (again >= 1.0).then_some(page)
    })
    .await;
    assert!(page.value(r#"mantyx_bridge_backend_failures_total{backend="bad"}"#) >= 1.0);
    let lost = r#"mantyx_bridge_calls_total{backend="bad",outcome="connection_lost"}"#;
    assert_eq!(page.value(lost), 1.0);
}

#[tokio::test]
async fn a_token_without_backends_sees_the_numbers() {
    let config = format!(
        "upstream: {{sandbox: true}}\napps: {{watcher: {{token: watcher-token-0123456789, backends: []}}}}\n\
         mcp:\n  bad: {}\n",
        peers::hostile_mcp(&[])
    );
    let bridge = Bridge::ready(&config).await;
    let request = Request::new("GET", "/metrics").bearer("watcher-token-0123456789");
    let text = request.answer(bridge.addr()).await.text();
    assert!(text.contains(r#"mantyx_bridge_backend_tools{backend="bad"}"#), "{text}");
}
