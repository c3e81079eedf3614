//! What a recording does not say: names, texts and numbers become others of the same length, so that a machine that reads them does the same.
//!
//! Each text has a key of its own, made from a random key of this process that is written nowhere. So nobody can tell what it was, nor whether it
//! stood somewhere before. Three things of it remain: how long it is, the kind of each of its bytes (a digit, a part of a character, a slash, a
//! quote, an escape, else a letter), and where it stands.
//!
//! A machine compares some texts with others. These are linked: equal ones stay equal and different ones different, in one recording. They are
//!
//! - ids of requests, progress tokens, cursors, sessions, tasks and elicitations that are texts;
//! - names of tools and prompts, URIs, and all that is in lists of tools, prompts, resources and templates;
//! - what clients and servers say of themselves, and capabilities that the protocol does not know;
//! - names of arguments, names of fields for them, and names of questions in a result; the arguments themselves only where fields repeat them;
//! - methods that the protocol does not know.
//!
//! Of a linked text, marks stay marks and spaces stay, a zero at its beginning does, and where two have the same parts up to a slash that can be seen.
//! Where one is longer than 64 KiB, it can be seen how far it begins like another.
//!
//! Shown as they are: the form of messages; names of members, methods, versions, log levels, kinds of results and types in schemas that the protocol
//! has; numbers by which questions are called; codes of errors; numbers that are ids, tokens, progress, totals or lifetimes, and ids and tokens that are texts of digits; which capabilities there are; `true` and `false` by their
//! length alone; in HTTP, statuses and the fields `Accept`, `Content-Type`, `Date`, `Host`, `Last-Event-ID`, `MCP-Protocol-Version`, `Origin` and
//! `Retry-After`, the scheme of a challenge, and the origin of an address. Not changed at all: when something happened, how many bytes it was, how a
//! process ended, and the command's own options.
//!
//! What a name or a text becomes may depend on all of it. So a line of a recording waits until what was begun in it is over. Knows no recording.
//!
//! `cipher` changes texts, `words` says which parts of a message are shown or linked because a machine reads them, `mask` changes messages and `events`
//! streams of them.

mod cipher;
mod events;
mod mask;
#[cfg(test)]
mod tests;
mod words;

pub(super) use cipher::Cipher;
pub(super) use events::EventMask;
pub(super) use mask::{Mask, Seal};
