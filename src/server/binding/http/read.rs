//! Reads a posted message: finds its era, and checks that its header fields agree with it. Does not know which sessions exist.

use crate::driver::StreamId;
use crate::http::names;
use crate::protocol::method::{self, names as methods};
use crate::protocol::{Era, Version, Versions, code};
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::exchange::Arriving;
use crate::server::binding::http::validate::{self, FieldValue, Refusal, mismatch};
use crate::server::origin::{IdScope, Origin, QueueId, SessionKey};
use crate::server::requests::params::Params;
use crate::server::requests::places::Holder;
use crate::util::Arc;
use crate::wire::{self, Batch, ErrorObject, Id, Inbound, Malformed, Message};
use alloc::borrow::Cow;
use alloc::format;

/// A posted message.
#[expect(
    clippy::large_enum_variant,
    reason = "it exists only while the request is read, and a box would be an allocation for each request"
)]
pub(crate) enum Posted<'a> {
    Batch(Batch<'a>, &'a str),
    Malformed(Malformed, &'a str),
    Notification(Message<'a>, Era),
    Request {
        id: Id,
        method: Cow<'a, str>,
        params: Params<'a>,
        era: Era,
    },
    Response(Message<'a>),
}

impl Arriving {
    /// The body as text.
    pub(crate) fn text(&self) -> Result<&str, Refusal> {
        core::str::from_utf8(&self.body)
            .map_err(|_| Refusal::coded(400, code::PARSE_ERROR, "the body is not UTF-8"))
    }

    /// Reads the message. `terms` are those of the last modern client, as it wrote them.
    pub(crate) fn read(&self, terms: &str, spoken: Versions) -> Result<Posted<'_>, Refusal> {
        let text = self.text()?;
        let mut noted = Params::default();
        let plan = Params::plan(terms);
        let message = match wire::parse_visiting(text, plan, |part| noted.note(part)) {
            Ok(Inbound::Batch(batch)) => return Ok(Posted::Batch(batch, text)),
            Err(malformed) => return Ok(Posted::Malformed(malformed, text)),
            Ok(Inbound::One(message)) => message,
        };
        Ok(match message {
            Message::Request { id, method, params } => {
                noted.complete(params);
                let era = self.era(&noted, spoken);
                let is_listen = method == methods::SUBSCRIPTIONS_LISTEN;
                if era == Era::Modern && is_listen && !self.accepts.sse {
                    let text = "a watch is a stream of events, which is not accepted";
                    return Err(Refusal::new(406, text).to(Some(&id)));
                }
                Posted::Request {
                    id,
                    method,
                    params: noted,
                    era,
                }
            }
            Message::Notification { .. } => Posted::Notification(message, self.era(&noted, spoken)),
            Message::Response { .. } => {
                if !self.names_session(spoken) {
                    let text = "a response is no part of the modern era";
                    return Err(Refusal::new(400, text));
                }
                Posted::Response(message)
            }
        })
    }

    /// Returns the era of a message. A claim in the message itself outranks all else (S-VER-07).
    fn era(&self, params: &Params<'_>, spoken: Versions) -> Era {
        let speaks = |era| spoken.newest_of(era).is_some();
        if !speaks(Era::Legacy) {
            return Era::Modern;
        }
        let names_modern = match FieldValue::of(&self.fields, names::MCP_PROTOCOL_VERSION) {
            FieldValue::This(version) => {
                Version::parse(version).is_some_and(|version| version.era() == Era::Modern)
            }
            FieldValue::Absent | FieldValue::Unreadable => false,
        };
        if speaks(Era::Modern) && (params.claims_modern() || names_modern) {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// Whether a message names a session, on a server that has sessions.
    pub(crate) fn names_session(&self, spoken: Versions) -> bool {
        spoken.newest_of(Era::Legacy).is_some() && self.fields.has(names::MCP_SESSION_ID)
    }

    /// Requires the version field, unless a session id is present or versions before 2025-06-18 are served, which do not know the field
    /// (S-HTTP-31).
    pub(crate) fn check_names_version(&self, spoken: Versions) -> Result<(), Refusal> {
        let serves_older = spoken.iter().any(|version| version < Version::V2025_06_18);
        let fields = &self.fields;
        let is_named = fields.has(names::MCP_PROTOCOL_VERSION) || fields.has(names::MCP_SESSION_ID);
        if serves_older || is_named {
            return Ok(());
        }
        let error = validate::unnamed_version(FieldValue::Absent);
        Err(Refusal::coded(400, error.code, error.message))
    }

    /// The version that the header of a modern request names. `None` if the request is an `initialize` without the field, on a server that
    /// speaks no legacy version.
    pub(crate) fn modern_version(
        &self,
        name: &str,
        spoken: Versions,
    ) -> Result<Option<&str>, ErrorObject> {
        match FieldValue::of(&self.fields, names::MCP_PROTOCOL_VERSION) {
            FieldValue::This(version) => Ok(Some(version)),
            FieldValue::Absent
                if name == methods::INITIALIZE && spoken.newest_of(Era::Legacy).is_none() =>
            {
                Ok(None)
            }
            said @ (FieldValue::Absent | FieldValue::Unreadable) => {
                Err(validate::unnamed_version(said))
            }
        }
    }

    /// The origin of a message in a session.
    pub(crate) fn origin_in(&self, stream: StreamId, session: SessionKey) -> Origin {
        Origin {
            scope: IdScope::Session(session),
            queue: QueueId::Stream(stream),
            session: Some(session),
            era: Some(Era::Legacy),
            user: self.user.clone(),
            holder: Some(Arc::new(Holder::Session(session))),
            trace: self.trace.clone(),
        }
    }

    /// The origin of an `initialize` that may open this session.
    pub(crate) fn origin_of_initialize(&self, stream: StreamId, session: SessionKey) -> Origin {
        Origin {
            scope: IdScope::Stream(stream),
            holder: Some(self.holder_outside_sessions()),
            ..self.origin_in(stream, session)
        }
    }

    /// The client that the request counts for if it is in no session.
    fn holder_outside_sessions(&self) -> Arc<Holder> {
        Arc::new(Holder::outside_sessions(self.user.as_deref(), self.address))
    }

    /// The origin of a modern message.
    pub(crate) fn modern_origin(&self, stream: StreamId) -> Origin {
        Origin {
            scope: IdScope::Stream(stream),
            queue: QueueId::Stream(stream),
            session: None,
            era: Some(Era::Modern),
            user: self.user.clone(),
            holder: Some(self.holder_outside_sessions()),
            trace: self.trace.clone(),
        }
    }

    /// The refusal of a body that is not a message.
    pub(crate) fn refuse_malformed(malformed: &Malformed) -> Refusal {
        let id = malformed.id.as_ref().filter(|_| !malformed.is_response);
        Refusal::coded(400, malformed.kind.code(), format!("{malformed}")).to(id)
    }
}

/// Whether any message of a batch gets a reply.
pub(crate) fn wants_replies(batch: &Batch<'_>) -> bool {
    batch.clone().any(|element| match element {
        Ok(message) => matches!(message, Message::Request { .. }),
        Err(malformed) => !malformed.is_response && !malformed.is_notification,
    })
}

/// The refusal of a batch where there can be none.
pub(crate) fn no_batches() -> Refusal {
    Refusal::new(400, "an array of messages has no meaning here")
}

impl HttpBinding {
    /// Checks that the fields of a modern request agree with its message (S-HTTP-32). The version was checked before.
    pub(crate) fn check_fields(
        &self,
        arrived: &Arriving,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let subject = method::find(name).and_then(|facts| facts.named_by);
        let subject = subject.and_then(|key| params.text(key));
        validate::check_names(&arrived.fields, name, subject.as_deref())?;
        let (methods::TOOLS_CALL, Some(tool)) = (name, subject) else {
            return Ok(());
        };
        let checked = self.check_arguments(arrived, &tool, params.member("arguments"));
        checked.map_err(mismatch)
    }
}
