//! Tests both ends with real processes, with the system's own transports and with those that use threads.
//!
//! The server is this program, started again to run only the test `role_server`. The client ignores what the test harness prints before.

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
use everlink_stdio::{CallError, Context, Link, Service, secret, with_threads};
use serde_json::{Value, json};

/// Names the transport with which the started program serves.
const TRANSPORT: &str = "EVERLINK_TEST_TRANSPORT";
/// If set, the server process stays after its service has ended.
const STAYS: &str = "EVERLINK_TEST_STAYS";
/// Names the transport with which the started program tries to serve without threads.
const WITHOUT_THREADS: &str = "EVERLINK_TEST_WITHOUT_THREADS";
/// If set, the started program sends one reply to a call and exits.
const REPLY_AND_EXIT: &str = "EVERLINK_TEST_REPLY_AND_EXIT";
/// The address to which the grandchild connects when it runs.
const GRANDCHILD_ADDRESS: &str = "EVERLINK_TEST_GRANDCHILD_ADDRESS";

#[test]
fn large_arguments_and_results_pass_and_shutdown_exits_with_code_0() {
    with_each_transport(|transport| {
        let link = transport.link(&[]);
        let text = "much ".repeat(1 << 20);
        assert_eq!(call(&link, "echo", &text).expect("it answers"), text);
        let ended = shut_down(&link);
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        assert_eq!(ended.cause, Cause::Shutdown);
    });
}

#[test]
fn concurrent_calls_of_many_threads_get_their_own_replies() {
    with_each_transport(|transport| {
        let link = transport.link(&[]);
        thread::scope(|scope| {
            for caller in 0..8 {
                let link = &link;
                scope.spawn(move || {
                    for round in 0..50 {
                        // Alternate between single calls and batches.
                        let texts = (0..=round % 20).map(|n| format!("{caller} {round} {n}"));
                        let echo = |text| {
                            link.call_tool("echo", BTreeMap::from([("text", text)]))
                                .start()
                        };
                        let calls: Vec<_> = texts.clone().map(echo).collect();
                        for (call, text) in calls.into_iter().zip(texts) {
                            assert_eq!(call.wait().expect("it answers").text(), text);
                        }
                    }
                });
            }
        });
        shut_down(&link);
    });
}

#[test]
fn server_death_fails_one_call_with_its_stderr_and_exit_code() {
    with_each_transport(|transport| {
        let link = transport.link(&[]);
        for _ in 0..3 {
            let failure = call(&link, "die", "a word before I go").expect_err("it dies");
            let failure = failure.to_string();
            assert!(failure.contains("a word before I go"), "{failure}");
            assert_eq!(call(&link, "echo", "again").expect("it is back"), "again");
            let ended = link.last_end().expect("it ended");
            assert_eq!(ended.exit, Some(ExitStatus::Code(7)), "{ended}");
        }
        shut_down(&link);
    });
}

#[test]
fn reply_written_just_before_exit_is_delivered() {
    with_each_transport(|transport| {
        let mut command = this_program("role_reply_and_exit");
        command.env(REPLY_AND_EXIT, "1");
        let link = (transport.connect)(command, config()).expect("there is room for a link");
        let text = "much ".repeat(100_000);
        assert_eq!(call(&link, "echo", &text).expect("it was said"), text);
        shut_down(&link);
    });
}

/// The grandchild prints to the standard output that the server's process has by then, and does not end by itself.
#[test]
fn grandchild_dies_with_the_server_and_cannot_write_to_the_client() {
    with_each_transport(|transport| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let link = transport.link(&[(GRANDCHILD_ADDRESS, &address)]);
        call(&link, "start", "").expect("it can be started");
        let (grandchild, _) = listener.accept().expect("it is there");
        let failure = call(&link, "die", "").expect_err("it dies").to_string();
        assert!(failure.contains("the started one speaks"), "{failure}");
        assert_eq!(call(&link, "echo", "again").expect("it is back"), "again");
        assert_disconnects(grandchild);
        shut_down(&link);
    });
}

