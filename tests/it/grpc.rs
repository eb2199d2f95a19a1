//! A2A over gRPC, against an agent on the official Python SDK, which is on grpcio.

use std::{fs, time::Duration};

use mantyx_bridge::internals::{A2aBinding, CallError, Content, NotRead};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::{
    a2a_peers::{self as a2a, Agent},
    certs::Authority,
    frames::Script,
    gate::{CLIENT, Gate, Rules},
    harness::Harness,
    peers::fetch,
    tls_front::{Front, client_files},
    wait,
};

const GRPC: A2aBinding = A2aBinding::Grpc;

async fn start(arguments: &[&str]) -> Agent {
    let arguments = [&["--bindings", "jsonrpc,http+json,grpc"], arguments].concat();
    a2a::start(fetch::python(), "a2a_v1_agent.py", &arguments).await
}

/// A bridge whose only backend is the agent, over gRPC.
async fn rig(agent: &Agent, keys: &str) -> Harness {
    rig_in_state(agent, keys, "ready").await
}

/// The same, where the agent comes into this state.
async fn rig_in_state(agent: &Agent, keys: &str, state: &str) -> Harness {
    let url = &agent.url;
    let config = format!(
        "a2a:\n  hr: {{url: \"{url}\", transport: grpc, allow_hosts: [127.0.0.1]{keys}}}\n"
    );
    let rig = Harness::bare(&config).await;
    rig.bridge.wait_backend("hr", state).await;
    rig
}

#[tokio::test]
async fn an_agent_does_all_that_it_does_over_the_others() {
    let mut agent = start(&[]).await;
    a2a::check(&mut agent, GRPC, "1.0", true).await;
}

#[tokio::test]
async fn an_agent_that_does_not_stream() {
    let mut agent = start(&["--no-streaming"]).await;
    a2a::check(&mut agent, GRPC, "1.0", false).await;
}

#[tokio::test]
async fn a_card_that_promises_too_much_is_found_out() {
    let agent = start(&["--no-streaming"]).await;
    let address = address(&agent).await;
    let streaming = |card: String| {
        let card = card.replace(&format!("\"{address}\""), &format!("\"http://{address}\""));
        let mut card: Value = serde_json::from_str(&card).unwrap();
        card["capabilities"]["streaming"] = true.into();
        card.to_string()
    };
    let peer = a2a::dial_with(&agent, GRPC, streaming).await;
    assert_eq!(a2a::result(&peer, "long 3").await, "worked 3");
}

#[tokio::test]
async fn a_task_outlives_the_bridge() {
    for arguments in [[].as_slice(), &["--no-streaming"]] {
        let agent = start(arguments).await;
        a2a::check_resume(agent, &[GRPC], &format!("{arguments:?}")).await;
    }
}

#[tokio::test]
async fn grpc_comes_after_the_other_bindings_unless_the_operator_says_so() {
    let agent = start(&["--bindings", "grpc,http+json"]).await;
    let chosen = async |keys: &str| {
        let rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"{keys}}}\n", agent.url)).await;
        rig.bridge.wait_backend("hr", "ready").await;
        rig.bridge.backend("hr").await["transport"].clone()
    };
    assert_eq!(chosen(", allow_hosts: [127.0.0.1]").await, "http-json");
    assert_eq!(chosen(", transport: grpc, allow_hosts: [127.0.0.1]").await, "grpc");
    let agent = start(&["--bindings", "grpc"]).await;
    let rig = Harness::bare(&format!("a2a:\n  hr: {{url: \"{}\"}}\n", agent.url)).await;
    let refused = wait::soon("another port should be refused", async || {
        rig.bridge.backend("hr").await["lastError"].as_str().map(str::to_owned)
    });
    let refused = refused.await;
    assert!(refused.contains("not in `allow_hosts`"), "{refused}");
    let problems = rig.bridge.status().await["problems"].to_string();
    assert!(problems.contains("add `127.0.0.1:"), "{problems}");
}

