//! Everything that can be chosen about a link, with the reason beside each default.
//! Owns the numbers; knows nothing of how they are used.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::http::{BadUrl, Url};
use crate::protocol::{ClientCapabilities, Era, Implementation, LogLevel, Versions};
use crate::watch::Watch;
use crate::wire::Payload;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How a client link is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Who we are, said to every server.
    pub client: Implementation,
    /// The link is the far end of a relay: what the two ends did not declare is passed on all the same, as they would have it without the relay.
    pub(crate) relayed: Option<Box<Relayed>>,
    /// What questions of a server we can serve. None by default: what is declared must be answered.
    pub capabilities: ClientCapabilities,
    /// What carries the bytes.
    pub binding: Binding,
    /// Where the server is and how its streams are treated, where it is reached over HTTP.
    pub http: Option<Box<Http>>,
    /// Which era to speak.
    pub dialect: Dialect,
    /// Which versions to speak. All five by default.
    pub versions: Versions,
    /// What an earlier process learned of this same server with [`Client::era`](crate::Client::era),
    /// so that it need not be found out again. Dropped when it proves wrong.
    pub remembered_era: Option<Era>,
    /// What the application wants to hear of from the start: by default, the three lists.
    pub watch: Watch,
    /// From which level on log messages are told that the watch does not ask for. No legacy server is asked to send any for this; a modern one,
    /// which sends none unasked, is. `None`: none are told.
    pub unasked_logs: Option<LogLevel>,
    /// How long, how often, how patiently.
    pub policy: Policy,
    /// How much.
    pub limits: Limits,
    /// Where the jitter comes from. Give each link its own (a random one where there is
    /// randomness), so that many links do not come back in step.
    pub seed: u64,
}

/// Where clients share a link, a request that carries no more than this need not wait or give way for longer ones of others. 64 KiB: most
/// requests are a thousandth of it.
pub(crate) const SHORT: usize = 64 << 10;

/// What a relay adds to the link of its far end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relayed {
    /// What the client in front sent as its `initialize`, if it did.
    pub(crate) introduction: Option<Payload>,
    /// The relay, named to every server beside that client.
    pub(crate) via: Option<Implementation>,
    /// There are several clients in front: what one of them sends does not keep the short calls of another waiting.
    pub(crate) has_many_clients: bool,
    /// A client in front that asks `server/discover` is refused where the server refuses it.
    pub(crate) passes_refusals: bool,
}

impl Config {
    /// Whether the calls are of different clients, which know nothing of each other.
    pub(crate) fn has_many_clients(&self) -> bool {
        let relayed = self.relayed.as_ref();
        relayed.is_some_and(|relayed| relayed.has_many_clients)
    }

    /// A link to a child process over its standard streams.
    #[must_use]
    pub fn child(name: impl Into<String>, version: impl Into<String>) -> Config {
        Config::over(Binding::Child, name.into(), version.into())
    }

    /// A link over a connected byte stream: a Unix socket, TCP, a serial line.
    #[must_use]
    pub fn socket(name: impl Into<String>, version: impl Into<String>) -> Config {
        Config::over(Binding::Socket, name.into(), version.into())
    }

    /// A link to a server at this address, over HTTP.
    ///
    /// # Errors
    ///
    /// When the address is no URL of HTTP that a request can be sent to.
    pub fn http(
        name: impl Into<String>,
        version: impl Into<String>,
        url: &str,
    ) -> Result<Config, BadUrl> {
        let http = Http::at(Url::parse(url)?);
        Ok(Config {
            http: Some(Box::new(http)),
            ..Config::over(Binding::Http, name.into(), version.into())
        })
    }

    fn over(binding: Binding, name: String, version: String) -> Config {
        Config {
            client: Implementation::new(&name, &version),
            relayed: None,
            capabilities: ClientCapabilities::default(),
            binding,
            http: None,
            dialect: Dialect::Automatic,
            versions: Versions::ALL,
            remembered_era: None,
            watch: Watch::lists(),
            unasked_logs: None,
            policy: Policy::interactive(),
            limits: Limits::default(),
            seed: 0,
        }
    }
}

