//! A record of the posted tool results, for tests.
//!
//! Must not: grow without bound.

use std::collections::VecDeque;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;

use crate::model::ids::{RunId, ToolUseId};

/// The most posts that are kept; the oldest go first.
const MAX_POSTS: usize = 100_000;
/// The most bytes of their bodies.
const MAX_BYTES: usize = 256 << 20;

/// One POST to a run's tool-results, with any outcome.
#[derive(Debug, Clone)]
pub struct Post {
    pub run: RunId,
    /// `None` if the body has none.
    pub tool_use: Option<ToolUseId>,
    pub body: Bytes,
    /// The status of the answer.
    pub status: StatusCode,
    /// The time at which the body was complete.
    pub at: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Posts {
    posts: VecDeque<Post>,
    bytes: usize,
}

impl Posts {
    pub(super) fn record(&mut self, post: Post) {
        self.bytes += post.body.len();
        self.posts.push_back(post);
        while self.posts.len() > MAX_POSTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.posts.pop_front() else {
                break;
            };
            self.bytes -= oldest.body.len();
        }
    }

    pub(super) fn all(&self) -> Vec<Post> {
        self.posts.iter().cloned().collect()
    }
}
