//! The listening sockets of this machine, as the kernel lists them: their addresses, and whose they
//! are.
//!
//! The lists are those of this process's network namespace. What listens in another one, such as a
//! container's, is not in them.
//!
//! Must not: be needed. What the system does not tell is absent here.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a listening socket in the kernel's tables.
const LISTENING: &str = "0A";

/// A socket that takes connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListeningSocket {
    pub address: SocketAddr,
    /// The user who has made it.
    pub uid: u32,
    pub inode: u64,
}

/// All listening sockets that this process may know of.
pub fn listening_sockets() -> Vec<ListeningSocket> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter();
    let lines = tables
        .filter_map(|table| File::open(table).ok())
        .flat_map(|file| BufReader::new(file).lines().map_while(Result::ok));
    lines.filter_map(|line| read(&line)).collect()
}

/// Those of `sockets` that a connection to `address` may reach. One that listens on just this
/// address gets it before one that listens on all.
pub fn reached_by(sockets: &[ListeningSocket], address: SocketAddr) -> Vec<&ListeningSocket> {
    let on_port = || sockets.iter().filter(|socket| socket.address.port() == address.port());
    let exact: Vec<_> = on_port().filter(|socket| plain_ip(socket) == address.ip()).collect();
    if !exact.is_empty() {
        return exact;
    }
    let takes = |socket: &&ListeningSocket| match plain_ip(socket) {
        IpAddr::V4(ip) => ip.is_unspecified() && address.is_ipv4(),
        // Most of them take connections of IPv4, too.
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    on_port().filter(takes).collect()
}

/// The address, of IPv4 where it is one of those within IPv6.
fn plain_ip(socket: &ListeningSocket) -> IpAddr {
    socket.address.ip().to_canonical()
}

/// A line of the tables; `None` for the heading and for other sockets.
fn read(line: &str) -> Option<ListeningSocket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (ip, port) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    if state != LISTENING {
        return None;
    }
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let address = SocketAddr::new(read_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
    Some(ListeningSocket { address, uid, inode })
}

/// An address in the kernel's digits: words of 4 bytes, each in the machine's order.
fn read_ip(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Sockets that this very test holds, and lines of the kernel's tables.

    use std::net::TcpListener;

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn socket_of_this_process_is_listed_with_its_user_until_it_is_closed() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let address = listener.local_addr().unwrap();
            let sockets = listening_sockets();
            let [socket] = reached_by(&sockets, address)[..] else { panic!("{sockets:?}") };
            assert_eq!((socket.address, socket.uid), (address, geteuid().as_raw()));
            drop(listener);
            assert!(reached_by(&listening_sockets(), address).is_empty());
        }
    }

    #[test]
    fn line_of_a_socket_that_does_not_listen_is_left_out() {
        let line = |state: &str| {
            format!(
                "   0: 0100007F:1E25 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  \
                 1001        0 4242 1 0000000000000000 100 0 0 10 0"
            )
        };
        assert_eq!(read(&line("01")), None);
        assert_eq!(
            read("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"),
            None
        );
        let socket = read(&line(LISTENING)).unwrap();
        assert_eq!((socket.address.port(), socket.uid, socket.inode), (7717, 1001, 4242));
    }

    #[test]
    fn socket_on_just_the_address_gets_its_connections_before_one_on_all() {
        struct Case {
            listening: &'static [&'static str],
            address: &'static str,
            reached: &'static [&'static str],
        }
        for Case { listening, address, reached } in [
            Case {
                listening: &["0.0.0.0:1", "127.0.0.1:1", "127.0.0.1:2"],
                address: "127.0.0.1:1",
                reached: &["127.0.0.1:1"],
            },
            Case {
                listening: &["0.0.0.0:1", "[::]:1", "[::1]:1"],
                address: "127.0.0.1:1",
                reached: &["0.0.0.0:1", "[::]:1"],
            },
            Case {
                listening: &["[::ffff:127.0.0.1]:1"],
                address: "127.0.0.1:1",
                reached: &["[::ffff:127.0.0.1]:1"],
            },
            Case { listening: &["0.0.0.0:1"], address: "[::1]:1", reached: &[] },
            Case { listening: &["10.0.0.1:1"], address: "127.0.0.1:1", reached: &[] },
        ] {
            let sockets: Vec<_> = listening
                .iter()
                .map(|address| ListeningSocket {
                    address: address.parse().unwrap(),
                    uid: 0,
                    inode: 0,
                })
                .collect();
            let all = reached_by(&sockets, address.parse().unwrap());
            let all: Vec<_> = all.iter().map(|socket| socket.address.to_string()).collect();
            assert_eq!(all, reached, "{listening:?} {address}");
        }
    }
}
