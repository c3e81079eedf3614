//! Tests how servers end, and what their clients see of it.

use std::time::Duration;

use everlink::Dialect;
use everlink::client::State;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{ERAS, TIMEOUT, TestServer, echo, link, run_isolated, runtime, server_config};

#[test]
fn calls_in_flight_fail_when_the_server_is_killed_and_the_link_recovers() {
    run_isolated(async || {
        for dialect in ERAS {
            let first_runtime = runtime();
            let mut server = first_runtime
                .spawn(TestServer::start())
                .await
                .expect("it opens");
            let link = link(server.address, dialect);
            let calls: Vec<_> = (0..20)
                .map(|_| link.call_tool("hold", json!({})).start())
                .collect();
            for _ in &calls {
                assert_eq!(server.tools.next_report().await, "hold");
            }
            // All its tasks and sockets are dropped with it, in any state.
            let killed = tokio::task::spawn_blocking(|| drop(first_runtime));
            killed.await.expect("it ends");
            let server = TestServer::start_at(server.address).await;
            for call in calls {
                let error = call.await.expect_err("its server is gone");
                assert!(error.may_have_run(), "{error}");
            }
            assert_eq!(echo(&link, "welcome back").await, "welcome back");
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn shutdown_answers_calls_in_flight_and_refuses_new_ones() {
    run_isolated(async || {
        for dialect in ERAS {
            let mut server = TestServer::start().await;
            let link = link(server.address, dialect);
            let call = link.call_tool("hold", json!({})).start();
            assert_eq!(server.tools.next_report().await, "hold");
            let ended = server.service.shutdown();
            // The service may take a request that arrives at the same moment. It takes none once the shutdown has begun.
            let late = || link.call_tool("echo", json!({"text": "late"}));
            while late().await.is_ok() {}
            server.tools.release.notify_one();
            assert_eq!(call.await.expect("an answer").text(), "held");
            ended.await.expect("it ends");
            let connected = TcpStream::connect(server.address).await;
            connected.expect_err("nobody listens");
            link.shutdown().await.expect("it ends");
        }
    });
}

#[test]
fn shutdown_waits_until_a_large_response_is_read() {
    run_isolated(async || {
        let mut config = server_config();
        (config.drain, config.flush) = (TIMEOUT, TIMEOUT);
        let mut server = TestServer::start_with(([127, 0, 0, 1], 0).into(), config).await;
        // More than fits into the socket buffers.
        let message = call(r#"{"times":4000000}"#, MODERN_META);
        let mut client = post(&server, MODERN_FIELDS, &message).await;
        assert_eq!(server.tools.next_report().await, "hold");
        let ended = server.service.shutdown();
        server.tools.release.notify_one();
        assert_eq!(server.tools.next_report().await, "held");
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
fn shutdown_cancels_requests_after_the_drain_timeout() {
    run_isolated(async || {
        for dialect in ERAS {
            let mut config = server_config();
            config.drain = Duration::from_millis(20);
            let mut server = TestServer::start_with(([127, 0, 0, 1], 0).into(), config).await;
            let link = link(server.address, dialect);
            let call = link.call_tool("hold", json!({})).start();
            assert_eq!(server.tools.next_report().await, "hold");
            server.service.shutdown().await.expect("it ends");
            assert_eq!(server.tools.next_report().await, "unwanted");
            call.await.expect_err("it was cut short");
            link.shutdown().await.expect("it ends");
            assert_eq!(link.state(), State::Closed);
        }
    });
}

#[test]
fn client_disconnect_cancels_a_modern_request_but_not_a_legacy_one() {
    run_isolated(async || {
        let mut server = TestServer::start().await;
        let session = open_legacy_session(&server).await;
        let legacy = post(&server, &session, &call("{}", "")).await;
        assert_eq!(server.tools.next_report().await, "hold");
        let modern = post(&server, MODERN_FIELDS, &call("{}", MODERN_META)).await;
        assert_eq!(server.tools.next_report().await, "hold");
        drop(legacy);
        drop(modern);
        assert_eq!(server.tools.next_report().await, "unwanted");
        // The legacy request runs on.
        server.tools.release.notify_one();
        assert_eq!(server.tools.next_report().await, "held");
        server.stop().await;
    });
}

#[test]
fn shutdown_does_not_wait_for_silent_clients() {
    run_isolated(async || {
        let server = TestServer::start().await;
        let mut silent = TcpStream::connect(server.address).await.expect("a server");
        let mut half = TcpStream::connect(server.address).await.expect("a server");
        half.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
            .await
            .expect("it listens");
        let link = link(server.address, Dialect::Modern);
        assert_eq!(echo(&link, "beside them").await, "beside them");
        server.stop().await;
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
async fn open_legacy_session(server: &TestServer) -> String {
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1.0"}}});
    let mut socket = post(server, "Connection: close\r\n", &message.to_string()).await;
    let mut response = String::new();
    let read = socket.read_to_string(&mut response).await;
    read.expect("a response");
    let mut lines = response.lines();
    let session = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.expect("a session");
    let fields = format!("Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-11-25\r\n");
    let message = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut socket = post(server, &format!("{fields}Connection: close\r\n"), message).await;
    let read = socket.read_to_string(&mut response).await;
    read.expect("a response");
    fields
}

/// Sends a request. Returns the connection on which its response arrives.
async fn post(server: &TestServer, fields: &str, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.expect("a server");
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{fields}\r\n{body}",
        server.address,
        body.len()
    );
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("the server listens");
    socket
}
