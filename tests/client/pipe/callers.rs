//! One owner and many callers: commands from any thread, in any state, and ids that never collide. Rows F-095 to F-100
//! of the failures.

use std::sync::mpsc;
use std::thread;

use everlink::client::{CallOptions, Client, Delivery, Event, FailureKind, Misuse, State};
use everlink::{Config, Dialect, Epoch, ExitStatus, FaultKind, Input, Instant, Output};
use serde_json::json;

use crate::client_pipe::{
    self, Act, Command, Harness, Peer, ask, config, dies, error, reply, seconds,
};
use crate::eras::{BOTH_ERAS, config_with_asks, legacy, ready};

/// A command that a caller on another thread sends to the owner.
type LinkCommand = Box<dyn FnOnce(&mut Client, Instant) + Send>;

#[test]
fn f_095_commands_from_eight_threads_close_the_link_exactly_once() {
    let mut harness = ready(config(), legacy);
    let seen = harness.link().epoch();
    let (sender, receiver) = mpsc::channel::<LinkCommand>();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let sender = sender.clone();
            thread::spawn(move || {
                let commands: [LinkCommand; 4] = [
                    Box::new(|link, now| link.connect(now)),
                    Box::new(move |link, now| link.reconnect(now, seen, "it looks dead")),
                    Box::new(|link, now| link.wake(now)),
                    Box::new(|link, now| link.shutdown(now)),
                ];
                for command in commands {
                    sender.send(command).expect("the owner receives commands");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().expect("a caller thread does not panic");
    }
    drop(sender);
    // The commands arrive in any order.
    for command in receiver {
        harness.with_link(command);
    }
    harness.until_state(State::Closed);
    let closed = |event: &Event| matches!(event, Event::Closed).then_some(());
    assert_eq!(harness.pick_events(closed).len(), 1);
    for epoch in 1..=harness.epoch_number() {
        let closes = |command: &&Command| **command == Command::CloseWrite(epoch);
        let commands = harness.commands();
        assert!(commands.iter().filter(closes).count() <= 1, "{commands:?}");
    }
}

#[test]
fn f_096_link_moved_to_another_thread_keeps_its_state() {
    let mut config: Config = config();
    config.dialect = Dialect::Legacy;
    let mut link = Client::new(config);
    let now = Instant::ZERO;
    let first_owner = thread::spawn(move || {
        link.connect(now);
        let mut buf = Vec::new();
        while let Some(output) = link.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => link.handle(now, epoch, Input::Opened),
                Output::Write { epoch, .. }
                    if buf.ends_with(b"\n") && link.state() != State::Ready =>
                {
                    let agreed = br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
                    let line = [&agreed[..], b"\n"].concat();
                    link.handle(now, epoch, Input::bytes(line));
                }
                _ => {}
            }
        }
        link
    });
    let mut link = first_owner.join().expect("the first owner is done");
    assert_eq!(link.state(), State::Ready);
    // The first owner and its transport are gone. The state needs no reset by hand.
    let epoch = link.epoch();
    link.handle(now, epoch, Input::end(vec![FaultKind::Aborted.into()]));
    assert_eq!(link.state(), State::Closing);
    assert!(link.session().is_none());
    link.handle(now, epoch, Input::exited(ExitStatus::Unknown));
    assert_eq!(link.state(), State::Waiting);
}

/// A link in each state that can last.
fn every_state() -> Vec<(State, Harness)> {
    let reaching = |state: State, server: fn(u64) -> Peer| {
        let mut harness = Harness::new(config()).served_by(server);
        harness.connect();
        harness.until_state(state);
        harness
    };
    let mut closing = ready(config(), || legacy().ignores_eof());
    closing.reconnect("to see it close");
    let mut draining = ready(config(), || legacy().ignores("tools/call"));
    draining.call_tool("in flight");
    draining.reconnect("to see it drain");
    vec![
        (
            State::Idle,
            Harness::new(config()).served_by(|_| Peer::silent().on_open(Vec::new())),
        ),
        (
            State::Opening,
            reaching(State::Opening, |_| Peer::silent().on_open(Vec::new())),
        ),
        (
            State::Handshaking,
            reaching(State::Handshaking, |_| Peer::silent()),
        ),
        (
            State::Ready,
            reaching(State::Ready, |_| legacy().ignores("tools/call")),
        ),
        (State::Closing, closing),
        (State::Draining, draining),
        (
            State::Waiting,
            reaching(State::Waiting, |_| unreachable_server()),
        ),
        (
            State::Parked,
            reaching(State::Parked, |epoch| match epoch {
                1..=6 => unreachable_server(),
                _ => Peer::silent().on_open(Vec::new()),
            }),
        ),
    ]
}

