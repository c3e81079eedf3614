//! Tests all messages of an epoch without faults, in both eras.

use std::sync::{Arc, Mutex};

use everlink::client::{Event, Failure};
use everlink::protocol::{ClientCapabilities, Era};
use everlink::{Change, Dialect, List, Watch};
use everlink_tokio::{CallError, http};
use serde_json::json;

use crate::stage::{ERAS, Shop, alone, config, echo, link, payload};

#[test]
fn a_list_and_a_call() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let session = link.ready().await.expect("an owner").expect("a session");
            let is_modern = session.version.era() == Era::Modern;
            assert_eq!(is_modern, dialect == Dialect::Modern);
            assert_eq!(link.list_tools().await.expect("a list").items.len(), 7);
            assert_eq!(echo(&link, "hello").await, "hello");
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn messages_of_many_pieces_arrive_whole() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let text = "all work and no play ".repeat(150_000);
            assert_eq!(echo(&link, &text).await, text);
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn a_hundred_calls_at_once() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let begin = |number| link.call_tool("echo", json!({"text": format!("{number}")}));
            let calls: Vec<_> = (0..100).map(begin).collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.expect("an echo").text(), number.to_string());
            }
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn progress_is_told_while_a_call_runs() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let heard = Arc::new(Mutex::new(Vec::new()));
            let hears = Arc::clone(&heard);
            let call = link.call_tool("count", json!({}));
            let call = call.on_progress(move |report| hears.lock().unwrap().push(report.progress));
            assert_eq!(call.await.expect("an answer").text(), "three");
            // The machine may skip outdated reports, but not the last one.
            assert_eq!(heard.lock().unwrap().last(), Some(&3.0));
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn a_question_is_put_and_answered() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let mut config = config(shop.address, dialect);
            config.capabilities = ClientCapabilities::default().with_elicitation_form();
            let link = http::connect(config).expect("a runtime");
            let mut events = link.events();
            let call = link.call_tool("ask", json!({}));
            let ask = loop {
                let event = events.recv().await.expect("the link lives");
                if let Event::Ask(ask) = &*event {
                    break ask.ask;
                }
            };
            let answer = payload(&json!({"action": "accept", "content": {"name": "Ada"}}));
            let answered = link.answer(ask, Ok(answer)).await.expect("an owner");
            answered.expect("it is open");
            assert!(call.await.expect("an answer").text().contains("Ada"));
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn a_call_that_is_cancelled_is_given_up_by_its_server() {
    alone(async || {
        for dialect in ERAS {
            let mut shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let call = link.call_tool("hold", json!({}));
            assert_eq!(shop.tools.tell().await, "hold");
            call.canceller().cancel("no longer wanted");
            let failure = failed(call.await.expect_err("it was cancelled"));
            assert!(failure.to_string().contains("cancel"), "{failure}");
            assert_eq!(shop.tools.tell().await, "unwanted");
            assert_eq!(echo(&link, "still there").await, "still there");
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn changes_are_heard() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let mut config = config(shop.address, dialect);
            config.watch = Watch::lists().and_uri("shop://window");
            let link = http::connect(config).expect("a runtime");
            let mut events = link.events();
            drop(link.ready());
            let mut heard = Vec::new();
            while heard.len() < 2 {
                let event = events.recv().await.expect("the link lives");
                match &*event {
                    Event::Watching { .. } => {
                        let uri = "shop://window".into();
                        for change in [Change::List(List::Tools), Change::Resource { uri }] {
                            let told = shop.service.publish(change).await.expect("an owner");
                            told.expect("it is offered");
                        }
                    }
                    Event::Changed(change) => heard.push(change.clone()),
                    _ => {}
                }
            }
            heard.sort();
            let uri = "shop://window".into();
            assert_eq!(heard, [Change::List(List::Tools), Change::Resource { uri }]);
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn a_tool_that_panics_is_an_error_and_no_end() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let error = link
                .call_tool("fall", json!({}))
                .await
                .expect_err("it fell");
            assert!(matches!(error, CallError::Error(_)), "{error}");
            assert_eq!(echo(&link, "still there").await, "still there");
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn a_link_is_shut_down_with_its_last_handle() {
    alone(async || {
        for dialect in ERAS {
            let mut shop = Shop::open().await;
            let link = link(shop.address, dialect);
            let (other, mut events) = (link.clone(), link.events());
            let call = link.call_tool("hold", json!({}));
            assert_eq!(shop.tools.tell().await, "hold");
            drop(link);
            assert_eq!(echo(&other, "one is left").await, "one is left");
            drop(other);
            failed(call.await.expect_err("the link is closed"));
            while events.recv().await.is_some() {}
            shop.close().await;
        }
    });
}

fn failed(error: CallError) -> Box<Failure> {
    match error {
        CallError::Failed(failure) => failure,
        error => panic!("{error}"),
    }
}
