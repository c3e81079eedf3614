//! A host's view of the epochs of the server behind a relay: before the first, between two, and after the last.

use crate::relay_chain::exchanges::{list_changes, resource_changes};
use crate::relay_chain::script::{call, modern, request};
use crate::relay_chain::{
    self, Action, Backend, Chain, Eras, UnreadOutput, answer_no_ask, payload, relay_config, seconds,
};
use everlink::client::{Event, Outcome, State};
use everlink::protocol::{Era, LogLevel, ServerCapabilities};
use everlink::relay::{self, LostCalls};
use everlink::{CallId, ExitStatus, List, Policy, Watch, client, server};
use serde_json::{Value, json};
use std::time::Duration;

/// A host that connects before the server is ready waits, and then gets the server's offer.
#[test]
fn handshake_waits_until_the_server_is_ready() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1..=3 => Backend::Unreachable,
            _ => Backend::of(eras.server),
        });
        let list = chain.call("tools/list", Value::Null);
        chain.until_done(list);
        assert!(!chain.has_provisional_offer());
        assert!(chain.now().as_nanos() > 0);
        assert_eq!(chain.newest_epoch(), 4);
        chain.advance(seconds(60));
        assert_eq!(list_changes(&chain), [], "the host saw no other list");
        chain.finish();
    }
}

/// While the server is down, calls fail with a text that says so. When it returns, it is used again.
#[test]
fn calls_fail_while_the_server_is_down_and_work_once_it_is_back() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            2..=20 => Backend::Unreachable,
            _ => Backend::of(eras.server),
        });
        let before_crash = chain.tool("echo");
        chain.until_done(before_crash);
        chain.kill(UnreadOutput::Delivered);
        chain.settle();
        let (echo, list) = (chain.tool("echo"), chain.call("tools/list", Value::Null));
        chain.until_all_done();
        let down = "the server is down";
        let unsent = "it was not sent, so it did not run";
        for text in [chain.text(echo), chain.error(list).message.to_string()] {
            for words in [
                down,
                unsent,
                "the next attempt is in",
                "could not be reached",
            ] {
                assert!(text.contains(words), "{text:?} does not say {words:?}");
            }
        }
        let result = chain.result(echo);
        assert_eq!(result["isError"], true);
        assert_eq!(result["_meta"]["everlink/delivery"], "not_sent");
        // The relay tries again at long intervals, and for each call.
        chain.advance(seconds(1_800));
        let found = chain.tool("echo");
        chain.until_done(found);
        assert!(chain.text(found).starts_with("echo \"m3\" by life "));
        chain.finish();
    }
}

/// The owner of the relay can wake it when the server is back.
#[test]
fn wake_makes_a_parked_relay_reconnect() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1..=6 => Backend::Unreachable,
            _ => Backend::of(eras.server),
        });
        chain.with_relay(|relay, now| relay.connect(now));
        chain.until("the relay is parked", |chain| {
            chain.relay().upstream().state() == State::Parked
        });
        chain.advance(seconds(1));
        chain.with_relay(|relay, now| relay.wake(now));
        chain.settle();
        assert_eq!(chain.relay().upstream().state(), State::Ready);
        assert_eq!(chain.newest_epoch(), 7);
        chain.finish();
    }
}

/// A server that opens and never writes anything is replaced, and waiting calls go to the next one.
#[test]
fn mute_server_is_replaced_and_the_waiting_call_goes_to_the_next() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1 => Backend::Mute,
            _ => Backend::of(eras.server),
        });
        let first = chain.tool("echo");
        chain.until_done(first);
        assert_eq!(chain.text(first), "echo \"m1\" by life 2");
        assert!(
            chain.has_provisional_offer(),
            "the host got a provisional offer in the meantime"
        );
        chain.finish();
    }
}

/// The offer of a server that was ready before the host connected is sent at once.
#[test]
fn relay_that_connected_before_its_host_sends_the_offer_of_the_server() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        chain.with_relay(|relay, now| relay.connect(now));
        chain.until("the server is ready", |chain| {
            chain.relay().upstream().state() == State::Ready
        });
        let echo = chain.tool("echo");
        chain.until_done(echo);
        assert_eq!(chain.text(echo), "echo \"m1\" by life 1");
        assert!(!chain.has_provisional_offer());
        chain.finish();
    }
}

