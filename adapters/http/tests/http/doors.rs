//! Tests credentials, header fields and proxies.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::{env, thread};

use everlink::Config;
use everlink::client::Event;
use everlink_http::{Connector, SetupError};
use serde_json::{Value, json};

use crate::quiet::{PATIENCE, Quiet};
use crate::site::{Request, Site, Then};
use crate::words::{self, config, connector, on_calls, say, whatever_comes};

#[test]
fn credentials_that_are_refused_are_asked_for_and_then_the_link_goes_on() {
    let _quiet = Quiet::please();
    let good = on_calls(words::reply);
    let site = Site::new(whatever_comes(move |request, out| {
        if request.field("authorization") == Some("Bearer good") {
            return good(request, out);
        }
        let demand = "WWW-Authenticate: Bearer realm=\"here\"\r\n";
        words::json(out, 401, demand, &Value::Null)
    }));
    let token = Arc::new(Mutex::new("bad"));
    let current = Arc::clone(&token);
    let credentials = move || Some(format!("Bearer {}", current.lock().expect("whole")));
    let connector = connector(&site.url()).with_credentials(credentials);
    let link = connector.connect().expect("a thread");
    let mut events = link.events();
    let call = link.call_tool("echo", json!({"say": "hello"}));
    let challenge = events.find_map(|event| match &*event {
        Event::AuthRequired(challenge) => Some((challenge.status, challenge.demands.clone())),
        _ => None,
    });
    let demands = vec!["Bearer realm=\"here\"".into()];
    assert_eq!(challenge, Some((401, demands)));
    *token.lock().expect("whole") = "good";
    link.authorized();
    assert_eq!(call.wait().expect("a reply").text(), "hello");
}

#[test]
fn credentials_are_asked_for_with_each_request_and_fields_are_in_all() {
    let _quiet = Quiet::please();
    let (show, shown) = mpsc::channel();
    let good = on_calls(words::reply);
    let site = Site::new(whatever_comes(
        move |request: &Request, out: &mut dyn Write| {
            let field = |name| request.field(name).unwrap_or_default().to_owned();
            let _ = show.send((field("authorization"), field("x-tenant")));
            good(request, out)
        },
    ));
    let asked = AtomicUsize::new(0);
    let credentials = move || Some(format!("Bearer {}", asked.fetch_add(1, Ordering::SeqCst)));
    let connector = connector(&site.url()).with_credentials(credentials);
    let connector = connector.with_field("X-Tenant", "blue").expect("a field");
    let link = connector.connect().expect("a thread");
    say(&link, "one");
    say(&link, "two");
    for n in 0..3 {
        let seen = shown.recv_timeout(PATIENCE).expect("a request");
        assert_eq!(seen, (format!("Bearer {n}"), "blue".into()));
    }
}

#[test]
fn credentials_that_cannot_be_sent_fail_the_call_that_wants_them() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    let bad: [fn() -> Option<String>; 2] = [
        || Some("Bearer hunter2\r\nX-Evil: 1".into()),
        || panic!("the keyring is locked"),
    ];
    for credentials in bad {
        let mut config: Config = config(&site.url());
        config.policy = everlink::Policy::one_shot();
        let connector = Connector::new(config).without_proxy();
        let link = connector.with_credentials(credentials).connect();
        let link = link.expect("a thread");
        let call = link.call_tool("echo", json!({"say": "hello"}));
        let words = call.wait().expect_err("no reply").to_string();
        assert!(!words.contains("hunter2"), "{words}");
    }
    assert_eq!(site.accepted(), 0);
}

#[test]
fn what_cannot_be_is_said_before_anything_is_started() {
    let connector = || connector("http://localhost/mcp");
    let field = |name, value| connector().with_field(name, value).map(drop);
    assert_eq!(field("x-tenant", "blue"), Ok(()));
    assert_eq!(field("x tenant", "blue"), Err(SetupError::FieldName));
    assert_eq!(field("x-tenant", "blue\r\n"), Err(SetupError::FieldValue));
    for name in ["Mcp-Session-Id", "Content-Length", "host"] {
        assert_eq!(field(name, "1"), Err(SetupError::FieldReserved));
    }
    let proxy = |url| connector().with_proxy(url).map(drop);
    assert_eq!(proxy("socks5://user:word@localhost:1080"), Ok(()));
    assert_eq!(proxy("gopher://localhost"), Err(SetupError::Proxy));

    let child = everlink_http::connect(Config::child("test", "1"));
    let error = child.expect_err("that is not HTTP");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let inside = error.into_inner().expect("a reason");
    assert_eq!(inside.downcast_ref(), Some(&SetupError::NotHttp));
}

