//! Failures of the version agreement, each test named after its row; then the requirements of the specification, each
//! test named after its id.

use core::time::Duration;

use crate::client_pipe::{
    Act, Chunking, Command, Peer, World, agreed, ask, config, dies, discovered, error, error_with,
    every_chunking, every_era, everything, notify, reply, seconds,
};
use everlink::client::{
    CallOptions, Cause, Delivery, Event, FailureKind, Outcome, State, TimeLimit,
};
use everlink::protocol::{ClientCapabilities, Era, Version};
use everlink::{Config, Dialect, ExitStatus, Instant, Limit, Watch};
use serde_json::{Value, json};

const DISCOVER: &str = "server/discover";
const INITIALIZE: &str = "initialize";
const INITIALIZED: &str = "notifications/initialized";

fn at(span: Duration) -> Instant {
    Instant::ZERO + span
}

fn speaking(dialect: Dialect) -> Config {
    let mut config = config();
    config.dialect = dialect;
    config
}

/// A world with this configuration and these servers.
fn world(config: Config, chunking: Chunking, cast: impl FnMut(u64) -> Peer + 'static) -> World {
    World::new(config).chunked(chunking).served_by(cast)
}

fn version(world: &World) -> Version {
    world.link().session().expect("the link is ready").version
}

/// The causes of the ends of transports, in order.
fn causes(world: &World) -> Vec<Cause> {
    world.picked(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    })
}

/// The text of the first handshake refusal.
fn refusal(world: &World) -> String {
    match causes(world).first() {
        Some(Cause::HandshakeRefused { why }) => why.to_string(),
        other => panic!("{other:?} is no refusal"),
    }
}

/// A legacy server that answers `initialize` after this delay.
fn slow_to_initialize(span: Duration) -> Peer {
    Peer::legacy("2025-11-25").on(INITIALIZE, move |request| {
        vec![reply(request, agreed("2025-11-25", everything())).after(span)]
    })
}

#[test]
fn f_052_a_handshake_that_is_never_answered_has_its_own_deadline() {
    for dialect in [Dialect::Automatic, Dialect::Legacy, Dialect::Modern] {
        every_chunking(|chunking| {
            let mut config = speaking(dialect);
            config.policy.call_idle = Limit::After(seconds(300));
            let mut world = world(config, chunking, |_| Peer::silent());
            let options = CallOptions::new().with_idle(Limit::After(seconds(5)));
            let hasty = world.call_with("tools/call", json!({"name": "hasty"}), options);
            let patient = world.tool("patient");
            world.until_done(hasty);
            assert_eq!(world.now(), at(seconds(5)), "the call has its own clock");
            let failure = world.failure(hasty);
            assert_eq!(failure.delivery, Delivery::NotSent);
            assert_eq!(
                failure.kind,
                FailureKind::TimedOut {
                    limit: TimeLimit::Idle,
                    state: State::Handshaking,
                }
            );

            world.until("the next attempt, which the call makes at once", |world| {
                world.life() == 2
            });
            assert_eq!(world.now(), at(config_timeout()));
            assert_eq!(causes(&world), [Cause::HandshakeTimedOut]);
            assert_eq!(world.link().failures(), 1);
            assert!(
                !world.is_done(patient),
                "it was not sent, so it waits for the next life"
            );
            // Everything is released, so no descriptors leak however often this happens.
            let taken_down = [Command::Open(1), Command::Terminate(1), Command::Release(1)];
            assert_eq!(world.commands_of(1), taken_down);
            world
        });
    }
}

fn config_timeout() -> Duration {
    config().policy.handshake_timeout
}

#[test]
fn f_053_a_server_that_is_slow_but_alive_is_waited_for() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| slow_to_initialize(seconds(115)));
        world.until_ready();
        assert_eq!(world.now(), at(seconds(115)));
        assert_eq!(
            world.commands(),
            [Command::Open(1)],
            "it was not killed half-way"
        );
        let told = world.picked(|event| match event {
            Event::Slow { waited, limit, .. } => Some((*waited, *limit)),
            _ => None,
        });
        let expected: Vec<_> = (1..=11)
            .map(|n| (seconds(10 * n), config_timeout()))
            .collect();
        assert_eq!(told, expected, "and that it is slow was said");
        world
    });
    every_chunking(|chunking| {
        let mut config = speaking(Dialect::Modern);
        config.policy.handshake_timeout = seconds(1_000);
        let mut world = world(config, chunking, |_| {
            Peer::modern().on(DISCOVER, |request| {
                vec![reply(request, discovered(everything())).after(seconds(900))]
            })
        });
        world.until_ready();
        assert_eq!(world.now(), at(seconds(900)), "the limit can be chosen");
        assert_eq!(world.life(), 1);
        world
    });
}

