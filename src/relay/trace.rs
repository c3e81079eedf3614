//! Joins the requests that the relay carries to the traces of its hosts, by the rules of W3C Trace Context. Reports nothing by itself.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use memchr::memchr2;

use crate::client::{FailureKind, Outcome};
use crate::driver::{Epoch, Instant};
use crate::json::Payload;
use crate::json::object::{self, Sought};
use crate::protocol::method::names;
use crate::protocol::{TraceContext, Version};
use crate::server::Request;
use crate::util::split_mix::SplitMix;
use crate::wire::Id;

/// The longest method and name in a trace. Hosts choose both, and an exporter may keep them.
const MOST_NAME_BYTES: usize = 256;

const IS_ERROR: Sought = Sought::new("isError");

/// A request of a host that the relay carried to the server, and what became of it. Has no payload.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trace {
    /// The method of the request; `_OTHER` if it has more than 256 bytes.
    pub method: Cow<'static, str>,
    /// The tool or prompt that it names, if it names one with at most 256 bytes.
    pub name: Option<Box<str>>,
    /// The id of the request, as the host chose it.
    pub id: Option<Id>,
    /// The trace. Never 0.
    pub trace_id: u128,
    /// The host's span, if the host sent its trace context.
    pub parent: Option<u64>,
    /// The host's `tracestate`.
    pub state: Option<Box<str>>,
    /// Whether spans are to be exported. The host decides; without a host's decision, they are.
    pub is_sampled: bool,
    /// The relay's span in front, from the arrival of the request to its answer. Never 0.
    pub server_span: u64,
    /// The relay's span behind, from the sending to the server to the reply. The server got it as its parent. Never 0.
    pub client_span: u64,
    /// The protocol version that the host speaks.
    pub host_version: Version,
    /// The protocol version that the server speaks, if there is a session with it at the end.
    pub server_version: Option<Version>,
    /// When the request arrived.
    pub accepted: Instant,
    /// When it could be sent to the server, and on which connection. `None` if it was not sent.
    pub sent: Option<(Instant, Epoch)>,
    /// Further connections that became ready before the request was answered.
    pub resent: Vec<(Instant, Epoch)>,
    /// When the request was answered.
    pub ended: Instant,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The host cancelled it, or is gone.
    Cancelled,
    /// The server replied with an error of this code.
    Error(i64),
    /// The server did not reply.
    Failed(Box<FailureKind>),
    /// It could not be passed on.
    NotPassedOn,
    /// The server replied with a result.
    Reply,
    /// The server replied that the tool failed.
    ToolError,
}

impl Trace {
    /// The trace context for the server: the span behind is its parent.
    pub(super) fn context(&self) -> TraceContext {
        let (trace_id, span_id) = (self.trace_id, self.client_span);
        TraceContext::new(trace_id, span_id, self.is_sampled, self.state.clone())
    }

    /// Records that a connection became ready. Requests that were lost with the one before are answered already.
    pub(super) fn ready(&mut self, now: Instant, epoch: Epoch) {
        match self.sent {
            None => self.sent = Some((now, epoch)),
            Some(_) => self.resent.push((now, epoch)),
        }
    }

    /// Forgets the connections that were ready, because the request was sent over none of them.
    pub(super) fn forget_connections(&mut self) {
        self.sent = None;
        self.resent.clear();
    }
}

impl Verdict {
    /// The verdict of the outcome of a call.
    pub(super) fn of(outcome: &Outcome, is_tool_call: bool) -> Verdict {
        match outcome {
            Outcome::Reply(result) if is_tool_call && is_error(result) => Verdict::ToolError,
            Outcome::Reply(_) | Outcome::Listed(_) => Verdict::Reply,
            Outcome::Error(error) => Verdict::Error(error.code),
            Outcome::Failed(failure) => Verdict::Failed(Box::new(failure.kind.clone())),
        }
    }
}

/// Whether a tool says of itself that it failed.
fn is_error(result: &Payload) -> bool {
    let text = result.as_str();
    // Most results need no walk over their members.
    if text.ends_with(r#""isError":false}"#) || !object::may_have(text, [IS_ERROR; 2]) {
        return false;
    }
    let flag = result.json().member("isError").ok().flatten();
    flag.is_some_and(|flag| flag.as_str() == "true")
}

/// Makes the ids of spans, and holds the traces that are finished.
#[derive(Debug)]
pub(super) struct Tracer {
    /// `None` if nothing is traced.
    ids: Option<SplitMix>,
    finished: VecDeque<Box<Trace>>,
}

