//! The four lists of a server: whole, paged, cached, changed and refused.

use core::time::Duration;

use everlink::client::CallOptions;
use everlink::protocol::{Era, Version};
use everlink::server::Cache;
use everlink::wire::ErrorObject;
use everlink::{Change, List, Watch};
use serde_json::{Value, json};

use crate::pipe::stage::{Setup, Stage, in_every_cut, in_every_version, the_same_everywhere};

/// The method that reads a list, and the name of the member in its result.
fn words(list: List) -> (&'static str, &'static str) {
    match list {
        List::Prompts => ("prompts/list", "prompts"),
        List::ResourceTemplates => ("resources/templates/list", "resourceTemplates"),
        List::Resources => ("resources/list", "resources"),
        List::Tools => ("tools/list", "tools"),
        other => panic!("{other} is new"),
    }
}

/// Serves a list of `items` items in pages of two, as long as requests arrive. Returns the number of pages.
fn serve(stage: &mut Stage, list: List, items: u32) -> u32 {
    let (method, member) = words(list);
    let mut pages = 0;
    while let Some(request) = stage.try_request() {
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
        stage.respond(request.request, result);
        pages += 1;
    }
    pages
}

#[test]
fn every_list_is_read_to_its_end() {
    the_same_everywhere(|mut stage| {
        List::ALL.map(|list| {
            [0, 1, 2, 5].map(|items| {
                let call = stage.list(list);
                let pages = serve(&mut stage, list, items);
                assert_eq!(pages, items.div_ceil(2).max(1), "{list}");
                let (_, member) = words(list);
                let all: Vec<String> = (0..items)
                    .map(|n| format!(r#"{{"name":"{member}{n}"}}"#))
                    .collect();
                let outcome = stage.outcome(call);
                assert_eq!(outcome, format!("listed {list:?} [{}]", all.join(",")));
                // The change makes a legacy client read the list again.
                stage.publish(Change::List(list));
                stage.settle();
                outcome
            })
        })
    });
}

#[test]
fn those_who_want_the_same_list_share_one_reading_of_it() {
    the_same_everywhere(|mut stage| {
        let calls = [(); 3].map(|()| stage.list(List::Tools));
        assert_eq!(serve(&mut stage, List::Tools, 3), 2);
        calls.map(|call| stage.outcome(call))
    });
}

/// A legacy list is cached until a change is announced, a modern one for the lifetime that its server sets.
#[test]
fn what_is_held_is_given_out_while_it_is_fresh() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.watch = Watch::lists();
        setup.server.cache = Cache::new(Duration::from_secs(60), false);
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let read = |stage: &mut Stage| {
                stage.settle();
                let call = stage.list(List::Tools);
                let pages = serve(stage, List::Tools, 1);
                assert_eq!(stage.outcome(call), r#"listed Tools [{"name":"tools0"}]"#);
                pages
            };
            assert_eq!(read(&mut stage), 1);
            assert_eq!(read(&mut stage), 0);
            stage.pass(Duration::from_secs(61));
            let is_modern = version.era() == Era::Modern;
            assert_eq!(read(&mut stage), u32::from(is_modern));
            stage.publish(Change::List(List::Tools));
            assert_eq!(read(&mut stage), 1);
            stage.publish(Change::List(List::Prompts));
            assert_eq!(read(&mut stage), 0);
        });
    }
}

#[test]
fn a_list_that_changes_while_it_is_read_is_read_again_by_who_comes_later() {
    the_same_everywhere(|mut stage| {
        stage.watch(Watch::lists());
        let early = stage.list(List::Resources);
        let request = stage.request();
        stage.publish(Change::List(List::Resources));
        stage.settle();
        let late = stage.list(List::Resources);
        stage.respond(request.request, json!({"resources": [{"uri": "old:"}]}));
        let early = stage.outcome(early);
        let request = stage.request();
        stage.respond(request.request, json!({"resources": [{"uri": "new:"}]}));
        assert_eq!(early, r#"listed Resources [{"uri":"old:"}]"#);
        let late = stage.outcome(late);
        assert_eq!(late, r#"listed Resources [{"uri":"new:"}]"#);
    });
}

#[test]
fn a_cursor_that_is_not_known_any_more_begins_the_list_anew_once() {
    the_same_everywhere(|mut stage| {
        let call = stage.list(List::Tools);
        let page = json!({"tools": [{"name": "a"}], "nextCursor": "\n{\"x\":1}"});
        for _ in 0..2 {
            let request = stage.request();
            stage.respond(request.request, page.clone());
            let request = stage.request();
            let params: Value = request.params.expect("a cursor").parse().expect("JSON");
            assert_eq!(params, json!({"cursor": "\n{\"x\":1}"}));
            stage.fail(request.request, ErrorObject::new(-32602, "what cursor?"));
        }
        let outcome = stage.outcome(call);
        assert_eq!(outcome, r#"error -32602 "what cursor?" None"#);
    });
}

#[test]
fn a_list_that_nobody_wants_any_more_is_cancelled() {
    let said = the_same_everywhere(|mut stage| {
        let call = stage.list(List::Prompts);
        assert_eq!(stage.request().method, "prompts/list");
        let (client, now) = stage.pair.client();
        client.cancel(now, call, None).expect("it is under way");
        stage.server_said()
    });
    assert_eq!(
        said,
        ["Cancelled { request: request 1, why: ByPeer { reason: None, meta: None } }"]
    );
}

#[test]
fn a_list_that_is_not_offered_is_not_asked_for() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        if let Some(offer) = &mut setup.server.offer {
            offer.capabilities = everlink::protocol::ServerCapabilities::default();
        }
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            for list in List::ALL {
                let call = stage.list(list);
                let outcome = stage.outcome(call);
                assert!(outcome.starts_with("failed NotOffered"), "{outcome}");
            }
            assert!(stage.try_request().is_none());
        });
    }
}

/// A direct call of the list method works, too, and its result is not cached.
#[test]
fn a_page_can_be_asked_for_by_its_method() {
    in_every_version(|mut stage| {
        for _ in 0..2 {
            let (client, now) = stage.pair.client();
            let call = client.call(now, "tools/list", None, CallOptions::new());
            let call = call.expect("the call is accepted");
            let request = stage.request();
            let page = json!({"tools": [], "nextCursor": "2"});
            stage.respond(request.request, page.clone());
            assert_eq!(
                stage.outcome(call),
                format!("reply {}", json!({"nextCursor": "2", "tools": []}))
            );
        }
    });
}
