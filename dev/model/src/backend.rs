//! The application of the servers behind a client or a relay, and what became of each call: which servers ran it, and which answers
//! were given to it.

use std::collections::{BTreeMap, BTreeSet};

use everlink::protocol::LogLevel;
use everlink::server::{Event, InputRequired, Misuse, Progress, Request};
use everlink::{AskId, Epoch, ErrorObject, Instant, Payload, RequestId, Server};
use serde_json::{Value, json};

use crate::explore::StateView;
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::pair::Pair;
use crate::script::nth;
use crate::server::{change, offer, params_of, payload, question};

#[derive(Debug)]
pub(crate) struct Backend {
    marks: u64,
    /// The calls by their marks.
    calls: BTreeMap<u64, Call>,
    /// The requests of the present server, and the marks of their calls.
    requests: Ledger<RequestId, Option<u64>>,
    /// The questions of the present server, and their marks.
    asks: Ledger<AskId, u64>,
    /// The questions of all servers by their marks, and the calls that they are asked for.
    asked_for: BTreeMap<u64, Option<u64>>,
    /// The last epoch of which there was an event.
    epoch: Epoch,
    /// Every answer to a question names that question.
    answers_are_exact: bool,
}

#[derive(Debug)]
struct Call {
    may_repeat: bool,
    /// Where it reached an application, but for those times when it brought input that was wanted.
    runs: Vec<Epoch>,
    has_run: bool,
    /// The numbers in the answers that were given to it.
    answers: BTreeSet<u64>,
    is_answered: bool,
    /// It was said that no server was sent it.
    was_not_sent: bool,
}

impl Backend {
    pub(crate) fn new(answers_are_exact: bool) -> Backend {
        Backend {
            marks: 0,
            calls: BTreeMap::new(),
            requests: Ledger::new(),
            asks: Ledger::new(),
            asked_for: BTreeMap::new(),
            epoch: Epoch::NONE,
            answers_are_exact,
        }
    }

    pub(crate) fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    pub(crate) fn called(&mut self, mark: u64, may_repeat: bool) {
        self.calls.entry(mark).or_insert(Call {
            may_repeat,
            runs: Vec::new(),
            has_run: false,
            answers: BTreeSet::new(),
            is_answered: false,
            was_not_sent: false,
        });
    }

    /// The caller is told this answer to a call.
    pub(crate) fn told(&mut self, mark: u64, serial: u64) {
        let call = self.calls.get_mut(&mark).expect("a call");
        let is_given = call.answers.contains(&serial);
        assert!(is_given, "call {mark} is told what nobody answered");
        let was_answered = std::mem::replace(&mut call.is_answered, true);
        assert!(!was_answered, "(1) call {mark} is answered twice");
    }

    /// The caller is told that no server was sent a call.
    pub(crate) fn not_sent(&mut self, mark: u64) {
        let call = self.calls.get_mut(&mark).expect("a call");
        call.was_not_sent = true;
        call.check(mark);
    }

    /// The call that a question is asked for, unless the question is unknown.
    pub(crate) fn asked_for(&self, mark: u64) -> Option<Option<u64>> {
        self.asked_for.get(&mark).copied()
    }

    /// An event of the server of an epoch.
    pub(crate) fn event(&mut self, epoch: Epoch, event: &Event) {
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.requests.clear();
            self.asks.clear();
        }
        match event {
            Event::Request(request) => self.runs(request),
            Event::Cancelled { request, .. } => drop(self.requests.end(*request)),
            Event::Answered {
                ask,
                request,
                outcome,
            } => {
                let mark = *self.asks.end(*ask);
                if let Ok(answer) = outcome {
                    let answer: Value = answer.parse().expect("JSON");
                    let of = answer["of"].as_u64();
                    if of.is_some() || self.answers_are_exact {
                        assert_eq!(of, Some(mark), "{ask} has the answer to another");
                    }
                }
                if let Some(request) = request {
                    assert!(self.requests.get(*request).is_some());
                }
            }
            Event::Closed { .. } => self.asks.assert_all_ended(),
            _ => {}
        }
    }

    fn runs(&mut self, request: &Request) {
        let params = params_of(request);
        let mark = params["mark"].as_u64();
        self.requests.begin(request.request, mark);
        if let Some((mark, call)) = mark.and_then(|mark| Some((mark, self.calls.get_mut(&mark)?))) {
            call.has_run = true;
            if request.input.is_none() {
                call.runs.push(self.epoch);
            }
            call.check(mark);
        }
    }

    /// What is not over yet.
    pub(crate) fn look(&self, view: &mut StateView) {
        for (request, mark) in self.requests.open() {
            view.request(request);
            view.plain(mark.is_some());
        }
        self.asks.open().for_each(|(ask, _)| view.ask(ask));
    }
}

