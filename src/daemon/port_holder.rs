//! Which program listens on an address that the daemon cannot have.
//!
//! Must not: be needed. What the system does not tell is left out of the message.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

/// The state of a listening socket in the kernel's tables.
const LISTENING: &str = "0A";

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
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(|table| {
        let text = fs::read_to_string(table).unwrap_or_default();
        listening(&text, address)
    });
    let sockets: Vec<String> = sockets.map(|inode| format!("socket:[{inode}]")).collect();
    let mut processes = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let number = path.file_name()?.to_str()?.parse::<u32>().ok()?;
        Some((number, path))
    });
    let (number, path) = processes.find(|(_, path)| has_one(path, &sockets))?;
    let name = fs::read_to_string(path.join("comm")).ok()?;
    Some(format!("{} (process {number})", name.trim()))
}

/// The inodes of the sockets in this table that keep others from listening on `address`.
fn listening(table: &str, address: SocketAddr) -> Vec<String> {
    let rows = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, _, _, inode, ..] = fields.as_slice() else {
            return None;
        };
        let (ip, port) = local.split_once(':')?;
        let is_port = u16::from_str_radix(port, 16).ok()? == address.port();
        if *state == LISTENING && is_port && is_in_the_way(ip, address.ip()) {
            Some((*inode).to_owned())
        } else {
            None
        }
    });
    rows.collect()
}

/// Whether a socket on this address, in the kernel's digits, is on `ip` or on all addresses. Of
/// IPv6, the port alone tells.
fn is_in_the_way(digits: &str, ip: IpAddr) -> bool {
    let (IpAddr::V4(ip), Ok(number)) = (ip, u32::from_str_radix(digits, 16)) else { return true };
    // The kernel writes the bytes in the machine's order.
    let local = Ipv4Addr::from(number.to_ne_bytes());
    local == ip || local.is_unspecified() || ip.is_unspecified()
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
