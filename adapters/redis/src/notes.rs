//! Reads the notes of other servers, in order and each once.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use everlink::Input;
use everlink_tokio::http::StoreInputs;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use tokio::time::Instant;

use crate::Shared;
use crate::connection::{self, Backoff};

/// The most notes that are read at once. After a failure it is a quarter, because large notes may take longer than Redis has; then it doubles again.
const AT_ONCE: usize = 256;

/// How long a read waits for a note. A connection that broke without a sign is found soon after this time.
const WAIT: Duration = Duration::from_secs(2);

/// How far the notes are read.
struct Cursor {
    inbox: String,
    /// `None` until it is known where this server begins.
    broadcast: Option<String>,
    numbers: Numbers,
    /// How many notes the next read may return, of each of the two.
    at_once: usize,
}

/// The most senders whose numbers are remembered. Each server that is started again is a new sender.
const SENDERS: usize = 1_024;

/// How many numbers of a sender are remembered: more than the notes of a batch.
const KEPT: usize = 1_024;

/// After this time without a note, only the greatest number of a sender is remembered. Servers come and go, and all their numbers would be megabytes.
const SILENT: Duration = Duration::from_secs(600);

/// The numbers of the notes of each server to this one, and to all.
///
/// A note keeps its number if it may have arrived. Redis can refuse it and take a later note, also in a batch without a reply. So a smaller number than
/// the last one can be new.
#[derive(Default)]
struct Numbers {
    senders: HashMap<(String, bool), Sender>,
    /// How many notes came.
    count: u64,
}

struct Sender {
    seen: Seen,
    /// When its last note came: the count of all notes, and the time.
    last: (u64, Instant),
}

/// The numbers of the notes of one sender.
#[derive(Default)]
struct Seen {
    recent: BTreeSet<u64>,
    /// The greatest number that is no longer remembered. All up to it count as seen.
    forgotten: u64,
}

impl Seen {
    /// Remembers a number. Returns whether it is new.
    fn insert(&mut self, number: u64) -> bool {
        let is_new = number > self.forgotten && self.recent.insert(number);
        if self.recent.len() > KEPT {
            self.forgotten = self.recent.pop_first().unwrap_or_default();
        }
        is_new
    }

    /// Remembers only the greatest number.
    fn shrink(&mut self) {
        self.forgotten = self.recent.pop_last().unwrap_or(self.forgotten);
        self.recent.clear();
    }
}

impl Numbers {
    /// Whether a note that came now is new. A server repeats a note if its connection broke.
    fn is_new(&mut self, now: Instant, sender: String, is_broadcast: bool, number: u64) -> bool {
        self.count += 1;
        let key = (sender, is_broadcast);
        if !self.senders.contains_key(&key) {
            self.make_room(now);
        }
        let sender = self.senders.entry(key).or_insert_with(|| Sender {
            seen: Seen::default(),
            last: (0, now),
        });
        sender.last = (self.count, now);
        sender.seen.insert(number)
    }

    /// Forgets what silent senders need no longer, because there is a new one. Senders that are silent are gone, or have no note left to repeat: a note is
    /// repeated within seconds.
    fn make_room(&mut self, now: Instant) {
        for sender in self.senders.values_mut() {
            if now.duration_since(sender.last.1) >= SILENT {
                sender.seen.shrink();
            }
        }
        if self.senders.len() == SENDERS {
            // The half that was silent for longest.
            let mut last: Vec<u64> = self.senders.values().map(|it| it.last.0).collect();
            last.sort_unstable();
            let middle = last[last.len() / 2];
            self.senders.retain(|_, sender| sender.last.0 > middle);
        }
    }
}

/// Reads notes until it is dropped.
pub(crate) async fn run(shared: Shared, inputs: StoreInputs) {
    let mut cursor = Cursor {
        inbox: "0-0".to_owned(),
        broadcast: None,
        numbers: Numbers::default(),
        at_once: AT_ONCE,
    };
    let mut backoff = Backoff::new();
    loop {
        if let Ok(mut connection) = connection::connect_blocking(&shared, WAIT).await {
            while read(&shared, &mut connection, &mut cursor, &inputs)
                .await
                .is_ok()
            {
                backoff = Backoff::new();
                cursor.at_once = (cursor.at_once * 2).min(AT_ONCE);
            }
            cursor.at_once = (cursor.at_once / 4).max(1);
        }
        backoff.wait().await;
    }
}

