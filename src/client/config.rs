//! The settings of a client link, with the reason for each default.
//! Holds the values only; other modules use them.

mod http;

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use crate::http::{BadUrl, Url};
use crate::json::Payload;
use crate::protocol::watch::Watch;
use crate::protocol::{ClientCapabilities, Era, Implementation, LogLevel, Versions};
pub use http::{Http, SessionLoss};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The settings of a client link.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The name and version that the client gives to every server. The constructor sets it.
    pub client: Implementation,
    /// Set if the link is the upstream end of a relay. Messages then pass even if a side did not declare the capability, as they would
    /// without the relay.
    pub(crate) relayed: Option<Box<Relayed>>,
    /// The kinds of asks that the application can answer. Default: none, because an ask of a declared kind must be answered.
    pub capabilities: ClientCapabilities,
    /// How the server is reached. The constructor sets it.
    pub binding: Binding,
    /// The era to speak. Default: [`Dialect::Automatic`].
    pub dialect: Dialect,
    /// The versions to speak. Default: all five.
    pub versions: Versions,
    /// The era of this same server, as an earlier process learned it from [`Client::era`](crate::Client::era). It saves the probe. Dropped
    /// if it proves wrong. Default: `None`.
    pub remembered_era: Option<Era>,
    /// The changes that the application wants to be told of from the start. Default: the three lists.
    pub watch: Watch,
    /// The lowest level of log messages that are reported although the watch does not ask for logs. `None` reports none. A legacy server is
    /// not asked to send them. A modern server is, because it sends none unasked; but a relay asks for none of its own. Default: `None`.
    pub unasked_logs: Option<LogLevel>,
    /// Timeouts, intervals and retries. Default: [`Policy::interactive`].
    pub policy: Policy,
    /// Bounds on memory and counts. Default: [`Limits::default`].
    pub limits: Limits,
    /// The seed of the jitter. Give each link its own (a random one if randomness is available), so that many links do not reconnect at the
    /// same moment. Default: 0.
    pub seed: u64,
}

/// The additional settings of a relay's upstream link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relayed {
    /// The params of the host's `initialize`, if it sent one.
    pub(crate) introduction: Option<Payload>,
    /// The relay's own name, sent to every server in addition to the host's.
    pub(crate) via: Option<Implementation>,
    /// Whether there are several hosts. Long requests of one host then do not delay the short calls of another.
    pub(crate) has_many_clients: bool,
    /// Whether a host's `server/discover` is refused if the server refuses it.
    pub(crate) passes_refusals: bool,
}

impl Config {
    /// Whether the calls come from several clients that do not know of each other.
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

    /// A link to the server at this URL, over HTTP.
    ///
    /// # Errors
    ///
    /// When the URL is not an HTTP URL to which a request can be sent.
    pub fn http(
        name: impl Into<String>,
        version: impl Into<String>,
        url: &str,
    ) -> Result<Config, BadUrl> {
        let http = Http::at(Url::parse(url)?);
        let binding = Binding::Http(Box::new(http));
        Ok(Config::over(binding, name.into(), version.into()))
    }

    /// Declares the kinds of asks that the application answers.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: ClientCapabilities) -> Config {
        self.capabilities = capabilities;
        self
    }

    /// Sets the timeouts and retries.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Config {
        self.policy = policy;
        self
    }

    /// Sets the era to speak.
    #[must_use]
    pub const fn with_dialect(mut self, dialect: Dialect) -> Config {
        self.dialect = dialect;
        self
    }

    /// Sets the changes that the application wants to be notified of.
    #[must_use]
    pub fn with_watch(mut self, watch: Watch) -> Config {
        self.watch = watch;
        self
    }

    /// Sets the bounds of memory.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Config {
        self.limits = limits;
        self
    }

    fn over(binding: Binding, name: String, version: String) -> Config {
        Config {
            client: Implementation::new(&name, &version),
            relayed: None,
            capabilities: ClientCapabilities::default(),
            binding,
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

/// How a server is reached, with the settings for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Binding {
    /// A child process. It can be asked to end, it has an exit status, and it is gone only after it was reaped.
    Child,
    /// HTTP exchanges, one per message. No connection stays open whose end would be seen. So an epoch lasts as long as the server can be
    /// reached, or, in the legacy era, as long as the session.
    Http(Box<Http>),
    /// A connected stream. It is gone when it has ended.
    Socket,
}

/// A [`Binding`] without its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindingKind {
    /// [`Binding::Child`].
    Child,
    /// [`Binding::Http`].
    Http,
    /// [`Binding::Socket`].
    Socket,
}

