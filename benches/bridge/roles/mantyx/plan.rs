//! What a run does, read from the name of its workspace:
//!
//! - `calls-TOOL-FLIGHT-MS-MOST-PAUSE`: calls of `stdio`, `http`, `agent` or (`mix`) of all in
//!   turn; FLIGHT of them outstanding at any time, new ones for MS milliseconds and not more than
//!   MOST, each after a wait of PAUSE milliseconds on average;
//! - `events-N`: N events as fast as they are taken;
//! - `idle`: one event, and nothing more;
//! - `end`: the end at once.
//!
//! With `gated-` before it, a run waits for the gate before it sends anything. Must not: do IO.

use crate::clock::SECOND;

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) gated: bool,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Calls(Calls),
    Events(u64),
    Idle,
    End,
}

#[derive(Debug, Clone)]
pub(super) struct Calls {
    pub(super) tool: String,
    pub(super) flight: usize,
    /// Nanoseconds, as is `pause`.
    pub(super) span: u64,
    pub(super) most: usize,
    pub(super) pause: u64,
}

impl Plan {
    pub(super) fn read(name: &str) -> Option<Self> {
        let bare = name.strip_prefix("gated-");
        let gated = bare.is_some();
        let words: Vec<&str> = bare.unwrap_or(name).split('-').collect();
        let what = match words.as_slice() {
            ["calls", tool, flight, span, most, pause] => What::Calls(Calls {
                tool: (*tool).to_owned(),
                flight: flight.parse().ok()?,
                span: span.parse::<u64>().ok()? * (SECOND / 1_000),
                most: most.parse().ok()?,
                pause: pause.parse::<u64>().ok()? * (SECOND / 1_000),
            }),
            ["events", count] => What::Events(count.parse().ok()?),
            ["idle"] => What::Idle,
            ["end"] => What::End,
            _ => return None,
        };
        Some(Self { gated, what })
    }
}

impl Calls {
    /// The tool of the call with this number.
    pub(super) fn tool_of(&self, number: usize) -> &str {
        match self.tool.as_str() {
            "mix" => ["http", "stdio", "agent"].get(number % 3).copied().unwrap_or("http"),
            one => one,
        }
    }
}
