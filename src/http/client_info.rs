//! The client of a connection: its address, and the key under which it is counted.
//!
//! Must not: decide whether it may come in.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::model::San;

/// How a connection came in. Displayed for the log.
#[derive(Debug, Clone, derive_more::Display)]
pub enum ClientInfo {
    #[display("{peer}")]
    Tcp { peer: SocketAddr },
    #[display("{peer}, TLS")]
    Tls {
        peer: SocketAddr,
        /// The names in the client's certificate, signed by a known authority; `None` where the
        /// listener asks for none.
        names: Option<Arc<[San]>>,
    },
    #[display("unix{}", peer.map(|peer| peer.to_string()).unwrap_or_default())]
    Unix {
        /// The process that connected, as the kernel reports it; `None` if the kernel does not.
        peer: Option<Process>,
    },
}

/// The process that opened a connection on a unix socket, at the time when it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display(", uid {uid}{}", pid.map(|pid| format!(", pid {pid}")).unwrap_or_default())]
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
    pub fn new(client: &ClientInfo) -> Self {
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