/// What carries the bytes of a link, as far as the machine must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binding {
    /// A child process: it can be asked to end, it has an exit status, and it is gone only when
    /// it was reaped.
    Child,
    /// Exchanges of HTTP, each for one message: nothing is open that could end, so a life is a stretch in which the server can be
    /// reached, and in the legacy era a session.
    Http,
    /// A connected stream: it is gone when it ended.
    Socket,
}

/// Where a server is that is reached over HTTP, and how its streams are treated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Http {
    /// The address of the server.
    pub url: Url,
    /// Whether a legacy server is asked for a stream of what it says by itself. Yes; not for servers that serve one request at a
    /// time.
    pub listens: bool,
    /// How long calls wait for that stream at the beginning of a life, since many servers drop what they ask by themselves while nobody
    /// listens. 1 s: most say at once whether there is one; a few say nothing until there is something on it.
    pub listen_patience: Duration,
    /// Whether a server that does not know the present transport is looked for behind the one of 2024-11-05. Yes.
    pub falls_back: bool,
    /// How long a server may be silent to the modern probe before it is spoken to in legacy. 3 s: whoever speaks HTTP answers every request,
    /// so silence is a slow network or a server that is only just started. At most half of the time for the handshake.
    pub probe_timeout: Duration,
    /// How long the older transport may take to say where messages go. 10 s.
    pub endpoint_timeout: Duration,
    /// The pause before a stream that broke off is asked for again, where the server does not say. 1 s.
    pub resume_after: Duration,
    /// The least of what a server can say there. 250 ms: zero would be a hot loop.
    pub resume_least: Duration,
    /// The most of what a server can say there. 5 min: more would be as good as never.
    pub resume_most: Duration,
    /// How often in a row a stream is asked for again that brings nothing. 8; then it is given up.
    pub resumes: u32,
    /// How long to wait for [`Client::authorized`](crate::Client::authorized) when the server wants credentials. 10 min: people
    /// look for their phone.
    pub auth_timeout: Duration,
    /// The most that a server can ask to wait before it is asked again. 5 min.
    pub retry_after_most: Duration,
    /// How long an exchange may go on that has brought what it was for. 2 s, then it is cut.
    pub linger: Duration,
    /// How long a server may take to say that it has a message that has no reply. 10 s, then the link goes on without.
    pub message_timeout: Duration,
    /// How long a stream may be silent on which the server used to say now and then that it is there. 2 min, then it is taken for
    /// broken.
    pub stream_silence: Duration,
    /// The responses that say that a session is over.
    pub session_loss: Vec<SessionLoss>,
}

impl Http {
    /// A server at this address, treated as most servers want.
    #[must_use]
    pub fn at(url: Url) -> Http {
        Http {
            url,
            listens: true,
            listen_patience: seconds(1),
            falls_back: true,
            probe_timeout: seconds(3),
            endpoint_timeout: seconds(10),
            resume_after: seconds(1),
            resume_least: millis(250),
            resume_most: seconds(300),
            resumes: 8,
            auth_timeout: seconds(600),
            retry_after_most: seconds(300),
            linger: seconds(2),
            message_timeout: seconds(10),
            stream_silence: seconds(120),
            session_loss: Vec::from(SessionLoss::IN_USE),
        }
    }
}

/// A response that says that the session it was asked in is over.
///
/// The specification knows one, status 404; servers in use have others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionLoss {
    /// The status of the response.
    pub status: u16,
    /// The code of the error in it; `None`: any, or no error at all.
    pub code: Option<i64>,
}

impl SessionLoss {
    /// What servers in use say.
    pub const IN_USE: [SessionLoss; 3] = [
        SessionLoss::new(404, None),
        SessionLoss::new(400, Some(-32_000)),
        SessionLoss::new(400, Some(-32_001)),
    ];

    /// One with this status, and an error with this code if that matters.
    #[must_use]
    pub const fn new(status: u16, code: Option<i64>) -> SessionLoss {
        SessionLoss { status, code }
    }

