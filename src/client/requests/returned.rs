//! Requests that the server turned away, and whether they are sent again.

use super::Requests;
use crate::client::binding::{Load, Returned};
use crate::client::context::Context;
use crate::client::failure::{Cause, FailureKind};
use crate::driver::CallId;

/// The fate of a message that was turned away.
pub(in crate::client) enum Resent {
    /// It is queued again.
    Queued,
    /// It is dropped, because no caller waits for it.
    Dropped,
    /// The call fails.
    Failed(CallId, FailureKind),
    /// The request of the link itself fails.
    Unanswered(u64, FailureKind),
    /// The server cannot be used without it.
    TakeDown(Cause),
}

impl Requests {
    /// Queues a message again that was not read at the old URL.
    pub(in crate::client) fn send_again(&mut self, cx: &mut Context, load: Load) {
        match load {
            Load::Call(call) => {
                if let Some(wire) = self.wire_of(call) {
                    self.close(wire);
                    self.send_later(cx, call);
                }
            }
            Load::Frame(frame, times) => {
                let wire = frame.wire();
                if wire.is_none_or(|wire| self.is_wanted(wire)) {
                    cx.frames.push_again(frame, times);
                }
            }
            Load::None => {}
        }
    }

    /// Queues a message again that the server turned away, if it was not read or may be repeated. After too many times it fails. `is_shut_out`: it
    /// was turned away for lack of credentials.
    pub(in crate::client) fn return_message(
        &mut self,
        cx: &mut Context,
        returned: Returned,
        is_shut_out: bool,
    ) -> Resent {
        cx.stats.turned_away += 1;
        let most = cx.config.policy.resends;
        let status = returned.status;
        let kind = if is_shut_out {
            FailureKind::Unauthorized { why: None }
        } else {
            let said = returned.said;
            FailureKind::Status { status, said }
        };
        let ends_handshake = returned.load.ends_handshake();
        match (returned.wire, returned.load) {
            (Some(wire), Load::Call(call)) => {
                self.close(wire);
                if self.turned_away(cx, call, returned.is_unread) {
                    Resent::Queued
                } else {
                    Resent::Failed(call, kind)
                }
            }
            (Some(wire), Load::Frame(..)) if !self.is_wanted(wire) => Resent::Dropped,
            (_, Load::Frame(frame, times)) if times < most => {
                cx.frames.push_again(frame, times + 1);
                Resent::Queued
            }
            (wire, Load::Frame(..))
                if ends_handshake && is_shut_out
                    || wire.is_some_and(|wire| self.is_of_handshake(wire)) =>
            {
                Resent::TakeDown(if is_shut_out {
                    Cause::Unauthorized
                } else {
                    Cause::Unavailable { status }
                })
            }
            (Some(wire), Load::Frame(..)) => Resent::Unanswered(wire, kind),
            (_, _) => Resent::Dropped,
        }
    }
}
