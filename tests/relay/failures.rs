//! Known failures of connections, with a relay between the two parties. One test for each.

use crate::relay_chain::exchanges::{list_changes, resource_changes};
use crate::relay_chain::script::{call, request};
use crate::relay_chain::{
    self, Action, Backend, CRASH_STDERR, Chain, Eras, UnreadOutput, relay_config, seconds,
};
use everlink::client::State;
use everlink::protocol::Era;
use everlink::relay::{self, Side};
use everlink::{CallId, List, StreamId, Watch};
use serde_json::{Value, json};

#[test]
fn f_001_crash_while_idle_is_detected_and_the_server_restarted() {
    for eras in Eras::ALL {
        let mut chain = ready_chain(eras);
        chain.advance(seconds(10));
        chain.kill(UnreadOutput::Delivered);
        chain.advance(seconds(10));
        assert_eq!(chain.newest_epoch(), 2);
        assert_eq!(
            chain.relay().upstream().state(),
            State::Ready,
            "the relay restarts the server without a call"
        );
        assert_served_by(&mut chain, 2);
        chain.finish();
    }
}

#[test]
fn f_016_server_that_keeps_crashing_is_restarted_fewer_than_100_times_an_hour() {
    for eras in Eras::ALL {
        let mut chain = ready_chain(eras);
        let until = chain.now() + seconds(3_600);
        while chain.now() < until {
            let is_ready = chain.relay().upstream().state() == State::Ready;
            if is_ready {
                chain.kill(UnreadOutput::Delivered);
            }
            chain.advance(seconds(1));
        }
        let starts = chain.newest_epoch();
        assert!((10..100).contains(&starts), "{starts} starts in an hour");
        assert_eq!(
            chain.host_state(),
            Some(State::Ready),
            "the host stays ready"
        );
        chain.finish();
    }
}

#[test]
fn f_020_cancel_ends_only_the_cancelled_call() {
    for eras in Eras::ALL {
        let mut chain = ready_chain(eras);
        let (first, second) = (
            chain.tool("wait"),
            chain.tool_with("nap", json!({"seconds": 5})),
        );
        chain.settle();
        chain.cancel(first, "no more");
        chain.until_done(second);
        assert!(chain.text(second).ends_with("by life 1"));
        assert_eq!(chain.received_by(1, "cancelled").len(), 1);
        chain.finish();
    }
}

/// Each server has its own link: the dead one is replaced, and the others are not affected.
#[test]
fn f_028_crash_of_one_server_does_not_affect_another_link() {
    for eras in Eras::ALL {
        let (mut one, mut other) = (ready_chain(eras), ready_chain(eras));
        let lost = one.tool("wait");
        one.settle();
        one.kill(UnreadOutput::Lost);
        one.settle();
        assert!(
            one.text(lost).contains("the server ended"),
            "the call fails with the reason"
        );
        assert_served_by(&mut other, 1);
        assert_served_by(&mut one, 2);
        one.finish();
        other.finish();
    }
}

#[test]
fn f_052_host_becomes_ready_while_the_server_never_answers_its_handshake() {
    for host in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::new(Eras::new(host, Era::Legacy)).served_by(|_| Backend::Mute);
        chain.with_host(|host, now| host.connect(now));
        chain.advance(seconds(55));
        assert_eq!(chain.host_state(), Some(State::Ready));
        chain.finish();
    }
}

#[test]
fn f_061_request_before_the_handshake_is_refused_and_the_handshake_still_works() {
    let mut chain = Chain::scripted(Era::Legacy);
    let refused = chain.round_trip(&request(1, "tools/call", call("echo", "early")));
    assert!(refused["error"]["message"].is_string(), "{refused}");
    chain.do_handshake(json!({}));
    let answer = chain.round_trip(&request(2, "tools/call", call("echo", "m")));
    assert!(answer["result"].is_object());
    assert_eq!(chain.sent_to_server(1, "tools/call").len(), 1);
    chain.finish();
}

/// A call of the host makes a parked relay try again.
#[test]
fn f_078_call_to_a_parked_relay_reconnects_at_once() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1..=6 => Backend::Unreachable,
            _ => Backend::of(eras.server),
        });
        chain.with_relay(|relay, now| relay.connect(now));
        chain.until("the relay is parked", |chain| {
            chain.relay().upstream().state() == State::Parked
        });
        chain.advance(seconds(6));
        assert_eq!(chain.newest_epoch(), 6);
        let at = chain.now();
        let echo = chain.tool("echo");
        chain.until_done(echo);
        assert_eq!(chain.text(echo), "echo \"m1\" by life 7");
        assert_eq!(chain.now(), at, "the relay reconnects at once");
        chain.finish();
    }
}

