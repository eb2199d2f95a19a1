//! The files of deploy/: the bridge takes its configurations, and haproxy its own; rules and panels
//! know the metrics. `.ci/nightly` holds the manifests against the schemas of Compose and
//! Kubernetes, and the rules against promtool.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::{
    certs::Authority,
    cli::{self, OK},
    haproxy,
    peers::repository,
};

fn file(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Has the bridge check `config`, whose secrets stand in `secrets` there, and returns what it says.
async fn taken(config: &str, secrets: &str, dir: &Path) -> String {
    let put = |name: &str, text: &str| fs::write(dir.join(name), text).expect("a new directory");
    put("mantyx-api-key", "key-of-the-workspace-0123456789");
    put("app-token", "token-of-the-app-0123456789abcdef");
    put("postgres.url", "postgres://bridge:canary-of-the-database@postgres/bridge");
    put("hook.url", "https://hooks.example/canary-of-the-hook");
    put("hook.secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let pair = Authority::new().sign(&["mantyx-bridge"]);
    put("tls.crt", &pair.cert);
    put("tls.key", &pair.key);
    let at = dir.to_str().expect("a path of UTF-8");
    let config = config.replace(secrets, at).replace("/etc/mantyx-bridge/tls", at);
    put("bridge.yaml", &config.replace("/var/lib/mantyx-bridge", at));
    let path = dir.join("bridge.yaml");
    let ran = cli::run(&["check", "-c", path.to_str().expect("a path of UTF-8")]).await;
    let ran = ran.expect(OK);
    assert!(!ran.out.contains("canary"), "the password is in no output: {}", ran.out);
    assert!(!ran.err.contains("warning"), "{}", ran.err);
    ran.out
}

/// The configuration in the ConfigMap of a manifest.
fn config_in(manifest: &str) -> String {
    let manifest = file(manifest);
    let (_, rest) = manifest.split_once("bridge.yaml: |\n").expect("a ConfigMap");
    rest.split_once("---\n").expect("it ends").0.to_owned()
}

const DATABASE: &str = "postgres, schema mantyx_bridge, group default";

#[tokio::test]
async fn the_bridge_takes_the_configuration_for_compose() {
    let dir = TempDir::new().expect("a directory");
    let said = taken(&file("deploy/gateway/bridge.yaml"), "/run/secrets", dir.path()).await;
    assert!(said.contains(DATABASE), "{said}");
}

#[tokio::test]
async fn the_bridge_takes_the_configurations_for_kubernetes() {
    for (manifest, has_database) in
        [("deploy/gateway/kubernetes.yaml", true), ("deploy/sidecar/kubernetes.yaml", false)]
    {
        let dir = TempDir::new().expect("a directory");
        let config = config_in(manifest);
        let said = taken(&config, "/etc/mantyx-bridge/secrets", dir.path()).await;
        assert_eq!(said.contains(DATABASE), has_database, "{manifest}: {said}");
    }
}

/// Each metric that a rule or a panel asks for.
#[test]
fn rules_and_panels_ask_for_metrics_that_there_are() {
    let documented = file("docs/metrics.md");
    for path in ["deploy/monitoring/alerts.yaml", "deploy/monitoring/dashboard.json"] {
        let text = file(path);
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let asked = text.split(|letter| !is_name(letter));
        let asked: BTreeSet<&str> =
            asked.filter(|name| name.starts_with("mantyx_bridge_")).collect();
        assert!(asked.len() > 10, "{path}: {asked:?}");
        for name in asked {
            let bare = ["_total", "_bucket"].iter().find_map(|end| name.strip_suffix(end));
            let row = format!("| `{}` |", bare.unwrap_or(name));
            assert!(
                documented.contains(&row),
                "{path} asks for {name}, which docs/metrics.md lacks"
            );
        }
    }
}

#[test]
fn haproxy_takes_its_configuration() {
    let checked = Command::new(haproxy::program())
        .args(["-c", "-f"])
        .arg(repository("deploy/gateway/haproxy.cfg"))
        .output()
        .expect("haproxy can be started");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
