//! Calls from one application to the other: in any order, of any size, with any text; progress, cancellation and
//! timeouts.

use everlink::Limit;
use everlink::client::{CallOptions, Outcome};
use everlink::protocol::Version;
use everlink::server::{Progress, Server};
use everlink::wire::ErrorObject;
use serde_json::{Value, json};

use crate::pipe::stage::{
    Setup, Stage, in_every_cut, in_every_version, payload, plain, seconds, the_same_everywhere,
    the_same_since,
};

/// Valid JSON strings that careless code mishandles.
const ODD: [&str; 12] = [
    "",
    "\n\r\t\0\u{7f}",
    "\u{2028}\u{2029}\u{85}",
    "\\\\\"/\u{8}\u{c}",
    r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    "Grüße, 世界, שלום",
    "👩‍👩‍👧‍👦 \u{1f3f4}\u{e0067}\u{e0062}\u{e007f}",
    "\u{fffd}\u{feff}\u{fffe}\u{10ffff}",
    "e\u{301} and \u{e9}",
    r"\u0041\n",
    "_meta",
    "io.modelcontextprotocol/protocolVersion",
];

#[test]
fn replies_find_their_calls_in_any_order() {
    let seen = the_same_everywhere(|mut stage| {
        let calls: Vec<_> = (0..9).map(|n| stage.tool(&format!("t{n}"))).collect();
        let mut requests: Vec<_> = (0..9).map(|_| stage.request()).collect();
        for at in [4, 7, 0, 3, 3, 1, 0, 1, 0] {
            let request = requests.remove(at);
            let params = request.params.expect("a tool has a name");
            let params: Value = params.parse().expect("this is JSON");
            if at == 3 {
                let text = format!("no {}", params["name"]);
                stage.fail(request.request, ErrorObject::new(7, text));
            } else {
                stage.respond(request.request, json!({"of": params["name"]}));
            }
        }
        let order = stage.client_said();
        assert_eq!(stage.pair.server().0.requests(), 0);
        (calls, order)
    });
    let (calls, order) = seen;
    assert_eq!(order.len(), calls.len());
    for (n, call) in calls.iter().enumerate() {
        let is_reply = |line: &String| *line == format!(r#"{call} is done: reply {{"of":"t{n}"}}"#);
        let is_error =
            |line: &String| *line == format!(r#"{call} is done: error 7 "no \"t{n}\"" None"#);
        assert_eq!(
            order.iter().filter(|l| is_reply(l) || is_error(l)).count(),
            1
        );
    }
}

#[test]
fn odd_words_arrive_as_they_were_sent() {
    the_same_everywhere(|mut stage| {
        let words = json!({
            "texts": ODD,
            "keys": ODD.iter().map(|key| ((*key).to_owned(), json!(1))).collect::<serde_json::Map<_, _>>(),
            "numbers": [0, -0.0, 1e-300, 18_446_744_073_709_551_615_u64, i64::MIN, 0.1],
        });
        let params = json!({"name": ODD[6], "arguments": words, "_meta": {"com.example/x": words}});
        let call = stage.call("tools/call", params.clone());
        let request = stage.request();
        let heard: Value = request
            .params
            .expect("there are some")
            .parse()
            .expect("JSON");
        assert_eq!(heard, params);

        let result = json!({"structuredContent": words, "_meta": {"com.example/x": words}});
        stage.respond(request.request, result.clone());
        let Outcome::Reply(reply) = stage.done(call) else {
            panic!("it was replied to");
        };
        assert_eq!(plain(&reply), result);

        let call = stage.tool("fails");
        let request = stage.request().request;
        let error = ErrorObject {
            data: Some(payload(&words)),
            ..ErrorObject::new(-32_000, ODD.concat())
        };
        stage.fail(request, error.clone());
        let Outcome::Error(heard) = stage.done(call) else {
            panic!("it failed");
        };
        assert_eq!(*heard, error);
    });
}

/// A payload may contain line breaks. The message on the wire is still one line.
#[test]
fn line_breaks_between_the_words_break_no_line() {
    the_same_everywhere(|mut stage| {
        let params = "{\n  \"name\": \"a\",\r\n  \"arguments\": {\n}\n}\n";
        let (client, now) = stage.pair.client();
        let params = Some(params.parse().expect("this is JSON"));
        let call = client.call(now, "tools/call", params, CallOptions::new());
        let call = call.expect("the call is accepted");
        let request = stage.request();
        let heard: Value = request
            .params
            .expect("there are some")
            .parse()
            .expect("JSON");
        assert_eq!(heard, json!({"name": "a", "arguments": {}}));

        let result = "{\n\"content\"\n:\r\n[\n]\n}"
            .parse()
            .expect("this is JSON");
        let (server, now) = stage.pair.server();
        server
            .respond(now, request.request, result)
            .expect("it is open");
        assert_eq!(stage.outcome(call), r#"reply {"content":[]}"#);
    });
}

/// The payload exceeds the window, the pipe and every initial buffer. Only two versions, because byte-by-byte reads are
/// slow.
#[test]
fn a_megabyte_goes_both_ways() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let setup = Setup::new(version);
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let text = "0123456789abcde\n".repeat(1 << 16);
            let call = stage.call("tools/call", json!({"name": "echo", "text": text}));
            let behind = stage.tool("small");
            let request = stage.request();
            let params: Value = request
                .params
                .expect("there are some")
                .parse()
                .expect("JSON");
            assert!(params["text"] == *text, "the text is not what was sent");
            stage.respond(request.request, json!({"text": text}));
            let request = stage.request();
            stage.respond(request.request, json!({"small": true}));
            let Outcome::Reply(reply) = stage.done(call) else {
                panic!("it was replied to");
            };
            assert!(
                plain(&reply)["text"] == *text,
                "the text is not what was sent"
            );
            stage.outcome(behind)
        });
    }
}

