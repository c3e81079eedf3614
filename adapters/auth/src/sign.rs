//! The cryptography of a client: random texts, PKCE, DPoP proofs and signed client assertions.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;
use everlink::auth::Secret;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// How long a client assertion is valid, in seconds.
const ASSERTION_LIFE: u64 = 300;

/// The seconds since the beginning of 1970.
pub(crate) fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// A text that nobody can guess: 256 random bits, as 43 characters.
///
/// # Panics
///
/// When the system has no random source.
pub(crate) fn random_text() -> Secret {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has a random source");
    Secret::new(BASE64_URL.encode(bytes))
}

/// The challenge that belongs to a PKCE verifier (S256).
pub(crate) fn pkce_challenge(verifier: &Secret) -> String {
    hash(verifier.expose())
}

/// The SHA-256 of a text, in Base64 for URLs.
fn hash(text: &str) -> String {
    BASE64_URL.encode(digest(&SHA256, text.as_bytes()))
}

/// Makes a private key for DPoP.
pub(crate) fn new_dpop_key() -> Result<Secret, String> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
        .map_err(|_| "the system cannot make a key")?;
    Ok(Secret::new(BASE64_URL.encode(key.as_ref())))
}

/// Signs a DPoP proof (RFC 9449) for a request. `token` is the access token that the request carries.
pub(crate) fn dpop_proof(
    key: &Secret,
    verb: &str,
    url: &str,
    nonce: Option<&str>,
    token: Option<&str>,
    unix: u64,
) -> Result<String, String> {
    let broken = |_| "the DPoP key in the store is damaged";
    let bytes = BASE64_URL
        .decode(key.expose())
        .map_err(|_| "the DPoP key in the store is damaged")?;
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &random)
        .map_err(broken)?;
    // An uncompressed point: a byte 4, and two numbers of 32 bytes.
    let point = pair.public_key().as_ref();
    let (x, y) = (&point[1..33], &point[33..65]);
    let header = json!({
        "typ": "dpop+jwt",
        "alg": "ES256",
        "jwk": {"kty": "EC", "crv": "P-256", "x": BASE64_URL.encode(x), "y": BASE64_URL.encode(y)},
    });
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let mut claims = json!({
        "jti": random_text().expose(),
        "htm": verb,
        "htu": url,
        "iat": unix,
    });
    if let Some(nonce) = nonce {
        claims["nonce"] = json!(nonce);
    }
    if let Some(token) = token {
        claims["ath"] = json!(hash(token));
    }
    Key::Es256(pair).sign(&header, &claims)
}

/// A private key with which a client proves its identity (`private_key_jwt`).
pub struct PrivateKey(Key);

enum Key {
    EdDsa(Ed25519KeyPair),
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    Rs256(Box<RsaKeyPair>),
}

impl PrivateKey {
    /// Reads a key in PEM: PKCS #8 with a key for ECDSA (P-256, P-384), Ed25519 or RSA, or PKCS #1 with one for RSA.
    ///
    /// # Errors
    ///
    /// When the text has no such key.
    pub fn from_pem(pem: &[u8]) -> Result<PrivateKey, String> {
        let der = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|error| format!("this is no private key in PEM: {error}"))?;
        let bytes = der.secret_der();
        let random = SystemRandom::new();
        let (p256, p384) = (
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &ECDSA_P384_SHA384_FIXED_SIGNING,
        );
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(p256, bytes, &random) {
            return Ok(PrivateKey(Key::Es256(key)));
        }
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(p384, bytes, &random) {
            return Ok(PrivateKey(Key::Es384(key)));
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes) {
            return Ok(PrivateKey(Key::EdDsa(key)));
        }
        let rsa = RsaKeyPair::from_pkcs8(bytes).or_else(|_| RsaKeyPair::from_der(bytes));
        match rsa {
            Ok(key) => Ok(PrivateKey(Key::Rs256(Box::new(key)))),
            Err(_) => {
                Err("the key is for an algorithm other than ES256, ES384, EdDSA and RS256".into())
            }
        }
    }

    /// Signs the token that proves a client's identity (RFC 7523).
    ///
    /// # Errors
    ///
    /// When the authorization server does not take this kind of key.
    pub fn client_assertion(
        &self,
        client_id: &str,
        audience: &str,
        algorithms: &[Box<str>],
    ) -> Result<Secret, String> {
        let algorithm = self.0.algorithm();
        if !algorithms.is_empty() && !algorithms.iter().any(|name| **name == *algorithm) {
            let wanted = algorithms.join(", ");
            return Err(format!(
                "the private key is for {algorithm}, and the authorization server takes {wanted}"
            ));
        }
        let header = json!({"typ": "JWT", "alg": algorithm});
        let unix = unix_time();
        let claims = json!({
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "iat": unix,
            "exp": unix + ASSERTION_LIFE,
            "jti": random_text().expose(),
        });
        self.0.sign(&header, &claims).map(Secret::new)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.0.algorithm())
    }
}

