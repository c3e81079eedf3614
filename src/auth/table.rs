//! The transition table of an authorizer: the state that follows each state on each cue. It knows no documents, tokens or time. The caller
//! decides when a cue is due.

use core::fmt;

/// The state of an [`Authorizer`](super::Authorizer).
///
/// ```text
#[doc = include_str!("table.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It reads the store.
    Loading,
    /// There are no tokens, and nothing is under way.
    SignedOut,
    /// There are tokens. The access token may have expired; then it is renewed when it is wanted.
    SignedIn,
    /// It waits for the lock of the record, to renew the token.
    Locking,
    /// It asks for a new access token with the refresh token.
    Refreshing,
    /// It reads the metadata of the server.
    Resource,
    /// It reads the metadata of the authorization server.
    Issuer,
    /// It waits for the lock of the sign-in: another process may be signing in.
    Queueing,
    /// It waits for the redirect URI and the random texts.
    Preparing,
    /// It registers the client.
    Registering,
    /// It waits for a person who signs in with a browser.
    Asking,
    /// It asks for a device code.
    Starting,
    /// It waits for a person who signs in on another device.
    Polling,
    /// It waits for a token that the driver signs or reads.
    Proving,
    /// It exchanges the user's identity token at the identity provider.
    Exchanging,
    /// It asks for tokens.
    Redeeming,
    /// It waits for the lock of the record, to store the tokens.
    Storing,
    /// It saves the record.
    Saving,
    /// It waits for the lock of the record, to delete the tokens.
    SigningOut,
    /// It deletes the record.
    Deleting,
    /// It revokes the tokens.
    Revoking,
}

/// A reason to move from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cue {
    /// The store may have tokens that this process does not know yet.
    Reload,
    /// What was under way has ended, and there are tokens.
    Usable,
    /// What was under way has ended, and there are no tokens.
    Nothing,
    /// The token must be renewed.
    Renew,
    /// The refresh token can be used.
    Refresh,
    /// A sign-in begins.
    SignIn,
    /// The server's metadata was read, or there is none.
    ResourceKnown,
    /// The authorization server is known.
    IssuerKnown,
    /// This process has the turn to sign in.
    Turn,
    /// The client has no identity at this authorization server.
    Unregistered,
    /// A person must sign in with a browser.
    Ask,
    /// A person must sign in on another device.
    AskElsewhere,
    /// The code for the other device came.
    Code,
    /// A token of the driver is needed first.
    Prove,
    /// The identity token came.
    Exchange,
    /// There is something that can be exchanged for tokens.
    Redeem,
    /// Tokens came.
    Tokens,
    /// The lock is held: save now.
    Save,
    /// The tokens must be deleted.
    SignOut,
    /// The lock is held: delete now.
    Delete,
    /// The record is deleted: revoke the tokens.
    Revoke,
}

impl State {
    /// Whether nothing is under way.
    #[must_use]
    pub const fn is_idle(self) -> bool {
        matches!(self, State::SignedOut | State::SignedIn)
    }

    /// Whether a person must act.
    #[must_use]
    pub const fn awaits_person(self) -> bool {
        matches!(self, State::Asking | State::Polling)
    }

    /// Whether a sign-in is under way, from its begin to the moment when tokens came.
    #[must_use]
    pub const fn is_signing_in(self) -> bool {
        matches!(
            self,
            State::Resource
                | State::Issuer
                | State::Queueing
                | State::Preparing
                | State::Registering
                | State::Asking
                | State::Starting
                | State::Polling
                | State::Proving
                | State::Exchanging
                | State::Redeeming
        )
    }

    /// Whether a sign-out is under way.
    const fn is_signing_out(self) -> bool {
        matches!(self, State::SigningOut | State::Deleting | State::Revoking)
    }

