//! The queue of outputs that wait to be polled, with their size in bytes.

use alloc::collections::VecDeque;

use crate::driver::{Epoch, Output};

/// Appends to a queue that is mostly short. Its capacity starts at 1 and doubles, so that it wastes no memory.
pub(crate) fn add<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(queue.len().max(1));
    }
    queue.push_back(item);
}

/// Frees the capacity of an empty queue if it exceeds 2 items, so that an idle link holds little memory.
pub(crate) fn let_go<T>(queue: &mut VecDeque<T>) {
    const KEPT: usize = 2;
    if queue.is_empty() && queue.capacity() > KEPT {
        *queue = VecDeque::new();
    }
}

/// The number of bytes that an event takes up, payload included.
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

    /// The bytes that the queued events and requests to a store take up.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops all queued commands to this transport, because nothing is left of it. Events, `Open` and `Release` stay.
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
            Output::Event(_) | Output::Open { .. } | Output::Release { .. } | Output::Store(_) => {
                true
            }
        });
    }
}

fn weight<E: Weigh>(output: &Output<E>) -> usize {
    match output {
        Output::Event(event) => event.weight(),
        Output::Store(request) => request.weight(),
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

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use super::{add, let_go};

    #[test]
    fn capacity_starts_at_one_and_doubles() {
        let mut queue = VecDeque::new();
        let capacity_after = |item| {
            add(&mut queue, [item; 64]);
            queue.capacity()
        };
        let capacities: Vec<usize> = (1_u8..=9).map(capacity_after).collect();
        assert_eq!(capacities, [1, 2, 4, 4, 8, 8, 8, 8, 16]);
    }

    #[test]
    fn empty_queue_keeps_room_for_two_items_at_most() {
        let mut queue = VecDeque::<[u8; 64]>::with_capacity(3);
        queue.push_back([0; 64]);
        let_go(&mut queue);
        assert_eq!(queue.capacity(), 3);
        queue.clear();
        let_go(&mut queue);
        assert_eq!(queue.capacity(), 0);
        queue.reserve_exact(2);
        let_go(&mut queue);
        assert_eq!(queue.capacity(), 2);
    }
}
