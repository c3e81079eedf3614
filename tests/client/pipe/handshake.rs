//! Failures of the version agreement, each test named after its row; then the requirements of the specification, each
//! test named after its id.

use core::time::Duration;

use crate::client_pipe::{
    Act, Chunking, Command, Harness, Peer, all_capabilities, ask, config, dies, discover_result,
    error, error_with, every_chunking, every_era, initialize_result, notify, reply, seconds,
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

fn config_with_dialect(dialect: Dialect) -> Config {
    let mut config = config();
    config.dialect = dialect;
    config
}

/// A harness with this configuration and these servers.
fn harness(
    config: Config,
    chunking: Chunking,
    new_server: impl FnMut(u64) -> Peer + 'static,
) -> Harness {
    Harness::new(config).chunked(chunking).served_by(new_server)
}

fn version(harness: &Harness) -> Version {
    harness.link().session().expect("the link is ready").version
}

/// The causes of the ends of transports, in order.
fn causes(harness: &Harness) -> Vec<Cause> {
    harness.pick_events(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    })
}

/// The text of the first handshake refusal.
fn refusal(harness: &Harness) -> String {
    match causes(harness).first() {
        Some(Cause::HandshakeRefused { why }) => why.to_string(),
        other => panic!("{other:?} is no refusal"),
    }
}

/// A legacy server that answers `initialize` after this delay.
fn slow_to_initialize(span: Duration) -> Peer {
    Peer::legacy("2025-11-25").on(INITIALIZE, move |request| {
        vec![reply(request, initialize_result("2025-11-25", all_capabilities())).after(span)]
    })
}

/// S-TIME-06, S-TIME-07: a handshake that times out ends with its transport, because it cannot be cancelled.
#[test]
fn f_052_unanswered_handshake_has_its_own_timeout() {
    for dialect in [Dialect::Automatic, Dialect::Legacy, Dialect::Modern] {
        every_chunking(|chunking| {
            let mut config = config_with_dialect(dialect);
            config.policy.call_idle = Limit::After(seconds(300));
            let mut harness = harness(config, chunking, |_| Peer::silent());
            let options = CallOptions::new().with_idle(Limit::After(seconds(5)));
            let hasty = harness.call_with("tools/call", json!({"name": "hasty"}), options);
            let patient = harness.call_tool("patient");
            harness.until_done(hasty);
            assert_eq!(
                harness.now(),
                at(seconds(5)),
                "the call has its own deadline"
            );
            let failure = harness.failure(hasty);
            assert_eq!(failure.delivery, Delivery::NotSent);
            assert_eq!(
                failure.kind,
                FailureKind::TimedOut {
                    limit: TimeLimit::Idle,
                    state: State::Handshaking,
                }
            );

            harness.until(
                "the waiting call starts the next attempt at once",
                |harness| harness.epoch_number() == 2,
            );
            assert_eq!(harness.now(), at(handshake_timeout()));
            assert_eq!(causes(&harness), [Cause::HandshakeTimedOut]);
            assert_eq!(harness.link().failures(), 1);
            assert!(
                !harness.is_done(patient),
                "the call was not sent, so it waits for the next epoch"
            );
            // Everything is released, so no descriptors leak however often this happens.
            let taken_down = [Command::Open(1), Command::Terminate(1), Command::Release(1)];
            assert_eq!(harness.commands_of(1), taken_down);
            harness
        });
    }
}

fn handshake_timeout() -> Duration {
    config().policy.handshake_timeout
}

#[test]
fn f_053_slow_handshake_within_the_timeout_succeeds() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| slow_to_initialize(seconds(115)));
        harness.until_ready();
        assert_eq!(harness.now(), at(seconds(115)));
        assert_eq!(
            harness.commands(),
            [Command::Open(1)],
            "the server was not killed during the handshake"
        );
        let slow_events = harness.pick_events(|event| match event {
            Event::Slow { waited, limit, .. } => Some((*waited, *limit)),
            _ => None,
        });
        let expected: Vec<_> = (1..=11)
            .map(|n| (seconds(10 * n), handshake_timeout()))
            .collect();
        assert_eq!(
            slow_events, expected,
            "the slow handshake is reported every 10 s"
        );
        harness
    });
    every_chunking(|chunking| {
        let mut config = config_with_dialect(Dialect::Modern);
        config.policy.handshake_timeout = seconds(1_000);
        let mut harness = harness(config, chunking, |_| {
            Peer::modern().on(DISCOVER, |request| {
                vec![reply(request, discover_result(all_capabilities())).after(seconds(900))]
            })
        });
        harness.until_ready();
        assert_eq!(
            harness.now(),
            at(seconds(900)),
            "the configured timeout applies"
        );
        assert_eq!(harness.epoch_number(), 1);
        harness
    });
}

