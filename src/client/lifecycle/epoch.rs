//! What is recorded of one epoch: when it began, what went wrong, and how it ended. It decides nothing but how the end is judged.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::close_steps::CloseStep;
use super::retry::Outlook;
use super::stderr::Tail;
use crate::client::config::Limits;
use crate::client::failure::{Cause, Ended};
use crate::driver::{Epoch, ExitStatus, Fault, FaultKind, Instant};
use crate::util::noise::NoiseMeter;

/// The number of faults that are kept for each epoch; more are only counted.
const FAULTS_KEPT: usize = 16;

/// The state of the present transport.
#[derive(Debug)]
pub(super) struct EpochRecord {
    pub(super) epoch: Epoch,
    pub(super) noise: NoiseMeter,
    pub(super) stderr: Tail,
    pub(super) close_step: CloseStep,
    pub(super) began: Instant,
    pub(super) opened_at: Option<Instant>,
    pub(super) ready_at: Option<Instant>,
    pub(super) left_ready_at: Option<Instant>,
    pub(super) cause: Option<Cause>,
    /// The server's reply to the first handshake request, if both were tried.
    pub(super) first_try: Option<Box<str>>,
    pub(super) faults: Vec<Fault>,
    pub(super) more_faults: u32,
    pub(super) exit: Option<ExitStatus>,
    /// Whether a fault was reported that is more than an orderly end.
    pub(super) is_faulty: bool,
    /// Whether it was ready for long enough to reset the failure count.
    pub(super) was_good: bool,
    /// Whether the server replied to a call.
    pub(super) was_useful: bool,
}

impl EpochRecord {
    pub(super) fn new(epoch: Epoch, now: Instant, limits: &Limits) -> EpochRecord {
        EpochRecord {
            epoch,
            noise: NoiseMeter::default(),
            stderr: Tail::new(limits.stderr_tail),
            close_step: CloseStep::CloseWrite,
            began: now,
            opened_at: None,
            ready_at: None,
            left_ready_at: None,
            cause: None,
            first_try: None,
            faults: Vec::new(),
            more_faults: 0,
            exit: None,
            is_faulty: false,
            was_good: false,
            was_useful: false,
        }
    }

    pub(super) fn note(&mut self, faults: &[Fault]) {
        let room = FAULTS_KEPT - self.faults.len();
        self.faults.extend(faults.iter().take(room).cloned());
        let surplus = faults.len().saturating_sub(room);
        let surplus = u32::try_from(surplus).unwrap_or(u32::MAX);
        self.more_faults = self.more_faults.saturating_add(surplus);
        self.is_faulty |= faults.iter().any(|fault| !fault.kind().only_says_closed());
    }

    /// Whether this end counts against the retry budget: it was not intended, or a fault occurred on the way.
    fn counts(&self, abandoned: bool) -> bool {
        // Servers drop old sessions, and that is normal. A server that drops a session soon is broken.
        let is_forgotten = self.cause == Some(Cause::SessionLost) && self.was_good;
        let planned = is_forgotten || self.cause.as_ref().is_some_and(Cause::is_planned);
        !planned || self.is_faulty || abandoned
    }

    /// The report about this epoch, as far as it is known.
    pub(super) fn story(&self, now: Instant, abandoned: bool) -> Ended {
        Ended {
            epoch: self.epoch,
            cause: self.cause.clone().unwrap_or(Cause::Died),
            first_try: self.first_try.clone(),
            faults: self.faults.clone(),
            more_faults: self.more_faults,
            exit: self.exit,
            stderr: self.stderr.text(),
            lived: now.since(self.began),
            ready_for: self.ready_at.map(|since| {
                let until = self.left_ready_at.unwrap_or(now);
                until.since(since)
            }),
            abandoned,
            counted: self.counts(abandoned),
        }
    }
}

/// What kind of server a binding reaches.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct ServerKind {
    /// It is a process that the driver started.
    pub(in crate::client) is_process: bool,
    /// Its address may not exist before it starts.
    pub(in crate::client) appears_later: bool,
}

