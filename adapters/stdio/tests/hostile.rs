//! Child processes, clients and applications that misbehave.
#![cfg(target_os = "linux")]

use std::collections::HashSet;
use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{self, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use everlink::client::Event;
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Offer};
use everlink::{Config, ErrorObject, Payload};
use everlink_stdio::{Context, Link, connect, secret, serve};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpgrp, kill_process, setpgid};
use serde_json::{Value, json};

/// Longer than any step here takes, so that a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// The environment variable that names the role of this program when a test starts it.
const ROLE: &str = "EVERLINK_HOSTILE_ROLE";

/// Returns the config of a link that waits only 50 ms at each step of closing its child.
fn hasty() -> Config {
    let mut config = Config::child("hostile", "1.0");
    let moment = Duration::from_millis(50);
    config.policy.close_grace = moment;
    config.policy.terminate_grace = moment;
    config.policy.kill_grace = moment;
    config
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Runs `work` on another thread and fails if it is not done within [`PATIENCE`].
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    is_done
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| panic!("{what} hangs, or panicked"))
}

fn comes_true(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A temporary file of one test, removed with it.
struct Note(PathBuf);

impl Note {
    fn new(name: &str) -> Note {
        let name = format!("everlink-hostile-{name}-{}", std::process::id());
        Note(std::env::temp_dir().join(name))
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(&self.0).ok()?;
        Pid::from_raw(text.trim_end_matches('\n').parse().ok()?)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
#[allow(unsafe_code, reason = "only a child can leave its group")]
fn a_child_that_left_its_group_is_killed_all_the_same() {
    let note = Note::new("left");
    let path = note.0.display();
    let mut command = sh(&format!(
        "trap '' TERM; echo $$ > {path}.new; mv {path}.new {path}; exec sleep 1000"
    ));
    let elsewhere = getpgrp();
    // SAFETY: one system call.
    unsafe { command.pre_exec(move || Ok(setpgid(None, Some(elsewhere))?)) };
    let link = connect(command, hasty()).expect("a thread");
    drop(link.ready());
    assert!(comes_true(|| note.pid().is_some()), "the child starts");
    let pid = note.pid().expect("it said so");
    in_time("the end of a link", move || link.shutdown().wait()).expect("it is driven");
    let is_gone = comes_true(|| !is_alive(pid));
    let _ = kill_process(pid, Signal::KILL);
    assert!(is_gone, "the link is closed, and its child lives on");
}

/// Returns a command whose child hangs before `exec`, as on a file system that does not respond, and the socket that lets it go on.
#[allow(unsafe_code, reason = "only a child can hang before its program")]
fn hanging() -> (Command, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("descriptors");
    let mut command = sh("exit 0");
    let hang = move || {
        (&theirs).write_all(b"here")?;
        (&theirs).read_exact(&mut [0])
    };
    // SAFETY: two system calls.
    unsafe { command.pre_exec(hang) };
    (command, ours)
}

fn hang(link: &Link, gate: &mut UnixStream) {
    drop(link.ready());
    gate.set_read_timeout(Some(PATIENCE)).expect("a socket");
    gate.read_exact(&mut [0; 4]).expect("the child is there");
}

#[test]
fn a_start_that_hangs_keeps_nobody_else_from_starting() {
    let (command, mut gate) = hanging();
    let slow = connect(command, hasty()).expect("a thread");
    hang(&slow, &mut gate);

    let other = connect(sh("read line"), hasty()).expect("a thread");
    let mut events = other.events();
    drop(other.ready());
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let is_open = events.any(|event| matches!(*event, Event::Handshaking { .. }));
        let _ = done.send(is_open);
    });
    let opened = is_done.recv_timeout(PATIENCE);
    // Let the child go on whatever the result, so that nothing is left hanging.
    gate.write_all(&[1]).expect("it waits for that");
    assert_eq!(opened, Ok(true), "another link starts its child");
}

#[test]
fn a_link_whose_start_hangs_can_be_shut_down() {
    let (command, mut gate) = hanging();
    let link = connect(command, hasty()).expect("a thread");
    hang(&link, &mut gate);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(link.shutdown().wait()));
    let closed = is_done.recv_timeout(PATIENCE);
    gate.write_all(&[1]).expect("it waits for that");
    assert_eq!(closed, Ok(Ok(())));
}

