//! Which program listens on an address that the daemon cannot have.
//!
//! Must not: be needed. What the system does not tell is left out of the message.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::listening_sockets::{ListeningSocket, listening_sockets};

/// What an operator does about an address in use.
pub(super) fn cure(address: &str) -> String {
    let holder = address.parse().ok().and_then(holder);
    match holder {
        Some(program) => format!("{program} listens there: stop it, or change `listen`"),
        None => {
            "another program listens there, of another user or for systemd: stop it, or change \
                 `listen` (`sudo ss -ltnp` lists who listens)"
                .to_owned()
        }
    }
}

/// The program that listens on `address`, as far as this user may know.
fn holder(address: SocketAddr) -> Option<String> {
    let sockets: Vec<String> = listening_sockets()
        .into_iter()
        .filter(|socket| is_in_the_way(socket, address))
        .map(|ListeningSocket { inode, .. }| format!("socket:[{inode}]"))
        .collect();
    let mut processes = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let number = path.file_name()?.to_str()?.parse::<u32>().ok()?;
        Some((number, path))
    });
    let (number, path) = processes.find(|(_, path)| has_one(path, &sockets))?;
    let name = fs::read_to_string(path.join("comm")).ok()?;
    Some(format!("{} (process {number})", name.trim()))
}

/// Whether the socket keeps others from listening on `address`: it is on that, or on all addresses.
/// Of IPv6, the port alone tells.
fn is_in_the_way(socket: &ListeningSocket, address: SocketAddr) -> bool {
    if socket.address.port() != address.port() {
        return false;
    }
    let (IpAddr::V4(own), IpAddr::V4(ip)) = (socket.address.ip(), address.ip()) else {
        return true;
    };
    own == ip || own.is_unspecified() || ip.is_unspecified()
}

fn has_one(process: &Path, sockets: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.filter_map(Result::ok).any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        sockets.iter().any(|socket| target.as_os_str() == socket.as_str())
    })
}

#[cfg(test)]
mod tests {
    //! A port that this very test holds.

    use std::net::TcpListener;

    use super::*;

    #[test]
    fn program_that_holds_a_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = cure(&address.to_string());
        assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
        drop(listener);
        assert!(cure("127.0.0.1:1").contains("ss -ltnp"));
        assert!(cure("a socket of the socket unit").contains("ss -ltnp"));
    }
}
