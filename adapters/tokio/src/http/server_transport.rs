//! The transport of a server over HTTP: passes requests to the machine, and its responses back to the endpoint. Makes no decisions.

use std::convert::Infallible;
use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use everlink::http::{RequestHead, ResponseHead, Verb};
use everlink::{Epoch, Input, Output, StoreAnswer, StoreRequest, StreamId};
use everlink_handle::{IdMap, Transport};
use http::header::HOST;
use http::request::Parts;
use tokio::sync::mpsc;

use super::connections::Connection;
use super::endpoint::{Endpoint, User};
use super::server_messages::{
    Answer, ExchangeMessage, NewRequest, Piece, RequestMessage, ResponseStart, UnreportedBody,
};
use super::store::StorePort;
use super::{copy_into, fields};

/// The maximum number of request pieces that are queued for the machine.
const MAX_QUEUED_PIECES: usize = 64;

/// The initial capacity for the body of a response, which is enough for most.
const INITIAL_CAPACITY: usize = 1 << 9;

/// The transport of a server over HTTP.
pub struct ServerTransport {
    responses: IdMap<StreamId, ResponseState>,
    /// The responses in `ResponseState::Held`. The first list has those begun since [`release_held`](ServerTransport::release_held) last ran, the second
    /// one those begun before.
    held: [Vec<StreamId>; 2],
    /// Whether the last poll returned an input. The machine then gets another turn, which may complete a held response.
    had_input: bool,
    /// Whether held responses have already waited for such a turn. They wait only once, because under load there is always another turn.
    has_waited: bool,
    /// The part of the last reported request's body that is reported next.
    unreported_body: Option<(StreamId, UnreportedBody)>,
    /// The connections whose response is not completely read yet.
    connections: IdMap<StreamId, Connection>,
    requests: mpsc::Receiver<RequestMessage>,
    messages: mpsc::UnboundedReceiver<ExchangeMessage>,
    /// For look-ups, where there is no store.
    message_sender: mpsc::UnboundedSender<ExchangeMessage>,
    store: Option<mpsc::UnboundedSender<StoreRequest>>,
}

/// The progress of the response to a request.
enum ResponseState {
    Streaming(mpsc::UnboundedSender<Piece>),
    /// The response has begun, but is held back: the rest may follow in a moment, and then all of it is sent together.
    Held(Answer, Box<ResponseHead<'static>>, Vec<u8>),
    Waiting(Answer),
}

impl ResponseState {
    /// Aborts the response. The client of a held one gets its head and first bytes, and then an error. Dropping a waiting one breaks the connection.
    fn abort(self) {
        if let ResponseState::Held(answer, head, first) = self {
            let (first, (_, rest)) = (first.into(), mpsc::unbounded_channel());
            let rest = Some(rest);
            answer.send(ResponseStart { head, first, rest });
        }
    }
}

impl ServerTransport {
    /// Creates the transport and the endpoint through which requests reach it.
    #[must_use]
    pub fn new() -> (Endpoint, ServerTransport) {
        let (sender, requests) = mpsc::channel(MAX_QUEUED_PIECES);
        let (message_sender, messages) = mpsc::unbounded_channel();
        let endpoint = Endpoint::new(sender, message_sender.clone());
        let transport = ServerTransport {
            responses: IdMap::default(),
            held: [Vec::new(), Vec::new()],
            had_input: false,
            has_waited: false,
            unreported_body: None,
            connections: IdMap::default(),
            requests,
            messages,
            message_sender,
            store: None,
        };
        (endpoint, transport)
    }

    /// Creates the transport like [`new`](ServerTransport::new), for a server that keeps sessions in a store. Run the store with the port.
    #[must_use]
    pub fn with_store() -> (Endpoint, ServerTransport, StorePort) {
        let (endpoint, mut transport) = ServerTransport::new();
        let (sender, port) = StorePort::new(transport.message_sender.clone());
        transport.store = Some(sender);
        (endpoint, transport, port)
    }

