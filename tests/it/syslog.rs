//! The audit log at real receivers: rsyslog and syslog-ng, over the socket of the host, TCP and
//! TLS; while they restart, too.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    certs::Authority,
    frames::Script,
    harness::{Harness, new_dir},
    peers::debian,
    ports,
    process::Group,
    wait,
};

/// A receiver that writes the text of each message, as it has read it, to a file of lines.
struct Receiver {
    dir: TempDir,
    address: SocketAddr,
    command: fn(&Path) -> Command,
    process: Option<Group>,
}

impl Receiver {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn rsyslog() -> Self {
        let (dir, address) = (new_dir(), ports::free());
        let path = dir.path().display();
        let config = format!(
            r#"
module(load="imuxsock" SysSock.Use="off")
module(load="imptcp")
template(name="whole" type="list") {{
    property(name="programname") constant(value=" ") property(name="syslogfacility")
    constant(value=" ") property(name="msg" droplastlf="on") constant(value="\n")
}}
input(type="imuxsock" Socket="{path}/log")
input(type="imptcp" address="{}" port="{}")
action(type="omfile" file="{path}/out" template="whole")
"#,
            address.ip(),
            address.port()
        );
        Self::with(dir, address, &config, |dir| {
            let mut command = Command::new(debian::program("rsyslogd", "rsyslog"));
            let modules = Path::new("/usr/lib/x86_64-linux-gnu/rsyslog");
            if !modules.exists() {
                command.arg("-M").arg(debian::files("rsyslog", "usr/lib/x86_64-linux-gnu/rsyslog"));
            }
            command.args(["-n", "-i"]).arg(dir.join("pid")).arg("-f").arg(dir.join("config"));
            command
        })
    }

    fn syslog_ng(authority: &Authority) -> Self {
        let (dir, address) = (new_dir(), ports::free());
        let pair = authority.sign(&["127.0.0.1"]);
        fs::write(dir.path().join("cert.pem"), &pair.cert).expect("writable");
        fs::write(dir.path().join("key.pem"), &pair.key).expect("writable");
        let path = dir.path().display();
        let config = format!(
            r#"@version: 3.38
source s {{
    unix-dgram("{path}/log");
    syslog(ip("{}") port({}) transport("tls") tls(
        key-file("{path}/key.pem") cert-file("{path}/cert.pem") peer-verify(optional-untrusted)));
}};
destination d {{ file("{path}/out" template("$PROGRAM $FACILITY_NUM $MSG\n")); }};
log {{ source(s); destination(d); }};
"#,
            address.ip(),
            address.port()
        );
        Self::with(dir, address, &config, |dir| {
            let mut command = Command::new(debian::program("syslog-ng", "syslog-ng-core"));
            let modules = Path::new("usr/lib/syslog-ng/3.38");
            if !Path::new("/").join(modules).exists() {
                let path = debian::files("syslog-ng-core", "").join(modules);
                command.arg(format!("--module-path={}", path.display()));
            }
            command.args(["-F", "--no-caps", "-f"]).arg(dir.join("config"));
            for (option, file) in [("-R", "persist"), ("-p", "pid"), ("-c", "control")] {
                command.arg(option).arg(dir.join(file));
            }
            command
        })
    }

    fn with(
        dir: TempDir,
        address: SocketAddr,
        config: &str,
        command: fn(&Path) -> Command,
    ) -> Self {
        fs::write(dir.path().join("config"), config).expect("writable");
        Self { dir, address, command, process: None }
    }

    /// Starts it, and waits until its socket is there.
    async fn start(&mut self) {
        let dir = self.dir.path();
        let process = Group::spawn(&mut (self.command)(dir), &dir.join("its-log"));
        let process = self.process.insert(process);
        let socket = dir.join("log");
        wait::soon("the receiver should listen", async || {
            assert!(process.exited().is_none(), "{}", process.log());
            (socket.exists() && std::net::TcpStream::connect(self.address).is_ok()).then_some(())
        })
        .await;
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill9();
        let _was_there = fs::remove_file(self.socket());
    }

