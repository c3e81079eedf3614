//! The counters of a server. Decides nothing.

/// The counters of a server, since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests handed to the application.
    pub requests: u64,
    /// Requests that the server answered itself because they cannot be served.
    pub refused: u64,
    /// Requests that the application answered.
    pub answered: u64,
    /// Requests that ended without an answer.
    pub cancelled: u64,
    /// Replies of the application that were dropped because their client cancelled the request, or was gone and they could not be kept for it.
    pub answers_dropped: u64,
    /// Asks to clients.
    pub asks: u64,
    /// Answers that came after their ask had its outcome, or twice.
    pub late_replies: u64,
    /// Notifications that were dropped because the client does not read.
    pub news_dropped: u64,
    /// Sessions, exchanges and requests that were ended to make room for others.
    pub displaced: u64,
    /// Messages received and understood.
    pub messages_in: u64,
    /// Messages handed to the driver.
    pub messages_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes handed to the driver.
    pub bytes_out: u64,
    /// Lines and messages that were not usable.
    pub noise: u64,
    /// Inputs that came after the end, or that a server has no use for.
    pub stale_inputs: u64,
}
