//! The three founding guarantees of the project.

use crate::client_pipe::{
    self, Act, Chunking, Peer, World, ask, config, dies, every_chunking, every_era, millis,
    seconds, stderr,
};
use everlink::client::{Delivery, Event, FailureKind, Outcome, State, Withdrawn};
use everlink::protocol::{ClientCapabilities, Version};
use everlink::{CallId, Epoch, ExitStatus, Fault, FaultKind, Input, List};
use serde_json::json;

const LAST_WORDS: &str = "panicked at src/main.rs:7: no more numbers";

/// When the server dies, the link reports it at once: every call fails with a text, and the link leaves `Ready`. Then
/// it reconnects by itself. An error reply of a server is not a death.
#[test]
fn server_death_is_seen_and_said() {
    every_era(|chunking, peer| {
        let mut world = with_a_thousand_calls(chunking, peer);
        let calls = in_flight(&world);
        world.peer_unpolled(&Act::End(Vec::new()));
        all_settled_before_any_poll(&world);
        world.turn();
        all_say(&world, &calls, &[LAST_WORDS]);
        assert_eq!(world.state(), State::Closing);
        world.peer(Act::Exit(ExitStatus::Code(3)));
        let ended = world.link().last_end().expect("a life ended");
        assert!(ended.to_string().contains("exit status 3"));
        comes_back_by_itself(world)
    });
    every_era(|chunking, peer| {
        let mut world = with_a_thousand_calls(chunking, peer);
        let calls = in_flight(&world);
        world.peer_unpolled(&Act::End(Vec::new()));
        all_settled_before_any_poll(&world);
        // The exit is fed before the outcomes are polled, so the outcomes mention it, too.
        world.peer_unpolled(&Act::Exit(ExitStatus::Code(3)));
        world.turn();
        all_say(&world, &calls, &[LAST_WORDS, "exit status 3"]);
        comes_back_by_itself(world)
    });
    every_era(|chunking, peer| {
        let mut world = with_a_thousand_calls(chunking, peer);
        let calls = in_flight(&world);
        world.peer_unpolled(&Act::Exit(ExitStatus::Signal(11)));
        all_settled_before_any_poll(&world);
        world.turn();
        all_say(&world, &calls, &[LAST_WORDS, "signal 11 (SIGSEGV)"]);
        world.peer(Act::End(Vec::new()));
        comes_back_by_itself(world)
    });
    every_era(errors_of_tools_are_not_death);
}

fn with_a_thousand_calls(chunking: Chunking, peer: fn() -> Peer) -> World {
    let mut world = World::new(config())
        .chunked(chunking)
        .served_by(move |life| match life {
            1 => peer().ignores("tools/call").ignores_eof(),
            _ => peer(),
        });
    world.until_ready();
    for number in 0..1_000 {
        world.tool(&format!("tool-{number}"));
    }
    let sent = world.methods_of(1);
    let sent = sent.iter().filter(|method| **method == "tools/call");
    assert_eq!(sent.count(), 1_000);
    world.pass(seconds(2));
    world.peer(stderr(LAST_WORDS));
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.link().stats().settled, 0);
    world
}

/// The calls of the application, with the names of their tools.
fn in_flight(world: &World) -> Vec<(CallId, String)> {
    let ids = world.calls();
    let named = ids.iter().enumerate();
    named
        .map(|(number, call)| (*call, format!("tool-{number}")))
        .collect()
}

fn all_settled_before_any_poll(world: &World) {
    assert_ne!(world.state(), State::Ready);
    assert!(world.link().session().is_none());
    assert_eq!(world.link().stats().settled, 1_000);
}

fn all_say(world: &World, calls: &[(CallId, String)], what: &[&str]) {
    assert_eq!(calls.len(), 1_000);
    for (call, tool) in calls {
        let failure = world.failure(*call);
        assert_eq!(failure.kind, FailureKind::Lost);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(failure.after, seconds(2));
        let text = failure.to_string();
        let beginning = format!("tools/call `{tool}` ({call}) failed after 2 s");
        assert!(text.starts_with(&beginning), "{text}");
        for words in what {
            assert!(text.contains(words), "{text:?} does not say {words:?}");
        }
    }
}

fn comes_back_by_itself(mut world: World) -> World {
    assert_eq!(world.state(), State::Waiting);
    let call = world.tool("add");
    world.until_done(call);
    assert_eq!(world.result(call)["content"][0]["text"], "add");
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.life(), 2);
    assert_eq!(world.link().stats().failures, 1);
    world
}

fn errors_of_tools_are_not_death(chunking: Chunking, peer: fn() -> Peer) -> World {
    let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
        peer().on("tools/call", |request| {
            match request["params"]["name"].as_str() {
                Some("refused") => vec![client_pipe::error(request, -32603, "no")],
                _ => vec![client_pipe::reply(
                    request,
                    json!({"isError": true, "content": []}),
                )],
            }
        })
    });
    world.until_ready();
    for _ in 0..100 {
        let refused = world.tool("refused");
        assert!(matches!(world.outcome(refused), Outcome::Error(error) if error.code == -32603));
        let failed = world.tool("failed");
        assert_eq!(world.result(failed)["isError"], true);
    }
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.life(), 1);
    assert_eq!(world.link().failures(), 0);
    world
}

