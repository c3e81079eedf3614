//! Reconnects: the cost of a death, the time of the next attempt, calls that are sent again, and servers that are
//! taken for dead. Rows F-071 to F-087 of the failures.

use core::time::Duration;

use everlink::client::{
    CallOptions, Cause, Client, Delivery, Ended, Event, FailureKind, Misuse, State,
};
use everlink::{CallId, Config, Epoch, ExitStatus, Fault, FaultKind, Input, Keepalive, List, Wake};
use serde_json::json;

use crate::client_pipe::{
    self, Act, Command, Peer, World, config, dies, error, millis, notify, reply, seconds, stderr,
};
use crate::eras::{self, BOTH, legacy, ready};

const CRASH: ExitStatus = ExitStatus::Code(1);

/// A server that cannot be opened at present.
fn missing() -> Peer {
    let fault = Fault::with_detail(FaultKind::ResourcesExhausted, "no more processes");
    Peer::silent().opens_with(vec![Act::OpenFailed(vec![fault])])
}

/// A server that works for `span` and then crashes.
fn lives_for(span: Duration) -> Peer {
    let end = dies(CRASH).into_iter().map(|act| act.after(span));
    legacy().greets_with(end.collect())
}

/// A server whose planned end comes with these faults.
fn ends_with(faults: &[Fault]) -> Peer {
    legacy().on_eof(vec![
        Act::End(faults.to_vec()),
        Act::Exit(ExitStatus::Code(0)),
    ])
}

fn ends(world: &World) -> Vec<&Ended> {
    world.picked(|event| match event {
        Event::Ended(ended) => Some(&**ended),
        _ => None,
    })
}

/// The number of consecutive failures at each pause, and the length of the pause.
fn pauses(world: &World) -> Vec<(u32, Duration)> {
    let waits = world.events().iter().filter_map(|(at, event)| match event {
        Event::Waiting {
            until, failures, ..
        } => Some((*failures, until.since(*at))),
        _ => None,
    });
    waits.collect()
}

fn parked_world(mut peer: impl FnMut(u64) -> Peer + 'static) -> World {
    let mut world = World::new(config()).served_by(move |life| match life {
        1..=6 => missing(),
        life => peer(life),
    });
    world.connect();
    world.until_state(State::Parked);
    assert_eq!(world.life(), 6, "the first attempt and a budget of five");
    world
}

#[test]
fn f_071_what_only_says_that_it_closed_is_free_in_a_planned_reconnect() {
    for kind in [
        FaultKind::Aborted,
        FaultKind::BrokenPipe,
        FaultKind::Closed,
        FaultKind::Reset,
    ] {
        let fault = Fault::with_detail(kind, "as it happens");
        let mut world = ready(config(), move || ends_with(core::slice::from_ref(&fault)));
        world.reconnect("new settings");
        world.until_ready();
        assert_eq!(world.life(), 2);
        assert_eq!(world.link().failures(), 0);
        let [ended] = ends(&world)[..] else {
            panic!("one life ended");
        };
        assert!(!ended.counted);
        let why = "new settings".into();
        assert_eq!(ended.cause, Cause::AskedTo { why });
        assert_eq!(ended.faults.len(), 1, "free, and still told");
        let stats = world.link().stats();
        assert_eq!((stats.failures, stats.free_ends), (0, 1));
        world.finish();
    }
}

#[test]
fn f_071_the_intent_is_known_before_the_teardown_begins() {
    let mut world = ready(config(), legacy);
    let epoch = world.link().epoch();
    // The transport breaks before the driver can take it down.
    world.verb(|link, now| {
        link.reconnect(now, epoch, "new settings");
        link.handle(now, epoch, Input::end(vec![FaultKind::BrokenPipe.into()]));
    });
    world.until_ready();
    assert_eq!(world.link().failures(), 0);
    world.finish();
}

#[test]
fn f_071_what_a_retired_life_still_says_is_counted_and_dropped() {
    let mut world = ready(config(), legacy);
    let retired = world.link().epoch();
    world.reconnect("new settings");
    world.until_ready();
    let call = world.tool("add");
    let real = vec![Fault::new(FaultKind::Read), Fault::new(FaultKind::Tls)];
    world.force(retired, Input::end(real.clone()));
    world.force(retired, Input::exited(CRASH));
    world.force(retired, Input::open_failed(real));
    world.force(retired, Input::bytes(&b"not JSON\n"[..]));
    world.force(retired, Input::Opened);
    world.turn();
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.link().failures(), 0);
    let stats = world.link().stats();
    assert_eq!((stats.stale_inputs, stats.noise), (5, 0));
    assert_eq!(world.result(call)["content"][0]["text"], "add");
    world.finish();
}

