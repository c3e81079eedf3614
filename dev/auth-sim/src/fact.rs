//! The log of the world: everything that happened outside of the machines. The oracle judges it.

use everlink::auth::{Key, Lock};

use crate::mark::Mark;

/// The number of a process.
pub(crate) type Pid = usize;

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Fact<'a> {
    /// A process began.
    Started,
    /// A process died. Its locks are free.
    Crashed,
    /// A request left the process: its URL, its header fields and its body.
    Sent { url: &'a str, text: &'a str },
    /// The process no longer waits for the answer to its request.
    Aborted,
    /// An answer with tokens reached the process that waits for it.
    TokensCame { access: Mark, refresh: Option<Mark> },
    /// An answer reached the process that ends the grant of this refresh token.
    GrantEnded { refresh: Mark },
    /// The authorization server began a family.
    Issued { family: usize },
    /// The authorization server replaced a refresh token by the next one.
    Rotated { from: Mark },
    /// Somebody sent a refresh token that was replaced before. The family is revoked.
    Reused { token: Mark },
    /// The grant was revoked, not because of a reuse.
    Revoked { family: usize },
    /// The server uses this authorization server from now on.
    Moved { issuer: usize },
    /// An access to the store failed.
    StoreFailed { is_save: bool },
    /// The process read a record, perhaps under a lock.
    Read {
        lock: Option<Lock>,
        record: Option<&'a [u8]>,
    },
    /// The process replaced a record.
    Saved { key: &'a Key, record: &'a [u8] },
    /// The process deleted a record.
    Deleted { key: &'a Key },
    /// The process opened a browser.
    Visited { url: &'a str },
    /// The server refused a call of the process.
    Challenged {
        token: Option<Mark>,
        is_step_up: bool,
    },
    /// The server accepted a call.
    CallSucceeded,
    /// The application asked for a token.
    SignInWanted,
    /// The application signed out.
    SignOutWanted,
    /// The authorizer reported a token.
    Authorized,
    /// The authorizer reported that there is none.
    Refused,
    /// The process has nothing more to do now.
    Rested {
        is_idle: bool,
        has_deadline: bool,
        /// How often this deadline was reached without effect.
        spins: u32,
        /// How many locks it holds or waits for.
        locks: usize,
        is_redirect_open: bool,
    },
    /// The wall clock jumped, or the computer slept.
    TimeJumped,
    /// All faults are over. From now on, everybody does as expected.
    FaultsEnded,
    /// The last chance is over: whether the process got a token.
    Finished { has_token: bool },
}
