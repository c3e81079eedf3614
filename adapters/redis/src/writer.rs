//! Carries out the requests of a server in order, in batches. Repeats what failed until it is done.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use everlink::StoreRequest;
use everlink_tokio::http::{StoreInputs, StorePort};
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Shared;
use crate::connection::{self, Backoff};
use crate::operation::{Operation, Outcome, Scripts};

/// The most requests of one batch. More wait for the next, so that no batch takes long.
const BATCH: usize = 512;

/// The bytes of requests after which a batch takes no more. A batch that is too long for the time that Redis has would be repeated for ever.
const BATCH_BYTES: usize = 1 << 20;

/// How long a request that a client waits for may wait for Redis. A restart of Redis takes less.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most bytes of requests that wait for Redis. Beyond it, the oldest is dropped.
const MOST_BYTES: usize = 64 << 20;

/// How long the last requests may take after the server has ended.
const FLUSH: Duration = Duration::from_secs(1);

/// The requests that are not carried out yet.
struct Queue {
    waiting: VecDeque<Operation>,
    bytes: usize,
    last_note: u64,
    leaving: watch::Sender<bool>,
    /// Since when the server wants to leave, while requests before that are not carried out.
    leaves_since: Option<Instant>,
}

impl Queue {
    fn push(&mut self, shared: &Shared, request: StoreRequest) {
        if let StoreRequest::Leave = request {
            self.leaves_since = Some(Instant::now());
            self.leave_if_due();
            return;
        }
        let operation = Operation::new(request);
        self.bytes += operation.weight;
        self.waiting.push_back(operation);
        while self.bytes > MOST_BYTES {
            let Some(oldest) = self.pop() else {
                break;
            };
            drop(oldest);
            shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pop(&mut self) -> Option<Operation> {
        let operation = self.waiting.pop_front()?;
        self.bytes -= operation.weight;
        Some(operation)
    }

    /// Leaves when the requests before that are carried out, or at the first chance after [`PATIENCE`]: a server that has left is the home of no session, and what
    /// it still wrote to one would be lost.
    fn leave_if_due(&mut self) {
        let is_due = |since: &mut Instant| self.waiting.is_empty() || since.elapsed() > PATIENCE;
        if self.leaves_since.take_if(is_due).is_some() {
            self.leaving.send_replace(true);
        }
    }

    /// Takes the operations of the next batch.
    fn pop_batch(&mut self) -> Vec<Operation> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(mut operation) = self.pop() else {
                break;
            };
            bytes += operation.weight;
            operation.begin(&mut self.last_note);
            batch.push(operation);
        }
        batch
    }

    /// Puts operations back, in front of all others.
    fn put_back(&mut self, operations: Vec<Operation>) {
        for operation in operations.into_iter().rev() {
            self.bytes += operation.weight;
            self.waiting.push_front(operation);
        }
    }

    /// Removes the operations that clients waited for long enough. Nothing of them was done.
    fn give_up(&mut self, inputs: &StoreInputs) {
        let mut freed = 0;
        self.waiting.retain(|operation| {
            let Some(failed) = operation
                .failed()
                .filter(|_| operation.since.elapsed() > PATIENCE)
            else {
                return true;
            };
            inputs.feed(failed);
            freed += operation.weight;
            false
        });
        self.bytes -= freed;
    }
}

