//! What every request meets first and every answer is made of: who may come in, where a path leads,
//! and the shape of bodies and errors.
//!
//! Must not: handle a request.

pub mod code;
pub mod failures;
pub mod guard;
pub mod hosts;
pub mod rate;
pub mod reply;
pub mod route;
pub mod sessions;

use std::{fmt, net::SocketAddr, sync::Arc};

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
    Unix {
        /// The process that connected, by the kernel's word; `None` where there is none.
        peer: Option<Process>,
    },
}

/// The process that opened a connection on a unix socket, as it was then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub uid: u32,
    pub pid: Option<i32>,
}

/// For the log.
impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { peer } => write!(f, "{peer}"),
            Self::Tls { peer, .. } => write!(f, "{peer}, TLS"),
            Self::Unix { peer: Some(Process { uid, pid: Some(pid) }) } => {
                write!(f, "unix, uid {uid}, pid {pid}")
            }
            Self::Unix { peer: Some(Process { uid, pid: None }) } => write!(f, "unix, uid {uid}"),
            Self::Unix { peer: None } => f.write_str("unix"),
        }
    }
}
