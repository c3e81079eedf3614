//! What is to happen: how a link is set up, and what then befalls it, read from bytes. Does nothing itself.

use std::time::Duration;

use everlink::protocol::{ClientCapabilities, ClientFeature, Era, LogLevel};
use everlink::{
    Binding, Config, Dialect, FaultKind, Hang, Keepalive, Limit, Limits, List, Policy, Watch,
    WhenSpent,
};

/// Longer plays find nothing that shorter ones do not.
pub(crate) const OPS: usize = 256;

/// Bytes that are used up one by one. Behind their end there are zeros.
#[derive(Debug)]
pub struct Tape<'a>(&'a [u8]);

impl<'a> Tape<'a> {
    /// All of `data`.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Tape<'a> {
        Tape(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    pub(crate) fn span(&mut self) -> Duration {
        self.pick(&SPANS)
    }
}

const SPANS: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_millis(300),
    Duration::from_secs(4),
    Duration::from_secs(60),
    Duration::MAX,
];

/// How the link and its driver are set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Of the link.
    pub config: Config,
    /// The driver polls only when told to, instead of after every step.
    pub lazy: bool,
    /// The driver reports bytes as sent as soon as it has them.
    pub reports_sent: bool,
}

impl Setup {
    /// A driver that does everything at once.
    #[must_use]
    pub const fn prompt(config: Config) -> Setup {
        Setup {
            config,
            lazy: false,
            reports_sent: true,
        }
    }

    /// The first bytes of a tape as a setup.
    #[must_use]
    pub fn read(tape: &mut Tape<'_>) -> Setup {
        let traits = tape.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let mut config = Config::child("model", "1");
        if has(0) {
            config.binding = Binding::Socket;
        }
        if has(1) {
            config.capabilities = ClientCapabilities::default()
                .with_roots(true)
                .with_sampling()
                .with_elicitation_form();
        }
        if has(6) {
            let tasks = [ClientFeature::Tasks, ClientFeature::TasksExtension];
            let declared = config.capabilities;
            config.capabilities = tasks.into_iter().fold(declared, ClientCapabilities::with);
        }
        if has(7) {
            config.unasked_logs = Some(LogLevel::Info);
        }
        let choices = tape.byte();
        config.dialect = [
            Dialect::Automatic,
            Dialect::Legacy,
            Dialect::Modern,
            Dialect::Automatic,
        ][usize::from(choices % 4)];
        config.remembered_era =
            [None, None, Some(Era::Legacy), Some(Era::Modern)][usize::from(choices / 4 % 4)];
        config.watch = wish(choices / 16);
        if has(2) {
            config.policy = policy(tape);
        }
        if has(3) {
            config.limits = limits(tape);
        }
        config.seed = u64::from(choices);
        Setup {
            config,
            lazy: has(4),
            reports_sent: !has(5),
        }
    }
}

/// One of sixteen wishes.
pub(crate) fn wish(bits: u8) -> Watch {
    let mut wish = if bits & 1 == 0 {
        Watch::lists()
    } else {
        Watch::none()
    };
    if bits & 2 != 0 {
        wish = wish.and_uri("file:///a");
    }
    if bits & 4 != 0 {
        wish = wish.and_uri("file:///b");
    }
    if bits & 8 != 0 {
        wish = wish.and_logs(LogLevel::Info);
    }
    wish
}

