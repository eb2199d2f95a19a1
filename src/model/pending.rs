//! Long calls as the model sees them: the first answer of a call that continues, and the tool that
//! fetches its result later.
//!
//! Must not: keep anything, or know how long a call may take before it continues on its own.

use std::time::Duration;

use serde_json::Value;

use super::catalog::hex;
use super::sentences;
use super::{Answer, CallId, Own, own};

/// The name of the tool ([`Own::name`]).
pub const TOOL: &str = "bridge_call_result";

/// How long a fetch waits for a result that is not there yet, unless the model says how long: a
/// model that asks again and again should not use up its turns.
const WAIT: Duration = Duration::from_secs(20);
/// The longest that a fetch may wait; it is the `maximum` of own/call_result.json.
const MAX_WAIT: Duration = Duration::from_secs(240);

/// What the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    pub call: CallId,
    pub wait: Duration,
    /// The part of the result that it wants: the first byte, and how many.
    pub part: Option<(usize, Option<usize>)>,
}

/// An id that cannot be guessed.
pub fn call_id(random: [u8; 8]) -> CallId {
    format!("call_{}", hex(&random)).into()
}

/// Reads the arguments of the tool; the error is an answer for the model.
pub fn read(arguments: &str) -> Result<Fetch, String> {
    Own::Results.check(arguments)?;
    let call = own::string(arguments, "callId")?;
    let wait = own::number(arguments, "wait")?
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map_or(WAIT, |wait| wait.min(MAX_WAIT));
    let part = match (own::number(arguments, "offset")?, own::number(arguments, "limit")?) {
        (None, None) => None,
        (offset, limit) => Some((offset.unwrap_or(0), limit)),
    };
    Ok(Fetch { call: call.into(), wait, part })
}

/// How the text of each first answer begins.
const FIRST: &str = r#"{"status":"pending","callId":"#;

fn pending(call: &CallId, tool: &str, message: &str) -> Answer {
    let [call, tool, message] = [call.as_str(), tool, message].map(Value::from);
    Answer::text(format!(r#"{FIRST}{call},"tool":{tool},"message":{message}}}"#))
}

/// Whether a text is that of a first answer.
pub fn is_first_answer(text: &str) -> bool {
    text.strip_prefix(FIRST).is_some_and(|rest| rest.starts_with('"'))
}

/// The first answer of a call of `tool` that continues; `fetch` is the name that [`TOOL`] has in
/// the run.
pub fn goes_on(call: &CallId, tool: &str, fetch: &str) -> Answer {
    pending(call, tool, &sentences::call_is_pending(fetch))
}

/// The first answer of a call of `tool` that a person must approve before it is made.
pub fn waits(call: &CallId, tool: &str, fetch: &str) -> Answer {
    pending(call, tool, &sentences::call_awaits_approval(fetch))
}

/// The answer to a fetch for a call of `tool` that still runs, or `waits` to be made.
pub fn still(call: &CallId, tool: &str, fetch: &str, waits: bool) -> Answer {
    let most = MAX_WAIT.as_secs();
    let text = if waits {
        sentences::call_still_waits(fetch, most)
    } else {
        sentences::call_still_runs(fetch, most)
    };
    pending(call, tool, &text)
}

/// The answer to a fetch while the replicas' database is away.
pub const CANNOT_TELL: &str = "The bridge cannot look up the call at the moment. Ask for its result \
                               again later; do not make the call again.";

/// Why there is no result of a call of `tool` that ran during a restart and whose work the peer had
/// not named.
pub fn lost(tool: &str) -> String {
    sentences::result_lost_by_restart(tool)
}

#[cfg(test)]
mod tests;
