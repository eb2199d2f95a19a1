//! What every request meets first and every answer is made of: who may come in, where a path leads,
//! and the shape of bodies and errors.
//!
//! Must not: handle a request.

pub mod code;
pub mod guard;
pub mod hosts;
pub mod reply;
pub mod route;
pub mod sessions;

use std::{net::SocketAddr, sync::Arc};

use crate::model::san::San;

/// How a connection came in.
#[derive(Debug, Clone)]
pub enum Arrival {
    Tcp {
        peer: SocketAddr,
    },
    Tls {
        peer: SocketAddr,
        /// The names in the caller's certificate, which a known authority has signed; `None` where
        /// none is asked for.
        names: Option<Arc<[San]>>,
    },
    Unix,
}
