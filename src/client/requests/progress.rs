//! Reads what the server says about single requests: their progress, and their cancellation.

use alloc::borrow::Cow;

use serde::Deserialize;

use super::Requests;
use super::pending::Purpose;
use crate::client::context::Context;
use crate::client::event::Event;
use crate::driver::CallId;
use crate::json::Json;
use crate::wire::Id;

impl Requests {
    /// The open call that a progress notification belongs to.
    pub(in crate::client) fn call_of_progress(&self, params: Option<Json<'_>>) -> Option<CallId> {
        let token = params?.member("progressToken").ok()??;
        self.call_of_id(&Id::from_json(token.as_str())?)
    }

    fn call_of_id(&self, id: &Id) -> Option<CallId> {
        if let Purpose::Call(call) = self.pending.get(id)? {
            Some(*call)
        } else {
            None
        }
    }

    /// Handles progress. It is dropped if its call is unknown or over, or if it does not increase (S-PROG-09).
    pub(in crate::client) fn progressed(&mut self, cx: &mut Context, params: Option<Json<'_>>) {
        let told =
            params.and_then(|params| serde_json::from_str::<Progress<'_>>(params.as_str()).ok());
        let Some(told) = told else {
            return;
        };
        let token = Id::from_json(told.progress_token.as_str());
        let token = token.filter(|token| matches!(token, Id::Number(_)));
        let Some(id) = token.and_then(|token| self.call_of_id(&token)) else {
            return;
        };
        let Some(call) = self.calls.call_mut(id) else {
            return;
        };
        let is_old = call.progress.is_some_and(|before| told.progress <= before);
        if is_old || !call.wants_progress {
            return;
        }
        call.progress = Some(told.progress);
        self.calls.touch(id, cx.now);
        cx.tell(Event::Progress {
            call: id,
            progress: told.progress,
            total: told.total,
            message: told.message.map(|message| message.into()),
        });
    }
}

/// The id of the request that the server cancels.
pub(in crate::client) fn cancelled_id(params: Option<Json<'_>>) -> Option<Id> {
    let cancelled: Cancelled<'_> = serde_json::from_str(params?.as_str()).ok()?;
    Id::from_json(cancelled.request_id.as_str())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: Json<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'a> {
    #[serde(borrow)]
    progress_token: Json<'a>,
    progress: f64,
    total: Option<f64>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}
