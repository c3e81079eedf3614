//! Tests both ends with real processes, with the system's own transports and with those that use threads.
//!
//! The server is this program, started again to run only the test `server`. The client ignores what the test harness prints before.

use std::collections::BTreeMap;
use std::env::{self, current_exe};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, exit};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, park};
use std::time::{Duration, Instant};

use everlink::client::{Cause, Ended, State};
use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{self, Offer, Request};
use everlink::{Config, ErrorObject, ExitStatus, Payload};
use everlink_stdio::{CallError, Context, Link, secret, threads};
use serde_json::{Value, json};

/// Names the transport with which the started program serves.
const HANDS: &str = "EVERLINK_TEST_HANDS";
/// If set, the server process stays after its service has ended.
const STAYS: &str = "EVERLINK_TEST_STAYS";
/// If set, the started program sends one reply to a call and exits.
const TESTAMENT: &str = "EVERLINK_TEST_TESTAMENT";
/// The address to which the grandchild connects when it runs.
const HERALD: &str = "EVERLINK_TEST_HERALD";

#[test]
fn a_tool_is_called_with_much_and_answers_with_as_much() {
    with_all_hands(|hands| {
        let link = hands.link(&[]);
        let text = "much ".repeat(1 << 20);
        assert_eq!(call(&link, "echo", &text).expect("it answers"), text);
        let ended = end(&link);
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        assert_eq!(ended.cause, Cause::Shutdown);
    });
}

#[test]
fn everybody_who_asks_at_once_is_answered() {
    with_all_hands(|hands| {
        let link = hands.link(&[]);
        thread::scope(|scope| {
            for asker in 0..8 {
                let link = &link;
                scope.spawn(move || {
                    for round in 0..50 {
                        // Alternate between single calls and batches.
                        let texts = (0..=round % 20).map(|n| format!("{asker} {round} {n}"));
                        let say = |text| link.call_tool("echo", BTreeMap::from([("text", text)]));
                        let calls: Vec<_> = texts.clone().map(say).collect();
                        for (call, text) in calls.into_iter().zip(texts) {
                            assert_eq!(call.wait().expect("it answers").text(), text);
                        }
                    }
                });
            }
        });
        end(&link);
    });
}

#[test]
fn a_death_is_told_with_the_last_words_and_costs_one_call() {
    with_all_hands(|hands| {
        let link = hands.link(&[]);
        for _ in 0..3 {
            let failure = call(&link, "die", "a word before I go").expect_err("it dies");
            let failure = failure.to_string();
            assert!(failure.contains("a word before I go"), "{failure}");
            assert_eq!(call(&link, "echo", "again").expect("it is back"), "again");
            let ended = link.last_end().expect("it ended");
            assert_eq!(ended.exit, Some(ExitStatus::Code(7)), "{ended}");
        }
        end(&link);
    });
}

#[test]
fn a_reply_right_before_the_death_is_heard() {
    with_all_hands(|hands| {
        let mut command = again("testament");
        command.env(TESTAMENT, "1");
        let link = (hands.connect)(command, config()).expect("there is room for a link");
        let text = "much ".repeat(100_000);
        assert_eq!(call(&link, "echo", &text).expect("it was said"), text);
        end(&link);
    });
}