impl Binding {
    /// The binding without its settings.
    #[must_use]
    pub const fn kind(&self) -> BindingKind {
        match self {
            Binding::Child => BindingKind::Child,
            Binding::Http(_) => BindingKind::Http,
            Binding::Socket => BindingKind::Socket,
        }
    }

    /// The settings for HTTP, if the server is reached over HTTP.
    #[must_use]
    pub fn http(&self) -> Option<&Http> {
        match self {
            Binding::Http(http) => Some(http),
            Binding::Child | Binding::Socket => None,
        }
    }

    /// The settings for HTTP, to be changed.
    pub fn http_mut(&mut self) -> Option<&mut Http> {
        match self {
            Binding::Http(http) => Some(http),
            Binding::Child | Binding::Socket => None,
        }
    }
}

/// The era to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Find out which era the server speaks, and remember it.
    Automatic,
    /// Only the handshake of 2025-11-25 and before.
    Legacy,
    /// Only the stateless protocol of 2026-07-28.
    Modern,
}

/// Timeouts, intervals and retries.
///
/// Start from the preset that fits your case and change what differs. "Default" is the value of [`Policy::interactive`], the policy of a
/// new [`Config`]. "Background" is the value of [`Policy::background`] where it differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// How long a transport may take to open. Default: 30 s, longer than any DNS and TCP timeout in use.
    pub open_timeout: Duration,
    /// How long a server on a byte stream may leave the modern probe unanswered before the client tries the legacy handshake. Default: 1.5
    /// s, because some servers in use never answer the probe and die of the next message. They must be started again, and a person waits
    /// for that. Most modern servers start within this time. Giving up too early costs little: a modern server that only started slowly
    /// finds both messages in its pipe. Either it then says that it is modern, or the link speaks modern in the next epoch. At most half of
    /// the handshake timeout. Over HTTP, [`Http::probe_timeout`] applies instead.
    pub probe_timeout: Duration,
    /// How long a handshake may take before the link reports it with [`Event::Slow`](crate::client::Event::Slow), and the interval of
    /// further reports. Default: 10 s, about when a person starts to wonder.
    pub handshake_notice: Duration,
    /// How long a handshake may take. Separate from the timeouts of calls, and long: the first start of a packaged server downloads it.
    /// Killing the server meanwhile restarts the download. Default: 2 min; background: 5 min.
    pub handshake_timeout: Duration,
    /// How long a call may go without its reply or any progress. Default: 60 s; background: 5 min.
    pub call_idle: Limit,
    /// How long a call may take in total, with or without progress. Some waits do not count, up to `pause_total`.
    /// [`CallOptions::with_total`](crate::client::CallOptions::with_total) lists them. Default: 10 min; background: 1 h.
    pub call_total: Limit,
    /// How long an ask of the server waits for [`Client::answer`](crate::Client::answer). Default: 10 min, because people fetch coffee.
    pub ask_timeout: Duration,
    /// How long the timeouts of one call may be suspended in total. They are suspended during asks of the server, while credentials are
    /// fetched, and while the application holds back input. Default: 30 min, so that a server cannot keep a call alive for ever by asking
    /// again and again.
    pub pause_total: Duration,
    /// How often a repeatable call is sent again after its server died. Default: 2, because a request that kills every server must not be
    /// retried for ever.
    pub resends: u32,
    /// How long a planned reconnect waits for the calls in flight. Default: 5 s, because most calls end sooner; background: 60 s. It does
    /// not wait for lists, because the link can read them from the next server.
    pub drain: Duration,
    /// How long a server may take to end by itself after its input was closed. Default: 2 s.
    pub close_grace: Duration,
    /// How long a server may take to end after it was asked to terminate. Default: 3 s.
    pub terminate_grace: Duration,
    /// How long the system may take to report the end of a killed server. Default: 2 s; then the link releases it.
    pub kill_grace: Duration,
    /// How a silent server is probed. `None`: no probe is sent, and no silent server is replaced. Default: [`Keepalive::every`] 30 s;
    /// background: every 2 min; [`Policy::one_shot`]: `None`.
    pub keepalive: Option<Keepalive>,
    /// When a silent server is replaced while a call waits for it. `None`: never. A server on an idle link is never replaced.
    /// Default: [`Hang::after`] 30 s; background: after 60 s.
    pub hang: Option<Hang>,
    /// How the link reconnects. The fields of [`Retry`] have the defaults.
    pub retry: Retry,
    /// How long the set-up of a watch may take. Default: 10 s; then the link goes on without the watch.
    pub watch_timeout: Duration,
    /// The pause before the link sets up a watch again that the server ended. It doubles up to one minute. Default: 5 s.
    pub watch_retry: Duration,
}

