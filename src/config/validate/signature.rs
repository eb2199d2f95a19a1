//! `signature` of an agent: the keys, read.
//!
//! Must not: look at a card.

use super::{Validator, all, everybody_writes};
use crate::config::{At, Signers, file_format};
use crate::public_keys::PublicKey;

const PUBLIC: &str = "name a file with the agent's public key: PEM (-----BEGIN PUBLIC KEY-----, which \
                      `openssl x509 -pubkey -noout` makes of a certificate), a JWK, or a set of them";

impl Validator<'_> {
    /// The required signers of the card. `None` outside: a mistake was reported.
    pub(super) fn signature(
        &self,
        section: Option<&At<file_format::CardSignature>>,
        is_bundled: bool,
    ) -> Option<Option<Signers>> {
        let Some(At { value: section, node }) = section else { return Some(None) };
        if is_bundled {
            let message = "the bundled agent is the bridge's own";
            return self.refuse(node.key(), message, "leave `signature` out");
        }
        let files = section.keys.as_ref().map(|at| at.value.0.as_slice()).unwrap_or_default();
        if files.is_empty() {
            let at = section.keys.as_ref().map_or(*node, |at| at.node);
            let message = "`signature` names no key, so that no card could be the agent's";
            return self.missing(at, message, "write `keys: /path`, or a list of files");
        }
        let keys: Vec<Vec<PublicKey>> = all(files.iter().map(|at| self.public_keys(at)))?;
        let required = section.required.as_ref().is_none_or(|at| at.value);
        Some(Some(Signers { keys: keys.concat(), required }))
    }

    fn public_keys(&self, at: &At<String>) -> Option<Vec<PublicKey>> {
        let path = self.path(at)?;
        let file = self.file(at.node, &path, PUBLIC)?;
        match PublicKey::read_all(&file.text) {
            Ok(keys) => {
                if file.mode & 0o002 != 0 {
                    self.warn(at.node, everybody_writes(&path));
                }
                Some(keys)
            }
            Err(flaw) => {
                let message = format!("{} cannot be used: {flaw}", path.display());
                self.refuse(at.node, message, PUBLIC)
            }
        }
    }
}
