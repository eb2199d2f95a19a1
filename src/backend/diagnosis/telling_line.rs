//! Picks the line of a program's stderr that says what happened. Traces have it before their
//! frames, installers between hints, and others at the end.
//!
//! Must not: decide what the line means.

use std::path::PathBuf;

/// How the lines begin that a program writes around the one that says it.
const FRAMES: [&str; 8] = [
    "node.js v",
    "throw ",
    "node:",
    "file://",
    "require stack:",
    "- /",
    "goroutine ",
    "emitted 'error' event",
];

/// What npm writes around it.
const NPM_ASIDES: [&str; 18] = [
    "code ",
    "command ",
    "signal ",
    "gyp info",
    "gyp verb",
    "syscall ",
    "errno ",
    "path ",
    "dest ",
    "at ",
    "{",
    "}",
    "a complete log",
    "note that you",
    "tarball, folder",
    "if you are behind",
    "network in most",
    "network this is",
];

/// How the lines begin in which installers tell of their progress.
const PROGRESS: [&str; 14] = [
    "resolved ",
    "prepared ",
    "installed ",
    "audited ",
    "downloading ",
    "downloaded ",
    "download ",
    "building ",
    "built ",
    "updating ",
    "digest: ",
    "status: downloaded",
    "saved lockfile",
    "bytecode compiled ",
];

/// Words of a line that tells of a failure.
const WORDS: [&str; 23] = [
    "error",
    "fatal",
    "fail",
    "cannot",
    "can't",
    "no module",
    "could not",
    "couldn't",
    "unable",
    "missing",
    "required",
    "not set",
    "not found",
    "denied",
    "refused",
    "invalid",
    "no such",
    "unknown",
    "unexpected",
    "must ",
    "not installed",
    "not supported",
    "unrecognized",
];

/// The line of `lines` that says why the program failed, without its decoration.
pub(super) fn telling_line(lines: &[String]) -> Option<String> {
    let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    npm(&lines)
        .or_else(|| raised(&lines))
        .or_else(|| panicked(&lines))
        .or_else(|| resolver(&lines))
        .or_else(|| beside_usage(&lines))
        .or_else(|| with_words(&lines))
        .or_else(|| {
            lines.iter().rev().find(|line| is_said(line)).map(|line| line.trim().to_owned())
        })
}

/// `line` without the codes of a terminal (the log has escaped them), and without the margin or the
/// box that Python's tools draw around errors.
pub(super) fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\\u{1b}") {
        text.push_str(before);
        rest = after_sequence(after);
    }
    text.push_str(rest);
    if let Some(boxed) = text.trim_start().strip_prefix("│ ") {
        return boxed.trim_end_matches(['│', ' ']).to_owned();
    }
    let inner = text.trim_start().strip_prefix("| ");
    inner.unwrap_or(&text).trim_end().to_owned()
}

/// What follows the control sequence at the start of `text`, whose escape is gone (ECMA-48, 5.4 and
/// 8.3.89): of a colour or the cursor, or a title, which ends with a bell.
fn after_sequence(text: &str) -> &str {
    if let Some(sequence) = text.strip_prefix('[') {
        let last = sequence.find(|c: char| !(' '..='?').contains(&c));
        return last.and_then(|last| sequence.get(last + 1..)).unwrap_or_default();
    }
    if let Some(title) = text.strip_prefix(']') {
        return title.split_once("\\u{7}").map_or("", |(_, rest)| rest);
    }
    text
}

/// Whether `line` is more than decoration, and more than an installer's progress.
fn is_said(line: &str) -> bool {
    let text = line.trim().to_lowercase();
    // One layer of an image: `0a1b2c: Pull complete`.
    let image_layer = text.ends_with(": pull complete") || text.contains(": pulling from ");
    // Node.js itself, as a shell names it, and not one of its modules.
    let node = text.starts_with("node: ");
    text.chars().any(char::is_alphanumeric)
        && !npm_error(line).is_some_and(is_npm_aside)
        && !image_layer
        && !is_progress(&text)
        && !is_frame(line)
        && (node || !FRAMES.iter().any(|frame| text.starts_with(frame)))
}

