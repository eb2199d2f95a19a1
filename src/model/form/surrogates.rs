//! Halves of characters in JSON text, which the readers of Python's official clients refuse with
//! the whole message.
//!
//! Must not: change anything else.

use std::borrow::Cow;
use std::ops::Range;

/// How long an escape such as `\ud800` is.
const ESCAPE: usize = 6;

/// The JSON `text`, in which U+FFFD stands for each half of a character without its other half.
pub fn without_lone_surrogates(text: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    // The end of what `repaired` has of the text.
    let mut copied_to = 0;
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'\\', text.as_bytes().get(at..).unwrap_or_default()) {
        let start = at + offset;
        let end = start + ESCAPE;
        at = match half(text, start) {
            None => start + 2,
            Some(Half::First) if matches!(half(text, end), Some(Half::Second)) => end + ESCAPE,
            Some(_) => {
                repaired.push_str(text.get(copied_to..start).unwrap_or_default());
                repaired.push_str("\\ufffd");
                copied_to = end;
                end
            }
        };
    }
    if copied_to == 0 {
        return text.into();
    }
    repaired.push_str(text.get(copied_to..).unwrap_or_default());
    repaired.into()
}

/// Which half of a character an escape stands for.
enum Half {
    First,
    Second,
}

/// The half of a character that is escaped at `start`.
fn half(text: &str, start: usize) -> Option<Half> {
    const FIRST: Range<u32> = 0xd800..0xdc00;
    const SECOND: Range<u32> = 0xdc00..0xe000;
    let digits = text.get(start..start + ESCAPE)?.strip_prefix("\\u")?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    match unit {
        _ if FIRST.contains(&unit) => Some(Half::First),
        _ if SECOND.contains(&unit) => Some(Half::Second),
        _ => None,
    }
}
