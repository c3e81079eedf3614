//! For whoever writes down what happens to a machine, so that it can be told again: the same steps, put to a machine of the same config, have the
//! same effects. Writes nothing itself.

use everlink::relay::Side;
use everlink::{Epoch, Input, Instant, Output};

/// Is told every step of a machine in its order: what goes in before it does, what comes out when it has. `A` is what can be asked of the machine,
/// `E` what it tells.
///
/// It is the driver who calls, between two inputs: to take long is to hold up the link.
pub trait Recorder<A, E>: Send {
    /// A handle asked for this.
    fn asked(&mut self, now: Instant, asked: &A);

    /// This happened to a transport. A link has no side but [`Side::Upstream`].
    fn heard(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>);

    /// The machine was polled once, and this came out, with these bytes to write.
    fn polled(&mut self, output: Option<(Side, &Output<E>)>, bytes: &[u8]);

    /// The machine was told the time.
    fn timed(&mut self, now: Instant);
}

/// A place for a recorder, where there may be none.
pub(crate) type Recording<A, E> = Option<Box<dyn Recorder<A, E>>>;
