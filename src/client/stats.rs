//! Counters of a client link. They are plain numbers and decide nothing.

/// The counters of a client link since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Transports that the link asked the driver to open.
    pub opens: u64,
    /// Times the link became ready.
    pub readies: u64,
    /// Epoch ends that cost an attempt of the retry budget.
    pub failures: u64,
    /// Epoch ends that cost no attempt: planned ones, and changes of era.
    pub free_ends: u64,
    /// Transports released before the driver reported their end.
    pub abandoned: u64,
    /// Inputs for retired epochs and finished exchanges; they are dropped.
    pub stale_inputs: u64,
    /// Calls accepted.
    pub calls: u64,
    /// Calls that have their outcome, whichever it is.
    pub settled: u64,
    /// Calls that went back to the queue because their server ended.
    pub requeued: u64,
    /// Replies that came twice or after their call had its outcome, repeated asks, and messages on a watch that was over.
    pub late_replies: u64,
    /// Asks of servers.
    pub asks: u64,
    /// Asks that the link itself refused.
    pub asks_refused: u64,
    /// Probes sent to a silent server.
    pub probes: u64,
    /// Probes that were not answered in time.
    pub probes_missed: u64,
    /// Messages received and understood.
    pub messages_in: u64,
    /// Messages handed to the driver.
    pub messages_out: u64,
    /// HTTP exchanges begun.
    pub exchanges: u64,
    /// Event streams requested again after they broke off.
    pub resumes: u64,
    /// Messages that a server refused and that the link may send again.
    pub turned_away: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes handed to the driver.
    pub bytes_out: u64,
    /// Lines and messages that the link could not use.
    pub noise: u64,
    /// Replies to server requests that were dropped because the server does not read.
    pub answers_dropped: u64,
}