/// A tool call goes to only one server, whatever happens to it.
#[test]
fn f_081_tool_call_is_never_sent_to_a_second_server() {
    for eras in Eras::ALL {
        let mut chain = ready_chain(eras);
        let waiting: Vec<CallId> = (0..5).map(|_| chain.tool("wait")).collect();
        let crash = chain.tool("crash");
        chain.until_all_done();
        for call in waiting.into_iter().chain([crash]) {
            assert_eq!(chain.result(call)["_meta"]["everlink/delivery"], "unknown");
            assert!(
                chain
                    .text(call)
                    .contains("it had been sent and may have run")
            );
        }
        assert_served_by(&mut chain, 2);
        assert_eq!(
            chain.sent_to_server(2, "tools/call").len(),
            1,
            "only the newest call"
        );
        chain.finish();
    }
}

#[test]
fn f_088_list_changed_notification_reaches_the_host() {
    for eras in Eras::ALL {
        let mut chain = ready_chain(eras);
        let before = chain.call("tools/list", Value::Null);
        let learn = chain.tool("learn");
        chain.until_all_done();
        chain.settle();
        assert_eq!(list_changes(&chain), [List::Tools]);
        let after = chain.call("tools/list", Value::Null);
        chain.until_done(after);
        let tools = |call| chain.result(call)["tools"].as_array().map(Vec::len);
        assert!(tools(after) > tools(before));
        assert!(chain.is_done(learn));
        chain.finish();
    }
}

#[test]
fn f_089_tools_that_differ_after_a_restart_are_announced() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |epoch| match epoch {
            1 => Backend::of(eras.server),
            _ => Backend::of(eras.server).listing(&["new"]),
        });
        let before = chain.call("tools/list", Value::Null);
        chain.until_done(before);
        chain.kill(UnreadOutput::Delivered);
        chain.until("the change is announced", |chain| {
            list_changes(chain) == [List::Tools]
        });
        let after = chain.call("tools/list", Value::Null);
        chain.until_done(after);
        assert_eq!(chain.result(after)["tools"][0]["name"], "new");
        chain.finish();
    }
}

#[test]
fn f_092_subscription_survives_server_restarts() {
    for eras in Eras::ALL {
        let mut chain = ready_chain(eras);
        chain.watch(Watch::lists().and_uri("file:///a"));
        chain.advance(seconds(1));
        for epoch in 2..=4 {
            chain.kill(UnreadOutput::Delivered);
            chain.advance(seconds(100));
            let before = resource_changes(&chain, "file:///a").len();
            let touch = chain.tool_with("touch", json!({"uri": "file:///a"}));
            chain.until_done(touch);
            chain.settle();
            assert!(chain.text(touch).ends_with(&format!("by life {epoch}")));
            assert_eq!(resource_changes(&chain, "file:///a").len(), before + 1);
        }
        chain.finish();
    }
}

/// The relay refuses a duplicate id of the host, and uses its own ids towards the server.
#[test]
fn f_099_duplicate_request_id_is_refused_and_replies_are_not_mixed_up() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        let mut slow = call("nap", "first");
        slow["arguments"]["seconds"] = 2.into();
        chain.send_as_host(&request(1, "tools/call", slow));
        chain.settle();
        let duplicate = chain.round_trip(&request(1, "tools/call", call("echo", "twin")));
        assert_eq!(duplicate["error"]["code"], -32_600, "{duplicate}");
        // A string that looks like the number is another id.
        let text = chain.round_trip(&request("1", "tools/call", call("echo", "text")));
        assert_eq!(
            text["result"]["content"][0]["text"],
            "echo \"text\" by life 1"
        );
        chain.advance(seconds(2));
        let answers = chain.messages_from(relay_chain::Sender::Relay);
        let results = answers
            .iter()
            .filter(|message| message["id"] == 1 && message["error"].is_null());
        let results: Vec<&Value> = results.collect();
        assert_eq!(results.len(), 1);
        assert_eq!(
            results[0]["result"]["content"][0]["text"],
            "nap \"first\" by life 1"
        );
        // After the reply the id is free again.
        chain.send_as_host(&request(1, "tools/call", call("echo", "later")));
        chain.settle();
        assert_eq!(
            chain.sent_to_server(1, "tools/call").len(),
            3,
            "the duplicate was not passed on"
        );
        chain.finish();
    }
}

