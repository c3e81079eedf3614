//! Tests the program on Windows, as a process. The servers are this program, too: `everlink demo-server`.
#![cfg(windows)]
#![allow(
    unsafe_code,
    reason = "processes and consoles of others are only available through the Windows API"
)]

use std::io::{self, BufRead, BufReader, Write};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::path::{self, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use everlink::Config;
use everlink_tokio::{CallError, Link, child};
use serde_json::{Value, json};
use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, OpenProcess, PROCESS_SYNCHRONIZE,
    PROCESS_TERMINATE, TerminateProcess, WaitForSingleObject,
};

const EVERLINK: &str = env!("CARGO_BIN_EXE_everlink");

/// A limit for every wait. No step takes this long, not even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a call takes that is in flight when its server ends. If the server does not end, the reply to the call fails the test.
const LONG_MS: u32 = 90_000;

#[test]
fn demo_keeps_every_promise_and_ends_in_order() {
    let demo = program()
        .args(["demo", "--seconds", "2", "--json"])
        .output();
    let demo = demo.expect("the program starts");
    assert_eq!(demo.status.code(), Some(0), "{}", shown(&demo));
    let report: Value = serde_json::from_slice(&demo.stdout).expect("a report");
    assert!(report["accepted"].as_u64() > Some(0), "{report}");
    assert_eq!(report["hung"], 0, "{report}");
    assert_eq!(report["lost"], 0, "{report}");
}

#[test]
fn call_inspect_and_watch_reach_a_server_that_is_a_script_in_path() {
    let scripts = ScriptDirectory::new();
    let run = |words: &[&str]| {
        let mut everlink = program();
        everlink.env("PATH", &scripts.path).args(words);
        everlink
            .args(["--", "everlink-demo-server"])
            .output()
            .expect("the program starts")
    };
    let message = "two words & \"quotes\"";
    let called = run(&["call", "echo", &format!("message={message}")]);
    assert_eq!(called.status.code(), Some(0), "{}", shown(&called));
    assert_eq!(String::from_utf8_lossy(&called.stdout).trim_end(), message);
    let inspected = run(&["inspect"]);
    assert!(
        shown(&inspected).contains("everlink-demo"),
        "{}",
        shown(&inspected)
    );

    let mut watch = program();
    watch
        .env("PATH", &scripts.path)
        .args(["watch", "--", "everlink-demo-server"]);
    let mut watch = Killed(
        watch
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts"),
    );
    let events = BufReader::new(watch.0.stdout.take().expect("it is piped"));
    let mut events = events.lines().map(|line| line.expect("it is text"));
    assert!(events.any(|line| line.contains("is ready")));
}

#[tokio::test]
async fn link_on_tokio_comes_back_after_its_server_is_killed_and_leaves_no_process() {
    let mut server = Command::new(EVERLINK);
    server.arg("demo-server");
    let mut config = Config::child("windows", "1.0");
    config.policy.retry.first = Duration::from_millis(10);
    let link = child::connect(server, config).expect("there is a runtime");
    let first = server_process(&link).await;
    let in_flight = link.call_tool("sleep", json!({"ms": LONG_MS})).start();
    // After the answer to a later call, the server has read the call in flight.
    assert_eq!(echo(&link, "first").await, "first");
    first.kill();
    let failure = in_flight.await.expect_err("its server is dead");
    assert!(matches!(failure, CallError::Failed(_)), "{failure}");
    assert_eq!(echo(&link, "second").await, "second");
    let second = server_process(&link).await;
    link.shutdown().await.expect("the link is driven");
    assert!(second.has_ended_within(TIMEOUT));
}

#[test]
fn guard_survives_the_kill_of_its_server_and_ends_it_with_its_input() {
    let (mut host, server) = host_with_call_in_flight(&mut program());
    server.kill();
    let lost = host.receive(3);
    assert_eq!(lost["result"]["isError"], true, "{lost}");
    let next_server = host.server_process();
    host.stdin = None;
    assert_eq!(host.exit_code(), Some(0));
    assert!(next_server.has_ended_within(TIMEOUT));
}

#[test]
fn servers_die_with_a_guard_that_is_killed() {
    let mut host = Host::start(&mut program());
    let server = host.server_process();
    // The server blocks 50 ms after its answer. Then it no longer sees the end of its input, so only its job can end it.
    host.call(3, "block", &json!({"ms": LONG_MS, "later": true}));
    host.receive(3);
    thread::sleep(Duration::from_millis(200));
    host.guard.0.kill().expect("it runs");
    assert!(server.has_ended_within(TIMEOUT));
}

#[test]
fn ctrl_c_ends_the_guard_and_its_server() {
    run_in_own_console("role_ctrl_c");
}

