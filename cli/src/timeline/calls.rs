//! Joins the messages of a call: the request of the host, the request to the server, the server's reply, and the reply to the host.

use std::collections::{HashMap, VecDeque};

use everlink::CallId;
use everlink::client::{self, Failure};

use super::messages::{Envelope, is_tool_error};
use super::{Call, Outcome, label};

/// The calls of a recording, and what is open of them.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) list: Vec<Call>,
    /// The open calls of hosts by request id, each with its stream.
    by_host_id: HashMap<String, Vec<(u64, usize)>>,
    /// The calls that were not sent to the server yet, by label.
    unsent: HashMap<String, VecDeque<usize>>,
    /// The requests to the server by epoch and id. `None` for requests of the guard itself.
    sent: HashMap<(u64, String), Option<usize>>,
    /// The calls that were sent and have no reply, by label.
    unanswered: HashMap<String, VecDeque<usize>>,
    /// The calls of an application by number.
    by_number: HashMap<u64, usize>,
}

impl Calls {
    fn add(&mut self, at: u64, label: String) -> usize {
        let index = self.list.len();
        self.unsent
            .entry(label.clone())
            .or_default()
            .push_back(index);
        self.list.push(Call {
            label,
            from: at,
            to: None,
            epoch: 0,
            outcome: Outcome::Open,
            text: None,
        });
        index
    }

    /// Notes a call of an application, before its number is known.
    pub(super) fn add_command(&mut self, at: u64, text: &str) -> usize {
        self.add(at, label(text))
    }

    /// Notes the number of the last call of an application.
    pub(super) fn number_last(&mut self, call: CallId) {
        if let Some(last) = self.list.len().checked_sub(1) {
            self.by_number.insert(call.number(), last);
        }
    }

    /// Notes a message from a host. Returns its call.
    pub(super) fn note_from_host(
        &mut self,
        at: u64,
        stream: u64,
        message: &Envelope<'_>,
    ) -> Option<usize> {
        if let Some(id) = message.cancelled() {
            let call = self.by_host_id.get(id)?.last()?.1;
            self.settle(call, at, Outcome::Cancelled);
            return Some(call);
        }
        let id = message.id()?;
        message.method.as_ref()?;
        let call = self.add(at, label(&message.label()));
        let open = self.by_host_id.entry(id.to_owned()).or_default();
        open.push((stream, call));
        Some(call)
    }

    /// Notes a message to a host. Returns its call.
    pub(super) fn note_to_host(
        &mut self,
        at: u64,
        stream: u64,
        message: &Envelope<'_>,
    ) -> Option<usize> {
        let id = message.id()?;
        if message.method.is_some() {
            return None;
        }
        let open = self.by_host_id.get_mut(id)?;
        let place = open.iter().position(|(of, _)| *of == stream);
        let (_, call) = open.remove(place.or_else(|| open.len().checked_sub(1))?);
        if open.is_empty() {
            self.by_host_id.remove(id);
        }
        let has_reply = self.list[call].outcome;
        if has_reply == Outcome::Open {
            // The server did not reply, so the guard did.
            let outcome = if self.was_sent(call) || message.error.is_some() {
                Outcome::Failed
            } else {
                Outcome::Own
            };
            self.settle(call, at, outcome);
        } else {
            self.list[call].to = Some(at);
        }
        Some(call)
    }

    fn was_sent(&self, call: usize) -> bool {
        self.list[call].epoch > 0
    }

    /// Notes a message to the server. Returns its call, and whether it is a request of the guard itself.
    pub(super) fn note_to_server(
        &mut self,
        epoch: u64,
        message: &Envelope<'_>,
    ) -> (Option<usize>, bool) {
        let (Some(id), Some(_)) = (message.id(), &message.method) else {
            return (None, false);
        };
        let label = label(&message.label());
        let unsent = self.unsent.get_mut(&label).and_then(VecDeque::pop_front);
        // A call that was lost with its server may be sent again.
        let call = unsent.or_else(|| {
            let unanswered = self.unanswered.get_mut(&label)?;
            let place = unanswered.iter().position(|call| {
                self.list[*call].epoch < epoch && self.list[*call].outcome == Outcome::Open
            })?;
            unanswered.remove(place)
        });
        if let Some(call) = call {
            self.list[call].epoch = epoch;
            self.unanswered.entry(label).or_default().push_back(call);
        }
        self.sent.insert((epoch, id.to_owned()), call);
        (call, call.is_none())
    }

    /// Notes a message from the server. Returns its call, and whether it answers a request of the guard itself.
    pub(super) fn note_from_server(
        &mut self,
        at: u64,
        epoch: u64,
        message: &Envelope<'_>,
    ) -> (Option<usize>, bool) {
        let (Some(id), None) = (message.id(), &message.method) else {
            return (None, false);
        };
        let Some(call) = self.sent.remove(&(epoch, id.to_owned())) else {
            return (None, false);
        };
        if let Some(call) = call {
            let outcome = if message.error.is_some() {
                Outcome::Error
            } else if message.is_tool_error() {
                Outcome::ToolError
            } else {
                Outcome::Reply
            };
            let label = &self.list[call].label;
            if let Some(unanswered) = self.unanswered.get_mut(label) {
                unanswered.retain(|other| *other != call);
            }
            self.settle(call, at, outcome);
        }
        (call, call.is_none())
    }

    /// Notes that a request of a host got no reply.
    pub(super) fn lost(&mut self, at: u64, failure: &Failure) -> Option<usize> {
        let text = match &failure.target {
            Some(target) => format!("{} {target}", failure.method),
            None => failure.method.to_string(),
        };
        let text = label(&text);
        let is_it = |call: &Call| {
            call.label == text
                && call.text.is_none()
                && (call.outcome == Outcome::Open
                    || (call.outcome == Outcome::Failed && call.to == Some(at)))
        };
        // The newest calls are the last ones, and few calls are open.
        let call = self.list.iter().position(is_it)?;
        self.list[call].text = Some(numbered(&failure.to_string(), failure.call, call));
        self.list[call].outcome = Outcome::Failed;
        self.list[call].to = Some(at);
        Some(call)
    }

    /// Notes the outcome of an application's call.
    pub(super) fn done(&mut self, at: u64, id: CallId, outcome: &client::Outcome) -> Option<usize> {
        let call = self.by_number.remove(&id.number())?;
        let kind = match outcome {
            client::Outcome::Error(_) => Outcome::Error,
            client::Outcome::Failed(failure) => {
                self.list[call].text = Some(numbered(&failure.to_string(), id, call));
                match failure.kind {
                    client::FailureKind::Cancelled { .. } => Outcome::Cancelled,
                    _ => Outcome::Failed,
                }
            }
            client::Outcome::Reply(result) if is_tool_error(result.as_str()) => Outcome::ToolError,
            _ => Outcome::Reply,
        };
        self.settle(call, at, kind);
        Some(call)
    }

    fn settle(&mut self, call: usize, at: u64, outcome: Outcome) {
        let call = &mut self.list[call];
        (call.to, call.outcome) = (Some(at), outcome);
    }
}

/// Names a call in this text as the timeline does. The machine has numbers of its own, because it does not count what the guard answers itself.
pub(super) fn numbered(text: &str, id: CallId, call: usize) -> String {
    text.replacen(&format!("({id})"), &format!("(call {})", call + 1), 1)
}
