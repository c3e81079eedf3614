//! Counters of a client link. They are plain numbers and decide nothing.

use core::time::Duration;

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
    /// The times from the acceptance of a call to its outcome.
    pub latency: Latency,
}

/// A histogram of durations, with a bucket for each power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// The sum of all durations, in nanoseconds.
    pub sum_nanos: u64,
    /// The number of durations in each bucket. It wraps around at 2^32.
    pub counts: [u32; Latency::BUCKETS],
}

impl Latency {
    /// The number of buckets. The last one has no upper bound.
    pub const BUCKETS: usize = 16;

    /// Returns the upper bound of a bucket. `None` for the last bucket.
    #[must_use]
    pub const fn bound(bucket: usize) -> Option<Duration> {
        if bucket + 1 < Latency::BUCKETS {
            Some(Duration::from_micros(Latency::FIRST_BOUND << bucket))
        } else {
            None
        }
    }

    /// The upper bound of the first bucket, in microseconds.
    const FIRST_BOUND: u64 = 256;

    pub(in crate::client) fn add(&mut self, nanos: u64) {
        self.sum_nanos = self.sum_nanos.wrapping_add(nanos);
        let above = nanos / (Latency::FIRST_BOUND * 1000);
        let bucket = (u64::BITS - above.leading_zeros()) as usize;
        let count = &mut self.counts[bucket.min(Latency::BUCKETS - 1)];
        *count = count.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_counted_in_the_first_bucket_with_a_greater_bound() {
        for (nanos, bucket) in [
            (0, 0),
            (255_999, 0),
            (256_000, 1),
            (511_999, 1),
            (512_000, 2),
            (u64::MAX, 15),
        ] {
            let mut latency = Latency::default();
            latency.add(nanos);
            assert_eq!(latency.counts[bucket], 1, "{nanos}");
            assert_eq!(latency.counts.iter().sum::<u32>(), 1);
        }
        assert_eq!(Latency::bound(0), Some(Duration::from_micros(256)));
        assert_eq!(Latency::bound(14), Some(Duration::from_micros(256 << 14)));
        assert_eq!(Latency::bound(15), None);
    }
}
