//! The rules for what a server writes: whose question, notification or answer it is, and whether it may be sent.

use everlink::Id;
use everlink::protocol::meta;
use everlink::{AskId, Change, Instant, List, RequestId};
use serde_json::Value;

use super::{Ask, Given, Rules, Served};
use crate::conversation::id;

/// The code of an error that names what a client did not declare.
const MISSING_CAPABILITY: i64 = -32021;

impl Rules {
    pub(super) fn written(&mut self, bytes: &[u8], now: Instant) {
        let message = self.conversation.written(bytes);
        let (has_id, method) = (message.get("id"), message["method"].as_str());
        match (has_id, method) {
            (Some(id), Some(method)) => self.put(id, method, &message["params"]),
            (None, Some(method)) => self.notification(method, &message["params"]),
            (_, None) => self.response(&message, now),
        }
    }

    /// A question goes out as a request.
    fn put(&mut self, wire: &Value, method: &str, params: &Value) {
        let is_there = self.conversation.is_initialized();
        assert!(is_there, "nobody can be asked {method}");
        let wire = id(wire).expect("an id");
        let mark = params["ask"].as_u64().expect("a question of ours");
        let (ask, open) = self.ask(mark);
        assert!(!open.is_modern, "{ask} is put to a modern client");
        assert_eq!(open.method, method);
        assert!(!open.was_put, "{ask} is put twice");
        open.was_put = true;
        let before = self.ask_ids.insert(wire, ask);
        assert!(before.is_none(), "{ask} has the id of {before:?}");
    }

    /// A question that goes out and has no outcome yet.
    fn ask(&mut self, mark: u64) -> (AskId, &mut Ask) {
        let found = self.asks.open().find(|(_, ask)| ask.mark == mark);
        let (ask, _) = found.expect("a question without an outcome");
        (ask, self.asks.get_mut(ask).expect("an open one"))
    }

    fn served(&mut self, number: u64) -> (RequestId, &mut Served) {
        let mut all = self.served.iter_mut();
        let found = all.find(|(request, _)| request.number() == number);
        let (request, served) = found.expect("a request");
        (*request, served)
    }

    fn notification(&mut self, method: &str, params: &Value) {
        if params["_meta"].get(meta::SUBSCRIPTION_ID).is_some() {
            return;
        }
        match method {
            "notifications/cancelled" => {
                let of = id(&params["requestId"]).expect("an id");
                let ask = self.ask_ids.get(&of).copied();
                let is_over = ask.is_some_and(|ask| !self.asks.is_open(ask));
                let ask = ask.and_then(|ask| self.asks.get_mut(ask));
                let is_ask = ask.is_some_and(|ask| {
                    let was_cancelled = std::mem::replace(&mut ask.was_cancelled, true);
                    is_over && !was_cancelled
                });
                let is_end = self.conversation.announces_end(&of, is_ask);
                assert!(is_ask || is_end, "{of} is cancelled");
            }
            "notifications/message" => self.note(&params["data"]["mark"]),
            "notifications/progress" => self.progressed(params),
            "notifications/prompts/list_changed" => self.changed(&Change::List(List::Prompts)),
            "notifications/resources/list_changed" => self.changed(&Change::List(List::Resources)),
            "notifications/tools/list_changed" => self.changed(&Change::List(List::Tools)),
            "notifications/resources/updated" => {
                let uri = params["uri"].as_str().expect("an address");
                self.changed(&Change::Resource { uri: uri.into() });
            }
            _ => self.note(&params["mark"]),
        }
    }

    fn note(&mut self, mark: &Value) {
        let mark = mark.as_u64().expect("a mark of ours");
        let may = self.notes.remove(&mark).is_some();
        assert!(may, "nobody wants note {mark}, or it was sent");
    }

    /// The legacy client is told of a change.
    fn changed(&mut self, change: &Change) {
        assert!(
            self.conversation.is_initialized(),
            "nobody hears {change:?}"
        );
        let may = self.legacy_changes.remove(change);
        assert!(may, "{change:?} is old, or nobody asked");
    }

