//! `doctor`: who is well, who is not and what cures it, without a daemon and without a secret.

use rcgen::KeyPair;
use serde_json::Value;
use tempfile::TempDir;

use super::{FAILED, OK, Ran, USAGE, run_with};
use crate::{
    gate::{CLIENT, Gate, Rules},
    mantyx::{CREDENTIAL, Mantyx},
    peers,
};

const CANARY: &str = "doctor_canary_77ab";
const MODELS: &str = "/api/v1/workspaces/acme/models";

async fn doctor(config: &str, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = dir.path().join("bridge.yaml");
    let text = format!("state_dir: {}\n{config}", dir.path().join("state").display());
    std::fs::write(&path, text).expect("the test's directory is writable");
    let path = path.to_str().expect("a path of the tests is UTF-8");
    let ran = run_with(&[&["doctor", "-c", path], args].concat(), env).await;
    let text = format!("{}{}", ran.out, ran.err);
    assert!(
        !text.contains(CANARY) && !text.contains(CREDENTIAL),
        "a secret is never shown: {text}"
    );
    ran
}

/// The steps of `name`, each with its verdict.
#[track_caller]
fn steps(report: &Value, name: &str) -> Vec<(String, String)> {
    let examined = report["examined"].as_array().expect("a list of what was examined");
    let one = examined.iter().find(|one| one["name"] == name);
    let one = one.unwrap_or_else(|| panic!("{name} was examined: {report}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let steps = one["steps"].as_array().expect("a list of steps");
    steps.iter().map(|step| (text(&step["step"]), text(&step["verdict"]))).collect()
}

/// The last step of `name`, which has to be `step` and to have failed: its finding and its cure.
#[track_caller]
fn failure(report: &Value, name: &str, step: &str) -> String {
    let last = steps(report, name).pop().expect("a step");
    assert_eq!(last, (step.to_owned(), "fail".to_owned()), "{name}: {report}");
    let examined = report["examined"].as_array().expect("a list of what was examined");
    let one = examined.iter().find(|one| one["name"] == name).expect("it was examined");
    let step = one["steps"].as_array().and_then(|steps| steps.last()).expect("a step");
    let cure = step["cure"].as_str().expect("what fails has a cure");
    format!("{}; {cure}", step["finding"].as_str().unwrap_or_default())
}

fn well(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "ok".to_owned())).collect()
}