/// A planned teardown is free, however many faults report that the transport closed. One real fault among them costs
/// one attempt. A stable epoch resets the count of failures; a short one does not.
#[test]
fn planned_reconnects_never_spend_the_budget() {
    let mut world = World::new(config()).served_by(|life| match life % 3 {
        0 => tears_down_with(BENIGN.to_vec(), ExitStatus::Code(0)),
        1 => tears_down_with(BENIGN.to_vec(), ExitStatus::Code(1)),
        _ => tears_down_with(Vec::new(), ExitStatus::Signal(15)),
    });
    world.until_ready();
    for _ in 0..10_000 {
        world.reconnect("the configuration changed");
        world.until_ready();
        assert_eq!(world.link().failures(), 0);
    }
    let stats = world.link().stats();
    assert_eq!((stats.failures, stats.free_ends), (0, 10_000));
    // The rules of the world have checked the minimum pause between any two opens.
    assert_eq!(stats.opens, 10_001);
    world.finish();

    every_chunking(one_real_fault_among_benign_ones_counts);
    every_chunking(a_free_end_forgives_nothing_and_a_good_life_everything);
}

const BENIGN: [FaultKind; 4] = [
    FaultKind::BrokenPipe,
    FaultKind::Closed,
    FaultKind::Aborted,
    FaultKind::Reset,
];

fn tears_down_with(faults: Vec<FaultKind>, status: ExitStatus) -> Peer {
    let faults = faults.into_iter().map(Fault::new).collect();
    Peer::legacy("2025-11-25").on_eof(vec![Act::End(faults), Act::Exit(status)])
}

fn one_real_fault_among_benign_ones_counts(chunking: Chunking) -> World {
    let mixed = vec![
        FaultKind::Closed,
        FaultKind::BrokenPipe,
        FaultKind::Read,
        FaultKind::Reset,
    ];
    let mut world = World::new(config())
        .chunked(chunking)
        .served_by(move |_| tears_down_with(mixed.clone(), ExitStatus::Code(0)));
    let budget = config().policy.retry.budget;
    world.until_ready();
    for failures in 1..=budget {
        world.reconnect("the configuration changed");
        assert_eq!(world.link().failures(), failures);
        assert_eq!(world.state(), State::Waiting);
        world.until_ready();
    }
    world.reconnect("the configuration changed");
    assert_eq!(world.state(), State::Parked);
    let ended = world.link().last_end().expect("a life ended");
    assert_eq!(ended.faults.len(), 4);
    assert!(ended.counted);
    world
}

fn a_free_end_forgives_nothing_and_a_good_life_everything(chunking: Chunking) -> World {
    let retry = config().policy.retry;
    let mut world = World::new(config()).chunked(chunking);
    world.until_ready();
    for failures in 1..=3 {
        world.peer_all(dies(ExitStatus::Code(1)));
        assert_eq!(world.link().failures(), failures);
        world.until_ready();
        // One millisecond too short does not count as stable.
        world.pass(retry.stable_after - millis(1));
    }
    world.reconnect("the configuration changed");
    world.until_ready();
    assert_eq!(world.link().failures(), 3);
    world.peer_all(dies(ExitStatus::Code(1)));
    assert!(pause(&world) > 2 * retry.first, "the fourth pause is long");

    world.until_ready();
    world.pass(retry.stable_after);
    assert_eq!(world.link().failures(), 0);
    world.peer_all(dies(ExitStatus::Code(1)));
    assert_eq!(world.link().failures(), 1);
    assert!(pause(&world) <= retry.first, "the first pause is short");
    world
}

/// The pause of the link after the end that was just reported.
fn pause(world: &World) -> core::time::Duration {
    let waits = world.picked(|event| match event {
        Event::Waiting { until, .. } => Some(*until),
        _ => None,
    });
    waits.last().expect("the link waits").since(world.now())
}

/// However many callers report the same problem, the transport is replaced once, and nothing from the old one is
/// used.
#[test]
fn one_owner_one_reconnect_nothing_stale() {
    every_era(many_callers_cause_one_reconnect);
    every_chunking(nothing_of_an_old_life_survives);
    every_era(inputs_of_a_retired_epoch_touch_nothing);
}

