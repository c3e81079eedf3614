//! Questions of the server, of either era, that wait for the application's answer.
//! Sees no frames and no time; one life at a time.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::id::{AskId, CallId};
use crate::noise::excerpt;
use crate::protocol::question::{self, Unaskable};
use crate::protocol::{ClientCapabilities, Version, code};
use crate::wire::{ErrorObject, Id, Json};

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
    /// Those that are part of a round, by the call.
    by_call: BTreeSet<(CallId, AskId)>,
}

impl Asks {
    pub(super) const fn new() -> Asks {
        Asks {
            next: 1,
            open: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_call: BTreeSet::new(),
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
        match &origin {
            Origin::Request(id) => {
                self.by_request.insert(id.clone(), ask);
            }
            Origin::Round(call, _) => {
                self.by_call.insert((*call, ask));
            }
        }
        let method = method.into();
        self.open.insert(ask, Open { origin, method });
        ask
    }

    pub(super) fn get(&self, ask: AskId) -> Option<&Open> {
        self.open.get(&ask)
    }

    pub(super) fn close(&mut self, ask: AskId) -> Option<Open> {
        let open = self.open.remove(&ask)?;
        match &open.origin {
            Origin::Request(id) => {
                self.by_request.remove(id);
            }
            Origin::Round(call, _) => {
                self.by_call.remove(&(*call, ask));
            }
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
        let first = (call, AskId::from_number(0));
        let of_call = self.by_call.range(first..);
        let of_call = of_call.take_while(|(of, _)| *of == call);
        let of_call: Vec<AskId> = of_call.map(|(_, ask)| *ask).collect();
        for ask in &of_call {
            self.close(*ask);
        }
        of_call
    }

    /// All questions. None is open afterwards.
    pub(super) fn close_all(&mut self) -> impl Iterator<Item = AskId> + use<> {
        self.by_request.clear();
        self.by_call.clear();
        core::mem::take(&mut self.open).into_keys()
    }
}

/// Whether this client may be asked: what to say to a server that may not.
pub(super) fn admit(
    declared: &ClientCapabilities,
    version: Version,
    name: &str,
    params: Option<Json<'_>>,
) -> Result<(), ErrorObject> {
    question::check(declared, version, name, params).map_err(|why| match why {
        Unaskable::Unknown | Unaskable::Undeclared(_) => {
            let name = excerpt(name);
            let text = alloc::format!("`{name}` is not something this client can be asked");
            ErrorObject::new(code::METHOD_NOT_FOUND, text)
        }
        Unaskable::UnknownManner | Unaskable::UndeclaredManner(_) => {
            ErrorObject::new(code::INVALID_PARAMS, alloc::format!("{why}"))
        }
    })
}
