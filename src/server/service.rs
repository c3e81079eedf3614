//! Answers requests without the application: discovery, log levels, subscriptions and watches.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;

use super::event::{Caller, State};
use super::frame::{Answer, Frame};
use super::origin::Origin;
use super::params::Params;
use super::watchers::grant;
use super::{Server, missing_capability};
use crate::protocol::method::names;
use crate::protocol::watch::{Setting, Watch};
use crate::protocol::watch_filter;
use crate::protocol::{ClientFeature, LogLevel, Peer, code};
use crate::wire::{ErrorObject, Id};

impl Server {
    pub(super) fn discover(
        &mut self,
        from: &Origin,
        id: &Id,
        peer: &Peer,
    ) -> Result<(), ErrorObject> {
        if let Some(offer) = &self.config.offer {
            if let Some(refusal) = &offer.refusal {
                return Err(refusal.clone());
            }
            let spoken = self.config.versions;
            let discovery = self.voice.discovery(offer, peer.version, spoken);
            self.answer(from.lane, id.clone(), discovery);
        }
        Ok(())
    }

    pub(super) fn set_level(
        &mut self,
        from: &Origin,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let level = params.text("level").as_deref().and_then(LogLevel::parse);
        let level = level.ok_or_else(no_such_level)?;
        if let Some(session) = from.session {
            self.watchers.set_level(session, level);
            self.save_session(session);
        }
        self.answer(from.lane, id.clone(), Answer::Empty);
        Ok(())
    }

    pub(super) fn subscribe(
        &mut self,
        from: &Origin,
        id: &Id,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let uri = params.text("uri");
        let nameless = || ErrorObject::new(code::INVALID_PARAMS, "the request names no uri");
        let uri = uri.ok_or_else(nameless)?;
        let Some(session) = from.session else {
            return Ok(());
        };
        if name == names::RESOURCES_UNSUBSCRIBE {
            self.watchers.unsubscribe(session, &uri);
        } else {
            let mut more = BTreeSet::from([Box::from(&*uri)]);
            self.watchers.fit(&mut more, &self.config.limits);
            if more.is_empty() {
                return Err(self.too_many_uris());
            }
            self.watchers.subscribe(session, &uri);
        }
        self.save_session(session);
        self.answer(from.lane, id.clone(), Answer::Empty);
        Ok(())
    }

    /// Records a setting of this client that the server behind a relay accepted, so that it also holds in the server's next epoch.
    pub(super) fn settled(&mut self, caller: &Caller, setting: &Setting) {
        let Ok(session) = self.session_of_caller(caller) else {
            return;
        };
        match setting {
            Setting::Level(level) => self.watchers.set_level(session, *level),
            Setting::Subscribe(uri) => {
                let mut more = BTreeSet::from([uri.clone()]);
                self.watchers.fit(&mut more, &self.config.limits);
                if !more.is_empty() {
                    self.watchers.subscribe(session, uri);
                }
            }
            Setting::Unsubscribe(uri) => self.watchers.unsubscribe(session, uri),
        }
        self.save_session(session);
    }

    /// Opens a watch. The acknowledgement comes before any notification (S-SUB-03).
    pub(super) fn listen(
        &mut self,
        from: &Origin,
        id: &Id,
        peer: &Peer,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let wanted = params.whole().and_then(watch_filter::read).ok_or_else(|| {
            let text = "`notifications` must be an object that says what to hear of, by flags and addresses";
            ErrorObject::new(code::INVALID_PARAMS, text)
        })?;
        // S-SUB-20: to watch tasks, a client must declare the extension.
        let extension = ClientFeature::TasksExtension;
        if wanted.task_ids.is_some() && !peer.capabilities.declares(extension) {
            return Err(missing_capability(extension));
        }
        let offer = self.config.offer.as_ref();
        let granted = offer.map(|offer| grant(Watch::from(wanted), &offer.capabilities));
        let mut granted = granted.unwrap_or_default();
        let wanted = granted.clone();
        self.watchers.fit(&mut granted.uris, &self.config.limits);
        if granted == Watch::none() && wanted != granted {
            return Err(self.too_many_uris());
        }
        let has_room = self.watchers.listens() < self.config.limits.listens;
        if from.is_duplex() && !has_room {
            let text = "as many watches as may be are open already; end one first";
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        let frame = Frame::Acknowledged(id.clone(), granted.clone());
        self.lanes.push(from.lane, frame);
        self.lanes.owe(from.lane);
        let wire = from.wire(id.clone());
        if self.state == State::Serving {
            self.watchers.listen(wire, from.lane, &granted);
        } else {
            self.end_listen(wire, from.lane);
        }
        Ok(())
    }

    fn too_many_uris(&self) -> ErrorObject {
        let limits = &self.config.limits;
        let (uris, bytes) = (limits.watched_uris, limits.watched_bytes);
        let text = format!("{uris} addresses of {bytes} bytes are the most that can be watched");
        ErrorObject::new(code::INTERNAL_ERROR, text)
    }
}

pub(super) fn no_such_level() -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, "there is no such log level")
}
