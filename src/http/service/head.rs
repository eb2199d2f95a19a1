//! What the head of a request takes of the budget.
//!
//! Must not: know what a request does.

use http::Request;

use crate::budget::{Budget, Held, NoRoom};
use crate::model::AppName;

/// The largest head of a request that is not counted, in bytes.
const SMALL_HEAD: usize = 4 << 10;
/// What a header takes beside its name and value (RFC 7541 §4.1).
const HEADER_OVERHEAD: usize = 32;

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
    use super::*;

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
