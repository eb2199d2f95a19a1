//! Where a simulation replaces the world around the daemon: MANTYX, the journal's disk, the clocks
//! and chance. A daemon that is built on a thread with a [`World`] uses that one.
//!
//! docs/design/simulation.md says what it is not, and how it came about.
//!
//! Must not: be compiled into the daemon, or know what a simulation does.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use futures_util::future::BoxFuture;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::backend::peer::Dial;
use crate::budget::Budget;
use crate::journal::Server;
use crate::model::ids::BackendName;
use crate::model::moment::Moment;

/// A world that a test has made up.
pub(crate) trait World: Disk {
    /// The answer of a server to a request of the bridge.
    fn exchange(
        self: Arc<Self>,
        request: reqwest::Request,
    ) -> BoxFuture<'static, reqwest::Result<reqwest::Response>>;

    /// The connections of apps to the daemon that is built now.
    fn connections(&self) -> mpsc::Receiver<DuplexStream>;

    /// How a backend is reached.
    fn dial(self: Arc<Self>, backend: &BackendName) -> Arc<dyn Dial>;

    /// The room for bodies in memory.
    fn budget(&self) -> Arc<Budget>;

    /// The next random number.
    fn random(&self) -> u64;

    fn moment(&self) -> Moment;

    /// Ends when the journal's writer may take what waits for it.
    fn disk_turns(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// Something waits for the journal's writer.
    fn disk_has_work(&self);

    /// The PostgreSQL of the replicas.
    fn database(&self) -> Arc<Server>;
}

/// The disk of the journal.
pub(crate) trait Disk: Send + Sync {
    /// Writes to a file; it may write only a part and fail.
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes room for the first `bytes` of a file, which is as long afterwards.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()>;

    /// Makes a file shorter.
    fn set_len(&self, file: &File, bytes: u64) -> io::Result<()>;

    /// Makes sure that what was written outlives a crash.
    fn sync(&self, file: &File) -> io::Result<()>;
}

thread_local! {
    static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
    static DISK: RefCell<Option<Arc<dyn Disk>>> = const { RefCell::new(None) };
}

/// The world of this thread; `None`: the real one.
pub(crate) fn world() -> Option<Arc<dyn World>> {
    WORLD.with_borrow(Clone::clone)
}

/// Sets the world of this thread.
pub(crate) fn set_world(world: Option<Arc<dyn World>>) {
    WORLD.set(world);
}

/// The disk of this thread, which is the world's if there is one; `None`: the real one.
pub(crate) fn disk() -> Option<Arc<dyn Disk>> {
    DISK.with_borrow(Clone::clone).or_else(|| Some(world()?))
}

/// Sets the disk of this thread, for a test of the journal alone.
pub(crate) fn set_disk(disk: Option<Arc<dyn Disk>>) {
    DISK.set(disk);
}

/// Runs `writer` as a task of this thread in place of a separate thread, so that chance alone says
/// when it runs.
pub(crate) fn spawn_writer(writer: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::runtime::Handle::current().spawn(writer));
}

/// A file of the journal, with the methods of [`fs::File`] that the journal needs.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) inner: Arc<fs::File>,
    /// Tells files apart.
    pub(crate) id: u64,
}

impl File {
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match disk() {
            Some(disk) => disk.write(self, bytes, offset),
            None => self.inner.write_all_at(bytes, offset),
        }
    }

    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        match disk() {
            Some(disk) => disk.set_len(self, bytes),
            None => self.inner.set_len(bytes),
        }
    }

    pub(crate) fn sync_data(&self) -> io::Result<()> {
        match disk() {
            Some(disk) => disk.sync(self),
            None => self.inner.sync_data(),
        }
    }

    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    pub(crate) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.inner.metadata()
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { inner: Arc::new(file), id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}
