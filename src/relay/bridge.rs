//! What happens on one side becomes what is done on the other. Every event of either machine comes through here.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::config::LostCalls;
use super::{Event, Relay, lists, words};
use crate::client::{self, CallOptions, Delivery, FailureKind, Outcome, Session};
use crate::id::{AskId, CallId, RequestId};
use crate::protocol::method::names;
use crate::protocol::{Era, ServerCapabilities, ServerFeature, code, round};
use crate::server::{self, Offer, Progress, Unanswered};
use crate::watch::{Change, List, Watch};
use crate::wire::{ErrorObject, Payload, object};

/// What a call to the server behind is for.
#[derive(Debug)]
pub(super) enum Errand {
    /// Whether this list is still what the client in front has seen.
    Compare(List),
    Request(Carrying),
}

/// A request of the client in front, while it is carried.
#[derive(Debug)]
pub(super) struct Carrying {
    request: RequestId,
    is_tool_call: bool,
    /// The client in front reads no result types.
    is_legacy: bool,
    /// The list that it reads, and whether from its beginning.
    list: Option<(List, bool)>,
}

/// What the client in front was offered.
#[derive(Debug)]
pub(super) struct Offered {
    capabilities: ServerCapabilities,
    /// The server behind had not been heard yet.
    is_guess: bool,
}

/// A question of the server behind, while it is carried.
#[derive(Debug)]
pub(super) struct Carried {
    /// What it is called in front.
    down: AskId,
    /// The question again, for another request in front where it is not known for which one it was asked.
    again: Option<(Cow<'static, str>, Option<Payload>)>,
}

/// What the client in front does.
impl Relay {
    /// Carries on what happened in front. What of it is left to tell.
    pub(super) fn carry_up(&mut self, event: server::Event) -> Option<Event> {
        match event {
            server::Event::Request(request) => self.request(request),
            server::Event::Cancelled { request, why } => self.cancelled(request, &why),
            server::Event::Answered { ask, outcome, .. } => self.answered(ask, outcome),
            server::Event::Watching(watch) => self.watch(&watch),
            server::Event::Notified { method, params } => {
                // Where it cannot be told now it need not be told later: the next life asks anew.
                let method = String::from(method);
                let _ = self.client.notify(self.now, method, params);
            }
            server::Event::Met(ref peer) => {
                self.client.declare(self.now, peer.capabilities.clone());
                self.client.connect(self.now);
                if self.offered.is_none() && self.patience.is_none() {
                    self.patience = Some(self.now + self.config.patience);
                }
                return Some(Event::Downstream(event));
            }
            server::Event::Closed { .. } => {
                self.patience = None;
                self.client.shutdown(self.now);
                return Some(Event::Downstream(event));
            }
            server::Event::Draining { .. }
            | server::Event::Initialized
            | server::Event::Noise(_) => {
                return Some(Event::Downstream(event));
            }
        }
        None
    }

    fn request(&mut self, request: server::Request) {
        let method = request.method;
        let carrying = Carrying {
            request: request.request,
            is_tool_call: method == names::TOOLS_CALL,
            is_legacy: request.peer.version.era() == Era::Legacy,
            list: lists::read_by(&method).map(|list| {
                let params = request.params.as_ref().map_or("{}", Payload::as_str);
                let is_first = matches!(object::member(params, "cursor"), Ok(None));
                (list, is_first)
            }),
        };
        let mut options = CallOptions::new();
        if !request.wants_progress {
            options = options.without_progress();
        }
        match self.client.call(self.now, method, request.params, options) {
            Ok(call) => {
                self.calls.insert(carrying.request, call);
                self.errands.insert(call, Errand::Request(carrying));
            }
            Err(misuse) => {
                let text = format!("the request could not be passed on: {misuse}");
                self.lost(&carrying, &text, Delivery::NotSent, code::INTERNAL_ERROR);
            }
        }
    }

