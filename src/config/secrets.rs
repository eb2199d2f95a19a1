//! The secrets of bridge.yaml, and the texts of peers without them.
//!
//! `validate` adds each secret that it resolves. Programs and servers may repeat secrets in their
//! output, which goes into the log, into errors and into the report of `doctor`.
//!
//! Must not: hold the token of an app, of which the bridge keeps only a hash.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
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

/// The secrets that come and go while the bridge runs: the tokens of one login. The last few are
/// hidden, as a peer may repeat the one that it has just refused.
#[derive(Debug, Clone, Default)]
pub struct LiveSecrets(Arc<Mutex<VecDeque<SecretString>>>);

impl LiveSecrets {
    /// How many are remembered.
    const MOST: usize = 8;

    pub fn add(&self, value: &SecretString) {
        let mut live = self.0.lock();
        if live.iter().any(|known| known.expose_secret() == value.expose_secret()) {
            return;
        }
        if live.len() == Self::MOST {
            live.pop_front();
        }
        live.push_back(value.clone());
    }

    /// `fixed` and these.
    pub fn with(&self, fixed: &Arc<Secrets>) -> Arc<Secrets> {
        let live = self.0.lock();
        if live.is_empty() {
            return Arc::clone(fixed);
        }
        let mut all = Secrets::clone(fixed);
        for value in &*live {
            all.add(value.expose_secret());
        }
        Arc::new(all)
    }
}

#[cfg(test)]
mod tests {
    //! What is hidden.

    use super::*;

    #[test]
    fn token_is_hidden_while_it_lives() {
        let live = LiveSecrets::default();
        let fixed = Arc::default();
        let hide = |text: &str| live.with(&fixed).hide(text.to_owned());
        assert_eq!(hide("token-number-0"), "token-number-0");
        for number in 0..9 {
            live.add(&format!("token-number-{number}").into());
        }
        assert_eq!(hide("token-number-8 token-number-1"), "[hidden] [hidden]");
        assert_eq!(hide("token-number-0"), "token-number-0", "it was long ago");
    }

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
