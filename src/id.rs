//! Names for what a link handles. Counters: never an index, never reused, harmless when stale.

use core::fmt;

// `Debug` says the name of the type, `Display` the word that a person knows.
macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $word:literal, shown as $shown:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The number, for logs and for keys of your own.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0
            }

            #[allow(dead_code, reason = "not every counter is advanced from every room")]
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
    /// One question of the server to the client.
    AskId, "ask", shown as "question"
}

counter! {
    /// One request of the application. The same through every resend.
    CallId, "call", shown as "call"
}

counter! {
    /// One life of the transport: one child process, one connection. Epoch 0 is before the first.
    Epoch, "epoch", shown as "connection"
}

counter! {
    /// One request of a client, as the server end calls it. The same through every round of it.
    RequestId, "request", shown as "request"
}

counter! {
    /// One ordered byte channel in an epoch.
    StreamId, "stream", shown as "stream"
}

impl Epoch {
    /// Before the first transport was asked for.
    pub const NONE: Epoch = Epoch(0);

    /// The first one. A server end has no other: it lives as long as its transport.
    pub const FIRST: Epoch = Epoch(1);

    pub(crate) const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl StreamId {
    /// The stream of this number, for a driver that finds streams by itself.
    #[must_use]
    pub const fn new(number: u64) -> StreamId {
        StreamId(number)
    }

    /// The one stream of a byte-stream binding: a child's stdin and stdout, or a socket.
    pub const DUPLEX: StreamId = StreamId(0);
}
