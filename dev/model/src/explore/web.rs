//! The client over HTTP: its alphabet.

use std::sync::OnceLock;
use std::time::Duration;

use everlink::{Config, FaultKind, Instant};

use super::Sight;
use super::client::small;
use super::search::{Deed, Machine, World as Explored};
use crate::app::Transcript;
use crate::rules::ORIGIN;
use crate::script::{Nap, Reply, Setup, Whose};
use crate::server::PAYLOAD;
use crate::web::{Form, On, Op, World};

impl Explored for World<'_> {
    fn look(&self, sight: &mut Sight) {
        World::look(self, sight);
    }

    fn now(&self) -> Instant {
        self.app.now
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.app.transcript
    }

    fn was_touched(&mut self) -> bool {
        self.app.was_touched()
    }
}

pub(super) fn http() -> Machine<World<'static>> {
    Machine {
        name: "client-http",
        start: || World::new(setup(), true),
        letters: LETTERS.to_vec(),
        futures: FUTURES.to_vec(),
    }
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| {
        let config = Config::http("explore", "1", &format!("{ORIGIN}mcp?key={PAYLOAD}"));
        let mut config = small(config.expect("a URL"));
        let http = config.http.as_mut().expect("over HTTP");
        http.falls_back = false;
        http.probe_timeout = Duration::from_secs(5);
        http.resumes = 1;
        http.auth_timeout = Duration::from_secs(20);
        http.retry_after_most = Duration::from_secs(10);
        Setup::prompt(config)
    })
}

const FUTURES: [Deed<World<'static>>; 3] = [
    ("is left alone", World::leave_alone),
    ("is shut down and must end", World::close),
    ("meets a good server and must get well", World::get_well),
];

const LETTERS: [Deed<World<'static>>; 22] = [
    // the application
    ("connect", |world| world.step(&Op::Connect)),
    ("call a tool", |world| world.step(&call(0))),
    ("read a resource", |world| world.step(&call(2))),
    ("cancel the oldest call", |world| {
        world.app.cancel_oldest();
        world.drain();
    }),
    ("answer the newest question", |world| {
        let which = world.app.newest_ask();
        world.step(&Op::Answer { which, how: 0 });
    }),
    ("two want another life", |world| {
        world.step(&Op::Reconnect(Whose::Current));
        world.step(&Op::Reconnect(Whose::Current));
    }),
    ("wake", |world| world.step(&Op::Wake)),
    ("shutdown", |world| world.step(&Op::Shutdown)),
    ("there are other credentials", |world| {
        world.step(&Op::Auth(true))
    }),
    ("there are no credentials", |world| {
        world.step(&Op::Auth(false))
    }),
    // the driver
    ("it opens", |world| world.step(&Op::Opened(Whose::Current))),
    ("nobody is there", |world| end(world, FaultKind::Refused)),
    ("the connection breaks", |world| {
        end(world, FaultKind::Reset)
    }),
    ("a stream ends", |world| {
        let (on, faults) = (world.stream(), Vec::new());
        world.step(&Op::End { on, faults });
    }),
    // the server
    ("it serves", |world| world.step(&Op::Serve(0))),
    ("it serves as a legacy one", |world| {
        world.step(&Op::Serve(LEGACY))
    }),
    ("it replies with an error", |world| {
        reply(world, Reply::Error(0), Form::Json, 0);
    }),
    ("it replies with a question", |world| {
        reply(world, Reply::InputRequired(3), Form::Json, 0);
    }),
    ("its reply breaks off", |world| {
        reply(world, Reply::Good(0), Form::Events(1), 160);
    }),
    ("it knows no session", |world| {
        reply(world, Reply::Empty, Form::Error(0), 0);
    }),
    ("it wants credentials", |world| {
        reply(world, Reply::Empty, Form::Error(2), 0);
    }),
    // the clock
    ("time passes until something is due", |world| {
        world.step(&Op::Nap(Nap::ToDeadline));
    }),
];

/// The taste of a server that has no other version than the last one with sessions.
const LEGACY: u8 = 6;

fn call(method: u8) -> Op {
    Op::Call {
        method,
        params: 0,
        options: 0,
    }
}

fn end(world: &mut World<'_>, fault: FaultKind) {
    let on = world.oldest();
    let faults = vec![fault];
    world.step(&Op::End { on, faults });
}

fn reply(world: &mut World<'_>, how: Reply, form: Form, cut: u8) {
    let on: On = world.oldest();
    world.step(&Op::Reply { on, how, form, cut });
}
