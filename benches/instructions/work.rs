//! The work that is counted: the pure parts of what happens to every event, call and run.

use std::{hint::black_box, sync::Arc};

use bytes::Bytes;
use mantyx_bridge::internals::{
    BackendName, CallAction, Catalog, Content, Event, Framer, Injected, Mode, Naming, Offer,
    OnUnavailable, RefKind, Run, RunKind, Selection, Source, Spec, Step, Target, Verdict, mcp,
};
use serde_json::value::RawValue;

/// One thing that is done over and over.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// What is done once.
    pub(crate) of: &'static str,
    pub(crate) run: fn(u64),
}

pub(crate) const WORK: [Work; 9] = [
    Work { name: "event", of: "a delta of 200 bytes: framed, read, passed on", run: event },
    Work { name: "call", of: "a call: framed, read, claimed, its arguments checked", run: call },
    Work { name: "answer", of: "an MCP result of 1 KiB made the body of a POST", run: answer },
    Work { name: "answer_64k", of: "the same of 64 KiB", run: answer_64k },
    Work { name: "inject_10", of: "a spec given 10 tools", run: inject_10 },
    Work { name: "inject_500", of: "a spec given 500 tools", run: inject_500 },
    Work {
        name: "inject_1m",
        of: "a spec with 1 MiB of attachment given 10 tools",
        run: inject_1m,
    },
    Work { name: "catalog_500", of: "the answer to tools/list read: 500 tools", run: catalog_500 },
    Work { name: "offer_500", of: "all refs written out: 500 tools", run: offer_500 },
];

fn event(times: u64) {
    let mut run = run(10);
    let mut framer = Framer::new(1 << 20);
    for seq in 1..=times {
        let text = "a".repeat(120);
        framer.push(
            format!(
                "id: {seq}\nevent: assistant_delta\ndata: {{\"seq\":{seq},\
                 \"type\":\"assistant_delta\",\"data\":{{\"text\":\"{text}\"}}}}\n\n"
            )
            .as_bytes(),
        );
        assert!(matches!(next(&mut framer, &mut run), Step::Relay));
    }
}

fn call(times: u64) {
    let mut run = run(10);
    let mut framer = Framer::new(1 << 20);
    for seq in 1..=times {
        framer.push(
            format!(
                "id: {seq}\nevent: local_tool_call\ndata: {{\"seq\":{seq},\
                 \"type\":\"local_tool_call\",\"data\":{{\"toolUseId\":\"tu_{seq}\",\
                 \"name\":\"fs_tool_7\",\"kind\":\"mcp_local\",\"mcpServer\":\"fs\",\
                 \"args\":{{\"path\":\"/srv/docs/a.txt\",\"head\":20}}}}}}\n\n"
            )
            .as_bytes(),
        );
        let Step::Mask(call, CallAction::Make(route)) = next(&mut framer, &mut run) else {
            unreachable!("the call is the bridge's")
        };
        let Target::Tool { input: Some(input), .. } = &route.target else {
            unreachable!("it leads to a tool with a schema")
        };
        assert_eq!(input.check(call.args.get()), Verdict::Valid);
    }
}

fn next(framer: &mut Framer, run: &mut Run) -> Step {
    let frame = framer.next_frame().expect("it is not too large").expect("it is whole");
    let fields = frame.fields();
    let (id, event) = (fields.id.as_deref(), fields.event.as_deref());
    run.on_event(
        Event::read(id, event, fields.data.as_deref().unwrap_or_default())
            .expect("it is one of MANTYX's"),
    )
}

fn answer(times: u64) {
    answer_of(1 << 10, times);
}

fn answer_64k(times: u64) {
    answer_of(64 << 10, times);
}

fn answer_of(size: usize, times: u64) {
    let line = "a line, \"quoted\" with a tab\t and ümlauts\n";
    let text = serde_json::Value::from(line.repeat(size / line.len()));
    let result = raw(&format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#));
    for _ in 0..times {
        let answer = mcp::result::from_mcp(black_box(&result));
        black_box(serde_json::to_vec(&answer).expect("an answer is JSON"));
    }
}

fn inject_10(times: u64) {
    inject(10, 0, times);
}

fn inject_500(times: u64) {
    inject(500, 0, times);
}

fn inject_1m(times: u64) {
    inject(10, 1 << 20, times);
}

fn inject(tools: usize, attachment: usize, times: u64) {
    let offer = Offer::build(&[source(tools)]);
    let data = "QUJD".repeat(attachment / 4);
    let body = format!(
        "{{\"prompt\":\"What is in /srv/docs?\",\"modelId\":\"some-model\",\
         \"attachments\":[{{\"mimeType\":\"image/png\",\"data\":\"{data}\"}}],\
         \"tools\":[{{\"kind\":\"local\",\"name\":\"own\",\"description\":\"The app's own.\",\
         \"parameters\":{{\"type\":\"object\"}}}}]}}"
    );
    let body = Bytes::from(body);
    for _ in 0..times {
        black_box(injected(&offer, body.clone()));
    }
}

fn injected(offer: &Offer, body: Bytes) -> Injected {
    let spec = Spec::read(RunKind::Agent, body).expect("it is a spec");
    spec.inject(offer, &Selection::All).expect("nothing is refused")
}

fn catalog_500(times: u64) {
    for _ in 0..times {
        black_box(catalog(500));
    }
}

fn offer_500(times: u64) {
    let source = [source(500)];
    for _ in 0..times {
        black_box(Offer::build(&source));
    }
}

/// A run with so many tools.
fn run(tools: usize) -> Run {
    let injected = injected(&Offer::build(&[source(tools)]), Bytes::from_static(b"{}"));
    Run::new(RunKind::Agent, Arc::new(injected.table))
}

fn source(tools: usize) -> Source {
    Source {
        name: BackendName::parse("fs").expect("a legal name"),
        place: 0,
        kind: RefKind::McpLocal,
        naming: Arc::new(Naming { prefix: "fs_".to_owned(), ..Naming::default() }),
        description: None,
        on_unavailable: OnUnavailable::Stale,
        catalog: Some(Arc::new(catalog(tools))),
        available: true,
        can_pend: false,
        trusted: false,
        pin: Mode::Off,
        review: Arc::default(),
    }
}

/// The catalog of a server whose tools are of a usual size.
fn catalog(tools: usize) -> Catalog {
    let tool = |at: usize| {
        raw(&format!(
            "{{\"name\":\"tool_{at}\",\"description\":\"Reads a file below the root and returns its \
             lines. Give the path as it is there, and how many lines of its beginning are wanted; \
             all of them otherwise.\",\"inputSchema\":{{\"type\":\"object\",\"properties\":{{\
             \"path\":{{\"type\":\"string\",\"description\":\"Where the file is.\"}},\
             \"head\":{{\"type\":\"integer\",\"minimum\":1,\"description\":\"Lines.\"}}}},\
             \"required\":[\"path\"],\"additionalProperties\":false}},\
             \"annotations\":{{\"readOnlyHint\":true}}}}"
        ))
    };
    let (catalog, left_out) = Catalog::mcp(None, (0..tools).map(tool).collect());
    assert!(left_out.is_empty() && matches!(catalog.content(), Content::Mcp { .. }));
    catalog
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("it is JSON")
}
