//! The script of a run: its setup and its timed steps. Generated from a seed, written as text and parsed. Must not run anything.

use std::fmt;
use std::str::SplitWhitespace;

use everlink_simulation::{BadScript, Rng, Words, script_enum, script_line};

use crate::Script;

script_enum! {
    /// The transports between the application and the last server.
    pub enum Shape {
        /// A child process.
        Child = "child",
        /// A connected socket.
        Socket = "socket",
        /// HTTP.
        Http = "http",
        /// A relay as a child process, with another child process behind it.
        ChildChild = "child-child",
        /// A relay as a child process, with HTTP behind it.
        ChildHttp = "child-http",
        /// A relay over HTTP, with a child process behind it.
        HttpChild = "http-child",
        /// A relay over HTTP, with HTTP behind it.
        HttpHttp = "http-http",
    }
}

script_enum! {
    /// The last server.
    pub enum Peer {
        /// The server end of the library.
        Everlink = "everlink",
        /// A small server of the legacy era, written for the simulator.
        Legacy = "legacy",
        /// A small server of the modern era, written for the simulator.
        Modern = "modern",
    }
}

script_enum! {
    /// The era of the client.
    pub enum Dialect {
        /// The client detects it.
        Automatic = "automatic",
        /// Legacy only.
        Legacy = "legacy-only",
        /// Modern only.
        Modern = "modern-only",
    }
}

script_enum! {
    /// The timeouts of the client and the relay.
    pub enum Pace {
        /// Short timeouts.
        Brisk = "brisk",
        /// Short timeouts; the link closes when its retry budget is spent.
        Final = "final",
        /// The policy for a user who waits.
        Interactive = "interactive",
        /// The policy for background work.
        Background = "background",
    }
}

script_enum! {
    /// The limits of the client.
    pub enum Room {
        /// The default limits.
        Wide = "wide",
        /// Very small limits.
        Tight = "tight",
    }
}

script_enum! {
    /// What the application does.
    pub enum Action {
        /// Answers the oldest open question.
        Answer = "answer",
        /// Calls a tool that must not run twice.
        Call = "call",
        /// Calls an idempotent tool.
        CallIdempotent = "call-idempotent",
        /// Cancels a call.
        Cancel = "cancel",
        /// Connects the link.
        Connect = "connect",
        /// Requests a list.
        List = "list",
        /// Sends a notification to the server.
        Notify = "notify",
        /// Reads a resource.
        Read = "read",
        /// Replaces the transport.
        Reconnect = "reconnect",
        /// Tries to replace a transport that is gone.
        ReconnectOld = "reconnect-old",
        /// Shuts the link down.
        Shutdown = "shutdown",
        /// Reports that the network is back.
        Wake = "wake",
        /// Changes the watch.
        Watch = "watch",
    }
}

script_enum! {
    /// The injected faults.
    pub enum Fault {
        // Processes.
        /// The process is killed.
        Kill = "kill",
        /// The process exits.
        Exit = "exit",
        /// The process dies in the middle of a write.
        DieWriting = "die-writing",
        /// The process stops for a while.
        Freeze = "freeze",
        /// The next processes cannot be spawned.
        OpenFails = "open-fails",
        /// The next process takes long to open.
        OpenSlow = "open-slow",
        /// The process ignores the end of its input and `SIGTERM`.
        Deaf = "deaf",
        /// The exit of the process is never reported.
        Undead = "undead",
        /// A descendant holds the output of the process after its exit.
        Orphan = "orphan",
        /// The process closes its output and runs on.
        CloseOutput = "close-output",
        /// The process closes its input and runs on.
        CloseInput = "close-input",
        /// The process writes many lines to standard error.
        Stderr = "stderr",

        // Networks.
        /// Connections are refused for a while.
        Refuse = "refuse",
        /// The host name cannot be resolved for a while, or the host cannot be reached.
        NameLost = "name-lost",
        /// All open exchanges are reset.
        Reset = "reset",
        /// The next response is cut.
        CutResponse = "cut-response",
        /// The next request is cut.
        CutRequest = "cut-request",
        /// Requests vanish for a while.
        BlackHole = "black-hole",
        /// Everything takes longer from now on.
        Latency = "latency",
        /// A proxy answers instead of the server for a while.
        ProxyStatus = "proxy-status",
        /// A proxy buffers each response until it is complete.
        ProxyBuffers = "proxy-buffers",
        /// A proxy cuts idle exchanges.
        ProxyIdle = "proxy-idle",
        /// A proxy answers with an HTML page.
        ProxyPage = "proxy-page",
        /// The server requires credentials.
        Challenge = "challenge",

        // Servers.
        /// The server restarts at once.
        Restart = "restart",
        /// The server is down for a while, then a new one starts.
        Down = "down",
        /// The server answers slowly.
        Slow = "slow",
        /// The server does not answer the next calls.
        Mute = "mute",
        /// The server answers the next calls with an application error.
        AppError = "app-error",
        /// The server writes useless bytes.
        Garbage = "garbage",
        /// The server answers an unknown id.
        WrongId = "wrong-id",
        /// The server answers everything twice.
        Twice = "twice",
        /// The next answers of the server are too large.
        Oversized = "oversized",
        /// The server sends many change notifications.
        Changes = "changes",
        /// The server asks a question.
        Asks = "asks",
        /// The server sends many progress notifications.
        Progress = "progress",
        /// The next server speaks the other era.
        OtherEra = "other-era",
        /// The next servers refuse the handshake.
        RefuseHandshake = "refuse-handshake",

        // Drivers and their clocks.
        /// The driver does nothing for a while.
        Stall = "stall",
        /// The driver polls no output for a while.
        LatePoll = "late-poll",
        /// The clock jumps forward.
        ClockForward = "clock-forward",
        /// The clock jumps back.
        ClockBack = "clock-back",
        /// The driver delivers an input of a transport that is gone.
        Stale = "stale",
    }
}