/// Judges from the end of an epoch whether another attempt can succeed.
pub(super) fn outlook(ended: &Ended, server: ServerKind) -> Outlook {
    let is_to_come = |kind| server.appears_later && kind == FaultKind::NotFound;
    let is_lasting = |fault: &Fault| fault.kind().is_lasting() && !is_to_come(fault.kind());
    match ended.cause {
        Cause::OpenFailed | Cause::Unreachable if ended.faults.iter().any(is_lasting) => {
            Outlook::Hopeless
        }
        // The server replied, and it refuses.
        Cause::HandshakeRefused { .. } => Outlook::Hopeless,
        Cause::Died if server.is_process => Outlook::Poor,
        Cause::AskedTo { .. }
        | Cause::Died
        | Cause::EraProbe
        | Cause::HandshakeTimedOut
        | Cause::Noise
        | Cause::OpenFailed
        | Cause::OpenTimedOut
        | Cause::SessionLost
        | Cause::Shutdown
        | Cause::Unauthorized
        | Cause::Unavailable { .. }
        | Cause::Unreachable
        | Cause::Unresponsive { .. } => Outlook::Fair,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> EpochRecord {
        EpochRecord::new(Epoch::FIRST, Instant::ZERO, &Limits::small())
    }

    #[test]
    fn first_sixteen_faults_are_kept_and_the_others_counted() {
        let mut record = record();
        for (more, kept, counted) in [(10, 10, 0), (6, 16, 0), (3, 16, 3), (1, 16, 4)] {
            let faults: Vec<Fault> = (0..more).map(|_| Fault::new(FaultKind::Reset)).collect();
            record.note(&faults);
            assert_eq!((record.faults.len(), record.more_faults), (kept, counted));
        }
    }

    #[test]
    fn planned_end_counts_once_there_was_any_real_fault() {
        use FaultKind::{BrokenPipe, Closed, Read};
        for (faults, counts) in [
            (&[][..], false),
            (&[Closed, BrokenPipe], false),
            (&[Read], true),
            (&[Read, Closed], true),
            (&[Read, Read], true),
        ] {
            let mut record = record();
            record.cause = Some(Cause::Shutdown);
            for kind in faults {
                record.note(&[Fault::new(*kind)]);
            }
            let story = record.story(Instant::ZERO, false);
            assert_eq!(story.counted, counts, "{faults:?}");
        }
    }

    #[test]
    fn outlook_depends_on_the_cause_the_fault_and_the_kind_of_server() {
        use FaultKind::{NotFound, PermissionDenied, Refused};
        use Outlook::{Fair, Hopeless, Poor};
        let process = ServerKind {
            is_process: true,
            appears_later: false,
        };
        let socket = ServerKind {
            is_process: false,
            appears_later: true,
        };
        let web = ServerKind {
            is_process: false,
            appears_later: false,
        };
        for (cause, fault, of_process, of_socket, of_web) in [
            (Cause::OpenFailed, Refused, Fair, Fair, Fair),
            // The file of a socket appears when its server starts. Nothing else comes by itself.
            (Cause::OpenFailed, NotFound, Hopeless, Fair, Hopeless),
            (
                Cause::OpenFailed,
                PermissionDenied,
                Hopeless,
                Hopeless,
                Hopeless,
            ),
            // A process that ends by itself may do so again and again.
            (Cause::Died, Refused, Poor, Fair, Fair),
            (Cause::HandshakeTimedOut, NotFound, Fair, Fair, Fair),
        ] {
            let mut record = record();
            record.cause = Some(cause.clone());
            record.note(&[Fault::new(fault)]);
            let ended = record.story(Instant::ZERO, false);
            let all = [process, socket, web].map(|server| outlook(&ended, server));
            assert_eq!(all, [of_process, of_socket, of_web], "{cause:?} {fault:?}");
        }
    }
}
