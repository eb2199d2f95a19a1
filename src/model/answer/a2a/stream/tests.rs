//! Replies gathered out of events, in every wire.
