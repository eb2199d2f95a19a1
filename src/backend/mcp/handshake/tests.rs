//! Handshakes with a scripted server, over lines in memory and with the clock stopped: a busy
//! machine is a server that takes long.

use std::sync::Mutex;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::backend::fake::{request, tool_call};
use crate::backend::mcp::Memory;
use crate::backend::mcp::connection::Connection;
use crate::backend::mcp::rpc::FIRST_ID;
use crate::backend::mcp::stdio::linked;
use crate::backend::peer::Peer as _;
use crate::model::answer::Answer;

/// What a server says to a message, and how long after it has read it.
struct Line {
    after: Duration,
    text: String,
}

impl Line {
    fn at_once(text: String) -> Vec<Self> {
        vec![Self { after: Duration::ZERO, text }]
    }

    fn late(seconds: u64, text: String) -> Vec<Self> {
        vec![Self { after: Duration::from_secs(seconds), text }]
    }
}

/// A scripted server and the bridge's side of its pipe.
struct Rig {
    link: Link,
    proposals: Proposals,
    /// The messages that the server has read.
    seen: Arc<Mutex<Vec<Value>>>,
    _server: JoinSet<()>,
}

impl Rig {
    /// A server that begins to read after `start`, and says to each message what `script` gives.
    fn new(start: Duration, script: impl Fn(&Value) -> Vec<Line> + Send + 'static) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let seen = Arc::<Mutex<Vec<Value>>>::default();
        let mut server = JoinSet::new();
        server.spawn(serve(theirs, start, Arc::clone(&seen), script));
        let link = linked("scripted", ours);
        Self { link, proposals: Proposals::default(), seen, _server: server }
    }

    async fn run(&mut self, opening: Opening) -> Result<Agreement, Failure> {
        let Self { link, proposals, seen, .. } = self;
        let mut handshake = PipeHandshake::new(link, opening, proposals, Waits::default());
        handshake.run(|| !seen.lock().unwrap().is_empty()).await
    }

    /// The revision that the handshake agrees on.
    async fn revision(&mut self) -> String {
        let agreement = self.run(Opening::Discover).await.expect("an agreement");
        agreement.info.protocol_version.to_string()
    }

    fn methods(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter_map(|message| Some(message["method"].as_str()?.to_owned())).collect()
    }

    fn last(&self, method: &str) -> Value {
        let seen = self.seen.lock().unwrap();
        let last = seen.iter().rev().find(|message| message["method"] == method);
        last.cloned().unwrap_or_default()
    }

    /// The connection after the handshake.
    async fn connect(mut self) -> (Connection, Memory, Arc<Mutex<Vec<Value>>>, JoinSet<()>) {
        let agreement = self.run(Opening::Discover).await.expect("an agreement");
        let memory = Memory::default();
        let connection = Connection::new(self.link, agreement.info, None, Some(memory.clone()));
        (connection, memory, self.seen, self._server)
    }
}

async fn serve(
    pipe: DuplexStream,
    start: Duration,
    seen: Arc<Mutex<Vec<Value>>>,
    script: impl Fn(&Value) -> Vec<Line> + Send + 'static,
) {
    sleep(start).await;
    let (reader, writer) = split(pipe);
    let writer = Arc::new(tokio::sync::Mutex::new(writer));
    let mut lines = BufReader::new(reader).lines();
    let mut said = JoinSet::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let script = script(&message);
        seen.lock().unwrap().push(message);
        for Line { after, text } in script {
            if text.is_empty() {
                return;
            }
            let writer = Arc::clone(&writer);
            let say = async move {
                sleep(after).await;
                writer.lock().await.write_all(format!("{text}\n").as_bytes()).await.ok();
            };
            // In order, if there is nothing to wait for.
            if after.is_zero() { say.await } else { drop(said.spawn(say)) }
        }
    }
}

fn result(message: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message["id"])
}

fn error(message: &Value, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, message["id"])
}

fn discovered(message: &Value) -> String {
    result(
        message,
        r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}"#,
    )
}

