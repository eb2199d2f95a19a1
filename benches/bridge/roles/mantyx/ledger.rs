//! The calls of one run: when each event went out, when and with what its result came in.
//!
//! Must not: sum anything up; the bench does.

use serde::Deserialize;
use serde_json::json;

/// Nothing has come yet.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    calls: Vec<Call>,
    /// Numbers of the calls that were answered, in that order.
    answered: Vec<usize>,
    again: usize,
    unknown: usize,
    /// How often the stream was opened.
    pub(super) opened: usize,
    pub(super) seq: u64,
}

#[derive(Debug, Default)]
struct Call {
    sent: u64,
    came: u64,
    /// The POST's body.
    body: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    First,
    Again,
    Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    tool_use_id: String,
}

#[derive(Deserialize)]
struct Result {
    result: Option<String>,
    error: Option<String>,
}

impl Ledger {
    /// How many calls were made.
    pub(super) fn made(&self) -> usize {
        self.calls.len()
    }

    /// The calls that were answered, behind the first `known`.
    pub(super) fn answered_after(&self, known: usize) -> &[usize] {
        self.answered.get(known..).unwrap_or_default()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.answered.len() == self.calls.len()
    }

    /// Notes a call whose event goes out at `sent`.
    pub(super) fn call(&mut self, sent: u64) {
        self.calls.push(Call { sent, ..Call::default() });
    }

    /// Takes a result whose first byte came at `came`.
    pub(super) fn take(&mut self, body: &[u8], came: u64) -> Taken {
        let number = serde_json::from_slice::<Posted>(body).ok();
        let number = number.and_then(|posted| posted.tool_use_id.strip_prefix('c')?.parse().ok());
        let Some((number, call)) =
            number.and_then(|number: usize| Some((number, self.calls.get_mut(number)?)))
        else {
            self.unknown += 1;
            return Taken::Unknown;
        };
        if call.came > 0 {
            self.again += 1;
            return Taken::Again;
        }
        call.came = came;
        call.body = body.to_vec();
        self.answered.push(number);
        Taken::First
    }

    /// All of it as JSON: for each call that was answered well `[event out, request at the tool,
    /// answer of the tool, result in]`.
    pub(super) fn record(&self) -> String {
        let (mut samples, mut errors) = (Vec::new(), Vec::new());
        for (number, call) in self.calls.iter().enumerate().filter(|(_, call)| call.came > 0) {
            match times(number, &call.body) {
                Ok((asked, answered)) => samples.push([call.sent, asked, answered, call.came]),
                Err(error) => errors.push(error),
            }
        }
        json!({
            "made": self.calls.len(), "answered": self.answered.len(), "again": self.again,
            "unknown": self.unknown, "opened": self.opened, "failed": errors.len(),
            "error": errors.first(), "samples": samples,
        })
        .to_string()
    }
}

/// What a tool's answer to call `number` says: when it was asked, and when it answered.
fn times(number: usize, body: &[u8]) -> std::result::Result<(u64, u64), String> {
    let result: Result = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if let Some(error) = result.error {
        return Err(error);
    }
    let text = result.result.unwrap_or_default();
    let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
    let (id, asked, answered) = (words.next(), words.next(), words.next());
    match (id.flatten(), asked.flatten(), answered.flatten()) {
        (Some(id), Some(asked), Some(answered)) if id == number as u64 => Ok((asked, answered)),
        _ => Err(format!("the answer to call {number} is {text:?}")),
    }
}
