//! A host's view of the epochs of the server behind a relay: before the first, between two, and after the last.

use crate::relay_chain::exchanges::{changes_of, list_changes};
use crate::relay_chain::script::{call, modern, request};
use crate::relay_chain::{
    self, Behind, Chain, Death, Deed, Eras, payload, relay_config, seconds, silent,
};
use everlink::client::{Event, Outcome, State};
use everlink::protocol::{Era, LogLevel, ServerCapabilities};
use everlink::relay::{self, LostCalls};
use everlink::{CallId, ExitStatus, List, Policy, Watch, client};
use serde_json::{Value, json};

/// A host that connects before the server is ready waits, and then gets the server's offer.
#[test]
fn the_handshake_waits_for_a_server_that_is_late() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1..=3 => Behind::Absent,
            _ => Behind::of(eras.server),
        });
        let list = chain.call("tools/list", Value::Null);
        chain.until_done(list);
        assert!(!chain.was_offered_a_guess());
        assert!(chain.now().as_nanos() > 0);
        assert_eq!(chain.lives(), 4);
        chain.pass(seconds(60));
        assert_eq!(list_changes(&chain), [], "nothing has changed for the host");
        chain.finish();
    }
}

/// While the server is down, calls fail with a text that says so. When it returns, it is used again.
#[test]
fn a_server_that_does_not_come_back_is_told_and_then_found() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            2..=20 => Behind::Absent,
            _ => Behind::of(eras.server),
        });
        let ready = chain.tool("echo");
        chain.until_done(ready);
        chain.kill(Death::Heard);
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
        chain.pass(seconds(1_800));
        let found = chain.tool("echo");
        chain.until_done(found);
        assert!(chain.text(found).starts_with("echo \"m3\" by life "));
        chain.finish();
    }
}

/// The owner of the relay can wake it when the server is back.
#[test]
fn a_relay_that_is_parked_looks_when_it_is_woken() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1..=6 => Behind::Absent,
            _ => Behind::of(eras.server),
        });
        chain.relay(|relay, now| relay.connect(now));
        chain.until("it is parked", |chain| {
            chain.link().upstream().state() == State::Parked
        });
        chain.pass(seconds(1));
        chain.relay(|relay, now| relay.wake(now));
        chain.settle();
        assert_eq!(chain.link().upstream().state(), State::Ready);
        assert_eq!(chain.lives(), 7);
        chain.finish();
    }
}

/// A server that opens and never writes anything is replaced, and waiting calls go to the next one.
#[test]
fn a_mute_server_holds_nobody_for_ever() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1 => Behind::Mute,
            _ => Behind::of(eras.server),
        });
        let first = chain.tool("echo");
        chain.until_done(first);
        assert_eq!(chain.text(first), "echo \"m1\" by life 2");
        assert!(
            chain.was_offered_a_guess(),
            "it heard of something in the meantime"
        );
        chain.finish();
    }
}

/// The offer of a server that was ready before the host connected is sent at once.
#[test]
fn a_relay_can_be_ready_before_its_host() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        chain.relay(|relay, now| relay.connect(now));
        chain.until("the server is ready", |chain| {
            chain.link().upstream().state() == State::Ready
        });
        let echo = chain.tool("echo");
        chain.until_done(echo);
        assert_eq!(chain.text(echo), "echo \"m1\" by life 1");
        assert!(!chain.was_offered_a_guess());
        chain.finish();
    }
}

/// Calls in flight fail in the moment in which the server dies, not when the next one is ready.
#[test]
fn calls_in_flight_are_answered_at_once() {
    for eras in Eras::ALL {
        for death in [Death::Heard, Death::Unheard] {
            let mut chain = Chain::new(eras);
            let calls: Vec<CallId> = (0..20).map(|_| chain.tool("wait")).collect();
            chain.pass(seconds(2));
            let at = chain.now();
            chain.kill(death);
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
            assert_eq!(chain.lives(), 1);
            chain.finish();
        }
    }
}

