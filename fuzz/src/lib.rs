//! What must hold for any input, one function a fuzz target. A panic is a finding.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use bytes::Bytes;
use mantyx_bridge::internals::{
    Accepted, Answer, BackendName, Body, Card, Catalog, Config, Content, Environment, Event,
    Fields, Framer, InputSchema, Members, Mode, Naming, Node, Offer, OnUnavailable, RefKind,
    RunKind, Selection, Source, Spec, a2a, journal, mcp,
    signature::{self, Algorithm, Key},
};
use serde_json::value::RawValue;

/// Cut into frames, a stream says the same wherever its packets were cut, and loses nothing.
pub fn sse(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let (mut whole, kept) = frames(stream, stream.len().max(1));
    let (mut pieces, _) = frames(stream, usize::from(size).max(1));
    // A CR and an LF between frames are one blank line or two, depending on the packets.
    for frames in [&mut whole, &mut pieces] {
        frames.retain(|fields| *fields != Fields::default());
    }
    assert_eq!(whole, pieces, "packets make no difference");
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    assert!(stream.starts_with(&kept), "frames are the bytes as they came");
}

/// The fields of all frames of `stream`, pushed in pieces of `size` bytes, and their bytes.
fn frames(stream: &[u8], size: usize) -> (Vec<Fields>, Vec<u8>) {
    let mut framer = Framer::new(1 << 20);
    let (mut fields, mut bytes) = (Vec::new(), Vec::new());
    for piece in stream.chunks(size) {
        framer.push(piece);
        while let Some(frame) = framer.next_frame().expect("no input is as long as the limit") {
            fields.push(frame.fields());
            bytes.extend_from_slice(&frame.raw);
        }
    }
    (fields, bytes)
}

/// An event of MANTYX is read or passed on, and a call has arguments that are JSON.
pub fn event(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (name, data) = text.split_once('\n').unwrap_or((text, ""));
    for name in [None, Some(name)] {
        if let Ok(Event { body: Body::Call(call), .. }) = Event::read(Some("7"), name, data) {
            serde_json::from_str::<&RawValue>(call.args.get()).expect("arguments are JSON");
            check_arguments(call.args.get());
        }
    }
}

/// Arguments are checked against a schema that has a bit of everything.
fn check_arguments(arguments: &str) {
    let tool = r##"{"name":"t","inputSchema":{"type":"object","properties":{"n":{"type":"integer",
        "multipleOf":0.1},"s":{"pattern":"^(a+)+$","maxLength":3},"l":{"items":{"$ref":"#/$defs/x"},
        "uniqueItems":true}},"$defs":{"x":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/x"}]}}}}"##;
    let tool = RawValue::from_string(tool.to_owned()).expect("it is JSON");
    let (catalog, _) = Catalog::mcp(None, vec![tool]);
    if let Content::Mcp { tools, .. } = catalog.content() {
        for tool in tools {
            let _verdict = tool.input.check(arguments);
        }
    }
}

/// Injection changes `tools` and nothing else, and all names in the run are legal and different.
pub fn spec(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let offer = offer();
    for kind in [RunKind::Agent, RunKind::Eval] {
        let Ok(spec) = Spec::read(kind, body.clone()) else { continue };
        let Ok(injected) = spec.inject(&offer, &Selection::All) else { continue };
        let text = injected.body.concat();
        let text = std::str::from_utf8(&text).expect("the new body is text");
        let before = std::str::from_utf8(data).expect("it was read");
        same_but_tools(before, text, kind == RunKind::Eval);
    }
}

fn same_but_tools(before: &str, after: &str, in_agent: bool) {
    let before = Members::read(before).expect("the spec was read");
    let after = Members::read(after).expect("the new body is JSON");
    let others = |members: &Members<'_>| -> Vec<(String, String)> {
        let inner = in_agent.then(|| members.get("agent")).flatten();
        let inner = inner.is_some_and(|agent| agent.get() != "null");
        let changes = |key: &str| key == if inner { "agent" } else { "tools" };
        let others = members.0.iter().filter(|(key, _)| !changes(key));
        others.map(|(key, value)| (key.to_string(), value.get().to_owned())).collect()
    };
    assert_eq!(others(&before), others(&after), "nothing else is changed");
    if let (true, Some(old), Some(new)) = (in_agent, before.get("agent"), after.get("agent"))
        && old.get() != "null"
    {
        same_but_tools(old.get(), new.get(), false);
    }
}

