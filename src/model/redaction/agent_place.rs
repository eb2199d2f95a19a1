//! Where a string stands in the result of an A2A agent, and whether it is one of the protocol's
//! own: an id, the name of a member, a state. With another id, the client could not ask for its
//! task.
//!
//! Must not: take a string for the protocol's that stands in the content of a part, in `data` or in
//! `metadata`, whatever its name is.

use super::{is_base64, is_in};

/// Members whose objects have members of the protocol.
const OBJECTS: &str = "task message msg status statusUpdate status_update artifactUpdate \
                       artifact_update artifact artifacts history";
const IDS: &str = "id taskId task_id contextId context_id messageId message_id artifactId \
                   artifact_id referenceTaskIds reference_task_ids";
const PARTS: &str = "parts content";
/// The names of all other members of these objects, of parts and of files.
const NAMES: &str = "kind state role timestamp final append lastChunk last_chunk index metadata \
                     extensions name description text data raw url file bytes uri fileWithBytes \
                     file_with_bytes fileWithUri file_with_uri filename mediaType media_type \
                     mimeType mime_type";
/// Values of `kind`, `state` and `role`.
const WORDS: &str = "task message status-update artifact-update text data file agent user \
                     ROLE_UNSPECIFIED ROLE_AGENT ROLE_USER submitted working input-required \
                     completed canceled failed rejected auth-required unknown \
                     TASK_STATE_UNSPECIFIED TASK_STATE_SUBMITTED TASK_STATE_WORKING \
                     TASK_STATE_COMPLETED TASK_STATE_FAILED TASK_STATE_CANCELED \
                     TASK_STATE_INPUT_REQUIRED TASK_STATE_REJECTED TASK_STATE_AUTH_REQUIRED";

/// What an object or an array has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Members {
    /// A task, a message, a status, an artifact.
    Protocol,
    Parts,
    File,
    /// What the agent likes.
    Content,
}

/// An open object or array.
#[derive(Debug, Clone, Copy)]
struct Open<'t> {
    members: Members,
    /// The member that it is the value of, as it was written.
    key: &'t str,
}

/// The place of the next string.
#[derive(Debug, Default)]
pub(super) struct AgentPlace<'t> {
    open: Vec<Open<'t>>,
    /// The member whose value follows; empty in an array.
    key: &'t str,
}

impl<'t> AgentPlace<'t> {
    /// Passes the text between two strings.
    pub(super) fn pass(&mut self, between: &str) {
        for c in between.chars() {
            match c {
                '{' | '[' => {
                    let inner = self.inner();
                    self.open.push(inner);
                    self.key = "";
                }
                '}' | ']' => {
                    self.open.pop();
                    self.key = "";
                }
                ',' => self.key = "",
                _ => {}
            }
        }
    }

    /// Notes that the value of the member `key` follows.
    pub(super) fn enter(&mut self, key: &'t str) {
        self.key = key;
    }

    /// Whether the string `literal`, with its quotes, is one of the protocol's.
    pub(super) fn keeps(&self, literal: &str, names_member: bool) -> bool {
        let Some(open) = self.open.last() else { return false };
        if names_member {
            return open.members != Members::Content
                && [OBJECTS, IDS, PARTS, NAMES].iter().any(|names| is_in(names, literal));
        }
        let key = if self.key.is_empty() { open.key } else { self.key };
        let is_word = is_in("kind state role", key) && is_in(WORDS, literal);
        match open.members {
            Members::Protocol => {
                is_in(IDS, key) || is_word || is_in("timestamp", key) && is_timestamp(literal)
            }
            Members::Parts => is_word || is_in("raw", key) && is_base64(literal),
            Members::File => {
                is_in("bytes fileWithBytes file_with_bytes", key) && is_base64(literal)
            }
            Members::Content => false,
        }
    }

    /// What the object or the array has that begins here.
    fn inner(&self) -> Open<'t> {
        let Some(outer) = self.open.last() else {
            return Open { members: Members::Protocol, key: "" };
        };
        if self.key.is_empty() {
            // An element of an array is what the array is.
            return *outer;
        }
        let members = match outer.members {
            Members::Protocol if is_in(OBJECTS, self.key) || is_in(IDS, self.key) => {
                Members::Protocol
            }
            Members::Protocol if is_in(PARTS, self.key) => Members::Parts,
            Members::Parts if is_in("file", self.key) => Members::File,
            _ => Members::Content,
        };
        Open { members, key: self.key }
    }
}

fn is_timestamp(literal: &str) -> bool {
    literal.trim_matches('"').bytes().all(|byte| {
        byte.is_ascii_digit() || matches!(byte, b':' | b'-' | b'+' | b'.' | b'T' | b'Z')
    })
}
