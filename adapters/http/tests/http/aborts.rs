//! Tests how exchanges end early: cut by the client in each phase, and by the server in each way.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};

use everlink::client::{Delivery, FailureKind};
use everlink::{Config, FaultKind, Policy};
use everlink_http::{CallError, Connector};
use serde_json::json;

use crate::listener::{Listener, Next, read_until_closed};
use crate::scripted_server::{
    self, call_in_flight, config, echo, link, report_progress_and_wait, serve_script,
};
use crate::serial::{Serial, TIMEOUT};

/// Observes that an exchange reached a phase, and whether the client closed its connection afterwards.
struct WatchedExchange {
    reached: Receiver<()>,
    closed: Receiver<bool>,
}

impl WatchedExchange {
    fn new() -> (WatchedExchange, Sender<()>, Sender<bool>) {
        let ((reached_sender, reached), (closed_sender, closed)) =
            (mpsc::channel(), mpsc::channel());
        (
            WatchedExchange { reached, closed },
            reached_sender,
            closed_sender,
        )
    }

    /// Waits until that phase is reached, gives the exchange up, and checks that the connection is closed.
    fn assert_closed_after(&self, action: impl FnOnce()) {
        self.reached
            .recv_timeout(TIMEOUT)
            .expect("the exchange reached the phase");
        action();
        let closed = self.closed.recv_timeout(TIMEOUT);
        assert!(closed.expect("a connection that is closed"));
    }
}

#[test]
fn call_dropped_before_its_response_closes_the_connection() {
    let _serial = Serial::begin();
    let (exchange, reached_sender, closed_sender) = WatchedExchange::new();
    let listener = scripted_server::server(move |_, _| {
        let _ = reached_sender.send(());
        Ok(Next::Wait(closed_sender.clone()))
    });
    let link = link(&listener.url());
    let call = link.call_tool("echo", json!({"say": "hello"})).start();
    exchange.assert_closed_after(|| drop(call));
}

#[test]
fn call_cancelled_during_its_response_closes_the_connection() {
    let _serial = Serial::begin();
    let (closed_sender, closed) = mpsc::channel();
    let listener = scripted_server::server(report_progress_and_wait(closed_sender));
    let link = link(&listener.url());
    let (canceller, waiting) = call_in_flight(&link);
    canceller.cancel("it takes too long");
    assert!(closed.recv_timeout(TIMEOUT).expect("an end"));
    assert!(waiting.join().expect("no panic").is_err());
}

#[test]
fn dropped_call_does_not_affect_other_calls() {
    let _serial = Serial::begin();
    let (exchange, reached_sender, closed_sender) = WatchedExchange::new();
    let listener = scripted_server::server(move |request, out| {
        if request.echo() != scripted_server::text("wait") {
            return scripted_server::reply(request, out);
        }
        let _ = reached_sender.send(());
        Ok(Next::Wait(closed_sender.clone()))
    });
    let link = link(&listener.url());
    assert_eq!(echo(&link, "before"), "before");
    let call = link.call_tool("echo", json!({"say": "wait"})).start();
    exchange
        .reached
        .recv_timeout(TIMEOUT)
        .expect("the exchange reached the phase");
    assert_eq!(echo(&link, "beside"), "beside");
    drop(call);
    assert!(exchange.closed.recv_timeout(TIMEOUT).expect("an end"));
    assert_eq!(echo(&link, "after"), "after");
}

#[test]
fn shutdown_during_the_tls_handshake_closes_the_connection() {
    let _serial = Serial::begin();
    let (exchange, reached_sender, closed_sender) = WatchedExchange::new();
    let listener = Listener::new(move |mut socket: TcpStream| {
        // The client's first message has arrived, and the client waits for a reply.
        let _ = socket.read(&mut [0]);
        let _ = reached_sender.send(());
        let _ = closed_sender.send(read_until_closed(socket));
    });
    let link = link(&format!("https://{}/mcp", listener.address()));
    let ready = link.ready();
    exchange.assert_closed_after(|| link.shutdown().wait().expect("an end"));
    assert!(ready.wait().is_err());
}

