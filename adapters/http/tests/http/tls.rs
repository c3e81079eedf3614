//! Tests TLS with a root certificate of their own. Its keys are public, and nothing but these tests trusts it.

use std::io::Write;
use std::sync::{Arc, mpsc};

use everlink::{FaultKind, Policy};
use everlink_http::Connector;
use everlink_http::tls::{Certificate, RootCerts, TlsConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::listener::{Listener, Next, Request, serve_http};
use crate::scripted_server::{
    self, call_in_flight, config, connector, echo, report_progress_and_wait, script_for_calls,
};
use crate::serial::{Serial, TIMEOUT};

/// Creates a server behind TLS.
fn server(
    call: impl Fn(&Request, &mut dyn Write) -> std::io::Result<Next> + Send + Sync + 'static,
) -> Listener {
    let chain = CertificateDer::from_pem_slice(include_bytes!("keys/leaf.pem"));
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("keys/key.pem"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls_config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain.expect("a certificate")], key.expect("a key"))
        .expect("a pair");
    let (tls_config, script) = (Arc::new(tls_config), script_for_calls(call));
    Listener::new(move |socket| {
        let tls = ServerConnection::new(Arc::clone(&tls_config)).expect("a channel");
        let _ = serve_http(StreamOwned::new(tls, socket), &script);
    })
}

fn url(listener: &Listener) -> String {
    format!("https://localhost:{}/mcp", listener.address().port())
}

fn trusted() -> TlsConfig {
    let root = Certificate::from_pem(include_bytes!("keys/root.pem")).expect("a root");
    let roots = RootCerts::new_with_certs(&[root]);
    TlsConfig::builder().root_certs(roots).build()
}

#[test]
fn calls_succeed_with_a_trusted_certificate() {
    let _serial = Serial::begin();
    let listener = server(scripted_server::reply);
    let link = connector()
        .with_tls(trusted())
        .connect(config(&url(&listener)));
    let link = link.expect("a thread");
    let large = "x".repeat(1 << 20);
    assert!(echo(&link, &large) == large);
    assert_eq!(echo(&link, "again"), "again");
}

#[test]
fn untrusted_certificate_fails_with_a_tls_fault() {
    let _serial = Serial::begin();
    let listener = server(scripted_server::reply);
    let mut config = config(&url(&listener));
    config.policy = Policy::one_shot();
    let link = Connector::new().without_proxy().connect(config);
    let link = link.expect("a thread");
    let not_ready = link.ready().wait().expect_err("no trust");
    let ended = not_ready.last_end.expect("an ended epoch");
    let faults: Vec<_> = ended.faults.iter().map(|fault| fault.kind()).collect();
    assert_eq!(faults, [FaultKind::Tls]);
}

#[test]
fn cancelled_call_closes_its_tls_connection() {
    let _serial = Serial::begin();
    let (closed_sender, closed) = mpsc::channel();
    let listener = server(report_progress_and_wait(closed_sender));
    let link = connector()
        .with_tls(trusted())
        .connect(config(&url(&listener)));
    let link = link.expect("a thread");
    let (canceller, waiting) = call_in_flight(&link);
    canceller.cancel("it takes too long");
    assert!(closed.recv_timeout(TIMEOUT).expect("an end"));
    assert!(waiting.join().expect("no panic").is_err());
}
