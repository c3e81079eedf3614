//! Known failures of connections, with a relay between the two parties. One test for each.

use crate::relay_chain::exchanges::{changes_of, list_changes};
use crate::relay_chain::script::{call, request};
use crate::relay_chain::{
    self, Behind, Chain, Death, Deed, Eras, LAST_WORDS, relay_config, seconds,
};
use everlink::client::State;
use everlink::protocol::Era;
use everlink::relay::{self, Side};
use everlink::{CallId, List, StreamId, Watch};
use serde_json::{Value, json};

#[test]
fn f_001_a_death_while_idle_is_seen_at_once_and_mended() {
    for eras in Eras::ALL {
        let mut chain = ready(eras);
        chain.pass(seconds(10));
        chain.kill(Death::Heard);
        chain.pass(seconds(10));
        assert_eq!(chain.lives(), 2);
        assert_eq!(
            chain.link().upstream().state(),
            State::Ready,
            "nobody had to ask"
        );
        works(&mut chain, 2);
        chain.finish();
    }
}

#[test]
fn f_016_a_server_that_is_ready_and_dies_again_and_again_is_not_started_for_ever() {
    for eras in Eras::ALL {
        let mut chain = ready(eras);
        let until = chain.now() + seconds(3_600);
        while chain.now() < until {
            let is_ready = chain.link().upstream().state() == State::Ready;
            if is_ready {
                chain.kill(Death::Heard);
            }
            chain.pass(seconds(1));
        }
        let lives = chain.lives();
        assert!((10..100).contains(&lives), "{lives} starts in an hour");
        assert_eq!(
            chain.host_state(),
            Some(State::Ready),
            "the host noticed nothing"
        );
        chain.finish();
    }
}

#[test]
fn f_020_a_cancelled_call_is_all_that_ends() {
    for eras in Eras::ALL {
        let mut chain = ready(eras);
        let (first, second) = (
            chain.tool("wait"),
            chain.tool_with("nap", json!({"seconds": 5})),
        );
        chain.settle();
        chain.cancel(first, "no more");
        chain.until_done(second);
        assert!(chain.text(second).ends_with("by life 1"));
        assert_eq!(chain.heard_by(1, "cancelled").len(), 1);
        chain.finish();
    }
}

/// Each server has its own link: the dead one is replaced, and the others are not affected.
#[test]
fn f_028_one_server_of_several_that_expires_is_replaced_alone() {
    for eras in Eras::ALL {
        let (mut one, mut other) = (ready(eras), ready(eras));
        let lost = one.tool("wait");
        one.settle();
        one.kill(Death::Unheard);
        one.settle();
        assert!(
            one.text(lost).contains("the server ended"),
            "it is surfaced"
        );
        works(&mut other, 1);
        works(&mut one, 2);
        one.finish();
        other.finish();
    }
}

#[test]
fn f_052_a_handshake_that_is_never_answered_holds_no_host() {
    for host in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::new(Eras::new(host, Era::Legacy)).served_by(|_| Behind::Mute);
        chain.host(|host, now| host.connect(now));
        chain.pass(seconds(55));
        assert_eq!(chain.host_state(), Some(State::Ready));
        chain.finish();
    }
}

#[test]
fn f_061_a_request_before_the_handshake_is_refused_and_costs_nothing() {
    let mut chain = Chain::scripted(Era::Legacy);
    let refused = chain.ask(&request(1, "tools/call", call("echo", "early")));
    assert!(refused["error"]["message"].is_string(), "{refused}");
    chain.shake_hands(json!({}));
    let answer = chain.ask(&request(2, "tools/call", call("echo", "m")));
    assert!(answer["result"].is_object());
    assert_eq!(chain.asked_of(1, "tools/call").len(), 1);
    chain.finish();
}

/// A call of the host makes a parked relay try again.
#[test]
fn f_078_a_call_wakes_a_relay_that_is_parked() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1..=6 => Behind::Absent,
            _ => Behind::of(eras.server),
        });
        chain.relay(|relay, now| relay.connect(now));
        chain.until("it is parked", |chain| {
            chain.link().upstream().state() == State::Parked
        });
        chain.pass(seconds(6));
        assert_eq!(chain.lives(), 6);
        let at = chain.now();
        let echo = chain.tool("echo");
        chain.until_done(echo);
        assert_eq!(chain.text(echo), "echo \"m1\" by life 7");
        assert_eq!(chain.now(), at, "it looked at once");
        chain.finish();
    }
}

/// A tool call goes to only one server, whatever happens to it.
#[test]
fn f_081_a_tool_call_is_never_sent_to_a_second_life() {
    for eras in Eras::ALL {
        let mut chain = ready(eras);
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
        works(&mut chain, 2);
        assert_eq!(
            chain.asked_of(2, "tools/call").len(),
            1,
            "the last one alone"
        );
        chain.finish();
    }
}