    /// Whether a response is of this kind.
    pub(crate) fn is(self, status: u16, code: Option<i64>) -> bool {
        self.status == status && (self.code.is_none() || self.code == code)
    }
}

/// Which era to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Find out, and remember.
    Automatic,
    /// Only the handshake of 2025-11-25 and before.
    Legacy,
    /// Only the stateless protocol of 2026-07-28.
    Modern,
}

/// How long, how often, how patiently.
///
/// Take the preset that sounds like your case and change what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// How long a transport may take to open. 30 s: longer than any DNS and TCP timeout in use.
    pub open_timeout: Duration,
    /// How long a server on a byte stream may be silent to the modern probe before it is spoken to in legacy.
    /// 1.5 s: some servers in use never answer it, die of the next message, and must be started anew, which
    /// a person waits for; most modern ones start sooner. To be too early costs little: a modern server that only
    /// started slowly finds both in its pipe, and either says that it is modern, or is spoken to as such in its next
    /// life. At most half of the time for the handshake. Over HTTP it is [`Http::probe_timeout`].
    pub probe_timeout: Duration,
    /// After how long of handshaking an [`Event::Slow`](crate::client::Event::Slow) says so, again and
    /// again. 10 s: about when a person starts to wonder.
    pub handshake_notice: Duration,
    /// After how long a handshake has failed. Separate from the time of calls, and long: the
    /// first start of a packaged server downloads it, and killing it then starts the download anew.
    pub handshake_timeout: Duration,
    /// How long a call may go without its reply or any progress.
    pub call_idle: Limit,
    /// How long a call may take in all, progress or not. Some waits are not counted, up to `pause_total`:
    /// [`CallOptions::with_total`](crate::client::CallOptions::with_total) says which they are.
    pub call_total: Limit,
    /// How long a question of the server waits for [`Client::answer`](crate::Client::answer).
    /// 10 min: people fetch coffee.
    pub ask_timeout: Duration,
    /// For how long in all the clock of one call may stand still: for questions of the server, for credentials, and while nothing is read from it. 30 min, so that
    /// a server cannot hold a call for ever by asking again and again.
    pub pause_total: Duration,
    /// How often a call that may be repeated is sent again after its server died. Twice: a
    /// request that kills every server it meets must not do so for ever.
    pub resends: u32,
    /// How long a planned reconnect waits for the calls in flight. 5 s: most calls end sooner. Lists are not waited for:
    /// the next server is asked for them.
    pub drain: Duration,
    /// How long a server may take to end by itself after its input was closed. 2 s.
    pub close_grace: Duration,
    /// How long it may take after it was asked to end. 3 s.
    pub terminate_grace: Duration,
    /// How long the system may take to report the end of a killed one. 2 s; then it is let go.
    pub kill_grace: Duration,
    /// How a quiet link is watched. `None`: not at all; then no probe is sent, and no silent server is replaced.
    pub keepalive: Option<Keepalive>,
    /// When a silent server is replaced while something is wanted of it. `None`: never. On an idle link, none ever is.
    pub hang: Option<Hang>,
    /// How a link comes back.
    pub retry: Retry,
    /// How long the set-up of a watch may take. 10 s, then the link goes on without it.
    pub watch_timeout: Duration,
    /// The pause before a watch that the server ended is set up again; doubles up to a minute.
    pub watch_retry: Duration,
}

impl Policy {
    /// A person is waiting: quick to say what is wrong, quick to come back, ten minutes for a call
    /// that shows progress.
    #[must_use]
    pub fn interactive() -> Policy {
        Policy {
            open_timeout: seconds(30),
            probe_timeout: millis(1_500),
            handshake_notice: seconds(10),
            handshake_timeout: seconds(120),
            call_idle: Limit::After(seconds(60)),
            call_total: Limit::After(seconds(600)),
            ask_timeout: seconds(600),
            pause_total: seconds(1_800),
            resends: 2,
            drain: seconds(5),
            close_grace: seconds(2),
            terminate_grace: seconds(3),
            kill_grace: seconds(2),
            keepalive: Some(Keepalive::every(seconds(30))),
            hang: Some(Hang::after(seconds(30))),
            retry: Retry {
                budget: 5,
                first: millis(500),
                cap: seconds(30),
                floor: millis(250),
                start_for: seconds(3),
                stable_after: seconds(60),
                call_patience: seconds(4),
                call_pace: seconds(1),
                when_spent: WhenSpent::Park { probe: seconds(60) },
            },
            watch_timeout: seconds(10),
            watch_retry: seconds(5),
        }
    }

