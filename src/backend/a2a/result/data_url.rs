//! A file that a `data:` URL carries (RFC 2397).
//!
//! Must not: decide whether the file is passed on.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;

/// What a `data:` URL says. As a text, its base64 would fill the answer, and the file be lost.
pub(super) struct DataUrl<'a> {
    pub mime_type: Option<&'a str>,
    pub base64: Cow<'a, str>,
}

impl<'a> DataUrl<'a> {
    /// `None` if `url` is of another scheme, or has no data.
    pub(super) fn read(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        if !scheme.eq_ignore_ascii_case("data") {
            return None;
        }
        let (head, data) = rest.split_once(',')?;
        let mime_type = head.split(';').next().filter(|mime_type| !mime_type.is_empty());
        let is_base64 = head.rsplit(';').next().is_some_and(|last| last == "base64");
        let base64 = match is_base64 {
            true => percent_decode_str(data).decode_utf8_lossy(),
            false => {
                let bytes: Cow<'_, [u8]> = percent_decode_str(data).into();
                BASE64_STANDARD.encode(bytes).into()
            }
        };
        // Without a type, it is a text (RFC 2397, section 2).
        Some(Self { mime_type: mime_type.or(Some("text/plain")), base64 })
    }
}

#[cfg(test)]
mod tests {
    //! What the URL says, in each of its forms.

    use super::*;

    #[test]
    fn data_url_is_a_type_and_bytes() {
        for (url, expected) in [
            ("data:text/csv;base64,YQ==", Some(("text/csv", "YQ=="))),
            ("DATA:text/csv;charset=utf-8;base64,YQ%3D%3D", Some(("text/csv", "YQ=="))),
            ("data:,a%20b", Some(("text/plain", "YSBi"))),
            ("data:image/png;base64", None),
            ("https://a.test/x,y", None),
            ("data", None),
        ] {
            let data_url = DataUrl::read(url);
            let content = data_url.as_ref().map(|data| (data.mime_type.unwrap(), &*data.base64));
            assert_eq!(content, expected, "{url}");
        }
    }
}