    fn cancelled(&mut self, request: RequestId, why: &server::Cancelled) {
        let Some(call) = self.calls.remove(&request) else {
            return;
        };
        self.errands.remove(&call);
        let reason = match why {
            server::Cancelled::Anew => Some("the client began anew"),
            server::Cancelled::ByPeer { reason } => reason.as_deref(),
            server::Cancelled::NotResumed => {
                Some("the client was asked something and did not answer")
            }
            server::Cancelled::OutOfTime | server::Cancelled::PeerGone => {
                Some("the client is gone")
            }
        };
        // It may have its outcome already, on its way to here.
        let _ = self.client.cancel(self.now, call, reason);
    }

    fn answered(&mut self, down: AskId, outcome: Result<Payload, Unanswered>) {
        let Some(up) = self.asked.remove(&down) else {
            return;
        };
        let carried = self.asks.remove(&up);
        let answer = match outcome {
            Ok(answer) => Ok(answer),
            Err(Unanswered::Error(error)) => Err(error),
            Err(Unanswered::RequestOver) => {
                // It was put for one request of several that it may belong to; there may be another.
                if let Some((method, params)) = carried.and_then(|carried| carried.again) {
                    return self.put_somewhere(up, method, params);
                }
                Err(unanswered(&Unanswered::RequestOver))
            }
            Err(why) => Err(unanswered(&why)),
        };
        self.answer(up, answer);
    }

    /// The server behind may have taken back its question, on the way to here.
    fn answer(&mut self, up: AskId, answer: Result<Payload, ErrorObject>) {
        let _ = self.client.answer(self.now, up, answer);
    }

    /// The lists are watched for the client in front, asked for or not: it cannot see what happens behind.
    fn watch(&mut self, watch: &Watch) {
        let wish = Watch {
            uris: watch.uris.clone(),
            logs: watch.logs,
            ..Watch::lists()
        };
        self.client.watch(self.now, wish);
    }
}

/// What the server behind does.
impl Relay {
    /// Carries on what happened behind. What of it is left to tell.
    pub(super) fn carry_down(&mut self, event: client::Event) -> Option<Event> {
        match event {
            client::Event::Done { call, outcome } => self.done(call, outcome),
            client::Event::Progress {
                call,
                progress,
                total,
                message,
            } => {
                let told = Progress {
                    progress,
                    total,
                    message,
                };
                if let Some(Errand::Request(carrying)) = self.errands.get(&call) {
                    let _ = self.server.progress(self.now, carrying.request, told);
                }
            }
            client::Event::Ask(ask) => self.ask(ask),
            client::Event::AskWithdrawn { ask, .. } => {
                if let Some(carried) = self.asks.remove(&ask) {
                    self.asked.remove(&carried.down);
                    let reason = Some("the server took back its question");
                    let _ = self.server.withdraw(self.now, carried.down, reason);
                }
            }
            client::Event::Changed(change) => self.announce(change),
            client::Event::Log {
                level,
                logger,
                data,
            } => {
                let _ = self
                    .server
                    .log(self.now, None, level, logger.as_deref(), data);
            }
            client::Event::Notified { method, params } => {
                let method = String::from(method);
                let _ = self.server.notify(self.now, method, params);
            }
            client::Event::Ready(ref session) => {
                self.ready(session);
                return Some(Event::Upstream(event));
            }
            client::Event::Watching { ref granted, .. } => {
                // What changed while nobody watched was not heard.
                for uri in granted.uris.clone() {
                    self.announce(Change::Resource { uri });
                }
                return Some(Event::Upstream(event));
            }
            client::Event::Parked { .. } => {
                self.offer_everything();
                return Some(Event::Upstream(event));
            }
            client::Event::Closed => {
                self.offer_everything();
                self.server.shutdown(self.now);
                return Some(Event::Upstream(event));
            }
            client::Event::Opening { .. }
            | client::Event::Handshaking { .. }
            | client::Event::Draining { .. }
            | client::Event::Closing { .. }
            | client::Event::Waiting { .. }
            | client::Event::Ended(_)
            | client::Event::Slow { .. }
            | client::Event::Noise(_) => return Some(Event::Upstream(event)),
        }
        None
    }

