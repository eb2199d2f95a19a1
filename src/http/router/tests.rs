//! Every route by its method and path.

use super::*;
use crate::http::proxy::route::Opened;
use crate::model::ids::{RunKey, Workspace};

#[track_caller]
fn check_own(method: &str, path: &str, pattern: &str, segment: &str) {
    let route = Route::find(&method.parse().unwrap(), path);
    let Route::Own(own, found) = &route else { panic!("{route:?}") };
    assert_eq!((own.path, found.as_str()), (pattern, segment), "{method} {path}");
}

#[track_caller]
fn check_wrong_method(method: &str, path: &str, allow: &str) {
    let route = Route::find(&method.parse().unwrap(), path);
    assert!(matches!(route, Route::WrongMethod(found) if found == allow), "{route:?}");
}

#[track_caller]
fn check_ambiguous(method: &str, path: &str) {
    let route = Route::find(&method.parse().unwrap(), path);
    assert!(matches!(route, Route::Ambiguous), "{method} {path}: {route:?}");
}

#[track_caller]
fn check_proxied(method: &str, path: &str, expected: &Proxied) {
    let route = Route::find(&method.parse().unwrap(), path);
    assert!(matches!(&route, Route::Proxied(found, _) if found == expected), "{route:?}");
}

#[track_caller]
fn resource(path: &str) -> Resource {
    match Route::find(&Method::GET, path) {
        Route::Proxied(_, resource) => resource,
        route => panic!("{route:?}"),
    }
}

#[test]
fn own_routes() {
    for own in ROUTES {
        let braces = own.path.split('/').find(|segment| segment.starts_with('{'));
        check_own(own.method, own.path, own.path, braces.unwrap_or_default());
    }
    check_own("HEAD", "/readyz", "/readyz", "");
    check_own("POST", "/v1/backends/fs/refresh", "/v1/backends/{name}/refresh", "fs");
    check_own("GET", "/v1/runs/run%5F1", "/v1/runs/{id}", "run_1");
    check_wrong_method("GET", "/v1/specs/inject", "POST");
    check_wrong_method("GET", "/v1/logins/notion", "POST, DELETE");
    check_wrong_method("POST", "/", "GET, HEAD");
    check_wrong_method("DELETE", "/v1/runs", "GET, HEAD, POST");
    check_wrong_method("GET", "/v1/approvals/a", "POST");
    for path in ["/v1/status/", "/api", "/nothing", "/v1/runs/r/attach/x"] {
        assert!(matches!(Route::find(&Method::GET, path), Route::Unknown), "{path}");
    }
}

#[test]
fn path_that_is_too_long_is_not_looked_at() {
    let path = |segments: usize| format!("/api{}", "/a".repeat(segments));
    assert!(matches!(Route::find(&Method::GET, &path(4_000)), Route::Proxied(..)));
    let long = Route::find(&Method::GET, &path(5_000));
    assert!(matches!(long, Route::TooLong), "{long:?}");
}

#[test]
fn mcp_with_a_slash_is_mcp() {
    for method in ["GET", "HEAD", "POST", "DELETE"] {
        let path_of = |path| match Route::find(&method.parse().unwrap(), path) {
            Route::Own(own, _) => (own.method, own.path),
            route => panic!("{route:?}"),
        };
        assert_eq!(path_of("/mcp/"), path_of("/mcp"), "{method}");
    }
    check_wrong_method("PUT", "/mcp/", "GET, HEAD, POST, DELETE");
    for path in ["/mcp//", "//mcp", "/mcp/x", "/mcp%2F"] {
        assert!(matches!(Route::find(&Method::POST, path), Route::Unknown), "{path}");
    }
}

#[test]
fn method_that_shows_a_requests_headers_is_refused_everywhere() {
    for method in ["TRACE", "TRACK", "trace", "CONNECT"] {
        for path in ["/", "/healthz", "/nothing"] {
            check_wrong_method(method, path, OWN_METHODS);
        }
        let path = "/api/v1/workspaces/a/models";
        check_wrong_method(method, path, PROXIED_METHODS);
        assert!(Route::find(&method.parse().unwrap(), path).is_proxied());
    }
}

