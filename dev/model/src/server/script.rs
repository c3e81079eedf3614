//! What is to happen to a server end: how it is set up, and what then befalls it, read from bytes. Does nothing itself.

use std::time::Duration;

use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature, Version, Versions};
use everlink::server::{Cache, Config, Limits, ListenEnd, Offer, UnknownMethods};

use crate::script::{Nap, OPS, Tape};

/// What the seal is made with. Nothing that is shown may contain it.
pub(crate) const SECRET: [u8; 16] = *b"sealed-with-this";

/// How a server end and its driver are set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Of the server.
    pub config: Config,
    /// What is offered in the end where nothing was at the beginning.
    pub later: Offer,
    /// The driver polls only when told to, instead of after every step.
    pub lazy: bool,
    /// The driver reports bytes as sent as soon as it has them.
    pub reports_sent: bool,
}

impl Setup {
    /// A driver that does everything at once.
    #[must_use]
    pub fn prompt(config: Config) -> Setup {
        Setup {
            config,
            later: offer(0),
            lazy: false,
            reports_sent: true,
        }
    }

    /// The first bytes of a tape as a setup.
    #[must_use]
    pub fn read(tape: &mut Tape<'_>) -> Setup {
        let traits = tape.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let choices = tape.byte();
        let mut config = Config::new(offer(tape.byte()), SECRET);
        let later = offer(choices);
        if has(0) {
            config.offer = None;
        }
        if has(1) {
            config.versions = versions(choices);
        }
        if choices & 64 != 0 {
            config.unknown_methods = UnknownMethods::Delivered;
        }
        if choices & 128 != 0 {
            config.listen_end = ListenEnd::CancelledThenResult;
        }
        if has(2) {
            config.ask_timeout = tape.span();
            config.drain = tape.span();
            config.flush = tape.span();
        }
        if has(3) {
            config.limits = limits(tape);
        }
        if has(6) {
            config.names_itself = false;
            config.log_level = LogLevel::Error;
            config.cache = Cache::new(Duration::from_millis(20), true);
        }
        Setup {
            config,
            later,
            lazy: has(4),
            reports_sent: !has(5),
        }
    }
}

/// One of many offers: most of them have most of what there is.
pub(crate) fn offer(bits: u8) -> Offer {
    let has = |mask: u8| bits & mask == mask;
    let mut offered = ServerCapabilities::default();
    if !has(0b11) {
        offered = offered.with_tools(!has(0b100));
    }
    if !has(0b1_1000) {
        offered = offered.with_resources(!has(0b100), !has(0b10_0000));
    }
    if !has(0b1100_0000) {
        offered = offered.with_prompts(!has(0b100)).with_completions();
    }
    if !has(0b10_0001) {
        offered = offered.with_logging();
    }
    if has(0b100_0100) {
        let tasks = [
            ServerFeature::Tasks,
            ServerFeature::TasksCancel,
            ServerFeature::TasksList,
            ServerFeature::TasksExtension,
        ];
        offered = tasks.into_iter().fold(offered, ServerCapabilities::with);
    }
    let offer = Offer::new("model", "1").with_capabilities(offered);
    if has(0b1001_0000) {
        offer.with_instructions("mind\nthe \"gap\"")
    } else {
        offer
    }
}

fn versions(choice: u8) -> Versions {
    let sets = [
        Versions::ALL,
        Versions::MODERN,
        Versions::LEGACY,
        Versions::only(Version::V2024_11_05),
        Versions::only(Version::V2025_03_26).with(Version::V2026_07_28),
        Versions::since(Version::V2025_11_25),
        Versions::only(Version::V2025_03_26),
        Versions::NONE,
    ];
    sets[usize::from(choice % 8)]
}

