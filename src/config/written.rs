//! Values that errors and logs show as the file wrote them.
//!
//! Must not: show a value in place of its text.

use std::fmt;

/// A value, and the text that may be shown for it: as the file wrote it, its references unresolved.
///
/// `Debug` and `Display` show the text, since the value may hold a secret.
#[derive(Clone, PartialEq, Eq, derive_more::Debug, derive_more::Deref, derive_more::Display)]
#[debug("{shown:?}")]
#[display("{shown}")]
pub struct Written<T> {
    #[deref]
    value: T,
    shown: String,
}

impl<T> Written<T> {
    pub fn new(value: T, shown: String) -> Self {
        Self { value, shown }
    }
}

/// A value without a secret is shown as it is.
impl<T: fmt::Display> From<T> for Written<T> {
    fn from(value: T) -> Self {
        let shown = value.to_string();
        Self { value, shown }
    }
}

/// Lets arguments go into `Command::args` as they are.
impl AsRef<std::ffi::OsStr> for Written<String> {
    fn as_ref(&self) -> &std::ffi::OsStr {
        self.value.as_ref()
    }
}
