//! What goes wrong, and how it is mended. Each kind of fault says whether it took effect.

use std::time::Duration;

use everlink::{ExitStatus, FaultKind, Input, StreamId};

use super::leg::{Outage, Weather};
use super::server::Manners;
use super::{Happening, MOMENT, World, terms};
use crate::oracle::Broken;
use crate::script::{Fault, Peer, Realm};

impl World {
    /// Lets something go wrong. Whether it did.
    pub(super) fn fail(&mut self, fault: Fault, how: u32) -> Result<bool, Broken> {
        let quick = terms::is_quick(&self.setup);
        let longest = if quick { 4_000 } else { 90_000 };
        let span = Duration::from_millis(u64::from(how) % longest + 1);
        Ok(match fault.realm() {
            Realm::Process => match self.a_leg(false, how) {
                Some(leg) => self.fail_pipe(leg, fault, how, span),
                None => false,
            },
            Realm::Network => match self.a_leg(true, how) {
                Some(leg) => self.fail_web(leg, fault, how, span),
                None => false,
            },
            Realm::Server => self.fail_server(fault, how, longest),
            Realm::Driver => return self.fail_driver(fault, how, span),
        })
    }

    /// The driver of the host, its clock, or the way to it.
    fn fail_driver(&mut self, fault: Fault, how: u32, span: Duration) -> Result<bool, Broken> {
        let until = self.now + span;
        match fault {
            Fault::Latency => {
                let leg = how as usize % self.legs.len();
                self.legs[leg].weather.latency = u64::from(how) % 900;
            }
            Fault::Stall => {
                self.host.stalls_until = until;
                self.host.oracle.disturbed();
                self.at(until, Happening::Moment);
            }
            Fault::LatePoll => {
                self.host.polls_from = until;
                self.host.oracle.disturbed();
                self.at(until, Happening::Moment);
            }
            Fault::ClockForward => self.host.jump(span, false),
            Fault::ClockBack => self.host.jump(span, true),
            Fault::Stale => return self.fail_stale(how),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// One of the legs of this kind.
    fn a_leg(&self, is_http: bool, how: u32) -> Option<usize> {
        let legs = self.legs.iter().enumerate();
        let legs: Vec<usize> = legs
            .filter(|(_, leg)| leg.is_http == is_http)
            .map(|(at, _)| at)
            .collect();
        let which = how as usize % legs.len().max(1);
        legs.get(which).copied()
    }

    fn fail_pipe(&mut self, leg: usize, fault: Fault, how: u32, span: Duration) -> bool {
        let now = self.now;
        let weather = &mut self.legs[leg].weather;
        match fault {
            Fault::OpenFails => {
                weather.open_fails = how % 4 + 1;
                return true;
            }
            Fault::OpenSlow => {
                weather.open_slow = Some(span);
                return true;
            }
            _ => {}
        }
        let Some(life) = self.legs[leg].running() else {
            return false;
        };
        let process = life.process;
        match fault {
            Fault::Kill => self.exit(process, ExitStatus::Signal(9)),
            Fault::Exit => {
                let code = i32::try_from(how % 4).expect("a small number");
                self.exit(process, ExitStatus::Code(code));
            }
            Fault::DieWriting => life.dies_after = Some(how as usize % 200),
            Fault::Freeze => life.frozen_until = now + span,
            Fault::Deaf => life.traits.is_deaf = true,
            Fault::Undead => life.traits.is_undead = true,
            Fault::Orphan => life.traits.has_orphan = true,
            Fault::CloseOutput => self.tell_end(leg),
            Fault::CloseInput => life.is_input_closed = true,
            Fault::Stderr => return self.stderr(leg, how as usize % 300),
            _ => return false,
        }
        true
    }

    fn fail_web(&mut self, leg: usize, fault: Fault, how: u32, span: Duration) -> bool {
        let until = self.now + span;
        let weather = &mut self.legs[leg].weather;
        match fault {
            Fault::Refuse => self.outage(leg, Outage::Fault(FaultKind::Refused), until),
            Fault::NameLost => {
                let kinds = [
                    FaultKind::NameNotFound,
                    FaultKind::Tls,
                    FaultKind::Unreachable,
                    FaultKind::TimedOut,
                ];
                let kind = kinds[how as usize % kinds.len()];
                self.outage(leg, Outage::Fault(kind), until);
            }
            Fault::BlackHole => self.outage(leg, Outage::BlackHole, until),
            Fault::ProxyStatus => {
                let statuses = [500, 502, 503, 504, 429, 403, 404, 307];
                let status = statuses[how as usize % statuses.len()];
                self.outage(leg, Outage::Status(status), until);
            }
            Fault::Reset => return self.cut_all(leg),
            Fault::CutResponse => weather.cut_responses.push(how as usize % 300),
            Fault::CutRequest => weather.cut_requests += 1,
            Fault::ProxyBuffers => weather.buffers_until = until,
            Fault::ProxyIdle => {
                let patience = Duration::from_millis(u64::from(how) % 5_000 + 20);
                weather.cuts_idle = Some((until, patience));
            }
            Fault::ProxyPage => weather.pages += 1,
            Fault::Challenge => weather.wants_credentials = true,
            Fault::Restart => self.replace(leg, Duration::ZERO),
            Fault::Down if self.process_below(leg).is_some() => self.replace(leg, span),
            _ => return false,
        }
        true
    }

    fn fail_server(&mut self, fault: Fault, how: u32, longest: u64) -> bool {
        let now = self.now;
        let times = how % 20 + 1;
        let few = how % 3 + 1;
        match fault {
            Fault::Slow => self.manners.slow = u64::from(how) % longest + 1,
            Fault::Mute => self.manners.mute = few,
            Fault::AppError => self.manners.errors = few,
            Fault::Twice => self.manners.is_doubled = true,
            Fault::Oversized => self.manners.oversized = few,
            Fault::OtherEra => self.manners.other_era = !self.manners.other_era,
            Fault::RefuseHandshake => self.manners.refuses = few,
            _ => {
                let Some(last) = &mut self.last else {
                    return false;
                };
                return match fault {
                    Fault::Changes => last.changes(now, times, how % 2 == 0),
                    Fault::Asks => last.asks(now, how),
                    Fault::Progress => last.progresses(now, times),
                    Fault::Garbage => last.garbage(&garbage(how)),
                    Fault::WrongId => {
                        let stray =
                            format!("{{\"jsonrpc\":\"2.0\",\"id\":{how},\"result\":{{}}}}\n");
                        last.garbage(stray.as_bytes())
                    }
                    _ => false,
                };
            }
        }
        true
    }

    /// The driver tells of a transport that is gone, or of an exchange that is.
    fn fail_stale(&mut self, how: u32) -> Result<bool, Broken> {
        let epoch = match self.host.past.last() {
            Some(epoch) if *epoch != self.host.subject.epoch() => *epoch,
            _ => return Ok(false),
        };
        let stream = if self.legs[0].is_http {
            StreamId::new(u64::from(how) % 50 + 2)
        } else {
            StreamId::DUPLEX
        };
        // It answers what the present server was asked.
        let reply = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"mark\":0,\"resultType\":\"complete\"}}}}\n",
            how % 20
        );
        let bytes = reply.into_bytes().into();
        let faults = Vec::new().into();
        let input = match how % 4 {
            0 => Input::End { stream, faults },
            1 if !self.legs[0].is_http => Input::exited(ExitStatus::Code(1)),
            2 => Input::Opened,
            _ => Input::Bytes { stream, bytes },
        };
        self.host.feed_stale(epoch, input)?;
        Ok(true)
    }

    /// Nothing is wrong any more, and nothing new goes wrong.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        // A server that has changed its era stays what it is.
        let other_era = self.manners.other_era;
        self.manners = Manners {
            other_era,
            ..Manners::default()
        };
        for leg in 0..self.legs.len() {
            self.legs[leg].weather = Weather::default();
            if let Some(life) = &mut self.legs[leg].life {
                life.frozen_until = self.now;
                life.dies_after = None;
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
        self.host.heal(self.now);
        self.after(MOMENT, Happening::Moment);
    }
}

/// Bytes of no use, each in its own way.
fn garbage(how: u32) -> Vec<u8> {
    match how % 6 {
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
