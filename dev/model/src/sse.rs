//! Server-sent events: the reader against one that sees the whole stream at once, and against the writer. Knows no message.

use std::time::Duration;

use everlink::internal::wire::{Id, SseEvent, SseReader, sse as wire};

use crate::json;

/// The most bytes of a name and of an id that count.
const NAME: usize = 256;
const ID: usize = 4096;

/// The limits to choose from.
const LIMITS: [usize; 9] = [0, 1, 2, 3, 8, 16, 64, 256, 4096];

/// An event, owned, and the last id once it was told.
type Told = (Seen, Option<String>);

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Message(String, String),
    NotUtf8,
    /// The length, and what else is known: the id, and whether it is a reply.
    Oversized(u64, Option<(Option<Id>, bool)>),
    Primed,
    Retry(Duration),
}

/// Cuts `data` into events, in chunks that it decides itself, and compares with reading it at once. Then writes what was
/// read, and reads it again.
///
/// The first byte chooses the limit, the second how many of the following bytes are sizes of chunks, used in turn. In the
/// rest, the bytes 1 and 2 stand for half of the longest name and of the longest id, so that few bytes reach the limits.
pub fn sse(data: &[u8]) {
    let [limit, sizes, rest @ ..] = data else {
        return;
    };
    let limit = LIMITS[usize::from(*limit) % LIMITS.len()];
    let (sizes, rest) = rest.split_at(rest.len().min(usize::from(*sizes % 8)));
    let stream = unfold(rest);
    let mut expected = naive(&stream, limit);
    let mut seen = chunked(&stream, limit, sizes);
    assert_eq!(seen.len(), expected.len(), "another number of events");
    for (seen, expected) in seen.iter_mut().zip(&mut expected) {
        // The slow reader says nothing of what is not JSON.
        if let (Seen::Oversized(_, told), Seen::Oversized(_, None)) = (&mut seen.0, &expected.0) {
            *told = None;
        }
        assert_eq!(seen, expected);
    }
    there_and_back(&seen, sizes);
    beside_peer(&stream, sizes);
}

/// Compares with the crate `sse-core`.
///
/// These differences are meant:
/// - Ours has limits for names and ids, so streams with longer ones are not compared.
/// - Ours reports bytes that are not UTF-8, and drops an id that has them. The crate replaces them.
/// - Ours takes an event with empty data for none, and reports one without data that has an id.
/// - Ours reports a time to wait of any length. The crate ignores one beyond 32 bits.
fn beside_peer(stream: &[u8], sizes: &[u8]) {
    if stream.len() > NAME || std::str::from_utf8(stream).is_err() {
        return;
    }
    let mut decoder = sse_core::SseDecoder::new();
    let mut peers = Vec::new();
    let mut bytes = stream;
    while let Some(event) = decoder.next(&mut bytes) {
        match event.expect("below the limit") {
            sse_core::SseEvent::Message(event) if event.data.is_empty() => {}
            sse_core::SseEvent::Message(event) => {
                let id = event.last_event_id.map(|id| id.to_string());
                let id = id.filter(|id| !id.is_empty());
                peers.push((Seen::Message(event.event.into(), event.data), id));
            }
            sse_core::SseEvent::Retry(wait) => {
                let id = decoder.last_event_id().map(|id| id.to_string());
                let id = id.filter(|id| !id.is_empty());
                peers.push((Seen::Retry(Duration::from_millis(wait.into())), id));
            }
        }
    }
    let most = Duration::from_millis(u32::MAX.into());
    let mut ours = chunked(stream, usize::MAX - 2 * NAME - 4 * ID, sizes);
    ours.retain(|(seen, _)| match seen {
        Seen::Primed => false,
        Seen::Retry(wait) => *wait <= most,
        _ => true,
    });
    assert_eq!(ours, peers, "our reader and sse-core differ");
}

fn unfold(bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            1 => stream.extend([b'x'; NAME / 2]),
            2 => stream.extend([b'y'; ID / 2]),
            _ => stream.push(*byte),
        }
    }
    stream
}

fn chunked(mut stream: &[u8], limit: usize, sizes: &[u8]) -> Vec<Told> {
    let mut reader = SseReader::new(limit);
    let mut told = Vec::new();
    let mut sizes = sizes.iter().cycle();
    while !stream.is_empty() {
        let size = sizes
            .next()
            .map_or(stream.len(), |size| usize::from(*size) + 1);
        let (mut chunk, rest) = stream.split_at(size.min(stream.len()));
        stream = rest;
        while let Some(event) = reader.next(&mut chunk).map(own) {
            told.push((event, reader.last_id().map(Into::into)));
        }
        assert!(chunk.is_empty(), "a part of a chunk was left");
        assert!(
            reader.buffered() <= limit + NAME + 2 * ID,
            "more is kept than the limits allow"
        );
    }
    told
}