#[test]
fn f_053_a_server_that_dies_in_the_handshake_is_not_waited_for() {
    every_chunking(|chunking| {
        let mut world = world(speaking(Dialect::Legacy), chunking, |life| match life {
            1 => Peer::silent().dies_of(INITIALIZE, ExitStatus::Code(1)),
            _ => Peer::legacy("2025-11-25"),
        });
        world.connect();
        assert_eq!(world.state(), State::Waiting, "at once");
        assert_eq!(world.link().failures(), 1);
        world.until_ready();
        world
    });
}

/// S-STDIO-26: a child that exits on the probe is replaced by a fresh process and addressed as legacy.
#[test]
fn f_055_a_probe_that_kills_the_server_costs_a_life_and_no_attempt() {
    let at_once = || Peer::legacy("2025-06-18").dies_of(DISCOVER, ExitStatus::Code(1));
    for deadly in [at_once as fn() -> Peer, Peer::dies_on_probe] {
        every_chunking(|chunking| {
            let mut world = world(config(), chunking, move |_| deadly());
            let call = world.tool("add");
            world.until_done(call);
            world.result(call);
            assert_eq!(world.life(), 2);
            assert_eq!(causes(&world), [Cause::EraProbe]);
            assert_eq!(world.link().failures(), 0, "free of charge");
            assert_eq!(world.methods_of(1)[0], DISCOVER);
            assert_eq!(world.methods_of(2)[0], INITIALIZE);
            assert_eq!(world.link().era(), Some(Era::Legacy));

            // The era is remembered, so the next epoch skips the probe.
            world.peer_all(dies(ExitStatus::Code(1)));
            world.until_ready();
            assert_eq!(world.life(), 3);
            assert_eq!(world.methods_of(3)[0], INITIALIZE);
            world
        });
    }
}

/// Servers of the Python SDK from 1.1.3 to 1.8.1 take most of a second to start. A person waits for two starts and little more.
#[test]
fn f_055_a_server_that_dies_after_the_probe_is_ready_within_three_seconds() {
    every_chunking(|chunking| {
        let start = Duration::from_millis(900);
        let mut world = world(config(), chunking, move |life| {
            let slow = Peer::dies_on_probe().on(INITIALIZE, move |request| {
                let result = agreed("2024-11-05", everything());
                vec![reply(request, result).after(start)]
            });
            // The server that the probe kills had already started before it read the probe.
            if life == 1 {
                Peer::dies_on_probe()
            } else {
                slow
            }
        });
        world.until_ready();
        assert_eq!(world.life(), 2);
        assert_eq!(causes(&world), [Cause::EraProbe]);
        assert!(world.now() <= at(seconds(3)), "{:?}", world.now());
        world
    });
}

#[test]
fn f_055_a_server_that_always_dies_is_not_probed_for_free_for_ever() {
    every_chunking(|chunking| {
        let mut config = config();
        // As long as the budget lasts.
        config.policy.retry.start_for = Duration::MAX;
        let mut world = world(config.clone(), chunking, |_| {
            Peer::silent()
                .dies_of(DISCOVER, ExitStatus::Code(1))
                .dies_of(INITIALIZE, ExitStatus::Code(1))
        });
        world.connect();
        world.until_state(State::Parked);
        let free = world.link().stats().free_ends;
        assert_eq!(free, 1, "one life for the probe, and no more");
        assert_eq!(
            world.life(),
            u64::from(config.policy.retry.budget) + 1 + free
        );
        world
    });
}

/// A process that exits at once has a reason, and the waiting person learns it soon.
#[test]
fn f_055_a_server_that_always_dies_is_given_up_within_three_seconds() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| {
            Peer::silent()
                .dies_of(DISCOVER, ExitStatus::Code(1))
                .dies_of(INITIALIZE, ExitStatus::Code(1))
        });
        world.connect();
        world.until_state(State::Parked);
        assert!(world.now().as_nanos() <= 3_000_000_000, "{:?}", world.now());
        assert!(world.life() > 2, "once is no proof");
        world
    });
}

