//! The open asks of a server, of either era, in one epoch. This module knows neither frames nor time.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::driver::{AskId, CallId};
use crate::json::Json;
use crate::protocol::question::{self, Unaskable};
use crate::protocol::{ClientCapabilities, Version, code};
use crate::util::ascending_map::AscendingMap;
use crate::util::noise::excerpt;
use crate::wire::{ErrorObject, Id};

/// The origin of an ask, which is where its answer goes. Requests sort before rounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A request with this id from a legacy server.
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
    open: AscendingMap<AskId, Open>,
    by_origin: BTreeMap<Origin, AskId>,
}

impl Asks {
    pub(super) const fn new() -> Asks {
        Asks {
            next: 1,
            open: AscendingMap::new(),
            by_origin: BTreeMap::new(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a legacy server waits for an answer. It does not say which call it asks for, so the clocks of all calls in flight stop.
    pub(super) fn holds_calls(&self) -> bool {
        let first = self.by_origin.first_key_value();
        first.is_some_and(|(origin, _)| matches!(origin, Origin::Request(_)))
    }

    /// Whether a request with this id is open.
    pub(super) fn knows(&self, id: &Id) -> bool {
        self.by_origin.contains_key(&Origin::Request(id.clone()))
    }

    pub(super) fn open(&mut self, origin: Origin, method: &str) -> AskId {
        let ask = AskId::from_number(self.next);
        self.next += 1;
        self.by_origin.insert(origin.clone(), ask);
        let method = method.into();
        self.open.add(ask, Open { origin, method });
        ask
    }

    pub(super) fn get(&self, ask: AskId) -> Option<&Open> {
        self.open.get(ask)
    }

    pub(super) fn close(&mut self, ask: AskId) -> Option<Open> {
        let open = self.open.remove(ask)?;
        self.by_origin.remove(&open.origin);
        Some(open)
    }

    /// Closes the ask that the server cancelled.
    pub(super) fn withdraw(&mut self, id: &Id) -> Option<AskId> {
        let ask = self.by_origin.remove(&Origin::Request(id.clone()))?;
        self.open.forget(ask);
        Some(ask)
    }

    /// Closes the asks of a call, and returns them.
    pub(super) fn close_of(&mut self, call: CallId) -> Vec<AskId> {
        let of_call = self.by_origin.range(Origin::Round(call, "".into())..);
        let of_call =
            of_call.take_while(|(origin, _)| matches!(origin, Origin::Round(of, _) if *of == call));
        let of_call: Vec<AskId> = of_call.map(|(_, ask)| *ask).collect();
        for ask in &of_call {
            self.close(*ask);
        }
        of_call
    }

    /// Closes all asks, and returns them.
    pub(super) fn close_all(&mut self) -> Vec<AskId> {
        let all = self.open.keys().collect();
        self.by_origin = BTreeMap::new();
        self.open = AscendingMap::new();
        all
    }
}

/// Checks whether the server may ask this. The error is the reply for a server that may not.
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
