//! Tests TLS with a root certificate of their own. Its keys are public, and nothing but these tests trusts it.

use std::io::Write;
use std::sync::{Arc, mpsc};

use everlink::{FaultKind, Policy};
use everlink_http::Connector;
use everlink_http::tls::{Certificate, RootCerts, TlsConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::quiet::{PATIENCE, Quiet};
use crate::site::{Request, Site, Then, speak};
use crate::words::{self, config, connector, on_calls, say, stay_at_work, under_way};

/// Creates a server behind TLS.
fn server(
    call: impl Fn(&Request, &mut dyn Write) -> std::io::Result<Then> + Send + Sync + 'static,
) -> Site {
    let chain = CertificateDer::from_pem_slice(include_bytes!("keys/leaf.pem"));
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("keys/key.pem"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let secure = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain.expect("a certificate")], key.expect("a key"))
        .expect("a pair");
    let (secure, script) = (Arc::new(secure), on_calls(call));
    Site::new(move |socket| {
        let channel = ServerConnection::new(Arc::clone(&secure)).expect("a channel");
        let _ = speak(StreamOwned::new(channel, socket), &script);
    })
}

fn url(site: &Site) -> String {
    format!("https://localhost:{}/mcp", site.address().port())
}

fn trusted() -> TlsConfig {
    let root = Certificate::from_pem(include_bytes!("keys/root.pem")).expect("a root");
    let roots = RootCerts::new_with_certs(&[root]);
    TlsConfig::builder().root_certs(roots).build()
}

#[test]
fn a_server_that_is_trusted_is_spoken_to() {
    let _quiet = Quiet::please();
    let site = server(words::reply);
    let link = connector(&url(&site)).with_tls(trusted()).connect();
    let link = link.expect("a thread");
    let large = "x".repeat(1 << 20);
    assert!(say(&link, &large) == large);
    assert_eq!(say(&link, "again"), "again");
}

#[test]
fn a_server_that_is_not_trusted_is_not() {
    let _quiet = Quiet::please();
    let site = server(words::reply);
    let mut config = config(&url(&site));
    config.policy = Policy::one_shot();
    let link = Connector::new(config).without_proxy().connect();
    let link = link.expect("a thread");
    let not_ready = link.ready().wait().expect("an answer");
    let ended = not_ready.expect_err("no trust").last_end.expect("a life");
    let faults: Vec<_> = ended.faults.iter().map(|fault| fault.kind()).collect();
    assert_eq!(faults, [FaultKind::Tls]);
}

#[test]
fn a_call_that_is_given_up_closes_the_connection_under_its_channel() {
    let _quiet = Quiet::please();
    let (leave, gone) = mpsc::channel();
    let site = server(stay_at_work(leave));
    let link = connector(&url(&site)).with_tls(trusted()).connect();
    let link = link.expect("a thread");
    let (canceller, waiting) = under_way(&link);
    canceller.cancel("it takes too long");
    assert!(gone.recv_timeout(PATIENCE).expect("an end"));
    assert!(waiting.join().expect("no panic").is_err());
}
