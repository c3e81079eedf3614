//! Tests links through several epochs: servers that go away and come back, connections that are kept and lost.

use std::sync::mpsc;

use everlink::client::Delivery;
use everlink_http::CallError;
use serde_json::json;

use crate::listener::{Listener, Next};
use crate::scripted_server::{self, config, connector, echo, link, script_for_calls, serve_script};
use crate::serial::{Serial, TIMEOUT, threads, wait_until};

#[test]
fn restart_of_the_server_fails_calls_and_repeats_idempotent_ones() {
    let _serial = Serial::begin();
    let (reached_sender, reached) = mpsc::channel();
    let (closed_sender, _closed) = mpsc::channel();
    let listener = scripted_server::server(move |_, _| {
        let _ = reached_sender.send(());
        Ok(Next::Wait(closed_sender.clone()))
    });
    let address = listener.address();
    let link = link(&listener.url());
    let not_idempotent: Vec<_> = (0..10)
        .map(|n: u32| {
            link.call_tool("echo", json!({"say": n.to_string()}))
                .start()
        })
        .collect();
    let idempotent = link.call_tool("echo", json!({"say": "harmless"}));
    let idempotent = idempotent.idempotent().start();
    for _ in 0..11 {
        reached.recv_timeout(TIMEOUT).expect("a call");
    }

    drop(listener);
    for call in not_idempotent {
        match call.wait().expect_err("the server is dead") {
            CallError::Failed(failure) => assert_eq!(failure.delivery, Delivery::Unknown),
            other => panic!("{other}"),
        }
    }
    let _site = Listener::at(
        address,
        serve_script(script_for_calls(scripted_server::reply)),
    );
    assert_eq!(idempotent.wait().expect("a reply").text(), "harmless");
    assert_eq!(echo(&link, "next"), "next");
}

#[test]
fn connection_is_reused_for_later_calls() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    let link = link(&listener.url());
    for n in 0..20 {
        assert_eq!(echo(&link, &n.to_string()), n.to_string());
    }
    // One connection would do if the system never delayed this process.
    assert!(listener.accepted() < 20);
}

#[test]
fn connection_closed_by_the_server_is_not_reused() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    // The system may report the end late; the call is repeated then.
    let link = link(&listener.url());
    for connections in 1..5 {
        let call = link.call_tool("echo", json!({"say": "hello"}));
        let result = call.idempotent().wait().expect("a reply");
        assert_eq!(result.text(), "hello");
        assert!(listener.accepted() >= connections);
        listener.hang_up();
    }
}

#[test]
fn reconnect_opens_a_new_connection() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    let link = link(&listener.url());
    assert_eq!(echo(&link, "hello"), "hello");
    let before = listener.accepted();
    link.reconnect("the network is another one");
    assert_eq!(echo(&link, "hello"), "hello");
    assert!(listener.accepted() > before);
}

#[test]
fn idle_link_has_only_its_driver_thread() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    let link = connector()
        .connect(config(&listener.url()))
        .expect("a thread");
    assert_eq!(echo(&link, "hello"), "hello");
    wait_until("the thread of the exchange is over", || threads() <= 1);
    link.shutdown().wait().expect("an end");
    assert!(matches!(
        link.call_tool("echo", json!({})).wait(),
        Err(CallError::Misuse(_))
    ));
}
