//! The traces that a relay takes part in: what it reports of each request, and which trace context the server gets.

use everlink::client::FailureKind;
use everlink::protocol::Era;
use everlink::relay::{Config, Event, Trace, Verdict};
use everlink::{Epoch, Id};
use serde_json::{Value, json};

use crate::relay_chain::script::{initialize, request};
use crate::relay_chain::{Backend, Chain, Eras, UnreadOutput, relay_config, seconds};

fn config() -> Config {
    let mut config = relay_config();
    config.traces = true;
    config
}

fn tracing(eras: Eras) -> Chain {
    Chain::with_config(config(), eras)
}

/// A legacy host that is a script, after the handshake with a server of this era.
fn scripted(server: Era) -> Chain {
    let mut chain = Chain::from_configs(config(), None).served_by(move |_| Backend::of(server));
    chain.do_handshake(json!({}));
    chain
}

fn traces(chain: &Chain) -> Vec<&Trace> {
    chain.pick_relay_events(|event| match event {
        Event::Traced(trace) => Some(&**trace),
        _ => None,
    })
}

/// The only trace of a request with this method.
#[track_caller]
fn trace_of<'a>(chain: &'a Chain, method: &str) -> &'a Trace {
    let all = traces(chain).into_iter();
    let all: Vec<&Trace> = all.filter(|trace| trace.method == method).collect();
    match all[..] {
        [trace] => trace,
        _ => panic!("{} traces of {method}", all.len()),
    }
}

#[test]
fn each_request_is_reported_with_its_times_versions_and_spans() {
    for eras in Eras::ALL {
        let mut chain = tracing(eras);
        let call = chain.tool("echo");
        chain.until_done(call);
        let before = traces(&chain).len();
        let began = chain.now();
        let arguments = json!({"seconds": 3});
        let call = chain.tool_with("nap", arguments);
        chain.until_done(call);
        let all = traces(&chain);
        let [trace] = all[before..] else {
            panic!("{} traces", all.len() - before);
        };
        assert_eq!(trace.method, "tools/call");
        assert_eq!(trace.name.as_deref(), Some("nap"));
        assert!(trace.id.is_some());
        assert_eq!(trace.verdict, Verdict::Reply);
        assert_eq!((trace.parent, trace.state.as_deref()), (None, None));
        assert!(trace.is_sampled, "the host did not decide");
        assert_ne!(
            (trace.trace_id, trace.server_span, trace.client_span),
            (0, 0, 0)
        );
        assert_ne!(trace.server_span, trace.client_span);
        assert_eq!(trace.host_version.era(), eras.host);
        let server = trace.server_version.expect("there is a session");
        assert_eq!(server.era(), eras.server);
        assert_eq!(trace.accepted, began);
        assert_eq!(trace.sent, Some((began, Epoch::FIRST)));
        assert!(trace.resent.is_empty());
        assert_eq!(trace.ended.since(began), seconds(3));
        // The server gets the span behind as its parent.
        let sent = chain.sent_to_server(1, "tools/call");
        let sent = sent.last().expect("the call was sent");
        let parent = format!("00-{:032x}-{:016x}-01", trace.trace_id, trace.client_span);
        assert_eq!(sent["params"]["_meta"]["traceparent"], parent);
        chain.finish();
    }
}