#[test]
fn proxied_routes() {
    let workspace = || Workspace::from("acme");
    let base = "/api/v1/workspaces/acme";
    let proxied = |method: &str, rest: &str, expected: Proxied| {
        check_proxied(method, &format!("{base}{rest}"), &expected);
    };
    for (path, kind) in [("/agent-runs", RunKind::Agent), ("/eval-runs", RunKind::Eval)] {
        proxied("POST", path, Proxied::CreateRun(workspace(), kind));
        let run = || "run_1".into();
        let stream = Proxied::Stream(RunKey { workspace: workspace(), kind, run: run() });
        proxied("GET", &format!("{path}/run_1/stream"), stream);
        let cancel = Proxied::Cancel(RunKey { workspace: workspace(), kind, run: run() });
        proxied("POST", &format!("{path}/run_1/cancel"), cancel);
        proxied("GET", &format!("{path}/run_1"), Proxied::Other);
    }
    // However it is spelled, it is the run that it reaches.
    let stream = || {
        let run = "run_1".into();
        Proxied::Stream(RunKey { workspace: workspace(), kind: RunKind::Agent, run })
    };
    for path in [
        "/agent-runs/run%5F1/stream",
        "//agent-runs//run_1/stream/",
        "/agent-%72uns/run%5f1/stream",
    ] {
        proxied("GET", path, stream());
    }
    check_proxied("GET", "//api/v1/%77orkspaces/acme/agent-runs/run_1/stream", &stream());
    // What reaches it only for some is refused.
    for path in [
        "/agent-runs%2Frun_1/stream",
        "/agent-runs/run_1%5Cstream",
        "/agent-runs\\run_1\\stream",
        "/agent-runs/run%255F1/stream",
        "/agent-runs/run_1%00/stream",
        "/agent-runs/run_1%FF/stream",
        "/x/../agent-runs/run_1/stream",
        "/x/%2e%2E/agent-runs/run_1/stream",
        "/files/%252e%252e%252f",
        "/./files",
        "/Agent-Runs/run_1/stream",
        "/agent-runs/run_1/%53tream",
        "/EVAL-RUNS/run_1/stream",
        // Some readers strip what is behind a semicolon, and some letters are K in lower case.
        "/agent-runs/run_1;x=1/stream",
        "/agent-runs;x/run_1/stream",
        "/agent-runs/run_1/stream%3Bx",
        "/agent-runs/%E2%84%AA",
        "/x/..;/agent-runs/run_1",
    ] {
        check_ambiguous("GET", &format!("{base}{path}"));
    }
    for (method, path) in [
        ("POST", "/api/v1/Workspaces/acme/agent-runs"),
        ("POST", "/api/v1/workspaces/acme;x/agent-runs"),
        ("POST", "/api/v1/workspaces/a%20b/agent-runs"),
        ("POST", "/api/V1/workspaces/acme/agent-runs/run_1/Tool-Results"),
        ("POST", "/api/v1/workspaces/acme/agent-runs/run_1/CANCEL"),
        ("POST", "/api/v1/workspaces/acme/agent-sessions/s/Messages"),
        ("DELETE", "/api/v1/workspaces/acme/Agent-Sessions/s"),
    ] {
        check_ambiguous(method, path);
    }
    // An id may be such a word.
    let run = "Stream".into();
    let cancel = Proxied::Cancel(RunKey { workspace: workspace(), kind: RunKind::Agent, run });
    proxied("POST", "/agent-runs/Stream/cancel", cancel);
    proxied("GET", "/Agent-Runs/run_1", Proxied::Other);
    // What is looked at by nobody but MANTYX may be written as it likes.
    for path in ["/files/a%2Fb", "/files/100%25", "/files/a%5Cb", "/files/%E4", "/files/%252F"] {
        proxied("GET", path, Proxied::Other);
    }
    proxied("POST", "/eval-runs/run_1/tool-results", Proxied::Other);
    proxied("GET", "/agent-runs", Proxied::Other);
    proxied(
        "POST",
        "/agent-sessions/ses_1/messages",
        Proxied::Message(workspace(), "ses_1".into()),
    );
    proxied("DELETE", "/agent-sessions/ses_1", Proxied::EndSession(workspace(), "ses_1".into()));
    check_proxied("POST", "/api/oauth/token", &Proxied::Other);
}

