//! The messages that a relay carries between a host and a server of any two eras.

use crate::relay_chain::exchanges::{EXCHANGES, ask_methods, resource_changes};
use crate::relay_chain::script::{call, initialize, request};
use crate::relay_chain::{
    Backend, Chain, Chunking, Eras, Sender, TurnOrder, UnreadOutput, answer_every_ask,
    answer_no_ask, host_config, payload, relay_config, seconds,
};
use everlink::client::{Event, Outcome};
use everlink::protocol::{
    ClientCapabilities, Era, ServerCapabilities, ServerFeature, Version, Versions,
};
use everlink::{ErrorObject, Watch};
use serde_json::{Value, json};

/// Every kind of exchange, between all eras, with every cut of the bytes and every order of the parties.
#[test]
fn every_exchange_is_carried_between_all_eras() {
    let schedules = Chunking::ALL.map(|chunking| (chunking, TurnOrder::RoundRobin));
    let orders = (1..=4).map(|seed| (Chunking::Whole, TurnOrder::Random(seed)));
    let schedules: Vec<_> = schedules.into_iter().chain(orders).collect();
    for exchange in EXCHANGES {
        for eras in Eras::ALL
            .into_iter()
            .filter(|eras| (exchange.exists)(*eras))
        {
            for (chunking, order) in &schedules {
                println!("{} in {eras:?}, {chunking:?}, {order:?}", exchange.name);
                let mut chain = Chain::new(eras).chunked(*chunking).with_turn_order(*order);
                let calls = (exchange.play)(&mut chain);
                (exchange.check)(&chain, &calls);
                assert_eq!(chain.newest_epoch(), 1, "the server was not replaced");
                chain.finish();
            }
        }
    }
}

/// A host of any version in front of a server of any other. A host must itself support the version of an older server of its own
/// era.
#[test]
fn every_host_version_works_with_every_server_version() {
    for &host in Version::ALL {
        for &server in Version::ALL {
            println!("a host of {host:?}, a server of {server:?}");
            let mut config = host_config(host.era());
            config.versions = match host.era() == server.era() {
                true => Versions::only(host).with(server.min(host)),
                false => Versions::only(host),
            };
            let mut chain = Chain::from_configs(relay_config(), Some(config))
                .served_by(move |_| Backend::of_version(server));
            let count = chain.tool("count");
            let list = chain.call("tools/list", Value::Null);
            let prompt = chain.call("prompts/get", json!({"name": "greet"}));
            chain.until_all_done();
            assert_eq!(chain.text(count), "count \"m1\" by life 1");
            assert_eq!(chain.result(list)["tools"][1]["name"], "count");
            assert!(chain.result(prompt)["messages"].is_array());
            assert_eq!(chain.sent_to_host("notifications/progress").len(), 3);
            let spoken = chain
                .relay()
                .upstream()
                .session()
                .expect("the link is ready")
                .version;
            assert_eq!(spoken, server);
            chain.finish();
        }
    }
}

#[test]
fn host_receives_the_offer_of_the_server() {
    for eras in Eras::ALL {
        let few = ServerCapabilities::default()
            .with_tools(false)
            .with_completions();
        let mut chain =
            Chain::new(eras).served_by(move |_| Backend::of(eras.server).offering(few.clone()));
        let list = chain.call("tools/list", Value::Null);
        chain.until_done(list);
        let session = chain.with_host(|host, _| host.session().cloned());
        let session = session.expect("the host is ready");
        assert_eq!(
            session
                .server
                .as_ref()
                .map(|s| s.name().to_owned())
                .as_deref(),
            Some("shop")
        );
        assert_eq!(session.instructions.as_deref(), Some("ask for anything"));
        let offers = |feature| session.capabilities.offers(feature);
        assert!(offers(ServerFeature::Tools) && offers(ServerFeature::Completions));
        let is_bridged = eras.host != eras.server;
        // A relay that translates announces by itself that a list differs in the next epoch.
        assert_eq!(offers(ServerFeature::ToolsListChanged), is_bridged);
        for feature in [
            ServerFeature::Prompts,
            ServerFeature::Resources,
            ServerFeature::Logging,
        ] {
            assert!(!offers(feature), "{feature} is not offered");
        }
        chain.finish();
    }
}

