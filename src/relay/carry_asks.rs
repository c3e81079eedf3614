//! Carries the asks of the server to hosts, and their answers back.

use alloc::borrow::Cow;
use alloc::string::ToString;

use super::questions::{Guess, Waiting, unanswered, unaskable, unattributed};
use super::{Event, Relay};
use crate::client;
use crate::driver::AskId;
use crate::json::Payload;
use crate::protocol::code;
use crate::server::{Caller, Unanswered};
use crate::wire::ErrorObject;

impl Relay {
    /// Passes an ask of the server to a host. Returns the event to report, if any.
    pub(super) fn ask(&mut self, ask: client::Ask) -> Option<Event> {
        let Some(call) = ask.call else {
            return self.ask_without_request(ask.ask, ask.method, ask.params);
        };
        let Some(request) = self.carried.request_of(call) else {
            self.answer(ask.ask, Err(unanswered(&Unanswered::RequestOver)));
            return None;
        };
        // On the host's side it has the key that the server gave it.
        let key = self.back.key_of(ask.ask).map(Into::into);
        let asked = self
            .front
            .ask_by(self.clock.now(), request, key, ask.method, ask.params);
        match asked {
            Ok(in_front) => self.questions.put(ask.ask, in_front, None),
            Err(misuse) => self.answer(ask.ask, Err(unaskable(&misuse))),
        }
        None
    }

    /// Passes on an ask that names no request: all asks of legacy servers are like that. A legacy host on a byte stream needs no request.
    /// Any other host is asked for one of its requests that can wait for input. With HTTP in front, an ask is refused if the host is not
    /// certain.
    pub(super) fn ask_without_request(
        &mut self,
        behind: AskId,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Option<Event> {
        let has_many = self.config.downstream.http.is_some();
        let only = self.questions.only_caller().filter(|_| has_many).cloned();
        // The event that a request is cancelled may still be queued behind those of its asks.
        let is_away = |request| {
            let is_open = self.front.wire_id(request).is_some();
            is_open.then(|| self.front.is_away(request))
        };
        if has_many && only.is_none() {
            return Some(self.refuse(behind, method));
        }
        let put = if self.front.legacy_peer().is_some() {
            let asked = self.front.ask_unbidden(self.clock.now(), method, params);
            asked.map(|ask| (ask, None))
        } else if let Some(request) = self.carried.likeliest(&method, is_away) {
            let guess = Guess {
                method: method.clone(),
                params: params.clone(),
            };
            let asked = self.front.ask(self.clock.now(), request, method, params);
            asked.map(|ask| (ask, Some(guess)))
        } else if let Some(only) = only.filter(Caller::is_session) {
            // The host has no request that could wait: the server asks after its reply.
            let asked = self
                .front
                .ask_session(self.clock.now(), &only, method, params);
            asked.map(|ask| (ask, None))
        } else if has_many {
            return Some(self.refuse(behind, method));
        } else {
            let waiting = Waiting {
                behind,
                method,
                params,
            };
            let most = self.config.downstream.limits.queued_bytes;
            if let Err(error) = self.questions.wait(waiting, most) {
                self.answer(behind, Err(error));
            }
            return None;
        };
        match put {
            Ok((ask, guess)) => self.questions.put(behind, ask, guess),
            Err(misuse) => self.answer(behind, Err(unaskable(&misuse))),
        }
        None
    }

    /// Refuses an ask that could be for more than one host.
    fn refuse(&mut self, behind: AskId, method: Cow<'static, str>) -> Event {
        self.answer(behind, Err(unattributed()));
        Event::Unattributed { method }
    }

    /// Passes the outcome of an ask back to the server.
    pub(super) fn answered(
        &mut self,
        in_front: AskId,
        outcome: Result<Payload, Unanswered>,
    ) -> Option<Event> {
        let (behind, guess) = self.questions.answered(in_front)?;
        let answer = match (outcome, guess) {
            (Ok(answer), _) => Ok(answer),
            (Err(Unanswered::Error(error)), _) => Err(error),
            // The request was a guess among several; another one may do.
            (Err(Unanswered::RequestOver), Some(guess)) => {
                return self.ask_without_request(behind, guess.method, guess.params);
            }
            (Err(why), _) => Err(unanswered(&why)),
        };
        self.answer(behind, answer);
        None
    }

    /// Answers the ask. The server may have cancelled it meanwhile. If the answer has no room, the server gets an error instead.
    fn answer(&mut self, behind: AskId, answer: Result<Payload, ErrorObject>) {
        let answered = self.back.answer(self.clock.now(), behind, answer);
        if let Err(misuse @ (client::Misuse::TooLarge { .. } | client::Misuse::QueueFull { .. })) =
            answered
        {
            let error = ErrorObject::new(code::INTERNAL_ERROR, misuse.to_string());
            let _ = self.back.answer(self.clock.now(), behind, Err(error));
        }
    }
}
