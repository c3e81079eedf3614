//! Bad input and limits: a bad message from a server affects at most itself, and nothing grows without bound. Rows
//! F-106 and F-109 of the failures, and every way in which a line can be wrong.

use everlink::client::{CallOptions, Cause, Client, Event, FailureKind, Misuse, Outcome, State};
use everlink::{CallId, Input, Instant, Limits, List, StreamId, Watch};
use serde_json::{Value, json};

use crate::client_pipe::{
    Act, Chunking, Peer, World, ask, config, every_chunking, every_era, notify, payload, reply,
    seconds,
};
use crate::eras::{BOTH, answering, legacy, ready};

/// Exactly this line.
fn line(text: &str) -> Act {
    Act::Raw(format!("{text}\n").into_bytes())
}

fn noises(world: &World) -> Vec<&str> {
    world.picked(|event| match event {
        Event::Noise(noise) => Some(&*noise.what),
        _ => None,
    })
}

/// Checks that the link still works.
fn is_well(world: &mut World) {
    assert_eq!((world.state(), world.life()), (State::Ready, 1));
    let call = world.call("completion/complete", json!({}));
    let request = world.last("completion/complete");
    world.peer(reply(&request, json!({"completion": {"values": []}})));
    assert!(matches!(world.outcome(call), Outcome::Reply(_)));
}

fn why_invalid(world: &World, call: CallId) -> &str {
    match &world.failure(call).kind {
        FailureKind::Invalid { why } => why,
        other => panic!("{call} is not invalid: {other}"),
    }
}