#[test]
fn f_053_server_death_during_the_handshake_ends_the_epoch_at_once() {
    every_chunking(|chunking| {
        let mut harness =
            harness(
                config_with_dialect(Dialect::Legacy),
                chunking,
                |epoch| match epoch {
                    1 => Peer::silent().dies_on(INITIALIZE, ExitStatus::Code(1)),
                    _ => Peer::legacy("2025-11-25"),
                },
            );
        harness.connect();
        assert_eq!(harness.state(), State::Waiting, "at once");
        assert_eq!(harness.link().failures(), 1);
        harness.until_ready();
        harness
    });
}

/// S-STDIO-26: a child that exits on the probe is replaced by a fresh process and addressed as legacy.
#[test]
fn f_055_probe_that_kills_the_server_costs_one_epoch_but_no_failure() {
    let at_once = || Peer::legacy("2025-06-18").dies_on(DISCOVER, ExitStatus::Code(1));
    for deadly in [at_once as fn() -> Peer, Peer::dies_on_probe] {
        every_chunking(|chunking| {
            let mut harness = harness(config(), chunking, move |_| deadly());
            let call = harness.call_tool("add");
            harness.until_done(call);
            harness.result(call);
            assert_eq!(harness.epoch_number(), 2);
            assert_eq!(causes(&harness), [Cause::EraProbe]);
            assert_eq!(
                harness.link().failures(),
                0,
                "the epoch does not count as a failure"
            );
            assert_eq!(harness.methods_of(1)[0], DISCOVER);
            assert_eq!(harness.methods_of(2)[0], INITIALIZE);
            assert_eq!(harness.link().era(), Some(Era::Legacy));

            // The era is remembered, so the next epoch skips the probe.
            harness.perform_all(dies(ExitStatus::Code(1)));
            harness.until_ready();
            assert_eq!(harness.epoch_number(), 3);
            assert_eq!(harness.methods_of(3)[0], INITIALIZE);
            harness
        });
    }
}

/// Servers of the Python SDK from 1.1.3 to 1.8.1 take most of a second to start. A person waits for two starts and little more.
#[test]
fn f_055_a_server_that_dies_after_the_probe_is_ready_within_three_seconds() {
    every_chunking(|chunking| {
        let start = Duration::from_millis(900);
        let mut harness = harness(config(), chunking, move |epoch| {
            let slow = Peer::dies_on_probe().on(INITIALIZE, move |request| {
                let result = initialize_result("2024-11-05", all_capabilities());
                vec![reply(request, result).after(start)]
            });
            // The server that the probe kills had already started before it read the probe.
            if epoch == 1 {
                Peer::dies_on_probe()
            } else {
                slow
            }
        });
        harness.until_ready();
        assert_eq!(harness.epoch_number(), 2);
        assert_eq!(causes(&harness), [Cause::EraProbe]);
        assert!(harness.now() <= at(seconds(3)), "{:?}", harness.now());
        harness
    });
}

#[test]
fn f_055_server_that_always_dies_gets_one_uncounted_epoch() {
    every_chunking(|chunking| {
        let mut config = config();
        // As long as the budget lasts.
        config.policy.retry.start_for = Duration::MAX;
        let mut harness = harness(config.clone(), chunking, |_| {
            Peer::silent()
                .dies_on(DISCOVER, ExitStatus::Code(1))
                .dies_on(INITIALIZE, ExitStatus::Code(1))
        });
        harness.connect();
        harness.until_state(State::Parked);
        let free = harness.link().stats().free_ends;
        assert_eq!(free, 1, "one uncounted epoch for the probe");
        assert_eq!(
            harness.epoch_number(),
            u64::from(config.policy.retry.budget) + 1 + free
        );
        harness
    });
}

/// A process that exits at once has a reason, and the waiting person learns it soon.
#[test]
fn f_055_a_server_that_always_dies_is_given_up_within_three_seconds() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| {
            Peer::silent()
                .dies_on(DISCOVER, ExitStatus::Code(1))
                .dies_on(INITIALIZE, ExitStatus::Code(1))
        });
        harness.connect();
        harness.until_state(State::Parked);
        assert!(
            harness.now().as_nanos() <= 3_000_000_000,
            "{:?}",
            harness.now()
        );
        assert!(harness.epoch_number() > 2, "more than one epoch was tried");
        harness
    });
}

#[test]
fn f_055_remembered_era_is_tried_first_and_corrected_if_wrong() {
    every_chunking(|chunking| {
        let mut config = config();
        config.remembered_era = Some(Era::Legacy);
        let mut harness = harness(config, chunking, |_| Peer::modern());
        harness.until_ready();
        assert_eq!(harness.methods_of(1)[..2], [INITIALIZE, DISCOVER]);
        assert_eq!(version(&harness), Version::V2026_07_28);
        assert_eq!(harness.epoch_number(), 1);
        harness
    });
    every_chunking(|chunking| {
        let mut config = config();
        config.remembered_era = Some(Era::Modern);
        let mut harness = harness(config, chunking, |_| Peer::legacy("2025-03-26"));
        harness.until_ready();
        assert_eq!(version(&harness), Version::V2025_03_26);
        assert_eq!(harness.link().era(), Some(Era::Legacy));
        harness
    });
}

