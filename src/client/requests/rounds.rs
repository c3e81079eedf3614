//! The rounds of a call: the server asks for input, and the call continues with the answers (S-MRTR-09).

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::calls::{Call, Round};
use super::{Requests, invalid};
use crate::client::asks::{Question, admit, questions};
use crate::client::context::Context;
use crate::client::failure::FailureKind;
use crate::client::session::SessionState;
use crate::client::session::result_head::ResultHead;
use crate::driver::CallId;
use crate::json::Payload;
use crate::protocol::Version;

impl Requests {
    /// Makes a call wait for the answers to the questions in its result, and returns them. Its clock stops until all are there. `open`: the number of
    /// open asks. The error says why the call fails instead.
    pub(in crate::client) fn input_required<'a>(
        &mut self,
        cx: &Context,
        session: &SessionState,
        id: CallId,
        head: &ResultHead<'a>,
        open: usize,
    ) -> Result<Vec<Question<'a>>, FailureKind> {
        if self.has_had_its_rounds(cx, id) {
            let rounds = cx.config.limits.input_rounds;
            return Err(FailureKind::TooManyRounds { rounds });
        }
        let Some(questions) = questions(head.input_requests) else {
            return Err(invalid("its questions cannot be read"));
        };
        self.begin_round(cx, id, head, questions.len(), open)?;
        if !session.passes_call(self.call(id).and_then(Call::era)) {
            let version = session.version().unwrap_or(Version::LATEST_MODERN);
            let declared = self.declared_for(&cx.config, id);
            for question in &questions {
                admit(declared, version, &question.method, question.params).map_err(|error| {
                    invalid(&format!("it asks what it may not: {}", error.message))
                })?;
            }
        }
        self.calls.asked(id, cx.now);
        Ok(questions)
    }

    /// Begins a round: the call waits for answers. Returns why it fails instead, if the server's request is not usable.
    fn begin_round(
        &mut self,
        cx: &Context,
        id: CallId,
        head: &ResultHead<'_>,
        asks: usize,
        open: usize,
    ) -> Result<(), FailureKind> {
        let limits = &cx.config.limits;
        let Some(call) = self.calls.call_mut(id) else {
            return Ok(());
        };
        let state = head.request_state;
        if state.is_none() && asks == 0 {
            return Err(invalid("it wants input and does not say which"));
        }
        let bytes = state.map_or(0, |state| state.as_str().len());
        if bytes > limits.request_state_bytes {
            let bytes = bytes as u64;
            return Err(FailureKind::TooLarge { bytes });
        }
        if state.is_some_and(|state| !state.as_str().starts_with('"')) {
            return Err(invalid("its state is no text"));
        }
        if asks > limits.asks {
            return Err(invalid("it asks more at once than may be open"));
        }
        if asks > limits.asks.saturating_sub(open) {
            return Err(FailureKind::TooManyAsks { open });
        }
        let number = call.round.as_ref().map_or(0, |round| round.number) + 1;
        let state = state.map(Payload::from);
        call.round = Some(Box::new(Round::new(number, state, asks)));
        Ok(())
    }

    /// Whether a call has had as many rounds as it may have.
    fn has_had_its_rounds(&self, cx: &Context, id: CallId) -> bool {
        let round = self.calls.call(id).and_then(|call| call.round.as_ref());
        round.map_or(0, |round| round.number) >= cx.config.limits.input_rounds
    }

    /// Records an answer for a call. Returns false if there is no such call.
    pub(in crate::client) fn answered(
        &mut self,
        id: CallId,
        key: Box<str>,
        answer: Payload,
    ) -> bool {
        self.calls.add_answer(id, key, answer)
    }

    /// Queues a call again if no answers are missing.
    pub(in crate::client) fn continue_if_answered(&mut self, cx: &mut Context, id: CallId) {
        let round = self.calls.call(id).and_then(|call| call.round.as_ref());
        if round.is_some_and(|round| round.missing == 0) {
            self.calls.answered(id, cx.now);
        }
        self.arm(cx, id);
    }
}