/// Badly chosen ids of the host do not affect the relay's own.
#[test]
fn f_100_request_ids_to_the_server_strictly_increase() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        for (number, id) in [9, 3, 3, 3, 1_763_180_000_000_u64, 3]
            .into_iter()
            .enumerate()
        {
            let mark = format!("m{number}");
            chain.send_as_host(&request(id, "tools/call", call("echo", &mark)));
            chain.settle();
        }
        let written = chain.all_sent_to_server(1);
        let ids: Vec<u64> = written
            .iter()
            .filter_map(|message| message["id"].as_u64())
            .collect();
        assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
        assert_eq!(chain.sent_to_server(1, "tools/call").len(), 6);
        chain.finish();
    }
}

#[test]
fn f_102_call_in_flight_completes_before_the_relay_shuts_down() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.drain = Some(seconds(5));
        let mut chain = Chain::with_config(config, eras);
        assert_served_by(&mut chain, 1);
        let nap = chain.tool_with("nap", json!({"seconds": 3}));
        chain.settle();
        chain.perform(Action::Shutdown);
        chain.until("the relay is closed", |chain| chain.relay().is_closed());
        chain.settle();
        assert!(chain.text(nap).ends_with("by life 1"));
        chain.finish();
    }
}

/// A reply to a host that is gone is dropped without harm.
#[test]
fn f_105_reply_to_a_disconnected_host_is_dropped() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        let mut slow = call("nap", "m");
        slow["arguments"]["seconds"] = 1.into();
        chain.send_as_host(&request(1, "tools/call", slow));
        chain.settle();
        chain.disconnect_host();
        chain.until("the relay is closed", |chain| chain.relay().is_closed());
        assert!(chain.reply_to(&json!(1)).is_none());
    }
}

#[test]
fn f_106_unknown_notification_is_passed_on() {
    for eras in Eras::ALL {
        let mut chain = ready_chain(eras);
        for number in 0..3 {
            let method = format!("notifications/unheard_of/{number}");
            let notified = chain.with_host(|host, now| host.notify(now, method, None));
            notified.expect("the host may notify");
        }
        assert_served_by(&mut chain, 1);
        assert_eq!(chain.received_by(1, "notifications/unheard_of").len(), 3);
        chain.finish();
    }
}

/// For a slow host the relay holds back the server, by bytes, and loses nothing.
#[test]
fn f_109_relay_stops_reading_from_the_server_while_the_host_does_not_read() {
    check_backpressure(30);
}

/// However long the host does not read, the server is not replaced.
#[test]
fn f_109_server_is_not_replaced_while_the_host_does_not_read_for_900_s() {
    check_backpressure(900);
}

fn check_backpressure(span: u64) {
    const REPLY: usize = 100 << 10;
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.downstream.limits.queued_bytes = 1 << 20;
        let mut chain = Chain::with_config(config, eras);
        assert_served_by(&mut chain, 1);
        chain.pause_host_reading(seconds(span));
        let calls: Vec<CallId> = (0..40)
            .map(|_| chain.tool_with("big", json!({"bytes": REPLY})))
            .collect();
        chain.advance(seconds(span - 1));
        let wants = chain.relay().wants_input(Side::Upstream, StreamId::DUPLEX);
        assert!(!wants, "the relay stops reading");
        // The bytes read are in the relay's queue, in the window of 256 KiB, or in the reply that filled them.
        let read = chain.relay().upstream().stats().bytes_in;
        assert!(
            read < (1_280 << 10) + 3 * REPLY as u64,
            "{read} bytes were read"
        );
        assert!(chain.unread_by_host() < (256 << 10) + 2 * REPLY);
        chain.until_all_done();
        for call in calls {
            assert_eq!(chain.text(call).len(), REPLY);
        }
        assert_eq!(chain.newest_epoch(), 1);
        chain.finish();
    }
}

