//! Ids for the things that a link handles. Each id is a counter: it is never an index and never reused, so a stale id is harmless.

use core::fmt;

// `Debug` shows the name of the type, `Display` the word that a user knows.
macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $word:literal, shown as $shown:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The number, for logs and for your own keys.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0
            }

            #[allow(dead_code, reason = "not every module creates every kind of id")]
            pub(crate) const fn from_number(number: u64) -> Self {
                Self(number)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($shown, " {}"), self.0)
            }
        }
    };
}

counter! {
    /// One ask: a request of the server to the client.
    AskId, "ask", shown as "question"
}

counter! {
    /// One request of the application. It keeps its id when it is sent again.
    CallId, "call", shown as "call"
}

counter! {
    /// The lifetime of one transport: one child process, one connection. Epoch 0 is before the first.
    Epoch, "epoch", shown as "connection"
}

counter! {
    /// One question of a server to the store that its driver keeps. The answer names it.
    LookupId, "lookup", shown as "look-up"
}

counter! {
    /// One request of a client, as the server's end names it. It keeps its id through all its rounds.
    RequestId, "request", shown as "request"
}

counter! {
    /// One ordered byte channel in an epoch.
    StreamId, "stream", shown as "stream"
}

impl Epoch {
    /// The epoch before the first transport is opened.
    pub const NONE: Epoch = Epoch(0);

    /// The first epoch. A server's end has no other, because it ends with its transport.
    pub const FIRST: Epoch = Epoch(1);

    pub(crate) const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl StreamId {
    /// The stream with this number, for a driver that numbers streams itself.
    #[must_use]
    pub const fn new(number: u64) -> StreamId {
        StreamId(number)
    }

    /// The one stream of a byte-stream binding: a child's stdin and stdout, or a socket.
    pub const DUPLEX: StreamId = StreamId(0);
}
