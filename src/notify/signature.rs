//! Signatures of webhooks, as Standard Webhooks has them: HMAC-SHA256 of the id, the time and the
//! body.
//!
//! Must not: read the clock.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

use crate::config::SigningSecret;

/// The value of `webhook-signature`: one signature for each secret, so that a receiver that knows
/// one of them takes it while they rotate.
pub fn signature(secrets: &[SigningSecret], id: &str, seconds: u64, body: &[u8]) -> String {
    let signed = [format!("{id}.{seconds}.").as_bytes(), body].concat();
    let mut signatures = Vec::with_capacity(secrets.len());
    for SigningSecret(key) in secrets {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &signed);
        signatures.push(format!("v1,{}", BASE64_STANDARD.encode(tag)));
    }
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    //! The example of the specification's libraries.

    use super::*;

    fn secret(encoded: &str) -> SigningSecret {
        SigningSecret(BASE64_STANDARD.decode(encoded).expect("base64"))
    }

    #[test]
    fn signature_is_that_of_the_libraries_test() {
        let known = secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let (id, seconds) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330);
        let signed =
            signature(std::slice::from_ref(&known), id, seconds, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let other = secret("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        let both = signature(&[other, known], id, seconds, br#"{"test": 2432232314}"#);
        assert!(both.ends_with(&format!(" {signed}")) && both.len() == 2 * signed.len() + 1);
    }
}