/// The grandchild prints to the standard output that the server's process has by then, and does not end by itself.
#[test]
fn what_a_server_starts_ends_with_it_and_does_not_speak_to_the_client() {
    with_all_hands(|hands| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let link = hands.link(&[(HERALD, &address)]);
        call(&link, "start", "").expect("it can be started");
        let (mut started, _) = listener.accept().expect("it is there");
        let failure = call(&link, "die", "").expect_err("it dies").to_string();
        assert!(failure.contains("the started one speaks"), "{failure}");
        assert_eq!(call(&link, "echo", "again").expect("it is back"), "again");
        // The connection ends when the grandchild is dead.
        started
            .set_read_timeout(Some(LONG))
            .expect("it is not zero");
        match started.read(&mut [0]) {
            Ok(len) => assert_eq!(len, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
        end(&link);
    });
}

#[test]
fn a_server_that_does_not_end_is_ended() {
    with_all_hands(|hands| {
        let link = hands.link(&[(STAYS, "1")]);
        call(&link, "echo", "").expect("it answers");
        let ended = end(&link);
        assert_ne!(ended.exit, None, "{ended}");
        assert_ne!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        assert!(!ended.abandoned, "{ended}");
    });
}

#[test]
fn a_program_that_is_not_there_is_told_by_its_name() {
    with_all_hands(|hands| {
        let command = Command::new("there-is-no-such-program");
        let link = (hands.connect)(command, config()).expect("there is room for a link");
        let failure = link.ready().wait().expect("the link is driven");
        let failure = failure.expect_err("nobody is there").to_string();
        assert!(failure.contains("there-is-no-such-program"), "{failure}");
        link.shutdown().wait().expect("the link is driven");
    });
}

/// The server of these tests; not a test itself.
#[test]
fn server() {
    let Ok(hands) = env::var(HANDS) else { return };
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("processes", "1.0").with_capabilities(tools);
    let config = server::Config::new(offer, secret());
    let service = match &*hands {
        "threads" => threads::serve(config, answer),
        _ => everlink_stdio::serve(config, answer),
    };
    let service = service.expect("there are standard streams");
    service.closed().wait().expect("it is driven");
    while env::var_os(STAYS).is_some() {
        park();
    }
    // The test harness has no output left to report to.
    exit(0);
}

/// A server without everlink, which sends one reply to a call and exits. Not a test itself.
#[test]
fn testament() {
    if env::var_os(TESTAMENT).is_none() {
        return;
    }
    for line in io::stdin().lines() {
        let message: Value = serde_json::from_str(&line.expect("it is text")).expect("it is JSON");
        let (id, params) = (&message["id"], &message["params"]);
        let said = match message["method"].as_str() {
            Some("initialize") => {
                json!({"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "testament", "version": "1.0"}}})
            }
            Some("tools/call") => {
                json!({"result": {"content": [{"type": "text", "text": params["arguments"]["text"]}]}})
            }
            _ => json!({"error": {"code": code::METHOD_NOT_FOUND, "message": "what is that?"}}),
        };
        let mut reply = json!({"jsonrpc": "2.0", "id": id});
        reply
            .as_object_mut()
            .expect("it is one")
            .extend(said.as_object().expect("so is it").clone());
        if !id.is_null() {
            println!("{reply}");
        }
        if message["method"] == "tools/call" {
            exit(0);
        }
    }
}

/// The grandchild, which the server starts. Not a test itself.
#[test]
fn started() {
    if let (Err(_), Ok(address)) = (env::var(HANDS), env::var(HERALD)) {
        println!("the started one speaks");
        let mut herald = TcpStream::connect(address).expect("somebody waits for it");
        let _ = herald.read(&mut [0]);
    }
}

fn answer(request: Request, _: Context) -> Result<Payload, ErrorObject> {
    let params = request.params.as_ref().map(Payload::parse::<Value>);
    let params = params.and_then(Result::ok).unwrap_or_default();
    let text = &params["arguments"]["text"];
    println!("what is printed harms nobody");
    match params["name"].as_str() {
        Some("die") => {
            eprintln!("{}", text.as_str().unwrap_or_default());
            exit(7);
        }
        Some("echo") => {}
        Some("start") => {
            let mut other = again("started");
            assert!(other.env_remove(HANDS).spawn().is_ok());
        }
        _ => return Err(ErrorObject::new(code::INVALID_PARAMS, "what is that?")),
    }
    let result = json!({"content": [{"type": "text", "text": text}]});
    Ok(Payload::of(&result).expect("it is JSON"))
}

/// One of the two transports.
struct Hands {
    name: &'static str,
    connect: fn(Command, Config) -> io::Result<Link>,
}

impl Hands {
    fn link(&self, variables: &[(&str, &str)]) -> Link {
        let mut command = again("server");
        command.env(HANDS, self.name);
        command.envs(variables.iter().copied());
        (self.connect)(command, config()).expect("there is room for a link")
    }
}

/// Runs the test with each transport, one after another. Checks that no thread and no descriptor is left afterwards.
fn with_all_hands(run: impl Fn(&Hands)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let all = [
        ("system", everlink_stdio::connect as fn(_, _) -> _),
        ("threads", threads::connect),
    ];
    for (name, connect) in all {
        println!("{name}");
        let before = held();
        run(&Hands { name, connect });
        let start = Instant::now();
        while held() != before {
            assert!(start.elapsed() < LONG, "left: {:?} of {before:?}", held());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns the names of everlink's threads and the number of descriptors of this process, on Linux.
fn held() -> (Vec<String>, usize) {
    let is_seen = cfg!(target_os = "linux");
    let listed = |what| fs::read_dir(what).into_iter().flatten().flatten();
    let names = listed("/proc/self/task").filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        // The threads that spawn processes run as long as this process.
        let is_counted = name.starts_with("everlink") && name != "everlink-spawn\n";
        is_counted.then_some(name)
    });
    let descriptors = listed("/proc/self/fd").filter(|_| is_seen).count();
    (names.filter(|_| is_seen).collect(), descriptors)
}

const LONG: Duration = Duration::from_secs(60);

/// A config with long timeouts, but short ones for children that do not end.
fn config() -> Config {
    let mut config = Config::child("processes", "1.0");
    let policy = &mut config.policy;
    policy.probe_timeout = LONG;
    policy.close_grace = Duration::from_millis(500);
    policy.terminate_grace = Duration::from_millis(50);
    policy.kill_grace = LONG;
    policy.retry.first = Duration::from_millis(10);
    policy.retry.cap = Duration::from_millis(20);
    policy.retry.floor = Duration::from_millis(5);
    config
}

/// Returns a command that starts this program again, to run only one test.
fn again(test: &str) -> Command {
    let mut command = Command::new(current_exe().expect("a test knows where it lies"));
    // Without `--quiet`, the harness would begin a line and not end it.
    command.args([test, "--exact", "--nocapture", "--quiet"]);
    command
}

fn call(link: &Link, tool: &str, text: &str) -> Result<String, CallError> {
    let result = link
        .call_tool(tool, BTreeMap::from([("text", text)]))
        .wait()?;
    Ok(result.text().to_owned())
}

fn end(link: &Link) -> Arc<Ended> {
    link.shutdown().wait().expect("the link is driven");
    assert_eq!(link.state(), State::Closed);
    link.last_end().expect("it has had a life")
}