#[test]
fn f_055_the_era_of_an_earlier_process_is_used_and_dropped_when_wrong() {
    every_chunking(|chunking| {
        let mut config = config();
        config.remembered_era = Some(Era::Legacy);
        let mut world = world(config, chunking, |_| Peer::modern());
        world.until_ready();
        assert_eq!(world.methods_of(1)[..2], [INITIALIZE, DISCOVER]);
        assert_eq!(version(&world), Version::V2026_07_28);
        assert_eq!(world.life(), 1);
        world
    });
    every_chunking(|chunking| {
        let mut config = config();
        config.remembered_era = Some(Era::Modern);
        let mut world = world(config, chunking, |_| Peer::legacy("2025-03-26"));
        world.until_ready();
        assert_eq!(version(&world), Version::V2025_03_26);
        assert_eq!(world.link().era(), Some(Era::Legacy));
        world
    });
}

/// A handshake that the application interrupts says nothing about the server.
#[test]
fn f_055_a_reconnect_in_the_handshake_does_not_refute_the_era() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |life| match life {
            2 | 3 => Peer::silent(),
            _ => Peer::legacy("2025-11-25"),
        });
        world.until_ready();
        // One failure would put the era in doubt, and a second one would discard it.
        for life in [2, 3] {
            world.reconnect("new settings");
            world.until_state(State::Handshaking);
            assert_eq!(world.life(), life);
        }
        world.reconnect("new settings");
        world.until_ready();
        for life in [2, 3, 4] {
            assert_eq!(world.methods_of(life)[0], INITIALIZE);
        }
        world
    });
}

/// S-STDIO-24, S-STDIO-26: silence counts as an answer, and a late reply is dropped.
#[test]
fn f_056_a_probe_that_is_ignored_falls_back_in_time() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| {
            Peer::legacy("2025-06-18")
                .on(DISCOVER, |request| {
                    vec![reply(request, discovered(everything())).after(seconds(8))]
                })
                .on(INITIALIZE, |request| {
                    vec![reply(request, agreed("2025-06-18", everything())).after(seconds(4))]
                })
        });
        world.until_ready();
        let probe = config().policy.probe_timeout;
        assert_eq!(world.now(), at(probe + seconds(4)));
        assert_eq!(version(&world), Version::V2025_06_18);
        world.pass(seconds(20));
        assert_eq!(
            version(&world),
            Version::V2025_06_18,
            "the late reply changes nothing"
        );
        assert_eq!(world.link().stats().late_replies, 1);
        assert_eq!(world.methods_of(1), [DISCOVER, INITIALIZE, INITIALIZED]);
        world
    });
}

#[test]
fn f_056_a_modern_error_to_initialize_is_probed_once_more() {
    for code in [-32022, -32601] {
        every_chunking(|chunking| {
            let mut silent = true;
            let mut world = world(config(), chunking, move |_| {
                let mut first = core::mem::take(&mut silent);
                Peer::modern()
                    .on(DISCOVER, move |request| match core::mem::take(&mut first) {
                        true => Vec::new(),
                        false => vec![reply(request, discovered(everything()))],
                    })
                    .on(INITIALIZE, move |request| {
                        let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
                        vec![error_with(request, code, "not that way", data)]
                    })
            });
            world.until_ready();
            assert_eq!(version(&world), Version::V2026_07_28);
            assert_eq!(world.methods_of(1)[..3], [DISCOVER, INITIALIZE, DISCOVER]);
            assert_eq!(world.life(), 1);
            world
        });
        every_chunking(|chunking| {
            let mut world = world(config(), chunking, move |_| {
                Peer::silent().on(INITIALIZE, move |request| {
                    vec![error(request, code, "not that way")]
                })
            });
            world.connect();
            world.until("the first life is over", |world| !causes(world).is_empty());
            let said = world.methods_of(1);
            let probes = said.iter().filter(|method| **method == DISCOVER).count();
            let initializes = said.iter().filter(|method| **method == INITIALIZE).count();
            assert_eq!(probes, 2, "{said:?}");
            assert!(initializes <= 2, "{said:?}");
            world
        });
    }
}

