//! A way in for `fuzz/`: what the journal makes of a file, without a disk.
//!
//! Must not: be a part of the program; it is compiled for fuzzing alone.

use super::{
    frames::{self, Frame, HEAD},
    live::Live,
};

/// Reads `data` as what follows a file's head, and as the changes of a write that was whole.
pub fn read(data: &[u8]) {
    renewed(&[&HEAD, data].concat());
    renewed(&[&HEAD, Frame::of(data).bytes()].concat());
}

/// What is kept of `file` is the same in the file that takes its place.
fn renewed(file: &[u8]) {
    let Ok(contents) = frames::read(file) else { return };
    let live = Live::of(&contents);
    let mut fresh = HEAD.to_vec();
    let write = |frame: &[u8]| {
        fresh.extend_from_slice(frame);
        Ok::<(), ()>(())
    };
    live.frames(100, write).expect("memory can be written");
    let contents = frames::read(&fresh).expect("it was written just now");
    assert_eq!(contents.end, fresh.len(), "all of it was");
    assert_eq!(live, Live::of(&contents), "nothing is added or lost");
    let _records = live.kept();
    let _used = live.without_unused_routes();
}