    /// Nobody is waiting: long calls, a slow pulse, a long memory of failures.
    #[must_use]
    pub fn background() -> Policy {
        Policy {
            call_idle: Limit::After(seconds(300)),
            call_total: Limit::After(seconds(3_600)),
            handshake_timeout: seconds(300),
            drain: seconds(60),
            keepalive: Some(Keepalive::every(seconds(120))),
            hang: Some(Hang::after(seconds(60))),
            retry: Retry {
                budget: 10,
                first: seconds(1),
                cap: seconds(300),
                floor: seconds(1),
                start_for: seconds(60),
                stable_after: seconds(300),
                call_patience: seconds(60),
                call_pace: seconds(5),
                when_spent: WhenSpent::Park {
                    probe: seconds(600),
                },
            },
            ..Policy::interactive()
        }
    }

    /// A script: one life, no second try. The link closes with the server.
    #[must_use]
    pub fn one_shot() -> Policy {
        Policy {
            retry: Retry {
                budget: 0,
                when_spent: WhenSpent::Close,
                ..Policy::interactive().retry
            },
            keepalive: None,
            ..Policy::interactive()
        }
    }
}

/// A limit in time that can be lifted, but only by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// This long.
    After(Duration),
    /// No limit, on purpose.
    Never,
}

/// How a quiet link is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// After how much silence to probe. Any byte from the server counts as a sign of life.
    pub idle: Duration,
    /// How long a probe may be unanswered. 10 s: a busy machine is slow, a dead one is silent.
    pub timeout: Duration,
    /// How many probes are sent into one silence on a byte stream. Two: nothing is lost there, and a server that does not read is
    /// not to be flooded. Over HTTP, where a request can be lost, there is no such limit.
    pub misses: u32,
}

impl Keepalive {
    /// A probe after every `idle` of silence.
    #[must_use]
    pub const fn every(idle: Duration) -> Keepalive {
        Keepalive {
            idle,
            timeout: seconds(10),
            misses: 2,
        }
    }
}

/// When a silent server is replaced, while something is wanted of it: a call is in flight or waits to be sent.
///
/// A server that answers no probe for this long is replaced, unless the system says that its process runs. Calls that come while
/// it is silent are held back, so that they can go to the next server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hang {
    /// After how much silence a call makes the link probe. 10 s: most calls have their reply by then. At most
    /// [`Keepalive::idle`].
    pub probe_after: Duration,
    /// How long a server may be silent. 30 s: a busy machine is slow for seconds, and hosts wait for a minute.
    pub timeout: Duration,
    /// How long it may be silent if the silence can be its work on a call whose caller still waits: a server that blocks its only thread
    /// answers no probe meanwhile. 2 min: twice as long as most hosts wait. It holds until the server has shown that it answers probes
    /// while it works, and always for one that never answers any.
    pub timeout_at_work: Duration,
}

impl Hang {
    /// After so much silence, and four times as much where it may be work.
    #[must_use]
    pub fn after(timeout: Duration) -> Hang {
        Hang {
            probe_after: seconds(10).min(timeout / 3),
            timeout,
            timeout_at_work: timeout.saturating_mul(4),
        }
    }
}

