//! The transport of a link over HTTP: carries out outputs and reports what the exchanges send. Does not depend on sockets.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use everlink::http::RequestHead;
use everlink::{Epoch, Fault, FaultKind, Input, Output, StreamId};
use everlink_handle::{Inbox, Transport};

use crate::Setup;
use crate::client_connection::ClientConnection;
use crate::exchange::Exchange;

/// The maximum number of idle connections that are kept for the next exchanges.
const MAX_IDLE_CONNECTIONS: usize = 8;

/// A message of the thread of an exchange.
pub(crate) enum Message {
    /// A chunk of a response's body. The exchange reads on when it is told to.
    Chunk(StreamId, Vec<u8>),
    /// Another input of an exchange.
    Input(StreamId, Input<'static>),
    /// An exchange could not begin.
    NotBegun(StreamId, Fault),
}

/// The transport of a link over HTTP. Each exchange has a thread while it lasts.
pub struct ClientTransport {
    setup: Arc<Setup>,
    inbox: Inbox<Message>,
    /// Whether the opening of the epoch is to be reported.
    reports_opened: bool,
    open_epoch: Option<OpenEpoch>,
}

/// The state of the open epoch. Dropping it aborts all its exchanges.
struct OpenEpoch {
    epoch: Epoch,
    exchanges: HashMap<StreamId, Exchange>,
    /// The connections of ended exchanges, the most recent one last.
    idle: Vec<ClientConnection>,
    /// Chunks that arrived while the machine wants no input.
    held_chunks: VecDeque<(StreamId, Vec<u8>)>,
}

impl Drop for OpenEpoch {
    fn drop(&mut self) {
        let remaining = self.exchanges.drain();
        remaining.for_each(|(_, exchange)| exchange.abort());
    }
}

impl ClientTransport {
    pub(crate) fn new(setup: Setup) -> ClientTransport {
        ClientTransport {
            setup: Arc::new(setup),
            inbox: Inbox::new(),
            reports_opened: false,
            open_epoch: None,
        }
    }

    fn begin(&mut self, stream: StreamId, head: Box<RequestHead<'static>>, body: &[u8]) {
        let Some(open_epoch) = &mut self.open_epoch else {
            return;
        };
        let connection = open_epoch
            .idle
            .pop()
            .unwrap_or_else(&self.setup.new_connection);
        let (body, sender) = (body.to_vec(), self.inbox.sender());
        match Exchange::begin(stream, head, body, connection, &self.setup, &sender) {
            Ok(exchange) => {
                open_epoch.exchanges.insert(stream, exchange);
            }
            Err(error) => {
                let fault = Fault::with_detail(FaultKind::ResourcesExhausted, error.to_string());
                sender.send(Message::NotBegun(stream, fault));
            }
        }
    }
}

impl OpenEpoch {
    /// Returns a chunk that was held, and lets its exchange read on. Chunks of an exchange that was aborted are dropped.
    fn next_chunk(&mut self) -> Option<Input<'static>> {
        while let Some((stream, chunk)) = self.held_chunks.pop_front() {
            if let Some(exchange) = self.exchanges.get(&stream) {
                exchange.read_next();
                let bytes = chunk.into();
                return Some(Input::Bytes { stream, bytes });
            }
        }
        None
    }

    /// Handles a message. Returns the input to report at once, if there is one.
    fn handle_message(&mut self, message: Message) -> Option<Input<'static>> {
        match message {
            Message::Chunk(stream, chunk) => {
                self.held_chunks.push_back((stream, chunk));
                None
            }
            Message::NotBegun(stream, fault) => {
                let faults = vec![fault].into();
                Some(Input::End { stream, faults })
            }
            // Inputs of an exchange that was aborted are dropped.
            Message::Input(stream, _) if !self.exchanges.contains_key(&stream) => None,
            Message::Input(stream, input) => {
                if let Input::End { .. } = input {
                    let ended = self.exchanges.remove(&stream);
                    self.idle.extend(ended.map(Exchange::into_connection));
                    self.idle.truncate(MAX_IDLE_CONNECTIONS);
                }
                Some(input)
            }
        }
    }
}

impl Transport for ClientTransport {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Abort { stream, .. } => {
                let open_epoch = self.open_epoch.as_mut();
                if let Some(exchange) =
                    open_epoch.and_then(|open_epoch| open_epoch.exchanges.remove(&stream))
                {
                    exchange.abort();
                }
            }
            Output::Open { epoch } => {
                self.reports_opened = true;
                self.open_epoch = Some(OpenEpoch {
                    epoch,
                    exchanges: HashMap::new(),
                    idle: Vec::new(),
                    held_chunks: VecDeque::new(),
                });
            }
            Output::Release { .. } => self.open_epoch = None,
            Output::Request { stream, head, .. } => self.begin(stream, head, bytes),
            // All other outputs are about processes, byte streams and servers.
            _ => {}
        }
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        _: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let Some(open_epoch) = &mut self.open_epoch else {
            return Poll::Pending;
        };
        let epoch = open_epoch.epoch;
        if std::mem::take(&mut self.reports_opened) {
            return Poll::Ready((epoch, Input::Opened));
        }
        loop {
            if let Some(input) = reads.then(|| open_epoch.next_chunk()).flatten() {
                return Poll::Ready((epoch, input));
            }
            let Poll::Ready(message) = self.inbox.poll_recv(cx) else {
                return Poll::Pending;
            };
            if let Some(input) = open_epoch.handle_message(message) {
                return Poll::Ready((epoch, input));
            }
        }
    }
}
