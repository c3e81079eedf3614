//! Counts the requests in flight of each client, and finds the one that is cancelled to make room. Does not depend on messages.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{IpAddr, Ipv6Addr};

use crate::server::origin::SessionKey;
use crate::util::Arc;

/// The client that requests count for, where many clients share the limit of requests in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// Outside of sessions, a network address without a user. `None` stands for all whose address the driver does not name.
    Address(Option<IpAddr>),
    Session(SessionKey),
    /// Outside of sessions, a user.
    User(Box<str>),
}

impl Holder {
    /// The holder of requests outside of sessions. An IPv6 address counts as its /64 network, because one client usually has all of it.
    pub(crate) fn outside_sessions(user: Option<&str>, address: Option<IpAddr>) -> Holder {
        if let Some(user) = user {
            return Holder::User(user.into());
        }
        Holder::Address(address.map(|address| match address.to_canonical() {
            IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
            four @ IpAddr::V4(_) => four,
        }))
    }
}

/// The requests of each holder, by their numbers `T`. A server on a byte stream has one client, and counts nothing here.
#[derive(Debug)]
pub(crate) struct Places<T> {
    of: BTreeMap<Arc<Holder>, BTreeSet<T>>,
    /// The holders, ordered by the number of their requests.
    by_count: BTreeSet<(usize, Arc<Holder>)>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places {
            of: BTreeMap::new(),
            by_count: BTreeSet::new(),
        }
    }
}

impl<T: Copy + Ord> Places<T> {
    /// The number of requests of this holder.
    pub(crate) fn count(&self, holder: &Arc<Holder>) -> usize {
        self.of.get(holder).map_or(0, BTreeSet::len)
    }

    pub(crate) fn take(&mut self, holder: &Arc<Holder>, request: T) {
        self.change(holder, |requests| requests.insert(request));
    }

    pub(crate) fn free(&mut self, holder: &Arc<Holder>, request: T) {
        self.change(holder, |requests| requests.remove(&request));
    }

    fn change(&mut self, holder: &Arc<Holder>, change: impl FnOnce(&mut BTreeSet<T>) -> bool) {
        let mut requests = self.of.remove(holder).unwrap_or_default();
        let mut place = (requests.len(), holder.clone());
        self.by_count.remove(&place);
        change(&mut requests);
        if !requests.is_empty() {
            place.0 = requests.len();
            self.by_count.insert(place);
            self.of.insert(holder.clone(), requests);
        }
    }

    /// The oldest request of the holder that has most, if it has more than a sender with one more than `mine` would have.
    pub(crate) fn of_heaviest(&self, mine: usize) -> Option<T> {
        let (count, holder) = self.by_count.last()?;
        let requests = self.of.get(holder).filter(|_| *count > mine + 1)?;
        requests.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_outside_a_session_counts_for_its_user_or_else_for_its_network() {
        let of = |user, address: Option<&str>| {
            Holder::outside_sessions(user, address.map(|text| text.parse().unwrap()))
        };
        let ann = of(Some("ann"), Some("192.0.2.1"));
        assert_eq!(ann, of(Some("ann"), None));
        assert_ne!(ann, of(None, Some("192.0.2.1")));
        assert_eq!(
            of(None, Some("::ffff:192.0.2.1")),
            of(None, Some("192.0.2.1"))
        );
        assert_ne!(of(None, Some("192.0.2.2")), of(None, Some("192.0.2.1")));
        let six = of(None, Some("2001:db8::1"));
        assert_eq!(six, of(None, Some("2001:db8::ffff:0:0:1")));
        assert_ne!(six, of(None, Some("2001:db8:0:1::1")));
    }

    #[test]
    fn oldest_request_of_the_holder_with_most_gives_way_and_nothing_is_left() {
        let mut places = Places::default();
        let user = |name: &str| Arc::new(Holder::User(name.into()));
        let [one, two, three] = [1, 2, 3];
        let (ann, eve) = (user("ann"), user("eve"));
        places.take(&eve, two);
        places.take(&ann, three);
        places.take(&eve, one);
        assert_eq!((places.count(&ann), places.count(&eve)), (1, 2));
        assert_eq!(places.of_heaviest(0), Some(one));
        assert_eq!(places.of_heaviest(1), None);
        for (holder, request) in [(&eve, one), (&ann, three), (&eve, two)] {
            places.free(holder, request);
        }
        assert!(places.of.is_empty() && places.by_count.is_empty());
    }
}
