//! Tests requests that the server does not read: how much of them counts as sent, and that nothing is left of them.

use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use everlink::{Epoch, Input, Output};
use everlink_tokio::http::Connector;
use rustls::{ServerConnection, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::client_transport::{
    Driven, STREAM, end, listen, next_input, read_until, start_exchange, start_exchange_with,
};
use crate::support::run_isolated;
use crate::tls::{self, TlsPeer, accept_any_certificate};

#[test]
fn large_request_counts_as_sent_only_as_far_as_the_server_reads_it_and_arrives_whole() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let body = large_body();
        let mut transport = start_exchange(&format!("http://{address}/"), &body);
        let (mut socket, _) = listener.accept().await.expect("a client");
        let mut sent = sent_while_unread(&mut transport).await;
        assert!(sent < body.len(), "{sent} of {}", body.len());

        let head = read_until(&mut socket, b"\r\n\r\n").await;
        let length = format!("\r\ncontent-length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
        let mut received = vec![0; body.len()];
        let read = socket.read_exact(&mut received).await;
        read.expect("the whole body");
        assert!(received == body, "the body has changed");
        while sent < body.len() {
            sent += sent_len(&next_input(&mut transport).await);
        }
        assert_eq!(sent, body.len());

        let response = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        socket.write_all(response).await.expect("the client reads");
        assert_eq!(end(&mut transport).await, []);
    });
}

#[test]
fn aborted_request_that_the_server_does_not_read_leaves_no_task() {
    abort_unread_request(b"http/1.1", |_| {});
}

#[cfg(feature = "http2")]
#[test]
fn aborted_request_over_http2_that_the_server_does_not_read_leaves_no_task() {
    abort_unread_request(b"h2", crate::http2::allow_large_requests);
}

/// Aborts a large request to a server that speaks this protocol and reads nothing after `begin`. Checks that its tasks end while the server holds the
/// connection.
fn abort_unread_request(protocol: &'static [u8], begin: fn(&mut TlsPeer)) {
    run_isolated(async || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("an address");
        let (release, released) = mpsc::channel::<()>();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            let mut config = tls::server_config();
            config.alpn_protocols = vec![protocol.to_vec()];
            let mut tls = ServerConnection::new(Arc::new(config)).expect("a connection");
            while tls.is_handshaking() {
                tls.complete_io(&mut socket).expect("a handshake");
            }
            let mut peer = StreamOwned::new(tls, socket);
            begin(&mut peer);
            // Until the test drops the sender.
            let _ = released.recv();
        });
        let connector = Connector::new().with_tls(accept_any_certificate());
        let url = format!("https://{address}/");
        let mut transport = start_exchange_with(connector, &url, &large_body());
        sent_while_unread(&mut transport).await;

        let (epoch, stream) = (Epoch::FIRST, STREAM);
        transport.perform(Output::Abort { epoch, stream }, b"");
        // The task that polls the transport is left.
        wait_for_tasks(1).await;
        drop(transport);
        wait_for_tasks(0).await;
        drop(release);
        server.join().expect("no panic");
    });
}

async fn wait_for_tasks(left: usize) {
    while Handle::current().metrics().num_alive_tasks() > left {
        sleep(Duration::from_millis(2)).await;
    }
}

/// Returns a body that is larger than all buffers between the two ends. A missing or repeated piece changes it.
fn large_body() -> Vec<u8> {
    let pattern: Vec<u8> = (0..=250).cycle().take(1_000_003).collect();
    pattern.repeat(64)
}

/// Waits until bytes of the request are sent and no more follow. Returns their number.
async fn sent_while_unread(transport: &mut Driven) -> usize {
    let mut sent = 0;
    while sent == 0 {
        sent = sent_len(&next_input(transport).await);
    }
    // If the pause is too short, fewer bytes are counted, which fails no test.
    while let Ok(input) = timeout(Duration::from_millis(200), next_input(transport)).await {
        sent += sent_len(&input);
    }
    sent
}

fn sent_len(input: &Input<'_>) -> usize {
    match input {
        Input::Opened => 0,
        Input::Sent { len, .. } => *len,
        other => panic!("{other:?}"),
    }
}