/// Calls in flight fail in the moment in which the server dies, not when the next one is ready.
#[test]
fn calls_in_flight_fail_as_soon_as_the_server_dies() {
    for eras in Eras::ALL {
        for unread in [UnreadOutput::Delivered, UnreadOutput::Lost] {
            let mut chain = Chain::new(eras);
            let calls: Vec<CallId> = (0..20).map(|_| chain.tool("wait")).collect();
            chain.advance(seconds(2));
            let at = chain.now();
            chain.kill(unread);
            chain.settle();
            assert_eq!(chain.now(), at);
            for call in calls {
                let text = chain.text(call);
                assert!(text.starts_with("tools/call `wait` "), "{text}");
                assert!(
                    text.contains("failed after 2 s: the server ended"),
                    "{text}"
                );
                assert_eq!(chain.result(call)["isError"], true);
            }
            assert_eq!(chain.newest_epoch(), 1);
            chain.finish();
        }
    }
}

/// Calls that were not sent before the server died go to the next server, and only to that.
#[test]
fn unsent_calls_go_to_the_next_server() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let first = chain.tool("echo");
        chain.until_done(first);
        // The pipe of the server fills up, and then the write window.
        chain.perform(Action::StopServerReading);
        let long = "x".repeat(50_000);
        let calls: Vec<CallId> = (0..20)
            .map(|_| chain.tool_with("echo", json!({"long": long})))
            .collect();
        chain.settle();
        chain.kill(UnreadOutput::Lost);
        chain.until_all_done();
        let texts: Vec<String> = calls.iter().map(|call| chain.text(*call)).collect();
        let lost = texts
            .iter()
            .filter(|text| text.contains("may have run"))
            .count();
        let sent = texts
            .iter()
            .filter(|text| text.ends_with("by life 2"))
            .count();
        assert!(
            lost >= 5 && sent >= 5,
            "{lost} lost, {sent} sent to the next"
        );
        assert_eq!(lost + sent, 20);
        assert_eq!(chain.sent_to_server(2, "tools/call").len(), sent);
        chain.finish();
    }
}

/// Only a call in flight can fail when the server dies, however often that happens.
#[test]
fn calls_made_after_each_crash_all_succeed() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        for epoch in 1..=12 {
            let called = chain.now();
            let echo = chain.tool("echo");
            chain.until_done(echo);
            assert!(chain.text(echo).ends_with(&format!("by life {epoch}")));
            let took = chain.now().since(called);
            assert!(epoch == 1 || took <= seconds(1), "epoch {epoch}: {took:?}");
            chain.kill(UnreadOutput::Lost);
            chain.settle();
        }
        chain.finish();
    }
}

/// A server that stops reading is replaced while a call waits. Calls that were not sent go to the next server.
#[test]
fn unsent_call_to_a_hanging_server_goes_to_the_next_server() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let first = chain.tool("echo");
        chain.until_done(first);
        // In one idle minute the server shows that it answers probes.
        chain.advance(seconds(60));
        chain.perform(Action::StopServerReading);
        let lost = chain.tool("echo");
        chain.advance(seconds(25));
        let held = chain.tool("echo");
        chain.until_all_done();
        assert!(chain.text(lost).contains("may have run"));
        assert!(chain.text(held).ends_with("by life 2"));
        assert_eq!(chain.sent_to_server(1, "tools/call").len(), 2);
        chain.finish();
    }
}

/// A lost call can be reported as an error instead.
#[test]
fn lost_call_is_reported_as_an_error_when_configured() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.lost_calls = LostCalls::AsError;
        let mut chain = Chain::with_config(config, eras);
        let crash = chain.tool("crash");
        chain.until_done(crash);
        let error = chain.error(crash);
        assert_eq!(error.code, -32_603);
        assert!(
            error.message.contains("it had been sent and may have run"),
            "{error}"
        );
        let data: Value = error
            .data
            .as_ref()
            .expect("there is data")
            .parse()
            .expect("JSON");
        assert_eq!(data, json!({"everlink/delivery": "unknown"}));
        chain.finish();
    }
}

/// A request that ends every server is given up after two resends.
#[test]
fn request_that_crashes_every_server_fails_after_two_resends() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let crash = chain.call("prompts/get", json!({"name": "crash"}));
        chain.until_done(crash);
        let error = chain.error(crash);
        assert!(
            error.message.contains("the server ended before it replied"),
            "{error}"
        );
        assert_eq!(chain.newest_epoch(), 3, "the request was resent twice");
        let again = chain.tool("echo");
        chain.until_done(again);
        assert_eq!(chain.text(again), "echo \"m1\" by life 4");
        chain.finish();
    }
}