fn initialized(message: &Value) -> String {
    let revision = &message["params"]["protocolVersion"];
    result(
        message,
        &format!(
            r#"{{"protocolVersion":{revision},"capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}"#
        ),
    )
}

/// A server of both eras.
fn both(message: &Value) -> Vec<Line> {
    match message["method"].as_str() {
        Some("server/discover") => Line::at_once(discovered(message)),
        Some("initialize") => Line::at_once(initialized(message)),
        _ => Vec::new(),
    }
}

const NOT_FOUND: &str = r#"{"code":-32601,"message":"Method not found"}"#;

#[tokio::test(start_paused = true)]
async fn revision_of_a_program_does_not_depend_on_how_long_it_starts() {
    for seconds in [0, 9, 12, 40, 110, 280] {
        let mut rig = Rig::new(Duration::from_secs(seconds), both);
        assert_eq!(rig.revision().await, "2026-07-28", "{seconds} s");
        let first = ["server/discover", "initialize"];
        assert!(rig.methods().iter().zip(first).all(|(seen, first)| seen == first));
    }
}

#[tokio::test(start_paused = true)]
async fn modern_program_that_refuses_initialize_may_start_slowly() {
    let mut rig = Rig::new(Duration::from_secs(40), |message| match &message["method"] {
        method if method == "server/discover" => Line::at_once(discovered(message)),
        _ => Line::at_once(error(message, NOT_FOUND)),
    });
    assert_eq!(rig.revision().await, "2026-07-28");
}

/// As the Python SDK refuses it.
#[tokio::test(start_paused = true)]
async fn program_that_says_it_is_modern_may_answer_discover_at_any_time() {
    let mut rig = Rig::new(Duration::ZERO, |message| match message["method"].as_str() {
        Some("server/discover") => Line::late(100, discovered(message)),
        _ => Line::at_once(error(
            message,
            r#"{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}"#,
        )),
    });
    assert_eq!(rig.revision().await, "2026-07-28");
    assert_eq!(rig.methods(), ["server/discover", "initialize"]);
}

#[tokio::test(start_paused = true)]
async fn program_that_is_silent_at_discover_gets_initialize_on_the_same_pipe() {
    let mut rig = Rig::new(Duration::ZERO, |message| match &message["method"] {
        method if method == "initialize" => Line::at_once(initialized(message)),
        _ => Vec::new(),
    });
    let start = Instant::now();
    assert_eq!(rig.revision().await, "2025-11-25");
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(12), "{took:?}");
    tokio::task::yield_now().await;
    let methods = ["server/discover", "initialize", "notifications/initialized"];
    assert!(rig.methods().iter().eq(&methods), "{:?}", rig.methods());
}

#[tokio::test(start_paused = true)]
async fn answer_to_discover_decides_although_initialize_was_answered_first() {
    let mut rig = Rig::new(Duration::ZERO, |message| match &message["method"] {
        method if method == "initialize" => Line::at_once(initialized(message)),
        method if method == "server/discover" => {
            vec![Line { after: Duration::from_millis(10_500), text: discovered(message) }]
        }
        _ => Vec::new(),
    });
    assert_eq!(rig.revision().await, "2026-07-28");
    assert!(rig.link.rpc.handshake.lock().protocol_version.is_none(), "discover fixes none");
}