#[test]
fn what_is_deeply_nested_arrives_as_it_was_sent() {
    the_same_everywhere(|mut stage| {
        let deep = format!("{}1{}", r#"{"a":["#.repeat(5_000), "]}".repeat(5_000));
        let (client, now) = stage.pair.client();
        let params = Some(
            format!(r#"{{"name":"n","x":{deep}}}"#)
                .parse()
                .expect("JSON"),
        );
        let call = client.call(now, "tools/call", params, CallOptions::new());
        let call = call.expect("the call is accepted");
        let request = stage.request();
        let heard = request.params.expect("there are some");
        assert!(heard.as_str().contains(&deep), "it is not what was sent");
        let (server, now) = stage.pair.server();
        let result = format!(r#"{{"x":{deep}}}"#).parse().expect("this is JSON");
        server
            .respond(now, request.request, result)
            .expect("it is open");
        let Outcome::Reply(reply) = stage.done(call) else {
            panic!("it was replied to");
        };
        assert!(reply.as_str().contains(&deep), "it is not what was sent");
    });
}

/// A client may use strings as ids. This client uses numbers, so the test injects the strings.
#[test]
fn ids_of_both_kinds_come_back_as_they_were() {
    let seen = in_every_version(|mut stage| {
        let meta = if stage.is_modern() {
            json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            })
        } else {
            json!({})
        };
        let ids = [
            json!("7"),
            json!(""),
            json!(ODD.concat()),
            json!(-7),
            json!(i64::MAX),
        ];
        for id in &ids {
            let mut meta = meta.clone();
            meta["progressToken"] = id.clone();
            let line = json!({
                "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "n", "_meta": meta},
            });
            stage.pair.inject_to_server(format!("{line}\n").as_bytes());
        }
        for _ in &ids {
            let request = stage.request();
            assert!(request.wants_progress);
            let (server, now) = stage.pair.server();
            let told = server.progress(now, request.request, Progress::new(1.0));
            told.expect("the request is open");
            stage.settle();
            stage.respond(request.request, json!({}));
            stage.settle();
        }
        let said = stage.written('<');
        let told: Vec<_> = said
            .iter()
            .filter(|line| line["method"] == "notifications/progress")
            .map(|line| line["params"]["progressToken"].clone())
            .collect();
        assert_eq!(told, ids);
        let replied = said.iter().filter(|line| ids.contains(&line["id"]));
        replied.map(|line| line["id"].clone()).collect::<Vec<_>>()
    });
    for (version, replied) in seen {
        assert_eq!(replied.len(), 5, "{version}: {replied:?}");
    }
}

#[test]
fn progress_is_heard_as_it_grows() {
    let progress = |stage: &mut Stage, so_far: Progress| {
        let request = stage.request().request;
        let told = |stage: &mut Stage, progress| {
            let (server, now) = stage.pair.server();
            let told = server.progress(now, request, progress);
            told.expect("the request is open");
            stage.settle();
        };
        told(stage, Progress::new(0.5));
        told(stage, so_far);
        told(stage, Progress::new(0.25));
        // No poll between the two reports, and the client still receives both.
        let (server, now) = stage.pair.server();
        for so_far in [3.0, 4.0] {
            let told = server.progress(now, request, Progress::new(so_far));
            told.expect("the request is open");
        }
        stage.settle();
        stage.respond(request, json!({}));
        let (server, now) = stage.pair.server();
        let late = server.progress(now, request, Progress::new(5.0));
        assert!(late.is_err(), "it is answered already");
        stage.client_said()
    };
    let bare = the_same_everywhere(|mut stage| {
        stage.tool("slow");
        progress(&mut stage, Progress::new(2.0).of(10.0))
    });
    let expected = [
        "call 1 is at 0.5 of None: None",
        "call 1 is at 2 of Some(10.0): None",
        "call 1 is at 3 of None: None",
        "call 1 is at 4 of None: None",
        "call 1 is done: reply {}",
    ];
    assert_eq!(bare, expected);

    let with_words = the_same_since(Version::V2025_03_26, |mut stage| {
        stage.tool("slow");
        let so_far = Progress::new(2.0).of(10.0).with_message("half\nway");
        progress(&mut stage, so_far)
    });
    assert_eq!(
        with_words[1],
        r#"call 1 is at 2 of Some(10.0): Some("half\nway")"#
    );

    let unwanted = the_same_everywhere(|mut stage| {
        let options = CallOptions::new().without_progress();
        stage.call_with("tools/call", json!({"name": "slow"}), options);
        progress(&mut stage, Progress::new(2.0))
    });
    assert_eq!(unwanted, ["call 1 is done: reply {}"]);
}

#[test]
fn progress_keeps_a_call_alive() {
    the_same_everywhere(|mut stage| {
        let options = CallOptions::new().with_idle(Limit::After(seconds(10)));
        let call = stage.call_with("tools/call", json!({"name": "slow"}), options);
        let request = stage.request().request;
        for so_far in 1..5 {
            stage.pass(seconds(8));
            let (server, now) = stage.pair.server();
            let told = server.progress(now, request, Progress::new(f64::from(so_far)));
            told.expect("the request is open");
            stage.settle();
        }
        stage.pass(seconds(9));
        assert!(stage.try_done(call).is_none());
        stage.pass(seconds(2));
        let heard = stage.outcome(call);
        (heard, stage.server_said())
    });
}

#[test]
fn a_cancelled_call_is_cancelled_at_the_other_end() {
    let (outcome, said) = the_same_everywhere(|mut stage| {
        let call = stage.tool("slow");
        let other = stage.tool("other");
        let request = stage.request().request;
        let (client, now) = stage.pair.client();
        client
            .cancel(now, call, Some("enough\n"))
            .expect("it is under way");
        let outcome = stage.outcome(call);
        let said = stage.server_said();
        let (server, now) = stage.pair.server();
        let late = server.respond(now, request, payload(&json!({})));
        assert!(late.is_err(), "nobody waits for it");

        // The other call is not affected.
        assert_eq!(stage.pair.server().0.requests(), 1);
        let (client, now) = stage.pair.client();
        client.cancel(now, other, None).expect("it is under way");
        assert_eq!(
            stage.outcome(other),
            "failed Cancelled { reason: None } Unknown"
        );
        stage.settle();
        assert_eq!(stage.pair.server().0.requests(), 0);
        (outcome, said)
    });
    assert_eq!(
        outcome,
        r#"failed Cancelled { reason: Some("enough\n") } Unknown"#
    );
    assert_eq!(
        said,
        [
            r#"request 2 tools/call {"arguments":{},"name":"other"}"#,
            r#"Cancelled { request: request 1, why: ByPeer { reason: Some("enough\n"), meta: None } }"#,
        ]
    );
}

#[test]
fn a_cancel_that_crosses_the_answer_does_no_harm() {
    the_same_everywhere(|mut stage| {
        let call = stage.tool("quick");
        let request = stage.request().request;
        stage.respond(request, json!({}));
        // The reply is not read yet.
        let (client, now) = stage.pair.client();
        client.cancel(now, call, None).expect("it is under way");
        assert_eq!(
            stage.outcome(call),
            "failed Cancelled { reason: None } Unknown"
        );
        let next = stage.tool("next");
        let request = stage.request().request;
        stage.respond(request, json!({"next": true}));
        let heard = stage.outcome(next);
        assert!(stage.client_said().is_empty(), "a late reply is no news");
        heard
    });
}

#[test]
fn a_call_that_runs_out_of_time_ends_at_both_ends() {
    let seen = the_same_everywhere(|mut stage| {
        let options = CallOptions::new().with_total(Limit::After(seconds(5)));
        let call = stage.call_with("tools/call", json!({"name": "slow"}), options);
        stage.request();
        stage.pass(seconds(6));
        (stage.outcome(call), stage.server_said())
    });
    assert_eq!(
        seen.0,
        "failed TimedOut { limit: Total, state: Ready } Unknown"
    );
    assert_eq!(
        seen.1,
        [
            "Cancelled { request: request 1, why: ByPeer { reason: Some(\"it took too long in all\"), meta: None } }"
        ]
    );
}

/// Calls beyond the limit wait at the client or are refused by the server, depending on whose limit is lower.
#[test]
fn more_calls_than_either_end_takes_at_once() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.limits.calls_in_flight = 3;
        let waiting = in_every_cut(|cut| all_served(setup.ready(cut)));
        assert_eq!(waiting, 0, "{version}: all wait for their turn");

        setup.client.limits.calls_in_flight = 10;
        setup.server.limits.requests = 3;
        let refused = in_every_cut(|cut| all_served(setup.ready(cut)));
        assert_eq!(refused, 7, "{version}: all come at once");
    }
}

/// Makes ten calls at once, serves those that arrive, and returns the number of refused calls.
fn all_served(mut stage: Stage) -> usize {
    let calls: Vec<_> = (0..10).map(|n| stage.tool(&format!("t{n}"))).collect();
    stage.settle();
    while let Some(request) = stage.try_request() {
        let server: &Server = stage.pair.server().0;
        assert!(server.requests() <= 3);
        stage.respond(request.request, json!({}));
    }
    let outcomes = calls.iter().map(|call| stage.outcome(*call));
    let refused = outcomes.filter(|outcome| outcome != "reply {}");
    refused
        .inspect(|text| assert!(text.contains("ask again"), "{text}"))
        .count()
}
