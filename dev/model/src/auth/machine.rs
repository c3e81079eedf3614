//! Operations on two processes that share the tokens of one account.

use std::time::Duration;

use everlink::auth::{Input, Prepared, Request, Secret, State, TokenPoll};
use everlink::http::{Fields, ResponseHead};

use super::rig::{ISSUER, Rig, STATE, url};
use super::setup::Setup;
use crate::script::{Script, choices};

choices! {
    /// What one of the two processes does.
    enum Step {
        2 First(Op),
        1 Second(Op),
    }
}

choices! {
    enum Op {
        /// The oldest output is answered as expected.
        8 Serve,
        /// It is answered in another way.
        4 Answer(u8),
        2 ToDeadline,
        /// The server wants a token, or a wider scope.
        2 Challenge,
        1 StepUp,
        /// The person signs in, or comes back in another way.
        2 SignedIn,
        1 Redirect(u8),
        1 SignIn,
        1 SignOut,
        1 Cancel,
        1 Pass(u8),
        /// The clock of the wall is set.
        1 SetClock { seconds: u8, back: bool },
        1 Restart,
        /// An input that nobody waits for, or a call of the application.
        1 Disturb(u8),
    }
}

/// Performs the operations, and lets both processes come to rest.
pub(super) fn run(data: &[u8]) {
    let (setup, steps) = read(data);
    let first = Rig::new(setup);
    let second = first.beside();
    let mut rigs = [first, second];
    for rig in &mut rigs {
        rig.expect_texts(data);
    }
    for step in &steps {
        match step {
            Step::First(op) => rigs[0].act(op),
            Step::Second(op) => rigs[1].act(op),
        }
    }
    for _ in 0..4_000 {
        let [first, second] = &mut rigs;
        if !first.step() & !second.step() {
            return;
        }
    }
    panic!("two processes do not come to rest");
}

/// The setup and the operations, for people.
pub(super) fn show(data: &[u8]) -> String {
    let (setup, steps) = read(data);
    let steps = steps.iter();
    steps.fold(format!("{setup:?}\n"), |text, step| {
        format!("{text}{step:?}\n")
    })
}

fn read(data: &[u8]) -> (Setup, Vec<Step>) {
    let mut script = Script::new(data, 0);
    (Setup::read(&mut script), script.operations())
}

impl Rig {
    fn act(&mut self, op: &Op) {
        let now = self.now();
        if let Op::Challenge | Op::StepUp | Op::Disturb(_) = op {
            self.excuse_sign_ins();
        }
        match op {
            Op::Serve => drop(self.answer_next(0)),
            Op::Answer(manner) => drop(self.answer_next(*manner)),
            Op::ToDeadline => self.pass_to_deadline(),
            Op::Challenge => self.challenge(401, &[b"Bearer scope=\"read\""]),
            Op::StepUp => self.challenge(
                403,
                &[b"Bearer error=\"insufficient_scope\", scope=\"more\""],
            ),
            Op::SignedIn => self.redirect(&format!("?code=SECRET-c&state={STATE}")),
            Op::Redirect(which) => {
                let queries = [
                    "?code=x&state=forged",
                    "?error=access_denied&state=the-state",
                    "?error=unauthorized_client&state=the-state",
                    "?code=x&state=the-state&iss=https://evil.example",
                ];
                self.redirect(queries[usize::from(which % 4)]);
            }
            Op::SignIn => {
                self.sign_ins = 0;
                self.auth.sign_in(now);
            }
            Op::SignOut if self.state() != State::Loading => {
                self.sign_ins = 0;
                self.auth.sign_out(now);
            }
            Op::SignOut | Op::Cancel => self.auth.cancel(now),
            Op::Pass(exponent) => {
                self.note_delay();
                let seconds = 1_u64 << (exponent % 20);
                self.clock += Duration::from_secs(seconds);
                self.unix += seconds;
                let now = self.now();
                self.auth.handle_timeout(now);
            }
            Op::SetClock { seconds, back } => {
                let seconds = 1_u64 << (seconds % 20);
                let back = if *back { seconds } else { 0 };
                self.unix = (self.unix + seconds).saturating_sub(2 * back);
            }
            Op::Restart => self.restart(),
            Op::Disturb(which) => self.disturb(*which),
        }
        self.poll();
    }

    fn disturb(&mut self, which: u8) {
        let now = self.now();
        match which % 8 {
            0 => self.auth.handle(now, Input::Given(Secret::new("SECRET-x"))),
            1 => self.auth.handle(now, Input::Prepared(Prepared::default())),
            2 if self.exchange.is_none() => {
                // The answer of an exchange that has ended.
                let exchange = Request::get(url(ISSUER)).exchange;
                let (head, body) = (ResponseHead::new(200), &b"{}"[..]);
                let input = Input::Response {
                    exchange,
                    head,
                    body,
                };
                self.auth.handle(now, input);
            }
            3 => {
                self.last_token = match self.auth.poll_token(now) {
                    TokenPoll::Ready(token) => Some(token.id),
                    _ => self.last_token,
                };
            }
            4 => {
                // A request that carried an older token was refused.
                let fields = Fields::new().and("WWW-Authenticate", "Bearer");
                self.auth.challenge(now, 401, &fields, self.last_token);
            }
            5 => {
                let fields = Fields::new().and("DPoP-Nonce", "another");
                self.auth.observe(&fields);
            }
            _ => self.auth.handle_timeout(now),
        }
    }
}