fn many_callers_cause_one_reconnect(chunking: Chunking, peer: fn() -> Peer) -> World {
    let mut world = World::new(config())
        .chunked(chunking)
        .served_by(move |_| peer());
    world.until_ready();
    let seen = world.link().epoch();
    world.peer(Act::End(vec![FaultKind::Read.into()]));
    for _ in 0..100 {
        world.reconnect_seen(seen, "my call failed");
    }
    world.peer(Act::Exit(ExitStatus::Code(1)));
    for _ in 0..100 {
        world.reconnect_seen(seen, "my call failed");
        world.pass(millis(20));
    }
    world.until_ready();
    for _ in 0..100 {
        world.reconnect_seen(seen, "my call failed");
    }
    world.pass(seconds(100));
    assert_eq!(world.link().stats().opens, 2);

    let seen = world.link().epoch();
    for _ in 0..100 {
        world.reconnect_seen(seen, "the configuration changed");
        world.pass(millis(20));
    }
    world.until_ready();
    assert_eq!(world.link().stats().opens, 3);
    assert_eq!(world.link().stats().failures, 1);
    world
}

fn nothing_of_an_old_life_survives(chunking: Chunking) -> World {
    let mut config = config();
    config.capabilities = ClientCapabilities::default().with_sampling();
    let mut world = World::new(config)
        .chunked(chunking)
        .served_by(|life| match life {
            1 => Peer::legacy("2025-11-25"),
            _ => Peer::legacy("2024-11-05"),
        });
    world.until_ready();
    let list = world.list(List::Tools);
    assert!(world.is_done(list));
    assert!(world.link().is_fresh(world.now(), List::Tools));
    world.peer(ask(
        7,
        "sampling/createMessage",
        json!({"messages": [], "maxTokens": 1}),
    ));
    let asks = world.asks();
    assert_eq!(asks.len(), 1);

    world.peer(Act::End(Vec::new()));
    assert!(world.link().session().is_none());
    assert!(!world.link().is_fresh(world.now(), List::Tools));
    let withdrawn = world.picked(|event| match event {
        Event::AskWithdrawn { ask, why } => Some((*ask, *why)),
        _ => None,
    });
    assert_eq!(withdrawn, [(asks[0], Withdrawn::Ended)]);
    world.peer(Act::Exit(ExitStatus::Code(0)));

    world.until_ready();
    let session = world.link().session().expect("the link is ready");
    assert_eq!(session.version, Version::V2024_11_05);
    assert_eq!(session.epoch, world.link().epoch());
    assert!(!world.link().is_fresh(world.now(), List::Tools));
    let read_before = world.link().stats().messages_out;
    let list = world.list(List::Tools);
    assert!(world.is_done(list));
    assert_eq!(world.link().stats().messages_out, read_before + 1);
    // The new server may reuse the id of the old ask.
    world.peer(ask(
        7,
        "sampling/createMessage",
        json!({"messages": [], "maxTokens": 1}),
    ));
    assert_eq!(world.asks().len(), 2);
    world
}

fn inputs_of_a_retired_epoch_touch_nothing(chunking: Chunking, peer: fn() -> Peer) -> World {
    let mut world = World::new(config())
        .chunked(chunking)
        .served_by(move |life| match life {
            1 => peer(),
            _ => peer().ignores("tools/call"),
        });
    world.until_ready();
    let old = world.link().epoch();
    world.peer_all(dies(ExitStatus::Code(1)));
    world.until_ready();
    world.list(List::Tools);
    let call = world.tool("add");
    let wire = world.lines_of(2).last().expect("the call was written")["id"].clone();
    let before = Picture::of(&world);

    let reply = format!("{}\n", json!({"jsonrpc": "2.0", "id": wire, "result": {}}));
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let changed = format!("{changed}\n");
    let faults = [Fault::new(FaultKind::Read)];
    let inputs = [
        Input::Opened,
        Input::bytes(reply.as_bytes()),
        Input::bytes(changed.as_bytes()),
        Input::bytes(b"noise\n".as_slice()),
        Input::stderr(b"noise\n".as_slice()),
        Input::sent(1_000_000),
        Input::end(&faults[..]),
        Input::exited(ExitStatus::Code(1)),
        Input::open_failed(&faults[..]),
    ];
    for epoch in [old, Epoch::NONE] {
        for input in &inputs {
            world.force(epoch, input.clone());
            world.turn();
        }
    }
    let mut after = Picture::of(&world);
    assert_eq!(after.stats.stale_inputs, before.stats.stale_inputs + 18);
    after.stats.stale_inputs = before.stats.stale_inputs;
    assert_eq!(after, before);
    assert!(!world.is_done(call));
    world
}

/// Everything that an application can see of a link.
#[derive(Debug, PartialEq)]
struct Picture {
    state: State,
    epoch: Epoch,
    failures: u32,
    is_fresh: bool,
    events: usize,
    lines: usize,
    deadline: Option<everlink::Deadline>,
    stats: everlink::Stats,
}

impl Picture {
    fn of(world: &World) -> Picture {
        let link = world.link();
        Picture {
            state: link.state(),
            epoch: link.epoch(),
            failures: link.failures(),
            is_fresh: link.is_fresh(world.now(), List::Tools),
            events: world.events().len(),
            lines: world.lines_of(2).len(),
            deadline: link.poll_timeout(),
            stats: link.stats(),
        }
    }
}
