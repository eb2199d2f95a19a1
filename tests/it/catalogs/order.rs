//! Tools keep their places: over refreshes, restarts and what a server lists in another order.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    frames::Script,
    harness::{Harness, tool_names},
    peers,
};

/// Two servers whose lists are files; `zebra` stands before `ant` in the file.
struct Zoo {
    rig: Harness,
    dir: TempDir,
}

fn listing(names: &[&str]) -> String {
    let tool = |name: &&str| {
        format!(
            r#"{{"description": "The tool {name}.",  "name": "{name}", "inputSchema": {{"type":"object"}}}}"#
        )
    };
    format!(r#"{{"tools":[{}]}}"#, names.iter().map(tool).collect::<Vec<_>>().join(","))
}

impl Zoo {
    async fn start() -> Self {
        let dir = TempDir::new().expect("the temporary directory is writable");
        let mut config = "mcp:\n".to_owned();
        for name in ["zebra", "ant"] {
            let path = dir.path().join(name);
            fs::write(&path, listing(&["c", "a", "b"])).expect("a new directory");
            config.push_str(&format!("  {name}: {}\n", peers::changing(&path, &[])));
        }
        let rig = Harness::bare(&config).await;
        let this = Self { rig, dir };
        this.ready().await;
        this
    }

    async fn ready(&self) {
        for name in ["zebra", "ant"] {
            self.rig.bridge.wait_backend(name, "ready").await;
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("zebra")
    }

    async fn lists(&self, names: &[&str]) {
        fs::write(self.path(), listing(names)).expect("the test's directory is writable");
        let refresh = "/v1/backends/zebra/refresh";
        self.rig.bridge.api("POST", refresh, Some("{}")).await.expect(200);
    }

    /// The tools of both, as an app is told, which is what a run is given.
    async fn offered(&self) -> Vec<String> {
        let told = self.rig.bridge.api("GET", "/v1/tool-refs", None).await.expect(200);
        self.rig.run(Script::new().done()).await;
        let sent = self.rig.mantyx.requests("POST", "/agent-runs").pop().expect("a run").value();
        assert_eq!(sent["tools"], told["tools"]);
        tool_names(&told)
    }
}

fn names(zebras: &[&str]) -> Vec<String> {
    let of = |backend: &str, names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{backend}_{name}")).collect()
    };
    [of("zebra", zebras), of("ant", &["c", "a", "b"])].concat()
}

#[tokio::test]
async fn tools_keep_their_places() {
    let mut zoo = Zoo::start().await;
    assert_eq!(zoo.offered().await, names(&["c", "a", "b"]), "backends in the order of the file");
    let first = zoo.rig.mantyx.only("POST", "/agent-runs").body;
    zoo.lists(&["b", "a", "c"]).await;
    assert_eq!(zoo.offered().await, names(&["c", "a", "b"]));
    let again = zoo.rig.mantyx.requests("POST", "/agent-runs").pop().expect("a run").body;
    assert_eq!(first, again, "byte for byte: a prompt cache holds");
    zoo.lists(&["new", "b", "a", "c"]).await;
    assert_eq!(zoo.offered().await, names(&["c", "a", "b", "new"]), "a new one comes last");
    zoo.lists(&["new", "c", "b"]).await;
    assert_eq!(zoo.offered().await, names(&["c", "b", "new"]));

    zoo.rig.bridge.stop().await;
    zoo.rig.bridge.restart().await;
    zoo.ready().await;
    assert_eq!(zoo.offered().await, names(&["c", "b", "new"]), "after a restart");
    fs::write(zoo.path(), listing(&["new", "a", "b", "c"])).expect("it is writable");
    zoo.rig.bridge.kill9();
    zoo.rig.bridge.restart().await;
    zoo.ready().await;
    zoo.lists(&["new", "a", "b", "c"]).await;
    let back = zoo.offered().await;
    assert_eq!(back, names(&["c", "a", "b", "new"]), "one that comes back has its place");
}

/// A server that is away for a while, and one that changes no more than its list's order, leave the
/// digest as it was.
#[tokio::test]
async fn the_digest_of_an_offer_is_that_of_its_order() {
    let zoo = Zoo::start().await;
    let digest = async || -> Value {
        zoo.rig.bridge.api("GET", "/v1/tool-refs", None).await.expect(200)["digest"].clone()
    };
    let first = digest().await;
    for order in [["b", "a", "c"], ["a", "b", "c"], ["c", "a", "b"]] {
        zoo.lists(&order).await;
        assert_eq!(digest().await, first, "{order:?}");
    }
    zoo.lists(&["c", "a"]).await;
    assert_ne!(digest().await, first);
    zoo.lists(&["b", "c", "a"]).await;
    assert_eq!(digest().await, first);
    assert_ne!(first, json!(null));
}