#[tokio::test]
async fn doctor_finds_a_good_setup_well() {
    let mantyx = Mantyx::start().await;
    let head = ["HTTP/1.1 200 OK", "Content-Type: application/json"];
    mantyx.canned("GET", MODELS, &head, r#"{"models":[{"id":"m"}],"defaultModelId":"m"}"#);
    let dir = TempDir::new().expect("the temporary directory is writable");
    let ledger = dir.path().join("ledger");
    let (server, agent) = (peers::everything_http().await, peers::a2a_v1("both").await);
    let config = format!(
        "{}mcp:\n  plain: {}\n  ev: {{url: \"{}/mcp\"}}\na2a:\n  desk: {{bundled: true}}\n  \
         hr: {{url: \"{}\"}}\nlocal:\n  disk: {{description: Space., parameters: {{type: object}}, \
         command: [df, -h]}}\n",
        mantyx.upstream(),
        peers::ledger(&ledger, &[]),
        server.url(),
        agent.url(),
    );
    let report = doctor(&config, &["--json"], &[]).await.expect(OK).json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(steps(&report, "upstream"), well(&["tcp", "auth"]));
    assert_eq!(steps(&report, "plain"), well(&["command", "initialize", "tools/list"]));
    assert_eq!(steps(&report, "ev"), well(&["tcp", "initialize", "tools/list"]));
    assert_eq!(steps(&report, "desk"), well(&["card"]));
    assert_eq!(steps(&report, "hr"), well(&["tcp", "card", "endpoint"]));
    assert_eq!(steps(&report, "disk"), well(&["command"]));
    let names: Vec<_> =
        report["examined"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names[1..], ["upstream", "desk", "disk", "ev", "hr", "plain"], "in a fixed order");
    assert!(!ledger.exists(), "no tool was called");
    let asked = mantyx.only("GET", "/models");
    assert_eq!(asked.header("authorization"), Some(format!("Bearer {CREDENTIAL}").as_str()));

    let shown = doctor(&config, &["plain"], &[]).await.expect(OK);
    assert!(shown.out.contains("tools/list") && shown.out.contains("tools\n"), "{}", shown.out);
    assert!(!shown.out.contains("\nupstream"), "only what was named: {}", shown.out);
    assert!(!shown.out.contains('\x1b'), "no colours where there is no terminal: {}", shown.out);
}

#[tokio::test]
async fn failed_check_is_told_with_its_cure() {
    let mantyx = Mantyx::start().await;
    mantyx.canned("GET", MODELS, &["HTTP/1.1 401 Unauthorized"], "{}");
    let tls = peers::tls().await;
    let address = tls.url().trim_start_matches("http://");
    let plain = mantyx.url().replace("http", "https");
    let config = format!(
        "{}mcp:\n  gone: {{url: \"http://127.0.0.1:1/mcp\", headers: {{X-Key: {CANARY}}}}}\n  \
         missing: {{command: no-such-program}}\n  \
         dying: {{command: sh, args: [-c, 'echo key $KEY >&2; exit 3'], env: {{KEY: {CANARY}}}}}\n  \
         deaf: {{command: cat, args: [/dev/null]}}\n  \
         plain: {{url: \"{plain}/mcp\"}}\n  \
         wary: {{url: \"https://{address}/mcp\", headers: {{X-Key: {CANARY}}}}}\na2a:\n  \
         nobody: {{url: \"{}/none\"}}\n",
        mantyx.upstream(),
        mantyx.url(),
    );
    let report = doctor(&config, &["--json"], &[]).await.expect(FAILED).json();
    assert_eq!(report["ok"], false, "{report}");
    let has = |name: &str, step: &str, words: &[&str]| {
        let text = failure(&report, name, step);
        assert!(words.iter().all(|word| text.contains(word)), "{name}: {text}");
    };
    has("upstream", "auth", &["401", "new API key", "upstream.credential"]);
    has("gone", "tcp", &["127.0.0.1:1 refuses", "start the server"]);
    has("missing", "command", &["no-such-program", "install it"]);
    has("dying", "initialize", &["exit status 3", "[hidden]", "by hand", "sh -c"]);
    has("deaf", "initialize", &["exit status 0"]);
    has("plain", "tls", &["does not speak TLS", "write http://"]);
    has("wary", "tls", &["authority", "SSL_CERT_FILE"]);
    has("nobody", "card", &["no Agent Card", "card_url"]);

    let trusted = peers::repository("tests/peers/tls.pem");
    let trusted = trusted.to_str().expect("a path of the tests is UTF-8");
    let env = [("SSL_CERT_FILE", trusted)];
    let report = doctor(&config, &["wary", "--json"], &env).await.expect(FAILED).json();
    assert_eq!(steps(&report, "wary")[..2], well(&["tcp", "tls"]), "the cure cures: {report}");
    let text = failure(&report, "wary", "auth");
    assert!(text.contains("401") && text.contains("get a new one"), "{text}");

    let shown = doctor(&config, &["gone"], &[]).await.expect(FAILED);
    assert!(shown.out.contains("FAIL") && shown.out.contains("cure: start"), "{}", shown.out);
}

#[tokio::test]
async fn every_way_to_a_server_is_gone() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let socket = dir.path().join("mcp.sock");
    let _server = peers::mcp_uds(&socket, &[]).await;
    let (sse, gate) = (peers::everything_sse().await, Gate::start(Rules::default()).await);
    let agent = peers::a2a_behind(&gate.url(), &[]).await;
    gate.leads_to(agent.url());
    let url = gate.url();
    let client = |secret| {
        let id = CLIENT.0;
        format!(
            "{{oauth: {{client_id: {id}, client_secret: {secret}, token_url: \"{url}/token\"}}}}"
        )
    };
    let config = format!(
        "upstream: {{sandbox: true}}\nmcp:\n  uds: {{url: \"unix:{}\", trust_annotations: true}}\n  \
         none: {{url: \"unix:{}\"}}\n  sse: {{url: \"{}/sse\", pending_after: 1m}}\na2a:\n  \
         known: {{url: \"{url}\", auth: {}}}\n  unknown: {{url: \"{url}\", auth: {}}}\n  \
         wrong: {{url: \"{url}\", auth: {{bearer: {CANARY}}}}}\n  nobody: {{url: \"{url}\"}}\n",
        socket.display(),
        dir.path().join("no.sock").display(),
        sse.url(),
        client(CLIENT.1),
        client(CANARY),
    );
    let report = doctor(&config, &["--json"], &[]).await.expect(FAILED).json();
    assert_eq!(steps(&report, "uds"), well(&["socket", "initialize", "tools/list"]));
    assert_eq!(steps(&report, "sse"), well(&["tcp", "initialize", "tools/list"]));
    assert_eq!(steps(&report, "known"), well(&["tcp", "card", "endpoint"]));
    assert!(failure(&report, "none", "socket").contains("no.sock"), "{report}");
    for (name, cure) in
        [("unknown", "auth.oauth"), ("wrong", "get a new one"), ("nobody", "bearer")]
    {
        let text = failure(&report, name, "auth");
        assert!(text.contains("401") && text.contains(cure), "{name}: {text}");
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_is_another_exit_code() {
    let bad = doctor("upstream: {sandbox: true, workspce: a}\n", &[], &[]).await.expect(USAGE);
    assert!(bad.err.contains("`workspace`"), "{}", bad.err);
    let json = doctor("upstream: {}\n", &["--json"], &[]).await.expect(USAGE).json();
    assert_eq!(json["ok"], false, "{json}");
    let none = doctor("upstream: {sandbox: true}\n", &["nobody"], &[]).await.expect(USAGE);
    assert!(none.err.contains("nobody"), "{}", none.err);
}

#[tokio::test]
async fn the_tls_of_a_backend_is_examined_with_its_own_files() {
    let everything = peers::everything_http().await;
    let front = peers::tls_before(everything.url()).await;
    let url = front.url().replace("http://", "https://");
    let file = |name: &str| peers::repository("tests/peers").join(name).display().to_string();
    let (ca, own) = (file("tls.pem"), file("client.pem"));
    let config = format!(
        "upstream: {{sandbox: true}}\nmcp:\n  \
         known: {{url: '{url}/mcp', tls: {{ca: {ca}, cert: {own}, key: {own}}}}}\n  \
         shy: {{url: '{url}/mcp', tls: {{ca: {ca}}}}}\n  \
         wary: {{url: '{url}/mcp', tls: {{ca: {own}}}}}\n"
    );
    let report = doctor(&config, &["--json"], &[]).await.expect(FAILED).json();
    assert_eq!(steps(&report, "known"), well(&["tcp", "tls", "initialize", "tools/list"]));
    let text = failure(&report, "shy", "tls");
    assert!(text.contains("certificate") && text.contains("tls: {cert"), "{text}");
    let text = failure(&report, "wary", "tls");
    assert!(text.contains("authority") && text.contains("tls: {ca"), "{text}");
}

#[tokio::test]
async fn an_application_at_mantyx_is_examined_as_one() {
    let (mantyx, gate) = (Mantyx::start().await, Gate::start(Rules::default()).await);
    gate.leads_to(&mantyx.url());
    mantyx.canned("GET", MODELS, &["HTTP/1.1 200 OK"], r#"{"models":[]}"#);
    gate.grants(Some("refresh-canary"));
    let ((id, secret), url) = (CLIENT, gate.url());
    let config = |refresh_token| {
        format!(
            "upstream: {{base_url: \"{url}\", workspace: acme, oauth: {{token_url: \"{url}/token\", \
             client_id: {id}, client_secret: {secret}, refresh_token: {refresh_token}}}}}\n"
        )
    };
    let report = doctor(&config("refresh-canary"), &["--json"], &[]).await.expect(OK).json();
    assert_eq!(steps(&report, "upstream"), well(&["tcp", "auth"]));
    let report = doctor(&config(CANARY), &["--json"], &[]).await.expect(FAILED).json();
    let text = failure(&report, "upstream", "auth");
    assert!(text.contains("400 invalid_grant") && text.contains("refresh_token"), "{text}");
}

#[tokio::test]
async fn the_signature_of_a_card_is_looked_at() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a new directory");
        path.display().to_string()
    };
    let keys = file("keys.pem", &KeyPair::generate().expect("a key").public_key_pem());
    let card = file("card.json", r#"{"name":"HR","url":"http://127.0.0.1:9/","signatures":[]}"#);
    let config = format!(
        "upstream: {{sandbox: true}}\na2a:\n  strict: {{card_file: {card}, signature: {{keys: \
         {keys}}}}}\n  loose: {{card_file: {card}, signature: {{keys: {keys}, required: false}}}}\n"
    );
    let report = doctor(&config, &["--json"], &[]).await.expect(FAILED).json();
    let told = failure(&report, "strict", "card");
    assert!(told.contains("no signature") && told.contains("key"), "{told}");
    let [card, endpoint] = [("card", "warn"), ("endpoint", "fail")];
    let steps = steps(&report, "loose");
    assert_eq!(
        steps,
        [card, endpoint].map(|(step, verdict)| (step.to_owned(), verdict.to_owned()))
    );
}
