//! Files that are of use and files that are not, one after the other.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::fake::pair;
use super::files::{Which, first_certificate};
use super::handshake::Failed;
use super::*;
use crate::metrics::HandshakeFailure;

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
}

struct Dir(TempDir);

impl Dir {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn files(&self) -> Files {
        Files { cert: self.path("cert"), key: self.path("key"), client_ca: None }
    }

    fn put(&self, (cert, key): (String, String)) {
        fs::write(self.path("cert"), cert).unwrap();
        fs::write(self.path("key"), key).unwrap();
    }

    #[track_caller]
    fn flaw(&self, expected: &str) {
        let error = self.files().load(read).unwrap_err();
        let shown = error.to_string().replace(&self.0.path().display().to_string(), "D");
        assert_eq!(shown, expected);
    }
}

#[test]
fn flaw_of_a_certificate_is_told_with_its_file() {
    let dir = Dir::new();
    dir.flaw("D/cert cannot be read: No such file or directory (os error 2)");
    let (cert, key) = pair(&["a.acme"], 50);
    dir.put((key.clone(), key.clone()));
    dir.flaw("there is no certificate in D/cert");
    dir.put((cert.clone(), cert.clone()));
    dir.flaw("there is no private key in D/key");
    dir.put((cert.clone(), pair(&["a.acme"], 50).1));
    dir.flaw("the key in D/key is not that of the certificate in D/cert");
    dir.put((cert, key));
    let files = Files { client_ca: Some(dir.path("key")), ..dir.files() };
    let error = files.load(read).unwrap_err();
    assert_eq!(error.which, Which::ClientCa);
}

#[test]
fn a_certificate_says_whose_it_is_and_until_when() {
    let dir = Dir::new();
    dir.put(pair(&["a.acme", "10.0.0.5", "spiffe://acme/x", "ops@acme", "::1"], 50));
    let facts = dir.files().load(read).unwrap().facts;
    let names = ["a.acme", "spiffe://acme/x", "ops@acme"].map(|name| San::parse(name).unwrap());
    assert_eq!(facts.names, names);
    assert_eq!(facts.addresses, ["10.0.0.5", "::1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    let now = crate::clock::now();
    for (days, expected) in [(50, Validity::Good), (13, Validity::Ending), (-1, Validity::Ended)] {
        dir.put(pair(&["a.acme"], days));
        assert_eq!(dir.files().load(read).unwrap().facts.validity(now), expected, "{days} days");
    }
}

#[test]
fn a_bad_pair_leaves_the_good_one_until_there_is_a_better() {
    let dir = Dir::new();
    dir.put(pair(&["one.acme"], 50));
    let tls = Tls::new(dir.files(), read).unwrap();
    let names = || tls.health().settings.facts.names.clone();
    assert!(!tls.look(), "nothing has changed");

    let (cert, key) = pair(&["two.acme"], 50);
    fs::write(dir.path("cert"), &cert).unwrap();
    assert!(!tls.look(), "the key has not come yet");
    assert_eq!(names(), [San::Dns("one.acme".into())]);
    assert_eq!(tls.health().flaw.unwrap().which, Which::Key);

    fs::write(dir.path("key"), &key).unwrap();
    assert!(tls.look());
    assert_eq!(names(), [San::Dns("two.acme".into())]);
    assert!(tls.health().flaw.is_none());

    dir.put(pair(&["three.acme"], -1));
    assert!(!tls.look(), "one that has ended");
    assert_eq!(names(), [San::Dns("two.acme".into())]);
    assert!(tls.health().flaw.unwrap().to_string().ends_with("has ended"));
}

/// What becomes of a handshake with a client that trusts the certificate `pinned`.
async fn meet(dir: &Dir, pinned: &str) -> Result<(), Failed> {
    let tls = Tls::new(dir.files(), read).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pinned = first_certificate(Path::new("pinned"), pinned).unwrap();
    let client = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(pin::client(pinned)));
        // Its name is nobody's.
        let name = "elsewhere.test".try_into().unwrap();
        let mut stream = connector.connect(name, stream).await?;
        stream.write_all(b"x").await
    };
    let server = async {
        let mut secured = tls.shake_hands(listener.accept().await.unwrap().0).await?;
        assert_eq!((secured.names, secured.h2), (None, false));
        assert_eq!(secured.stream.read_u8().await.unwrap(), b'x');
        Ok(())
    };
    tokio::join!(client, server).1
}

#[tokio::test]
async fn a_pinned_certificate_is_trusted_and_no_other() {
    let dir = Dir::new();
    let (cert, key) = pair(&["a.acme"], 50);
    dir.put((cert.clone(), key));
    meet(&dir, &cert).await.unwrap();
    let failed = meet(&dir, &pair(&["a.acme"], 50).0).await.unwrap_err();
    assert_eq!(failed.kind, HandshakeFailure::Distrusted, "{failed}");
}