#[test]
fn call_in_flight_fails_when_the_server_is_killed_from_outside_and_the_link_comes_back() {
    with_each_transport(|transport| {
        let link = transport.link(&[]);
        let pid = call(&link, "pid", "").expect("it answers");
        let known = link.pid().map(|pid| pid.to_string());
        assert_eq!(known.as_deref(), Some(&*pid));
        let in_flight = link
            .call_tool("wait", BTreeMap::from([("text", "")]))
            .start();
        // After the answer to a later call, the server has read the call in flight. Before, the link could still send it to another server.
        call(&link, "echo", "").expect("it answers");
        let arguments = match cfg!(windows) {
            true => ["taskkill", "/F", "/PID", &pid],
            false => ["sh", "-c", "kill -KILL $0", &pid],
        };
        let killed = Command::new(arguments[0]).args(&arguments[1..]).output();
        assert!(killed.expect("it can be started").status.success());
        let failure = in_flight.wait().expect_err("its server is dead");
        assert!(matches!(failure, CallError::Failed(_)), "{failure}");
        let other_pid = call(&link, "pid", "").expect("it is back");
        assert_ne!(pid, other_pid);
        shut_down(&link);
    });
}

/// The server ends by itself at the end of its input. The grandchild does not.
#[test]
fn grandchild_dies_at_shutdown() {
    with_each_transport(|transport| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let link = transport.link(&[(GRANDCHILD_ADDRESS, &address)]);
        call(&link, "start", "").expect("it can be started");
        let (grandchild, _) = listener.accept().expect("it is there");
        let ended = shut_down(&link);
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        assert_disconnects(grandchild);
    });
}

#[cfg(windows)]
#[test]
fn script_is_found_by_its_bare_name_and_gets_its_arguments_unchanged() {
    let directory = env::temp_dir().join(format!("everlink scripts {}", std::process::id()));
    // A test that was killed may have left it, with the same process id.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("the directory is new");
    let program = current_exe().expect("a test knows where it lies");
    let script = format!(
        "@\"{}\" role_server --exact --nocapture --quiet -- %*\r\n",
        program.display()
    );
    fs::write(directory.join("everlink-test-server.cmd"), script).expect("it can be written");
    // What `npm` installs beside it, for other systems.
    fs::write(directory.join("everlink-test-server"), "#!/bin/sh\n").expect("it can be written");
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(
        [directory.clone()]
            .into_iter()
            .chain(env::split_paths(&path)),
    );
    let path = path.expect("no directory has a quote in its name");
    with_each_transport(|transport| {
        let mut command = Command::new("everlink-test-server");
        command.env(TRANSPORT, transport.name).env("PATH", &path);
        command.args(SCRIPT_ARGUMENTS);
        let link = (transport.connect)(command, config()).expect("there is room for a link");
        let arguments = call(&link, "arguments", "").expect("it answers");
        let arguments: Vec<String> = serde_json::from_str(&arguments).expect("it is JSON");
        assert_eq!(arguments, SCRIPT_ARGUMENTS);
        // The server is the child of a shell here.
        assert_eq!(call(&link, "echo", "again").expect("it answers"), "again");
        call(&link, "die", "").expect_err("it dies");
        assert_eq!(call(&link, "echo", "again").expect("it is back"), "again");
        shut_down(&link);
    });
    fs::remove_dir_all(directory).expect("nobody uses it");
}

/// Without a percent sign: the shell of Wine 8 reads the text by which `std` quotes it in another way than that of Windows.
#[cfg(windows)]
const SCRIPT_ARGUMENTS: &[&str] = &[
    "plain",
    "two words",
    "-y",
    "@scope/package",
    "a&b|c>d<e",
    "a^b",
    "!PATH!",
    "say \"hello\"",
    "back\\slash",
    "",
];

