//! Tests the client's transport alone, against raw peers: the inputs that it reports, their order, and the kinds of faults.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use everlink::http::{RequestHead, Verb};
use everlink::{Config, Epoch, FaultKind, Input, Output, StreamId};
use everlink_tokio::Transport;
use everlink_tokio::http::{BadToken, Connector, SetupError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::support::run_isolated;

pub(crate) const STREAM: StreamId = StreamId::new(7);

#[test]
fn exchange_is_reported_from_opened_to_end() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let mut transport = start_exchange(&format!("http://{address}/mcp?a=b"), b"{}");
        assert!(matches!(next_input(&mut transport).await, Input::Opened));
        let (request, mut socket) = accept(&listener).await;
        assert!(
            request.starts_with("POST /mcp?a=b HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains("\r\ncontent-length: 2\r\n"), "{request}");
        assert!(matches!(
            next_input(&mut transport).await,
            Input::Sent {
                stream: STREAM,
                len: 2
            }
        ));

        send(
            &mut socket,
            "HTTP/1.1 418 Teapot\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await;
        let Input::Response { stream, head } = next_input(&mut transport).await else {
            panic!("a response");
        };
        assert_eq!(
            (stream, head.status, head.fields.get("a")),
            (STREAM, 418, Some("b"))
        );
        send(&mut socket, "3\r\nabc\r\n").await;
        let Input::Bytes { bytes, .. } = next_input(&mut transport).await else {
            panic!("a piece of the body");
        };
        assert_eq!(&*bytes, b"abc");
        send(&mut socket, "0\r\n\r\n").await;
        assert_eq!(end(&mut transport).await, []);
    });
}

#[test]
fn redirect_is_reported_and_not_followed() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let mut transport = start_exchange(&format!("http://{address}/"), b"{}");
        let (_, mut socket) = accept(&listener).await;
        let head = "HTTP/1.1 307 Elsewhere\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n";
        send(&mut socket, head).await;
        let status = loop {
            if let Input::Response { head, .. } = next_input(&mut transport).await {
                break head.status;
            }
        };
        assert_eq!(status, 307);
        assert_eq!(end(&mut transport).await, []);
    });
}

#[test]
fn credentials_and_fields_are_sent_with_a_request() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let connector = Connector::new()
            .with_credentials(async || Some("Bearer abc".to_owned()))
            .with_field("X-Shop", "open")
            .expect("a field");
        let _hands = start_exchange_with(connector, &format!("http://{address}/"), b"{}");
        let (request, _socket) = accept(&listener).await;
        assert!(
            request.contains("\r\nauthorization: Bearer abc\r\n"),
            "{request}"
        );
        assert!(request.contains("\r\nx-shop: open\r\n"), "{request}");
    });
}

#[test]
fn fixed_token_is_sent_with_a_request_and_a_bad_one_is_refused() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let connector = Connector::new().with_bearer("abc").expect("a token");
        let _hands = start_exchange_with(connector, &format!("http://{address}/"), b"{}");
        let (request, _socket) = accept(&listener).await;
        assert!(
            request.contains("\r\nauthorization: Bearer abc\r\n"),
            "{request}"
        );
        let refused = Connector::new().with_bearer("abc\n").map(drop);
        assert_eq!(refused, Err(BadToken));
    });
}

