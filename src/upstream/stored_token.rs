//! The refresh token that replaced the configured one, in the state directory.
//!
//! An issuer that rotates refresh tokens returns each one once. So only one exchange runs at a
//! time, over all grants of this process: a reload can replace a grant during an exchange of the
//! old one. If a token cannot be written, the bridge tries again until it can.
//!
//! Must not: show a token.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::backoff::Backoff;
use crate::model::catalog::hex;
use crate::state_dir::StateDir;

/// The waits between attempts to write a token.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Identifies a grant: a hash of its configuration.
pub(super) type GrantId = [u8; 32];

/// The token, and the tasks that must not end before it is written.
#[derive(Debug)]
pub(super) struct StoredToken {
    state: StateDir,
    /// Held during an exchange that may replace the token.
    pub(super) turn: AsyncMutex<()>,
    /// Held while the file is written, so that an older token is never written over a newer one.
    writing: AsyncMutex<()>,
    unsaved: Mutex<Unsaved>,
    /// The exchanges with the issuer.
    pub tasks: TaskTracker,
    stop: CancellationToken,
}

/// The newest token, while it is not in the file.
#[derive(Debug, Default)]
struct Unsaved {
    token: Option<(GrantId, SecretString)>,
    /// Whether a task is trying to write it.
    is_tried: bool,
}

impl StoredToken {
    pub(super) fn new(state: StateDir) -> Arc<Self> {
        Arc::new(Self {
            state,
            turn: AsyncMutex::default(),
            writing: AsyncMutex::default(),
            unsaved: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// The replacement of this grant's refresh token, if there is one.
    pub(super) async fn get(&self, of: &GrantId) -> Option<SecretString> {
        if let Some((grant, token)) = &self.unsaved.lock().token
            && grant == of
        {
            return Some(token.clone());
        }
        let of = hex(of);
        match self.state.in_background(move |state| state.refresh_token(&of)).await {
            Ok(token) => token,
            Err(error) => {
                error!(error, "the kept refresh token cannot be read");
                None
            }
        }
    }

    /// Stores the new refresh token. When this returns, it is on disk, or a task keeps trying: the
    /// previous token may be invalid by now.
    pub(super) async fn put(self: &Arc<Self>, of: GrantId, next: SecretString) {
        self.unsaved.lock().token = Some((of, next));
        if self.write().await {
            return;
        }
        if std::mem::replace(&mut self.unsaved.lock().is_tried, true) {
            return;
        }
        let this = Arc::clone(self);
        self.tasks.spawn(async move { this.write_until_done().await });
    }

    /// Waits at most `within` until exchanges have ended and the token is written. A token that
    /// could not be written is tried once more.
    pub(super) async fn finish(&self, within: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(within, self.tasks.wait()).await.is_err() {
            error!("an exchange with the issuer of tokens has not ended in time");
        }
    }

    /// Writes the newest token; true if no token is left to write. A newer token may come while the
    /// file is written: it stays unsaved, and is written next.
    async fn write(&self) -> bool {
        let _writing = self.writing.lock().await;
        let Some((of, token)) = self.unsaved.lock().token.clone() else { return true };
        let copy = token.clone();
        let writing =
            self.state.in_background(move |state| state.write_refresh_token(&hex(&of), &copy));
        let Err(error) = writing.await else {
            info!("the issuer has replaced the refresh token; the new one is kept");
            let mut unsaved = self.unsaved.lock();
            let newest = unsaved.token.take_if(|(grant, newest)| {
                *grant == of && newest.expose_secret() == token.expose_secret()
            });
            return newest.is_some();
        };
        let cure = "it is tried again; if it cannot be written before a restart, log in again";
        error!(error, cure, "the new refresh token cannot be kept");
        false
    }

    /// Tries until the newest token is in the file, and once more at the stop. `is_tried` is
    /// cleared under the lock, so that a token that comes at this moment gets another task.
    async fn write_until_done(self: Arc<Self>) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            self.stop.run_until_cancelled(sleep(backoff.next_wait())).await;
            let stopping = self.stop.is_cancelled();
            let saved = self.write().await;
            let mut unsaved = self.unsaved.lock();
            if stopping || saved && unsaved.token.is_none() {
                unsaved.is_tried = false;
                return;
            }
        }
    }
}
