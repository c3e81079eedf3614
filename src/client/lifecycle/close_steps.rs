//! The steps in which a transport is closed, each with its own grace. This module knows no calls.

use core::time::Duration;

use crate::client::config::{BindingKind, Policy};
use crate::client::failure::{Cause, Sign};
use crate::driver::LAST_WORDS;

/// A close step. Each one is harder than the one before. `LastWords` is the first one if a child process ended by itself. Otherwise `CloseWrite` is
/// the first one if the server can be expected to end by itself.
///
/// ```text
#[doc = include_str!("close_steps.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::client) enum CloseStep {
    /// The output of a child process has ended, or the process has exited, and the other of the two is awaited. The server's input is closed, its
    /// last output is still read, and requests in flight are not lost yet.
    LastWords,
    /// The server's input is closed.
    CloseWrite,
    /// The process is asked to end.
    Terminate,
    /// The process is killed, or the connection is cut.
    Kill,
    /// The transport is released, whether or not its end was reported.
    Release,
}

impl CloseStep {
    /// Chooses the first close step: gentle if the server can be expected to end by itself.
    pub(in crate::client) const fn first(
        cause: &Cause,
        is_open: bool,
        binding: BindingKind,
    ) -> CloseStep {
        let is_gentle = match cause {
            Cause::AskedTo { .. }
            | Cause::Died
            | Cause::EraProbe
            | Cause::HandshakeRefused { .. }
            | Cause::OpenFailed
            | Cause::SessionLost
            | Cause::Shutdown
            | Cause::Unauthorized
            | Cause::Unavailable { .. }
            | Cause::Unreachable => is_open,
            Cause::HandshakeTimedOut
            | Cause::Noise
            | Cause::OpenTimedOut
            | Cause::Unresponsive { .. } => false,
        };
        let is_stopped = matches!(
            cause,
            Cause::Unresponsive {
                sign: Sign::Stopped,
                ..
            }
        );
        match binding {
            BindingKind::Http => CloseStep::CloseWrite,
            // A stopped process does not handle `SIGTERM`.
            BindingKind::Child if is_stopped => CloseStep::Kill,
            BindingKind::Child | BindingKind::Socket if is_gentle => CloseStep::CloseWrite,
            BindingKind::Child => CloseStep::Terminate,
            BindingKind::Socket => CloseStep::Kill,
        }
    }

    /// The next harder step. A socket cannot be asked to end, so it skips `Terminate`.
    pub(in crate::client) const fn next(self, binding: BindingKind) -> CloseStep {
        match (self, binding) {
            (CloseStep::LastWords, _) => CloseStep::CloseWrite,
            (CloseStep::CloseWrite, BindingKind::Child) => CloseStep::Terminate,
            (CloseStep::CloseWrite, BindingKind::Socket) | (CloseStep::Terminate, _) => {
                CloseStep::Kill
            }
            (CloseStep::CloseWrite, BindingKind::Http)
            | (CloseStep::Kill | CloseStep::Release, _) => CloseStep::Release,
        }
    }

    /// How long to wait for the end before the next step.
    pub(in crate::client) const fn grace(self, policy: &Policy) -> Duration {
        match self {
            CloseStep::LastWords => LAST_WORDS,
            CloseStep::CloseWrite => policy.close_grace,
            CloseStep::Terminate => policy.terminate_grace,
            CloseStep::Kill => policy.kill_grace,
            CloseStep::Release => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn diagram_in_the_docs_is_this_table() {
        let bindings = [
            ("child", BindingKind::Child, CloseStep::LastWords),
            ("socket", BindingKind::Socket, CloseStep::CloseWrite),
            ("http", BindingKind::Http, CloseStep::CloseWrite),
        ];
        let mut lines: Vec<String> = [format!("{:<8} {:<12} to", "binding", "from")].into();
        for (name, binding, first) in bindings {
            let mut from = first;
            while from != CloseStep::Release {
                let to = from.next(binding);
                lines.push(format!("{name:<8} {:<12} {to:?}", format!("{from:?}")));
                from = to;
            }
        }
        let drawn: Vec<&str> = include_str!("close_steps.txt").lines().collect();
        assert_eq!(drawn, lines);
    }

    #[test]
    fn the_ladder_only_gets_harder_and_ends() {
        for binding in [BindingKind::Child, BindingKind::Socket] {
            let mut close_step = CloseStep::CloseWrite;
            for _ in 0..3 {
                let next = close_step.next(binding);
                assert!(next > close_step || next == CloseStep::Release);
                close_step = next;
            }
            assert_eq!(close_step, CloseStep::Release);
        }
        assert_eq!(
            CloseStep::CloseWrite.next(BindingKind::Socket),
            CloseStep::Kill
        );
    }
}
