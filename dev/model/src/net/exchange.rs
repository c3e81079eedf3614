//! One exchange on its way: two directions, each in order. Knows neither ends nor weather.

use std::collections::VecDeque;

use everlink::http::{RequestHead, ResponseHead};
use everlink::{Epoch, FaultKind, Instant, StreamId};

use super::weather::Fate;

/// A part of an exchange on its way.
#[derive(Debug)]
pub(super) enum Part<H> {
    Head(H),
    Bytes(Vec<u8>),
    /// It is complete, or was cut: then why.
    End(Option<FaultKind>),
}

/// One direction.
#[derive(Debug)]
pub(super) struct Way<H> {
    parts: VecDeque<(Instant, Part<H>)>,
    /// How many bytes were let in.
    pub(super) bytes: usize,
    /// Nothing more is let in.
    pub(super) is_shut: bool,
    /// Its end was taken out.
    pub(super) is_over: bool,
}

impl<H> Way<H> {
    fn new() -> Way<H> {
        Way {
            parts: VecDeque::new(),
            bytes: 0,
            is_shut: false,
            is_over: false,
        }
    }

    /// Lets a part in, to arrive then, but not before the others.
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

    /// What is on its way is lost.
    pub(super) fn lose(&mut self) {
        self.parts.clear();
    }

    /// What was held back is on its way.
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
    /// What it is called at the server's end.
    pub(super) far: StreamId,
    pub(super) fate: Fate,
    pub(super) request: Way<RequestHead<'static>>,
    pub(super) response: Way<ResponseHead<'static>>,
    /// Whether the client has not cut it short.
    pub(super) is_wanted: bool,
    /// Whether the server heard all of the request.
    pub(super) was_heard: bool,
    /// When something was last let in.
    pub(super) stirred: Instant,
    pub(super) is_get: bool,
}

impl Exchange {
    pub(super) fn new(epoch: Epoch, far: StreamId, fate: Fate, now: Instant) -> Exchange {
        Exchange {
            epoch,
            far,
            fate,
            request: Way::new(),
            response: Way::new(),
            is_wanted: true,
            was_heard: false,
            stirred: now,
            is_get: false,
        }
    }

    /// Whether both directions are done with.
    pub(super) fn is_over(&self) -> bool {
        (self.response.is_over || !self.is_wanted) && self.request.is_over
    }
}
