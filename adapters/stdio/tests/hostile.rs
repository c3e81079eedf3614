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
use everlink::{Config, Epoch, ErrorObject, Output, Payload};
use everlink_handle::Transport as _;
use everlink_stdio::process_tree::Spawner;
use everlink_stdio::reactor::PollReactor;
use everlink_stdio::{ChildTransport, Context, Link, PolledChild, connect, secret, serve};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, setpgid};
use serde_json::{Value, json};

/// Longer than any step here takes, so that a hang fails the test.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The environment variable that names the role of this program when a test starts it.
const ROLE: &str = "EVERLINK_HOSTILE_ROLE";

/// Returns the config of a link that waits only 50 ms at each step of closing its child.
fn config_with_short_graces() -> Config {
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

/// Runs `work` on another thread and fails if it is not done within [`TIMEOUT`].
fn with_timeout<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    is_done
        .recv_timeout(TIMEOUT)
        .unwrap_or_else(|_| panic!("{what} hangs, or panicked"))
}

fn becomes_true(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A temporary file of one test, removed with it.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> TempFile {
        let name = format!("everlink-hostile-{name}-{}", std::process::id());
        TempFile(std::env::temp_dir().join(name))
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(&self.0).ok()?;
        Pid::from_raw(text.trim_end_matches('\n').parse().ok()?)
    }
}

impl Drop for TempFile {
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
fn child_in_another_process_group_is_killed_at_shutdown() {
    let temp_file = TempFile::new("left");
    let path = temp_file.0.display();
    let mut command = sh(&format!(
        "trap '' TERM; echo $$ > {path}.new; mv {path}.new {path}; exec sleep 1000"
    ));
    let our_group = getpgrp();
    // SAFETY: one system call.
    unsafe { command.pre_exec(move || Ok(setpgid(None, Some(our_group))?)) };
    let link = connect(command, config_with_short_graces()).expect("a thread");
    drop(link.ready());
    assert!(
        becomes_true(|| temp_file.pid().is_some()),
        "the child starts"
    );
    let pid = temp_file.pid().expect("the child wrote its pid");
    with_timeout("the end of a link", move || link.shutdown().wait()).expect("it is driven");
    let is_gone = becomes_true(|| !is_alive(pid));
    let _ = kill_process(pid, Signal::KILL);
    assert!(is_gone, "the child survived the shutdown of its link");
}

/// Returns a command whose child hangs before `exec`, as on a file system that does not respond, and the socket that lets it go on. The child first
/// writes its pid to the socket, 4 bytes.
fn hanging_command() -> (Command, UnixStream) {
    hanging_before("exit 0")
}

#[allow(unsafe_code, reason = "only a child can hang before its program")]
fn hanging_before(script: &str) -> (Command, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("descriptors");
    ours.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut command = sh(script);
    let hang = move || {
        (&theirs).write_all(&getpid().as_raw_nonzero().get().to_ne_bytes())?;
        (&theirs).read_exact(&mut [0])
    };
    // SAFETY: two system calls.
    unsafe { command.pre_exec(hang) };
    (command, ours)
}

fn start_and_wait_for_hang(link: &Link, release: &mut UnixStream) {
    drop(link.ready());
    hanging_pid(release);
}

/// Waits for a child of a hanging command, and returns its pid.
fn hanging_pid(release: &mut UnixStream) -> Pid {
    let mut pid = [0; 4];
    release.read_exact(&mut pid).expect("the child is there");
    Pid::from_raw(i32::from_ne_bytes(pid)).expect("a pid")
}

#[test]
fn hanging_spawn_does_not_block_the_spawn_of_another_link() {
    let (command, mut release) = hanging_command();
    let slow = connect(command, config_with_short_graces()).expect("a thread");
    start_and_wait_for_hang(&slow, &mut release);

    let other = connect(sh("read line"), config_with_short_graces()).expect("a thread");
    let mut events = other.events();
    drop(other.ready());
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let is_open = events
            .iter()
            .any(|event| matches!(*event, Event::Handshaking { .. }));
        let _ = done.send(is_open);
    });
    let opened = is_done.recv_timeout(TIMEOUT);
    // Let the child go on whatever the result, so that nothing is left hanging.
    release.write_all(&[1]).expect("it waits for that");
    assert_eq!(opened, Ok(true), "another link starts its child");
}