    /// Passes a request on to the store. Where there is none, look-ups fail.
    fn start_store_request(&mut self, request: StoreRequest) {
        if let Some(store) = &mut self.store {
            let _ = store.send(request);
        } else if let Some(lookup) = request.lookup() {
            let answer = StoreAnswer::Failed;
            let failed = ExchangeMessage::Input(Input::Stored { lookup, answer });
            let _ = self.message_sender.send(failed);
        }
    }

    fn poll_request_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        mut buffer: &'r mut [u8],
    ) -> Poll<Input<'r>> {
        loop {
            let mut polled = match self.messages.poll_recv(cx) {
                Poll::Ready(Some(ExchangeMessage::Input(input))) => {
                    Poll::Ready(Some(RequestMessage::More(input)))
                }
                Poll::Ready(Some(ExchangeMessage::Last(stream, input))) => {
                    self.connections.remove(&stream);
                    Poll::Ready(Some(RequestMessage::More(input)))
                }
                Poll::Ready(Some(ExchangeMessage::Over(stream))) => {
                    self.connections.remove(&stream);
                    continue;
                }
                // This transport holds a sender, so the channel never ends.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            };
            if polled.is_pending() && reads {
                if let Some((stream, rest)) = self.unreported_body.take() {
                    return Poll::Ready(self.next_body_input(stream, rest, buffer));
                }
                polled = self.requests.poll_recv(cx);
            }
            let input = match polled {
                Poll::Ready(Some(RequestMessage::New(new_request)))
                    if new_request.answer.is_closed() =>
                {
                    continue;
                }
                Poll::Ready(Some(RequestMessage::New(new_request))) => {
                    let NewRequest {
                        stream,
                        parts,
                        body,
                        answer,
                        connection,
                    } = *new_request;
                    let mut head = Box::new(head(&parts, &mut buffer));
                    if let Some(connection) = connection {
                        head.address = Some(connection.address());
                        self.connections.insert(stream, connection);
                    }
                    self.responses
                        .insert(stream, ResponseState::Waiting(Answer::new(answer)));
                    self.unreported_body = Some((stream, body)).filter(|(_, body)| body.has_any());
                    Input::Request { stream, head }
                }
                Poll::Ready(Some(RequestMessage::More(input))) => input,
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            };
            if let Input::WriteFailed { stream, .. } = input {
                self.responses.remove(&stream);
                self.connections.remove(&stream);
                self.unreported_body.take_if(|(of, _)| *of == stream);
            }
            return Poll::Ready(input);
        }
    }

    /// Returns the next input of a request whose body is not completely reported.
    fn next_body_input<'r>(
        &mut self,
        stream: StreamId,
        rest: UnreportedBody,
        mut buffer: &'r mut [u8],
    ) -> Input<'r> {
        if rest.bytes.is_empty() {
            let faults = Vec::new().into();
            return Input::End { stream, faults };
        }
        if rest.is_complete {
            let end = UnreportedBody {
                bytes: Bytes::new(),
                is_complete: true,
            };
            self.unreported_body = Some((stream, end));
        }
        let bytes = copy_into(&rest.bytes, &mut buffer);
        Input::Bytes { stream, bytes }
    }

    /// Called when no input is left. Sends the older held responses. Yields once for the newer ones, so that handlers can complete them first.
    fn release_held(&mut self, cx: &mut Context<'_>) {
        let [new, old] = &mut self.held;
        for stream in old.drain(..) {
            let Some(state) = self.responses.get_mut(&stream) else {
                continue;
            };
            let (sender, receiver) = mpsc::unbounded_channel();
            match mem::replace(state, ResponseState::Streaming(sender)) {
                ResponseState::Held(answer, head, first) => {
                    let (first, rest) = (first.into(), Some(receiver));
                    answer.send(ResponseStart { head, first, rest });
                }
                other => *state = other,
            }
        }
        if !new.is_empty() {
            mem::swap(new, old);
            cx.waker().wake_by_ref();
        }
    }
}

