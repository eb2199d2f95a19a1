//! A way in for `fuzz/`: what the journal makes of a file, without a disk.
//!
//! Must not: be a part of the program; it is compiled for fuzzing alone.

use bytes::Bytes;

use super::frames;
use super::frames::Frame;
use super::live::Live;

/// Reads `data` as what follows a file's head, and as the changes of a write that was whole.
pub fn read(data: &[u8]) {
    let head = frames::file_head(1, 0);
    renewed(data);
    renewed(&[&head, data].concat());
    renewed(&[&head, Frame::with_payload(data).bytes(1, 0)].concat());
}

/// What is kept of `file`, damaged or not, is the same in the file that takes its place.
fn renewed(file: &[u8]) {
    let file = Bytes::copy_from_slice(file);
    let Some(contents) = frames::read(&file) else { return };
    let mut live = Live::from_file(&file, &contents);
    if contents.flaw.is_some() {
        live.salvage();
    }
    let mut fresh = frames::file_head(1, 0).to_vec();
    let write = |frame: &[u8]| {
        fresh.extend_from_slice(frame);
        Ok::<(), ()>(())
    };
    live.frames((1, 1), write).expect("memory can be written");
    let fresh = Bytes::from(fresh);
    let contents = frames::read(&fresh).expect("it was written just now");
    assert!(contents.end == fresh.len() && contents.flaw.is_none(), "all of it was");
    assert_eq!(live, Live::from_file(&fresh, &contents), "nothing is added or lost");
    let _records = live.records();
    let _used = live.without_unused_routes();
}