/// Carries out the requests of a server until it has ended.
pub(crate) async fn run(shared: &Shared, mut port: StorePort, leaving: watch::Sender<bool>) {
    let inputs = port.inputs();
    let scripts = Scripts::new();
    let mut queue = Queue {
        waiting: VecDeque::new(),
        bytes: 0,
        last_note: 0,
        leaving,
        leaves_since: None,
    };
    let (mut connection, mut backoff) = (None, Backoff::new());
    let mut is_open = true;
    while is_open || !queue.waiting.is_empty() {
        if queue.waiting.is_empty() {
            match port.recv().await {
                Some(request) => queue.push(shared, request),
                None => is_open = false,
            }
        }
        while let Some(request) = port.try_recv() {
            queue.push(shared, request);
        }
        if !is_open {
            let rest = flush(shared, &scripts, &inputs, &mut queue, &mut connection);
            let _ = timeout(FLUSH, rest).await;
            return;
        }
        if !step(shared, &scripts, &inputs, &mut queue, &mut connection).await {
            queue.give_up(&inputs);
            // New requests do not shorten the pause.
            let mut pause = pin!(backoff.wait());
            while is_open {
                tokio::select! {
                    () = &mut pause => break,
                    request = port.recv() => match request {
                        Some(request) => queue.push(shared, request),
                        None => is_open = false,
                    },
                }
            }
        } else {
            backoff = Backoff::new();
        }
        queue.leave_if_due();
    }
}

/// Carries out what is left.
async fn flush(
    shared: &Shared,
    scripts: &Scripts,
    inputs: &StoreInputs,
    queue: &mut Queue,
    connection: &mut Option<MultiplexedConnection>,
) {
    let mut backoff = Backoff::new();
    while !queue.waiting.is_empty() {
        if !step(shared, scripts, inputs, queue, connection).await {
            backoff.wait().await;
        }
    }
}

