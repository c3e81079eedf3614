//! The relay, with a host in front of it and servers behind it: its alphabet.

use std::sync::OnceLock;
use std::time::Duration;

use everlink::Instant;
use everlink::relay::Config;

use super::client::small;
use super::search::{Deed, Machine, World as Explored};
use super::{Sight, server};
use crate::app::Transcript;
use crate::relay::{Op, Setup, World};
use crate::script::Nap;
use crate::server::{SECRET, Speech};

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

pub(super) fn relay() -> Machine<World<'static>> {
    Machine {
        name: "relay",
        start: || World::new(setup()),
        letters: LETTERS.to_vec(),
        futures: FUTURES.to_vec(),
    }
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| {
        let mut upstream = small(everlink::Config::child("explore", "1"));
        // When a server was heard last cannot be seen from here; the pulse is for the client alone to show.
        upstream.policy.keepalive = None;
        let mut config = Config::new(upstream, SECRET);
        config.calls = everlink::client::CallOptions::new()
            .with_idle(everlink::Limit::After(Duration::from_secs(300)))
            .with_total(everlink::Limit::After(Duration::from_secs(3_600)));
        let downstream = server::small();
        config.downstream.ask_timeout = downstream.ask_timeout;
        config.downstream.limits = downstream.limits;
        config.patience = Duration::from_secs(5);
        config.drain = Some(Duration::from_secs(10));
        Setup::prompt(config, vec![server::small()])
    })
}

const FUTURES: [Deed<World<'static>>; 2] = [
    ("is left alone", World::leave_alone),
    (
        "has good peers, owes nothing, is shut down and must end",
        World::end,
    ),
];

const LETTERS: [Deed<World<'static>>; 15] = [
    // the host
    ("it introduces itself", |world| {
        say(world, Speech::Introduce(0))
    }),
    ("it calls a tool", |world| {
        say(world, server::call(server::MODERN))
    }),
    ("it calls a tool by older terms", |world| {
        say(world, server::call(server::LEGACY));
    }),
    ("it watches", |world| say(world, server::listen())),
    ("it takes back the newest", |world| {
        let (id, manner) = (world.words.newest(), 0);
        say(world, Speech::Cancel { id, manner });
    }),
    ("it answers the newest question", |world| {
        say(world, Speech::Reply { which: 0, how: 0 });
    }),
    ("it comes back with what was wanted", |world| {
        let (id, which, how) = (server::FRESH, 0, 0);
        say(world, Speech::Retry { id, which, how });
    }),
    ("it ends", |world| world.step(&Op::End)),
    // the servers
    ("a server answers the oldest", |world| {
        world.step(&Op::Respond(0))
    }),
    ("a server asks for the oldest", |world| {
        world.step(&Op::Ask { which: 0, what: 0 });
    }),
    ("a server wants input for the oldest", |world| {
        world.step(&Op::RequireInput { which: 0, how: 0 });
    }),
    ("a server says that the tools changed", |world| {
        world.step(&Op::News { which: 0, what: 7 });
    }),
    ("the server dies", |world| world.step(&Op::Kill(0))),
    // whoever runs it
    ("shutdown", |world| world.step(&Op::Operate(0))),
    // the clock
    ("time passes until something is due", |world| {
        world.step(&Op::Nap(Nap::ToDeadline));
    }),
];

fn say(world: &mut World<'_>, speech: Speech) {
    world.step(&Op::Say { speech, cut: 0 });
}
