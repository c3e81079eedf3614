//! What the rig and the pairs know of a machine under test.

use std::fmt::Debug;

use everlink::relay::{self, Relay, Side};
use everlink::{Client, Deadline, Epoch, Input, Instant, Output, Server, StreamId, client, server};

/// A machine, as its driver knows it.
pub trait Machine: Debug {
    /// What it tells its application.
    type Event: Debug;
    /// Takes an input about a transport.
    fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>);
    /// Takes the time.
    fn handle_timeout(&mut self, now: Instant);
    /// The next output, and the side of the machine that it is for.
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<(Side, Output<Self::Event>)>;
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Deadline>;
    /// Whether its driver should read from this stream.
    fn wants_input(&self, stream: StreamId) -> bool;
    /// How many inputs were stale, and all other counts.
    fn counts(&self) -> (u64, String);
}

/// A machine, or two with everything between them.
pub(crate) trait Timed: Debug {
    fn handle_timeout(&mut self, now: Instant);
    fn poll_timeout(&self) -> Option<Deadline>;
}

impl<M: Machine> Timed for M {
    fn handle_timeout(&mut self, now: Instant) {
        Machine::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        Machine::poll_timeout(self)
    }
}

/// Implements [`Machine`]: what differs is how inputs are taken, outputs and the wish for input are asked for, and what is counted.
macro_rules! machine {
    ($machine:ty, $event:ty, $handle:expr, $poll:expr, $wants:expr, $stats:expr) => {
        impl Machine for $machine {
            type Event = $event;

            fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
                let handle: fn(&mut $machine, Instant, Epoch, Input<'_>) = $handle;
                handle(self, now, epoch, input);
            }

            fn handle_timeout(&mut self, now: Instant) {
                <$machine>::handle_timeout(self, now);
            }

            fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<(Side, Output<$event>)> {
                let poll: fn(&mut $machine, &mut Vec<u8>) -> _ = $poll;
                poll(self, buf)
            }

            fn poll_timeout(&self) -> Option<Deadline> {
                <$machine>::poll_timeout(self)
            }

            fn wants_input(&self, stream: StreamId) -> bool {
                let wants: fn(&$machine, StreamId) -> bool = $wants;
                wants(self, stream)
            }

            fn counts(&self) -> (u64, String) {
                let stats: fn(&$machine) -> _ = $stats;
                let mut stats = stats(self);
                let stale = std::mem::take(&mut stats.stale_inputs);
                (stale, format!("{stats:?}"))
            }
        }
    };
}

machine!(
    Client,
    client::Event,
    Client::handle,
    |client, buf| Some((Side::Upstream, client.poll_output(buf)?)),
    Client::wants_input,
    Client::stats
);

machine!(
    Server,
    server::Event,
    |server, now, _, input| server.handle(now, input),
    |server, buf| Some((Side::Downstream, server.poll_output(buf)?)),
    Server::wants_input,
    Server::stats
);

machine!(
    Relay,
    relay::Event,
    Relay::handle_upstream,
    Relay::poll_output,
    |relay, stream| relay.wants_input(Side::Upstream, stream),
    |relay| relay.upstream().stats()
);
