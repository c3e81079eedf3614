//! Silent servers: which are working, which hang, which are replaced, and what happens to their calls.

use core::time::Duration;

use everlink::client::{CallOptions, Cause, Delivery, Ended, Event, Sign, State};
use everlink::{Instant, Limit};
use serde_json::json;

use crate::client_pipe::{Command, Peer, World, config, error, reply, seconds, stderr};
use crate::eras::{BOTH, legacy, ready};

fn ends(world: &World) -> Vec<&Ended> {
    world.picked(|event| match event {
        Event::Ended(ended) => Some(&**ended),
        _ => None,
    })
}

/// A server that answers its first probe, which is the handshake in the modern era, and `more` others; then none.
fn answers_probes(server: fn() -> Peer, mut more: u32) -> Peer {
    let mut agreed = false;
    server().on_any(move |message, acts| {
        let probe = message["method"] == "ping" || message["method"] == "server/discover";
        if probe && core::mem::replace(&mut agreed, true) {
            match more.checked_sub(1) {
                Some(left) => more = left,
                None => acts.clear(),
            }
        }
    })
}

/// A server that answers neither probes nor tool calls.
fn deaf(server: fn() -> Peer) -> Peer {
    answers_probes(server, 0)
        .ignores("tools/call")
        .ignores("tools/list")
}

/// The process uses CPU all the time.
fn runs(at: Duration) -> (Duration, bool) {
    (at, false)
}

/// The process uses no CPU.
fn rests(_: Duration) -> (Duration, bool) {
    (seconds(1), false)
}

/// The process is stopped.
fn is_stopped(_: Duration) -> (Duration, bool) {
    (seconds(1), true)
}

fn patient() -> CallOptions {
    CallOptions::new().with_idle(Limit::After(seconds(500)))
}

/// The numbers of `Silent` and of `Responsive` events.
fn told_silences(world: &World) -> (usize, usize) {
    let silent = |event: &Event| matches!(event, Event::Silent { .. }).then_some(());
    let over = |event: &Event| matches!(event, Event::Responsive { .. }).then_some(());
    (world.picked(silent).len(), world.picked(over).len())
}

/// The duration of the first epoch and the sign by which its silence was judged.
#[track_caller]
fn died_of_silence(world: &World) -> (Duration, Sign) {
    let ended = ends(world)[0];
    match ended.cause {
        Cause::Unresponsive { sign, .. } => (ended.lived, sign),
        _ => panic!("{ended}"),
    }
}

#[test]
fn f_083_a_server_that_answers_no_probe_is_left_alone_while_its_process_runs() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server).seen_as(runs));
        let call = world.call_with("tools/call", json!({"name": "crunch"}), patient());
        world.pass(seconds(490));
        assert_eq!((world.state(), world.life()), (State::Ready, 1));
        assert_eq!(told_silences(&world), (1, 0));
        let request = world.last("tools/call");
        world.peer(reply(&request, json!({"content": []})));
        assert_eq!(world.result(call)["content"], json!([]));
        assert_eq!(told_silences(&world), (1, 1));
        world.finish();
    }
}

#[test]
fn f_083_other_calls_that_run_out_of_time_do_not_kill_a_server_whose_process_runs() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server).seen_as(runs));
        let call = world.call_with("tools/call", json!({"name": "crunch"}), patient());
        for _ in 0..15 {
            world.tool("add");
            world.pass(seconds(31));
        }
        assert_eq!((world.state(), world.life()), (State::Ready, 1));
        assert!(!world.is_done(call), "its own deadline still runs");
        world.finish();
    }
}

#[test]
fn f_083_a_server_that_blocks_on_a_call_has_longer_than_its_host_waits() {
    for server in BOTH {
        for answers in [true, false] {
            let mut world = ready(config(), move || deaf(server).seen_as(rests));
            let call = world.call_with("tools/call", json!({"name": "block"}), patient());
            world.pass(seconds(119));
            assert_eq!((world.state(), world.life()), (State::Ready, 1));
            if answers {
                let request = world.last("tools/call");
                world.peer(reply(&request, json!({"content": []})));
                world.result(call);
            } else {
                world.until_done(call);
                assert_eq!(died_of_silence(&world), (seconds(120), Sign::Idle));
                assert_eq!(world.failure(call).delivery, Delivery::Unknown);
            }
            world.finish();
        }
    }
}