#[test]
fn ids_below_a_workspace_however_they_are_written() {
    let ids = |path: &str| {
        let resource = resource(path);
        (resource.workspace.to_string(), resource.ids.join(" "))
    };
    let found = |ids: &str| ("acme".to_owned(), ids.to_owned());
    let base = "/api/v1/workspaces/acme";
    assert_eq!(ids(&format!("{base}/agent-runs/run_1")), found("agent-runs run_1"));
    assert_eq!(ids(&format!("{base}//agent-runs/run%5f1/x/")), found("agent-runs run_1 x"));
    assert_eq!(ids("/api//v1/work%73paces/ac%6De/a%2fb"), found("a b"));
    assert_eq!(ids(&format!("{base}/a%b%2")), found("a%b%2"));
    assert_eq!(ids("/api/v1/Workspaces/acme/Agent-Runs/RUN"), found("agent-runs RUN"));
    assert_eq!(ids("/api/v2/x/WORKSPACES/acme/a"), found("a"));
    assert_eq!(ids(base), found(""));
    assert_eq!(ids(&format!("{base}/agent-runs%252frun_1")), found("agent-runs run_1"));
    assert_eq!(ids("/api/v2/workspaces/acme/agent-runs;x/run_1;y=2"), found("agent-runs run_1"));
    assert_eq!(resource("/api/oauth/token"), Resource::default());
}

#[test]
fn credential_opens_its_run_or_session() {
    let key = |kind, id: &str| RunKey { workspace: "acme".into(), kind, run: id.into() };
    let run = |kind, id: &str| Some(Opened::Run(key(kind, id)));
    let (agent, eval) = (RunKind::Agent, RunKind::Eval);
    for (below, expected) in [
        ("agent-runs/run_1", run(agent, "run_1")),
        ("agent-runs/run_1/feedback", run(agent, "run_1")),
        ("agent-runs/run_1/stream", run(agent, "run_1")),
        ("eval-runs/e/cancel", run(eval, "e")),
        ("agent-sessions/s/messages", Some(Opened::Session("s".into()))),
        ("agent-sessions/s", None),
        ("agent-runs", None),
        ("/agent-runs/run_1", None),
        ("agent-runs/run%5F1", None),
        ("models", None),
    ] {
        let found = resource(&format!("/api/v1/workspaces/acme/{below}")).opened;
        assert_eq!(found, expected, "{below}");
    }
    assert_eq!(resource("/api/v1//workspaces/acme/agent-runs/run_1").opened, None);
}

#[test]
fn only_health_and_readiness_are_open() {
    let is_open = |path: &str| Route::find(&Method::GET, path).rules(&Method::GET).access.is_open();
    assert!(is_open("/healthz") && is_open("/readyz"));
    for path in ["/", "/v1/status", "/metrics", "/nothing", "/api/v1/workspaces/a/models"] {
        assert!(!is_open(path), "{path}");
    }
}

#[test]
fn work_after_an_answer_is_done_although_the_app_hung_up() {
    let after = |method: &str, path: &str| {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Route::find(&method, path).rules(&method).after_hang_up
    };
    let api = "/api/v1/workspaces/acme";
    for (method, path) in [
        ("POST", "agent-runs"),
        ("POST", "eval-runs"),
        ("POST", "agent-sessions"),
        ("POST", "agent-sessions/s/messages"),
        ("DELETE", "agent-sessions/s"),
        ("POST", "agent-runs/r/cancel"),
        ("POST", "eval-runs/r/cancel"),
    ] {
        assert_eq!(after(method, &format!("{api}/{path}")), AfterHangUp::ToItsEnd, "{path}");
    }
    for path in ["runs", "runs/r/attach", "approvals/1", "trust/fs", "backends/fs/refresh"] {
        assert_eq!(after("POST", &format!("/v1/{path}")), AfterHangUp::ToItsEnd, "{path}");
    }
    for path in ["agent-runs/r/tool-results", "files"] {
        assert_eq!(after("POST", &format!("{api}/{path}")), AfterHangUp::ForAWhile, "{path}");
    }
    assert_eq!(after("GET", &format!("{api}/agent-runs/r/stream")), AfterHangUp::Dropped);
    assert_eq!(after("POST", "/v1/tool-calls"), AfterHangUp::Dropped, "nobody else wants it");
}