#[test]
fn each_trace_has_an_id_of_its_own() {
    let mut chain = tracing(Eras::ALL[0]);
    for _ in 0..3 {
        let call = chain.tool("echo");
        chain.until_done(call);
    }
    let mut ids: Vec<u128> = traces(&chain).iter().map(|trace| trace.trace_id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((all >= 3, ids.len()), (true, all));
    chain.finish();
}

#[test]
fn verdict_says_what_became_of_a_request() {
    for eras in Eras::ALL {
        let mut chain = tracing(eras);
        let call = chain.tool("broken");
        chain.until_done(call);
        assert_eq!(trace_of(&chain, "tools/call").verdict, Verdict::ToolError);

        let call = chain.call("resources/read", json!({"uri": "file:///missing"}));
        chain.until_done(call);
        let verdict = &trace_of(&chain, "resources/read").verdict;
        assert!(matches!(verdict, Verdict::Error(_)), "{verdict:?}");

        let call = chain.tool("wait");
        chain.advance(seconds(1));
        chain.cancel(call, "not needed");
        chain.advance(seconds(1));
        let verdict = traces(&chain).last().expect("a trace").verdict.clone();
        assert_eq!(verdict, Verdict::Cancelled);

        let call = chain.tool("crash");
        chain.until_done(call);
        let verdict = traces(&chain).last().expect("a trace").verdict.clone();
        assert_eq!(verdict, Verdict::Failed(Box::new(FailureKind::Lost)));
        chain.finish();
    }
}

#[test]
fn request_that_waits_for_a_server_is_sent_when_the_next_connection_is_ready() {
    let mut chain = tracing(Eras::new(Era::Legacy, Era::Legacy));
    let call = chain.tool("echo");
    chain.until_done(call);
    chain.kill(UnreadOutput::Lost);
    chain.advance(seconds(0));
    let accepted = chain.now();
    let call = chain.call("prompts/get", json!({"name": "greet"}));
    chain.until_done(call);
    let trace = trace_of(&chain, "prompts/get");
    let (sent, epoch) = trace.sent.expect("it was sent");
    assert_eq!(trace.accepted, accepted);
    assert_eq!(epoch.number(), 2);
    assert!(sent > accepted);
    assert!(trace.resent.is_empty());
    chain.finish();
}

#[test]
fn request_that_was_not_sent_names_no_connection() {
    let mut config = config();
    config.upstream.limits.calls_in_flight = 1;
    let mut chain = Chain::with_config(config, Eras::new(Era::Legacy, Era::Legacy));
    let wait = chain.tool("wait");
    chain.advance(seconds(1));
    let queued = chain.call("prompts/get", json!({"name": "greet"}));
    chain.advance(seconds(1));
    for call in [queued, wait] {
        chain.cancel(call, "not needed");
        chain.settle();
    }
    let trace = trace_of(&chain, "prompts/get");
    assert_eq!((&trace.verdict, trace.sent), (&Verdict::Cancelled, None));
    let trace = trace_of(&chain, "tools/call");
    assert_eq!(trace.verdict, Verdict::Cancelled);
    assert!(trace.sent.is_some());
    chain.finish();
}

#[test]
fn request_that_is_repeated_names_both_connections() {
    let mut chain = tracing(Eras::new(Era::Legacy, Era::Legacy));
    let call = chain.call("prompts/get", json!({"name": "form in the second life"}));
    chain.advance(seconds(10));
    chain.kill(UnreadOutput::Lost);
    chain.until_done(call);
    let trace = trace_of(&chain, "prompts/get");
    let (_, epoch) = trace.sent.expect("it was sent");
    assert_eq!(epoch, Epoch::FIRST);
    let again: Vec<u64> = trace
        .resent
        .iter()
        .map(|(_, epoch)| epoch.number())
        .collect();
    assert_eq!(again, [2]);
    assert_eq!(trace.verdict, Verdict::Reply);
    chain.finish();
}

/// Sends a prompt request with this `_meta`. Returns the `_meta` that the server got.
fn meta_at_server(chain: &mut Chain, meta: &Value) -> Value {
    let params = json!({"name": "greet", "_meta": meta});
    let reply = chain.round_trip(&request("traced", "prompts/get", params));
    assert!(reply["result"].is_object(), "{reply}");
    let sent = chain.sent_to_server(1, "prompts/get");
    sent.last().expect("it was sent")["params"]["_meta"].clone()
}

const HOST_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const HOST_SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

#[test]
fn host_with_a_trace_context_decides_about_the_trace() {
    for server in [Era::Legacy, Era::Modern] {
        for (flags, is_sampled) in [("01", true), ("00", false)] {
            let mut chain = scripted(server);
            let parent = format!("00-{HOST_TRACE}-{HOST_SPAN:016x}-{flags}");
            let meta = json!({"traceparent": parent, "tracestate": "a=b,c=d", "acme/x": 1});
            let sent = meta_at_server(&mut chain, &meta);
            let trace = trace_of(&chain, "prompts/get");
            assert_eq!(format!("{:032x}", trace.trace_id), HOST_TRACE);
            assert_eq!(trace.parent, Some(HOST_SPAN));
            assert_eq!(trace.state.as_deref(), Some("a=b,c=d"));
            assert_eq!(trace.is_sampled, is_sampled);
            // The span of the relay takes the place of that of the host. Everything else is passed on.
            let ours = format!("00-{HOST_TRACE}-{:016x}-{flags}", trace.client_span);
            assert_eq!(sent["traceparent"], ours);
            assert_eq!(sent["tracestate"], "a=b,c=d");
            assert_eq!(sent["acme/x"], 1);
            chain.finish();
        }
    }
}

#[test]
fn relay_without_traces_passes_the_context_of_the_host_on() {
    let mut chain = Chain::scripted(Era::Legacy);
    chain.do_handshake(json!({}));
    let parent = format!("00-{HOST_TRACE}-{HOST_SPAN:016x}-01");
    let sent = meta_at_server(&mut chain, &json!({"traceparent": parent}));
    assert_eq!(sent["traceparent"], parent);
    assert!(traces(&chain).is_empty());
    chain.finish();
}

/// An exporter may keep names, so they are bounded.
#[test]
fn long_names_are_left_out_of_a_trace() {
    let named = |len: usize| json!({"name": "x".repeat(len), "arguments": {}});
    let last = json!({"arguments": {"name": "no"}, "name": "echo"});
    for (method, params, name) in [
        ("tools/call", named(256).to_string(), Some("x".repeat(256))),
        ("tools/call", named(257).to_string(), None),
        ("tools/call", last.to_string(), Some("echo".into())),
        (
            "tools/call",
            r#"{"name":"\u0065cho"}"#.into(),
            Some("echo".into()),
        ),
        (
            "prompts/get",
            r#"{"name":"gre\u0065t"}"#.into(),
            Some("greet".into()),
        ),
        ("acme/x", r#"{"name":"echo"}"#.into(), None),
    ] {
        let mut chain = scripted(Era::Legacy);
        chain.send_raw_as_host(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#
        ));
        chain.send_raw_as_host("\n");
        chain.until("the reply", |chain| chain.reply_to(&json!(1)).is_some());
        assert_eq!(trace_of(&chain, method).name.as_deref(), name.as_deref());
        chain.finish();
    }
    for len in [256, 257] {
        let mut chain = scripted(Era::Legacy);
        let method = "m".repeat(len);
        chain.round_trip(&request(1, &method, json!({})));
        let traced = if len == 256 { &*method } else { "_OTHER" };
        trace_of(&chain, traced);
        chain.finish();
    }
}

#[test]
fn request_that_does_not_fit_into_the_queue_is_reported_as_not_passed_on() {
    let mut config = config();
    config.upstream.limits.queued_calls = 1;
    let mut chain = Chain::from_configs(config, None).served_by(|epoch| match epoch {
        1 => Backend::of(Era::Legacy),
        _ => Backend::Mute,
    });
    chain.send_as_host(&initialize("2025-11-25", json!({})));
    chain.until("the handshake is answered", |chain| {
        chain.reply_to(&json!("hello")).is_some()
    });
    chain.send_as_host(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    chain.kill(UnreadOutput::Lost);
    chain.send_as_host(&request(1, "prompts/get", json!({"name": "greet"})));
    let reply = chain.round_trip(&request(2, "prompts/get", json!({"name": "greet"})));
    let message = reply["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("could not be passed on"), "{reply}");
    assert!(message.contains("what happened to the server"), "{reply}");
    let trace = trace_of(&chain, "prompts/get");
    assert_eq!(trace.verdict, Verdict::NotPassedOn);
    assert_eq!(trace.id, Some(Id::Number(2)));
    chain.finish();
}

/// The ids are drawn from the seed of the configuration, so that a recording can be replayed.
#[test]
fn same_seed_gives_the_same_ids() {
    let ids = |seed: u64| {
        let mut config = config();
        config.upstream.seed = seed;
        let mut chain = Chain::with_config(config, Eras::ALL[0]);
        let call = chain.tool("echo");
        chain.until_done(call);
        let trace = trace_of(&chain, "tools/call");
        let ids = (trace.trace_id, trace.server_span, trace.client_span);
        chain.finish();
        ids
    };
    assert_eq!(ids(1), ids(1));
    let of_three = [ids(0), ids(1), ids(2)];
    assert_ne!(of_three[0], of_three[1]);
    assert_ne!(of_three[0], of_three[2]);
}
