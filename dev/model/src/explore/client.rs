//! The client over the standard streams of a child: its alphabet.

use std::sync::OnceLock;
use std::time::Duration;

use everlink::protocol::ClientCapabilities;
use everlink::{Config, FaultKind, Instant, Keepalive, Limit, List, Watch, WhenSpent};

use super::Sight;
use super::search::{Deed, Machine, World as Explored};
use crate::app::Transcript;
use crate::play::World;
use crate::script::{Nap, Op, Reply, Setup, Speech, Whose};

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

pub(super) fn stdio() -> Machine<World<'static>> {
    Machine {
        name: "client",
        start: || World::new(setup(), true),
        letters: LETTERS.to_vec(),
        futures: FUTURES.to_vec(),
    }
}

/// Spans are few and short, so that what happens in one order or the other does so soon; limits are so low that they are met.
/// Nothing is jittered: what was drawn before does not tell states apart.
pub(super) fn small(mut config: Config) -> Config {
    let seconds = Duration::from_secs;
    config.capabilities = ClientCapabilities::default().with_roots(true);
    config.watch = Watch::none();
    let policy = &mut config.policy;
    policy.open_timeout = seconds(40);
    policy.probe_timeout = seconds(5);
    policy.handshake_notice = Duration::MAX;
    policy.handshake_timeout = seconds(40);
    policy.call_idle = Limit::After(seconds(20));
    policy.call_total = Limit::After(seconds(50));
    policy.ask_timeout = seconds(20);
    policy.pause_total = seconds(40);
    policy.resends = 1;
    policy.drain = seconds(10);
    policy.close_grace = seconds(5);
    policy.terminate_grace = seconds(5);
    policy.kill_grace = seconds(5);
    let mut keepalive = Keepalive::every(seconds(30));
    keepalive.timeout = seconds(10);
    policy.keepalive = Some(keepalive);
    policy.retry.budget = 1;
    policy.retry.first = Duration::ZERO;
    policy.retry.cap = Duration::ZERO;
    policy.retry.floor = seconds(1);
    policy.retry.stable_after = seconds(60);
    policy.retry.call_patience = seconds(5);
    policy.retry.call_pace = seconds(2);
    policy.retry.when_spent = WhenSpent::Park {
        probe: Duration::MAX,
    };
    config.limits.queued_calls = 1;
    config.limits.calls_in_flight = 1;
    config.limits.asks = 1;
    config.limits.input_rounds = 1;
    config
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| Setup::prompt(small(Config::child("explore", "1"))))
}

const FUTURES: [Deed<World<'static>>; 3] = [
    ("is left alone", World::leave_alone),
    ("is shut down and must end", World::close),
    ("meets a good server and must get well", World::get_well),
];

const LETTERS: [Deed<World<'static>>; 21] = [
    // the application
    ("connect", |world| world.step(&Op::Connect)),
    ("call a tool", |world| world.step(&call(0))),
    ("read a resource", |world| world.step(&call(2))),
    ("list the tools", |world| {
        let (list, options) = (List::Tools, 0);
        world.step(&Op::List { list, options });
    }),
    ("cancel the oldest call", |world| {
        world.app.cancel_oldest();
        world.drain();
    }),
    ("answer the newest question", |world| {
        let which = world.app.newest_ask();
        world.step(&Op::Answer { which, how: 0 });
    }),
    ("two want another server", |world| {
        world.step(&Op::Reconnect(Whose::Current));
        world.step(&Op::Reconnect(Whose::Current));
    }),
    ("wake", |world| world.step(&Op::Wake)),
    ("shutdown", |world| world.step(&Op::Shutdown)),
    // the driver
    ("it opens, and the one before it ends", |world| {
        let (whose, faults) = (Whose::Past(0), vec![FaultKind::Read]);
        world.step(&Op::End { whose, faults });
        world.step(&Op::Opened(Whose::Current));
    }),
    ("it cannot be opened", |world| {
        let (whose, faults) = (Whose::Current, vec![FaultKind::NotFound]);
        world.step(&Op::OpenFailed { whose, faults });
    }),
    ("its output ends", |world| {
        let (whose, faults) = (Whose::Current, Vec::new());
        world.step(&Op::End { whose, faults });
    }),
    ("it exits", |world| {
        let (whose, status) = (Whose::Current, 3);
        world.step(&Op::Exited { whose, status });
    }),
    ("it cannot be written to", |world| {
        let (whose, faults) = (Whose::Current, vec![FaultKind::BrokenPipe]);
        world.step(&Op::WriteFailed { whose, faults });
    }),
    // the server
    ("it serves", |world| world.step(&Op::Serve(0))),
    ("it replies", |world| reply(world, Reply::Good(0))),
    ("it replies with an error", |world| {
        reply(world, Reply::Error(0))
    }),
    ("it replies with a question", |world| {
        reply(world, Reply::InputRequired(3))
    }),
    ("it asks", |world| {
        say(world, Speech::Ask { id: 0, what: 0 })
    }),
    ("it says that the tools changed", |world| {
        say(world, Speech::Changed(0))
    }),
    // the clock
    ("time passes until something is due", |world| {
        world.step(&Op::Nap(Nap::ToDeadline));
    }),
];

fn call(method: u8) -> Op {
    Op::Call {
        method,
        params: 0,
        options: 0,
    }
}

fn reply(world: &mut World<'_>, how: Reply) {
    let which = world.peer.oldest();
    say(world, Speech::Reply { which, how });
}

fn say(world: &mut World<'_>, speech: Speech) {
    world.step(&Op::Say {
        whose: Whose::Current,
        speech,
        cut: 0,
    });
}

#[cfg(test)]
mod tests {
    use everlink::client::State;

    use super::super::Bounds;
    use super::super::search::search;
    use super::*;

    #[test]
    fn a_rule_that_does_not_hold_is_found_by_the_shortest_word() {
        let word = [
            "it serves",
            "call a tool",
            "two want another server",
            "judge",
        ];
        let mut machine = stdio();
        let is_needed = |name: &&str| *name == "connect" || word.contains(name);
        machine.letters.retain(|(name, _)| is_needed(name));
        machine.letters.push(("judge", |world| {
            let state = world.app.client.state();
            assert_ne!(state, State::Draining, "nothing is ever given a while");
        }));
        let found = search(&machine, Bounds::depth(6)).unwrap_err();
        assert_eq!(found.word, word);
        assert!(found.what.contains("nothing is ever given"), "{found}");
    }
}
