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
    let mut written = String::new();
    let mut done = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', text.as_bytes().get(at..).unwrap_or_default()) {
        let start = at + found;
        let end = start + ESCAPE;
        at = match half(text, start) {
            None => start + 2,
            Some(Half::First) if matches!(half(text, end), Some(Half::Second)) => end + ESCAPE,
            Some(_) => {
                written.push_str(text.get(done..start).unwrap_or_default());
                written.push_str("\\ufffd");
                done = end;
                end
            }
        };
    }
    if done == 0 {
        return text.into();
    }
    written.push_str(text.get(done..).unwrap_or_default());
    written.into()
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