/// The host is told only of lists that differ in the next epoch.
#[test]
fn only_lists_that_differ_in_the_next_epoch_are_announced() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1 | 2 => Backend::of(eras.server),
            3 => Backend::of(eras.server).listing(&["echo", "another"]),
            _ => Backend::of(eras.server)
                .with(|serving| serving.service.resources = vec!["file:///z".into()]),
        });
        for list in ["tools/list", "prompts/list", "resources/list"] {
            let read = chain.call(list, Value::Null);
            chain.until_done(read);
        }
        let mut announced = Vec::new();
        for (epoch, expected) in [
            (2, vec![]),
            (3, vec![List::Tools]),
            // The host has not read the list again: the tools that it knows are back.
            (4, vec![List::ResourceTemplates, List::Resources]),
        ] {
            chain.kill(UnreadOutput::Delivered);
            chain.until("the next server is ready", |chain| {
                chain.newest_epoch() == epoch && chain.relay().upstream().state() == State::Ready
            });
            chain.advance(seconds(1));
            let mut changed = list_changes(&chain).split_off(announced.len());
            announced.extend(changed.clone());
            changed.sort_unstable();
            assert_eq!(changed, expected, "epoch {epoch} in {eras:?}");
        }
        chain.finish();
    }
}

/// A list that the host has not read is neither compared nor announced.
#[test]
fn lists_that_the_host_never_read_are_neither_fetched_nor_announced() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1 => Backend::of(eras.server),
            _ => Backend::of(eras.server).listing(&["another"]),
        });
        let echo = chain.tool("echo");
        chain.until_done(echo);
        chain.kill(UnreadOutput::Delivered);
        chain.advance(seconds(60));
        assert_eq!(chain.newest_epoch(), 2);
        assert_eq!(list_changes(&chain), []);
        assert_eq!(chain.sent_to_server(2, "tools/list"), [Value::Null; 0]);
        chain.finish();
    }
}

/// A list of several pages is not identified by its last page.
#[test]
fn list_of_several_pages_differs_from_a_list_equal_to_its_last_page() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1 => Backend::of(eras.server)
                .listing(&["first", "last"])
                .with(|serving| serving.service.one_tool_per_page = true),
            _ => Backend::of(eras.server).listing(&["last"]),
        });
        let first = chain.call("tools/list", Value::Null);
        chain.until_done(first);
        let cursor = chain.result(first)["nextCursor"].clone();
        let last = chain.call("tools/list", json!({"cursor": cursor}));
        chain.until_done(last);
        assert_eq!(chain.result(last)["tools"][0]["name"], "last");
        chain.kill(UnreadOutput::Delivered);
        chain.advance(seconds(60));
        assert_eq!(list_changes(&chain), [List::Tools]);
        chain.finish();
    }
}

/// A list that the next epoch does not have is announced and refused.
#[test]
fn list_missing_in_the_next_epoch_is_announced_and_then_refused() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1 => Backend::of(eras.server),
            _ => {
                Backend::of(eras.server).offering(ServerCapabilities::default().with_prompts(true))
            }
        });
        let before = chain.call("tools/list", Value::Null);
        chain.until_done(before);
        chain.kill(UnreadOutput::Delivered);
        chain.advance(seconds(60));
        assert_eq!(list_changes(&chain), [List::Tools]);
        let after = chain.call("tools/list", Value::Null);
        let prompts = chain.call("prompts/list", Value::Null);
        chain.until_all_done();
        assert_eq!(chain.error(after).code, -32_601);
        assert!(chain.result(prompts)["prompts"].is_array());
        chain.finish();
    }
}

