//! What a run is: how everything is set up, and what is done to it when. Made from a seed, written as text and read again.
//! Does nothing itself.

use std::fmt;
use std::str::FromStr;

use crate::chance::Chance;

/// An enum whose variants have names in scripts.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($name::$variant => $word,)+ })
            }
        }

        impl FromStr for $name {
            type Err = BadScript;

            fn from_str(word: &str) -> Result<$name, BadScript> {
                match word {
                    $($word => Ok($name::$variant),)+
                    _ => Err(BadScript(format!("`{word}` is none of: {}", [$($word),+].join(", ")))),
                }
            }
        }
    };
}

/// A text that is no script, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadScript(String);

impl fmt::Display for BadScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadScript {}

words! {
    /// What lies between the application and the last server.
    pub enum Shape {
        /// A child process.
        Child = "child",
        /// A connected socket.
        Socket = "socket",
        /// HTTP.
        Http = "http",
        /// A relay as a child process, and another behind it.
        ChildChild = "child-child",
        /// A relay as a child process, and HTTP behind it.
        ChildHttp = "child-http",
        /// A relay over HTTP, and a child process behind it.
        HttpChild = "http-child",
        /// A relay over HTTP, and HTTP behind it.
        HttpHttp = "http-http",
    }
}

words! {
    /// Who serves at the end.
    pub enum Peer {
        /// The server end of the library.
        Everlink = "everlink",
        /// A small server of the legacy era, written for the simulator.
        Legacy = "legacy",
        /// A small server of the modern era, written for the simulator.
        Modern = "modern",
    }
}

words! {
    /// Which era the client is to speak.
    pub enum Dialect {
        /// It finds out.
        Automatic = "automatic",
        /// Legacy.
        Legacy = "legacy-only",
        /// Modern.
        Modern = "modern-only",
    }
}

words! {
    /// How patient the client is.
    pub enum Pace {
        /// All spans are short.
        Brisk = "brisk",
        /// Short spans; when the attempts are used up, it is over.
        Final = "final",
        /// As for a person who waits.
        Interactive = "interactive",
        /// As for nobody who waits.
        Background = "background",
    }
}

words! {
    /// How much the client holds.
    pub enum Room {
        /// As much as by default.
        Wide = "wide",
        /// Hardly anything.
        Tight = "tight",
    }
}

words! {
    /// What the application does.
    pub enum Verb {
        /// Answers the oldest question that is open.
        Answer = "answer",
        /// Calls a tool that must not run twice.
        Call = "call",
        /// Calls a tool that may run again.
        CallAgain = "call-idempotent",
        /// Takes a call back.
        Cancel = "cancel",
        /// Wants the link.
        Connect = "connect",
        /// Asks for a list.
        List = "list",
        /// Tells the server something.
        Notify = "notify",
        /// Reads a resource.
        Read = "read",
        /// Wants another transport.
        Reconnect = "reconnect",
        /// Wants another transport than one that is gone.
        ReconnectOld = "reconnect-old",
        /// Wants the link no more.
        Shutdown = "shutdown",
        /// Says that the network is back.
        Wake = "wake",
        /// Watches something else.
        Watch = "watch",
    }
}