impl Transport for ServerTransport {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        // Outputs for a client that is gone are dropped.
        match output {
            Output::Response {
                stream,
                head,
                is_whole,
                ..
            } => {
                let Some(ResponseState::Waiting(answer)) = self.responses.remove(&stream) else {
                    return;
                };
                if is_whole {
                    if bytes.is_empty() {
                        self.connections.remove(&stream);
                    }
                    let (first, rest) = (Bytes::copy_from_slice(bytes), None);
                    answer.send(ResponseStart { head, first, rest });
                } else {
                    let mut first = Vec::with_capacity(bytes.len().max(INITIAL_CAPACITY));
                    first.extend_from_slice(bytes);
                    self.responses
                        .insert(stream, ResponseState::Held(answer, head, first));
                    self.held[0].push(stream);
                }
            }
            Output::Write { stream, .. } => match self.responses.get_mut(&stream) {
                Some(ResponseState::Streaming(rest)) => {
                    let _ = rest.send(Some(Bytes::copy_from_slice(bytes)));
                }
                Some(ResponseState::Held(_, _, first)) => first.extend_from_slice(bytes),
                Some(ResponseState::Waiting(_)) | None => {}
            },
            Output::Finish { stream, .. } => match self.responses.remove(&stream) {
                Some(ResponseState::Streaming(rest)) => {
                    let _ = rest.send(None);
                }
                Some(ResponseState::Held(answer, head, first)) => {
                    let (first, rest) = (first.into(), None);
                    answer.send(ResponseStart { head, first, rest });
                    // The response is no longer held.
                    for held in &mut self.held {
                        if let Some(at) = held.iter().rposition(|held| *held == stream) {
                            held.remove(at);
                        }
                    }
                }
                Some(ResponseState::Waiting(_)) | None => {}
            },
            Output::Abort { stream, .. } => {
                self.responses
                    .remove(&stream)
                    .into_iter()
                    .for_each(ResponseState::abort);
                // For a client that does not read, hyper holds bytes until the connection is closed.
                if let Some(connection) = self.connections.remove(&stream) {
                    connection.close();
                }
            }
            Output::Release { .. } => {
                self.connections.clear();
                self.responses.drain().for_each(|(_, state)| state.abort());
            }
            Output::Store(request) => self.start_store_request(*request),
            // All other outputs are for clients.
            _ => {}
        }
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let polled = self.poll_request_input(cx, reads, buffer);
        if polled.is_pending() {
            let is_held = self.held.iter().any(|held| !held.is_empty());
            self.has_waited = is_held && self.had_input && !self.has_waited;
            if self.has_waited {
                cx.waker().wake_by_ref();
            } else if is_held {
                self.release_held(cx);
            }
        }
        self.had_input = polled.is_ready();
        polled.map(|input| (Epoch::FIRST, input))
    }
}

fn head<'r>(parts: &Parts, buffer: &mut &'r mut [u8]) -> RequestHead<'r> {
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let mut fields = fields(&parts.headers, buffer);
    // HTTP/2 names the host with the target. If both are present and differ, the machine sees both and refuses the request.
    let named = |host: &str| {
        fields
            .all(HOST.as_str())
            .any(|it| it.eq_ignore_ascii_case(host.as_bytes()))
    };
    if let Some(host) = parts.uri.authority().filter(|host| !named(host.as_str())) {
        fields.push(HOST.as_str(), host.to_string());
    }
    let verb = Verb::parse(parts.method.as_str());
    let head = RequestHead::new(verb, target.to_owned()).with_fields(fields);
    match parts.extensions.get::<User>() {
        Some(User(name)) => head.by(name.clone()),
        None => head,
    }
}
