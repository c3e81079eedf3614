//! Tests the client's transport alone, against raw peers: the inputs that it reports, their order, and the kinds of faults.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;

use everlink::http::{RequestHead, Verb};
use everlink::{Epoch, FaultKind, Input, Output, StreamId};
use everlink_tokio::Hands;
use everlink_tokio::http::{Connector, Exchanges};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::alone;

const STREAM: StreamId = StreamId::new(7);

#[test]
fn an_exchange_is_told_from_its_beginning_to_its_end() {
    alone(async || {
        let (listener, address) = listen().await;
        let mut hands = begin(&format!("http://{address}/mcp?a=b"), b"{}");
        assert!(matches!(hear(&mut hands).await, Input::Opened));
        let (request, mut socket) = accept(&listener).await;
        assert!(
            request.starts_with("POST /mcp?a=b HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains("\r\ncontent-length: 2\r\n"), "{request}");
        assert!(matches!(
            hear(&mut hands).await,
            Input::Sent {
                stream: STREAM,
                len: 2
            }
        ));

        say(
            &mut socket,
            "HTTP/1.1 418 Teapot\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await;
        let Input::Response { stream, head } = hear(&mut hands).await else {
            panic!("a response");
        };
        assert_eq!(
            (stream, head.status, head.fields.get("a")),
            (STREAM, 418, Some("b"))
        );
        say(&mut socket, "3\r\nabc\r\n").await;
        let Input::Bytes { bytes, .. } = hear(&mut hands).await else {
            panic!("a piece of the body");
        };
        assert_eq!(&*bytes, b"abc");
        say(&mut socket, "0\r\n\r\n").await;
        assert_eq!(end(&mut hands).await, []);
    });
}

#[test]
fn redirects_are_not_followed() {
    alone(async || {
        let (listener, address) = listen().await;
        let mut hands = begin(&format!("http://{address}/"), b"{}");
        let (_, mut socket) = accept(&listener).await;
        let head = "HTTP/1.1 307 Elsewhere\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n";
        say(&mut socket, head).await;
        let status = loop {
            if let Input::Response { head, .. } = hear(&mut hands).await {
                break head.status;
            }
        };
        assert_eq!(status, 307);
        assert_eq!(end(&mut hands).await, []);
    });
}

#[test]
fn credentials_and_fields_go_with_every_request() {
    alone(async || {
        let (listener, address) = listen().await;
        let name = "x-shop".parse().expect("a name");
        let connector = Connector::new()
            .with_credentials(async || Some("Bearer abc".to_owned()))
            .with_field(name, "open".parse().expect("a value"));
        let _hands = begin_with(connector, &format!("http://{address}/"), b"{}");
        let (request, _socket) = accept(&listener).await;
        assert!(
            request.contains("\r\nauthorization: Bearer abc\r\n"),
            "{request}"
        );
        assert!(request.contains("\r\nx-shop: open\r\n"), "{request}");
    });
}

#[test]
fn a_proxy_passes_requests_on_or_builds_a_tunnel() {
    alone(async || {
        let (listener, address) = listen().await;
        let through = |url: &str| {
            let proxy = format!("http://Ali:Baba@{address}");
            begin_with(
                Connector::new().with_proxy(&proxy).expect("a proxy"),
                url,
                b"{}",
            )
        };
        let authorization = "\r\nproxy-authorization: Basic QWxpOkJhYmE=\r\n";

        let mut hands = through("http://shop.invalid/mcp");
        let (request, mut socket) = accept(&listener).await;
        assert!(
            request.starts_with("POST http://shop.invalid/mcp HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains(authorization), "{request}");
        say(&mut socket, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(end(&mut hands).await, []);

        let mut hands = through("https://shop.invalid/mcp");
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
        say(&mut socket, "HTTP/1.1 200 OK\r\n\r\n").await;
        // The first byte of TLS, to the server behind the proxy.
        assert_eq!(socket.read_u8().await.expect("a byte"), 22);
        drop(socket);
        assert_eq!(end(&mut hands).await, [FaultKind::Reset]);

        let (other, elsewhere) = listen().await;
        let _hands = through(&format!("http://{elsewhere}/"));
        accept(&other).await;
    });
}

#[test]
fn a_proxy_may_speak_socks() {
    alone(async || {
        let (listener, address) = listen().await;
        let connector = Connector::new()
            .with_proxy(&format!("socks5h://{address}"))
            .expect("a proxy");
        let mut hands = begin_with(connector, "http://shop.invalid/mcp", b"{}");
        let (mut socket, _) = listener.accept().await.expect("a client");
        let mut greeting = [0; 3];
        socket.read_exact(&mut greeting).await.expect("a greeting");
        assert_eq!(greeting, [5, 1, 0]);
        socket.write_all(&[5, 0]).await.expect("the client listens");
        let mut wish = [0; 4 + 1 + "shop.invalid".len() + 2];
        socket.read_exact(&mut wish).await.expect("a wish");
        assert_eq!(&wish[..5], [5, 1, 0, 3, 12]);
        assert_eq!(&wish[5..], b"shop.invalid\x00\x50");
        let granted = [5, 0, 0, 1, 127, 0, 0, 1, 0, 80];
        socket
            .write_all(&granted)
            .await
            .expect("the client listens");
        let request = read_until(&mut socket, b"{}").await;
        assert!(request.starts_with("POST /mcp HTTP/1.1\r\n"), "{request}");
        say(&mut socket, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(end(&mut hands).await, []);
    });
}

#[test]
fn nothing_is_read_while_nothing_is_wanted() {
    alone(async || {
        let (listener, address) = listen().await;
        let mut hands = begin(&format!("http://{address}/"), b"{}");
        let (_, mut socket) = accept(&listener).await;
        say(&mut socket, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
        // More than all buffers hold, so that the peer blocks before everything is written.
        let megabyte = vec![b'x'; 1 << 20];
        let writing = tokio::spawn(async move {
            for _ in 0..64 {
                let _ = socket.write_all(&megabyte).await;
            }
        });
        assert!(matches!(hear_unread(&mut hands).await, Input::Opened));
        assert!(matches!(hear_unread(&mut hands).await, Input::Sent { .. }));
        tokio::select! {
            input = hear_unread(&mut hands) => panic!("{input:?}"),
            // The bytes that pass without being read are bounded, so this completes only if there is no bound.
            written = writing => panic!("{written:?}"),
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
        }
    });
}

#[test]
fn what_is_aborted_or_released_is_cut() {
    alone(async || {
        let epoch = Epoch::FIRST;
        for output in [
            Output::Abort {
                epoch,
                stream: STREAM,
            },
            Output::Release { epoch },
        ] {
            let (listener, address) = listen().await;
            let mut hands = begin(&format!("http://{address}/"), b"{}");
            let (_, mut socket) = accept(&listener).await;
            say(
                &mut socket,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            )
            .await;
            while !matches!(hear(&mut hands).await, Input::Bytes { .. }) {}
            hands.perform(output, b"");
            let mut rest = Vec::new();
            let closed = socket.read_to_end(&mut rest).await;
            assert!(closed.is_ok_and(|read| read == 0) && rest.is_empty());
        }
    });
}

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";

/// Accepts the request, and waits until the transport reports the end of the exchange.
async fn take(socket: &mut TcpStream, hands: &mut Exchanges) {
    say(socket, ACCEPTED).await;
    assert_eq!(end(hands).await, []);
}

#[test]
fn connections_are_kept_for_the_next_request_and_end_with_a_life() {
    alone(async || {
        let ((listener, address), epoch) = (listen().await, Epoch::FIRST);
        let url = format!("http://{address}/");
        let mut hands = begin(&url, b"{}");
        let (_, mut socket) = accept(&listener).await;
        take(&mut socket, &mut hands).await;
        hands.perform(request(&url, b"{}"), b"{}");
        read_until(&mut socket, b"{}").await;
        take(&mut socket, &mut hands).await;
        hands.perform(Output::Release { epoch }, b"");
        let read = socket.read(&mut [0]).await;
        assert_eq!(read.expect("an end"), 0);
    });
}

#[test]
fn each_request_says_how_long_its_own_body_is() {
    alone(async || {
        let (listener, address) = listen().await;
        let url = format!("http://{address}/");
        let mut hands = begin(&url, b"{}");
        let (asked, mut socket) = accept(&listener).await;
        assert_eq!(lengths(&asked), ["2"]);
        for body in ["[1]{}", "[1]{}", "{}", "", "{}"] {
            take(&mut socket, &mut hands).await;
            hands.perform(request(&url, body.as_bytes()), body.as_bytes());
            let asked = read_until(&mut socket, format!("\r\n\r\n{body}").as_bytes()).await;
            match *lengths(&asked) {
                [] => assert!(body.is_empty(), "{asked}"),
                [length] => assert_eq!(length, body.len().to_string(), "{asked}"),
                _ => panic!("it says so twice: {asked}"),
            }
        }
    });
}

/// Returns the values of `Content-Length` in a request.
fn lengths(asked: &str) -> Vec<&str> {
    let lines = asked.lines();
    lines
        .filter_map(|line| line.strip_prefix("content-length: "))
        .collect()
}

#[test]
fn a_connection_that_its_server_closed_is_not_used_again() {
    alone(async || {
        let (listener, address) = listen().await;
        let url = format!("http://{address}/");
        let mut hands = begin(&url, b"{}");
        let (_, mut socket) = accept(&listener).await;
        take(&mut socket, &mut hands).await;
        drop(socket);
        // The system knows at once that the connection is closed, the runtime only after its next poll.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        hands.perform(request(&url, b"{}"), b"{}");
        let again = async {
            let (_, mut socket) = accept(&listener).await;
            say(&mut socket, ACCEPTED).await;
            socket
        };
        let (_socket, faults) = tokio::join!(again, end(&mut hands));
        assert_eq!(faults, []);
    });
}

#[test]
fn what_may_have_been_read_is_not_sent_again() {
    alone(async || {
        for credentials in [false, true] {
            let (listener, address) = listen().await;
            let url = format!("http://{address}/");
            let mut connector = Connector::new();
            if credentials {
                connector = connector.with_credentials(async || Some("Bearer abc".to_owned()));
            }
            let mut hands = begin_with(connector, &url, b"{}");
            let (_, mut socket) = accept(&listener).await;
            let response = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
            say(&mut socket, response).await;
            assert_eq!(end(&mut hands).await, []);
            hands.perform(request(&url, b"{}"), b"{}");
            let closed = async {
                // Read all but the last byte.
                read_until(&mut socket, b"{").await;
                drop(socket);
            };
            let (faults, ()) = tokio::join!(end(&mut hands), closed);
            assert_eq!(faults, [FaultKind::Reset]);
            drop(hands);
            tokio::select! {
                biased;
                _ = listener.accept() => panic!("it was sent again"),
                () = tokio::task::yield_now() => {}
            }
        }
    });
}

#[test]
fn a_connection_carries_nothing_for_another_server() {
    alone(async || {
        let ((one, here), (other, there)) = (listen().await, listen().await);
        let mut hands = begin(&format!("http://{here}/"), b"{}");
        let (_, mut socket) = accept(&one).await;
        let response = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        say(&mut socket, response).await;
        assert_eq!(end(&mut hands).await, []);
        hands.perform(request(&format!("http://{there}/"), b"{}"), b"{}");
        let (request, mut elsewhere) = accept(&other).await;
        assert!(
            request.contains(&format!("\r\nhost: {there}\r\n")),
            "{request}"
        );
        say(&mut elsewhere, response).await;
        assert_eq!(end(&mut hands).await, []);
        drop(hands);
        let read = socket.read(&mut [0]).await;
        assert_eq!(read.expect("an end"), 0);
    });
}

#[test]
fn many_exchanges_have_a_connection_each_and_share_them_later() {
    alone(async || {
        let ((listener, address), epoch) = (listen().await, Epoch::FIRST);
        let (url, mut hands) = (format!("http://{address}/"), Connector::new().hands());
        hands.perform(Output::Open { epoch }, b"");
        let on = |number| match request(&url, b"{}") {
            Output::Request { head, len, .. } => Output::Request {
                epoch,
                stream: StreamId::new(number),
                head,
                len,
            },
            other => other,
        };
        let response = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        let mut sockets = Vec::new();
        for number in 1..=3 {
            hands.perform(on(number), b"{}");
            sockets.push(accept(&listener).await.1);
        }
        for socket in &mut sockets {
            say(socket, response).await;
        }
        all_end(&mut hands, 3).await;
        for number in 4..=6 {
            hands.perform(on(number), b"{}");
        }
        for socket in &mut sockets {
            read_until(socket, b"{}").await;
            say(socket, response).await;
        }
        all_end(&mut hands, 3).await;
    });
}

#[test]
fn faults_have_names() {
    alone(async || {
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
            let mut hands = begin(&format!("http://{address}/"), b"{}");
            let (_, mut socket) = accept(&listener).await;
            say(&mut socket, answer).await;
            drop(socket);
            assert_eq!(end(&mut hands).await, [kind], "{answer:?}");
        }

        let mut hands = begin(&format!("https://{address}/"), b"{}");
        let (mut socket, _) = listener.accept().await.expect("a client");
        say(&mut socket, "HTTP/1.1 400 This is no TLS\r\n\r\n").await;
        assert_eq!(end(&mut hands).await, [FaultKind::Tls]);

        drop((listener, socket));
        assert_eq!(
            faults(&format!("http://{address}/")).await,
            [FaultKind::Refused]
        );
    });
}

/// Creates a transport that has just begun an exchange.
fn begin(url: &str, body: &[u8]) -> Exchanges {
    begin_with(Connector::new(), url, body)
}

fn begin_with(connector: Connector, url: &str, body: &[u8]) -> Exchanges {
    let (mut hands, epoch) = (connector.hands(), Epoch::FIRST);
    hands.perform(Output::Open { epoch }, b"");
    hands.perform(request(url, body), body);
    hands
}

fn request(url: &str, body: &[u8]) -> Output<Infallible> {
    Output::Request {
        epoch: Epoch::FIRST,
        stream: STREAM,
        head: Box::new(RequestHead::new(Verb::Post, url.to_owned())),
        len: body.len(),
    }
}

async fn hear(hands: &mut Exchanges) -> Input<'static> {
    poll_fn(|cx| hands.poll_heard(cx, true, &mut [])).await.1
}

async fn hear_unread(hands: &mut Exchanges) -> Input<'static> {
    poll_fn(|cx| hands.poll_heard(cx, false, &mut [])).await.1
}

/// Waits for the end of the exchange. Returns its faults.
async fn end(hands: &mut Exchanges) -> Vec<FaultKind> {
    loop {
        if let Input::End { stream, faults } = hear(hands).await {
            assert_eq!(stream, STREAM);
            return faults.iter().map(|fault| fault.kind()).collect();
        }
    }
}

/// Waits until this many exchanges have ended without a fault.
async fn all_end(hands: &mut Exchanges, mut exchanges: usize) {
    while exchanges > 0 {
        if let Input::End { faults, .. } = hear(hands).await {
            assert!(faults.is_empty(), "{faults:?}");
            exchanges -= 1;
        }
    }
}

async fn faults(url: &str) -> Vec<FaultKind> {
    end(&mut begin(url, b"{}")).await
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Returns the next request, and the socket for its response.
async fn accept(listener: &TcpListener) -> (String, TcpStream) {
    let (mut socket, _) = listener.accept().await.expect("a client");
    (read_until(&mut socket, b"{}").await, socket)
}

async fn read_until(socket: &mut TcpStream, end: &[u8]) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(socket.read_u8().await.expect("a byte"));
    }
    String::from_utf8(read).expect("text")
}

async fn say(socket: &mut TcpStream, words: &str) {
    let said = socket.write_all(words.as_bytes()).await;
    said.expect("the client listens");
}

#[test]
fn what_is_no_proxy_is_refused() {
    for bad in [
        "",
        "nonsense",
        "ftp://example.com",
        "http://",
        "example.com:3128",
    ] {
        let refused = Connector::new().with_proxy(bad).err();
        assert!(
            refused.is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidInput),
            "{bad}"
        );
    }
}

#[test]
fn what_cannot_be_driven_is_refused() {
    let config = everlink::Config::http("raw", "1.0", "http://127.0.0.1:9/mcp").expect("a URL");
    let outside = everlink_tokio::http::connect(config).expect_err("there is no runtime");
    assert!(outside.to_string().contains("runtime"), "{outside}");
    let child = everlink::Config::child("raw", "1.0");
    let other = everlink_tokio::http::connect(child).expect_err("it is not for HTTP");
    assert_eq!(other.kind(), std::io::ErrorKind::InvalidInput);
}
