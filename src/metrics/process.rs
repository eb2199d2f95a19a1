//! The kernel's numbers for this process.
//!
//! Must not: fail without /proc; the page omits numbers that cannot be read.

use std::fs;
use std::path::Path;

/// Resident memory, in bytes.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Open file descriptors.
pub fn open_fds() -> Option<usize> {
    // Listing the directory opens a descriptor itself, so one is subtracted.
    Some(fs::read_dir(Path::new("/proc/self/fd")).ok()?.count().saturating_sub(1))
}

/// Threads.
pub fn threads() -> Option<usize> {
    Some(fs::read_dir(Path::new("/proc/self/task")).ok()?.count())
}

#[cfg(test)]
mod tests {
    //! The test's own process.

    use super::*;

    #[test]
    fn this_process_has_memory_descriptors_and_threads() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(open_fds().is_some_and(|fds| fds >= 3));
        assert!(threads().is_some_and(|threads| threads >= 1));
    }
}