/// An error without an id refers to the present request, not to the abandoned probe.
#[test]
fn f_056_an_error_to_nobody_answers_the_second_probe() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| {
            let mut first = true;
            Peer::modern().on(DISCOVER, move |_| match core::mem::take(&mut first) {
                true => Vec::new(),
                false => vec![Act::Say(json!({"jsonrpc": "2.0", "id": null,
                    "error": {"code": -32700, "message": "cannot read that"}}))],
            })
        });
        world.connect();
        world.until("the first life is over", |world| !causes(world).is_empty());
        assert_eq!(world.methods_of(1), [DISCOVER, INITIALIZE, DISCOVER]);
        assert_eq!(
            world.now(),
            at(config().policy.probe_timeout),
            "it was heard"
        );
        world
    });
}

/// S-STDIO-24, S-STDIO-25: the fallback does not depend on one error code.
#[test]
fn f_057_any_error_that_is_not_modern_falls_back() {
    for code in [
        -32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, 0, 1, 404,
    ] {
        every_chunking(|chunking| {
            let mut world = world(config(), chunking, move |_| {
                Peer::legacy("2024-11-05").refuses(DISCOVER, code)
            });
            world.until_ready();
            assert_eq!(world.now(), Instant::ZERO, "at once");
            assert_eq!(version(&world), Version::V2024_11_05);
            assert_eq!(world.methods_of(1), [DISCOVER, INITIALIZE, INITIALIZED]);
            world
        });
    }
}

#[test]
fn f_057_answers_that_are_none_fall_back_too() {
    let odd = [
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "what?"}}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "result": null}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions": "2026-07-28"}}),
        json!({"jsonrpc": "2.0", "id": 1, "error": "what?"}),
    ];
    for answer in odd {
        every_chunking(|chunking| {
            let answer = answer.clone();
            let mut world = world(config(), chunking, move |_| {
                let answer = answer.clone();
                Peer::legacy("2025-11-25").on(DISCOVER, move |_| vec![Act::Say(answer.clone())])
            });
            world.until_ready();
            assert_eq!(version(&world), Version::V2025_11_25);
            assert_eq!(world.life(), 1);
            world
        });
    }
}

/// A server that reads nothing until it has started. Both replies come then, and the first one is too late.
#[test]
fn f_058_the_probe_lies_within_the_time_of_the_handshake_and_leaves_room_for_the_fallback() {
    every_chunking(|chunking| {
        let up = seconds(60);
        let mut world = world(config(), chunking, move |_| {
            Peer::legacy("2025-11-25")
                .on(DISCOVER, move |request| {
                    vec![error(request, -32601, "what?").after(up)]
                })
                .on(INITIALIZE, move |request| {
                    let result = agreed("2025-11-25", everything());
                    vec![reply(request, result).after(up - config().policy.probe_timeout)]
                })
        });
        world.until_ready();
        assert_eq!(world.now(), at(up));
        assert_eq!(world.commands(), [Command::Open(1)]);
        world
    });
    every_chunking(|chunking| {
        let up = seconds(60);
        let mut world = world(config(), chunking, move |_| {
            let mut down_for = up;
            Peer::modern()
                .on(DISCOVER, move |request| {
                    let span = core::mem::take(&mut down_for);
                    vec![reply(request, discovered(everything())).after(span)]
                })
                .on(INITIALIZE, move |request| {
                    let refused = error(request, -32601, "what?");
                    vec![refused.after(up - config().policy.probe_timeout)]
                })
        });
        world.until_ready();
        assert_eq!(version(&world), Version::V2026_07_28, "slow is not old");
        assert_eq!(world.life(), 1);
        assert_eq!(world.now(), at(up), "and asked once more, it says so");
        world
    });
}

#[test]
fn f_058_an_impatient_handshake_leaves_room_for_the_fallback_too() {
    for timeout in [seconds(3), seconds(1)] {
        every_chunking(|chunking| {
            let mut config = config();
            config.policy.handshake_timeout = timeout;
            let mut world = world(config, chunking, |_| {
                Peer::legacy("2025-11-25").ignores(DISCOVER)
            });
            world.until_ready();
            assert_eq!(world.life(), 1);
            assert_eq!(world.now(), at(timeout / 2));
            world
        });
    }
}

/// S-LIFE-07: a server may answer with its own version, and any version that the client supports is accepted.
#[test]
fn f_059_every_version_that_both_speak_is_good_enough() {
    for legacy in Version::LEGACY {
        for dialect in [Dialect::Automatic, Dialect::Legacy] {
            every_chunking(|chunking| {
                let mut world = world(speaking(dialect), chunking, |_| {
                    Peer::legacy(legacy.as_str())
                });
                world.until_ready();
                assert_eq!(version(&world), *legacy);
                let call = world.tool("add");
                assert!(world.is_done(call));
                world
            });
        }
    }
}

