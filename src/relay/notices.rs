//! Notifications, passed on as they came: those of the client in front wait for a server that is starting, those of the server behind go to the one
//! client that they can be for.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;

use super::Relay;
use crate::client::Misuse;
use crate::id::CallId;
use crate::protocol::LogLevel;
use crate::protocol::method::names;
use crate::server::Caller;
use crate::watch::{Change, List};
use crate::wire::Payload;

/// The number of notifications that wait for a server that is starting. The oldest is dropped for a newer one.
const KEPT: usize = 64;

/// Notifications of the client in front that the server behind has still to be told.
#[derive(Debug, Default)]
pub(super) struct Notices(VecDeque<(String, Option<Payload>)>);

impl Notices {
    pub(super) fn push(&mut self, method: String, params: Option<Payload>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((method, params));
    }
}

impl Relay {
    /// Tells the server behind what the client in front had to say, if it is ready.
    pub(super) fn pass_notices(&mut self) {
        while let Some((method, params)) = self.notices.0.pop_front() {
            let told = self.client.notify(self.now, method.clone(), params.clone());
            if let Err(Misuse::NotReady { .. }) = told {
                self.notices.0.push_front((method, params));
                return;
            }
            // What no server of this era can be told has no other way.
        }
    }

    /// The server behind says something that has no answer.
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
            if !self.config.has_one_host() {
                // Each hears what it watches.
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
        let method = String::from(method).into();
        let _ = if request.is_some() || to.is_some() {
            self.server
                .pass(self.now, request, to.as_ref(), method, params)
        } else if self.config.shares_news {
            match params.as_ref().and_then(|params| log(&method, params)) {
                Some((level, logger, data)) => {
                    let logger = logger.as_deref();
                    self.server.log(self.now, None, level, logger, data)
                }
                None => self.server.notify(self.now, method, params),
            }
        } else {
            Ok(())
        };
    }
}

/// The log message that a notification is.
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

/// The change that a notification tells of.
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