#[test]
fn f_088_word_of_a_changed_list_reaches_the_host() {
    for eras in Eras::ALL {
        let mut chain = ready(eras);
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
fn f_089_tools_that_changed_with_the_server_are_announced() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras).served_by(move |life| match life {
            1 => Behind::of(eras.server),
            _ => Behind::of(eras.server).listing(&["new"]),
        });
        let before = chain.call("tools/list", Value::Null);
        chain.until_done(before);
        chain.kill(Death::Heard);
        chain.until("word of it", |chain| list_changes(chain) == [List::Tools]);
        let after = chain.call("tools/list", Value::Null);
        chain.until_done(after);
        assert_eq!(chain.result(after)["tools"][0]["name"], "new");
        chain.finish();
    }
}

#[test]
fn f_092_a_subscription_outlives_the_server_that_granted_it() {
    for eras in Eras::ALL {
        let mut chain = ready(eras);
        chain.watch(Watch::lists().and_uri("file:///a"));
        chain.pass(seconds(1));
        for life in 2..=4 {
            chain.kill(Death::Heard);
            chain.pass(seconds(100));
            let before = changes_of(&chain, "file:///a").len();
            let touch = chain.tool_with("touch", json!({"uri": "file:///a"}));
            chain.until_done(touch);
            chain.settle();
            assert!(chain.text(touch).ends_with(&format!("by life {life}")));
            assert_eq!(changes_of(&chain, "file:///a").len(), before + 1);
        }
        chain.finish();
    }
}

/// The relay refuses a duplicate id of the host, and uses its own ids towards the server.
#[test]
fn f_099_ids_that_are_there_twice_cross_nothing() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.shake_hands(json!({}));
        let mut slow = call("nap", "first");
        slow["arguments"]["seconds"] = 2.into();
        chain.say(&request(1, "tools/call", slow));
        chain.settle();
        let twin = chain.ask(&request(1, "tools/call", call("echo", "twin")));
        assert_eq!(twin["error"]["code"], -32_600, "{twin}");
        // A string that looks like the number is another id.
        let text = chain.ask(&request("1", "tools/call", call("echo", "text")));
        assert_eq!(
            text["result"]["content"][0]["text"],
            "echo \"text\" by life 1"
        );
        chain.pass(seconds(2));
        let answers = chain.messages(relay_chain::Whose::Relay);
        let results = answers
            .iter()
            .filter(|said| said["id"] == 1 && said["error"].is_null());
        let results: Vec<&Value> = results.collect();
        assert_eq!(results.len(), 1);
        assert_eq!(
            results[0]["result"]["content"][0]["text"],
            "nap \"first\" by life 1"
        );
        // After the reply the id is free again.
        chain.say(&request(1, "tools/call", call("echo", "later")));
        chain.settle();
        assert_eq!(
            chain.asked_of(1, "tools/call").len(),
            3,
            "the twin never arrived"
        );
        chain.finish();
    }
}

/// Badly chosen ids of the host do not affect the relay's own.
#[test]
fn f_100_ids_towards_the_server_only_grow() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.shake_hands(json!({}));
        for (number, id) in [9, 3, 3, 3, 1_763_180_000_000_u64, 3]
            .into_iter()
            .enumerate()
        {
            let mark = format!("m{number}");
            chain.say(&request(id, "tools/call", call("echo", &mark)));
            chain.settle();
        }
        let written = chain.written_to(1);
        let ids: Vec<u64> = written
            .iter()
            .filter_map(|said| said["id"].as_u64())
            .collect();
        assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
        assert_eq!(chain.asked_of(1, "tools/call").len(), 6);
        chain.finish();
    }
}

#[test]
fn f_102_calls_in_flight_end_before_the_relay_does() {
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.drain = Some(seconds(5));
        let mut chain = Chain::relayed_by(config, eras);
        works(&mut chain, 1);
        let nap = chain.tool_with("nap", json!({"seconds": 3}));
        chain.settle();
        chain.perform(Deed::Shutdown);
        chain.until("the relay has ended", |chain| chain.link().is_closed());
        chain.settle();
        assert!(chain.text(nap).ends_with("by life 1"));
        chain.finish();
    }
}

/// A reply to a host that is gone is dropped without harm.
#[test]
fn f_105_an_answer_to_a_host_that_is_gone_is_dropped() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.shake_hands(json!({}));
        let mut slow = call("nap", "m");
        slow["arguments"]["seconds"] = 1.into();
        chain.say(&request(1, "tools/call", slow));
        chain.settle();
        chain.break_host();
        chain.until("the relay has ended", |chain| chain.link().is_closed());
        assert!(chain.answer_to(&json!(1)).is_none());
    }
}

#[test]
fn f_106_a_notification_that_nobody_knows_passes() {
    for eras in Eras::ALL {
        let mut chain = ready(eras);
        for number in 0..3 {
            let method = format!("notifications/unheard_of/{number}");
            let told = chain.host(|host, now| host.notify(now, method, None));
            told.expect("it may be said");
        }
        works(&mut chain, 1);
        assert_eq!(chain.heard_by(1, "notifications/unheard_of").len(), 3);
        chain.finish();
    }
}

/// For a slow host the relay holds back the server, by bytes, and loses nothing.
#[test]
fn f_109_a_host_that_does_not_read_holds_back_the_server() {
    holds_back_for(30);
}