/// S-LIFE-08: an unsupported version ends the epoch, and the failure says so.
#[test]
fn f_059_a_version_that_nobody_knows_is_refused() {
    for odd in ["1999-12-31", "2026-07-28", "", "latest"] {
        every_chunking(|chunking| {
            let mut world = world(speaking(Dialect::Legacy), chunking, move |_| {
                Peer::legacy(odd).ignores(DISCOVER)
            });
            let call = world.tool("add");
            assert_eq!(world.state(), State::Parked, "it has said no");
            assert!(refusal(&world).contains("version"), "{}", refusal(&world));
            let close = [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Release(1),
            ];
            assert_eq!(
                world.commands_of(1),
                close,
                "it did nothing that calls for force"
            );
            world.until_state(State::Parked);
            let failure = world.failure(call);
            assert_eq!(failure.kind, FailureKind::Down);
            assert!(
                failure.to_string().contains("handshake failed"),
                "{failure}"
            );
            world
        });
    }
}

/// The client initializes each epoch exactly once.
#[test]
fn f_060_a_life_is_initialized_once() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| Peer::legacy("2025-11-25"));
        world.until_ready();
        world.connect();
        world.wake();
        world.reconnect("once");
        world.until_ready();
        world.peer_all(dies(ExitStatus::Code(0)));
        world.until_ready();
        for life in 1..=3 {
            let said = world.methods_of(life);
            let count = |wanted| said.iter().filter(|method| **method == wanted).count();
            assert_eq!((count(INITIALIZE), count(INITIALIZED)), (1, 1), "{said:?}");
        }
        world
    });
}

/// S-LIFE-04: calls before the link is ready wait, in order.
#[test]
fn f_061_nothing_is_asked_for_before_the_handshake_is_over() {
    every_era(|chunking, peer| {
        let mut world = world(config(), chunking, move |_| {
            peer().opens_with(vec![Act::Opened.after(seconds(1))])
        });
        let early = world.tool("early");
        world.pass(seconds(1));
        let late = world.tool("late");
        world.until_done(late);
        assert!(world.is_done(early));
        let said: Vec<Value> = world.lines_of(1).into_iter().cloned().collect();
        let first_call = said.iter().position(|line| line["method"] == "tools/call");
        let handshake = &said[..first_call.expect("a call was sent")];
        let expected: &[&str] = match version(&world).era() {
            Era::Legacy => &[DISCOVER, INITIALIZE, INITIALIZED],
            _ => &[DISCOVER, "subscriptions/listen"],
        };
        let methods: Vec<&str> = handshake
            .iter()
            .filter_map(|line| line["method"].as_str())
            .collect();
        assert_eq!(methods, expected);
        let names = said
            .iter()
            .filter_map(|line| line["params"]["name"].as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["early", "late"]);
        world
    });
}

/// S-STDIO-20: calls in flight ended with the process. Reads are sent again, and the watch is set up again.
#[test]
fn s_stdio_20_a_new_process_gets_the_calls_that_may_be_repeated_and_the_watch() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |life| match life {
            1 => Peer::modern().ignores("tools/list"),
            _ => Peer::modern(),
        });
        world.until_ready();
        let reads = world.call("tools/list", json!({}));
        world.peer_all(dies(ExitStatus::Code(1)));
        world.until_done(reads);
        world.result(reads);
        let watching = world.granted();
        assert_eq!(watching, [(1, Watch::lists()), (2, Watch::lists())]);
        assert!(world.methods_of(2).contains(&"subscriptions/listen"));
        world
    });
}

/// S-STDIO-21: the first message is the probe, with the preferred version.
#[test]
fn s_stdio_21_the_probe_comes_first_and_names_the_preferred_version() {
    every_era(|chunking, peer| {
        let mut world = world(config(), chunking, move |_| peer());
        world.until_ready();
        let first = world.lines_of(1)[0];
        assert_eq!(first["method"], DISCOVER);
        let meta = &first["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
        world
    });
}

/// S-STDIO-22: the newest common version is used, whatever else the server lists.
#[test]
fn s_stdio_22_a_modern_server_is_taken_at_its_word() {
    let offers = |versions: Value| {
        move |_| {
            let versions = versions.clone();
            Peer::modern().replies(DISCOVER, move |_| {
                let mut result = discovered(everything());
                result["supportedVersions"] = versions.clone();
                result
            })
        }
    };
    every_chunking(|chunking| {
        let versions = json!(["2025-11-25", "2031-01-01", "2026-07-28"]);
        let mut world = world(config(), chunking, offers(versions));
        world.until_ready();
        assert_eq!(version(&world), Version::V2026_07_28);
        assert!(!world.methods_of(1).contains(&INITIALIZE));
        world
    });
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, offers(json!(["2031-01-01"])));
        world.connect();
        assert!(refusal(&world).contains("version"));
        assert!(!world.methods_of(1).contains(&INITIALIZE));
        world
    });
}

