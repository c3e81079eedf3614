//! Questions of the server, of either era, that wait for the application's answer.
//! Sees no frames and no time; one life at a time.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::stdio::excerpt;
use crate::id::{AskId, CallId};
use crate::protocol::{ClientCapabilities, ClientFeature, Era, Version, code, method};
use crate::wire::{ErrorObject, Id};

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
    let facts = method::find(name).ok_or_else(unknown)?;
    let exists = match version.era() {
        Era::Legacy => facts.to_client.contains(version),
        Era::Modern => facts.embedded,
    };
    let gate = facts.client_gate(version);
    if !exists || !gate.is_some_and(|feature| declared.declares(feature)) {
        return Err(unknown());
    }
    match undeclared_form(declared, name, params) {
        Some(what) => Err(ErrorObject::new(
            code::INVALID_PARAMS,
            alloc::format!("this client did not declare {what}"),
        )),
        None => Ok(()),
    }
}

fn undeclared_form(
    declared: &ClientCapabilities,
    name: &str,
    params: Option<&RawValue>,
) -> Option<ClientFeature> {
    let form: Form<'_> = params
        .and_then(|params| serde_json::from_str(params.get()).ok())
        .unwrap_or_default();
    let needed = match name {
        method::names::ELICITATION_CREATE => match form.mode {
            Some("url") => ClientFeature::ElicitationUrl,
            Some(_) | None => ClientFeature::ElicitationForm,
        },
        method::names::SAMPLING_CREATE_MESSAGE if form.tools.or(form.tool_choice).is_some() => {
            ClientFeature::SamplingTools
        }
        _ => return None,
    };
    (!declared.declares(needed)).then_some(needed)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Form<'a> {
    #[serde(borrow)]
    mode: Option<&'a str>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
}
