//! Tests the private keys with which a client proves its identity: which are read, and what they sign.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use everlink_auth::PrivateKey;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;

const RSA_PKCS1: &[u8] = include_bytes!("keys/rsa-pkcs1.pem");
const RSA_PKCS8: &[u8] = include_bytes!("keys/rsa-pkcs8.pem");

/// A private key in PEM, the name of its algorithm, and what verifies its signatures.
struct Example {
    pem: Vec<u8>,
    algorithm: &'static str,
    verification: &'static dyn VerificationAlgorithm,
    public: Vec<u8>,
}

fn pem(document: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(document);
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n").into_bytes()
}

fn ecdsa(
    signing: &'static EcdsaSigningAlgorithm,
    algorithm: &'static str,
    verification: &'static dyn VerificationAlgorithm,
) -> Example {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(signing, &random).expect("a key");
    let pair = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).expect("a key");
    Example {
        pem: pem(document.as_ref()),
        algorithm,
        verification,
        public: pair.public_key().as_ref().to_vec(),
    }
}

fn ed25519() -> Example {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
    Example {
        pem: pem(document.as_ref()),
        algorithm: "EdDSA",
        verification: &ED25519,
        public: pair.public_key().as_ref().to_vec(),
    }
}

/// The same RSA key in another PEM format. The public key always comes from `RSA_PKCS1`.
fn rsa(pem: &[u8]) -> Example {
    let text = std::str::from_utf8(RSA_PKCS1).expect("a text");
    let lines = text.lines().filter(|line| !line.starts_with("--"));
    let document = STANDARD.decode(lines.collect::<String>()).expect("Base64");
    let pair = RsaKeyPair::from_der(&document).expect("a key");
    Example {
        pem: pem.to_vec(),
        algorithm: "RS256",
        verification: &RSA_PKCS1_2048_8192_SHA256,
        public: pair.public_key().as_ref().to_vec(),
    }
}

fn examples() -> [Example; 5] {
    [
        ecdsa(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            "ES256",
            &ECDSA_P256_SHA256_FIXED,
        ),
        ecdsa(
            &ECDSA_P384_SHA384_FIXED_SIGNING,
            "ES384",
            &ECDSA_P384_SHA384_FIXED,
        ),
        ed25519(),
        rsa(RSA_PKCS1),
        rsa(RSA_PKCS8),
    ]
}

fn part(token: &str, at: usize) -> Value {
    let part = token.split('.').nth(at).expect("a part");
    let bytes = URL_SAFE_NO_PAD.decode(part).expect("Base64");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// RFC 7523, section 3.
#[test]
fn assertion_is_signed_by_each_kind_of_key_and_names_the_client_and_the_audience() {
    for example in examples() {
        let algorithm = example.algorithm;
        let key = PrivateKey::from_pem(&example.pem).expect(algorithm);
        assert!(format!("{key:?}").contains(algorithm));
        let assertion = key.client_assertion("me", "https://as.example", &[]);
        let assertion = assertion.expect(algorithm);
        let token = assertion.expose();
        assert_eq!(part(token, 0)["alg"], algorithm);
        let claims = part(token, 1);
        assert_eq!(
            (&claims["iss"], &claims["sub"]),
            (&"me".into(), &"me".into())
        );
        assert_eq!(claims["aud"], "https://as.example");
        let (signed, signature) = token.rsplit_once('.').expect("a signature");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("Base64");
        UnparsedPublicKey::new(example.verification, &example.public)
            .verify(signed.as_bytes(), &signature)
            .expect(algorithm);
    }
}

#[test]
fn assertion_is_valid_for_five_minutes_from_now_and_differs_from_all_others() {
    let key = PrivateKey::from_pem(&ed25519().pem).expect("a key");
    let unix = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.expect("it is after 1970").as_secs()
    };
    let before = unix();
    let [one, other] = [(); 2].map(|()| {
        let assertion = key.client_assertion("me", "https://as.example", &[]);
        part(assertion.expect("a token").expose(), 1)
    });
    let made = one["iat"].as_u64().expect("a time");
    assert!((before..=unix()).contains(&made), "{made}");
    assert_eq!(one["exp"].as_u64(), Some(made + 300));
    assert_ne!(one["jti"], other["jti"]);
}

#[test]
fn key_signs_only_for_an_authorization_server_that_takes_its_algorithm() {
    let key = PrivateKey::from_pem(&ed25519().pem).expect("a key");
    let sign = |algorithms: &[&str]| {
        let algorithms: Vec<Box<str>> = algorithms.iter().map(|&name| name.into()).collect();
        key.client_assertion("me", "https://as.example", &algorithms)
    };
    sign(&["RS256", "EdDSA"]).expect("it is one of them");
    let why = sign(&["RS256", "ES256"]).expect_err("it is none of them");
    assert!(
        why.contains("EdDSA") && why.contains("RS256, ES256"),
        "{why}"
    );
}

#[test]
fn key_that_cannot_sign_here_is_refused_with_the_algorithms_that_can() {
    let why = PrivateKey::from_pem(&pem(b"\x30\x03\x02\x01\x00")).expect_err("no key");
    assert!(why.contains("ES256, ES384, EdDSA and RS256"), "{why}");
}