#[test]
fn f_072_one_real_fault_among_harmless_ones_costs_one() {
    let harmless = || Fault::new(FaultKind::Closed);
    let real = || Fault::with_detail(FaultKind::Read, "input/output error");
    for faults in [
        [real(), harmless(), harmless()],
        [harmless(), real(), harmless()],
        [harmless(), harmless(), real()],
    ] {
        let seen = faults.clone();
        let mut world = ready(config(), move || ends_with(&faults));
        world.reconnect("new settings");
        world.until_ready();
        assert_eq!(world.link().failures(), 1);
        let ended = ends(&world)[0];
        assert!(ended.counted);
        assert_eq!(ended.faults, seen, "every leaf, in order");
        world.finish();
    }
}

#[test]
fn f_072_a_real_fault_counts_however_late_it_is_seen() {
    // First as many harmless faults as are kept in full.
    let mut faults = vec![Fault::new(FaultKind::Closed); 16];
    faults.push(Fault::new(FaultKind::Tls));
    let mut world = ready(config(), move || ends_with(&faults));
    world.reconnect("new settings");
    world.until_ready();
    let ended = ends(&world)[0];
    assert_eq!((ended.counted, ended.more_faults), (true, 1));
    assert_eq!(world.link().failures(), 1);
    world.finish();
}

#[test]
fn f_072_a_planned_end_that_never_comes_costs_one() {
    let mut world = World::new(config()).served_by(|life| match life {
        1 => legacy().immortal(),
        _ => legacy(),
    });
    world.until_ready();
    world.reconnect("new settings");
    world.until_ready();
    let ended = ends(&world)[0];
    assert!(ended.abandoned && ended.counted);
    assert_eq!(world.link().failures(), 1);
    world.finish();
}

#[test]
fn f_073_a_long_good_life_wipes_out_the_failures_before_it() {
    let mut world = World::new(config()).served_by(|_| lives_for(seconds(61)));
    world.connect();
    world.until("fifty lives", |world| world.life() == 50);
    assert!(pauses(&world).iter().all(|(failures, _)| *failures == 1));
    world.finish();
}

#[test]
fn f_073_a_handshake_alone_wipes_out_nothing() {
    let mut world = World::new(config()).served_by(|_| lives_for(seconds(59)));
    world.connect();
    world.until_state(State::Parked);
    let failures: Vec<u32> = pauses(&world)
        .iter()
        .map(|(failures, _)| *failures)
        .collect();
    assert_eq!(failures, [1, 2, 3, 4, 5]);
    assert_eq!(world.link().stats().readies, 6);
    world.finish();
}

#[test]
fn f_073_a_good_life_counts_even_if_the_driver_was_asleep() {
    let mut world = World::new(config()).served_by(|life| match life {
        1 => missing(),
        _ => legacy(),
    });
    world.until_ready();
    assert_eq!(world.link().failures(), 1);
    // The machine was suspended: after two hours, the death is the first input.
    let epoch = world.link().epoch();
    world.verb(|link, now| {
        let later = now + seconds(7_200);
        link.handle(later, epoch, Input::end(Vec::new()));
        link.handle(later, epoch, Input::exited(CRASH));
    });
    assert_eq!(world.link().failures(), 1, "the first one was forgiven");
}

#[test]
fn f_073_the_time_of_dying_is_no_part_of_the_time_that_it_was_ready() {
    let mut world = World::new(config()).served_by(|life| match life {
        1 => legacy().ignores_terminate(),
        _ => legacy(),
    });
    world.until_ready();
    world.pass(seconds(10));
    world.reconnect("new settings");
    world.until_ready();
    let ended = ends(&world)[0];
    assert_eq!(ended.ready_for, Some(seconds(10)));
    assert_eq!(ended.lived, seconds(15), "it had to be killed");
    world.finish();
}

#[test]
fn f_074_giving_up_is_not_for_ever() {
    let mut world = parked_world(|_| legacy());
    let parked_at = world.now();
    world.until_ready();
    let pause = world.now().since(parked_at);
    assert!(pause >= seconds(30) && pause <= seconds(60), "{pause:?}");
    world.finish();
}

#[test]
fn f_074_a_parked_link_looks_again_and_again() {
    let mut world = parked_world(|life| if life < 40 { missing() } else { legacy() });
    world.until_ready();
    assert_eq!(world.life(), 40);
    world.finish();
}

