//! What a link counted. Plain numbers; decides nothing.

/// What a client link has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Transports asked for.
    pub opens: u64,
    /// Times the link became ready.
    pub readies: u64,
    /// Ends that cost an attempt of the budget.
    pub failures: u64,
    /// Ends that were free: planned, or a change of era.
    pub free_ends: u64,
    /// Transports let go before their end was reported.
    pub abandoned: u64,
    /// Inputs of retired epochs, dropped.
    pub stale_inputs: u64,
    /// Calls accepted.
    pub calls: u64,
    /// Calls settled, one way or the other.
    pub settled: u64,
    /// Calls that went back to the queue because their server ended.
    pub requeued: u64,
    /// Replies that came after their call was settled, or twice, and what came on a watch that was over.
    pub late_replies: u64,
    /// Questions of servers.
    pub asks: u64,
    /// Questions refused by the link itself.
    pub asks_refused: u64,
    /// Probes sent to a quiet server.
    pub probes: u64,
    /// Probes that were not answered in time.
    pub probes_missed: u64,
    /// Messages received and understood.
    pub messages_in: u64,
    /// Messages handed to the driver.
    pub messages_out: u64,
    /// Exchanges of HTTP begun.
    pub exchanges: u64,
    /// Streams asked for again.
    pub resumes: u64,
    /// Messages that a server turned away unread, to be sent again.
    pub turned_away: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes handed to the driver.
    pub bytes_out: u64,
    /// Lines and messages that were of no use.
    pub noise: u64,
    /// Answers that were dropped because the server does not read them.
    pub answers_dropped: u64,
}
