//! Arguments that a server wants as headers, as they arrive there, line by line.

use super::*;

const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{}}"#;

/// A server of 2026-07-28 whose `tools/list` is `lists`, one after the other, and whose calls are
/// answered with `answer`.
async fn modern(
    lists: Vec<String>,
    answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static,
) -> Server {
    let listed = AtomicUsize::new(0);
    server(move |seen| {
        if seen.is("server/discover") {
            return seen.result(DISCOVERED);
        }
        if seen.is("tools/list") {
            let at = listed.fetch_add(1, Ordering::Relaxed).min(lists.len() - 1);
            let tools = &lists[at];
            return seen.result(&format!(
                r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{tools}]}}"#
            ));
        }
        answer(seen)
    })
    .await
}

fn hello(seen: &Seen) -> Vec<u8> {
    seen.result(HELLO)
}

fn tool(name: &str, properties: &str) -> String {
    format!(
        r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{{properties}}}}}}}"#
    )
}

fn marked(name: &str, kind: &str) -> String {
    format!(r#""{name}":{{"type":"{kind}","x-mcp-header":"{name}"}}"#)
}

impl Server {
    /// The raw header lines of the last call that are arguments, in the order of the alphabet.
    fn lines(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let call = seen.iter().rfind(|seen| seen.is("tools/call")).unwrap();
        let lines = call.headers.split("\r\n").filter(|line| line.starts_with("mcp-param-"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// All raw header lines of the last call, and its body.
    fn whole(&self) -> (String, String) {
        let seen = self.seen.lock().unwrap();
        let call = seen.iter().rfind(|seen| seen.is("tools/call")).unwrap();
        (call.headers.clone(), call.body.clone())
    }
}

async fn call_with(peer: &Arc<dyn Peer>, arguments: &str) -> Result<Answer, CallError> {
    timeout(PATIENCE, peer.call(order(arguments)))
        .await
        .expect("in time")
        .map(|outcome| outcome.answer)
}

#[tokio::test]
async fn marked_arguments_arrive_as_headers_and_no_line_more() {
    let all = [("a", "string"), ("b", "string"), ("c", "integer"), ("d", "boolean")];
    let all = all.map(|(name, kind)| marked(name, kind)).join(",");
    let server = modern(vec![tool("t", &all)], hello).await;
    let peer = dial(&server).await;
    peer.resolve().await.unwrap();
    let arguments = r#"{"a":"x\r\nX-Evil: 1\u0000","b":"us-west1","c":4.2e1,"d":true,"e":"no"}"#;
    assert_eq!(call_with(&peer, arguments).await.unwrap(), text("hello"));
    assert_eq!(
        server.lines(),
        [
            "mcp-param-a: =?base64?eA0KWC1FdmlsOiAxAA==?=",
            "mcp-param-b: us-west1",
            "mcp-param-c: 42",
            "mcp-param-d: true",
        ]
    );
    let (headers, body) = server.whole();
    assert!(!headers.to_lowercase().contains("x-evil"), "{headers}");
    assert!(headers.split("\r\n").all(|line| !line.contains(['\r', '\n', '\0'])), "{headers}");
    assert!(body.contains(arguments), "the arguments themselves stay as they were: {body}");

    call_with(&peer, r#"{"a":null,"c":7}"#).await.unwrap();
    assert_eq!(server.lines(), ["mcp-param-c: 7"]);
    let calls = server.count("tools/call");
    let refused = call_with(&peer, r#"{"c":9007199254740993}"#).await.unwrap_err();
    assert!(
        matches!(&refused, CallError::Refused(why) if why.starts_with("tool_input_invalid: /c"))
    );
    assert_eq!(server.count("tools/call"), calls, "it is not made");
}

#[tokio::test]
async fn a_tool_whose_marks_are_bad_is_left_out_alone() {
    let tools = [
        tool("t", &marked("a", "string")),
        tool("number", &marked("a", "number")),
        tool("line", r#""a":{"type":"string","x-mcp-header":"A\r\nX-Evil: 1"}"#),
        tool("twice", &[marked("a", "string"), marked("A", "string")].join(",")),
        tool("plain", r#""a":{"type":"string"}"#),
    ];
    let server = modern(vec![tools.join(",")], hello).await;
    let catalog = dial(&server).await.resolve().await.unwrap();
    let Content::Mcp { tools, .. } = catalog.content() else { panic!("{catalog:?}") };
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["t", "plain"]);
}

/// Revisions before know no marks.
#[tokio::test]
async fn a_server_of_an_older_revision_is_sent_no_such_header() {
    let server = server(|seen| {
        let tools = || tool("t", &[marked("a", "string"), marked("n", "number")].join(","));
        match usual(seen, "s") {
            Some(usual) => usual,
            None if seen.is("tools/list") => seen.result(&format!(r#"{{"tools":[{}]}}"#, tools())),
            None => seen.result(HELLO),
        }
    })
    .await;
    let peer = dial(&server).await;
    assert_eq!(peer.resolve().await.unwrap().tool_count(), 1);
    call_with(&peer, r#"{"a":"x","n":0.5}"#).await.unwrap();
    assert_eq!(server.lines(), [] as [&str; 0]);
}

#[tokio::test]
async fn marks_are_those_of_the_last_list() {
    let lists = vec![
        tool("t", &marked("a", "string")),
        tool("t", &marked("b", "string")),
        tool("t", r#""a":{"type":"string"}"#),
    ];
    let server = modern(lists, hello).await;
    let peer = dial(&server).await;
    for expected in [&["mcp-param-a: x"][..], &["mcp-param-b: y"], &[]] {
        peer.resolve().await.unwrap();
        call_with(&peer, r#"{"a":"x","b":"y"}"#).await.unwrap();
        assert_eq!(server.lines(), expected);
    }
}

#[tokio::test]
async fn a_server_that_misses_a_header_is_asked_for_its_tools_again() {
    let lists = vec![tool("t", &marked("a", "string"))];
    let server = modern(lists, |seen| {
        let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"no Mcp-Param-B"}}"#;
        json(400, &body.replace("\"id\":1", &format!("\"id\":{}", seen.id())))
    })
    .await;
    let peer = dial(&server).await;
    peer.resolve().await.unwrap();
    let refused = call_with(&peer, r#"{"a":"x"}"#).await.unwrap_err();
    assert!(
        matches!(&refused, CallError::Refused(why) if why.contains("Mcp-Param-B")),
        "{refused}"
    );
    timeout(PATIENCE, peer.changed()).await.expect("its tools are to be listed again");
    assert_eq!(server.count("tools/call"), 1);
}