    fn progressed(&mut self, params: &Value) {
        let number = params["total"].as_u64().expect("the number of a request");
        let (request, served) = self.served(number);
        let is_open = !served.is_over() && !served.was_cancelled && !served.has_left();
        assert!(is_open, "progress of {request} after its end");
        let is_its = served.fed.is_none() || served.tokens.contains(&params["progressToken"]);
        assert!(is_its, "{request} has another token");
        let progress = params["progress"].as_f64().expect("a number");
        let is_more = served.progress.is_none_or(|before| progress > before);
        assert!(is_more, "{request} falls back");
        served.progress = Some(progress);
    }

    fn response(&mut self, message: &Value, now: Instant) {
        let Some(of) = message.get("id").and_then(id) else {
            return;
        };
        let (result, error) = (&message["result"], &message["error"]);
        if result["resultType"] == "input_required" {
            self.wants_input(&of, result, now);
        } else if let Some(number) = result["echo"].as_u64() {
            self.responded(number, &of, &Given::Result(result.clone()));
        } else if let Some(number) = error["data"]["echo"].as_u64() {
            self.responded(number, &of, &Given::Error);
        } else if error["code"] == MISSING_CAPABILITY {
            self.could_not_be_asked(&of);
        }
    }

    /// Questions in the place of an answer, of the machine or of the application.
    fn wants_input(&mut self, of: &Id, result: &Value, now: Instant) {
        let state = result["requestState"].as_str();
        let questions = result["inputRequests"].as_object();
        let own = state.and_then(|state| state.strip_prefix("everlink."));
        let Some(own) = own else {
            let keys = questions.into_iter().flatten().map(|(key, _)| &**key);
            let mut texts = keys.chain(state);
            let number = texts.find_map(|text| text.split('-').nth(1)?.parse().ok());
            let number = number.expect("input that was wanted");
            return self.responded(number, of, &Given::Input);
        };
        let hex = own.split('.').next().expect("the number of a request");
        let number = u64::from_str_radix(hex, 16).expect("a number");
        let (request, served) = self.served(number);
        assert!(served.is_modern, "{request} is a legacy one");
        let is_open = served.is_open() && !served.was_cancelled;
        assert!(
            is_open && !served.has_left(),
            "{request} is over, or asked twice"
        );
        served.check_id(request, of);
        served.away_since = Some(now);
        served.may_be_back = false;
        served.progress = None;
        let state = state.map(|state| (state.to_owned(), request));
        self.states.extend(state);
        for question in questions.into_iter().flat_map(|all| all.values()) {
            let mark = question["params"]["ask"].as_u64();
            let (ask, open) = self.ask(mark.expect("a question of ours"));
            assert!(open.is_modern, "{ask} is for a legacy client");
            assert_eq!(open.request, Some(request));
            assert_eq!(question["method"], *open.method);
            open.was_put = true;
        }
    }

    /// A client retried, and no longer says that it can be asked.
    fn could_not_be_asked(&mut self, of: &Id) {
        let is_it = |served: &&mut Served| {
            let was_back = served.may_be_back && served.ids.contains(of);
            was_back && served.given == Some(Given::Input) && !served.is_over()
        };
        if let Some(served) = self.served.values_mut().find(is_it) {
            served.is_responded = true;
        }
    }

    /// The answer of the application is written.
    fn responded(&mut self, number: u64, of: &Id, seen: &Given) {
        let (request, served) = self.served(number);
        assert!(!served.is_responded, "(1) {request} is answered twice");
        let is_cancelled = served.is_cancelled || served.was_cancelled;
        assert!(!is_cancelled, "{request} was cancelled");
        assert!(!served.has_left(), "{request}: its client is away");
        served.check_id(request, of);
        served.is_responded = true;
        match (seen, &served.given) {
            (Given::Result(seen), Some(Given::Result(given))) if served.is_modern => {
                let kind = given.get("resultType").and_then(Value::as_str);
                assert_eq!(seen["resultType"], kind.unwrap_or("complete"));
                for (key, value) in given.as_object().into_iter().flatten() {
                    let is_same = &seen[key] == value || key == "_meta";
                    assert!(is_same, "{key} of {request} is another");
                }
            }
            (seen, given) => assert_eq!(Some(seen), given.as_ref(), "the answer of {request}"),
        }
    }
}

impl Served {
    /// It is answered under an id that it came with.
    fn check_id(&self, request: RequestId, of: &Id) {
        let is_its = self.fed.is_none() || self.ids.contains(of);
        assert!(is_its, "{request} under {of}");
    }
}