    fn done(&mut self, call: CallId, outcome: Outcome) {
        match self.errands.remove(&call) {
            Some(Errand::Compare(list)) => self.compared(list, &outcome),
            Some(Errand::Request(carrying)) => {
                self.calls.remove(&carrying.request);
                self.reply(&carrying, outcome);
            }
            None => {}
        }
    }

    fn reply(&mut self, carrying: &Carrying, outcome: Outcome) {
        let request = carrying.request;
        // The client in front may have taken back its request, on the way to here.
        match outcome {
            Outcome::Reply(result) => {
                if let Some((list, is_first)) = carrying.list {
                    self.lists.saw(list, is_first, &result);
                }
                let result = if carrying.is_legacy {
                    without_type(result)
                } else {
                    result
                };
                if let Err(misuse) = self.server.respond(self.now, request, result) {
                    self.unfit(request, &misuse);
                }
            }
            Outcome::Error(error) => {
                let error = alloc::sync::Arc::unwrap_or_clone(error);
                let _ = self.server.fail(self.now, request, error);
            }
            Outcome::Failed(failure) => {
                let is_offered = !matches!(failure.kind, FailureKind::NotOffered { .. });
                if is_offered && carrying.is_tool_call {
                    let text = failure.to_string();
                    self.lost(carrying, &text, failure.delivery, code::INTERNAL_ERROR);
                } else {
                    let error = words::as_error(&failure);
                    let _ = self.server.fail(self.now, request, error);
                }
            }
            // A relay asks for pages, never for a whole list.
            Outcome::Listed(_) => {}
        }
    }

    /// There is no reply: a tool call is answered as the configuration says, everything else with an error.
    fn lost(&mut self, carrying: &Carrying, text: &str, delivery: Delivery, code: i64) {
        let as_result = carrying.is_tool_call && self.config.lost_calls == LostCalls::AsResult;
        let result = as_result
            .then(|| words::as_result(text, delivery))
            .flatten();
        let _ = match result {
            Some(result) => self.server.respond(self.now, carrying.request, result),
            None => {
                let error = words::error(code, text.to_string(), delivery);
                self.server.fail(self.now, carrying.request, error)
            }
        };
    }

    /// The reply of the server behind cannot be passed on as it is.
    fn unfit(&mut self, request: RequestId, misuse: &server::Misuse) {
        let text = format!("the reply could not be passed on: {misuse}");
        let error = words::error(code::INTERNAL_ERROR, text, Delivery::Unknown);
        let _ = self.server.fail(self.now, request, error);
    }

    fn ask(&mut self, ask: client::Ask) {
        let up = ask.ask;
        let Some(call) = ask.call else {
            return self.put_somewhere(up, ask.method, ask.params);
        };
        let Some(Errand::Request(carrying)) = self.errands.get(&call) else {
            return self.answer(up, Err(unanswered(&Unanswered::RequestOver)));
        };
        let request = carrying.request;
        let put = self.server.ask(self.now, request, ask.method, ask.params);
        match put {
            Ok(down) => self.carry(up, down, None),
            Err(misuse) => self.answer(up, Err(unaskable(&misuse))),
        }
    }

    /// A legacy server does not say for which request it asks. A legacy client in front does not want to know; a modern one
    /// is asked for any of its requests that can wait for it.
    fn put_somewhere(&mut self, up: AskId, method: Cow<'static, str>, params: Option<Payload>) {
        let again = Some((method.clone(), params.clone()));
        let mut refusal = match self
            .server
            .ask_unbidden(self.now, method.clone(), params.clone())
        {
            Ok(down) => return self.carry(up, down, again),
            Err(misuse) => misuse,
        };
        // The newest is the likeliest to be what it is about.
        let open: Vec<RequestId> = self.calls.keys().rev().copied().collect();
        for request in open {
            let put = self
                .server
                .ask(self.now, request, method.clone(), params.clone());
            match put {
                Ok(down) => return self.carry(up, down, again),
                Err(misuse) => refusal = misuse,
            }
        }
        self.answer(up, Err(unaskable(&refusal)));
    }