/// The host's watches are repeated to every new epoch. Each watched resource is announced, because it may have
/// changed meanwhile.
#[test]
fn watches_are_repeated_to_the_next_server_and_resources_announced_as_changed() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let echo = chain.tool("echo");
        chain.until_done(echo);
        chain.watch(Watch::lists().and_uri("file:///a").and_logs(LogLevel::Info));
        chain.advance(seconds(1));
        let before = resource_changes(&chain, "file:///a").len();
        chain.kill(UnreadOutput::Delivered);
        chain.advance(seconds(60));
        assert_eq!(chain.newest_epoch(), 2);
        assert_eq!(resource_changes(&chain, "file:///a").len(), before + 1);
        let watching = chain.received_by(2, "watching").last().copied();
        assert!(watching.is_some_and(|watch| watch.contains("file:///a")));
        let touch = chain.tool_with("touch", json!({"uri": "file:///a"}));
        let log = chain.tool("log");
        chain.until_all_done();
        chain.settle();
        assert_eq!(chain.text(touch), "touch \"m2\" by life 2");
        assert_eq!(resource_changes(&chain, "file:///a").len(), before + 2);
        let logs = chain.pick_host_events(|event| match event {
            Event::Log { level, .. } => Some(*level),
            _ => None,
        });
        assert_eq!(logs, [LogLevel::Info, LogLevel::Error]);
        assert!(chain.is_done(log));
        chain.finish();
    }
}

/// An ask ends with the epoch of the server that sent it.
#[test]
fn ask_ends_with_the_server_that_sent_it() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).with_ask_handler(answer_no_ask);
        let form = chain.tool("form");
        chain.until("the host receives the ask", |chain| {
            !ask_ids(chain).is_empty()
        });
        chain.kill(UnreadOutput::Delivered);
        chain.settle();
        let asks = ask_ids(&chain);
        assert_eq!(asks.len(), 1);
        if eras.host == Era::Legacy {
            assert!(chain.is_done(form), "the call fails at once");
            let withdrawn = chain.pick_host_events(|event| match event {
                Event::AskWithdrawn { ask, .. } => Some(*ask),
                _ => None,
            });
            assert_eq!(withdrawn, asks);
        } else {
            // A modern host sends the call again with its answer, and then learns of the loss.
            let answer = payload(&json!({"action": "decline"}));
            chain
                .with_host(|host, now| host.answer(now, asks[0], Ok(answer)))
                .expect("the ask is open");
            chain.until_done(form);
        }
        let text = chain.text(form);
        assert!(
            text.contains("the server ended before it replied"),
            "{text}"
        );
        assert_eq!(ask_ids(&chain).len(), 1, "the ask is not repeated");
        chain.finish();
    }
}

/// The era of the server may change with every epoch, without effect on the host.
#[test]
fn era_of_the_server_may_change_with_every_epoch() {
    for host in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::new(Eras::new(host, Era::Legacy)).served_by(|epoch| {
            Backend::of(if epoch % 2 == 0 {
                Era::Modern
            } else {
                Era::Legacy
            })
        });
        chain.watch(Watch::lists().and_uri("file:///a"));
        for epoch in 1..=4 {
            let tools = ["echo", "form", "sample"].map(|tool| chain.tool(tool));
            let list = chain.call("tools/list", Value::Null);
            chain.until_all_done();
            assert!(chain.text(tools[0]).ends_with(&format!("by life {epoch}")));
            for asking in &tools[1..] {
                let answers = &chain.result(*asking)["structuredContent"]["answers"];
                assert!(answers[0]["content"].is_object(), "{answers}");
            }
            assert_eq!(chain.result(list)["tools"][0]["name"], "echo");
            chain.kill(UnreadOutput::Delivered);
            chain.settle();
        }
        assert_eq!(
            list_changes(&chain),
            [],
            "the list is the same in both eras"
        );
        chain.finish();
    }
}

/// A legacy server dies while a host subscribes and chooses a log level. The next server is modern, and has no request for either.
#[test]
fn settings_that_waited_for_a_legacy_server_hold_at_a_modern_one() {
    for is_death_seen_first in [false, true] {
        let mut chain = Chain::new(Eras::new(Era::Legacy, Era::Legacy))
            .served_by(|epoch| Backend::of(if epoch == 1 { Era::Legacy } else { Era::Modern }));
        let echo = chain.tool("echo");
        chain.until_done(echo);
        chain.kill(UnreadOutput::Delivered);
        if is_death_seen_first {
            chain.settle();
        }
        chain.watch(Watch::none().and_uri("file:///a").and_logs(LogLevel::Error));
        chain.advance(seconds(60));
        assert_eq!(chain.newest_epoch(), 2);
        let before = resource_changes(&chain, "file:///a").len();
        let touch = chain.tool_with("touch", json!({"uri": "file:///a"}));
        let log = chain.tool("log");
        chain.until_all_done();
        chain.settle();
        assert_eq!(chain.text(touch), "touch \"m2\" by life 2");
        assert_eq!(resource_changes(&chain, "file:///a").len(), before + 1);
        let logs = chain.pick_host_events(|event| match event {
            Event::Log { level, .. } => Some(*level),
            _ => None,
        });
        assert_eq!(logs, [LogLevel::Error]);
        assert!(chain.is_done(log));
        chain.finish();
    }
}

