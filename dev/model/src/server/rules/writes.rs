//! What a server end writes: whose question, news or answer it is, and whether it may be said.

use everlink::protocol::meta;
use everlink::wire::Id;
use everlink::{AskId, Change, Instant, List};
use serde_json::Value;

use super::{Ask, Given, Rules, Served};
use crate::dialogue::id;

/// The code of an error that names what a client did not declare.
const MISSING_CAPABILITY: i64 = -32021;

impl Rules {
    pub(super) fn written(&mut self, bytes: &[u8], now: Instant) {
        let message = self.dialogue.written(bytes);
        let (has_id, method) = (message.get("id"), message["method"].as_str());
        match (has_id, method) {
            (Some(id), Some(method)) => self.put(id, method, &message["params"]),
            (None, Some(method)) => self.notification(method, &message["params"]),
            (_, None) => self.response(&message, now),
        }
    }

    /// A question goes out as a request.
    fn put(&mut self, wire: &Value, method: &str, params: &Value) {
        assert!(
            self.dialogue.is_initialized(),
            "nobody can be asked {method}"
        );
        let wire = id(wire).expect("an id");
        let mark = params["ask"].as_u64().expect("a question of ours");
        let (ask, open) = self.ask(mark);
        assert!(!open.is_modern, "{ask} is put to a modern client");
        assert_eq!(open.method, method);
        assert!(!open.was_put, "{ask} is put twice");
        open.was_put = true;
        let before = self.wires.insert(wire, ask);
        assert!(before.is_none(), "{ask} has the id of {before:?}");
    }

    /// A question that goes out and has no outcome yet.
    fn ask(&mut self, mark: u64) -> (AskId, &mut Ask) {
        let found = self.asks.iter_mut().find(|(_, ask)| ask.mark == mark);
        let (ask, open) = found.expect("a question that was asked");
        assert!(!open.is_answered, "{ask} is put after its outcome");
        (*ask, open)
    }

    fn notification(&mut self, method: &str, params: &Value) {
        if params["_meta"].get(meta::SUBSCRIPTION_ID).is_some() {
            return;
        }
        match method {
            "notifications/cancelled" => {
                let of = id(&params["requestId"]).expect("an id");
                let asked = self.wires.get(&of).and_then(|ask| self.asks.get_mut(ask));
                let is_ask = asked.is_some_and(|ask| {
                    let was_taken_back = std::mem::replace(&mut ask.was_taken_back, true);
                    ask.is_answered && !was_taken_back
                });
                let is_end = self.dialogue.announces_end(&of, is_ask);
                assert!(is_ask || is_end, "{of} is taken back");
            }
            "notifications/message" => self.news(&params["data"]["mark"]),
            "notifications/progress" => self.progressed(params),
            "notifications/prompts/list_changed" => self.changed(&Change::List(List::Prompts)),
            "notifications/resources/list_changed" => self.changed(&Change::List(List::Resources)),
            "notifications/tools/list_changed" => self.changed(&Change::List(List::Tools)),
            "notifications/resources/updated" => {
                let uri = params["uri"].as_str().expect("an address");
                self.changed(&Change::Resource { uri: uri.into() });
            }
            _ => self.news(&params["mark"]),
        }
    }

    fn news(&mut self, mark: &Value) {
        let mark = mark.as_u64().expect("news of ours");
        assert!(
            self.news.remove(&mark).is_some(),
            "nobody wants to hear this, or it was said"
        );
    }

    /// The legacy client hears of a change.
    fn changed(&mut self, change: &Change) {
        assert!(self.dialogue.is_initialized(), "nobody hears {change:?}");
        let may = self.legacy_changes.remove(change);
        assert!(may, "{change:?} is no news, or nobody asked");
    }

