//! One owner and many callers: verbs from any thread, in any state, and ids that never collide. Rows F-095 to F-100
//! of the failures.

use std::sync::mpsc;
use std::thread;

use everlink::client::{Client, Delivery, Event, FailureKind, State};
use everlink::{Config, Dialect, Epoch, ExitStatus, FaultKind, Input, Instant, Output};
use serde_json::json;

use crate::client_pipe::{Act, Command, Peer, World, ask, config, dies, error, reply, seconds};
use crate::eras::{BOTH, answering, legacy, ready};

/// A verb that a caller on another thread sends to the owner.
type Wish = Box<dyn FnOnce(&mut Client, Instant) + Send>;

#[test]
fn f_095_callers_elsewhere_send_their_wishes_to_the_one_owner() {
    let mut world = ready(config(), legacy);
    let seen = world.link().epoch();
    let (post, inbox) = mpsc::channel::<Wish>();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let post = post.clone();
            thread::spawn(move || {
                let wishes: [Wish; 4] = [
                    Box::new(|link, now| link.connect(now)),
                    Box::new(move |link, now| link.reconnect(now, seen, "it looks dead")),
                    Box::new(|link, now| link.wake(now)),
                    Box::new(|link, now| link.shutdown(now)),
                ];
                for wish in wishes {
                    post.send(wish).expect("the owner listens");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().expect("a caller only posts");
    }
    drop(post);
    // In whatever order they arrive.
    for wish in inbox {
        world.verb(wish);
    }
    world.until_state(State::Closed);
    let closed = |event: &Event| matches!(event, Event::Closed).then_some(());
    assert_eq!(world.picked(closed).len(), 1);
    for life in 1..=world.life() {
        let closes = |command: &&Command| **command == Command::CloseWrite(life);
        let commands = world.commands();
        assert!(commands.iter().filter(closes).count() <= 1, "{commands:?}");
    }
}

#[test]
fn f_096_the_truth_is_in_the_machine_and_moves_with_it() {
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
fn every_state() -> Vec<(State, World)> {
    let reaching = |state: State, server: fn(u64) -> Peer| {
        let mut world = World::new(config()).served_by(server);
        world.connect();
        world.until_state(state);
        world
    };
    let mut closing = ready(config(), || legacy().ignores_eof());
    closing.reconnect("to see it close");
    let mut draining = ready(config(), || legacy().ignores("tools/call"));
    draining.tool("in flight");
    draining.reconnect("to see it drain");
    vec![
        (
            State::Idle,
            World::new(config()).served_by(|_| Peer::silent().opens_with(Vec::new())),
        ),
        (
            State::Opening,
            reaching(State::Opening, |_| Peer::silent().opens_with(Vec::new())),
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
            reaching(State::Parked, |life| match life {
                1..=6 => unreachable_server(),
                _ => Peer::silent().opens_with(Vec::new()),
            }),
        ),
    ]
}

fn unreachable_server() -> Peer {
    Peer::silent().opens_with(vec![Act::OpenFailed(vec![FaultKind::Refused.into()])])
}

#[test]
fn f_097_a_call_can_be_cancelled_in_every_state() {
    for (state, mut world) in every_state() {
        assert_eq!(world.state(), state);
        if state == State::Parked {
            // Directly after an attempt, a call to a parked link fails at once.
            world.pass(seconds(5));
        }
        let call = world.tool("unwanted");
        world.cancel(call, "never mind");
        let failure = world.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Cancelled { .. }),
            "{state}: {failure}"
        );
        assert_eq!(failure.delivery == Delivery::Unknown, state == State::Ready);
        world.finish();
    }
}

#[test]
fn f_097_a_shutdown_works_in_every_state_and_leaks_nothing() {
    for (state, mut world) in every_state() {
        assert_eq!(world.state(), state);
        let began = world.now();
        world.shutdown();
        world.until_state(State::Closed);
        let took = world.now().since(began);
        assert!(took <= seconds(7), "{state} took {took:?}");
        // Every `Open` has its `Release`, and every call its outcome.
        world.finish();
    }
}

#[test]
fn f_098_giving_up_on_calls_is_no_failure_of_the_link() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        for _ in 0..100 {
            let call = world.tool("unwanted");
            world.cancel(call, "never mind");
        }
        assert_eq!((world.state(), world.life()), (State::Ready, 1));
        assert_eq!(world.link().failures(), 0);
        world.finish();
    }
}

#[test]
fn f_099_a_question_with_the_id_of_an_open_one_does_not_take_its_place() {
    let mut world = ready(answering(), legacy);
    world.peer(ask("q", "roots/list", json!({})));
    world.peer(ask("q", "sampling/createMessage", json!({"messages": []})));
    assert_eq!(world.asks().len(), 1);
    assert_eq!(world.link().stats().noise, 1);
    world.answer(world.asks()[0], Ok(json!({"roots": []})));
    let answers = world.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["result"], json!({"roots": []}));
    // A number and a string are different ids, and an id is free again after the reply.
    world.peer(ask(1, "roots/list", json!({})));
    world.peer(ask("1", "roots/list", json!({})));
    world.peer(ask("q", "roots/list", json!({})));
    assert_eq!(world.asks().len(), 4);
    world.finish();
}

#[test]
fn f_099_what_one_life_owes_is_not_paid_by_the_next() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let lost = world.tool("of the first life");
        let request = world.last("tools/call");
        world.peer_all(dies(ExitStatus::Code(1)));
        world.until_ready();
        let call = world.tool("of the second life");
        // The second server replies with an id that only the first one received.
        world.peer(reply(&request, json!({"content": ["not yours"]})));
        world.peer(error(&request, -1, "not yours"));
        assert!(!world.is_done(call));
        assert_eq!(world.link().stats().late_replies, 2);
        assert_eq!(world.failure(lost).delivery, Delivery::Unknown);
        // The first server, which is gone, replies with an id of the second.
        let request = world.last("tools/call");
        let line = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}});
        let line = format!("{line}\n").into_bytes();
        let first = everlink_epoch(&world, 1);
        world.force(first, Input::bytes(line));
        world.turn();
        assert!(!world.is_done(call));
        assert_eq!(world.link().stats().stale_inputs, 1);
        world.finish();
    }
}

/// The epoch with this number, which has ended.
fn everlink_epoch(world: &World, life: u64) -> Epoch {
    let ended = world.picked(|event| match event {
        Event::Ended(ended) if ended.epoch.number() == life => Some(ended.epoch),
        _ => None,
    });
    ended[0]
}

#[test]
fn f_100_ids_only_grow_in_the_whole_life_of_a_link() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        for _ in 0..4 {
            for _ in 0..20 {
                world.tool("slow");
            }
            world.list(everlink::List::Tools);
            world.pass(seconds(31));
            world.peer_all(dies(ExitStatus::Code(1)));
            world.until_ready();
        }
        let lines = (1..=world.life()).flat_map(|life| world.lines_of(life));
        let ids: Vec<i64> = lines.filter_map(|line| line["id"].as_i64()).collect();
        assert!(ids.len() > 80);
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        world.finish();
    }
}
