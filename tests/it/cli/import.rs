//! `import`: the files of other products, and that what is printed of them is good and no secret.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{FAILED, OK, check, run};

const CANARY: &str = "canary7Secret9Value3x";

fn file(dir: &TempDir, text: &str) -> String {
    let path = dir.path().join("mcp.json");
    fs::write(&path, text).expect("the test's directory is writable");
    path.to_str().expect("a path of the tests is UTF-8").to_owned()
}

#[tokio::test]
async fn imported_file_passes_check() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = file(
        &dir,
        "{ // mine\n\"mcpServers\": {\"my-fs\": {\"command\": \"cat\", \"timeout\": 5,},\n\
         \"web\": {\"url\": \"https://w.test/mcp\", \"headers\": {\"X-Api-Key\": \
         \"canary7Secret9Value3x\"}}}}",
    );
    let shown = run(&["import", &path]).await.expect(OK);
    assert!(!format!("{}{}", shown.out, shown.err).contains(CANARY), "{}{}", shown.out, shown.err);
    assert!(shown.err.contains("export WEB_X_API_KEY="), "what to set: {}", shown.err);
    assert!(shown.err.contains("timeout`, 5, is read as 5s"), "what was unclear: {}", shown.err);
    // The variable is one that is set for every program here.
    let yaml = shown.out.replace("WEB_X_API_KEY", "HOME");
    let good = check(&format!("upstream: {{sandbox: true}}\n{yaml}"), &["--json"]).await;
    let plan = good.expect(OK).json();
    assert_eq!(plan["plan"]["backends"][0]["name"], "my_fs", "{plan}");
    assert_eq!(plan["plan"]["backends"][1]["headers"][0], "x-api-key", "{plan}");
}

#[tokio::test]
async fn import_of_an_unknown_key_exits_with_1_and_names_its_path() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let path = file(
        &dir,
        r#"{"mcpServers": {"fs": {"command": "cat", "onlyTools": ["ls"]},
                           "db": {"command": "cat", "excludeTools": ["rm"]}}}"#,
    );
    let ran = run(&["import", &path]).await.expect(FAILED);
    assert!(ran.err.contains("`mcpServers.fs.onlyTools`"), "{}", ran.err);
    let good = check(&format!("upstream: {{sandbox: true}}\n{}", ran.out), &["--json"]).await;
    let plan = good.expect(OK).json();
    let names: Vec<_> =
        plan["plan"]["backends"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
    assert_eq!(names, ["db"], "the other one is off: {plan}");
    assert!(ran.out.contains("deny:\n      - rm"), "{}", ran.out);
}

#[tokio::test]
async fn entry_that_cannot_be_imported_is_told() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    for (text, why) in [("[", "not JSON"), ("{\"other\": {}}", "mcpServers")] {
        let path = file(&dir, text);
        let ran = run(&["import", &path]).await.expect(FAILED);
        assert!(ran.err.contains(why) && ran.err.contains(&path), "{}", ran.err);
    }
    let missing = Path::new("no-such.json").display().to_string();
    run(&["import", &missing]).await.expect(FAILED);
}
