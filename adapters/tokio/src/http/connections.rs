//! The connections of a listener: limits their number and chooses which one a new connection displaces. Does not know what they carry.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// How long the head of a request may take to arrive, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of bytes buffered of what a client sends, the whole head of a request included, and of what it does not read.
const MAX_BUFFERED: usize = 64 << 10;

/// How long to wait after `accept` failed, because it might fail again at once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// How long a connection that is to be closed may still write.
const GRACE: Duration = Duration::from_millis(100);

/// The connections of a listener, up to a limit. Beyond it, a new connection displaces another one of the address that has the most.
///
/// There are three kinds: connections without a request yet, those whose first request is not answered yet, and all others. A quarter, a half and a
/// quarter of the places are reserved for them. The least recently used connection of the first kind that exceeds its share is closed. So a flood of
/// one kind displaces its own connections, and a new connection has time to send a request.
#[derive(Clone, Debug)]
pub struct Connections {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug)]
struct Table {
    limit: usize,
    next: u64,
    /// A logical clock, which orders the uses of connections.
    clock: u64,
    open: HashMap<u64, Open>,
    /// The connections of each address.
    addresses: HashMap<IpAddr, ByKind>,
    /// The addresses, ordered by their number of connections.
    by_count: BTreeSet<(usize, IpAddr)>,
    /// The time before which no connection is accepted, after `accept` failed.
    accepts_from: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    address: IpAddr,
    rank: Rank,
    close_signal: Arc<CloseSignal>,
}

/// The kind of a connection, and when it was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    kind: Kind,
    used: u64,
}

/// The kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// No request has arrived on it.
    NoRequest,
    /// A request has arrived, and none is answered yet.
    Unanswered,
    /// A response was completely read.
    Answered,
}

/// The connections of one address by kind, each ordered by last use.
#[derive(Debug, Default)]
struct ByKind([BTreeSet<(u64, u64)>; 3]);

impl ByKind {
    /// The share of each kind, in quarters of the address's places. A kind within its share is not displaced for another kind.
    const QUARTERS: [usize; 3] = [1, 2, 1];

    fn insert(&mut self, rank: Rank, number: u64) {
        self.0[rank.kind as usize].insert((rank.used, number));
    }

    fn remove(&mut self, rank: Rank, number: u64) {
        self.0[rank.kind as usize].remove(&(rank.used, number));
    }

    fn len(&self) -> usize {
        self.0.iter().map(BTreeSet::len).sum()
    }

    /// Returns the connection to displace.
    fn displaced(&self) -> Option<u64> {
        let all = self.len();
        let mut kinds = self.0.iter().zip(ByKind::QUARTERS);
        let over = kinds.find(|(kind, quarters)| 4 * kind.len() > quarters * all);
        // If each kind has exactly its share, the first kind is as good as any.
        let kind = over.map_or(&self.0[0], |(kind, _)| kind);
        kind.first().map(|(_, number)| *number)
    }
}

/// How a connection ends before its peer ends it.
#[derive(Debug, Clone, Copy)]
enum Closing {
    /// Another connection takes its place.
    Displaced,
    /// The response may still be written.
    WithGrace,
}

/// Tells a connection that it ends.
type CloseSignal = watch::Sender<Option<Closing>>;

impl Connections {
    /// Creates an empty set for at most this many connections.
    #[must_use]
    pub fn new(limit: usize) -> Connections {
        let table = Table {
            limit: limit.max(1),
            next: 0,
            clock: 0,
            open: HashMap::new(),
            addresses: HashMap::new(),
            by_count: BTreeSet::new(),
            accepts_from: None,
        };
        Connections {
            table: Arc::new(Mutex::new(table)),
        }
    }

    /// Waits for the next connection. Dropping this future loses none.
    pub async fn accept(&self, listener: &TcpListener) -> (TcpStream, Connection) {
        loop {
            let from = self.table().accepts_from;
            if let Some(from) = from {
                sleep_until(from).await;
                self.table().accepts_from = None;
            }
            match listener.accept().await {
                Ok((socket, from)) => return (socket, self.admit(from.ip())),
                Err(error) => self.accept_failed(&error),
            }
        }
    }

    /// Begins a pause, which lasts even if the future of [`accept`](Connections::accept) is dropped.
    fn accept_failed(&self, error: &io::Error) {
        let mut table = self.table();
        // An open connection is closed. If that does not help, it costs one client its connection.
        if is_out_of_descriptors(error) {
            table.displace();
        }
        table.accepts_from = Some(Instant::now() + ACCEPT_RETRY_DELAY);
    }