async fn read(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    cursor: &mut Cursor,
    inputs: &StoreInputs,
) -> RedisResult<()> {
    let keys = &shared.keys;
    let broadcast = match &cursor.broadcast {
        Some(id) => id.clone(),
        None => {
            let mut newest = redis::cmd("XREVRANGE");
            newest.arg(&keys.broadcast).arg("+").arg("-");
            let newest: redis::streams::StreamRangeReply =
                newest.arg("COUNT").arg(1).query_async(connection).await?;
            let id = newest.ids.into_iter().next().map(|entry| entry.id);
            cursor
                .broadcast
                .insert(id.unwrap_or("0-0".to_owned()))
                .clone()
        }
    };
    let wait = usize::try_from(WAIT.as_millis()).unwrap_or(usize::MAX);
    let options = StreamReadOptions::default()
        .block(wait)
        .count(cursor.at_once);
    let from = [&keys.inbox, &keys.broadcast];
    let after = [&cursor.inbox, &broadcast];
    // Removes the notes that were read before: nobody reads them again, because a server that is started again has another inbox.
    let mut trim_and_read = redis::pipe();
    trim_and_read.cmd("XTRIM").arg(&keys.inbox);
    trim_and_read.arg("MINID").arg(&cursor.inbox).ignore();
    trim_and_read.cmd("XREAD").arg(&options);
    trim_and_read.arg("STREAMS").arg(&from).arg(&after);
    let (reply,): (Option<StreamReadReply>,) = trim_and_read.query_async(connection).await?;
    for stream in reply.into_iter().flat_map(|reply| reply.keys) {
        let is_broadcast = stream.key == keys.broadcast;
        for entry in stream.ids {
            let (sender, number): (Option<String>, Option<u64>) = (entry.get("f"), entry.get("q"));
            let note: Option<String> = entry.get("n");
            if is_broadcast {
                cursor.broadcast = Some(entry.id);
            } else {
                cursor.inbox = entry.id;
            }
            let (Some(sender), Some(number), Some(note)) = (sender, number, note) else {
                continue;
            };
            if cursor
                .numbers
                .is_new(Instant::now(), sender, is_broadcast, number)
            {
                let note = note.into();
                inputs.feed(Input::Note { note });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use everlink_tokio::http::ServerTransport;

    use crate::fake_redis::{fake_redis, ok};

    #[tokio::test]
    async fn read_without_an_answer_ends_with_a_new_connection() {
        let (store, reports) = fake_redis(|text| match text.contains("XREVRANGE") {
            true => String::new(),
            false => ok(text),
        });
        let (_endpoint, _transport, port) = ServerTransport::with_store();
        let reader = tokio::spawn(run(store.shared.clone(), port.inputs()));
        let waits = tokio::task::spawn_blocking(move || {
            for _ in 0..2 {
                let limit = Duration::from_secs(10);
                while !reports.recv_timeout(limit)?.contains("XREVRANGE") {}
            }
            Ok::<_, std::sync::mpsc::RecvTimeoutError>(())
        });
        let reads_again = waits.await.expect("it ends");
        reader.abort();
        reads_again.expect("a second read");
    }

    #[tokio::test]
    async fn read_that_fails_is_repeated_for_fewer_notes() {
        let (store, reports) = fake_redis(|text| match text.contains("XREAD\r\n") {
            true => ":0\r\n-ERR too much\r\n".to_owned(),
            false if text.contains("XREVRANGE") => "*0\r\n".to_owned(),
            false => ok(text),
        });
        let (_endpoint, _transport, port) = ServerTransport::with_store();
        let reader = tokio::spawn(run(store.shared.clone(), port.inputs()));
        let waits = tokio::task::spawn_blocking(move || {
            let mut counts = Vec::new();
            while counts.len() < 6 {
                let text = reports
                    .recv_timeout(Duration::from_secs(10))
                    .expect("a read");
                let mut parts = text.split("\r\n").skip_while(|part| *part != "COUNT");
                if text.contains("XREAD\r\n") {
                    counts.push(parts.nth(2).and_then(|count| count.parse().ok()));
                }
            }
            counts
        });
        let counts = waits.await.expect("it ends");
        reader.abort();
        assert_eq!(counts, [256_u32, 64, 16, 4, 1, 1].map(Some));
    }

    #[test]
    fn repeated_note_is_not_new() {
        let (mut numbers, now) = (Numbers::default(), Instant::now());
        assert!(numbers.is_new(now, "1".into(), false, 5));
        assert!(!numbers.is_new(now, "1".into(), false, 5));
        assert!(numbers.is_new(now, "1".into(), true, 5));
        assert!(numbers.is_new(now, "1".into(), false, 6));
    }

    #[test]
    fn note_that_comes_after_a_later_one_is_new_once() {
        let (mut numbers, now) = (Numbers::default(), Instant::now());
        assert!(numbers.is_new(now, "1".into(), true, 2));
        assert!(numbers.is_new(now, "1".into(), true, 1), "refused at first");
        assert!(!numbers.is_new(now, "1".into(), true, 1));
        assert!(!numbers.is_new(now, "1".into(), true, 2));
    }

    #[test]
    fn remembered_numbers_of_a_sender_are_bounded() {
        let mut seen = Seen::default();
        for number in 1..=10_000 {
            assert!(seen.insert(number));
            assert!(seen.recent.len() <= KEPT);
        }
        assert!(!seen.insert(1), "forgotten numbers count as seen");
        assert!(!seen.insert(9_999));
    }

    #[test]
    fn silent_sender_keeps_only_its_greatest_number_once_another_one_comes() {
        let (mut numbers, now) = (Numbers::default(), Instant::now());
        for number in [1, 3, 4] {
            assert!(numbers.is_new(now, "old".into(), false, number));
        }
        let kept = |numbers: &Numbers| -> usize {
            let senders = numbers.senders.values();
            senders.map(|sender| sender.seen.recent.len()).sum()
        };
        let later = now + SILENT;
        assert!(numbers.is_new(later - Duration::from_secs(1), "new".into(), false, 1));
        assert_eq!(kept(&numbers), 3 + 1);
        assert!(numbers.is_new(later, "newest".into(), false, 1));
        assert_eq!(kept(&numbers), 1 + 1);
        assert!(!numbers.is_new(later, "old".into(), false, 4));
        assert!(numbers.is_new(later, "old".into(), false, 5));
    }

    #[test]
    fn senders_that_are_gone_are_forgotten() {
        let (mut numbers, now) = (Numbers::default(), Instant::now());
        for sender in 0..100_000_u64 {
            assert!(numbers.is_new(now, sender.to_string(), false, 1));
            assert!(numbers.is_new(now, "busy".into(), false, sender + 1));
            let senders = numbers.senders.len();
            assert!(senders <= SENDERS, "{senders}");
        }
        assert!(!numbers.is_new(now, "busy".into(), false, 100_000));
    }
}
