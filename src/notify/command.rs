//! Runs the program of a receiver for a notice, as a local tool's program is run.
//!
//! Must not: use a shell, or let two of a receiver's programs run at once.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::Failure;
use super::format::json_body;
use super::notice::{Notice, Words};
use super::outbox::Attempt;
use crate::backend::local::command::Runner;
use crate::config::{Program, Written};
use crate::model::{Answer, BackendName};

/// How long the program may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs it once, to its end; `stop` ends it.
pub async fn run(
    name: &BackendName,
    program: &Program,
    launcher: Option<PathBuf>,
    notice: &Notice,
    page: &Url,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let program = filled(program, &notice.words(page));
    let runner = Runner::new(name.clone(), program, launcher);
    let input = json_body(notice, page);
    let outcome = tokio::select! {
        outcome = timeout(LIMIT, runner.run_alone(&input)) => Some(outcome),
        () = stop.cancelled() => None,
    };
    // The next one starts when all of this one has ended.
    runner.close().await;
    match outcome {
        Some(Ok(Ok(Answer::Result { .. }))) => Ok(()),
        Some(Ok(Ok(Answer::Error(why)))) => Err(Failure::new(Attempt::Unclear, one_line(&why))),
        Some(Ok(Err(error))) => {
            Err(Failure::new(Attempt::NotDelivered, one_line(&error.to_string())))
        }
        Some(Err(_elapsed)) => {
            let why = format!("the program did not end within {} s", LIMIT.as_secs());
            Err(Failure::new(Attempt::Unclear, why))
        }
        None => Err(Failure::new(Attempt::Unclear, "the bridge stops".to_owned())),
    }
}

/// The program with the words of a notice in its arguments. Each word begins with the bridge's own,
/// so that no text of others is taken for an option.
fn filled(program: &Program, words: &Words) -> Program {
    let text = words.text();
    let mut program = program.clone();
    for arg in &mut program.args {
        let value = String::clone(arg);
        if let Some(filled) = fill(&value, &words.title, &text, &words.link) {
            *arg = Written::new(filled, arg.to_string());
        }
    }
    program
}

/// `argument` with the words in their places, in one pass: words may have such places, too.
/// `None`: it has no such place.
fn fill(argument: &str, title: &str, text: &str, link: &str) -> Option<String> {
    let mut filled = String::new();
    let mut rest = argument;
    let mut is_filled = false;
    while let Some(at) = rest.find('{') {
        let (before, place) = rest.split_at(at);
        filled.push_str(before);
        let words = [("{title}", title), ("{text}", text), ("{link}", link)];
        let found =
            words.into_iter().find_map(|(mark, words)| Some((place.strip_prefix(mark)?, words)));
        match found {
            Some((after, words)) => {
                filled.push_str(words);
                is_filled = true;
                rest = after;
            }
            None => {
                filled.push('{');
                rest = place.strip_prefix('{').unwrap_or_default();
            }
        }
    }
    filled.push_str(rest);
    if is_filled { Some(filled) } else { None }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " | ")
}

#[cfg(test)]
mod tests {
    //! What becomes of an argument.

    use super::*;

    #[test]
    fn argument_is_filled_in_one_pass() {
        struct Case {
            argument: &'static str,
            filled: Option<&'static str>,
        }
        for Case { argument, filled } in [
            Case { argument: "{title}", filled: Some("T") },
            Case { argument: "--body={text} {link}", filled: Some("--body={title} L") },
            Case { argument: "{{title}}", filled: Some("{T}") },
            Case { argument: "{titles}{", filled: None },
            Case { argument: "plain", filled: None },
        ] {
            assert_eq!(fill(argument, "T", "{title}", "L").as_deref(), filled, "{argument}");
        }
    }
}