/// Wine 8 does not implement this event. There, this test ends early.
#[test]
fn ctrl_break_ends_the_guard_and_its_server() {
    run_in_own_console("role_ctrl_break");
}

/// Set for a process with a console that it shares with nobody.
const OWN_CONSOLE: &str = "EVERLINK_TEST_OWN_CONSOLE";

/// Runs one test of this program again, in a process with its own console, so that the events reach no other process.
fn run_in_own_console(role: &str) {
    let mut command = Command::new(env::current_exe().expect("a test knows where it lies"));
    command
        .args([role, "--exact", "--nocapture"])
        .env(OWN_CONSOLE, "1");
    // Such a process has a console, but the console has no window.
    let output = command.creation_flags(CREATE_NO_WINDOW).output();
    let output = shown(&output.expect("it can be started"));
    assert!(output.contains("test result: ok. 1 passed"), "{output}");
}

/// Not a test itself.
#[test]
fn role_ctrl_c() {
    if env::var_os(OWN_CONSOLE).is_none() {
        return;
    }
    let (host, server) = host_with_call_in_flight(&mut program());
    // This process ignores the event from here on. A guard that is started later would inherit that.
    // SAFETY: the handler may be null.
    assert_ne!(unsafe { SetConsoleCtrlHandler(None, 1) }, 0);
    // SAFETY: the call takes no pointer.
    let sent = unsafe { GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0) };
    assert_ne!(sent, 0, "{}", io::Error::last_os_error());
    assert_ends_in_order(host, &server);
}

/// Not a test itself.
#[test]
fn role_ctrl_break() {
    if env::var_os(OWN_CONSOLE).is_none() {
        return;
    }
    let (host, server) =
        host_with_call_in_flight(program().creation_flags(CREATE_NEW_PROCESS_GROUP));
    // SAFETY: the call takes no pointer.
    let sent = unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, host.guard.0.id()) };
    if sent == 0 && env::var_os("WINEPREFIX").is_some() {
        return;
    }
    assert_ne!(sent, 0, "{}", io::Error::last_os_error());
    assert_ends_in_order(host, &server);
}

fn host_with_call_in_flight(guard: &mut Command) -> (Host, OtherProcess) {
    let mut host = Host::start(guard);
    let server = host.server_process();
    host.call(3, "sleep", &json!({"ms": LONG_MS}));
    // After the answer to a later call, the server has read the call in flight. Before, the guard could still send it to another server.
    host.call(4, "echo", &json!({"message": ""}));
    host.receive(4);
    (host, server)
}

fn assert_ends_in_order(mut host: Host, server: &OtherProcess) {
    // An event that is not handled ends a process with another code.
    assert_eq!(host.exit_code(), Some(0));
    assert!(server.has_ended_within(TIMEOUT));
}

#[test]
fn adopt_finds_files_in_the_profile_and_undo_restores_them() {
    let profile = env::temp_dir().join(format!("everlink profile {}", process::id()));
    let _ = fs::remove_dir_all(&profile);
    let content = "{\r\n  \"mcpServers\": {\r\n    \"a\": {\"command\": \"cmd\", \"args\": [\"/c\", \"npx\"]}\r\n  }\r\n}\r\n";
    let directories = [
        profile.join("AppData").join("Roaming").join("Claude"),
        profile.join(".cursor"),
    ];
    let files = [
        directories[0].join("claude_desktop_config.json"),
        directories[1].join("mcp.json"),
    ];
    for (directory, file) in directories.iter().zip(&files) {
        fs::create_dir_all(directory).expect("a new directory");
        fs::write(file, content).expect("it can be written");
    }
    let adopt = |words: &[&str]| {
        let output = program()
            .env("USERPROFILE", &profile)
            .env("APPDATA", profile.join("AppData").join("Roaming"))
            .current_dir(&directories[0])
            .arg("adopt")
            .args(words)
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    };
    adopt(&["--write", "--program", "everlink"]);
    let guarded = content.replace("\"cmd\"", "\"everlink\"");
    let guarded = guarded.replace("[\"/c\"", "[\"guard\", \"--\", \"cmd\", \"/c\"");
    for file in &files {
        assert_eq!(fs::read_to_string(file).expect("a file"), guarded);
    }
    adopt(&["--check"]);
    adopt(&["--undo"]);
    for (directory, file) in directories.iter().zip(&files) {
        assert_eq!(fs::read_to_string(file).expect("a file"), content);
        assert_eq!(fs::read_dir(directory).expect("a directory").count(), 1);
    }
    let _ = fs::remove_dir_all(&profile);
}