#[tokio::test]
async fn a_reply_of_any_size_comes_or_is_refused() {
    let agent = start(&[]).await;
    let peer = a2a::dial(&agent, Some(GRPC)).await;
    assert_eq!(a2a::result(&peer, "big 3000000").await.len(), 3_000_000);
    let error = a2a::call(&peer, "big 9000000").await.unwrap_err();
    assert!(
        matches!(&error, CallError::NotRead(NotRead::TooLarge { size: Some(9_000_000..), .. })),
        "{error}"
    );
    assert_eq!(a2a::result(&peer, "msg on").await, "on", "the connection goes on");
}

#[tokio::test]
async fn headers_are_metadata() {
    let agent = start(&[]).await;
    let rig = rig(&agent, ", headers: {X-Team: blue}, auth: {bearer: hunter2}").await;
    for (header, value) in
        [("x-team", "blue"), ("authorization", "Bearer hunter2"), ("a2a-version", "1.0")]
    {
        let script = Script::new().a2a(header, "hr", &format!("header {header}"));
        rig.run(script.answered(header).done()).await;
        assert_eq!(rig.mantyx.answer(header).await["result"], value);
    }
}

#[tokio::test]
async fn tls_is_checked_against_the_roots_of_the_host() {
    let dir = TempDir::new().unwrap();
    let roots = dir.path().join("roots.pem");
    let roots = roots.to_str().unwrap();
    let agent = start(&["--grpc-tls", roots]).await;
    let mut rig = rig_in_state(&agent, "", "degraded").await;
    rig.run(Script::new().a2a("tu_1", "hr", "msg x").answered("tu_1").done()).await;
    let error = rig.mantyx.answer("tu_1").await["error"].clone();
    assert!(error.as_str().is_some_and(|error| !error.contains("OUTCOME_UNKNOWN")), "{error}");
    // Where the system's own certificates are looked for.
    rig.bridge.stop().await;
    rig.bridge.set_env(&[("SSL_CERT_FILE", roots)]);
    rig.bridge.restart().await;
    rig.bridge.wait_backend("hr", "ready").await;
    rig.run(Script::new().a2a("tu_2", "hr", "msg x").answered("tu_2").done()).await;
    assert_eq!(rig.mantyx.answer("tu_2").await["result"], "x");
}

/// The `tls` of an agent is that of its gRPC, too.
#[tokio::test]
async fn a_private_authority_and_a_certificate_are_those_of_grpc_too() {
    let agent = start(&[]).await;
    let catalog = a2a::dial(&agent, None).await.resolve().await.unwrap();
    let Content::A2a { card, .. } = catalog.content() else { panic!("{catalog:?}") };
    let address = address(&agent).await;
    let authority = Authority::new();
    let front = Front::before(&address, &authority, Some(&authority), "h2").await;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("card.json");
    fs::write(&path, card.get().replace(&address, &front.url())).unwrap();
    let files = |name: &str, ca: &Authority, signer: &Authority| {
        let dir = dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        client_files(&dir, ca, &signer.sign(&["bridge.acme"]))
    };
    let (right, other) = (files("right", &authority, &authority), Authority::new());
    let (wary, strange) = (files("wary", &other, &authority), files("strange", &authority, &other));
    let entry = |name: &str, tls: &str| {
        format!("  {name}: {{card_file: {}, transport: grpc, {tls}}}\n", path.display())
    };
    let entries = [("hr", &right), ("wary", &wary), ("strange", &strange)];
    let entries = entries.map(|(name, tls)| entry(name, tls)).concat();
    let rig = Harness::bare(&format!("a2a:\n{entries}")).await;
    let mut script = Script::new();
    for name in ["hr", "wary", "strange"] {
        // The question of its endpoint shows what a call would.
        let state = if name == "hr" { "ready" } else { "degraded" };
        rig.bridge.wait_backend(name, state).await;
        script = script.a2a(name, name, "task x").answered(name);
    }
    rig.run(script.done()).await;
    assert_eq!(rig.mantyx.answer("hr").await["result"], "x");
    for name in ["wary", "strange"] {
        assert!(rig.mantyx.answer(name).await["error"].is_string(), "{name}");
    }
    assert_eq!(front.let_in(), 1);
    let log = rig.bridge.log();
    // Why the other one is not let in can be lost with the connection: TLS 1.3 says it afterwards.
    let why = |line: &str| line.contains("\"wary\"") && line.contains("authority");
    assert!(log.lines().any(why), "{log}");
}

