//! The transport of 2024-11-05: an event stream for each client, which lives as long as its session, and a path for posts (S-SSE-01).

use alloc::format;

use super::super::Server;
use super::super::frame::{Frame, Signal};
use super::super::lanes::Kind;
use super::super::origin::{Origin, SessionKey};
use super::FULL;
use super::exchange::{Asked, Exchange};
use super::ladder::Refusal;
use super::post::session_origin;
use crate::driver::StreamId;
use crate::http::Fields;
use crate::protocol::code;
use crate::wire::{self, Inbound};

impl Server {
    /// Opens the stream of a new session. The first event tells the client where to post (S-SSE-02).
    pub(super) fn sse_opened(&mut self, stream: StreamId, asked: &Asked) -> Result<(), Refusal> {
        if !self.is_serving() {
            return Err(Refusal::busy("the server is shutting down"));
        }
        if self.session_count() >= self.config.limits.sessions && !self.free_session() {
            return Err(Refusal::busy(FULL));
        }
        let paths = self.config.http.as_ref().and_then(|http| http.sse.as_ref());
        let (Some(http), Some(paths)) = (&mut self.http, paths) else {
            return Ok(());
        };
        let key = http.sessions.fresh();
        let id = http.sessions.mint(key, 0);
        let endpoint = format!("{}?session={id}", paths.messages);
        http.sessions.open(key, id, asked.user.clone());
        if let Some(session) = http.sessions.get_mut(key) {
            session.is_sse = true;
        }
        self.lanes.add(key.lane(), Kind::Lasting);
        let endpoint = Signal::Endpoint(endpoint.into());
        self.lanes.push(key.lane(), Frame::Signal(endpoint));
        let mut exchange = Exchange::new(key.lane(), asked.takes);
        exchange.session = Some(key);
        self.carry(stream, exchange);
        Ok(())
    }

    /// Handles a posted message. Replies to it go to the stream of the session.
    pub(super) fn sse_posted(
        &mut self,
        stream: StreamId,
        id: &str,
        asked: &Asked,
    ) -> Result<(), Refusal> {
        let from = self.sse_origin(stream, id, asked)?;
        if !self.has_room_on(from.lane) {
            return Err(Refusal::busy("what was said before is not read yet"));
        }
        let text = core::str::from_utf8(&asked.body).map_err(|_| {
            let text = "the body is not UTF-8";
            Refusal::coded(400, code::PARSE_ERROR, text)
        })?;
        match wire::parse(text) {
            Ok(Inbound::One(message)) => self.message(&from, message),
            Ok(Inbound::Batch(batch)) if from.session.is_some_and(|s| self.allows_batches(s)) => {
                self.batch(&from, batch, text);
            }
            Ok(Inbound::Batch(_)) => {
                return Err(Refusal::new(
                    400,
                    "an array of messages has no meaning here",
                ));
            }
            Err(malformed) => {
                self.malformed(&from, &malformed, text);
                let text = format!("{malformed}");
                return Err(Refusal::coded(400, malformed.kind.code(), text));
            }
        }
        self.respond_empty(stream, 202, Fields::new());
        Ok(())
    }

    fn sse_origin(&self, stream: StreamId, id: &str, asked: &Asked) -> Result<Origin, Refusal> {
        let find = |id: &str| -> Option<SessionKey> {
            let http = self.http.as_ref()?;
            let key = http.sessions.find(id)?;
            let session = http.sessions.get(key)?;
            (session.is_sse && session.user == asked.user).then_some(key)
        };
        let Some(key) = find(id) else {
            let text = "there is no such session, or it is over: get a new stream";
            return Err(Refusal::new(404, text));
        };
        Ok(Origin {
            lane: key.lane(),
            ..session_origin(stream, key, asked)
        })
    }
}
