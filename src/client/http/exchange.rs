//! One HTTP exchange: its purpose, its progress, and the part of its response that has arrived. It knows neither calls nor sessions, and decides
//! nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::frame::Frame;
use crate::client::config::Http;
use crate::driver::{CallId, Instant};
use crate::protocol::Version;
use crate::wire::SseReader;

/// How often in a row the stream of a request may be resumed without a new event. With the pauses in between, that takes half a minute.
pub(in crate::client) const STUCK: u32 = 5;

/// The purpose of an exchange.
#[derive(Debug)]
pub(in crate::client) enum Purpose {
    /// Ends this session, in which this version was agreed on.
    Farewell(Box<str>, Option<Version>),
    /// The stream for messages that a legacy server sends by itself.
    Listen,
    /// Carries a message that has no reply.
    Message,
    /// The only stream of the 2024-11-05 transport.
    Old,
    /// Carries the request with this wire id.
    Request(u64),
    /// Fetches the rest of the response to the request with this wire id. Without a cursor, the reply is expected on the listen stream, and nothing
    /// is fetched.
    Resume(u64),
    /// Nothing more is expected of it.
    Spent,
}

/// The content of an exchange, which can be sent again if the server turns it away.
#[derive(Debug)]
pub(in crate::client) enum Load {
    Call(CallId),
    /// A message of the link itself, and how often it was turned away.
    Frame(Frame, u32),
    None,
}

#[derive(Debug)]
pub(in crate::client) struct Exchange {
    pub(in crate::client) purpose: Purpose,
    pub(in crate::client) load: Load,
    pub(in crate::client) thread: Thread,
    /// Its position in the queue of exchanges that must begin, while it is in the queue.
    pub(in crate::client) due: Option<u64>,
    /// When the driver was told to begin it; `None` if it has not begun.
    pub(in crate::client) begun: Option<Instant>,
    /// The URL that it was sent to.
    pub(in crate::client) target: Box<str>,
    /// The bytes of its body that may not have been sent yet.
    pub(in crate::client) under_way: usize,
    /// How often bytes arrived that contain no event. Servers send such bytes as a keepalive.
    pub(in crate::client) beats: u32,
    /// The status of the response, once there is one.
    pub(in crate::client) status: Option<u16>,
    pub(in crate::client) body: Body,
    /// Whether its request names a session.
    pub(in crate::client) is_in_session: bool,
    /// The number of the credentials that it was begun with.
    pub(in crate::client) credentials: u64,
    /// The id of the session that the response opens.
    pub(in crate::client) opens: Option<Box<str>>,
    /// How long the server asks to wait.
    pub(in crate::client) retry_after: Option<Duration>,
}

impl Exchange {
    pub(in crate::client) fn new(purpose: Purpose, load: Load) -> Exchange {
        Exchange {
            purpose,
            load,
            thread: Thread::default(),
            due: None,
            begun: None,
            target: Box::default(),
            under_way: 0,
            beats: 0,
            status: None,
            body: Body::Ignored,
            is_in_session: false,
            credentials: 0,
            opens: None,
            retry_after: None,
        }
    }

    /// Creates an exchange without a message, which continues an earlier stream.
    pub(in crate::client) fn following(purpose: Purpose, thread: Thread) -> Exchange {
        Exchange {
            thread,
            ..Exchange::new(purpose, Load::None)
        }
    }

    /// The wire id of the request whose reply it brings.
    pub(in crate::client) const fn wire(&self) -> Option<u64> {
        match self.purpose {
            Purpose::Request(wire) | Purpose::Resume(wire) => Some(wire),
            Purpose::Farewell(..)
            | Purpose::Listen
            | Purpose::Message
            | Purpose::Old
            | Purpose::Spent => None,
        }
    }

    /// Whether it carries `notifications/initialized`.
    pub(in crate::client) fn ends_handshake(&self) -> bool {
        matches!(self.load, Load::Frame(Frame::Initialized, _))
    }