/// Version 2024-11-05 has completions, but no capability for them.
#[test]
fn completions_of_a_server_of_2024_11_05_are_offered_to_a_modern_host() {
    let config = host_config(Era::Modern);
    let mut chain = Chain::from_configs(relay_config(), Some(config))
        .served_by(|_| Backend::of_version(Version::V2024_11_05));
    let params = json!({
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "who", "value": "Ad"},
    });
    let complete = chain.call("completion/complete", params);
    chain.until_done(complete);
    let values = &chain.result(complete)["completion"]["values"];
    assert_eq!(*values, json!(["Ad"]));
    chain.finish();
}

#[test]
fn server_receives_the_capabilities_of_the_host() {
    for eras in Eras::ALL {
        for (declared, expected) in [
            (ClientCapabilities::default(), json!({})),
            (
                ClientCapabilities::default().with_sampling(),
                json!({"sampling": {}}),
            ),
        ] {
            let mut config = host_config(eras.host);
            config.capabilities = declared;
            let mut relay = relay_config();
            // The owner of the relay does not know the host's capabilities.
            relay.upstream.capabilities = ClientCapabilities::default().with_roots(true);
            let mut chain = Chain::from_configs(relay, Some(config))
                .served_by(move |_| Backend::of(eras.server));
            let sample = chain.tool("sample");
            let form = chain.tool("form");
            chain.until_all_done();
            let can_sample = expected != json!({});
            assert_eq!(
                matches!(chain.outcome(sample), Outcome::Reply(_)),
                can_sample
            );
            assert!(chain.error(form).message.contains("cannot ask"));
            let sent = match eras.server {
                Era::Modern => chain.sent_to_server(1, "tools/call")[0]["params"]["_meta"]
                    ["io.modelcontextprotocol/clientCapabilities"]
                    .clone(),
                _ => chain.sent_to_server(1, "initialize")[0]["params"]["capabilities"].clone(),
            };
            assert_eq!(sent, expected);
            chain.finish();
        }
    }
}

/// The members that a modern result adds reach a modern host unchanged, and a legacy host not at all.
#[test]
fn results_have_the_members_of_the_host_era() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let list = chain.call("tools/list", Value::Null);
        chain.until_done(list);
        let answers = chain.messages_from(Sender::Relay);
        let result = answers
            .iter()
            .find(|message| message["result"]["tools"].is_array());
        let result = &result.expect("the list was sent")["result"];
        let is_typed = result["resultType"] == "complete" && result["ttlMs"].is_u64();
        assert_eq!(is_typed, eras.host == Era::Modern, "{result}");
        assert!(is_typed || result["resultType"].is_null());
        chain.finish();
    }
}

/// Neither side sees the ids of the other.
#[test]
fn request_ids_of_any_type_are_returned_to_the_host_and_not_sent_to_the_server() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        for (number, id) in [json!(1), json!(2), json!("two"), json!(-7), json!("")]
            .into_iter()
            .enumerate()
        {
            let mark = format!("m{number}");
            let answer = chain.round_trip(&request(id.clone(), "tools/call", call("echo", &mark)));
            let text = &answer["result"]["content"][0]["text"];
            assert_eq!(*text, format!("echo \"{mark}\" by life 1"));
        }
        let written = chain.all_sent_to_server(1);
        let ids: Vec<u64> = written
            .iter()
            .filter_map(|message| message["id"].as_u64())
            .collect();
        assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
        assert_eq!(
            ids.len(),
            written
                .iter()
                .filter(|message| !message["id"].is_null())
                .count(),
            "all ids to the server are numbers of the relay"
        );
        chain.finish();
    }
}

/// S-META-13: unknown `_meta` members are passed on; those for the direct peer are not.
#[test]
fn unknown_meta_members_are_passed_on_and_the_progress_token_is_replaced() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        let mut params = call("echo", "m");
        params["_meta"] = json!({"traceparent": "00-1", "acme/x": [1], "progressToken": "mine"});
        chain.round_trip(&request(1, "tools/call", params));
        let meta = chain.sent_to_server(1, "tools/call")[0]["params"]["_meta"].clone();
        assert_eq!(meta["traceparent"], "00-1");
        assert_eq!(meta["acme/x"], json!([1]));
        assert!(meta["progressToken"].is_u64(), "{meta}");
        chain.finish();
    }
}

