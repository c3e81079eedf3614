//! The loop that drives a link, on its one thread: carries out what the machine says, and sleeps. Knows no socket.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Wake, Waker};
use std::time::Instant as Clock;

use everlink::{Epoch, Fault, FaultKind, Input, Instant, Output, StreamId};
use everlink_handle::LinkOwner;
use ureq::Agent;

use crate::Setup;
use crate::exchange::{Exchange, Order};

/// Something that the driver is woken for.
pub(crate) enum News {
    /// A piece of the body of a response. Its exchange reads on when it has the buffer back.
    Chunk(StreamId, Vec<u8>),
    /// Something else happened to an exchange.
    Input(StreamId, Input<'static>),
    /// A handle asked for something.
    Mail,
}

pub(crate) struct Driver {
    owner: LinkOwner,
    setup: Arc<Setup>,
    origin: Clock,
    inbox: Receiver<News>,
    post: Sender<News>,
    /// What makes the exchanges of the epoch that is open.
    agent: Option<(Epoch, Agent)>,
    exchanges: HashMap<StreamId, Exchange>,
    /// Chunks that the machine does not want yet.
    held: Vec<(StreamId, Vec<u8>)>,
}

impl Driver {
    pub(crate) fn new(owner: LinkOwner, setup: Arc<Setup>) -> Driver {
        let (post, inbox) = mpsc::channel();
        Driver {
            owner,
            setup,
            origin: Clock::now(),
            inbox,
            post,
            agent: None,
            exchanges: HashMap::new(),
            held: Vec::new(),
        }
    }

    /// Drives the link until it is closed.
    pub(crate) fn run(mut self) {
        // The first turn sees what is in the mailbox already.
        let _ = self
            .owner
            .belongs_to(&Waker::from(Arc::new(Bell(self.post.clone()))));
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
        // Whoever waits for the shutdown is told by the end of the owner that nothing is left.
        self.exchanges.clear();
        self.agent
            .into_iter()
            .for_each(|(_, agent)| agent.shutdown());
        drop(self.owner);
    }

    fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    fn carry_out(&mut self, output: Output<Infallible>, buf: &mut Vec<u8>) {
        match output {
            Output::Abort { stream, .. } => self.cut(stream),
            Output::Open { epoch } => {
                self.agent = Some((epoch, self.setup.agent()));
                self.owner.handle(self.now(), epoch, Input::Opened);
            }
            Output::Release { epoch } => {
                if let Some((_, agent)) = self.agent.take_if(|(open, _)| *open == epoch) {
                    agent.shutdown();
                }
                self.exchanges.clear();
                self.held.clear();
            }
            Output::Request {
                epoch,
                stream,
                head,
                len,
            } => {
                let body = buf.split_off(buf.len() - len);
                self.begin(epoch, Order { stream, head, body });
            }
            // The rest is about processes and servers.
            _ => {}
        }
    }

    fn begin(&mut self, epoch: Epoch, order: Order) {
        let Some((_, agent)) = self.agent.as_ref().filter(|(open, _)| *open == epoch) else {
            return;
        };
        let stream = order.stream;
        match Exchange::begin(epoch, order, agent.clone(), &self.setup, &self.post) {
            Ok(exchange) => {
                self.exchanges.insert(stream, exchange);
            }
            Err(error) => {
                let fault = Fault::with_detail(FaultKind::ResourcesExhausted, error.to_string());
                let faults = vec![fault].into();
                self.owner
                    .handle(self.now(), epoch, Input::End { stream, faults });
            }
        }
    }

    fn cut(&mut self, stream: StreamId) {
        self.exchanges.remove(&stream);
        self.held.retain(|(of, _)| *of != stream);
    }

    fn sleep(&mut self) {
        let news = match self.owner.poll_timeout() {
            Some(deadline) => self.inbox.recv_timeout(deadline.at.since(self.now())).ok(),
            None => self.inbox.recv().ok(),
        };
        match news {
            Some(News::Chunk(stream, chunk)) => self.held.push((stream, chunk)),
            Some(News::Input(stream, input)) => self.happened(stream, input),
            Some(News::Mail) | None => {}
        }
    }

    fn happened(&mut self, stream: StreamId, input: Input<'static>) {
        let is_end = matches!(input, Input::End { .. });
        // What is not there any more was cut.
        let Some(epoch) = self.exchanges.get(&stream).map(Exchange::epoch) else {
            return;
        };
        if is_end {
            self.exchanges.remove(&stream);
        }
        self.owner.handle(self.now(), epoch, input);
    }

    /// Feeds the first of the chunks that are wanted by now, if there is one.
    fn feed(&mut self) -> bool {
        let owner = &self.owner;
        let wanted = self
            .held
            .iter()
            .position(|(stream, _)| owner.wants_input(*stream));
        let Some((stream, chunk)) = wanted.map(|at| self.held.remove(at)) else {
            return false;
        };
        if let Some(exchange) = self.exchanges.get(&stream) {
            let bytes = chunk.as_slice().into();
            self.owner
                .handle(self.now(), exchange.epoch(), Input::Bytes { stream, bytes });
            exchange.read_on(chunk);
        }
        true
    }
}

/// Wakes the driver out of its sleep.
struct Bell(Sender<News>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A driver that is gone need not be woken.
        let _ = self.0.send(News::Mail);
    }
}
