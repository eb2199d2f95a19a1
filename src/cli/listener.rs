//! Whether it is the daemon that would get a command's secrets: while it is away, any user of the
//! machine can listen on its port, or put a socket in the place of its own.
//!
//! The kernel tells who has made a socket that listens. The daemon is this user's, root's (systemd
//! opens sockets for services), or of the user who owns its state directory.
//!
//! Not every stranger can be told: nothing is known of who listens behind an address that only
//! another network namespace has, or on another machine; a name of the daemon's that was given by
//! `--url` is the person's own choice; and the daemon may end between this look and the request.
//!
//! Must not: connect.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;
use url::{Host, Url};

use super::{Outcome, failures};
use crate::listening_sockets::{listening_sockets, reached_by};

const ROOT: u32 = 0;

/// Refuses to send anything to `base` if a program of a stranger listens there. `state` is the
/// daemon's state directory.
pub(super) fn check_tcp(base: &str, state: &Path) -> Outcome {
    match loopback(base) {
        Some(address) => refuse_stranger(stranger(address, &daemon_users(state)), base),
        None => Ok(()),
    }
}

/// [`check_tcp`] for the socket at `path`.
pub(super) fn check_socket(path: &Path, state: &Path) -> Outcome {
    let owner = fs::metadata(path).ok().map(|about| about.uid());
    let stranger = owner.filter(|owner| !daemon_users(state).contains(owner));
    refuse_stranger(stranger, &path.display().to_string())
}

fn refuse_stranger(stranger: Option<u32>, place: &str) -> Outcome {
    match stranger {
        Some(uid) => Err(failures::stranger_listens(place, user_name(uid))),
        None => Ok(()),
    }
}

/// The address of a daemon that this machine reaches over loopback, and not over TLS: there, its
/// certificate tells who it is.
fn loopback(base: &str) -> Option<SocketAddr> {
    let url = Url::parse(base).ok().filter(|url| url.scheme() == "http")?;
    let ip: IpAddr = match url.host()? {
        Host::Ipv4(ip) => ip.into(),
        Host::Ipv6(ip) => ip.into(),
        Host::Domain(_) => return None,
    };
    let port = url.port_or_known_default()?;
    ip.is_loopback().then_some(SocketAddr::new(ip, port))
}

/// The user of a program that listens on `address` and is none of `users`.
fn stranger(address: SocketAddr, users: &[u32]) -> Option<u32> {
    let sockets = listening_sockets();
    let reached = reached_by(&sockets, address);
    reached.iter().map(|socket| socket.uid).find(|uid| !users.contains(uid))
}

/// The users as whom the daemon may listen.
fn daemon_users(state: &Path) -> Vec<u32> {
    let own = geteuid().as_raw();
    // If this user may not look into a directory above it, the owner of that one rules over it.
    let owner = state.ancestors().find_map(|path| match fs::metadata(path) {
        Ok(about) => Some(Some(about.uid())),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(None),
    });
    [own, ROOT].into_iter().chain(owner.flatten()).collect()
}

/// The name of a user, or the number of one that has no name here.
pub(super) fn user_name(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("#{uid}"))
}

#[cfg(test)]
mod tests {
    //! A listener of this very test, which is a stranger to some users.

    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn listener_is_a_strangers_unless_its_user_may_be_the_daemon() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = geteuid().as_raw();
        assert_eq!(stranger(address, &[own + 1]), Some(own));
        assert_eq!(stranger(address, &[own + 1, own]), None);
        drop(listener);
        assert_eq!(stranger(address, &[own + 1]), None, "no program listens");
    }

    #[test]
    fn daemon_of_this_user_is_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        assert!(check_tcp(&base, dir.path()).is_ok());
        let path = dir.path().join("socket");
        assert!(check_socket(&path, dir.path()).is_ok(), "there is none");
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(check_socket(&path, dir.path()).is_ok());
    }

    #[test]
    fn users_of_the_daemon_are_this_one_root_and_the_owner_of_its_state() {
        let own = geteuid().as_raw();
        assert_eq!(daemon_users(Path::new("/absent/state")), [own, ROOT]);
        let owner = fs::metadata("/proc").unwrap().uid();
        assert_eq!(daemon_users(Path::new("/proc")), [own, ROOT, owner]);
    }

    #[test]
    fn address_is_checked_on_loopback_without_tls_alone() {
        for (base, address) in [
            ("http://127.0.0.1:7717", Some("127.0.0.1:7717")),
            ("http://[::1]:7717", Some("[::1]:7717")),
            ("http://127.0.0.1", Some("127.0.0.1:80")),
            ("https://127.0.0.1:7717", None),
            ("http://10.0.0.1:7717", None),
            ("http://localhost", None),
        ] {
            let expected = address.map(|text| text.parse().unwrap());
            assert_eq!(loopback(base), expected, "{base}");
        }
    }
}