#[test]
fn proxy_forwards_http_tunnels_https_and_is_not_used_for_the_local_host() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let through = |url: &str| {
            let proxy = format!("http://Ali:Baba@{address}");
            start_exchange_with(
                Connector::new().with_proxy(&proxy).expect("a proxy"),
                url,
                b"{}",
            )
        };
        let authorization = "\r\nproxy-authorization: Basic QWxpOkJhYmE=\r\n";

        let mut transport = through("http://shop.invalid/mcp");
        let (request, mut socket) = accept(&listener).await;
        assert!(
            request.starts_with("POST http://shop.invalid/mcp HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains(authorization), "{request}");
        send(&mut socket, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(end(&mut transport).await, []);

        let mut transport = through("https://shop.invalid/mcp");
        let (mut socket, _) = listener.accept().await.expect("a client");
        let request = read_until(&mut socket, b"\r\n\r\n").await;
        assert!(
            request.starts_with("CONNECT shop.invalid:443 HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(
            request
                .to_lowercase()
                .contains(&authorization.to_lowercase()),
            "{request}"
        );
        send(&mut socket, "HTTP/1.1 200 OK\r\n\r\n").await;
        // The first byte of TLS, to the server behind the proxy.
        assert_eq!(socket.read_u8().await.expect("a byte"), 22);
        drop(socket);
        assert_eq!(end(&mut transport).await, [FaultKind::Reset]);

        let (other, elsewhere) = listen().await;
        let _hands = through(&format!("http://{elsewhere}/"));
        accept(&other).await;
    });
}

#[test]
fn socks5_proxy_is_used_and_resolves_the_name() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let connector = Connector::new()
            .with_proxy(&format!("socks5h://{address}"))
            .expect("a proxy");
        let mut transport = start_exchange_with(connector, "http://shop.invalid/mcp", b"{}");
        let (mut socket, _) = listener.accept().await.expect("a client");
        let mut greeting = [0; 3];
        socket.read_exact(&mut greeting).await.expect("a greeting");
        assert_eq!(greeting, [5, 1, 0]);
        socket.write_all(&[5, 0]).await.expect("the client listens");
        let mut connect_request = [0; 4 + 1 + "shop.invalid".len() + 2];
        socket
            .read_exact(&mut connect_request)
            .await
            .expect("a connect request");
        assert_eq!(&connect_request[..5], [5, 1, 0, 3, 12]);
        assert_eq!(&connect_request[5..], b"shop.invalid\x00\x50");
        let granted = [5, 0, 0, 1, 127, 0, 0, 1, 0, 80];
        socket
            .write_all(&granted)
            .await
            .expect("the client listens");
        let request = read_until(&mut socket, b"{}").await;
        assert!(request.starts_with("POST /mcp HTTP/1.1\r\n"), "{request}");
        send(&mut socket, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(end(&mut transport).await, []);
    });
}

#[test]
fn peer_is_not_read_while_no_input_is_wanted() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let mut transport = Driven::new(Connector::new(), false);
        let epoch = Epoch::FIRST;
        transport.perform(Output::Open { epoch }, b"");
        transport.perform(request(&format!("http://{address}/"), b"{}"), b"{}");
        let (_, mut socket) = accept(&listener).await;
        send(&mut socket, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
        // More than all buffers hold, so that the peer blocks before everything is written.
        let megabyte = vec![b'x'; 1 << 20];
        let writing = tokio::spawn(async move {
            for _ in 0..64 {
                let _ = socket.write_all(&megabyte).await;
            }
        });
        assert!(matches!(next_input(&mut transport).await, Input::Opened));
        assert!(matches!(
            next_input(&mut transport).await,
            Input::Sent { .. }
        ));
        tokio::select! {
            input = next_input(&mut transport) => panic!("{input:?}"),
            // The bytes that pass without being read are bounded, so this completes only if there is no bound.
            written = writing => panic!("{written:?}"),
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
        }
    });
}

#[test]
fn requests_are_sent_while_no_input_is_wanted() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let url = format!("http://{address}/");
        let (transport, epoch) = (Driven::new(Connector::new(), false), Epoch::FIRST);
        transport.perform(Output::Open { epoch }, b"");
        let mut sockets = Vec::new();
        for number in 1..=3 {
            transport.perform(request_on(number, &url), b"{}");
            let (_, mut socket) = accept(&listener).await;
            // Nobody reads it.
            send(&mut socket, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").await;
            sockets.push(socket);
        }
    });
}

#[test]
fn abort_and_release_close_the_connection() {
    run_isolated(async || {
        let epoch = Epoch::FIRST;
        for output in [
            Output::Abort {
                epoch,
                stream: STREAM,
            },
            Output::Release { epoch },
        ] {
            let (listener, address) = listen().await;
            let mut transport = start_exchange(&format!("http://{address}/"), b"{}");
            let (_, mut socket) = accept(&listener).await;
            send(
                &mut socket,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            )
            .await;
            while !matches!(next_input(&mut transport).await, Input::Bytes { .. }) {}
            transport.perform(output, b"");
            let mut rest = Vec::new();
            let closed = socket.read_to_end(&mut rest).await;
            assert!(closed.is_ok_and(|read| read == 0) && rest.is_empty());
        }
    });
}

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";