#[test]
fn f_083_without_evidence_a_blocking_server_has_as_long() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server));
        let call = world.call_with("tools/call", json!({"name": "block"}), patient());
        world.until_done(call);
        // The driver was asked for the process activity, and the link waited one second for its answer.
        assert_eq!(died_of_silence(&world), (seconds(121), Sign::Unknown));
        world.finish();
    }
}

#[test]
fn f_083_a_stopped_server_is_replaced_and_what_was_not_sent_goes_to_the_next() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            1 => deaf(server).seen_as(is_stopped),
            _ => server(),
        });
        world.until_ready();
        let lost = world.tool("lost");
        world.pass(seconds(25));
        let held = world.tool("add");
        world.until_done(lost);
        assert_eq!(died_of_silence(&world), (seconds(30), Sign::Stopped));
        let failure = world.failure(lost);
        assert_eq!(failure.delivery, Delivery::Unknown);
        for words in ["silent for 30 s", "no probe", "stopped (SIGSTOP)"] {
            assert!(failure.to_string().contains(words), "{failure}");
        }
        world.until_done(held);
        assert_eq!(world.result(held)["content"][0]["text"], "add");
        let to_first = world.lines_of(1).into_iter();
        let calls = to_first.filter(|line| line["method"] == "tools/call");
        assert_eq!(calls.count(), 1, "it was held back");
        assert!(!world.commands_of(1).contains(&Command::Terminate(1)));
        world.finish();
    }
}

#[test]
fn f_083_a_server_that_answered_probes_at_work_is_replaced_sooner() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            answers_probes(server, 1)
                .ignores("tools/call")
                .seen_as(rests)
        });
        let call = world.tool("crunch");
        world.until_done(call);
        // The server answers a probe at 10 s, and none after that.
        assert_eq!(died_of_silence(&world), (seconds(40), Sign::Idle));
        world.finish();
    }
}

#[test]
fn f_083_an_idle_server_that_answers_no_probe_is_reported_once_and_left_alone() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server).seen_as(is_stopped));
        world.pass(seconds(3_600));
        assert_eq!((world.state(), world.life()), (State::Ready, 1));
        assert_eq!(told_silences(&world), (1, 0));
        let stats = world.link().stats();
        assert_eq!((stats.probes, stats.probes_missed), (2, 2), "not flooded");
        world.peer(stderr("back"));
        assert_eq!(told_silences(&world), (1, 1));
        world.pass(seconds(3_600));
        assert_eq!(told_silences(&world), (2, 1));
        world.finish();
    }
}

#[test]
fn f_083_a_call_into_a_long_silence_is_held_back_for_the_next_server() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            1 => answers_probes(server, 2).seen_as(rests),
            _ => server(),
        });
        world.until_ready();
        world.pass(seconds(600));
        let called = world.now();
        let call = world.tool("add");
        world.until_done(call);
        assert_eq!(world.result(call)["content"][0]["text"], "add");
        assert_eq!(world.life(), 2);
        let took = world.now().since(called);
        assert!(took <= seconds(31), "{took:?}");
        assert_eq!(world.said("tools/call").len(), 1);
        world.finish();
    }
}

#[test]
fn f_083_a_server_at_work_on_a_cancelled_call_is_left_alone_until_something_is_wanted() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            1 => deaf(server).seen_as(rests),
            _ => server(),
        });
        world.until_ready();
        let call = world.tool("crunch");
        world.pass(seconds(5));
        world.cancel(call, "the host gave up");
        assert_eq!(world.link().stats().probes, 1, "at once");
        world.pass(seconds(600));
        assert_eq!((world.state(), world.life()), (State::Ready, 1));
        let called = world.now();
        let next = world.tool("add");
        world.until_done(next);
        assert_eq!(world.result(next)["content"][0]["text"], "add");
        assert_eq!(world.life(), 2);
        let waited = world.now().since(called);
        assert!(waited <= seconds(2), "it owes a sign for long: {waited:?}");
        world.finish();
    }
}

#[test]
fn f_083_a_host_that_gives_up_again_and_again_has_another_server_after_half_a_minute() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            1 => deaf(server).seen_as(rests),
            _ => server(),
        });
        world.until_ready();
        for _ in 0..7 {
            let call = world.tool("add");
            world.pass(seconds(5));
            if !world.is_done(call) {
                world.cancel(call, "the host gave up");
            }
        }
        assert_eq!(world.life(), 2);
        let (lived, _) = died_of_silence(&world);
        assert!(lived <= seconds(31), "{lived:?}");
        let call = *world.calls().last().expect("a call");
        assert_eq!(world.result(call)["content"][0]["text"], "add");
        world.finish();
    }
}

