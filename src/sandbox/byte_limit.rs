//! Counts the bytes that the sandbox keeps, so that they have an upper bound: a semaphore with a
//! permit for each byte.
//!
//! Must not: decide what is forgotten when the bound is reached.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that a run or a session has taken of the limit; returned on drop.
pub(super) type Charge = OwnedSemaphorePermit;

/// Takes `bytes` of `limit`; `None` without room.
pub(super) fn take(limit: &Arc<Semaphore>, bytes: usize) -> Option<Charge> {
    let bytes = u32::try_from(bytes).ok()?;
    Arc::clone(limit).try_acquire_many_owned(bytes).ok()
}

/// Takes `bytes` more; without room, takes nothing and returns false.
pub(super) fn grow(charge: &mut Charge, bytes: usize) -> bool {
    match take(charge.semaphore(), bytes) {
        Some(more) => {
            charge.merge(more);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_drops_give_back() {
        let limit = Arc::new(Semaphore::new(10));
        let first = take(&limit, 6).unwrap();
        let mut second = take(&limit, 0).unwrap();
        assert!(!grow(&mut second, 5));
        drop(first);
        assert!(grow(&mut second, 10));
        drop(second.split(1));
        assert_eq!(second.num_permits(), 9);
        assert!(take(&limit, 2).is_none());
    }
}
