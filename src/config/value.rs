//! Durations as bridge.yaml writes them: `250ms`, `30s`.
//!
//! Must not: know which key a value belongs to, or what range is sensible there.

use std::time::Duration;

/// The remedy for every wrong duration.
pub const DURATION_FORMS: &str = "a duration such as 250ms, 30s, 5m or 2h";

/// Parses `250ms`, `30s`, `5m`, `2h`; `None` if `text` is anything else or too large.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(60 * 60).map(Duration::from_secs),
        _ => None,
    }
}

/// The forms of a size, for an error message.
pub const SIZE_FORMS: &str = "a size: 512B, 64KiB, 1MiB";

/// Reads a size in bytes.
pub fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = number_and_unit(text)?;
    let bytes = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    usize::try_from(number).ok()?.checked_mul(bytes)
}

/// Writes `duration` in the form that [`parse_duration`] reads.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match duration.as_secs() {
        0 => format!("{millis}ms"),
        _ if !millis.is_multiple_of(1000) => format!("{millis}ms"),
        secs if secs.is_multiple_of(60 * 60) => format!("{}h", secs / (60 * 60)),
        secs if secs.is_multiple_of(60) => format!("{}m", secs / 60),
        secs => format!("{secs}s"),
    }
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{format_duration, parse_duration};

    #[test]
    fn durations() {
        for (text, millis) in [
            ("0s", Some(0)),
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("", None),
            ("5", None),
            ("s", None),
            ("-5s", None),
            ("1.5s", None),
            ("5 s", None),
            ("5S", None),
            ("5m30s", None),
            ("1d", None),
            ("18446744073709551615h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["0ms", "250ms", "1500ms", "30s", "90s", "5m", "2h"] {
            assert_eq!(parse_duration(text).map(format_duration).as_deref(), Some(text));
        }
    }
}
