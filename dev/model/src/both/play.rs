//! Two applications and the world between them, that do what the script says. Judges nothing.

use std::cell::Cell;
use std::rc::Rc;

use everlink::client::{CallOptions, State};
use everlink::protocol::{LogLevel, Repeat, method};
use everlink::server::{InputRequired, Progress};
use everlink::{
    Change, Epoch, ErrorObject, ExitStatus, List, Payload, RequestId, Server, client, server,
};
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::script::{Op, Setup};
use crate::Pair;
use crate::script::wish;
use crate::server::{offer, question};

/// No single step of the script may take more than this of the driver.
const STEPS: usize = 1_000_000;

/// Plays a script to its end, checks every rule on the way, and lets the link close.
///
/// # Panics
///
/// When a rule is broken.
pub fn run(setup: &Setup, ops: &[Op]) {
    let life = Rc::new(Cell::new(Epoch::NONE));
    let (servers, begun) = (setup.servers.clone(), life.clone());
    let cast = move |epoch: Epoch| {
        begun.set(epoch);
        let nth = usize::try_from(epoch.number()).expect("few lives");
        Server::new(servers[(nth - 1) % servers.len()].clone())
    };
    let mut world = World {
        pair: Pair::served_by(setup.client.clone(), cast).cut(setup.cut),
        life,
        ledger: Ledger::default(),
        marks: 0,
        closed: false,
        slipped: false,
    };
    for op in ops {
        world.act(op);
    }
    world.end();
}

struct World {
    pair: Pair,
    /// The life of the present server, or of the last one.
    life: Rc<Cell<Epoch>>,
    ledger: Ledger,
    marks: u64,
    closed: bool,
    /// Somebody else wrote into a pipe.
    slipped: bool,
}

impl World {
    fn act(&mut self, op: &Op) {
        match op {
            Op::Answer { which, how } => self.answer(*which, *how),
            Op::Ask { which, what } => self.ask(*which, *what),
            Op::Call { method, options } => self.call(*method, *options),
            Op::Cancel(which) => {
                if let Some(call) = pick(&self.ledger.open_calls(), *which) {
                    let (client, now) = self.pair.client();
                    let cancelled = client.cancel(now, call, Some("a whim"));
                    // It may be settled already, and nobody was told yet.
                    drop(cancelled);
                }
            }
            Op::Fail(which) => self.give(*which, |server, now, request, data| {
                let error = ErrorObject {
                    data: Some(data),
                    ..ErrorObject::new(-7, "no\nway")
                };
                server.fail(now, request, error)
            }),
            Op::Kill => {
                if self.pair.has_server() {
                    self.pair.kill_server(ExitStatus::Code(70));
                }
            }
            Op::News { which, what } => self.news(*which, *what),
            Op::Noise(which) => {
                self.slipped = true;
                let line = [&b"hello\n"[..], b"{}\n", b"\n", b"[]\n"][usize::from(which / 2 % 4)];
                match which % 2 {
                    0 => self.pair.slip_to_client(line),
                    _ if self.pair.has_server() => self.pair.slip_to_server(line),
                    _ => {}
                }
            }
            Op::Offer(which) => {
                if self.pair.has_server() {
                    let (server, now) = self.pair.server();
                    server.offer(now, offer(*which));
                }
            }
            Op::Reconnect => {
                let (client, now) = self.pair.client();
                client.reconnect(now, client.epoch(), "a whim");
            }
            Op::RequireInput { which, how } => self.require_input(*which, *how),
            Op::Respond(which) => self.give(*which, Server::respond),
            Op::Serve => self.serve(),
            Op::Settle => self.settle(),
            Op::Shutdown(0) => self.shutdown(),
            Op::Shutdown(_) => {
                if self.pair.has_server() {
                    let (server, now) = self.pair.server();
                    server.shutdown(now);
                }
            }
            Op::Sleep => {
                self.settle();
                self.pair.sleep();
                self.collect();
            }
            Op::Step(steps) => {
                for _ in 0..*steps {
                    self.step();
                }
            }
            Op::Wake => {
                let (client, now) = self.pair.client();
                client.wake(now);
            }
            Op::Watch(bits) => {
                let (client, now) = self.pair.client();
                client.watch(now, wish(*bits));
            }
        }
        self.collect();
    }

    fn call(&mut self, method: u8, options: u8) {
        let methods = [
            "tools/call",
            "tools/call",
            "tools/call",
            "resources/read",
            "prompts/get",
            "completion/complete",
            "x/unheard_of",
            "tools/list",
        ];
        let name = methods[usize::from(method) % methods.len()];
        let mark = self.mark();
        let params = json!({"mark": mark, "name": "add", "uri": "file:///a"});
        let mut with = CallOptions::new();
        with.idempotent = options & 1 != 0;
        with.no_progress = options & 2 != 0;
        let (client, now) = self.pair.client();
        let (call, mark) = if method >= 250 {
            (client.list(now, List::Tools, with), None)
        } else {
            let params = Some(payload(&params));
            (client.call(now, name, params, with), Some(mark))
        };
        if let Ok(call) = call {
            let is_safe = method::find(name).is_some_and(|facts| facts.repeat == Repeat::Safe);
            let may_repeat = is_safe || with.idempotent || mark.is_none();
            self.ledger.called(call, mark, may_repeat);
        }
    }

    fn answer(&mut self, which: u8, how: u8) {
        let Some(ask) = pick(&self.ledger.open_questions(), which) else {
            return;
        };
        let of = self.ledger.mark_of_question(ask);
        let answer = match how % 4 {
            3 => Err(ErrorObject::new(-1, "no\nway")),
            _ => Ok(payload(&json!({"of": of, "roots": []}))),
        };
        let (client, now) = self.pair.client();
        if client.answer(now, ask, answer).is_ok() {
            self.ledger.unasked(ask);
        }
    }

