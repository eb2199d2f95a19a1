//! The token of an app, as a hash. The token that an app shows is compared by its hash, so that no
//! token stays in memory.
//!
//! Must not: show the hash; a short token could be found by trying.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Compared in place of the token, in constant time, so that the time reveals nothing about it.
#[derive(Clone, Copy, Eq, derive_more::Debug)]
#[debug("TokenHash(..)")]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}
