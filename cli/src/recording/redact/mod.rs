//! Redacts recordings: replaces names, texts and numbers by others of the same length that a machine handles in the same way.
//!
//! Each text gets a key of its own, derived from a random key of this process that is never written. So a reader can tell neither what a text was nor
//! whether it occurred before. Three properties of a text remain: its length, its position, and the kind of each byte. The kinds are a digit, a part
//! of a character, a slash, a quote, an escape, and a letter for everything else.
//!
//! A machine compares some texts with each other. These texts are linked: within one recording, equal texts stay equal and different texts stay
//! different. The linked texts are
//!
//! - ids of requests, progress tokens, cursors, sessions, tasks and elicitations that are texts;
//! - names of tools and prompts, URIs, and everything in lists of tools, prompts, resources and templates;
//! - what clients and servers say about themselves, and capabilities that the protocol does not define;
//! - names of arguments, names of their header fields, and names of asks in a result; the arguments themselves only if header fields repeat them;
//! - methods that the protocol does not define.
//!
//! In a linked text, punctuation becomes other punctuation, and spaces and a leading zero stay. A reader can see whether two linked texts have the
//! same parts before a slash. For a text longer than 64 KiB, a reader can see how many bytes at its beginning equal those of another.
//!
//! Some things are not redacted:
//!
//! - the form of messages;
//! - names of members, methods, versions, log levels, kinds of results and types in schemas that the protocol defines;
//! - numbers that name asks, and error codes;
//! - numbers that are ids, tokens, progress, totals or lifetimes, and ids and tokens that are texts of digits;
//! - which capabilities there are;
//! - the lengths of `true` and `false`;
//! - HTTP statuses, and the fields `Accept`, `Content-Type`, `Date`, `Host`, `Last-Event-ID`, `MCP-Protocol-Version`, `Origin` and `Retry-After`;
//! - the scheme of a challenge, and the origin of an address;
//! - the times of all steps, the numbers of bytes, how a process ended, and the command's own options.
//!
//! The replacement of a name or a text may depend on all of its bytes. So a line of a recording is held until the names and texts that begin in it
//! have ended. This module knows no recording.
//!
//! `cipher` replaces texts, and `rules` lists the parts of a message that are shown or linked because a machine reads them. `mask` redacts messages,
//! and `events` redacts event streams.

mod cipher;
mod events;
mod mask;
mod rules;
#[cfg(test)]
mod tests;

pub(super) use cipher::Cipher;
pub(super) use events::EventMask;
pub(super) use mask::{Mask, SignedStateScanner};