#[test]
fn server_that_ignores_the_end_of_input_is_killed_at_shutdown() {
    with_each_transport(|transport| {
        let link = transport.link(&[(STAYS, "1")]);
        call(&link, "echo", "").expect("it answers");
        let ended = shut_down(&link);
        assert_ne!(ended.exit, None, "{ended}");
        assert_ne!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        assert!(!ended.abandoned, "{ended}");
    });
}

#[test]
fn missing_program_is_named_in_the_error() {
    with_each_transport(|transport| {
        let command = Command::new("there-is-no-such-program");
        let link = (transport.connect)(command, config()).expect("there is room for a link");
        let failure = link
            .ready()
            .wait()
            .expect_err("nobody is there")
            .to_string();
        assert!(failure.contains("there-is-no-such-program"), "{failure}");
        if cfg!(windows) {
            assert!(
                failure.contains("there-is-no-such-program.cmd"),
                "{failure}"
            );
        }
        link.shutdown().wait().expect("the link is driven");
    });
}

#[cfg(all(unix, target_pointer_width = "64"))]
#[test]
fn serve_that_gets_no_thread_fails_and_leaves_the_streams_to_the_process() {
    with_each_transport(|transport| {
        let mut command = this_program("role_program_without_threads");
        command
            .arg("--test-threads=1")
            .env(WITHOUT_THREADS, transport.name);
        // No address space has room for the stack of a thread.
        command.env("RUST_MIN_STACK", (1_u64 << 50).to_string());
        let output = command.output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = [Err::<(), _>(ErrorKind::WouldBlock); 2];
        assert!(printed.contains(&format!("{errors:?}")), "{output:?}");
    });
}

/// The server of these tests; not a test itself.
#[test]
fn role_server() {
    let Ok(transport) = env::var(TRANSPORT) else {
        return;
    };
    let service = serve(&transport).expect("there are standard streams");
    service.closed().wait().expect("it is driven");
    while env::var_os(STAYS).is_some() {
        park();
    }
    // The test harness has no output left to report to.
    exit(0);
}

fn serve(transport: &str) -> io::Result<Service> {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("processes", "1.0").with_capabilities(tools);
    let config = server::Config::new(offer, secret());
    match transport {
        "threads" => with_threads::serve(config, answer),
        _ => everlink_stdio::serve(config, answer),
    }
}

/// A program that cannot serve, because it gets no thread. Prints the errors of two attempts to its standard output. Not a test itself.
#[test]
fn role_program_without_threads() {
    if let Ok(transport) = env::var(WITHOUT_THREADS) {
        let attempt = || serve(&transport).map(drop).map_err(|error| error.kind());
        println!("{:?}", [attempt(), attempt()]);
    }
}

