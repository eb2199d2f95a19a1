//! Whether what is simulated is what the statements say.

use sha2::{Digest as _, Sha256};

use crate::model::catalog::hex;

/// Without its comments and spaces.
fn bare(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// A change of a statement changes `statements.rs`, too; then the number here.
#[test]
fn the_statements_are_those_that_are_simulated() {
    let texts = [
        include_str!("../../sql/approvals.sql"),
        include_str!("../../sql/ask.sql"),
        include_str!("../../sql/beat.sql"),
        include_str!("../../sql/claim.sql"),
        include_str!("../../sql/claim_waiting.sql"),
        include_str!("../../sql/claimed.sql"),
        include_str!("../../sql/decide.sql"),
        include_str!("../../sql/elsewhere.sql"),
        include_str!("../../sql/find.sql"),
        include_str!("../../sql/inherit.sql"),
        include_str!("../../sql/join.sql"),
        include_str!("../../sql/leave.sql"),
        include_str!("../../sql/write.sql"),
    ];
    let bytes: [u8; 32] = Sha256::digest(texts.map(bare).join("\n")).into();
    assert_eq!(hex(&bytes[..4]), "a92a1555", "see statements.rs");
}