words! {
    /// What goes wrong.
    pub enum Fault {
        // Of processes.
        /// It is killed.
        Kill = "kill",
        /// It exits.
        Exit = "exit",
        /// It dies in the middle of what it writes.
        DieWriting = "die-writing",
        /// It stands still for a while.
        Freeze = "freeze",
        /// The next cannot be started.
        OpenFails = "open-fails",
        /// The next takes long to start.
        OpenSlow = "open-slow",
        /// It heeds neither the end of its input nor a request to end.
        Deaf = "deaf",
        /// Its end is never reported.
        Undead = "undead",
        /// Somebody whom it started holds its output when it has ended.
        Orphan = "orphan",
        /// It closes its output and goes on.
        CloseOutput = "close-output",
        /// It closes its input and goes on.
        CloseInput = "close-input",
        /// It writes a lot to its standard error.
        Stderr = "stderr",

        // Of networks.
        /// Nobody listens for a while.
        Refuse = "refuse",
        /// The address cannot be found for a while.
        NameLost = "name-lost",
        /// All that is open is cut.
        Reset = "reset",
        /// The next response is cut.
        CutResponse = "cut-response",
        /// The next request is cut on its way.
        CutRequest = "cut-request",
        /// Whatever is asked vanishes for a while.
        BlackHole = "black-hole",
        /// Everything takes long for a while.
        Latency = "latency",
        /// A proxy answers in the place of the server for a while.
        ProxyStatus = "proxy-status",
        /// A proxy passes responses on only when they are whole.
        ProxyBuffers = "proxy-buffers",
        /// A proxy cuts what is silent.
        ProxyIdle = "proxy-idle",
        /// A proxy answers with a page.
        ProxyPage = "proxy-page",
        /// Credentials are wanted.
        Challenge = "challenge",

        // Of servers.
        /// It is started anew, in no time.
        Restart = "restart",
        /// It is down for a while, then another takes its place.
        Down = "down",
        /// It takes long to answer.
        Slow = "slow",
        /// It does not answer the next call.
        Mute = "mute",
        /// It answers the next call with an error of its own.
        AppError = "app-error",
        /// It writes something of no use.
        Garbage = "garbage",
        /// It answers what nobody asked.
        WrongId = "wrong-id",
        /// It answers everything twice.
        Twice = "twice",
        /// Its next answer is too long.
        Oversized = "oversized",
        /// It says that things have changed, again and again.
        Changes = "changes",
        /// It asks something.
        Asks = "asks",
        /// It says how far it is, again and again.
        Progress = "progress",
        /// The next one speaks the other era.
        OtherEra = "other-era",
        /// The next one refuses the handshake.
        RefuseHandshake = "refuse-handshake",

        // Of drivers and their clocks.
        /// The driver does nothing for a while.
        Stall = "stall",
        /// The driver polls nothing for a while.
        LatePoll = "late-poll",
        /// The clock jumps forward.
        ClockForward = "clock-forward",
        /// The clock jumps back.
        ClockBack = "clock-back",
        /// The driver tells of a transport that is gone.
        Stale = "stale",
    }
}

/// How everything is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setup {
    /// What the world draws its own numbers from.
    pub seed: u64,
    /// What lies between.
    pub shape: Shape,
    /// Who serves.
    pub peer: Peer,
    /// Which era is spoken.
    pub dialect: Dialect,
    /// How patiently.
    pub pace: Pace,
    /// How much is held.
    pub room: Room,
}

/// Something that is done, so many milliseconds after what was done before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Act {
    /// After how many milliseconds.
    pub after: u32,
    /// What.
    pub what: What,
    /// How long, which, or how: what it means depends.
    pub how: u32,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// By the application.
    Do(Verb),
    /// By the world.
    Fail(Fault),
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Script {
    /// How it begins.
    pub setup: Setup,
    /// What happens.
    pub acts: Vec<Act>,
}

/// Not more is done in one run.
const ACTS: u64 = 60;