/// Carries out one batch. Returns whether Redis answered.
async fn step(
    shared: &Shared,
    scripts: &Scripts,
    inputs: &StoreInputs,
    queue: &mut Queue,
    connection: &mut Option<MultiplexedConnection>,
) -> bool {
    if queue.waiting.is_empty() {
        return true;
    }
    let open = match connection {
        Some(open) => open,
        None => match connection::connect_for_requests(shared).await {
            Ok(opened) => connection.insert(opened),
            Err(_) => return false,
        },
    };
    let mut batch = redis::pipe();
    let mut sent = queue.pop_batch();
    let mut lengths = Vec::with_capacity(sent.len());
    for operation in &sent {
        lengths.push(operation.add_to(&mut batch, shared, scripts));
    }
    let replies = connection::run_batch(shared, open, &mut batch).await;
    let Ok(replies) = replies else {
        *connection = None;
        // Redis may have carried out a part of the batch. What must not be done twice is not repeated, and not answered.
        sent.retain(|operation| !operation.is_once());
        sent.iter_mut().for_each(Operation::unanswered);
        queue.put_back(sent);
        return false;
    };
    let mut replies = replies.into_iter();
    let mut refused = Vec::new();
    for (mut operation, length) in sent.into_iter().zip(lengths) {
        match operation.read(replies.by_ref().take(length).collect()) {
            Outcome::Done(Some(input)) => inputs.feed(input),
            Outcome::Done(None) => {}
            Outcome::Again => {
                operation.refused();
                refused.push(operation);
            }
        }
    }
    let is_done = refused.is_empty();
    queue.put_back(refused);
    if !is_done {
        // The scripts may be gone, so that they are loaded again.
        *connection = None;
    }
    is_done
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::convert::Infallible;
    use std::sync::mpsc;

    use everlink::Output;
    use everlink_tokio::Transport as _;
    use everlink_tokio::http::ServerTransport;

    use crate::fake_redis::{fake_redis, ok};

    fn tell(transport: &mut ServerTransport, note: &str) {
        let request = StoreRequest::Tell {
            lookup: None,
            to: None,
            note: note.into(),
        };
        let output = Output::<Infallible>::Store(Box::new(request));
        transport.perform(output, &[]);
    }

    /// The texts that the peer reads with notes in them, until there are so many.
    async fn texts_with_notes(reports: mpsc::Receiver<String>, count: usize) -> Vec<String> {
        let waits = tokio::task::spawn_blocking(move || {
            let reports = reports.iter().filter(|text| text.contains("\r\nXADD\r\n"));
            reports.take(count).collect()
        });
        let waited = timeout(Duration::from_secs(20), waits).await;
        waited.expect("notes").expect("it ends")
    }

    #[tokio::test]
    async fn note_that_was_refused_comes_with_a_fresh_number() {
        let (store, reports) = fake_redis(|text| match text.matches("\r\nXADD\r\n").count() {
            0 => ok(text),
            1 => "$3\r\n3-0\r\n".to_owned(),
            _ => "-OOM no memory\r\n$3\r\n2-0\r\n".to_owned(),
        });
        let (_endpoint, mut transport, port) = ServerTransport::with_store();
        tell(&mut transport, "first");
        tell(&mut transport, "second");
        let writes = tokio::spawn(async move {
            run(&store.shared, port, watch::Sender::new(false)).await;
        });
        let texts = texts_with_notes(reports, 2).await;
        writes.abort();
        let number = |number: u8| format!("q\r\n$1\r\n{number}\r\n");
        assert!(texts[0].contains(&number(1)) && texts[0].contains(&number(2)));
        assert!(texts[1].contains("first") && !texts[1].contains("second"));
        assert!(texts[1].contains(&number(3)), "{}", texts[1]);
    }

    #[test]
    fn batch_is_bounded_by_bytes_and_by_requests() {
        let store = crate::RedisStore::new("redis://127.0.0.1").expect("a URL");
        let batches = |lengths: &[usize]| {
            let mut queue = Queue {
                waiting: VecDeque::new(),
                bytes: 0,
                last_note: 0,
                leaving: watch::Sender::new(false),
                leaves_since: None,
            };
            for length in lengths {
                let request = StoreRequest::Tell {
                    lookup: None,
                    to: None,
                    note: "n".repeat(*length).into(),
                };
                queue.push(&store.shared, request);
            }
            let mut counts = Vec::new();
            while !queue.waiting.is_empty() {
                counts.push(queue.pop_batch().len());
            }
            assert_eq!(queue.bytes, 0);
            counts
        };
        assert_eq!(batches(&[1; 600]), [512, 88]);
        assert_eq!(batches(&[400 << 10; 7]), [3, 3, 1]);
        assert_eq!(batches(&[8 << 20, 8 << 20, 1, 1]), [1, 1, 2]);
    }

    #[tokio::test]
    async fn server_leaves_after_what_it_wrote_before() {
        let leaving = watch::Sender::new(false);
        let (mut leaves, seen) = (leaving.subscribe(), leaving.subscribe());
        let (report, had_left) = mpsc::channel();
        let (store, _reports) = fake_redis(move |text| {
            if text.contains("\r\nXADD\r\n") {
                let _ = report.send(*seen.borrow());
            }
            ok(text)
        });
        let (_endpoint, mut transport, port) = ServerTransport::with_store();
        tell(&mut transport, "note");
        let leave = Output::<Infallible>::Store(Box::new(StoreRequest::Leave));
        transport.perform(leave, &[]);
        let writes = tokio::spawn(async move { run(&store.shared, port, leaving).await });
        let has_left = timeout(Duration::from_secs(20), leaves.wait_for(|leaves| *leaves)).await;
        assert!(has_left.expect("an end").is_ok(), "it leaves");
        let waits = tokio::task::spawn_blocking(move || had_left.recv());
        assert_eq!(waits.await.expect("it ends"), Ok(false));
        writes.abort();
    }

    #[tokio::test]
    async fn new_requests_do_not_shorten_the_pause_between_attempts() {
        let (store, reports) = fake_redis(|_| "-ERR no\r\n".repeat(9));
        let (_endpoint, mut transport, port) = ServerTransport::with_store();
        let writes = tokio::spawn(async move {
            run(&store.shared, port, watch::Sender::new(false)).await;
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(600) {
            tell(&mut transport, "note");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        writes.abort();
        let attempts = reports.try_iter().filter(String::is_empty).count();
        assert!((1..=10).contains(&attempts), "{attempts}");
    }
}