/// S-STDIO-23, S-VER-02: a server with this error is modern. Its correction is followed once.
#[test]
fn s_ver_02_a_refused_version_is_corrected_once() {
    let data = || json!({"supported": ["2026-07-28"], "requested": "2026-07-28"});
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, move |_| {
            let mut refusals = 1;
            Peer::modern().on(DISCOVER, move |request| {
                if refusals == 0 {
                    return vec![reply(request, discovered(everything()))];
                }
                refusals -= 1;
                vec![error_with(request, -32022, "not that one", data())]
            })
        });
        world.until_ready();
        assert_eq!(world.methods_of(1)[..2], [DISCOVER, DISCOVER]);
        let ids: Vec<&Value> = world
            .lines_of(1)
            .into_iter()
            .map(|line| &line["id"])
            .collect();
        assert_ne!(ids[0], ids[1], "under a new id");
        world
    });
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, move |_| {
            Peer::modern().on(DISCOVER, move |request| {
                vec![error_with(request, -32022, "not that one", data())]
            })
        });
        world.connect();
        assert_eq!(
            world.methods_of(1),
            [DISCOVER, DISCOVER],
            "a second time is fatal"
        );
        assert!(matches!(causes(&world)[0], Cause::HandshakeRefused { .. }));
        world
    });
}

#[test]
fn s_ver_02_a_life_is_initialized_once_even_if_the_probe_does_not_help() {
    every_chunking(|chunking| {
        let mut config = config();
        config.remembered_era = Some(Era::Legacy);
        let mut world = world(config, chunking, |_| {
            Peer::silent()
                .refuses(INITIALIZE, -32601)
                .refuses(DISCOVER, -32601)
        });
        world.connect();
        assert_eq!(world.methods_of(1), [INITIALIZE, DISCOVER]);
        assert!(matches!(causes(&world)[0], Cause::HandshakeRefused { .. }));
        world
    });
}

/// S-RPC-20: a result of an unknown type is no agreement.
#[test]
fn s_rpc_20_an_unknown_kind_of_discovery_is_none() {
    for (kind, expected) in [
        (json!("riddle"), Version::V2025_11_25),
        (json!("input_required"), Version::V2025_11_25),
        (json!("complete"), Version::V2026_07_28),
    ] {
        every_chunking(|chunking| {
            let kind = kind.clone();
            let mut world = world(config(), chunking, move |_| {
                let kind = kind.clone();
                Peer::legacy("2025-11-25").replies(DISCOVER, move |_| {
                    let mut result = discovered(everything());
                    result["resultType"] = kind.clone();
                    result
                })
            });
            world.until_ready();
            assert_eq!(version(&world), expected);
            world
        });
    }
}

/// S-VER-09: an error that only a modern server can send is never answered with `initialize`.
#[test]
fn s_ver_09_a_modern_error_is_never_answered_with_initialize() {
    for code in [-32020, -32021, -32022] {
        for data in [Value::Null, json!({"supported": ["2031-01-01"]})] {
            every_chunking(|chunking| {
                let data = data.clone();
                let mut world = world(config(), chunking, move |_| {
                    let data = data.clone();
                    Peer::legacy("2025-11-25").on(DISCOVER, move |request| {
                        vec![error_with(request, code, "no", data.clone())]
                    })
                });
                world.connect();
                assert_eq!(world.state(), State::Parked, "it has said no");
                assert!(!refusal(&world).is_empty());
                assert!(!world.methods_of(1).contains(&INITIALIZE));
                assert_eq!(world.link().failures(), 1);
                world
            });
        }
    }
}

/// If the only common version is a legacy one, only `initialize` leads to it.
#[test]
fn s_ver_09_a_legacy_version_that_is_offered_is_taken() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| {
            Peer::legacy("2025-11-25").on(DISCOVER, |request| {
                let data = json!({"supported": ["2025-11-25"], "requested": "2026-07-28"});
                vec![error_with(request, -32022, "not that one", data)]
            })
        });
        world.until_ready();
        assert_eq!(version(&world), Version::V2025_11_25);
        world
    });
}

