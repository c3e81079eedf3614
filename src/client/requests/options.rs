//! The options that the application gives with a call.

use crate::client::config::Limit;

/// Options for a single call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// The longest time without a reply or progress, if it differs from the policy. Default: `None`, which means
    /// [`Policy::call_idle`](crate::Policy::call_idle).
    pub idle: Option<Limit>,
    /// The longest time in all, if it differs from the policy. [`with_total`](CallOptions::with_total) says which waits are not counted. Default:
    /// `None`, which means [`Policy::call_total`](crate::Policy::call_total).
    pub total: Option<Limit>,
    /// Whether the call may be sent again after its server ended, because running it twice is harmless. Methods that only read are repeated without
    /// this. Default: no.
    pub idempotent: bool,
    /// Whether the server is not asked to report progress. Default: no, so it is asked.
    pub no_progress: bool,
}

impl CallOptions {
    /// Uses the limits of the policy.
    #[must_use]
    pub fn new() -> CallOptions {
        CallOptions::default()
    }

    /// Sets the longest time without a reply or progress. Some waits are not counted; see [`with_total`](CallOptions::with_total).
    #[must_use]
    pub const fn with_idle(mut self, limit: Limit) -> CallOptions {
        self.idle = Some(limit);
        self
    }

    /// Sets the longest time in all, from the moment the call is accepted, with or without progress.
    ///
    /// Some waits are not counted, neither here nor by [`with_idle`](CallOptions::with_idle), because the server is not to blame for them:
    ///
    /// - a person answers an ask ([`Event::Ask`](crate::client::Event::Ask)). A legacy server does not say for which call it asks, so the clocks of all calls
    ///   that were sent to it stop;
    /// - somebody fetches credentials ([`Event::AuthRequired`](crate::client::Event::AuthRequired));
    /// - the application holds back ([`Client::hold_back`](crate::Client::hold_back)).
    ///
    /// For one call, at most [`Policy::pause_total`](crate::Policy::pause_total) (30 min by default) is left out in all. So a call ends after `limit
    /// + pause_total` at the latest. With a `pause_total` of zero, all waits count.
    #[must_use]
    pub const fn with_total(mut self, limit: Limit) -> CallOptions {
        self.total = Some(limit);
        self
    }

    /// Says that running the call twice is harmless.
    #[must_use]
    pub const fn idempotent(mut self) -> CallOptions {
        self.idempotent = true;
        self
    }

    /// Does not ask the server for progress.
    #[must_use]
    pub const fn without_progress(mut self) -> CallOptions {
        self.no_progress = true;
        self
    }
}