impl Policy {
    /// For interactive use: faults are reported soon, retries come soon, and a call with progress may take ten minutes.
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

    /// For unattended use: long calls, rare probes, and a larger retry budget with longer pauses.
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

    /// For a script: one epoch and no retry. The link closes with the server.
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

/// A timeout; `Never` disables it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Times out after this long.
    After(Duration),
    /// No timeout.
    Never,
}

/// How a silent server is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// The silence after which the link sends a probe. Any byte from the server ends a silence. Default: 30 s; background: 2 min.
    pub idle: Duration,
    /// How long a probe may stay unanswered. Default: 10 s, because a server on a busy machine is slow, a dead one is silent.
    pub timeout: Duration,
    /// How many probes the link sends during one silence on a byte stream. Default: 2, because a byte stream loses nothing, and more probes
    /// would fill the pipe of a server that does not read. Over HTTP, where a request can be lost, there is no such limit.
    pub misses: u32,
}

impl Keepalive {
    /// Probes after every `idle` of silence.
    #[must_use]
    pub const fn every(idle: Duration) -> Keepalive {
        Keepalive {
            idle,
            timeout: seconds(10),
            misses: 2,
        }
    }
}

/// When a silent server is replaced while a call is in flight or waits to be sent.
///
/// The link replaces a server that answers no probe for this long, unless the system reports that its process uses CPU time. Calls that
/// come during the silence are held back, so that they can go to the next server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hang {
    /// The silence after which a waiting call makes the link probe. Default: 10 s, because most calls have their reply by
    /// then. At most [`Keepalive::idle`].
    pub probe_after: Duration,
    /// How long a server may be silent. Default: 30 s, because a server on a busy machine is slow for seconds, and hosts wait for a minute;
    /// background: 60 s.
    pub timeout: Duration,
    /// How long a server may be silent if it may be working on a call whose caller still waits. A server that blocks its only thread
    /// answers no probe meanwhile. Default: 2 min, twice as long as most hosts wait; background: 4 min. This timeout applies until the
    /// server has answered a probe while it worked on a call. It always applies to a server that answers calls but no probes.
    pub timeout_at_work: Duration,
}

impl Hang {
    /// Replaces a server after `timeout` of silence, and after four times as much if it may be working.
    #[must_use]
    pub fn after(timeout: Duration) -> Hang {
        Hang {
            probe_after: seconds(10).min(timeout / 3),
            timeout,
            timeout_at_work: timeout.saturating_mul(4),
        }
    }
}

/// How a link reconnects: one budget covers every kind of failure.
///
/// "Default" is the value in [`Policy::interactive`], and "background" the one in [`Policy::background`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// How many failures in a row are retried with backoff. Default: 5, which covers a server restart of half a minute with the backoff
    /// below; background: 10; [`Policy::one_shot`]: 0.
    pub budget: u32,
    /// The pause after the first failure. It doubles with each further one. Half of it is jittered. Default: 500 ms; background: 1 s.
    pub first: Duration,
    /// The longest pause. Default: 30 s; background: 5 min.
    pub cap: Duration,
    /// The minimum time between two opens, for whatever reason. It always applies. Default: 250 ms; background: 1 s.
    pub floor: Duration,
    /// How long a process that ends by itself is started again while the link was never ready. Default: 3 s, because a process that ends at
    /// once does so for a reason that a person must see, and hosts wait at least 5 s; background: 60 s. A fault that waiting cannot fix,
    /// such as a missing command, is not retried at all before the link was ready.
    pub start_for: Duration,
    /// How long an epoch must be ready to reset the failure count. A handshake alone proves nothing: some servers open and die, again and
    /// again. An epoch that answered a call resets the count, too. It was useful, so the next one opens without a pause except for the
    /// floor. Default: 60 s; background: 5 min.
    pub stable_after: Duration,
    /// How long a call waits while there is no server and no attempt to reach one is under way. Default: 4 s, because some hosts give up
    /// after 5 s and would not see the reason; background: 60 s. A call also waits for an attempt that is under way. If this is zero, a
    /// call waits for the attempts of the budget, and fails at once when they are spent.
    pub call_patience: Duration,
    /// The minimum time between two opens while calls wait for a server. Default: 1 s, short enough to find a server soon after its return,
    /// and long enough not to restart a dying process all the time; background: 5 s. The pauses of the budget apply while no call waits.
    pub call_pace: Duration,
    /// The reaction to a spent budget. Default: park, and probe every 60 s; background: every 10 min; [`Policy::one_shot`]: close.
    pub when_spent: WhenSpent,
}