    pub(in crate::client) fn is_accepted(&self) -> bool {
        self.status.is_some_and(|status| status < 300)
    }

    /// Whether the server is busy and says how long to wait.
    pub(in crate::client) fn is_put_off(&self) -> bool {
        matches!(self.status, Some(429 | 503)) && self.retry_after.is_some()
    }

    pub(in crate::client) fn is_refused(&self) -> bool {
        self.status.is_some_and(|status| status >= 300)
    }

    /// Marks the exchange as spent, so that nothing more is expected of it. Returns what it was.
    pub(in crate::client) fn spend(&mut self) -> Exchange {
        core::mem::replace(
            self,
            Exchange {
                begun: self.begun,
                status: self.status,
                ..Exchange::new(Purpose::Spent, Load::None)
            },
        )
    }
}

/// The state of a stream that is kept from one exchange to the next when it is resumed (S-RES-06).
#[derive(Clone, Debug, Default)]
pub(in crate::client) struct Thread {
    /// The id of the last complete event.
    pub(in crate::client) cursor: Option<Box<str>>,
    /// The id of the event after which it was last resumed.
    pub(in crate::client) resumed_after: Option<Box<str>>,
    /// How often in a row it was resumed and ended again without a new event.
    pub(in crate::client) stuck: u32,
    /// The pause before a reconnect that the server asks for.
    pub(in crate::client) retry: Option<Duration>,
    /// How often in a row it brought nothing.
    pub(in crate::client) barren: u32,
    /// Whether it brought an event id since its last end, so that it can be resumed. Such a stream is requested with growing pauses, but not given
    /// up.
    pub(in crate::client) is_worth_it: bool,
    /// Whether the server ever opened it.
    pub(in crate::client) was_had: bool,
    /// How often it was refused for lack of credentials.
    pub(in crate::client) refusals: u32,
}

impl Thread {
    /// Records that the stream was useful.
    pub(in crate::client) fn bears(&mut self) {
        self.barren = 0;
    }

    /// Handles the end of a request's stream before its reply. `is_long`: it stayed open for long. Returns whether it has ended at the same event
    /// `STUCK` times in a row.
    pub(in crate::client) fn is_stuck(&mut self, is_long: bool) -> bool {
        if is_long || self.cursor != self.resumed_after {
            self.resumed_after.clone_from(&self.cursor);
            self.stuck = 0;
            self.bears();
        } else {
            self.stuck += 1;
        }
        self.stuck >= STUCK
    }

    /// Handles the end of the stream. Returns whether to give it up.
    pub(in crate::client) fn ended(&mut self, most: u32) -> bool {
        self.barren = self.barren.saturating_add(1);
        let is_worth_it = core::mem::take(&mut self.is_worth_it);
        self.barren > most && !is_worth_it
    }

    /// The pause before the stream is requested again: as the server says, within bounds (S-LHTTP-11). It doubles while the stream brings nothing.
    pub(in crate::client) fn pause(&self, http: &Http) -> Duration {
        let wanted = self.retry.unwrap_or(http.resume_after);
        let doublings = self.barren.saturating_sub(1).min(16);
        let growing = http.resume_after.saturating_mul(1 << doublings);
        let pause = if self.barren > 1 {
            wanted.max(growing)
        } else {
            wanted
        };
        pause.min(http.resume_most).max(http.resume_least)
    }
}

/// The body of a response, as far as it has arrived.
#[derive(Debug)]
pub(in crate::client) enum Body {
    Events(Box<SseReader>),
    /// The content does not matter.
    Ignored,
    Text(Text),
}

impl Body {
    pub(in crate::client) fn buffered(&self) -> usize {
        match self {
            Body::Events(reader) => reader.buffered(),
            Body::Ignored => 0,
            Body::Text(text) => text.bytes.len(),
        }
    }
}

