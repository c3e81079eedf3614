//! What a server end counted. Plain numbers; decides nothing.

/// What a server end has counted since it was made.
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
    /// Answers of the application that their client did not want any more, or was not there to hear.
    pub answers_dropped: u64,
    /// Questions to clients.
    pub asks: u64,
    /// Replies that came after their question had its outcome, or twice.
    pub late_replies: u64,
    /// Changes, log messages and other news that were dropped because the client does not read.
    pub news_dropped: u64,
    /// Sessions, exchanges and calls that gave way because others needed their place.
    pub displaced: u64,
    /// Messages received and understood.
    pub messages_in: u64,
    /// Messages handed to the driver.
    pub messages_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes handed to the driver.
    pub bytes_out: u64,
    /// Lines and messages that were of no use.
    pub noise: u64,
    /// Inputs that came after the end, or that a server end has no use for.
    pub stale_inputs: u64,
}