#[test]
fn f_083_a_deadline_makes_the_link_look_at_once_whether_anybody_is_there() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server));
        let brief = CallOptions::new().with_idle(Limit::After(seconds(4)));
        let call = world.call_with("tools/call", json!({"name": "slow"}), brief);
        world.until_done(call);
        assert_eq!(world.link().stats().probes, 1, "at 4 s and not at 30 s");
        world.finish();
    }
}

#[test]
fn f_083_a_frozen_server_is_found_out_under_steady_traffic() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server).seen_as(rests));
        for _ in 0..10 {
            world.tool("add");
            world.pass(seconds(30));
        }
        // The server may be working on the first call, whose caller gives up at 60 s. The other calls were held back.
        assert_eq!(died_of_silence(&world), (seconds(60), Sign::Idle));
        world.finish();
    }
}

#[test]
fn f_083_a_server_that_never_answers_probes_is_served_as_if_it_did() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            answers_probes(server, 0)
                .on("tools/call", |request| {
                    let answer = reply(request, json!({"content": []}));
                    match request["params"]["name"].as_str() {
                        Some("slow") => vec![answer.after(seconds(100))],
                        _ => vec![answer],
                    }
                })
                .seen_as(rests)
        });
        for _ in 0..5 {
            let call = world.tool("add");
            assert!(world.is_done(call), "it is not held back");
            world.pass(seconds(600));
        }
        let slow = world.call_with("tools/call", json!({"name": "slow"}), patient());
        world.until_done(slow);
        world.result(slow);
        assert_eq!(world.life(), 1);
        world.finish();
    }
}

#[test]
fn f_083_a_hang_that_is_never_to_be_judged_ends_no_server() {
    let mut config = config();
    config.policy.hang = None;
    let mut world = ready(config, || deaf(legacy).seen_as(is_stopped));
    let call = world.call_with("tools/call", json!({"name": "slow"}), patient());
    let other = world.call_with("tools/call", json!({"name": "add"}), patient());
    world.pass(seconds(490));
    assert_eq!(world.life(), 1);
    assert!(!world.is_done(call) && !world.is_done(other));
    world.finish();
}

/// A proxy process that its own server has forgotten still answers, but not on behalf of that server.
#[test]
fn f_084_a_probe_that_is_answered_with_a_lost_session_is_no_sign_of_health() {
    let errors = [
        (-32_001, "Session not found"),
        (-32_603, "Error POSTing to endpoint (HTTP 404)"),
        (-32_000, "Not connected"),
    ];
    for (code, words) in errors {
        let wedged = move || {
            legacy()
                .on("ping", move |request| vec![error(request, code, words)])
                .on("tools/call", move |request| {
                    vec![error(request, code, words)]
                })
        };
        let mut world = World::new(config()).served_by(move |life| match life {
            1 => wedged(),
            _ => legacy(),
        });
        world.until_ready();
        let first = world.tool("add");
        assert!(world.is_done(first), "the caller hears what it said");
        let asked = world.now();
        let call = world.tool("add");
        world.until_done(call);
        assert_eq!(world.result(call)["content"][0]["text"], "add", "{words}");
        assert!(world.now().since(asked) <= seconds(31));
        assert_eq!(died_of_silence(&world).1, Sign::Wedged);
        world.finish();

        // No call is open, so the silence is only reported.
        let mut world = ready(config(), wedged);
        world.pass(seconds(3_600));
        assert_eq!((world.life(), told_silences(&world)), (1, (1, 0)));
        world.finish();
    }
}

/// Without keepalive the link probes nothing and judges no server; only the limit of the call applies.
#[test]
fn f_083_a_link_without_keepalive_judges_nobody() {
    let mut config = config();
    config.policy.keepalive = None;
    let mut world = ready(config, || deaf(legacy).seen_as(is_stopped));
    let call = world.call_with("tools/call", json!({"name": "slow"}), patient());
    world.until_done(call);
    assert_eq!(world.now(), Instant::ZERO + seconds(500));
    assert_eq!((world.life(), world.link().stats().probes), (1, 0));
    world.finish();
}
