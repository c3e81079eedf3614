//! Handles posted messages: finds the era and the session of a message, and checks that its header fields agree with it.

use alloc::format;

use super::super::Server;
use super::super::event::Unanswered;
use super::super::frame::{Frame, Signal};
use super::super::origin::{Lane, Origin, SessionKey, Whose};
use super::super::params::Params;
use super::exchange::{Asked, Takes};
use super::ladder::{self, Refusal, Said, mismatch};
use crate::driver::StreamId;
use crate::http::{Fields, names};
use crate::protocol::method::{self, names as methods};
use crate::protocol::{Era, Version, code};
use crate::wire::{self, Batch, ErrorObject, Id, Inbound, Malformed, Message};

impl Server {
    pub(super) fn posted(&mut self, stream: StreamId, asked: &Asked) -> Result<(), Refusal> {
        let text = core::str::from_utf8(&asked.body).map_err(|_| {
            let text = "the body is not UTF-8";
            Refusal::coded(400, code::PARSE_ERROR, text)
        })?;
        let mut noted = Params::default();
        let plan = Params::plan(self.known_terms());
        match wire::parse_visiting(text, plan, |part| noted.note(part)) {
            Ok(Inbound::Batch(batch)) => self.posted_batch(stream, asked, batch, text),
            Ok(Inbound::One(message)) => self.posted_message(stream, asked, message, noted),
            Err(malformed) => Err(self.posted_nonsense(asked, &malformed, text)),
        }
    }

