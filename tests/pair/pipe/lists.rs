//! The four lists of a server: whole, paged, cached, changed and refused.

use core::time::Duration;

use everlink::ErrorObject;
use everlink::client::CallOptions;
use everlink::protocol::{Era, Version};
use everlink::server::Cache;
use everlink::{Change, List, Watch};
use serde_json::{Value, json};

use crate::pipe::harness::{
    Harness, Setup, in_every_cut, in_every_version, same_result_in_every_version,
};

/// The method that reads a list, and the name of the member in its result.
fn method_and_member(list: List) -> (&'static str, &'static str) {
    match list {
        List::Prompts => ("prompts/list", "prompts"),
        List::ResourceTemplates => ("resources/templates/list", "resourceTemplates"),
        List::Resources => ("resources/list", "resources"),
        List::Tools => ("tools/list", "tools"),
        other => panic!("{other} is not in this table"),
    }
}

/// Serves a list of `items` items in pages of two, as long as requests arrive. Returns the number of pages.
fn serve_pages(harness: &mut Harness, list: List, items: u32) -> u32 {
    let (method, member) = method_and_member(list);
    let mut pages = 0;
    while let Some(request) = harness.try_request() {
        assert_eq!(request.method, method);
        let params: Value = request.params.map_or(Value::Null, |params| {
            params.parse().expect("parameters are JSON")
        });
        let first: u32 = match &params["cursor"] {
            Value::Null => 0,
            cursor => cursor.as_str().expect("a text").parse().expect("ours"),
        };
        let after = items.min(first + 2);
        let page: Vec<Value> = (first..after)
            .map(|n| json!({"name": format!("{member}{n}")}))
            .collect();
        let mut result = json!({member: page});
        if after < items {
            result["nextCursor"] = after.to_string().into();
        }
        harness.respond(request.request, result);
        pages += 1;
    }
    pages
}

#[test]
fn every_page_of_every_list_is_read() {
    same_result_in_every_version(|mut harness| {
        List::ALL.map(|list| {
            [0, 1, 2, 5].map(|items| {
                let call = harness.list(list);
                let pages = serve_pages(&mut harness, list, items);
                assert_eq!(pages, items.div_ceil(2).max(1), "{list}");
                let (_, member) = method_and_member(list);
                let all: Vec<String> = (0..items)
                    .map(|n| format!(r#"{{"name":"{member}{n}"}}"#))
                    .collect();
                let outcome = harness.outcome(call);
                assert_eq!(outcome, format!("listed {list:?} [{}]", all.join(",")));
                // The change makes a legacy client read the list again.
                harness.publish(Change::List(list));
                harness.settle();
                outcome
            })
        })
    });
}

#[test]
fn concurrent_calls_for_the_same_list_share_one_read() {
    same_result_in_every_version(|mut harness| {
        let calls = [(); 3].map(|()| harness.list(List::Tools));
        assert_eq!(serve_pages(&mut harness, List::Tools, 3), 2);
        calls.map(|call| harness.outcome(call))
    });
}

/// A legacy list is cached until a change is announced, a modern one for the lifetime that its server sets.
#[test]
fn fresh_cached_list_is_returned_without_a_request() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.watch = Watch::lists();
        setup.server.cache = Cache::new(Duration::from_secs(60), false);
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let read = |harness: &mut Harness| {
                harness.settle();
                let call = harness.list(List::Tools);
                let pages = serve_pages(harness, List::Tools, 1);
                assert_eq!(harness.outcome(call), r#"listed Tools [{"name":"tools0"}]"#);
                pages
            };
            assert_eq!(read(&mut harness), 1);
            assert_eq!(read(&mut harness), 0);
            harness.advance(Duration::from_secs(61));
            let is_modern = version.era() == Era::Modern;
            assert_eq!(read(&mut harness), u32::from(is_modern));
            harness.publish(Change::List(List::Tools));
            assert_eq!(read(&mut harness), 1);
            harness.publish(Change::List(List::Prompts));
            assert_eq!(read(&mut harness), 0);
        });
    }
}

#[test]
fn list_that_changes_while_it_is_read_is_read_again_for_later_calls() {
    same_result_in_every_version(|mut harness| {
        harness.watch(Watch::lists());
        let early = harness.list(List::Resources);
        let request = harness.request();
        harness.publish(Change::List(List::Resources));
        harness.settle();
        let late = harness.list(List::Resources);
        harness.respond(request.request, json!({"resources": [{"uri": "old:"}]}));
        let early = harness.outcome(early);
        let request = harness.request();
        harness.respond(request.request, json!({"resources": [{"uri": "new:"}]}));
        assert_eq!(early, r#"listed Resources [{"uri":"old:"}]"#);
        let late = harness.outcome(late);
        assert_eq!(late, r#"listed Resources [{"uri":"new:"}]"#);
    });
}

#[test]
fn unknown_cursor_restarts_the_list_once() {
    same_result_in_every_version(|mut harness| {
        let call = harness.list(List::Tools);
        let page = json!({"tools": [{"name": "a"}], "nextCursor": "\n{\"x\":1}"});
        for _ in 0..2 {
            let request = harness.request();
            harness.respond(request.request, page.clone());
            let request = harness.request();
            let params: Value = request.params.expect("a cursor").parse().expect("JSON");
            assert_eq!(params, json!({"cursor": "\n{\"x\":1}"}));
            harness.fail(request.request, ErrorObject::new(-32602, "what cursor?"));
        }
        let outcome = harness.outcome(call);
        assert_eq!(outcome, r#"error -32602 "what cursor?" None"#);
    });
}

#[test]
fn cancelled_list_call_is_cancelled_at_the_server() {
    let events = same_result_in_every_version(|mut harness| {
        let call = harness.list(List::Prompts);
        assert_eq!(harness.request().method, "prompts/list");
        let (client, now) = harness.pair.client();
        client
            .cancel(now, call, None)
            .expect("the call is in flight");
        harness.server_event_texts()
    });
    assert_eq!(
        events,
        ["Cancelled { request: request 1, why: ByPeer { reason: None, meta: None } }"]
    );
}

#[test]
fn list_that_is_not_offered_fails_without_a_request() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        if let Some(offer) = &mut setup.server.offer {
            offer.capabilities = everlink::protocol::ServerCapabilities::default();
        }
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            for list in List::ALL {
                let call = harness.list(list);
                let outcome = harness.outcome(call);
                assert!(outcome.starts_with("failed NotOffered"), "{outcome}");
            }
            assert!(harness.try_request().is_none());
        });
    }
}

/// A direct call of the list method works, too, and its result is not cached.
#[test]
fn direct_call_of_a_list_method_returns_one_page_and_is_not_cached() {
    in_every_version(|mut harness| {
        for _ in 0..2 {
            let (client, now) = harness.pair.client();
            let call = client.call(now, "tools/list", None, CallOptions::new());
            let call = call.expect("the call is accepted");
            let request = harness.request();
            let page = json!({"tools": [], "nextCursor": "2"});
            harness.respond(request.request, page.clone());
            assert_eq!(
                harness.outcome(call),
                format!("reply {}", json!({"nextCursor": "2", "tools": []}))
            );
        }
    });
}
