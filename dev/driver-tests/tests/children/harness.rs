//! Runs a test in its own process, once for each adapter, and compares its resources before and after. Must not depend on any test.

use std::any::type_name;
use std::env::{current_exe, temp_dir};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, exit, id};
use std::thread;
use std::time::Duration;

use driver_tests::{ADAPTERS, Connect, Process, ProcessSet, Resources, wait_until};
use everlink::client::{CallOptions, Ended, Failure, State};
use everlink::{Config, Limit, WhenSpent};
use everlink_handle::{Call, CallError, Link, ToolResult};
use serde::Serialize;
use serde_json::json;

/// The environment variable that marks the process of a single test.
const SINGLE_TEST: &str = "DRIVER_TESTS_ALONE";
/// The thread that spawns children. An adapter may leave it: it lives as long as the process.
const SPAWN_THREAD: &str = "everlink-spawn";
/// A test that takes longer fails as hung.
const TEST_LIMIT: Duration = Duration::from_secs(180);

/// One test: the adapter under test, its processes and its directory.
pub(crate) struct Harness<'a> {
    pub(crate) adapter: &'static str,
    pub(crate) processes: ProcessSet,
    connect: &'a Connect<'a>,
    /// The directory for files of the test.
    scratch_dir: PathBuf,
}

/// Runs the test with every adapter. Afterwards no process, thread or descriptor may be left.
///
/// Tests that share a process cannot tell their resources apart. So the test runs its own program again, with only itself selected.
pub(crate) fn for_each_adapter<F: Fn(&Harness<'_>)>(test: F) {
    if std::env::var_os(SINGLE_TEST).is_none() {
        return run_alone(type_name::<F>());
    }
    thread::spawn(|| {
        thread::sleep(TEST_LIMIT);
        eprintln!("the test hangs");
        exit(1);
    });
    for adapter in ADAPTERS {
        println!("{}", adapter.name);
        // A runtime allocates some resources for the life of the process. The first run allocates them, so that they do not count for a
        // link.
        adapter.run(|_| ());
        let before = count_resources();
        adapter.run(|connect| {
            let harness = Harness {
                adapter: adapter.name,
                processes: ProcessSet::new(),
                connect,
                scratch_dir: temp_dir().join(format!("driver-tests-{}-{}", id(), adapter.name)),
            };
            fs::create_dir(&harness.scratch_dir).expect("the directory is new");
            test(&harness);
            harness.wait_for_no_processes();
        });
        let is_as_before = wait_until(|| count_resources() == before);
        assert!(
            is_as_before,
            "before: {before}\nleft: {}",
            count_resources()
        );
    }
}

/// Runs the test that contains this closure again, alone in a new process.
fn run_alone(closure: &str) {
    let path = closure.trim_end_matches("::{{closure}}");
    let (_, test) = path
        .split_once("::")
        .expect("the path starts with the crate");
    let mut program = Command::new(current_exe().expect("the test program has a path"));
    program.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let output = program
        .env(SINGLE_TEST, "1")
        .output()
        .expect("a test can be started");
    let printed = String::from_utf8_lossy(&output.stdout);
    let is_passed = output.status.success() && printed.contains("1 passed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(is_passed, "{}\n{printed}\n{errors}", output.status);
}

fn count_resources() -> Resources {
    let mut resources = Resources::snapshot();
    resources.threads.retain(|name| name != SPAWN_THREAD);
    resources
}

impl Harness<'_> {
    /// A link to a `bad-child` with these options.
    pub(crate) fn link(&self, options: &[&str], config: Config) -> Link {
        self.link_to(self.processes.bad_child(options), config)
    }

    pub(crate) fn link_to(&self, command: Command, config: Config) -> Link {
        (self.connect)(command, config).expect("a link can be opened")
    }

    /// The path of a file of this test.
    pub(crate) fn scratch_file(&self, name: &str) -> PathBuf {
        self.scratch_dir.join(name)
    }

    /// The option that makes the child write a log.
    pub(crate) fn log_option(&self) -> String {
        format!("log={}", self.scratch_file("log").display())
    }

    /// The lines of the log.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        let log = fs::read_to_string(self.scratch_file("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits for the process that has this argument, and returns it.
    pub(crate) fn process_with_arg(&self, arg: &str) -> Process {
        let mut found = None;
        // One look that finds it is enough. During `exec`, a process has no arguments for a moment.
        let is_there = wait_until(|| {
            let mut alive = self.processes.alive().into_iter();
            found = alive.find(|it| it.has_arg(arg));
            found.is_some()
        });
        assert!(is_there, "no process has the argument {arg}");
        found.expect("checked above")
    }

    /// Whether all of these processes are gone.
    pub(crate) fn are_gone(&self, processes: &[Process]) -> bool {
        let alive = self.processes.alive();
        processes
            .iter()
            .all(|it| alive.iter().all(|alive| alive.pid != it.pid))
    }

    /// Asserts that right now no process of the test exists, and that this process has no child, not even a zombie.
    pub(crate) fn assert_no_processes(&self) {
        assert_eq!(self.processes.alive(), []);
        assert_eq!(Resources::snapshot().children, [""; 0]);
    }

    /// Waits until no process of the test exists.
    pub(crate) fn wait_for_no_processes(&self) {
        let left = || self.processes.alive();
        assert!(wait_until(|| left().is_empty()), "left: {:#?}", left());
    }
}