    /// Answers a request with something that says which one it is for.
    fn give<E: std::fmt::Debug>(
        &mut self,
        which: u8,
        answer: impl FnOnce(&mut Server, everlink::Instant, RequestId, Payload) -> Result<(), E>,
    ) {
        let Some((life, request)) = self.request(which) else {
            return;
        };
        let serial = self.mark();
        let echo = self.ledger.mark_of(life, request);
        let result = payload(&json!({"echo": echo, "serial": serial, "tools": []}));
        let (server, now) = self.pair.server();
        if answer(server, now, request, result).is_ok() {
            self.ledger.answered(life, request, serial);
        }
    }

    fn require_input(&mut self, which: u8, how: u8) {
        let Some((life, request)) = self.request(which) else {
            return;
        };
        let of = self.ledger.mark_of(life, request);
        let (mark, serial) = (self.mark(), self.mark());
        let (method, mut params) = question(how, mark);
        params["of"] = json!(of);
        let mut input = InputRequired::new().and_ask("key", method, Some(payload(&params)));
        if how & 8 != 0 {
            input = input.with_state("mine");
        }
        let (server, now) = self.pair.server();
        if server.require_input(now, request, input).is_ok() {
            self.ledger.answered(life, request, serial);
        }
    }

    fn ask(&mut self, which: u8, what: u8) {
        if !self.pair.has_server() {
            return;
        }
        let life = self.life.get();
        let request = self.request(which).filter(|_| which < 200);
        let of = request.and_then(|(life, request)| self.ledger.mark_of(life, request));
        let mark = self.mark();
        let (method, params) = question(what, mark);
        let params = Some(payload(&params));
        let (server, now) = self.pair.server();
        let asked = match request {
            Some((_, request)) => server.ask(now, request, method, params),
            None => server.ask_unbidden(now, method, params),
        };
        if let Ok(ask) = asked {
            self.ledger.asked(life, ask, mark, of);
        }
    }

    fn news(&mut self, which: u8, what: u8) {
        if what % 8 == 7 {
            let (client, now) = self.pair.client();
            drop(client.notify(now, "notifications/roots/list_changed", None));
            return;
        }
        let request = self.request(which);
        if !self.pair.has_server() {
            return;
        }
        let (server, now) = self.pair.server();
        let data = payload(&json!({"what": what}));
        let told = match (what % 8, request) {
            (0 | 1, Some((_, request))) => {
                let progress = Progress::new(f64::from(what)).with_message("on\nmy way");
                server.progress(now, request, progress)
            }
            (2, request) => {
                let request = request.map(|(_, request)| request);
                server.log(now, request, LogLevel::Error, None, data)
            }
            (3, _) => server.notify(now, "x/told", Some(data)),
            (4, _) => server.publish(now, Change::List(List::Prompts)),
            (5, _) => {
                let uri = "file:///a".into();
                server.publish(now, Change::Resource { uri })
            }
            _ => server.publish(now, Change::List(List::Tools)),
        };
        drop(told);
    }

    fn serve(&mut self) {
        for _ in self.ledger.open_requests(self.life.get()) {
            self.give(0, Server::respond);
        }
    }

    fn request(&self, which: u8) -> Option<(Epoch, RequestId)> {
        let life = self.life.get();
        let open = self.ledger.open_requests(life);
        let request = pick(&open, which).filter(|_| self.pair.has_server())?;
        Some((life, request))
    }

    fn shutdown(&mut self) {
        let (client, now) = self.pair.client();
        client.shutdown(now);
    }

    fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }
}

/// The driver.
impl World {
    fn step(&mut self) -> bool {
        let moved = self.pair.step();
        self.collect();
        moved
    }

    fn settle(&mut self) {
        let mut steps = STEPS;
        while self.step() {
            steps -= 1;
            assert!(steps > 0, "the two ends spin");
        }
    }

    fn collect(&mut self) {
        for event in self.pair.take_server_events() {
            self.ledger.at_server(self.life.get(), &event);
            if let server::Event::Closed { .. } = event {
                self.ledger.server_closed(self.life.get());
            }
        }
        for event in self.pair.take_client_events() {
            assert!(!self.closed, "{event:?} after the end");
            self.ledger.at_client(&event);
            self.closed |= matches!(event, client::Event::Closed);
        }
        if !self.slipped {
            let (client, _) = self.pair.client();
            assert_eq!(
                client.stats().noise,
                0,
                "the server wrote something of no use"
            );
            if self.pair.has_server() {
                let (server, _) = self.pair.server();
                assert_eq!(
                    server.stats().noise,
                    0,
                    "the client wrote something of no use"
                );
            }
        }
    }

    /// All that is asked is answered; then the link is shut down, and ends.
    fn end(&mut self) {
        for _ in 0..4 {
            self.settle();
            self.serve();
            assert_eq!(self.request(0), None, "a request cannot be answered");
        }
        self.settle();
        self.shutdown();
        for _ in 0..100 {
            self.settle();
            if self.closed {
                break;
            }
            self.pair.sleep();
        }
        let (client, _) = self.pair.client();
        assert_eq!(client.state(), State::Closed, "(13) it does not end");
        self.ledger.closed();
    }
}

fn payload(value: &Value) -> Payload {
    value.to_string().parse().expect("JSON")
}

fn pick<T: Copy>(from: &[T], which: u8) -> Option<T> {
    from.get(usize::from(which) % from.len().max(1)).copied()
}
