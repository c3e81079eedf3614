//! The two traits that a runtime implements for the driver: transports move bytes, and a clock sleeps.

use std::convert::Infallible;
use std::task::{Context, Poll};

use everlink::{Epoch, Input, Instant, Output};

/// The transport of one machine, at either end.
///
/// A transport carries out outputs and reports inputs. It makes no decisions and knows no machine, so that links, servers and relays can use it.
/// Dropping it closes everything that it holds.
pub trait Transport: Send {
    /// Carries out one output without waiting; its results are reported later. `bytes` are the bytes that belong to it.
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]);

    /// Returns the next input and the epoch of its transport; at a server's end that is always [`Epoch::FIRST`]. Writes queued bytes on the way.
    ///
    /// While `reads` is false, nothing is read from the peer, and only results of earlier outputs are reported. Bytes that are read from a stream go
    /// into `buffer`, so that an idle transport holds no memory for them.
    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)>;

    /// Returns the id of the process at the other end, if this transport started one and it was not released.
    fn pid(&self) -> Option<u32> {
        None
    }
}

/// The absence of a transport: a link has none to a client, and a server has none to another server.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NoTransport;

impl Transport for NoTransport {
    fn perform(&mut self, _: Output<Infallible>, _: &[u8]) {}

    fn poll_input<'r>(
        &mut self,
        _: &mut Context<'_>,
        _: bool,
        _: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        Poll::Pending
    }
}

/// The clock of a driver, and the timer for its machine's deadline.
pub trait Clock: Send {
    /// Returns the time since the clock's origin, which does not change. It never goes back.
    fn now(&mut self) -> Instant;

    /// Waits for this time; without one, for ever. A driver waits for one deadline at a time: a new one replaces the one before.
    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()>;
}
