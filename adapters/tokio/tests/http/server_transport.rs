//! Tests the server's transport alone, against raw clients: the inputs that it reports, and the bytes of its responses.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use everlink::http::{Fields, ResponseHead, Verb};
use everlink::{Epoch, FaultKind, Input, Output, StreamId};
use everlink_tokio::Transport;
use everlink_tokio::http::{Endpoint, ServerTransport, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::{TIMEOUT, run_isolated};

const REQUEST: &str = "POST /mcp?a=b HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\n\r\n{}";

#[test]
fn request_is_reported_as_head_body_and_end() {
    run_isolated(async || {
        let mut harness = Harness::start().await;
        let _client = harness.send_request(REQUEST).await;
        let Input::Request { stream, head } = harness.next_input().await else {
            panic!("a request");
        };
        assert_eq!((head.verb, &*head.target), (Verb::Post, "/mcp?a=b"));
        assert_eq!((head.fields.get("host"), head.user), (Some("shop"), None));
        let Input::Bytes { bytes, stream: of } = harness.next_input().await else {
            panic!("a body");
        };
        assert_eq!((&*bytes, of), (&b"{}"[..], stream));
        assert!(
            matches!(harness.next_input().await, Input::End { stream: of, faults } if of == stream && faults.is_empty())
        );
    });
}

#[test]
fn head_is_reported_before_its_body_comes_in_pieces() {
    run_isolated(async || {
        let mut harness = Harness::start().await;
        let (head, _) = REQUEST.split_at(REQUEST.len() - 2);
        let mut client = harness.send_request(head).await;
        assert!(matches!(harness.next_input().await, Input::Request { .. }));
        let mut body = Vec::new();
        for piece in [b"{", b"}"] {
            client.write_all(piece).await.expect("it listens");
            let Input::Bytes { bytes, .. } = harness.next_input().await else {
                panic!("a piece of the body");
            };
            body.extend_from_slice(&bytes);
        }
        assert_eq!(body, b"{}");
        let end = harness.next_input().await;
        assert!(matches!(end, Input::End { faults, .. } if faults.is_empty()));
    });
}

#[test]
fn body_that_breaks_off_ends_with_a_fault() {
    run_isolated(async || {
        for sent in ["", "{"] {
            let mut harness = Harness::start().await;
            let (head, _) = REQUEST.split_at(REQUEST.len() - 2);
            let mut client = harness.send_request(&format!("{head}{sent}")).await;
            client.shutdown().await.expect("it listens");
            let faults = loop {
                if let Input::End { faults, .. } = harness.next_input().await {
                    break faults;
                }
            };
            let kinds: Vec<_> = faults.iter().map(|fault| fault.kind()).collect();
            assert_eq!(kinds, [FaultKind::Read], "{sent}");
        }
    });
}

#[test]
fn connection_with_a_request_is_kept_while_silent_ones_are_displaced() {
    run_isolated(async || {
        let mut harness = Harness::with_endpoint(|endpoint| endpoint.with_connections(4)).await;
        let mut asking = harness.send_request(REQUEST).await;
        let stream = harness.next_request().await;
        let mut silent = Vec::new();
        for _ in 0..8 {
            silent.push(harness.send_request("").await);
        }
        let read = silent[0].read(&mut [0]).await;
        assert_eq!(read.expect("the end"), 0, "it is displaced");
        harness.respond(stream, "whole", true);
        read_until(&mut asking, "whole").await;
    });
}

#[test]
fn connection_with_a_response_is_kept_while_those_that_wait_for_one_are_displaced() {
    run_isolated(async || {
        let mut harness = Harness::with_endpoint(|endpoint| endpoint.with_connections(4)).await;
        let mut answered = harness.send_request(REQUEST).await;
        let stream = harness.next_request().await;
        harness.respond(stream, "whole", true);
        read_until(&mut answered, "whole").await;
        let mut asking = Vec::new();
        for _ in 0..8 {
            asking.push(harness.send_request(REQUEST).await);
            harness.next_request().await;
        }
        let read = asking[0].read(&mut [0]).await;
        assert_eq!(read.expect("the end"), 0, "it is displaced");
        let sent = answered.write_all(REQUEST.as_bytes()).await;
        sent.expect("it is open");
        let stream = harness.next_request().await;
        harness.respond(stream, "again", true);
        read_until(&mut answered, "again").await;
    });
}

#[test]
fn whole_response_has_a_content_length() {
    run_isolated(async || {
        let mut harness = Harness::start().await;
        let mut client = harness.send_request(REQUEST).await;
        let stream = harness.next_request().await;
        harness.respond(stream, "whole", true);
        assert!(
            matches!(harness.next_input().await, Input::Sent { stream: of, len: 5 } if of == stream)
        );
        let response = read_until(&mut client, "whole").await;
        assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
        assert!(response.contains("\r\na: b\r\n"), "{response}");
        assert!(response.contains("\r\ncontent-length: 5\r\n"), "{response}");
        // A client that disconnects after the complete response is not reported: the next input is that of the next client.
        drop(client);
        let _next = harness.send_request(REQUEST).await;
        assert!(matches!(harness.next_input().await, Input::Request { .. }));
    });
}

#[test]
fn stream_is_written_piece_by_piece() {
    run_isolated(async || {
        let (mut harness, epoch) = (Harness::start().await, Epoch::FIRST);
        let mut client = harness.send_request(REQUEST).await;
        let stream = harness.next_request().await;
        harness.respond(stream, "one", false);
        assert!(matches!(
            harness.next_input().await,
            Input::Sent { len: 3, .. }
        ));
        // The first piece is sent before anything else is written.
        read_until(&mut client, "one\r\n").await;
        let len = "three".len();
        harness
            .transport
            .perform(Output::Write { epoch, stream, len }, b"three");
        assert!(matches!(
            harness.next_input().await,
            Input::Sent { len: 5, .. }
        ));
        read_until(&mut client, "5\r\nthree\r\n").await;
        harness
            .transport
            .perform(Output::Finish { epoch, stream }, b"");
        read_until(&mut client, "0\r\n\r\n").await;
        drop(client);
        let _next = harness.send_request(REQUEST).await;
        assert!(matches!(harness.next_input().await, Input::Request { .. }));
    });
}

#[test]
fn response_stream_begins_while_other_requests_keep_arriving() {
    run_isolated(async || {
        let (endpoint, mut transport) = ServerTransport::new();
        let mut answered = pin!(endpoint.answer(Request::new(Body::empty())));
        // The response must begin before these run out.
        let mut others: Vec<_> = (0..50)
            .map(|_| Box::pin(endpoint.answer(Request::new(Body::empty()))))
            .collect();
        poll_fn(|cx| {
            let mut others = others.iter_mut();
            let mut has_begun = false;
            while answered.as_mut().poll(cx).is_pending() {
                // Send another request each time that no input is left.
                let other = others
                    .next()
                    .expect("the response begins before all requests were sent");
                for _ in 0..2 {
                    assert!(other.as_mut().poll(cx).is_pending(), "nobody answers");
                }
                while let Poll::Ready((_, input)) = transport.poll_input(cx, true, &mut []) {
                    if let Input::Request { stream, .. } = input {
                        if !has_begun {
                            transport.perform(response(stream, "one", false), b"one");
                        }
                        has_begun = true;
                    }
                }
            }
            Poll::Ready(())
        })
        .await;
    });
}

#[test]
fn stream_finished_at_once_is_one_response_with_a_length() {
    run_isolated(async || {
        let (mut harness, epoch) = (Harness::start().await, Epoch::FIRST);
        let mut client = harness.send_request(REQUEST).await;
        let stream = harness.next_request().await;
        harness.respond(stream, "one", false);
        let len = "three".len();
        let write = Output::Write { epoch, stream, len };
        harness.transport.perform(write, b"three");
        harness
            .transport
            .perform(Output::Finish { epoch, stream }, b"");
        assert!(matches!(
            harness.next_input().await,
            Input::Sent { len: 8, .. }
        ));
        let received = read_until(&mut client, "onethree").await;
        assert!(received.contains("content-length: 8\r\n"), "{received}");
    });
}

#[test]
fn stream_finished_at_once_causes_no_later_wake_up() {
    run_isolated(async || {
        let ((endpoint, mut transport), epoch) = (ServerTransport::new(), Epoch::FIRST);
        let mut answered = pin!(endpoint.answer(Request::new(Body::empty())));
        let wakes = Arc::new(CountingWaker::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = &mut Context::from_waker(&waker);
        let noop = &mut Context::from_waker(Waker::noop());
        let _unread = loop {
            if let Poll::Ready(answer) = answered.as_mut().poll(noop) {
                break answer;
            }
            while let Poll::Ready((_, input)) = transport.poll_input(cx, true, &mut []) {
                if let Input::Request { stream, .. } = input {
                    transport.perform(response(stream, "one", false), b"one");
                    transport.perform(Output::Finish { epoch, stream }, b"");
                }
            }
        };
        wakes.0.store(0, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(transport.poll_input(cx, true, &mut []).is_pending());
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn held_stream_waits_equally_long_after_a_finished_one() {
    run_isolated(async || {
        assert_eq!(
            idle_polls_before_response(false),
            idle_polls_before_response(true)
        );
    });
}

/// Returns how often no input is left before an unfinished response is sent. If `after_finished_response` is true, a response that was held and then
/// finished comes first.
fn idle_polls_before_response(after_finished_response: bool) -> usize {
    let ((endpoint, mut transport), epoch) = (ServerTransport::new(), Epoch::FIRST);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut idle_polls_before_response = 0;
    for is_last in [!after_finished_response, true] {
        let mut answered = pin!(endpoint.answer(Request::new(Body::empty())));
        let stream = loop {
            assert!(answered.as_mut().poll(cx).is_pending(), "nobody answers");
            if let Poll::Ready((_, Input::Request { stream, .. })) =
                transport.poll_input(cx, true, &mut [])
            {
                break stream;
            }
        };
        transport.perform(response(stream, "one", false), b"one");
        if is_last {
            while answered.as_mut().poll(cx).is_pending() {
                while transport.poll_input(cx, true, &mut []).is_ready() {}
                idle_polls_before_response += 1;
            }
            break;
        }
        while transport.poll_input(cx, true, &mut []).is_ready() {}
        transport.perform(Output::Finish { epoch, stream }, b"");
        assert!(answered.as_mut().poll(cx).is_ready(), "it is whole");
        while transport.poll_input(cx, true, &mut []).is_ready() {}
    }
    idle_polls_before_response
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn abort_of_a_held_response_cuts_it() {
    run_isolated(async || {
        let (mut harness, epoch) = (Harness::start().await, Epoch::FIRST);
        let mut client = harness.send_request(REQUEST).await;
        let stream = harness.next_request().await;
        harness.respond(stream, "one", false);
        harness
            .transport
            .perform(Output::Abort { epoch, stream }, b"");
        let mut received = Vec::new();
        let _ = client.read_to_end(&mut received).await;
        let received = String::from_utf8_lossy(&received);
        // The connection is closed, or the response begins and does not end; nothing else is sent instead.
        assert!(
            received.is_empty() || received.starts_with("HTTP/1.1 201"),
            "{received}"
        );
        assert!(!received.ends_with("0\r\n\r\n"), "{received}");
    });
}

#[test]
fn abort_of_a_begun_response_cuts_it() {
    run_isolated(async || {
        let (mut harness, epoch) = (Harness::start().await, Epoch::FIRST);
        let mut client = harness.send_request(REQUEST).await;
        let stream = harness.next_request().await;
        harness.respond(stream, "one", false);
        assert!(matches!(
            harness.next_input().await,
            Input::Sent { len: 3, .. }
        ));
        read_until(&mut client, "one\r\n").await;
        harness
            .transport
            .perform(Output::Abort { epoch, stream }, b"");
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    });
}

/// The request may have been carried out, so that no status is true.
#[test]
fn abort_before_the_response_breaks_the_connection_without_a_byte() {
    let abort: fn(&mut Harness, StreamId) = |harness, stream| {
        let epoch = Epoch::FIRST;
        harness
            .transport
            .perform(Output::Abort { epoch, stream }, b"");
    };
    let release: fn(&mut Harness, StreamId) = |harness, _| {
        let epoch = Epoch::FIRST;
        harness.transport.perform(Output::Release { epoch }, b"");
    };
    let end: fn(&mut Harness, StreamId) = |harness, _| harness.transport = ServerTransport::new().1;
    run_isolated(async || {
        for give_up in [abort, release, end] {
            let mut harness = Harness::start().await;
            let mut client = harness.send_request(REQUEST).await;
            let stream = harness.next_request().await;
            give_up(&mut harness, stream);
            let mut received = Vec::new();
            let _ = client.read_to_end(&mut received).await;
            assert_eq!(String::from_utf8_lossy(&received), "");
        }
    });
}

/// The same at a server of the application, which may have sent the head already.
#[test]
fn response_that_is_aborted_before_it_began_has_a_body_that_fails() {
    run_isolated(async || {
        let (endpoint, mut transport) = ServerTransport::new();
        let abort = async {
            let Input::Request { stream, .. } = next_input(&mut transport).await else {
                panic!("a request");
            };
            let epoch = Epoch::FIRST;
            transport.perform(Output::Abort { epoch, stream }, b"");
        };
        let (response, ()) = tokio::join!(endpoint.answer(Request::new(Body::empty())), abort);
        assert_eq!(response.status(), 502);
        let body = axum::body::to_bytes(Body::new(response.into_body()), 1).await;
        body.expect_err("it was aborted");
    });
}

#[test]
fn client_disconnect_is_reported_before_and_during_the_response() {
    run_isolated(async || {
        let mut harness = Harness::start().await;
        // Before its response began, and after.
        for has_begun in [false, true] {
            let mut client = harness.send_request(REQUEST).await;
            let stream = harness.next_request().await;
            if has_begun {
                harness.respond(stream, "one", false);
                assert!(matches!(harness.next_input().await, Input::Sent { .. }));
                read_until(&mut client, "one\r\n").await;
            }
            drop(client);
            assert!(
                matches!(harness.next_input().await, Input::WriteFailed { stream: of, .. } if of == stream)
            );
        }
    });
}

#[test]
fn request_dropped_before_the_first_poll_is_not_reported_as_a_request() {
    run_isolated(async || {
        let (endpoint, mut transport) = ServerTransport::new();
        let request = || {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(User("Ada".to_owned()));
            request
        };
        tokio::select! {
            biased;
            _ = endpoint.answer(request()) => panic!("nobody answers"),
            () = std::future::ready(()) => {}
        }
        assert!(matches!(
            next_input(&mut transport).await,
            Input::WriteFailed { .. }
        ));
        let reported = async {
            loop {
                if let Input::Request { stream, head } = next_input(&mut transport).await {
                    return (stream, head.user);
                }
            }
        };
        tokio::select! {
            (stream, user) = reported => {
                assert_eq!(stream, StreamId::new(2));
                assert_eq!(user.as_deref(), Some("Ada"));
            }
            _ = endpoint.answer(request()) => panic!("nobody answers"),
        }
    });
}

#[test]
fn request_gets_status_503_when_the_transport_is_dropped() {
    run_isolated(async || {
        let (endpoint, transport) = ServerTransport::new();
        drop(transport);
        let response = endpoint.answer(Request::new(Body::empty())).await;
        assert_eq!(response.status(), 503);
    });
}

/// A transport whose endpoint has a listener.
struct Harness {
    address: SocketAddr,
    transport: ServerTransport,
    listening: JoinHandle<()>,
}

impl Harness {
    async fn start() -> Harness {
        Harness::with_endpoint(|endpoint| endpoint).await
    }

    async fn with_endpoint(change: impl FnOnce(Endpoint) -> Endpoint) -> Harness {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (endpoint, transport) = ServerTransport::new();
        let endpoint = change(endpoint);
        let listening = async move {
            let forever = std::future::pending();
            endpoint.listen(listener, forever, Duration::ZERO).await
        };
        Harness {
            address,
            transport,
            listening: tokio::spawn(listening),
        }
    }

    async fn send_request(&self, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.expect("a server");
        let sent = client.write_all(request.as_bytes()).await;
        sent.expect("it listens");
        client
    }

    async fn next_input(&mut self) -> Input<'static> {
        next_input(&mut self.transport).await
    }

    /// Returns the next request, after all of it has arrived.
    async fn next_request(&mut self) -> StreamId {
        loop {
            if let Input::End { stream, .. } = self.next_input().await {
                return stream;
            }
        }
    }

    fn respond(&mut self, stream: StreamId, body: &str, is_whole: bool) {
        let response = response(stream, body, is_whole);
        self.transport.perform(response, body.as_bytes());
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn response(stream: StreamId, body: &str, is_whole: bool) -> Output<Infallible> {
    let head = ResponseHead::new(201).with_fields(Fields::new().and("a", "b"));
    Output::Response {
        epoch: Epoch::FIRST,
        stream,
        head: Box::new(head),
        len: body.len(),
        is_whole,
    }
}

async fn next_input(transport: &mut ServerTransport) -> Input<'static> {
    let polled = poll_fn(|cx| transport.poll_input(cx, true, &mut []));
    let (epoch, input) = tokio::time::timeout(TIMEOUT, polled)
        .await
        .expect("an input");
    assert_eq!(epoch, Epoch::FIRST);
    input
}

async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        read.push(socket.read_u8().await.expect("a byte"));
    }
    String::from_utf8(read).expect("text")
}
