//! The client of a connection: where it came from, whom it is counted as, and what the connection
//! is told of it.
//!
//! Must not: decide whether it may come in.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Once},
};

use crate::model::san::San;

/// How a connection came in.
#[derive(Debug, Clone)]
pub enum ClientInfo {
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

/// Whom failures, forms and connections are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// Of IPv6, a network of 64 bits: a machine has all of its addresses.
    Address(IpAddr),
    User(u32),
    /// On a unix socket, without a word of the kernel on who it is.
    Unknown,
}

impl ClientKey {
    pub fn of(client: &ClientInfo) -> Self {
        match client {
            ClientInfo::Tcp { peer } | ClientInfo::Tls { peer, .. } => {
                match peer.ip().to_canonical() {
                    IpAddr::V6(address) if !address.is_loopback() => {
                        let network = address.to_bits() >> 64 << 64;
                        Self::Address(Ipv6Addr::from_bits(network).into())
                    }
                    address => Self::Address(address),
                }
            }
            ClientInfo::Unix { peer: Some(peer) } => Self::User(peer.uid),
            ClientInfo::Unix { peer: None } => Self::Unknown,
        }
    }

    /// Whether programs that have nothing to do with each other are this one peer, so that the
    /// failures of one say nothing of another.
    pub fn is_shared(self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::User(_) => false,
            Self::Unknown => true,
        }
    }
}

/// What is to be told when a request on a connection has been let in; part of the request.
#[derive(Clone)]
pub struct OnAuthenticated(Arc<Untold>);

struct Untold {
    once: Once,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl OnAuthenticated {
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Untold { once: Once::new(), tell: Box::new(tell) }))
    }

    /// Only the first time counts.
    pub fn tell(&self) {
        self.0.once.call_once(|| (self.0.tell)());
    }
}

impl fmt::Debug for OnAuthenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnAuthenticated")
    }
}

/// For the log.
impl fmt::Display for ClientInfo {
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