#[test]
fn f_106_an_unknown_notification_is_passed_on_and_harms_nobody() {
    for server in BOTH {
        let mut world = ready(config(), server);
        world.peer(notify("notifications/of/the/future", json!({"a": [1]})));
        world.peer(Act::Say(
            json!({"jsonrpc": "2.0", "method": "vendor/thing", "extra": true}),
        ));
        let heard = world.picked(|event| match event {
            Event::Notified { method, params, .. } => {
                Some((&**method, params.as_ref().map(everlink::Payload::as_str)))
            }
            _ => None,
        });
        assert_eq!(
            heard,
            [
                ("notifications/of/the/future", Some(r#"{"a":[1]}"#)),
                ("vendor/thing", None),
            ]
        );
        assert!(noises(&world).is_empty());
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn f_106_a_known_notification_that_makes_no_sense_harms_nobody_either() {
    for server in BOTH {
        let mut world = ready(config(), server);
        for method in [
            "notifications/cancelled",
            "notifications/message",
            "notifications/progress",
            "notifications/resources/updated",
            "notifications/subscriptions/acknowledged",
            "notifications/initialized",
            "notifications/roots/list_changed",
        ] {
            for params in [
                json!({}),
                json!({"level": 7, "data": null, "uri": [], "requestId": {}, "progressToken": []}),
                json!({"_meta": 7}),
                json!({"_meta": {"io.modelcontextprotocol/subscriptionId": {}}}),
            ] {
                world.peer(notify(method, params));
            }
            world.peer(Act::Say(json!({"jsonrpc": "2.0", "method": method})));
        }
        is_well(&mut world);
        world.finish();
    }
}

/// Lines that are no message and have no id, each with a part of the report about it.
const NO_MESSAGES: &[(&str, &str)] = &[
    ("Server listening on stdio", "not JSON"),
    ("{\"jsonrpc\":\"2.0\",", "not JSON"),
    ("{} {}", "not JSON"),
    ("null", "not an object"),
    ("7", "not an object"),
    ("\"text\"", "not an object"),
    ("[]", "batch"),
    ("{}", "jsonrpc"),
    (r#"{"jsonrpc":"2.0"}"#, "neither"),
    (r#"{"jsonrpc":"2.0","method":7}"#, "method"),
    (
        r#"{"jsonrpc":"2.0","method":"notifications/a","params":[]}"#,
        "params",
    ),
    (
        r#"{"jsonrpc":"2.0","method":"notifications/a","params":7}"#,
        "params",
    ),
    (r#"{"jsonrpc":"2.0","result":{}}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "null"),
    (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#, "id"),
    (r#"{"jsonrpc":"1.0","method":"notifications/a"}"#, "jsonrpc"),
    (r#"{"method":"notifications/a"}"#, "jsonrpc"),
    (r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#, "twice"),
    (r#"{"jsonrpc":"2.0","method":"\ud800"}"#, "method"),
];

#[test]
fn every_kind_of_line_that_is_no_message_costs_that_line() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |_| peer());
        world.until_ready();
        for (text, _) in NO_MESSAGES {
            world.peer(line(text));
        }
        assert_eq!(world.link().stats().noise, NO_MESSAGES.len() as u64);
        is_well(&mut world);
        world
    });
    for (text, said) in NO_MESSAGES {
        let mut world = ready(config(), legacy);
        world.peer(line(text));
        let [what] = noises(&world)[..] else {
            panic!("{text} is noise, once: {:?}", noises(&world));
        };
        assert!(what.contains(said), "{text}: {what}");
        world.finish();
    }
}

/// Unusable replies, with `$id` in place of the id.
const BROKEN_REPLIES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":$id,"result":7}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":null}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":[]}"#,
    r#"{"jsonrpc":"2.0","id":$id,"error":7}"#,
    r#"{"jsonrpc":"2.0","id":$id,"error":{}}"#,
    r#"{"jsonrpc":"2.0","id":$id,"error":{"code":"x","message":"y"}}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":{},"error":{"code":1,"message":"y"}}"#,
    r#"{"jsonrpc":"2.0","id":$id,"result":{},"result":{}}"#,
    r#"{"jsonrpc":"1.0","id":$id,"result":{}}"#,
    r#"{"id":$id,"result":{}}"#,
];

#[test]
fn a_reply_that_cannot_be_used_costs_the_call_it_answers() {
    for server in BOTH {
        for broken in BROKEN_REPLIES {
            let mut world = ready(config(), move || server().ignores("tools/call"));
            let (call, other) = (world.tool("broken"), world.tool("other"));
            let id = world.said("tools/call")[0]["id"].to_string();
            world.peer(line(&broken.replace("$id", &id)));
            assert_ne!(why_invalid(&world, call), "");
            assert!(!world.is_done(other));
            is_well(&mut world);
            world.finish();
        }
    }
}

#[test]
fn a_page_that_cannot_be_used_costs_the_list_and_does_not_speak_for_the_server() {
    for server in BOTH {
        for broken in BROKEN_REPLIES {
            let mut world = ready(config(), move || server().ignores("tools/list"));
            let list = world.list(List::Tools);
            let id = world.last("tools/list")["id"].to_string();
            world.peer(line(&broken.replace("$id", &id)));
            assert_ne!(why_invalid(&world, list), "");
            is_well(&mut world);
            world.finish();
        }
    }
}

#[test]
fn a_broken_request_of_a_legacy_server_is_answered_and_of_a_modern_one_is_not() {
    for server in BOTH {
        let mut world = ready(answering(), server);
        world.peer(line(
            r#"{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[]}"#,
        ));
        let answers = world.answers();
        let legacy = world.said("subscriptions/listen").is_empty();
        if legacy {
            assert_eq!(answers[0]["id"], "q");
            assert_eq!(answers[0]["error"]["code"], -32600);
        }
        assert_eq!(answers.len(), usize::from(legacy));
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn an_error_without_a_message_still_says_something() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            server().on("tools/call", |request| {
                let id = &request["id"];
                vec![line(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-5}}}}"#
                ))]
            })
        });
        let call = world.tool("terse");
        let Outcome::Error(error) = world.outcome(call) else {
            panic!("it is an error");
        };
        assert_eq!(error.code, -5);
        assert_ne!(error.message, "");
        world.finish();
    }
}