/// A handshake that the application interrupts says nothing about the server.
#[test]
fn f_055_reconnect_during_the_handshake_keeps_the_remembered_era() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |epoch| match epoch {
            2 | 3 => Peer::silent(),
            _ => Peer::legacy("2025-11-25"),
        });
        harness.until_ready();
        // One failure would put the era in doubt, and a second one would discard it.
        for epoch in [2, 3] {
            harness.reconnect("new settings");
            harness.until_state(State::Handshaking);
            assert_eq!(harness.epoch_number(), epoch);
        }
        harness.reconnect("new settings");
        harness.until_ready();
        for epoch in [2, 3, 4] {
            assert_eq!(harness.methods_of(epoch)[0], INITIALIZE);
        }
        harness
    });
}

/// S-STDIO-24, S-STDIO-26: silence counts as an answer, and a late reply is dropped.
#[test]
fn f_056_ignored_probe_falls_back_to_initialize_after_the_probe_timeout() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| {
            Peer::legacy("2025-06-18")
                .on(DISCOVER, |request| {
                    vec![reply(request, discover_result(all_capabilities())).after(seconds(8))]
                })
                .on(INITIALIZE, |request| {
                    vec![
                        reply(request, initialize_result("2025-06-18", all_capabilities()))
                            .after(seconds(4)),
                    ]
                })
        });
        harness.until_ready();
        let probe = config().policy.probe_timeout;
        assert_eq!(harness.now(), at(probe + seconds(4)));
        assert_eq!(version(&harness), Version::V2025_06_18);
        harness.advance(seconds(20));
        assert_eq!(
            version(&harness),
            Version::V2025_06_18,
            "the late reply changes nothing"
        );
        assert_eq!(harness.link().stats().late_replies, 1);
        assert_eq!(harness.methods_of(1), [DISCOVER, INITIALIZE, INITIALIZED]);
        harness
    });
}

#[test]
fn f_056_modern_error_to_initialize_triggers_one_more_probe() {
    for code in [-32022, -32601] {
        every_chunking(|chunking| {
            let mut silent = true;
            let mut harness = harness(config(), chunking, move |_| {
                let mut first = core::mem::take(&mut silent);
                Peer::modern()
                    .on(DISCOVER, move |request| match core::mem::take(&mut first) {
                        true => Vec::new(),
                        false => vec![reply(request, discover_result(all_capabilities()))],
                    })
                    .on(INITIALIZE, move |request| {
                        let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
                        vec![error_with(request, code, "not that way", data)]
                    })
            });
            harness.until_ready();
            assert_eq!(version(&harness), Version::V2026_07_28);
            assert_eq!(harness.methods_of(1)[..3], [DISCOVER, INITIALIZE, DISCOVER]);
            assert_eq!(harness.epoch_number(), 1);
            harness
        });
        every_chunking(|chunking| {
            let mut harness = harness(config(), chunking, move |_| {
                Peer::silent().on(INITIALIZE, move |request| {
                    vec![error(request, code, "not that way")]
                })
            });
            harness.connect();
            harness.until("the first epoch is over", |harness| {
                !causes(harness).is_empty()
            });
            let methods = harness.methods_of(1);
            let probes = methods.iter().filter(|method| **method == DISCOVER).count();
            let initializes = methods
                .iter()
                .filter(|method| **method == INITIALIZE)
                .count();
            assert_eq!(probes, 2, "{methods:?}");
            assert!(initializes <= 2, "{methods:?}");
            harness
        });
    }
}

/// An error without an id refers to the present request, not to the abandoned probe.
#[test]
fn f_056_error_without_an_id_answers_the_second_probe() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| {
            let mut first = true;
            Peer::modern().on(DISCOVER, move |_| match core::mem::take(&mut first) {
                true => Vec::new(),
                false => vec![Act::Message(json!({"jsonrpc": "2.0", "id": null,
                    "error": {"code": -32700, "message": "cannot read that"}}))],
            })
        });
        harness.connect();
        harness.until("the first epoch is over", |harness| {
            !causes(harness).is_empty()
        });
        assert_eq!(harness.methods_of(1), [DISCOVER, INITIALIZE, DISCOVER]);
        assert_eq!(
            harness.now(),
            at(config().policy.probe_timeout),
            "the error was processed at once"
        );
        harness
    });
}

/// S-STDIO-24, S-STDIO-25: the fallback does not depend on one error code.
#[test]
fn f_057_any_legacy_error_to_the_probe_falls_back_to_initialize() {
    for code in [
        -32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, 0, 1, 404,
    ] {
        every_chunking(|chunking| {
            let mut harness = harness(config(), chunking, move |_| {
                Peer::legacy("2024-11-05").refuses(DISCOVER, code)
            });
            harness.until_ready();
            assert_eq!(harness.now(), Instant::ZERO, "at once");
            assert_eq!(version(&harness), Version::V2024_11_05);
            assert_eq!(harness.methods_of(1), [DISCOVER, INITIALIZE, INITIALIZED]);
            harness
        });
    }
}