#[test]
fn starts_during_one_that_hangs_wait_for_it_without_a_thread() {
    let (command, mut release) = hanging_command();
    let spawner = Spawner::new(command);
    let (sender, spawned) = mpsc::channel();
    let start = |spawner: &Spawner| {
        let sender = sender.clone();
        spawner.spawn(move |result| drop(sender.send(result.map(drop))));
    };
    // More than there are threads.
    (0..20).for_each(|_| start(&spawner));
    hanging_pid(&mut release);
    start(&Spawner::new(sh("exit 0")));
    let other = spawned.recv_timeout(TIMEOUT);
    release.write_all(&[1; 20]).expect("they wait for that");
    other.expect("another command starts").expect("it runs");
    for _ in 0..20 {
        let started = spawned.recv_timeout(TIMEOUT).expect("it returns");
        started.expect("it was slow, and runs");
    }
}

#[test]
fn epoch_that_ended_before_its_start_leaves_no_process() {
    let (command, mut release) = hanging_before("exec sleep 1000");
    let reactor = PollReactor::new().expect("a descriptor");
    let mut transport = ChildTransport::<PolledChild<_>>::new(command, reactor);
    let epoch = Epoch::FIRST;
    transport.perform(Output::Open { epoch }, &[]);
    let late = hanging_pid(&mut release);
    transport.perform(Output::Release { epoch }, &[]);
    transport.perform(Output::Open { epoch }, &[]);
    drop(transport);
    release.write_all(&[1]).expect("it waits for that");
    // The spawner holds the other end of the socket until all starts are over.
    let mut pids = Vec::new();
    release.read_to_end(&mut pids).expect("they are over");
    let is_gone = becomes_true(|| !is_alive(late));
    let _ = kill_process(late, Signal::KILL);
    assert!(is_gone, "the child that came too late is killed");
    assert!(pids.is_empty(), "a second process started");
}

#[test]
fn link_with_a_hanging_spawn_can_be_shut_down() {
    let (command, mut release) = hanging_command();
    let link = connect(command, config_with_short_graces()).expect("a thread");
    start_and_wait_for_hang(&link, &mut release);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(link.shutdown().wait()));
    let closed = is_done.recv_timeout(TIMEOUT);
    release.write_all(&[1]).expect("it waits for that");
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
fn child_inherits_only_its_standard_streams() {
    // Descriptors that this process itself inherited do not count.
    let our_descriptors = descriptors(Path::new("/proc/self"));
    let first = connect(
        sh("read line; read line; read line"),
        config_with_short_graces(),
    )
    .expect("a thread");
    let mut events = first.events();
    drop(first.ready());
    assert!(
        events
            .iter()
            .any(|event| matches!(*event, Event::Handshaking { .. }))
    );
    // The descriptors of both links are open while the second child is spawned.
    let second = connect(
        sh("exec ls -l /proc/self/fd >&2"),
        Config::child("hostile", "1.0"),
    )
    .expect("a thread");
    let mut events = second.events();
    drop(second.ready());
    let ended = events.iter().find_map(|event| match &*event {
        Event::Ended(ended) => Some(ended.stderr.to_string()),
        _ => None,
    });
    let listed = ended.expect("it ends when it has listed them");
    let targets = listed.lines().filter_map(|line| line.split_once(" -> "));
    let inherited: HashSet<_> = targets
        .map(|(_, target)| target)
        .filter(|target| !our_descriptors.contains(*target) && !target.contains("/proc/"))
        .collect();
    // Expected: its standard input, and one target for standard output and standard error.
    assert_eq!(inherited.len(), 2, "{listed}");
    for link in [first, second] {
        with_timeout("the end of a link", move || link.shutdown().wait()).expect("it is driven");
    }
}