/// Calls that were not sent before the server died go to the next server, and only to that.
#[test]
fn calls_that_were_never_sent_go_to_the_next_life() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let first = chain.tool("echo");
        chain.until_done(first);
        // The pipe of the server fills up, and then the write window.
        chain.perform(Deed::DeafenServer);
        let long = "x".repeat(50_000);
        let calls: Vec<CallId> = (0..20)
            .map(|_| chain.tool_with("echo", json!({"long": long})))
            .collect();
        chain.settle();
        chain.kill(Death::Unheard);
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
        assert_eq!(chain.asked_of(2, "tools/call").len(), sent);
        chain.finish();
    }
}

/// Only a call in flight can fail when the server dies, however often that happens.
#[test]
fn a_host_that_calls_after_each_death_loses_no_call() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        for life in 1..=12 {
            let called = chain.now();
            let echo = chain.tool("echo");
            chain.until_done(echo);
            assert!(chain.text(echo).ends_with(&format!("by life {life}")));
            let took = chain.now().since(called);
            assert!(life == 1 || took <= seconds(1), "life {life}: {took:?}");
            chain.kill(Death::Unheard);
            chain.settle();
        }
        chain.finish();
    }
}

/// A server that stops reading is replaced while a call waits. Calls that were not sent go to the next server.
#[test]
fn a_call_that_comes_while_the_server_hangs_goes_to_the_next_one() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let first = chain.tool("echo");
        chain.until_done(first);
        // In one idle minute the server shows that it answers probes.
        chain.pass(seconds(60));
        chain.perform(Deed::DeafenServer);
        let lost = chain.tool("echo");
        chain.pass(seconds(25));
        let held = chain.tool("echo");
        chain.until_all_done();
        assert!(chain.text(lost).contains("may have run"));
        assert!(chain.text(held).ends_with("by life 2"));
        assert_eq!(chain.asked_of(1, "tools/call").len(), 2);
        chain.finish();
    }
}

/// A lost call can be reported as an error instead.
#[test]
fn a_lost_call_is_an_error_where_that_is_wanted() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.lost_calls = LostCalls::AsError;
        let mut chain = Chain::relayed_by(config, eras);
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
fn a_request_that_ends_every_server_is_given_up() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let crash = chain.call("prompts/get", json!({"name": "crash"}));
        chain.until_done(crash);
        let error = chain.error(crash);
        assert!(
            error.message.contains("the server ended before it replied"),
            "{error}"
        );
        assert_eq!(chain.lives(), 3, "twice more is enough");
        let again = chain.tool("echo");
        chain.until_done(again);
        assert_eq!(chain.text(again), "echo \"m1\" by life 4");
        chain.finish();
    }
}

/// The host is told only of lists that differ in the next epoch.
#[test]
fn lists_that_are_different_are_announced_and_the_same_are_not() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1 | 2 => Behind::of(eras.server),
            3 => Behind::of(eras.server).listing(&["echo", "another"]),
            _ => Behind::of(eras.server)
                .with(|serving| serving.service.resources = vec!["file:///z".into()]),
        });
        for list in ["tools/list", "prompts/list", "resources/list"] {
            let read = chain.call(list, Value::Null);
            chain.until_done(read);
        }
        let mut announced = Vec::new();
        for (life, expected) in [
            (2, vec![]),
            (3, vec![List::Tools]),
            // The host has not read the list again: the tools that it knows are back.
            (4, vec![List::ResourceTemplates, List::Resources]),
        ] {
            chain.kill(Death::Heard);
            chain.until("the next life", |chain| {
                chain.lives() == life && chain.link().upstream().state() == State::Ready
            });
            chain.pass(seconds(1));
            let mut changed = list_changes(&chain).split_off(announced.len());
            announced.extend(changed.clone());
            changed.sort_unstable();
            assert_eq!(changed, expected, "life {life} in {eras:?}");
        }
        chain.finish();
    }
}

