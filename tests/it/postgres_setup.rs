//! What is wrong with the database of replicas is told with its cure, and nothing is started by
//! halves.

use std::process::Output;

use serde_json::Value;

use crate::{
    bridge::{self, Bridge},
    frames::Script,
    harness::ledger_in,
    http::Request,
    mantyx::Mantyx,
    peers,
    postgres::{PASSWORD, Postgres},
    wait,
};

fn config(mantyx: &Mantyx, url: &str) -> String {
    format!("{}state: {{postgres: \"${{env:DATABASE}}\"}}\n# {}\n", mantyx.upstream(), url.len())
}

async fn started(mantyx: &Mantyx, url: &str) -> Bridge {
    Bridge::start_with(&config(mantyx, url), &[("DATABASE", url)]).await
}

/// Waits for a problem of the journal; its message and its cure.
async fn problem(bridge: &Bridge, about: &str) -> (String, String) {
    wait::soon(&format!("a problem should name {about}"), async || {
        let status = bridge.status().await;
        let problems = status["problems"].as_array()?.clone();
        let of_journal = problems.iter().filter(|problem| problem["subject"] == "journal");
        let text = |problem: &Value, key: &str| problem[key].as_str().unwrap_or("").to_owned();
        let mut texts = of_journal.map(|it| (text(it, "message"), text(it, "cure")));
        texts.find(|(message, _)| message.contains(about))
    })
    .await
}

async fn is_ready(bridge: &Bridge) -> bool {
    Request::new("GET", "/readyz").answer(bridge.addr()).await.status == 200
}

async fn doctor(mantyx: &Mantyx, url: &str) -> (Output, String) {
    let dir = tempfile::TempDir::new().expect("a directory");
    let file = dir.path().join("bridge.yaml");
    let text = format!("{}state_dir: {}\n", config(mantyx, url), dir.path().display());
    std::fs::write(&file, text).expect("the directory is writable");
    let mut command = bridge::command();
    command.arg("doctor").arg("-c").arg(&file).env("DATABASE", url);
    // The scripted MANTYX answers on this thread.
    let done = tokio::task::spawn_blocking(move || command.output());
    let done = done.await.expect("it does not panic").expect("the binary is there");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    (done, text)
}

#[tokio::test]
async fn a_start_without_the_database_waits_for_it() {
    let (mantyx, mut postgres) = (Mantyx::start().await, Postgres::new());
    let bridge = started(&mantyx, &postgres.url()).await;
    let (_, cure) = problem(&bridge, "PostgreSQL").await;
    assert!(cure.contains("doctor"), "{cure}");
    assert!(!is_ready(&bridge).await);
    let (done, text) = doctor(&mantyx, &postgres.url()).await;
    assert!(!done.status.success() && text.contains("refused"), "{text}");

    postgres.restart().await;
    bridge.wait_ready().await;
    let (message, cure) = problem(&bridge, "standby").await;
    assert!(message.contains("promoted") && cure.contains("synchronous_standby_names"), "{cure}");
    let (_, text) = doctor(&mantyx, &postgres.url()).await;
    assert!(text.contains("tables are of version 1"), "{text}");
}