/// However long the host does not read, the server is not replaced.
#[test]
fn f_109_a_host_that_does_not_read_for_long_is_not_the_fault_of_the_server() {
    holds_back_for(900);
}

fn holds_back_for(span: u64) {
    const REPLY: usize = 100 << 10;
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.downstream.limits.queued_bytes = 1 << 20;
        let mut chain = Chain::relayed_by(config, eras);
        works(&mut chain, 1);
        chain.deafen_host(seconds(span));
        let calls: Vec<CallId> = (0..40)
            .map(|_| chain.tool_with("big", json!({"bytes": REPLY})))
            .collect();
        chain.pass(seconds(span - 1));
        let wants = chain.link().wants_input(Side::Upstream, StreamId::DUPLEX);
        assert!(!wants, "the relay holds enough");
        // The bytes read are in the relay's queue, in the window of 256 KiB, or in the reply that filled them.
        let read = chain.link().upstream().stats().bytes_in;
        assert!(
            read < (1_280 << 10) + 3 * REPLY as u64,
            "{read} bytes were read"
        );
        assert!(chain.unread_by_host() < (256 << 10) + 2 * REPLY);
        chain.until_all_done();
        for call in calls {
            assert_eq!(chain.text(call).len(), REPLY);
        }
        assert_eq!(chain.lives(), 1);
        chain.finish();
    }
}

/// A server that does not read costs bounded memory: the relay stops reading from the host and refuses nothing.
#[test]
fn f_109_a_server_that_does_not_read_is_not_queued_for_without_bound() {
    const CALL: u64 = 100 << 10;
    for eras in Eras::ALL {
        let mut config = relay_config();
        config.upstream.limits.queued_bytes = 1 << 20;
        let mut chain = Chain::relayed_by(config, eras);
        works(&mut chain, 1);
        chain.perform(Deed::DeafenServer);
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
        let read = chain.link().downstream().stats().bytes_in;
        assert!(read < (384 << 10) + 3 * CALL, "{read} bytes were read");
        chain.until_all_done();
        chain.finish();
    }
}

/// The standard error of the server is for operators. The host gets it only if the configuration allows it.
#[test]
fn f_116_what_is_said_of_a_lost_call_says_all() {
    for eras in Eras::ALL {
        for tells_stderr in [false, true] {
            let mut config = relay_config();
            config.tells_stderr = tells_stderr;
            let mut chain = Chain::relayed_by(config, eras);
            works(&mut chain, 1);
            let lost = chain.tool("wait");
            chain.pass(seconds(3));
            chain.kill(Death::Heard);
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
            assert_eq!(text.contains(LAST_WORDS), tells_stderr, "{text}");
            let told = chain.picked_of_relay(|event| match event {
                relay::Event::Lost(failure) => Some(failure.to_string()),
                _ => None,
            });
            assert_eq!(told.len(), 1);
            assert!(told[0].contains(LAST_WORDS), "{told:?}");
            chain.finish();
        }
    }
}

/// The same holds for other requests, because the host need not belong to the operator of the server.
#[test]
fn the_last_words_of_a_server_are_not_told_with_other_requests_either() {
    for eras in Eras::ALL {
        for tells_stderr in [false, true] {
            let mut config = relay_config();
            config.tells_stderr = tells_stderr;
            config.upstream.policy.resends = 0;
            let mut chain = Chain::relayed_by(config, eras);
            works(&mut chain, 1);
            let unanswered = json!({"name": "form in the second life"});
            let lost = chain.call("prompts/get", unanswered);
            chain.pass(seconds(3));
            chain.kill(Death::Heard);
            chain.until_done(lost);
            let text = &chain.error(lost).message;
            assert!(text.contains("prompts/get"), "{text}");
            assert_eq!(text.contains(LAST_WORDS), tells_stderr, "{text}");
            chain.finish();
        }
    }
}

/// A hanging server delays only its own calls.
#[test]
fn f_119_a_server_that_hangs_blocks_nobody_else() {
    for eras in Eras::ALL {
        let (mut stuck, mut other) = (ready(eras), ready(eras));
        stuck.perform(Deed::DeafenServer);
        let waiting = stuck.tool("echo");
        stuck.settle();
        works(&mut other, 1);
        assert!(!stuck.is_done(waiting));
        other.finish();
        // A slow call does not delay another call of the same server, either.
        let mut chain = ready(eras);
        let wait = chain.tool("wait");
        works(&mut chain, 1);
        assert!(!chain.is_done(wait));
        chain.cancel(wait, "enough");
        chain.finish();
        stuck.until_all_done();
        stuck.finish();
    }
}

/// A chain whose relay has carried one call.
fn ready(eras: Eras) -> Chain {
    let mut chain = Chain::new(eras);
    works(&mut chain, 1);
    chain
}

/// Checks that a call works and that the server of this epoch answers it.
#[track_caller]
fn works(chain: &mut Chain, life: u64) {
    let echo = chain.tool("echo");
    chain.until_done(echo);
    let text = chain.text(echo);
    assert!(text.ends_with(&format!("by life {life}")), "{text}");
}