/// A subscription ends at the relay if the server that is there now offers none, and no later server is asked for it.
#[test]
fn unsubscribe_that_waited_for_a_legacy_server_holds_at_a_modern_one_without_subscriptions() {
    let mut chain = Chain::new(Eras::new(Era::Legacy, Era::Legacy)).served_by(|epoch| {
        let backend = Backend::of(if epoch == 1 { Era::Legacy } else { Era::Modern });
        let tools = ServerCapabilities::default().with_tools(true);
        if epoch == 2 {
            backend.offering(tools)
        } else {
            backend
        }
    });
    chain.watch(Watch::none().and_uri("file:///a"));
    let echo = chain.tool("echo");
    chain.until_done(echo);
    chain.settle();
    chain.kill(UnreadOutput::Delivered);
    chain.watch(Watch::none());
    chain.advance(seconds(60));
    assert_eq!(chain.newest_epoch(), 2);
    chain.kill(UnreadOutput::Delivered);
    chain.advance(seconds(60));
    assert_eq!(chain.newest_epoch(), 3);
    let watching = chain.received_by(3, "watching").last().copied();
    assert!(
        watching.is_none_or(|watch| !watch.contains("file:///a")),
        "{watching:?}"
    );
    chain.finish();
}

/// Every epoch is told the host's capabilities, not only the first.
#[test]
fn every_epoch_receives_the_capabilities_of_the_host() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        for epoch in 1..=3 {
            let echo = chain.tool("echo");
            chain.until_done(echo);
            let met = chain.received_by(epoch, "met");
            let has_capabilities =
                |met: &&str| met.contains("sampling") && met.contains("elicitation");
            assert!(
                met.last().is_some_and(has_capabilities),
                "epoch {epoch}: {met:?}"
            );
            chain.kill(UnreadOutput::Delivered);
            chain.settle();
        }
        chain.finish();
    }
}

/// A modern host that sends `server/discover` gets the offer of the present server.
#[test]
fn server_discover_returns_the_offer_of_the_present_server() {
    let mut chain = Chain::scripted(Era::Legacy).served_by(|epoch| match epoch {
        1 => Backend::of(Era::Legacy),
        _ => Backend::of(Era::Legacy)
            .offering(
                ServerCapabilities::default()
                    .with_tools(true)
                    .with_prompts(true),
            )
            .with(|serving| {
                let offer = serving.config.offer.take();
                serving.config.offer = offer.map(|offer| offer.with_instructions("changed"));
            }),
    });
    let first = chain.round_trip(&modern(1, "server/discover", json!({})));
    assert_eq!(first["result"]["instructions"], "ask for anything");
    chain.kill(UnreadOutput::Delivered);
    chain.advance(seconds(60));
    let second = chain.round_trip(&modern(2, "server/discover", json!({})));
    assert_eq!(second["result"]["instructions"], "changed");
    assert!(second["result"]["capabilities"]["prompts"].is_object());
    chain.finish();
}

/// A relay that must not reconnect closes with its server, after every call has its answer.
#[test]
fn relay_without_reconnect_closes_after_the_server_crashes() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.upstream.policy = Policy::one_shot();
        let mut chain = Chain::with_config(config, eras);
        let (crash, list) = (chain.tool("crash"), chain.call("tools/list", Value::Null));
        chain.until("the relay is closed", |chain| chain.relay().is_closed());
        chain.settle();
        assert!(
            chain
                .text(crash)
                .contains("it had been sent and may have run")
        );
        match chain.outcome(list) {
            Outcome::Reply(_) => {}
            Outcome::Error(error) => assert!(error.message.contains("is down"), "{error}"),
            other => panic!("{other:?}"),
        }
        chain.finish();
    }
}

