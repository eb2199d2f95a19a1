//! What models are told about their calls.
//!
//! Must not: decide which sentence is said.

use std::fmt::Display;

use super::BackendName;
use super::answer::codes::{OUTCOME_UNKNOWN, STORAGE_UNAVAILABLE, TOOL_INPUT_INVALID};

pub fn call_is_pending(fetch: impl Display) -> String {
    format!(
        "The call takes long and goes on. Call {fetch} with this callId later to get its result; \
         do not make the call again."
    )
}

pub fn call_awaits_approval(fetch: impl Display) -> String {
    format!(
        "A person has to approve the call before it is made, and is being asked. Call {fetch} with \
         this callId later to get its result; do not make the call again."
    )
}

pub fn call_still_waits(fetch: impl Display, seconds: impl Display) -> String {
    format!(
        "The call has not been made yet: it waits for a person to approve it, or for its turn. \
         Call {fetch} again later; `wait` makes it wait up to {seconds} seconds."
    )
}

pub fn call_still_runs(fetch: impl Display, seconds: impl Display) -> String {
    format!(
        "The call still runs. Call {fetch} again later; `wait` makes it wait up to {seconds} \
         seconds."
    )
}

pub fn no_such_call() -> String {
    let text = "There is no such call. A callId is one that a pending answer in this run or \
                session gave. Results are kept for a day; if they take too much room, the oldest \
                are forgotten earlier.";
    text.to_owned()
}

pub fn result_lost_by_restart(tool: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge was restarted while `{tool}` went on, or its result was not \
         kept. The call may or may not have taken effect; check before you repeat it."
    )
}

pub fn restart_left_no_time(tool: impl Display) -> String {
    format!(
        "The bridge was restarted before `{tool}` was called, and too little time was left \
         afterwards. It was not called; call it again if it is still needed."
    )
}

pub fn cancelled_with_run() -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the call was cancelled because its run was. It may or may not have \
         taken effect; check before you repeat it."
    )
}

pub fn call_denied(tool: impl Display) -> String {
    format!("A person was asked to approve the call of `{tool}`, and denied it; it was not made.")
}

pub fn call_denied_because(tool: impl Display, reason: impl Display) -> String {
    format!(
        "A person was asked to approve the call of `{tool}`, and denied it; it was not made. The \
         reason: {reason}"
    )
}

pub fn approval_expired(tool: impl Display) -> String {
    format!(
        "A person has to approve calls of `{tool}`, and no decision came in time: the call counts \
         as denied, and was not made."
    )
}

pub fn too_many_approvals(tool: impl Display) -> String {
    format!(
        "A person has to approve calls of `{tool}`, and too many calls wait for approval already: \
         this one counts as denied, and was not made. Try again later, or do without it."
    )
}

pub fn shutdown_before_call(tool: impl Display) -> String {
    format!("The bridge shuts down, and the call of `{tool}` had not begun yet. It was not made.")
}

pub fn shutdown_during_call(tool: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge shuts down, and `{tool}` has not answered in time. The call \
         was cancelled; it may or may not have taken effect. Check before you repeat it."
    )
}

pub fn internal_error_during_call(tool: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: internal error of the bridge while `{tool}` was being called. The \
         outcome is unknown: the call may or may not have taken effect; check before you repeat \
         it."
    )
}

pub fn internal_error_before_call(tool: impl Display) -> String {
    format!(
        "Internal error of the bridge before `{tool}` was called. It was not made; call it again \
         if it is still needed."
    )
}

pub fn arguments_invalid(mistakes: impl Display) -> String {
    format!(
        "{TOOL_INPUT_INVALID}: {mistakes}. The call was not made; correct the arguments and call \
         again."
    )
}

pub fn arguments_unreadable(tool: impl Display) -> String {
    format!(
        "{TOOL_INPUT_INVALID}: the arguments of `{tool}` are no JSON object, or larger than the \
         bridge reads (8 MiB with their event). It was not called."
    )
}

pub fn tool_of_other_server(tool: impl Display) -> String {
    format!("The tool `{tool}` was offered by one server and called as another's; it was not run.")
}

pub fn tool_of_other_kind(tool: impl Display, kind: impl Display) -> String {
    format!("The tool `{tool}` was offered as `{kind}` and called as another kind; it was not run.")
}

pub fn no_such_tool(tool: impl Display) -> String {
    format!(
        "There is no tool `{tool}`, or not for this run; nothing was called. Names are those that \
         bridge_find_tools answers."
    )
}

