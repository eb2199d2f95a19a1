//! Signed Agent Cards: whose signatures count, and what becomes of the cards that have none.

use std::fs;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{bridge::Bridge, frames::Script, mantyx::Mantyx, peers, wait};

const OK: [&str; 2] = ["HTTP/1.1 200 OK", "Content-Type: application/json"];

/// A key for ES256.
struct Signer(KeyPair);

impl Signer {
    fn new() -> Self {
        Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("there is randomness"))
    }

    /// The public key as a JWK of this name.
    fn jwk(&self, kid: &str) -> Value {
        let (x, y) = self.0.public_key_raw()[1..].split_at(32);
        let [x, y] = [x, y].map(|half| BASE64URL.encode(half));
        json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y})
    }

    /// The entry of `signatures` for `card`, which is canonical as it is written.
    fn sign(&self, header: &Value, card: &Value) -> Value {
        let random = SystemRandom::new();
        let der = self.0.serialized_der();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random);
        let pair = pair.expect("it was made for this");
        jws(header, card, |message| {
            pair.sign(&random, message).expect("there is randomness").as_ref().to_vec()
        })
    }
}

fn jws(header: &Value, card: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Value {
    let encoded = |value: &Value| BASE64URL.encode(value.to_string());
    let protected = encoded(header);
    let signature = sign(format!("{protected}.{}", encoded(card)).as_bytes());
    json!({"protected": protected, "signature": BASE64URL.encode(signature)})
}

fn card(url: &str) -> Value {
    json!({
        "name": "HR", "description": "Knows people.", "version": "1",
        "supportedInterfaces":
            [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": false, "extensions": [{"uri": "urn:x", "params": {"n": 100}}]},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
    })
}

fn with(card: &Value, signatures: &[Value]) -> String {
    let mut card = card.clone();
    card["signatures"] = signatures.into();
    card.to_string()
}

fn write(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).expect("the test's directory is writable");
    path.display().to_string()
}

#[tokio::test]
async fn cards_that_the_sdks_have_signed_are_taken() {
    let (mantyx, dir) = (Mantyx::start().await, TempDir::new().expect("a directory"));
    let stranger = Signer::new();
    let stranger = write(&dir, "stranger.pem", &stranger.0.public_key_pem());
    let (mut entries, mut names) = (String::new(), Vec::new());
    for signed in peers::signed_cards() {
        let name = signed["name"].as_str().expect("a name").to_owned();
        let key = write(&dir, &name, signed["key"].as_str().expect("PEM"));
        mantyx.canned("GET", &format!("/{name}"), &OK, &signed["card"].to_string());
        let url = format!("card_url: '{}/{name}'", mantyx.url());
        entries.push_str(&format!("  {name}: {{{url}, signature: {{keys: {key}}}}}\n"));
        entries.push_str(&format!("  no_{name}: {{{url}, signature: {{keys: {stranger}}}}}\n"));
        names.push(name);
    }
    assert_eq!(names.len(), 9, "{names:?}");
    let bridge = Bridge::start(&format!("{}a2a:\n{entries}", mantyx.upstream())).await;
    for name in names {
        let signed = bridge.wait_backend(&name, "ready").await;
        let algorithm = match name.trim_start_matches("v1_") {
            "es384" => "ES384",
            "eddsa" => "EdDSA",
            "rs256" => "RS256",
            "ps256" => "PS256",
            _ => "ES256",
        };
        let expected = json!({"valid": true, "algorithm": algorithm, "key": null, "error": null});
        assert_eq!(signed["signature"], expected, "{name}");
        let generation = if name.starts_with("v1_") { "1.0" } else { "0." };
        let version = signed["protocolVersion"].as_str().expect("a version");
        assert!(version.starts_with(generation), "{name}: {version}");
        let refused = bridge.wait_backend(&format!("no_{name}"), "down").await;
        assert!(refused["lastError"].to_string().contains("signature"), "{refused}");
    }
}

/// Two keys that are configured, and a card for them to sign.
struct Desk {
    ours: Signer,
    old: Signer,
    card: Value,
    /// The header of `ours`.
    now: Value,
    /// Where no key is fetched.
    jku: String,
}

/// A card whose signature is refused, and a part of the reason.
struct NotSigned {
    name: &'static str,
    card: String,
    why: &'static str,
}

impl Desk {
    fn new(elsewhere: &Mantyx) -> Self {
        Self {
            ours: Signer::new(),
            old: Signer::new(),
            card: card("/rpc"),
            now: json!({"alg": "ES256", "typ": "JOSE", "kid": "now"}),
            jku: format!("{}/jwks", elsewhere.url()),
        }
    }

    /// The header of `ours` with something else in it.
    fn header(&self, name: &str, value: impl Into<Value>) -> Value {
        let mut header = self.now.clone();
        header[name] = value.into();
        header
    }

    /// The card, signed under such a header.
    fn by(&self, name: &str, value: impl Into<Value>) -> String {
        with(&self.card, &[self.ours.sign(&self.header(name, value), &self.card)])
    }

    fn good(&self) -> Value {
        self.ours.sign(&self.now, &self.card)
    }

    fn unknown(&self) -> Value {
        self.ours.sign(&self.header("kid", "unknown"), &self.card)
    }

    /// One bit of it is another.
    fn damaged(&self) -> Value {
        let mut damaged = self.good();
        let bytes = BASE64URL.decode(damaged["signature"].as_str().expect("a signature"));
        let mut bytes = bytes.expect("it was encoded");
        bytes[40] ^= 1;
        damaged["signature"] = BASE64URL.encode(bytes).into();
        damaged
    }

    /// Cards that are signed, by their names.
    fn signed(&self) -> Vec<(&'static str, String)> {
        let Self { ours, old, card, .. } = self;
        let signed = with(card, &[self.good()]);
        let by_the_old = old.sign(&self.header("kid", "old"), card);
        vec![
            ("no_kid", with(card, &[ours.sign(&json!({"alg": "ES256"}), card)])),
            ("rotated", with(card, &[self.damaged(), self.unknown(), self.good()])),
            ("by_the_old", with(card, &[by_the_old])),
            ("jku_is_not_needed", self.by("jku", self.jku.as_str())),
            ("order", reversed(&signed)),
            ("numbers", signed.replace(r#""n":100"#, r#""n" : 1.00E+2"#)),
            ("escapes", signed.replace("Knows people.", r"Knows\u0020people.")),
            ("defaults", signed.replace(r#""tags":"#, r#""examples":[],"inputModes":[],"tags":"#)),
            ("good", signed),
        ]
    }

    /// Cards that are not, and a part of the reason.
    fn not_signed(&self) -> Vec<NotSigned> {
        let Self { ours, old, card, now, jku } = self;
        let signed = with(card, &[self.good()]);
        let before_version =
            |more: &str| signed.replace(r#""version""#, &format!(r#"{more},"version""#));
        let theirs = Signer::new().jwk("theirs");
        let theirs = json!({"alg": "ES256", "kid": "theirs", "jku": jku, "jwk": theirs});
        let public = ours.0.public_key_pem();
        let shared = jws(&self.header("alg", "HS256"), card, |message| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes());
            hmac::sign(&key, message).as_ref().to_vec()
        });
        let none = jws(&self.header("alg", "none"), card, |_| Vec::new());
        let far = self::card(jku);
        let wrong = "not over this card";
        vec![
            NotSigned { name: "bare", card: card.to_string(), why: "it has no signature" },
            NotSigned { name: "text_altered", card: signed.replace("Knows", "knows"), why: wrong },
            NotSigned { name: "url_altered", card: signed.replace("/rpc", "/rpd"), why: wrong },
            NotSigned {
                name: "default_altered",
                card: signed.replace("false", "true"),
                why: wrong,
            },
            NotSigned { name: "more", card: before_version(r#""iconUrl":"/i""#), why: wrong },
            NotSigned {
                name: "beside",
                card: before_version(r#""url":"/i""#),
                why: "does not cover",
            },
            NotSigned {
                name: "twice",
                card: before_version(r#""name":"HS""#),
                why: "stands twice",
            },
            NotSigned { name: "damaged", card: with(card, &[self.damaged()]), why: wrong },
            NotSigned { name: "none", card: with(card, &[none]), why: r#"\"none\""# },
            NotSigned { name: "hmac", card: with(card, &[shared]), why: r#"\"HS256\""# },
            NotSigned {
                name: "unknown",
                card: with(card, &[self.unknown()]),
                why: r#"\"unknown\""#,
            },
            NotSigned { name: "swapped", card: self.by("kid", "old"), why: wrong },
            NotSigned { name: "kind", card: self.by("alg", "RS256"), why: "RS256" },
            NotSigned { name: "crit", card: self.by("crit", json!(["exp"])), why: "`crit`" },
            NotSigned {
                name: "theirs",
                card: with(card, &[old.sign(&theirs, card)]),
                why: r#"\"theirs\""#,
            },
            NotSigned {
                name: "far",
                card: with(&far, &[ours.sign(now, &far)]),
                why: "not on the card's own origin",
            },
        ]
    }
}

/// A34: what a signature is worth.
#[tokio::test]
async fn only_cards_that_a_configured_key_has_signed_are_taken() {
    let (mantyx, agent, elsewhere) =
        (Mantyx::start().await, Mantyx::start().await, Mantyx::start().await);
    let dir = TempDir::new().expect("the temporary directory is writable");
    let desk = Desk::new(&elsewhere);
    let keys = json!({"keys": [desk.ours.jwk("now"), desk.old.jwk("old")]}).to_string();
    let keys = write(&dir, "jwks.json", &keys);
    let (signed, not_signed) = (desk.signed(), desk.not_signed());
    let mut entries = String::new();
    let mut serve = |name: &str, card: &str| {
        agent.canned("GET", &format!("/{name}"), &OK, card);
        let url = format!("{}/{name}", agent.url());
        entries
            .push_str(&format!("  {name}: {{card_url: '{url}', signature: {{keys: [{keys}]}}}}\n"));
    };
    signed.iter().for_each(|(name, card)| serve(name, card));
    not_signed.iter().for_each(|bad| serve(bad.name, &bad.card));
    let bridge = Bridge::start(&format!("{}a2a:\n{entries}", mantyx.upstream())).await;
    for (name, _) in &signed {
        let status = bridge.wait_backend(name, "ready").await;
        let key = if *name == "by_the_old" { "old" } else { "now" };
        let expected = json!({"valid": true, "algorithm": "ES256", "key": key, "error": null});
        assert_eq!(status["signature"], expected, "{name}");
    }
    for NotSigned { name, why, .. } in &not_signed {
        let status = bridge.wait_backend(name, "down").await;
        let error = status["lastError"].to_string();
        assert!(error.contains(why), "{name}: {error}, and not {why}");
        assert_eq!(status["tools"], 0, "{name}");
    }
    assert!(elsewhere.recorded().is_empty(), "{:?}", elsewhere.recorded());
    mantyx.script(Script::new().done());
    bridge.post_run("{}").await;
    let sent = mantyx.requests("POST", "/agent-runs").pop().expect("a run").text();
    assert!(sent.contains("Knows people.") && !sent.contains("knows people."), "{sent}");
}

/// The same card with its members in the opposite order.
fn reversed(card: &str) -> String {
    let card: Value = serde_json::from_str(card).expect("a card");
    let members = card.as_object().expect("a card is an object").iter().rev();
    let members: Vec<String> =
        members.map(|(key, value)| format!("{}: {value}", json!(key))).collect();
    format!("{{\n{}\n}}", members.join(",\n"))
}

/// One agent whose card the test changes.
struct Scene {
    mantyx: Mantyx,
    agent: Mantyx,
    bridge: Bridge,
}

const UNSIGNED: &str = "Anybody may have said this.";

impl Scene {
    async fn start(card: &str, signature: &str) -> Self {
        let (mantyx, agent) = (Mantyx::start().await, Mantyx::start().await);
        agent.canned("GET", "/card", &OK, card);
        let bridge = Bridge::start(&config(&mantyx, &agent, signature)).await;
        Self { mantyx, agent, bridge }
    }

    fn set(&mut self, signature: &str) {
        self.bridge.set_config(&config(&self.mantyx, &self.agent, signature));
    }

    async fn serves(&self, head: &[&str], card: &str) {
        self.agent.canned("GET", "/card", head, card);
        self.bridge.api("POST", "/v1/backends/hr/refresh", Some("{}")).await.expect(200);
    }

    async fn kept(&self, text: &str) {
        let file = self.bridge.state("catalogs").join("hr.json");
        wait::soon("the card should be kept", async || {
            fs::read_to_string(&file).ok().filter(|kept| kept.contains(text))
        })
        .await;
    }

    /// What the next run is told of the agent.
    async fn offered(&self) -> String {
        self.mantyx.script(Script::new().done());
        self.bridge.post_run("{}").await;
        self.mantyx.requests("POST", "/agent-runs").pop().expect("a run").text()
    }
}

fn config(mantyx: &Mantyx, agent: &Mantyx, signature: &str) -> String {
    let url = format!("{}/card", agent.url());
    format!("{}a2a:\n  hr: {{card_url: '{url}'{signature}}}\n", mantyx.upstream())
}

fn unsigned() -> String {
    let mut card = card("/rpc");
    card["description"] = UNSIGNED.into();
    card.to_string()
}

fn required(file: &str) -> String {
    format!(", signature: {{keys: {file}}}")
}

/// What lies on disk from before there were keys, or under another key, is no agent's word.
#[tokio::test]
async fn a_card_that_was_kept_is_as_good_as_its_keys() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let (ours, next) = (Signer::new(), Signer::new());
    let [key, next] = [("key", &ours), ("next", &next)]
        .map(|(name, signer)| write(&dir, name, &signer.0.public_key_pem()));
    let card = card("/rpc");
    let signed = with(&card, &[ours.sign(&json!({"alg": "ES256"}), &card)]);
    let gone = ["HTTP/1.1 503 Service Unavailable", "Content-Type: text/plain"];

    let mut scene = Scene::start(&unsigned(), "").await;
    scene.bridge.wait_backend("hr", "ready").await;
    scene.kept(UNSIGNED).await;
    scene.bridge.stop().await;

    scene.agent.canned("GET", "/card", &gone, "");
    scene.set(&required(&key));
    scene.bridge.restart().await;
    assert_eq!(scene.bridge.wait_backend("hr", "down").await["tools"], 0);
    assert!(!scene.offered().await.contains(UNSIGNED));

    scene.serves(&OK, &signed).await;
    scene.bridge.wait_backend("hr", "ready").await;
    scene.kept("Knows people.").await;
    scene.bridge.stop().await;

    scene.agent.canned("GET", "/card", &gone, "");
    scene.bridge.restart().await;
    assert_eq!(scene.bridge.wait_backend("hr", "down").await["stale"], true);
    assert!(scene.offered().await.contains("Knows people."), "it was signed, and still is");
    scene.bridge.stop().await;

    scene.set(&required(&next));
    scene.bridge.restart().await;
    assert_eq!(scene.bridge.wait_backend("hr", "down").await["tools"], 0);
    assert!(!scene.offered().await.contains("Knows people."), "its key is no more");
}

#[tokio::test]
async fn a_signature_that_is_not_required_is_told_and_can_be_required_later() {
    let dir = TempDir::new().expect("the temporary directory is writable");
    let ours = Signer::new();
    let key = write(&dir, "key.jwk", &ours.jwk("k1").to_string());
    let lenient = format!(", signature: {{keys: {key}, required: false}}");
    let mut scene = Scene::start(&unsigned(), &lenient).await;
    let status = scene.bridge.wait_backend("hr", "ready").await;
    let expected =
        json!({"valid": false, "algorithm": null, "key": null, "error": "it has no signature"});
    assert_eq!(status["signature"], expected);
    let problems = scene.bridge.status().await["problems"].to_string();
    assert!(problems.contains(r#""subject":"hr""#), "{problems}");
    let log = scene.bridge.log();
    let told = log.lines().find(|line| line.contains("no signature")).expect("a warning");
    assert!(told.contains("WARN"), "{told}");
    assert!(scene.offered().await.contains(UNSIGNED));

    let card = card("/rpc");
    let header = json!({"alg": "ES256", "kid": "k1"});
    scene.serves(&OK, &with(&card, &[ours.sign(&header, &card)])).await;
    let status = scene.bridge.backend("hr").await;
    let expected = json!({"valid": true, "algorithm": "ES256", "key": "k1", "error": null});
    assert_eq!(status["signature"], expected);

    scene.serves(&OK, &unsigned()).await;
    scene.set(&required(&key));
    scene.bridge.process().signal(Signal::HUP);
    let status = scene.bridge.wait_backend("hr", "down").await;
    let error = status["lastError"].as_str().expect("an error");
    assert!(error.contains("no signature; `signature` "), "{error}");
    assert!(!scene.offered().await.contains(UNSIGNED), "the earlier connection's card is gone");
}
