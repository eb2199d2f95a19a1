//! Tells what a stream without numbers repeats when it is opened anew.
//!
//! A server may begin such a stream from its first event each time, or go on where it is; nothing
//! says which. So what comes after an opening is compared with the history from its start: as long
//! as the two agree it is a repetition, and from the first difference on it is new.
//!
//! Must not: know what an event says.

/// The most events that are remembered; what a longer history repeats beyond them is handed on
/// again.
const KEEP: usize = 1 << 16;

/// The events without a number that one stream has brought, as hashes.
#[derive(Debug, Clone, Default)]
pub struct Unnumbered {
    history: Vec<u64>,
    /// How much of the history the open stream has repeated; `None` once it has brought news.
    repeated: Option<usize>,
}

impl Unnumbered {
    /// The stream was opened anew.
    pub fn reopened(&mut self) {
        self.repeated = Some(0);
    }

    /// Whether the next event, with this hash, is one that was brought before.
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
