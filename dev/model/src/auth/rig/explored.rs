//! An authorizer as the explorer sees it: its actions, its endings, and what can be seen of it.

use everlink::Instant;
use everlink::auth::State;

use super::{Rig, STATE, Setup};
use crate::explore::{Action, Explored, Machine, StateView};
use crate::world::Transcript;

impl Explored for Rig {
    /// Its Debug output shows little, so what it has kept in the store and how often it asked somebody are seen, too.
    fn look(&self, view: &mut StateView) {
        view.shown(&self.auth);
        view.due(self.now().at, self.auth.poll_timeout());
        for output in &self.pending {
            view.shown(output);
        }
        for (key, (_, record)) in &self.shared.borrow().records {
            view.shown(key);
            view.text(record);
        }
        view.plain((self.locks.len(), self.exchange.is_some(), self.sign_ins));
        view.plain(self.unix);
    }

    fn now(&self) -> Instant {
        Rig::now(self).at
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.transcript
    }

    fn was_touched(&mut self) -> bool {
        std::mem::take(&mut self.is_touched)
    }
}

impl Rig {
    /// Answers the oldest output in this manner, if there is one.
    fn answer_oldest(&mut self, manner: u8) {
        if let Some(output) = self.pending.pop_front() {
            self.answer(output, manner);
        }
    }

    /// The application does something that allows another sign-in.
    fn wanted(&mut self, act: impl FnOnce(&mut Rig)) {
        self.sign_ins = 0;
        act(self);
        self.poll();
    }

    /// Everybody does what is expected, the person included, until it rests.
    fn rest(&mut self) {
        self.finish();
        if self.state() == State::Asking {
            self.redirect(&format!("?code=SECRET-c&state={STATE}"));
            self.finish();
        }
        let state = self.state();
        assert!(
            state.is_idle() || state == State::Asking,
            "{state:?} does not end"
        );
    }
}

fn act(name: &'static str, act: fn(&mut Rig)) -> Action<Rig> {
    (name, Box::new(act))
}

/// An authorizer with a browser, and everything that can happen to it.
pub(crate) fn machine() -> Machine<Rig> {
    Machine {
        name: "auth",
        merges: false,
        start: || {
            Rig::new(Setup {
                waits_for_redirect: true,
                ..Setup::default()
            })
        },
        endings: vec![
            act("has good peers and must rest", Rig::rest),
            act("is refused and must rest", |rig| {
                rig.finish();
                rig.challenge(401, &[b"Bearer"]);
                rig.rest();
            }),
            act("is signed out and must end", |rig| {
                rig.rest();
                rig.wanted(|rig| rig.auth.sign_out(rig.now()));
                rig.finish();
                assert_eq!(rig.state(), State::SignedOut);
            }),
        ],
        actions: vec![
            // the store and the servers
            act("it is answered", |rig| rig.answer_oldest(0)),
            act("the store fails, or the connection", |rig| {
                rig.answer_oldest(1);
            }),
            act("the server fails", |rig| rig.answer_oldest(2)),
            act("the server is busy", |rig| rig.answer_oldest(3)),
            act("the grant is refused", |rig| rig.answer_oldest(4)),
            act("the client is not known", |rig| rig.answer_oldest(5)),
            act("a call is refused", |rig| rig.challenge(401, &[b"Bearer"])),
            act("a call needs another scope", |rig| {
                let demand = b"Bearer error=\"insufficient_scope\", scope=\"more\"";
                rig.challenge(403, &[demand]);
            }),
            // the person
            act("the person signs in", |rig| {
                rig.redirect(&format!("?code=SECRET-c&state={STATE}"));
            }),
            act("the person refuses", |rig| {
                rig.redirect(&format!("?error=access_denied&state={STATE}"));
            }),
            act("somebody else answers", |rig| {
                rig.redirect("?code=x&state=forged");
            }),
            // the application
            act("sign in", |rig| {
                rig.wanted(|rig| rig.auth.sign_in(rig.now()));
            }),
            act("sign out", |rig| {
                if rig.state() != State::Loading {
                    rig.wanted(|rig| rig.auth.sign_out(rig.now()));
                }
            }),
            act("cancel", |rig| {
                rig.auth.cancel(rig.now());
                rig.poll();
            }),
            // the clock
            act("time passes until something is due", Rig::pass_to_deadline),
            act("two hours pass", |rig| rig.pass_hours(2)),
        ],
    }
}
