//! Finds the watchers of a change, and tells them of it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::protocol::watch::{Change, covering};
use crate::server::context::Context;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::frame::Frame;
use crate::server::watches::{Watcher, Watches, place};
use crate::util::sorted::Sorted;
use crate::wire::Id;

impl Watches {
    /// Whether another client than that of `session` watches exactly this URI.
    pub(crate) fn is_watched_without(&self, session: Option<SessionKey>, uri: &str) -> bool {
        let own = session.map(Watcher::Legacy);
        let mut watchers = self.topics.get(uri).into_iter().flat_map(Sorted::keys);
        watchers.any(|watcher| Some(*watcher) != own)
    }

    /// Whether any client is to be told of a change of this resource.
    pub(crate) fn is_watched(&self, uri: &str) -> bool {
        self.covering(uri).next().is_some()
    }

    /// Queues a change for everybody who watches it. `can_hear` says whether a legacy client can be told of it.
    pub(crate) fn publish(
        &self,
        cx: &mut Context,
        change: &Change,
        can_hear: impl Fn(SessionKey) -> bool,
    ) {
        // A change that is queued already is not queued again. So the watched URIs bound the number of queued changes, and none is dropped.
        let recipients = self.recipients(change).into_iter();
        let frames: Vec<(QueueId, Frame)> = recipients
            .filter_map(|Recipient { queue, to, by }| {
                let to = match to {
                    Receiver::Legacy(session) => can_hear(session).then_some(None)?,
                    Receiver::Listen(id) => Some(id.clone()),
                };
                let told = match by {
                    Match::Below(watched) if !cx.outgoing.has_room(queue) => {
                        let uri = watched.into();
                        Change::Resource { uri }
                    }
                    Match::Exact | Match::Below(_) => change.clone(),
                };
                Some((queue, Frame::Changed(to, told)))
            })
            .collect();
        for (queue, frame) in frames {
            cx.outgoing.push(queue, frame);
        }
    }

    /// The receivers of a change (S-SUB-02), each once.
    pub(super) fn recipients<'w>(&'w self, change: &'w Change) -> Vec<Recipient<'w>> {
        let hearing = match change {
            Change::List(list) => {
                let list = place(*list);
                let first = (list, Watcher::Legacy(SessionKey::DUPLEX));
                let watchers = self.lists.range(first..);
                watchers
                    .take_while(|(of, _)| *of == list)
                    .map(|(_, watcher)| (*watcher, Match::Exact))
                    .collect::<BTreeMap<_, _>>()
            }
            Change::Resource { uri } => {
                let mut hearing = BTreeMap::new();
                for (watched, watchers) in self.covering(uri) {
                    let heard = if *watched == **uri {
                        Match::Exact
                    } else {
                        Match::Below(watched)
                    };
                    for watcher in watchers.keys() {
                        // If several watched URIs cover this one, the shortest counts. They come longest first.
                        let known = hearing.entry(*watcher).or_insert(heard);
                        if *known != Match::Exact {
                            *known = heard;
                        }
                    }
                }
                hearing
            }
        };
        let hearing = hearing.into_iter().filter_map(|(watcher, heard)| {
            let (queue, to) = match watcher {
                Watcher::Legacy(session) => (session.queue(), Receiver::Legacy(session)),
                Watcher::Listen(number) => {
                    let listen = self.listens.get(&number)?;
                    (listen.queue, Receiver::Listen(&listen.wire.id))
                }
            };
            Some(Recipient {
                queue,
                to,
                by: heard,
            })
        });
        hearing.collect()
    }

    /// The watched URIs that are this one or that it lies below, with their watchers; the longest first.
    pub(super) fn covering<'w>(
        &'w self,
        uri: &'w str,
    ) -> impl Iterator<Item = (&'w str, &'w Sorted<Watcher, ()>)> {
        let last = |upto: Bound<&str>| {
            let mut topics = self.topics.range::<str, _>((Bound::Unbounded, upto));
            topics.next_back().map(|(watched, _)| &**watched)
        };
        let found = covering(uri, last);
        found.filter_map(|watched| Some((watched, self.topics.get(watched)?)))
    }
}

/// A receiver of a change.
pub(super) struct Recipient<'w> {
    /// The queue to the receiver.
    pub(super) queue: QueueId,
    pub(super) to: Receiver<'w>,
    pub(super) by: Match<'w>,
}

/// The client or the watch that receives a change.
#[derive(Clone, Copy)]
pub(super) enum Receiver<'w> {
    /// This legacy client.
    Legacy(SessionKey),
    /// The modern watch whose request has this id.
    Listen(&'w Id),
}

/// How a receiver is told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match<'a> {
    /// Exactly, because the receiver watches the changed list or URI itself.
    Exact,
    /// The receiver watches this URI, and the changed one lies below it.
    Below(&'a str),
}
