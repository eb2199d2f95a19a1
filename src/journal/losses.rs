//! What a journal's file has lost, in words for people.
//!
//! Must not: read a file.

use std::cmp::Ordering;
use std::path::Path;

use super::frames::Flaw;
use super::live::Salvaged;
use super::lock::Extent;

/// What a file whose bytes are all intact lacks of the last process's. `first` is the number of its
/// first frame.
pub(super) fn missing(extent: Extent, first: Option<u64>, length: usize) -> Option<Flaw> {
    let size = usize::try_from(extent.size).unwrap_or(usize::MAX);
    match first?.cmp(&extent.first) {
        Ordering::Less => Some(Flaw { at: 0, bytes: length, frames: None }),
        Ordering::Equal if length < size => {
            Some(Flaw { at: length, bytes: size - length, frames: None })
        }
        _ => None,
    }
}

/// The notice to people if the journal is missing.
pub(super) const GONE: &str = "\
    The journal was gone when the bridge started, though there had been one. The runs and sessions in it \
    are not known any more. In runs that are handed over and that are older, calls without an answer are \
    answered with OUTCOME_UNKNOWN.";

/// The notice to people if what the journal says of an earlier loss cannot be read.
pub(super) const UNREADABLE_NOTE: &str = "\
    The journal has lost something, and what it says about that cannot be read: a later version of \
    mantyx-bridge has written it. In runs that are handed over and that are older, calls without an answer \
    are answered with OUTCOME_UNKNOWN.";

/// The notice to people about records that cannot be read and that keep calls from being made
/// twice; `earlier` is what was lost before.
pub(super) fn unreadable(records: usize, earlier: Option<&str>) -> String {
    let earlier = earlier.map(|what| format!(" {what}")).unwrap_or_default();
    format!(
        "{records} records of runs, calls or requests in the journal cannot be read: a later version of \
         mantyx-bridge has written them. They stay there for that version, and their runs are not \
         continued. In runs that are handed over, calls without an answer are answered with \
         OUTCOME_UNKNOWN.{earlier}"
    )
}

/// The notice to people about a damaged file.
pub(super) fn damaged(flaw: Flaw, salvaged: Salvaged, aside: &Path) -> String {
    let Flaw { at, bytes, frames } = flaw;
    let frames = match frames {
        Some(frames) => format!("{frames} records are lost"),
        None => "what they said is lost".to_owned(),
    };
    format!(
        "The journal was damaged: from byte {at} on, {bytes} bytes were not as they had been \
         written, and {frames}. {}",
        cost(salvaged, aside)
    )
}

/// The notice to people about an older file in the place of the last one.
pub(super) fn outdated(salvaged: Salvaged, aside: &Path) -> String {
    format!(
        "An older copy was in the journal's place, and what was written since is lost. {}",
        cost(salvaged, aside)
    )
}

/// What a loss costs, and what the bridge does about that.
fn cost(salvaged: Salvaged, aside: &Path) -> String {
    let Salvaged { runs, calls, orphans, routeless } = salvaged;
    let orphans = match orphans {
        0 => String::new(),
        some => format!(" The runs of {some} calls are not known any more."),
    };
    let routeless = match routeless {
        0 => String::new(),
        some => format!(
            " The record of the tools of {some} runs is lost; these runs go on with the tools that \
             their backends offer now."
        ),
    };
    let aside = aside.display();
    format!(
        "The file was set aside as {aside}. {runs} runs are read anew from \
         their beginning; {calls} calls, and others without an answer, may have been made, and are \
         answered with OUTCOME_UNKNOWN.{orphans}{routeless}"
    )
}
