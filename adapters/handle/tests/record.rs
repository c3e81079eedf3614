//! Tests that a recorder is called for every step of its machine, in order.

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use everlink::relay::{self, Side};
use everlink::server;
use everlink::{Config, Epoch, Input, Instant, Output, Server};
use everlink_handle::{
    Clock, Guard, Link, NoTransport, Recorder, Service, drive, drive_relay, drive_server,
};
use serde_json::json;

/// A recorder that keeps one line per step.
#[derive(Clone, Default)]
struct LineRecorder(Arc<Mutex<Vec<String>>>);

impl LineRecorder {
    fn push(&self, line: String) {
        self.0.lock().expect("no panic").push(line);
    }

    /// Returns all lines since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// Returns the leading alphanumeric part of the debug text.
fn kind(it: &impl Debug) -> String {
    let text = format!("{it:?}");
    let end = text.find(|letter: char| !letter.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

impl<A: Debug, E: Debug> Recorder<A, E> for LineRecorder {
    fn on_command(&mut self, now: Instant, command: &A) {
        let command = format!("{command:?}");
        let end = command.find([' ', '{']).unwrap_or(command.len());
        self.push(format!("{} asked {}", now.as_nanos(), &command[..end]));
    }

    fn on_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        let (now, epoch) = (now.as_nanos(), epoch.number());
        self.push(format!("{now} heard {side:?} {epoch} {}", kind(input)));
    }

    fn on_poll(&mut self, output: Option<(Side, &Output<E>)>, _bytes: &[u8]) {
        self.push(match output {
            Some((side, Output::Event(event))) => format!("told {side:?} {}", kind(event)),
            Some((side, output)) => format!("polled {side:?} {}", kind(output)),
            None => "polled".to_owned(),
        });
    }

    fn on_timeout(&mut self, now: Instant) {
        self.push(format!("{} timed", now.as_nanos()));
    }
}

fn at(nanos: u64) -> Instant {
    Instant::ZERO + Duration::from_nanos(nanos)
}

#[test]
fn recorder_of_a_link_receives_every_step_in_order() {
    let lines = LineRecorder::default();
    let (link, mut owner) = Link::new(Config::child("record", "1.0"));
    owner.record(lines.clone());
    let mut buf = Vec::new();

    let call = link.call_tool("echo", json!({})).start();
    drop(link.ready());
    assert!(lines.take().is_empty(), "no command runs before `advance`");
    owner.advance(at(1));
    let steps = ["1 asked Call", "1 asked Link(Connect)", "1 timed"];
    assert_eq!(lines.take(), steps);
    let epoch = match owner.poll_output(&mut buf) {
        Some(Output::Open { epoch }) => epoch,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        lines.take(),
        ["told Upstream Opening", "polled Upstream Open"]
    );
    assert!(owner.poll_output(&mut buf).is_none());
    assert_eq!(lines.take(), ["polled"]);

    owner.handle(at(2), epoch, Input::Opened);
    assert_eq!(lines.take(), ["2 heard Upstream 1 Opened"]);
    while owner.poll_output(&mut buf).is_some() {}
    let steps = [
        "told Upstream Handshaking",
        "polled Upstream Write",
        "polled",
    ];
    assert_eq!(lines.take(), steps);

    call.canceller().cancel("enough");
    link.wake();
    owner.advance(at(3));
    let steps = ["3 asked Cancel", "3 asked Link(Wake)", "3 timed"];
    assert_eq!(lines.take(), steps);
    while owner.poll_output(&mut buf).is_some() {}
    assert_eq!(lines.take(), ["told Upstream Done", "polled"]);

    // Reading the counters is not a recorded step.
    drop(link.stats());
    drop(link.shutdown());
    owner.advance(at(4));
    assert_eq!(lines.take(), ["4 asked Link(Shutdown)", "4 timed"]);
}

#[test]
fn recorder_of_a_guard_receives_every_step_of_both_sides() {
    let lines = LineRecorder::default();
    let config = relay::Config::new(Config::child("record", "1.0"), [7; 16]);
    let (guard, mut owner) = Guard::new(config);
    owner.record(lines.clone());
    let mut buf = Vec::new();

    owner.advance(at(1));
    while owner.poll_output(&mut buf).is_some() {}
    let steps = lines.take();
    assert_eq!(steps.first().map(String::as_str), Some("1 timed"));
    assert_eq!(steps.last().map(String::as_str), Some("polled"));

    let noise = &b"open sesame\n"[..];
    owner.handle_downstream(at(2), Input::bytes(noise));
    assert_eq!(lines.take(), ["2 heard Downstream 1 Bytes"]);
    owner.handle_upstream(at(3), Epoch::NONE, Input::bytes(noise));
    assert_eq!(lines.take(), ["3 heard Upstream 0 Bytes"]);
    drop(guard.shutdown());
    owner.advance(at(4));
    assert_eq!(lines.take(), ["4 asked Shutdown", "4 timed"]);
    let mut outputs = 1;
    while owner.poll_output(&mut buf).is_some() {
        outputs += 1;
    }
    let steps = lines.take();
    let events = steps.iter().filter(|step| step.starts_with("told"));
    let polls = steps.iter().filter(|step| step.starts_with("polled"));
    assert_eq!(polls.count(), outputs, "{steps:?}");
    assert!(events.count() > 0, "{steps:?}");
}

#[test]
fn recorder_of_a_server_receives_every_step_in_order() {
    let lines = LineRecorder::default();
    let config = server::Config::new(server::Offer::new("record", "1.0"), [7; 16]);
    let (_service, mut owner) = Service::new(Server::new(config));
    owner.record(lines.clone());
    let mut buf = Vec::new();
    owner.advance(at(1));
    assert_eq!(lines.take(), ["1 timed"]);
    let notification = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/other\"}\n";
    owner.handle(at(2), Input::bytes(&notification[..]));
    assert_eq!(lines.take(), ["2 heard Downstream 1 Bytes"]);
    assert!(owner.poll_output(&mut buf).is_none());
    assert_eq!(lines.take(), ["told Downstream Notified", "polled"]);
}

/// A recorder that keeps all bytes that were read and written.
#[derive(Clone, Default)]
struct ByteRecorder(Arc<Mutex<(Vec<u8>, Vec<u8>)>>);

impl<A, E> Recorder<A, E> for ByteRecorder {
    fn on_command(&mut self, _: Instant, _: &A) {}

    fn on_input(&mut self, _: Instant, _: Side, _: Epoch, input: &Input<'_>) {
        if let Input::Bytes { bytes, .. } = input {
            self.0.lock().expect("no panic").0.extend_from_slice(bytes);
        }
    }

    fn on_poll(&mut self, _: Option<(Side, &Output<E>)>, bytes: &[u8]) {
        self.0.lock().expect("no panic").1.extend_from_slice(bytes);
    }

    fn on_timeout(&mut self, _: Instant) {}
}

#[test]
fn recorder_of_a_server_sees_what_is_read_and_what_is_written() {
    let offer = server::Offer::new("record", "1.0");
    let config = server::Config::new(offer, [7; 16]);
    let (_service, mut owner) = Service::new(Server::new(config));
    let recorder = ByteRecorder::default();
    owner.record(recorder.clone());
    let initialize =
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\
        \"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n";
    owner.handle(at(1), Input::bytes(&initialize[..]));
    owner.advance(at(1));
    let mut written = Vec::new();
    while owner.poll_output(&mut written).is_some() {}
    let (read, recorded) = recorder.0.lock().expect("no panic").clone();
    assert_eq!(read, initialize);
    assert_eq!(recorded, written);
    assert!(!written.is_empty(), "it answers");
}

/// Drivers can be spawned on runtimes with many threads.
#[test]
fn drivers_are_send() {
    fn assert_send(driver: impl Future + Send) {
        drop(driver);
    }
    struct NoClock;
    impl Clock for NoClock {
        fn now(&mut self) -> Instant {
            Instant::ZERO
        }

        fn poll_deadline(&mut self, _: &mut Context<'_>, _: Option<Instant>) -> Poll<()> {
            Poll::Pending
        }
    }
    let (_link, owner) = Link::new(Config::child("record", "1.0"));
    assert_send(drive(owner, NoTransport::default(), NoClock));
    let config = relay::Config::new(Config::child("record", "1.0"), [7; 16]);
    let (_guard, owner) = Guard::new(config);
    assert_send(drive_relay(
        owner,
        NoTransport::default(),
        NoTransport::default(),
        NoClock,
    ));
    let config = server::Config::new(server::Offer::new("record", "1.0"), [7; 16]);
    let (_service, owner) = Service::new(Server::new(config));
    assert_send(drive_server(
        owner,
        NoTransport::default(),
        NoClock,
        |_, _| None,
    ));
}