/// Whether `text`, in lower case, only tells how far an installer is.
fn is_progress(text: &str) -> bool {
    text.starts_with("npm warn")
        || text.starts_with("npm notice")
        // Docker, before it pulls the image.
        || text.starts_with("unable to find image ")
        || !has_word(text) && PROGRESS.iter().any(|start| text.starts_with(start))
}

/// Whether `line` begins the help of a program.
pub(super) fn is_usage(line: &str) -> bool {
    let line = line.trim_start().to_lowercase();
    line.starts_with("usage:") || line.starts_with("usage ") || line.contains(" usage: ")
}

/// The file in which npm has kept the reason, where a line points at it.
pub(super) fn npm_log(lines: &[String]) -> Option<PathBuf> {
    let mut errors = lines.iter().filter_map(|line| npm_error(line));
    let (_, path) = errors.find_map(|text| text.split_once("can be found in: "))?;
    let path = path.trim();
    if path.starts_with('/') { Some(path.into()) } else { None }
}

/// The message of a program that shows its help, too: it stands before or behind the help, whose
/// own lines have words such as `required`.
pub(super) fn beside_usage(lines: &[String]) -> Option<String> {
    let usage = lines.iter().position(|line| is_usage(line))?;
    let outside =
        |line: &&String| !line.starts_with([' ', '\t']) && !is_usage(line) && is_said(line);
    let before = lines.get(..usage)?;
    let message = lines.iter().rev().filter(outside).find(|line| is_error(line)).or_else(|| {
        // The line just before the help, or one with a word for a failure.
        let nearest = before.iter().rev().find(|line| !line.trim().is_empty()).filter(outside);
        nearest.or_else(|| lines.iter().rev().filter(outside).find(|line| has_word(line)))
    })?;
    Some(whole(lines, message))
}

fn is_error(line: &str) -> bool {
    let text = line.to_lowercase();
    text.starts_with("error:") || text.starts_with("error ") || text.contains(": error:")
}

/// `message` with the next line, if it ends with a colon: some name what is missing only there.
fn whole(lines: &[String], message: &str) -> String {
    let next = lines.iter().skip_while(|line| *line != message).nth(1);
    match next.filter(|next| message.ends_with(':') && next.starts_with([' ', '\t'])) {
        Some(next) => format!("{} {}", message.trim(), next.trim()),
        None => message.trim().to_owned(),
    }
}

fn has_word(line: &str) -> bool {
    let text = line.to_lowercase();
    WORDS.iter().any(|word| text.contains(word))
}

/// npm's own words for an error.
pub(super) fn npm_error(line: &str) -> Option<&str> {
    line.strip_prefix("npm error").or_else(|| line.strip_prefix("npm ERR!")).map(str::trim_start)
}

fn npm(lines: &[String]) -> Option<String> {
    let text = lines.iter().filter_map(|line| npm_error(line)).find(|text| !is_npm_aside(text))?;
    Some(format!("npm error {text}"))
}

fn is_npm_aside(text: &str) -> bool {
    let text = text.to_lowercase();
    text.len() < 4 || NPM_ASIDES.iter().any(|aside| text.starts_with(aside))
}

/// The message of an exception: the last line that begins with the name of one, and has a trace
/// before it (Python) or behind it (the others).
fn raised(lines: &[String]) -> Option<String> {
    if !lines.iter().any(|line| is_frame(line)) {
        return None;
    }
    let at = lines.iter().rposition(|line| names_exception(line))?;
    let message = lines
        .get(at)?
        .trim()
        .trim_start_matches("Uncaught ")
        .trim_start_matches("Caused by: ")
        .to_owned();
    // pydantic has the name of the missing setting in the next two lines.
    if message.contains("validation error") {
        let details = lines.get(at + 1..)?.iter().take(2).map(|line| line.trim());
        return Some(details.fold(message, |all, detail| format!("{all}: {detail}")));
    }
    Some(message)
}

/// Whether a line is one of a trace.
fn is_frame(line: &str) -> bool {
    let text = line.trim_start();
    text.len() < line.len() && (text.starts_with("at ") || text.starts_with("File \""))
}

