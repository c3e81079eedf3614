//! One HTTP exchange: its kind, its progress, and the part of its response that has arrived. It knows neither calls nor sessions, and decides
//! nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::Load;
use super::phase::{Phase, PhaseCue};
use crate::client::config::Http;
use crate::driver::Instant;
use crate::protocol::Version;
use crate::wire::SseReader;

/// How often in a row the stream of a request may be resumed without a new event. With the pauses in between, that takes half a minute.
pub(super) const STUCK: u32 = 5;

/// The kind of an exchange.
#[derive(Debug)]
pub(super) enum ExchangeKind {
    /// Ends this session, in which this version was agreed on.
    DeleteSession(Box<str>, Option<Version>),
    /// The stream for messages that a legacy server sends by itself.
    Listen,
    /// Carries a message that has no reply.
    Message,
    /// The only stream of the 2024-11-05 transport.
    OldStream,
    /// Carries the request with this wire id.
    Request(u64),
    /// Fetches the rest of the response to the request with this wire id. Without a cursor, the reply is expected on the listen stream, and nothing
    /// is fetched.
    Resume(u64),
    /// Nothing more is expected of it.
    Spent,
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) kind: ExchangeKind,
    pub(super) load: Load,
    pub(super) phase: Phase,
    pub(super) resume: ResumeState,
    /// Its position in the queue of exchanges that must begin, while it is in the queue.
    pub(super) due: Option<u64>,
    /// When the driver was told to begin it; `None` if it has not begun.
    pub(super) begun: Option<Instant>,
    /// The URL that it was sent to.
    pub(super) target: Box<str>,
    /// The bytes of its body that may not have been sent yet.
    pub(super) under_way: usize,
    /// How often bytes arrived that contain no event. Servers send such bytes as a keepalive.
    pub(super) keepalives: u32,
    /// The status of the response, once there is one.
    pub(super) status: Option<u16>,
    pub(super) body: Body,
    /// Whether its request names a session.
    pub(super) is_in_session: bool,
    /// The number of the credentials that it was begun with.
    pub(super) credentials: u64,
    /// The id of the session that the response opens.
    pub(super) opens: Option<Box<str>>,
    /// How long the server asks to wait.
    pub(super) retry_after: Option<Duration>,
}

impl Exchange {
    pub(super) fn new(kind: ExchangeKind, load: Load) -> Exchange {
        Exchange {
            kind,
            load,
            phase: Phase::Planned,
            resume: ResumeState::default(),
            due: None,
            begun: None,
            target: Box::default(),
            under_way: 0,
            keepalives: 0,
            status: None,
            body: Body::Ignored,
            is_in_session: false,
            credentials: 0,
            opens: None,
            retry_after: None,
        }
    }

    /// Creates an exchange without a message, which continues an earlier stream.
    pub(super) fn following(kind: ExchangeKind, resume: ResumeState) -> Exchange {
        Exchange {
            resume,
            ..Exchange::new(kind, Load::None)
        }
    }

    /// The wire id of the request whose reply it brings.
    pub(super) const fn wire(&self) -> Option<u64> {
        match self.kind {
            ExchangeKind::Request(wire) | ExchangeKind::Resume(wire) => Some(wire),
            ExchangeKind::DeleteSession(..)
            | ExchangeKind::Listen
            | ExchangeKind::Message
            | ExchangeKind::OldStream
            | ExchangeKind::Spent => None,
        }
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.status.is_some_and(|status| status < 300)
    }

    /// Whether the server is busy and says how long to wait.
    pub(super) fn is_to_retry_later(&self) -> bool {
        matches!(self.status, Some(429 | 503)) && self.retry_after.is_some()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.status.is_some_and(|status| status >= 300)
    }

    /// Moves to the phase that follows on this cue, if there is one.
    pub(super) fn step(&mut self, cue: PhaseCue) {
        self.phase = self.phase.next(cue).unwrap_or(self.phase);
    }

    /// Reads the body as a stream of events, after the last event that was received.
    pub(super) fn read_events(&mut self, limit: usize) {
        self.step(PhaseCue::Events);
        // S-RES-06: an event without an id does not reset the cursor.
        let cursor = self.resume.cursor.as_deref().unwrap_or("");
        self.body = Body::Events(SseReader::resuming(limit, cursor).into());
    }

    /// Records that the driver was told to begin it.
    pub(super) fn begin(&mut self, now: Instant) {
        self.step(PhaseCue::Sent);
        self.begun = Some(now);
    }

    /// Marks the exchange as spent, so that nothing more is expected of it. Returns what it was.
    pub(super) fn spend(&mut self) -> Exchange {
        self.step(PhaseCue::Spent);
        core::mem::replace(
            self,
            Exchange {
                phase: self.phase,
                status: self.status,
                ..Exchange::new(ExchangeKind::Spent, Load::None)
            },
        )
    }
}