#[test]
fn f_057_malformed_reply_to_the_probe_falls_back_to_initialize() {
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
            let mut harness = harness(config(), chunking, move |_| {
                let answer = answer.clone();
                Peer::legacy("2025-11-25").on(DISCOVER, move |_| vec![Act::Message(answer.clone())])
            });
            harness.until_ready();
            assert_eq!(version(&harness), Version::V2025_11_25);
            assert_eq!(harness.epoch_number(), 1);
            harness
        });
    }
}

/// A server that reads nothing until it has started. Both replies come then, and the first one is too late.
#[test]
fn f_058_server_that_starts_after_the_probe_timeout_is_ready_in_the_same_epoch() {
    every_chunking(|chunking| {
        let up = seconds(60);
        let mut harness = harness(config(), chunking, move |_| {
            Peer::legacy("2025-11-25")
                .on(DISCOVER, move |request| {
                    vec![error(request, -32601, "what?").after(up)]
                })
                .on(INITIALIZE, move |request| {
                    let result = initialize_result("2025-11-25", all_capabilities());
                    vec![reply(request, result).after(up - config().policy.probe_timeout)]
                })
        });
        harness.until_ready();
        assert_eq!(harness.now(), at(up));
        assert_eq!(harness.commands(), [Command::Open(1)]);
        harness
    });
    every_chunking(|chunking| {
        let up = seconds(60);
        let mut harness = harness(config(), chunking, move |_| {
            let mut down_for = up;
            Peer::modern()
                .on(DISCOVER, move |request| {
                    let span = core::mem::take(&mut down_for);
                    vec![reply(request, discover_result(all_capabilities())).after(span)]
                })
                .on(INITIALIZE, move |request| {
                    let refused = error(request, -32601, "what?");
                    vec![refused.after(up - config().policy.probe_timeout)]
                })
        });
        harness.until_ready();
        assert_eq!(
            version(&harness),
            Version::V2026_07_28,
            "a slow server is not taken for a legacy one"
        );
        assert_eq!(harness.epoch_number(), 1);
        assert_eq!(
            harness.now(),
            at(up),
            "the second probe finds the modern era"
        );
        harness
    });
}

#[test]
fn f_058_probe_takes_at_most_half_of_a_short_handshake_timeout() {
    for timeout in [seconds(3), seconds(1)] {
        every_chunking(|chunking| {
            let mut config = config();
            config.policy.handshake_timeout = timeout;
            let mut harness = harness(config, chunking, |_| {
                Peer::legacy("2025-11-25").ignores(DISCOVER)
            });
            harness.until_ready();
            assert_eq!(harness.epoch_number(), 1);
            assert_eq!(harness.now(), at(timeout / 2));
            harness
        });
    }
}

/// S-LIFE-07, S-VER-05: a server may answer with its own version, and any version that the client supports is accepted.
#[test]
fn f_059_every_legacy_version_of_the_server_is_accepted() {
    for legacy in Version::LEGACY {
        for dialect in [Dialect::Automatic, Dialect::Legacy] {
            every_chunking(|chunking| {
                let mut harness = harness(config_with_dialect(dialect), chunking, |_| {
                    Peer::legacy(legacy.as_str())
                });
                harness.until_ready();
                assert_eq!(version(&harness), *legacy);
                let call = harness.call_tool("add");
                assert!(harness.is_done(call));
                harness
            });
        }
    }
}

/// S-LIFE-08: an unsupported version ends the epoch, and the failure says so.
#[test]
fn f_059_unknown_version_of_the_server_is_refused() {
    for odd in ["1999-12-31", "2026-07-28", "", "latest"] {
        every_chunking(|chunking| {
            let mut harness = harness(config_with_dialect(Dialect::Legacy), chunking, move |_| {
                Peer::legacy(odd).ignores(DISCOVER)
            });
            let call = harness.call_tool("add");
            assert_eq!(
                harness.state(),
                State::Parked,
                "the server refused the handshake"
            );
            assert!(
                refusal(&harness).contains("version"),
                "{}",
                refusal(&harness)
            );
            let close = [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Release(1),
            ];
            assert_eq!(
                harness.commands_of(1),
                close,
                "the server is not terminated"
            );
            harness.until_state(State::Parked);
            let failure = harness.failure(call);
            assert_eq!(failure.kind, FailureKind::Down);
            assert!(
                failure.to_string().contains("handshake failed"),
                "{failure}"
            );
            harness
        });
    }
}

/// The client initializes each epoch exactly once.
#[test]
fn f_060_each_epoch_is_initialized_once() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| Peer::legacy("2025-11-25"));
        harness.until_ready();
        harness.connect();
        harness.wake();
        harness.reconnect("once");
        harness.until_ready();
        harness.perform_all(dies(ExitStatus::Code(0)));
        harness.until_ready();
        for epoch in 1..=3 {
            let methods = harness.methods_of(epoch);
            let count = |wanted| methods.iter().filter(|method| **method == wanted).count();
            assert_eq!(
                (count(INITIALIZE), count(INITIALIZED)),
                (1, 1),
                "{methods:?}"
            );
        }
        harness
    });
}

