//! What bounds one app, so that it leaves room to the others.
//!
//! What may be done: [`queue`] lets calls run in turns of the apps, [`quota`] counts those of a
//! time, [`token_bucket`] those of a second, and [`slots`] what is open at once. What is kept: a
//! [`ring`] has the last entries, [`counted`] counts what exists, [`shares`] divides bytes, and
//! [`oldest`] picks what is forgotten where apps keep too much.
//!
//! Must not: know what it bounds.

pub mod counted;
pub mod oldest;
pub mod queue;
pub mod quota;
pub mod ring;
pub mod shares;
pub mod slots;
pub mod token_bucket;