impl Script {
    /// The run of this seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Script {
        let mut chance = Chance::new(seed, 1);
        let shape = chance.pick(&[
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
        let peer = chance.pick(Peer::ALL);
        let dialect = match (chance.below(8), peer) {
            (0, Peer::Modern | Peer::Everlink) => Dialect::Modern,
            (1, Peer::Legacy | Peer::Everlink) => Dialect::Legacy,
            _ => Dialect::Automatic,
        };
        let pace = chance.pick(&[
            Pace::Brisk,
            Pace::Brisk,
            Pace::Brisk,
            Pace::Final,
            Pace::Interactive,
            Pace::Interactive,
            Pace::Background,
        ]);
        let room = if chance.once_in(6) {
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
        let acts = acts(&setup, &mut chance);
        Script { setup, acts }
    }
}

/// Each kind of fault has a weight of its own in each run, and many have none: so that some runs are all about one thing.
fn acts(setup: &Setup, chance: &mut Chance) -> Vec<Act> {
    let mut faults: Vec<Fault> = Vec::new();
    for fault in Fault::ALL {
        if chance.once_in(3) && fault.befalls(setup) {
            let weight = 1 + chance.below(8);
            faults.extend((0..weight).map(|_| *fault));
        }
    }
    let longest = match setup.pace {
        Pace::Brisk | Pace::Final => 8_000,
        Pace::Interactive => 120_000,
        Pace::Background => 900_000,
    };
    let fault_share = 20 + chance.below(60);
    let count = 4 + chance.below(ACTS);
    let mut acts = Vec::new();
    if !chance.once_in(50) {
        acts.push(Act::now(What::Do(Verb::Connect)));
    }
    for _ in 0..count {
        let is_fault = chance.below(100) < fault_share && !faults.is_empty();
        let what = if is_fault {
            What::Fail(chance.pick(&faults))
        } else {
            What::Do(verb(chance))
        };
        let after = if chance.once_in(3) {
            0
        } else {
            chance.millis(1, longest)
        };
        acts.push(Act {
            after: u32::try_from(after).expect("minutes"),
            what,
            how: u32::try_from(chance.draw() >> 40).expect("24 bits"),
        });
    }
    acts
}

fn verb(chance: &mut Chance) -> Verb {
    match chance.below(100) {
        0..34 => Verb::Call,
        34..44 => Verb::CallAgain,
        44..54 => Verb::Read,
        54..62 => Verb::List,
        62..70 => Verb::Cancel,
        70..74 => Verb::Connect,
        74..78 => Verb::Notify,
        78..83 => Verb::Reconnect,
        83..85 => Verb::ReconnectOld,
        85..89 => Verb::Wake,
        89..94 => Verb::Watch,
        94..98 => Verb::Answer,
        _ if chance.once_in(4) => Verb::Shutdown,
        _ => Verb::Call,
    }
}

impl Act {
    const fn now(what: What) -> Act {
        Act {
            after: 0,
            what,
            how: 0,
        }
    }
}

impl Shape {
    /// The legs from the application to the last server: whether each is HTTP.
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

/// What a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Realm {
    Driver,
    Network,
    Process,
    Server,
}

impl Fault {
    pub(crate) const fn realm(self) -> Realm {
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
            | Fault::Kill => Realm::Process,
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
            | Fault::Down => Realm::Network,
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
            | Fault::Progress => Realm::Server,
            Fault::Latency
            | Fault::Stall
            | Fault::LatePoll
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::Stale => Realm::Driver,
        }
    }

    /// Whether there is something that it could befall.
    fn befalls(self, setup: &Setup) -> bool {
        let legs = setup.shape.legs();
        let is_scripted = setup.peer != Peer::Everlink;
        match (self.realm(), self) {
            (Realm::Process, _) => legs.contains(&false),
            (Realm::Network, _) => legs.contains(&true),
            // A client of one era alone cannot get well with a server of the other.
            (_, Fault::OtherEra) => is_scripted && setup.dialect == Dialect::Automatic,
            (
                _,
                Fault::Garbage
                | Fault::WrongId
                | Fault::Twice
                | Fault::Oversized
                | Fault::RefuseHandshake,
            ) => is_scripted,
            (Realm::Driver | Realm::Server, _) => true,
        }
    }
}

/// One act a line, after a line for the setup.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            seed,
            shape,
            peer,
            dialect,
            pace,
            room,
        } = &self.setup;
        writeln!(f, "seed {seed} {shape} {peer} {dialect} {pace} {room}")?;
        for act in &self.acts {
            let Act { after, what, how } = act;
            match what {
                What::Do(verb) => writeln!(f, "+{after} do {verb} {how}")?,
                What::Fail(fault) => writeln!(f, "+{after} fail {fault} {how}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = BadScript;

    fn from_str(text: &str) -> Result<Script, BadScript> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let setup = lines.next().unwrap_or_default().parse()?;
        let acts = lines.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Script { setup, acts })
    }
}

impl FromStr for Setup {
    type Err = BadScript;

    fn from_str(line: &str) -> Result<Setup, BadScript> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["seed", seed, shape, peer, dialect, pace, room] = words[..] else {
            let wanted = "seed NUMBER SHAPE PEER DIALECT PACE ROOM";
            return Err(BadScript(format!("`{line}` is not `{wanted}`")));
        };
        Ok(Setup {
            seed: number(seed)?,
            shape: shape.parse()?,
            peer: peer.parse()?,
            dialect: dialect.parse()?,
            pace: pace.parse()?,
            room: room.parse()?,
        })
    }
}

impl FromStr for Act {
    type Err = BadScript;

    fn from_str(line: &str) -> Result<Act, BadScript> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [after, kind, word, how] = words[..] else {
            let wanted = "+MILLISECONDS do|fail WORD NUMBER";
            return Err(BadScript(format!("`{line}` is not `{wanted}`")));
        };
        let what = match kind {
            "do" => What::Do(word.parse()?),
            "fail" => What::Fail(word.parse()?),
            _ => return Err(BadScript(format!("`{kind}` is neither `do` nor `fail`"))),
        };
        let after = number(after.trim_start_matches('+'))?;
        let how = number(how)?;
        Ok(Act { after, what, how })
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, BadScript> {
    let is_none = |_| BadScript(format!("`{word}` is no number"));
    word.parse().map_err(is_none)
}