fn own(event: SseEvent<'_>) -> Seen {
    match event {
        SseEvent::Message { name, data } => Seen::Message(name.into(), data.into()),
        SseEvent::NotUtf8 => Seen::NotUtf8,
        SseEvent::Oversized(skimmed) => {
            Seen::Oversized(skimmed.len, Some((skimmed.id, skimmed.is_response)))
        }
        SseEvent::Primed => Seen::Primed,
        SseEvent::Retry(wait) => Seen::Retry(wait),
        _ => unreachable!("a kind of event that is not known here"),
    }
}

/// An event as its lines, before it is known what they come to.
#[derive(Default)]
struct Block {
    data: Vec<Vec<u8>>,
    name: Vec<u8>,
    id: Option<String>,
}

fn naive(stream: &[u8], limit: usize) -> Vec<Told> {
    let mut told = Vec::new();
    let mut block = Block::default();
    let mut last_id = None;
    for line in lines(stream) {
        if line.is_empty() {
            let block = std::mem::take(&mut block);
            let primes = block.id.is_some();
            if let Some(id) = &block.id {
                last_id = Some(id.clone()).filter(|id| !id.is_empty());
            }
            if let Some(seen) = naive_event(block, limit) {
                told.push((seen, last_id.clone()));
            } else if primes {
                told.push((Seen::Primed, last_id.clone()));
            }
        } else if let Some(wait) = naive_line(&line, &mut block) {
            told.push((Seen::Retry(wait), last_id.clone()));
        }
    }
    told
}

/// The lines that came to their ends.
fn lines(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix(json::MARK).unwrap_or(stream);
    let mut lines = vec![Vec::new()];
    let mut before = 0;
    for byte in stream {
        match (before, byte) {
            (b'\r', b'\n') => {}
            (_, b'\r' | b'\n') => lines.push(Vec::new()),
            _ => lines.last_mut().unwrap().push(*byte),
        }
        before = *byte;
    }
    lines.pop();
    lines
}

fn naive_line(line: &[u8], block: &mut Block) -> Option<Duration> {
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = match colon {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &line[..0]),
    };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"data" => block.data.push(value.into()),
        b"event" if value.len() <= NAME => block.name = value.into(),
        b"id" if value.len() <= ID && !value.contains(&0) => {
            block.id = String::from_utf8(value.into()).ok().or(block.id.take());
        }
        b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
            let digits = std::str::from_utf8(value).unwrap();
            return Some(Duration::from_millis(digits.parse().unwrap_or(u64::MAX)));
        }
        _ => {}
    }
    None
}

fn naive_event(block: Block, limit: usize) -> Option<Seen> {
    let data = block.data.join(&b'\n');
    if data.is_empty() {
        return None;
    }
    if data.len() > limit {
        return Some(Seen::Oversized(data.len() as u64, json::skim(&data)));
    }
    Some(
        match (String::from_utf8(block.name), String::from_utf8(data)) {
            (Ok(name), Ok(data)) if name.is_empty() => Seen::Message("message".into(), data),
            (Ok(name), Ok(data)) => Seen::Message(name, data),
            _ => Seen::NotUtf8,
        },
    )
}

/// Writes what a writer can say of a stream, and reads it back.
fn there_and_back(told: &[Told], sizes: &[u8]) {
    let mut stream = Vec::new();
    let mut expected = Vec::new();
    for (seen, id) in told {
        // An id that was never there or is no more cannot be said: an empty one is the same.
        let said = id.as_deref().unwrap_or("");
        match seen {
            Seen::Message(name, data) => {
                let data = data.replace('\n', " ");
                wire::begin(&mut stream, Some(said), Some(name));
                stream.extend_from_slice(data.as_bytes());
                wire::end(&mut stream);
                let name = if name.contains('\0') { "message" } else { name };
                expected.push((Seen::Message(name.into(), data), id.clone()));
            }
            Seen::NotUtf8 | Seen::Oversized(..) => wire::comment(&mut stream),
            Seen::Primed => {
                wire::prime(&mut stream, said, None);
                expected.push((Seen::Primed, id.clone()));
            }
            Seen::Retry(wait) => {
                // The last id is that of an event before, which need not have been said.
                wire::prime(&mut stream, said, Some(*wait));
                let before = expected.last().and_then(|(_, id): &Told| id.clone());
                let wait = (*wait).min(Duration::from_millis(i64::MAX as u64));
                expected.push((Seen::Retry(wait), before));
                expected.push((Seen::Primed, id.clone()));
            }
        }
    }
    assert_eq!(chunked(&stream, LIMITS[8], sizes), expected);
}