/// Accepts the request, and waits until the transport reports the end of the exchange.
async fn accept_and_wait_for_end(socket: &mut TcpStream, transport: &mut Driven) {
    send(socket, ACCEPTED).await;
    assert_eq!(end(transport).await, []);
}

#[test]
fn connection_is_reused_and_closed_on_release() {
    run_isolated(async || {
        let ((listener, address), epoch) = (listen().await, Epoch::FIRST);
        let url = format!("http://{address}/");
        let mut transport = start_exchange(&url, b"{}");
        let (_, mut socket) = accept(&listener).await;
        accept_and_wait_for_end(&mut socket, &mut transport).await;
        transport.perform(request(&url, b"{}"), b"{}");
        read_until(&mut socket, b"{}").await;
        accept_and_wait_for_end(&mut socket, &mut transport).await;
        transport.perform(Output::Release { epoch }, b"");
        let read = socket.read(&mut [0]).await;
        assert_eq!(read.expect("an end"), 0);
    });
}

#[test]
fn content_length_matches_the_body_of_each_request() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let url = format!("http://{address}/");
        let mut transport = start_exchange(&url, b"{}");
        let (received, mut socket) = accept(&listener).await;
        assert_eq!(lengths(&received), ["2"]);
        for body in ["[1]{}", "[1]{}", "{}", "", "{}"] {
            accept_and_wait_for_end(&mut socket, &mut transport).await;
            transport.perform(request(&url, body.as_bytes()), body.as_bytes());
            let received = read_until(&mut socket, format!("\r\n\r\n{body}").as_bytes()).await;
            match *lengths(&received) {
                [] => assert!(body.is_empty(), "{received}"),
                [length] => assert_eq!(length, body.len().to_string(), "{received}"),
                _ => panic!("more than one content-length: {received}"),
            }
        }
    });
}

/// Returns the values of `Content-Length` in a request.
fn lengths(received: &str) -> Vec<&str> {
    let lines = received.lines();
    lines
        .filter_map(|line| line.strip_prefix("content-length: "))
        .collect()
}

#[test]
fn connection_closed_by_the_server_is_not_reused() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        let url = format!("http://{address}/");
        let mut transport = start_exchange(&url, b"{}");
        let (_, mut socket) = accept(&listener).await;
        accept_and_wait_for_end(&mut socket, &mut transport).await;
        drop(socket);
        // The system knows at once that the connection is closed, the runtime only after its next poll.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        transport.perform(request(&url, b"{}"), b"{}");
        let again = async {
            let (_, mut socket) = accept(&listener).await;
            send(&mut socket, ACCEPTED).await;
            socket
        };
        let (_socket, faults) = tokio::join!(again, end(&mut transport));
        assert_eq!(faults, []);
    });
}

#[test]
fn partly_read_request_is_not_sent_again() {
    run_isolated(async || {
        for credentials in [false, true] {
            let (listener, address) = listen().await;
            let url = format!("http://{address}/");
            let mut connector = Connector::new();
            if credentials {
                connector = connector.with_credentials(async || Some("Bearer abc".to_owned()));
            }
            let mut transport = start_exchange_with(connector, &url, b"{}");
            let (_, mut socket) = accept(&listener).await;
            let response = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
            send(&mut socket, response).await;
            assert_eq!(end(&mut transport).await, []);
            transport.perform(request(&url, b"{}"), b"{}");
            let closed = async {
                // Read all but the last byte.
                read_until(&mut socket, b"{").await;
                drop(socket);
            };
            let (faults, ()) = tokio::join!(end(&mut transport), closed);
            assert_eq!(faults, [FaultKind::Reset]);
            drop(transport);
            tokio::select! {
                biased;
                _ = listener.accept() => panic!("it was sent again"),
                () = tokio::task::yield_now() => {}
            }
        }
    });
}

