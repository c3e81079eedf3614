//! A server that speaks HTTP/2, whose input arrives while another task reads the connection.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use everlink::{Config, Dialect};
use everlink_tokio::http::Connector;
use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::support::run_isolated;
use crate::tls::{self, TlsPeer, accept_any_certificate};

#[test]
fn response_body_that_follows_its_head_over_http2_is_read() {
    run_isolated(async || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("an address");
        // The thread ends when its client disconnects.
        thread::spawn(move || serve(&listener));
        let url = format!("https://{address}/mcp");
        let mut config = Config::http("tests", "1.0", &url).expect("a URL");
        config.dialect = Dialect::Modern;
        let connector = Connector::new().with_tls(accept_any_certificate());
        let link = connector.connect(config).expect("a runtime");
        // The body of a response is sent after its head was received. The task that reads the connection then wakes the one that waits for the body.
        let answer = link.call_tool("any", json!({})).await;
        assert_eq!(answer.expect("an answer").text(), "late");
        link.shutdown().await.expect("it ends");
    });
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
/// The flag of SETTINGS and PING frames.
const ACK: u8 = 1;
/// The flag of DATA and HEADERS frames.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Serves one client.
fn serve(listener: &TcpListener) {
    let (socket, _) = listener.accept().expect("a client");
    let mut config = tls::server_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = ServerConnection::new(Arc::new(config)).expect("a connection");
    let mut peer = StreamOwned::new(tls, socket);
    read_preface(&mut peer);
    send_frame(&mut peer, SETTINGS, 0, 0, b"");
    // Until the client disconnects.
    while let Some(frame) = read_frame(&mut peer) {
        match (frame.kind, frame.flags) {
            (SETTINGS, 0) => send_frame(&mut peer, SETTINGS, ACK, 0, b""),
            (DATA, _) if !frame.payload.is_empty() => {
                answer_in_two_parts(&mut peer, frame.stream, &frame.payload);
            }
            _ => {}
        }
    }
}

/// Begins a connection as a server that lets the client send 1 GiB at once.
pub(crate) fn allow_large_requests(peer: &mut TlsPeer) {
    read_preface(peer);
    let window = 1_u32 << 30;
    // The setting 4 is the window of each stream.
    let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
    send_frame(peer, SETTINGS, 0, 0, &setting);
    send_frame(peer, WINDOW_UPDATE, 0, 0, &window.to_be_bytes());
}

fn read_preface(peer: &mut impl Read) {
    let mut preface = [0; 24];
    peer.read_exact(&mut preface).expect("a preface");
}

/// Answers a request: first the head, then the body.
fn answer_in_two_parts(peer: &mut (impl Read + Write), stream: u32, request: &[u8]) {
    let request: Value = serde_json::from_slice(request).expect("a message");
    // Status 200, and the content type as a literal.
    let head = b"\x88\x0f\x10\x10application/json";
    send_frame(peer, HEADERS, END_HEADERS, stream, head);
    // A client that has answered two pings has had time to poll for the body.
    for _ in 0..2 {
        send_frame(peer, PING, 0, 0, b"are you?");
        while read_frame(peer).is_some_and(|frame| (frame.kind, frame.flags) != (PING, ACK)) {}
    }
    let content = json!([{"type": "text", "text": "late"}]);
    let result = match request["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }),
        _ => json!({"resultType": "complete", "content": content}),
    };
    let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    send_frame(peer, DATA, END_STREAM, stream, body.to_string().as_bytes());
}

fn send_frame(peer: &mut impl Write, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("it is short");
    let mut frame = len.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    // The write fails if the client is gone.
    let _ = peer.write_all(&frame).and_then(|()| peer.flush());
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn read_frame(peer: &mut impl Read) -> Option<Frame> {
    let mut head = [0; 9];
    peer.read_exact(&mut head).ok()?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    peer.read_exact(&mut payload).ok()?;
    Some(Frame {
        kind,
        flags,
        stream: u32::from_be_bytes(stream),
        payload,
    })
}
