//! Injects faults, and removes them. Each fault reports whether it took effect.

use std::time::Duration;

use everlink::{ExitStatus, FaultKind, Input, StreamId};

use super::leg::{LegFaults, Outage};
use super::server::ServerFaults;
use super::{CATCH_UP_DELAY, World, WorldEvent, configs};
use crate::script::{Fault, FaultArea, Peer};

impl World<'_> {
    /// Injects a fault. Returns whether it took effect.
    pub(super) fn inject_fault(&mut self, fault: Fault, parameter: u32) -> bool {
        let is_quick = configs::is_quick(&self.setup);
        let longest = if is_quick { 4_000 } else { 90_000 };
        let span = Duration::from_millis(u64::from(parameter) % longest + 1);
        match fault.area() {
            FaultArea::Process => match self.pick_leg(false, parameter) {
                Some(leg) => self.inject_process_fault(leg, fault, parameter, span),
                None => false,
            },
            FaultArea::Network => match self.pick_leg(true, parameter) {
                Some(leg) => self.inject_network_fault(leg, fault, parameter, span),
                None => false,
            },
            FaultArea::Server => self.inject_server_fault(fault, parameter, longest),
            FaultArea::Driver => self.inject_driver_fault(fault, parameter, span),
        }
    }

    /// Faults of the host's driver, its clock, or the latency of a leg.
    fn inject_driver_fault(&mut self, fault: Fault, parameter: u32, span: Duration) -> bool {
        let until = self.now + span;
        match fault {
            Fault::Latency => {
                let leg = parameter as usize % self.legs.len();
                self.legs[leg].leg_faults.latency = u64::from(parameter) % 900;
            }
            Fault::Stall => {
                self.host.stalled_until = until;
                self.host.oracle.skip_timing();
                self.at(until, WorldEvent::CatchUp);
            }
            Fault::LatePoll => {
                self.host.polls_from = until;
                self.host.oracle.skip_timing();
                self.at(until, WorldEvent::CatchUp);
            }
            Fault::ClockForward => self.host.jump_clock(span, false),
            Fault::ClockBack => self.host.jump_clock(span, true),
            Fault::Stale => return self.inject_stale_input(parameter),
            _ => return false,
        }
        true
    }

    /// Chooses one of the legs of this kind.
    fn pick_leg(&self, is_http: bool, parameter: u32) -> Option<usize> {
        let legs = self.legs.iter().enumerate();
        let legs: Vec<usize> = legs
            .filter(|(_, leg)| leg.is_http == is_http)
            .map(|(at, _)| at)
            .collect();
        let which = parameter as usize % legs.len().max(1);
        legs.get(which).copied()
    }

    fn inject_process_fault(
        &mut self,
        leg: usize,
        fault: Fault,
        parameter: u32,
        span: Duration,
    ) -> bool {
        let now = self.now;
        let leg_faults = &mut self.legs[leg].leg_faults;
        match fault {
            Fault::OpenFails => {
                leg_faults.open_fails = parameter % 4 + 1;
                return true;
            }
            Fault::OpenSlow => {
                leg_faults.open_slow = Some(span);
                return true;
            }
            _ => {}
        }
        let Some(child) = self.legs[leg].running() else {
            return false;
        };
        let process = child.process;
        match fault {
            Fault::Kill => self.exit(process, ExitStatus::Signal(9)),
            Fault::Exit => {
                let code = i32::try_from(parameter % 4).expect("a small number");
                self.exit(process, ExitStatus::Code(code));
            }
            Fault::DieWriting => child.dies_after = Some(parameter as usize % 200),
            Fault::Freeze => child.frozen_until = now + span,
            Fault::Deaf => child.close_behaviour.is_deaf = true,
            Fault::Undead => child.close_behaviour.is_undead = true,
            Fault::Orphan => child.close_behaviour.has_orphan = true,
            Fault::CloseOutput => self.end_output(leg),
            Fault::CloseInput => child.is_input_closed = true,
            Fault::Stderr => return self.stderr(leg, parameter as usize % 300),
            _ => return false,
        }
        true
    }

    fn inject_network_fault(
        &mut self,
        leg: usize,
        fault: Fault,
        parameter: u32,
        span: Duration,
    ) -> bool {
        let until = self.now + span;
        let leg_faults = &mut self.legs[leg].leg_faults;
        match fault {
            Fault::Refuse => self.outage(leg, Outage::Fault(FaultKind::Refused), until),
            Fault::NameLost => {
                let kinds = [
                    FaultKind::NameNotFound,
                    FaultKind::Tls,
                    FaultKind::Unreachable,
                    FaultKind::TimedOut,
                ];
                let kind = kinds[parameter as usize % kinds.len()];
                self.outage(leg, Outage::Fault(kind), until);
            }
            Fault::BlackHole => self.outage(leg, Outage::BlackHole, until),
            Fault::ProxyStatus => {
                let statuses = [500, 502, 503, 504, 429, 403, 404, 307];
                let status = statuses[parameter as usize % statuses.len()];
                self.outage(leg, Outage::Status(status), until);
            }
            Fault::Reset => return self.cut_all(leg),
            Fault::CutResponse => leg_faults.cut_responses.push(parameter as usize % 300),
            Fault::CutRequest => leg_faults.cut_requests += 1,
            Fault::ProxyBuffers => leg_faults.buffers_until = until,
            Fault::ProxyIdle => {
                let limit = Duration::from_millis(u64::from(parameter) % 5_000 + 20);
                leg_faults.cuts_idle = Some((until, limit));
            }
            Fault::ProxyPage => leg_faults.pages += 1,
            Fault::Challenge => leg_faults.wants_credentials = true,
            Fault::Restart => self.replace(leg, Duration::ZERO),
            Fault::Down if self.process_below(leg).is_some() => self.replace(leg, span),
            _ => return false,
        }
        true
    }

    fn inject_server_fault(&mut self, fault: Fault, parameter: u32, longest: u64) -> bool {
        let now = self.now;
        let times = parameter % 20 + 1;
        let few = parameter % 3 + 1;
        match fault {
            Fault::Slow => self.server_faults.slow = u64::from(parameter) % longest + 1,
            Fault::Mute => self.server_faults.mute = few,
            Fault::AppError => self.server_faults.errors = few,
            Fault::Twice => self.server_faults.is_doubled = true,
            Fault::Oversized => self.server_faults.oversized = few,
            Fault::OtherEra => self.server_faults.other_era = !self.server_faults.other_era,
            Fault::RefuseHandshake => self.server_faults.refuses = few,
            _ => {
                let Some(last_server) = &mut self.last_server else {
                    return false;
                };
                return match fault {
                    Fault::Changes => last_server.publish_changes(now, times, parameter % 2 == 0),
                    Fault::Asks => last_server.ask(now, parameter),
                    Fault::Progress => last_server.report_progress(now, times),
                    Fault::Garbage => last_server.write_garbage(&garbage(parameter)),
                    Fault::WrongId => {
                        let stray =
                            format!("{{\"jsonrpc\":\"2.0\",\"id\":{parameter},\"result\":{{}}}}\n");
                        last_server.write_garbage(stray.as_bytes())
                    }
                    _ => false,
                };
            }
        }
        true
    }

    /// Delivers an input of a transport or an exchange that is gone.
    fn inject_stale_input(&mut self, parameter: u32) -> bool {
        let epoch = match self.host.past_epochs.last() {
            Some(epoch) if *epoch != self.host.subject.epoch() => *epoch,
            _ => return false,
        };
        let stream = if self.legs[0].is_http {
            StreamId::new(u64::from(parameter) % 50 + 2)
        } else {
            StreamId::DUPLEX
        };
        // The id may be one of the current server's requests.
        let reply = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"mark\":0,\"resultType\":\"complete\"}}}}\n",
            parameter % 20
        );
        let bytes = reply.into_bytes().into();
        let faults = Vec::new().into();
        let input = match parameter % 4 {
            0 => Input::End { stream, faults },
            1 if !self.legs[0].is_http => Input::exited(ExitStatus::Code(1)),
            2 => Input::Opened,
            _ => Input::Bytes { stream, bytes },
        };
        self.host.feed_stale(epoch, input);
        true
    }

    /// Removes all faults.
    pub(super) fn clear_faults(&mut self) {
        self.faults_cleared = true;
        // A server that changed its era keeps the new one.
        let other_era = self.server_faults.other_era;
        self.server_faults = ServerFaults {
            other_era,
            ..ServerFaults::default()
        };
        for leg in 0..self.legs.len() {
            self.legs[leg].leg_faults = LegFaults::default();
            if let Some(child) = &mut self.legs[leg].child {
                child.frozen_until = self.now;
                child.dies_after = None;
            }
            if self.legs[leg].is_http {
                self.cut_all(leg);
                let is_up = self.process_below(leg).is_some();
                if !is_up {
                    self.start(leg);
                } else if self.setup.peer != Peer::Everlink {
                    self.replace(leg, Duration::ZERO);
                }
            }
        }
        self.host.clear_faults(self.now);
        self.after(CATCH_UP_DELAY, WorldEvent::CatchUp);
    }
}

/// Useless bytes of several kinds.
fn garbage(parameter: u32) -> Vec<u8> {
    match parameter % 6 {
        0 => b"listening on stdio\n".to_vec(),
        1 => b"{\"jsonrpc\":\"2.0\",\"id\":1,\"resu\n".to_vec(),
        2 => vec![0xff, 0xfe, 0, b'\n'],
        3 => b"[]\n[1]\n{}\n\"x\"\n".to_vec(),
        4 => {
            b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":[]}\n".to_vec()
        }
        _ => [vec![b'x'; 6_000], vec![b'\n']].concat(),
    }
}