impl Drop for Harness<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch_dir);
    }
}

/// A config with quick reconnects and timeouts of 60 s, so that a busy machine forces nothing.
pub(crate) fn long_timeouts() -> Config {
    let long = Duration::from_secs(60);
    let mut config = Config::child("driver-tests", "1.0");
    let policy = &mut config.policy;
    policy.probe_timeout = long;
    policy.call_idle = Limit::After(long);
    policy.close_grace = long;
    policy.terminate_grace = long;
    policy.kill_grace = long;
    policy.keepalive = None;
    policy.retry.first = millis(10);
    policy.retry.cap = millis(20);
    policy.retry.floor = millis(5);
    policy.retry.call_patience = Duration::ZERO;
    policy.retry.when_spent = WhenSpent::Park {
        probe: Duration::from_secs(600),
    };
    config
}

/// The same with close steps of 50 ms, for children that must be forced to end.
pub(crate) fn short_grace() -> Config {
    let mut config = long_timeouts();
    config.policy.close_grace = millis(50);
    config.policy.terminate_grace = millis(50);
    config
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Shortcuts for links in tests.
pub(crate) trait LinkExt {
    /// Calls a tool of the `bad-child`.
    fn tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult>;

    /// Waits until the link is ready.
    fn wait_ready(&self);

    /// The id of the process that answers.
    fn server_pid(&self) -> i32;

    /// Shuts the link down, and returns how its last epoch ended.
    fn shut_down(&self) -> std::sync::Arc<Ended>;

    /// The same link, with this idle limit for calls.
    fn with_idle_limit(&self, limit: Duration) -> Link;
}

impl LinkExt for Link {
    fn tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult> {
        self.call_tool(name, arguments)
    }

    fn wait_ready(&self) {
        let ready = self.ready().wait().expect("the link is driven");
        ready.expect("the server is there");
    }

    fn server_pid(&self) -> i32 {
        let reply = self
            .tool("pid", json!({}))
            .wait()
            .expect("the child answers");
        reply.text().parse().expect("a number")
    }

    fn shut_down(&self) -> std::sync::Arc<Ended> {
        self.shutdown().wait().expect("the link is driven");
        assert_eq!(self.state(), State::Closed);
        self.last_end().expect("the link had an epoch")
    }

    fn with_idle_limit(&self, limit: Duration) -> Link {
        self.with(CallOptions::new().with_idle(Limit::After(limit)))
    }
}

/// The failure of a call that must fail.
pub(crate) fn failure(outcome: Result<ToolResult, CallError>) -> Failure {
    match outcome {
        Err(CallError::Failed(failure)) => *failure,
        other => panic!("expected a failure: {other:?}"),
    }
}
