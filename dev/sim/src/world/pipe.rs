//! Moves data through pipes, and runs the processes at their ends.

use std::convert::Infallible;
use std::time::Duration;

use everlink::{ExitStatus, Fault, FaultKind, Input, Output};

use super::leg::ChildProcess;
use super::server::LowerOutput;
use super::{World, WorldEvent};
use crate::subject::SECRET;

impl World<'_> {
    pub(super) fn execute_pipe(&mut self, leg: usize, output: Output<Infallible>, bytes: Vec<u8>) {
        match output {
            Output::Open { epoch } => self.open_pipe(leg, epoch),
            Output::CloseWrite { .. } => {
                let latency = self.latency(leg);
                let child = self.legs[leg].running();
                if let Some(child) = child.filter(|child| !child.close_behaviour.is_deaf) {
                    let at = child.down.max(self.now + latency).max(child.frozen_until);
                    let process = child.process;
                    self.at(at, WorldEvent::ToLower(process, Input::end(Vec::new())));
                }
            }
            Output::Inspect { epoch } => {
                let now = self.now;
                if let Some(child) = self.legs[leg].running() {
                    // The process uses no CPU time, so only `is_stopped` matters.
                    let activity = Input::Activity {
                        cpu: Duration::ZERO,
                        is_stopped: child.frozen_until > now,
                    };
                    let latency = self.latency(leg);
                    self.after(latency, WorldEvent::ToUpper(leg, epoch, activity));
                }
            }
            Output::Terminate { .. } => self.signal(leg, 15),
            Output::Kill { .. } => self.signal(leg, 9),
            Output::Release { .. } => self.release(leg),
            Output::Write { .. } => self.write_pipe(leg, bytes),
            _ => {}
        }
    }

    fn open_pipe(&mut self, leg: usize, epoch: everlink::Epoch) {
        self.legs[leg].epoch = Some(epoch);
        let latency = self.latency(leg);
        let leg_faults = &mut self.legs[leg].leg_faults;
        if leg_faults.open_fails > 0 {
            leg_faults.open_fails -= 1;
            let kinds = [
                FaultKind::NotFound,
                FaultKind::ResourcesExhausted,
                FaultKind::Refused,
            ];
            let fault = Fault::with_detail(self.rng.pick(&kinds), "the system says no");
            let failed = Input::open_failed(vec![fault]);
            self.after(latency, WorldEvent::ToUpper(leg, epoch, failed));
            return;
        }
        let slow = leg_faults.open_slow.take().unwrap_or_default();
        self.start(leg);
        let process = self.process_below(leg).expect("it was started");
        self.legs[leg].child = Some(ChildProcess::new(process, self.now));
        self.after(
            latency + slow,
            WorldEvent::ToUpper(leg, epoch, Input::Opened),
        );
    }

    fn write_pipe(&mut self, leg: usize, bytes: Vec<u8>) {
        let latency = self.latency(leg);
        let pieces = self.pieces(bytes);
        let now = self.now;
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(child)) = (link.epoch, link.child.as_mut()) else {
            return;
        };
        if !child.is_running || child.is_input_closed {
            let gone = vec![Fault::new(FaultKind::BrokenPipe)];
            let failed = Input::write_failed(gone);
            self.after(latency, WorldEvent::ToUpper(leg, epoch, failed));
            return;
        }
        let at = child.down.max(now + latency).max(child.frozen_until);
        child.down = at;
        let process = child.process;
        for piece in pieces {
            let sent = Input::sent(piece.len());
            self.at(at, WorldEvent::ToLower(process, Input::bytes(piece)));
            self.at(at, WorldEvent::ToUpper(leg, epoch, sent));
        }
    }

    /// Splits bytes at a random position.
    pub(super) fn pieces(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut head = bytes;
        if head.len() < 2 || self.rng.below(3) > 0 {
            return if head.is_empty() {
                Vec::new()
            } else {
                vec![head]
            };
        }
        let at = usize::try_from(self.rng.below(head.len() as u64)).expect("a length");
        let tail = head.split_off(at);
        let pieces = [head, tail].into_iter();
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    fn signal(&mut self, leg: usize, signal: i32) {
        let is_socket = self.legs[leg].is_socket;
        let Some(child) = &mut self.legs[leg].child else {
            return;
        };
        if signal == 9 {
            // `SIGKILL` goes to the whole process tree.
            let had_orphan = std::mem::take(&mut child.close_behaviour.has_orphan);
            if had_orphan && !child.is_running {
                self.end_output(leg);
                return;
            }
        } else if child.close_behaviour.is_deaf {
            return;
        }
        let process = child.process;
        if is_socket {
            self.exit(process, ExitStatus::Unknown);
        } else {
            let after = Duration::from_millis(self.rng.below(20));
            self.after(after, WorldEvent::Exit(process, ExitStatus::Signal(signal)));
        }
    }

    pub(super) fn output_to_pipe(&mut self, leg: usize, output: LowerOutput) {
        let process = self.process_below(leg);
        let latency = self.latency(leg);
        let now = self.now;
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(child)) = (link.epoch, link.child.as_mut()) else {
            return;
        };
        if process != Some(child.process) || !child.is_running {
            return;
        }
        let at = child.up.max(now + latency).max(child.frozen_until);
        match output {
            LowerOutput::Write(mut bytes) => {
                if child.output_has_ended {
                    return;
                }
                let dies = child.dies_after.is_some_and(|left| left <= bytes.len());
                if let Some(left) = &mut child.dies_after {
                    bytes.truncate(*left);
                    *left -= bytes.len();
                }
                child.up = at;
                let process = child.process;
                for piece in self.pieces(bytes) {
                    self.at(at, WorldEvent::ToUpper(leg, epoch, Input::bytes(piece)));
                }
                if dies {
                    self.exit(process, ExitStatus::Signal(11));
                }
            }
            LowerOutput::Exit => {
                let process = child.process;
                self.at(at, WorldEvent::Exit(process, ExitStatus::Code(0)));
            }
            _ => {}
        }
    }

    /// Ends a process. Bytes that it wrote before still arrive, then the end of its output.
    pub(super) fn exit(&mut self, process: u64, status: ExitStatus) {
        let is_it = |leg: &super::Leg| {
            let child = leg.child.as_ref();
            child.is_some_and(|child| child.process == process && child.is_running)
        };
        let Some(leg) = self.legs.iter().position(is_it) else {
            return;
        };
        self.stop(leg);
        let now = self.now;
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(child)) = (link.epoch, link.child.as_mut()) else {
            return;
        };
        child.is_running = false;
        let at = child.up.max(now);
        child.up = at;
        let close_behaviour = child.close_behaviour;
        if close_behaviour.is_undead {
            return;
        }
        let is_first = self.rng.one_in(2);
        if is_first && !close_behaviour.has_orphan {
            self.end_output(leg);
        }
        if !self.legs[leg].is_socket {
            self.at(at, WorldEvent::ToUpper(leg, epoch, Input::exited(status)));
        }
        if !is_first && !close_behaviour.has_orphan {
            self.end_output(leg);
        }
    }

    /// Ends the output of a process.
    pub(super) fn end_output(&mut self, leg: usize) {
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(child)) = (link.epoch, link.child.as_mut()) else {
            return;
        };
        if std::mem::replace(&mut child.output_has_ended, true) {
            return;
        }
        child.up = child.up.max(self.now);
        let at = child.up;
        let kinds = [None, None, Some(FaultKind::Closed), Some(FaultKind::Reset)];
        let fault = self.rng.pick(&kinds).map(Fault::new);
        let faults: Vec<Fault> = fault.into_iter().collect();
        self.at(at, WorldEvent::ToUpper(leg, epoch, Input::end(faults)));
    }

    /// Writes lines to the standard error of a process.
    pub(super) fn stderr(&mut self, leg: usize, lines: usize) -> bool {
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(child)) = (link.epoch, link.child.as_ref()) else {
            return false;
        };
        if !child.is_running || link.is_socket {
            return false;
        }
        let at = child.up.max(self.now).max(child.frozen_until);
        // If there is no server, a relay quotes standard error to its only host. So there the lines must not hold the secret.
        let is_quoted = leg == 1 && self.setup.shape.legs() == [false, false];
        let word = if is_quoted { "" } else { SECRET };
        let text = format!("trouble: {word}\n").repeat(lines);
        let input = Input::stderr(text.into_bytes());
        self.at(at, WorldEvent::ToUpper(leg, epoch, input));
        true
    }
}