/// A server that does not read costs bounded memory: the relay stops reading from the host and refuses nothing.
#[test]
fn f_109_relay_stops_reading_from_the_host_while_the_server_does_not_read() {
    const CALL: u64 = 100 << 10;
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.upstream.limits.queued_bytes = 1 << 20;
        let mut chain = Chain::with_config(config, eras);
        assert_served_by(&mut chain, 1);
        chain.perform(Action::StopServerReading);
        let long = "x".repeat(CALL as usize);
        let calls: Vec<CallId> = (0..30)
            .map(|_| {
                let call = chain.tool_with("echo", json!({"long": long}));
                chain.settle();
                call
            })
            .collect();
        assert!(calls.iter().all(|call| !chain.is_done(*call)));
        // The bytes read: those that wait (an eighth of the limit), the window of 256 KiB, and the call that filled both.
        let read = chain.relay().downstream().stats().bytes_in;
        assert!(read < (384 << 10) + 3 * CALL, "{read} bytes were read");
        chain.until_all_done();
        chain.finish();
    }
}

/// The standard error of the server is for operators. The host gets it only if the configuration allows it.
#[test]
fn f_116_reason_of_a_lost_call_names_method_time_delivery_and_exit_status() {
    for eras in Eras::ALL {
        for tells_stderr in [false, true] {
            let mut config = relay_config();
            config.tells_stderr = tells_stderr;
            let mut chain = Chain::with_config(config, eras);
            assert_served_by(&mut chain, 1);
            let lost = chain.tool("wait");
            chain.advance(seconds(3));
            chain.kill(UnreadOutput::Delivered);
            chain.until_done(lost);
            let text = chain.text(lost);
            for words in [
                "tools/call `wait`",
                "failed after 3 s",
                "the server ended before it replied",
                "it had been sent and may have run",
                "exit status 70",
            ] {
                assert!(text.contains(words), "{text:?} does not say {words:?}");
            }
            assert_eq!(text.contains(CRASH_STDERR), tells_stderr, "{text}");
            assert!(text.contains("(connection 1, after "), "{text}");
            let reported = chain.pick_relay_events(|event| match event {
                relay::Event::Lost(failure) => Some(failure.to_string()),
                _ => None,
            });
            assert_eq!(reported.len(), 1);
            assert!(reported[0].contains(CRASH_STDERR), "{reported:?}");
            chain.finish();
        }
    }
}

/// The same holds for other requests, because the host need not belong to the operator of the server.
#[test]
fn stderr_in_errors_of_other_requests_follows_the_configuration() {
    for eras in Eras::ALL {
        for tells_stderr in [false, true] {
            let mut config = relay_config();
            config.tells_stderr = tells_stderr;
            config.upstream.policy.resends = 0;
            let mut chain = Chain::with_config(config, eras);
            assert_served_by(&mut chain, 1);
            let unanswered = json!({"name": "form in the second life"});
            let lost = chain.call("prompts/get", unanswered);
            chain.advance(seconds(3));
            chain.kill(UnreadOutput::Delivered);
            chain.until_done(lost);
            let text = &chain.error(lost).message;
            assert!(text.contains("prompts/get"), "{text}");
            assert_eq!(text.contains(CRASH_STDERR), tells_stderr, "{text}");
            chain.finish();
        }
    }
}

/// A hanging server delays only its own calls.
#[test]
fn f_119_hanging_server_or_slow_call_blocks_no_other_call() {
    for eras in Eras::ALL {
        let (mut stuck, mut other) = (ready_chain(eras), ready_chain(eras));
        stuck.perform(Action::StopServerReading);
        let waiting = stuck.tool("echo");
        stuck.settle();
        assert_served_by(&mut other, 1);
        assert!(!stuck.is_done(waiting));
        other.finish();
        // A slow call does not delay another call of the same server, either.
        let mut chain = ready_chain(eras);
        let wait = chain.tool("wait");
        assert_served_by(&mut chain, 1);
        assert!(!chain.is_done(wait));
        chain.cancel(wait, "enough");
        chain.finish();
        stuck.until_all_done();
        stuck.finish();
    }
}

/// A chain whose relay has carried one call.
fn ready_chain(eras: Eras) -> Chain {
    let mut chain = Chain::new(eras);
    assert_served_by(&mut chain, 1);
    chain
}

/// Checks that a call works and that the server of this epoch answers it.
#[track_caller]
fn assert_served_by(chain: &mut Chain, epoch: u64) {
    let echo = chain.tool("echo");
    chain.until_done(echo);
    let text = chain.text(echo);
    assert!(text.ends_with(&format!("by life {epoch}")), "{text}");
}