#[test]
fn f_074_wake_leaves_the_parking_place_at_once() {
    let mut world = parked_world(|_| legacy());
    world.pass(seconds(1));
    let woken_at = world.now();
    world.wake();
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.now(), woken_at);
    world.finish();
}

#[test]
fn f_075_a_good_life_resets_the_backoff_with_the_budget() {
    let mut world = World::new(config()).served_by(|life| match life {
        1..=5 => missing(),
        6 => lives_for(seconds(61)),
        _ => legacy(),
    });
    world.connect();
    world.until("the seventh life", |world| {
        world.life() == 7 && world.state() == State::Ready
    });
    let pauses = pauses(&world);
    let (before, after) = pauses.split_at(5);
    assert!(before[4].1 >= seconds(4), "it had grown: {:?}", before[4]);
    assert_eq!(after[0].0, 1);
    assert!(after[0].1 <= millis(500), "it starts anew: {:?}", after[0]);
    world.finish();
}

#[test]
fn f_075_the_pauses_grow_up_to_their_cap_and_no_further() {
    let mut config = config();
    config.policy.retry.budget = 40;
    let mut world = World::new(config).served_by(|_| missing());
    world.connect();
    world.until_state(State::Parked);
    let pauses = pauses(&world);
    assert_eq!(pauses.len(), 40);
    assert!(pauses.iter().all(|(_, pause)| *pause <= seconds(30)));
    assert!(pauses[20..].iter().all(|(_, pause)| *pause >= seconds(15)));
    world.finish();
}

#[test]
fn f_075_no_policy_of_zeros_becomes_a_spin() {
    let mut config = config();
    config.policy.retry.first = Duration::ZERO;
    config.policy.retry.floor = Duration::ZERO;
    config.policy.retry.when_spent = everlink::WhenSpent::Park {
        probe: Duration::ZERO,
    };
    let mut world = World::new(config).served_by(|_| missing());
    world.connect();
    world.pass(seconds(1));
    assert!(world.life() <= 1_001, "{} lives in a second", world.life());
    world.finish();
}

#[test]
fn f_076_failing_to_come_back_is_treated_like_failing_to_come() {
    let mut first = World::new(config()).served_by(|life| match life {
        1..=3 => missing(),
        _ => legacy(),
    });
    first.until_ready();
    let mut again = World::new(config()).served_by(|life| match life {
        1 => lives_for(seconds(5)),
        2..=3 => missing(),
        _ => legacy(),
    });
    again.until_ready();
    again.until("the fourth life", |world| {
        world.life() == 4 && world.state() == State::Ready
    });
    assert_eq!(pauses(&first), pauses(&again));
    // Knowledge from the first epoch is kept.
    assert_eq!(again.link().stats().readies, 2);
    assert_eq!(again.methods_of(4)[0], "initialize");
    first.finish();
    again.finish();
}

#[test]
fn f_077_any_number_of_callers_cause_one_reconnect() {
    for server in BOTH {
        let mut world = ready(config(), server);
        let seen = world.link().epoch();
        for _ in 0..100 {
            world.reconnect_seen(seen, "it looks dead to me");
        }
        world.until_ready();
        for _ in 0..100 {
            world.reconnect_seen(seen, "I am late, it looked dead to me");
        }
        world.reconnect_seen(Epoch::NONE, "before there was any");
        world.pass(seconds(1));
        assert_eq!(world.link().stats().opens, 2);
        assert_eq!(world.state(), State::Ready);
        world.finish();
    }
}

#[test]
fn f_077_callers_that_saw_one_death_cause_one_attempt() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let calls: Vec<CallId> = (0..100).map(|_| world.tool("slow")).collect();
        world.peer_all(dies(CRASH));
        for call in calls {
            assert_eq!(world.failure(call).kind, FailureKind::Lost);
            world.connect();
        }
        world.until_ready();
        assert_eq!(world.link().stats().opens, 2);
        world.finish();
    }
}

#[test]
fn f_078_a_call_wakes_a_parked_link() {
    let mut world = parked_world(|_| legacy());
    world.pass(seconds(5));
    let call = world.tool("add");
    assert_eq!(world.result(call)["content"][0]["text"], "add");
    world.finish();
}

#[test]
fn f_078_a_call_right_after_an_attempt_waits_for_the_next_one() {
    let mut world = parked_world(|_| legacy());
    let called = world.now();
    let call = world.tool("add");
    assert_eq!(world.life(), 6, "two attempts have a pause between them");
    world.until_done(call);
    assert_eq!(world.result(call)["content"][0]["text"], "add");
    assert_eq!(world.life(), 7);
    assert!(world.now().since(called) <= config().policy.retry.call_pace);
    world.finish();
}

