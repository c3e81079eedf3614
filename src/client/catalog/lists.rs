//! Caches the complete lists of a server, with their epoch and freshness. It reads results and time, but sends nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use crate::client::config::Limits;
use crate::driver::{CallId, Epoch, Instant};
use crate::json::{Json, Payload, object};
use crate::protocol::Era;
use crate::protocol::watch::List;
use crate::util::Arc;
use crate::wire::ErrorObject;

/// One complete list of a server, from all pages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The list.
    pub list: List,
    /// The epoch in which it was read. The list may differ in another epoch.
    pub epoch: Epoch,
    /// The items, unchanged and in the order of the server.
    pub items: Vec<Payload>,
    /// When the last page arrived.
    pub read_at: Instant,
    /// Until when the list stays fresh, as a modern server says.
    pub fresh_until: Option<Instant>,
}

/// The next step after a page or an error.
#[derive(Debug)]
pub(in crate::client) enum PageStep {
    /// The list is complete or cannot be read; these calls wait for it.
    Ended(Result<Arc<Listing>, ListError>, Vec<CallId>),
    /// Request the page with this cursor next.
    Next(Cursor),
}

#[derive(Clone, Debug)]
pub(in crate::client) enum ListError {
    Error(Arc<ErrorObject>),
    Invalid(Box<str>),
}

/// The position of a page, opaque and as the server wrote it. `None` is the first page.
pub(in crate::client) type Cursor = Option<Payload>;

#[derive(Debug)]
pub(in crate::client) struct Lists {
    /// The entries of the lists that were ever requested or changed.
    entries: [Option<Box<Entry>>; List::ALL.len()],
}

#[derive(Debug, Default)]
struct Entry {
    listing: Option<Arc<Listing>>,
    /// Whether the server reported a change, or is another one.
    stale: bool,
    waiting: Vec<CallId>,
    /// Calls that came after the list changed during the fetch. They need a new fetch.
    too_late: Vec<CallId>,
    fetch: Option<Fetch>,
}

/// A list that is being fetched.
#[derive(Debug, Default)]
struct Fetch {
    items: Vec<Payload>,
    bytes: usize,
    pages: usize,
    cursor: Cursor,
    fresh_until: Option<Instant>,
    /// Whether the server reported a change during the fetch.
    outdated: bool,
    restarted: bool,
}

impl Lists {
    pub(in crate::client) const fn new() -> Lists {
        Lists {
            entries: [const { None }; List::ALL.len()],
        }
    }

    pub(in crate::client) fn listing(&self, list: List) -> Option<&Arc<Listing>> {
        self.entries[list as usize].as_ref()?.listing.as_ref()
    }

    /// The entry of a list, created if needed.
    fn entry(&mut self, list: List) -> &mut Entry {
        self.entries[list as usize].get_or_insert_default()
    }

    /// The cached list, if it is fresh. `announced`: the server reports changes. That decides if the list has no time to live.
    pub(in crate::client) fn fresh(
        &self,
        list: List,
        now: Instant,
        announced: bool,
    ) -> Option<Arc<Listing>> {
        let entry = self.entries[list as usize].as_ref()?;
        let listing = entry.listing.as_ref().filter(|_| !entry.stale)?;
        let fresh = match listing.fresh_until {
            Some(until) => now < until,
            None => announced,
        };
        fresh.then(|| listing.clone())
    }

    /// Makes a call wait for this list.
    pub(in crate::client) fn want(&mut self, list: List, call: CallId) {
        let entry = self.entry(list);
        match &entry.fetch {
            Some(fetch) if fetch.outdated => entry.too_late.push(call),
            Some(_) | None => entry.waiting.push(call),
        }
    }

    /// Removes a call that waits for a list. Returns the list if its fetch is not needed any more.
    pub(in crate::client) fn unwant(&mut self, call: CallId) -> Option<List> {
        for list in List::ALL {
            let Some(entry) = &mut self.entries[list as usize] else {
                continue;
            };
            entry.too_late.retain(|waiting| *waiting != call);
            let before = entry.waiting.len();
            entry.waiting.retain(|waiting| *waiting != call);
            let was_last = before == 1 && entry.waiting.is_empty();
            if was_last && entry.fetch.take().is_some() {
                entry.waiting = core::mem::take(&mut entry.too_late);
                return Some(list);
            }
        }
        None
    }

