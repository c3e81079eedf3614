//! Turns a request of a server into commands of Redis, and their replies into an answer. Opens no connection.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use everlink::server::SessionRecord;
use everlink::{Input, StoreAnswer, StoreRequest};
use redis::{Pipeline, RedisResult, Value, from_redis_value};

use crate::Shared;
use crate::connection::hash_of;

/// Finds a session. Makes this server its home, unless its home still serves sessions.
const FIND: &str = "
local v = redis.call('HMGET', KEYS[1], 'r', 'h')
if not v[1] then return false end
local home = v[2]
if home ~= ARGV[2] and redis.call('GET', ARGV[1] .. home) ~= '1' then
  redis.call('HSET', KEYS[1], 'h', ARGV[2])
  home = ARGV[2]
end
return {v[1], home}";

/// Stores a session, unless it is over or has another home. A second attempt to store a new session succeeds.
const PUT: &str = "
local home = redis.call('HGET', KEYS[1], 'h')
if home then
  if home ~= ARGV[2] then return 0 end
elseif ARGV[3] == '0' then
  return 0
end
redis.call('HSET', KEYS[1], 'r', ARGV[1], 'h', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1";

/// Leaves a note for a server that is alive.
const TELL: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 100000, '*', 'f', ARGV[1], 'q', ARGV[2], 'n', ARGV[3])
redis.call('PEXPIRE', KEYS[2], 60000)
return 1";

pub(crate) const SCRIPTS: [&str; 3] = [FIND, PUT, TELL];

/// The most notes to all servers that are kept, for servers that were away for a moment.
const BROADCASTS: usize = 10_000;

/// The hashes of the scripts.
pub(crate) struct Scripts([String; 3]);

impl Scripts {
    pub(crate) fn new() -> Scripts {
        Scripts(SCRIPTS.map(hash_of))
    }
}

/// A request of a server, until it is carried out.
pub(crate) struct Operation {
    pub(crate) request: StoreRequest,
    /// The number of the note, if the request is one, from the first attempt on. It is the same at each attempt, so that the receiver knows a
    /// repetition.
    number: Option<u64>,
    /// Whether an earlier attempt may have been carried out.
    may_be_done: bool,
    pub(crate) since: Instant,
    pub(crate) weight: usize,
}

/// What became of an operation.
pub(crate) enum Outcome {
    /// It is done. The input is the answer, if it wants one.
    Done(Option<Input<'static>>),
    /// Redis refused it, and has done nothing.
    Again,
}

impl Operation {
    pub(crate) fn new(request: StoreRequest) -> Operation {
        Operation {
            weight: request.weight(),
            request,
            number: None,
            may_be_done: false,
            since: Instant::now(),
        }
    }

    /// An attempt begins. The number grows with each, and the note takes it, unless it has one.
    pub(crate) fn begin(&mut self, last_note: &mut u64) {
        if self.number.is_none() {
            *last_note += 1;
            self.number = Some(*last_note);
        }
    }

    /// The attempt got no reply.
    pub(crate) const fn unanswered(&mut self) {
        self.may_be_done = true;
    }

    /// Redis has refused the attempt. Notes after this one may have arrived, so it would look like a repetition under its number.
    pub(crate) const fn refused(&mut self) {
        if !self.may_be_done {
            self.number = None;
        }
    }

    /// The answer that says that nothing was done. `None` if nobody waits for one.
    pub(crate) fn failed(&self) -> Option<Input<'static>> {
        let lookup = self.request.lookup()?;
        let answer = StoreAnswer::Failed;
        Some(Input::Stored { lookup, answer })
    }