#[test]
fn f_078_a_call_to_a_parked_link_fails_before_its_host_gives_up_and_says_when_the_next_attempt_is()
{
    let mut world = parked_world(|_| missing());
    world.pass(seconds(5));
    let (called, lives) = (world.now(), world.life());
    let call = world.tool("add");
    assert_eq!(world.life(), lives + 1, "a call makes it look at once");
    world.until_done(call);
    assert_eq!(world.now().since(called), seconds(4));
    let tried = world.life() - lives;
    assert!((4..=5).contains(&tried), "{tried} attempts in four seconds");
    let failure = world.failure(call);
    assert_eq!(failure.kind, FailureKind::Down);
    assert_eq!(failure.delivery, Delivery::NotSent);
    let next = failure.next_attempt.expect("there will be one");
    assert!(next <= seconds(60), "{next:?}");
    let text = failure.to_string();
    assert!(text.contains("no more processes"), "{text}");
    assert!(text.contains("the next attempt is in"), "{text}");
    world.finish();
}

#[test]
fn f_078_calls_that_keep_coming_find_a_server_soon_after_it_is_back() {
    // An outage of 20 s, with a call every 500 ms.
    let mut world = parked_world(|life| if life < 26 { missing() } else { legacy() });
    let mut back = None;
    for _ in 0..60 {
        let call = world.tool("add");
        world.pass(millis(500));
        if world.life() == 25 {
            back.get_or_insert(world.now());
        }
        if world.is_done(call) && world.state() == State::Ready {
            break;
        }
    }
    assert_eq!(world.state(), State::Ready);
    let back = back.expect("it was away for a while");
    assert!(world.now().since(back) <= seconds(2));
    world.finish();
}

#[test]
fn f_078_without_patience_a_call_to_a_parked_link_fails_at_once() {
    let mut config = config();
    config.policy.retry.call_patience = Duration::ZERO;
    let mut world = World::new(config).served_by(|_| missing());
    world.connect();
    world.until_state(State::Parked);
    let lives = world.life();
    let call = world.tool("add");
    assert_eq!(world.failure(call).kind, FailureKind::Down);
    assert_eq!(world.life(), lives);
    world.finish();
}

/// A `list` call also makes a parked link try again.
#[test]
fn f_078_a_list_wakes_a_parked_link() {
    let mut world = parked_world(|_| legacy());
    let list = world.list(List::Tools);
    world.until_done(list);
    assert!(matches!(
        world.outcome(list),
        everlink::client::Outcome::Listed(_)
    ));
    world.finish();
}

#[test]
fn f_078_a_server_that_was_useful_is_replaced_at_once_however_often_it_dies() {
    for server in BOTH {
        let mut world = ready(config(), server);
        for death in 1..=20 {
            let call = world.tool("add");
            world.until_done(call);
            world.result(call);
            let died = world.now();
            world.peer_all(dies(CRASH));
            world.until_ready();
            assert!(
                world.now().since(died) <= config().policy.retry.floor,
                "after {death} deaths"
            );
            assert_eq!(world.link().failures(), 1, "each costs one");
        }
        world.finish();
    }
}

#[test]
fn f_078_a_server_that_dies_before_it_answers_anything_is_given_its_pauses() {
    let mut world = World::new(config()).served_by(|_| lives_for(millis(100)));
    world.connect();
    world.until_state(State::Parked);
    assert_eq!(world.life(), 6);
    let took = world.now().since(everlink::Instant::ZERO);
    assert!(took >= seconds(7), "{took:?}");
    world.finish();
}

#[test]
fn f_078_a_call_to_a_parked_link_that_is_about_to_look_waits_for_it() {
    // The wake comes before the minimum pause between two attempts is over.
    let mut world = parked_world(|_| legacy());
    world.wake();
    assert_eq!(world.life(), 6);
    let call = world.tool("add");
    assert!(!world.is_done(call));
    world.until_done(call);
    assert_eq!(world.result(call)["content"][0]["text"], "add");
    world.finish();
}

#[test]
fn f_078_a_call_in_a_pause_waits_for_the_next_life() {
    for server in BOTH {
        let mut world = ready(config(), server);
        world.peer_all(dies(CRASH));
        assert_eq!(world.state(), State::Waiting);
        let call = world.tool("add");
        world.until_done(call);
        assert_eq!(world.result(call)["content"][0]["text"], "add");
        assert_eq!(world.life(), 2);
        world.finish();
    }
}

