//! Tests how servers end, and what their clients see of it.

use std::time::Duration;

use everlink::Dialect;
use everlink::client::State;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::{ERAS, PATIENCE, Shop, alone, echo, link, offer, runtime};

#[test]
fn a_server_that_is_killed_and_comes_back() {
    alone(async || {
        for dialect in ERAS {
            let first = runtime();
            let mut shop = first.spawn(Shop::open()).await.expect("it opens");
            let link = link(shop.address, dialect);
            let calls: Vec<_> = (0..20).map(|_| link.call_tool("hold", json!({}))).collect();
            for _ in &calls {
                assert_eq!(shop.tools.tell().await, "hold");
            }
            // All its tasks and sockets are dropped with it, in any state.
            let killed = tokio::task::spawn_blocking(|| drop(first));
            killed.await.expect("it ends");
            let shop = Shop::open_at(shop.address).await;
            for call in calls {
                let error = call.await.expect_err("its server is gone");
                assert!(error.may_have_run(), "{error}");
            }
            assert_eq!(echo(&link, "welcome back").await, "welcome back");
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn what_is_in_flight_is_answered_before_a_server_ends() {
    alone(async || {
        for dialect in ERAS {
            let mut shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let call = link.call_tool("hold", json!({}));
            assert_eq!(shop.tools.tell().await, "hold");
            let ended = shop.service.shutdown();
            // A new request is refused only after the shutdown has begun, so this waits for that.
            let refused = link.call_tool("echo", json!({"text": "late"})).await;
            refused.expect_err("the server takes nothing new");
            shop.tools.release.notify_one();
            assert_eq!(call.await.expect("an answer").text(), "held");
            ended.await.expect("it ends");
            let gone = TcpStream::connect(shop.address).await;
            gone.expect_err("nobody listens");
            link.shutdown().await.expect("it ends");
        }
    });
}

#[test]
fn the_last_words_are_heard_to_their_end() {
    alone(async || {
        let mut config = offer();
        (config.drain, config.flush) = (PATIENCE, PATIENCE);
        let mut shop = Shop::open_with(([127, 0, 0, 1], 0).into(), config).await;
        // More than fits into the socket buffers.
        let message = call(r#"{"times":4000000}"#, MODERN_META);
        let mut client = post(&shop, MODERN_FIELDS, &message).await;
        assert_eq!(shop.tools.tell().await, "hold");
        let ended = shop.service.shutdown();
        shop.tools.release.notify_one();
        assert_eq!(shop.tools.tell().await, "held");
        let mut response = String::new();
        let read = client.read_to_string(&mut response).await;
        read.expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        assert_eq!(length, Some(&*body.len().to_string()));
        assert!(body.len() > 16_000_000);
        ended.await.expect("it ends");
    });
}

#[test]
fn what_takes_too_long_is_cut_short() {
    alone(async || {
        for dialect in ERAS {
            let mut config = offer();
            config.drain = Duration::from_millis(20);
            let mut shop = Shop::open_with(([127, 0, 0, 1], 0).into(), config).await;
            let link = link(shop.address, dialect);
            let call = link.call_tool("hold", json!({}));
            assert_eq!(shop.tools.tell().await, "hold");
            shop.service.shutdown().await.expect("it ends");
            assert_eq!(shop.tools.tell().await, "unwanted");
            call.await.expect_err("it was cut short");
            link.shutdown().await.expect("it ends");
            assert_eq!(link.state(), State::Closed);
        }
    });
}

#[test]
fn a_client_that_goes_takes_back_what_it_asked_in_the_modern_era_alone() {
    alone(async || {
        let mut shop = Shop::open().await;
        let session = introduce(&shop).await;
        let legacy = post(&shop, &session, &call("{}", "")).await;
        assert_eq!(shop.tools.tell().await, "hold");
        let modern = post(&shop, MODERN_FIELDS, &call("{}", MODERN_META)).await;
        assert_eq!(shop.tools.tell().await, "hold");
        drop(legacy);
        drop(modern);
        assert_eq!(shop.tools.tell().await, "unwanted");
        // The legacy request runs on.
        shop.tools.release.notify_one();
        assert_eq!(shop.tools.tell().await, "held");
        shop.close().await;
    });
}

#[test]
fn the_end_of_a_server_does_not_wait_for_a_client_that_says_nothing() {
    alone(async || {
        let shop = Shop::open().await;
        let mut silent = TcpStream::connect(shop.address).await.expect("a server");
        let mut half = TcpStream::connect(shop.address).await.expect("a server");
        half.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
            .await
            .expect("it listens");
        let link = link(shop.address, Dialect::Modern);
        assert_eq!(echo(&link, "beside them").await, "beside them");
        shop.close().await;
        let mut rest = Vec::new();
        let _ = silent.read_to_end(&mut rest).await;
        let _ = half.read_to_end(&mut rest).await;
        link.shutdown().await.expect("it ends");
    });
}

const MODERN_FIELDS: &str =
    "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: hold\r\n";

const MODERN_META: &str = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn call(arguments: &str, meta: &str) -> String {
    let params = format!(r#"{{"name":"hold","arguments":{arguments}{meta}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
}

/// Opens a legacy session. Returns the header fields of its requests.
async fn introduce(shop: &Shop) -> String {
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1.0"}}});
    let mut socket = post(shop, "Connection: close\r\n", &message.to_string()).await;
    let mut response = String::new();
    let read = socket.read_to_string(&mut response).await;
    read.expect("a response");
    let mut lines = response.lines();
    let session = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.expect("a session");
    let fields = format!("Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-11-25\r\n");
    let message = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut socket = post(shop, &format!("{fields}Connection: close\r\n"), message).await;
    let read = socket.read_to_string(&mut response).await;
    read.expect("a response");
    fields
}

/// Sends a request. Returns the connection on which its response arrives.
async fn post(shop: &Shop, fields: &str, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(shop.address).await.expect("a server");
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{fields}\r\n{body}",
        shop.address,
        body.len()
    );
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("the server listens");
    socket
}
