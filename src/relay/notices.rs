//! Passes on notifications unchanged. Those of a host wait until the server is ready. Those of the server go to the one host that they can
//! be for. The relay counts and reports those that it cannot pass on.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;

use super::{Event, Relay, Side};
use crate::client::Misuse;
use crate::driver::CallId;
use crate::json::Payload;
use crate::protocol::LogLevel;
use crate::protocol::method::names;
use crate::protocol::watch::{Change, List};
use crate::server::{self, Caller};

/// The number of notifications that wait for a server that is starting. The oldest is dropped for a newer one.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Notifications of hosts that wait for the server.
    waiting: VecDeque<(String, Option<Payload>)>,
    /// How many could not be passed on, in either direction.
    not_passed: u64,
    /// The latest report about those, if the driver has not polled it yet.
    untold: Option<(Side, Event)>,
}

impl Notices {
    pub(super) fn push(&mut self, method: String, params: Option<Payload>) {
        if self.waiting.len() == KEPT {
            if let Some((oldest, _)) = self.waiting.pop_front() {
                self.not_passed(Side::Upstream, &oldest);
            }
        }
        self.waiting.push_back((method, params));
    }

    /// Counts a notification that could not be passed on. Reports the first one, and then whenever their number has doubled, because a peer
    /// may send any number of them.
    pub(super) fn not_passed(&mut self, to: Side, method: &str) {
        self.not_passed += 1;
        let count = self.not_passed;
        if count.is_power_of_two() {
            let method = method.into();
            self.untold = Some((to, Event::NotPassed { to, method, count }));
        }
    }

    pub(super) fn take_untold(&mut self) -> Option<(Side, Event)> {
        self.untold.take()
    }
}

impl Relay {
    /// Sends the waiting notifications of hosts, if the server is ready.
    pub(super) fn pass_notices(&mut self) {
        while let Some((method, params)) = self.notices.waiting.pop_front() {
            match self.client.notify(self.now, method.clone(), params.clone()) {
                Ok(()) => {}
                Err(Misuse::NotReady { .. }) => {
                    return self.notices.waiting.push_front((method, params));
                }
                Err(Misuse::Closed) => {}
                // The server's era has no such notification.
                Err(_) => self.notices.not_passed(Side::Upstream, &method),
            }
        }
    }

    /// Passes on a notification of the server.
    pub(super) fn notified(
        &mut self,
        method: Box<str>,
        params: Option<Payload>,
        call: Option<CallId>,
    ) {
        let request = self.request_of(call);
        if &*method == names::NOTIFICATIONS_PROGRESS {
            if let (Some(request), Some(params)) = (request, params) {
                let _ = self.server.pass_progress(self.now, request, &params);
            }
            return;
        }
        if let Some(change) = change(&method, params.as_ref()) {
            let is_watched = match &change {
                Change::List(_) => true,
                Change::Resource { uri } => self.server.watchers_of(uri) > 0,
            };
            if is_watched && !self.config.has_one_host() {
                // Each host gets the changes that it watches.
                return self.announce(change);
            }
        }
        let is_log = &*method == names::NOTIFICATIONS_MESSAGE && !self.config.has_one_host();
        let request = request.or_else(|| is_log.then(|| self.logging()).flatten());
        let to = match self.config.has_one_host() {
            true => Some(Caller::LINK),
            false => self
                .asks
                .only_caller()
                .filter(|it| it.is_session())
                .cloned(),
        };
        let name = String::from(&*method).into();
        let is_passed = if request.is_some() || to.is_some() {
            let passed = self
                .server
                .pass(self.now, request, to.as_ref(), name, params);
            passed.is_ok()
        } else if self.config.shares_news {
            let passed = match params.as_ref().and_then(|params| log(&method, params)) {
                Some((level, logger, data)) => {
                    let logger = logger.as_deref();
                    self.server.log(self.now, None, level, logger, data)
                }
                None => self.server.notify(self.now, name, params),
            };
            passed.is_ok()
        } else {
            false
        };
        if !is_passed && self.server.state() != server::State::Closed {
            self.notices.not_passed(Side::Downstream, &method);
        }
    }
}

/// Parses the notification as a log message, if it is one.
fn log(method: &str, params: &Payload) -> Option<(LogLevel, Option<String>, Payload)> {
    let member = |key| params.json().member(key).ok().flatten();
    if method != names::NOTIFICATIONS_MESSAGE {
        return None;
    }
    let level = LogLevel::parse(&member("level")?.text()?)?;
    let logger = member("logger").and_then(|logger| logger.text());
    Some((
        level,
        logger.map(String::from),
        Payload::from(member("data")?),
    ))
}

/// Parses the notification as a change, if it is one.
fn change(method: &str, params: Option<&Payload>) -> Option<Change> {
    let list = match method {
        names::NOTIFICATIONS_PROMPTS_LIST_CHANGED => List::Prompts,
        names::NOTIFICATIONS_RESOURCES_LIST_CHANGED => List::Resources,
        names::NOTIFICATIONS_TOOLS_LIST_CHANGED => List::Tools,
        names::NOTIFICATIONS_RESOURCES_UPDATED => {
            let uri = params?.json().member("uri").ok()??;
            return Some(Change::Resource {
                uri: uri.text()?.into(),
            });
        }
        _ => return None,
    };
    Some(Change::List(list))
}
