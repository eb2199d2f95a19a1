//! Recognises the events that a stream without numbers repeats when it is opened again.
//!
//! A server may begin such a stream from its first event each time, or continue where it is;
//! nothing says which. So the events after an opening are compared with the history from its start.
//! As long as the two agree, they are repetitions; from the first difference on, they are new.
//!
//! Must not: know what an event says.

/// The most events that are remembered. Repetitions beyond them are handed on again.
const KEEP: usize = 1 << 16;

/// The events without a number that one stream has brought, as hashes.
#[derive(Debug, Clone, Default)]
pub struct Unnumbered {
    history: Vec<u64>,
    /// How much of the history the open stream has repeated; `None` once it has brought a new
    /// event.
    repeated: Option<usize>,
}

impl Unnumbered {
    /// Notes that the stream was opened again.
    pub fn reopened(&mut self) {
        self.repeated = Some(0);
    }

    /// Whether the next event, with this hash, is a repetition.
    pub fn repeats(&mut self, print: u64) -> bool {
        if let Some(repeated) = self.repeated {
            if self.history.get(repeated) == Some(&print) {
                self.repeated = Some(repeated + 1);
                return true;
            }
            self.repeated = None;
        }
        if self.history.len() < KEEP {
            self.history.push(print);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    //! Servers that replay, and servers that do not.

    use proptest::prelude::*;

    use super::*;

    fn news(replay: &mut Unnumbered, prints: &[u64]) -> Vec<u64> {
        prints.iter().copied().filter(|print| !replay.repeats(*print)).collect()
    }

    #[test]
    fn a_stream_that_only_goes_on_is_all_news() {
        let mut replay = Unnumbered::default();
        assert_eq!(news(&mut replay, &[1, 1, 2]), [1, 1, 2]);
        replay.reopened();
        assert_eq!(news(&mut replay, &[3, 1]), [3, 1]);
    }

    proptest! {
        /// Whatever is cut, a server that begins anew each time is heard once.
        #[test]
        fn a_stream_that_begins_anew_is_heard_once(
            log in prop::collection::vec(0u64..4, 0..30),
            cuts in prop::collection::vec(0usize..30, 0..6),
        ) {
            let mut replay = Unnumbered::default();
            let mut heard = Vec::new();
            for cut in cuts {
                replay.reopened();
                heard.extend(news(&mut replay, &log[..cut.min(log.len())]));
            }
            replay.reopened();
            heard.extend(news(&mut replay, &log));
            prop_assert_eq!(heard, log);
        }
    }
}
