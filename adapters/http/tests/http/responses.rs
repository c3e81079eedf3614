//! Tests the content of responses, in whatever pieces they arrive.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};

use everlink::protocol::Era;
use everlink::{Config, Dialect};
use everlink_http::Connector;
use serde_json::{Value, json};

use crate::core_server::CoreServer;
use crate::listener::{Listener, Next, Request};
use crate::scripted_server::{
    self, END, EVENTS, echo, event, link, script_for_calls, serve_script,
};
use crate::serial::{Serial, TIMEOUT};

#[test]
fn json_response_is_the_reply_of_the_call() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    assert_eq!(echo(&link(&listener.url()), "hello"), "hello");
}

#[test]
fn events_are_delivered_while_their_stream_is_open() {
    let _serial = Serial::begin();
    let (progress_sender, progress_received) = mpsc::channel();
    let progress_received = Mutex::new(progress_received);
    let listener = scripted_server::server(move |request, out| {
        let first = EVENTS.to_owned() + &event(&request.progress(1));
        out.write_all(first.as_bytes())?;
        // The rest is sent only after the client has received the first event.
        progress_received
            .lock()
            .expect("whole")
            .recv()
            .expect("a listener");
        let rest = event(&request.with(&request.echo())) + END;
        out.write_all(rest.as_bytes())?;
        Ok(Next::Another)
    });
    let link = link(&listener.url());
    let call = link.call_tool("echo", json!({"say": "hello"}));
    let call = call.on_progress(move |_| progress_sender.send(()).expect("a server"));
    assert_eq!(call.wait().expect("a reply").text(), "hello");
}

#[test]
fn response_sent_byte_by_byte_is_read_whole() {
    let _serial = Serial::begin();
    let requests = AtomicUsize::new(0);
    let listener = scripted_server::server(move |request, out| {
        let mut whole = Vec::new();
        if requests.fetch_add(1, Ordering::SeqCst) == 0 {
            scripted_server::reply(request, &mut whole)?;
        } else {
            let body = event(&request.progress(1)) + &event(&request.with(&request.echo()));
            whole.extend_from_slice((EVENTS.to_owned() + &body + END).as_bytes());
        }
        whole.chunks(1).try_for_each(|byte| out.write_all(byte))?;
        Ok(Next::Another)
    });
    let link = link(&listener.url());
    assert_eq!(echo(&link, "as JSON"), "as JSON");
    assert_eq!(echo(&link, "as events"), "as events");
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    let large = "x".repeat(5 << 20);
    assert!(echo(&link(&listener.url()), &large) == large);
}

#[test]
fn sent_but_unanswered_calls_do_not_block_later_calls() {
    let _serial = Serial::begin();
    let (reached_sender, reached) = mpsc::channel();
    let (closed_sender, _closed) = mpsc::channel();
    let listener = scripted_server::server(move |_, _| {
        let _ = reached_sender.send(());
        Ok(Next::Wait(closed_sender.clone()))
    });
    let mut config = scripted_server::config(&listener.url());
    config.limits.queued_bytes = 64 << 10;
    let link = Connector::new().without_proxy().connect(config);
    let link = link.expect("a thread");
    // Two of them exceed the limit for bytes in flight.
    let large = "x".repeat(40 << 10);
    let calls = [(); 5].map(|()| {
        let call = link.call_tool("echo", json!({"say": large})).start();
        reached.recv_timeout(TIMEOUT).expect("a call");
        call
    });
    drop(calls);
}

#[test]
fn body_without_a_length_ends_with_its_connection() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(|request, out| {
        let body = request.with(&request.echo());
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
        out.write_all(format!("{head}{body}").as_bytes())?;
        Ok(Next::Close)
    });
    assert_eq!(echo(&link(&listener.url()), "hello"), "hello");
}

#[test]
fn redirect_response_is_left_to_the_core_which_follows_it() {
    let _serial = Serial::begin();
    let reply_to_calls = script_for_calls(scripted_server::reply);
    let listener = Listener::new(serve_script(move |request, out| {
        if request.target == "/moved" {
            return reply_to_calls(request, out);
        }
        scripted_server::json(out, 307, "Location: /moved\r\n", &Value::Null)
    }));
    assert_eq!(echo(&link(&listener.url()), "hello"), "hello");
}

#[test]
fn header_field_that_is_not_text_is_ignored() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(|request, out| {
        let body = request.with(&request.echo()).to_string();
        out.write_all(b"HTTP/1.1 200 OK\r\nX-Odd: \xff\xfe\r\n")?;
        let rest = "Content-Type: application/json\r\nContent-Length";
        write!(out, "{rest}: {}\r\n\r\n{body}", body.len())?;
        Ok(Next::Another)
    });
    assert_eq!(echo(&link(&listener.url()), "hello"), "hello");
}

#[test]
fn fifty_exchanges_run_concurrently() {
    let _serial = Serial::begin();
    let all = Barrier::new(50);
    let listener = scripted_server::server(
        move |request: &Request, out: &mut dyn Write| -> io::Result<Next> {
            // No request is answered before all have arrived.
            all.wait();
            scripted_server::reply(request, out)
        },
    );
    let link = link(&listener.url());
    let ask = |n: u32| {
        link.call_tool("echo", json!({"say": n.to_string()}))
            .start()
    };
    let calls: Vec<_> = (0..50).map(ask).collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.wait().expect("a reply").text(), n.to_string());
    }
}

#[test]
fn link_works_with_a_core_server_in_both_eras() {
    for (dialect, era) in [
        (Dialect::Modern, Era::Modern),
        (Dialect::Legacy, Era::Legacy),
    ] {
        let _serial = Serial::begin();
        let core_server = CoreServer::new();
        let mut config = Config::http("test", "1", &core_server.url()).expect("an address");
        config.dialect = dialect;
        let link = Connector::new()
            .without_proxy()
            .connect(config)
            .expect("a thread");
        let tools = link.list_tools().wait().expect("a list");
        assert_eq!(tools.items.len(), 1);
        let (report, reports) = mpsc::channel();
        let call = link.call_tool("echo", json!({"say": "hello"}));
        let call = call.on_progress(move |how| report.send(how.progress).expect("a test"));
        assert_eq!(call.wait().expect("a reply").text(), "hello");
        // Of two reports at once, the server may send only the newer one.
        assert_eq!(reports.iter().last(), Some(2.0));
        assert_eq!(link.session().expect("a session").version.era(), era);
        link.shutdown().wait().expect("an end");
    }
}
