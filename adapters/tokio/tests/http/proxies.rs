//! Proxies that are reached over TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use everlink::auth::Request;
use everlink::http::Url;
use everlink_tokio::http::Connector;
use rustls::{ServerConnection, StreamOwned};

use crate::support::run_isolated;
use crate::tls;

/// Accepts a client and reads the head of its request. Returns the head and the connection.
fn serve_head(
    listener: &TcpListener,
) -> (String, StreamOwned<ServerConnection, impl Read + Write>) {
    let (socket, _) = listener.accept().expect("a client");
    let session = ServerConnection::new(Arc::new(tls::server_config())).expect("a connection");
    let mut peer = StreamOwned::new(session, socket);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        peer.read_exact(&mut byte).expect("a request over TLS");
        head.extend(byte);
    }
    (String::from_utf8(head).expect("text"), peer)
}

#[test]
fn proxy_with_https_is_spoken_to_over_tls() {
    run_isolated(async || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = format!(
            "https://Ali:Baba@{}",
            listener.local_addr().expect("an address")
        );
        let serving = thread::spawn(move || {
            let (forwarded, mut peer) = serve_head(&listener);
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
            peer.write_all(response).expect("the client listens");
            let (tunnelled, mut peer) = serve_head(&listener);
            let response = b"HTTP/1.1 200 OK\r\n\r\n";
            peer.write_all(response).expect("the client listens");
            let mut first = [0];
            peer.read_exact(&mut first).expect("a byte to the server");
            (forwarded, tunnelled, first[0])
        });
        let connector = Connector::new().with_tls(tls::accept_any_certificate());
        let web = connector.with_proxy(&proxy).expect("a proxy").web();
        let get = |url: &str| Request::get(Url::parse(url).expect("a URL"));
        let response = web.send(get("http://shop.invalid/a")).await;
        assert_eq!(response.expect("a response").body, b"hello");
        let ended = web.send(get("https://shop.invalid/a")).await;
        ended.expect_err("the proxy ends the connection");
        let (forwarded, tunnelled, first) = serving.join().expect("no panic");
        let authorization = "proxy-authorization: basic qwxpokjhyme=\r\n";
        for (head, begin) in [
            (forwarded, "get http://shop.invalid/a http/1.1\r\n"),
            (tunnelled, "connect shop.invalid:443 http/1.1\r\n"),
        ] {
            let head = head.to_lowercase();
            assert!(
                head.starts_with(begin) && head.contains(authorization),
                "{head}"
            );
        }
        assert_eq!(first, 22, "the first byte of TLS with the server");
    });
}

#[test]
fn protocols_in_the_tls_config_are_ignored() {
    run_isolated(async || {
        let mut config = tls::accept_any_certificate();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        drop(Connector::new().with_tls(config).web());
    });
}
