//! Tests credentials, header fields and proxies.

use std::future::{pending, ready};
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::{env, thread};

use everlink::Config;
use everlink::client::Event;
use everlink_http::{BadToken, Connector, SetupError};
use serde_json::{Value, json};

use crate::listener::{Listener, Next, Request};
use crate::scripted_server::{self, config, connector, echo, script_for_calls, serve_script};
use crate::serial::{Serial, TIMEOUT, threads, wait_until};

#[test]
fn refused_credentials_are_reported_and_the_call_succeeds_with_new_ones() {
    let _serial = Serial::begin();
    let reply = script_for_calls(scripted_server::reply);
    let listener = Listener::new(serve_script(move |request, out| {
        if request.field("authorization") == Some("Bearer good") {
            return reply(request, out);
        }
        let demand = "WWW-Authenticate: Bearer realm=\"here\"\r\n";
        scripted_server::json(out, 401, demand, &Value::Null)
    }));
    let token = Arc::new(Mutex::new("bad"));
    let current = Arc::clone(&token);
    let credentials = move || Some(format!("Bearer {}", current.lock().expect("whole")));
    let connector = connector().with_credentials(move || ready(credentials()));
    let link = connector
        .connect(config(&listener.url()))
        .expect("a thread");
    let mut events = link.events();
    let call = link.call_tool("echo", json!({"say": "hello"})).start();
    let challenge = events.iter().find_map(|event| match &*event {
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
fn fixed_token_is_sent_with_each_request_and_a_bad_one_is_refused() {
    let _serial = Serial::begin();
    let (sender, received) = mpsc::channel();
    let reply = script_for_calls(scripted_server::reply);
    let listener = Listener::new(serve_script(
        move |request: &Request, out: &mut dyn Write| {
            let _ = sender.send(request.field("authorization").map(str::to_owned));
            reply(request, out)
        },
    ));
    let connector = connector().with_bearer("abc");
    let link = connector
        .expect("a token")
        .connect(config(&listener.url()))
        .expect("a thread");
    let call = link.call_tool("echo", json!({"say": "hello"}));
    assert_eq!(call.wait().expect("a reply").text(), "hello");
    let values: Vec<_> = received.try_iter().collect();
    assert!(values.len() > 1, "{values:?}");
    assert!(
        values
            .iter()
            .all(|value| value.as_deref() == Some("Bearer abc")),
        "{values:?}"
    );
    let refused = self::connector().with_bearer("abc\n");
    assert_eq!(refused.map(drop), Err(BadToken));
}

#[test]
fn credentials_are_fetched_for_each_request_and_fields_are_sent_with_all() {
    let _serial = Serial::begin();
    let (fields_sender, fields_received) = mpsc::channel();
    let reply = script_for_calls(scripted_server::reply);
    let listener = Listener::new(serve_script(
        move |request: &Request, out: &mut dyn Write| {
            let field = |name| request.field(name).unwrap_or_default().to_owned();
            let _ = fields_sender.send((field("authorization"), field("x-tenant")));
            reply(request, out)
        },
    ));
    let asked = AtomicUsize::new(0);
    let credentials = move || Some(format!("Bearer {}", asked.fetch_add(1, Ordering::SeqCst)));
    let connector = connector().with_credentials(move || ready(credentials()));
    let connector = connector.with_field("X-Tenant", "blue").expect("a field");
    let link = connector
        .connect(config(&listener.url()))
        .expect("a thread");
    echo(&link, "one");
    echo(&link, "two");
    for n in 0..3 {
        let seen = fields_received.recv_timeout(TIMEOUT).expect("a request");
        assert_eq!(seen, (format!("Bearer {n}"), "blue".into()));
    }
}

#[test]
fn invalid_or_panicking_credentials_fail_the_call_and_are_not_shown() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    let bad: [fn() -> Option<String>; 2] = [
        || Some("Bearer hunter2\r\nX-Evil: 1".into()),
        || panic!("the keyring is locked"),
    ];
    for credentials in bad {
        let mut config: Config = config(&listener.url());
        config.policy = everlink::Policy::one_shot();
        let connector = Connector::new().without_proxy();
        let link = connector
            .with_credentials(move || ready(credentials()))
            .connect(config);
        let link = link.expect("a thread");
        let call = link.call_tool("echo", json!({"say": "hello"})).start();
        let error = call.wait().expect_err("no reply").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
    assert_eq!(listener.accepted(), 0);
}

#[test]
fn exchange_that_waits_for_credentials_ends_with_its_call_and_with_its_link() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    let (asked_sender, asked) = mpsc::channel();
    let never_come = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&never_come);
    let connector = connector().with_credentials(move || {
        let waits = waits.load(Ordering::SeqCst);
        let asked_sender = asked_sender.clone();
        async move {
            if waits {
                asked_sender.send(()).expect("the test runs");
                pending::<()>().await;
            }
            None
        }
    });
    let link = connector.connect(config(&listener.url()));
    let link = link.expect("a thread");
    assert_eq!(echo(&link, "before"), "before");

    never_come.store(true, Ordering::SeqCst);
    let call = link.call_tool("echo", json!({"say": "dropped"})).start();
    asked.recv_timeout(TIMEOUT).expect("an exchange");
    drop(call);
    // The thread that drives the link is left.
    wait_until("the thread of the exchange has ended", || threads() <= 1);

    let call = link.call_tool("echo", json!({"say": "closed"})).start();
    asked.recv_timeout(TIMEOUT).expect("an exchange");
    link.shutdown().wait().expect("an end");
    assert!(call.wait().is_err());
    wait_until("no thread is left", || threads() == 0);
}

#[test]
fn invalid_settings_are_refused_before_the_link_starts() {
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
fn debug_output_of_a_connector_contains_no_secrets() {
    let connector = connector().with_field("x-key", "hunter2");
    let connector = connector
        .expect("a field")
        .with_proxy("http://me:hunter2@localhost");
    let connector = connector
        .expect("a proxy")
        .with_credentials(async || Some("hunter2".into()));
    assert!(!format!("{connector:?}").contains("hunter2"));
}

/// A proxy that accepts every `CONNECT`.
fn proxy() -> Listener {
    Listener::new(|socket| {
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
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let other_direction = thread::spawn(move || {
        let _ = io::copy(&mut from_server, &mut to_client);
        to_client.shutdown(Shutdown::Both)
    });
    let _ = io::copy(&mut client, &mut server);
    let _ = server.shutdown(Shutdown::Both);
    let _ = other_direction.join();
    Ok(())
}

#[test]
fn calls_pass_through_a_proxy_and_a_dropped_call_closes_its_connection() {
    let _serial = Serial::begin();
    let (reached_sender, reached) = mpsc::channel();
    let (closed_sender, closed) = mpsc::channel();
    let listener = scripted_server::server(move |request, out| {
        if request.echo() != scripted_server::text("wait") {
            return scripted_server::reply(request, out);
        }
        let _ = reached_sender.send(());
        Ok(Next::Wait(closed_sender.clone()))
    });
    let proxy = proxy();
    let connector = connector().with_proxy(&format!("http://{}", proxy.address()));
    let link = connector
        .expect("an address")
        .connect(config(&listener.url()))
        .expect("a thread");
    assert_eq!(echo(&link, "hello"), "hello");
    assert_eq!(proxy.accepted(), listener.accepted());
    let call = link.call_tool("echo", json!({"say": "wait"})).start();
    reached.recv_timeout(TIMEOUT).expect("a call");
    drop(call);
    assert!(closed.recv_timeout(TIMEOUT).expect("an end"));
}

/// The environment variable with the URL of the server for `role_call_in_this_environment`.
const SERVER: &str = "EVERLINK_TEST_SERVER";

#[test]
#[ignore = "a part of the test below, which starts it with an environment of its own"]
fn role_call_in_this_environment() {
    if let Ok(url) = env::var(SERVER) {
        let link = everlink_http::connect(config(&url)).expect("a thread");
        assert_eq!(echo(&link, "hello"), "hello");
    }
}

#[test]
fn proxies_of_the_environment_are_used_except_for_the_local_host() {
    let _serial = Serial::begin();
    let listener = scripted_server::server(scripted_server::reply);
    let proxy = proxy();
    let proxy_url = format!("http://{}", proxy.address());
    let closed_port = "http://127.0.0.1:1";
    let uses_proxy = |host: &str, variables: &[(&str, &str)]| {
        let before = proxy.accepted();
        let mut child = Command::new(env::current_exe().expect("this program"));
        child.args([
            "credentials_and_proxies::role_call_in_this_environment",
            "--exact",
            "--ignored",
        ]);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            child.env_remove(name).env_remove(name.to_lowercase());
        }
        child
            .env(SERVER, listener.url().replace("127.0.0.1", host))
            .envs(variables.iter().copied());
        let done = child.output().expect("a process");
        assert!(
            done.status.success(),
            "{host}: {}",
            String::from_utf8_lossy(&done.stdout)
        );
        proxy.accepted() > before
    };
    assert!(!uses_proxy("127.0.0.1", &[]));
    let remote_host = "server.test";
    for variables in [
        [("HTTP_PROXY", &*proxy_url), ("HTTPS_PROXY", closed_port)],
        [
            ("ALL_PROXY", &proxy_url),
            ("NO_PROXY", "example.com, 127.0.0.1"),
        ],
        [("http_proxy", &proxy_url), ("ALL_PROXY", closed_port)],
    ] {
        assert!(uses_proxy(remote_host, &variables), "{variables:?}");
    }
    // Requests to the local host may carry credentials, so they pass through no proxy.
    for host in ["127.0.0.1", "localhost", "LOCALHOST"] {
        assert!(!uses_proxy(host, &[("HTTP_PROXY", &proxy_url)]), "{host}");
    }
}
