//! One exchange under way: two directions, each in order. Knows neither ends nor faults.

use std::collections::VecDeque;

use everlink::http::{RequestHead, ResponseHead};
use everlink::{Epoch, FaultKind, Instant, StreamId};

use super::faults::Plan;

/// A part of an exchange under way.
#[derive(Debug)]
pub(super) enum Part<H> {
    Head(H),
    Bytes(Vec<u8>),
    /// It is complete, or was cut for this reason.
    End(Option<FaultKind>),
}

/// One direction.
#[derive(Debug)]
pub(super) struct Direction<H> {
    parts: VecDeque<(Instant, Part<H>)>,
    /// How many bytes were put in.
    pub(super) bytes: usize,
    /// Nothing more can be put in.
    pub(super) is_shut: bool,
    /// Its end was taken out.
    pub(super) is_over: bool,
}

impl<H> Direction<H> {
    fn new() -> Direction<H> {
        Direction {
            parts: VecDeque::new(),
            bytes: 0,
            is_shut: false,
            is_over: false,
        }
    }

    /// Puts a part in that arrives then, but not before the others.
    pub(super) fn put(&mut self, at: Instant, part: Part<H>) {
        if self.is_shut {
            return;
        }
        self.is_shut = matches!(part, Part::End(_));
        if let Part::Bytes(bytes) = &part {
            self.bytes += bytes.len();
        }
        let at = self.parts.back().map_or(at, |(last, _)| at.max(*last));
        self.parts.push_back((at, part));
    }

    /// Drops what is under way.
    pub(super) fn lose(&mut self) {
        self.parts.clear();
    }

    /// Sends on what was held back.
    pub(super) fn pass_on(&mut self, at: Instant) {
        for (then, _) in &mut self.parts {
            *then = (*then).min(at);
        }
    }

    /// When the next part arrives.
    pub(super) fn due(&self) -> Option<Instant> {
        self.parts.front().map(|(at, _)| *at)
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Part<H>> {
        self.due().filter(|at| *at <= now)?;
        let (_, part) = self.parts.pop_front()?;
        self.is_over |= matches!(part, Part::End(_));
        Some(part)
    }
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) epoch: Epoch,
    /// Its id at the server's end.
    pub(super) far: StreamId,
    pub(super) plan: Plan,
    pub(super) request: Direction<RequestHead<'static>>,
    pub(super) response: Direction<ResponseHead<'static>>,
    /// Whether the client did not abort it.
    pub(super) is_wanted: bool,
    /// Whether the server heard all of the request.
    pub(super) was_heard: bool,
    /// When something was last put in.
    pub(super) active_at: Instant,
    pub(super) is_get: bool,
}

impl Exchange {
    pub(super) fn new(epoch: Epoch, far: StreamId, plan: Plan, now: Instant) -> Exchange {
        Exchange {
            epoch,
            far,
            plan,
            request: Direction::new(),
            response: Direction::new(),
            is_wanted: true,
            was_heard: false,
            active_at: now,
            is_get: false,
        }
    }

    /// Whether both directions are over.
    pub(super) fn is_over(&self) -> bool {
        (self.response.is_over || !self.is_wanted) && self.request.is_over
    }
}
