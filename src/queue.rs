//! What waits to be polled, in order, and how much it weighs. Knows no meaning.

use alloc::collections::VecDeque;

use crate::id::Epoch;
use crate::io::Output;

/// Adds to a queue that is mostly short: it has no more room than it needs, to begin with.
pub(crate) fn add<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(queue.len().max(1));
    }
    queue.push_back(item);
}

/// Lets go of the room of a queue that is empty, but for a little: an idle link holds little.
pub(crate) fn let_go<T>(queue: &mut VecDeque<T>) {
    const KEPT: usize = 2;
    if queue.is_empty() && queue.capacity() > KEPT {
        *queue = VecDeque::new();
    }
}

/// How many bytes an event takes up, payload included.
pub(crate) trait Weigh {
    fn weight(&self) -> usize;
}

/// Outputs that the driver has not polled yet.
#[derive(Debug)]
pub(crate) struct Outbox<E> {
    waiting: VecDeque<Output<E>>,
    bytes: usize,
}

impl<E: Weigh> Outbox<E> {
    pub(crate) const fn new() -> Outbox<E> {
        Outbox {
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(crate) fn push(&mut self, output: Output<E>) {
        self.bytes += weight(&output);
        add(&mut self.waiting, output);
    }

    pub(crate) fn pop(&mut self) -> Option<Output<E>> {
        let output = self.waiting.pop_front()?;
        self.bytes -= weight(&output);
        let_go(&mut self.waiting);
        Some(output)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that the events in here take up.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing is left of this transport: what it was still to be told is not said.
    pub(crate) fn drop_commands_to(&mut self, gone: Epoch) {
        self.waiting.retain(|output| match output {
            Output::Abort { epoch, .. }
            | Output::CloseWrite { epoch }
            | Output::Finish { epoch, .. }
            | Output::Inspect { epoch }
            | Output::Kill { epoch }
            | Output::Request { epoch, .. }
            | Output::Response { epoch, .. }
            | Output::Terminate { epoch }
            | Output::Write { epoch, .. } => *epoch != gone,
            Output::Event(_) | Output::Open { .. } | Output::Release { .. } => true,
        });
    }

    /// The events that wait. Their weight must not be changed through this.
    pub(crate) fn events_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.waiting.iter_mut().filter_map(|output| match output {
            Output::Event(event) => Some(event),
            Output::Abort { .. }
            | Output::CloseWrite { .. }
            | Output::Finish { .. }
            | Output::Inspect { .. }
            | Output::Kill { .. }
            | Output::Open { .. }
            | Output::Release { .. }
            | Output::Request { .. }
            | Output::Response { .. }
            | Output::Terminate { .. }
            | Output::Write { .. } => None,
        })
    }
}

fn weight<E: Weigh>(output: &Output<E>) -> usize {
    match output {
        Output::Event(event) => event.weight(),
        Output::Abort { .. }
        | Output::CloseWrite { .. }
        | Output::Finish { .. }
        | Output::Inspect { .. }
        | Output::Kill { .. }
        | Output::Open { .. }
        | Output::Release { .. }
        | Output::Request { .. }
        | Output::Response { .. }
        | Output::Terminate { .. }
        | Output::Write { .. } => 0,
    }
}
