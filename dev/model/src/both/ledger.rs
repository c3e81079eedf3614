//! What was called, what ran, and what came of it. Does nothing.

use std::collections::{BTreeMap, BTreeSet};

use everlink::client::{self, Delivery, Outcome};
use everlink::{AskId, CallId, Epoch, RequestId, server};
use serde_json::Value;

/// The accounts of both applications.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    calls: BTreeMap<CallId, Call>,
    marks: BTreeMap<u64, CallId>,
    requests: BTreeMap<(Epoch, RequestId), Request>,
    /// The questions of the server's application, by their marks.
    asks: BTreeMap<u64, Ask>,
    /// What the client's application is asked, by which marks.
    asked: BTreeMap<AskId, u64>,
    /// The last life that is known to have begun.
    life: Option<Epoch>,
}

#[derive(Debug)]
struct Call {
    mark: Option<u64>,
    may_repeat: bool,
    runs: Vec<Run>,
    is_done: bool,
    /// It was said that no server was sent it.
    was_not_sent: bool,
}

/// One time that a call reached an application.
#[derive(Debug)]
struct Run {
    life: Epoch,
    /// It was begun anew with input that was wanted of the client.
    is_continued: bool,
    answers: BTreeSet<u64>,
}

#[derive(Debug)]
struct Request {
    mark: Option<u64>,
    is_open: bool,
}

#[derive(Debug)]
struct Ask {
    life: Epoch,
    ask: AskId,
    /// The mark of the call that it is asked for.
    of: Option<u64>,
    was_answered: bool,
}

/// The client's end.
impl Ledger {
    /// A call was accepted.
    pub(super) fn called(&mut self, call: CallId, mark: Option<u64>, may_repeat: bool) {
        let before = self.calls.insert(
            call,
            Call {
                mark,
                may_repeat,
                runs: Vec::new(),
                is_done: false,
                was_not_sent: false,
            },
        );
        assert!(before.is_none(), "{call} was there before");
        self.marks.extend(mark.map(|mark| (mark, call)));
    }

    pub(super) fn open_calls(&self) -> Vec<CallId> {
        let open = self.calls.iter().filter(|(_, call)| !call.is_done);
        open.map(|(id, _)| *id).collect()
    }

    pub(super) fn open_questions(&self) -> Vec<AskId> {
        self.asked.keys().copied().collect()
    }

    /// Which question it is, as its mark says.
    pub(super) fn mark_of_question(&self, ask: AskId) -> u64 {
        self.asked[&ask]
    }

    /// A question was answered, or cannot be any more.
    pub(super) fn unasked(&mut self, ask: AskId) {
        self.asked.remove(&ask);
    }

    pub(super) fn at_client(&mut self, event: &client::Event) {
        match event {
            client::Event::Ask(ask) => {
                let params = ask.params.as_ref().expect("a question of ours");
                let params: Value = params.parse().expect("JSON");
                let mark = params["ask"].as_u64().expect("a question of ours");
                let before = self.asked.insert(ask.ask, mark);
                assert_eq!(before, None, "{} was there before", ask.ask);
                let put = self.asks.get(&mark);
                let of = match put {
                    Some(put) => put.of,
                    None => params["of"].as_u64(),
                };
                if let Some(call) = ask.call {
                    let call = &self.calls[&call];
                    assert!(!call.is_done, "{} for a call that is over", ask.ask);
                    assert_eq!(call.mark, of, "{} is for another call", ask.ask);
                }
            }
            client::Event::AskWithdrawn { ask, .. } => self.unasked(*ask),
            client::Event::Done { call, outcome } => self.done(*call, outcome),
            client::Event::Progress { call, .. } => {
                assert!(!self.calls[call].is_done, "{call} gets on after its end");
            }
            _ => {}
        }
    }

    fn done(&mut self, id: CallId, outcome: &Outcome) {
        let call = self.calls.get_mut(&id).expect("a call that was accepted");
        assert!(!call.is_done, "(1) {id} has a second outcome");
        call.is_done = true;
        let said = match outcome {
            Outcome::Reply(result) => Some(result.parse::<Value>().expect("JSON")),
            Outcome::Error(error) => {
                let data = error.data.as_ref().map(|data| data.parse::<Value>());
                // The link at the other end has errors of its own.
                data.and_then(Result::ok)
                    .filter(|data| data.get("serial").is_some())
            }
            Outcome::Failed(failure) => {
                call.was_not_sent = failure.delivery == Delivery::NotSent;
                None
            }
            _ => None,
        };
        if let (Some(said), Some(mark)) = (said, call.mark) {
            assert_eq!(
                said["echo"].as_u64(),
                Some(mark),
                "(3) {id} has the reply of another"
            );
            let serial = said["serial"].as_u64().expect("a reply of ours");
            let is_given = call.runs.iter().any(|run| run.answers.contains(&serial));
            assert!(is_given, "{id} has a reply that nobody gave");
        }
        call.check(id);
    }

