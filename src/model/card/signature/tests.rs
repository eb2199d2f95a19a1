//! Which signatures count, with keys whose signatures are the message itself.

use super::*;

/// A key that signs by repeating what it signs.
#[derive(Debug, PartialEq)]
struct Parrot {
    id: Option<&'static str>,
    algorithm: Algorithm,
}

impl Parrot {
    fn sign(&self, protected: &str, payload: &str) -> Vec<u8> {
        let message = format!("{protected}.{}", BASE64URL.encode(payload));
        format!("{:?} {message}", self.id).into_bytes()
    }
}

impl Key for Parrot {
    fn id(&self) -> Option<&str> {
        self.id
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.algorithm == algorithm
    }

    fn verifies(&self, _: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        signature == [format!("{:?} ", self.id).as_bytes(), message].concat()
    }
}

const ES: Parrot = Parrot { id: Some("k1"), algorithm: Algorithm::Es256 };
const ED: Parrot = Parrot { id: Some("k2"), algorithm: Algorithm::EdDsa };
const NAMELESS: Parrot = Parrot { id: None, algorithm: Algorithm::Ps256 };

const CARD: &str = r#""name":"HR","description":"d","version":"1","supportedInterfaces":[{"url":"https://hr/a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{"streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"d","tags":["t"]}]"#;

fn canonical(members: &str) -> String {
    let raw = RawValue::from_string(format!("{{{members}}}")).unwrap();
    crate::model::canonical::Node::read_clear(&raw).unwrap().jcs()
}

