//! The interface of recorders, which store the steps of a machine. Replaying the steps on a machine with the same config has the same effects. Stores
//! nothing itself.

use everlink::relay::Side;
use everlink::{Epoch, Input, Instant, Output};

/// Called before each input and command, and after each output, in order. `C` is the type of commands, `E` the type of events.
///
/// The driver calls it between two inputs, so a slow recorder delays the link.
pub trait Recorder<C, E>: Send {
    /// Called before the machine runs a command of a handle.
    fn on_command(&mut self, now: Instant, command: &C);

    /// Called before the machine handles an input of a transport. For a link, the side is always [`Side::Upstream`];
    /// for a server, [`Side::Downstream`].
    fn on_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>);

    /// Called after each poll of the machine, with its output and the bytes to write.
    fn on_poll(&mut self, output: Option<(Side, &Output<E>)>, bytes: &[u8]);

    /// Called before the machine handles the time.
    fn on_timeout(&mut self, now: Instant);
}

/// An optional recorder.
pub(crate) type OptionalRecorder<C, E> = Option<Box<dyn Recorder<C, E>>>;