script_line! {
    /// The setup of a run.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Setup: "seed ", "seed NUMBER SHAPE PEER DIALECT PACE ROOM" {
        /// The seed for random decisions of the world.
        pub seed: u64,
        /// The transports.
        pub shape: Shape,
        /// The last server.
        pub peer: Peer,
        /// The era.
        pub dialect: Dialect,
        /// The timeouts.
        pub pace: Pace,
        /// The limits.
        pub room: Room,
    }
}

script_line! {
    /// A step of a script.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Step: "+", "+MILLISECONDS do|fail WORD NUMBER" {
        /// The delay since the step before, in milliseconds.
        pub after: u32,
        /// The action or the fault.
        pub kind: StepKind,
        /// A parameter: a duration, an index or a variant, depending on the kind.
        pub parameter: u32,
    }
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// An action of the application.
    Do(Action),
    /// A fault of the world.
    Fail(Fault),
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepKind::Do(action) => write!(f, "do {action}"),
            StepKind::Fail(fault) => write!(f, "fail {fault}"),
        }
    }
}

impl Words for StepKind {
    fn read(words: &mut SplitWhitespace<'_>) -> Option<Result<StepKind, BadScript>> {
        Some(match words.next()? {
            "do" => Action::read(words)?.map(StepKind::Do),
            "fail" => Fault::read(words)?.map(StepKind::Fail),
            other => Err(BadScript(format!("`{other}` is neither `do` nor `fail`"))),
        })
    }
}

/// A script has at most this many steps.
const MAX_STEPS: u64 = 60;

/// The script of this seed.
pub(crate) fn from_seed(seed: u64) -> Script {
    let mut rng = Rng::new(seed, 1);
    let shape = rng.pick(&[
        Shape::Child,
        Shape::Child,
        Shape::Child,
        Shape::Socket,
        Shape::Http,
        Shape::Http,
        Shape::Http,
        Shape::ChildChild,
        Shape::ChildHttp,
        Shape::HttpChild,
        Shape::HttpHttp,
    ]);
    let peer = rng.pick(Peer::ALL);
    let dialect = match (rng.below(8), peer) {
        (0, Peer::Modern | Peer::Everlink) => Dialect::Modern,
        (1, Peer::Legacy | Peer::Everlink) => Dialect::Legacy,
        _ => Dialect::Automatic,
    };
    let pace = rng.pick(&[
        Pace::Brisk,
        Pace::Brisk,
        Pace::Brisk,
        Pace::Final,
        Pace::Interactive,
        Pace::Interactive,
        Pace::Background,
    ]);
    let room = if rng.one_in(6) {
        Room::Tight
    } else {
        Room::Wide
    };
    let setup = Setup {
        seed,
        shape,
        peer,
        dialect,
        pace,
        room,
    };
    let steps = steps(&setup, &mut rng);
    Script { setup, steps }
}

