//! Whether an Agent Card is signed by one of the operator's keys (A2A 1.0, §8.4; RFC 7515).
//!
//! Must not: take a key from anywhere but its caller. Keys in a signature (`jku`, `jwk`, `x5c`) are
//! ignored; only the `kid` is read, which picks one of the caller's keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::value::RawValue;

use super::payload::{Payload, Unsigned};
use crate::model::canonical::Unclear;
use crate::model::visible::brief;
use crate::model::words::{Words as _, words};
use crate::model::{Members, elements, member, string_member};

/// The most signatures that are checked: each costs as much as a handshake.
const MAX_SIGNATURES: usize = 8;

words! {
    /// The accepted algorithms, by their names in JWS. None of them is keyed by a secret.
    pub enum Algorithm {
        Es256 = "ES256",
        Es384 = "ES384",
        EdDsa = "EdDSA",
        Rs256 = "RS256",
        Ps256 = "PS256",
    }
}

/// A public key that the operator has named.
pub trait Key {
    /// Its `kid`, if it has one.
    fn id(&self) -> Option<&str>;

    /// Whether the key is one for `algorithm`. A signature names its algorithm itself, so the key's
    /// own type has to agree.
    fn fits(&self, algorithm: Algorithm) -> bool;

    /// Whether it verifies that `signature` was made over `message`.
    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool;
}

/// A good signature.
#[derive(Debug, PartialEq, Eq)]
pub struct Signed<'k, K> {
    /// The key that made it.
    pub key: &'k K,
    pub algorithm: Algorithm,
    /// The signed text: the card in its canonical form, without members that say nothing. Anything
    /// that is to be trusted because of the signature is read from here.
    pub payload: String,
}

/// Why a card counts as not signed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSigned {
    #[error("it has no signature")]
    Absent,
    #[error("its `signatures` are not a list")]
    NoList,
    #[error("it has {0} signatures, and {MAX_SIGNATURES} are looked at")]
    TooMany(usize),
    #[error("it has no canonical form: {0}")]
    Unclear(#[from] Unclear),
    #[error("{}", each(.0))]
    NoneGood(Vec<WhyNot>),
}

/// Why one signature does not count.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyNot {
    #[error("is no JWS: {0}")]
    Unreadable(&'static str),
    #[error(
        "has the algorithm {0:?}, which is not taken: ES256, ES384, EdDSA, RS256 and PS256 are"
    )]
    Algorithm(String),
    #[error("names an extension in `crit` that the bridge does not know")]
    Critical,
    #[error("is by the key {0:?}, which is not configured")]
    UnknownKey(String),
    #[error(
        "has the algorithm {}, for which no key is configured (of its `kid`, if it has one)",
        .0.as_str()
    )]
    NoFit(Algorithm),
    #[error("was not made by a configured key, or not over this card")]
    Wrong,
    #[error("is good, but does not cover {0:?}, which the card has as well")]
    LeavesOut(String),
}

/// Finds a signature of `card` by one of `keys`: one that is good is enough.
pub fn verify<'k, K: Key>(card: &RawValue, keys: &'k [K]) -> Result<Signed<'k, K>, NotSigned> {
    let unsigned = Unsigned::read(card)?;
    let list = member(card.get(), "signatures")
        .filter(|value| value.get() != "null")
        .ok_or(NotSigned::Absent)?;
    let signatures = elements(list.get()).map_err(|_other| NotSigned::NoList)?;
    match signatures.len() {
        0 => return Err(NotSigned::Absent),
        many if many > MAX_SIGNATURES => return Err(NotSigned::TooMany(many)),
        _ => {}
    }
    let payloads = unsigned.payloads();
    let encoded: Vec<_> =
        payloads.iter().map(|payload| (payload, BASE64URL.encode(&payload.text))).collect();
    let mut why_not = Vec::new();
    for signature in signatures {
        match Jws::read(signature).and_then(|jws| jws.verify(keys, &unsigned, &encoded)) {
            Ok(signed) => return Ok(signed),
            Err(why) => why_not.push(why),
        }
    }
    Err(NotSigned::NoneGood(why_not))
}

/// One entry of `signatures`.
struct Jws {
    protected: String,
    algorithm: Algorithm,
    key: Option<String>,
    signature: Vec<u8>,
}

impl Jws {
    fn read(entry: &RawValue) -> Result<Self, WhyNot> {
        let unreadable = WhyNot::Unreadable;
        let protected =
            string_member(entry.get(), "protected").ok_or(unreadable("it has no `protected`"))?;
        let encoded =
            string_member(entry.get(), "signature").ok_or(unreadable("it has no `signature`"))?;
        let signature = BASE64URL
            .decode(&encoded)
            .map_err(|_odd| unreadable("`signature` is not base64url"))?;
        let header_bytes = BASE64URL
            .decode(&protected)
            .map_err(|_odd| unreadable("`protected` is not base64url"))?;
        let header = std::str::from_utf8(&header_bytes)
            .map_err(|_odd| unreadable("its header is not UTF-8"))?;
        let members =
            Members::read(header).map_err(|_odd| unreadable("its header is not a JSON object"))?;
        if members.duplicate().is_some() {
            return Err(unreadable("a name stands twice in its header"));
        }
        if members.get("crit").is_some() {
            // The bridge knows no extensions.
            return Err(WhyNot::Critical);
        }
        let algorithm = string_member(header, "alg").ok_or(unreadable("it names no algorithm"))?;
        let Some(algorithm) = Algorithm::parse(&algorithm) else {
            return Err(WhyNot::Algorithm(brief(&algorithm).to_owned()));
        };
        let key = match members.get("kid") {
            None => None,
            Some(_) => Some(string_member(header, "kid").ok_or(unreadable("`kid` is no text"))?),
        };
        Ok(Self { protected, algorithm, key, signature })
    }

    fn verify<'k, K: Key>(
        &self,
        keys: &'k [K],
        card: &Unsigned<'_>,
        payloads: &[(&Payload<'_>, String)],
    ) -> Result<Signed<'k, K>, WhyNot> {
        let Self { algorithm, key: wanted, .. } = self;
        // A key without an id fits any `kid`.
        let mut candidates = keys
            .iter()
            .filter(|key| {
                wanted.is_none() || key.id().is_none_or(|id| Some(id) == wanted.as_deref())
            })
            .peekable();
        if candidates.peek().is_none() {
            return Err(WhyNot::UnknownKey(
                brief(wanted.as_deref().unwrap_or_default()).to_owned(),
            ));
        }
        let mut fitting = candidates.filter(|key| key.fits(*algorithm)).peekable();
        if fitting.peek().is_none() {
            return Err(WhyNot::NoFit(*algorithm));
        }
        let mut why_not = WhyNot::Wrong;
        for key in fitting {
            for (payload, encoded) in payloads {
                let message = format!("{}.{encoded}", self.protected);
                if !key.verifies(*algorithm, message.as_bytes(), &self.signature) {
                    continue;
                }
                match payload.leaves_out(card) {
                    None => {
                        let payload = payload.text.clone();
                        return Ok(Signed { key, algorithm: *algorithm, payload });
                    }
                    Some(text) => why_not = WhyNot::LeavesOut(brief(&text).to_owned()),
                }
            }
        }
        Err(why_not)
    }
}

fn each(why_not: &[WhyNot]) -> String {
    match why_not {
        [one] => format!("its signature {one}"),
        all => {
            let mut lines = Vec::new();
            for (at, why) in all.iter().enumerate() {
                lines.push(format!("signature {} {why}", at + 1));
            }
            lines.join("; ")
        }
    }
}

#[cfg(test)]
mod tests;