impl Call {
    fn check(&self, mark: u64) {
        let epochs: BTreeSet<&Epoch> = self.runs.iter().collect();
        let is_once = epochs.len() == self.runs.len();
        assert!(is_once, "(7) call {mark} runs twice in one epoch");
        let may_be = self.may_repeat || epochs.len() <= 1;
        assert!(may_be, "(7) call {mark} runs again in another epoch");
        let was_sent = !self.was_not_sent || !self.has_run;
        assert!(was_sent, "(7) call {mark} was not sent, and runs");
    }
}

/// What the application does.
impl Backend {
    pub(crate) fn request(&self, pair: &Pair<impl Machine>, which: u8) -> Option<RequestId> {
        let open = self.open(pair);
        nth(&open, which)
    }

    pub(crate) fn open(&self, pair: &Pair<impl Machine>) -> Vec<RequestId> {
        let is_here = pair.look().is_some_and(|(epoch, _)| epoch == self.epoch);
        match pair.has_server() && is_here {
            true => self.requests.open_ids(),
            false => Vec::new(),
        }
    }

    /// Answers a request with something that says which call it is for.
    pub(crate) fn give(
        &mut self,
        pair: &mut Pair<impl Machine>,
        which: u8,
        answer: impl FnOnce(&mut Server, Instant, RequestId, Payload) -> Result<(), Misuse>,
    ) {
        let Some(request) = self.request(pair, which) else {
            return;
        };
        let serial = self.mark();
        let mark = *self.requests.get(request).expect("a request");
        let result = payload(&json!({"echo": mark, "serial": serial, "tools": []}));
        let (server, now) = pair.server();
        if answer(server, now, request, result).is_ok() {
            self.requests.end(request);
            let call = mark.and_then(|mark| self.calls.get_mut(&mark));
            if let Some(call) = call {
                call.answers.insert(serial);
            }
        }
    }

    pub(crate) fn fail(&mut self, pair: &mut Pair<impl Machine>, which: u8) {
        self.give(pair, which, |server, now, request, data| {
            let mut error = ErrorObject::new(-7, "no\nway");
            error.data = Some(data);
            server.fail(now, request, error)
        });
    }

    pub(crate) fn serve(&mut self, pair: &mut Pair<impl Machine>) {
        for _ in self.open(pair) {
            self.give(pair, 0, Server::respond);
        }
    }

    pub(crate) fn require_input(
        &mut self,
        pair: &mut Pair<impl Machine>,
        which: u8,
        how: u8,
        state: Option<&str>,
    ) {
        let mark = self.mark();
        let request = self.request(pair, which);
        let of = request.and_then(|request| self.requests.get(request).copied());
        self.give(pair, which, |server, now, request, _| {
            let (method, mut params) = question(how, mark);
            params["for"] = json!(of.flatten());
            let mut input = InputRequired::new().and_ask("key", method, Some(payload(&params)));
            if let Some(state) = state {
                input = input.with_state(state);
            }
            server.require_input(now, request, input)
        });
    }

    pub(crate) fn ask(&mut self, pair: &mut Pair<impl Machine>, which: u8, what: u8) {
        if !pair.has_server() {
            return;
        }
        let request = self.request(pair, which).filter(|_| which < 200);
        let of = request.and_then(|request| *self.requests.get(request)?);
        let mark = self.mark();
        let (method, params) = question(what, mark);
        let params = Some(payload(&params));
        let (server, now) = pair.server();
        let asked = match request {
            Some(request) => server.ask(now, request, method, params),
            None => server.ask_unbidden(now, method, params),
        };
        if let Ok(ask) = asked {
            let (epoch, _) = pair.look().expect("a transport");
            if std::mem::replace(&mut self.epoch, epoch) != epoch {
                self.requests.clear();
                self.asks.clear();
            }
            self.asks.begin(ask, mark);
            self.asked_for.insert(mark, of);
        }
    }

    /// Progress, a log, a notification, a change, or another offer.
    pub(crate) fn notify(&mut self, pair: &mut Pair<impl Machine>, which: u8, what: u8) {
        let request = self.request(pair, which);
        if !pair.has_server() {
            return;
        }
        let (server, now) = pair.server();
        let data = payload(&json!({"what": what}));
        let told = match (what % 8, request) {
            (0 | 1, Some(request)) => {
                let progress = Progress::new(f64::from(what)).with_message("on\nmy way");
                server.progress(now, request, progress)
            }
            (2, request) => server.log(now, request, LogLevel::Error, None, data),
            (3, _) => server.notify(now, "x/told", Some(data)),
            (4, _) => server.publish(now, change(1)),
            (5, _) => server.publish(now, change(4)),
            (6, _) => {
                server.offer(now, offer(what));
                Ok(())
            }
            _ => server.publish(now, change(0)),
        };
        drop(told);
    }
}
