//! The lockout of peers that have shown too many wrong tokens.
//!
//! Must not: remember more than a bounded number of peers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ClientKey, HashMap};
use crate::config::Rate;
use crate::limits::token_bucket::Bucket;

/// The failures that a peer may have before the bridge makes it wait.
const RATE: Rate = Rate { per_second: 10.0, burst: 10.0 };
/// The most peers that are remembered.
const MAX: usize = 4096;

/// The lockout of all peers.
#[derive(Debug, Default)]
pub struct Lockout {
    peers: Mutex<HashMap<ClientKey, Bucket>>,
}

impl Lockout {
    /// How long the bridge still refuses `peer`; `None` if it does not. Unrelated programs that
    /// share a peer are never refused.
    pub fn brake(&self, peer: ClientKey, now: Instant) -> Option<Duration> {
        if peer.is_shared() {
            return None;
        }
        self.peers.lock().get_mut(&peer)?.wait(RATE, now)
    }

    /// Records a failure. If the peer has failed too often, returns how long it has to wait.
    pub fn note(&self, peer: ClientKey, now: Instant) -> Option<Duration> {
        let mut peers = self.peers.lock();
        if peers.len() >= MAX && !peers.contains_key(&peer) {
            peers.retain(|_, bucket| !bucket.is_full(RATE, now));
        }
        // If the table is full of failing peers, new ones share one entry, so that memory stays
        // bounded.
        let peer = if peers.len() >= MAX && !peers.contains_key(&peer) {
            ClientKey::Unknown
        } else {
            peer
        };
        let bucket = peers.entry(peer).or_insert_with(|| Bucket::full(RATE, now));
        bucket.take(RATE, now).err()
    }
}

#[cfg(test)]
mod tests {
    //! Who has to wait, and who has not.

    use std::net::SocketAddr;

    use super::*;
    use crate::http::client_info::ClientInfo;

    fn address(text: &str) -> ClientKey {
        let peer = SocketAddr::new(text.parse().unwrap(), 50000);
        ClientKey::new(&ClientInfo::Tcp { peer })
    }

    fn fail(lockout: &Lockout, peer: ClientKey, times: usize, now: Instant) -> usize {
        (0..times).filter(|_| lockout.note(peer, now).is_some()).count()
    }

    #[test]
    fn locked_out_peer_waits_and_others_do_not() {
        let lockout = Lockout::default();
        let now = Instant::now();
        let one = address("192.0.2.1");
        let other = address("192.0.2.2");
        assert_eq!(fail(&lockout, one, 10, now), 0);
        assert_eq!(fail(&lockout, one, 10, now), 10);
        assert!(lockout.brake(one, now).is_some());
        assert!(lockout.brake(other, now).is_none());
        assert_eq!(fail(&lockout, other, 1, now), 0);
        let later = now + Duration::from_secs(1);
        assert!(lockout.brake(one, later).is_none());
    }

    #[test]
    fn programs_of_this_machine_do_not_wait_for_each_other() {
        let lockout = Lockout::default();
        let now = Instant::now();
        for shared in [address("127.0.0.1"), address("::1"), address("::ffff:127.0.0.1")] {
            assert!(fail(&lockout, shared, 30, now) > 0, "it is told so");
            assert!(lockout.brake(shared, now).is_none(), "and the others come in");
        }
        let user = ClientKey::User(1000);
        fail(&lockout, user, 30, now);
        assert!(lockout.brake(user, now).is_some());
        assert!(lockout.brake(ClientKey::User(1001), now).is_none());
    }

    #[test]
    fn a_machine_has_one_network() {
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let lockout = Lockout::default();
        let now = Instant::now();
        for uid in 0..2 * u32::try_from(MAX).unwrap() {
            lockout.note(ClientKey::User(uid), now);
        }
        assert!(lockout.peers.lock().len() <= MAX + 1);
        assert!(lockout.brake(ClientKey::User(0), now).is_none());
        // Those that have behaved since are forgotten.
        let later = now + Duration::from_secs(2);
        lockout.note(ClientKey::User(u32::MAX), later);
        assert!(lockout.peers.lock().len() < 3);
    }
}