    /// Whether it must not be carried out twice.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self.request, StoreRequest::Tell { .. }) && self.request.lookup().is_some()
    }

    /// Adds its commands to a batch. Returns how many there are.
    pub(crate) fn add_to(&self, batch: &mut Pipeline, shared: &Shared, scripts: &Scripts) -> usize {
        let keys = &shared.keys;
        let before = batch.cmd_iter().count();
        let [find, put, tell] = &scripts.0;
        let number = self.number.unwrap_or_default();
        match &self.request {
            StoreRequest::Append {
                session,
                stream,
                number,
                message,
                keep,
            } => {
                let key = keys.events(session);
                // A message over the limit is not kept. In a stream of requests, it is known that there was one.
                let fits = message.len() <= shared.event_bytes;
                if fits || !is_standalone(*stream) {
                    let add = batch.cmd("XADD").arg(&key).arg("MAXLEN").arg(shared.events);
                    let add = add.arg("*").arg("s").arg(stream).arg("n").arg(number);
                    if fits {
                        add.arg("m").arg(&**message);
                    }
                }
                batch.cmd("PEXPIRE").arg(&key).arg(millis(*keep));
            }
            StoreRequest::Find { session, .. } => {
                let call = batch.cmd("EVALSHA").arg(find).arg(1);
                let call = call.arg(keys.session(session)).arg(keys.leases());
                call.arg(shared.instance);
            }
            StoreRequest::Forget { session } => {
                batch.cmd("UNLINK").arg(keys.events(session));
            }
            StoreRequest::IsAlive { node, .. } => {
                batch.cmd("EXISTS").arg(format!("{}{node}", keys.leases()));
            }
            StoreRequest::Put {
                record,
                is_new,
                keep,
                ..
            } => {
                let call = batch.cmd("EVALSHA").arg(put).arg(1);
                let call = call.arg(keys.session(&record.id)).arg(record.to_json());
                let call = call.arg(record.home).arg(u8::from(*is_new));
                call.arg(millis(*keep));
            }
            StoreRequest::Remove { session, .. } => {
                batch.cmd("UNLINK").arg(keys.session(session));
            }
            StoreRequest::Replay { session, .. } => {
                let events = keys.events(session);
                batch.cmd("XRANGE").arg(events).arg("-").arg("+");
            }
            StoreRequest::Tell {
                to: Some(to), note, ..
            } => {
                let call = batch.cmd("EVALSHA").arg(tell).arg(2);
                let call = call.arg(format!("{}{to}", keys.leases()));
                let call = call.arg(format!("{}{to}", keys.inboxes()));
                call.arg(shared.instance).arg(number).arg(&**note);
            }
            StoreRequest::Tell { to: None, note, .. } => {
                let add = batch.cmd("XADD").arg(&keys.broadcast);
                let add = add.arg("MAXLEN").arg("~").arg(BROADCASTS).arg("*");
                let add = add.arg("f").arg(shared.instance);
                add.arg("q").arg(number).arg("n").arg(&**note);
            }
            StoreRequest::Touch { session, keep } => {
                for key in [keys.session(session), keys.events(session)] {
                    batch.cmd("PEXPIRE").arg(key).arg(millis(*keep));
                }
            }
            // `Leave` needs no command here: the writer ends the lease. Other requests are newer than this store.
            _ => {}
        }
        batch.cmd_iter().count() - before
    }

    /// Reads the replies to its commands.
    pub(crate) fn read(&self, replies: Vec<RedisResult<Value>>) -> Outcome {
        // Redis refuses all commands while it loads its data, and all that write while it has no memory left.
        let replies: RedisResult<Vec<Value>> = replies.into_iter().collect();
        let Ok(replies) = replies else {
            return Outcome::Again;
        };
        let first = replies.into_iter().next().unwrap_or(Value::Nil);
        let answer = match &self.request {
            StoreRequest::Find { session, .. } => found(session, first),
            StoreRequest::Replay { stream, after, .. } => replayed(first, *stream, *after),
            StoreRequest::Remove { .. } | StoreRequest::Tell { to: None, .. } => {
                StoreAnswer::Done(true)
            }
            _ => from_redis_value::<i64>(first)
                .map_or(StoreAnswer::Failed, |count| StoreAnswer::Done(count > 0)),
        };
        let lookup = self.request.lookup();
        Outcome::Done(lookup.map(|lookup| Input::Stored { lookup, answer }))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).map_or(i64::MAX as u64, |millis| millis.clamp(1, 1 << 50))
}

fn found(session: &str, reply: Value) -> StoreAnswer {
    if reply == Value::Nil || reply == Value::Boolean(false) {
        return StoreAnswer::Session(None);
    }
    let read = from_redis_value::<(String, u32)>(reply).ok();
    let record = read.and_then(|(text, home)| SessionRecord::from_json(session, home, &text));
    record.map_or(StoreAnswer::Failed, |record| {
        StoreAnswer::Session(Some(Box::new(record)))
    })
}

/// Finds the messages of one stream after a number among all messages of a session.
fn replayed(reply: Value, stream: u64, after: u64) -> StoreAnswer {
    type Entry = (String, BTreeMap<String, String>);
    let Ok(entries) = from_redis_value::<Vec<Entry>>(reply) else {
        return StoreAnswer::Failed;
    };
    let mut kept = BTreeMap::new();
    for (_, mut fields) in entries {
        let number = |name| {
            fields
                .get(name)
                .and_then(|text: &String| text.parse::<u64>().ok())
        };
        if let (Some(of), Some(number)) = (number("s"), number("n")) {
            // A message that was stored twice, because the first reply of Redis was lost, is shown once. One that was too long to keep has a number only.
            if of == stream {
                kept.insert(number, fields.remove("m"));
            }
        }
    }
    let is_complete = if is_standalone(stream) {
        !kept.is_empty()
    } else {
        is_whole_after(&kept, after)
    };
    let events = kept.into_iter().filter(|(number, _)| *number > after);
    StoreAnswer::Events {
        events: events
            .filter_map(|(number, text)| Some((number, text?.into())))
            .collect(),
        is_complete,
    }
}