#[tokio::test]
async fn doctor_names_the_synchronous_standby() {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let _standby = postgres.standby().await;
    let (_, text) = doctor(&mantyx, &postgres.url()).await;
    assert!(text.contains("synchronous standby (*)"), "{text}");
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_shown() {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let wrong = postgres.url().replace(PASSWORD, "wrong-canary");
    let bridge = started(&mantyx, &wrong).await;
    let (message, _) = problem(&bridge, "password").await;
    let (done, text) = doctor(&mantyx, &wrong).await;
    assert!(!done.status.success() && text.contains("correct the user and the password"), "{text}");
    let status = bridge.status().await.to_string();
    for told in [message, text, status, bridge.log()] {
        assert!(!told.contains("canary"), "{told}");
    }
}

#[tokio::test]
async fn later_tables_and_another_mantyx_are_refused() {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let first = started(&mantyx, &postgres.url()).await;
    first.wait_ready().await;
    wait::soon("the group should have its MANTYX", async || {
        let kept =
            postgres.query("select count(*) from mantyx_bridge.record where kind = 'upstream'");
        (kept == ["1"]).then_some(())
    })
    .await;

    let elsewhere = Mantyx::start().await;
    let second = started(&elsewhere, &postgres.url()).await;
    let (message, _) = problem(&second, "another MANTYX").await;
    assert!(message.contains(&mantyx.url()), "{message}");
    assert!(!is_ready(&second).await);
    assert_eq!(postgres.query("select count(*) from mantyx_bridge.replica"), ["1"]);

    postgres.query("update mantyx_bridge.meta set version = 99");
    let third = started(&mantyx, &postgres.url()).await;
    let (message, _) = problem(&third, "version 99").await;
    assert!(message.contains("later"), "{message}");
    let log = third.log();
    assert!(log.contains("version 99") && log.contains("upgrade"), "the log says so: {log}");
    assert_eq!(log.matches("version 99").count(), 1, "once, though it is tried again: {log}");
    let (done, told) = doctor(&mantyx, &postgres.url()).await;
    assert!(!done.status.success() && told.contains("version 99"), "{told}");
    postgres.query("update mantyx_bridge.meta set version = 1, min_binary = '7.0'");
    let fourth = started(&mantyx, &postgres.url()).await;
    problem(&fourth, "7.0").await;
}

#[tokio::test]
async fn groups_of_one_schema_share_nothing() {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let one = started(&mantyx, &postgres.url()).await;
    let config = config(&mantyx, "").replace("{postgres", "{group: other, postgres");
    let other = Bridge::start_with(&config, &[("DATABASE", &postgres.url())]).await;
    for bridge in [&one, &other] {
        bridge.wait_ready().await;
        wait::soon("it should be alone", async || {
            let request = bridge.request("GET", "/v1/status");
            let request = request.header("X-Bridge-Operator", &bridge.operator());
            let status = request.answer(bridge.addr()).await.expect(200);
            (status["replicas"].as_array()?.len() == 1).then_some(())
        })
        .await;
    }
}

#[test]
fn address_of_no_database_is_a_mistake_of_the_file() {
    for (url, about) in [("nonsense", "no address"), ("", "no address"), ("host=", "no address")] {
        let dir = tempfile::TempDir::new().expect("a directory");
        let file = dir.path().join("bridge.yaml");
        let text = format!(
            "upstream: {{base_url: 'http://127.0.0.1:1', credential: x}}\nstate: {{postgres: '{url}'}}\n"
        );
        std::fs::write(&file, text).expect("the directory is writable");
        let mut command = bridge::command();
        let checked = command.arg("check").arg("-c").arg(&file).output().expect("it is there");
        let told = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
        assert!(told.contains(about), "{url}: {told}");
    }
}

/// Nothing has to be written for that: behind a load balancer, nothing comes before it is ready.
#[tokio::test]
async fn an_idle_replica_is_ready_again_when_its_database_is() {
    let (mantyx, mut postgres) = (Mantyx::start().await, Postgres::start().await);
    let bridge = started(&mantyx, &postgres.url()).await;
    bridge.wait_ready().await;
    let last = "select count(*) from mantyx_bridge.record where kind = 'upstream'";
    wait::soon("its first write should be done", async || {
        (postgres.query(last) == ["1"]).then_some(())
    })
    .await;
    postgres.stop().await;
    wait::soon("the replica should miss its database", async || {
        (!is_ready(&bridge).await).then_some(())
    })
    .await;
    postgres.restart().await;
    bridge.wait_ready().await;
}

async fn with_tools(mantyx: &Mantyx, postgres: &Postgres, dir: &tempfile::TempDir) -> Bridge {
    let plain = peers::ledger(&ledger_in(dir), &[]);
    let config = format!("{}mcp:\n  plain: {plain}\n", config(mantyx, &postgres.url()));
    let bridge = Bridge::start_with(&config, &[("DATABASE", &postgres.url())]).await;
    bridge.wait_ready().await;
    bridge
}

/// What the planner believes of tables that fill and empty is wrong. A write that reads all records
/// of the group gets slower with each call.
#[tokio::test]
async fn a_write_reads_the_records_that_it_names_and_no_others() {
    const CALLS: usize = 100;
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let dir = tempfile::TempDir::new().expect("a directory");
    let mut bridge = with_tools(&mantyx, &postgres, &dir).await;
    let ids: Vec<String> = (0..CALLS).map(|number| format!("tu_{number}")).collect();
    let script = ids.iter().fold(Script::new(), |script, id| {
        script.mcp(id, "plain", "plain_note", r#"{"text":"x"}"#).answered(id)
    });
    mantyx.script(script.until("counted").done());
    bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    mantyx.answer(&ids[CALLS - 1]).await;
    // The processes of its connections tell what they have counted when they end.
    bridge.stop().await;
    let read = wait::soon("PostgreSQL should have counted", async || {
        let read = "select (select sum(idx_tup_read) from pg_stat_user_indexes \
                            where relname = 'record') + seq_tup_read \
                    from pg_stat_user_tables where relname = 'record' and not exists \
                    (select from pg_stat_activity where application_name = 'mantyx-bridge')";
        let read: usize = postgres.query(read).first()?.parse().ok()?;
        (read >= CALLS).then_some(read)
    })
    .await;
    assert!(read < 20 * CALLS, "{read} rows were read for {CALLS} calls");
}

/// The thread that writes reads its connection only then.
#[tokio::test]
async fn a_connection_that_broke_unnoticed_fails_no_write() {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let dir = tempfile::TempDir::new().expect("a directory");
    let bridge = with_tools(&mantyx, &postgres, &dir).await;
    let run = async |text: &str| {
        mantyx.script(Script::new().delta(text).done());
        bridge.post_run(r#"{"modelId":"m","prompt":"hi"}"#).await;
    };
    run("a").await;
    let ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                 where application_name = 'mantyx-bridge' and query like '%Writes one batch%'";
    wait::soon("the connection should be ended", async || {
        (postgres.query(ended) == ["1"]).then_some(())
    })
    .await;
    wait::soon("PostgreSQL should have closed it", async || {
        (postgres.query(ended) == ["0"]).then_some(())
    })
    .await;
    run("b").await;
    wait::soon("both runs should be written", async || {
        let runs = postgres.query("select count(*) from mantyx_bridge.run");
        (runs == ["2"]).then_some(())
    })
    .await;
    let metrics = bridge.api("GET", "/metrics", None).await.text();
    assert!(metrics.contains("\nmantyx_bridge_journal_errors_total 0\n"), "{metrics}");
}

/// Two processes of one state directory would write over each other's catalogs and pins.
#[tokio::test]
async fn a_state_directory_is_one_replicas() {
    let (mantyx, postgres) = (Mantyx::start().await, Postgres::start().await);
    let mut bridge = started(&mantyx, &postgres.url()).await;
    let mut command = bridge::command();
    command.args(["serve", "-c"]).arg(bridge.config_path()).env("DATABASE", postgres.url());
    let second = tokio::task::spawn_blocking(move || command.output());
    let second = second.await.expect("it does not panic").expect("the binary is there");
    assert_eq!(second.status.code(), Some(1));
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    let whose = format!("as process {} at {};", bridge.process().pid(), bridge.url());
    assert!(told.contains("a mantyx-bridge runs already") && told.contains(&whose), "{told}");
}