/// A long message is carried unchanged, and one over the limit fails only its own call.
#[test]
fn long_reply_is_passed_on_and_one_over_the_limit_fails_only_its_call() {
    for eras in Eras::ALL {
        let mut relay = relay_config();
        relay.downstream.limits.message_bytes = 2 << 20;
        let mut chain = Chain::with_config(relay, eras);
        let long = chain.tool_with("big", json!({"bytes": 1 << 20}));
        let longer = chain.tool_with("big", json!({"bytes": 3 << 20}));
        let echo = chain.tool("echo");
        chain.until_all_done();
        assert_eq!(chain.text(long).len(), 1 << 20);
        let text = chain.text(longer);
        assert!(text.contains("could not be passed on"), "{text}");
        assert_eq!(
            chain.result(longer)["_meta"]["everlink/delivery"],
            "unknown"
        );
        assert_eq!(chain.text(echo), "echo \"m3\" by life 1");
        chain.finish();
    }
}

/// Each era has its own error codes; all other codes pass unchanged.
#[test]
fn error_codes_are_translated_to_the_era_of_the_host() {
    for (code, to_legacy, to_modern) in [
        (-32_602, -32_602, -32_602),
        (-32_603, -32_603, -32_603),
        (-32_002, -32_002, -32_602),
        (-32_042, -32_042, -32_603),
        (-32_000, -32_000, -32_000),
        (-1, -1, -1),
        (4_711, 4_711, 4_711),
    ] {
        for host in [Era::Legacy, Era::Modern] {
            let mut chain = Chain::new(Eras::new(host, Era::Legacy));
            let refused = chain.tool_with("refuse", json!({"code": code}));
            chain.until_done(refused);
            let expected = if host == Era::Modern {
                to_modern
            } else {
                to_legacy
            };
            assert_eq!(chain.error(refused).code, expected, "{code} to {host:?}");
            chain.finish();
        }
    }
}

/// A batch of a host is carried as separate requests.
#[test]
fn every_request_of_a_batch_is_answered() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.round_trip(&initialize("2025-03-26", json!({})));
        let batch = json!([
            request(1, "tools/call", call("echo", "one")),
            request(2, "tools/list", json!({})),
        ]);
        chain.send_as_host(&batch);
        chain.until("both are answered", |chain| {
            [1, 2].iter().all(|id| chain.reply_to(&json!(id)).is_some())
        });
        chain.finish();
    }
}

/// S-TIME-08: the relay itself answers a ping, even without a server.
#[test]
fn a_ping_is_answered_without_a_server() {
    let mut chain = Chain::from_configs(relay_config(), None).served_by(|_| Backend::Mute);
    let answer = chain.round_trip(&request("p", "ping", json!({})));
    assert_eq!(answer["result"], json!({}));
    assert_eq!(chain.now().as_nanos(), 0);
    chain.finish();
}

/// An invalid message is not passed on.
#[test]
fn invalid_messages_of_the_host_are_not_passed_on() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        chain.send_raw_as_host("this is no message\n");
        chain.send_as_host(&json!({"jsonrpc": "2.0", "method": "notifications/unheard_of"}));
        chain.send_as_host(&json!({"jsonrpc": "2.0", "id": 99, "result": {}}));
        let answer = chain.round_trip(&request(1, "tools/call", call("echo", "m")));
        assert!(answer["result"].is_object());
        let to_server = chain.all_sent_to_server(1);
        assert!(to_server.iter().all(|message| message["id"] != 99));
        chain.finish();
    }
}

/// At any step, a cancelled call gets no reply. Its server is told only if it has the call.
#[test]
fn a_call_can_be_cancelled_at_every_step() {
    for eras in Eras::ALL {
        for tool in ["count", "form", "echo"] {
            for steps in 0.. {
                let mut chain = Chain::new(eras);
                let call = chain.tool(tool);
                let mut left = steps;
                while left > 0 && !chain.is_done(call) && chain.step_or_sleep() {
                    left -= 1;
                }
                if chain.is_done(call) {
                    break;
                }
                println!("{tool} in {eras:?}, cancelled after {steps} steps");
                chain.cancel(call, "no more");
                let after = chain.tool("echo");
                chain.until_done(after);
                assert_eq!(chain.text(after), "echo \"m2\" by life 1");
                chain.advance(seconds(10));
                let first = &chain.sent_to_server(1, "tools/call")[0];
                let was_sent = first["params"]["arguments"]["mark"] == "m1";
                let was_told = !chain
                    .sent_to_server(1, "notifications/cancelled")
                    .is_empty();
                assert!(
                    was_sent || !was_told,
                    "a cancellation was sent for an unsent call"
                );
                chain.finish();
            }
        }
    }
}