/// S-LIFE-01, S-LIFE-03, S-LIFE-06: the content and order of a legacy handshake.
#[test]
fn s_life_01_the_legacy_handshake_says_all_it_must() {
    every_chunking(|chunking| {
        let mut config = speaking(Dialect::Legacy);
        config.capabilities = ClientCapabilities::default().with_sampling();
        let mut world = world(config, chunking, |_| Peer::legacy("2025-11-25"));
        world.until_ready();
        let said = world.lines_of(1);
        assert_eq!(world.methods_of(1), [INITIALIZE, INITIALIZED]);
        let params = &said[0]["params"];
        assert_eq!(
            params["protocolVersion"], "2025-11-25",
            "the newest legacy one"
        );
        assert_eq!(params["capabilities"], json!({"sampling": {}}));
        assert_eq!(
            params["clientInfo"],
            json!({"name": "test", "version": "1"})
        );
        assert!(
            params.get("_meta").is_none(),
            "nothing modern is said to it"
        );
        assert!(said[1].get("id").is_none(), "a notification");
        world
    });
}

/// S-LIFE-05: a server that sends requests too early gets a reply to its ping and errors for the rest. The handshake
/// continues.
#[test]
fn s_life_05_a_server_that_speaks_too_early_is_borne() {
    every_chunking(|chunking| {
        let mut config = speaking(Dialect::Legacy);
        config.capabilities = ClientCapabilities::default().with_roots(false);
        let mut world = world(config, chunking, |_| {
            Peer::legacy("2025-11-25").on(INITIALIZE, |request| {
                vec![
                    ask("p", "ping", json!({})),
                    ask("r", "roots/list", json!({})),
                    notify(
                        "notifications/message",
                        json!({"level": "info", "data": "hello"}),
                    ),
                    reply(request, agreed("2025-11-25", everything())),
                ]
            })
        });
        world.until_ready();
        let answers = world.lines_of(1);
        let answer = |id: &str| answers.iter().find(|line| line["id"] == id).copied();
        assert_eq!(answer("p").expect("an answer")["result"], json!({}));
        assert_eq!(answer("r").expect("an answer")["error"]["code"], -32600);
        assert!(world.asks().is_empty());
        world
    });
}

/// S-LIFE-09: an error reply to `initialize` is reported with the server's message.
#[test]
fn s_life_09_an_error_to_initialize_is_told() {
    every_chunking(|chunking| {
        let mut world = world(speaking(Dialect::Legacy), chunking, |_| {
            Peer::silent().on(INITIALIZE, |request| {
                let data = json!({"supported": ["1.0.0"], "requested": "2025-11-25"});
                vec![error_with(
                    request,
                    -32602,
                    "Unsupported protocol version",
                    data,
                )]
            })
        });
        world.connect();
        assert!(refusal(&world).contains("Unsupported protocol version"));
        assert!(refusal(&world).contains("-32602"), "{}", refusal(&world));
        world
    });
}

/// A fault that the link finds in a reply is not reported as an error of the server.
#[test]
fn s_life_09_an_answer_that_is_too_large_is_told_as_that() {
    // An oversized reply to the probe does not prove the legacy era either, so no `initialize` follows.
    for method in [INITIALIZE, DISCOVER] {
        every_chunking(|chunking| {
            let mut config = config();
            config.limits.message_bytes = 200;
            let mut world = world(config, chunking, move |_| match method {
                DISCOVER => Peer::modern(),
                _ => Peer::legacy("2025-11-25"),
            });
            world.connect();
            assert_eq!(world.methods_of(1).last(), Some(&method));
            let told = refusal(&world);
            let why = format!("its answer to {method}: the reply is too large");
            assert!(told.contains(&why), "{told}");
            assert!(!told.contains("-32603"), "{told}");
            world
        });
    }
}

#[test]
fn s_life_09_an_answer_that_is_none_is_told_as_that() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| {
            Peer::legacy("2025-11-25").on(INITIALIZE, |request| {
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "error": "what?"});
                vec![Act::Say(answer)]
            })
        });
        world.connect();
        let told = refusal(&world);
        assert!(told.contains("its answer to initialize: "), "{told}");
        assert!(!told.contains("-326"), "{told}");
        world
    });
}