#[test]
fn f_079_links_that_die_together_do_not_come_back_together() {
    let pause = |seed| {
        let mut config = config();
        config.seed = seed;
        let mut world = ready(config, legacy);
        world.peer_all(dies(CRASH));
        let pause = pauses(&world)[0].1;
        world.finish();
        pause
    };
    let mut all: Vec<Duration> = (0..50).map(pause).collect();
    assert!(all.iter().all(|pause| *pause <= millis(500)));
    assert_eq!(pause(7), all[7], "the same seed draws the same pause");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 50);
}

#[test]
fn f_079_the_network_is_back_ends_the_pause_early() {
    let mut world = World::new(config()).served_by(|life| match life {
        1..=4 => missing(),
        _ => legacy(),
    });
    world.connect();
    world.until("the fourth failure", |world| world.link().failures() == 4);
    world.pass(millis(300));
    let now = world.now();
    world.wake();
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.now(), now);
    world.finish();
}

#[test]
fn f_080_an_error_that_the_server_replies_with_is_health() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![match request["params"]["name"].as_str() {
                    Some("error") => error(request, -32603, "the database is down"),
                    _ => reply(request, json!({"isError": true, "content": []})),
                }]
            })
        });
        for name in ["error", "is error"].into_iter().cycle().take(1_000) {
            let call = world.tool(name);
            match world.outcome(call) {
                everlink::client::Outcome::Error(error) => assert_eq!(error.code, -32603),
                everlink::client::Outcome::Reply(_) => {
                    assert_eq!(world.result(call)["isError"], true)
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(world.state(), State::Ready);
        assert_eq!(world.link().failures(), 0);
        assert_eq!(world.link().stats().opens, 1);
        world.finish();
    }
}

#[test]
fn f_081_a_tool_call_that_was_handed_over_is_never_sent_again() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            1 => server().dies_of("tools/call", CRASH),
            _ => server(),
        });
        let call = world.tool("pay");
        world.until_done(call);
        assert_eq!(world.failure(call).kind, FailureKind::Lost);
        assert_eq!(world.failure(call).delivery, Delivery::Unknown);
        world.until_ready();
        world.pass(seconds(60));
        assert_eq!(world.said("tools/call").len(), 1);
        world.finish();
    }
}

#[test]
fn f_081_a_call_that_was_never_handed_over_goes_to_the_next_life() {
    for server in BOTH {
        let mut config = config();
        config.limits.write_window = 1;
        let mut world = ready(config, server);
        world.peer_stops_reading();
        let (handed, waiting) = (world.tool("first"), world.tool("second"));
        assert_eq!(world.said("tools/call").len(), 1, "the window is full");
        world.peer_all(dies(CRASH));
        assert_eq!(world.failure(handed).delivery, Delivery::Unknown);
        assert!(!world.is_done(waiting));
        world.until_done(waiting);
        assert_eq!(world.result(waiting)["content"][0]["text"], "second");
        world.finish();
    }
}

#[test]
fn f_081_what_only_reads_is_sent_again_with_a_new_id() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            1 | 2 => server().dies_of("prompts/get", CRASH),
            _ => server().replies("prompts/get", |_| json!({"messages": []})),
        });
        let call = world.call("prompts/get", json!({"name": "hello"}));
        world.until_done(call);
        assert_eq!(world.result(call)["messages"], json!([]));
        let sent = world.said("prompts/get");
        assert_eq!(sent.len(), 3);
        let ids: Vec<i64> = sent.iter().filter_map(|sent| sent["id"].as_i64()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        assert!(sent.iter().all(|sent| sent["params"]["name"] == "hello"));
        assert_eq!(world.link().stats().requeued, 2);
        world.finish();
    }
}

#[test]
fn f_081_what_kills_every_server_is_not_sent_for_ever() {
    for server in BOTH {
        let mut world =
            World::new(config()).served_by(move |_| server().dies_of("prompts/get", CRASH));
        let call = world.call("prompts/get", json!({"name": "poison"}));
        world.until_done(call);
        assert_eq!(world.failure(call).kind, FailureKind::Lost);
        assert_eq!(world.failure(call).delivery, Delivery::Unknown);
        assert_eq!(world.said("prompts/get").len(), 3, "once, and two resends");
        world.finish();
    }
}