    fn posted_message<'a>(
        &mut self,
        stream: StreamId,
        asked: &Asked,
        message: Message<'a>,
        mut noted: Params<'a>,
    ) -> Result<(), Refusal> {
        match message {
            Message::Request { id, method, params } => {
                noted.complete(params);
                match self.era_of(asked, &noted) {
                    Era::Legacy => self.posted_legacy(stream, asked, id, &method, &noted),
                    Era::Modern => self.posted_modern(stream, asked, id, &method, &noted),
                }
            }
            Message::Notification { params, .. } => {
                noted.complete(params);
                let era = self.era_of(asked, &noted);
                let from = match era {
                    Era::Legacy => session_origin(stream, self.session_of(asked)?, asked),
                    // S-HTTP-12: the specification does not say which fields a modern notification must have.
                    Era::Modern => modern_origin(stream, asked),
                };
                self.message(&from, message);
                self.respond_empty(stream, 202, Fields::new());
                Ok(())
            }
            Message::Response { .. } => {
                if !self.is_in_session(asked) {
                    let text = "a response is no part of the modern era";
                    return Err(Refusal::new(400, text));
                }
                let session = self.session_of(asked)?;
                let from = session_origin(stream, session, asked);
                self.message(&from, message);
                self.respond_empty(stream, 202, Fields::new());
                Ok(())
            }
        }
    }

    /// Handles an array of messages. Only sessions of one version may send it (S-BATCH-07). The response is an event stream of single
    /// replies.
    fn posted_batch(
        &mut self,
        stream: StreamId,
        asked: &Asked,
        batch: Batch<'_>,
        text: &str,
    ) -> Result<(), Refusal> {
        let no_such = || Refusal::new(400, "an array of messages has no meaning here");
        if !self.is_in_session(asked) {
            return Err(no_such());
        }
        let session = self.session_of(asked)?;
        if !self.allows_batches(session) {
            return Err(no_such());
        }
        let from = session_origin(stream, session, asked);
        let wants_answers = batch.clone().any(|element| match element {
            Ok(message) => matches!(message, Message::Request { .. }),
            Err(malformed) => !malformed.is_response && !malformed.is_notification,
        });
        if !wants_answers {
            self.batch(&from, batch, text);
            self.respond_empty(stream, 202, Fields::new());
            return Ok(());
        }
        if !asked.takes.sse {
            let text = "the answers to an array are a stream of events, which is not accepted";
            return Err(Refusal::new(406, text));
        }
        let takes = Takes {
            json: false,
            sse: true,
        };
        self.open_exchange(stream, takes, Some(session));
        let begin = Frame::Signal(Signal::Begin(0));
        self.lanes.push(from.lane, begin);
        self.batch(&from, batch, text);
        Ok(())
    }

    /// Returns the refusal of a body that is not a message. If it was meant as the answer to an ask, the ask ends.
    fn posted_nonsense(&mut self, asked: &Asked, malformed: &Malformed, text: &str) -> Refusal {
        let what = format!("a body that is no message: {malformed}");
        self.noise(&what, text.as_bytes());
        if malformed.is_response && self.is_in_session(asked) {
            if let (Some(id), Ok(session)) = (&malformed.id, self.session_of(asked)) {
                let why = what.into();
                let from = session_origin(StreamId::DUPLEX, session, asked);
                self.replied(&from, id, Err(Unanswered::Invalid { why }));
            }
        }
        let id = malformed.id.as_ref().filter(|_| !malformed.is_response);
        Refusal::coded(400, malformed.kind.code(), format!("{malformed}")).to(id)
    }

    /// Returns the era of a message. A claim in the message itself outranks all else (S-VER-07).
    fn era_of(&self, asked: &Asked, params: &Params<'_>) -> Era {
        if !self.speaks(Era::Legacy) {
            return Era::Modern;
        }
        let names_modern = match Said::of(&asked.fields, names::MCP_PROTOCOL_VERSION) {
            Said::This(version) => {
                Version::parse(version).is_some_and(|version| version.era() == Era::Modern)
            }
            Said::Absent | Said::Garbled => false,
        };
        if self.speaks(Era::Modern) && (params.claims_modern() || names_modern) {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    fn posted_modern(
        &mut self,
        stream: StreamId,
        asked: &Asked,
        id: Id,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), Refusal> {
        if name == methods::SUBSCRIPTIONS_LISTEN && !asked.takes.sse {
            let text = "a watch is a stream of events, which is not accepted";
            return Err(Refusal::new(406, text).to(Some(&id)));
        }
        let from = modern_origin(stream, asked);
        self.open_exchange(stream, asked.takes, None);
        self.understood();
        match self.check_modern(asked, name, params) {
            Ok(()) => self.asked(&from, id, name, params),
            Err(error) => self.refuse(from.lane, id, error),
        }
        Ok(())
    }

    /// Checks, in the expected order, that the fields of a modern request agree with its message (S-HTTP-32).
    fn check_modern(
        &mut self,
        asked: &Asked,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        if params.is_ambiguous {
            // Ambiguous params are refused later, in `admit`.
            return Ok(());
        }
        let fields = &asked.fields;
        let version = match Said::of(fields, names::MCP_PROTOCOL_VERSION) {
            Said::This(version) => version,
            // S-VER-12: a legacy client is told which versions are spoken here.
            Said::Absent if name == methods::INITIALIZE && !self.speaks(Era::Legacy) => {
                let wanted = params.text("protocolVersion").unwrap_or_default();
                return Err(self.unsupported(&wanted));
            }
            said @ (Said::Absent | Said::Garbled) => return Err(ladder::unnamed_version(said)),
        };
        self.modern_terms(params, Some(version))?;
        let subject = method::find(name).and_then(|facts| facts.named_by);
        let subject = subject.and_then(|key| params.text(key));
        ladder::check_names(fields, name, subject.as_deref())?;
        let (methods::TOOLS_CALL, Some(tool), Some(http)) = (name, subject, &self.http) else {
            return Ok(());
        };
        let arguments = params.member("arguments");
        let user = asked.user.as_deref();
        let checked = http.tools.check(user, &tool, fields, arguments);
        checked.map_err(mismatch)
    }

    fn posted_legacy(
        &mut self,
        stream: StreamId,
        asked: &Asked,
        id: Id,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), Refusal> {
        let from = if name == methods::INITIALIZE {
            // F-024: a session id in `initialize` names an old session and is ignored.
            let Some(http) = &mut self.http else {
                return Ok(());
            };
            let session = http.sessions.fresh();
            self.open_exchange(stream, asked.takes, None);
            Origin {
                whose: Whose::Stream(stream),
                ..session_origin(stream, session, asked)
            }
        } else {
            self.check_named(asked)
                .map_err(|refusal| refusal.to(Some(&id)))?;
            let session = self.session_of(asked);
            let session = session.map_err(|refusal| refusal.to(Some(&id)))?;
            self.use_session(session);
            self.open_exchange(stream, asked.takes, Some(session));
            session_origin(stream, session, asked)
        };
        self.understood();
        self.asked(&from, id, name, params);
        Ok(())
    }

    /// Requires the version field, unless a session id is present or versions before 2025-06-18 are served, which do not know the field
    /// (S-HTTP-31).
    fn check_named(&self, asked: &Asked) -> Result<(), Refusal> {
        let serves_older = self
            .config
            .versions
            .iter()
            .any(|version| version < Version::V2025_06_18);
        let fields = &asked.fields;
        let is_named = fields.has(names::MCP_PROTOCOL_VERSION) || fields.has(names::MCP_SESSION_ID);
        if serves_older || is_named {
            return Ok(());
        }
        let error = ladder::unnamed_version(Said::Absent);
        Err(Refusal::coded(400, error.code, error.message))
    }

    fn understood(&mut self) {
        self.stats.messages_in += 1;
        self.noise.made_sense();
    }

    /// Whether a message names a session, on a server that has sessions.
    fn is_in_session(&self, asked: &Asked) -> bool {
        self.speaks(Era::Legacy) && asked.fields.has(names::MCP_SESSION_ID)
    }
}

/// The origin of a message in a session.
pub(super) fn session_origin(stream: StreamId, session: SessionKey, asked: &Asked) -> Origin {
    Origin {
        whose: Whose::Session(session),
        lane: Lane::Stream(stream),
        session: Some(session),
        era: Some(Era::Legacy),
        user: asked.user.clone(),
    }
}

/// The origin of a modern message.
fn modern_origin(stream: StreamId, asked: &Asked) -> Origin {
    Origin {
        whose: Whose::Stream(stream),
        lane: Lane::Stream(stream),
        session: None,
        era: Some(Era::Modern),
        user: asked.user.clone(),
    }
}