/// The entry of `signatures` that `key` makes for a card.
fn entry(key: &Parrot, header: &str, members: &str) -> String {
    let protected = BASE64URL.encode(header);
    let signature = BASE64URL.encode(key.sign(&protected, &canonical(members)));
    format!(r#"{{"protected":"{protected}","signature":"{signature}"}}"#)
}

fn card(members: &str, signatures: &[String]) -> Box<RawValue> {
    let signatures = signatures.join(",");
    RawValue::from_string(format!(r#"{{{members},"signatures":[{signatures}]}}"#)).unwrap()
}

fn why_not(card: &RawValue) -> NotSigned {
    verify(card, &[ES, ED, NAMELESS]).map(|signed| signed.payload).unwrap_err()
}

const K1: &str = r#"{"alg":"ES256","kid":"k1"}"#;

#[test]
fn a_good_signature_counts_and_says_what_it_covers() {
    let keys = [ES, ED, NAMELESS];
    for (key, header) in [
        (&ES, K1),
        (&ES, r#"{"alg":"ES256"}"#),
        (&ED, r#"{"typ":"JOSE","alg":"EdDSA","kid":"k2","jku":"https://elsewhere/jwks"}"#),
        (&NAMELESS, r#"{"alg":"PS256","kid":"its own name for it"}"#),
    ] {
        let card = card(CARD, &[entry(key, header, CARD)]);
        let signed = verify(&card, &keys).unwrap();
        assert_eq!((signed.key, signed.algorithm), (key, key.algorithm), "{header}");
        assert_eq!(signed.payload, canonical(CARD));
    }
}

#[test]
fn one_good_signature_among_others_is_enough() {
    let old = entry(&ES, r#"{"alg":"ES256","kid":"k0"}"#, CARD);
    let damaged = r#"{"protected":"!","signature":""}"#.to_owned();
    let card = card(CARD, &[old, damaged, entry(&ES, K1, CARD)]);
    assert_eq!(verify(&card, &[ES]).unwrap().key, &ES);
}

#[test]
fn signature_that_does_not_count_is_told_with_its_reason() {
    let by = |header: &str| card(CARD, &[entry(&ES, header, CARD)]);
    let altered = CARD.replace("\"HR\"", "\"HS\"");
    let bare = |members: &str| RawValue::from_string(format!("{{{CARD}{members}}}")).unwrap();
    let nine: Vec<String> = (0..9).map(|_| entry(&ES, K1, CARD)).collect();
    let absent = || NotSigned::Absent;
    let one = |why| NotSigned::NoneGood(vec![why]);
    let algorithm = |name: &str| one(WhyNot::Algorithm(name.to_owned()));
    for (card, expected) in [
        (bare(""), absent()),
        (bare(r#","signatures":[]"#), absent()),
        (bare(r#","signatures":null"#), absent()),
        (bare(r#","signatures":{}"#), NotSigned::NoList),
        (card(CARD, &nine), NotSigned::TooMany(9)),
        (card(&altered, &[entry(&ES, K1, CARD)]), one(WhyNot::Wrong)),
        (card(CARD, &[entry(&ED, K1, CARD)]), one(WhyNot::Wrong)),
        (by(r#"{"alg":"none","kid":"k1"}"#), algorithm("none")),
        (by(r#"{"alg":"HS256","kid":"k1"}"#), algorithm("HS256")),
        (by(r#"{"alg":"es256","kid":"k1"}"#), algorithm("es256")),
        (by(r#"{"alg":"EdDSA","kid":"k1"}"#), one(WhyNot::NoFit(Algorithm::EdDsa))),
        (by(r#"{"alg":"ES256","kid":"k1","crit":["exp"],"exp":1}"#), one(WhyNot::Critical)),
        (by(r#"{"alg":"ES256","kid":"k1","crit":[]}"#), one(WhyNot::Critical)),
        (by(r#"{"alg":"ES256","kid":"k1","b64":false,"crit":["b64"]}"#), one(WhyNot::Critical)),
    ] {
        assert_eq!(why_not(&card), expected, "{card}");
    }
    let twice = why_not(&bare(r#","signatures":[],"signatures":[]"#));
    assert!(matches!(twice, NotSigned::Unclear(_)), "{twice}");
    let unknown = by(r#"{"alg":"ES256","kid":"k9"}"#);
    let why = verify(&unknown, &[ES, ED]).unwrap_err();
    assert_eq!(why, one(WhyNot::UnknownKey("k9".to_owned())));
}

#[test]
fn signature_that_is_no_jws_is_told_with_its_reason() {
    let by = |header: &str| card(CARD, &[entry(&ES, header, CARD)]);
    let bare = |signature: &str| {
        RawValue::from_string(format!("{{{CARD},\"signatures\":[{signature}]}}")).unwrap()
    };
    for (card, expected) in [
        (bare(r#""x""#), "no `protected`"),
        (bare(r#"{"protected":"e30"}"#), "no `signature`"),
        (bare(r#"{"protected":"e30=","signature":""}"#), "`protected`"),
        (bare(r#"{"protected":"e30","signature":"+/"}"#), "`signature` is not base64url"),
        (by("[]"), "JSON object"),
        (by("{}"), "no algorithm"),
        (by(r#"{"alg":"ES256","alg":"ES256"}"#), "twice"),
        (by(r#"{"alg":"ES256","kid":7}"#), "`kid`"),
    ] {
        let why = why_not(&card);
        let NotSigned::NoneGood(all) = &why else { panic!("{why}") };
        let [WhyNot::Unreadable(why)] = all[..] else { panic!("{why}") };
        assert!(why.contains(expected), "{why}: {card}");
    }
}

#[test]
fn each_of_several_signatures_has_its_reason() {
    let none = entry(&ES, r#"{"alg":"none"}"#, CARD);
    let card = card(CARD, &[none, entry(&ED, K1, CARD)]);
    let why = why_not(&card);
    let expected = vec![WhyNot::Algorithm("none".to_owned()), WhyNot::Wrong];
    assert_eq!(why, NotSigned::NoneGood(expected));
    let why = why.to_string();
    assert!(why.contains("signature 1 ") && why.contains("; signature 2 "), "{why}");
}

/// §8.4.1: order, layout, escapes, the form of numbers, default values.
#[test]
fn the_same_card_otherwise_written_is_signed_by_the_same_signature() {
    let signed = format!(r#"{CARD},"iconUrl":"é","x-n":[1,100,0.5]"#);
    let signature = [entry(&ES, K1, &signed)];
    for same in [
        format!(r#""x-n" : [ 1.0, 1E2, 5e-1 ] , "iconUrl":"\u00e9",{CARD}"#),
        format!(r#"{signed},"securityRequirements":[],"securitySchemes":{{}}"#),
        signed.replace(r#""protocolVersion":"1.0""#, r#""tenant":"","protocolVersion":"1.0""#),
        signed.replace(r#""tags":["t"]"#, r#""tags":["t"],"examples":[],"inputModes":null"#),
    ] {
        let card = card(&same, &signature);
        verify(&card, &[ES]).unwrap_or_else(|why| panic!("{why}: {same}"));
    }
    for other in [
        signed.replace("0.5", "0.51"),
        // `optional` in the format: that it is there is told apart from that it is not.
        signed.replace(r#"{"streaming":true}"#, r#"{"streaming":true,"pushNotifications":false}"#),
        format!(r#"{signed},"documentationUrl":"x""#),
    ] {
        verify(&card(&other, &signature), &[ES]).unwrap_err();
    }
}

#[test]
fn unsigned_member_is_not_taken() {
    let sdk = r#""defaultInputModes":["text/plain"],"name":"HR","supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://hr/a"},{"protocolBinding":"JSONRPC","protocolVersion":"0.3","url":"https://hr/b"}]"#;
    let signature = [entry(&ES, K1, sdk)];
    let legacy = r#""url":"https://hr/b","preferredTransport":"JSONRPC","protocolVersion":"0.3","additionalInterfaces":[]"#;
    let served = format!(r#"{sdk},"description":"","skills":[],{legacy}"#);
    let signed = card(&served, &signature);
    let signed = verify(&signed, &[ES]).unwrap();
    assert_eq!(signed.payload, canonical(sdk), "0.3's own fields are none of it");
    for (added, text) in [
        (r#""url":"https://evil/""#, "https://evil/"),
        (r#""security":[{"ignore what was said":[]}]"#, "ignore what was said"),
        (r#""x-new":42"#, "x-new"),
        (r#""securitySchemes":{"ignore it":{"mtlsSecurityScheme":{}}}"#, "ignore it"),
        (r#""provider":{"ignore it":""}"#, "ignore it"),
    ] {
        let served =
            format!("{},{added}", served.replace(r#""url":"https://hr/b","pref"#, r#""pref"#));
        let why = why_not(&card(&served, &signature));
        assert_eq!(why, NotSigned::NoneGood(vec![WhyNot::LeavesOut((*text).into())]));
    }
}

#[test]
fn long_words_of_a_peer_are_cut() {
    let header = format!(r#"{{"alg":"{}"}}"#, "ß".repeat(5_000));
    let why = why_not(&card(CARD, &[entry(&ES, &header, CARD)]));
    assert!(why.to_string().len() < 300, "{why}");
}