/// S-LIFE-04: calls before the link is ready wait, in order.
/// Only a relay with several hosts sends short calls first. All calls of one application are in its own order.
#[test]
fn f_061_short_call_does_not_pass_a_long_one_that_waits() {
    let mut harness = Harness::new(config())
        .served_by(|_| Peer::modern().on_open(vec![Act::Opened.after(seconds(1))]));
    let long = "x".repeat(200 << 10);
    harness.call(
        "tools/call",
        json!({"name": "long", "arguments": {"text": long}}),
    );
    let short = harness.call_tool("short");
    harness.until_done(short);
    let lines = harness.lines_of(1).into_iter();
    let names: Vec<&str> = lines
        .filter(|line| line["method"] == "tools/call")
        .filter_map(|line| line["params"]["name"].as_str())
        .collect();
    assert_eq!(names, ["long", "short"]);
    harness.finish();
}

#[test]
fn f_061_calls_wait_in_order_until_the_handshake_is_over() {
    every_era(|chunking, peer| {
        let mut harness = harness(config(), chunking, move |_| {
            peer().on_open(vec![Act::Opened.after(seconds(1))])
        });
        let early = harness.call_tool("early");
        harness.advance(seconds(1));
        let late = harness.call_tool("late");
        harness.until_done(late);
        assert!(harness.is_done(early));
        let lines: Vec<Value> = harness.lines_of(1).into_iter().cloned().collect();
        let first_call = lines.iter().position(|line| line["method"] == "tools/call");
        let handshake = &lines[..first_call.expect("a call was sent")];
        let expected: &[&str] = match version(&harness).era() {
            Era::Legacy => &[DISCOVER, INITIALIZE, INITIALIZED],
            _ => &[DISCOVER, "subscriptions/listen"],
        };
        let methods: Vec<&str> = handshake
            .iter()
            .filter_map(|line| line["method"].as_str())
            .collect();
        assert_eq!(methods, expected);
        let names = lines
            .iter()
            .filter_map(|line| line["params"]["name"].as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["early", "late"]);
        harness
    });
}

/// S-STDIO-20: calls in flight ended with the process. Reads are sent again, and the watch is set up again.
#[test]
fn s_stdio_20_new_process_gets_repeatable_calls_and_the_watch() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |epoch| match epoch {
            1 => Peer::modern().ignores("tools/list"),
            _ => Peer::modern(),
        });
        harness.until_ready();
        let reads = harness.call("tools/list", json!({}));
        harness.perform_all(dies(ExitStatus::Code(1)));
        harness.until_done(reads);
        harness.result(reads);
        let watching = harness.granted();
        assert_eq!(watching, [(1, Watch::lists()), (2, Watch::lists())]);
        assert!(harness.methods_of(2).contains(&"subscriptions/listen"));
        harness
    });
}

/// S-STDIO-21, S-VER-04: the first message is the probe, with the preferred version.
#[test]
fn s_stdio_21_the_probe_comes_first_and_names_the_preferred_version() {
    every_era(|chunking, peer| {
        let mut harness = harness(config(), chunking, move |_| peer());
        harness.until_ready();
        let first = harness.lines_of(1)[0];
        assert_eq!(first["method"], DISCOVER);
        let meta = &first["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
        harness
    });
}

/// S-STDIO-22: the newest common version is used, whatever else the server lists.
#[test]
fn s_stdio_22_supported_versions_of_a_modern_server_decide_without_initialize() {
    let offers = |versions: Value| {
        move |_| {
            let versions = versions.clone();
            Peer::modern().replies(DISCOVER, move |_| {
                let mut result = discover_result(all_capabilities());
                result["supportedVersions"] = versions.clone();
                result
            })
        }
    };
    every_chunking(|chunking| {
        let versions = json!(["2025-11-25", "2031-01-01", "2026-07-28"]);
        let mut harness = harness(config(), chunking, offers(versions));
        harness.until_ready();
        assert_eq!(version(&harness), Version::V2026_07_28);
        assert!(!harness.methods_of(1).contains(&INITIALIZE));
        harness
    });
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, offers(json!(["2031-01-01"])));
        harness.connect();
        assert!(refusal(&harness).contains("version"));
        assert!(!harness.methods_of(1).contains(&INITIALIZE));
        harness
    });
}

/// S-STDIO-23, S-VER-02: a server with this error is modern. Its correction is followed once.
#[test]
fn s_ver_02_refused_version_is_corrected_with_one_more_probe() {
    let data = || json!({"supported": ["2026-07-28"], "requested": "2026-07-28"});
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, move |_| {
            let mut refusals = 1;
            Peer::modern().on(DISCOVER, move |request| {
                if refusals == 0 {
                    return vec![reply(request, discover_result(all_capabilities()))];
                }
                refusals -= 1;
                vec![error_with(request, -32022, "not that one", data())]
            })
        });
        harness.until_ready();
        assert_eq!(harness.methods_of(1)[..2], [DISCOVER, DISCOVER]);
        let ids: Vec<&Value> = harness
            .lines_of(1)
            .into_iter()
            .map(|line| &line["id"])
            .collect();
        assert_ne!(ids[0], ids[1], "under a new id");
        harness
    });
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, move |_| {
            Peer::modern().on(DISCOVER, move |request| {
                vec![error_with(request, -32022, "not that one", data())]
            })
        });
        harness.connect();
        assert_eq!(
            harness.methods_of(1),
            [DISCOVER, DISCOVER],
            "a second refusal ends the handshake"
        );
        assert!(matches!(
            causes(&harness)[0],
            Cause::HandshakeRefused { .. }
        ));
        harness
    });
}

