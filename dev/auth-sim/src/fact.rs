//! The log of the world: everything that happened outside of the machines. The oracle judges it.

use std::fmt;

use everlink::auth::{Key, Lock};

use crate::mark::{Kind, Mark};

/// The number of a process.
pub(crate) type Pid = usize;

/// A kind of access to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Lock,
    Save,
}

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
    StoreFailed { access: Access },
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

/// A line of a trace. Of records and requests, only the tokens are shown.
impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = |record: Option<&[u8]>| {
            let access = Mark::find_in(record, Kind::Access);
            let refresh = Mark::find_in(record, Kind::Refresh);
            let show = |mark: Option<Mark>| mark.map_or("none".into(), |mark| mark.to_string());
            format!("access {} refresh {}", show(access), show(refresh))
        };
        match self {
            Fact::Sent { url, text } => write!(f, "Sent {url}: {}", tokens(Some(text.as_bytes()))),
            Fact::Read { lock, record } => write!(f, "Read under {lock:?}: {}", tokens(*record)),
            Fact::Saved { key, record } => {
                let is_place = matches!(key, Key::Server { .. });
                let what = if is_place {
                    "the place".into()
                } else {
                    tokens(Some(record))
                };
                write!(f, "Saved {what}")
            }
            Fact::Visited { .. } => f.write_str("Visited"),
            other => write!(f, "{other:?}"),
        }
    }
}
