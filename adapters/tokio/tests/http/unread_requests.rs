//! Tests requests that the server does not read: how much of them counts as sent, and that nothing is left of them.

use std::time::Duration;

use everlink::Input;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::client_transport::{Driven, end, listen, next_input, read_until, start_exchange};
use crate::support::run_isolated;

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

/// Returns a body that is larger than all buffers between the two ends. A missing or repeated piece changes it.
pub(crate) fn large_body() -> Vec<u8> {
    let pattern: Vec<u8> = (0..=250).cycle().take(1_000_003).collect();
    pattern.repeat(64)
}

/// Waits until bytes of the request are sent and no more follow. Returns their number.
pub(crate) async fn sent_while_unread(transport: &mut Driven) -> usize {
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