#[test]
fn dropping_the_last_handle_aborts_its_exchanges() {
    let _serial = Serial::begin();
    let (closed_sender, closed) = mpsc::channel();
    let listener = scripted_server::server(report_progress_and_wait(closed_sender));
    let link = link(&listener.url());
    let (_, waiting) = call_in_flight(&link);
    drop(link);
    assert!(closed.recv_timeout(TIMEOUT).expect("an end"));
    assert!(waiting.join().expect("no panic").is_err());
}

/// Returns the error of a call with this response. Checks that the next call is answered.
fn error_for_response(bytes: &'static [u8]) -> CallError {
    // The channel holds one message, which the first call takes.
    let (first, first_call) = mpsc::channel();
    first.send(()).expect("a channel");
    let first_call = std::sync::Mutex::new(first_call);
    let listener = scripted_server::server(move |request, out| {
        let is_first = first_call.lock().expect("whole").try_recv().is_ok();
        if !is_first {
            return scripted_server::reply(request, out);
        }
        out.write_all(bytes)?;
        Ok(Next::Close)
    });
    let link = link(&listener.url());
    let error = link.call_tool("echo", json!({"say": "hello"})).wait();
    assert_eq!(echo(&link, "again"), "again");
    error.expect_err("no reply")
}

#[test]
fn truncated_response_fails_the_call_and_the_link_goes_on() {
    let _serial = Serial::begin();
    let truncated: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"jsonrpc\"",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"jso",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n",
    ];
    for bytes in truncated {
        let CallError::Failed(failure) = error_for_response(bytes) else {
            panic!("not settled by the link");
        };
        assert!(matches!(failure.kind, FailureKind::Cut), "{failure:?}");
        assert_eq!(failure.delivery, Delivery::Unknown);
    }
}

#[test]
fn connection_closed_without_a_response_is_no_contact() {
    let _serial = Serial::begin();
    for response in [
        &b""[..],
        b"HTTP/1.1 200",
        b"nonsense\r\n\r\n",
        &[b'x'; 100_000],
    ] {
        let CallError::Failed(failure) = error_for_response(response) else {
            panic!("not settled by the link");
        };
        assert!(
            matches!(failure.kind, FailureKind::NoContact),
            "{failure:?}"
        );
        assert_eq!(failure.delivery, Delivery::Unknown);
    }
}

/// Returns the faults for which the server at this URL cannot be reached.
fn faults_at(url: &str) -> Vec<FaultKind> {
    let mut config: Config = config(url);
    config.policy = Policy::one_shot();
    let connector = Connector::new().without_proxy();
    let link = connector.connect(config).expect("a thread");
    let not_ready = link.ready().wait().expect_err("no session");
    let ended = not_ready.last_end.expect("an ended epoch");
    ended.faults.iter().map(|fault| fault.kind()).collect()
}

#[test]
fn each_cause_of_no_contact_has_its_fault_kind() {
    let _serial = Serial::begin();
    // An address without a listener.
    let free = TcpListener::bind("127.0.0.1:0").expect("an address");
    let unused = free.local_addr().expect("an address");
    drop(free);
    assert_eq!(
        faults_at(&format!("http://{unused}/mcp")),
        [FaultKind::Refused]
    );
    assert_eq!(
        faults_at("http://name.invalid/mcp"),
        [FaultKind::NameNotFound]
    );

    let plain = Listener::new(|mut socket: TcpStream| {
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        read_until_closed(socket);
    });
    let secure = format!("https://{}/mcp", plain.address());
    assert_eq!(faults_at(&secure), [FaultKind::Tls]);

    let closing = Listener::new(serve_script(|_, _| Ok(Next::Close)));
    assert_eq!(faults_at(&closing.url()), [FaultKind::Closed]);

    // Closing a connection with unread bytes makes the system reset it.
    let resetting = Listener::new(|mut socket: TcpStream| {
        let _ = socket.read(&mut [0]);
    });
    assert_eq!(faults_at(&resetting.url()), [FaultKind::Reset]);

    let talking = Listener::new(serve_script(|_, out| {
        out.write_all(b"hello, who is there?\r\n\r\n")?;
        Ok(Next::Close)
    }));
    assert_eq!(faults_at(&talking.url()), [FaultKind::Read]);
}