fn limits(tape: &mut Tape<'_>) -> Limits {
    let sizes = [0, 1, 3, 40, 300, 800, 4_000, 100_000];
    let mut limits = Limits::default();
    limits.message_bytes = tape.pick(&sizes);
    limits.requests = tape.pick(&sizes);
    limits.queued_bytes = tape.pick(&sizes);
    limits.write_window = tape.pick(&sizes);
    limits.undelivered_bytes = tape.pick(&sizes);
    limits.asks = tape.pick(&sizes);
    limits.input_rounds = u32::from(tape.byte() % 4);
    limits.listens = tape.pick(&sizes);
    limits.watched_uris = tape.pick(&sizes);
    limits.noise_sample = tape.pick(&sizes);
    limits
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speech {
    /// Some at once.
    Batch(Vec<Speech>),
    /// A request is taken back.
    Cancel {
        /// Which id: one of a few, or that of a request that was put.
        id: u8,
        /// In which words.
        manner: u8,
    },
    /// A handshake, and that it is over.
    Introduce(u8),
    /// A line that is no message; the number chooses what is wrong with it.
    Noise(u8),
    /// A notification.
    Notification(u8),
    /// A message that is longer than may be.
    Oversized(u8),
    /// A reply to a question.
    Reply {
        /// Of which of those that were asked.
        which: u8,
        /// How.
        how: u8,
    },
    /// A request.
    Request {
        /// Which id: one of a few, or a new one.
        id: u8,
        /// Which method.
        method: u8,
        /// By which terms.
        terms: u8,
        /// With which parameters.
        params: u8,
    },
    /// A request again, with the input that was wanted.
    Retry {
        /// Which id.
        id: u8,
        /// Which of the states that were given.
        which: u8,
        /// How.
        how: u8,
    },
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The application asks the client something for a request.
    Ask {
        /// For which.
        which: u8,
        /// What.
        what: u8,
    },
    /// The application asks the client something for no request.
    AskUnbidden(u8),
    /// Bytes arrive.
    Bytes(Vec<u8>),
    /// The client says no more.
    End,
    /// The application answers a request with an error.
    Fail {
        /// Which.
        which: u8,
        /// How.
        how: u8,
    },
    /// The application logs something.
    Log {
        /// For which request, if for one.
        which: u8,
        /// What.
        how: u8,
    },
    /// Time passes.
    Nap(Nap),
    /// The application tells something.
    Notify(u8),
    /// The application offers something else.
    Offer(u8),
    /// The driver polls this often at most.
    Poll(u8),
    /// The application says how far a request is.
    Progress {
        /// Which.
        which: u8,
        /// How far.
        how: u8,
    },
    /// Something changed.
    Publish(u8),
    /// The application answers a request with what it needs first.
    RequireInput {
        /// Which.
        which: u8,
        /// What.
        how: u8,
    },
    /// The application answers a request.
    Respond {
        /// Which.
        which: u8,
        /// How.
        how: u8,
    },
    /// The client says something, in two pieces if `cut` is not zero.
    Say {
        /// What.
        speech: Speech,
        /// Where it is cut.
        cut: u8,
    },
    /// Bytes were handed to the system: how many, or all.
    Sent(u8),
    /// The application answers all that there is.
    Serve,
    /// The application has done with it.
    Shutdown,
    /// Something that a server end has no use for.
    Useless(u8),
    /// The application takes back a question.
    Withdraw(u8),
    /// Nothing more can be written.
    WriteFailed,
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
        match tape.byte() % 48 {
            0..=15 => Op::Say {
                speech: Speech::read(tape, 2),
                cut: tape.byte(),
            },
            16..=19 => Op::Respond {
                which: tape.byte(),
                how: tape.byte(),
            },
            20 => Op::Fail {
                which: tape.byte(),
                how: tape.byte(),
            },
            21..=24 => Op::Ask {
                which: tape.byte(),
                what: tape.byte(),
            },
            25 => Op::AskUnbidden(tape.byte()),
            26..=27 => Op::RequireInput {
                which: tape.byte(),
                how: tape.byte(),
            },
            28..=29 => Op::Progress {
                which: tape.byte(),
                how: tape.byte(),
            },
            30 => Op::Log {
                which: tape.byte(),
                how: tape.byte(),
            },
            31 => Op::Notify(tape.byte()),
            32..=33 => Op::Publish(tape.byte()),
            34 => Op::Offer(tape.byte()),
            35 => Op::Serve,
            36 => Op::Withdraw(tape.byte()),
            37..=40 => Op::Nap(Nap::read(tape)),
            41..=42 => Op::Sent(tape.byte()),
            43 => Op::Bytes(bytes(tape)),
            44 => Op::Useless(tape.byte()),
            45..=46 => Op::Poll(tape.byte()),
            _ => match tape.byte() % 8 {
                0 | 1 => Op::End,
                2 => Op::Shutdown,
                3 => Op::WriteFailed,
                _ => Op::Serve,
            },
        }
    }
}

/// Any bytes, more often than not with the end of a line.
pub(crate) fn bytes(tape: &mut Tape<'_>) -> Vec<u8> {
    let len = tape.byte();
    let mut bytes = tape.take(usize::from(len)).to_vec();
    if len % 4 != 0 {
        bytes.push(b'\n');
    }
    bytes
}

impl Speech {
    pub(crate) fn read(tape: &mut Tape<'_>, depth: u8) -> Speech {
        match tape.byte() % 32 {
            0..=12 => Speech::Request {
                id: tape.byte(),
                method: tape.byte(),
                terms: tape.byte(),
                params: tape.byte(),
            },
            13..=15 => Speech::Introduce(tape.byte()),
            16..=19 => Speech::Cancel {
                id: tape.byte(),
                manner: tape.byte(),
            },
            20..=23 => Speech::Retry {
                id: tape.byte(),
                which: tape.byte(),
                how: tape.byte(),
            },
            24..=25 => Speech::Reply {
                which: tape.byte(),
                how: tape.byte(),
            },
            26 => Speech::Notification(tape.byte()),
            27..=28 => Speech::Noise(tape.byte()),
            29 => Speech::Oversized(tape.byte()),
            _ if depth > 0 => {
                let many = tape.byte() % 4;
                Speech::Batch((0..many).map(|_| Speech::read(tape, depth - 1)).collect())
            }
            _ => Speech::Noise(tape.byte()),
        }
    }
}
