//! Counts the requests of each app that are open: from their admission until their answers are
//! sent.
//!
//! A listener limits its connections, and one app's share of them. On HTTP/2, a hundred requests
//! are open on one connection, so that an app within its share could still have fifty thousand
//! streams and calls open, with the tasks and heads that belong to them.
//!
//! Must not: know what a request does.

use std::sync::Arc;

use http::Request;
use parking_lot::Mutex;

use crate::budget::{Budget, Held, NoRoom};
use crate::model::AppName;
use crate::model::maps::HashMap;

/// The most open requests over all apps and listeners. An app has no more than it leaves to others.
const MAX: usize = 4096;
/// The largest head of a request that is not counted, in bytes.
const SMALL_HEAD: usize = 4 << 10;
/// What a header takes beside its name and value (RFC 7541 §4.1).
const HEADER_OVERHEAD: usize = 32;

/// The open requests.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_app: HashMap<AppName, usize>,
}

/// One open request; counted until it is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest {
    requests: OpenRequests,
    app: AppName,
}

impl OpenRequests {
    /// Counts one more request of `app`; `None` if the app has as many as it leaves to others.
    pub(super) fn open(&self, app: &AppName) -> Option<OpenRequest> {
        let mut counts = self.0.lock();
        let all = counts.all + 1;
        let own = counts.by_app.get(app).map_or(1, |count| count + 1);
        // Each app may have one, so that no two apps can shut out a third.
        if own > 1 && all + own > MAX {
            return None;
        }
        counts.all = all;
        counts.by_app.insert(app.clone(), own);
        drop(counts);
        Some(OpenRequest { requests: self.clone(), app: app.clone() })
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut counts = self.requests.0.lock();
        counts.all -= 1;
        let Some(own) = counts.by_app.get_mut(&self.app) else { return };
        *own -= 1;
        if *own == 0 {
            counts.by_app.remove(&self.app);
        }
    }
}

/// Counts the head of `request` for `app`, if it is large. Without this, the heads of an app's open
/// requests could take 128 MiB that no budget knows.
pub(super) async fn pay_for_head<B>(app: &AppName, request: &Request<B>) -> Result<Held, NoRoom> {
    let headers = request.headers().iter();
    let headers =
        headers.map(|(name, value)| name.as_str().len() + value.as_bytes().len() + HEADER_OVERHEAD);
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let size = headers.sum::<usize>() + target;
    let mut room = Budget::of_process().hold_for(Some(app.clone()));
    if size > SMALL_HEAD {
        room.resize(size).await?;
    }
    Ok(room)
}

#[cfg(test)]
mod tests {
    //! How many requests each app may have open, and what their heads cost.

    use std::iter::from_fn;

    use super::*;

    #[test]
    fn app_has_no_more_open_requests_than_it_leaves_to_others() {
        let requests = OpenRequests::default();
        let [a, b, c] = ["a", "b", "c"].map(AppName::from);
        let mut of_a: Vec<_> = from_fn(|| requests.open(&a)).collect();
        assert_eq!(of_a.len(), MAX / 2);
        let of_b: Vec<_> = from_fn(|| requests.open(&b)).collect();
        assert_eq!(of_b.len(), MAX / 4);
        of_a.pop();
        assert!(requests.open(&a).is_none(), "the second app has left less to the first");
        of_a.truncate(MAX / 4);
        assert!(requests.open(&a).is_some());
        assert!(requests.open(&c).is_some());
        drop((of_a, of_b));
        assert_eq!(requests.0.lock().all, 0);
        assert!(requests.0.lock().by_app.is_empty());
    }

    #[tokio::test]
    async fn large_head_is_counted_for_its_app() {
        let budget = Budget::with_room(1 << 20);
        let head = |size: usize| {
            Request::get("/v1/status").header("cookie", "x".repeat(size)).body(()).expect("it fits")
        };
        Budget::instead(&budget, async {
            let app = AppName::from("a");
            let small = pay_for_head(&app, &head(100)).await.expect("there is room");
            assert_eq!(budget.held(), 0);
            let large = pay_for_head(&app, &head(30_000)).await.expect("there is room");
            assert!((30_000..31_000).contains(&budget.held()), "{}", budget.held());
            drop((small, large));
            assert_eq!(budget.held(), 0);
        })
        .await;
    }
}
