//! Another session in the place of one that the server has forgotten. Calls that find that out
//! together wait for one renewal. What the old session's requests still bring is taken; what was to
//! come on its standing stream is lost.
//!
//! Must not: send a request again; the caller of each does.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Post, PostFailure, Session, Streamable};
use crate::backend::mcp::rpc::{Kind, Message, OpenRequest, Rpc, members};
use crate::model::mcp::{method, notification};
use crate::model::member;

/// How long a server may take to begin another session.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The renewal of one connection's sessions.
#[derive(Default)]
pub(super) struct Renewal {
    /// The parameters of the `initialize` that the server has accepted.
    params: OnceLock<Box<RawValue>>,
    /// Held during a renewal. Why the latest one has failed: the connection is given up then.
    failure: Arc<Mutex<Option<String>>>,
}

impl Renewal {
    /// Keeps what the message `initialize` proposes.
    pub(super) fn keep(&self, initialize: &Bytes) {
        let params = std::str::from_utf8(initialize).ok().and_then(|text| member(text, "params"));
        if let Some(params) = params {
            // A connection has one handshake.
            let _first = self.params.set(params.to_owned()).is_ok();
        }
    }
}

impl Streamable {
    /// The session that takes the place of `old`. A task begins it, so that a caller that goes away
    /// leaves no session half begun.
    ///
    /// # Errors
    ///
    /// Why there is no other session.
    pub(super) async fn renewed(
        self: &Arc<Self>,
        rpc: &Arc<Rpc>,
        old: &Session,
    ) -> Result<Session, String> {
        let mut failure = Arc::clone(&self.renewal.failure).lock_owned().await;
        if old.replaced.is_cancelled() {
            return Ok(self.session.lock().clone());
        }
        if let Some(why) = &*failure {
            return Err(why.clone());
        }
        let (streamable, carrier) = (Arc::clone(self), Arc::clone(rpc));
        let renewal = rpc.spawn(async move {
            let renewed = timeout(RENEWAL_TIMEOUT, streamable.begin_another(&carrier)).await;
            let outcome =
                renewed.unwrap_or_else(|_late| Err("it does not begin one in time".to_owned()));
            *failure = outcome.as_ref().err().cloned();
            outcome
        });
        let outcome = match renewal {
            Some(renewal) => renewal.await.ok().flatten(),
            None => None,
        };
        outcome.unwrap_or_else(|| Err("the connection ended".to_owned()))
    }

    /// Begins another session with the `initialize` that the server accepted before, and puts it in
    /// the place of the present one.
    async fn begin_another(self: &Arc<Self>, rpc: &Arc<Rpc>) -> Result<Session, String> {
        let params = self.renewal.params.get().ok_or("it has had no session")?;
        let request =
            Arc::new(OpenRequest::new(rpc.next_id(), method::INITIALIZE, Kind::Handshake));
        let message = Message::request(&request, None, &[&members(params)]);
        rpc.open(&request);
        let post = Post {
            bytes: message.text.into(),
            method: Some(method::INITIALIZE),
            request: Some(Arc::clone(&request)),
        };
        let posted = self.post(rpc, &post, &Session::default()).await;
        rpc.forget(request.id);
        let session = Session::begun(posted.map_err(words)?, &request);
        match request.take_outcome() {
            Some(Ok(Ok(result))) => {
                let initialized = rpc.handshake.lock().initialized(&result);
                initialized.map_err(|_other| "its answer is no handshake")?;
            }
            Some(Ok(Err(error))) => return Err(error.to_string()),
            Some(Err(_)) | None => return Err("it does not answer `initialize`".to_owned()),
        }
        let end = Post {
            bytes: Message::initialized().text.into(),
            method: Some(notification::INITIALIZED),
            request: None,
        };
        self.post(rpc, &end, &session).await.map_err(words)?;
        let old = std::mem::replace(&mut *self.session.lock(), session.clone());
        old.replaced.cancel();
        // The server lost its state, and may have restarted as another version with other tools.
        rpc.changed.notify_one();
        self.listen(rpc, &session);
        Ok(session)
    }
}

fn words(failure: PostFailure) -> String {
    failure.failure().words()
}
