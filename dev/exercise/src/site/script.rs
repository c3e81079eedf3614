//! What is to happen to a server over HTTP, read from bytes. Does nothing itself.

use std::time::Duration;

use everlink::server::{Allowed, Config, Http, Offer, Replay, SsePaths};

use crate::script::{Nap, OPS, Tape};
use crate::server::{self, Speech};

/// How a server and its driver are set up.
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
    /// Who keeps its sessions.
    pub kept: Kept,
}

/// Who keeps the sessions of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// The server, in memory.
    ByServer,
    /// The driver, for one server after another. It answers late, or not at all.
    ByDriver,
    /// The driver, for several servers at once.
    Shared,
    /// The same, and it answers late, or not at all.
    SharedAndLate,
}

impl Setup {
    /// The first bytes of a tape as a setup.
    #[must_use]
    pub fn read(tape: &mut Tape<'_>) -> Setup {
        let common = server::Setup::read(tape);
        let traits = tape.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let mut http = Http::new();
        if !has(0) {
            http = http.with_hosts(Allowed::Any);
        }
        if has(1) {
            http = http.with_sse(SsePaths::default());
        }
        if has(2) {
            http.may_delete = false;
        }
        if has(3) {
            http.session_idle = tape.span();
            http.retry = tape.span().min(Duration::from_secs(60));
            http.keepalive = tape.span();
            http.body_timeout = tape.span();
        }
        if has(4) {
            let sizes = [0, 1, 3, 40, 1_000];
            http.replay = Replay::new(tape.pick(&sizes), tape.pick(&sizes) * 40);
        }
        let mut config = common.config;
        if has(5) {
            let sizes = [0, 1, 3, 8, 100];
            config.limits.sessions = tape.pick(&sizes);
            config.limits.exchanges = tape.pick(&sizes);
            config.limits.body_bytes = tape.pick(&sizes) * 100;
            config.limits.all_queued_bytes = tape.pick(&sizes) * 100;
        }
        config.http = Some(http);
        Setup {
            config,
            later: common.later,
            lazy: common.lazy,
            reports_sent: common.reports_sent,
            kept: match (has(6), has(7)) {
                (false, false) => Kept::ByServer,
                (false, true) => Kept::ByDriver,
                (true, false) => Kept::Shared,
                (true, true) => Kept::SharedAndLate,
            },
        }
    }
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The application asks the client of a request something.
    Ask {
        /// Of which.
        which: u8,
        /// What.
        what: u8,
    },
    /// A client posts something, whole or as much of it as gets through.
    Post {
        /// Which client.
        who: u8,
        /// What.
        speech: Speech,
        /// What is wrong with the fields, if anything.
        wrong: u8,
        /// How it is cut.
        cut: u8,
    },
    /// A client wants a stream, or to end its session.
    Want {
        /// Which client.
        who: u8,
        /// What.
        what: u8,
        /// What is wrong with the fields, if anything.
        wrong: u8,
    },
    /// An exchange begins, and its body is not there yet.
    Begin {
        /// By which client.
        who: u8,
        /// How.
        what: u8,
    },
    /// Bytes of a body arrive, of an exchange that may be none.
    Bytes {
        /// Of which.
        which: u8,
        /// Which.
        bytes: Vec<u8>,
    },
    /// A body is complete, or breaks off.
    End {
        /// Of which exchange.
        which: u8,
        /// Whether it breaks off.
        breaks: bool,
    },
    /// The application answers a request with an error.
    Fail(u8),
    /// The client of an exchange is gone.
    Gone(u8),
    /// The application logs something.
    Log {
        /// For which request, if for one.
        which: u8,
        /// How grave.
        how: u8,
    },
    /// Time passes.
    Nap(Nap),
    /// The application offers something else, or says which tools there are.
    Offer(u8),
    /// The driver polls this often at most.
    Poll(u8),
    /// The application says how far a request is.
    Progress(u8),
    /// Something changed.
    Publish(u8),
    /// Another server takes over, with the sessions of the one that is gone.
    Replace,
    /// The application answers a request with what it needs first.
    RequireInput(u8),
    /// The application answers a request.
    Respond(u8),
    /// Clients read what there is for them.
    Sent(u8),
    /// The application answers all that there is.
    Serve,
    /// The application has done with it.
    Shutdown,
    /// Something that a server over HTTP has no use for.
    Useless(u8),
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
            0..=14 => Op::Post {
                who: tape.byte(),
                speech: Speech::read(tape, 2),
                wrong: tape.byte(),
                cut: tape.byte(),
            },
            15..=18 => Op::Want {
                who: tape.byte(),
                what: tape.byte(),
                wrong: tape.byte(),
            },
            19 => Op::Begin {
                who: tape.byte(),
                what: tape.byte(),
            },
            20 => Op::Bytes {
                which: tape.byte(),
                bytes: server::bytes(tape),
            },
            21 => Op::End {
                which: tape.byte(),
                breaks: tape.byte() % 2 == 0,
            },
            22..=23 => Op::Gone(tape.byte()),
            24..=27 => Op::Respond(tape.byte()),
            28 => Op::Fail(tape.byte()),
            29..=30 => Op::Ask {
                which: tape.byte(),
                what: tape.byte(),
            },
            31 => Op::RequireInput(tape.byte()),
            32..=33 => Op::Progress(tape.byte()),
            34 => Op::Log {
                which: tape.byte(),
                how: tape.byte(),
            },
            35 => Op::Publish(tape.byte()),
            36 => Op::Offer(tape.byte()),
            37 => Op::Serve,
            38..=41 => Op::Nap(Nap::read(tape)),
            42 => Op::Sent(tape.byte()),
            43 => Op::Useless(tape.byte()),
            44 => match tape.byte() % 8 {
                0 => Op::Shutdown,
                1..=4 => Op::Replace,
                _ => Op::Serve,
            },
            _ => Op::Poll(tape.byte()),
        }
    }
}