/// A list that the host has not read is neither compared nor announced.
#[test]
fn lists_that_nobody_read_are_left_alone() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1 => Behind::of(eras.server),
            _ => Behind::of(eras.server).listing(&["another"]),
        });
        let echo = chain.tool("echo");
        chain.until_done(echo);
        chain.kill(Death::Heard);
        chain.pass(seconds(60));
        assert_eq!(chain.lives(), 2);
        assert_eq!(list_changes(&chain), []);
        assert_eq!(chain.asked_of(2, "tools/list"), [Value::Null; 0]);
        chain.finish();
    }
}

/// A list of several pages is not identified by its last page.
#[test]
fn a_list_of_several_pages_is_not_taken_for_its_last_one() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1 => Behind::of(eras.server)
                .listing(&["first", "last"])
                .with(|serving| serving.service.pages = true),
            _ => Behind::of(eras.server).listing(&["last"]),
        });
        let first = chain.call("tools/list", Value::Null);
        chain.until_done(first);
        let cursor = chain.result(first)["nextCursor"].clone();
        let last = chain.call("tools/list", json!({"cursor": cursor}));
        chain.until_done(last);
        assert_eq!(chain.result(last)["tools"][0]["name"], "last");
        chain.kill(Death::Heard);
        chain.pass(seconds(60));
        assert_eq!(list_changes(&chain), [List::Tools]);
        chain.finish();
    }
}

/// A list that the next epoch does not have is announced and refused.
#[test]
fn a_list_that_is_gone_is_announced_and_refused() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1 => Behind::of(eras.server),
            _ => Behind::of(eras.server).offering(ServerCapabilities::default().with_prompts(true)),
        });
        let before = chain.call("tools/list", Value::Null);
        chain.until_done(before);
        chain.kill(Death::Heard);
        chain.pass(seconds(60));
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
fn watches_are_set_up_again_and_announced() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let echo = chain.tool("echo");
        chain.until_done(echo);
        chain.watch(Watch::lists().and_uri("file:///a").and_logs(LogLevel::Info));
        chain.pass(seconds(1));
        let before = changes_of(&chain, "file:///a").len();
        chain.kill(Death::Heard);
        chain.pass(seconds(60));
        assert_eq!(chain.lives(), 2);
        assert_eq!(changes_of(&chain, "file:///a").len(), before + 1);
        let watching = chain.heard_by(2, "watching").last().copied();
        assert!(watching.is_some_and(|watch| watch.contains("file:///a")));
        let touch = chain.tool_with("touch", json!({"uri": "file:///a"}));
        let log = chain.tool("log");
        chain.until_all_done();
        chain.settle();
        assert_eq!(chain.text(touch), "touch \"m2\" by life 2");
        assert_eq!(changes_of(&chain, "file:///a").len(), before + 2);
        let logs = chain.picked(|event| match event {
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
fn questions_end_with_the_life_that_asked() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).mannered(silent);
        let form = chain.tool("form");
        chain.until("the question", |chain| !questions(chain).is_empty());
        chain.kill(Death::Heard);
        chain.settle();
        let asked = questions(&chain);
        assert_eq!(asked.len(), 1);
        if eras.host == Era::Legacy {
            assert!(chain.is_done(form), "it is told at once");
            let withdrawn = chain.picked(|event| match event {
                Event::AskWithdrawn { ask, .. } => Some(*ask),
                _ => None,
            });
            assert_eq!(withdrawn, asked);
        } else {
            // A modern host sends the call again with its answer, and then learns of the loss.
            let answer = payload(&json!({"action": "decline"}));
            chain
                .host(|host, now| host.answer(now, asked[0], Ok(answer)))
                .expect("the question is open");
            chain.until_done(form);
        }
        let text = chain.text(form);
        assert!(
            text.contains("the server ended before it replied"),
            "{text}"
        );
        assert_eq!(questions(&chain).len(), 1, "and nobody asks again");
        chain.finish();
    }
}

