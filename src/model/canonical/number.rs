//! Numbers as RFC 8785 writes them: those of ECMAScript's `Number::toString`.
//!
//! Must not: be used for text that travels on. A double has 17 digits, and a JSON number may have
//! more.

use std::borrow::Cow;

/// The double of a JSON number; infinite for a number that is larger than any double. `None` for a
/// word (`true`, `false`, `null`), an array or an object.
pub(super) fn double(raw: &str) -> Option<f64> {
    if !raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return None;
    }
    raw.parse().ok()
}

/// The text of a double that is finite.
pub(super) fn text<'a>(value: f64) -> Cow<'a, str> {
    ryu_js::Buffer::new().format_finite(value).to_owned().into()
}
