//! Tests the content of responses, in whatever pieces they arrive.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};

use everlink::protocol::Era;
use everlink::{Config, Dialect};
use everlink_http::Connector;
use serde_json::{Value, json};

use crate::host::Host;
use crate::quiet::{PATIENCE, Quiet};
use crate::site::{Request, Site, Then};
use crate::words::{self, END, EVENTS, event, link, on_calls, say, whatever_comes};

#[test]
fn a_reply_is_json() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    assert_eq!(say(&link(&site.url()), "hello"), "hello");
}

#[test]
fn events_are_heard_while_their_stream_is_open() {
    let _quiet = Quiet::please();
    let (heard, goes_on) = mpsc::channel();
    let goes_on = Mutex::new(goes_on);
    let site = words::server(move |request, out| {
        let first = EVENTS.to_owned() + &event(&request.progress(1));
        out.write_all(first.as_bytes())?;
        // The rest is sent only after the client has received the first event.
        goes_on.lock().expect("whole").recv().expect("a listener");
        let rest = event(&request.with(&request.echo())) + END;
        out.write_all(rest.as_bytes())?;
        Ok(Then::Another)
    });
    let link = link(&site.url());
    let call = link.call_tool("echo", json!({"say": "hello"}));
    let call = call.on_progress(move |_| heard.send(()).expect("a server"));
    assert_eq!(call.wait().expect("a reply").text(), "hello");
}

#[test]
fn what_arrives_byte_by_byte_is_the_same() {
    let _quiet = Quiet::please();
    let asked = AtomicUsize::new(0);
    let site = words::server(move |request, out| {
        let mut whole = Vec::new();
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            words::reply(request, &mut whole)?;
        } else {
            let body = event(&request.progress(1)) + &event(&request.with(&request.echo()));
            whole.extend_from_slice((EVENTS.to_owned() + &body + END).as_bytes());
        }
        whole.chunks(1).try_for_each(|byte| out.write_all(byte))?;
        Ok(Then::Another)
    });
    let link = link(&site.url());
    assert_eq!(say(&link, "as JSON"), "as JSON");
    assert_eq!(say(&link, "as events"), "as events");
}

#[test]
fn large_bodies_pass_both_ways() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    let large = "x".repeat(5 << 20);
    assert!(say(&link(&site.url()), &large) == large);
}

#[test]
fn what_was_sent_and_is_not_answered_yet_leaves_room_for_more() {
    let _quiet = Quiet::please();
    let (reach, reached) = mpsc::channel();
    let (leave, _gone) = mpsc::channel();
    let site = words::server(move |_, _| {
        let _ = reach.send(());
        Ok(Then::Wait(leave.clone()))
    });
    let mut config = words::config(&site.url());
    config.limits.queued_bytes = 64 << 10;
    let link = Connector::new(config).without_proxy().connect();
    let link = link.expect("a thread");
    // Two of them exceed the limit for bytes in flight.
    let large = "x".repeat(40 << 10);
    let calls = [(); 5].map(|()| {
        let call = link.call_tool("echo", json!({"say": large}));
        reached.recv_timeout(PATIENCE).expect("a call");
        call
    });
    drop(calls);
}

#[test]
fn a_body_without_a_length_ends_with_its_connection() {
    let _quiet = Quiet::please();
    let site = words::server(|request, out| {
        let body = request.with(&request.echo());
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
        out.write_all(format!("{head}{body}").as_bytes())?;
        Ok(Then::Close)
    });
    assert_eq!(say(&link(&site.url()), "hello"), "hello");
}

#[test]
fn a_redirect_is_told_and_what_follows_is_not_decided_here() {
    let _quiet = Quiet::please();
    let good = on_calls(words::reply);
    let site = Site::new(whatever_comes(move |request, out| {
        if request.target == "/moved" {
            return good(request, out);
        }
        words::json(out, 307, "Location: /moved\r\n", &Value::Null)
    }));
    assert_eq!(say(&link(&site.url()), "hello"), "hello");
}

#[test]
fn a_field_that_is_no_text_is_passed_over() {
    let _quiet = Quiet::please();
    let site = words::server(|request, out| {
        let body = request.with(&request.echo()).to_string();
        out.write_all(b"HTTP/1.1 200 OK\r\nX-Odd: \xff\xfe\r\n")?;
        let rest = "Content-Type: application/json\r\nContent-Length";
        write!(out, "{rest}: {}\r\n\r\n{body}", body.len())?;
        Ok(Then::Another)
    });
    assert_eq!(say(&link(&site.url()), "hello"), "hello");
}

#[test]
fn fifty_exchanges_are_under_way_at_once() {
    let _quiet = Quiet::please();
    let all = Barrier::new(50);
    let site = words::server(
        move |request: &Request, out: &mut dyn Write| -> io::Result<Then> {
            // No request is answered before all have arrived.
            all.wait();
            words::reply(request, out)
        },
    );
    let link = link(&site.url());
    let ask = |n: u32| link.call_tool("echo", json!({"say": n.to_string()}));
    let calls: Vec<_> = (0..50).map(ask).collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.wait().expect("a reply").text(), n.to_string());
    }
}

#[test]
fn a_server_of_the_same_core_is_understood_in_both_eras() {
    for (dialect, era) in [
        (Dialect::Modern, Era::Modern),
        (Dialect::Legacy, Era::Legacy),
    ] {
        let _quiet = Quiet::please();
        let host = Host::new();
        let mut config = Config::http("test", "1", &host.url()).expect("an address");
        config.dialect = dialect;
        let link = Connector::new(config)
            .without_proxy()
            .connect()
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