impl Key {
    const fn algorithm(&self) -> &'static str {
        match self {
            Key::EdDsa(_) => "EdDSA",
            Key::Es256(_) => "ES256",
            Key::Es384(_) => "ES384",
            Key::Rs256(_) => "RS256",
        }
    }

    /// Signs a JSON Web Token.
    fn sign(&self, header: &Value, claims: &Value) -> Result<String, String> {
        let encode = |value: &Value| BASE64_URL.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let random = SystemRandom::new();
        let failed = |_| "the private key cannot sign";
        let signature = match self {
            Key::EdDsa(key) => key.sign(signed.as_bytes()).as_ref().to_vec(),
            Key::Es256(key) | Key::Es384(key) => {
                let signature = key.sign(&random, signed.as_bytes()).map_err(failed)?;
                signature.as_ref().to_vec()
            }
            Key::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    signed.as_bytes(),
                    &mut signature,
                )
                .map_err(failed)?;
                signature
            }
        };
        Ok(format!("{signed}.{}", BASE64_URL.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn part(token: &str, at: usize) -> Value {
        let part = token.split('.').nth(at).expect("a part");
        serde_json::from_slice(&BASE64_URL.decode(part).expect("Base64")).expect("JSON")
    }

    #[test]
    fn challenge_is_that_of_the_example_in_rfc_7636() {
        let verifier = Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        let challenge = pkce_challenge(&verifier);
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn random_texts_have_43_characters_and_differ() {
        let (one, other) = (random_text(), random_text());
        assert_eq!(one.expose().len(), 43);
        assert_ne!(one, other);
    }

    #[test]
    fn proof_names_the_request_and_is_signed_with_the_key_that_it_shows() {
        let key = new_dpop_key().expect("a key");
        let url = "https://a.example/mcp?secret=1#x";
        let proof = dpop_proof(&key, "POST", url, Some("n"), Some("token"), 7).expect("a proof");
        let (header, claims) = (part(&proof, 0), part(&proof, 1));
        assert_eq!(header["typ"], "dpop+jwt");
        assert_eq!(claims["htm"], "POST");
        assert_eq!(claims["htu"], "https://a.example/mcp");
        assert_eq!(claims["nonce"], "n");
        assert_eq!(claims["iat"], 7);
        assert_eq!(claims["ath"], hash("token"));
        let number = |name: &str| {
            let text = header["jwk"][name].as_str().expect("a number");
            BASE64_URL.decode(text).expect("Base64")
        };
        let point = [vec![4], number("x"), number("y")].concat();
        let (signed, signature) = proof.rsplit_once('.').expect("a signature");
        let signature = BASE64_URL.decode(signature).expect("Base64");
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(signed.as_bytes(), &signature)
            .expect("the signature is right");
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_with_the_reason() {
        let why = PrivateKey::from_pem(b"hello").expect_err("no key");
        assert!(why.contains("PEM"), "{why}");
    }
}
