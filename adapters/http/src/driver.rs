//! The driver of a link: one thread that carries out the machine's outputs and sleeps. Knows no sockets.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Wake, Waker};
use std::time::Instant as Clock;

use everlink::http::RequestHead;
use everlink::{Epoch, Fault, FaultKind, Input, Instant, Output, StreamId};
use everlink_handle::LinkOwner;

use crate::Setup;
use crate::client_connection::ClientConnection;
use crate::exchange::Exchange;

/// The maximum number of idle connections that are kept for the next exchanges.
const MAX_IDLE_CONNECTIONS: usize = 8;

/// A message that wakes the driver.
pub(crate) enum Message {
    /// A chunk of a response's body. The exchange reads on when it gets the buffer back.
    Chunk(StreamId, Vec<u8>),
    /// Another input of an exchange.
    Input(StreamId, Input<'static>),
    /// A handle has queued a command.
    CommandQueued,
}

pub(crate) struct Driver {
    owner: LinkOwner,
    setup: Arc<Setup>,
    origin: Clock,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    open_epoch: Option<OpenEpoch>,
}

/// The state of the open epoch. Dropping it cuts all its exchanges.
struct OpenEpoch {
    epoch: Epoch,
    exchanges: HashMap<StreamId, Exchange>,
    /// The connections of ended exchanges, the most recent one last.
    idle: Vec<ClientConnection>,
    /// Chunks that arrived while the machine wants no input.
    held_chunks: Vec<(StreamId, Vec<u8>)>,
}

impl Drop for OpenEpoch {
    fn drop(&mut self) {
        let remaining = self.exchanges.drain();
        remaining.for_each(|(_, exchange)| exchange.abort());
    }
}

impl Driver {
    pub(crate) fn new(owner: LinkOwner, setup: Setup) -> Driver {
        let (sender, messages) = mpsc::channel();
        Driver {
            owner,
            setup: Arc::new(setup),
            origin: Clock::now(),
            messages,
            sender,
            open_epoch: None,
        }
    }

    /// Drives the link until it is closed.
    pub(crate) fn run(mut self) {
        let waker = Waker::from(Arc::new(DriverWaker(self.sender.clone())));
        // Commands that are already queued run in the first turn.
        let _ = self.owner.register_waker(&waker);
        let mut buf = Vec::new();
        loop {
            self.owner.advance(self.now());
            while let Some(output) = self.owner.poll_output(&mut buf) {
                self.perform(output, &mut buf);
            }
            if self.owner.is_closed() {
                break;
            }
            if !self.feed_held_chunk() {
                self.sleep();
            }
        }
        // Drop the epoch before the owner, because the drop of the owner completes `shutdown`.
        drop(self.open_epoch.take());
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    fn perform(&mut self, output: Output<Infallible>, buf: &mut Vec<u8>) {
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
                self.open_epoch = Some(OpenEpoch {
                    epoch,
                    exchanges: HashMap::new(),
                    idle: Vec::new(),
                    held_chunks: Vec::new(),
                });
                self.owner.handle(self.now(), epoch, Input::Opened);
            }
            Output::Release { .. } => self.open_epoch = None,
            Output::Request {
                stream, head, len, ..
            } => {
                let body = buf.split_off(buf.len() - len);
                self.begin(stream, head, body);
            }
            // All other outputs are about processes, byte streams and servers.
            _ => {}
        }
    }

    fn begin(&mut self, stream: StreamId, head: Box<RequestHead<'static>>, body: Vec<u8>) {
        let now = self.now();
        let Some(open_epoch) = &mut self.open_epoch else {
            return;
        };
        let connection = open_epoch
            .idle
            .pop()
            .unwrap_or_else(&self.setup.new_connection);
        match Exchange::begin(stream, head, body, connection, &self.setup, &self.sender) {
            Ok(exchange) => {
                open_epoch.exchanges.insert(stream, exchange);
            }
            Err(error) => {
                let fault = Fault::with_detail(FaultKind::ResourcesExhausted, error.to_string());
                let faults = vec![fault].into();
                let end = Input::End { stream, faults };
                self.owner.handle(now, open_epoch.epoch, end);
            }
        }
    }

    fn sleep(&mut self) {
        let message = match self.owner.poll_timeout() {
            Some(deadline) => self
                .messages
                .recv_timeout(deadline.at.since(self.now()))
                .ok(),
            None => self.messages.recv().ok(),
        };
        match message {
            Some(Message::Chunk(stream, chunk)) => {
                if let Some(open_epoch) = &mut self.open_epoch {
                    open_epoch.held_chunks.push((stream, chunk));
                }
            }
            Some(Message::Input(stream, input)) => self.handle_input(stream, input),
            Some(Message::CommandQueued) | None => {}
        }
    }

    fn handle_input(&mut self, stream: StreamId, input: Input<'static>) {
        let now = self.now();
        let Some(open_epoch) = &mut self.open_epoch else {
            return;
        };
        // Inputs of an exchange that was cut are ignored.
        if !open_epoch.exchanges.contains_key(&stream) {
            return;
        }
        if let Input::End { .. } = input {
            let ended = open_epoch.exchanges.remove(&stream);
            open_epoch.idle.extend(ended.map(Exchange::into_connection));
            open_epoch.idle.truncate(MAX_IDLE_CONNECTIONS);
        }
        self.owner.handle(now, open_epoch.epoch, input);
    }

    /// Feeds one of the held chunks, if the machine wants it by now. Returns whether it did.
    fn feed_held_chunk(&mut self) -> bool {
        let (now, owner) = (self.now(), &mut self.owner);
        let Some(open_epoch) = &mut self.open_epoch else {
            return false;
        };
        let mut chunks = open_epoch.held_chunks.iter();
        let Some(position) = chunks.position(|(stream, _)| owner.wants_input(*stream)) else {
            return false;
        };
        let (stream, chunk) = open_epoch.held_chunks.remove(position);
        if let Some(exchange) = open_epoch.exchanges.get(&stream) {
            let bytes = chunk.as_slice().into();
            owner.handle(now, open_epoch.epoch, Input::Bytes { stream, bytes });
            exchange.return_buffer(chunk);
        }
        true
    }
}

/// Wakes the driver from its sleep.
struct DriverWaker(Sender<Message>);

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The send fails if the driver is gone.
        let _ = self.0.send(Message::CommandQueued);
    }
}