    /// Waits for the lines with these ids; each must be whole, and once.
    async fn has(&self, ids: &[&str]) {
        wait::soon(&format!("{ids:?} should arrive"), async || {
            let text = fs::read_to_string(self.dir.path().join("out")).unwrap_or_default();
            let json = text.lines().filter_map(|line| line.strip_prefix("mantyx-bridge 13 "));
            let calls = json.map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
            let seen: Vec<String> =
                calls.map(|call| call["toolUseId"].as_str().expect("an id").to_owned()).collect();
            (seen == ids).then_some(())
        })
        .await;
    }
}

async fn bridge(to: &str, more: &str) -> Harness {
    Harness::with("", &[], &format!("audit: {{syslog: {{to: \"{to}\"{more}}}}}\n")).await
}

async fn note(rig: &Harness, id: &str) {
    rig.run(Script::one_call(id, "plain", "plain_note", r#"{"text":"ü"}"#)).await;
    rig.mantyx.answer(id).await;
}

async fn audit_problem(rig: &Harness) -> Option<String> {
    let status = rig.bridge.status().await;
    let problems = status["problems"].as_array()?;
    let problem = problems.iter().find(|problem| problem["subject"] == "audit")?;
    Some(problem["message"].as_str()?.to_owned())
}

#[tokio::test]
async fn rsyslog_gets_each_line_on_the_socket_of_the_host() {
    let mut receiver = Receiver::rsyslog();
    receiver.start().await;
    let rig = bridge(&format!("unix:{}", receiver.socket().display()), "").await;
    note(&rig, "tu_1").await;
    note(&rig, "tu_2").await;
    receiver.has(&["tu_1", "tu_2"]).await;
}

#[tokio::test]
async fn rsyslog_that_is_away_over_tcp_gets_the_lines_when_it_is_back() {
    let mut receiver = Receiver::rsyslog();
    receiver.start().await;
    let rig = bridge(&format!("tcp://{}", receiver.address), "").await;
    note(&rig, "tu_1").await;
    receiver.has(&["tu_1"]).await;
    // Until the line counts as sent, the bridge would send it to the next receiver, too.
    wait::soon("the line should count as sent", async || {
        let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
        metrics.contains("mantyx_bridge_audit_syslog_lines_total 1").then_some(())
    })
    .await;
    receiver.kill();
    note(&rig, "tu_2").await;
    wait::soon("the problem should be told", async || {
        audit_problem(&rig).await.filter(|message| message.contains("tcp://")).map(drop)
    })
    .await;
    note(&rig, "tu_3").await;
    receiver.start().await;
    receiver.has(&["tu_1", "tu_2", "tu_3"]).await;
    wait::soon("the problem should be over", async || {
        audit_problem(&rig).await.is_none().then_some(())
    })
    .await;
    let metrics = rig.bridge.api("GET", "/metrics", None).await.text();
    for line in ["audit_syslog_lines_total 3", "audit_syslog_lines_lost_total 0"] {
        assert!(metrics.contains(&format!("mantyx_bridge_{line}")), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn syslog_ng_gets_each_line_over_tls_if_its_certificate_is_trusted() {
    let authority = Authority::new();
    let mut receiver = Receiver::syslog_ng(&authority);
    receiver.start().await;
    let to = format!("tls://{}", receiver.address);
    let untrusting = bridge(&to, "").await;
    note(&untrusting, "tu_0").await;
    wait::soon("an unknown authority should be told", async || {
        audit_problem(&untrusting).await.filter(|message| message.contains("certificate")).map(drop)
    })
    .await;
    let ca = receiver.dir.path().join("ca.pem");
    fs::write(&ca, authority.pem()).expect("writable");
    let rig = bridge(&to, &format!(", tls: {{ca: {}}}", ca.display())).await;
    note(&rig, "tu_1").await;
    note(&rig, "tu_2").await;
    receiver.has(&["tu_1", "tu_2"]).await;
}

#[tokio::test]
async fn syslog_ng_gets_each_line_on_the_socket_of_the_host() {
    let mut receiver = Receiver::syslog_ng(&Authority::new());
    receiver.start().await;
    let rig = bridge(&format!("unix:{}", receiver.socket().display()), "").await;
    note(&rig, "tu_1").await;
    receiver.has(&["tu_1"]).await;
}