/// The era of the server may change with every epoch, without effect on the host.
#[test]
fn the_era_of_the_server_may_change_from_life_to_life() {
    for host in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::new(Eras::new(host, Era::Legacy)).served_by(|life| {
            Behind::of(if life % 2 == 0 {
                Era::Modern
            } else {
                Era::Legacy
            })
        });
        chain.watch(Watch::lists().and_uri("file:///a"));
        for life in 1..=4 {
            let tools = ["echo", "form", "sample"].map(|tool| chain.tool(tool));
            let list = chain.call("tools/list", Value::Null);
            chain.until_all_done();
            assert!(chain.text(tools[0]).ends_with(&format!("by life {life}")));
            for asked in &tools[1..] {
                let answers = &chain.result(*asked)["structuredContent"]["answers"];
                assert!(answers[0]["content"].is_object(), "{answers}");
            }
            assert_eq!(chain.result(list)["tools"][0]["name"], "echo");
            chain.kill(Death::Heard);
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

/// Every epoch is told the host's capabilities, not only the first.
#[test]
fn every_life_is_told_what_the_host_declares() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        for life in 1..=3 {
            let echo = chain.tool("echo");
            chain.until_done(echo);
            let met = chain.heard_by(life, "met");
            let is_told = |met: &&str| met.contains("sampling") && met.contains("elicitation");
            assert!(met.last().is_some_and(is_told), "life {life}: {met:?}");
            chain.kill(Death::Heard);
            chain.settle();
        }
        chain.finish();
    }
}

/// A modern host that sends `server/discover` gets the offer of the present server.
#[test]
fn a_modern_host_discovers_the_present_life() {
    let mut chain = Chain::scripted(Era::Legacy).served_by(|life| match life {
        1 => Behind::of(Era::Legacy),
        _ => Behind::of(Era::Legacy)
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
    let first = chain.ask(&modern(1, "server/discover", json!({})));
    assert_eq!(first["result"]["instructions"], "ask for anything");
    chain.kill(Death::Heard);
    chain.pass(seconds(60));
    let second = chain.ask(&modern(2, "server/discover", json!({})));
    assert_eq!(second["result"]["instructions"], "changed");
    assert!(second["result"]["capabilities"]["prompts"].is_object());
    chain.finish();
}

/// A relay that must not reconnect closes with its server, after every call has its answer.
#[test]
fn a_server_that_is_closed_for_good_closes_the_relay() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.upstream.policy = Policy::one_shot();
        let mut chain = Chain::relayed_by(config, eras);
        let (crash, list) = (chain.tool("crash"), chain.call("tools/list", Value::Null));
        chain.until("the relay has ended", |chain| chain.link().is_closed());
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
fn a_server_that_never_comes_and_is_not_to_be_tried_again_closes_the_relay() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.upstream.policy = Policy::one_shot();
        let mut chain = Chain::relayed_by(config, eras).served_by(|_| Behind::Absent);
        chain.host(|host, now| host.connect(now));
        chain.until("the relay has ended", |chain| chain.link().is_closed());
        chain.check_answers();
        assert!(chain.messages(relay_chain::Whose::Relay).len() <= 3);
        chain.finish();
    }
}

/// After the end of its output, a host still gets its replies within the drain time, and the server exits by itself.
#[test]
fn a_host_that_says_no_more_has_its_answers_and_ends_its_server() {
    for server in [Era::Legacy, Era::Modern] {
        let mut config = relay_config();
        config.drain = Some(seconds(5));
        let mut chain = Chain::of(config, None).served_by(move |_| Behind::of(server));
        chain.shake_hands(json!({}));
        chain.say(&request(1, "tools/call", nap(3)));
        chain.settle();
        chain.end_host();
        chain.settle();
        assert_eq!(chain.now().as_nanos(), 0);
        assert!(chain.has_server_input_ended(), "the server is told at once");
        chain.until("the relay has ended", |chain| chain.link().is_closed());
        assert_eq!(chain.now().as_nanos(), 3_000_000_000);
        let answer = chain.answer_to(&json!(1)).expect("it is answered");
        assert_eq!(
            answer["result"]["content"][0]["text"],
            "nap \"m\" by life 1"
        );
        assert_eq!(exits(&chain), [ExitStatus::Code(0)], "it ended by itself");
        chain.finish();
    }
}

