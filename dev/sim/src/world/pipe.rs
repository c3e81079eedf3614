//! What pipes and the processes at their ends do.

use std::convert::Infallible;
use std::time::Duration;

use everlink::{ExitStatus, Fault, FaultKind, Input, LAST_WORDS, Output};

use super::leg::Life;
use super::server::Said;
use super::{Happening, World};
use crate::subject::SECRET;

impl World {
    pub(super) fn carry_pipe(&mut self, leg: usize, output: Output<Infallible>, bytes: Vec<u8>) {
        match output {
            Output::Open { epoch } => self.open_pipe(leg, epoch),
            Output::CloseWrite { .. } => {
                let latency = self.latency(leg);
                let life = self.legs[leg].running();
                if let Some(life) = life.filter(|life| !life.traits.is_deaf) {
                    let at = life.down.max(self.now + latency).max(life.frozen_until);
                    let process = life.process;
                    self.at(at, Happening::ToLower(process, Input::end(Vec::new())));
                }
            }
            Output::Inspect { epoch } => {
                let now = self.now;
                if let Some(life) = self.legs[leg].running() {
                    // It computes nothing, so only whether it is stopped is of interest.
                    let told = Input::Activity {
                        cpu: Duration::ZERO,
                        is_stopped: life.frozen_until > now,
                    };
                    let latency = self.latency(leg);
                    self.after(latency, Happening::ToUpper(leg, epoch, told));
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
        let weather = &mut self.legs[leg].weather;
        if weather.open_fails > 0 {
            weather.open_fails -= 1;
            let kinds = [
                FaultKind::NotFound,
                FaultKind::ResourcesExhausted,
                FaultKind::Refused,
            ];
            let fault = Fault::with_detail(self.chance.pick(&kinds), "the system says no");
            let failed = Input::open_failed(vec![fault]);
            self.after(latency, Happening::ToUpper(leg, epoch, failed));
            return;
        }
        let slow = weather.open_slow.take().unwrap_or_default();
        self.start(leg);
        let process = self.process_below(leg).expect("it was started");
        self.legs[leg].life = Some(Life::new(process, self.now));
        self.after(
            latency + slow,
            Happening::ToUpper(leg, epoch, Input::Opened),
        );
    }

    fn write_pipe(&mut self, leg: usize, bytes: Vec<u8>) {
        let latency = self.latency(leg);
        let pieces = self.pieces(bytes);
        let now = self.now;
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(life)) = (link.epoch, link.life.as_mut()) else {
            return;
        };
        if !life.is_running || life.is_input_closed {
            let gone = vec![Fault::new(FaultKind::BrokenPipe)];
            let failed = Input::write_failed(gone);
            self.after(latency, Happening::ToUpper(leg, epoch, failed));
            return;
        }
        let at = life.down.max(now + latency).max(life.frozen_until);
        life.down = at;
        let process = life.process;
        for piece in pieces {
            let sent = Input::sent(piece.len());
            self.at(at, Happening::ToLower(process, Input::bytes(piece)));
            self.at(at, Happening::ToUpper(leg, epoch, sent));
        }
    }

    /// Cuts bytes anywhere.
    pub(super) fn pieces(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut head = bytes;
        if head.len() < 2 || self.chance.below(3) > 0 {
            return if head.is_empty() {
                Vec::new()
            } else {
                vec![head]
            };
        }
        let at = usize::try_from(self.chance.below(head.len() as u64)).expect("a length");
        let tail = head.split_off(at);
        let pieces = [head, tail].into_iter();
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    fn signal(&mut self, leg: usize, signal: i32) {
        let is_socket = self.legs[leg].is_socket;
        let Some(life) = &mut self.legs[leg].life else {
            return;
        };
        if signal == 9 {
            // With its whole tree.
            let had_orphan = std::mem::take(&mut life.traits.has_orphan);
            if had_orphan && !life.is_running {
                self.tell_end(leg);
                return;
            }
        } else if life.traits.is_deaf {
            return;
        }
        let process = life.process;
        if is_socket {
            self.exit(process, ExitStatus::Unknown);
        } else {
            let after = Duration::from_millis(self.chance.below(20));
            self.after(after, Happening::Exit(process, ExitStatus::Signal(signal)));
        }
    }

    pub(super) fn say_pipe(&mut self, leg: usize, said: Said) {
        let process = self.process_below(leg);
        let latency = self.latency(leg);
        let now = self.now;
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(life)) = (link.epoch, link.life.as_mut()) else {
            return;
        };
        if process != Some(life.process) || !life.is_running {
            return;
        }
        let at = life.up.max(now + latency).max(life.frozen_until);
        match said {
            Said::Write(mut bytes) => {
                if life.is_end_told {
                    return;
                }
                let dies = life.dies_after.is_some_and(|left| left <= bytes.len());
                if let Some(left) = &mut life.dies_after {
                    bytes.truncate(*left);
                    *left -= bytes.len();
                }
                life.up = at;
                let process = life.process;
                for piece in self.pieces(bytes) {
                    self.at(at, Happening::ToUpper(leg, epoch, Input::bytes(piece)));
                }
                if dies {
                    self.exit(process, ExitStatus::Signal(11));
                }
            }
            Said::Exit => {
                let process = life.process;
                self.at(at, Happening::Exit(process, ExitStatus::Code(0)));
            }
            _ => {}
        }
    }

    /// A process is no more. What it wrote before still arrives, then its end.
    pub(super) fn exit(&mut self, process: u64, status: ExitStatus) {
        let is_it = |leg: &super::Leg| {
            let life = leg.life.as_ref();
            life.is_some_and(|life| life.process == process && life.is_running)
        };
        let Some(leg) = self.legs.iter().position(is_it) else {
            return;
        };
        self.stop(leg);
        let now = self.now;
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(life)) = (link.epoch, link.life.as_mut()) else {
            return;
        };
        life.is_running = false;
        let at = life.up.max(now);
        life.up = at;
        let traits = life.traits;
        if traits.is_undead {
            return;
        }
        let is_first = self.chance.once_in(2);
        if is_first && !traits.has_orphan {
            self.tell_end(leg);
        }
        if !self.legs[leg].is_socket {
            self.at(at, Happening::ToUpper(leg, epoch, Input::exited(status)));
        }
        if !is_first && !traits.has_orphan {
            self.tell_end(leg);
        }
    }

    /// The output of a process ends.
    pub(super) fn tell_end(&mut self, leg: usize) {
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(life)) = (link.epoch, link.life.as_mut()) else {
            return;
        };
        if std::mem::replace(&mut life.is_end_told, true) {
            return;
        }
        // Where only the output ends, its driver waits a moment for the exit.
        let alone = if life.is_running {
            LAST_WORDS
        } else {
            Duration::ZERO
        };
        life.up = life.up.max(self.now + alone);
        let at = life.up;
        let kinds = [None, None, Some(FaultKind::Closed), Some(FaultKind::Reset)];
        let fault = self.chance.pick(&kinds).map(Fault::new);
        let faults: Vec<Fault> = fault.into_iter().collect();
        self.at(at, Happening::ToUpper(leg, epoch, Input::end(faults)));
    }

    /// A process writes to its standard error.
    pub(super) fn stderr(&mut self, leg: usize, lines: usize) -> bool {
        let link = &mut self.legs[leg];
        let (Some(epoch), Some(life)) = (link.epoch, link.life.as_ref()) else {
            return false;
        };
        if !life.is_running || link.is_socket {
            return false;
        }
        let at = life.up.max(self.now).max(life.frozen_until);
        let text = format!("trouble: {SECRET}\n").repeat(lines);
        let input = Input::stderr(text.into_bytes());
        self.at(at, Happening::ToUpper(leg, epoch, input));
        true
    }
}
