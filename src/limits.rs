//! What bounds one app, so that it leaves room to the others.
//!
//! Must not: know what it bounds.

pub mod counted;
pub mod oldest;
pub mod shares;
