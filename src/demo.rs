//! The peers that come with the bridge, for `demo`, for the examples and for tests.
//!
//! Must not: be reachable from outside of this host unless whoever starts them binds them so.

pub mod a2a_agent;