/// A call that takes too long is answered with a text, and the server is gone two seconds after the end of the host.
#[test]
fn a_call_that_is_cut_short_is_told_so() {
    for deed in [Deed::EndHost, Deed::Shutdown] {
        let mut chain = Chain::scripted(Era::Legacy);
        chain.shake_hands(json!({}));
        chain.say(&request(1, "tools/call", nap(100)));
        chain.settle();
        chain.perform(deed);
        chain.settle();
        // A host that can still answer asks keeps its server until then.
        let is_gone = deed == Deed::EndHost;
        assert_eq!(chain.has_server_input_ended(), is_gone);
        assert_eq!(chain.answer_to(&json!(1)), None, "it has a second");
        chain.pass(seconds(1));
        let answer = chain.answer_to(&json!(1)).expect("it is answered");
        assert_eq!(answer["result"]["isError"], true);
        assert!(answer.to_string().contains("may have run"), "{answer}");
        assert!(
            answer.to_string().contains("the relay is closing"),
            "{answer}"
        );
        chain.pass(seconds(1));
        assert!(chain.link().is_closed());
        let exits = exits(&chain);
        let is_as_expected = match exits[..] {
            // The server was told at once, and ran for longer than its grace period.
            [ExitStatus::Signal(15 | 9)] => is_gone,
            [ExitStatus::Code(0)] => !is_gone,
            _ => false,
        };
        assert!(is_as_expected, "{exits:?}");
        chain.finish();
    }
}

/// When the host is gone, a server that is still starting gets no more requests.
#[test]
fn a_host_that_leaves_before_the_server_is_ready_ends_the_relay_in_two_seconds() {
    let mut chain = Chain::scripted(Era::Legacy).served_by(|_| Behind::Mute);
    chain.say(&relay_chain::script::initialize("2025-11-25", json!({})));
    chain.settle();
    chain.end_host();
    chain.until("the relay has ended", |chain| chain.link().is_closed());
    assert!(chain.now().as_nanos() <= 2_000_000_000, "{:?}", chain.now());
    let answer = chain.answer_to(&json!("hello")).expect("it is answered");
    let why = answer["error"]["message"].as_str().expect("an error");
    assert!(why.contains("was not ready yet"), "{why}");
    chain.finish();
}

/// A host that cannot be written to counts as gone.
#[test]
fn a_host_that_cannot_be_written_to_ends_the_server_in_two_seconds() {
    let mut chain = Chain::scripted(Era::Legacy);
    chain.shake_hands(json!({}));
    chain.say(&request(1, "tools/call", nap(100)));
    chain.settle();
    chain.break_host();
    chain.until("the relay has ended", |chain| chain.link().is_closed());
    assert!(chain.now().as_nanos() <= 2_000_000_000, "{:?}", chain.now());
}

/// A planned replacement waits for calls in flight, and holds later calls for the next server.
#[test]
fn a_planned_replacement_loses_nothing_and_is_not_noticed() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let nap = chain.tool_with("nap", json!({"seconds": 3}));
        chain.settle();
        chain.perform(Deed::Reconnect);
        let echo = chain.tool("echo");
        chain.until_all_done();
        assert_eq!(chain.text(nap), "nap \"m1\" by life 1");
        assert_eq!(chain.text(echo), "echo \"m2\" by life 2");
        assert_eq!(exits(&chain), [ExitStatus::Code(0)]);
        let stats = chain.link().upstream().stats();
        assert_eq!((stats.failures, stats.free_ends), (0, 1));
        chain.finish();
    }
}

fn nap(seconds: u64) -> Value {
    let mut nap = call("nap", "m");
    nap["arguments"]["seconds"] = seconds.into();
    nap
}

fn questions(chain: &Chain) -> Vec<everlink::AskId> {
    chain.picked(|event| match event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    })
}

/// The exit statuses of the server's epochs.
fn exits(chain: &Chain) -> Vec<ExitStatus> {
    chain.picked_of_relay(|event| match event {
        relay::Event::Upstream(client::Event::Ended(ended)) => ended.exit,
        _ => None,
    })
}
