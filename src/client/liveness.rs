//! Whether anybody is there: how a quiet server is probed, and what follows when it does not answer.

use super::errand::Errand;
use super::failure::Cause;
use super::frame::Frame;
use super::keepalive::Beat;
use super::{Client, Timer};
use crate::id::StreamId;
use crate::protocol::Era;

impl Client {
    /// The pulse is due.
    pub(super) fn feel_pulse(&mut self) {
        // A server that waits for an answer of ours, is not listened to or not spoken to, is not to blame for its silence.
        let is_unheard = !self.wants_input(StreamId::DUPLEX) || self.is_kept_silent();
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        let busy = self.calls.is_busy(pulse.excuse()) || self.asks.len() > 0 || is_unheard;
        let beat = pulse.due(self.now, busy);
        self.beat(beat);
    }

    /// Something is suspicious: is anybody there?
    pub(super) fn probe_now(&mut self) {
        let now = self.now;
        let pulse = self.pulse.as_mut().filter(|pulse| !pulse.is_probing());
        if let Some(beat) = pulse.map(|pulse| pulse.probe(now)) {
            self.beat(beat);
        }
    }

    fn beat(&mut self, beat: Beat) {
        match beat {
            Beat::Dead => {
                self.stats.probes_missed += 1;
                self.down(Cause::Unresponsive);
            }
            Beat::Probe(look_at) => {
                let missed = self.errands.wire_for(&Errand::Probe);
                if let Some(wire) = missed {
                    self.errands.close(wire);
                    self.withdraw_request(wire, None);
                    self.stats.probes_missed += 1;
                }
                self.stats.probes += 1;
                let wire = self.errands.issue(Errand::Probe);
                let era = self.session.as_ref().map(|session| session.version.era());
                self.frames.push(match era {
                    Some(Era::Modern) => Frame::Discover(wire),
                    Some(_) | None => Frame::Ping(wire),
                });
                self.arm_at(Timer::Pulse, look_at);
            }
            Beat::Sleep(look_at) => self.arm_at(Timer::Pulse, look_at),
        }
    }
}