#[tokio::test]
async fn a_token_that_was_refused_is_replaced() {
    let gate = Gate::start(Rules::default()).await;
    let agent = start(&["--grpc-token"]).await;
    let (id, secret) = CLIENT;
    let keys = format!(
        ", auth: {{oauth: {{client_id: {id}, client_secret: {secret}, token_url: \"{}/token\"}}}}",
        gate.url()
    );
    let rig = rig(&agent, &keys).await;
    rig.run(Script::new().a2a("tu_1", "hr", "task x").answered("tu_1").done()).await;
    assert_eq!(rig.mantyx.answer("tu_1").await["result"], "x");
    assert_eq!(gate.issued(), 2);
}

#[tokio::test]
async fn refusal_of_the_agent_is_told() {
    let agent = start(&["--grpc-token"]).await;
    let peer = a2a::dial(&agent, Some(GRPC)).await;
    let error = a2a::call(&peer, "msg x").await.unwrap_err();
    let why = "gRPC status UNAUTHENTICATED: the token has expired";
    assert!(matches!(&error, CallError::Denied(text) if text == why), "{error}");
    drop(agent);
    // Until it is seen that the connection is gone, a message may have been on its way.
    wait::soon("an agent that is gone should be sent nothing", async || {
        let error = a2a::call(&peer, "msg x").await.unwrap_err();
        matches!(error, CallError::NotSent(_)).then_some(())
    })
    .await;
}

/// Where the card says that the agent speaks gRPC: `host:port`.
async fn address(agent: &Agent) -> String {
    let catalog = a2a::dial(agent, None).await.resolve().await.unwrap();
    let Content::A2a { card, .. } = catalog.content() else { panic!("{catalog:?}") };
    let card: Value = serde_json::from_str(card.get()).unwrap();
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let grpc = interfaces.iter().find(|interface| interface["protocolBinding"] == "GRPC").unwrap();
    grpc["url"].as_str().unwrap().to_owned()
}

/// Passes connections on to `agent`, and breaks all that are open when it is told to.
async fn cutter(tasks: &mut JoinSet<()>, agent: String) -> (u16, watch::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    let (cut, cuts) = watch::channel(());
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&agent).await.unwrap();
            let mut cuts = cuts.clone();
            cuts.mark_unchanged();
            connections.spawn(async move {
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => (),
                    _ = cuts.changed() => (),
                }
            });
        }
    });
    (own, cut)
}

#[tokio::test]
async fn a_break_leaves_open_what_the_agent_did() {
    for arguments in [[].as_slice(), &["--no-streaming"]] {
        let mut agent = start(arguments).await;
        let address = address(&agent).await;
        let mut tasks = JoinSet::new();
        let (own, cut) = cutter(&mut tasks, address.clone()).await;
        let change = |card: String| card.replace(&address, &format!("http://127.0.0.1:{own}"));
        let peer = a2a::dial_with(&agent, GRPC, change).await;
        let breaking = async {
            assert!(agent.says("MESSAGE mute", Duration::from_secs(5)).await);
            cut.send(()).unwrap();
        };
        let (answer, ()) = tokio::join!(a2a::call(&peer, "mute"), breaking);
        let error = answer.unwrap_err();
        assert!(matches!(&error, CallError::Lost(_)), "{arguments:?}: {error}");
        assert!(!agent.says("MESSAGE", Duration::from_millis(300)).await, "{arguments:?}");
        // The next call has a connection of its own.
        assert_eq!(a2a::result(&peer, "msg x").await, "x");
    }
}

#[tokio::test]
async fn a_bridge_that_was_killed_picks_its_task_up_again() {
    let mut agent = start(&[]).await;
    let mut rig = rig(&agent, "").await;
    rig.run(Script::new().a2a("tu_1", "hr", "early 40").answered("tu_1").done()).await;
    a2a::picks_its_task_up_again(&mut rig, &mut agent).await;
}
