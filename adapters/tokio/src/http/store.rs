//! Connects a server to the store of its sessions. Does not depend on exchanges or the machine.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use everlink::server::MemoryStore;
use everlink::{Input, StoreRequest};
use tokio::sync::{mpsc, watch};

use super::server_messages::ExchangeMessage;

/// A store in which servers keep the sessions of legacy clients and their messages, such as a database that several servers share.
///
/// It is used only if [`Http::storage`](everlink::server::Http::storage) says so. What it must do with a request is described at
/// [`StoreRequest`].
pub trait Store: Send + 'static {
    /// Carries out the requests of one server, until [`StorePort::recv`] returns `None`. Then completes what is left, within a second.
    fn run(self, port: StorePort) -> impl Future<Output = ()> + Send;
}

/// The end of a server's connection to its store that the store holds.
pub struct StorePort {
    requests: mpsc::UnboundedReceiver<StoreRequest>,
    inputs: mpsc::UnboundedSender<ExchangeMessage>,
}

impl StorePort {
    /// Creates a port, and the sender of the requests that it receives.
    pub(super) fn new(
        inputs: mpsc::UnboundedSender<ExchangeMessage>,
    ) -> (mpsc::UnboundedSender<StoreRequest>, StorePort) {
        let (sender, requests) = mpsc::unbounded_channel();
        (sender, StorePort { requests, inputs })
    }

    /// Returns the next request. They come in the order in which the server made them. `None` when the server has ended.
    pub async fn recv(&mut self) -> Option<StoreRequest> {
        self.requests.recv().await
    }

    /// Returns the next request, if there is one already.
    pub fn try_recv(&mut self) -> Option<StoreRequest> {
        self.requests.try_recv().ok()
    }

    /// Returns a sender of inputs to the server, which can be cloned.
    #[must_use]
    pub fn inputs(&self) -> StoreInputs {
        StoreInputs(self.inputs.clone())
    }
}

/// Sends inputs of a store to its server.
#[derive(Clone)]
pub struct StoreInputs(mpsc::UnboundedSender<ExchangeMessage>);

impl StoreInputs {
    /// Feeds the server an [answer](Input::Stored), a [note](Input::Note) or a [lease](Input::Lease). Inputs after its end are dropped.
    pub fn feed(&self, input: Input<'static>) {
        let _ = self.0.send(ExchangeMessage::Input(input));
    }
}

/// A store in memory that servers in one process share.
#[derive(Clone)]
pub struct SharedMemory {
    store: Arc<Mutex<MemoryStore>>,
    /// Changes with each note.
    notes: watch::Sender<u64>,
}

impl SharedMemory {
    /// Shares this store.
    #[must_use]
    pub fn new(store: MemoryStore) -> SharedMemory {
        SharedMemory {
            store: Arc::new(Mutex::new(store)),
            notes: watch::Sender::new(0),
        }
    }

    /// The store for the server with this [number](everlink::server::DriverStorage::instance).
    #[must_use]
    pub fn for_server(&self, instance: u32) -> MemoryNode {
        MemoryNode {
            memory: self.clone(),
            instance,
        }
    }

    fn with<R>(&self, what: impl FnOnce(&mut MemoryStore) -> R) -> R {
        what(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A [`SharedMemory`], as one server uses it.
pub struct MemoryNode {
    memory: SharedMemory,
    instance: u32,
}

impl MemoryNode {
    /// Carries out one request. Returns its answer, if it wants one.
    pub fn carry_out(&self, request: StoreRequest) -> Option<Input<'static>> {
        let is_note = matches!(request, StoreRequest::Tell { .. });
        let node = self.instance;
        let answer = self.memory.with(|store| store.carry_out(node, request));
        if is_note {
            self.memory.notes.send_modify(|count| *count += 1);
        }
        answer
    }

    /// Waits for the next note of another server.
    pub async fn next_note(&self) -> Input<'static> {
        let mut changes = self.memory.notes.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(note) = self.memory.with(|store| store.next_note(self.instance)) {
                return note;
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        self.memory.with(|store| store.leave(self.instance));
    }
}

impl Store for MemoryNode {
    async fn run(self, mut port: StorePort) {
        let inputs = port.inputs();
        loop {
            let input = tokio::select! {
                request = port.recv() => match request {
                    Some(request) => self.carry_out(request),
                    None => return,
                },
                note = self.next_note() => Some(note),
            };
            if let Some(input) = input {
                inputs.feed(input);
            }
        }
    }
}