impl Tracer {
    /// The same seed gives the same ids, so that a recording can be replayed.
    pub(super) fn new(is_on: bool, seed: u64) -> Tracer {
        // The retry pauses are drawn from the seed itself.
        let ids = is_on.then(|| SplitMix::new(seed ^ 0x7472_6163_6570_6172));
        Tracer {
            ids,
            finished: VecDeque::new(),
        }
    }

    /// Begins the trace of a request, if requests are traced.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        request: &mut Request,
        id: Option<Id>,
        connection: Option<Epoch>,
    ) -> Option<Box<Trace>> {
        let ids = self.ids.as_mut()?;
        let given = request.trace.take().map(|given| *given);
        let parent = given.as_ref().map(|given| given.span_id);
        let given = given.unwrap_or_else(|| TraceContext::new(draw_trace_id(ids), 0, true, None));
        Some(Box::new(Trace {
            method: match request.method.len() {
                0..=MOST_NAME_BYTES => request.method.clone(),
                _ => Cow::Borrowed("_OTHER"),
            },
            name: name_of(request),
            id,
            trace_id: given.trace_id,
            parent,
            state: given.state,
            is_sampled: given.is_sampled,
            server_span: draw_span_id(ids),
            client_span: draw_span_id(ids),
            host_version: request.peer.version,
            server_version: None,
            accepted: now,
            sent: connection.map(|epoch| (now, epoch)),
            resent: Vec::new(),
            ended: now,
            verdict: Verdict::Reply,
        }))
    }

    /// Ends the trace of a request.
    pub(super) fn end(
        &mut self,
        mut trace: Box<Trace>,
        now: Instant,
        server_version: Option<Version>,
        verdict: Verdict,
    ) {
        trace.ended = now;
        trace.server_version = server_version;
        trace.verdict = verdict;
        self.finished.push_back(trace);
    }

    pub(super) fn take_finished(&mut self) -> Option<Box<Trace>> {
        self.finished.pop_front()
    }
}

/// Returns the tool or prompt that a request names. `None` for other methods.
fn name_of(request: &Request) -> Option<Box<str>> {
    let has_name = matches!(&*request.method, names::TOOLS_CALL | names::PROMPTS_GET);
    let params = request.params.as_ref().filter(|_| has_name)?;
    // The server end refuses parameters with two names, so the first one is the only one. In most requests it is the first member, too.
    let first = params.as_str().strip_prefix(r#"{"name":""#);
    let plain = first.and_then(|first| {
        let end = memchr2(b'"', b'\\', first.as_bytes())?;
        first[end..].starts_with('"').then(|| &first[..end])
    });
    let name = match plain {
        Some(name) => Cow::Borrowed(name),
        None => object::first_member(params.json(), "name")?.text()?,
    };
    (name.len() <= MOST_NAME_BYTES).then(|| name.into())
}

fn draw_trace_id(ids: &mut SplitMix) -> u128 {
    (u128::from(draw_span_id(ids)) << 64) | u128::from(ids.draw())
}

fn draw_span_id(ids: &mut SplitMix) -> u64 {
    // 0 is no id.
    ids.draw().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_an_error_only_if_it_says_so() {
        for (result, is_one) in [
            (r#"{"content":[],"isError":true}"#, true),
            (r#"{"isError":true,"content":[]}"#, true),
            (r#"{"isError": true }"#, true),
            (r#"{"content":[],"isError":false}"#, false),
            (r#"{"isError":false,"content":[]}"#, false),
            (r#"{"content":[{"isError":true}]}"#, false),
            (r#"{"content":[{"isError":true}],"isError":false}"#, false),
            (r#"{"isError":true,"a":{"isError":false}}"#, true),
            (r#"{"isError":"true"}"#, false),
            (r#"{"isError":1}"#, false),
            ("{}", false),
        ] {
            let result: Payload = result.parse().unwrap();
            assert_eq!(is_error(&result), is_one, "{}", result.as_str());
            let verdict = Verdict::of(&Outcome::Reply(result.clone()), true);
            assert_eq!(verdict == Verdict::ToolError, is_one);
            let verdict = Verdict::of(&Outcome::Reply(result), false);
            assert_eq!(verdict, Verdict::Reply, "only tools say so");
        }
    }

    /// No id is used twice, and the two halves of the id of a trace differ.
    #[test]
    fn ids_are_drawn_from_the_seed_and_differ() {
        let mut ids = SplitMix::new(7);
        let mut same = SplitMix::new(7);
        let trace_id = draw_trace_id(&mut ids);
        assert_eq!(trace_id >> 64, u128::from(same.draw()));
        assert_eq!(trace_id & u128::from(u64::MAX), u128::from(same.draw()));
        assert_eq!(draw_span_id(&mut ids), same.draw());
        assert_ne!(draw_span_id(&mut ids), draw_span_id(&mut ids));
    }
}