/// S-LIFE-09: a call that needs a missing capability fails, and nothing else happens.
#[test]
fn s_life_09_what_is_not_offered_is_said_at_once() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| {
            Peer::legacy("2025-11-25")
                .replies(INITIALIZE, |_| agreed("2025-11-25", json!({"prompts": {}})))
        });
        let early = world.tool("early");
        world.until_done(early);
        let late = world.tool("late");
        for call in [early, late] {
            let failure = world.failure(call);
            assert!(
                matches!(&failure.kind, FailureKind::NotOffered { what } if what.contains("tools"))
            );
            assert_eq!(failure.delivery, Delivery::NotSent);
        }
        assert_eq!(world.state(), State::Ready);
        world
    });
}

/// S-LIFE-10: nothing is written in a batch, not even `initialize`.
#[test]
fn s_life_10_nothing_is_written_in_a_batch() {
    every_chunking(|chunking| {
        let mut world = world(speaking(Dialect::Legacy), chunking, |_| {
            Peer::legacy("2025-03-26")
        });
        for number in 0..5 {
            world.tool(&format!("tool-{number}"));
        }
        world.until_ready();
        assert!(world.lines_of(1).iter().all(|line| line.is_object()));
        assert_eq!(world.lines_of(1).len(), 2 + 5);
        world
    });
}

/// A server that collects its replies to tool calls and sends them in one batch with the third.
fn batching(version: &'static str) -> Peer {
    let mut kept: Vec<Value> = Vec::new();
    Peer::legacy(version).on("tools/call", move |request| {
        kept.push(json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}}));
        if kept.len() < 3 {
            return Vec::new();
        }
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        kept.push(json!({"not": "a message"}));
        kept.push(changed);
        vec![Act::Say(Value::Array(core::mem::take(&mut kept)))]
    })
}

/// S-BATCH-01, S-BATCH-02, S-BATCH-08: batches are accepted in 2025-03-26, and each element is handled on its own.
#[test]
fn s_batch_01_a_batch_is_as_good_as_its_elements() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| batching("2025-03-26"));
        world.until_ready();
        let calls = [(); 3].map(|()| world.tool("add"));
        for call in calls {
            assert!(matches!(world.outcome(call), Outcome::Reply(_)));
        }
        let changes = world.picked(|event| match event {
            Event::Changed(change) => Some(change.clone()),
            _ => None,
        });
        assert_eq!(changes.len(), 1);
        assert_eq!(world.link().stats().noise, 1, "one element of it is none");
        world.peer(Act::Raw(b"[]\n".to_vec()));
        assert_eq!(
            world.link().stats().noise,
            2,
            "an empty one is one invalid message"
        );
        assert_eq!(world.state(), State::Ready);
        world
    });
}

/// S-BATCH-01: each request in a batch gets its own reply.
#[test]
fn s_batch_01_requests_in_a_batch_are_answered() {
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| Peer::legacy("2025-03-26"));
        world.until_ready();
        world.peer(Act::Say(json!([
            {"jsonrpc": "2.0", "id": "a", "method": "ping"},
            {"jsonrpc": "2.0", "id": "b", "method": "ping"},
        ])));
        let lines = world.lines_of(1);
        let answers: Vec<_> = lines
            .iter()
            .filter(|line| line["result"] == json!({}))
            .collect();
        assert_eq!(answers.len(), 2);
        assert_eq!(
            (&answers[0]["id"], &answers[1]["id"]),
            (&json!("a"), &json!("b"))
        );
        world
    });
}

/// S-BATCH-07: in every other version a batch is no message, whatever it contains.
#[test]
fn s_batch_07_other_versions_have_no_batches() {
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        every_chunking(|chunking| {
            let mut world = world(config(), chunking, move |_| batching(version));
            world.until_ready();
            let calls = [(); 3].map(|()| world.tool("add"));
            assert!(calls.iter().all(|call| !world.is_done(*call)));
            assert_eq!(world.link().stats().noise, 1);
            assert_eq!(world.state(), State::Ready);
            world
        });
    }
    every_chunking(|chunking| {
        let mut world = world(config(), chunking, |_| {
            Peer::modern().on("tools/call", |request| {
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {}});
                vec![Act::Say(json!([answer]))]
            })
        });
        world.until_ready();
        let call = world.tool("add");
        assert!(!world.is_done(call));
        assert_eq!(world.link().stats().noise, 1);
        world
    });
}
