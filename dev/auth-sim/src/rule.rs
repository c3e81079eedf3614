//! The rules of the oracle.

use everlink_simulation::script_enum;

script_enum! {
    /// The rules.
    pub enum Rule {
        /// No family of tokens is lost by our fault. A family may be revoked for the reuse of a token only if the renewal that replaced the token
        /// never reached the store. There are five such cases: its answer did not arrive in time; the process died between the renewal and the save;
        /// the store failed to save four times in a row; the store failed to lock eight times in a row, and a process had to go on without;
        /// or the application signed out before the save.
        FamilyIsKept = "rule 1 (FamilyIsKept)",
        /// No browser is opened while the store has a refresh token that works, and that the process read when it had its turn to sign in.
        /// Except for a wider scope, when the server refused a token that the process had renewed within ten minutes, or when the process
        /// has signed out of that refresh token and the store could not delete it.
        NoNeedlessSignIn = "rule 2 (NoNeedlessSignIn)",
        /// No token, code or verifier is sent to an origin to which it does not belong.
        SecretsStayHome = "rule 3 (SecretsStayHome)",
        /// One flow per challenge: refusals of one token cause at most one renewal and one sign-in, and get one outcome.
        /// A jump of the clocks or a sleep in between can end a new token, and allows one more. So does a refusal of the token during a sign-in for a wider scope.
        OneFlow = "rule 4 (OneFlow)",
        /// No process waits without a deadline, and none has a lock or an open redirect while it is idle.
        NoEndlessWait = "rule 5 (NoEndlessWait)",
        /// A refresh token that was answered is never sent again by a process that could know.
        TokenIsSpentOnce = "rule 6 (TokenIsSpentOnce)",
        /// Transient faults delete nothing from the store, and nothing that another process wrote is deleted or replaced by something older.
        NothingIsForgotten = "rule 7 (NothingIsForgotten)",
        /// At most three sign-ins begin without a token that lived, besides one for which the application has asked. One more is
        /// accepted if clocks jumped or the store failed, because then it is not clear from outside when a token has lived.
        FewSignIns = "rule 8 (FewSignIns)",
        /// When all faults are over, every process gets a token, with at most one sign-in of all together.
        Recovers = "rule 9 (Recovers)",
        /// The number of exchanges in an hour is bounded, and a deadline does not stay due.
        NoHotLoop = "rule 10 (NoHotLoop)",
        /// Nothing panics.
        NoPanic = "rule 11 (NoPanic)",
        /// The same script gives the same run.
        SameRun = "rule 12 (SameRun)",
    }
}
