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
use crate::exchange::Exchange;
use crate::line::Line;

/// The maximum number of idle lines that are kept for the next exchanges.
const IDLE_LINES: usize = 8;

/// A message that wakes the driver.
pub(crate) enum News {
    /// A chunk of a response's body. The exchange reads on when it gets the buffer back.
    Chunk(StreamId, Vec<u8>),
    /// Another input of an exchange.
    Input(StreamId, Input<'static>),
    /// A handle has queued a command.
    Mail,
}

pub(crate) struct Driver {
    owner: LinkOwner,
    setup: Arc<Setup>,
    origin: Clock,
    inbox: Receiver<News>,
    post: Sender<News>,
    life: Option<Life>,
}

/// The state of the open epoch. Dropping it cuts all its exchanges.
struct Life {
    epoch: Epoch,
    exchanges: HashMap<StreamId, Exchange>,
    /// The lines of ended exchanges, the most recent one last.
    idle: Vec<Line>,
    /// Chunks that arrived while the machine wants no input.
    held: Vec<(StreamId, Vec<u8>)>,
}

impl Drop for Life {
    fn drop(&mut self) {
        let left = self.exchanges.drain();
        left.for_each(|(_, exchange)| exchange.cut());
    }
}

impl Driver {
    pub(crate) fn new(owner: LinkOwner, setup: Setup) -> Driver {
        let (post, inbox) = mpsc::channel();
        Driver {
            owner,
            setup: Arc::new(setup),
            origin: Clock::now(),
            inbox,
            post,
            life: None,
        }
    }

    /// Drives the link until it is closed.
    pub(crate) fn run(mut self) {
        let bell = Waker::from(Arc::new(Bell(self.post.clone())));
        // Commands that are already queued run in the first turn.
        let _ = self.owner.belongs_to(&bell);
        let mut buf = Vec::new();
        loop {
            self.owner.serve(self.now());
            while let Some(output) = self.owner.poll_output(&mut buf) {
                self.carry_out(output, &mut buf);
            }
            if self.owner.is_closed() {
                break;
            }
            if !self.feed() {
                self.sleep();
            }
        }
        // Drop the epoch before the owner, whose drop tells callers that nothing is left.
        drop(self.life.take());
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    fn carry_out(&mut self, output: Output<Infallible>, buf: &mut Vec<u8>) {
        match output {
            Output::Abort { stream, .. } => {
                let life = self.life.as_mut();
                if let Some(exchange) = life.and_then(|life| life.exchanges.remove(&stream)) {
                    exchange.cut();
                }
            }
            Output::Open { epoch } => {
                self.life = Some(Life {
                    epoch,
                    exchanges: HashMap::new(),
                    idle: Vec::new(),
                    held: Vec::new(),
                });
                self.owner.handle(self.now(), epoch, Input::Opened);
            }
            Output::Release { .. } => self.life = None,
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
        let Some(life) = &mut self.life else {
            return;
        };
        let line = life.idle.pop().unwrap_or_else(&self.setup.new_line);
        match Exchange::begin(stream, head, body, line, &self.setup, &self.post) {
            Ok(exchange) => {
                life.exchanges.insert(stream, exchange);
            }
            Err(error) => {
                let fault = Fault::with_detail(FaultKind::ResourcesExhausted, error.to_string());
                let faults = vec![fault].into();
                let end = Input::End { stream, faults };
                self.owner.handle(now, life.epoch, end);
            }
        }
    }

    fn sleep(&mut self) {
        let news = match self.owner.poll_timeout() {
            Some(deadline) => self.inbox.recv_timeout(deadline.at.since(self.now())).ok(),
            None => self.inbox.recv().ok(),
        };
        match news {
            Some(News::Chunk(stream, chunk)) => {
                if let Some(life) = &mut self.life {
                    life.held.push((stream, chunk));
                }
            }
            Some(News::Input(stream, input)) => self.happened(stream, input),
            Some(News::Mail) | None => {}
        }
    }

    fn happened(&mut self, stream: StreamId, input: Input<'static>) {
        let now = self.now();
        let Some(life) = &mut self.life else {
            return;
        };
        // Inputs of an exchange that was cut are ignored.
        if !life.exchanges.contains_key(&stream) {
            return;
        }
        if let Input::End { .. } = input {
            let ended = life.exchanges.remove(&stream);
            life.idle.extend(ended.map(Exchange::into_line));
            life.idle.truncate(IDLE_LINES);
        }
        self.owner.handle(now, life.epoch, input);
    }

    /// Feeds one of the held chunks, if the machine wants it by now. Returns whether it did.
    fn feed(&mut self) -> bool {
        let (now, owner) = (self.now(), &mut self.owner);
        let Some(life) = &mut self.life else {
            return false;
        };
        let mut held = life.held.iter();
        let Some(wanted) = held.position(|(stream, _)| owner.wants_input(*stream)) else {
            return false;
        };
        let (stream, chunk) = life.held.remove(wanted);
        if let Some(exchange) = life.exchanges.get(&stream) {
            let bytes = chunk.as_slice().into();
            owner.handle(now, life.epoch, Input::Bytes { stream, bytes });
            exchange.read_on(chunk);
        }
        true
    }
}

/// Wakes the driver from its sleep.
struct Bell(Sender<News>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The send fails if the driver is gone.
        let _ = self.0.send(News::Mail);
    }
}
