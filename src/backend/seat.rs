//! The permits of one call, which it gives back while a question of its server is open: a person
//! may take an hour, and the server works on nothing meanwhile.
//!
//! Must not: decide who gets a permit; the queues do.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::queue::{AdmissionQueue, Permit};
use crate::model::AppName;

/// How long a call whose question is answered waits for a permit. Its own deadline is earlier.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The permits that one call has.
#[derive(Debug, Default)]
pub struct Seat(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were got. They are got again in this order, so that two calls
    /// cannot wait for each other.
    places: Vec<Place>,
    last: u64,
    /// How many questions are open.
    questions: usize,
}

#[derive(Debug)]
struct Place {
    id: u64,
    queue: AdmissionQueue,
    app: AppName,
    /// `None` while a question is open.
    permit: Option<Permit>,
}

/// A permit in a seat. Its drop gives the permit back.
#[derive(Debug)]
pub struct InSeat {
    seat: Arc<Seat>,
    id: u64,
}

/// A seat whose permits were given back, as a question is open: a person may take hours, and the
/// permit would keep other calls from the backend. Without [`Self::refill`], the call has ended.
#[derive(Debug)]
pub struct VacantSeat {
    seat: Arc<Seat>,
}

impl Seat {
    /// Puts a permit of `queue` into the seat.
    pub fn put(self: &Arc<Self>, queue: &AdmissionQueue, app: &AppName, permit: Permit) -> InSeat {
        let mut state = self.0.lock();
        state.last += 1;
        let id = state.last;
        let place = Place { id, queue: queue.clone(), app: app.clone(), permit: Some(permit) };
        state.places.push(place);
        InSeat { seat: Arc::clone(self), id }
    }

    /// Gives the permits back until the question is answered.
    pub fn vacate(self: &Arc<Self>) -> VacantSeat {
        let mut state = self.0.lock();
        state.questions += 1;
        let permits: Vec<Option<Permit>> =
            state.places.iter_mut().map(|place| place.permit.take()).collect();
        drop(state);
        drop(permits);
        VacantSeat { seat: Arc::clone(self) }
    }

    /// The next place that has no permit, unless a question is open.
    fn missing(&self) -> Option<(u64, AdmissionQueue, AppName)> {
        let state = self.0.lock();
        if state.questions > 0 {
            return None;
        }
        let place = state.places.iter().find(|place| place.permit.is_none())?;
        Some((place.id, place.queue.clone(), place.app.clone()))
    }
}

impl VacantSeat {
    /// Waits until the call has its permits again.
    pub async fn refill(self) {
        let seat = Arc::clone(&self.seat);
        drop(self);
        while let Some((id, queue, app)) = seat.missing() {
            let Ok(permit) = queue.acquire_for_begun(&app, Instant::now() + PATIENCE).await else {
                return;
            };
            let mut state = seat.0.lock();
            if state.questions == 0
                && let Some(place) = state.places.iter_mut().find(|place| place.id == id)
            {
                place.permit = Some(permit);
            }
        }
    }
}

impl Drop for VacantSeat {
    fn drop(&mut self) {
        self.seat.0.lock().questions -= 1;
    }
}

impl Drop for InSeat {
    fn drop(&mut self) {
        let mut state = self.seat.0.lock();
        let at = state.places.iter().position(|place| place.id == self.id);
        let place = at.map(|at| state.places.remove(at));
        drop(state);
        drop(place);
    }
}

#[cfg(test)]
mod tests {
    //! Who has the permit while a question is open, and after it.

    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn others_have_the_permit_while_a_question_is_open() {
        let (queue, app) = (AdmissionQueue::new(1), AppName::from("a"));
        let now = Instant::now();
        let permit = queue.acquire(&app, now).await.unwrap();
        let seat = Arc::<Seat>::default();
        let in_seat = seat.put(&queue, &app, permit);
        assert!(queue.acquire(&app, now).await.is_err());
        let [first, second] = [seat.vacate(), seat.vacate()];
        let other = queue.acquire(&app, now).await.expect("the seat's permit");
        second.refill().now_or_never().expect("another question is open");
        let mut end = pin!(first.refill());
        assert!(end.as_mut().now_or_never().is_none(), "it waits for its turn");
        drop(other);
        end.await;
        assert!(queue.acquire(&app, now).await.is_err(), "the seat has it again");
        drop(in_seat);
        assert!(queue.acquire(&app, now).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_ends_with_an_open_question_keeps_nothing() {
        let (queue, app) = (AdmissionQueue::new(1), AppName::from("a"));
        let permit = queue.acquire(&app, Instant::now()).await.unwrap();
        let seat = Arc::<Seat>::default();
        let in_seat = seat.put(&queue, &app, permit);
        drop(seat.vacate());
        drop(in_seat);
        assert!(queue.acquire(&app, Instant::now()).await.is_ok());
    }
}
