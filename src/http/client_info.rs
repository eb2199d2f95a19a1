//! The client of a connection: its address, the key under which it is counted, and a signal for its
//! first authenticated request.
//!
//! Must not: decide whether it may come in.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Once};

use crate::model::San;

/// How a connection came in.
#[derive(Debug, Clone)]
pub enum ClientInfo {
    Tcp {
        peer: SocketAddr,
    },
    Tls {
        peer: SocketAddr,
        /// The names in the client's certificate, signed by a known authority; `None` where the
        /// listener asks for none.
        names: Option<Arc<[San]>>,
    },
    Unix {
        /// The process that connected, as the kernel reports it; `None` if the kernel does not.
        peer: Option<Process>,
    },
}

/// The process that opened a connection on a unix socket, at the time when it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub uid: u32,
    pub pid: Option<i32>,
}

/// The key under which failures, forms and connections are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// For IPv6, a network of 64 bits: one machine can use all of its addresses.
    Address(IpAddr),
    User(u32),
    /// A unix socket whose peer the kernel does not report.
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

    /// Whether unrelated programs can share this key, so that the failures of one must not count
    /// against the others.
    pub fn is_shared(self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::User(_) => false,
            Self::Unknown => true,
        }
    }
}

/// A signal for when a request on a connection has been authenticated; part of the request.
#[derive(Clone)]
pub struct OnAuthenticated(Arc<(Once, Box<dyn Fn() + Send + Sync>)>);

impl OnAuthenticated {
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new((Once::new(), Box::new(tell))))
    }

    /// Sends the signal; only the first time counts.
    pub fn tell(&self) {
        let (once, tell) = &*self.0;
        once.call_once(tell);
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