/// What a bridge with a backend of each kind offers.
fn offer() -> Offer {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("it is JSON");
    let tool = |name| raw(&format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
    let (fs, _) = Catalog::mcp(None, vec![tool("read"), tool("write file")]);
    let hr = Catalog::a2a(raw(r#"{"name":"HR","url":"http://127.0.0.1:1/"}"#));
    let own = raw(r#"{"description":"d","parameters":{"type":"object"}}"#);
    let own = Catalog::local(InputSchema::of_local(own.into()).into());
    Offer::build(&[
        source("fs", RefKind::McpLocal, fs),
        source("hr", RefKind::A2aLocal, hr),
        source("own", RefKind::Local, own),
    ])
}

fn source(name: &str, kind: RefKind, catalog: Catalog) -> Source {
    Source {
        name: BackendName::parse(name).expect("a legal name"),
        place: 0,
        kind,
        naming: Arc::new(Naming::default()),
        description: None,
        on_unavailable: OnUnavailable::Stale,
        catalog: Some(Arc::new(catalog)),
        available: true,
        can_pend: true,
        trusted: true,
        pin: Mode::Off,
        review: Arc::default(),
    }
}

/// A configuration is good or refused with a place, and a refusal shows no secret.
pub fn config(data: &[u8]) {
    const SECRET: &str = "c4n4ry-of-the-environment";
    let Ok(text) = std::str::from_utf8(data) else { return };
    let env = Environment::bare().with_var("TOKEN", SECRET).with_file("/srv/token", SECRET, 0o600);
    let shown = match Config::parse(text, Path::new("/srv/bridge.yaml"), &env) {
        Ok(config) => format!("{:?}{config:?}", config.warnings),
        Err(errors) => errors.to_string(),
    };
    assert!(!shown.contains(SECRET) || text.contains(SECRET), "{shown}");
}

/// A key that takes every signature for its own.
#[derive(Debug)]
struct Any;

impl Key for Any {
    fn id(&self) -> Option<&str> {
        None
    }

    fn fits(&self, _: Algorithm) -> bool {
        true
    }

    fn verifies(&self, _: Algorithm, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// A card is read or refused; its ref is JSON whatever it says, and what is signed of it says less.
pub fn card(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _read = Card::read(text).is_ok();
    if let Ok(card) = serde_json::from_str::<&RawValue>(text)
        && let Ok(signed) = signature::verify(card, &[Any])
    {
        let payload = serde_json::from_str::<&RawValue>(&signed.payload).expect("it is JSON");
        assert!(Members::read(payload.get()).is_ok_and(|all| all.get("signatures").is_none()));
        assert_eq!(Node::read(payload).jcs(), signed.payload, "it is canonical");
        signature::verify(card, &[] as &[Any]).expect_err("there is no key");
    }
    if let Ok(card) = serde_json::from_str::<Box<RawValue>>(text) {
        offered(source("hr", RefKind::A2aLocal, Catalog::a2a(card)));
    }
}

/// Whatever a server writes, messages come out of it or nothing does; its tools get legal names.
pub fn envelope(data: &[u8]) {
    mcp::fuzzing::read(data);
    let Ok(tools) = serde_json::from_slice::<Vec<Box<RawValue>>>(data) else { return };
    let (catalog, _) = Catalog::mcp(None, tools);
    offered(source("fs", RefKind::McpLocal, catalog));
}

/// All that one backend offers is JSON under legal names, no two alike.
fn offered(source: Source) {
    judged(&source);
    let offer = Offer::build(&[source]);
    let mut names = BTreeSet::new();
    for (_, offered) in offer.backends() {
        for one in offered.refs() {
            serde_json::from_slice::<&RawValue>(&one.json).expect("a ref is JSON");
            for name in one.names() {
                assert!((1..=64).contains(&name.len()), "{name:?}");
                assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
                assert!(names.insert(Arc::clone(name)), "{name} stands for two tools");
            }
        }
    }
}

/// What was accepted is as it was when it is seen again, and what was not can be shown.
fn judged(source: &Source) {
    let mut accepted = Accepted::default();
    let mut judge = || accepted.judge(Mode::Enforce, source.catalog.as_deref(), &source.naming);
    let (first, again) = (judge(), judge());
    assert_eq!(first.withdrawn(), again.withdrawn(), "nothing has changed");
    for finding in again.open() {
        for line in finding.diff() {
            assert!(!line.contains(|c: char| c.is_control() && c != '\t'), "{line:?}");
        }
    }
}

/// Whatever a tool or an agent returns, what is posted is JSON within MANTYX's limits.
pub fn answer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(result) = serde_json::from_str::<&RawValue>(text) {
        posted(mcp::result::from_mcp(result));
    }
    for (encoding, in_pieces) in
        [(a2a::PartEncoding::Plain, true), (a2a::PartEncoding::Nested, false)]
    {
        let Ok(reply) = a2a::read(text, encoding, in_pieces) else { continue };
        match reply.outcome {
            a2a::Outcome::Waiting(answer) | a2a::Outcome::Final(answer) => posted(answer),
            a2a::Outcome::Unfinished | a2a::Outcome::Unknown(_) => (),
        }
    }
}

fn posted(answer: Answer) {
    let answer = answer.within_limits();
    match &answer {
        Answer::Result { text, .. } => assert!(text.len() <= Answer::MAX_RESULT),
        Answer::Error(text) => assert!(text.len() <= Answer::MAX_ERROR),
    }
    serde_json::to_string(&answer).expect("an answer can always be written");
}

/// Whatever the journal's file has, it is read or refused, and what is kept outlives a new file.
pub fn journal(data: &[u8]) {
    journal::read(data);
}
