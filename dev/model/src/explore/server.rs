//! The server end over a byte stream: its alphabet.

use std::sync::OnceLock;
use std::time::Duration;

use everlink::Instant;
use everlink::server::Config;

use super::Sight;
use super::search::{Deed, Machine, World as Explored};
use crate::app::Transcript;
use crate::script::Nap;
use crate::server::{Op, SECRET, Setup, Speech, World, offer};

impl Explored for World<'_> {
    fn look(&self, sight: &mut Sight) {
        World::look(self, sight);
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.transcript
    }

    fn was_touched(&mut self) -> bool {
        World::was_touched(self)
    }
}

pub(super) fn stdio() -> Machine<World<'static>> {
    Machine {
        name: "server",
        start: || World::new(setup(), true),
        letters: LETTERS.to_vec(),
        futures: FUTURES.to_vec(),
    }
}

/// Spans are few and short, so that what happens in one order or the other does so soon; limits are so low that they are met.
pub(super) fn small() -> Config {
    let seconds = Duration::from_secs;
    let mut config = Config::new(offer(0), SECRET);
    config.ask_timeout = seconds(20);
    config.drain = seconds(10);
    config.flush = seconds(5);
    config.limits.requests = 2;
    config.limits.asks = 1;
    config.limits.input_rounds = 1;
    config.limits.listens = 1;
    config
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| Setup::prompt(small()))
}

const FUTURES: [Deed<World<'static>>; 3] = [
    ("is left alone", World::leave_alone),
    ("is shut down and must end", World::close),
    (
        "has a good application and must owe nothing",
        World::come_to_rest,
    ),
];

const LETTERS: [Deed<World<'static>>; 20] = [
    // the client
    ("it introduces itself", |world| {
        say(world, Speech::Introduce(0))
    }),
    ("it calls a tool", |world| say(world, call(MODERN))),
    ("it calls a tool by older terms", |world| {
        say(world, call(LEGACY))
    }),
    ("it watches", |world| say(world, listen())),
    ("it takes back the newest", |world| {
        let (id, manner) = (world.words.newest(), 0);
        say(world, Speech::Cancel { id, manner });
    }),
    ("it answers the newest question", |world| {
        say(world, Speech::Reply { which: 0, how: 0 });
    }),
    ("it comes back with what was wanted", |world| {
        let (id, which, how) = (FRESH, 0, 0);
        say(world, Speech::Retry { id, which, how });
    }),
    ("it says nothing of use", |world| {
        say(world, Speech::Noise(10))
    }),
    ("it ends", |world| world.step(&Op::End)),
    ("it cannot be written to", |world| {
        world.step(&Op::WriteFailed)
    }),
    // the application
    ("answer the newest", |world| {
        world.step(&Op::Respond { which: 0, how: 0 })
    }),
    ("answer the oldest with an error", |world| {
        let which = world.oldest();
        world.step(&Op::Fail { which, how: 0 });
    }),
    ("ask for the newest", |world| {
        world.step(&Op::Ask { which: 0, what: 0 })
    }),
    ("ask for nothing", |world| world.step(&Op::AskUnbidden(0))),
    ("want input for the newest", |world| {
        world.step(&Op::RequireInput { which: 0, how: 1 });
    }),
    ("take back the newest question", |world| {
        world.step(&Op::Withdraw(0))
    }),
    ("tell how far the newest is", |world| {
        world.step(&Op::Progress { which: 0, how: 1 });
    }),
    ("publish that the tools changed", |world| {
        world.step(&Op::Publish(0))
    }),
    ("shutdown", |world| world.step(&Op::Shutdown)),
    // the clock
    ("time passes until something is due", |world| {
        world.step(&Op::Nap(Nap::ToDeadline));
    }),
];

/// An id that no request had before.
pub(super) const FRESH: u8 = 128;
/// The terms of a request: all of them in it, with a token for progress; or none.
pub(super) const MODERN: u8 = 16;
pub(super) const LEGACY: u8 = 5;

pub(super) const fn call(terms: u8) -> Speech {
    request(FRESH, 0, terms)
}

pub(super) const fn listen() -> Speech {
    // The place of `subscriptions/listen` among the methods of a script.
    request(FRESH, 111, MODERN)
}

const fn request(id: u8, method: u8, terms: u8) -> Speech {
    Speech::Request {
        id,
        method,
        terms,
        params: 0,
    }
}

fn say(world: &mut World<'_>, speech: Speech) {
    world.step(&Op::Say { speech, cut: 0 });
}