fn policy(tape: &mut Tape<'_>) -> Policy {
    let limit = |span: Duration| match span {
        Duration::MAX => Limit::Never,
        span => Limit::After(span),
    };
    let mut policy = Policy::interactive();
    policy.open_timeout = tape.span();
    policy.probe_timeout = tape.span();
    policy.handshake_notice = tape.span();
    policy.handshake_timeout = tape.span();
    policy.call_idle = limit(tape.span());
    policy.call_total = limit(tape.span());
    policy.ask_timeout = tape.span();
    policy.pause_total = tape.span();
    policy.resends = u32::from(tape.byte() % 4);
    policy.drain = tape.span();
    policy.close_grace = tape.span();
    policy.terminate_grace = tape.span();
    policy.kill_grace = tape.span();
    let mut keepalive = Keepalive::every(tape.span());
    keepalive.timeout = tape.span();
    keepalive.misses = u32::from(tape.byte() % 4);
    policy.keepalive = Some(keepalive).filter(|keepalive| keepalive.idle != Duration::MAX);
    policy.hang = policy
        .keepalive
        .map(|keepalive| Hang::after(keepalive.timeout));
    policy.retry.budget = u32::from(tape.byte() % 4);
    policy.retry.first = tape.span();
    policy.retry.cap = tape.span();
    policy.retry.floor = tape.span();
    policy.retry.stable_after = tape.span();
    policy.retry.when_spent = match tape.span() {
        Duration::MAX => WhenSpent::Close,
        probe => {
            policy.retry.call_pace = tape.span();
            WhenSpent::Park { probe }
        }
    };
    policy.retry.call_patience = policy.retry.call_pace.saturating_mul(4);
    policy.watch_timeout = tape.span();
    policy.watch_retry = tape.span();
    policy
}

fn limits(tape: &mut Tape<'_>) -> Limits {
    let sizes = [0, 1, 3, 40, 200, 800, 4_000, 100_000];
    let mut limits = Limits::default();
    limits.message_bytes = tape.pick(&sizes);
    limits.queued_bytes = tape.pick(&sizes);
    limits.queued_calls = tape.pick(&sizes);
    limits.calls_in_flight = tape.pick(&sizes);
    limits.write_window = tape.pick(&sizes);
    limits.undelivered_bytes = tape.pick(&sizes);
    limits.asks = tape.pick(&sizes);
    limits.input_rounds = u32::from(tape.byte() % 4);
    limits.request_state_bytes = tape.pick(&sizes);
    limits.noise_run = tape.pick(&[None, Some(0), Some(1), Some(5)]);
    limits.noise_sample = tape.pick(&sizes);
    limits.stderr_tail = tape.pick(&sizes);
    limits.pages = tape.pick(&sizes);
    limits.list_bytes = tape.pick(&sizes);
    limits
}