#[test]
fn s_ver_02_initialize_is_not_repeated_after_a_refused_probe() {
    every_chunking(|chunking| {
        let mut config = config();
        config.remembered_era = Some(Era::Legacy);
        let mut harness = harness(config, chunking, |_| {
            Peer::silent()
                .refuses(INITIALIZE, -32601)
                .refuses(DISCOVER, -32601)
        });
        harness.connect();
        assert_eq!(harness.methods_of(1), [INITIALIZE, DISCOVER]);
        assert!(matches!(
            causes(&harness)[0],
            Cause::HandshakeRefused { .. }
        ));
        harness
    });
}

/// S-RPC-20: a result of an unknown type is no agreement.
#[test]
fn s_rpc_20_discover_result_of_an_unknown_type_falls_back_to_initialize() {
    for (kind, expected) in [
        (json!("riddle"), Version::V2025_11_25),
        (json!("input_required"), Version::V2025_11_25),
        (json!("complete"), Version::V2026_07_28),
    ] {
        every_chunking(|chunking| {
            let kind = kind.clone();
            let mut harness = harness(config(), chunking, move |_| {
                let kind = kind.clone();
                Peer::legacy("2025-11-25").replies(DISCOVER, move |_| {
                    let mut result = discover_result(all_capabilities());
                    result["resultType"] = kind.clone();
                    result
                })
            });
            harness.until_ready();
            assert_eq!(version(&harness), expected);
            harness
        });
    }
}

/// S-VER-09: an error that only a modern server can send is never answered with `initialize`.
#[test]
fn s_ver_09_modern_error_to_the_probe_is_never_followed_by_initialize() {
    for code in [-32020, -32021, -32022] {
        for data in [Value::Null, json!({"supported": ["2031-01-01"]})] {
            every_chunking(|chunking| {
                let data = data.clone();
                let mut harness = harness(config(), chunking, move |_| {
                    let data = data.clone();
                    Peer::legacy("2025-11-25").on(DISCOVER, move |request| {
                        vec![error_with(request, code, "no", data.clone())]
                    })
                });
                harness.connect();
                assert_eq!(
                    harness.state(),
                    State::Parked,
                    "the server refused the handshake"
                );
                assert!(!refusal(&harness).is_empty());
                assert!(!harness.methods_of(1).contains(&INITIALIZE));
                assert_eq!(harness.link().failures(), 1);
                harness
            });
        }
    }
}

/// If the only common version is a legacy one, only `initialize` leads to it.
#[test]
fn s_ver_09_version_error_that_lists_a_legacy_version_leads_to_initialize() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| {
            Peer::legacy("2025-11-25").on(DISCOVER, |request| {
                let data = json!({"supported": ["2025-11-25"], "requested": "2026-07-28"});
                vec![error_with(request, -32022, "not that one", data)]
            })
        });
        harness.until_ready();
        assert_eq!(version(&harness), Version::V2025_11_25);
        harness
    });
}

/// S-LIFE-01, S-LIFE-03, S-LIFE-06: the content and order of a legacy handshake.
#[test]
fn s_life_01_initialize_contains_version_capabilities_and_client_info() {
    every_chunking(|chunking| {
        let mut config = config_with_dialect(Dialect::Legacy);
        config.capabilities = ClientCapabilities::default().with_sampling();
        let mut harness = harness(config, chunking, |_| Peer::legacy("2025-11-25"));
        harness.until_ready();
        let lines = harness.lines_of(1);
        assert_eq!(harness.methods_of(1), [INITIALIZE, INITIALIZED]);
        let params = &lines[0]["params"];
        assert_eq!(
            params["protocolVersion"], "2025-11-25",
            "the newest legacy version"
        );
        assert_eq!(params["capabilities"], json!({"sampling": {}}));
        assert_eq!(
            params["clientInfo"],
            json!({"name": "test", "version": "1"})
        );
        assert!(
            params.get("_meta").is_none(),
            "a legacy request has no _meta"
        );
        assert!(lines[1].get("id").is_none(), "a notification");
        harness
    });
}

