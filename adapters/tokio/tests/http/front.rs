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
use everlink::{Epoch, Input, Output, StreamId};
use everlink_tokio::Hands;
use everlink_tokio::http::{Front, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::stage::{PATIENCE, alone};

const ASK: &str = "POST /mcp?a=b HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\n\r\n{}";

#[test]
fn a_request_is_told_from_its_beginning_to_its_end() {
    alone(async || {
        let mut house = House::open().await;
        let _client = house.enter(ASK).await;
        let Input::Request { stream, head } = house.hear().await else {
            panic!("a request");
        };
        assert_eq!((head.verb, &*head.target), (Verb::Post, "/mcp?a=b"));
        assert_eq!((head.fields.get("host"), head.user), (Some("shop"), None));
        let Input::Bytes { bytes, stream: of } = house.hear().await else {
            panic!("a body");
        };
        assert_eq!((&*bytes, of), (&b"{}"[..], stream));
        assert!(
            matches!(house.hear().await, Input::End { stream: of, faults } if of == stream && faults.is_empty())
        );
    });
}

#[test]
fn a_whole_response_has_its_length() {
    alone(async || {
        let mut house = House::open().await;
        let mut client = house.enter(ASK).await;
        let stream = house.asked().await;
        house.respond(stream, "whole", true);
        assert!(matches!(house.hear().await, Input::Sent { stream: of, len: 5 } if of == stream));
        let response = read_until(&mut client, "whole").await;
        assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
        assert!(response.contains("\r\na: b\r\n"), "{response}");
        assert!(response.contains("\r\ncontent-length: 5\r\n"), "{response}");
        // A client that disconnects after the complete response is not reported: the next input is that of the next client.
        drop(client);
        let _next = house.enter(ASK).await;
        assert!(matches!(house.hear().await, Input::Request { .. }));
    });
}

#[test]
fn a_stream_is_written_piece_by_piece() {
    alone(async || {
        let (mut house, epoch) = (House::open().await, Epoch::FIRST);
        let mut client = house.enter(ASK).await;
        let stream = house.asked().await;
        house.respond(stream, "one", false);
        assert!(matches!(house.hear().await, Input::Sent { len: 3, .. }));
        // The first piece is sent before anything else is written.
        read_until(&mut client, "one\r\n").await;
        let len = "three".len();
        house
            .front
            .perform(Output::Write { epoch, stream, len }, b"three");
        assert!(matches!(house.hear().await, Input::Sent { len: 5, .. }));
        read_until(&mut client, "5\r\nthree\r\n").await;
        house.front.perform(Output::Finish { epoch, stream }, b"");
        read_until(&mut client, "0\r\n\r\n").await;
        drop(client);
        let _next = house.enter(ASK).await;
        assert!(matches!(house.hear().await, Input::Request { .. }));
    });
}

#[test]
fn a_stream_begins_though_there_is_always_something_else_to_hear() {
    alone(async || {
        let (gate, mut front) = Front::new();
        let mut asked = pin!(gate.answer(Request::new(Body::empty())));
        // The response must begin before these run out.
        let mut others: Vec<_> = (0..50)
            .map(|_| Box::pin(gate.answer(Request::new(Body::empty()))))
            .collect();
        poll_fn(|cx| {
            let mut others = others.iter_mut();
            let mut has_begun = false;
            while asked.as_mut().poll(cx).is_pending() {
                // Send another request each time that no input is left.
                let other = others
                    .next()
                    .expect("the stream begins before all have come");
                for _ in 0..2 {
                    assert!(other.as_mut().poll(cx).is_pending(), "nobody answers");
                }
                while let Poll::Ready((_, input)) = front.poll_heard(cx, true, &mut []) {
                    if let Input::Request { stream, .. } = input {
                        if !has_begun {
                            front.perform(response(stream, "one", false), b"one");
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
fn a_stream_that_is_whole_at_once_is_one_piece() {
    alone(async || {
        let (mut house, epoch) = (House::open().await, Epoch::FIRST);
        let mut client = house.enter(ASK).await;
        let stream = house.asked().await;
        house.respond(stream, "one", false);
        let len = "three".len();
        let write = Output::Write { epoch, stream, len };
        house.front.perform(write, b"three");
        house.front.perform(Output::Finish { epoch, stream }, b"");
        assert!(matches!(house.hear().await, Input::Sent { len: 8, .. }));
        let said = read_until(&mut client, "onethree").await;
        assert!(said.contains("content-length: 8\r\n"), "{said}");
    });
}

#[test]
fn nobody_is_woken_for_a_stream_that_was_whole_at_once() {
    alone(async || {
        let ((gate, mut front), epoch) = (Front::new(), Epoch::FIRST);
        let mut asked = pin!(gate.answer(Request::new(Body::empty())));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = &mut Context::from_waker(&waker);
        let nobody = &mut Context::from_waker(Waker::noop());
        let _unread = loop {
            if let Poll::Ready(answer) = asked.as_mut().poll(nobody) {
                break answer;
            }
            while let Poll::Ready((_, input)) = front.poll_heard(cx, true, &mut []) {
                if let Input::Request { stream, .. } = input {
                    front.perform(response(stream, "one", false), b"one");
                    front.perform(Output::Finish { epoch, stream }, b"");
                }
            }
        };
        wakes.0.store(0, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(front.poll_heard(cx, true, &mut []).is_pending());
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_stream_is_waited_for_as_long_as_if_none_had_been_before() {
    alone(async || {
        assert_eq!(looks(false), looks(true));
    });
}

/// Returns how often no input is left before an unfinished response is sent. If `another` is true, a response that was held and then finished comes
/// first.
fn looks(another: bool) -> usize {
    let ((gate, mut front), epoch) = (Front::new(), Epoch::FIRST);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut looks = 0;
    for is_last in [!another, true] {
        let mut asked = pin!(gate.answer(Request::new(Body::empty())));
        let stream = loop {
            assert!(asked.as_mut().poll(cx).is_pending(), "nobody answers");
            if let Poll::Ready((_, Input::Request { stream, .. })) =
                front.poll_heard(cx, true, &mut [])
            {
                break stream;
            }
        };
        front.perform(response(stream, "one", false), b"one");
        if is_last {
            while asked.as_mut().poll(cx).is_pending() {
                while front.poll_heard(cx, true, &mut []).is_ready() {}
                looks += 1;
            }
            break;
        }
        while front.poll_heard(cx, true, &mut []).is_ready() {}
        front.perform(Output::Finish { epoch, stream }, b"");
        assert!(asked.as_mut().poll(cx).is_ready(), "it is whole");
        while front.poll_heard(cx, true, &mut []).is_ready() {}
    }
    looks
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_is_cut_before_it_was_told_is_cut_all_the_same() {
    alone(async || {
        let (mut house, epoch) = (House::open().await, Epoch::FIRST);
        let mut client = house.enter(ASK).await;
        let stream = house.asked().await;
        house.respond(stream, "one", false);
        house.front.perform(Output::Abort { epoch, stream }, b"");
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said).await;
        let said = String::from_utf8_lossy(&said);
        // The connection is closed, or the response begins and does not end; nothing else is sent instead.
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 201"),
            "{said}"
        );
        assert!(!said.ends_with("0\r\n\r\n"), "{said}");
    });
}

#[test]
fn what_is_aborted_is_cut() {
    alone(async || {
        let (mut house, epoch) = (House::open().await, Epoch::FIRST);
        let mut client = house.enter(ASK).await;
        let stream = house.asked().await;
        house.respond(stream, "one", false);
        assert!(matches!(house.hear().await, Input::Sent { len: 3, .. }));
        read_until(&mut client, "one\r\n").await;
        house.front.perform(Output::Abort { epoch, stream }, b"");
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    });
}

#[test]
fn a_client_that_goes_is_told_of_wherever_it_stood() {
    alone(async || {
        let mut house = House::open().await;
        // Before its response began, and after.
        for has_begun in [false, true] {
            let mut client = house.enter(ASK).await;
            let stream = house.asked().await;
            if has_begun {
                house.respond(stream, "one", false);
                assert!(matches!(house.hear().await, Input::Sent { .. }));
                read_until(&mut client, "one\r\n").await;
            }
            drop(client);
            assert!(
                matches!(house.hear().await, Input::WriteFailed { stream: of, .. } if of == stream)
            );
        }
    });
}

#[test]
fn who_went_before_it_was_seen_is_not_announced() {
    alone(async || {
        let (gate, mut front) = Front::new();
        let request = || {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(User("Ada".to_owned()));
            request
        };
        tokio::select! {
            biased;
            _ = gate.answer(request()) => panic!("nobody answers"),
            () = std::future::ready(()) => {}
        }
        assert!(matches!(hear(&mut front).await, Input::WriteFailed { .. }));
        let announced = async {
            loop {
                if let Input::Request { stream, head } = hear(&mut front).await {
                    return (stream, head.user);
                }
            }
        };
        tokio::select! {
            (stream, user) = announced => {
                assert_eq!(stream, StreamId::new(2));
                assert_eq!(user.as_deref(), Some("Ada"));
            }
            _ = gate.answer(request()) => panic!("nobody answers"),
        }
    });
}

#[test]
fn where_nobody_answers_any_more_the_service_is_unavailable() {
    alone(async || {
        let (gate, front) = Front::new();
        drop(front);
        let response = gate.answer(Request::new(Body::empty())).await;
        assert_eq!(response.status(), 503);
    });
}

/// A front behind a gate with a listener.
struct House {
    address: SocketAddr,
    front: Front,
    listening: JoinHandle<()>,
}

impl House {
    async fn open() -> House {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (gate, front) = Front::new();
        let listening = async move {
            let forever = std::future::pending();
            gate.listen(listener, forever, Duration::ZERO).await
        };
        House {
            address,
            front,
            listening: tokio::spawn(listening),
        }
    }

    async fn enter(&self, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.expect("a server");
        let sent = client.write_all(request.as_bytes()).await;
        sent.expect("it listens");
        client
    }

    async fn hear(&mut self) -> Input<'static> {
        hear(&mut self.front).await
    }

    /// Returns the next request, after all of it has arrived.
    async fn asked(&mut self) -> StreamId {
        loop {
            if let Input::End { stream, .. } = self.hear().await {
                return stream;
            }
        }
    }

    fn respond(&mut self, stream: StreamId, body: &str, is_whole: bool) {
        let response = response(stream, body, is_whole);
        self.front.perform(response, body.as_bytes());
    }
}

impl Drop for House {
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

async fn hear(front: &mut Front) -> Input<'static> {
    let heard = poll_fn(|cx| front.poll_heard(cx, true, &mut []));
    let (epoch, input) = tokio::time::timeout(PATIENCE, heard).await.expect("a word");
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
