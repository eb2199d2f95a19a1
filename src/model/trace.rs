//! The trace that an app's request belongs to (W3C Trace Context), which travels on to the peers
//! that answer the calls of its run.
//!
//! The bridge passes it on as it came or, if the bridge has a span of its own (`traces`), with that
//! span as the parent. Malformed headers are left out, as the recommendation asks.
//!
//! Must not: draw an id, or decide what is sampled.

use std::num::{NonZeroU64, NonZeroU128};

/// The headers, and the members of MCP's `_meta` (SEP-414), that carry a trace.
pub const PARENT: &str = "traceparent";
pub const STATE: &str = "tracestate";

/// The longest `traceparent` that is passed on: later versions may have more in it than 55.
const MAX_PARENT: usize = 256;
/// The longest `tracestate`: all that has to be passed on (W3C Trace Context §3.3.1.5).
const MAX_STATE: usize = 512;
/// The most members of one (§3.3.1.1).
const MAX_MEMBERS: usize = 32;

/// The sender records the trace (§3.2.2.5).
const SAMPLED: u8 = 1;
/// The trace's id is random (Trace Context Level 2), which holds for the whole trace.
const RANDOM: u8 = 2;

/// The position of a request in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    parent: String,
    state: Option<String>,
}

/// The fields of a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub trace: NonZeroU128,
    pub span: NonZeroU64,
    pub flags: u8,
}

impl Ids {
    /// Whether the sender records the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl Trace {
    /// Reads the values of all headers of these names; `None` if they are no trace.
    pub fn read(parents: &[&str], states: &[&str]) -> Option<Self> {
        let [parent] = parents else { return None };
        let parent = parent.trim();
        if !is_parent(parent) {
            return None;
        }
        // Several headers are one list.
        let list = states.iter().map(|state| state.trim()).collect::<Vec<_>>().join(",");
        let state = if is_state(&list) { Some(list) } else { None };
        Some(Self { parent: parent.to_owned(), state })
    }

    /// A trace that begins with the span `span`, which is recorded.
    pub fn begin(trace: NonZeroU128, span: NonZeroU64) -> Self {
        Self { parent: written(Ids { trace, span, flags: SAMPLED }), state: None }
    }

    /// The same trace with its span `span`, which is recorded, as the parent.
    pub fn within(&self, span: NonZeroU64) -> Self {
        let Ids { trace, flags, .. } = self.ids();
        let flags = flags & RANDOM | SAMPLED;
        Self { parent: written(Ids { trace, span, flags }), state: self.state.clone() }
    }

    pub fn ids(&self) -> Ids {
        ids(&self.parent).expect("it was read, or written out of ids")
    }

    /// The value of `traceparent`.
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// The value of `tracestate`.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// All names that are sent, with their values.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.state().map(|state| (STATE, state));
        [(PARENT, self.parent())].into_iter().chain(state)
    }
}

/// A `traceparent` of the version that is written here.
fn written(Ids { trace, span, flags }: Ids) -> String {
    format!("00-{trace:032x}-{span:016x}-{flags:02x}")
}

/// The ids in a `traceparent`.
fn ids(parent: &str) -> Option<Ids> {
    let mut parts = parent.split('-').skip(1);
    let trace = u128::from_str_radix(parts.next()?, 16).ok().and_then(NonZeroU128::new)?;
    let span = u64::from_str_radix(parts.next()?, 16).ok().and_then(NonZeroU64::new)?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    Some(Ids { trace, span, flags })
}

