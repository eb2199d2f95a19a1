//! Announces that a run, a call or an approval has changed. Subscribers look up the new state
//! themselves.
//!
//! Must not: hold anything up. A subscriber that is slow misses changes, and gets their number.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::broadcast;

use crate::model::{AppName, ApprovalId, RunId, RunKey};

/// How many changes wait for a slow subscriber.
const WAITING: usize = 1024;

/// One change, and the app that it is of.
#[derive(Debug, Clone)]
pub enum Change {
    /// The run has a driver, or has ended.
    Run(AppName, RunKey),
    /// The call with this number in the history has begun, continues as a long call, or has ended.
    Call(AppName, u64),
    /// A question was asked, or has ended.
    Approval(AppName, ApprovalId),
}

/// A change on its way to all subscribers.
#[derive(Debug)]
pub struct Announcement {
    pub change: Change,
    text: OnceLock<Option<ChangeText>>,
}

/// What subscribers tell of a change.
#[derive(Debug, Clone)]
pub struct ChangeText {
    /// The agent run that the call or the question belongs to.
    pub run: Option<RunId>,
    pub text: Bytes,
}

/// The channel of changes; clones share it.
#[derive(Debug, Clone)]
pub struct Changes(broadcast::Sender<Arc<Announcement>>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }
}

impl Change {
    pub fn app(&self) -> &AppName {
        match self {
            Self::Run(app, _) | Self::Call(app, _) | Self::Approval(app, _) => app,
        }
    }
}

impl Announcement {
    /// The text of the change, which the first subscriber writes for all: with a thousand streams,
    /// each change would be looked up and written a thousand times. `None` if there is nothing to
    /// tell.
    pub fn text(&self, write: impl FnOnce() -> Option<ChangeText>) -> Option<&ChangeText> {
        self.text.get_or_init(write).as_ref()
    }
}

impl Changes {
    /// Announces a change, if there are subscribers.
    pub fn tell(&self, change: impl FnOnce() -> Change) {
        if self.0.receiver_count() > 0 {
            self.0.send(Arc::new(Announcement { change: change(), text: OnceLock::new() })).ok();
        }
    }

    /// Receives all changes from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Announcement>> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    //! What several subscribers get.

    use super::*;

    #[test]
    fn text_of_a_change_is_written_once_for_all_subscribers() {
        let changes = Changes::default();
        let mut subscribers: Vec<_> = (0..3).map(|_| changes.subscribe()).collect();
        changes.tell(|| Change::Call("a".into(), 7));
        let mut written = 0;
        let texts = subscribers.iter_mut().map(|subscriber| {
            let announcement = subscriber.try_recv().expect("it was announced");
            let told = announcement.text(|| {
                written += 1;
                Some(ChangeText { run: None, text: Bytes::from(vec![b'x'; 100]) })
            });
            told.expect("there is a text").text.clone()
        });
        let texts: Vec<Bytes> = texts.collect();
        assert!(
            texts.iter().all(|text| text.as_ptr() == texts[0].as_ptr()),
            "they share its bytes"
        );
        assert_eq!(written, 1);
    }
}
