//! The context that every component of the server gets: the configuration, the state, the time, and the places for effects that no other component
//! reacts to.
//!
//! A component reads the configuration and the lifecycle. It appends to the queues, the timers, the outputs and the counters. Only the server
//! itself steps the lifecycle.

use alloc::vec::Vec;

use crate::driver::Output;
use crate::server::clock::Clock;
use crate::server::config::Config;
use crate::server::event::Event;
use crate::server::lifecycle::Lifecycle;
use crate::server::origin::QueueId;
use crate::server::outgoing::Outgoing;
use crate::server::outgoing::frame::{Answer, Frame};
use crate::server::stats::Stats;
use crate::util::queue::Outbox;
use crate::wire::Id;

pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) clock: Clock,
    /// The messages to clients.
    pub(crate) outgoing: Outgoing,
    /// All other outputs to the driver.
    pub(crate) outputs: Outbox<Event>,
    pub(crate) stats: Stats,
}

impl Context {
    pub(crate) fn new(config: Config) -> Context {
        Context {
            lifecycle: Lifecycle::new(),
            clock: Clock::new(),
            outgoing: Outgoing::new(&config.limits),
            outputs: Outbox::new(),
            stats: Stats::default(),
            config,
        }
    }

    pub(crate) fn report(&mut self, event: Event) {
        if !self.lifecycle.is_closed() {
            self.outputs.push(Output::Event(event));
        }
    }

    /// Queues a reply of the server itself.
    pub(crate) fn reply(&mut self, queue: QueueId, id: Id, answer: Answer) {
        self.outgoing.push(queue, Frame::Answer(Some(id), answer));
    }

    /// Queues a notification, or drops it if the client does not read. This bounds the queue.
    pub(crate) fn notify(&mut self, queue: QueueId, frame: Frame) {
        if self.outgoing.has_room(queue) {
            self.outgoing.push(queue, frame);
            return;
        }
        self.stats.news_dropped += 1;
        let count = self.stats.news_dropped;
        if count.is_power_of_two() {
            self.report(Event::NotificationsDropped { count });
        }
    }

    /// Queues a notification to each of these queues.
    pub(crate) fn notify_all(&mut self, mut queues: Vec<QueueId>, frame: Frame) {
        let last = queues.pop();
        for queue in queues {
            self.notify(queue, frame.clone());
        }
        if let Some(last) = last {
            self.notify(last, frame);
        }
    }
}
