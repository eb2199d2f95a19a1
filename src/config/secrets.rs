//! The secrets of bridge.yaml, and the texts of peers without them.
//!
//! `validate` adds each secret that it resolves. Programs and servers may repeat secrets in their
//! output, which goes into the log, into errors and into the report of `doctor`.
//!
//! Must not: hold the token of an app, of which the bridge keeps only a hash.

use std::ops::Range;

use secrecy::{ExposeSecret as _, SecretString};

/// A secret that can be compared: a reload leaves equal backends alone, and one whose secret has
/// changed in its file is unequal.
#[derive(Debug, Clone, derive_more::Deref, derive_more::From)]
#[from(String, SecretString)]
pub struct Secret(SecretString);

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose_secret() == other.expose_secret()
    }
}

/// Longest first: if one secret is a part of another, the longer one must be hidden as a whole.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Vec<SecretString>);

impl Secrets {
    /// A shorter value is no secret, and would match everywhere.
    const SHORTEST: usize = 8;

    pub fn add(&mut self, value: &str) {
        self.add_longer_than(Self::SHORTEST - 1, value);
    }

    pub(super) fn add_longer_than(&mut self, length: usize, value: &str) {
        let at = self.0.partition_point(|known| known.expose_secret().len() > value.len());
        if value.len() > length {
            self.0.insert(at, value.into());
        }
    }

    /// `text` with `[hidden]` in place of each secret.
    pub fn hide(&self, text: String) -> String {
        self.replace(text, "[hidden]")
    }

    /// Where `text` has one of them.
    pub(super) fn found_in(&self, text: &str) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        for secret in &self.0 {
            let secret = secret.expose_secret();
            places.extend(text.match_indices(secret).map(|(at, _)| at..at + secret.len()));
        }
        places
    }

    pub(super) fn replace(&self, text: String, mask: &str) -> String {
        if !self.0.iter().any(|secret| text.contains(secret.expose_secret())) {
            return text;
        }
        self.0.iter().fold(text, |text, value| text.replace(value.expose_secret(), mask))
    }
}

#[cfg(test)]
mod tests {
    //! What is hidden.

    use super::*;

    #[test]
    fn all_but_short_ones_are_hidden_whole() {
        let mut secrets = Secrets::default();
        for value in ["t0ken-of-it", "s3cret-t0ken-of-it", "true"] {
            secrets.add(value);
        }
        assert_eq!(
            secrets.hide("true: s3cret-t0ken-of-it,t0ken-of-it".to_owned()),
            "true: [hidden],[hidden]"
        );
        assert!(!format!("{secrets:?}").contains("t0ken"));
    }
}