    /// Returns the next state, or `None` if the cue does not apply.
    #[must_use]
    pub const fn next(self, cue: Cue) -> Option<State> {
        use State::{
            Asking, Deleting, Exchanging, Issuer, Loading, Locking, Polling, Preparing, Proving,
            Queueing, Redeeming, Refreshing, Registering, Resource, Revoking, Saving, SignedIn,
            SignedOut, SigningOut, Starting, Storing,
        };
        Some(match (self, cue) {
            (SignedOut | SignedIn, Cue::Reload) => Loading,
            (SignedIn, Cue::Renew) => Locking,
            (Locking | Proving, Cue::Refresh) => Refreshing,
            (SignedOut | SignedIn | Locking | Refreshing | Saving, Cue::SignIn) => Resource,
            (Resource, Cue::ResourceKnown) => Issuer,
            (Resource | Issuer, Cue::IssuerKnown) => Queueing,
            // After an identity that was refused, the sign-in is prepared again for another one.
            (Queueing | Asking | Starting | Redeeming, Cue::Turn) => Preparing,
            (Preparing, Cue::Unregistered) => Registering,
            (Preparing | Registering, Cue::Ask) => Asking,
            (Preparing | Registering, Cue::AskElsewhere) => Starting,
            (Starting, Cue::Code) => Polling,
            // After a nonce was demanded, the client proves its identity again.
            (
                Preparing | Registering | Asking | Exchanging | Locking | Proving | Redeeming
                | Refreshing,
                Cue::Prove,
            ) => Proving,
            (Proving, Cue::Exchange) => Exchanging,
            (Preparing | Registering | Asking | Proving | Exchanging, Cue::Redeem) => Redeeming,
            (Polling | Redeeming, Cue::Tokens) => Storing,
            (Storing | Refreshing, Cue::Save) => Saving,
            (_, Cue::SignOut) if !self.is_signing_out() => SigningOut,
            (SigningOut, Cue::Delete) => Deleting,
            (Deleting, Cue::Revoke) => Revoking,
            // Any step can fail. Then the tokens that there are stay in use.
            (_, Cue::Usable) => SignedIn,
            (_, Cue::Nothing) => SignedOut,
            (_, _) => return None,
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Loading => "reading the store",
            State::SignedOut => "signed out",
            State::SignedIn => "signed in",
            State::Locking => "waiting for the store",
            State::Refreshing => "renewing the token",
            State::Resource => "reading the metadata of the server",
            State::Issuer => "reading the metadata of the authorization server",
            State::Queueing => "waiting for the sign-in of another process",
            State::Preparing => "preparing the sign-in",
            State::Registering => "registering the client",
            State::Asking | State::Polling => "waiting for a person to sign in",
            State::Starting => "asking for a device code",
            State::Proving => "waiting for a proof of identity",
            State::Exchanging => "asking the identity provider",
            State::Redeeming => "asking for a token",
            State::Storing | State::Saving => "storing the tokens",
            State::SigningOut | State::Deleting => "deleting the tokens",
            State::Revoking => "revoking the tokens",
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    const STATES: [State; 21] = [
        State::Loading,
        State::SignedOut,
        State::SignedIn,
        State::Locking,
        State::Refreshing,
        State::Resource,
        State::Issuer,
        State::Queueing,
        State::Preparing,
        State::Registering,
        State::Asking,
        State::Starting,
        State::Polling,
        State::Proving,
        State::Exchanging,
        State::Redeeming,
        State::Storing,
        State::Saving,
        State::SigningOut,
        State::Deleting,
        State::Revoking,
    ];

    const CUES: [Cue; 18] = [
        Cue::Reload,
        Cue::Renew,
        Cue::Refresh,
        Cue::SignIn,
        Cue::ResourceKnown,
        Cue::IssuerKnown,
        Cue::Turn,
        Cue::Unregistered,
        Cue::Ask,
        Cue::AskElsewhere,
        Cue::Code,
        Cue::Prove,
        Cue::Exchange,
        Cue::Redeem,
        Cue::Tokens,
        Cue::Save,
        Cue::Delete,
        Cue::Revoke,
    ];

    #[test]
    fn diagram_in_the_docs_is_this_table() {
        let mut lines: Vec<String> = [format!("{:<12} {:<14} to", "from", "on")].into();
        for from in STATES {
            for cue in CUES {
                if let Some(to) = from.next(cue) {
                    let (from, cue) = (format!("{from:?}"), format!("{cue:?}"));
                    lines.push(format!("{from:<12} {cue:<14} {to:?}"));
                }
            }
        }
        lines.push(format!("{:<12} {:<14} SignedIn", "any", "Usable"));
        lines.push(format!("{:<12} {:<14} SignedOut", "any", "Nothing"));
        lines.push(format!("{:<12} {:<14} SigningOut", "any other", "SignOut"));
        let drawn: Vec<&str> = include_str!("table.txt").lines().collect();
        assert_eq!(drawn, lines, "\n{}\n", lines.join("\n"));
    }

    #[test]
    fn any_state_can_end_and_be_signed_out_of() {
        for state in STATES {
            assert_eq!(state.next(Cue::Usable), Some(State::SignedIn));
            assert_eq!(state.next(Cue::Nothing), Some(State::SignedOut));
            let leaves = state.next(Cue::SignOut) == Some(State::SigningOut);
            assert_eq!(leaves, !state.is_signing_out(), "{state:?}");
        }
    }

    #[test]
    fn a_sign_out_does_not_begin_again_while_one_is_under_way() {
        for state in [State::SigningOut, State::Deleting, State::Revoking] {
            assert_eq!(state.next(Cue::SignOut), None, "{state:?}");
        }
    }

    #[test]
    fn tokens_are_stored_only_under_the_lock() {
        for from in STATES {
            if from.next(Cue::Save).is_some() {
                assert!(matches!(from, State::Storing | State::Refreshing));
            }
        }
    }
}