/// How a link comes back: one budget for all that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// How many failures in a row are retried with backoff. 5: with the backoff below this
    /// rides out a restart of half a minute.
    pub budget: u32,
    /// The pause after the first failure; doubles with each further one, half of it jittered.
    pub first: Duration,
    /// The longest pause.
    pub cap: Duration,
    /// The least time between two opens, whatever their reason. Holds always.
    pub floor: Duration,
    /// For how long a process that ends by itself is started again while the link was never ready. 3 s: a process that ends at once
    /// does so for a reason that somebody must see, and hosts wait 5 s at the least. What waiting cannot mend, such as a command
    /// that does not exist, is not tried again at all before the link was ready.
    pub start_for: Duration,
    /// How long an epoch must have been ready to wipe out the failures before it. A handshake alone proves nothing: some servers
    /// open and die, again and again. An epoch that answered a call wipes them out, too: it was useful, and the next one is opened
    /// without a pause, but for the floor.
    pub stable_after: Duration,
    /// How long a call waits while there is no server and no attempt to reach one is under way. 4 s: some hosts give up after 5 s,
    /// and would not hear why. An attempt that is under way is waited for. Zero: a call waits for the attempts of the budget, and
    /// fails at once where those are spent.
    pub call_patience: Duration,
    /// The least time between two opens while calls wait for a server. 1 s: soon enough to be there when the server is back, seldom
    /// enough to start a process that dies at once. The pauses of the budget are for the time in which nobody waits.
    pub call_pace: Duration,
    /// What happens when the budget is spent.
    pub when_spent: WhenSpent,
}

/// What happens when the budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenSpent {
    /// The link closes for good.
    Close,
    /// The link is parked and looks now and then whether the server is back, and when it is called.
    Park {
        /// How often it looks by itself.
        probe: Duration,
    },
}

/// How much: every bound on what a peer, or the application, can make the machine hold.
///
/// Where nothing could happen at all with a limit of zero, it counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest message. 16 MiB: above any list or text, and enough for an image.
    pub message_bytes: usize,
    /// Bytes of parameters of calls that wait to be sent. 8 MiB; over HTTP as many again may be under way in requests.
    pub queued_bytes: usize,
    /// Calls that wait to be sent. 1,024.
    pub queued_calls: usize,
    /// Calls sent and not answered. 1,024; further ones wait.
    pub calls_in_flight: usize,
    /// Bytes handed to the driver and not yet reported as sent. 256 KiB: four full pipes.
    pub write_window: usize,
    /// Bytes of events not yet polled, above which no input is wanted. 4 MiB.
    pub undelivered_bytes: usize,
    /// Bytes of responses that have not all arrived, over HTTP and all exchanges together. 64 MiB; what does not fit is too
    /// large.
    pub unfinished_bytes: usize,
    /// Questions of the server open at once; further ones are refused. 64.
    pub asks: usize,
    /// Rounds of questions in one call. 10.
    pub input_rounds: u32,
    /// Bytes of the state that a server gives a call to carry through a round. 64 KiB: it is a token, not a store.
    pub request_state_bytes: usize,
    /// Useless lines in a row after which the server is given up. `None`: never, since a
    /// chatty server still works.
    pub noise_run: Option<u32>,
    /// Bytes of a useless line that are shown. 160: a line on a screen, and a bit.
    pub noise_sample: usize,
    /// Bytes kept of what the server last wrote to standard error. 4 KiB: a stack trace.
    pub stderr_tail: usize,
    /// Pages of one list. 1,000: a server that never ends its list is told from a long list.
    pub pages: usize,
    /// Bytes of one list in all. 32 MiB.
    pub list_bytes: usize,
}

impl Limits {
    /// With no limit that would bring everything to a halt.
    pub(crate) fn workable(self) -> Limits {
        Limits {
            calls_in_flight: self.calls_in_flight.max(1),
            write_window: self.write_window.max(1),
            undelivered_bytes: self.undelivered_bytes.max(1),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes: 16 << 20,
            queued_bytes: 8 << 20,
            queued_calls: 1_024,
            calls_in_flight: 1_024,
            write_window: 256 << 10,
            undelivered_bytes: 4 << 20,
            unfinished_bytes: 64 << 20,
            asks: 64,
            input_rounds: 10,
            request_state_bytes: 64 << 10,
            noise_run: None,
            noise_sample: 160,
            stderr_tail: 4 << 10,
            pages: 1_000,
            list_bytes: 32 << 20,
        }
    }
}
