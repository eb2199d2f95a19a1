//! What every request meets first and every answer is made of: who may come in, where a path leads,
//! and the shape of bodies and errors.
//!
//! Must not: handle a request.

pub mod code;
pub mod failures;
pub mod forms;
pub mod guard;
pub mod hosts;
pub mod rate;
pub mod reply;
pub mod route;
pub mod sessions;

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Once},
};

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

/// What is to be told when a request on a connection has been let in; part of the request.
#[derive(Clone)]
pub struct LetIn(Arc<Untold>);

struct Untold {
    once: Once,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl LetIn {
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Untold { once: Once::new(), tell: Box::new(tell) }))
    }

    /// Only the first time counts.
    pub fn tell(&self) {
        self.0.once.call_once(|| (self.0.tell)());
    }
}

impl fmt::Debug for LetIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LetIn")
    }
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