#[test]
fn connection_is_not_reused_for_another_server() {
    run_isolated(async || {
        let ((one, here), (other, there)) = (listen().await, listen().await);
        let mut transport = start_exchange(&format!("http://{here}/"), b"{}");
        let (_, mut socket) = accept(&one).await;
        let response = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        send(&mut socket, response).await;
        assert_eq!(end(&mut transport).await, []);
        transport.perform(request(&format!("http://{there}/"), b"{}"), b"{}");
        let (request, mut elsewhere) = accept(&other).await;
        assert!(
            request.contains(&format!("\r\nhost: {there}\r\n")),
            "{request}"
        );
        send(&mut elsewhere, response).await;
        assert_eq!(end(&mut transport).await, []);
        drop(transport);
        let read = socket.read(&mut [0]).await;
        assert_eq!(read.expect("an end"), 0);
    });
}

#[test]
fn concurrent_exchanges_open_connections_that_later_ones_reuse() {
    run_isolated(async || {
        let ((listener, address), epoch) = (listen().await, Epoch::FIRST);
        let (url, mut transport) = (
            format!("http://{address}/"),
            Driven::new(Connector::new(), true),
        );
        transport.perform(Output::Open { epoch }, b"");
        let on = |number| request_on(number, &url);
        let response = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        let mut sockets = Vec::new();
        for number in 1..=3 {
            transport.perform(on(number), b"{}");
            sockets.push(accept(&listener).await.1);
        }
        for socket in &mut sockets {
            send(socket, response).await;
        }
        wait_for_ends(&mut transport, 3).await;
        for number in 4..=6 {
            transport.perform(on(number), b"{}");
        }
        for socket in &mut sockets {
            read_until(socket, b"{}").await;
            send(socket, response).await;
        }
        wait_for_ends(&mut transport, 3).await;
    });
}

#[test]
fn each_failure_has_its_fault_kind() {
    run_isolated(async || {
        let (listener, address) = listen().await;
        // A name in `.invalid` never exists.
        assert_eq!(
            faults("http://shop.invalid/").await,
            [FaultKind::NameNotFound]
        );

        let answers: [(&str, FaultKind); 5] = [
            ("", FaultKind::Reset),
            ("HTTP/1.1 200", FaultKind::Reset),
            ("nonsense\r\n\r\n", FaultKind::Read),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
                FaultKind::Reset,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
                FaultKind::Reset,
            ),
        ];
        for (answer, kind) in answers {
            let mut transport = start_exchange(&format!("http://{address}/"), b"{}");
            let (_, mut socket) = accept(&listener).await;
            send(&mut socket, answer).await;
            drop(socket);
            assert_eq!(end(&mut transport).await, [kind], "{answer:?}");
        }

        let mut transport = start_exchange(&format!("https://{address}/"), b"{}");
        let (mut socket, _) = listener.accept().await.expect("a client");
        send(&mut socket, "HTTP/1.1 400 This is no TLS\r\n\r\n").await;
        assert_eq!(end(&mut transport).await, [FaultKind::Tls]);

        drop((listener, socket));
        assert_eq!(
            faults(&format!("http://{address}/")).await,
            [FaultKind::Refused]
        );
    });
}

/// A transport with a task that polls it all the time, as a driver does. Dropping this drops the transport.
pub(crate) struct Driven {
    outputs: UnboundedSender<(Output<Infallible>, Vec<u8>)>,
    inputs: UnboundedReceiver<Input<'static>>,
}

impl Driven {
    /// `reads` says whether inputs are wanted.
    fn new(connector: Connector, reads: bool) -> Driven {
        let config = Config::http("test", "1.0", "http://127.0.0.1:1/").expect("a URL");
        let transport = connector.transport(&config);
        let mut transport = transport.expect("it is HTTP");
        let (outputs, mut performed) = unbounded_channel::<(_, Vec<u8>)>();
        let (reported, inputs) = unbounded_channel();
        tokio::spawn(async move {
            let mut poll = |cx: &mut Context<'_>| {
                while let Poll::Ready(next) = performed.poll_recv(cx) {
                    match next {
                        Some((output, bytes)) => transport.perform(output, &bytes),
                        None => return Poll::Ready(None),
                    }
                }
                transport.poll_input(cx, reads, &mut []).map(Some)
            };
            while let Some((_, input)) = poll_fn(&mut poll).await {
                let _ = reported.send(input);
            }
        });
        Driven { outputs, inputs }
    }

    pub(crate) fn perform(&self, output: Output<Infallible>, bytes: &[u8]) {
        let sent = self.outputs.send((output, bytes.to_vec()));
        sent.expect("the task runs");
    }
}

