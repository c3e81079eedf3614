//! Tests how exchanges end early: cut by the client in each phase, and by the server in each way.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};

use everlink::client::{Delivery, FailureKind};
use everlink::{Config, FaultKind, Policy};
use everlink_http::{CallError, Connector};
use serde_json::json;

use crate::quiet::{PATIENCE, Quiet};
use crate::site::{Site, Then, stay_silent};
use crate::words::{self, config, link, say, stay_at_work, under_way, whatever_comes};

/// Observes that an exchange reached a phase, and whether the client closed its connection afterwards.
struct Watched {
    reached: Receiver<()>,
    gone: Receiver<bool>,
}

impl Watched {
    fn new() -> (Watched, Sender<()>, Sender<bool>) {
        let ((reach, reached), (leave, gone)) = (mpsc::channel(), mpsc::channel());
        (Watched { reached, gone }, reach, leave)
    }

    /// Waits until that phase is reached, gives the exchange up, and checks that the connection is closed.
    fn cut_by(&self, give_up: impl FnOnce()) {
        self.reached.recv_timeout(PATIENCE).expect("that far");
        give_up();
        let gone = self.gone.recv_timeout(PATIENCE);
        assert!(gone.expect("a connection that is closed"));
    }
}

#[test]
fn a_call_that_is_given_up_before_its_response_closes_the_connection() {
    let _quiet = Quiet::please();
    let (watched, reach, leave) = Watched::new();
    let site = words::server(move |_, _| {
        let _ = reach.send(());
        Ok(Then::Wait(leave.clone()))
    });
    let link = link(&site.url());
    let call = link.call_tool("echo", json!({"say": "hello"}));
    watched.cut_by(|| drop(call));
}

#[test]
fn a_call_that_is_given_up_in_its_response_closes_the_connection() {
    let _quiet = Quiet::please();
    let (leave, gone) = mpsc::channel();
    let site = words::server(stay_at_work(leave));
    let link = link(&site.url());
    let (canceller, waiting) = under_way(&link);
    canceller.cancel("it takes too long");
    assert!(gone.recv_timeout(PATIENCE).expect("an end"));
    assert!(waiting.join().expect("no panic").is_err());
}

#[test]
fn what_is_beside_a_call_that_is_given_up_goes_on() {
    let _quiet = Quiet::please();
    let (watched, reach, leave) = Watched::new();
    let site = words::server(move |request, out| {
        if request.echo() != words::text("wait") {
            return words::reply(request, out);
        }
        let _ = reach.send(());
        Ok(Then::Wait(leave.clone()))
    });
    let link = link(&site.url());
    assert_eq!(say(&link, "before"), "before");
    let call = link.call_tool("echo", json!({"say": "wait"}));
    watched.reached.recv_timeout(PATIENCE).expect("that far");
    assert_eq!(say(&link, "beside"), "beside");
    drop(call);
    assert!(watched.gone.recv_timeout(PATIENCE).expect("an end"));
    assert_eq!(say(&link, "after"), "after");
}

#[test]
fn a_secure_channel_that_is_given_up_while_it_is_set_up_closes_the_connection() {
    let _quiet = Quiet::please();
    let (watched, reach, leave) = Watched::new();
    let site = Site::new(move |mut socket: TcpStream| {
        // The client's first message has arrived, and the client waits for a reply.
        let _ = socket.read(&mut [0]);
        let _ = reach.send(());
        let _ = leave.send(stay_silent(socket));
    });
    let link = link(&format!("https://{}/mcp", site.address()));
    let ready = link.ready();
    watched.cut_by(|| link.shutdown().wait().expect("an end"));
    assert!(ready.wait().expect("an answer").is_err());
}

#[test]
fn what_is_left_is_cut_when_the_last_handle_is_dropped() {
    let _quiet = Quiet::please();
    let (leave, gone) = mpsc::channel();
    let site = words::server(stay_at_work(leave));
    let link = link(&site.url());
    let (_, waiting) = under_way(&link);
    drop(link);
    assert!(gone.recv_timeout(PATIENCE).expect("an end"));
    assert!(waiting.join().expect("no panic").is_err());
}

/// Returns the error of a call with this response. Checks that the next call is answered.
fn response_of(bytes: &'static [u8]) -> CallError {
    let (first, again) = mpsc::channel();
    first.send(()).expect("a channel");
    let again = std::sync::Mutex::new(again);
    let site = words::server(move |request, out| {
        let is_first = again.lock().expect("whole").try_recv().is_ok();
        if !is_first {
            return words::reply(request, out);
        }
        out.write_all(bytes)?;
        Ok(Then::Close)
    });
    let link = link(&site.url());
    let error = link.call_tool("echo", json!({"say": "hello"})).wait();
    assert_eq!(say(&link, "again"), "again");
    error.expect_err("no reply")
}

#[test]
fn a_response_that_breaks_off_is_lost_and_the_link_goes_on() {
    let _quiet = Quiet::please();
    let halves: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"jsonrpc\"",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"jso",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n",
    ];
    for half in halves {
        let CallError::Failed(failure) = response_of(half) else {
            panic!("not settled by the link");
        };
        assert!(matches!(failure.kind, FailureKind::Cut), "{failure:?}");
        assert_eq!(failure.delivery, Delivery::Unknown);
    }
}

#[test]
fn a_connection_that_ends_without_a_response_is_no_contact() {
    let _quiet = Quiet::please();
    for words in [
        &b""[..],
        b"HTTP/1.1 200",
        b"nonsense\r\n\r\n",
        &[b'x'; 100_000],
    ] {
        let CallError::Failed(failure) = response_of(words) else {
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
    let connector = Connector::new(config).without_proxy();
    let link = connector.connect().expect("a thread");
    let not_ready = link
        .ready()
        .wait()
        .expect("an answer")
        .expect_err("no session");
    let ended = not_ready.last_end.expect("a life");
    ended.faults.iter().map(|fault| fault.kind()).collect()
}

#[test]
fn every_reason_for_which_there_is_no_contact_has_its_type() {
    let _quiet = Quiet::please();
    // An address at which nobody listens any more.
    let gone = TcpListener::bind("127.0.0.1:0").expect("an address");
    let nobody = gone.local_addr().expect("an address");
    drop(gone);
    assert_eq!(
        faults_at(&format!("http://{nobody}/mcp")),
        [FaultKind::Refused]
    );
    assert_eq!(
        faults_at("http://name.invalid/mcp"),
        [FaultKind::NameNotFound]
    );

    let plain = Site::new(|mut socket: TcpStream| {
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        stay_silent(socket);
    });
    let secure = format!("https://{}/mcp", plain.address());
    assert_eq!(faults_at(&secure), [FaultKind::Tls]);

    let mute = Site::new(whatever_comes(|_, _| Ok(Then::Close)));
    assert_eq!(faults_at(&mute.url()), [FaultKind::Closed]);

    // Closing a connection with unread bytes makes the system reset it.
    let rude = Site::new(|mut socket: TcpStream| {
        let _ = socket.read(&mut [0]);
    });
    assert_eq!(faults_at(&rude.url()), [FaultKind::Reset]);

    let babbling = Site::new(whatever_comes(|_, out| {
        out.write_all(b"hello, who is there?\r\n\r\n")?;
        Ok(Then::Close)
    }));
    assert_eq!(faults_at(&babbling.url()), [FaultKind::Read]);
}
