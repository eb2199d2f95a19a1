//! Numbers as RFC 8785 writes them: those of ECMAScript's `Number::toString`.
//!
//! Must not: be used for text that travels on. A double has 17 digits, and a JSON number may have
//! more.

use std::borrow::Cow;

/// The double of a JSON number; infinite for a number that is larger than any double. `None` for a
/// word (`true`, `false`, `null`), an array or an object.
pub(super) fn double(raw: &str) -> Option<f64> {
    raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()).then(|| raw.parse().ok()).flatten()
}

/// The text of a double that is finite (ECMA-262, Number::toString; the names are its own).
pub(super) fn text<'a>(value: f64) -> Cow<'a, str> {
    if value == 0.0 {
        // Minus zero, too.
        return "0".into();
    }
    // The fewest digits that mean this double. Of two equally near texts, ECMAScript wants the even
    // one; `{:e}` gives the odd one.
    let shortest = serde_json::to_string(&value.abs()).expect("a double can be written");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{part}");
    let digits = all.trim_start_matches('0');
    let exponent: i64 = exponent.parse().unwrap_or_default();
    let n = exponent + whole.len() as i64 - (all.len() - digits.len()) as i64;
    let digits = digits.trim_end_matches('0');
    let k = digits.len();
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
    let before = usize::try_from(n).unwrap_or_default().min(k);
    let sign = if value < 0.0 { "-" } else { "" };
    let unsigned = match n {
        1..=21 => {
            let (whole, part) = digits.split_at(before);
            let whole = format!("{whole}{}", zeros(n.saturating_sub_unsigned(k as u64)));
            if part.is_empty() { whole } else { format!("{whole}.{part}") }
        }
        -5..=0 => format!("0.{}{digits}", zeros(-n)),
        _ => {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            format!("{first}{point}{rest}e{:+}", n - 1)
        }
    };
    format!("{sign}{unsigned}").into()
}
