//! Tests a source of credentials that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everlink::Dialect;
use everlink::http::{ResponseHead, Verb};
use everlink_handle::{Credentials, CredentialsFuture, RequestCredentials};
use everlink_tokio::http::Connector;
use serde_json::json;

use crate::support::{TestServer, config, echo, run_isolated};

/// Credentials without any field, which panic at a response if the flag is set.
struct PanicsAtResponse(Arc<AtomicBool>);

impl Credentials for PanicsAtResponse {
    fn for_request(&self, _: Verb, _: &str) -> CredentialsFuture {
        Box::pin(async { RequestCredentials::default() })
    }

    fn on_response(&self, _: u64, _: &ResponseHead<'_>) {
        assert!(!self.0.load(Ordering::SeqCst), "intentional panic");
    }
}

#[test]
fn panic_of_the_credentials_at_a_response_fails_one_call_and_the_link_goes_on() {
    run_isolated(async || {
        let server = TestServer::start().await;
        let panics = Arc::new(AtomicBool::new(false));
        let credentials = PanicsAtResponse(Arc::clone(&panics));
        let connector = Connector::new().with_authorization(credentials);
        let link = connector.connect(config(server.address, Dialect::Modern));
        let link = link.expect("a runtime");
        assert_eq!(echo(&link, "before").await, "before");

        panics.store(true, Ordering::SeqCst);
        let call = link.call_tool("echo", json!({"text": "lost"}));
        let error = call.await.expect_err("a panic").to_string();
        assert!(error.contains("on_response` panicked"), "{error}");

        panics.store(false, Ordering::SeqCst);
        assert_eq!(echo(&link, "after").await, "after");
        link.shutdown().await.expect("it ends");
        server.stop().await;
    });
}