fn unreachable_server() -> Peer {
    Peer::silent().on_open(vec![Act::OpenFailed(vec![FaultKind::Refused.into()])])
}

#[test]
fn f_097_a_call_can_be_cancelled_in_every_state() {
    for (state, mut harness) in every_state() {
        assert_eq!(harness.state(), state);
        if state == State::Parked {
            // Directly after an attempt, a call to a parked link fails at once.
            harness.advance(seconds(5));
        }
        let call = harness.call_tool("unwanted");
        harness.cancel(call, "never mind");
        let failure = harness.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Cancelled { .. }),
            "{state}: {failure}"
        );
        assert_eq!(failure.delivery == Delivery::Unknown, state == State::Ready);
        harness.finish();
    }
}

#[test]
fn f_097_shutdown_in_every_state_closes_within_7_s_and_releases_the_transport() {
    for (state, mut harness) in every_state() {
        assert_eq!(harness.state(), state);
        let began = harness.now();
        harness.shutdown();
        harness.until_state(State::Closed);
        let took = harness.now().since(began);
        assert!(took <= seconds(7), "{state} took {took:?}");
        // Every `Open` has its `Release`, and every call its outcome.
        harness.finish();
    }
}

#[test]
fn f_098_cancelled_calls_do_not_count_as_failures_of_the_link() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        for _ in 0..100 {
            let call = harness.call_tool("unwanted");
            harness.cancel(call, "never mind");
        }
        assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
        assert_eq!(harness.link().failures(), 0);
        harness.finish();
    }
}

#[test]
fn f_099_ask_that_reuses_the_id_of_an_open_ask_is_noise() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask("q", "roots/list", json!({})));
    harness.perform(ask("q", "sampling/createMessage", json!({"messages": []})));
    assert_eq!(harness.asks().len(), 1);
    assert_eq!(harness.link().stats().noise, 1);
    harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
    let answers = harness.ask_replies();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["result"], json!({"roots": []}));
    // A number and a string are different ids, and an id is free again after the reply.
    harness.perform(ask(1, "roots/list", json!({})));
    harness.perform(ask("1", "roots/list", json!({})));
    harness.perform(ask("q", "roots/list", json!({})));
    assert_eq!(harness.asks().len(), 4);
    harness.finish();
}

#[test]
fn f_099_reply_with_an_id_of_another_epoch_settles_no_call() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let lost = harness.call_tool("of the first epoch");
        let request = harness.last_message("tools/call");
        harness.perform_all(dies(ExitStatus::Code(1)));
        harness.until_ready();
        let call = harness.call_tool("of the second epoch");
        // The second server replies with an id that only the first one received.
        harness.perform(reply(&request, json!({"content": ["not yours"]})));
        harness.perform(error(&request, -1, "not yours"));
        assert!(!harness.is_done(call));
        assert_eq!(harness.link().stats().late_replies, 2);
        assert_eq!(harness.failure(lost).delivery, Delivery::Unknown);
        // The first server, which is gone, replies with an id of the second.
        let request = harness.last_message("tools/call");
        let line = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}});
        let line = format!("{line}\n").into_bytes();
        let first = ended_epoch(&harness, 1);
        harness.feed_input(first, Input::bytes(line));
        harness.pump();
        assert!(!harness.is_done(call));
        assert_eq!(harness.link().stats().stale_inputs, 1);
        harness.finish();
    }
}

/// The epoch with this number, which has ended.
fn ended_epoch(harness: &Harness, epoch: u64) -> Epoch {
    let ended = harness.pick_events(|event| match event {
        Event::Ended(ended) if ended.epoch.number() == epoch => Some(ended.epoch),
        _ => None,
    });
    ended[0]
}

