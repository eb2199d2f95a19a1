//! Reads the sign-in form, whose sender is not authenticated yet. All forms together use little
//! memory, and each has little time.
//!
//! Must not: look at the content of a form.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{ClientKey, HashMap};
use crate::http::response::{BoxError, ReadError};

/// The largest form, which holds one token.
const MAX_FORM: usize = 8 << 10;
/// How many forms are read at once.
const MAX_FORMS: usize = 32;
/// How many of them one peer may have, if the bridge can tell it from others.
const MAX_OF_PEER: usize = 8;
/// How long a form may take to arrive.
const FORM_TIME: Duration = Duration::from_secs(5);

/// Reads forms of unauthenticated senders into memory outside of the process's budget. Within the
/// budget, forms that never end would take the room of the apps' bodies.
///
/// Each peer has a limited share, so that one cannot keep the others from signing in. It stands
/// here with a value that each of its forms holds as well.
#[derive(Debug, Default)]
pub struct Forms(Mutex<HashMap<ClientKey, Arc<()>>>);

impl Forms {
    pub async fn read<B>(&self, peer: ClientKey, body: B) -> Result<Bytes, ReadError>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let _reading = self.enter(peer).ok_or(ReadError::TooManyForms)?;
        match timeout(FORM_TIME, Limited::new(body, MAX_FORM).collect()).await {
            Ok(Ok(form)) => Ok(form.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(ReadError::TooLarge { limit: MAX_FORM })
            }
            Ok(Err(error)) => Err(ReadError::Broken(error.to_string())),
            Err(_elapsed) => Err(ReadError::FormTooSlow(FORM_TIME)),
        }
    }

    fn enter(&self, peer: ClientKey) -> Option<Arc<()>> {
        let mut forms = self.0.lock();
        forms.retain(|_, of_peer| Arc::strong_count(of_peer) > 1);
        let all: usize = forms.values().map(|of_peer| Arc::strong_count(of_peer) - 1).sum();
        let of_peer = forms.entry(peer).or_default();
        let uses_its_share = !peer.is_shared() && Arc::strong_count(of_peer) > MAX_OF_PEER;
        if all < MAX_FORMS && !uses_its_share { Some(Arc::clone(of_peer)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    //! Forms that never end, in paused time.

    use std::net::{IpAddr, Ipv4Addr};

    use futures_util::StreamExt as _;
    use futures_util::future::join_all;
    use futures_util::stream::pending;
    use http::{Response, header};
    use tokio::time::Instant;

    use super::*;
    use crate::http::response::{Body, full, streamed};

    /// Any program of this machine.
    const LOCAL: ClientKey = ClientKey::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));

    /// One byte, and then nothing.
    fn stuck() -> Body {
        streamed(futures_util::stream::iter([Bytes::from("t")]).chain(pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn forms_are_few_and_short() {
        let forms = Forms::default();
        let begun = Instant::now();
        let status =
            |read: Result<Bytes, ReadError>| Response::from(read.unwrap_err()).status().as_u16();
        let all = join_all((0..MAX_FORMS).map(|_| forms.read(LOCAL, stuck())));
        let one_more = async {
            tokio::task::yield_now().await;
            let refused = Response::from(forms.read(LOCAL, full("token=x")).await.unwrap_err());
            assert!(refused.headers().contains_key(header::RETRY_AFTER));
            refused.status().as_u16()
        };
        let (all, one_more) = tokio::join!(all, one_more);
        assert_eq!(one_more, 503);
        assert!(all.into_iter().all(|read| status(read) == 408));
        assert_eq!(begun.elapsed(), FORM_TIME);
        assert_eq!(forms.read(LOCAL, full("token=x")).await.unwrap(), "token=x");
        assert_eq!(status(forms.read(LOCAL, full(vec![0; MAX_FORM + 1])).await), 413);
    }

    #[tokio::test(start_paused = true)]
    async fn peer_with_many_forms_leaves_places_to_others() {
        let forms = Forms::default();
        let peer = |last| ClientKey::Address(Ipv4Addr::new(192, 0, 2, last).into());
        let stuck = join_all((0..MAX_FORMS).map(|_| forms.read(peer(1), stuck())));
        let another = async {
            tokio::task::yield_now().await;
            forms.read(peer(2), full("token=x")).await.unwrap()
        };
        let (stuck, another) = tokio::join!(stuck, another);
        assert_eq!(another, "token=x");
        let refused = |read: &&Result<_, _>| matches!(read, Err(ReadError::TooManyForms));
        assert_eq!(stuck.iter().filter(refused).count(), MAX_FORMS - MAX_OF_PEER);
        assert!(forms.0.lock().values().all(|of_peer| Arc::strong_count(of_peer) == 1));
    }
}