/// Each fault has a random weight in each script, and many have none, so that some scripts focus on few faults.
fn steps(setup: &Setup, rng: &mut Rng) -> Vec<Step> {
    let mut faults: Vec<Fault> = Vec::new();
    for fault in Fault::ALL {
        if rng.one_in(3) && fault.applies_to(setup) {
            let weight = 1 + rng.below(8);
            faults.extend((0..weight).map(|_| *fault));
        }
    }
    let max_delay = match setup.pace {
        Pace::Brisk | Pace::Final => 8_000,
        Pace::Interactive => 120_000,
        Pace::Background => 900_000,
    };
    let fault_share = 20 + rng.below(60);
    let count = 4 + rng.below(MAX_STEPS);
    let mut steps = Vec::new();
    if !rng.one_in(50) {
        steps.push(Step::immediate(StepKind::Do(Action::Connect)));
    }
    for _ in 0..count {
        let is_fault = rng.below(100) < fault_share && !faults.is_empty();
        let kind = if is_fault {
            StepKind::Fail(rng.pick(&faults))
        } else {
            StepKind::Do(random_action(rng))
        };
        let after = if rng.one_in(3) {
            0
        } else {
            rng.millis(1, max_delay)
        };
        steps.push(Step {
            after: u32::try_from(after).expect("minutes"),
            kind,
            parameter: u32::try_from(rng.next_u64() >> 40).expect("24 bits"),
        });
    }
    // In some scripts, nothing happens for hours or days. Short timeouts would only bring more probes.
    let is_patient = matches!(setup.pace, Pace::Interactive | Pace::Background);
    if is_patient && rng.one_in(4) {
        let at = rng.below(steps.len() as u64);
        let pause = rng.millis(3_600_000, 172_800_000);
        steps[usize::try_from(at).expect("few steps")].after =
            u32::try_from(pause).expect("two days");
    }
    steps
}

fn random_action(rng: &mut Rng) -> Action {
    match rng.below(100) {
        0..34 => Action::Call,
        34..44 => Action::CallIdempotent,
        44..54 => Action::Read,
        54..62 => Action::List,
        62..70 => Action::Cancel,
        70..74 => Action::Connect,
        74..78 => Action::Notify,
        78..83 => Action::Reconnect,
        83..85 => Action::ReconnectOld,
        85..89 => Action::Wake,
        89..94 => Action::Watch,
        94..98 => Action::Answer,
        _ if rng.one_in(4) => Action::Shutdown,
        _ => Action::Call,
    }
}

impl Step {
    const fn immediate(kind: StepKind) -> Step {
        Step {
            after: 0,
            kind,
            parameter: 0,
        }
    }
}

impl Shape {
    /// The legs from the application to the last server: true for HTTP.
    pub(crate) const fn legs(self) -> &'static [bool] {
        match self {
            Shape::Child | Shape::Socket => &[false],
            Shape::Http => &[true],
            Shape::ChildChild => &[false, false],
            Shape::ChildHttp => &[false, true],
            Shape::HttpChild => &[true, false],
            Shape::HttpHttp => &[true, true],
        }
    }
}

/// The part of the system that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultArea {
    Driver,
    Network,
    Process,
    Server,
}

impl Fault {
    pub(crate) const fn area(self) -> FaultArea {
        match self {
            Fault::Deaf
            | Fault::Undead
            | Fault::Orphan
            | Fault::Exit
            | Fault::DieWriting
            | Fault::CloseInput
            | Fault::CloseOutput
            | Fault::Stderr
            | Fault::OpenFails
            | Fault::OpenSlow
            | Fault::Freeze
            | Fault::Kill => FaultArea::Process,
            Fault::Refuse
            | Fault::NameLost
            | Fault::Reset
            | Fault::CutResponse
            | Fault::CutRequest
            | Fault::BlackHole
            | Fault::ProxyStatus
            | Fault::ProxyBuffers
            | Fault::ProxyIdle
            | Fault::ProxyPage
            | Fault::Challenge
            | Fault::Restart
            | Fault::Down => FaultArea::Network,
            Fault::Garbage
            | Fault::WrongId
            | Fault::Twice
            | Fault::Oversized
            | Fault::RefuseHandshake
            | Fault::OtherEra
            | Fault::Slow
            | Fault::Mute
            | Fault::AppError
            | Fault::Changes
            | Fault::Asks
            | Fault::Progress => FaultArea::Server,
            Fault::Latency
            | Fault::Stall
            | Fault::LatePoll
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::Stale => FaultArea::Driver,
        }
    }

    /// Whether the setup has the part that the fault affects.
    fn applies_to(self, setup: &Setup) -> bool {
        let legs = setup.shape.legs();
        let is_scripted = setup.peer != Peer::Everlink;
        match (self.area(), self) {
            (FaultArea::Process, _) => legs.contains(&false),
            (FaultArea::Network, _) => legs.contains(&true),
            // A client of one era cannot recover with a server of the other.
            (_, Fault::OtherEra) => is_scripted && setup.dialect == Dialect::Automatic,
            (
                _,
                Fault::Garbage
                | Fault::WrongId
                | Fault::Twice
                | Fault::Oversized
                | Fault::RefuseHandshake,
            ) => is_scripted,
            (FaultArea::Driver | FaultArea::Server, _) => true,
        }
    }
}
