//! The waits between attempts to listen.

use std::time::Duration;

use super::{LIVED, LONGEST_WAIT, Waits};

#[test]
fn waits_grow_to_a_limit_and_start_over_after_a_good_stream() {
    let mut waits = Waits::default();
    let soon = Duration::ZERO;
    let first: Vec<u128> = (0..4).map(|_| waits.after(soon, 1.0).as_millis()).collect();
    assert_eq!(first, [250, 500, 1000, 2000]);
    for _ in 0..100 {
        assert!(waits.after(soon, 1.0) <= LONGEST_WAIT);
    }
    assert_eq!(waits.after(soon, 1.0), LONGEST_WAIT);
    assert_eq!(waits.after(LIVED, 1.0).as_millis(), 250);
}

#[test]
fn no_draw_makes_a_busy_loop() {
    assert!(Waits::default().after(Duration::ZERO, 0.0) >= Duration::from_millis(100));
}
