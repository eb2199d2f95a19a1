//! What a pause costs the next call: one about every ten seconds, to a MANTYX behind TLS that
//! speaks HTTP/2, and to one that does not.
//!
//! A client may not use an idle connection of HTTP/1.1 for longer than the server is known to keep
//! it, so that posts after a pause need a new one. Must not: count the handshake of the run's
//! stream.

use std::{fs, time::Duration};

use super::Setting;
use crate::{
    daemon::Daemon,
    process::Process,
    report::{Findings, Table},
    run::Outcome,
    stats::{self, Samples},
    world::{World, create},
};

pub(super) async fn run(setting: &Setting, findings: &mut Findings) -> Outcome<()> {
    let mut world = World::start().await?;
    let key = rcgen::KeyPair::generate()?;
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    let ca = setting.dir.join("mantyx.pem");
    fs::write(&ca, params.self_signed(&key)?.pem() + &key.serialize_pem())?;
    let ca = ca.to_str().ok_or("the path is not UTF-8")?;

    let (pause, seconds) = setting.size((10_000, 180), (500, 4));
    let plan = format!("calls-stdio-1-{}-1000-{pause}", seconds * 1_000);
    let behind = world.mantyx.to_string();
    let mut under_way = Vec::new();
    for (name, alpn) in [("HTTP/2", "h2,http/1.1"), ("HTTP/1.1", "http/1.1")] {
        let (front, addr) = Process::listening("proxy", &[&behind, ca, alpn]).await?;
        let upstream = format!("base_url: \"https://{addr}\", tls: {{ca: {ca}}}");
        let dir = setting.dir.join(format!("pauses-{}", under_way.len()));
        let program = &setting.arguments.daemon;
        let daemon = Daemon::start_at(program, dir, &upstream, &world.fast_tools()?).await?;
        let run = create(&mut daemon.client(), &plan).await?.0;
        under_way.push((name, front, daemon, run));
    }
    let head: Vec<&str> = ["MANTYX speaks"].into_iter().chain(stats::COLUMNS).collect();
    let mut table = Table::new("a call every ten seconds, stdio, MANTYX over TLS", &head);
    for (name, _front, daemon, run) in under_way {
        let record = world.ended(&run, Duration::from_secs(seconds + 60)).await?;
        record.check(name)?;
        let mut samples = Samples::default();
        samples.round(record.added(1));
        if let Some(found) = samples.quantiles() {
            table.row([name.to_owned()].into_iter().chain(found.cells()));
            findings.json.insert(name.into(), found.json());
        }
        daemon.stop().await?;
    }
    findings.tables.push(table);
    Ok(())
}