    fn progressed(&mut self, params: &Value) {
        let number = params["total"].as_u64().expect("the number of a request");
        let found = self
            .served
            .iter_mut()
            .find(|(name, _)| name.number() == number);
        let (request, served) = found.expect("a request");
        let is_waited_for = served.away_since.is_none() || served.may_be_back;
        let is_live = !served.is_over() && !served.was_taken_back && is_waited_for;
        assert!(is_live, "{request} gets on after its end");
        if served.fed.is_some() {
            assert!(
                served.tokens.contains(&params["progressToken"]),
                "{request} has another token"
            );
        }
        let progress = params["progress"].as_f64().expect("a number");
        assert!(
            served.progress.is_none_or(|before| progress > before),
            "{request} falls back"
        );
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

    /// Questions in the place of an answer: of the machine, or of the application.
    fn wants_input(&mut self, of: &Id, result: &Value, now: Instant) {
        let state = result["requestState"].as_str();
        let questions = result["inputRequests"].as_object();
        let own = state.and_then(|state| state.strip_prefix("everlink."));
        let Some(own) = own else {
            let keys = questions.into_iter().flatten().map(|(key, _)| &**key);
            let number = keys
                .chain(state)
                .find_map(|text| text.split('-').nth(1)?.parse().ok());
            let number = number.expect("input that was wanted");
            return self.responded(number, of, &Given::Input);
        };
        let number = own
            .split('.')
            .next()
            .and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let number = number.expect("the number of a request");
        let found = self
            .served
            .iter_mut()
            .find(|(name, _)| name.number() == number);
        let (request, served) = found.expect("a request");
        assert!(served.is_modern, "{request} is a legacy one");
        assert!(
            !served.is_over() && !served.was_taken_back,
            "{request} is over"
        );
        assert_eq!(served.given, None, "{request} is answered already");
        let has_left = served.away_since.is_some() && !served.may_be_back;
        assert!(!has_left, "{request} is asked twice in one round");
        assert!(
            served.fed.is_none() || served.ids.contains(of),
            "{request} under {of}"
        );
        served.away_since = Some(now);
        served.may_be_back = false;
        served.progress = None;
        let request = *request;
        self.states
            .extend(state.map(|state| (state.to_owned(), request)));
        for question in questions.into_iter().flat_map(|all| all.values()) {
            let mark = question["params"]["ask"]
                .as_u64()
                .expect("a question of ours");
            let (ask, open) = self.ask(mark);
            assert!(open.is_modern, "{ask} is for a legacy client");
            assert_eq!(
                (open.request, &*open.method),
                (
                    Some(request),
                    question["method"].as_str().unwrap_or_default()
                )
            );
            open.was_put = true;
        }
    }

    /// A client came back for what was wanted of it, and does not say any more that it can be asked.
    fn could_not_be_asked(&mut self, of: &Id) {
        let is_it = |served: &&mut Served| {
            let was_back = served.may_be_back && served.ids.contains(of);
            was_back && served.given == Some(Given::Input) && !served.is_over()
        };
        if let Some(served) = self.served.values_mut().find(is_it) {
            served.is_responded = true;
        }
    }

    /// What the application answered is written.
    fn responded(&mut self, number: u64, of: &Id, seen: &Given) {
        let found = self
            .served
            .iter_mut()
            .find(|(name, _)| name.number() == number);
        let (request, served) = found.expect("a request");
        assert!(!served.is_responded, "(1) {request} is answered twice");
        assert!(
            !served.is_cancelled && !served.was_taken_back,
            "{request} was taken back"
        );
        assert!(
            served.fed.is_none() || served.ids.contains(of),
            "{request} under {of}"
        );
        let has_left = served.away_since.is_some() && !served.may_be_back;
        assert!(
            !has_left,
            "{request} is answered although its client is away"
        );
        served.is_responded = true;
        match (seen, &served.given) {
            (Given::Result(seen), Some(Given::Result(given))) if served.is_modern => {
                let kind = given.get("resultType").and_then(Value::as_str);
                assert_eq!(
                    seen["resultType"].as_str(),
                    Some(kind.unwrap_or("complete"))
                );
                for (key, value) in given.as_object().into_iter().flatten() {
                    assert!(
                        &seen[key] == value || key == "_meta",
                        "{key} of {request} is another"
                    );
                }
            }
            (seen, given) => assert_eq!(Some(seen), given.as_ref(), "the answer of {request}"),
        }
    }
}
