//! Lines: the reader against a splitter that sees the whole stream at once. Knows no message.

use everlink::internal::wire::{Id, Line, LineReader};

use crate::json;

/// A line, owned.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    NotUtf8(Vec<u8>),
    /// The length, and what else is known: the id, and whether it is a reply.
    Oversized(u64, Option<(Option<Id>, bool)>),
    Text(String),
}

/// Cuts `data` into lines, in chunks that it decides itself, and compares with cutting it at once.
///
/// The first byte chooses the limit, the second how many of the following bytes are sizes of chunks, used in turn.
pub fn line(data: &[u8]) {
    let [limit, sizes, rest @ ..] = data else {
        return;
    };
    let limit = [0, 1, 2, 3, 8, 16, 64, 256, 4096][usize::from(*limit) % 9];
    let (sizes, stream) = rest.split_at(rest.len().min(usize::from(*sizes % 8)));
    let mut expected = naive(stream, limit);
    let mut seen = chunked(stream, limit, sizes);
    assert_eq!(seen.len(), expected.len(), "another number of lines");
    for (seen, expected) in seen.iter_mut().zip(&mut expected) {
        // The slow reader says nothing of what is not JSON.
        if let (Seen::Oversized(_, told), Seen::Oversized(_, None)) = (&mut *seen, &*expected) {
            *told = None;
        }
        assert_eq!(seen, expected);
    }
}

fn chunked(mut stream: &[u8], limit: usize, sizes: &[u8]) -> Vec<Seen> {
    let mut reader = LineReader::new(limit);
    let mut lines = Vec::new();
    let mut sizes = sizes.iter().cycle();
    while !stream.is_empty() {
        let size = sizes
            .next()
            .map_or(stream.len(), |size| usize::from(*size) + 1);
        let (mut chunk, rest) = stream.split_at(size.min(stream.len()));
        stream = rest;
        while let Some(line) = reader.next(&mut chunk) {
            lines.push(own(line));
        }
        assert!(chunk.is_empty(), "a part of a chunk was left");
        assert!(
            reader.buffered() <= limit,
            "more is kept than the limit allows"
        );
    }
    lines.extend(reader.finish().map(own));
    assert_eq!(reader.buffered(), 0);
    assert_eq!(reader.finish(), None, "a stream ends twice");
    lines
}

fn own(line: Line<'_>) -> Seen {
    match line {
        Line::NotUtf8(bytes) => Seen::NotUtf8(bytes.to_vec()),
        Line::Oversized(skimmed) => {
            Seen::Oversized(skimmed.len, Some((skimmed.id, skimmed.is_response)))
        }
        Line::Text(text) => Seen::Text(text.into()),
        _ => unreachable!("a kind of line that is not known here"),
    }
}

fn naive(stream: &[u8], limit: usize) -> Vec<Seen> {
    let pieces = stream.split(|byte| *byte == b'\n');
    pieces
        .filter_map(|piece| naive_line(piece, limit))
        .collect()
}

fn naive_line(piece: &[u8], limit: usize) -> Option<Seen> {
    if piece.len() > limit {
        return Some(Seen::Oversized(piece.len() as u64, json::skim(piece)));
    }
    let mut bytes = piece.to_vec();
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    if bytes.starts_with(json::MARK) {
        bytes.drain(..json::MARK.len());
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    Some(match String::from_utf8(bytes) {
        Ok(text) => Seen::Text(text),
        Err(error) => Seen::NotUtf8(error.into_bytes()),
    })
}
