//! The steps in which a transport is closed, each with its own grace. This module knows neither calls nor causes.

use core::time::Duration;

use crate::client::config::{Binding, Policy};

/// A close step. Each one is harder than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    /// The server's input is closed.
    CloseWrite,
    /// The process is asked to end.
    Terminate,
    /// The process is killed, or the connection is cut.
    Kill,
    /// The transport is released, whether or not its end was reported.
    Release,
}

impl Rung {
    /// The next harder step. A socket cannot be asked to end, so it skips `Terminate`.
    pub(super) const fn next(self, binding: Binding) -> Rung {
        match (self, binding) {
            (Rung::CloseWrite, Binding::Child) => Rung::Terminate,
            (Rung::CloseWrite, Binding::Socket) | (Rung::Terminate, _) => Rung::Kill,
            (Rung::CloseWrite, Binding::Http) | (Rung::Kill | Rung::Release, _) => Rung::Release,
        }
    }

    /// How long to wait for the end before the next step.
    pub(super) const fn grace(self, policy: &Policy) -> Duration {
        match self {
            Rung::CloseWrite => policy.close_grace,
            Rung::Terminate => policy.terminate_grace,
            Rung::Kill => policy.kill_grace,
            Rung::Release => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_only_gets_harder_and_ends() {
        for binding in [Binding::Child, Binding::Socket] {
            let mut rung = Rung::CloseWrite;
            for _ in 0..3 {
                let next = rung.next(binding);
                assert!(next > rung || next == Rung::Release);
                rung = next;
            }
            assert_eq!(rung, Rung::Release);
        }
        assert_eq!(Rung::CloseWrite.next(Binding::Socket), Rung::Kill);
    }
}