/// S-LIFE-05: a server that sends requests too early gets a reply to its ping and errors for the rest. The handshake
/// continues.
#[test]
fn s_life_05_early_ping_is_answered_and_early_ask_is_refused() {
    every_chunking(|chunking| {
        let mut config = config_with_dialect(Dialect::Legacy);
        config.capabilities = ClientCapabilities::default().with_roots(false);
        let mut harness = harness(config, chunking, |_| {
            Peer::legacy("2025-11-25").on(INITIALIZE, |request| {
                vec![
                    ask("p", "ping", json!({})),
                    ask("r", "roots/list", json!({})),
                    notify(
                        "notifications/message",
                        json!({"level": "info", "data": "hello"}),
                    ),
                    reply(request, initialize_result("2025-11-25", all_capabilities())),
                ]
            })
        });
        harness.until_ready();
        let answers = harness.lines_of(1);
        let answer = |id: &str| answers.iter().find(|line| line["id"] == id).copied();
        assert_eq!(answer("p").expect("an answer")["result"], json!({}));
        assert_eq!(answer("r").expect("an answer")["error"]["code"], -32600);
        assert!(harness.asks().is_empty());
        harness
    });
}

/// S-LIFE-09: an error reply to `initialize` is reported with the server's message.
#[test]
fn s_life_09_error_reply_to_initialize_is_reported() {
    every_chunking(|chunking| {
        let mut harness = harness(config_with_dialect(Dialect::Legacy), chunking, |_| {
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
        harness.connect();
        assert!(refusal(&harness).contains("Unsupported protocol version"));
        assert!(
            refusal(&harness).contains("-32602"),
            "{}",
            refusal(&harness)
        );
        harness
    });
}

/// A fault that the link finds in a reply is not reported as an error of the server.
#[test]
fn s_life_09_oversized_handshake_reply_is_reported_as_too_large() {
    // An oversized reply to the probe does not prove the legacy era either, so no `initialize` follows.
    for method in [INITIALIZE, DISCOVER] {
        every_chunking(|chunking| {
            let mut config = config();
            config.limits.message_bytes = 200;
            let mut harness = harness(config, chunking, move |_| match method {
                DISCOVER => Peer::modern(),
                _ => Peer::legacy("2025-11-25"),
            });
            harness.connect();
            assert_eq!(harness.methods_of(1).last(), Some(&method));
            let text = refusal(&harness);
            let why = format!("its answer to {method}: the reply is too large");
            assert!(text.contains(&why), "{text}");
            assert!(!text.contains("-32603"), "{text}");
            harness
        });
    }
}

#[test]
fn s_life_09_malformed_initialize_reply_is_reported_without_an_error_code() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| {
            Peer::legacy("2025-11-25").on(INITIALIZE, |request| {
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "error": "what?"});
                vec![Act::Message(answer)]
            })
        });
        harness.connect();
        let text = refusal(&harness);
        assert!(text.contains("its answer to initialize: "), "{text}");
        assert!(!text.contains("-326"), "{text}");
        harness
    });
}

/// S-LIFE-09: a call that needs a missing capability fails, and nothing else happens.
#[test]
fn s_life_09_call_without_the_server_capability_fails_as_not_offered() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| {
            Peer::legacy("2025-11-25").replies(INITIALIZE, |_| {
                initialize_result("2025-11-25", json!({"prompts": {}}))
            })
        });
        let early = harness.call_tool("early");
        harness.until_done(early);
        let late = harness.call_tool("late");
        for call in [early, late] {
            let failure = harness.failure(call);
            assert!(
                matches!(&failure.kind, FailureKind::NotOffered { what } if what.contains("tools"))
            );
            assert_eq!(failure.delivery, Delivery::NotSent);
        }
        assert_eq!(harness.state(), State::Ready);
        harness
    });
}

/// S-LIFE-10: nothing is written in a batch, not even `initialize`.
#[test]
fn s_life_10_messages_are_never_written_as_a_batch() {
    every_chunking(|chunking| {
        let mut harness = harness(config_with_dialect(Dialect::Legacy), chunking, |_| {
            Peer::legacy("2025-03-26")
        });
        for number in 0..5 {
            harness.call_tool(&format!("tool-{number}"));
        }
        harness.until_ready();
        assert!(harness.lines_of(1).iter().all(|line| line.is_object()));
        assert_eq!(harness.lines_of(1).len(), 2 + 5);
        harness
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
        vec![Act::Message(Value::Array(core::mem::take(&mut kept)))]
    })
}

/// S-BATCH-01, S-BATCH-02, S-BATCH-08: batches are accepted in 2025-03-26, and each element is handled on its own.
#[test]
fn s_batch_01_each_element_of_a_batch_is_handled_on_its_own() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| batching("2025-03-26"));
        harness.until_ready();
        let calls = [(); 3].map(|()| harness.call_tool("add"));
        for call in calls {
            assert!(matches!(harness.outcome(call), Outcome::Reply(_)));
        }
        let changes = harness.pick_events(|event| match event {
            Event::Changed(change) => Some(change.clone()),
            _ => None,
        });
        assert_eq!(changes.len(), 1);
        assert_eq!(harness.link().stats().noise, 1, "one element is no message");
        harness.perform(Act::Raw(b"[]\n".to_vec()));
        assert_eq!(
            harness.link().stats().noise,
            2,
            "an empty batch is one invalid message"
        );
        assert_eq!(harness.state(), State::Ready);
        harness
    });
}

