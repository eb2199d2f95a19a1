//! A made-up environment, for tests and `fuzz/`.
//!
//! Must not: be a part of the program.

use super::{Environment, SmallFile};

impl Environment {
    pub fn with_var(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds a made-up file; from then on no real file is read.
    pub fn with_file(mut self, path: &str, text: &str, mode: u32) -> Self {
        let file = SmallFile { text: text.to_owned(), mode, is_ours: true };
        self.files.get_or_insert_default().insert(path.into(), file);
        self
    }

    /// [`Self::with_file`] of another user.
    #[cfg(test)]
    pub(in crate::config) fn with_foreign_file(
        mut self,
        path: &str,
        text: &str,
        mode: u32,
    ) -> Self {
        let file = SmallFile { text: text.to_owned(), mode, is_ours: false };
        self.files.get_or_insert_default().insert(path.into(), file);
        self
    }

    #[cfg(test)]
    pub fn with_own_program(mut self, path: &str) -> Self {
        self.own_program = Some(path.into());
        self
    }
}