/// A server that answers `server/discover` after 30 s, and calls with the text of the call.
fn late_discoverer(message: &Value) -> Vec<Line> {
    match message["method"].as_str() {
        Some("server/discover") => Line::late(30, discovered(message)),
        Some("initialize") => Line::at_once(initialized(message)),
        Some("tools/list") => Line::at_once(result(
            message,
            r#"{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#,
        )),
        Some("tools/call") => {
            let text = serde_json::to_string(&message.to_string()).unwrap();
            let content = format!(r#"[{{"type":"text","text":{text}}}]"#);
            let call = format!(r#"{{"resultType":"complete","content":{content}}}"#);
            Line::at_once(result(message, &call))
        }
        _ => Vec::new(),
    }
}

async fn called(connection: &Connection) -> String {
    match connection.call(tool_call(request("t", "{}"))).await.map(|outcome| outcome.answer) {
        Ok(Answer::Result { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn discover_that_is_answered_before_the_first_call_changes_the_revision() {
    let (connection, memory, seen, _server) =
        Rig::new(Duration::ZERO, late_discoverer).connect().await;
    assert_eq!(connection.about().protocol_version.as_deref(), Some("2025-11-25"));
    connection.resolve().await.unwrap();
    timeout(Duration::from_secs(60), connection.changed()).await.expect("its tools are read again");
    assert_eq!(connection.about().protocol_version.as_deref(), Some("2026-07-28"));
    connection.resolve().await.unwrap();
    let call = called(&connection).await;
    let revision = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    assert!(call.contains(revision), "{call}");
    assert_eq!(memory.era(), Some(Era::Modern));
    let listens = async {
        loop {
            let seen = seen.lock().unwrap().clone();
            if let Some(listen) = seen.iter().find(|it| it["method"] == "subscriptions/listen") {
                return listen.to_string();
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let listen = timeout(Duration::from_secs(60), listens).await.expect("it is listened to");
    assert!(listen.contains(revision), "{listen}");
}

#[tokio::test(start_paused = true)]
async fn discover_that_is_answered_after_the_first_call_changes_nothing() {
    let (connection, memory, _seen, _server) =
        Rig::new(Duration::ZERO, late_discoverer).connect().await;
    assert!(!called(&connection).await.contains("2026-07-28"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(connection.about().protocol_version.as_deref(), Some("2025-11-25"));
    assert!(!called(&connection).await.contains("2026-07-28"));
    assert_eq!(memory.era(), None);
}

/// A server that refuses a proposal, and what it agrees to in the end.
#[derive(Clone, Copy)]
struct Picky {
    /// The newest revision that the server accepts.
    newest: &'static str,
    /// The forms of the capability `elicitation` that the server can read.
    readable: &'static [&'static str],
    error: &'static str,
    agreed: &'static str,
    /// The form of the capability in the accepted proposal.
    elicitation: Option<&'static str>,
    proposals: usize,
}

const WHOLE: &str = r#"{"form":{},"url":{}}"#;

const REFUSED: Picky = Picky {
    newest: "2025-03-26",
    readable: &[WHOLE, "{}", "null"],
    error: r#"{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05","2025-03-26"],"requested":"2025-11-25"}}"#,
    agreed: "2025-03-26",
    elicitation: None,
    proposals: 2,
};

const PICKY: [Picky; 8] = [
    REFUSED,
    Picky {
        error: r#"{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}"#,
        newest: "2025-06-18",
        agreed: "2025-06-18",
        elicitation: Some("{}"),
        ..REFUSED
    },
    Picky {
        error: r#"{"code":-32004,"message":"no","data":{"expected":["2025-03-26"]}}"#,
        ..REFUSED
    },
    Picky {
        error: r#"{"code":-32602,"message":"Bad protocol version","data":{"expected":"2024-11-05"}}"#,
        newest: "2024-11-05",
        agreed: "2024-11-05",
        ..REFUSED
    },
    Picky { error: r#"{"code":-32603,"message":"Internal error"}"#, proposals: 3, ..REFUSED },
    Picky {
        error: r#"{"code":-32603,"message":"Unrecognized field \"form\" (class io.modelcontextprotocol.spec.McpSchema$ClientCapabilities$Elicitation)"}"#,
        newest: "2025-11-25",
        readable: &["{}", "null"],
        agreed: "2025-11-25",
        elicitation: Some("{}"),
        ..REFUSED
    },
    Picky {
        error: r#"{"code":-32602,"message":"unknown field `elicitation`, expected `roots`"}"#,
        newest: "2025-11-25",
        readable: &["null"],
        agreed: "2025-11-25",
        proposals: 3,
        ..REFUSED
    },
    Picky {
        newest: "2026-07-28",
        agreed: "2025-11-25",
        elicitation: Some(WHOLE),
        proposals: 1,
        ..REFUSED
    },
];

impl Picky {
    fn answer(&self, message: &Value) -> Vec<Line> {
        let params = &message["params"];
        let revision = params["protocolVersion"].as_str().unwrap_or_default();
        let elicitation = params["capabilities"]["elicitation"].to_string();
        match message["method"].as_str() {
            Some("server/discover") => Line::at_once(error(message, NOT_FOUND)),
            Some("initialize")
                if revision <= self.newest && self.readable.contains(&&*elicitation) =>
            {
                Line::at_once(initialized(message))
            }
            Some("initialize") => Line::at_once(error(message, self.error)),
            _ => Vec::new(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_proposal_is_followed_by_one_that_the_server_accepts() {
    for picky in PICKY {
        let mut rig = Rig::new(Duration::ZERO, move |message| picky.answer(message));
        assert_eq!(rig.revision().await, picky.agreed, "{}", picky.error);
        let accepted = rig.last("initialize");
        let said = accepted["params"]["capabilities"].get("elicitation").map(Value::to_string);
        assert_eq!(said.as_deref(), picky.elicitation, "{}", picky.error);
        let count = rig.methods().iter().filter(|method| *method == "initialize").count();
        assert_eq!(count, picky.proposals, "{}", picky.error);
    }
}

#[tokio::test(start_paused = true)]
async fn revisions_in_the_answer_to_discover_are_proposed() {
    let refused = r#""error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}"#;
    let listed = r#""result":{"supportedVersions":["2025-06-18","2024-11-05"],"capabilities":{}}"#;
    for answer in [refused, listed] {
        let mut rig = Rig::new(Duration::ZERO, move |message| match message["method"].as_str() {
            Some("server/discover") => {
                Line::at_once(format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, message["id"]))
            }
            Some("initialize") => Line::at_once(initialized(message)),
            _ => Vec::new(),
        });
        assert_eq!(rig.revision().await, "2025-06-18");
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_refuses_every_proposal_is_given_up_with_what_was_tried() {
    let mut rig = Rig::new(Duration::ZERO, |message| {
        Line::at_once(error(message, r#"{"code":-32603,"message":"out of order"}"#))
    });
    let failure = rig.run(Opening::Discover).await.unwrap_err();
    let error = rig.proposals.add_summary(failure.error(&rig.link.rpc)).to_string();
    assert!(error.contains("it refuses the handshake: out of order"), "{error}");
    assert!(error.contains("tried with 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"), "{error}");
    assert!(rig.methods().len() <= 9, "{:?}", rig.methods());
}

#[tokio::test(start_paused = true)]
async fn refusal_of_a_remembered_proposal_leads_to_discover() {
    let mut rig = Rig::new(Duration::ZERO, |message| match message["method"].as_str() {
        Some("server/discover") => Line::at_once(discovered(message)),
        _ => Line::at_once(error(
            message,
            r#"{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}"#,
        )),
    });
    let agreement = rig.run(Opening::Initialize(Proposal::newest())).await.unwrap();
    assert_eq!(agreement.info.protocol_version.as_str(), "2026-07-28");
    assert_eq!(rig.methods(), ["initialize", "server/discover"]);
}

#[tokio::test(start_paused = true)]
async fn error_without_an_id_is_about_the_first_unanswered_request() {
    for start in [0, 12] {
        let start = Duration::from_secs(start);
        let mut rig = Rig::new(start, |message| match message["method"].as_str() {
            Some("server/discover") => Line::at_once(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}"#
                    .to_owned(),
            ),
            Some("initialize") => Line::at_once(initialized(message)),
            _ => Vec::new(),
        });
        let begun = Instant::now();
        assert_eq!(rig.revision().await, "2025-11-25");
        assert!(begun.elapsed() <= start, "it is understood at once");
    }
}

#[tokio::test(start_paused = true)]
async fn questions_before_the_handshake_is_done_are_answered() {
    let mut rig = Rig::new(Duration::ZERO, |message| match message["id"].as_str() {
        Some("p") => {
            Line::at_once(r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#.to_owned())
        }
        // Now, and not before, the server answers.
        Some("r") => Line::at_once(discovered(&serde_json::json!({ "id": FIRST_ID }))),
        _ => Line::at_once(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#.to_owned()),
    });
    assert_eq!(rig.revision().await, "2026-07-28");
    let seen = rig.seen.lock().unwrap();
    assert_eq!(seen[1]["result"], serde_json::json!({}));
    assert_eq!(seen[2]["error"]["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn silence_is_an_end_only_after_the_program_has_read() {
    let mut rig = Rig::new(Duration::ZERO, |_| Vec::new());
    let start = Instant::now();
    let failure = rig.run(Opening::Discover).await.unwrap_err();
    assert!(matches!(failure, Failure::Silent), "{failure:?}");
    assert!(start.elapsed() >= Duration::from_secs(120), "{:?}", start.elapsed());

    let mut rig = Rig::new(Duration::ZERO, |_| Vec::new());
    let mut handshake =
        PipeHandshake::new(&rig.link, Opening::Discover, &mut rig.proposals, Waits::default());
    let unread = timeout(Duration::from_secs(3600), handshake.run(|| false)).await;
    assert!(unread.is_err(), "it may be busy with its installation: {unread:?}");
}

#[tokio::test(start_paused = true)]
async fn another_process_is_started_only_if_it_may_do_better() {
    struct Row {
        opening: Opening,
        is_read: bool,
        last_words: &'static str,
        next: Option<&'static str>,
    }
    let again = || Opening::Initialize(Proposal::newest());
    let rows = [
        Row { opening: Opening::Discover, is_read: true, last_words: "", next: Some("2025-11-25") },
        Row { opening: Opening::Discover, is_read: false, last_words: "no key", next: None },
        Row { opening: again(), is_read: true, last_words: "no key", next: None },
        Row {
            opening: again(),
            is_read: true,
            last_words: "Unsupported protocol version 2025-11-25, use 2025-03-26",
            next: Some("2025-03-26"),
        },
    ];
    for Row { opening, is_read, last_words, next } in rows {
        // An empty line stands for the end.
        let mut rig = Rig::new(Duration::ZERO, |_| Line::at_once(String::new()));
        let Rig { link, proposals, .. } = &mut rig;
        let mut handshake = PipeHandshake::new(link, opening, proposals, Waits::default());
        let failure = handshake.run(|| true).await.unwrap_err();
        let proposal = handshake.after_end(&failure, is_read, Some(last_words));
        assert_eq!(proposal.map(|proposal| proposal.to_string()).as_deref(), next, "{last_words}");
    }
}

/// What the bridge answers to its own request would come back, too.
#[tokio::test(start_paused = true)]
async fn program_that_sends_back_what_it_gets_is_told_as_such() {
    let openings = [Opening::Discover, Opening::Initialize(Proposal::newest())];
    for opening in openings {
        let mut rig = Rig::new(Duration::ZERO, |message| Line::at_once(message.to_string()));
        let failure = rig.run(opening).await.unwrap_err();
        assert!(matches!(failure, Failure::Echo), "{failure:?}");
        let error = failure.error(&rig.link.rpc);
        assert!(error.to_string().contains("sends back what it gets"), "{error}");
        assert!(error.own_cure().is_some_and(|cure| cure.contains("`cat`")), "{error:?}");
        assert!(!rig.proposals.add_summary(error).to_string().contains("-32601"));
    }
}

#[tokio::test(start_paused = true)]
async fn answer_to_initialize_without_a_revision_is_told_as_such() {
    for revision in ["20250618", "null", "[]"] {
        let mut rig = Rig::new(Duration::ZERO, move |message| match message["method"].as_str() {
            Some("server/discover") => Line::at_once(error(message, NOT_FOUND)),
            Some("initialize") => Line::at_once(result(
                message,
                &format!(r#"{{"protocolVersion":{revision},"capabilities":{{}}}}"#),
            )),
            _ => Vec::new(),
        });
        let failure = rig.run(Opening::Discover).await.unwrap_err();
        assert!(matches!(failure, Failure::NoRevision), "{failure:?}");
        let error = failure.error(&rig.link.rpc);
        assert!(error.to_string().contains("`protocolVersion` that is a text"), "{error}");
        assert!(error.own_cure().is_some_and(|cure| cure.contains("a text such as")), "{error:?}");
    }
}
