//! Ports for what has to know its own before it listens, or listens again after a restart.
//!
//! Must not: give out ports of the range from which the kernel takes those of other sockets. While
//! a daemon is down, any connection of another test could take its port.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

/// Linux takes from 32768 on by itself (`ip_local_port_range`).
const OURS: Range<u16> = 20_000..32_000;

/// Where to look next. Test runs beside each other begin in different places.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(rand::random_range(OURS)));

/// An address of loopback on which nobody listens, and which no other caller is given soon.
pub(crate) fn free() -> SocketAddr {
    OURS.map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, next())))
        .find(|addr| TcpListener::bind(addr).is_ok())
        .expect("a port of loopback is free")
}

fn next() -> u16 {
    let after = |port| Some(if port + 1 < OURS.end { port + 1 } else { OURS.start });
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).expect("there is a next one")
}