/// A body that is a single text, in bounded memory.
#[derive(Default)]
pub(in crate::client) struct Text {
    pub(in crate::client) bytes: Vec<u8>,
    /// The number of bytes that arrived in all.
    pub(in crate::client) len: u64,
}

impl Text {
    /// Appends bytes. If the text becomes longer than the limit, nothing of it is kept.
    pub(in crate::client) fn push(&mut self, bytes: &[u8], limit: usize) {
        self.len += bytes.len() as u64;
        if self.len > limit as u64 {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether the text was longer than the limit.
    pub(in crate::client) fn is_too_long(&self) -> bool {
        self.len > self.bytes.len() as u64
    }
}

/// Leaves out the content, which may be secret.
impl core::fmt::Debug for Text {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Text({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Url;

    fn http() -> Http {
        Http::at(Url::parse("http://localhost/mcp").unwrap())
    }

    #[test]
    fn s_lhttp_11_the_pause_is_the_servers_within_reason() {
        for (retry, pause) in [
            (None, 1_000),
            (Some(500), 500),
            (Some(0), 250),
            (Some(86_400_000), 300_000),
        ] {
            let thread = Thread {
                retry: retry.map(Duration::from_millis),
                ..Thread::default()
            };
            assert_eq!(thread.pause(&http()), Duration::from_millis(pause));
        }
    }

    #[test]
    fn the_pause_grows_while_nothing_comes_of_it() {
        let mut thread = Thread::default();
        let pauses = [(); 12].map(|()| {
            thread.barren += 1;
            thread.pause(&http()).as_secs()
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        thread.bears();
        assert_eq!(thread.pause(&http()).as_secs(), 1);
    }

    #[test]
    fn a_thread_is_given_up_when_nothing_came_of_it_too_often_and_it_was_good_for_nothing() {
        let mut thread = Thread::default();
        assert_eq!([(); 3].map(|()| thread.ended(2)), [false, false, true]);
        thread.is_worth_it = true;
        assert!(!thread.ended(2));
        assert!(thread.ended(2), "that counts once");
        thread.bears();
        assert!(!thread.ended(2));
    }

    #[test]
    fn a_response_is_taken_below_300_and_refused_from_there() {
        for (status, is_accepted, is_refused) in [
            (None, false, false),
            (Some(200), true, false),
            (Some(299), true, false),
            (Some(300), false, true),
            (Some(404), false, true),
        ] {
            let exchange = Exchange {
                status,
                ..Exchange::new(Purpose::Message, Load::None)
            };
            let found = (exchange.is_accepted(), exchange.is_refused());
            assert_eq!(found, (is_accepted, is_refused), "{status:?}");
        }
    }

    #[test]
    fn what_is_spent_has_still_begun_and_has_its_response() {
        let mut exchange = Exchange {
            begun: Some(Instant::ZERO),
            status: Some(202),
            ..Exchange::new(Purpose::Request(1), Load::None)
        };
        let spent = exchange.spend();
        assert_eq!((spent.wire(), exchange.wire()), (Some(1), None));
        assert_eq!(exchange.begun, Some(Instant::ZERO));
        assert_eq!(exchange.status, Some(202));
    }

    #[test]
    fn a_body_is_not_shown() {
        let mut text = Text::default();
        text.push(b"secret", 8);
        assert_eq!(alloc::format!("{text:?}"), "Text(6 bytes)");
    }

    #[test]
    fn a_text_that_is_too_long_is_not_kept() {
        let mut text = Text::default();
        text.push(b"1234", 8);
        assert!(!text.is_too_long());
        text.push(b"5678", 8);
        assert_eq!(text.bytes, b"12345678", "as much as may be");
        text.push(b"9", 8);
        assert!(text.is_too_long() && text.bytes.is_empty());
        text.push(b"0", 8);
        assert_eq!((text.len, text.bytes.len()), (10, 0));
    }
}
