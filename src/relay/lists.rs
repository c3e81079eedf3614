//! Records which lists the hosts have seen, as hashes, and whether they still match. Holds no list.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use crate::client::{FailureKind, Listing, Outcome};
use crate::json::{Json, Payload};
use crate::protocol::watch::List;
use crate::server::Caller;
use crate::util::digest;

#[derive(Debug, Default)]
pub(super) struct Lists {
    seen: BTreeMap<List, Reading>,
    /// The lists that are being compared.
    comparing: BTreeSet<List>,
}

/// The host that read a list, and the part that it read.
#[derive(Debug)]
struct Reading {
    caller: Caller,
    seen: Seen,
    /// Whether several hosts have read it. The relay does not know what each of them saw, so it notifies all of them when the server is
    /// replaced.
    by_several: bool,
}

/// The part of a list that a host has read, from the beginning on.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The number of items.
    items: usize,
    /// A chained hash of the items.
    look: u64,
    /// Whether these are all items.
    is_whole: bool,
}

impl Seen {
    fn and(self, item: &str) -> Seen {
        Seen {
            items: self.items + 1,
            look: digest::of(&format!("{:x} {item}", self.look)),
            ..self
        }
    }
}

impl Lists {
    /// Records that this host read a page of a list: the first one, or a later one.
    pub(super) fn record_page(
        &mut self,
        caller: &Caller,
        list: List,
        is_first_page: bool,
        result: &Payload,
    ) {
        let before = self.seen.get(&list);
        let by_several = before.is_some_and(|before| before.by_several || before.caller != *caller);
        let before = before.filter(|_| !is_first_page && !by_several);
        let seen = before.map(|before| before.seen).unwrap_or_default();
        let reading = Reading {
            caller: caller.clone(),
            seen: seen.and_page(list, result),
            by_several,
        };
        self.seen.insert(list, reading);
    }

    /// Whether a host has seen, or may have seen, another list than the present one.
    fn differs(&self, now: &Listing) -> bool {
        let Some(Reading {
            seen, by_several, ..
        }) = self.seen.get(&now.list)
        else {
            return false;
        };
        if *by_several {
            return true;
        }
        let start = now.items.iter().take(seen.items);
        let start = start.fold(Seen::default(), |start, item| start.and(item.as_str()));
        let is_longer = seen.is_whole && now.items.len() > seen.items;
        is_longer || (start.items, start.look) != (seen.items, seen.look)
    }

    /// Returns the lists that hosts have seen and that are not being compared yet. The caller compares them with those of a new epoch.
    pub(super) fn begin_comparing(&mut self) -> Vec<List> {
        let seen = self.seen.keys().copied();
        seen.filter(|list| self.comparing.insert(*list)).collect()
    }

    /// Ends the comparison of this list. Returns whether the host must be told that the list differs.
    pub(super) fn compare(&mut self, list: List, outcome: &Outcome) -> bool {
        self.compared(list);
        match outcome {
            Outcome::Listed(listing) => self.differs(listing),
            // A read that failed with its epoch says nothing about the list. The relay compares it again in the next one.
            Outcome::Failed(failure) => !matches!(
                failure.kind,
                FailureKind::Closed
                    | FailureKind::Down
                    | FailureKind::Lost
                    | FailureKind::NoContact
            ),
            Outcome::Error(_) | Outcome::Reply(_) => true,
        }
    }

    /// Records that the comparison of this list is over.
    pub(super) fn compared(&mut self, list: List) {
        self.comparing.remove(&list);
    }
}

/// Returns the list that this method reads. `None` if the method reads no list.
pub(super) fn read_by(method: &str) -> Option<List> {
    List::ALL.into_iter().find(|list| list.method() == method)
}

impl Seen {
    /// Adds the items of another page. A page that cannot be parsed counts as one item that no list has.
    fn and_page(self, list: List, result: &Payload) -> Seen {
        let member = |key| result.json().member(key).ok().flatten();
        let items = member(list.member());
        let items: Option<Vec<Json<'_>>> = items.and_then(|items| items.parse().ok());
        let seen = match items {
            Some(items) => items
                .iter()
                .fold(self, |seen, item| seen.and(item.as_str())),
            None => self.and(""),
        };
        let next = member("nextCursor");
        Seen {
            is_whole: next.is_none_or(Json::is_null),
            ..seen
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Instant;
    use crate::driver::{Epoch, StreamId};

    const ANN: Caller = Caller::exchange(StreamId::DUPLEX);

    #[test]
    fn a_list_that_several_clients_have_read_may_differ_for_each() {
        let mut lists = Lists::default();
        lists.record_page(&ANN, List::Tools, true, &page(r#"{"tools":[1]}"#));
        let eve = Caller::exchange(StreamId::new(1));
        lists.record_page(&eve, List::Tools, true, &page(r#"{"tools":[2]}"#));
        assert!(lists.differs(&listing(&["2"])), "ann saw another one");
    }

    fn page(json: &str) -> Payload {
        json.parse().unwrap()
    }

    fn listing(items: &[&str]) -> Listing {
        Listing {
            list: List::Tools,
            epoch: Epoch::FIRST,
            items: items.iter().map(|item| item.parse().unwrap()).collect(),
            read_at: Instant::ZERO,
            fresh_until: None,
        }
    }

    #[test]
    fn a_list_differs_when_its_items_do() {
        let mut lists = Lists::default();
        assert!(!lists.differs(&listing(&["1"])), "nobody has seen any");
        lists.record_page(
            &ANN,
            List::Tools,
            true,
            &page(r#"{"tools":[1,2],"ttlMs":5}"#),
        );
        for (now, differs) in [
            (&["1", "2"][..], false),
            (&["1", "3"], true),
            (&["2", "1"], true),
            (&["1"], true),
            (&["1", "2", "3"], true),
            (&[], true),
        ] {
            assert_eq!(lists.differs(&listing(now)), differs, "{now:?}");
        }
        assert_eq!(lists.begin_comparing(), [List::Tools]);
        assert_eq!(lists.begin_comparing(), [], "it is being compared");
        lists.compared(List::Tools);
        assert_eq!(lists.begin_comparing(), [List::Tools]);
    }

    #[test]
    fn pages_are_seen_one_after_the_other() {
        let mut lists = Lists::default();
        lists.record_page(
            &ANN,
            List::Tools,
            true,
            &page(r#"{"tools":[1,2],"nextCursor":"2"}"#),
        );
        assert!(
            !lists.differs(&listing(&["1", "2", "3"])),
            "the rest was not seen"
        );
        assert!(lists.differs(&listing(&["1", "3", "2"])));
        lists.record_page(
            &ANN,
            List::Tools,
            false,
            &page(r#"{"tools":[3],"nextCursor":null}"#),
        );
        assert!(!lists.differs(&listing(&["1", "2", "3"])));
        assert!(lists.differs(&listing(&["1", "2", "3", "4"])));
        lists.record_page(&ANN, List::Tools, true, &page(r#"{"tools":[]}"#));
        assert!(!lists.differs(&listing(&[])));
    }

    #[test]
    fn a_page_that_cannot_be_read_is_like_no_other() {
        let mut lists = Lists::default();
        lists.record_page(&ANN, List::Tools, true, &page("{}"));
        assert!(lists.differs(&listing(&[])));
        assert!(lists.differs(&listing(&["1"])));
    }
}