/// Which transport an input concerns, or a caller means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whose {
    /// The newest.
    Current,
    /// One that is not asked for yet.
    Future(u8),
    /// One of those before.
    Past(u8),
}

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nap {
    /// The clock jumps back, and the link is told.
    Back(Duration),
    /// To just before the next deadline.
    Before,
    /// For this long, whatever is due.
    For(Duration),
    /// Exactly to the next deadline.
    ToDeadline,
    /// For this long, and the link is not told.
    Untold(Duration),
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// With neither a result nor an error.
    Empty,
    /// With an error of one of the codes that mean something.
    Error(u8),
    /// As it should be; the number chooses among what that can be.
    Good(u8),
    /// With questions, or just another round.
    InputRequired(u8),
    /// With a result that is no object.
    NoObject,
    /// With more than may be.
    Oversized,
    /// As it should be, but the id is a text.
    TextId,
    /// Twice.
    Twice,
    /// With a type that no result has.
    UnknownType,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speech {
    /// A watch is confirmed.
    Acknowledge(u8),
    /// A request of the server.
    Ask {
        /// Its id.
        id: u8,
        /// What it asks.
        what: u8,
    },
    /// Two at once.
    Batch(Box<[Speech; 2]>),
    /// A request of either end is taken back.
    Cancelled(u8),
    /// Something changed.
    Changed(u8),
    /// A reply to what was answered before.
    Late(u8),
    /// A log message.
    Log(u8),
    /// An error that names no request.
    Nameless,
    /// A notification that nobody knows.
    Notification,
    /// A call is getting on.
    Progress {
        /// Which.
        which: u8,
        /// How far it is.
        progress: u8,
    },
    /// A reply.
    Reply {
        /// To which of the requests that are open.
        which: u8,
        /// How.
        how: Reply,
    },
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The application answers a question.
    Answer {
        /// Which of all that there were.
        which: u8,
        /// With what.
        how: u8,
    },
    /// Bytes arrive.
    Bytes {
        /// Where.
        whose: Whose,
        /// Which.
        bytes: Vec<u8>,
    },
    /// The application asks something.
    Call {
        /// Which method.
        method: u8,
        /// Its parameters.
        params: u8,
        /// Its options.
        options: u8,
    },
    /// The application takes a call back.
    Cancel {
        /// Which of all that there were.
        which: u8,
    },
    /// The application wants the link.
    Connect,
    /// A stream ends.
    End {
        /// Which.
        whose: Whose,
        /// What was seen.
        faults: Vec<FaultKind>,
    },
    /// A child is reaped.
    Exited {
        /// Which.
        whose: Whose,
        /// How it ended.
        status: u8,
    },
    /// The application reads a list.
    List {
        /// Which.
        list: List,
        /// Its options.
        options: u8,
    },
    /// Time passes.
    Nap(Nap),
    /// The application tells something.
    Notify(u8),
    /// A transport could not be opened.
    OpenFailed {
        /// Which.
        whose: Whose,
        /// What was seen.
        faults: Vec<FaultKind>,
    },
    /// A transport is open.
    Opened(Whose),
    /// The driver polls this often at most.
    Poll(u8),
    /// The application wants another transport.
    Reconnect(Whose),
    /// The server says something, in two pieces if `cut` is not zero.
    Say {
        /// Over which transport.
        whose: Whose,
        /// What.
        speech: Speech,
        /// Where it is cut.
        cut: u8,
    },
    /// Bytes were handed to the system.
    Sent {
        /// Whose.
        whose: Whose,
        /// How many, or all.
        len: u8,
    },
    /// The link is wanted, a good server opens when it is time, and answers all that is asked.
    Serve(u8),
    /// The application has done with the link.
    Shutdown,
    /// Something is written to standard error.
    Stderr {
        /// By whom.
        whose: Whose,
        /// How much.
        len: u8,
    },
    /// The application says that the world is back.
    Wake,
    /// The application has another wish.
    Watch(u8),
    /// Nothing more can be written.
    WriteFailed {
        /// To whom.
        whose: Whose,
        /// What was seen.
        faults: Vec<FaultKind>,
    },
}

impl Op {
    /// The rest of a tape as things that happen.
    #[must_use]
    pub fn read_all(tape: &mut Tape<'_>) -> Vec<Op> {
        let mut ops = Vec::new();
        while !tape.is_empty() && ops.len() < OPS {
            ops.push(Op::read(tape));
        }
        ops
    }

    fn read(tape: &mut Tape<'_>) -> Op {
        match tape.byte() % 41 {
            0..=3 => Op::Serve(tape.byte()),
            4..=9 => Op::Say {
                whose: Whose::read(tape),
                speech: Speech::read(tape, 1),
                cut: tape.byte(),
            },
            10..=12 => Op::Call {
                method: tape.byte(),
                params: tape.byte(),
                options: tape.byte(),
            },
            13..=16 => Op::Nap(Nap::read(tape)),
            17..=18 => Op::Opened(Whose::read(tape)),
            19 => Op::OpenFailed {
                whose: Whose::read(tape),
                faults: faults(tape),
            },
            20..=21 => Op::End {
                whose: Whose::read(tape),
                faults: faults(tape),
            },
            22..=23 => Op::Exited {
                whose: Whose::read(tape),
                status: tape.byte(),
            },
            24 => Op::Bytes {
                whose: Whose::read(tape),
                bytes: {
                    let len = tape.byte();
                    tape.take(usize::from(len)).to_vec()
                },
            },
            25 => Op::Stderr {
                whose: Whose::read(tape),
                len: tape.byte(),
            },
            26..=27 => Op::Sent {
                whose: Whose::read(tape),
                len: tape.byte(),
            },
            28 => Op::Connect,
            29 => Op::Reconnect(Whose::read(tape)),
            30 if tape.byte() % 4 == 0 => Op::Shutdown,
            30..=31 => Op::Wake,
            32 => Op::List {
                list: tape.pick(&List::ALL),
                options: tape.byte(),
            },
            33 => Op::Cancel { which: tape.byte() },
            34..=35 => Op::Answer {
                which: tape.byte(),
                how: tape.byte(),
            },
            36 => Op::Watch(tape.byte()),
            37 => Op::Notify(tape.byte()),
            38 => Op::WriteFailed {
                whose: Whose::read(tape),
                faults: faults(tape),
            },
            _ => Op::Poll(tape.byte()),
        }
    }
}

impl Whose {
    pub(crate) fn read(tape: &mut Tape<'_>) -> Whose {
        match tape.byte() {
            byte @ 0..8 => Whose::Past(byte),
            byte @ 8..12 => Whose::Future(byte - 8),
            _ => Whose::Current,
        }
    }
}

impl Nap {
    pub(crate) fn read(tape: &mut Tape<'_>) -> Nap {
        match tape.byte() % 16 {
            0 => Nap::Back(tape.span()),
            1 => Nap::Before,
            2..=4 => Nap::For(tape.span()),
            5 => Nap::Untold(tape.span()),
            _ => Nap::ToDeadline,
        }
    }
}

impl Speech {
    pub(crate) fn read(tape: &mut Tape<'_>, depth: u8) -> Speech {
        match tape.byte() % 32 {
            0..=15 => Speech::Reply {
                which: tape.byte(),
                how: Reply::read(tape),
            },
            16..=18 => Speech::Ask {
                id: tape.byte(),
                what: tape.byte(),
            },
            19..=20 => Speech::Progress {
                which: tape.byte(),
                progress: tape.byte(),
            },
            21..=22 => Speech::Acknowledge(tape.byte()),
            23..=24 => Speech::Cancelled(tape.byte()),
            25 => Speech::Changed(tape.byte()),
            26 => Speech::Late(tape.byte()),
            27 => Speech::Log(tape.byte()),
            28 => Speech::Nameless,
            29..=30 if depth > 0 => {
                let one = Speech::read(tape, depth - 1);
                Speech::Batch(Box::new([one, Speech::read(tape, depth - 1)]))
            }
            _ => Speech::Notification,
        }
    }
}

impl Reply {
    pub(crate) fn read(tape: &mut Tape<'_>) -> Reply {
        match tape.byte() % 16 {
            0..=3 => Reply::Good(tape.byte()),
            4..=5 => Reply::Error(tape.byte()),
            6..=9 => Reply::InputRequired(tape.byte()),
            10 => Reply::NoObject,
            11 => Reply::Oversized,
            12 => Reply::TextId,
            13 => Reply::Twice,
            14 => Reply::UnknownType,
            _ => Reply::Empty,
        }
    }
}

const FAULTS: [FaultKind; 16] = [
    FaultKind::Closed,
    FaultKind::Aborted,
    FaultKind::BrokenPipe,
    FaultKind::Reset,
    FaultKind::NameNotFound,
    FaultKind::NotFound,
    FaultKind::Other,
    FaultKind::PermissionDenied,
    FaultKind::Read,
    FaultKind::Refused,
    FaultKind::ResourcesExhausted,
    FaultKind::TimedOut,
    FaultKind::Tls,
    FaultKind::Unreachable,
    FaultKind::Write,
    FaultKind::NotExecutable,
];

pub(crate) fn faults(tape: &mut Tape<'_>) -> Vec<FaultKind> {
    let many = tape.byte();
    let many = if many == 255 { 20 } else { many % 4 };
    (0..many).map(|_| tape.pick(&FAULTS)).collect()
}
