//! What a check works with: links of the driver under test, their processes, and a directory for files. Must not depend on any check.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use everlink::client::{Ended, Event, Failure, Session, State};
use everlink::{Config, ExitStatus, Limit, Stats, WhenSpent};
use everlink_handle::{Call, CallError, Events, Link, NotReady, ToolResult};
use serde::Serialize;
use serde_json::json;

use crate::driver::{Connect, Driver};
use crate::expect::{await_soon, expect, expect_eq, expect_soon, wait_until};
use crate::processes::{Process, ProcessSet};
use crate::resources::Resources;

/// The run of one check with one driver.
pub(crate) struct Harness<'a> {
    pub(crate) driver: &'a dyn Driver,
    pub(crate) processes: ProcessSet,
    pub(crate) connect: &'a Connect<'a>,
    /// The directory for files of the check.
    pub(crate) scratch_dir: &'a Path,
}

impl Harness<'_> {
    /// A link to a bad child with these options.
    #[track_caller]
    pub(crate) fn link(&self, options: &[&str], config: Config) -> Link {
        self.link_to(self.processes.bad_child(options), config)
    }

    #[track_caller]
    pub(crate) fn link_to(&self, command: Command, config: Config) -> Link {
        match (self.connect)(command, config) {
            Ok(link) => link,
            Err(error) => panic!("expected a link from the driver, found the error: {error}"),
        }
    }

    /// Returns the path of a file in the scratch directory of this check. Does not create the file.
    pub(crate) fn scratch_file(&self, name: &str) -> PathBuf {
        self.scratch_dir.join(name)
    }

    /// The option that makes the child write a log.
    pub(crate) fn log_option(&self) -> String {
        format!("log={}", self.scratch_file("log").display())
    }

    /// Returns the lines that the child has written to its log. Empty if there is no log.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        let log = fs::read_to_string(self.scratch_file("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// The one process of the check. With several, the first one.
    #[track_caller]
    pub(crate) fn child(&self) -> Process {
        let mut alive = self.processes.alive();
        expect("the child process runs", !alive.is_empty(), &alive);
        alive.remove(0)
    }

    /// Waits for the process that has this argument, and returns it.
    #[track_caller]
    pub(crate) fn process_with_arg(&self, arg: &str) -> Process {
        let mut found = None;
        // One look that finds it is enough. During `exec`, a process has no arguments for a moment.
        expect_soon(&format!("a process with the argument {arg}"), || {
            let mut alive = self.processes.alive().into_iter();
            found = alive.find(|it| it.has_arg(arg));
            found.is_some()
        });
        found.expect("checked above")
    }

    /// Whether all of these processes are gone.
    pub(crate) fn are_gone(&self, processes: &[Process]) -> bool {
        let alive = self.processes.alive();
        processes
            .iter()
            .all(|it| alive.iter().all(|alive| alive.pid != it.pid))
    }

    /// Expects that right now no process of the check exists, and that this process has no child, not even a zombie.
    #[track_caller]
    pub(crate) fn expect_no_processes(&self) {
        expect_eq("processes of the link", self.processes.alive(), []);
        let children = Resources::snapshot().children;
        expect_eq(
            "children of this process, zombies included",
            children,
            [""; 0],
        );
    }

    /// Waits until no process of the check exists.
    #[track_caller]
    pub(crate) fn wait_for_no_processes(&self) {
        let is_empty = || self.processes.alive().is_empty();
        if !wait_until(is_empty) {
            let left = self.processes.alive();
            panic!("expected that no process of the link is left. Found: {left:#?}");
        }
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

/// Shortcuts for links in checks. Each wait has a limit.
pub(crate) trait LinkExt {
    /// Calls a tool of the bad child.
    fn tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult>;

    /// Connects, and waits until the link is ready, parked or closed.
    fn settled(&self) -> Result<Arc<Session>, NotReady>;

    /// Connects, and waits until the link is ready.
    fn wait_ready(&self);

    /// Waits until the link is ready in this epoch.
    fn wait_ready_in(&self, epoch: u64);

    /// Connects, and returns how the attempt failed.
    fn not_ready(&self) -> NotReady;

    /// The id of the process that answers.
    fn server_pid(&self) -> i32;

    fn counters(&self) -> Stats;

    /// How the last epoch ended.
    fn ended(&self) -> Arc<Ended>;

    /// Shuts the link down, and returns how its last epoch ended.
    fn shut_down(&self) -> Arc<Ended>;

    /// Shuts the link down.
    fn close(&self);

    /// Starts a call of a tool with this idle timeout.
    fn tool_within(
        &self,
        idle: Duration,
        name: &str,
        arguments: impl Serialize,
    ) -> Call<ToolResult>;
}

impl LinkExt for Link {
    fn tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult> {
        self.call_tool(name, arguments).start()
    }

    #[track_caller]
    fn settled(&self) -> Result<Arc<Session>, NotReady> {
        await_soon("the link is ready or parked", self.ready())
    }

    #[track_caller]
    fn wait_ready(&self) {
        if let Err(not_ready) = self.settled() {
            panic!("expected that the link becomes ready. Found: {not_ready}");
        }
    }

    #[track_caller]
    fn wait_ready_in(&self, epoch: u64) {
        expect_soon(&format!("the link is ready in epoch {epoch}"), || {
            self.epoch().number() == epoch && self.state() == State::Ready
        });
    }

    #[track_caller]
    fn not_ready(&self) -> NotReady {
        match self.settled() {
            Err(not_ready) => not_ready,
            Ok(_) => panic!("expected that the link cannot connect. Found: it is ready"),
        }
    }

    #[track_caller]
    fn server_pid(&self) -> i32 {
        let text = reply(self.tool("pid", json!({}))).text();
        text.parse().expect("the bad child replies with a number")
    }

    #[track_caller]
    fn counters(&self) -> Stats {
        let stats = await_soon("the link returns its counters", self.stats());
        stats.unwrap_or_else(|_| panic!("expected that the link is driven. Its driver is gone"))
    }

    #[track_caller]
    fn ended(&self) -> Arc<Ended> {
        let ended = self.last_end();
        ended.unwrap_or_else(|| panic!("expected that an epoch of the link has ended. None has"))
    }

    #[track_caller]
    fn shut_down(&self) -> Arc<Ended> {
        self.close();
        expect_eq("the state after `shutdown`", self.state(), State::Closed);
        self.ended()
    }

    #[track_caller]
    fn close(&self) {
        let closed = await_soon("`shutdown` completes", self.shutdown());
        closed.unwrap_or_else(|_| panic!("expected that `shutdown` succeeds. The driver is gone"));
    }

    fn tool_within(
        &self,
        idle: Duration,
        name: &str,
        arguments: impl Serialize,
    ) -> Call<ToolResult> {
        self.call_tool(name, arguments).idle_timeout(idle).start()
    }
}

/// Waits for the outcome of a call.
#[track_caller]
pub(crate) fn outcome(call: Call<ToolResult>) -> Result<ToolResult, CallError> {
    await_soon("the call ends, with a reply or a failure", call)
}

/// Waits for the reply to a call. Panics if the call fails.
#[track_caller]
pub(crate) fn reply(call: Call<ToolResult>) -> ToolResult {
    match outcome(call) {
        Ok(reply) => reply,
        Err(error) => panic!("expected a reply to a call. Found: {error}"),
    }
}

/// Waits for the failure of a call. Panics on any other outcome.
#[track_caller]
pub(crate) fn failure(call: Call<ToolResult>) -> Failure {
    failed(outcome(call))
}

/// The failure in an outcome that must be one.
#[track_caller]
pub(crate) fn failed(outcome: Result<ToolResult, CallError>) -> Failure {
    match outcome {
        Err(CallError::Failed(failure)) => *failure,
        Ok(reply) => panic!(
            "expected that a call fails. It was answered: {}",
            reply.text()
        ),
        Err(other) => panic!("expected that a call fails at the server. Found: {other}"),
    }
}

/// Waits for the next event. Returns `None` after the last one.
#[track_caller]
pub(crate) fn next_event(events: &mut Events<Event>) -> Option<Arc<Event>> {
    await_soon("another event of the link", events.recv())
}

/// Expects an epoch to have ended with this exit status of its child.
#[track_caller]
pub(crate) fn expect_exit(ended: &Ended, expected: ExitStatus) {
    if ended.exit != Some(expected) {
        let found = ended.exit;
        panic!(
            "the exit status of the child: expected {:?}, found {found:?}. The epoch ended so: {ended}",
            Some(expected)
        );
    }
}
