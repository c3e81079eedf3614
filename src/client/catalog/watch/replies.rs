//! Handles the server's messages about the watch: acknowledgements, replies, and the end of a listen request.

use alloc::vec::Vec;

use super::{RETRY_CAP, WatchRequest, WatchState, lists_of};
use crate::driver::Instant;
use crate::json::Json;
use crate::protocol::watch::Watch;
use crate::protocol::{code, watch_filter};

impl WatchState {
    /// Handles the acknowledgement of a listen request. The requests that it replaces are cancelled.
    pub(in crate::client) fn acknowledged(
        &mut self,
        wire: u64,
        params: Json<'_>,
        now: Instant,
    ) -> Vec<WatchRequest> {
        self.has_moved = true;
        let Some(listening) = self.listening.get_mut(wire) else {
            return Vec::new();
        };
        listening.acknowledged = Some(now);
        let replaced = core::mem::take(&mut listening.replaces);
        let asked = core::mem::take(&mut listening.uris);
        let granted = granted(params);
        for uri in &asked {
            if granted.uris.contains(uri) {
                self.grant(uri);
            } else {
                self.revoke(uri);
            }
        }
        if let Some(listening) = self.listening.get_mut(wire) {
            listening.uris = asked;
        }
        if self.lists.is_some_and(|(of, _)| of == wire) {
            self.grant_lists(lists_of(&granted));
        }
        self.end_replaced(replaced)
    }

    /// Cancels the replaced listen requests that are still open.
    pub(super) fn end_replaced(&mut self, replaced: Vec<u64>) -> Vec<WatchRequest> {
        let replaced = replaced.into_iter();
        let open = replaced.filter(|wire| self.replaced.remove(wire));
        open.map(WatchRequest::Unlisten).collect()
    }

    /// Handles the end or refusal of a listen request. A server that refuses it beside another one may accept a single request for everything.
    pub(in crate::client) fn listening_ended(
        &mut self,
        wire: u64,
        now: Instant,
        refusal: Option<i64>,
    ) -> Vec<WatchRequest> {
        self.has_moved = true;
        self.replaced.remove(&wire);
        let mut requests = Vec::new();
        if let Some(mut ended) = self.listening.remove(wire) {
            let lasted = ended.acknowledged.map(|at| now.since(at));
            if lasted.is_some_and(|lasted| lasted >= RETRY_CAP) {
                self.setbacks = 0;
            }
            // A server without this method will not get it in this epoch.
            self.is_unmet = refusal != Some(code::METHOD_NOT_FOUND);
            self.may_replace = true;
            for uri in core::mem::take(&mut ended.uris) {
                self.held_by.remove(&uri);
                if lasted.is_some() {
                    self.revoke(&uri);
                }
                self.unasked.insert(uri);
            }
            // The requests that it was to replace stay open until another one replaces them.
            self.replacing.append(&mut ended.replaces);
            if self.lists.is_some_and(|(of, _)| of == wire) {
                self.lists = None;
                if lasted.is_some() {
                    self.grant_lists([false; 3]);
                }
            }
            let has_others = self.listening.len() > 0 || !self.replaced.is_empty();
            if lasted.is_none() && refusal.is_some() && self.is_unmet && has_others {
                self.takes_one = true;
                requests = self.listen_no_more();
            }
        }
        if self.listening.len() == 0 && self.replaced.is_empty() {
            self.nothing_granted();
        }
        requests
    }

    /// Handles the reply to `resources/subscribe`; `refusal` is the code of an error.
    pub(in crate::client) fn subscribed(&mut self, uri: &str, refusal: Option<i64>) {
        self.has_moved = true;
        if !self.asked.remove(uri) {
            return;
        }
        match refusal {
            None => self.grant(uri),
            Some(code) if is_final(code) => {}
            Some(_) => {
                self.is_unmet = true;
                self.refused.insert(uri.into());
            }
        }
    }

    /// Handles the reply to `logging/setLevel`; `refusal` is the code of an error.
    pub(in crate::client) fn level_set(&mut self, refusal: Option<i64>) {
        self.has_moved = true;
        let level = self.asked_level.take();
        match refusal {
            None => self.granted.logs = level,
            Some(code) => self.is_unmet |= !is_final(code),
        }
    }
}

/// Whether a retry is useless after this error.
const fn is_final(refusal: i64) -> bool {
    matches!(refusal, code::INVALID_PARAMS | code::METHOD_NOT_FOUND)
}

/// Reads what an acknowledgement grants. The result is empty if it cannot be read.
fn granted(params: Json<'_>) -> Watch {
    watch_filter::read(params).unwrap_or_default().into()
}