#[test]
fn child_exit_is_reported_when_the_program_ignores_sigchld() {
    let mut program = role("role_link_with_ignored_sigchld");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' CHLD; exec \"$0\" \"$@\""]);
    shell.arg(program.get_program()).args(program.get_args());
    shell.env(ROLE, "role_link_with_ignored_sigchld");
    program = shell;
    let output = with_timeout("a program that ignores SIGCHLD", move || program.output());
    let output = output.expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn role_link_with_ignored_sigchld() {
    if std::env::var(ROLE).as_deref() != Ok("role_link_with_ignored_sigchld") {
        return;
    }
    let link = connect(sh("read line; exit 3"), config_with_short_graces()).expect("a thread");
    let mut events = link.events();
    drop(link.ready());
    assert!(events.iter().any(|event| matches!(*event, Event::Ended(_))));
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
struct ServerProcess {
    process: Child,
    from_server: BufReader<UnixStream>,
    to_server: UnixStream,
}

impl ServerProcess {
    fn start(stdin: OwnedFd, to_server: UnixStream) -> ServerProcess {
        let (from_server, stdout) = UnixStream::pair().expect("descriptors");
        from_server
            .set_read_timeout(Some(TIMEOUT))
            .expect("a socket");
        let process = role("role_server")
            .stdin(stdin)
            .stdout(OwnedFd::from(stdout))
            .stderr(Stdio::null())
            .spawn();
        let mut server = ServerProcess {
            process: process.expect("it starts"),
            from_server: BufReader::new(from_server),
            to_server,
        };
        let client = json!({"name": "hostile", "version": "1.0"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        server.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        server.receive(0);
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to_server, "{message}").expect("it listens");
    }

    fn call(&mut self, id: u64, tool: &str) {
        let params = json!({"name": tool, "arguments": {}});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// Returns the next message with this id.
    fn receive(&mut self, id: u64) -> Value {
        loop {
            let message = self.next_message();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Returns the next message, and skips the output of the test harness.
    fn next_message(&mut self) -> Value {
        loop {
            let mut line = String::new();
            let len = self.from_server.read_line(&mut line).expect("it answers");
            assert_ne!(len, 0, "the server closed its output");
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

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number of concurrent requests that the server accepts.
const REQUESTS: usize = 8;

#[test]
fn role_server() {
    if std::env::var(ROLE).as_deref() != Ok("role_server") {
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
        Some("panic") => panic!("intentional panic"),
        Some("for ever") => loop {
            thread::park();
        },
        _ => Ok(Payload::of(&json!({"content": []})).expect("it is JSON")),
    }
}

#[test]
fn threads_of_cancelled_requests_are_bounded() {
    let (to_server, stdin) = UnixStream::pair().expect("descriptors");
    let mut server = ServerProcess::start(stdin.into(), to_server);
    let before = server.threads();
    for id in 1..=100 {
        server.call(id, "for ever");
        let params = json!({"requestId": id});
        server.send(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
        );
    }
    // The reply to this request shows that all messages before it were handled.
    server.send(&json!({"jsonrpc": "2.0", "id": 1000, "method": "ping"}));
    server.receive(1000);
    let new_threads = server.threads() - before;
    assert!(
        new_threads <= REQUESTS,
        "{new_threads} threads run for cancelled requests"
    );
}

#[test]
fn server_answers_after_handlers_panicked() {
    let (to_server, stdin) = UnixStream::pair().expect("descriptors");
    let mut server = ServerProcess::start(stdin.into(), to_server);
    for id in 1..=20 {
        server.call(id, "panic");
        assert!(server.receive(id)["error"].is_object());
    }
    server.call(21, "anything");
    assert!(server.receive(21)["result"].is_object());
}

#[test]
fn server_leaves_its_socket_in_blocking_mode() {
    let (to_server, stdin) = UnixStream::pair().expect("descriptors");
    let shared = stdin.try_clone().expect("descriptors");
    let mut server = ServerProcess::start(stdin.into(), to_server);
    server.call(1, "anything");
    server.receive(1);
    let flags = fcntl_getfl(&shared).expect("a descriptor");
    assert!(!flags.contains(OFlags::NONBLOCK));
}

#[test]
fn answers_are_written_while_other_handlers_block() {
    // The scheduler decides which thread takes which task; 20 rounds include bad cases.
    for _ in 0..20 {
        let (to_server, stdin) = UnixStream::pair().expect("descriptors");
        let mut server = ServerProcess::start(stdin.into(), to_server);
        let calls = (1..=6).map(|id| {
            let tool = if id <= 3 { "anything" } else { "for ever" };
            let params = json!({"name": tool, "arguments": {}});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        });
        // Written at once, so that one thread may take several of them.
        let calls: Vec<_> = calls.map(|call| format!("{call}\n")).collect();
        let said = server.to_server.write_all(calls.concat().as_bytes());
        said.expect("it listens");
        let answered: HashSet<_> = (0..3)
            .map(|_| server.next_message()["id"].as_u64())
            .collect();
        assert_eq!(answered, HashSet::from([Some(1), Some(2), Some(3)]));
    }
}

/// Returns all messages of a client that wants one reply.
fn client_messages() -> Vec<u8> {
    let client = json!({"name": "hostile", "version": "1.0"});
    let initialize_params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let said = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize_params}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    ];
    said.map(|message| format!("{message}\n")).concat().into()
}

/// Starts a server with this standard input, and returns its output after it has ended by itself.
fn output_of_server(stdin: OwnedFd) -> String {
    let mut command = role("role_server");
    command.stdin(stdin).stderr(Stdio::null());
    let output = with_timeout("a server whose client has left", move || command.output());
    String::from_utf8_lossy(&output.expect("it starts").stdout).into()
}

#[test]
fn standard_input_of_any_file_type_is_read_to_its_end() {
    let (socket, mut other) = UnixStream::pair().expect("descriptors");
    other.write_all(&client_messages()).expect("there is room");
    drop(other);
    assert!(
        output_of_server(socket.into()).contains(r#""id":1"#),
        "a socket"
    );

    let (pipe, other) = pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    fs::File::from(other)
        .write_all(&client_messages())
        .expect("room");
    assert!(output_of_server(pipe).contains(r#""id":1"#), "a pipe");

    let temp_file = TempFile::new("visit");
    fs::write(&temp_file.0, client_messages()).expect("a file");
    let file = fs::File::open(&temp_file.0).expect("it is there");
    assert!(
        output_of_server(file.into()).contains(r#""id":1"#),
        "a file"
    );

    let temp_file = TempFile::new("named");
    let made = Command::new("mkfifo").arg(&temp_file.0).status();
    assert!(made.is_ok_and(|made| made.success()));
    // Both ends are opened before the server reads, and the write end is closed by then.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let named =
        rustix::fs::open(&temp_file.0, flags, rustix::fs::Mode::empty()).expect("it is there");
    fs::write(&temp_file.0, client_messages()).expect("there is room");
    fcntl_setfl(&named, OFlags::empty()).expect("a descriptor");
    assert!(
        output_of_server(named).contains(r#""id":1"#),
        "a pipe with a name"
    );
}

#[test]
fn server_leaves_its_pipes_in_blocking_mode() {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    let ((stdin, to_server), (from_server, stdout)) = (pipe(), pipe());
    let shared = [&stdin, &stdout].map(|fd| fd.try_clone().expect("descriptors"));
    let process = role("role_server").stdin(stdin).stdout(stdout).spawn();
    let mut process = process.expect("it starts");
    let mut to_server = fs::File::from(to_server);
    to_server
        .write_all(&client_messages())
        .expect("there is room");
    let from_server = BufReader::new(fs::File::from(from_server));
    let answered = with_timeout("an answer", move || {
        let mut lines = from_server.lines().map_while(Result::ok);
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
struct CallsFunction<F>(F);

impl<F: Fn() + Send + Sync> Wake for CallsFunction<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Calls `then` once, when the link sends its next event.
fn on_next_event(link: &Link, then: impl Fn() + Send + Sync + 'static) -> impl Sized {
    let mut events = link.events();
    let mut next = Box::pin(async move { events.recv().await });
    let waker = Waker::from(Arc::new(CallsFunction(then)));
    let polled = next.as_mut().poll(&mut task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    next
}

/// If the waker ran under a lock of the link, this would deadlock.
#[test]
fn waker_may_call_the_link() {
    with_timeout("a waker", || {
        let link = connect(sh("cat > /dev/null"), config_with_short_graces()).expect("a thread");
        let (sender, receiver) = mpsc::channel();
        let (link_clone, sender) = (link.clone(), Mutex::new(sender));
        let _next = on_next_event(&link, move || {
            let called = (link_clone.state(), link_clone.events(), link_clone.stats());
            let _ = sender.lock().expect("nobody panicked").send(called.2);
        });
        drop(link.ready());
        let stats = receiver.recv().expect("it was woken");
        stats.wait().expect("the link goes on");
    });
}

#[test]
fn panicking_waker_does_not_end_the_link() {
    with_timeout("a link", || {
        let link = connect(sh("cat > /dev/null"), config_with_short_graces()).expect("a thread");
        let (sender, receiver) = mpsc::channel();
        let sender = Mutex::new(sender);
        let _next = on_next_event(&link, move || {
            let _ = sender.lock().map(|sender| sender.send(()));
            panic!("intentional panic");
        });
        drop(link.ready());
        receiver.recv().expect("it was woken");
        link.stats().wait().expect("the link goes on");
        link.shutdown().wait().expect("and ends in order");
    });
}