/// Whether nothing is missing in a stream of requests after a number.
fn is_whole_after(kept: &BTreeMap<u64, Option<String>>, after: u64) -> bool {
    let Some(first) = after.checked_add(1) else {
        return false;
    };
    let mut following = kept.range(first..).peekable();
    if following.peek().is_none() {
        return kept.contains_key(&after);
    }
    let mut expected = first..;
    following.all(|(number, message)| message.is_some() && expected.next() == Some(*number))
}

/// Whether a stream belongs to no request. A gap in it is harmless.
const fn is_standalone(stream: u64) -> bool {
    stream % 2 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisStore;

    fn entry(stream: u64, number: u64) -> Value {
        let text = |text: String| Value::BulkString(text.into_bytes());
        let fields = [
            ("s", stream.to_string()),
            ("n", number.to_string()),
            ("m", format!("message {number}")),
        ];
        let fields = fields
            .into_iter()
            .flat_map(|(name, value)| [text(name.into()), text(value)]);
        Value::Array(vec![
            text(format!("{number}-0")),
            Value::Array(fields.collect()),
        ])
    }

    #[test]
    fn replay_shows_each_message_of_the_stream_once_and_knows_gaps() {
        let entries = || {
            let of_stream = [1, 2, 2, 3, 5].map(|number| entry(7, number));
            Value::Array([entry(8, 9)].into_iter().chain(of_stream).collect())
        };
        let replay = |stream, after| match replayed(entries(), stream, after) {
            StoreAnswer::Events {
                events,
                is_complete,
            } => {
                let numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
                (numbers, is_complete)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(replay(7, 1), (vec![2, 3, 5], false), "4 is missing");
        assert_eq!(replay(7, 3), (vec![5], false), "4 is missing");
        assert_eq!(replay(7, 4), (vec![5], true));
        assert_eq!(replay(8, 0), (vec![9], true), "it belongs to no request");
        assert_eq!(replay(7, 5), (vec![], true), "nothing follows");
        assert_eq!(replay(7, 6), (vec![], false), "the store never had it");
        assert_eq!(replay(9, 0), (vec![], false), "no such stream");
        assert_eq!(replay(7, u64::MAX), (vec![], false));
    }

    #[test]
    fn message_that_is_too_long_to_keep_is_a_gap_in_a_stream_of_requests() {
        let store = RedisStore::new("redis://127.0.0.1").expect("a URL");
        let shared = store.with_events(256, 10).shared;
        let append = |stream, length| {
            let request = StoreRequest::Append {
                session: "a".into(),
                stream,
                number: 2,
                message: "m".repeat(length).into(),
                keep: Duration::from_secs(1),
            };
            let mut batch = redis::pipe();
            let count = Operation::new(request).add_to(&mut batch, &shared, &Scripts::new());
            let commands = String::from_utf8_lossy(&batch.get_packed_pipeline()).into_owned();
            (count, commands.contains("\r\nm\r\n"))
        };
        assert_eq!(append(7, 10), (2, true));
        assert_eq!(append(7, 11), (2, false), "only its number");
        assert_eq!(append(8, 11), (1, false));
        let too_long = |stream, number: u64| match entry(stream, number) {
            Value::Array(parts) => match &parts[..] {
                [id, Value::Array(fields)] => {
                    Value::Array(vec![id.clone(), Value::Array(fields[..4].to_vec())])
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        for (stream, is_resumable) in [(7, false), (8, true)] {
            let entries = || Value::Array(vec![entry(stream, 1), too_long(stream, 2)]);
            let answer = |is_complete| StoreAnswer::Events {
                events: Vec::new(),
                is_complete,
            };
            assert_eq!(replayed(entries(), stream, 1), answer(is_resumable));
            assert_eq!(replayed(entries(), stream, 2), answer(true));
        }
    }

    #[test]
    fn reply_that_is_no_record_is_a_failure_and_not_an_absent_session() {
        assert_eq!(found("a", Value::Nil), StoreAnswer::Session(None));
        for reply in [Value::Int(1), Value::Array(Vec::new())] {
            assert_eq!(found("a", reply), StoreAnswer::Failed);
        }
    }
}