/// Returns the targets of a process's descriptors.
fn descriptors(of: &Path) -> HashSet<String> {
    let entries = fs::read_dir(of.join("fd")).expect("Linux has it").flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| target.display().to_string())
        .filter(|target| !target.contains("/proc/"))
        .collect()
}

#[test]
fn no_descriptor_of_ours_is_inherited() {
    // Descriptors that this process itself inherited do not count.
    let given = descriptors(Path::new("/proc/self"));
    let first = connect(sh("read line; read line; read line"), hasty()).expect("a thread");
    let mut events = first.events();
    drop(first.ready());
    assert!(events.any(|event| matches!(*event, Event::Handshaking { .. })));
    // The descriptors of both links are open while the second child is spawned.
    let second = connect(sh("exec ls -l /proc/self/fd >&2"), hasty()).expect("a thread");
    let mut events = second.events();
    drop(second.ready());
    let ended = events.find_map(|event| match &*event {
        Event::Ended(ended) => Some(ended.stderr.to_string()),
        _ => None,
    });
    let listed = ended.expect("it ends when it has listed them");
    let targets = listed.lines().filter_map(|line| line.split_once(" -> "));
    let surplus: HashSet<_> = targets
        .map(|(_, target)| target)
        .filter(|target| !given.contains(*target) && !target.contains("/proc/"))
        .collect();
    // Expected: its standard input, and one target for standard output and standard error.
    assert_eq!(surplus.len(), 2, "{listed}");
    for link in [first, second] {
        in_time("the end of a link", move || link.shutdown().wait()).expect("it is driven");
    }
}