/// The reaction of a link to a spent budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenSpent {
    /// The link closes for good.
    Close,
    /// The link is parked. It tries to reach the server at every `probe` interval, and when it is called.
    Park {
        /// The interval of the attempts.
        probe: Duration,
    },
}

/// Bounds on everything that a peer or the application can make the machine hold.
///
/// "Default" is the value of [`Limits::default`], for a computer. [`Limits::small`] is for a microcontroller.
///
/// A limit of zero counts as one where zero would stop the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The size of the longest message. Default: 16 MiB, above any list or text, and enough for an image.
    pub message_bytes: usize,
    /// Bytes of parameters of calls that wait to be sent. Default: 8 MiB. Over HTTP, as many again may be in flight in requests.
    pub queued_bytes: usize,
    /// Calls that wait to be sent. Default: 1,024.
    pub queued_calls: usize,
    /// Calls sent and not answered. Default: 1,024; further ones wait.
    pub calls_in_flight: usize,
    /// Bytes handed to the driver and not yet reported as sent. Default: 256 KiB, four full pipes.
    pub write_window: usize,
    /// Bytes of events not yet polled, above which the machine wants no input. Default: 4 MiB.
    pub undelivered_bytes: usize,
    /// Bytes of incomplete HTTP responses, all exchanges together. Default: 64 MiB; a response that does not fit is too large.
    pub unfinished_bytes: usize,
    /// Asks of the server open at once. Default: 64; further ones are refused.
    pub asks: usize,
    /// Rounds of asks in one call. Default: 10.
    pub input_rounds: u32,
    /// Bytes of the state that a server gives a call to send back with the next round. Default: 64 KiB, because it is a token, not a store.
    pub request_state_bytes: usize,
    /// Useless lines in a row after which the link gives up the server. Default: `None`, which means never, because a noisy server still
    /// works.
    pub noise_run: Option<u32>,
    /// Bytes of a useless line that are shown. Default: 160, a little more than one line on a screen.
    pub noise_sample: usize,
    /// Bytes kept of the server's latest standard error. Default: 4 KiB, enough for a stack trace.
    pub stderr_tail: usize,
    /// Pages of one list. Default: 1,000, more than a long list has, so it only stops a server that never ends its list.
    pub pages: usize,
    /// Bytes of one list in total. Default: 32 MiB.
    pub list_bytes: usize,
}

impl Limits {
    /// Limits for a machine with 64 KB of RAM. A link to a byte stream then holds less than 48 KB, whatever its server does.
    ///
    /// A message may have 8 KiB, a call 4 KiB of parameters, and a list 8 KiB in total. 4 calls may be in flight, and 8 may wait.
    #[must_use]
    pub const fn small() -> Limits {
        Limits {
            message_bytes: 8 << 10,
            queued_bytes: 4 << 10,
            queued_calls: 8,
            calls_in_flight: 4,
            write_window: 1 << 10,
            undelivered_bytes: 8 << 10,
            unfinished_bytes: 8 << 10,
            asks: 2,
            input_rounds: 10,
            request_state_bytes: 1 << 10,
            noise_run: None,
            noise_sample: 80,
            stderr_tail: 512,
            pages: 16,
            list_bytes: 8 << 10,
        }
    }

    /// Raises a limit of zero to one where zero would stop the link.
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
