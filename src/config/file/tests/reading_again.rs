//! A file that is read again while it changes.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::config::{ConfigErrors, ConfigFile, Environment};

const GOOD: &str = "upstream: {sandbox: true}\n";

/// A file of a test, and a secret beside it.
struct Scene {
    dir: TempDir,
    file: ConfigFile,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bridge.yaml");
        fs::write(&path, GOOD).unwrap();
        let env = Environment::bare().with_var("STATE_DIRECTORY", "/var/lib/bridge");
        let (_, file) = ConfigFile::load(path, env).unwrap();
        Self { dir, file }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// What is wrong now, if that is news; `Some(None)` where all is well.
    fn look(&mut self) -> Option<Option<ConfigErrors>> {
        self.file.reload_if_changed().map(Result::err)
    }

    #[track_caller]
    fn look_error(&mut self) -> String {
        self.look().expect("news").expect("a mistake").summary()
    }
}

#[test]
fn the_same_text_is_no_news() {
    let mut scene = Scene::new();
    assert_eq!(scene.look(), None);
    scene.write("bridge.yaml", GOOD);
    assert_eq!(scene.look(), None, "written again");
    scene.write("bridge.yaml", "upstream: {sandbox: true} # really\n");
    assert_eq!(scene.look(), Some(None));
    assert_eq!(scene.look(), None);
    assert!(scene.file.reload().is_ok(), "whoever asks gets it");
}

#[test]
fn a_mistake_is_told_once() {
    let mut scene = Scene::new();
    scene.write("bridge.yaml", "upstream: {sandbox: true}\nmcp:\n  fs: {comand: x}\n");
    let place = format!("{}:3:8: mcp.fs", scene.path("bridge.yaml").display());
    let error = scene.look_error();
    assert!(error.starts_with(&place) && error.contains("`comand`"), "{error}");
    assert_eq!(scene.look(), None);
    scene.write("bridge.yaml", "upstream: {sandbox: true}\nmcp: {fs: {comand: x, b: 1}}\n");
    let error = scene.look_error();
    assert!(error.ends_with("(and 1 more)") && !error.contains('\n'), "{error}");
    scene.write("bridge.yaml", GOOD);
    assert_eq!(scene.look(), Some(None));
}

#[test]
fn a_file_that_goes_away_and_comes_back_is_news_twice() {
    let mut scene = Scene::new();
    fs::remove_file(scene.path("bridge.yaml")).unwrap();
    assert!(scene.look_error().starts_with(scene.path("bridge.yaml").to_str().unwrap()));
    assert_eq!(scene.look(), None);
    scene.write("bridge.yaml", GOOD);
    assert_eq!(scene.look(), Some(None), "the error is over");
}

#[test]
fn a_secret_that_was_missing_is_looked_for() {
    let mut scene = Scene::new();
    let secret = scene.path("secret");
    let text = format!("upstream: {{credential: \"${{file:{}}}\"}}\n", secret.display());
    scene.write("bridge.yaml", &text);
    assert!(scene.look_error().contains("upstream.credential"));
    assert_eq!(scene.look(), None);
    scene.write("secret", "hunter22");
    assert_eq!(scene.look(), Some(None), "the text is the same, and good now");
    scene.write("secret", "hunter33");
    assert_eq!(scene.look(), None, "other secrets are read when somebody asks");
}
