//! Tests all messages of an epoch without faults, in both eras.

use std::sync::{Arc, Mutex};

use everlink::client::{Event, Failure};
use everlink::protocol::{ClientCapabilities, Era};
use everlink::{Change, Dialect, List, Watch};
use everlink_tokio::{CallError, http};
use serde_json::json;

use crate::support::{ERAS, TestServer, config, echo, link, payload, run_isolated};

#[test]
fn list_and_call_succeed_in_both_eras() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let link = link(server.address, dialect);
            let session = link.ready().await.expect("a session");
            let is_modern = session.version.era() == Era::Modern;
            assert_eq!(is_modern, dialect == Dialect::Modern);
            assert_eq!(link.list_tools().await.expect("a list").items.len(), 7);
            assert_eq!(echo(&link, "hello").await, "hello");
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn large_messages_arrive_whole() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let link = link(server.address, dialect);
            let text = "all work and no play ".repeat(150_000);
            assert_eq!(echo(&link, &text).await, text);
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn hundred_concurrent_calls_get_their_own_replies() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let link = link(server.address, dialect);
            let begin = |number| {
                link.call_tool("echo", json!({"text": format!("{number}")}))
                    .start()
            };
            let calls: Vec<_> = (0..100).map(begin).collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.expect("an echo").text(), number.to_string());
            }
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn progress_is_reported_while_a_call_runs() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let link = link(server.address, dialect);
            let received = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&received);
            let call = link.call_tool("count", json!({}));
            let call = call.on_progress(move |report| sink.lock().unwrap().push(report.progress));
            assert_eq!(call.await.expect("an answer").text(), "three");
            // The machine may skip outdated reports, but not the last one.
            assert_eq!(received.lock().unwrap().last(), Some(&3.0));
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn ask_of_a_tool_is_answered_by_the_client() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let mut config = config(server.address, dialect);
            config.capabilities = ClientCapabilities::default().with_elicitation_form();
            let link = http::connect(config).expect("a runtime");
            let mut events = link.events();
            let call = link.call_tool("ask", json!({})).start();
            let ask = loop {
                let event = events.recv().await.expect("the link lives");
                if let Event::Ask(ask) = &*event {
                    break ask.ask;
                }
            };
            let answer = payload(&json!({"action": "accept", "content": {"name": "Ada"}}));
            let answered = link.answer(ask, Ok(answer)).await;
            answered.expect("it is open");
            assert!(call.await.expect("an answer").text().contains("Ada"));
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn cancelled_call_is_cancelled_at_the_server() {
    run_isolated(async || {
        for dialect in ERAS {
            let mut server = TestServer::start().await;
            let link = link(server.address, dialect);
            let call = link.call_tool("hold", json!({})).start();
            assert_eq!(server.tools.next_report().await, "hold");
            call.canceller().cancel("no longer wanted");
            let failure = failed(call.await.expect_err("it was cancelled"));
            assert!(failure.to_string().contains("cancel"), "{failure}");
            assert_eq!(server.tools.next_report().await, "unwanted");
            assert_eq!(echo(&link, "still there").await, "still there");
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn published_changes_are_delivered() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let mut config = config(server.address, dialect);
            config.watch = Watch::lists().and_uri("shop://window");
            let link = http::connect(config).expect("a runtime");
            let mut events = link.events();
            drop(link.ready());
            let mut received = Vec::new();
            while received.len() < 2 {
                let event = events.recv().await.expect("the link lives");
                match &*event {
                    Event::Watching { .. } => {
                        let uri = "shop://window".into();
                        for change in [Change::List(List::Tools), Change::Resource { uri }] {
                            let published = server.service.publish(change).await;
                            published.expect("it is offered");
                        }
                    }
                    Event::Changed(change) => received.push(change.clone()),
                    _ => {}
                }
            }
            received.sort();
            let uri = "shop://window".into();
            assert_eq!(
                received,
                [Change::List(List::Tools), Change::Resource { uri }]
            );
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn panicking_tool_gives_an_error_reply_and_the_link_goes_on() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let link = link(server.address, dialect);
            let error = link
                .call_tool("fall", json!({}))
                .await
                .expect_err("it fell");
            assert!(matches!(error, CallError::Error(_)), "{error}");
            assert_eq!(echo(&link, "still there").await, "still there");
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn dropping_the_last_handle_shuts_the_link_down() {
    run_isolated(async || {
        for dialect in ERAS {
            let mut server = TestServer::start().await;
            let link = link(server.address, dialect);
            let (other, mut events) = (link.clone(), link.events());
            let call = link.call_tool("hold", json!({})).start();
            assert_eq!(server.tools.next_report().await, "hold");
            drop(link);
            assert_eq!(echo(&other, "one is left").await, "one is left");
            drop(other);
            failed(call.await.expect_err("the link is closed"));
            while events.recv().await.is_some() {}
            server.stop().await;
        }
    });
}

fn failed(error: CallError) -> Box<Failure> {
    match error {
        CallError::Failed(failure) => failure,
        error => panic!("{error}"),
    }
}