#[test]
fn secrets_are_not_shown() {
    let connector = connector("http://localhost/mcp").with_field("x-key", "hunter2");
    let connector = connector
        .expect("a field")
        .with_proxy("http://me:hunter2@localhost");
    let connector = connector
        .expect("a proxy")
        .with_credentials(|| Some("hunter2".into()));
    assert!(!format!("{connector:?}").contains("hunter2"));
}

/// A proxy that accepts every `CONNECT`.
fn proxy() -> Site {
    Site::new(|socket| {
        let _ = tunnel(socket);
    })
}

fn tunnel(mut client: TcpStream) -> io::Result<()> {
    let request = Request::read(&mut BufReader::new(client.try_clone()?))?;
    let request = request.filter(|request| request.verb == "CONNECT");
    let Some(request) = request else {
        return Ok(());
    };
    // Every name leads to the local server.
    let port = request.target.rsplit_once(':').map(|(_, port)| port);
    let mut server = TcpStream::connect(format!("127.0.0.1:{}", port.unwrap_or_default()))?;
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    let (mut back, mut to) = (server.try_clone()?, client.try_clone()?);
    let other_way = thread::spawn(move || {
        let _ = io::copy(&mut back, &mut to);
        to.shutdown(Shutdown::Both)
    });
    let _ = io::copy(&mut client, &mut server);
    let _ = server.shutdown(Shutdown::Both);
    let _ = other_way.join();
    Ok(())
}

#[test]
fn a_proxy_is_passed_through_and_what_is_given_up_behind_it_is_cut() {
    let _quiet = Quiet::please();
    let (reach, reached) = mpsc::channel();
    let (leave, gone) = mpsc::channel();
    let site = words::server(move |request, out| {
        if request.echo() != words::text("wait") {
            return words::reply(request, out);
        }
        let _ = reach.send(());
        Ok(Then::Wait(leave.clone()))
    });
    let proxy = proxy();
    let connector = connector(&site.url()).with_proxy(&format!("http://{}", proxy.address()));
    let link = connector.expect("an address").connect().expect("a thread");
    assert_eq!(say(&link, "hello"), "hello");
    assert_eq!(proxy.accepted(), site.accepted());
    let call = link.call_tool("echo", json!({"say": "wait"}));
    reached.recv_timeout(PATIENCE).expect("a call");
    drop(call);
    assert!(gone.recv_timeout(PATIENCE).expect("an end"));
}

/// The environment variable with the URL of the server for `in_this_environment`.
const SERVER: &str = "EVERLINK_TEST_SERVER";

#[test]
#[ignore = "a part of the test below, which starts it with an environment of its own"]
fn in_this_environment() {
    if let Ok(url) = env::var(SERVER) {
        let link = everlink_http::connect(config(&url)).expect("a thread");
        assert_eq!(say(&link, "hello"), "hello");
    }
}

#[test]
fn proxies_are_those_of_the_environment() {
    let _quiet = Quiet::please();
    let site = words::server(words::reply);
    let proxy = proxy();
    let there = format!("http://{}", proxy.address());
    let nowhere = "http://127.0.0.1:1";
    let goes_through_it = |host: &str, variables: &[(&str, &str)]| {
        let before = proxy.accepted();
        let mut child = Command::new(env::current_exe().expect("this program"));
        child.args(["doors::in_this_environment", "--exact", "--ignored"]);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            child.env_remove(name).env_remove(name.to_lowercase());
        }
        child
            .env(SERVER, site.url().replace("127.0.0.1", host))
            .envs(variables.iter().copied());
        let done = child.output().expect("a process");
        assert!(
            done.status.success(),
            "{host}: {}",
            String::from_utf8_lossy(&done.stdout)
        );
        proxy.accepted() > before
    };
    assert!(!goes_through_it("127.0.0.1", &[]));
    let elsewhere = "server.test";
    for variables in [
        [("HTTP_PROXY", &*there), ("HTTPS_PROXY", nowhere)],
        [
            ("ALL_PROXY", &there),
            ("NO_PROXY", "example.com, 127.0.0.1"),
        ],
        [("http_proxy", &there), ("ALL_PROXY", nowhere)],
    ] {
        assert!(goes_through_it(elsewhere, &variables), "{variables:?}");
    }
    // Requests to the local host may carry credentials, so they pass through no proxy.
    for host in ["127.0.0.1", "localhost", "LOCALHOST"] {
        assert!(!goes_through_it(host, &[("HTTP_PROXY", &there)]), "{host}");
    }
}
