//! What is to happen to a relay: how it is set up, and what then befalls it on either side, read from bytes. Does nothing itself.

use std::time::Duration;

use everlink::protocol::Versions;
use everlink::relay::{Config, LostCalls};
use everlink::server::UnknownMethods;
use everlink::{Dialect, Keepalive, WhenSpent, server};

use crate::script::{Nap, OPS, Tape};
use crate::server::{SECRET, Speech, bytes, offer};

/// How a relay and the servers behind it are set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Of the relay.
    pub config: Config,
    /// Of the servers: of the first life, of the second, and so on round.
    pub servers: Vec<server::Config>,
    /// How many bytes either side reads at once.
    pub piece: usize,
}

impl Setup {
    /// All bytes are read at once.
    #[must_use]
    pub const fn prompt(config: Config, servers: Vec<server::Config>) -> Setup {
        Setup {
            config,
            servers,
            piece: 1 << 20,
        }
    }

    /// The first bytes of a tape as a setup.
    #[must_use]
    pub fn read(tape: &mut Tape<'_>) -> Setup {
        let traits = tape.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let choices = tape.byte();
        let mut upstream = everlink::Config::child("model", "1");
        upstream.dialect =
            [Dialect::Automatic, Dialect::Legacy, Dialect::Modern][usize::from(choices % 4) % 3];
        upstream.policy.retry.budget = u32::from(choices >> 2 & 3);
        upstream.seed = u64::from(choices);
        if has(0) && choices >= 128 {
            upstream.policy.retry.when_spent = WhenSpent::Close;
        }
        if has(1) {
            upstream.policy.drain = Duration::from_millis(20);
            upstream.policy.ask_timeout = Duration::from_millis(300);
            upstream.policy.keepalive = Some(Keepalive::every(Duration::from_millis(300)));
        }
        if has(2) {
            let limits = &mut upstream.limits;
            limits.calls_in_flight = 1;
            limits.write_window = 1;
            limits.undelivered_bytes = 300;
            limits.asks = 1;
        }
        let mut config = Config::new(upstream, SECRET);
        // So that each request is answered in the end, whatever the server does.
        config.calls = everlink::client::CallOptions::new()
            .with_idle(everlink::Limit::After(Duration::from_secs(300)))
            .with_total(everlink::Limit::After(Duration::from_secs(3_600)));
        config.downstream.versions = match choices >> 4 & 7 {
            0..=5 => Versions::ALL,
            6 => Versions::LEGACY,
            _ => Versions::MODERN,
        };
        if has(3) {
            config.patience = Duration::from_millis(20);
            config.drain = Some(Duration::from_millis(300));
            config.downstream.ask_timeout = Duration::from_millis(300);
        }
        config.answers_discover = has(5);
        if has(4) {
            config.lost_calls = LostCalls::AsError;
        }
        if has(5) && choices < 128 {
            let limits = &mut config.downstream.limits;
            limits.requests = 2;
            limits.write_window = 1;
            limits.queued_bytes = 800;
            limits.undelivered_bytes = 300;
            limits.asks = 1;
            limits.listens = 1;
        }
        if has(6) {
            config.downstream.unknown_methods = UnknownMethods::Refused;
        }
        let lives = 1 + choices % 3;
        Setup {
            config,
            servers: (0..lives).map(|_| server(tape)).collect(),
            piece: if has(7) { 7 } else { 1 << 20 },
        }
    }
}

fn server(tape: &mut Tape<'_>) -> server::Config {
    let traits = tape.byte();
    let mut config = server::Config::new(offer(tape.byte()), SECRET);
    config.versions = match traits & 7 {
        0..=3 => Versions::ALL,
        4 | 5 => Versions::LEGACY,
        _ => Versions::MODERN,
    };
    if traits & 16 != 0 {
        config.unknown_methods = UnknownMethods::Delivered;
    }
    if traits & 8 != 0 {
        config.listen_end = server::ListenEnd::CancelledThenResult;
    }
    config
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The application behind asks something.
    Ask {
        /// For which request, if for one.
        which: u8,
        /// What.
        what: u8,
    },
    /// The host sends bytes.
    Bytes(Vec<u8>),
    /// The host says no more.
    End,
    /// The application behind answers a request with an error.
    Fail(u8),
    /// The host can be written to no more.
    HostGone,
    /// The server behind dies, and what it wrote is read or not.
    Kill(u8),
    /// Time passes.
    Nap(Nap),
    /// The application behind tells something.
    News {
        /// For which request, if for one.
        which: u8,
        /// What.
        what: u8,
    },
    /// The next servers cannot be started.
    OpenFails(u8),
    /// Whoever runs the relay wants something.
    Operate(u8),
    /// The application behind answers a request with what it needs first.
    RequireInput {
        /// Which.
        which: u8,
        /// What.
        how: u8,
    },
    /// The application behind answers a request.
    Respond(u8),
    /// The host says something, in two pieces if `cut` is not zero; mostly it waits until nothing moves any more.
    Say {
        /// What.
        speech: Speech,
        /// Where it is cut.
        cut: u8,
    },
    /// The application behind answers all that there is.
    Serve,
    /// Nothing moves any more.
    Settle,
    /// The host reads, or does not.
    Stall(bool),
    /// A few steps of the driver.
    Step(u8),
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
                speech: Speech::read(tape, 1),
                cut: tape.byte(),
            },
            16..=20 => Op::Settle,
            21..=22 => Op::Step(tape.byte()),
            23..=26 => Op::Respond(tape.byte()),
            27 => Op::Fail(tape.byte()),
            28..=30 => Op::Ask {
                which: tape.byte(),
                what: tape.byte(),
            },
            31 => Op::RequireInput {
                which: tape.byte(),
                how: tape.byte(),
            },
            32..=33 => Op::News {
                which: tape.byte(),
                what: tape.byte(),
            },
            34..=35 => Op::Serve,
            36..=38 => Op::Kill(tape.byte()),
            39..=42 => Op::Nap(Nap::read(tape)),
            43 => Op::OpenFails(tape.byte()),
            44 => Op::Stall(tape.byte() % 2 == 0),
            45 => Op::Operate(tape.byte()),
            46 => Op::Bytes(bytes(tape)),
            _ => match tape.byte() {
                0..16 => Op::End,
                16..24 => Op::HostGone,
                _ => Op::Settle,
            },
        }
    }
}