#[test]
fn f_081_a_list_that_kills_every_server_is_not_read_for_ever() {
    for server in BOTH {
        let mut world = ready(config(), move || server().dies_of("tools/list", CRASH));
        let list = world.list(List::Tools);
        world.until_done(list);
        let failure = world.failure(list);
        assert_eq!(failure.kind, FailureKind::Lost);
        assert_eq!(failure.delivery, Delivery::Harmless);
        assert_eq!(world.said("tools/list").len(), 3, "once, and two resends");
        // The failed list does not end the link.
        world.until_ready();
        assert_eq!(world.life(), 4);
        world.finish();
    }
}

#[test]
fn f_081_the_caller_can_say_that_twice_is_harmless() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            1 => server().dies_of("tools/call", CRASH),
            _ => server(),
        });
        let twice = CallOptions::new().idempotent();
        let call = world.call_with("tools/call", json!({"name": "set"}), twice);
        world.until_done(call);
        assert_eq!(world.result(call)["content"][0]["text"], "set");
        assert_eq!(world.said("tools/call").len(), 2);
        world.finish();
    }
}

#[test]
fn f_081_no_resends_means_none() {
    let mut config = config();
    config.policy.resends = 0;
    let mut world = World::new(config).served_by(|_| legacy().dies_of("prompts/get", CRASH));
    let call = world.call("prompts/get", json!({"name": "hello"}));
    world.until_done(call);
    assert_eq!(world.failure(call).kind, FailureKind::Lost);
    assert_eq!(world.said("prompts/get").len(), 1);
    world.finish();
}

#[test]
fn f_081_a_call_that_waits_to_be_repeated_does_not_claim_to_be_unsent() {
    let mut world = World::new(config()).served_by(|life| match life {
        1 => legacy().dies_of("prompts/get", CRASH),
        _ => missing(),
    });
    let call = world.call("prompts/get", json!({"name": "hello"}));
    world.until_done(call);
    assert_eq!(world.failure(call).delivery, Delivery::Unknown);
    world.finish();
}

#[test]
fn f_081_a_round_of_questions_is_not_repeated_either() {
    for method in ["tools/call", "prompts/get"] {
        let mut world = World::new(eras::answering()).served_by(move |life| {
            Peer::modern().on(method, move |request| match life {
                1 => {
                    let questions = json!({"q": {"method": "roots/list"}});
                    vec![reply(
                        request,
                        eras::input_required(questions, Some("half way")),
                    )]
                }
                _ => vec![reply(request, json!({"content": [], "messages": []}))],
            })
        });
        let call = world.call(method, json!({"name": "two halves"}));
        world.until("it asks", |world| !world.asks().is_empty());
        world.peer_all(dies(CRASH));
        world.until_done(call);
        if method == "tools/call" {
            assert_eq!(world.failure(call).kind, FailureKind::Lost);
            assert_eq!(world.failure(call).delivery, Delivery::Unknown);
        } else {
            // A read starts again: the new server does not know the state of the old one.
            assert_eq!(world.result(call)["messages"], json!([]));
            let params = world.last(method)["params"].clone();
            assert!(params["requestState"].is_null() && params["inputResponses"].is_null());
        }
        world.finish();
    }
}

#[test]
fn f_082_a_crowd_of_calls_makes_one_look() {
    let mut world = parked_world(|_| Peer::silent().opens_with(Vec::new()));
    world.pass(seconds(5));
    for _ in 0..50 {
        world.tool("add");
    }
    assert_eq!(world.life(), 7);
    assert_eq!(world.state(), State::Opening);
    world.finish();
}

/// A server that answers neither probes nor tool calls.
fn deaf(server: fn() -> Peer) -> Peer {
    let mut agreed = false;
    server()
        .ignores("tools/call")
        .ignores("tools/list")
        .on_any(move |message, acts| {
            let probe = message["method"] == "ping" || message["method"] == "server/discover";
            if probe && core::mem::replace(&mut agreed, true) {
                acts.clear();
            }
        })
}

#[test]
fn f_083_a_slow_list_keeps_the_server_alive_too() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server));
        let list = world.list(List::Tools);
        world.pass(seconds(59));
        assert_eq!(world.life(), 1, "its own deadline still runs");
        let request = world.last("tools/list");
        world.peer(reply(&request, json!({"tools": []})));
        assert!(matches!(
            world.outcome(list),
            everlink::client::Outcome::Listed(_)
        ));
        world.finish();
    }
}

