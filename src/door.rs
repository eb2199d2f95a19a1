//! What every request meets first and every answer is made of: who may come in, where a path leads,
//! and the shape of bodies and errors.
//!
//! Must not: handle a request.

pub mod code;
pub mod guard;
pub mod reply;
pub mod route;
pub mod sessions;

use std::net::SocketAddr;

/// How a connection came in.
#[derive(Debug, Clone, Copy)]
pub enum Arrival {
    Tcp { peer: SocketAddr },
    Unix,
}
