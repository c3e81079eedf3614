//! Questions of the server, of either era, that wait for the application's answer.
//! Sees no frames and no time; one life at a time.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::stdio::excerpt;
use crate::id::{AskId, CallId};
use crate::protocol::{ClientCapabilities, ClientFeature, Era, Kind, Version, code, method};
use crate::wire::{ErrorObject, Id, object};

/// Where a question came from, and so where its answer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A request of a legacy server with this id.
    Request(Id),
    /// The result of this call, under this key (S-MRTR-05).
    Round(CallId, Box<str>),
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) origin: Origin,
    pub(super) method: Box<str>,
}

#[derive(Debug)]
pub(super) struct Asks {
    next: u64,
    open: BTreeMap<AskId, Open>,
    by_request: BTreeMap<Id, AskId>,
}

impl Asks {
    pub(super) const fn new() -> Asks {
        Asks {
            next: 1,
            open: BTreeMap::new(),
            by_request: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a legacy server waits for any answer. Which of the calls in flight it asks for
    /// cannot be told, so all of them wait.
    pub(super) fn holds_calls(&self) -> bool {
        !self.by_request.is_empty()
    }

    /// Whether a request with this id is open already.
    pub(super) fn knows(&self, id: &Id) -> bool {
        self.by_request.contains_key(id)
    }

    pub(super) fn open(&mut self, origin: Origin, method: &str) -> AskId {
        let ask = AskId::from_number(self.next);
        self.next += 1;
        if let Origin::Request(id) = &origin {
            self.by_request.insert(id.clone(), ask);
        }
        let method = method.into();
        self.open.insert(ask, Open { origin, method });
        ask
    }

    pub(super) fn close(&mut self, ask: AskId) -> Option<Open> {
        let open = self.open.remove(&ask)?;
        if let Origin::Request(id) = &open.origin {
            self.by_request.remove(id);
        }
        Some(open)
    }

    /// The server took back the request with this id.
    pub(super) fn withdraw(&mut self, id: &Id) -> Option<AskId> {
        let ask = self.by_request.remove(id)?;
        self.open.remove(&ask);
        Some(ask)
    }

    /// The questions that belong to a call. None is open afterwards.
    pub(super) fn close_of(&mut self, call: CallId) -> Vec<AskId> {
        let of_call: Vec<AskId> = self
            .open
            .iter()
            .filter(|(_, open)| matches!(&open.origin, Origin::Round(of, _) if *of == call))
            .map(|(ask, _)| *ask)
            .collect();
        for ask in &of_call {
            self.open.remove(ask);
        }
        of_call
    }

    /// All questions. None is open afterwards.
    pub(super) fn close_all(&mut self) -> impl Iterator<Item = AskId> + use<> {
        self.by_request.clear();
        core::mem::take(&mut self.open).into_keys()
    }
}

/// Whether the client may be asked this: it was declared, in this very form (S-S2C-03).
pub(super) fn admit(
    declared: &ClientCapabilities,
    version: Version,
    name: &str,
    params: Option<&RawValue>,
) -> Result<(), ErrorObject> {
    let unknown = || {
        let text = alloc::format!(
            "`{}` is not something this client can be asked",
            excerpt(name)
        );
        ErrorObject::new(code::METHOD_NOT_FOUND, text)
    };
    let facts = method::find(name).filter(|facts| facts.kind == Kind::Request);
    let facts = facts.ok_or_else(unknown)?;
    let exists = match version.era() {
        Era::Legacy => facts.to_client.contains(version),
        Era::Modern => facts.embedded,
    };
    let gate = facts.client_gate(version);
    if !exists || !gate.is_some_and(|feature| declared.declares(feature)) {
        return Err(unknown());
    }
    let manner = Manner::read(name, params).ok_or_else(|| {
        let text = "this client knows no such way to be asked";
        ErrorObject::new(code::INVALID_PARAMS, text)
    })?;
    match manner.needs() {
        Some(feature) if !declared.declares(feature) => {
            let text = alloc::format!("this client did not declare {feature}");
            Err(ErrorObject::new(code::INVALID_PARAMS, text))
        }
        Some(_) | None => Ok(()),
    }
}

/// In which manner a question is put.
#[derive(Clone, Copy)]
enum Manner {
    ElicitationForm,
    ElicitationUrl,
    Plain,
    SamplingTools,
}

impl Manner {
    /// `None` if it is none that there is.
    fn read(name: &str, params: Option<&RawValue>) -> Option<Manner> {
        let params = params.map_or("{}", RawValue::get);
        let member = |key| object::member(params, key).ok();
        match name {
            method::names::ELICITATION_CREATE => {
                let Some(at) = member("mode")? else {
                    return Some(Manner::ElicitationForm);
                };
                match serde_json::from_str::<Cow<'_, str>>(&params[at])
                    .ok()?
                    .as_ref()
                {
                    "form" => Some(Manner::ElicitationForm),
                    "url" => Some(Manner::ElicitationUrl),
                    _ => None,
                }
            }
            method::names::SAMPLING_CREATE_MESSAGE => {
                let is_plain = member("tools")?.is_none() && member("toolChoice")?.is_none();
                Some(if is_plain {
                    Manner::Plain
                } else {
                    Manner::SamplingTools
                })
            }
            _ => Some(Manner::Plain),
        }
    }

    /// What the client must have declared for it.
    const fn needs(self) -> Option<ClientFeature> {
        match self {
            Manner::ElicitationForm => Some(ClientFeature::ElicitationForm),
            Manner::ElicitationUrl => Some(ClientFeature::ElicitationUrl),
            Manner::Plain => None,
            Manner::SamplingTools => Some(ClientFeature::SamplingTools),
        }
    }
}