/// A call that the relay has not sent is cancelled without a message to any server.
#[test]
fn unsent_call_is_cancelled_without_a_message_to_the_server() {
    for host in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::new(Eras::new(host, Era::Legacy));
        let first = chain.tool("echo");
        chain.until_done(first);
        chain.kill(UnreadOutput::Delivered);
        chain.settle();
        let call = chain.tool("echo");
        chain.settle();
        chain.cancel(call, "no more");
        let last = chain.tool("echo");
        chain.until_done(last);
        assert_eq!(chain.text(last), "echo \"m3\" by life 2");
        assert_eq!(chain.sent_to_server(2, "tools/call").len(), 1);
        assert_eq!(chain.sent_to_server(2, "notifications/cancelled").len(), 0);
        chain.finish();
    }
}

/// The server is told that the host refused the ask, if its era has a message for it.
#[test]
fn refused_ask_is_reported_to_a_legacy_server_and_fails_the_call_of_a_modern_one() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::new(Eras::new(Era::Legacy, server))
            .with_ask_handler(|_| Some(Err(ErrorObject::new(-1, "the user said no"))));
        let form = chain.tool("form");
        chain.until_done(form);
        if server == Era::Legacy {
            let answers = chain.result(form)["structuredContent"]["answers"].clone();
            let text = answers[0]["unanswered"].as_str().unwrap_or_default();
            assert!(
                text.contains("the user said no") && text.contains("-1"),
                "{text}"
            );
        } else {
            // S-MRTR: a modern server cannot be told. The call fails and names the reason.
            let text = chain.text(form);
            assert_eq!(chain.result(form)["isError"], true);
            assert!(
                text.contains("(elicitation/create) was not answered"),
                "{text}"
            );
        }
        chain.finish();
    }
}

/// If the server continues without the answer, the ask of the host is cancelled.
#[test]
fn ask_ends_with_the_call_that_it_belongs_to() {
    for eras in Eras::ALL
        .into_iter()
        .filter(|eras| eras.server == Era::Legacy)
    {
        let mut chain = Chain::new(eras).with_ask_handler(answer_no_ask);
        let call = chain.tool("form and go on");
        if eras.host == Era::Legacy {
            chain.until_done(call);
            assert_eq!(chain.sent_to_host("notifications/cancelled").len(), 1);
        } else {
            // A modern host gets the ask in place of the reply, and gets the reply when it answers.
            chain.advance(seconds(5));
            let asks = chain.pick_host_events(|event| match event {
                Event::Ask(ask) => Some(ask.ask),
                _ => None,
            });
            assert_eq!(asks.len(), 1);
            let answer = payload(&json!({"action": "cancel"}));
            chain
                .with_host(|host, now| host.answer(now, asks[0], Ok(answer)))
                .expect("the ask is open");
            chain.until_done(call);
        }
        assert_eq!(chain.text(call), "form and go on \"m1\" by life 1");
        chain.finish();
    }
}

/// An ask that the server withdraws is withdrawn from the host.
#[test]
fn ask_withdrawn_by_the_server_is_withdrawn_from_the_host() {
    let mut chain = Chain::new(Eras::new(Era::Legacy, Era::Legacy)).with_ask_handler(answer_no_ask);
    let call = chain.tool("form and withdraw");
    chain.until_done(call);
    assert_eq!(chain.sent_to_host("notifications/cancelled").len(), 1);
    let withdrawn = chain.pick_host_events(|event| match event {
        Event::AskWithdrawn { .. } => Some(()),
        _ => None,
    });
    assert_eq!(withdrawn.len(), 1);
    chain.finish();
}