#[test]
fn a_program_that_ignores_the_death_of_children_hears_of_it_all_the_same() {
    let mut program = role("ignores_children");
    let mut under = Command::new("sh");
    under.args(["-c", "trap '' CHLD; exec \"$0\" \"$@\""]);
    under.arg(program.get_program()).args(program.get_args());
    under.env(ROLE, "ignores_children");
    program = under;
    let output = in_time("a program that ignores SIGCHLD", move || program.output());
    let output = output.expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn ignores_children() {
    if std::env::var(ROLE).as_deref() != Ok("ignores_children") {
        return;
    }
    let link = connect(sh("read line; exit 3"), hasty()).expect("a thread");
    let mut events = link.events();
    drop(link.ready());
    assert!(events.any(|event| matches!(*event, Event::Ended(_))));
    link.shutdown().wait().expect("it is driven");
}

/// Returns a command that starts this program again, in this role.
fn role(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it has a name"));
    command.args(["--exact", name, "--quiet", "--nocapture"]);
    command.env(ROLE, name);
    command
}

/// A server of this crate in its own process, and the client's ends of its streams.
struct Served {
    process: Child,
    says: BufReader<UnixStream>,
    hears: UnixStream,
}

impl Served {
    fn start(stdin: OwnedFd, hears: UnixStream) -> Served {
        let (says, stdout) = UnixStream::pair().expect("descriptors");
        says.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let process = role("serves")
            .stdin(stdin)
            .stdout(OwnedFd::from(stdout))
            .stderr(Stdio::null())
            .spawn();
        let mut served = Served {
            process: process.expect("it starts"),
            says: BufReader::new(says),
            hears,
        };
        let client = json!({"name": "hostile", "version": "1.0"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        served.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        served.hear(0);
        served.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        served
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.hears, "{message}").expect("it listens");
    }

    fn call(&mut self, id: u64, tool: &str) {
        let params = json!({"name": tool, "arguments": {}});
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// Returns the next message with this id.
    fn hear(&mut self, id: u64) -> Value {
        loop {
            let message = self.next();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Returns the next message, and skips the output of the test harness.
    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            let len = self.says.read_line(&mut line).expect("it answers");
            assert_ne!(len, 0, "it went");
            let message = line.find('{').map(|at| serde_json::from_str(&line[at..]));
            if let Some(Ok(message)) = message {
                return message;
            }
        }
    }

    fn threads(&self) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()));
        tasks.expect("it lives").count()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number of concurrent requests that the server accepts.
const REQUESTS: usize = 8;

#[test]
fn serves() {
    if std::env::var(ROLE).as_deref() != Ok("serves") {
        return;
    }
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("hostile", "1.0").with_capabilities(tools);
    let mut config = server::Config::new(offer, secret());
    config.limits.requests = REQUESTS;
    let service = serve(config, answer).expect("it has standard streams");
    service.closed().wait().expect("it is driven");
}

fn answer(request: everlink::server::Request, _: Context) -> Result<Payload, ErrorObject> {
    let params = request.params.as_ref().map(Payload::parse::<Value>);
    let params = params.and_then(Result::ok).unwrap_or_default();
    match params["name"].as_str() {
        Some("panic") => panic!("as it is meant to"),
        Some("for ever") => loop {
            thread::park();
        },
        _ => Ok(Payload::of(&json!({"content": []})).expect("it is JSON")),
    }
}

#[test]
fn cancelled_requests_do_not_make_threads_without_bound() {
    let (hears, stdin) = UnixStream::pair().expect("descriptors");
    let mut served = Served::start(stdin.into(), hears);
    let before = served.threads();
    for id in 1..=100 {
        served.call(id, "for ever");
        let params = json!({"requestId": id});
        served
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }
    // The reply to this request shows that all messages before it were handled.
    served.say(&json!({"jsonrpc": "2.0", "id": 1000, "method": "ping"}));
    served.hear(1000);
    let more = served.threads() - before;
    assert!(more <= REQUESTS, "{more} threads run for nobody");
}

#[test]
fn a_handler_that_panics_is_survived() {
    let (hears, stdin) = UnixStream::pair().expect("descriptors");
    let mut served = Served::start(stdin.into(), hears);
    for id in 1..=20 {
        served.call(id, "panic");
        assert!(served.hear(id)["error"].is_object());
    }
    served.call(21, "anything");
    assert!(served.hear(21)["result"].is_object());
}

#[test]
fn whether_the_streams_block_is_left_as_it_was() {
    let (hears, stdin) = UnixStream::pair().expect("descriptors");
    let shared = stdin.try_clone().expect("descriptors");
    let mut served = Served::start(stdin.into(), hears);
    served.call(1, "anything");
    served.hear(1);
    let flags = fcntl_getfl(&shared).expect("a descriptor");
    assert!(!flags.contains(OFlags::NONBLOCK));
}

#[test]
fn an_answer_does_not_wait_for_the_handler_of_another_request() {
    // The scheduler decides which thread takes which task; 20 rounds include bad cases.
    for _ in 0..20 {
        let (hears, stdin) = UnixStream::pair().expect("descriptors");
        let mut served = Served::start(stdin.into(), hears);
        let calls = (1..=6).map(|id| {
            let tool = if id <= 3 { "anything" } else { "for ever" };
            let params = json!({"name": tool, "arguments": {}});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        });
        // Written at once, so that one thread may take several of them.
        let calls: Vec<_> = calls.map(|call| format!("{call}\n")).collect();
        let said = served.hears.write_all(calls.concat().as_bytes());
        said.expect("it listens");
        let answered: HashSet<_> = (0..3).map(|_| served.next()["id"].as_u64()).collect();
        assert_eq!(answered, HashSet::from([Some(1), Some(2), Some(3)]));
    }
}

/// Returns all messages of a client that wants one reply.
fn visit() -> Vec<u8> {
    let client = json!({"name": "hostile", "version": "1.0"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let said = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    ];
    said.map(|message| format!("{message}\n")).concat().into()
}

/// Starts a server with this standard input, and returns its output after it has ended by itself.
fn served(stdin: OwnedFd) -> String {
    let mut command = role("serves");
    command.stdin(stdin).stderr(Stdio::null());
    let output = in_time("a server whose client has left", move || command.output());
    String::from_utf8_lossy(&output.expect("it starts").stdout).into()
}

#[test]
fn standard_input_may_be_anything_and_is_read_to_its_end() {
    let (socket, mut other) = UnixStream::pair().expect("descriptors");
    other.write_all(&visit()).expect("there is room");
    drop(other);
    assert!(served(socket.into()).contains(r#""id":1"#), "a socket");

    let (pipe, other) = pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    fs::File::from(other).write_all(&visit()).expect("room");
    assert!(served(pipe).contains(r#""id":1"#), "a pipe");

    let note = Note::new("visit");
    fs::write(&note.0, visit()).expect("a file");
    let file = fs::File::open(&note.0).expect("it is there");
    assert!(served(file.into()).contains(r#""id":1"#), "a file");

    let note = Note::new("named");
    let made = Command::new("mkfifo").arg(&note.0).status();
    assert!(made.is_ok_and(|made| made.success()));
    // Both ends are opened before the server reads, and the write end is closed by then.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let named = rustix::fs::open(&note.0, flags, rustix::fs::Mode::empty()).expect("it is there");
    fs::write(&note.0, visit()).expect("there is room");
    fcntl_setfl(&named, OFlags::empty()).expect("a descriptor");
    assert!(served(named).contains(r#""id":1"#), "a pipe with a name");
}

#[test]
fn whether_a_pipe_blocks_is_left_as_it_was() {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    let ((stdin, hears), (says, stdout)) = (pipe(), pipe());
    let shared = [&stdin, &stdout].map(|fd| fd.try_clone().expect("descriptors"));
    let process = role("serves").stdin(stdin).stdout(stdout).spawn();
    let mut process = process.expect("it starts");
    let mut hears = fs::File::from(hears);
    hears.write_all(&visit()).expect("there is room");
    let says = BufReader::new(fs::File::from(says));
    let answered = in_time("an answer", move || {
        let mut lines = says.lines().map_while(Result::ok);
        lines.any(|line| line.contains(r#""id":1"#))
    });
    assert!(answered);
    for shared in shared {
        let flags = fcntl_getfl(&shared).expect("a descriptor");
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
    let _ = process.kill();
    let _ = process.wait();
}

/// A waker that calls this function.
struct Woken<F>(F);

impl<F: Fn() + Send + Sync> Wake for Woken<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Calls `then` once, when the link sends its next event.
fn when_something_happens(link: &Link, then: impl Fn() + Send + Sync + 'static) -> impl Sized {
    let mut events = link.events();
    let mut next = Box::pin(async move { events.recv().await });
    let waker = Waker::from(Arc::new(Woken(then)));
    let polled = next.as_mut().poll(&mut task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    next
}

/// If the waker ran under the link's lock, this would deadlock.
#[test]
fn whoever_is_woken_may_wait_for_the_link_there_and_then() {
    in_time("a waker", || {
        let link = connect(sh("cat > /dev/null"), hasty()).expect("a thread");
        let (told, heard) = mpsc::channel();
        let (asked, told) = (link.clone(), Mutex::new(told));
        let _next = when_something_happens(&link, move || {
            let is_there = asked.stats().wait().is_ok();
            let _ = told.lock().expect("nobody panicked").send(is_there);
        });
        drop(link.ready());
        assert_eq!(heard.recv(), Ok(true));
    });
}

#[test]
fn a_waker_that_panics_ends_no_link() {
    in_time("a link", || {
        let link = connect(sh("cat > /dev/null"), hasty()).expect("a thread");
        let (told, heard) = mpsc::channel();
        let told = Mutex::new(told);
        let _next = when_something_happens(&link, move || {
            let _ = told.lock().map(|told| told.send(()));
            panic!("as it was told to");
        });
        drop(link.ready());
        heard.recv().expect("it was woken");
        link.stats().wait().expect("the link goes on");
        link.shutdown().wait().expect("and ends in order");
    });
}
