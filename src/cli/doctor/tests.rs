//! What the doctor says of certificates, of what takes too long, and of whom.

use super::report::Verdict;
use super::*;

#[tokio::test(start_paused = true)]
async fn check_that_takes_too_long_is_told_with_the_steps_before() {
    let examined = bounded("mcp", "slow", async |check: &mut Check| {
        check.begin("dns");
        check.ok("found");
        check.begin("tcp");
        std::future::pending::<()>().await;
    });
    let examined = examined.await;
    let steps: Vec<_> = examined.steps.iter().map(|step| (step.step, step.verdict)).collect();
    assert_eq!(steps, [("dns", Verdict::Ok), ("tcp", Verdict::Fail)]);
    assert!(examined.steps[1].finding.contains("45 s"), "{examined:?}");
}

#[test]
fn named_backends_alone_are_examined() {
    let text = "upstream: {sandbox: true}\nstate_dir: /tmp/x\na2a: {a: {bundled: true}}\n\
                mcp: {b: {command: cat}}\n";
    let config = Config::parse(text, Path::new("bridge.yaml"), &Environment::bare()).unwrap();
    let names = |only: &[&str]| {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        let chosen = chosen(&config, &only)?;
        Ok::<_, Failure>(chosen.iter().map(|one| one.name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(names(&[]).unwrap(), ["a", "b"]);
    assert_eq!(names(&["b"]).unwrap(), ["b"]);
    assert!(matches!(names(&["b", "c"]), Err(Failure::Usage(why)) if why.contains("`c`")));
}