#[test]
fn bytes_that_are_no_text_are_one_bad_line() {
    every_chunking(|chunking| {
        let mut world = World::new(config()).chunked(chunking);
        world.until_ready();
        world.peer(Act::Raw(b"\xff\xfe\x00 binary\n".to_vec()));
        world.peer(Act::Raw(
            b"{\"jsonrpc\":\"2.0\",\"method\":\"a\xc3\"}\n".to_vec(),
        ));
        world.peer(Act::Raw(b"\0\0\0\0\n".to_vec()));
        assert_eq!(world.link().stats().noise, 3);
        is_well(&mut world);
        world
    });
}

#[test]
fn marks_carriage_returns_and_blank_lines_are_not_worth_a_word() {
    every_chunking(|chunking| {
        let mut world = World::new(config()).chunked(chunking);
        world.until_ready();
        let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
        world.peer(Act::Raw(format!("\u{feff}{ping}\r\n").into_bytes()));
        world.peer(Act::Raw(b"\r\n\n  \t\n".to_vec()));
        world.peer(Act::Raw(format!("  {ping}  \n").into_bytes()));
        assert_eq!(world.answers().len(), 2);
        assert_eq!(world.link().stats().noise, 0);
        world
    });
}

#[test]
fn no_depth_of_nesting_and_no_size_of_number_breaks_anything() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let unfinished = "[".repeat(100_000);
    let digits = "9".repeat(10_000);
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("deep");
        let id = world.last("tools/call")["id"].to_string();
        world.peer(line(&unfinished));
        world.peer(line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/a","params":{{"a":{deep}}}}}"#
        )));
        world.peer(line(&format!(
            r#"{{"jsonrpc":"2.0","id":{digits},"result":{{}}}}"#
        )));
        world.peer(line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{digits}}}}}"#
        )));
        assert!(!world.is_done(call));
        world.peer(line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":{deep}}}}}"#
        )));
        assert!(matches!(world.outcome(call), Outcome::Reply(_)));
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn a_batch_is_read_in_the_one_version_that_has_them() {
    for (version, allowed) in [
        ("2024-11-05", false),
        ("2025-03-26", true),
        ("2025-06-18", false),
        ("2025-11-25", false),
    ] {
        let mut world = ready(config(), move || {
            Peer::legacy(version).on("tools/call", |request| {
                vec![Act::Say(json!([
                    {"jsonrpc": "2.0", "method": "notifications/a"},
                    7,
                    {"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}},
                ]))]
            })
        });
        let call = world.tool("batched");
        assert_eq!(world.is_done(call), allowed, "{version}");
        assert_eq!(noises(&world).len(), 1);
        world.finish();
    }
}

/// A client that accepts no longer line than this.
fn short_lines(bytes: usize) -> everlink::Config {
    let mut config = answering();
    config.limits.message_bytes = bytes;
    config
}

#[test]
fn a_reply_that_is_too_large_costs_its_call_wherever_its_id_stands() {
    let large = "x".repeat(10_000);
    for server in BOTH {
        for shape in [
            r#"{"jsonrpc":"2.0","id":$id,"result":{"a":"$large"}}"#,
            r#"{"result":{"id":7,"a":"$large"},"jsonrpc":"2.0","id":$id}"#,
            r#"{"jsonrpc":"2.0","error":{"code":1,"message":"$large"},"id":$id}"#,
        ] {
            every_chunking(|chunking| {
                let mut world = World::new(short_lines(2_000))
                    .chunked(chunking)
                    .served_by(move |_| server().ignores("tools/call"));
                world.until_ready();
                let (call, other) = (world.tool("large"), world.tool("other"));
                let id = world.said("tools/call")[0]["id"].to_string();
                let text = shape.replace("$id", &id).replace("$large", &large);
                world.peer(line(&text));
                let bytes = text.len() as u64;
                assert_eq!(world.failure(call).kind, FailureKind::TooLarge { bytes });
                assert!(!world.is_done(other));
                is_well(&mut world);
                world
            });
        }
    }
}

#[test]
fn a_page_that_is_too_large_costs_the_list_and_does_not_speak_for_the_server() {
    for server in BOTH {
        let mut world = ready(short_lines(2_000), move || {
            server().replies("tools/list", |_| json!({"tools": ["x".repeat(10_000)]}))
        });
        let list = world.list(List::Tools);
        assert!(matches!(
            world.failure(list).kind,
            FailureKind::TooLarge { bytes } if bytes > 10_000
        ));
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn what_is_too_large_and_answers_nothing_is_reported_and_passed_over() {
    for server in BOTH {
        let mut world = ready(short_lines(2_000), server);
        world.peer(notify("notifications/a", json!({"a": "x".repeat(10_000)})));
        world.peer(line(&"x".repeat(10_000)));
        world.peer(reply(&json!({"id": 999}), json!({"a": "x".repeat(10_000)})));
        assert_eq!(noises(&world).len(), 3);
        assert!(noises(&world).iter().all(|what| what.contains("too large")));
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn what_belongs_to_another_stream_is_counted_and_dropped() {
    for server in BOTH {
        let mut world = ready(config(), server);
        let epoch = world.link().epoch();
        let stream = StreamId::new(7);
        let bytes = b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n";
        for input in [
            Input::Bytes {
                stream,
                bytes: bytes.into(),
            },
            Input::End {
                stream,
                faults: (&[]).into(),
            },
            Input::WriteFailed {
                stream,
                faults: (&[]).into(),
            },
        ] {
            let heard = world.events().len();
            world.force(epoch, input);
            world.turn();
            assert_eq!(world.state(), State::Ready);
            assert_eq!(world.events().len(), heard);
        }
        assert_eq!(world.link().stats().stale_inputs, 3);
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn a_line_that_never_ends_is_not_kept() {
    let mut world = ready(short_lines(2_000), || legacy().ignores("tools/call"));
    let call = world.tool("endless");
    for _ in 0..1_000 {
        world.peer(Act::Raw(vec![b'x'; 10_000]));
    }
    assert_eq!(world.state(), State::Ready);
    assert!(!world.is_done(call));
    world.peer(line(""));
    is_well(&mut world);
    world.finish();
}

#[test]
fn noise_is_never_fatal_unless_the_limits_say_so() {
    let mut world = ready(config(), legacy);
    for _ in 0..10_000 {
        world.peer(line("still compiling"));
    }
    assert!(noises(&world).len() < 30, "a sample, not a flood");
    assert_eq!(world.link().stats().noise, 10_000);
    is_well(&mut world);
    world.finish();

    let mut config = config();
    config.limits.noise_run = Some(10);
    let mut world = ready(config, legacy);
    for _ in 0..5 {
        world.peer_all(vec![line("chatter"); 10]);
        world.peer(notify("notifications/a", json!({})));
    }
    assert_eq!(world.life(), 1, "a message in between makes it bearable");
    world.peer_all(vec![line("chatter"); 11]);
    let causes = world.picked(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert_eq!(causes, [Cause::Noise]);
    world.finish();
}

#[test]
fn f_109_the_queue_is_bounded_by_bytes_and_by_number() {
    let mut config = config();
    config.limits.queued_bytes = 10_000;
    config.limits.queued_calls = 20;
    let mut world = World::new(config).served_by(|_| Peer::silent().opens_with(Vec::new()));
    let large = json!({"name": "x", "arguments": {"a": "x".repeat(4_000)}});
    let small = json!({"name": "x"});
    let take = |world: &mut World, params: &Value| {
        world.try_call("tools/call", params.clone(), CallOptions::new())
    };
    let calls = [take(&mut world, &large), take(&mut world, &large)];
    assert!(calls.iter().all(Result::is_ok));
    assert!(matches!(
        take(&mut world, &large),
        Err(Misuse::QueueFull { calls: 2, bytes }) if bytes > 8_000
    ));
    for _ in 2..20 {
        assert!(take(&mut world, &small).is_ok());
    }
    assert!(matches!(
        take(&mut world, &small),
        Err(Misuse::QueueFull { calls: 20, .. })
    ));
    let listed = world.verb(|link, now| link.list(now, List::Tools, CallOptions::new()));
    assert!(matches!(listed, Err(Misuse::QueueFull { .. })));
    // A finished call makes room.
    world.cancel(calls[0].clone().expect("it was taken"), "never mind");
    assert!(take(&mut world, &small).is_ok());
    world.finish();
}

#[test]
fn f_109_what_the_link_itself_has_to_say_takes_no_place_of_a_call() {
    let mut config = config();
    config.limits.queued_calls = 20;
    config.limits.write_window = 1_000;
    let mut world = ready(config, || {
        legacy().replies("resources/subscribe", |_| json!({}))
    });
    world.peer_stops_reading();
    let uris = (0..100).map(|n| format!("file:///{n}"));
    world.watch(uris.fold(Watch::none(), Watch::and_uri));
    assert!(world.said("resources/subscribe").len() < 20, "they wait");
    let taken = world.try_call("tools/call", json!({"name": "add"}), CallOptions::new());
    assert!(taken.is_ok(), "{taken:?}");
    world.finish();
}

#[test]
fn f_109_a_limit_of_zero_brings_nothing_to_a_halt() {
    let zeros: [fn(&mut Limits); 3] = [
        |limits| limits.calls_in_flight = 0,
        |limits| limits.undelivered_bytes = 0,
        |limits| limits.write_window = 0,
    ];
    for server in BOTH {
        for zero in zeros {
            let mut config = config();
            zero(&mut config.limits);
            let mut world = ready(config, server);
            assert!(world.link().wants_input(StreamId::DUPLEX));
            let calls: Vec<CallId> = (0..3).map(|_| world.tool("add")).collect();
            let list = world.list(List::Tools);
            for call in calls {
                assert_eq!(world.result(call)["content"][0]["text"], "add");
            }
            assert!(matches!(world.outcome(list), Outcome::Listed(_)));
            world.finish();
        }
    }
}

#[test]
fn f_109_a_message_that_no_server_should_get_is_the_callers_mistake() {
    let mut world = ready(short_lines(2_000), legacy);
    let large = json!({"name": "x", "arguments": {"a": "x".repeat(4_000)}});
    let refused = world.try_call("tools/call", large.clone(), CallOptions::new());
    assert!(matches!(refused, Err(Misuse::TooLarge { bytes }) if bytes > 4_000));
    let refused = world.verb(|link, now| link.notify(now, "vendor/thing", Some(payload(&large))));
    assert!(matches!(refused, Err(Misuse::TooLarge { .. })));
    is_well(&mut world);
    world.finish();
}

#[test]
fn f_109_a_server_that_does_not_read_is_not_written_to_without_bound() {
    for server in BOTH {
        let mut config = config();
        config.limits.write_window = 10_000;
        let mut world = ready(config, server);
        world.peer_stops_reading();
        let before = world.link().stats().bytes_out;
        for _ in 0..500 {
            world.call("tools/call", json!({"name": "x".repeat(1_000)}));
        }
        let written = world.link().stats().bytes_out - before;
        assert!(written < 12_500, "{written} bytes are under way");
        world.finish();
    }
}

#[test]
fn f_109_a_server_that_asks_and_does_not_read_is_not_answered_without_bound() {
    let mut config = answering();
    config.limits.write_window = 10_000;
    config.limits.queued_bytes = 100_000;
    let mut world = ready(config, legacy);
    world.peer_stops_reading();
    let roots = json!({"roots": ["x".repeat(10_000)]});
    let mut answered = 0;
    for id in 0..1_000 {
        let asked = world.asks().len();
        world.peer(ask(id, "roots/list", json!({})));
        if let Some(question) = world.asks().get(asked) {
            let answer = payload(&roots);
            let question = *question;
            answered += u32::from(
                world
                    .verb(|link, now| link.answer(now, question, Ok(answer)))
                    .is_ok(),
            );
        }
    }
    // Now the server reads everything that was queued for it.
    let before = world.link().stats().bytes_out;
    world.peer(Act::Sent(usize::MAX));
    for _ in 0..1_000 {
        world.peer(Act::Sent(usize::MAX));
    }
    let kept = world.link().stats().bytes_out - before;
    assert!(
        kept <= 300_000,
        "{kept} bytes were kept for {answered} answers"
    );
    assert_eq!(world.state(), State::Ready);
    world.finish();
}

#[test]
fn f_109_a_flood_that_nobody_polls_stops_the_reading() {
    for server in BOTH {
        let mut config = config();
        config.limits.undelivered_bytes = 100_000;
        let mut world = ready(config, server);
        let wants = |world: &World| world.link().wants_input(StreamId::DUPLEX);
        let flood = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/a","params":{{"a":"{}"}}}}{}"#,
            "x".repeat(1_000),
            "\n"
        );
        let mut fed = 0;
        while wants(&world) {
            world.peer_unpolled(&Act::Raw(flood.clone().into_bytes()));
            fed += 1;
            assert!(fed < 1_000, "it never says stop");
        }
        assert!(fed >= 90, "it stops at {fed}");
        world.turn();
        assert!(wants(&world), "and it goes on when it was heard");
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn f_109_a_flood_of_small_things_stops_the_reading_too() {
    let small: [fn() -> Act; 4] = [
        || notify("notifications/a", json!({})),
        || {
            notify(
                "notifications/resources/updated",
                json!({"uri": "file:///a"}),
            )
        },
        || line("x"),
        || ask("p", "roots/list", json!({})),
    ];
    for act in small {
        let mut config = answering();
        config.limits.undelivered_bytes = 10_000;
        let mut world = ready(config, legacy);
        let mut fed = 0;
        let act = act();
        while world.link().wants_input(StreamId::DUPLEX) && fed < 100_000 {
            world.peer_unpolled(&act);
            fed += 1;
        }
        let events = world.events().len();
        world.turn();
        let waited = world.events().len() - events;
        assert!(
            waited < 10_000,
            "{waited} events waited after {act:?} came {fed} times"
        );
        is_well(&mut world);
        world.finish();
    }
}

#[test]
fn calls_in_flight_are_bounded_and_the_rest_waits_its_turn() {
    for server in BOTH {
        let mut config = config();
        config.limits.calls_in_flight = 3;
        let mut world = ready(config, move || {
            server().on("tools/call", |request| {
                vec![reply(request, json!({"content": []})).after(seconds(1))]
            })
        });
        let calls: Vec<CallId> = (0..10).map(|_| world.tool("slow")).collect();
        assert_eq!(world.said("tools/call").len(), 3);
        world.pass(seconds(4));
        assert!(calls.iter().all(|call| world.is_done(*call)));
        world.finish();
    }
}

#[test]
fn what_the_caller_does_wrong_is_said_to_the_caller() {
    let mut world = ready(config(), legacy);
    let mut refused = |method: &'static str, params: Value| {
        world
            .try_call(method, params, CallOptions::new())
            .expect_err(method)
    };
    assert!(matches!(
        refused("tools/call", json!([])),
        Misuse::NotAnObject { .. }
    ));
    assert!(matches!(
        refused("tools/call", json!("x")),
        Misuse::NotAnObject { .. }
    ));
    assert!(matches!(
        refused("tools/call", json!({"_meta": 7})),
        Misuse::NotAnObject { .. }
    ));
    for member in ["requestState", "inputResponses"] {
        let params = json!({"name": "x", member: {}});
        assert_eq!(
            refused("tools/call", params),
            Misuse::ReservedMember { member }
        );
    }
    for key in ["progressToken", "io.modelcontextprotocol/protocolVersion"] {
        let params = json!({"name": "x", "_meta": {key: 1}});
        assert_eq!(
            refused("tools/call", params),
            Misuse::ReservedMember { member: key }
        );
    }
    for owned in [
        "initialize",
        "ping",
        "server/discover",
        "subscriptions/listen",
        "resources/subscribe",
        "resources/unsubscribe",
        "logging/setLevel",
    ] {
        assert!(matches!(
            refused(owned, json!({})),
            Misuse::OwnedByLink { .. }
        ));
    }
    is_well(&mut world);
    world.finish();
}

#[test]
fn chunking_never_matters_for_a_whole_conversation_with_noise() {
    every_era(|chunking: Chunking, peer| {
        let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
            peer().on("tools/call", |request| {
                vec![
                    line("about to reply"),
                    reply(request, json!({"content": ["é 😀 \u{2028}"]})),
                    line("replied"),
                ]
            })
        });
        world.until_ready();
        for _ in 0..3 {
            let call = world.tool("chatty");
            assert_eq!(world.result(call)["content"][0], "é 😀 \u{2028}");
        }
        assert_eq!(world.link().stats().noise, 6);
        world
    });
}

#[test]
fn f_109_calls_in_flight_take_no_place_in_the_queue() {
    let mut config = config();
    config.limits.queued_calls = 3;
    let mut world = ready(config, || legacy().ignores("tools/call"));
    for _ in 0..10 {
        world.tool("sent at once");
    }
    world.finish();
}

/// A call that leaves the queue frees exactly its own bytes.
#[test]
fn f_109_the_bytes_of_a_call_that_left_the_queue_are_free_again() {
    let mut config = config();
    config.limits.queued_bytes = 130;
    let mut link = Client::new(config);
    let now = Instant::ZERO;
    // With its method, each call counts as 60 bytes.
    let params = payload(&json!({"name": "x".repeat(39)}));
    let call =
        |link: &mut Client| link.call(now, "tools/call", Some(params.clone()), CallOptions::new());
    let first = call(&mut link).expect("60 fit");
    call(&mut link).expect("120 fit");
    assert!(matches!(call(&mut link), Err(Misuse::QueueFull { .. })));
    link.cancel(now, first, None).expect("it waits");
    call(&mut link).expect("120 fit again");
    let refused = call(&mut link);
    assert!(matches!(refused, Err(Misuse::QueueFull { bytes: 120, .. })));
}

/// S-RPC-07 requires the same type. Servers in use reply with the number as a string, and the SDKs accept it.
#[test]
fn reply_whose_id_is_the_text_of_the_number_is_taken() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("add");
        let id = world.last("tools/call")["id"].to_string();
        for strange in [format!("0{id}"), format!("+{id}"), format!("{id} ")] {
            world.peer(Act::Say(
                json!({"jsonrpc": "2.0", "id": strange, "result": {"content": []}}),
            ));
            assert!(!world.is_done(call), "{strange:?}");
        }
        world.peer(Act::Say(
            json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}),
        ));
        assert!(matches!(world.outcome(call), Outcome::Reply(_)));
        is_well(&mut world);
    }
}

/// The error may belong to any request, but its message may help a person.
#[test]
fn error_without_an_id_is_shown_with_its_words() {
    for server in BOTH {
        let mut world = ready(config(), server);
        world.peer(line(
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"unexpected token"}}"#,
        ));
        let samples = world.picked(|event| match event {
            Event::Noise(noise) => Some(&*noise.sample),
            _ => None,
        });
        assert_eq!(samples, ["unexpected token"]);
        is_well(&mut world);
    }
}
