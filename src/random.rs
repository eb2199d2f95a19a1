//! Chance: the jitter of waits, the bytes of ids, and secrets. A simulation draws all of them from
//! its seed.
//!
//! Must not: be gone round: chance that no seed decides hides what the simulation finds.

use std::num::{NonZeroU64, NonZeroU128};

use uuid::Uuid;

/// A number of at least 0 and below 1.
pub fn share() -> f64 {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        let bits = u32::try_from(world.random() >> 32).expect("32 bits are left");
        return f64::from(bits) / (f64::from(u32::MAX) + 1.0);
    }
    rand::random()
}

/// The id of a span.
pub fn span_id() -> NonZeroU64 {
    loop {
        if let Some(id) = NonZeroU64::new(bits()) {
            return id;
        }
    }
}

/// The id of a trace.
pub fn trace_id() -> NonZeroU128 {
    NonZeroU128::from(span_id()) | u128::from(bits()) << 64
}

fn bits() -> u64 {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        return world.random();
    }
    rand::random()
}

/// A name that nothing else has.
pub fn uuid() -> Uuid {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        return Uuid::from_u64_pair(world.random(), world.random());
    }
    Uuid::new_v4()
}

/// A name that cannot be guessed: 122 random bits of the operating system.
pub fn unguessable() -> Uuid {
    uuid()
}

/// Bytes that no other process has drawn.
///
/// # Errors
///
/// The system has none.
pub fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        bytes.fill_with(|| world.random().to_le_bytes()[0]);
        return Ok(());
    }
    getrandom::fill(bytes)
}
