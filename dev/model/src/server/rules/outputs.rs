//! What comes out of a server end: events, and the bytes that go to the client.

use everlink::protocol::{Era, meta};
use everlink::server::{Cancelled, Event, Request, State};
use everlink::{Epoch, Instant, Output, RequestId, StreamId};
use serde_json::Value;

use super::{Rules, Served};
use crate::dialogue::id;

/// As many faults are told in the end.
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
                assert!(!self.has_released, "released twice");
                self.has_released = true;
            }
            Output::Write { epoch, stream, len } => {
                assert_eq!((*epoch, *stream), (Epoch::FIRST, StreamId::DUPLEX));
                assert_eq!(bytes.len(), *len);
                assert!(
                    !self.has_released && !self.is_unwritable,
                    "written to nobody"
                );
                let window = self.config.limits.write_window;
                let under_way = self.under_way;
                assert!(
                    under_way < window,
                    "(9) written although {under_way} are under way"
                );
                self.under_way += len;
                self.counts.messages_out += 1;
                self.counts.bytes_out += *len as u64;
                self.written(bytes, now);
            }
            other => panic!("{other:?} means nothing for a server end"),
        }
    }

    fn event(&mut self, event: &Event, now: Instant) {
        assert!(
            !self.has_released || matches!(event, Event::Closed { .. }),
            "{event:?} after the release"
        );
        match event {
            Event::Answered {
                ask,
                request,
                outcome,
            } => {
                let open = self.asks.get_mut(ask).expect("a question that was asked");
                assert!(!open.is_answered, "(1) {ask} has a second outcome");
                open.is_answered = true;
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
                assert!(self.has_released, "closed without a release");
                let kept = self.faults.len().min(FAULTS_KEPT);
                assert_eq!(*faults, self.faults[..kept], "other faults");
                self.state = State::Closed;
                self.closed();
            }
            Event::Draining { .. } => {
                assert_eq!(self.state, State::Serving, "it drains twice");
                self.state = State::Draining;
                self.draining_since = Some(now);
            }
            Event::Request(request) => self.delivered(request),
            Event::Initialized => {
                assert!(self.dialogue.may_be_initialized(), "nobody is here");
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

    fn delivered(&mut self, request: &Request) {
        let name = request.request;
        let is_modern = request.peer.version.era() == Era::Modern;
        let params = request
            .params
            .as_ref()
            .map(|params| params.parse::<Value>());
        let params = params.and_then(Result::ok).unwrap_or_default();
        let mark = params["mark"].as_u64();
        let fed = mark.and_then(|mark| self.fed.get(&mark)).cloned().flatten();
        for key in ["inputResponses", "requestState"] {
            let is_told = request.input.is_none() || params.get(key).is_none();
            assert!(is_told, "{key} is told twice");
        }
        for key in meta::OF_THE_LINK {
            assert_eq!(params["_meta"].get(key), None, "{key} is between the ends");
        }
        if let Some(fed) = &fed {
            assert_eq!(request.method, fed.method);
            let is_understood =
                fed.is_modern && self.config.versions.newest_of(Era::Modern).is_some();
            assert_eq!(is_modern, is_understood, "{name} is served by other terms");
            let token = fed.token.as_ref().and_then(id);
            assert_eq!(request.wants_progress, token.is_some());
            assert_eq!(request.log_level, fed.log_level.filter(|_| is_modern));
            assert!(
                request.input.is_none() || fed.has_input,
                "{name} has input of nobody"
            );
            for (other, served) in &self.served {
                let other_id = served.fed.as_ref().map(|fed| &fed.id);
                let is_waited_for = !served.is_over() && !served.was_taken_back;
                // What a legacy client was to be told is dropped when it begins anew.
                let is_held = served.is_open() || (served.is_modern && !served.may_be_taken_back);
                let is_waited_for = is_waited_for && is_held && served.away_since.is_none();
                let is_twice = is_waited_for && other_id == Some(&fed.id);
                assert!(!is_twice, "{name} and {other} have the id {}", fed.id);
            }
        }
        let before = self.served.insert(
            name,
            Served {
                is_modern,
                ids: fed.iter().map(|fed| fed.id.clone()).collect(),
                tokens: fed.iter().filter_map(|fed| fed.token.clone()).collect(),
                levels: request.log_level.into_iter().collect(),
                fed,
                given: None,
                is_responded: false,
                is_cancelled: false,
                was_taken_back: false,
                may_be_taken_back: false,
                away_since: None,
                may_be_back: false,
                progress: None,
            },
        );
        assert!(before.is_none(), "{name} was there before");
    }

    fn cancelled(&mut self, request: RequestId, why: &Cancelled) {
        let served = self.served.get_mut(&request).expect("a request");
        assert!(!served.is_cancelled, "{request} is cancelled twice");
        assert!(
            !served.is_responded,
            "{request} is cancelled after its answer"
        );
        assert_eq!(
            served.given, None,
            "{request} is cancelled after it was answered"
        );
        served.is_cancelled = true;
        self.counts.cancelled += 1;
        match why {
            Cancelled::Anew => assert!(!served.is_modern, "{request} needs no handshake"),
            Cancelled::ByPeer { .. } => {}
            Cancelled::NotResumed => {
                assert!(served.away_since.is_some(), "{request} did not leave");
            }
            Cancelled::OutOfTime => assert_eq!(self.state, State::Draining),
            Cancelled::PeerGone => {
                let is_gone = self.dialogue.has_ended()
                    || self.is_unwritable
                    || self.state == State::Draining;
                assert!(is_gone, "nobody is gone");
            }
            other => panic!("{other:?} is not known here"),
        }
    }

    fn closed(&self) {
        for (request, served) in &self.served {
            assert!(!served.is_open(), "(1) closed with {request} open");
        }
        for (ask, open) in &self.asks {
            assert!(open.is_answered, "(1) closed with {ask} open");
        }
    }
}
