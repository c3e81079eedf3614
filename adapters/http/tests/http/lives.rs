//! Tests links through several epochs: servers that go away and come back, connections that are kept and lost.

use std::sync::mpsc;

use everlink::client::{CallOptions, Delivery};
use everlink_http::CallError;
use serde_json::json;

use crate::quiet::{PATIENCE, Quiet, threads, until};
use crate::site::{Site, Then};
use crate::words::{self, connector, link, on_calls, say, whatever_comes};

#[test]
fn a_server_is_restarted_under_calls() {
    let _quiet = Quiet::please();
    let (reach, reached) = mpsc::channel();
    let (leave, _gone) = mpsc::channel();
    let site = words::server(move |_, _| {
        let _ = reach.send(());
        Ok(Then::Wait(leave.clone()))
    });
    let address = site.address();
    let link = link(&site.url());
    let unsafe_ones: Vec<_> = (0..10)
        .map(|n: u32| link.call_tool("echo", json!({"say": n.to_string()})))
        .collect();
    let harmless = link.with(CallOptions::new().idempotent());
    let harmless = harmless.call_tool("echo", json!({"say": "harmless"}));
    for _ in 0..11 {
        reached.recv_timeout(PATIENCE).expect("a call");
    }

    drop(site);
    for call in unsafe_ones {
        match call.wait().expect_err("the server is dead") {
            CallError::Failed(failure) => assert_eq!(failure.delivery, Delivery::Unknown),
            other => panic!("{other}"),
        }
    }
    let _site = Site::at(address, whatever_comes(on_calls(words::reply)));
    assert_eq!(harmless.wait().expect("a reply").text(), "harmless");
    assert_eq!(say(&link, "next"), "next");
}

#[test]
fn a_connection_serves_one_call_after_the_other() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    let link = link(&site.url());
    for n in 0..20 {
        assert_eq!(say(&link, &n.to_string()), n.to_string());
    }
    // One connection would do if the system never delayed this process.
    assert!(site.accepted() < 20);
}

#[test]
fn a_connection_that_was_closed_meanwhile_is_not_used_again() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    // The system may report the end late; the call is repeated then.
    let link = link(&site.url()).with(CallOptions::new().idempotent());
    for lives in 1..5 {
        assert_eq!(say(&link, "hello"), "hello");
        assert!(site.accepted() >= lives);
        site.hang_up();
    }
}

#[test]
fn a_new_life_begins_with_a_new_connection() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    let link = link(&site.url());
    assert_eq!(say(&link, "hello"), "hello");
    let before = site.accepted();
    link.reconnect("the network is another one");
    assert_eq!(say(&link, "hello"), "hello");
    assert!(site.accepted() > before);
}

#[test]
fn nothing_runs_for_an_idle_link_but_its_driver() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    let link = connector(&site.url()).connect().expect("a thread");
    assert_eq!(say(&link, "hello"), "hello");
    until("the thread of the exchange is over", || threads() <= 1);
    link.shutdown().wait().expect("an end");
    assert!(matches!(
        link.call_tool("echo", json!({})).wait(),
        Err(CallError::Misuse(_))
    ));
}
