//! The calls to the server, and why each was made: the requests of hosts that it carries, and the lists that the relay compares.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::lists;
use super::trace::Trace;
use crate::driver::{CallId, Epoch, Instant, RequestId};
use crate::json::{Json, Payload};
use crate::protocol::method::{self, names};
use crate::protocol::watch::{List, Setting};
use crate::protocol::{Era, question};
use crate::server::{Caller, Peer, Request};
use crate::util::Arc;

/// The purpose of a call to the server.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Reads a list to compare it with the one that the host has seen.
    Compare(List),
    /// Carries a request of a host.
    Request(CarriedRequest),
}

/// A request of a host while the relay carries it.
#[derive(Debug)]
pub(super) struct CarriedRequest {
    pub(super) request: RequestId,
    /// The host that sent it.
    pub(super) caller: Caller,
    /// The host's version and capabilities for this request.
    pub(super) peer: Arc<Peer>,
    /// Whether the protocol allows the request to wait for input.
    may_wait: bool,
    /// Whether the host wants log messages for this request.
    wants_logs: bool,
    pub(super) is_tool_call: bool,
    /// The subscription or log level that the request changes, if it is such a request.
    pub(super) setting: Option<Setting>,
    /// The epoch of the server in which the request came.
    pub(super) epoch: Epoch,
    /// The list that it reads, and whether it reads the first page.
    pub(super) list: Option<(List, bool)>,
    /// Its trace, if requests are traced.
    pub(super) trace: Option<Box<Trace>>,
}

impl CarriedRequest {
    /// The request that came while the server was in this epoch.
    pub(super) fn new(request: &Request, epoch: Epoch) -> CarriedRequest {
        let (method, params, peer) = (&*request.method, request.params.as_ref(), &request.peer);
        CarriedRequest {
            request: request.request,
            may_wait: method::find(method).is_some_and(|m| m.may_need_input),
            wants_logs: request.log_level.is_some() || peer.version.era() == Era::Legacy,
            peer: Arc::clone(peer),
            caller: request.caller.clone(),
            is_tool_call: method == names::TOOLS_CALL,
            setting: Setting::read(method, params),
            epoch,
            list: lists::read_by(method).map(|list| {
                let params = params.map_or(Json::EMPTY, Payload::json);
                let cursor = params.member("cursor").ok().flatten();
                let is_first = cursor.is_none_or(Json::is_null);
                (list, is_first)
            }),
            trace: None,
        }
    }

    /// Whether the host can be asked this while the request waits.
    fn may_ask(&self, method: &str) -> bool {
        let peer = &self.peer;
        let can = question::check(&peer.capabilities, peer.version, method, None);
        self.may_wait && can.is_ok()
    }
}

#[derive(Debug, Default)]
pub(super) struct Carried {
    /// The purpose of each call to the server.
    purposes: BTreeMap<CallId, Purpose>,
    /// The call that carries each request of a host.
    calls: BTreeMap<RequestId, CallId>,
}

impl Carried {
    pub(super) fn add(&mut self, call: CallId, purpose: Purpose) {
        if let Purpose::Request(carried) = &purpose {
            self.calls.insert(carried.request, call);
        }
        self.purposes.insert(call, purpose);
    }

    /// Removes a call that has its outcome.
    pub(super) fn take(&mut self, call: CallId) -> Option<Purpose> {
        let purpose = self.purposes.remove(&call)?;
        if let Purpose::Request(carried) = &purpose {
            self.calls.remove(&carried.request);
        }
        Some(purpose)
    }

    /// Removes the call that carries this request of a host.
    pub(super) fn take_call_of(&mut self, request: RequestId) -> Option<(CallId, CarriedRequest)> {
        let call = self.calls.remove(&request)?;
        match self.purposes.remove(&call)? {
            Purpose::Request(carried) => Some((call, carried)),
            Purpose::Compare(_) => None,
        }
    }

    /// Records in all traces that a connection to the server is ready.
    pub(super) fn ready(&mut self, now: Instant, epoch: Epoch) {
        for purpose in self.purposes.values_mut() {
            if let Purpose::Request(carried) = purpose {
                if let Some(trace) = &mut carried.trace {
                    trace.ready(now, epoch);
                }
            }
        }
    }

    /// Returns the calls upstream that carry requests of hosts.
    pub(super) fn calls(&self) -> Vec<CallId> {
        self.calls.values().copied().collect()
    }

    /// Returns the calls upstream that carry the requests for which `is_one` holds.
    pub(super) fn calls_for(
        &self,
        is_one: impl Fn(RequestId) -> bool,
    ) -> impl Iterator<Item = CallId> {
        let calls = self.calls.iter();
        calls.filter_map(move |(request, call)| is_one(*request).then_some(*call))
    }

    /// Returns the host's request that this call carries. `None` if it carries none.
    pub(super) fn request_of(&self, call: CallId) -> Option<RequestId> {
        self.get(call).map(|carried| carried.request)
    }

    /// Returns the host of each request that is carried, so a host may occur several times.
    pub(super) fn callers(&self) -> impl Iterator<Item = &Caller> {
        let carried = self.calls.values().filter_map(|call| self.get(*call));
        carried.map(|carried| &carried.caller)
    }

    fn get(&self, call: CallId) -> Option<&CarriedRequest> {
        match self.purposes.get(&call)? {
            Purpose::Request(carried) => Some(carried),
            Purpose::Compare(_) => None,
        }
    }

    /// The requests of hosts, the newest first.
    fn newest(&self) -> impl Iterator<Item = &CarriedRequest> {
        let calls = self.calls.values().rev();
        calls.filter_map(|call| self.get(*call))
    }

    /// The request that an ask most likely belongs to: the newest that can wait and whose host can be asked. A request whose host is
    /// present wins over one whose host is busy with other asks. `is_away` says which of the two it is; `None` if the request is over.
    pub(super) fn likeliest(
        &self,
        method: &str,
        is_away: impl Fn(RequestId) -> Option<bool>,
    ) -> Option<RequestId> {
        let can_be_asked = self.newest().filter(|carried| carried.may_ask(method));
        let requests = can_be_asked.map(|carried| carried.request);
        let open = requests.filter_map(|request| Some((is_away(request)?, request)));
        let (_, likeliest) = open.min_by_key(|(is_away, _)| *is_away)?;
        Some(likeliest)
    }

    /// Returns the newest host request that wants log messages. `None` if no request wants them.
    pub(super) fn newest_that_logs(&self) -> Option<RequestId> {
        let mut newest = self.newest();
        newest
            .find(|carried| carried.wants_logs)
            .map(|carried| carried.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Version;

    #[test]
    fn nothing_is_left_of_a_request_that_has_its_outcome() {
        let peer = Arc::new(Peer {
            version: Version::V2025_11_25,
            client: None,
            capabilities: Default::default(),
            introduction: None,
        });
        let (request, call) = (RequestId::from_number(1), CallId::from_number(2));
        let came = Request {
            request,
            method: names::TOOLS_CALL.into(),
            params: None,
            peer,
            user: None,
            trace: None,
            caller: Caller::LINK,
            wants_progress: false,
            log_level: None,
            input: None,
        };
        let carried = CarriedRequest::new(&came, Epoch::FIRST);
        let mut all = Carried::default();
        all.add(call, Purpose::Request(carried));
        assert_eq!(all.calls(), [call]);
        assert_eq!(all.request_of(call), Some(request));
        assert!(matches!(all.take(call), Some(Purpose::Request(_))));
        assert_eq!((all.calls().len(), all.callers().count()), (0, 0));
        assert!(all.take_call_of(request).is_none());
    }
}