#[test]
fn guard_stores_offers_in_the_local_application_data() {
    let directory = env::temp_dir().join(format!("everlink-data-{}", process::id()));
    let _ = fs::remove_dir_all(&directory);
    let mut host = Host::start(program().env("LOCALAPPDATA", &directory));
    host.stdin = None;
    assert_eq!(host.exit_code(), Some(0));
    let stored = fs::read_dir(directory.join("everlink")).expect("it was created");
    assert_eq!(stored.count(), 1);
    fs::remove_dir_all(directory).expect("nobody uses it");
}

/// Returns a command for the program, with a cache directory of its own.
fn program() -> Command {
    let mut program = Command::new(EVERLINK);
    program.env("LOCALAPPDATA", env::temp_dir().join("everlink-tests"));
    program
}

fn shown(output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{}\n{stdout}\n{stderr}", output.status)
}

async fn echo(link: &Link, message: &str) -> String {
    let result = link.call_tool("echo", json!({"message": message})).await;
    result.expect("it answers").text()
}

async fn server_process(link: &Link) -> OtherProcess {
    let pid = link.call_tool("pid", json!({})).await.expect("it answers");
    OtherProcess::open(&pid.text())
}

/// A directory in `PATH` with a script that starts a server. Dropping this removes it.
struct ScriptDirectory {
    directory: PathBuf,
    path: std::ffi::OsString,
}

impl ScriptDirectory {
    fn new() -> ScriptDirectory {
        let directory = env::temp_dir().join(format!("everlink scripts {}", process::id()));
        // A test that was killed may have left it, with the same process id.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("the directory is new");
        let program = path::absolute(EVERLINK).expect("there is a present directory");
        let program = program.display();
        let script = format!("@echo off\r\n\"{program}\" demo-server %*\r\n");
        fs::write(directory.join("everlink-demo-server.cmd"), script).expect("it can be written");
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = [directory.clone()]
            .into_iter()
            .chain(env::split_paths(&path));
        let path = env::join_paths(directories).expect("no directory has a quote in its name");
        ScriptDirectory { directory, path }
    }
}

impl Drop for ScriptDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A child process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host with a guard, which has a server.
struct Host {
    guard: Killed,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Host {
    /// Starts a guard, and does the handshake with its server.
    fn start(guard: &mut Command) -> Host {
        guard.args([
            "guard",
            "--log",
            "off",
            "--drain",
            "0.1",
            "--",
            EVERLINK,
            "demo-server",
        ]);
        guard.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = Killed(guard.spawn().expect("the program starts"));
        let stdin = guard.0.stdin.take();
        let stdout = BufReader::new(guard.0.stdout.take().expect("it is piped"));
        let mut host = Host {
            guard,
            stdin,
            stdout,
        };
        host.send(
            &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "host", "version": "1"},
            }}),
        );
        let reply = host.receive(1);
        assert!(reply["result"]["serverInfo"].is_object(), "{reply}");
        host.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        host
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("it is open");
        writeln!(stdin, "{message}").expect("the guard reads");
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// Returns the reply with this id, and skips all other messages.
    fn receive(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            let len = self.stdout.read_line(&mut line).expect("it is text");
            assert_ne!(len, 0, "the guard has ended");
            let message: Value = serde_json::from_str(&line).expect("it is JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    fn server_process(&mut self) -> OtherProcess {
        self.call(2, "pid", &json!({}));
        let reply = self.receive(2);
        let pid = reply["result"]["content"][0]["text"].as_str();
        OtherProcess::open(pid.unwrap_or_else(|| panic!("{reply}")))
    }

    /// Waits for the end of the guard.
    fn exit_code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.guard.0.try_wait().expect("it is a child") {
                return status.code();
            }
            assert!(start.elapsed() < TIMEOUT, "the guard does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A process that is not a child of this one.
struct OtherProcess(OwnedHandle);

impl OtherProcess {
    /// Opens a process that runs.
    fn open(pid: &str) -> OtherProcess {
        let pid = pid.parse().expect("a number");
        // SAFETY: the call takes no pointer.
        let handle = unsafe { OpenProcess(PROCESS_SYNCHRONIZE | PROCESS_TERMINATE, 0, pid) };
        assert!(!handle.is_null(), "there is no process {pid}");
        // SAFETY: the system has just created the handle, for us alone.
        let process = OtherProcess(unsafe { OwnedHandle::from_raw_handle(handle) });
        assert!(!process.has_ended_within(Duration::ZERO));
        process
    }

    fn kill(&self) {
        // SAFETY: the handle is owned, so it is open.
        assert_ne!(unsafe { TerminateProcess(self.0.as_raw_handle(), 1) }, 0);
    }

    fn has_ended_within(&self, limit: Duration) -> bool {
        let limit = u32::try_from(limit.as_millis()).expect("it is short");
        // SAFETY: the handle is owned, so it is open.
        unsafe { WaitForSingleObject(self.0.as_raw_handle(), limit) == WAIT_OBJECT_0 }
    }
}