/// An ask without a request waits for the next one, because a modern host can be asked only for a request of its own.
#[test]
fn ask_without_a_request_waits_for_the_next_request() {
    let mut chain = Chain::new(Eras::new(Era::Modern, Era::Legacy));
    let blurt = chain.tool("blurt and go on");
    chain.until_done(blurt);
    chain.settle();
    assert_eq!(chain.received_by(1, "answered").len(), 0);
    let next = chain.tool("echo");
    chain.until_done(next);
    chain.settle();
    let received = chain.received_by(1, "answered");
    assert_eq!(received.len(), 1, "{:#?}", chain.received_by(1, ""));
    assert!(received[0].contains("Ada"), "{received:?}");
    chain.finish();
}

/// An unanswered ask does not block the next one.
#[test]
fn unanswered_ask_does_not_block_the_next_ask() {
    let mut asked = 0;
    let mut chain = Chain::new(Eras::new(Era::Modern, Era::Legacy)).with_ask_handler(move |ask| {
        asked += 1;
        answer_every_ask(ask).filter(|_| asked > 1)
    });
    let first = chain.tool("blurt");
    chain.settle();
    let second = chain.tool("blurt");
    chain.until_done(second);
    let answers = &chain.result(second)["structuredContent"]["answers"];
    assert_eq!(answers[0]["content"]["name"], "Ada");
    assert!(!chain.is_done(first));
    chain.cancel(first, "enough");
    chain.finish();
}

/// A waiting ask ends with the server that sent it.
#[test]
fn waiting_ask_ends_with_the_server_that_sent_it() {
    let mut chain = Chain::new(Eras::new(Era::Modern, Era::Legacy));
    let blurt = chain.tool("blurt and go on");
    chain.until_done(blurt);
    chain.settle();
    chain.kill(UnreadOutput::Delivered);
    chain.settle();
    let echo = chain.tool("echo");
    chain.until_done(echo);
    chain.settle();
    assert!(ask_methods(&chain).is_empty());
    chain.finish();
}

/// A legacy server does not name the call of its ask. Whichever call the relay uses towards the host, the answer
/// reaches the server.
#[test]
fn asks_among_many_calls_are_answered() {
    for exchange in EXCHANGES
        .iter()
        .filter(|exchange| exchange.name.contains("among"))
    {
        for order in [
            TurnOrder::RoundRobin,
            TurnOrder::Random(1),
            TurnOrder::Random(2),
        ] {
            let mut chain = Chain::new(Eras::new(Era::Modern, Era::Legacy)).with_turn_order(order);
            let calls = (exchange.play)(&mut chain);
            (exchange.check)(&chain, &calls);
            chain.finish();
        }
    }
}

/// A host may report progress of its answer to an ask.
#[test]
fn progress_of_an_answer_is_passed_on_to_the_server() {
    let mut chain = Chain::scripted(Era::Legacy);
    chain.do_handshake(json!({"sampling": {}}));
    chain.send_as_host(&request(1, "tools/call", call("sample with progress", "m")));
    chain.until("the host receives the ask", |chain| {
        !chain.sent_to_host("sampling/createMessage").is_empty()
    });
    let ask = chain.sent_to_host("sampling/createMessage")[0].clone();
    let token = ask["params"]["_meta"]["progressToken"].clone();
    assert!(!token.is_null());
    let params = json!({"progressToken": token, "progress": 1});
    chain.send_as_host(
        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
    );
    chain.settle();
    assert_eq!(chain.sent_to_server(1, "notifications/progress").len(), 1);
    chain.finish();
}

/// One change is reported once.
#[test]
fn resource_list_change_is_reported_once() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let find = chain.tool("find");
        chain.until_done(find);
        chain.settle();
        let notifications = chain.sent_to_host("notifications/resources/list_changed");
        assert_eq!(notifications.len(), 1, "{notifications:?}");
        chain.finish();
    }
}

/// A new watch reports no changes of resources that were already watched.
#[test]
fn new_watch_reports_no_change_of_resources_already_watched() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let first = chain.tool("echo");
        chain.until_done(first);
        chain.watch(Watch::lists().and_uri("file:///a"));
        chain.advance(seconds(1));
        let before = resource_changes(&chain, "file:///a").len();
        chain.watch(Watch::lists().and_uri("file:///a").and_uri("file:///b"));
        chain.advance(seconds(1));
        assert_eq!(
            resource_changes(&chain, "file:///a").len(),
            before,
            "{eras:?}"
        );
        chain.finish();
    }
}