/// `version-trace-parent-flags` (§3.2.2); a later version may have more behind that.
fn is_parent(text: &str) -> bool {
    let mut parts = text.splitn(5, '-');
    let hex_parts = [2, 32, 16, 2].iter().all(|length| {
        parts.next().is_some_and(|part| {
            part.len() == *length
                && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    });
    // Neither of the ids is zero. Only later versions have more parts.
    text.len() <= MAX_PARENT
        && hex_parts
        && ids(text).is_some()
        && !text.starts_with("ff")
        && parts.next().is_none_or(|rest| {
            !text.starts_with("00") && rest.bytes().all(|byte| byte.is_ascii_graphic())
        })
}

/// A list of `key=value` (§3.3.1), with at least one.
fn is_state(text: &str) -> bool {
    let mut members = text
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|member| !member.is_empty())
        .peekable();
    text.len() <= MAX_STATE
        && members.peek().is_some()
        && members.clone().count() <= MAX_MEMBERS
        && members
            .all(|member| member.split_once('=').is_some_and(|(k, v)| is_key(k) && is_value(v)))
}

fn is_key(key: &str) -> bool {
    let allowed =
        |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let begins = key.bytes().next().is_some_and(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
    begins && key.len() <= 256 && key.bytes().all(allowed)
}

fn is_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=')
        && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    //! What is passed on, and what is not.

    use super::*;

    const PARENT_1: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[track_caller]
    fn parent(text: &str, is_good: bool) {
        let read = Trace::read(&[text], &[]);
        assert_eq!(read.is_some(), is_good, "{text}");
        assert_eq!(read.as_ref().map(Trace::parent), is_good.then_some(text.trim()));
    }

    #[test]
    fn parents() {
        parent(PARENT_1, true);
        parent(" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\t", true);
        // A later version.
        parent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true);
        parent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what.it.has", true);
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-\u{e9}",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-a b",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nx: y",
        ] {
            parent(wrong, false);
        }
        parent(&format!("cc{}-{}", PARENT_1.trim_start_matches("00"), "x".repeat(300)), false);
        assert_eq!(Trace::read(&[], &["a=1"]), None, "no state without a parent");
        assert_eq!(Trace::read(&[PARENT_1, PARENT_1], &[]), None, "which of them?");
    }

    #[test]
    fn a_span_of_ours_takes_the_place_of_the_one_before() {
        let within = |parent: &str| {
            let trace = Trace::read(&[parent], &["a=1"]).unwrap();
            trace.within(NonZeroU64::new(0xab).unwrap())
        };
        let ours = "00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-01";
        assert_eq!(within(PARENT_1).parent(), ours);
        assert_eq!(within(PARENT_1).state(), Some("a=1"), "what others have noted stays");
        assert_eq!(within(&PARENT_1.replace("-01", "-00")).parent(), ours, "it is recorded now");
        assert_eq!(within(&PARENT_1.replace("-01", "-fe")).parent(), ours.replace("-01", "-03"));
        let later = format!("cc{}-more", PARENT_1.trim_start_matches("00"));
        assert_eq!(within(&later).parent(), ours, "in the version that is spoken here");
    }

    #[test]
    fn a_trace_that_begins_here() {
        let id = NonZeroU128::new(7).unwrap();
        let trace = Trace::begin(id, NonZeroU64::new(9).unwrap());
        assert_eq!(trace.parent(), "00-00000000000000000000000000000007-0000000000000009-01");
        assert_eq!(Trace::read(&[trace.parent()], &[]), Some(trace.clone()), "others can read it");
        assert_eq!((trace.ids().trace, trace.ids().span.get()), (id, 9));
        assert!(trace.ids().is_sampled());
        let unsampled = Trace::read(&[&PARENT_1.replace("-01", "-02")], &[]).unwrap();
        assert!(!unsampled.ids().is_sampled());
    }

    #[test]
    fn states() {
        let state = |states: &[&str]| Trace::read(&[PARENT_1], states).unwrap().state;
        assert_eq!(state(&[]), None);
        assert_eq!(
            state(&["rojo=00f067aa0ba902b7, congo=t61rcWkgMzE"]).as_deref(),
            Some("rojo=00f067aa0ba902b7, congo=t61rcWkgMzE")
        );
        assert_eq!(state(&["a=1", "b@c=2"]).as_deref(), Some("a=1,b@c=2"));
        for wrong in ["", ",", "a", "=1", "A=1", "a=", "a=1,b", "a=\u{e9}", "a=b=c", "a=1\r\nb: c"]
        {
            assert_eq!(state(&[wrong]), None, "{wrong:?}");
        }
        assert_eq!(state(&[&vec!["a=1"; 33].join(",")]), None, "too many");
        assert_eq!(state(&[&format!("a={}", "x".repeat(511))]), None, "too long");
    }
}