/// The state of a stream that is kept from one exchange to the next when it is resumed (S-RES-06).
#[derive(Clone, Debug, Default)]
pub(super) struct ResumeState {
    /// The id of the last complete event.
    pub(super) cursor: Option<Box<str>>,
    /// The id of the event after which it was last resumed.
    pub(super) resumed_after: Option<Box<str>>,
    /// How often in a row it was resumed and ended again without a new event.
    pub(super) stuck: u32,
    /// The pause before a reconnect that the server asks for.
    pub(super) retry: Option<Duration>,
    /// How often in a row it brought nothing.
    pub(super) empty_streams: u32,
    /// Whether it brought an event id since its last end, so that it can be resumed. Such a stream is requested with growing pauses, but not given
    /// up.
    pub(super) is_resumable_now: bool,
    /// Whether the server ever opened it.
    pub(super) was_open: bool,
    /// How often it was refused for lack of credentials.
    pub(super) refusals: u32,
}

impl ResumeState {
    /// Records that the stream was useful.
    pub(super) fn was_useful(&mut self) {
        self.empty_streams = 0;
    }

    /// Handles the end of a request's stream before its reply. `is_long`: it stayed open for long. Returns whether it has ended at the same event
    /// `STUCK` times in a row.
    pub(super) fn is_stuck(&mut self, is_long: bool) -> bool {
        if is_long || self.cursor != self.resumed_after {
            self.resumed_after.clone_from(&self.cursor);
            self.stuck = 0;
            self.was_useful();
        } else {
            self.stuck += 1;
        }
        self.stuck >= STUCK
    }

    /// Handles the end of the stream. Returns whether to give it up.
    pub(super) fn ended(&mut self, most: u32) -> bool {
        self.empty_streams = self.empty_streams.saturating_add(1);
        let is_resumable_now = core::mem::take(&mut self.is_resumable_now);
        self.empty_streams > most && !is_resumable_now
    }

    /// The pause before the stream is requested again: as the server says, within bounds (S-LHTTP-11). It doubles while the stream brings nothing.
    pub(super) fn pause(&self, http: &Http) -> Duration {
        let wanted = self.retry.unwrap_or(http.resume_after);
        let doublings = self.empty_streams.saturating_sub(1).min(16);
        let growing = http.resume_after.saturating_mul(1 << doublings);
        let pause = if self.empty_streams > 1 {
            wanted.max(growing)
        } else {
            wanted
        };
        pause.min(http.resume_most).max(http.resume_least)
    }
}

/// The body of a response, as far as it has arrived.
#[derive(Debug)]
pub(super) enum Body {
    Events(Box<SseReader>),
    /// The content does not matter.
    Ignored,
    Text(Text),
}

impl Body {
    pub(super) fn buffered(&self) -> usize {
        match self {
            Body::Events(reader) => reader.buffered(),
            Body::Ignored => 0,
            Body::Text(text) => text.bytes.len(),
        }
    }
}

/// A body that is a single text, in bounded memory.
#[derive(Default)]
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    /// The number of bytes that arrived in all.
    pub(super) len: u64,
}

impl Text {
    /// Appends bytes. If the text becomes longer than the limit, nothing of it is kept.
    pub(super) fn push(&mut self, bytes: &[u8], limit: usize) {
        self.len += bytes.len() as u64;
        if self.len > limit as u64 {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether the text was longer than the limit.
    pub(super) fn is_too_long(&self) -> bool {
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
            let resume = ResumeState {
                retry: retry.map(Duration::from_millis),
                ..ResumeState::default()
            };
            assert_eq!(resume.pause(&http()), Duration::from_millis(pause));
        }
    }

    #[test]
    fn the_pause_grows_while_nothing_comes_of_it() {
        let mut resume = ResumeState::default();
        let pauses = [(); 12].map(|()| {
            resume.empty_streams += 1;
            resume.pause(&http()).as_secs()
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        resume.was_useful();
        assert_eq!(resume.pause(&http()).as_secs(), 1);
    }

    #[test]
    fn a_thread_is_given_up_when_nothing_came_of_it_too_often_and_it_was_good_for_nothing() {
        let mut resume = ResumeState::default();
        assert_eq!([(); 3].map(|()| resume.ended(2)), [false, false, true]);
        resume.is_resumable_now = true;
        assert!(!resume.ended(2));
        assert!(resume.ended(2), "that counts once");
        resume.was_useful();
        assert!(!resume.ended(2));
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
                ..Exchange::new(ExchangeKind::Message, Load::None)
            };
            let found = (exchange.is_accepted(), exchange.is_refused());
            assert_eq!(found, (is_accepted, is_refused), "{status:?}");
        }
    }

    #[test]
    fn what_is_spent_still_has_its_response() {
        let mut exchange = Exchange {
            status: Some(202),
            ..Exchange::new(ExchangeKind::Request(1), Load::None)
        };
        let spent = exchange.spend();
        assert_eq!((spent.wire(), exchange.wire()), (Some(1), None));
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