pub fn result_too_large(size: impl Display, max: impl Display, rest: impl Display) -> String {
    format!(
        "The tool has run. Its result has {size} bytes, and at most {max} are allowed; as it has a \
         schema, it cannot be cut: {rest}."
    )
}

pub fn app_removed() -> String {
    let text = "The operator has removed the app that this call belongs to. The call was not made; \
                do without it.";
    text.to_owned()
}

pub fn backend_withdrawn(backend: &BackendName) -> String {
    format!(
        "The operator has withdrawn `{backend}` from this app. The call was not made; do without \
         it."
    )
}

pub fn tool_withdrawn(backend: &BackendName) -> String {
    format!(
        "The operator has withdrawn this tool of `{backend}`. The call was not made; do without it."
    )
}

pub fn arguments_denied(backend: &BackendName, when: impl Display) -> String {
    format!(
        "The operator allows no call of this tool of `{backend}` where {when}. The call was not \
         made; do without it."
    )
}

pub fn backend_removed(backend: &BackendName) -> String {
    format!("`{backend}` is not configured any more. The call was not made; do without it.")
}

pub fn backend_keeps_failing(backend: &BackendName, seconds: impl Display) -> String {
    format!(
        "`{backend}` keeps failing, so the call was not made. It is tried again in {seconds} s; \
         wait that long, or do without it."
    )
}

pub fn queue_full(backend: &BackendName) -> String {
    format!(
        "`{backend}` is busy, and too many other calls wait for it already. This one was not made; \
         try again later or do without it."
    )
}

pub fn no_turn_in_time(backend: &BackendName, seconds: impl Display) -> String {
    format!(
        "`{backend}` is busy with other calls, and this one got no turn within {seconds} s. It was \
         not made; try again later."
    )
}

pub fn backend_unreachable(backend: &BackendName) -> String {
    format!(
        "`{backend}` cannot be reached at the moment. The call was not made; try again later or do \
         without it."
    )
}

pub fn approval_needed(backend: &BackendName) -> String {
    format!("A person has to approve this call of `{backend}` first. It was not made.")
}

pub fn tool_changed(backend: &BackendName) -> String {
    format!(
        "This tool of `{backend}` is withdrawn: it does not say of itself what the operator of the \
         bridge has accepted. The call was not made; do without it."
    )
}

pub fn not_repeatable(backend: &BackendName) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge sent the call to `{backend}` before and got no answer, and \
         its tool is not marked as safe to repeat any more. The call may or may not have taken \
         effect; check before you repeat it."
    )
}

pub fn another_peer(backend: &BackendName) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge sent the call to the earlier server of `{backend}`, and the \
         configuration names another one now. The call may or may not have taken effect; check \
         before you repeat it."
    )
}

pub fn call_timed_out(backend: &BackendName, seconds: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: `{backend}` gave no answer within {seconds} s, and the call was \
         cancelled. It may or may not have taken effect; check before you repeat it."
    )
}

pub fn connection_lost(backend: &BackendName) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the connection to `{backend}` broke during the call. It may or may not \
         have taken effect; check before you repeat it."
    )
}

pub fn answer_unreadable(backend: &BackendName) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: `{backend}` gave an answer that cannot be read. The call has probably \
         taken effect; check before you repeat it."
    )
}

pub fn outcome_unclear(backend: &BackendName, why: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: `{backend}` has the call, but {why}. The call may or may not have taken \
         effect; check before you repeat it."
    )
}

pub fn answer_too_large(backend: &BackendName, why: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: `{backend}` gave an answer that is too large: {why}. The call has \
         probably taken effect; check before you repeat it, and ask for less at once."
    )
}

pub fn no_room_for_answer(backend: &BackendName) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: `{backend}` gave an answer that could not be read, as the bridge is \
         busy with other large ones. The call has probably taken effect; check before you repeat \
         it, and ask for less at once."
    )
}

pub fn read_timed_out(backend: &BackendName, seconds: impl Display) -> String {
    format!("`{backend}` gave no answer within {seconds} s.")
}

pub fn read_lost(backend: &BackendName) -> String {
    format!("The connection to `{backend}` broke before the answer. Ask again.")
}

pub fn read_unreadable(backend: &BackendName) -> String {
    format!("`{backend}` gave an answer that cannot be read.")
}