/// S-BATCH-01: each request in a batch gets its own reply.
#[test]
fn s_batch_01_requests_in_a_batch_are_answered() {
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| Peer::legacy("2025-03-26"));
        harness.until_ready();
        harness.perform(Act::Message(json!([
            {"jsonrpc": "2.0", "id": "a", "method": "ping"},
            {"jsonrpc": "2.0", "id": "b", "method": "ping"},
        ])));
        let lines = harness.lines_of(1);
        let answers: Vec<_> = lines
            .iter()
            .filter(|line| line["result"] == json!({}))
            .collect();
        assert_eq!(answers.len(), 2);
        assert_eq!(
            (&answers[0]["id"], &answers[1]["id"]),
            (&json!("a"), &json!("b"))
        );
        harness
    });
}

/// S-BATCH-07: in every other version a batch is no message, whatever it contains.
#[test]
fn s_batch_07_batch_is_noise_in_every_other_version() {
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        every_chunking(|chunking| {
            let mut harness = harness(config(), chunking, move |_| batching(version));
            harness.until_ready();
            let calls = [(); 3].map(|()| harness.call_tool("add"));
            assert!(calls.iter().all(|call| !harness.is_done(*call)));
            assert_eq!(harness.link().stats().noise, 1);
            assert_eq!(harness.state(), State::Ready);
            harness
        });
    }
    every_chunking(|chunking| {
        let mut harness = harness(config(), chunking, |_| {
            Peer::modern().on("tools/call", |request| {
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {}});
                vec![Act::Message(json!([answer]))]
            })
        });
        harness.until_ready();
        let call = harness.call_tool("add");
        assert!(!harness.is_done(call));
        assert_eq!(harness.link().stats().noise, 1);
        harness
    });
}

/// The probe is over when it is refused, so a slow `initialize` is not sent twice.
#[test]
fn refused_probe_is_followed_by_one_initialize_without_modern_members() {
    let mut harness = harness(config(), Chunking::usual(), |_| {
        Peer::legacy("2025-11-25").on(INITIALIZE, |request| {
            let result = initialize_result("2025-11-25", all_capabilities());
            vec![reply(request, result).after(seconds(4))]
        })
    });
    harness.until_ready();
    assert_eq!(harness.methods_of(1), [DISCOVER, INITIALIZE, INITIALIZED]);
    let params = harness.lines_of(1)[1]["params"]
        .as_object()
        .expect("params");
    let members: Vec<&str> = params.keys().map(String::as_str).collect();
    assert_eq!(members, ["capabilities", "clientInfo", "protocolVersion"]);
    harness.finish();
}

/// Errors without an id belong to the requests of the handshake in their order.
#[test]
fn two_errors_without_an_id_end_the_handshake() {
    let nameless = |_: &Value| {
        let error = json!({"code": -32_600, "message": "what?"});
        vec![Act::Message(
            json!({"jsonrpc": "2.0", "id": null, "error": error}),
        )]
    };
    let mut harness = harness(config(), Chunking::usual(), move |_| {
        Peer::silent()
            .on(DISCOVER, nameless)
            .on(INITIALIZE, nameless)
    });
    harness.connect();
    assert_eq!(harness.methods_of(1), [DISCOVER, INITIALIZE]);
    let ended = harness.link().last_end().expect("the epoch ended");
    assert!(matches!(ended.cause, Cause::HandshakeRefused { .. }));
    harness.finish();
}

/// A slow modern server also answers `initialize`. Its reply to the probe says that the next epoch need not wait as long.
#[test]
fn server_that_proves_modern_late_is_probed_in_the_next_epoch() {
    let mut harness = harness(config(), Chunking::usual(), |epoch| match epoch {
        1 => Peer::legacy("2025-11-25").on(DISCOVER, |request| {
            vec![reply(request, discover_result(all_capabilities())).after(seconds(8))]
        }),
        _ => Peer::modern(),
    });
    harness.until_ready();
    assert_eq!(harness.link().era(), Some(Era::Legacy));
    harness.advance(seconds(8));
    assert_eq!(harness.link().era(), Some(Era::Modern));
    harness.reconnect("new settings");
    harness.until("a second server", |harness| harness.epoch_number() == 2);
    harness.until_ready();
    assert_eq!(harness.methods_of(2)[0], DISCOVER);
    harness.finish();
}

/// The era that was remembered may be wrong.
#[test]
fn server_that_refuses_initialize_in_its_remembered_era_is_probed_next() {
    let mut config = config();
    config.remembered_era = Some(Era::Legacy);
    let mut harness = harness(config, Chunking::usual(), |_| {
        Peer::modern().refuses(INITIALIZE, -32_603)
    });
    harness.until_ready();
    assert_eq!(harness.methods_of(1), [INITIALIZE]);
    assert_eq!(harness.methods_of(2)[0], DISCOVER);
    assert_eq!(harness.epoch_number(), 2);
    harness.finish();
}
