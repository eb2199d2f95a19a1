//! Who has shown no right token too often.
//!
//! Must not: keep more than a bounded number of peers in mind.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Arrival, rate::Bucket};
use crate::config::Rate;

/// Failures of one peer before it is told to wait.
const RATE: Rate = Rate { per_second: 10.0, burst: 10.0 };
/// The most peers that are remembered.
const MOST: usize = 4096;

/// Whom failures are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Of IPv6, a network of 64 bits: a machine has all of its addresses.
    Address(IpAddr),
    User(u32),
    /// On a unix socket, without a word of the kernel on who it is.
    Unknown,
}

impl Peer {
    pub fn of(arrival: &Arrival) -> Self {
        match arrival {
            Arrival::Tcp { peer } | Arrival::Tls { peer, .. } => match peer.ip().to_canonical() {
                IpAddr::V6(address) if !address.is_loopback() => {
                    let network = address.to_bits() >> 64 << 64;
                    Self::Address(Ipv6Addr::from_bits(network).into())
                }
                address => Self::Address(address),
            },
            Arrival::Unix { peer: Some(peer) } => Self::User(peer.uid),
            Arrival::Unix { peer: None } => Self::Unknown,
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

/// The failures of all peers.
#[derive(Debug, Default)]
pub struct Failures {
    peers: Mutex<HashMap<Peer, Bucket>>,
}

impl Failures {
    /// How long `peer` is not listened to.
    pub fn brake(&self, peer: Peer, now: Instant) -> Option<Duration> {
        if peer.is_shared() {
            return None;
        }
        self.lock().get_mut(&peer)?.wait(RATE, now)
    }

    /// Notes a failure; how long the peer has to wait, where it has failed too often.
    pub fn note(&self, peer: Peer, now: Instant) -> Option<Duration> {
        let mut peers = self.lock();
        if peers.len() >= MOST && !peers.contains_key(&peer) {
            peers.retain(|_, bucket| !bucket.is_full(RATE, now));
        }
        // So many peers fail at once that this one cannot be told from them.
        let peer =
            if peers.len() >= MOST && !peers.contains_key(&peer) { Peer::Unknown } else { peer };
        let bucket = peers.entry(peer).or_insert_with(|| Bucket::full(RATE, now));
        bucket.take(RATE, now).err()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, Bucket>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    //! Who has to wait, and who has not.

    use super::*;

    fn address(text: &str) -> Peer {
        let peer = std::net::SocketAddr::new(text.parse().unwrap(), 50000);
        Peer::of(&Arrival::Tcp { peer })
    }

    fn fail(failures: &Failures, peer: Peer, times: usize, now: Instant) -> usize {
        (0..times).filter(|_| failures.note(peer, now).is_some()).count()
    }

    #[test]
    fn one_peer_waits_and_others_do_not() {
        let (failures, now) = (Failures::default(), Instant::now());
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        assert_eq!(fail(&failures, one, 10, now), 0);
        assert_eq!(fail(&failures, one, 10, now), 10);
        assert!(failures.brake(one, now).is_some());
        assert!(failures.brake(other, now).is_none());
        assert_eq!(fail(&failures, other, 1, now), 0);
        let later = now + Duration::from_secs(1);
        assert!(failures.brake(one, later).is_none());
    }

    #[test]
    fn programs_of_this_machine_do_not_wait_for_each_other() {
        let (failures, now) = (Failures::default(), Instant::now());
        for shared in [address("127.0.0.1"), address("::1"), address("::ffff:127.0.0.1")] {
            assert!(fail(&failures, shared, 30, now) > 0, "it is told so");
            assert!(failures.brake(shared, now).is_none(), "and the others come in");
        }
        let user = Peer::User(1000);
        fail(&failures, user, 30, now);
        assert!(failures.brake(user, now).is_some());
        assert!(failures.brake(Peer::User(1001), now).is_none());
    }

    #[test]
    fn a_machine_has_one_network() {
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let (failures, now) = (Failures::default(), Instant::now());
        for uid in 0..2 * u32::try_from(MOST).unwrap() {
            failures.note(Peer::User(uid), now);
        }
        assert!(failures.lock().len() <= MOST + 1);
        assert!(failures.brake(Peer::User(0), now).is_none());
        // Those that have behaved since are forgotten.
        let later = now + Duration::from_secs(2);
        failures.note(Peer::User(u32::MAX), later);
        assert!(failures.lock().len() < 3);
    }
}