#[test]
fn f_083_a_server_that_waits_for_a_person_is_not_killed() {
    // With and without a call in flight: the server waits for the application.
    for calls in [0, 1] {
        let mut world = ready(eras::answering(), || deaf(legacy));
        for _ in 0..calls {
            world.tool("asks");
        }
        world.peer(client_pipe::ask("q", "roots/list", json!({})));
        world.pass(seconds(550));
        assert_eq!((world.state(), world.life()), (State::Ready, 1));
        world.answer(world.asks()[0], Ok(json!({"roots": []})));
        world.until("then its silence counts again", |world| {
            let is_told = |event: &Event| matches!(event, Event::Silent { .. }).then_some(());
            world.picked(is_told).len() == 1
        });
        world.finish();
    }
}

#[test]
fn f_083_any_byte_is_a_sign_of_life() {
    let signs: [fn() -> Act; 4] = [
        || stderr("still here"),
        || Act::Raw(b"thinking".to_vec()),
        || Act::Raw(b"no message\n".to_vec()),
        || notify("notifications/whatever", json!({})),
    ];
    for server in BOTH {
        for sign in signs {
            let mut world = ready(config(), move || {
                let signs = (1..20).map(|n| sign().after(seconds(29) * n));
                deaf(server).greets_with(signs.collect())
            });
            world.pass(seconds(29 * 19));
            assert_eq!(world.link().stats().probes, 0);
            assert_eq!(world.life(), 1);
            world.finish();
        }
    }
}

#[test]
fn f_083_a_probe_that_was_missed_is_not_cancelled_on_a_pipe() {
    for server in BOTH {
        let mut world = ready(config(), move || deaf(server));
        world.pass(seconds(120));
        assert!(world.link().stats().probes_missed > 0);
        let said = world.methods_of(1);
        assert!(!said.contains(&"notifications/cancelled"), "{said:?}");
        world.finish();
    }
}

#[test]
fn f_084_each_era_is_probed_by_the_cheapest_thing_it_has() {
    for (server, probe) in [(BOTH[0], "ping"), (BOTH[1], "server/discover")] {
        let mut world = ready(config(), server);
        let said = world.lines_of(1).len();
        world.pass(seconds(100));
        let probes = world.methods_of(1).split_off(said);
        assert_eq!(probes, [probe; 3]);
        assert_eq!(world.link().stats().probes_missed, 0);
        world.finish();
    }
}

/// The keepalive interval limits the silence between messages, not the time that a probe may take.
#[test]
fn f_084_a_short_silence_is_probed_as_often_as_a_long_one() {
    let mut config = config();
    config.policy.keepalive = Some(Keepalive::every(seconds(2)));
    let mut world = ready(config, legacy);
    world.pass(seconds(21));
    assert_eq!(world.link().stats().probes, 10);
    world.finish();
}

#[test]
fn f_084_an_error_to_a_probe_is_a_sign_of_life() {
    for code in [-32601, -32603, -32000] {
        let mut world = ready(config(), move || legacy().refuses("ping", code));
        world.pass(seconds(1_000));
        assert_eq!(world.life(), 1);
        assert_eq!(world.link().stats().probes_missed, 0);
        world.finish();
    }
}

#[test]
fn f_084_no_keepalive_means_no_probe() {
    let mut config = config();
    config.policy.keepalive = None;
    let mut world = ready(config, move || deaf(legacy));
    world.pass(seconds(100_000));
    assert_eq!(world.link().stats().probes, 0);
    assert_eq!(world.life(), 1);
    world.finish();
}

#[test]
fn f_085_something_is_due_in_every_state_but_the_first_and_the_last() {
    let wake = |world: &World| world.link().poll_timeout().map(|deadline| deadline.wake);
    let mut world = World::new(config()).served_by(|life| match life {
        1 => Peer::silent().opens_with(vec![Act::Opened.after(seconds(1))]),
        2 => legacy().ignores_eof(),
        _ => missing(),
    });
    assert_eq!((world.state(), wake(&world)), (State::Idle, None));
    world.connect();
    assert_eq!(
        (world.state(), wake(&world)),
        (State::Opening, Some(Wake::Open))
    );
    world.until_state(State::Handshaking);
    assert_eq!(wake(&world), Some(Wake::Handshake));
    world.until_ready();
    assert_eq!(wake(&world), Some(Wake::Keepalive));
    world.reconnect("to see it close");
    assert_eq!(
        (world.state(), wake(&world)),
        (State::Closing, Some(Wake::Close))
    );
    world.until("a pause", |world| world.state() == State::Waiting);
    assert_eq!(wake(&world), Some(Wake::Backoff));
    world.until_state(State::Parked);
    assert_eq!(wake(&world), Some(Wake::Parked));
    world.shutdown();
    assert_eq!((world.state(), wake(&world)), (State::Closed, None));
}

