//! What bounds one app, so that it leaves room to the others.
//!
//! A [`ring`] keeps the last entries, [`counted`] counts what exists, [`shares`] divides bytes, and
//! [`oldest`] picks what is forgotten where apps keep too much.
//!
//! Must not: know what it bounds.

pub mod counted;
pub mod oldest;
pub mod ring;
pub mod shares;