    fn admit(&self, address: IpAddr) -> Connection {
        let mut table = self.table();
        if table.open.len() >= table.limit {
            table.displace();
        }
        let (number, close_signal) = table.add(network_of(address));
        Connection {
            slot: Arc::new(Slot {
                number,
                address,
                connections: self.clone(),
                close_signal,
            }),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the process or the system has no descriptor left: `EMFILE` or `ENFILE`, which have these numbers on all Unix systems, or `WSAEMFILE`.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let numbers: &[i32] = if cfg!(windows) { &[10_024] } else { &[23, 24] };
    error
        .raw_os_error()
        .is_some_and(|number| numbers.contains(&number))
}

/// Maps an IPv6 address to its /64 network, because one client usually has all 2^64 addresses of it.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => four.into(),
            None => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        },
    }
}

impl Table {
    fn add(&mut self, address: IpAddr) -> (u64, Arc<CloseSignal>) {
        self.next += 1;
        self.clock += 1;
        let (number, close_signal) = (self.next, Arc::<CloseSignal>::default());
        let rank = Rank {
            kind: Kind::NoRequest,
            used: self.clock,
        };
        self.recount(address, |kinds| kinds.insert(rank, number));
        let open = Open {
            address,
            rank,
            close_signal: close_signal.clone(),
        };
        self.open.insert(number, open);
        (number, close_signal)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<CloseSignal>> {
        let open = self.open.remove(&number)?;
        self.recount(open.address, |kinds| kinds.remove(open.rank, number));
        Some(open.close_signal)
    }

    /// Marks a connection as used now, and raises its kind.
    fn mark_used(&mut self, number: u64, kind: Kind) {
        self.clock += 1;
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        if let Some(kinds) = self.addresses.get_mut(&open.address) {
            kinds.remove(open.rank, number);
            open.rank = Rank {
                kind: open.rank.kind.max(kind),
                used: self.clock,
            };
            kinds.insert(open.rank, number);
        }
    }

    /// Closes the connection to displace.
    fn displace(&mut self) {
        let heaviest = self.by_count.last().map(|(_, address)| *address);
        let kinds = heaviest.and_then(|address| self.addresses.get(&address));
        let displaced = kinds.and_then(ByKind::displaced);
        if let Some(close_signal) = displaced.and_then(|number| self.remove(number)) {
            close_signal.send_replace(Some(Closing::Displaced));
        }
    }

    fn recount(&mut self, address: IpAddr, change: impl FnOnce(&mut ByKind)) {
        let kinds = self.addresses.entry(address).or_default();
        self.by_count.remove(&(kinds.len(), address));
        change(kinds);
        if kinds.len() == 0 {
            self.addresses.remove(&address);
        } else {
            self.by_count.insert((kinds.len(), address));
        }
    }
}

/// A connection that keeps its place among the others until all clones of this are dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    slot: Arc<Slot>,
}

#[derive(Debug)]
struct Slot {
    number: u64,
    address: IpAddr,
    connections: Connections,
    close_signal: Arc<CloseSignal>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.table().remove(self.number);
    }
}

impl Connection {
    /// Serves the connection until `served` completes or the connection is displaced.
    pub async fn serve<T>(self, served: impl Future<Output = T>) {
        let mut served = pin!(served);
        let mut signal = self.slot.close_signal.subscribe();
        let closing = tokio::select! {
            _ = &mut served => return,
            // The sender lives as long as this connection.
            closing = signal.wait_for(Option::is_some) => closing.ok().and_then(|closing| *closing),
        };
        if let Some(Closing::WithGrace) = closing {
            let _ = timeout(GRACE, served).await;
        }
    }

    /// Returns the address of the client.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.slot.address.to_canonical()
    }

    /// Reports that a request arrived.
    pub fn request_arrived(&self) {
        self.mark_used(Kind::Unanswered);
    }

    /// Reports that a response was completely read.
    pub fn response_read(&self) {
        self.mark_used(Kind::Answered);
    }

    fn mark_used(&self, kind: Kind) {
        let slot = &self.slot;
        slot.connections.table().mark_used(slot.number, kind);
    }

    /// Closes the connection. It may still write for up to 100 ms.
    pub fn close(&self) {
        self.slot
            .close_signal
            .send_replace(Some(Closing::WithGrace));
    }
}