#[test]
fn f_100_request_ids_only_grow_across_epochs() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        for _ in 0..4 {
            for _ in 0..20 {
                harness.call_tool("slow");
            }
            harness.list(everlink::List::Tools);
            harness.advance(seconds(31));
            harness.perform_all(dies(ExitStatus::Code(1)));
            harness.until_ready();
        }
        let lines = (1..=harness.epoch_number()).flat_map(|epoch| harness.lines_of(epoch));
        let ids: Vec<i64> = lines.filter_map(|line| line["id"].as_i64()).collect();
        assert!(ids.len() > 80);
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        harness.finish();
    }
}

/// The error text says which function does what the caller wants.
#[test]
fn method_that_the_link_itself_sends_is_refused_with_the_function_to_call_instead() {
    let mut harness = ready(config(), legacy);
    for (method, function) in [
        ("initialize", "connect"),
        ("ping", "wake"),
        ("server/discover", "session"),
        ("resources/subscribe", "watch"),
        ("logging/setLevel", "watch"),
    ] {
        let refused = harness.try_call(method, json!({}), CallOptions::new());
        let Err(Misuse::OwnedByLink { instead, .. }) = refused else {
            panic!("{method} was not refused: {refused:?}");
        };
        assert_eq!(instead, function, "{method}");
    }
    for (method, function) in [
        ("notifications/initialized", "connect"),
        ("notifications/cancelled", "cancel"),
    ] {
        let refused = harness.with_link(|link, now| link.notify(now, method, None));
        let Err(Misuse::OwnedByLink { instead, .. }) = refused else {
            panic!("{method} was not refused: {refused:?}");
        };
        assert_eq!(instead, function, "{method}");
    }
    harness.finish();
}

#[test]
fn call_of_exactly_the_message_limit_is_accepted() {
    let mut harness = ready(config(), legacy);
    let limit = harness.link().config().limits.message_bytes;
    let empty = "tools/call".len() + r#"{"name":""}"#.len();
    let name = "x".repeat(limit - empty);
    let call = |harness: &mut Harness, name: &str| {
        harness.try_call("tools/call", json!({"name": name}), CallOptions::new())
    };
    let refused = call(&mut harness, &(name.clone() + "x"));
    assert_eq!(refused, Err(Misuse::TooLarge { bytes: limit + 1 }));
    assert!(call(&mut harness, &name).is_ok());
    harness.finish();
}

#[test]
fn queue_is_full_when_the_next_call_exceeds_its_bytes() {
    let mut config = config();
    config.limits.queued_bytes = 1_000;
    // Nothing is sent before the transport is open.
    let mut harness = Harness::new(config).served_by(|_| Peer::silent().on_open(Vec::new()));
    let empty = "tools/call".len() + r#"{"name":""}"#.len();
    let call = |harness: &mut Harness, bytes: usize| {
        let name = "x".repeat(bytes - empty);
        harness.try_call("tools/call", json!({"name": name}), CallOptions::new())
    };
    assert!(call(&mut harness, 600).is_ok());
    let refused = call(&mut harness, 401);
    let full = Misuse::QueueFull {
        calls: 1,
        bytes: 600,
    };
    assert_eq!(refused, Err(full));
    assert!(call(&mut harness, 400).is_ok(), "exactly the limit");
    harness.finish();
    // An empty queue takes a message of any size.
    let mut config = client_pipe::config();
    config.limits.queued_bytes = 1_000;
    let mut harness = Harness::new(config).served_by(|_| Peer::silent().on_open(Vec::new()));
    assert!(call(&mut harness, 1_500).is_ok());
    harness.finish();
}

#[test]
fn settled_calls_and_their_latency_are_counted() {
    let mut harness = ready(config(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("slow");
    harness.advance(seconds(3));
    assert_eq!(harness.link().stats().settled, 0);
    let request = harness.last_message("tools/call");
    harness.perform(reply(&request, json!({"content": []})));
    assert!(harness.is_done(call));
    let stats = harness.link().stats();
    assert_eq!((stats.calls, stats.settled), (1, 1));
    assert_eq!(stats.latency.sum_nanos, seconds(3).as_nanos() as u64);
    assert_eq!(stats.latency.counts.iter().sum::<u32>(), 1);
    harness.finish();
}
