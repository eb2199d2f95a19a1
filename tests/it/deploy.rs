//! The files of deploy/: the bridge takes its configurations, and haproxy its own. `.ci/nightly` holds the
//! manifests against the schemas of Compose and Kubernetes.

use std::{fs, path::Path, process::Command};

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

/// Has the bridge check `config`, whose secrets stand in `secrets` there.
async fn assert_taken(config: &str, secrets: &str, dir: &Path) {
    let put = |name: &str, text: &str| fs::write(dir.join(name), text).expect("a new directory");
    put("mantyx-api-key", "key-of-the-workspace-0123456789");
    put("app-token", "token-of-the-app-0123456789abcdef");
    put("postgres.url", "postgres://bridge:canary-of-the-database@postgres/bridge");
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
    let database = "postgres, schema mantyx_bridge, group default";
    assert!(ran.out.contains(database), "{}", ran.out);
    assert!(!ran.err.contains("warning"), "{}", ran.err);
}

#[tokio::test]
async fn the_bridge_takes_the_configuration_for_compose() {
    let dir = TempDir::new().expect("a directory");
    assert_taken(&file("deploy/gateway/bridge.yaml"), "/run/secrets", dir.path()).await;
}

#[tokio::test]
async fn the_bridge_takes_the_configuration_for_kubernetes() {
    let manifest = file("deploy/gateway/kubernetes.yaml");
    let (_, rest) = manifest.split_once("bridge.yaml: |\n").expect("a ConfigMap");
    let (config, _) = rest.split_once("---\n").expect("it ends");
    let dir = TempDir::new().expect("a directory");
    assert_taken(config, "/etc/mantyx-bridge/secrets", dir.path()).await;
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