/// Returns the HTTP/1.1 settings for a connection, with limits: 64 KiB of buffered bytes, and 30 s for the head of a request.
#[must_use]
pub fn http1() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_BUFFERED);
    http
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(connection: &Connection) -> bool {
        let slot = &connection.slot;
        !slot.connections.table().open.contains_key(&slot.number)
    }

    fn from(address: [u8; 4]) -> IpAddr {
        address.into()
    }

    #[test]
    fn flood_of_one_kind_displaces_its_own() {
        let here = from([127, 0, 0, 1]);
        let connections = Connections::new(8);
        let good = connections.admit(here);
        good.response_read();
        // Connections without a request.
        let silent: Vec<_> = (0..20).map(|_| connections.admit(here)).collect();
        assert!(!is_closed(&good));
        let open: Vec<_> = silent.iter().map(|one| !is_closed(one)).collect();
        assert_eq!(open.iter().filter(|open| **open).count(), 7);
        assert!(open[13..].iter().all(|open| *open), "the newest are left");
        // Requests that are never answered: a new connection still has time to send one.
        let mut asked = Vec::new();
        for _ in 0..20 {
            let newcomer = connections.admit(here);
            let other = connections.admit(here);
            assert!(!is_closed(&newcomer) && !is_closed(&good));
            newcomer.request_arrived();
            asked.extend([newcomer, other]);
        }
        // Idle connections that were answered: the least recently used one is displaced.
        drop((silent, asked));
        let idle: Vec<_> = (0..7).map(|_| connections.admit(here)).collect();
        idle.iter().for_each(Connection::response_read);
        good.request_arrived();
        let _last = connections.admit(here);
        assert!(is_closed(&idle[0]) && !is_closed(&good));
    }

    #[test]
    fn address_with_most_connections_is_displaced() {
        let connections = Connections::new(4);
        let lone = connections.admit(from([10, 0, 0, 1]));
        let many: Vec<_> = (0..9)
            .map(|_| connections.admit(from([10, 0, 0, 2])))
            .collect();
        assert!(!is_closed(&lone));
        let open = many.iter().filter(|one| !is_closed(one)).count();
        assert_eq!(open, 3);
        drop((lone, many));
        let table = connections.table();
        assert!(table.open.is_empty() && table.addresses.is_empty() && table.by_count.is_empty());
    }

    #[test]
    fn only_a_lack_of_descriptors_displaces_a_connection() {
        let connections = Connections::new(4);
        let open: Vec<_> = (0..2)
            .map(|_| connections.admit(from([127, 0, 0, 1])))
            .collect();
        connections.accept_failed(&io::ErrorKind::InvalidInput.into());
        assert!(!open.iter().any(is_closed));
        let number = if cfg!(windows) { 10_024 } else { 24 };
        connections.accept_failed(&io::Error::from_raw_os_error(number));
        assert_eq!(open.iter().filter(|one| is_closed(one)).count(), 1);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn pause_after_an_error_outlives_the_future_that_accepts() {
        // No connection can be accepted from a socket for datagrams.
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = datagrams.local_addr().expect("an address");
        datagrams.send_to(b"a", address).expect("it is sent");
        datagrams.set_nonblocking(true).expect("a socket");
        let listener = std::net::TcpListener::from(std::os::fd::OwnedFd::from(datagrams));
        let listener = TcpListener::from_std(listener).expect("a runtime");
        let connections = Connections::new(4);
        let accept = || timeout(Duration::from_millis(2), connections.accept(&listener));
        let begun = Instant::now();
        let mut pauses = BTreeSet::new();
        for _ in 0..10 {
            assert!(accept().await.is_err());
            pauses.extend(connections.table().accepts_from);
        }
        let most = begun.elapsed().as_millis() / ACCEPT_RETRY_DELAY.as_millis() + 1;
        assert!((1..=most).contains(&(pauses.len() as u128)), "{pauses:?}");
    }

    #[test]
    fn ipv6_addresses_of_one_64_network_count_as_one() {
        let [one, two, other] = ["2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1"]
            .map(|address| network_of(address.parse().expect("an address")));
        assert_eq!(one, two);
        assert_ne!(one, other);
        let mapped = network_of("::ffff:10.0.0.1".parse().expect("an address"));
        assert_eq!(mapped, from([10, 0, 0, 1]));
    }
}
