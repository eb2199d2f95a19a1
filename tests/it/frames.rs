//! What one run of the scripted MANTYX sends: frames byte for byte, where it waits, how it is cut
//! into pieces and where its connections break.
//!
//! Must not: do IO.

use std::collections::VecDeque;

/// One step of a run.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Bytes of the stream. `seq` is what a resuming reader's number is compared with.
    Send { seq: u64, bytes: Vec<u8> },
    /// Waits until a tool use is answered, or until the test releases the name.
    Await(String),
}

/// A run's stream, and what its connections suffer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    /// After how many bytes of the first, second, … connection it is cut.
    pub(crate) cuts: VecDeque<usize>,
    /// The size of the pieces that bytes are sent in; 0 means whole.
    pub(crate) piece: usize,
    /// Ends the stream by closing the connection, without the framing that tells an end from a cut.
    pub(crate) unframed: bool,
    /// A new connection goes on behind the last whole event of the one before, whatever it asks
    /// for.
    pub(crate) forgetful: bool,
    /// A new connection begins so many events before the one that it asks for.
    pub(crate) rewind: u64,
    seq: u64,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// An event with the next seq, in the layout of the protocol document.
    pub(crate) fn event(mut self, kind: &str, data: &str) -> Self {
        self.seq += 1;
        let seq = self.seq;
        let json = format!(r#"{{"seq":{seq},"type":"{kind}","data":{data}}}"#);
        self.raw(&format!("id: {seq}\nevent: {kind}\ndata: {json}\n\n"))
    }

    /// Exactly these bytes; they count as part of the event before.
    pub(crate) fn raw(mut self, bytes: &str) -> Self {
        self.steps.push(Step::Send { seq: self.seq, bytes: bytes.into() });
        self
    }

    /// Exactly these bytes as the event with the next seq.
    pub(crate) fn raw_event(mut self, bytes: &str) -> Self {
        self.seq += 1;
        self.raw(bytes)
    }

    pub(crate) fn delta(self, text: &str) -> Self {
        self.event("assistant_delta", &format!(r#"{{"text":"{text}"}}"#))
    }

    /// A call of an `mcp_local` tool; `name` is the model-facing name.
    pub(crate) fn mcp(self, id: &str, server: &str, name: &str, args: &str) -> Self {
        let data = format!(
            r#"{{"toolUseId":"{id}","name":"{name}","args":{args},"kind":"mcp_local","mcpServer":"{server}","mcpToolName":"{name}"}}"#
        );
        self.event("local_tool_call", &data)
    }

    /// A call of a `local` tool, without the `kind` that older servers leave out.
    pub(crate) fn local(self, id: &str, name: &str, args: &str) -> Self {
        let data = format!(r#"{{"toolUseId":"{id}","name":"{name}","args":{args}}}"#);
        self.event("local_tool_call", &data)
    }

    /// A message to an `a2a_local` agent.
    pub(crate) fn a2a(self, id: &str, name: &str, message: &str) -> Self {
        let data = format!(
            r#"{{"toolUseId":"{id}","name":"{name}","args":{{"message":"{message}"}},"kind":"a2a_local","agentCard":{{"name":"x"}}}}"#
        );
        self.event("local_tool_call", &data)
    }

    /// Waits for the answer to a call and then tells of it, as MANTYX does.
    pub(crate) fn answered(self, id: &str) -> Self {
        let data = format!(r#"{{"toolUseId":"{id}","output":"(its answer)"}}"#);
        self.until(id).event("local_tool_result_in", &data)
    }

    /// Waits for the answer to a call, or for the test to release the name.
    pub(crate) fn until(mut self, name: &str) -> Self {
        self.steps.push(Step::Await(name.into()));
        self
    }

    /// The terminal event of a run that went well.
    pub(crate) fn done(self) -> Self {
        self.event("result", r#"{"subtype":"success","text":"done"}"#)
    }

    /// A call, its answer and the end: the shortest run with a tool.
    pub(crate) fn one_call(id: &str, server: &str, name: &str, args: &str) -> Self {
        Self::new().delta("hm").mcp(id, server, name, args).answered(id).done()
    }

    /// Ends every line with CRLF.
    pub(crate) fn crlf(mut self) -> Self {
        for step in &mut self.steps {
            if let Step::Send { bytes, .. } = step {
                let text = String::from_utf8(std::mem::take(bytes)).expect("scripts are text");
                *bytes = text.replace('\n', "\r\n").into_bytes();
            }
        }
        self
    }

    pub(crate) fn pieces(mut self, size: usize) -> Self {
        self.piece = size;
        self
    }

    pub(crate) fn cut(mut self, after: impl IntoIterator<Item = usize>) -> Self {
        self.cuts.extend(after);
        self
    }

    pub(crate) fn unframed(mut self) -> Self {
        self.unframed = true;
        self
    }

    /// A stream that replays nothing.
    pub(crate) fn forgetful(mut self) -> Self {
        self.forgetful = true;
        self
    }

    /// Sends every event three times, and after each of them one that was sent before.
    pub(crate) fn repeated(mut self) -> Self {
        let mut sent: Vec<Vec<u8>> = Vec::new();
        let steps = std::mem::take(&mut self.steps);
        for step in steps {
            let Step::Send { seq, bytes } = &step else {
                self.steps.push(step);
                continue;
            };
            sent.push(bytes.clone());
            let older = sent.get(sent.len() / 2).unwrap_or(bytes).clone();
            let again = Step::Send { seq: *seq, bytes: older };
            self.steps.extend([step.clone(), step.clone(), step, again]);
        }
        self
    }

    /// The highest seq.
    pub(crate) fn last_seq(&self) -> u64 {
        self.seq
    }

    /// All bytes of an uncut stream.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let sent = self.steps.iter().filter_map(|step| match step {
            Step::Send { bytes, .. } => Some(bytes.as_slice()),
            Step::Await(_) => None,
        });
        sent.collect::<Vec<_>>().concat()
    }
}
