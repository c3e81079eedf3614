//! What a host asked, which server ran it, and what the host was told of it. Does nothing.

use std::collections::{BTreeMap, BTreeSet};

use everlink::protocol::meta;
use everlink::server::{Config, Event};
use everlink::wire::Id;
use everlink::{AskId, RequestId};
use serde_json::Value;

use crate::dialogue::{Dialogue, Said, id};
use crate::explore::Sight;

/// The accounts of both sides of a relay.
#[derive(Debug)]
pub(super) struct Ledger {
    dialogue: Dialogue,
    /// The calls that may be answered under each id, by their marks.
    under: BTreeMap<Id, BTreeSet<u64>>,
    /// The calls that each state may be for.
    states: BTreeMap<String, BTreeSet<u64>>,
    calls: BTreeMap<u64, Call>,
    /// What the server that lives has been asked, and of that what it has not answered.
    requests: BTreeMap<RequestId, Option<u64>>,
    open: BTreeSet<RequestId>,
    /// What it asks itself.
    asks: BTreeMap<AskId, u64>,
    /// The ids under which the host was asked something that was not taken back.
    questions: BTreeSet<Id>,
    /// How often a host has shaken hands.
    handshakes: (u32, u32),
}

#[derive(Debug)]
struct Call {
    is_tool_call: bool,
    runs: u32,
    /// The numbers in the answers that were given to it.
    answers: BTreeSet<u64>,
    is_answered: bool,
}

/// The host's side.
impl Ledger {
    pub(super) fn new(downstream: &Config) -> Ledger {
        Ledger {
            dialogue: Dialogue::new(downstream),
            under: BTreeMap::new(),
            questions: BTreeSet::new(),
            states: BTreeMap::new(),
            calls: BTreeMap::new(),
            requests: BTreeMap::new(),
            open: BTreeSet::new(),
            asks: BTreeMap::new(),
            handshakes: (0, 0),
        }
    }

    /// Looks at what is not over yet in front.
    pub(super) fn look(&self, sight: &mut Sight) {
        sight.plain(self.handshakes.0 - self.handshakes.1);
        self.dialogue.look(sight);
    }

    pub(super) fn dialogue(&self) -> &Dialogue {
        &self.dialogue
    }

    /// The host is about to say this.
    pub(super) fn fed(&mut self, bytes: &[u8]) {
        let (said, _) = self.dialogue.fed(bytes);
        self.said(said);
    }

    /// The host says no more.
    pub(super) fn host_ended(&mut self) {
        let (said, _) = self.dialogue.ended();
        self.said(said);
    }

    fn said(&mut self, said: Vec<Said>) {
        for said in said {
            if let Said::Request { id, method, params } = said {
                self.requested(id, &method, &params);
            }
        }
    }

    fn requested(&mut self, id: Id, method: &str, params: &Value) {
        self.handshakes.0 += u32::from(method == "initialize");
        let under = self.under.entry(id).or_default();
        let state = params["requestState"].as_str();
        let marks = state.and_then(|state| self.states.get(state));
        under.extend(marks.into_iter().flatten());
        if let Some(mark) = params["mark"].as_u64() {
            under.insert(mark);
            let is_tool_call = method == "tools/call";
            self.calls.entry(mark).or_insert(Call {
                is_tool_call,
                runs: 0,
                answers: BTreeSet::new(),
                is_answered: false,
            });
        }
    }

    /// The relay writes this to the host.
    pub(super) fn written(&mut self, bytes: &[u8]) -> Value {
        let message = self.dialogue.written(bytes);
        if message["method"] == "notifications/cancelled" {
            let of = id(&message["params"]["requestId"]).expect("an id");
            let may_be_question = self.questions.remove(&of);
            self.dialogue.announces_end(&of, may_be_question);
        } else if message.get("method").is_some() {
            self.questions.extend(message.get("id").and_then(id));
        }
        if let Some(of) = message
            .get("id")
            .filter(|_| message.get("method").is_none())
        {
            self.responded(&id(of).expect("an id"), &message);
        }
        message
    }