/// The same holds before the host has received anything.
#[test]
fn relay_without_reconnect_closes_when_the_server_cannot_be_opened() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.upstream.policy = Policy::one_shot();
        let mut chain = Chain::with_config(config, eras).served_by(|_| Backend::Unreachable);
        chain.with_host(|host, now| host.connect(now));
        chain.until("the relay is closed", |chain| chain.relay().is_closed());
        chain.check_replies();
        assert!(chain.messages_from(relay_chain::Sender::Relay).len() <= 3);
        chain.finish();
    }
}

/// After the end of its output, a host still gets its replies within the drain time, and the server exits by itself.
#[test]
fn host_that_ends_its_output_gets_its_replies_and_the_server_exits() {
    for server in [Era::Legacy, Era::Modern] {
        let mut config = relay_config();
        config.drain = Some(seconds(5));
        let mut chain = Chain::from_configs(config, None).served_by(move |_| Backend::of(server));
        chain.do_handshake(json!({}));
        chain.send_as_host(&request(1, "tools/call", nap(3)));
        chain.settle();
        chain.end_host();
        chain.settle();
        assert_eq!(chain.now().as_nanos(), 0);
        assert!(
            chain.has_server_input_ended(),
            "the input of the server is closed at once"
        );
        chain.until("the relay is closed", |chain| chain.relay().is_closed());
        assert_eq!(chain.now().as_nanos(), 3_000_000_000);
        let answer = chain.reply_to(&json!(1)).expect("the request is answered");
        assert_eq!(
            answer["result"]["content"][0]["text"],
            "nap \"m\" by life 1"
        );
        assert_eq!(
            exits(&chain),
            [ExitStatus::Code(0)],
            "the server exited by itself"
        );
        chain.finish();
    }
}

/// A call that takes too long is answered with a text, and the server is gone two seconds after the end of the host.
#[test]
fn call_cut_short_by_the_end_of_the_host_or_a_shutdown_gets_a_reason() {
    for action in [Action::EndHost, Action::Shutdown] {
        let mut chain = Chain::scripted(Era::Legacy);
        chain.do_handshake(json!({}));
        chain.send_as_host(&request(1, "tools/call", nap(100)));
        chain.settle();
        chain.perform(action);
        chain.settle();
        // A host that can still answer asks keeps its server until then.
        let has_host_ended = action == Action::EndHost;
        assert_eq!(chain.has_server_input_ended(), has_host_ended);
        assert_eq!(
            chain.reply_to(&json!(1)),
            None,
            "the call may run for another second"
        );
        chain.advance(seconds(1));
        let answer = chain.reply_to(&json!(1)).expect("the request is answered");
        assert_eq!(answer["result"]["isError"], true);
        assert!(answer.to_string().contains("may have run"), "{answer}");
        assert!(
            answer
                .to_string()
                .contains("this connection is being closed"),
            "{answer}"
        );
        chain.advance(Duration::from_millis(900));
        // As long as a host gives it without a relay.
        assert_eq!(chain.relay().is_closed(), !has_host_ended);
        chain.advance(Duration::from_millis(100));
        assert!(chain.relay().is_closed());
        let exits = exits(&chain);
        let is_as_expected = match exits[..] {
            // The server was told at once, and ran for longer than its grace period.
            [ExitStatus::Signal(15 | 9)] => has_host_ended,
            [ExitStatus::Code(0)] => !has_host_ended,
            _ => false,
        };
        assert!(is_as_expected, "{exits:?}");
        chain.finish();
    }
}

/// Hosts that close their input while they wait have given up. Some fail on a reply that still comes, and none comes without the relay.
#[test]
fn call_that_the_host_left_open_gets_only_the_reply_of_the_server() {
    #[derive(Debug, PartialEq)]
    enum Then {
        Nothing,
        Reply,
        ServerDies,
        WasShutDown,
    }
    use Then::{Nothing, Reply, ServerDies, WasShutDown};
    for then in [Nothing, Reply, ServerDies, WasShutDown] {
        let mut chain = Chain::scripted(Era::Legacy);
        chain.do_handshake(json!({}));
        let seconds_of_nap = if then == Reply { 1 } else { 100 };
        chain.send_as_host(&request(1, "tools/call", nap(seconds_of_nap)));
        chain.settle();
        chain.advance(Duration::from_millis(100));
        if then == WasShutDown {
            chain.perform(Action::Shutdown);
        }
        chain.end_host();
        chain.settle();
        if then == ServerDies {
            chain.kill(UnreadOutput::Lost);
        }
        chain.until("the relay is closed", |chain| chain.relay().is_closed());
        let answer = chain.reply_to(&json!(1));
        assert_eq!(answer.is_some(), then == Reply, "{then:?}: {answer:?}");
        chain.finish();
    }
}

