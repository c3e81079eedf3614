//! Reads the notes of other servers, in order and each once.

use std::collections::HashMap;

use everlink::Input;
use everlink_tokio::http::StoreInputs;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands, RedisResult};

use crate::Shared;
use crate::connection::{self, Backoff};

/// The most notes that are read at once.
const AT_ONCE: usize = 256;

/// How long a read waits for a note, in milliseconds. A connection that broke without a sign is found after this time.
const WAIT: usize = 2_000;

/// How far the notes are read.
struct Cursor {
    inbox: String,
    /// `None` until it is known where this server begins.
    broadcast: Option<String>,
    /// The number of the last note of each server to this one, and to all. A greater number is new.
    last: HashMap<(String, bool), u64>,
}

/// Reads notes until it is dropped.
pub(crate) async fn run(shared: Shared, inputs: StoreInputs) {
    let mut cursor = Cursor {
        inbox: "0-0".to_owned(),
        broadcast: None,
        last: HashMap::new(),
    };
    let mut backoff = Backoff::new();
    loop {
        if let Ok(mut connection) = connection::connect_blocking(&shared).await {
            while read(&shared, &mut connection, &mut cursor, &inputs)
                .await
                .is_ok()
            {
                backoff = Backoff::new();
            }
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
    let options = StreamReadOptions::default().block(WAIT).count(AT_ONCE);
    let from = [&keys.inbox, &keys.broadcast];
    let after = [&cursor.inbox, &broadcast];
    let reply: Option<StreamReadReply> = connection.xread_options(&from, &after, &options).await?;
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
            let last = cursor.last.entry((sender, is_broadcast)).or_default();
            if number > *last {
                *last = number;
                let note = note.into();
                inputs.feed(Input::Note { note });
            }
        }
    }
    Ok(())
}