/// Creates a transport that has just begun an exchange.
pub(crate) fn start_exchange(url: &str, body: &[u8]) -> Driven {
    start_exchange_with(Connector::new(), url, body)
}

pub(crate) fn start_exchange_with(connector: Connector, url: &str, body: &[u8]) -> Driven {
    let (transport, epoch) = (Driven::new(connector, true), Epoch::FIRST);
    transport.perform(Output::Open { epoch }, b"");
    transport.perform(request(url, body), body);
    transport
}

fn request(url: &str, body: &[u8]) -> Output<Infallible> {
    Output::Request {
        epoch: Epoch::FIRST,
        stream: STREAM,
        head: Box::new(RequestHead::new(Verb::Post, url.to_owned())),
        len: body.len(),
    }
}

/// A request with the body `{}` in this exchange.
fn request_on(number: u64, url: &str) -> Output<Infallible> {
    Output::Request {
        epoch: Epoch::FIRST,
        stream: StreamId::new(number),
        head: Box::new(RequestHead::new(Verb::Post, url.to_owned())),
        len: 2,
    }
}

pub(crate) async fn next_input(transport: &mut Driven) -> Input<'static> {
    transport.inputs.recv().await.expect("the task runs")
}

/// Waits for the end of the exchange. Returns its faults.
pub(crate) async fn end(transport: &mut Driven) -> Vec<FaultKind> {
    loop {
        if let Input::End { stream, faults } = next_input(transport).await {
            assert_eq!(stream, STREAM);
            return faults.iter().map(|fault| fault.kind()).collect();
        }
    }
}

/// Waits until this many exchanges have ended without a fault.
async fn wait_for_ends(transport: &mut Driven, mut exchanges: usize) {
    while exchanges > 0 {
        if let Input::End { faults, .. } = next_input(transport).await {
            assert!(faults.is_empty(), "{faults:?}");
            exchanges -= 1;
        }
    }
}

async fn faults(url: &str) -> Vec<FaultKind> {
    end(&mut start_exchange(url, b"{}")).await
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Returns the next request, and the socket for its response.
async fn accept(listener: &TcpListener) -> (String, TcpStream) {
    let (mut socket, _) = listener.accept().await.expect("a client");
    (read_until(&mut socket, b"{}").await, socket)
}

pub(crate) async fn read_until(socket: &mut TcpStream, end: &[u8]) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(socket.read_u8().await.expect("a byte"));
    }
    String::from_utf8(read).expect("text")
}

pub(crate) async fn send(socket: &mut TcpStream, text: &str) {
    let sent = socket.write_all(text.as_bytes()).await;
    sent.expect("the client listens");
}

#[test]
fn invalid_proxy_url_is_refused() {
    for bad in [
        "",
        "nonsense",
        "ftp://example.com",
        "http://",
        "example.com:3128",
    ] {
        let refused = Connector::new().with_proxy(bad).err();
        assert_eq!(refused, Some(SetupError::Proxy), "{bad}");
    }
}

#[test]
fn connect_fails_outside_a_runtime_and_without_an_http_config() {
    let config = everlink::Config::http("raw", "1.0", "http://127.0.0.1:9/mcp").expect("a URL");
    let outside = everlink_tokio::http::connect(config).expect_err("there is no runtime");
    assert!(outside.to_string().contains("runtime"), "{outside}");
    let child = everlink::Config::child("raw", "1.0");
    let other = everlink_tokio::http::connect(child).expect_err("it is not for HTTP");
    assert_eq!(other.kind(), std::io::ErrorKind::InvalidInput);
}