pub fn request_elsewhere(tool: &str) -> String {
    format!(
        "`{tool}` was not called: another replica of the bridge has the same request, or may have \
         it. Ask again for its answer."
    )
}

pub fn read_too_large(backend: &BackendName, why: impl Display) -> String {
    format!("`{backend}` gave an answer that is not read: {why}.")
}

pub fn tools_available_next_run(backend: &BackendName) -> String {
    format!(
        "The tools of `{backend}` were not available when this run started, and are now; they can \
         be used in the next run."
    )
}

pub fn backend_starts(backend: &BackendName) -> String {
    format!(
        "The tools of `{backend}` are not available yet: its program is starting. They can be used \
         in a later run."
    )
}

pub fn tool_not_listed(backend: &BackendName) -> String {
    format!(
        "`{backend}` was started for this call, and does not have this tool now. The call was not \
         made; do without it."
    )
}

pub fn backend_disabled(backend: &BackendName) -> String {
    format!(
        "The tools of `{backend}` are not available: the operator of the bridge has disabled it. Do \
         without them, or tell the user."
    )
}

pub fn backend_never_reached(backend: &BackendName) -> String {
    format!(
        "The tools of `{backend}` are not available: the bridge has not reached it since it \
         started. It keeps trying; they can be used in a later run."
    )
}

pub fn journal_unwritable(tool: impl Display) -> String {
    format!(
        "{STORAGE_UNAVAILABLE}: the bridge cannot write its journal, so the call to `{tool}` was \
         not made. Do without it or try again later."
    )
}

pub fn app_bytes_exhausted(tool: impl Display) -> String {
    format!(
        "The app's calls hold as many bytes of arguments and answers as they may, so the call to \
         `{tool}` was not made. Try again when MANTYX has taken some of the answers."
    )
}

pub fn same_call_too_often(count: impl Display) -> String {
    format!(
        "This run has made the same call with the same arguments {count} times already, which is \
         as often as it may. The call was not made; use an earlier result, or go on otherwise."
    )
}

pub fn over_quota(why: impl Display) -> String {
    format!("{why} The call was not made; try again then, or do without it.")
}

pub fn cancelled_by_server(why: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the server cancelled the call: {why}. It may have taken effect in \
         part; check before you repeat it."
    )
}

pub fn input_required(message: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the tool asked for input from the user in the middle of its work, \
         which the bridge cannot give, so the call was cancelled{message}. It may have taken \
         effect in part; check before you repeat it, with all that it needs in the arguments."
    )
}

pub fn output_too_large(backend: &BackendName, mib: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: `{backend}` wrote more than {mib} MiB and was stopped. It may or may \
         not have taken effect; check before you repeat it, and ask for less."
    )
}

pub fn output_not_text(backend: &BackendName, bytes: impl Display) -> String {
    format!(
        "`{backend}` did what was asked and wrote {bytes} bytes, which are no text. They cannot be \
         passed on."
    )
}

pub fn body_not_text(
    backend: &BackendName,
    kind: impl Display,
    more: impl Display,
    bytes: impl Display,
) -> String {
    format!(
        "`{backend}` did what was asked and answered with {kind}, {more}{bytes} bytes, which is no \
         text. It cannot be passed on."
    )
}

pub fn answer_lost(tool: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge could not keep the answer of `{tool}`. The call may or may \
         not have taken effect; check before you repeat it."
    )
}

pub fn record_lost(tool: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge has lost its record of earlier calls, and cannot tell \
         whether `{tool}` was called. The call may or may not have taken effect; check before you \
         repeat it."
    )
}

pub fn down_time_left_no_time(tool: impl Display) -> String {
    format!(
        "The bridge was down when `{tool}` was to be called, and too little time was left \
         afterwards. It was not called; call it again if it is still needed."
    )
}

pub fn restart_during_call(tool: impl Display) -> String {
    format!(
        "{OUTCOME_UNKNOWN}: the bridge was restarted while `{tool}` was being called. The call may \
         or may not have taken effect; check before you repeat it."
    )
}

pub fn app_queue_full() -> String {
    let text = "The app has as many calls running as it may, and too many others wait already. It \
                was not made; try again later.";
    text.to_owned()
}

pub fn app_no_turn(seconds: impl Display) -> String {
    format!(
        "The app has as many calls running as it may, and this one got no turn within {seconds} s. \
         It was not made; try again later."
    )
}
