//! Tests that a recorder is called for every step of its machine, in order.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everlink::relay::{self, Side};
use everlink::{Config, Epoch, Input, Instant, Output};
use everlink_handle::{Guard, Link, Recorder};
use serde_json::json;

/// A recorder that keeps one line per step.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, words: String) {
        self.0.lock().expect("no panic").push(words);
    }

    /// Returns all lines since the last call.
    fn read(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// Returns the leading alphanumeric part of the debug text.
fn kind(it: &impl Debug) -> String {
    let text = format!("{it:?}");
    let end = text.find(|letter: char| !letter.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

impl<A: Debug, E: Debug> Recorder<A, E> for Diary {
    fn asked(&mut self, now: Instant, asked: &A) {
        let asked = format!("{asked:?}");
        let end = asked.find([' ', '{']).unwrap_or(asked.len());
        self.note(format!("{} asked {}", now.as_nanos(), &asked[..end]));
    }

    fn heard(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        let (now, epoch) = (now.as_nanos(), epoch.number());
        self.note(format!("{now} heard {side:?} {epoch} {}", kind(input)));
    }

    fn polled(&mut self, output: Option<(Side, &Output<E>)>, _bytes: &[u8]) {
        self.note(match output {
            Some((side, Output::Event(event))) => format!("told {side:?} {}", kind(event)),
            Some((side, output)) => format!("polled {side:?} {}", kind(output)),
            None => "polled".to_owned(),
        });
    }

    fn timed(&mut self, now: Instant) {
        self.note(format!("{} timed", now.as_nanos()));
    }
}

fn at(nanos: u64) -> Instant {
    Instant::ZERO + Duration::from_nanos(nanos)
}

#[test]
fn the_recorder_of_a_link_is_told_every_step_in_its_order() {
    let diary = Diary::default();
    let (link, mut owner) = Link::new(Config::child("record", "1.0"));
    owner.record(diary.clone());
    let mut buf = Vec::new();

    let call = link.call_tool("echo", json!({}));
    drop(link.ready());
    assert!(
        diary.read().is_empty(),
        "nothing is done before it is served"
    );
    owner.serve(at(1));
    let steps = ["1 asked Call", "1 asked Upkeep(Connect)", "1 timed"];
    assert_eq!(diary.read(), steps);
    let epoch = match owner.poll_output(&mut buf) {
        Some(Output::Open { epoch }) => epoch,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        diary.read(),
        ["told Upstream Opening", "polled Upstream Open"]
    );
    assert!(owner.poll_output(&mut buf).is_none());
    assert_eq!(diary.read(), ["polled"]);

    owner.handle(at(2), epoch, Input::Opened);
    assert_eq!(diary.read(), ["2 heard Upstream 1 Opened"]);
    while owner.poll_output(&mut buf).is_some() {}
    let steps = [
        "told Upstream Handshaking",
        "polled Upstream Write",
        "polled",
    ];
    assert_eq!(diary.read(), steps);

    call.canceller().cancel("enough");
    link.wake();
    owner.serve(at(3));
    let steps = ["3 asked Cancel", "3 asked Upkeep(Wake)", "3 timed"];
    assert_eq!(diary.read(), steps);
    while owner.poll_output(&mut buf).is_some() {}
    assert_eq!(diary.read(), ["told Upstream Done", "polled"]);

    // Reading the counters is not a recorded step.
    drop(link.stats());
    drop(link.shutdown());
    owner.serve(at(4));
    assert_eq!(diary.read(), ["4 asked Upkeep(Shutdown)", "4 timed"]);
}

#[test]
fn the_recorder_of_a_guard_is_told_every_step_of_both_sides() {
    let diary = Diary::default();
    let config = relay::Config::new(Config::child("record", "1.0"), [7; 16]);
    let (guard, mut owner) = Guard::new(config);
    owner.record(diary.clone());
    let mut buf = Vec::new();

    owner.serve(at(1));
    while owner.poll_output(&mut buf).is_some() {}
    let steps = diary.read();
    assert_eq!(steps.first().map(String::as_str), Some("1 timed"));
    assert_eq!(steps.last().map(String::as_str), Some("polled"));

    let noise = &b"open sesame\n"[..];
    owner.handle_downstream(at(2), Input::bytes(noise));
    assert_eq!(diary.read(), ["2 heard Downstream 1 Bytes"]);
    owner.handle_upstream(at(3), Epoch::NONE, Input::bytes(noise));
    assert_eq!(diary.read(), ["3 heard Upstream 0 Bytes"]);
    drop(guard.shutdown());
    owner.serve(at(4));
    assert_eq!(diary.read(), ["4 asked Shutdown", "4 timed"]);
    let mut outputs = 1;
    while owner.poll_output(&mut buf).is_some() {
        outputs += 1;
    }
    let steps = diary.read();
    let told = steps.iter().filter(|step| step.starts_with("told"));
    let polled = steps.iter().filter(|step| step.starts_with("polled"));
    assert_eq!(polled.count(), outputs, "{steps:?}");
    assert!(told.count() > 0, "{steps:?}");
}