/// Whether a line begins with the name of an exception: `TypeError: …`, `Error [ERR_X]: …`,
/// `java.lang.IllegalStateException: …`.
fn names_exception(line: &str) -> bool {
    const GROUPS: [&str; 2] = ["ExceptionGroup:", "BaseExceptionGroup:"];
    let line = line
        .strip_prefix("Uncaught ")
        .or_else(|| line.strip_prefix("Unhandled exception. "))
        .or_else(|| line.strip_prefix("Exception in thread \"main\" "))
        // Java: the last cause is the first thing that went wrong.
        .or_else(|| line.strip_prefix("Caused by: "))
        .unwrap_or(line);
    let Some((name, _)) = line.split_once(": ") else { return line == "KeyboardInterrupt" };
    let name = name.split_once(" [").map_or(name, |(name, _)| name);
    let ends = ["Error", "Exception", "Exit", "Warning", "NotFound", "Failed", "Failure"];
    name.chars().all(|c| c.is_alphanumeric() || "._$".contains(c))
        && ends.iter().any(|end| name.ends_with(end))
        && !GROUPS.iter().any(|group| line.starts_with(group))
}

/// The message of a panic in Rust or Go.
fn panicked(lines: &[String]) -> Option<String> {
    let at = lines
        .iter()
        .position(|line| line.contains("panicked at ") || line.starts_with("panic: "))?;
    let line = lines.get(at)?;
    let next = lines.get(at + 1).filter(|_| line.ends_with(':'));
    Some(next.unwrap_or(line).trim().to_owned())
}

fn is_resolver_cause(line: &str) -> bool {
    let text = line.trim_start();
    text.starts_with("cause: ") || text.starts_with("Caused by: ") || text.starts_with("╰─▶ ")
}

/// What uv's resolver says, whose first line says only that it found nothing. Its older form is
/// wrapped.
fn resolver(lines: &[String]) -> Option<String> {
    let at = lines.iter().position(|line| is_resolver_cause(line))?;
    let first = lines.get(at)?.trim_start();
    let before = at.checked_sub(1).and_then(|at| lines.get(at)).map_or("", |line| line.trim());
    if before.starts_with("Error: ") {
        // Java: the cause only repeats it.
        return Some(before.to_owned());
    }
    let text = first.split_once([':', '▶']).map_or(first, |(_, text)| text).trim().to_owned();
    let wrapped = lines.get(at + 1..)?.iter().take_while(|line| {
        first.starts_with('╰') && line.starts_with("      ") && !line.trim().is_empty()
    });
    let reason = wrapped.fold(text, |all, line| format!("{all} {}", line.trim()));
    match before.strip_prefix("error: Failed to spawn: ") {
        // The reason has no name in it.
        Some(program) => Some(format!("Failed to spawn: {program}: {reason}")),
        None => Some(reason),
    }
}

/// The last line with a word for a failure.
fn with_words(lines: &[String]) -> Option<String> {
    lines.iter().rev().find(|line| is_said(line) && has_word(line)).map(|line| whole(lines, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Option<String> {
        telling_line(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn line_that_begins_like_a_frame_or_progress_is_told_if_it_is_none() {
        for line in [
            "At least one of --token or --user must be given",
            "~/.aws/credentials: not found",
            "File \"config.json\" not found",
            "Resolved config: missing API_KEY",
            "Downloaded file is invalid",
        ] {
            assert_eq!(told(&["starting", line]).as_deref(), Some(line));
        }
        for aside in ["    at main (index.js:1:2)", "    ^^^^", "Resolved 12 packages in 3ms"] {
            assert_eq!(told(&[aside]), None, "{aside}");
        }
    }

    #[test]
    fn control_sequences_of_a_terminal_are_left_out() {
        for (line, expected) in [
            ("\\u{1b}[31;1merror\\u{1b}[0m: x", "error: x"),
            ("\\u{1b}[?25hError: bad key", "Error: bad key"),
            ("\\u{1b}]0;a title\\u{7}Error: bad key", "Error: bad key"),
            ("\\u{1b}[?25", ""),
        ] {
            assert_eq!(plain(line), expected);
        }
    }
}