#[test]
fn f_085_every_life_has_its_pulse_felt() {
    let mut world = ready(config(), legacy);
    world.reconnect("again");
    world.until_ready();
    world.pass(seconds(31));
    assert_eq!(world.methods_of(2).last(), Some(&"ping"));
    world.finish();
}

#[test]
fn f_085_many_who_wake_a_ready_link_send_one_probe() {
    let mut world = ready(config(), || deaf(legacy));
    for _ in 0..10 {
        world.wake();
    }
    assert_eq!(world.link().stats().probes, 1);
    assert_eq!(world.said("ping").len(), 1);
    world.finish();
}

fn closed(config: Config) -> World {
    let mut world = ready(config, legacy);
    world.shutdown();
    world.until_state(State::Closed);
    world
}

#[test]
fn f_086_nothing_revives_a_closed_link() {
    let mut world = closed(config());
    let told = world.events().len();
    let verbs: [fn(&mut Client, everlink::Instant); 6] = [
        |link, now| link.connect(now),
        |link, now| link.wake(now),
        |link, now| link.reconnect(now, link.epoch(), "please"),
        |link, now| link.shutdown(now),
        |link, now| link.watch(now, everlink::Watch::lists()),
        |link, now| link.handle_timeout(now + seconds(1_000)),
    ];
    for verb in verbs {
        world.verb(verb);
        assert_eq!(world.state(), State::Closed);
    }
    let refused = world.try_call("tools/call", json!({"name": "add"}), CallOptions::new());
    assert_eq!(refused, Err(Misuse::Closed));
    let listed = world.verb(|link, now| link.list(now, List::Tools, CallOptions::new()));
    assert_eq!(listed, Err(Misuse::Closed));
    let epoch = world.link().epoch();
    world.force(epoch, Input::Opened);
    world.force(epoch, Input::bytes(&b"{}\n"[..]));
    world.turn();
    assert_eq!(world.events().len(), told, "the last event was the last");
    assert_eq!(world.link().poll_timeout(), None);
}

#[test]
fn f_086_a_link_that_closes_when_its_budget_is_spent_stays_closed() {
    let mut config = config();
    config.policy = everlink::Policy::one_shot();
    let mut world = World::new(config).served_by(|_| missing());
    let call = world.tool("add");
    assert_eq!(world.failure(call).kind, FailureKind::Down);
    assert_eq!(world.state(), State::Closed);
    world.connect();
    world.wake();
    world.pass(seconds(3_600));
    assert_eq!(world.life(), 1);
}

#[test]
fn f_086_a_shutdown_in_a_pause_is_not_undone_by_its_end() {
    let mut world = ready(config(), legacy);
    world.peer_all(dies(CRASH));
    assert_eq!(world.state(), State::Waiting);
    world.shutdown();
    assert_eq!(world.state(), State::Closed);
    world.pass(seconds(3_600));
    assert_eq!(world.life(), 1);
}

#[test]
fn f_087_each_attempt_has_a_transport_of_its_own() {
    let mut world = World::new(config()).served_by(|life| match life {
        1 | 3 => missing(),
        2 => Peer::silent().dies_of("server/discover", CRASH),
        _ => legacy(),
    });
    world.until_ready();
    let opens_and_releases: Vec<Command> = world
        .commands()
        .into_iter()
        .filter(|command| matches!(command, Command::Open(_) | Command::Release(_)))
        .collect();
    let in_turn: Vec<Command> = (1..=4)
        .flat_map(|life| [Command::Open(life), Command::Release(life)])
        .take(7)
        .collect();
    assert_eq!(opens_and_releases, in_turn);
    world.finish();
}

/// The request state of one server means nothing to the next, even if the call was not sent with it yet.
#[test]
fn f_081_a_call_between_its_rounds_is_lost_with_its_server() {
    let mut world = ready(config(), || Peer::modern().ignores("tools/call"));
    let call = world.tool("in two rounds");
    let request = world.said("tools/call")[0].clone();
    let round = json!({"resultType": "input_required", "requestState": "s"});
    world.peer_unpolled(&reply(&request, round));
    world.peer_unpolled(&Act::End(Vec::new()));
    world.turn();
    let failure = world.failure(call);
    assert_eq!(failure.kind, FailureKind::Lost);
    assert_eq!(failure.delivery, Delivery::Unknown);
    world.finish();
}
