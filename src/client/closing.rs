//! The ladder by which a transport is taken down: each rung a command, each with its grace.
//! Sees no calls and no reasons.

use core::time::Duration;

use crate::config::{Binding, Policy};

/// How far the taking down has come. Each rung is harder than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    /// The server was told that no more input comes.
    CloseWrite,
    /// The process was asked to end.
    Terminate,
    /// It was killed.
    Kill,
    /// It is let go.
    Release,
}

impl Rung {
    /// The next harder one. A socket cannot be asked to end.
    pub(super) const fn next(self, binding: Binding) -> Rung {
        match (self, binding) {
            (Rung::CloseWrite, Binding::Child) => Rung::Terminate,
            (Rung::CloseWrite, Binding::Socket) | (Rung::Terminate, _) => Rung::Kill,
            (Rung::CloseWrite, Binding::Http) | (Rung::Kill | Rung::Release, _) => Rung::Release,
        }
    }

    /// How long to wait here for the end before going on.
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
