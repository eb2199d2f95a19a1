//! What a path means, however it is spelled.
//!
//! Must not: know which routes there are.

/// How often a path is decoded before it counts as ambiguous: nobody encodes it more than twice in
/// good faith.
const MOST_DECODED: usize = 4;
/// The segments by which a path of MANTYX's is told from another.
const FIXED: [&str; 9] = [
    "v1",
    "workspaces",
    "agent-runs",
    "agent-sessions",
    "eval-runs",
    "stream",
    "tool-results",
    "cancel",
    "messages",
];

/// A path as the most generous server reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct NormalizedPath {
    /// Its segments, decoded and without parameters; empty ones are left out, and [`FIXED`] ones are in
    /// lower case.
    pub segments: Vec<String>,
    /// Whether a less generous server reads other segments: an encoded slash is content for one and
    /// a separator for the other, and `Agent-Runs` is `agent-runs` only where case is ignored.
    pub is_odd: bool,
    /// Whether a segment is `.` or `..`, which lead elsewhere.
    pub has_dots: bool,
}

impl NormalizedPath {
    pub fn of(path: &str) -> Self {
        let plain = path.split('/').filter(|segment| !segment.is_empty()).map(decoded);
        let plain: Vec<String> = plain.collect();
        let mut text = path.to_owned();
        let mut settled = false;
        for _ in 0..MOST_DECODED {
            let next = decoded(&text);
            settled = next == text;
            text = next;
        }
        // Some servers take what is behind a semicolon for parameters, and leave it out.
        let segments = text.split(['/', '\\']).filter_map(|segment| segment.split(';').next());
        let segments = segments.filter(|segment| !segment.is_empty());
        let segments: Vec<String> = segments.enumerate().map(without_case).collect();
        let strange = |text: char| text.is_control() || text == char::REPLACEMENT_CHARACTER;
        Self {
            is_odd: !settled || segments != plain || text.contains(strange),
            has_dots: segments.iter().any(|segment| matches!(segment.as_str(), "." | "..")),
            segments,
        }
    }

    /// Whether `path`, whose meaning this is, is one of MANTYX's.
    pub fn is_proxied(&self, path: &str) -> bool {
        path.starts_with("/api/") || self.segments.len() > 1 && self.segments[0] == "api"
    }
}

/// A segment in lower case, if it is one of [`FIXED`] and does not stand where the workspace (3) or
/// the id (5) does.
fn without_case((at, segment): (usize, &str)) -> String {
    let is_id = matches!(at, 3 | 5);
    let fixed = FIXED.into_iter().find(|fixed| !is_id && fixed.eq_ignore_ascii_case(segment));
    fixed.unwrap_or(segment).to_owned()
}

/// A segment without its percent-encoding (RFC 3986, 2.1).
pub fn decoded(segment: &str) -> String {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let encoded = match behind {
            [high, low, after @ ..] if *first == b'%' => digit(high)
                .zip(digit(low))
                .and_then(|(high, low)| Some((u8::try_from(high * 16 + low).ok()?, after))),
            _ => None,
        };
        let (byte, after) = encoded.unwrap_or((*first, behind));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