    fn responded(&mut self, of: &Id, message: &Value) {
        let (result, error) = (&message["result"], &message["error"]);
        if result.get("protocolVersion").is_some() {
            self.handshakes.1 += 1;
            let (asked, answered) = self.handshakes;
            assert!(answered <= asked, "the host shakes hands by itself");
        }
        if result["resultType"] == "input_required" {
            let marks = self.under.get(of).cloned().unwrap_or_default();
            let state = result["requestState"].as_str().expect("a state");
            assert!(
                state.starts_with("everlink."),
                "a state of somebody else: {state}"
            );
            self.states.insert(state.to_owned(), marks);
            return;
        }
        let said = if result.is_object() {
            result
        } else {
            &error["data"]
        };
        let (Some(serial), Some(mark)) = (said["serial"].as_u64(), said["echo"].as_u64()) else {
            return;
        };
        let may = self
            .under
            .get(of)
            .is_some_and(|under| under.contains(&mark));
        assert!(may, "(3) {of} is told what call {mark} was answered");
        let call = self.calls.get_mut(&mark).expect("a call");
        assert!(
            call.answers.contains(&serial),
            "call {mark} is told what nobody said"
        );
        assert!(!call.is_answered, "(1) call {mark} is answered twice");
        call.is_answered = true;
    }
}

/// The side of the server that lives.
impl Ledger {
    pub(super) fn server_begins(&mut self) {
        self.requests.clear();
        self.open.clear();
        self.asks.clear();
    }

    /// Looks at what is not over yet behind.
    pub(super) fn look_behind(&self, sight: &mut Sight) {
        for request in &self.open {
            sight.request(*request);
            sight.plain(self.mark_of(*request).is_some());
        }
        self.asks.keys().for_each(|ask| sight.ask(*ask));
    }

    pub(super) fn at_server(&mut self, event: &Event) {
        match event {
            Event::Request(request) => {
                let params = request
                    .params
                    .as_ref()
                    .map(|params| params.parse::<Value>());
                let params = params.and_then(Result::ok).unwrap_or_default();
                for key in meta::OF_THE_LINK {
                    assert_eq!(params["_meta"].get(key), None, "{key} is between the ends");
                }
                let mark = params["mark"].as_u64();
                self.requests.insert(request.request, mark);
                self.open.insert(request.request);
                let call = mark.and_then(|mark| self.calls.get_mut(&mark));
                if let Some(call) = call.filter(|_| request.input.is_none()) {
                    call.runs += 1;
                    let is_repeated = call.is_tool_call && call.runs > 1;
                    assert!(!is_repeated, "(7) a tool is called twice: {mark:?}");
                }
            }
            Event::Cancelled { request, .. } => {
                assert!(
                    self.open.remove(request),
                    "{request} is cancelled after its end"
                );
            }
            Event::Answered { ask, outcome, .. } => {
                let mark = self
                    .asks
                    .remove(ask)
                    .expect("a question, and its first outcome");
                if let Ok(answer) = outcome {
                    let answer: Value = answer.parse().expect("JSON");
                    if let Some(of) = answer["of"].as_u64() {
                        assert_eq!(of, mark, "{ask} has the answer to another");
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn open(&self) -> Vec<RequestId> {
        self.open.iter().copied().collect()
    }

    pub(super) fn mark_of(&self, request: RequestId) -> Option<u64> {
        self.requests[&request]
    }

    pub(super) fn answered(&mut self, request: RequestId, serial: u64) {
        assert!(
            self.open.remove(&request),
            "{request} is answered after its end"
        );
        let call = self
            .mark_of(request)
            .and_then(|mark| self.calls.get_mut(&mark));
        if let Some(call) = call {
            call.answers.insert(serial);
        }
    }

    pub(super) fn asked(&mut self, ask: AskId, mark: u64) {
        self.asks.insert(ask, mark);
    }
}