/// A program that writes its requests and closes its input waits for all replies, also of those that were not read at once.
#[test]
fn every_call_of_a_program_that_closes_its_input_at_once_gets_a_reply() {
    let mut chain = Chain::scripted(Era::Legacy);
    chain.do_handshake(json!({}));
    // The relay reads no further while so many are open. The end of the input is read after the first reply.
    let calls = 1..=1_024;
    for call in calls.clone() {
        let seconds_of_nap = if call == 1 { 1 } else { 100 };
        chain.send_as_host(&request(call, "tools/call", nap(seconds_of_nap)));
    }
    chain.end_host();
    chain.until("the relay is closed", |chain| chain.relay().is_closed());
    for call in calls {
        assert!(chain.reply_to(&json!(call)).is_some(), "call {call}");
    }
    chain.finish();
}

#[test]
fn initialize_that_the_host_left_open_gets_no_reply() {
    let mut chain = Chain::scripted(Era::Legacy).served_by(|_| Backend::Mute);
    chain.send_as_host(&relay_chain::script::initialize("2025-11-25", json!({})));
    chain.send_as_host(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    chain.settle();
    chain.advance(Duration::from_millis(100));
    chain.end_host();
    chain.until("the host is released", |chain| {
        chain.relay().downstream().state() == server::State::Closed
    });
    assert_eq!(
        chain.now().as_nanos(),
        1_100_000_000,
        "when requests are cut off"
    );
    assert_eq!(chain.reply_to(&json!("hello")), None);
    chain.finish();
}

/// When the host is gone, a server that is still starting gets no more requests.
#[test]
fn relay_ends_within_three_seconds_when_the_host_leaves_before_the_server_is_ready() {
    let mut chain = Chain::scripted(Era::Legacy).served_by(|_| Backend::Mute);
    chain.send_as_host(&relay_chain::script::initialize("2025-11-25", json!({})));
    chain.settle();
    chain.end_host();
    chain.until("the relay is closed", |chain| chain.relay().is_closed());
    assert!(chain.now().as_nanos() <= 3_000_000_000, "{:?}", chain.now());
    let answer = chain
        .reply_to(&json!("hello"))
        .expect("the request is answered");
    let why = answer["error"]["message"].as_str().expect("an error");
    assert!(why.contains("was not ready yet"), "{why}");
    chain.finish();
}

/// A host that cannot be written to counts as gone.
#[test]
fn relay_ends_within_two_seconds_when_writes_to_the_host_fail() {
    let mut chain = Chain::scripted(Era::Legacy);
    chain.do_handshake(json!({}));
    chain.send_as_host(&request(1, "tools/call", nap(100)));
    chain.settle();
    chain.disconnect_host();
    chain.until("the relay is closed", |chain| chain.relay().is_closed());
    assert!(chain.now().as_nanos() <= 2_000_000_000, "{:?}", chain.now());
}

/// A planned replacement waits for calls in flight, and holds later calls for the next server.
#[test]
fn reconnect_waits_for_calls_in_flight_and_sends_later_calls_to_the_next_server() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let nap = chain.tool_with("nap", json!({"seconds": 3}));
        chain.settle();
        chain.perform(Action::Reconnect);
        let echo = chain.tool("echo");
        chain.until_all_done();
        assert_eq!(chain.text(nap), "nap \"m1\" by life 1");
        assert_eq!(chain.text(echo), "echo \"m2\" by life 2");
        assert_eq!(exits(&chain), [ExitStatus::Code(0)]);
        let stats = chain.relay().upstream().stats();
        assert_eq!((stats.failures, stats.free_ends), (0, 1));
        chain.finish();
    }
}

fn nap(seconds: u64) -> Value {
    let mut nap = call("nap", "m");
    nap["arguments"]["seconds"] = seconds.into();
    nap
}

/// The asks that the host received.
fn ask_ids(chain: &Chain) -> Vec<everlink::AskId> {
    chain.pick_host_events(|event| match event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    })
}

/// The exit statuses of the server's epochs.
fn exits(chain: &Chain) -> Vec<ExitStatus> {
    chain.pick_relay_events(|event| match event {
        relay::Event::Upstream(client::Event::Ended(ended)) => ended.exit,
        _ => None,
    })
}