    /// The link is closed.
    pub(super) fn closed(&self) {
        for (id, call) in &self.calls {
            assert!(call.is_done, "(1) closed with {id} open");
        }
    }
}

/// The server's end.
impl Ledger {
    pub(super) fn at_server(&mut self, life: Epoch, event: &server::Event) {
        if self.life.replace(life) != Some(life) {
            self.requests.clear();
        }
        match event {
            server::Event::Request(request) => self.runs(life, request),
            server::Event::Cancelled { request, .. } => {
                let place = self.requests.get_mut(&(life, *request)).expect("a request");
                assert!(place.is_open, "{request} is cancelled after its end");
                place.is_open = false;
            }
            server::Event::Answered {
                ask,
                request,
                outcome,
            } => {
                let mut put = self.asks.iter_mut();
                let put = put.find(|(_, put)| (put.life, put.ask) == (life, *ask));
                let (mark, put) = put.expect("a question of ours");
                assert!(!put.was_answered, "(1) {ask} has a second outcome");
                put.was_answered = true;
                if let Ok(answer) = outcome {
                    let answer: Value = answer.parse().expect("JSON");
                    assert_eq!(
                        answer["of"].as_u64(),
                        Some(*mark),
                        "{ask} has another answer"
                    );
                }
                if let Some(request) = request {
                    assert!(self.requests.contains_key(&(life, *request)));
                }
            }
            _ => {}
        }
    }

    fn runs(&mut self, life: Epoch, request: &server::Request) {
        let params = request
            .params
            .as_ref()
            .map(|params| params.parse::<Value>());
        let params = params.and_then(Result::ok).unwrap_or_default();
        let mark = params["mark"].as_u64();
        let place = Request {
            mark,
            is_open: true,
        };
        let before = self.requests.insert((life, request.request), place);
        assert!(before.is_none(), "{} was there before", request.request);
        let Some(id) = mark.and_then(|mark| self.marks.get(&mark)) else {
            return;
        };
        let call = self.calls.get_mut(id).expect("a call");
        call.runs.push(Run {
            life,
            is_continued: request.input.is_some(),
            answers: BTreeSet::new(),
        });
        call.check(*id);
    }

    /// The requests that are open in this life.
    pub(super) fn open_requests(&self, life: Epoch) -> Vec<RequestId> {
        let open = self.requests.iter();
        let open = open.filter(|((of, _), request)| *of == life && request.is_open);
        open.map(|((_, request), _)| *request).collect()
    }

    /// Which call a request is, as its mark says.
    pub(super) fn mark_of(&self, life: Epoch, request: RequestId) -> Option<u64> {
        self.requests[&(life, request)].mark
    }

    /// A request was answered, with this number in the answer.
    pub(super) fn answered(&mut self, life: Epoch, request: RequestId, serial: u64) {
        let place = self.requests.get_mut(&(life, request)).expect("a request");
        assert!(place.is_open, "{request} is answered after its end");
        place.is_open = false;
        let call = place.mark.and_then(|mark| self.marks.get(&mark));
        let call = call.and_then(|call| self.calls.get_mut(call));
        if let Some(run) = call.and_then(|call| call.runs.last_mut()) {
            run.answers.insert(serial);
        }
    }

    pub(super) fn asked(&mut self, life: Epoch, ask: AskId, mark: u64, of: Option<u64>) {
        let put = Ask {
            life,
            ask,
            of,
            was_answered: false,
        };
        self.asks.insert(mark, put);
    }

    /// A server has closed by itself: all that it asked has an outcome.
    pub(super) fn server_closed(&self, life: Epoch) {
        for (mark, ask) in self.asks.iter().filter(|(_, ask)| ask.life == life) {
            assert!(ask.was_answered, "(1) closed with question {mark} open");
        }
    }
}

impl Call {
    fn check(&self, id: CallId) {
        let begun: Vec<Epoch> = self
            .runs
            .iter()
            .filter(|run| !run.is_continued)
            .map(|run| run.life)
            .collect();
        let lives: BTreeSet<&Epoch> = begun.iter().collect();
        assert_eq!(lives.len(), begun.len(), "(7) {id} runs twice in one life");
        assert!(
            self.may_repeat || begun.len() <= 1,
            "(7) {id} runs again in another life"
        );
        assert!(
            !self.was_not_sent || self.runs.is_empty(),
            "(7) {id} was sent, and runs"
        );
    }
}
