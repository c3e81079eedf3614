//! Where an ordeal takes place: in a process of its own, once for each adapter, and counted before and after. Knows no ordeal.

use std::any::type_name;
use std::env::{current_exe, temp_dir};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, exit, id};
use std::thread;
use std::time::Duration;

use everlink::client::{CallOptions, Ended, Failure, State};
use everlink::{Config, Limit, WhenSpent};
use everlink_handle::{Call, CallError, Link, ToolResult};
use ordeal::{ADAPTERS, Census, Connect, Family, Member, settles};
use serde::Serialize;
use serde_json::json;

/// Says that this process is for one ordeal alone.
const ALONE: &str = "ORDEAL_ALONE";
/// The few threads that an adapter may leave: they live as long as the process.
const STARTER: &str = "everlink-spawn";
/// An ordeal that takes longer hangs.
const TOO_LONG: Duration = Duration::from_secs(180);

/// What an ordeal finds.
pub(crate) struct Stage<'a> {
    pub(crate) adapter: &'static str,
    pub(crate) family: Family,
    connect: &'a Connect<'a>,
    /// Where its files lie.
    room: PathBuf,
}

/// Puts every adapter through this. Afterwards nothing may be left: no process, no thread, no descriptor.
///
/// Tests that run beside each other in one process cannot count what is theirs, so the test starts itself again, alone.
pub(crate) fn ordeal<F: Fn(&Stage<'_>)>(ordeal: F) {
    if std::env::var_os(ALONE).is_none() {
        return alone(type_name::<F>());
    }
    thread::spawn(|| {
        thread::sleep(TOO_LONG);
        eprintln!("the ordeal hangs");
        exit(1);
    });
    for adapter in ADAPTERS {
        println!("{}", adapter.name);
        // What a runtime keeps for as long as the process lives is not a link's.
        adapter.run(|_| ());
        let before = counted();
        adapter.run(|connect| {
            let stage = Stage {
                adapter: adapter.name,
                family: Family::new(),
                connect,
                room: temp_dir().join(format!("ordeal-{}-{}", id(), adapter.name)),
            };
            fs::create_dir(&stage.room).expect("it is nobody else's");
            ordeal(&stage);
            stage.everybody_leaves();
        });
        let is_as_before = settles(|| counted() == before);
        assert!(is_as_before, "before: {before}\nleft: {}", counted());
    }
}

/// The test that this closure stands in, once more, in a process where nothing else runs.
fn alone(closure: &str) {
    let path = closure.trim_end_matches("::{{closure}}");
    let (_, test) = path.split_once("::").expect("a closure stands in a crate");
    let mut itself = Command::new(current_exe().expect("a test knows where it lies"));
    itself.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let done = itself
        .env(ALONE, "1")
        .output()
        .expect("a test can be started");
    let said = String::from_utf8_lossy(&done.stdout);
    let is_passed = done.status.success() && said.contains("1 passed");
    let cried = String::from_utf8_lossy(&done.stderr);
    assert!(is_passed, "{}\n{said}\n{cried}", done.status);
}

fn counted() -> Census {
    let mut census = Census::take();
    census.threads.retain(|name| name != STARTER);
    census
}

impl Stage<'_> {
    /// A link to a rascal of these manners.
    pub(crate) fn link(&self, manners: &[&str], config: Config) -> Link {
        self.link_to(self.family.rascal(manners), config)
    }

    pub(crate) fn link_to(&self, command: Command, config: Config) -> Link {
        (self.connect)(command, config).expect("the system has room for a link")
    }

    /// A file for this ordeal alone.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.room.join(name)
    }

    /// The manner to keep a diary.
    pub(crate) fn diary(&self) -> String {
        format!("diary={}", self.scratch("diary").display())
    }

    /// What stands in the diary.
    pub(crate) fn entries(&self) -> Vec<String> {
        let diary = fs::read_to_string(self.scratch("diary")).unwrap_or_default();
        diary.lines().map(str::to_owned).collect()
    }

    /// The one member of the family that was started with this word, as soon as it is there.
    pub(crate) fn member(&self, word: &str) -> Member {
        let mut found = None;
        // Once is enough: while a process becomes another program, it has no words at all.
        let is_there = settles(|| {
            let mut members = self.family.members().into_iter();
            found = members.find(|it| it.has(word));
            found.is_some()
        });
        assert!(is_there, "nobody is {word}");
        found.expect("it is there")
    }

    /// Whether none of these is there any more.
    pub(crate) fn are_gone(&self, them: &[Member]) -> bool {
        let alive = self.family.members();
        them.iter()
            .all(|it| alive.iter().all(|alive| alive.pid != it.pid))
    }

    /// At this very moment there is nobody of the family, and no child of this process that was not reaped.
    pub(crate) fn nobody_is_left(&self) {
        assert_eq!(self.family.members(), []);
        assert_eq!(Census::take().children, [""; 0]);
    }

    /// Waits until nobody of the family is.
    pub(crate) fn everybody_leaves(&self) {
        let left = || self.family.members();
        assert!(settles(|| left().is_empty()), "left: {:#?}", left());
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.room);
    }
}

/// Quick to come back, and otherwise so patient that nothing is forced because the machine is busy.
pub(crate) fn patient() -> Config {
    let long = Duration::from_secs(60);
    let mut config = Config::child("ordeal", "1.0");
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

/// The same, for children that do not end before they are forced to.
pub(crate) fn stern() -> Config {
    let mut config = patient();
    config.policy.close_grace = millis(50);
    config.policy.terminate_grace = millis(50);
    config
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What ordeals do with links.
pub(crate) trait Use {
    /// Calls a tool of the rascal.
    fn tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult>;

    /// Waits until the link is ready.
    fn is_well(&self);

    /// Which process answers.
    fn pid(&self) -> i32;

    /// Shuts it down, and returns how its last life ended.
    fn ends(&self) -> std::sync::Arc<Ended>;

    /// The same, for calls that wait this long at most.
    fn within(&self, limit: Duration) -> Link;
}

impl Use for Link {
    fn tool(&self, name: &str, arguments: impl Serialize) -> Call<ToolResult> {
        self.call_tool(name, arguments)
    }

    fn is_well(&self) {
        let ready = self.ready().wait().expect("the link is driven");
        ready.expect("the server is there");
    }

    fn pid(&self) -> i32 {
        let said = self.tool("pid", json!({})).wait().expect("it is alive");
        said.text().parse().expect("a number")
    }

    fn ends(&self) -> std::sync::Arc<Ended> {
        self.shutdown().wait().expect("the link is driven");
        assert_eq!(self.state(), State::Closed);
        self.last_end().expect("it has had a life")
    }

    fn within(&self, limit: Duration) -> Link {
        self.with(CallOptions::new().with_idle(Limit::After(limit)))
    }
}

/// Why a call has no reply.
pub(crate) fn failure(outcome: Result<ToolResult, CallError>) -> Failure {
    match outcome {
        Err(CallError::Failed(failure)) => *failure,
        other => panic!("this is no failure: {other:?}"),
    }
}
