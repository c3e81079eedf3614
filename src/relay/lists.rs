//! Which lists the client in front has seen, and whether they are still what it saw. Holds no list.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::digest;
use crate::watch::List;
use crate::wire::{Payload, object};

#[derive(Debug, Default)]
pub(super) struct Lists {
    /// What each list looked like when it was last read; `None` where that cannot be told from its first page.
    seen: BTreeMap<List, Option<u64>>,
    /// Those that are being compared.
    comparing: BTreeSet<List>,
}

impl Lists {
    /// The client in front read this page of a list: the first one, or a later one.
    pub(super) fn saw(&mut self, list: List, is_first_page: bool, result: &Payload) {
        let look = look(list, result).filter(|_| is_first_page);
        self.seen.insert(list, look);
    }

    /// Whether the client in front has seen something else than what this first page of the list is.
    pub(super) fn differs(&self, list: List, result: &Payload) -> bool {
        match self.seen.get(&list) {
            None => false,
            Some(None) => true,
            Some(seen) => *seen != look(list, result),
        }
    }

    /// The lists that have been seen, and are to be compared with those of a new life.
    pub(super) fn begin_comparing(&mut self) -> Vec<List> {
        let seen = self.seen.keys().copied();
        seen.filter(|list| self.comparing.insert(*list)).collect()
    }

    /// It is known whether this one differs.
    pub(super) fn compared(&mut self, list: List) {
        self.comparing.remove(&list);
    }
}

/// The list that this method reads.
pub(super) fn read_by(method: &str) -> Option<List> {
    List::ALL.into_iter().find(|list| list.method() == method)
}

/// What a list looks like, if this page is all of it.
fn look(list: List, result: &Payload) -> Option<u64> {
    let result = result.as_str();
    let items = object::member(result, list.member()).ok()??;
    let next = object::member(result, "nextCursor").ok()?;
    let is_whole = next.is_none_or(|at| &result[at] == "null");
    is_whole.then(|| digest::of(&result[items]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(json: &str) -> Payload {
        json.parse().unwrap()
    }

    #[test]
    fn a_list_differs_when_its_items_do() {
        let mut lists = Lists::default();
        let seen = page(r#"{"tools":[{"name":"add"}],"ttlMs":5}"#);
        assert!(!lists.differs(List::Tools, &seen), "nobody has seen any");
        lists.saw(List::Tools, true, &seen);
        for (now, differs) in [
            (r#"{"tools":[{"name":"add"}],"ttlMs":9}"#, false),
            (r#"{"tools":[{"name":"sub"}],"ttlMs":5}"#, true),
            (r#"{"tools":[{"name":"add"}],"nextCursor":"2"}"#, true),
            (r#"{"tools":[{"name":"add"}],"nextCursor":null}"#, false),
            (r#"{}"#, true),
        ] {
            assert_eq!(lists.differs(List::Tools, &page(now)), differs, "{now}");
        }
        assert_eq!(lists.begin_comparing(), [List::Tools]);
        assert_eq!(lists.begin_comparing(), [], "it is being compared");
        lists.compared(List::Tools);
        assert_eq!(lists.begin_comparing(), [List::Tools]);
    }

    #[test]
    fn a_list_of_several_pages_may_always_differ() {
        let mut lists = Lists::default();
        let first = page(r#"{"tools":[],"nextCursor":"2"}"#);
        lists.saw(List::Tools, true, &first);
        assert!(lists.differs(List::Tools, &first));
        let last = page(r#"{"tools":[]}"#);
        lists.saw(List::Tools, false, &last);
        assert!(lists.differs(List::Tools, &last));
    }
}
