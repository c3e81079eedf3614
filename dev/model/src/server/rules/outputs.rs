//! The rules for the outputs of a server: its events, and to whom it writes.

use everlink::protocol::{Era, meta};
use everlink::server::{Cancelled, Event, Request, State};
use everlink::{Epoch, Instant, Output, RequestId, StreamId};
use serde_json::Value;

use super::{Rules, Served};
use crate::conversation::id;

/// The maximum number of faults in the last event.
const FAULTS_KEPT: usize = 16;

impl Rules {
    /// One output, with the bytes that came with it.
    pub(in crate::server) fn output(&mut self, output: &Output<Event>, bytes: &[u8], now: Instant) {
        assert!(!self.is_closed(), "{output:?} after the end");
        self.burst.outputs += 1;
        match output {
            Output::Event(event) => {
                assert!(bytes.is_empty());
                self.event(event, now);
            }
            Output::Release { epoch } => {
                assert_eq!(*epoch, Epoch::FIRST);
                let was_released = std::mem::replace(&mut self.has_released, true);
                assert!(!was_released, "released twice");
            }
            Output::Write { epoch, stream, len } => {
                assert_eq!((*epoch, *stream), (Epoch::FIRST, StreamId::DUPLEX));
                assert_eq!(bytes.len(), *len);
                let is_there = !self.has_released && !self.is_unwritable;
                assert!(is_there, "written to nobody");
                let (under_way, window) = (self.under_way, self.config.limits.write_window);
                assert!(under_way < window, "(9) written behind {under_way} bytes");
                self.under_way += len;
                self.counts.messages_out += 1;
                self.counts.bytes_out += *len as u64;
                self.written(bytes, now);
            }
            other => panic!("{other:?} means nothing for a server"),
        }
    }

    fn event(&mut self, event: &Event, now: Instant) {
        let is_last = matches!(event, Event::Closed { .. });
        assert_eq!(self.has_released, is_last, "{event:?}: the release");
        match event {
            Event::Answered {
                ask,
                request,
                outcome,
            } => {
                let open = self.asks.end(*ask);
                assert_eq!(*request, open.request, "{ask}");
                if let Ok(answer) = outcome {
                    assert!(open.was_put, "{ask} was answered before it was put");
                    let answer: Value = answer.parse().unwrap_or_default();
                    if let Some(of) = answer["of"].as_u64() {
                        assert_eq!(of, open.mark, "{ask} has the answer to another");
                    }
                }
            }
            Event::Cancelled { request, why } => self.cancelled(*request, why),
            Event::Closed { faults } => {
                let kept = self.faults.len().min(FAULTS_KEPT);
                assert_eq!(*faults, self.faults[..kept], "other faults");
                self.state = State::Closed;
                assert_eq!(self.open(), [], "(1) closed with requests open");
                self.asks.assert_all_ended();
            }
            Event::Draining { .. } => {
                assert_eq!(self.state, State::Serving, "it drains twice");
                self.state = State::Draining;
                self.draining_since = Some(now);
            }
            Event::Request(request) => self.delivered(request),
            Event::Initialized => {
                assert!(self.conversation.may_be_initialized(), "nobody is here");
            }
            Event::Met(peer) => self.met = Some(peer.version),
            Event::Noise(_)
            | Event::Notified { .. }
            | Event::NotificationsDropped { .. }
            | Event::Refused(_)
            | Event::Watching(_) => {}
            other => panic!("{other:?} is not known here"),
        }
    }

    /// Compares a request with the message that was fed. The `mark` in its params identifies that message.
    fn delivered(&mut self, request: &Request) {
        let name = request.request;
        let is_modern = request.peer.version.era() == Era::Modern;
        let params = params_of(request);
        for key in ["inputResponses", "requestState"] {
            let is_once = request.input.is_none() || params.get(key).is_none();
            assert!(is_once, "{key} is told twice");
        }
        let mark = params["mark"].as_u64();
        let fed = mark.and_then(|mark| self.fed.get(&mark)).cloned().flatten();
        if let Some(fed) = &fed {
            assert_eq!(request.method, fed.method);
            let modern = self.config.versions.newest_of(Era::Modern);
            let is_understood = fed.is_modern && modern.is_some();
            assert_eq!(is_modern, is_understood, "{name} is served by other terms");
            let token = fed.token.as_ref().and_then(id);
            assert_eq!(request.wants_progress, token.is_some());
            assert_eq!(request.log_level, fed.log_level.filter(|_| is_modern));
            let may_have = request.input.is_none() || fed.has_input;
            assert!(may_have, "{name} has input of nobody");
            for (other, served) in &self.served {
                // The server drops an answer that was not written yet if a legacy client initializes again,
                // or if a client cancels in time. Then another request may have the same id.
                let is_held = served.is_open() || (served.is_modern && !served.may_be_cancelled);
                let is_awaited = !served.is_over() && !served.was_cancelled;
                let is_here = is_awaited && is_held && served.away_since.is_none();
                let is_same = served.fed.as_ref().is_some_and(|of| of.id == fed.id);
                assert!(!(is_here && is_same), "{name} has the id of {other}");
            }
        }
        let served = Served {
            is_modern,
            ids: fed.iter().map(|fed| fed.id.clone()).collect(),
            tokens: fed.iter().filter_map(|fed| fed.token.clone()).collect(),
            levels: request.log_level.into_iter().collect(),
            fed,
            given: None,
            is_responded: false,
            is_cancelled: false,
            was_cancelled: false,
            may_be_cancelled: false,
            away_since: None,
            may_be_back: false,
            progress: None,
        };
        let before = self.served.insert(name, served);
        assert!(before.is_none(), "{name} was there before");
    }

    fn cancelled(&mut self, request: RequestId, why: &Cancelled) {
        let served = self.served.get_mut(&request).expect("a request");
        assert!(served.is_open(), "(1) {request} is cancelled after its end");
        served.is_cancelled = true;
        self.counts.cancelled += 1;
        let is_draining = self.state == State::Draining;
        let is_true = match why {
            Cancelled::Anew => !served.is_modern,
            Cancelled::ByPeer { .. } => true,
            Cancelled::NotResumed => served.away_since.is_some(),
            Cancelled::OutOfTime => is_draining,
            Cancelled::PeerGone => {
                is_draining || self.is_unwritable || self.conversation.has_ended()
            }
            other => panic!("{other:?} is not known here"),
        };
        assert!(is_true, "{request} is cancelled: {why:?}");
    }
}

/// The parameters of a request, in which nothing is left that is only for the link.
pub(crate) fn params_of(request: &Request) -> Value {
    let params = request
        .params
        .as_ref()
        .map(|params| params.parse::<Value>());
    let params = params.and_then(Result::ok).unwrap_or_default();
    for key in meta::OF_THE_LINK {
        assert_eq!(params["_meta"].get(key), None, "{key} is for the link");
    }
    params
}