/// A server without everlink, which sends one reply to a call and exits. Not a test itself.
#[test]
fn role_reply_and_exit() {
    if env::var_os(REPLY_AND_EXIT).is_none() {
        return;
    }
    for line in io::stdin().lines() {
        let message: Value = serde_json::from_str(&line.expect("it is text")).expect("it is JSON");
        let (id, params) = (&message["id"], &message["params"]);
        let outcome = match message["method"].as_str() {
            Some("initialize") => {
                json!({"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "reply-and-exit", "version": "1.0"}}})
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
            .extend(outcome.as_object().expect("so is it").clone());
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
fn role_grandchild() {
    if let (Err(_), Ok(address)) = (env::var(TRANSPORT), env::var(GRANDCHILD_ADDRESS)) {
        println!("the started one speaks");
        let mut connection = TcpStream::connect(address).expect("somebody waits for it");
        let _ = connection.read(&mut [0]);
    }
}

/// Waits until the connection has ended, which it does when the process at its other end is dead.
fn assert_disconnects(mut connection: TcpStream) {
    connection
        .set_read_timeout(Some(TIMEOUT))
        .expect("it is not zero");
    match connection.read(&mut [0]) {
        Ok(len) => assert_eq!(len, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

fn answer(request: Request, _: Context) -> Result<Payload, ErrorObject> {
    let params = request.params.as_ref().map(Payload::parse::<Value>);
    let params = params.and_then(Result::ok).unwrap_or_default();
    let mut text = params["arguments"]["text"].clone();
    println!("what is printed harms nobody");
    match params["name"].as_str() {
        Some("die") => {
            eprintln!("{}", text.as_str().unwrap_or_default());
            exit(7);
        }
        Some("arguments") => {
            let arguments: Vec<_> = env::args().skip_while(|it| it != "--").skip(1).collect();
            text = json!(json!(arguments).to_string());
        }
        Some("echo") => {}
        Some("pid") => text = json!(std::process::id().to_string()),
        Some("start") => {
            let mut other = this_program("role_grandchild");
            assert!(other.env_remove(TRANSPORT).spawn().is_ok());
        }
        Some("wait") => loop {
            park();
        },
        _ => return Err(ErrorObject::new(code::INVALID_PARAMS, "what is that?")),
    }
    let result = json!({"content": [{"type": "text", "text": text}]});
    Ok(Payload::of(&result).expect("it is JSON"))
}

/// One of the two transports.
struct Transport {
    name: &'static str,
    connect: fn(Command, Config) -> io::Result<Link>,
}

impl Transport {
    fn link(&self, variables: &[(&str, &str)]) -> Link {
        let mut command = this_program("role_server");
        command.env(TRANSPORT, self.name);
        command.envs(variables.iter().copied());
        (self.connect)(command, config()).expect("there is room for a link")
    }
}

/// Runs the test with each transport, one after another. Checks that no thread and no descriptor is left afterwards.
fn with_each_transport(run: impl Fn(&Transport)) {
    static SERIAL: Mutex<()> = Mutex::new(());
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let all = [
        ("system", everlink_stdio::connect as fn(_, _) -> _),
        ("threads", with_threads::connect),
    ];
    for (name, connect) in all {
        println!("{name}");
        let before = threads_and_descriptors();
        run(&Transport { name, connect });
        let start = Instant::now();
        while threads_and_descriptors() != before {
            assert!(
                start.elapsed() < TIMEOUT,
                "left: {:?} of {before:?}",
                threads_and_descriptors()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns the names of everlink's threads and the number of descriptors of this process, on Linux.
fn threads_and_descriptors() -> (Vec<String>, usize) {
    let is_linux = cfg!(target_os = "linux");
    let listed = |what| fs::read_dir(what).into_iter().flatten().flatten();
    let names = listed("/proc/self/task").filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        // The threads that spawn processes run as long as this process.
        let is_counted = name.starts_with("everlink") && name != "everlink-spawn\n";
        is_counted.then_some(name)
    });
    let descriptors = listed("/proc/self/fd").filter(|_| is_linux).count();
    (names.filter(|_| is_linux).collect(), descriptors)
}

const TIMEOUT: Duration = Duration::from_secs(60);

/// A config with long timeouts, but short ones for children that do not end.
fn config() -> Config {
    let mut config = Config::child("processes", "1.0");
    let policy = &mut config.policy;
    policy.probe_timeout = TIMEOUT;
    policy.close_grace = Duration::from_millis(500);
    policy.terminate_grace = Duration::from_millis(50);
    policy.kill_grace = TIMEOUT;
    policy.retry.first = Duration::from_millis(10);
    policy.retry.cap = Duration::from_millis(20);
    policy.retry.floor = Duration::from_millis(5);
    config
}

/// Returns a command that starts this program again, to run only one test.
fn this_program(test: &str) -> Command {
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

fn shut_down(link: &Link) -> Arc<Ended> {
    link.shutdown().wait().expect("the link is driven");
    assert_eq!(link.state(), State::Closed);
    link.last_end().expect("at least one epoch ended")
}
