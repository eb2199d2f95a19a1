//! The names in a certificate that identify its holder: DNS names, URIs and mail addresses of its
//! `subjectAltName` (RFC 5280 §4.2.1.6). The common name is not among them.
//!
//! Must not: match by pattern. Two names are the same, or they are not.

/// One name. Names of different kinds differ, even with the same text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
pub enum San {
    Dns(String),
    Uri(String),
    Email(String),
}

/// The longest name that is accepted, in bytes.
const MAX_LEN: usize = 1024;

/// The text is not a name that a certificate can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSan {
    #[error("a name has 1 to {MAX_LEN} characters of ASCII, and no space")]
    Characters,
    #[error("names are compared as they are, so a pattern matches nothing")]
    Pattern,
}

impl San {
    /// Reads a name as a person writes it: with a colon it is a URI, with an `@` alone a mail
    /// address, otherwise a DNS name.
    pub fn parse(text: &str) -> Result<Self, BadSan> {
        if text.is_empty() || text.len() > MAX_LEN || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BadSan::Characters);
        }
        if text.contains(':') {
            return Ok(Self::Uri(text.to_owned()));
        }
        if text.contains('*') {
            return Err(BadSan::Pattern);
        }
        let kind = if text.contains('@') { Self::Email } else { Self::Dns };
        Ok(kind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    //! What kind of name a text is.

    use super::*;

    #[test]
    fn a_text_tells_its_kind() {
        let dns = |text: &str| Ok(San::Dns(text.to_owned()));
        let uri = |text: &str| Ok(San::Uri(text.to_owned()));
        assert_eq!(San::parse("billing.acme"), dns("billing.acme"));
        assert_eq!(San::parse("spiffe://acme/billing"), uri("spiffe://acme/billing"));
        assert_eq!(San::parse("https://ops@acme/x"), uri("https://ops@acme/x"));
        assert_eq!(San::parse("ops@acme"), Ok(San::Email("ops@acme".to_owned())));
        assert_eq!(San::parse("*.acme"), Err(BadSan::Pattern));
        for odd in ["", "a b", "a\n", "é.acme"] {
            assert_eq!(San::parse(odd), Err(BadSan::Characters), "{odd:?}");
        }
    }

    #[test]
    fn the_kind_is_part_of_the_name() {
        assert_ne!(San::Dns("ops@acme".into()), San::Email("ops@acme".into()));
    }
}
