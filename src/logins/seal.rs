//! Seals the secrets of a record (ChaCha20-Poly1305, RFC 8439). What a secret belongs to is a part
//! of the seal, so that no record can stand for another one.
//!
//! Must not: seal or open without saying what the secret belongs to.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::SealKey;
use crate::model::catalog::hex;
use crate::random;

/// How many digits name a key.
const ID_DIGITS: usize = 16;

/// A sealed secret, as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sealed {
    /// Which key opens it: a hash of that.
    key: String,
    /// The nonce and the sealed bytes, in base64.
    sealed: String,
}

/// The keys; the first seals, and all open.
#[derive(Debug, Default)]
pub(super) struct Seal(Vec<Key>);

#[derive(derive_more::Debug)]
#[debug("Key({id})")]
struct Key {
    id: String,
    key: LessSafeKey,
}

impl Seal {
    pub(super) fn new(keys: &[SealKey]) -> Self {
        let keys = keys.iter().map(|SealKey(bytes)| {
            let id = hex(&Sha256::digest([b"seal key\n".as_slice(), bytes].concat()));
            let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).expect("a key has 32 bytes");
            let id = id.get(..ID_DIGITS).unwrap_or_default().to_owned();
            Key { id, key: LessSafeKey::new(key) }
        });
        Self(keys.collect())
    }

    /// Seals `secret`, which belongs to `owner`; `None` without a key.
    pub(super) fn seal(
        &self,
        secret: &SecretString,
        owner: &str,
    ) -> Result<Option<Sealed>, getrandom::Error> {
        let Some(Key { id, key }) = self.0.first() else { return Ok(None) };
        // At random: two of so few seals under one key do not meet.
        let mut nonce = [0; NONCE_LEN];
        random::fill(&mut nonce)?;
        let mut bytes = secret.expose_secret().as_bytes().to_vec();
        let aad = Aad::from(owner.as_bytes());
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)
            .expect("a token is shorter than 256 GiB");
        let sealed = BASE64_STANDARD.encode([nonce.as_slice(), &bytes].concat());
        Ok(Some(Sealed { key: id.clone(), sealed }))
    }

    /// Opens a secret that belongs to `owner`. The error says what to do.
    pub(super) fn open(&self, sealed: &Sealed, owner: &str) -> Result<SecretString, String> {
        let known = self.0.iter().find(|key| key.id == sealed.key);
        let Some(Key { key, .. }) = known else {
            return Err("it is sealed with a key that `seal_key` does not have".to_owned());
        };
        let broken = || "its seal is broken: it was changed, or put in place of another".to_owned();
        let bytes = BASE64_STANDARD.decode(&sealed.sealed).map_err(|_bad| broken())?;
        let (nonce, bytes) = bytes.split_at_checked(NONCE_LEN).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_bad| broken())?;
        let mut bytes = bytes.to_vec();
        let aad = Aad::from(owner.as_bytes());
        let text = key.open_in_place(nonce, aad, &mut bytes).map_err(|_bad| broken())?;
        str::from_utf8(text).map(SecretString::from).map_err(|_bad| broken())
    }
}

#[cfg(test)]
mod tests {
    //! What opens, and what does not.

    use super::*;

    #[test]
    fn seal_opens_for_its_owner_with_any_of_the_keys() {
        let (old, new) = (SealKey([1; 32]), SealKey([2; 32]));
        let secret = SecretString::from("hunter2-refresh");
        let sealed =
            Seal::new(std::slice::from_ref(&old)).seal(&secret, "a/refresh").unwrap().unwrap();
        assert!(!serde_json::to_string(&sealed).unwrap().contains("hunter2"));
        let both = Seal::new(&[new.clone(), old]);
        let opened = both.open(&sealed, "a/refresh").unwrap();
        assert_eq!(opened.expose_secret(), "hunter2-refresh");
        assert!(both.open(&sealed, "b/refresh").unwrap_err().contains("seal is broken"));
        assert!(Seal::new(&[new]).open(&sealed, "a/refresh").unwrap_err().contains("`seal_key`"));
        let mut cut = sealed;
        cut.sealed.truncate(8);
        assert!(both.open(&cut, "a/refresh").is_err());
        assert_ne!(both.seal(&secret, "a").unwrap(), both.seal(&secret, "a").unwrap());
        assert_eq!(Seal::default().seal(&secret, "a").unwrap(), None);
    }
}