/// After a watch ends, changes are not reported any more, and the server is told.
#[test]
fn ended_watch_reports_no_more_changes_and_the_server_is_told() {
    for eras in Eras::ALL {
        let mut chain = Chain::new(eras);
        let first = chain.tool("echo");
        chain.until_done(first);
        chain.watch(Watch::lists().and_uri("file:///a"));
        chain.advance(seconds(1));
        chain.watch(Watch::lists());
        chain.advance(seconds(1));
        let received = chain.received_by(1, "watching").last().copied();
        assert!(
            received.is_some_and(|watch| !watch.contains("file:///a")),
            "{received:?}"
        );
        let before = resource_changes(&chain, "file:///a").len();
        let touch = chain.tool_with("touch", json!({"uri": "file:///a"}));
        chain.until_done(touch);
        chain.settle();
        assert_eq!(resource_changes(&chain, "file:///a").len(), before);
        chain.finish();
    }
}

/// A legacy host that set no log level gets log messages from a server of either era.
#[test]
fn legacy_host_that_set_no_log_level_receives_log_messages() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        chain.round_trip(&request(1, "tools/call", call("log", "m")));
        let logs = chain.sent_to_host("notifications/message");
        assert_eq!(logs.len(), 2, "{logs:?}");
        chain.finish();
    }
}

/// A log level that a legacy host sets goes to the server, in the form of its era.
#[test]
fn log_level_set_by_the_host_applies_to_the_server() {
    for server in [Era::Legacy, Era::Modern] {
        let mut chain = Chain::scripted(server);
        chain.do_handshake(json!({}));
        for (id, level, expected) in [(1, "error", 1), (2, "debug", 3), (3, "error", 1)] {
            chain.round_trip(&request(id, "logging/setLevel", json!({"level": level})));
            let before = chain.sent_to_host("notifications/message").len();
            let mark = format!("m{id}");
            chain.round_trip(&request(10 + id, "tools/call", call("log", &mark)));
            let logs = chain.sent_to_host("notifications/message");
            assert_eq!(logs.len() - before, expected, "{level}: {logs:?}");
        }
        chain.finish();
    }
}

/// The status of a server's task is passed on to a host without tasks of its own.
#[test]
fn task_status_notification_is_passed_on_to_the_host() {
    let mut chain = Chain::scripted(Era::Legacy);
    chain.do_handshake(json!({}));
    let mut params = call("tell", "m");
    params["arguments"]["method"] = "notifications/tasks/status".into();
    chain.round_trip(&request(1, "tools/call", params));
    assert_eq!(chain.sent_to_host("notifications/tasks/status").len(), 1);
    chain.finish();
}

/// A legacy host has no such requests. A modern server would take `subscriptions/listen` for a subscription of the link, and not reply before its end.
#[test]
fn request_that_the_era_of_the_host_does_not_have_is_not_passed_to_a_server_of_the_other_era() {
    for is_replaced in [false, true] {
        let servers = move |epoch| match epoch {
            1 if is_replaced => Backend::of(Era::Legacy),
            _ => Backend::of(Era::Modern),
        };
        let mut chain = Chain::scripted(Era::Modern).served_by(servers);
        chain.do_handshake(json!({}));
        for (id, method) in [(1, "subscriptions/listen"), (2, "server/discover")] {
            let params = json!({"notifications": {}, "of": "the host"});
            chain.send_as_host(&request(id, method, params));
            if is_replaced && chain.newest_epoch() == 1 {
                // The first server has read it, and would have refused it.
                chain.until("the request is sent", |chain| {
                    !chain.sent_to_server(1, method).is_empty()
                });
                chain.kill(UnreadOutput::Lost);
            }
            let id = json!(id);
            chain.until("the reply is written", |chain| {
                chain.reply_to(&id).is_some()
            });
            let reply = chain.reply_to(&id).expect("the reply is there");
            assert_eq!(reply["error"]["code"], -32_601, "{reply}");
            let mut sent = chain
                .sent_to_server(chain.newest_epoch(), method)
                .into_iter();
            assert!(sent.all(|sent| sent["params"]["of"].is_null()), "{method}");
        }
        chain.finish();
    }
}