    fn carry(
        &mut self,
        up: AskId,
        down: AskId,
        again: Option<(Cow<'static, str>, Option<Payload>)>,
    ) {
        self.asks.insert(up, Carried { down, again });
        self.asked.insert(down, up);
    }
}

/// What the server behind offers, life by life.
impl Relay {
    fn ready(&mut self, session: &Session) {
        let was_guess = self
            .offered
            .as_ref()
            .is_some_and(|offered| offered.is_guess);
        let mut offer = self.config.fallback.clone();
        if let Some(server) = &session.server {
            offer.server = server.clone();
        }
        offer.instructions = session.instructions.clone();
        self.offer(offer.with_capabilities(session.capabilities.clone()), false);
        if was_guess {
            for list in [List::Tools, List::Prompts, List::Resources] {
                self.announce(Change::List(list));
            }
        }
        for list in self.lists.begin_comparing() {
            let options = CallOptions::new().without_progress();
            match self.client.call(self.now, method_of(list), None, options) {
                Ok(call) => {
                    self.errands.insert(call, Errand::Compare(list));
                }
                Err(_) => self.differs(list),
            }
        }
    }

    /// The client in front has waited for long enough.
    pub(super) fn offer_everything(&mut self) {
        if self.offered.is_none() {
            self.offer(self.config.fallback.clone(), true);
        }
    }

    /// What was once offered stays offered, so that its end can be announced; and lists are always announced.
    fn offer(&mut self, mut offer: Offer, is_guess: bool) {
        self.patience = None;
        let before = self.offered.take();
        for (family, announcement) in FAMILIES {
            let was_offered = before
                .as_ref()
                .is_some_and(|b| b.capabilities.offers(family));
            if was_offered || offer.capabilities.offers(family) {
                offer.capabilities = offer.capabilities.with(announcement);
            }
        }
        self.offered = Some(Offered {
            capabilities: offer.capabilities.clone(),
            is_guess,
        });
        self.server.offer(self.now, offer);
    }

    fn compared(&mut self, list: List, outcome: &Outcome) {
        let is_same = match outcome {
            Outcome::Reply(result) => !self.lists.differs(list, result),
            Outcome::Error(_) | Outcome::Failed(_) | Outcome::Listed(_) => false,
        };
        if is_same {
            self.lists.compared(list);
        } else {
            self.differs(list);
        }
    }

    fn differs(&mut self, list: List) {
        self.lists.compared(list);
        self.announce(Change::List(list));
    }

    /// What is not offered cannot be announced, and nobody waits to hear of it.
    fn announce(&mut self, change: Change) {
        let _ = self.server.publish(self.now, change);
    }
}

/// What has a list, and how word of its changes is offered.
const FAMILIES: [(ServerFeature, ServerFeature); 3] = [
    (ServerFeature::Prompts, ServerFeature::PromptsListChanged),
    (
        ServerFeature::Resources,
        ServerFeature::ResourcesListChanged,
    ),
    (ServerFeature::Tools, ServerFeature::ToolsListChanged),
];

const fn method_of(list: List) -> &'static str {
    match list {
        List::Prompts => names::PROMPTS_LIST,
        List::ResourceTemplates => names::RESOURCES_TEMPLATES_LIST,
        List::Resources => names::RESOURCES_LIST,
        List::Tools => names::TOOLS_LIST,
    }
}

/// A legacy client knows no result types.
fn without_type(result: Payload) -> Payload {
    match object::member(result.as_str(), round::RESULT_TYPE) {
        Ok(None) => result,
        Ok(Some(_)) | Err(_) => {
            let is_type = |key: &str| key == round::RESULT_TYPE;
            object::without(result.as_str(), is_type).unwrap_or(result)
        }
    }
}

fn unanswered(why: &Unanswered) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, why.to_string())
}

/// S-S2C-03: what a client that cannot be asked says.
fn unaskable(misuse: &server::Misuse) -> ErrorObject {
    let text = format!("the client cannot be asked this now: {misuse}");
    ErrorObject::new(code::INVALID_PARAMS, text)
}
