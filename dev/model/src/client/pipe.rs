//! A client over a byte stream: its operations, and the driver that performs them.

use everlink::client::Event;
use everlink::{Client, Fault, FaultKind, Input, List, Output, StreamId};
use serde_json::Value;

use super::app::Which;
use super::scripted_server::{Reply, ScriptedServer, ServerMessage};
use super::{Link, Peer, exit_status, watch};
use crate::explore::StateView;
use crate::script::{Elapse, choices};
use crate::world::{Case, World};

choices! {
    /// One operation on a client over a byte stream.
    #[non_exhaustive]
    pub enum Op {
        /// The link connects, its transport opens, and a good server answers everything.
        4 Serve(u8),
        /// The server sends a message, in two pieces if `cut` is not zero.
        6 Send { which: Which, message: ServerMessage, cut: u8 },
        3 Call { method: u8, params: u8, options: u8 },
        4 Elapse(Elapse),
        2 Opened(Which),
        1 OpenFailed { which: Which, faults: Vec<FaultKind> },
        2 End { which: Which, faults: Vec<FaultKind> },
        2 Exited { which: Which, status: u8 },
        1 Bytes { which: Which, bytes: Vec<u8> },
        1 Stderr { which: Which, len: u8 },
        /// Bytes were handed to the system: all of them for 0, all that are under way for 1.
        2 Sent { which: Which, len: u8 },
        1 Connect,
        1 Reconnect(Which),
        /// Shuts the link down for one in four bytes, wakes it for the others.
        1 ShutdownOrWake(u8),
        1 Wake,
        1 List { list: List, options: u8 },
        1 Cancel { which: u8 },
        2 Answer { which: u8, how: u8 },
        1 Watch(u8),
        1 Notify(u8),
        1 WriteFailed { which: Which, faults: Vec<FaultKind> },
        /// The driver polls at most so often.
        2 Poll(u8),
        0 Shutdown,
        0 CancelOldest,
        0 AnswerNewest,
        /// The server answers its oldest request that is no watch.
        0 ReplyToOldest(Reply),
    }
}

pub(crate) type Pipe = ScriptedServer;

impl Peer for Pipe {
    type Op = Op;

    fn act(world: &mut World<Link<Pipe>>, op: &Op) {
        match op {
            Op::Answer { which, how } => world.answer(*which, *how),
            Op::AnswerNewest => world.answer_newest(),
            Op::Bytes { which, bytes } => world.bytes(*which, bytes, 0),
            Op::Call {
                method,
                params,
                options,
            } => world.call(*method, *params, *options),
            Op::Cancel { which } => world.cancel(*which),
            Op::CancelOldest => world.cancel_oldest(),
            Op::Connect => world.tell(Client::connect),
            Op::Elapse(elapse) => world.elapse(*elapse),
            Op::End { which, faults } => world.hear_of(*which, Input::end(with_details(faults))),
            Op::Exited { which, status } => {
                world.hear_of(*which, Input::exited(exit_status(*status)));
            }
            Op::List { list, options } => world.list(*list, *options),
            Op::Notify(which) => world.notify(*which),
            Op::OpenFailed { which, faults } => {
                world.hear_of(*which, Input::open_failed(with_details(faults)));
            }
            Op::Opened(which) => world.hear_of(*which, Input::Opened),
            Op::Poll(most) => drop(Link::poll(world, usize::from(*most))),
            Op::Reconnect(which) => world.reconnect(*which),
            Op::ReplyToOldest(how) => {
                let (which, how) = (world.case.peer.oldest(), *how);
                let message = ServerMessage::Reply { which, how };
                world.send(Which::Current, &message, 0);
            }
            Op::Send {
                which,
                message,
                cut,
            } => world.send(*which, message, usize::from(*cut)),
            Op::Sent { which, len } => {
                let under_way = world.case.rules.under_way(world.machine.epoch());
                let len = match len {
                    0 => usize::MAX,
                    1 => under_way,
                    len => usize::from(*len),
                };
                world.hear_of(*which, Input::sent(len));
            }
            Op::Serve(variant) => world.serve(*variant),
            Op::Shutdown => world.shutdown(),
            Op::ShutdownOrWake(byte) if byte % 4 == 0 => world.shutdown(),
            Op::Stderr { which, len } => {
                let bytes = b"a line of trouble\n".repeat(usize::from(*len));
                world.hear_of(*which, Input::stderr(bytes));
            }
            Op::Wake | Op::ShutdownOrWake(_) => world.tell(Client::wake),
            Op::Watch(bits) => world.tell(|client, now| client.watch(now, watch(*bits))),
            Op::WriteFailed { which, faults } => {
                world.hear_of(*which, Input::write_failed(with_details(faults)));
            }
        }
    }

    fn perform(world: &mut World<Link<Pipe>>, output: &Output<Event>, bytes: &[u8]) {
        match output {
            Output::Open { .. } => world.case.peer = Pipe::default(),
            Output::Write { len, .. } => {
                let message: Value = serde_json::from_slice(bytes).expect("JSON");
                world.case.peer.receive(&message);
                if world.setup.reports_sent {
                    world.hear(world.machine.epoch(), Input::sent(*len));
                }
            }
            _ => {}
        }
    }

    fn answer(world: &mut World<Link<Pipe>>, variant: u8) -> bool {
        let is_asked = world.case.peer.is_asked();
        if is_asked {
            let bytes = world.case.peer.serve(variant);
            world.bytes(Which::Current, &bytes, 0);
        }
        is_asked
    }

    fn end_all(world: &mut World<Link<Pipe>>) {
        world.hear_of(Which::Current, Input::end(Vec::new()));
        world.hear_of(Which::Current, Input::exited(exit_status(0)));
    }

    fn look(&self, view: &mut StateView) {
        ScriptedServer::look(self, view);
    }
}

impl World<Link<Pipe>> {
    fn hear_of(&mut self, which: Which, input: Input<'_>) {
        if let Some(epoch) = self.epoch(which) {
            self.hear(epoch, input);
        }
    }

    fn send(&mut self, which: Which, message: &ServerMessage, cut: usize) {
        let limit = self.setup.config.limits.message_bytes;
        let bytes = self.case.peer.send(message, limit);
        self.bytes(which, &bytes, cut);
    }

    fn bytes(&mut self, which: Which, bytes: &[u8], cut: usize) {
        let (head, tail) = bytes.split_at(cut % bytes.len().max(1));
        for bytes in [head, tail] {
            // A driver stops reading when it is told to.
            if self.machine.wants_input(StreamId::DUPLEX) && !bytes.is_empty() {
                self.hear_of(which, Input::bytes(bytes));
            }
        }
    }
}

pub(super) fn with_details(kinds: &[FaultKind]) -> Vec<Fault> {
    let detailed = |kind: &FaultKind| Fault::with_detail(*kind, "as the system puts it");
    kinds.iter().map(detailed).collect()
}
