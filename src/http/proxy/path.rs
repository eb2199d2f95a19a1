//! The meaning of a path, whatever its spelling.
//!
//! Must not: know which routes there are.

use percent_encoding::percent_decode_str;

/// How often a path is decoded before it counts as ambiguous; honest clients encode it at most
/// twice.
const MAX_DECODED: usize = 4;
/// The segments that tell MANTYX's paths apart.
const FIXED: &str = "v1 workspaces agent-runs agent-sessions eval-runs stream tool-results cancel \
                     messages";

/// A path as the most lenient server reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct NormalizedPath {
    /// Its segments, decoded and without parameters. Empty ones are left out, and the [`FIXED`]
    /// ones are in lower case.
    pub segments: Vec<String>,
    /// Whether a stricter server reads other segments. An encoded slash is content for one server
    /// and a separator for another; `Agent-Runs` is `agent-runs` only where case is ignored.
    pub is_odd: bool,
    /// Whether a segment is `.` or `..`, which lead elsewhere.
    pub has_dots: bool,
}

impl NormalizedPath {
    pub fn new(path: &str) -> Self {
        let plain: Vec<String> =
            path.split('/').filter(|segment| !segment.is_empty()).map(decoded).collect();
        let mut text = path.to_owned();
        let mut settled = false;
        for _ in 0..MAX_DECODED {
            let next = decoded(&text);
            settled = next == text;
            text = next;
        }
        // Some servers take the part behind a semicolon for parameters, and drop it.
        let segments: Vec<String> = text
            .split(['/', '\\'])
            .filter_map(|segment| segment.split(';').next())
            .filter(|segment| !segment.is_empty())
            .enumerate()
            .map(without_case)
            .collect();
        Self {
            is_odd: !settled || segments != plain || text.contains(is_strange),
            has_dots: segments.iter().any(|segment| matches!(segment.as_str(), "." | "..")),
            segments,
        }
    }

    /// Whether `path`, with this meaning, is one of MANTYX's.
    pub fn is_proxied(&self, path: &str) -> bool {
        path.starts_with("/api/") || self.segments.len() > 1 && self.segments[0] == "api"
    }
}

/// Lowers the case of a segment that is one of [`FIXED`], except at the place of the workspace (3)
/// or the id (5).
fn without_case((at, segment): (usize, &str)) -> String {
    if matches!(at, 3 | 5) {
        return segment.to_owned();
    }
    let fixed = FIXED.split(' ').find(|fixed| fixed.eq_ignore_ascii_case(segment));
    fixed.unwrap_or(segment).to_owned()
}

/// Whether servers differ in what they make of a character of a path.
fn is_strange(character: char) -> bool {
    character.is_control() || character == char::REPLACEMENT_CHARACTER
}

/// A segment without its percent-encoding (RFC 3986, 2.1).
pub fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}
