//! What is to happen to both ends of a link: how they are set up, and what then befalls them, read from bytes. Does nothing
//! itself.

use std::time::Duration;

use everlink::protocol::{ClientCapabilities, Versions};
use everlink::{Binding, Config, Dialect, Keepalive, Limit, WhenSpent, server};

use crate::Cut;
use crate::script::{OPS, Tape, wish};
use crate::server::{SECRET, offer};

/// How both ends, and what lies between them, are set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Of the client.
    pub client: Config,
    /// Of the servers: of the first life, of the second, and so on round.
    pub servers: Vec<server::Config>,
    /// How bytes are cut into reads.
    pub cut: Cut,
}

impl Setup {
    /// The first bytes of a tape as a setup.
    #[must_use]
    pub fn read(tape: &mut Tape<'_>) -> Setup {
        let cut = match tape.byte() {
            0..64 => Cut::Whole,
            64..96 => Cut::Bytes,
            96..160 => Cut::Joined,
            seed => Cut::Random(u64::from(seed)),
        };
        let client = client(tape);
        let lives = 1 + tape.byte() % 3;
        Setup {
            client,
            servers: (0..lives).map(|_| server(tape)).collect(),
            cut,
        }
    }
}

fn client(tape: &mut Tape<'_>) -> Config {
    let traits = tape.byte();
    let has = |bit: u8| traits & (1 << bit) != 0;
    let choices = tape.byte();
    let mut config = Config::child("model", "1");
    if has(0) {
        config.binding = Binding::Socket;
    }
    if !has(1) {
        config.capabilities = ClientCapabilities::default()
            .with_roots(true)
            .with_sampling_tools()
            .with_elicitation_form()
            .with_elicitation_url();
    }
    config.dialect =
        [Dialect::Automatic, Dialect::Legacy, Dialect::Modern][usize::from(choices % 4) % 3];
    config.watch = wish(choices / 16);
    config.seed = u64::from(choices);
    let policy = &mut config.policy;
    policy.retry.budget = u32::from(tape.byte() % 8);
    if has(2) {
        policy.retry.when_spent = WhenSpent::Close;
    }
    if has(3) {
        policy.call_idle = Limit::After(Duration::from_millis(300));
        policy.call_total = Limit::After(Duration::from_secs(4));
        policy.ask_timeout = Duration::from_millis(20);
        policy.drain = Duration::from_millis(20);
        policy.watch_timeout = Duration::from_millis(20);
        policy.keepalive = Some(Keepalive::every(Duration::from_millis(300)));
    }
    if has(4) {
        let limits = &mut config.limits;
        limits.calls_in_flight = 1;
        limits.write_window = 1;
        limits.undelivered_bytes = 300;
        limits.asks = 1;
        limits.input_rounds = 2;
    }
    config
}

fn server(tape: &mut Tape<'_>) -> server::Config {
    let traits = tape.byte();
    let has = |bit: u8| traits & (1 << bit) != 0;
    let mut config = server::Config::new(offer(tape.byte()), SECRET);
    if has(0) {
        config.offer = None;
    }
    config.versions = match traits >> 1 & 3 {
        0 | 1 => Versions::ALL,
        2 => Versions::LEGACY,
        _ => Versions::MODERN,
    };
    if has(3) {
        config.listen_end = server::ListenEnd::CancelledThenResult;
    }
    if has(4) {
        config.unknown_methods = server::UnknownMethods::Delivered;
    }
    if has(5) {
        config.ask_timeout = Duration::from_millis(20);
        config.drain = Duration::from_millis(20);
        config.flush = Duration::from_millis(1);
    }
    if has(6) {
        let limits = &mut config.limits;
        limits.requests = 2;
        limits.write_window = 1;
        limits.queued_bytes = 4_000;
        limits.undelivered_bytes = 300;
        limits.asks = 1;
        limits.input_rounds = 1;
        limits.listens = 1;
        limits.watched_uris = 1;
    }
    config
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The client's application answers a question.
    Answer {
        /// Which.
        which: u8,
        /// How.
        how: u8,
    },
    /// The server's application asks something.
    Ask {
        /// For which request, if for one.
        which: u8,
        /// What.
        what: u8,
    },
    /// The client's application asks for something.
    Call {
        /// What.
        method: u8,
        /// How.
        options: u8,
    },
    /// The client's application takes a call back.
    Cancel(u8),
    /// The server's application answers a request with an error.
    Fail(u8),
    /// The server dies.
    Kill,
    /// Somebody else writes into a pipe.
    Noise(u8),
    /// Either application tells something: progress, changes, log messages, notifications.
    News {
        /// For which request, if for one.
        which: u8,
        /// What.
        what: u8,
    },
    /// The server's application knows what it offers.
    Offer(u8),
    /// The client's application wants another server.
    Reconnect,
    /// The server's application answers a request with what it needs first.
    RequireInput {
        /// Which.
        which: u8,
        /// What.
        how: u8,
    },
    /// The server's application answers a request.
    Respond(u8),
    /// The server's application answers all that there is.
    Serve,
    /// Nothing moves any more.
    Settle,
    /// The server's application, or the client's, has done with it.
    Shutdown(u8),
    /// Until something is due.
    Sleep,
    /// A few steps of the driver.
    Step(u8),
    /// The client's application says that the world is back.
    Wake,
    /// The client's application has another wish.
    Watch(u8),
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
            0..=9 => Op::Call {
                method: tape.byte(),
                options: tape.byte(),
            },
            10..=14 => Op::Settle,
            15..=18 => Op::Step(tape.byte()),
            19..=22 => Op::Respond(tape.byte()),
            23 => Op::Fail(tape.byte()),
            24..=27 => Op::Ask {
                which: tape.byte(),
                what: tape.byte(),
            },
            28 => Op::RequireInput {
                which: tape.byte(),
                how: tape.byte(),
            },
            29..=31 => Op::Answer {
                which: tape.byte(),
                how: tape.byte(),
            },
            32..=34 => Op::News {
                which: tape.byte(),
                what: tape.byte(),
            },
            35..=36 => Op::Serve,
            37 => Op::Cancel(tape.byte()),
            38..=39 => Op::Kill,
            40..=42 => Op::Sleep,
            43 => Op::Watch(tape.byte()),
            44 => Op::Offer(tape.byte()),
            45 => Op::Noise(tape.byte()),
            46 => Op::Reconnect,
            _ => match tape.byte() {
                byte @ 0..32 => Op::Shutdown(byte),
                _ => Op::Wake,
            },
        }
    }
}
