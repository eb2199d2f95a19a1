//! Chance: the jitter of waits, and the bytes of ids.
//!
//! Must not: be the source of a secret.

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

/// A name that nothing else has.
pub fn uuid() -> Uuid {
    #[cfg(test)]
    if let Some(world) = crate::simulated::world() {
        return Uuid::from_u64_pair(world.random(), world.random());
    }
    Uuid::new_v4()
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