    /// The lists that calls wait for and that are not being fetched.
    pub(in crate::client) fn to_fetch(&self) -> impl Iterator<Item = List> + '_ {
        List::ALL.into_iter().filter(|list| {
            let entry = self.entries[*list as usize].as_ref();
            entry.is_some_and(|entry| !entry.waiting.is_empty() && entry.fetch.is_none())
        })
    }

    /// Starts the fetch of a list.
    pub(in crate::client) fn begin(&mut self, list: List) {
        self.entry(list).fetch = Some(Fetch::default());
    }

    /// Drops a fetch whose page was lost, so that the list is read again from the first page.
    pub(in crate::client) fn begin_again(&mut self, list: List) {
        let entry = self.entry(list);
        entry.fetch = None;
        entry.waiting.append(&mut entry.too_late);
    }

    /// Drops the fetch of a list that cannot be read. Returns the calls that wait for it.
    pub(in crate::client) fn give_up(&mut self, list: List) -> Vec<CallId> {
        self.entry(list).finish()
    }

    /// Whether the list is at its first page.
    pub(in crate::client) fn is_at_start(&self, list: List) -> bool {
        let entry = self.entries[list as usize].as_ref();
        let fetch = entry.and_then(|entry| entry.fetch.as_ref());
        fetch.is_none_or(|fetch| fetch.pages == 0)
    }

    /// The calls that wait for this list.
    pub(in crate::client) fn waiting(&self, list: List) -> &[CallId] {
        let entry = self.entries[list as usize].as_ref();
        entry.map_or(&[], |entry| &entry.waiting)
    }

    /// Records that the server reported a change of this list.
    pub(in crate::client) fn changed(&mut self, list: List) {
        let entry = self.entry(list);
        entry.stale = true;
        if let Some(fetch) = &mut entry.fetch {
            fetch.outdated = true;
        }
    }

    /// Starts a new epoch: all lists become stale, and all fetches are dropped.
    pub(in crate::client) fn new_epoch(&mut self) {
        for entry in self.entries.iter_mut().flatten() {
            entry.stale = true;
            entry.fetch = None;
            entry.waiting.append(&mut entry.too_late);
        }
    }

    /// Handles a page, or the error instead of it.
    pub(in crate::client) fn page(
        &mut self,
        list: List,
        result: Result<Json<'_>, ErrorObject>,
        (epoch, era): (Epoch, Era),
        now: Instant,
        limits: &Limits,
    ) -> Option<PageStep> {
        let entry = self.entries[list as usize].as_mut()?;
        let fetch = entry.fetch.as_mut()?;
        let next = match result {
            Ok(result) => fetch
                .take(list, result, era, now, limits)
                .map_err(ListError::Invalid),
            Err(error) => fetch
                .restart(error)
                .map_err(|error| ListError::Error(error.into())),
        };
        match next {
            Ok(Some(cursor)) => {
                fetch.cursor = cursor.clone();
                Some(PageStep::Next(cursor))
            }
            Ok(None) => {
                let fetch = core::mem::take(fetch);
                let listing = Arc::new(Listing {
                    list,
                    epoch,
                    items: fetch.items,
                    read_at: now,
                    fresh_until: fetch.fresh_until,
                });
                entry.stale = fetch.outdated;
                entry.listing = Some(listing.clone());
                Some(PageStep::Ended(Ok(listing), entry.finish()))
            }
            Err(error) => Some(PageStep::Ended(Err(error), entry.finish())),
        }
    }
}

impl Entry {
    /// Ends a fetch. Returns the calls that wait for it.
    fn finish(&mut self) -> Vec<CallId> {
        self.fetch = None;
        let next = core::mem::take(&mut self.too_late);
        core::mem::replace(&mut self.waiting, next)
    }
}

impl Fetch {
    /// Adds a page. Returns the cursor of the next page, if there is one.
    fn take(
        &mut self,
        list: List,
        result: Json<'_>,
        era: Era,
        now: Instant,
        limits: &Limits,
    ) -> Result<Option<Cursor>, Box<str>> {
        let page = Page::read(list, result, era)?;
        self.pages += 1;
        self.bytes = self.bytes.saturating_add(result.as_str().len());
        if self.bytes > limits.list_bytes {
            return Err(format!("{list} is larger than {} bytes", limits.list_bytes).into());
        }
        self.items.extend(page.items);
        // S-CACHE-05, S-CACHE-10: each page has its own time to live, and a missing one means zero. The list is fresh as long as all its pages are.
        if era == Era::Modern {
            let until = now + page.ttl.unwrap_or(Duration::ZERO);
            self.fresh_until = Some(self.fresh_until.map_or(until, |at| at.min(until)));
        }
        match page.next {
            None => Ok(None),
            Some(_) if self.pages >= limits.pages => {
                Err(format!("{list} has more than {} pages", limits.pages).into())
            }
            Some(cursor) if self.cursor.as_ref() == Some(&cursor) => {
                Err(format!("{list} does not end: a page names itself as the next").into())
            }
            Some(cursor) => Ok(Some(Some(cursor))),
        }
    }

    /// Handles an error during the fetch. If a cursor became invalid, the list is read again from the start, once (S-CACHE-10).
    fn restart(&mut self, error: ErrorObject) -> Result<Option<Cursor>, ErrorObject> {
        let mid_way = self.cursor.is_some();
        if !mid_way || self.restarted || error.code != crate::protocol::code::INVALID_PARAMS {
            return Err(error);
        }
        *self = Fetch {
            restarted: true,
            ..Fetch::default()
        };
        Ok(Some(None))
    }
}

struct Page {
    items: Vec<Payload>,
    next: Cursor,
    ttl: Option<Duration>,
}

impl Page {
    fn read(list: List, result: Json<'_>, era: Era) -> Result<Page, Box<str>> {
        let (mut items, mut next, mut ttl) = (None, None, None);
        let mut is_complete = true;
        let visit = |key: Cow<'_, str>, value: Json<'_>| match &*key {
            "nextCursor" => next = Some(Payload::from(value)),
            "resultType" => is_complete = value.as_str() == "\"complete\"",
            "ttlMs" => ttl = value.parse::<i64>().ok(),
            key if key == list.member() => items = value.parse().ok(),
            _ => {}
        };
        object::members(result, visit).map_err(|_| "the page is no object")?;
        if era == Era::Modern && !is_complete {
            return Err("its result type means nothing for a list".into());
        }
        let items = items.ok_or_else(|| format!("the page has no `{}`", list.member()))?;
        // S-CACHE-11: an empty string is a valid cursor. Some servers send null instead of no cursor.
        let next = match next {
            Some(cursor) if cursor.as_str().starts_with('"') => Some(cursor),
            Some(cursor) if cursor.as_str() == "null" => None,
            Some(_) => return Err("the cursor of the next page is no text".into()),
            None => None,
        };
        let ttl = ttl.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
        Ok(Page { items, next, ttl })
    }
}
