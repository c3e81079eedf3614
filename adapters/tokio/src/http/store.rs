//! Runs the requests of a server to the application's store. Knows neither exchanges nor the machine.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use everlink::server::MemoryStore;
use everlink::{Input, StoreAnswer, StoreRequest};
use tokio::sync::{mpsc, watch};

use super::server_messages::ExchangeMessage;

/// A store in which servers keep the sessions of legacy clients and their messages, such as a database that several servers share.
///
/// It is used only if [`Http::storage`](everlink::server::Http::storage) says so. Requests that change one session run one after the other. A
/// look-up runs after the changes that were requested before it.
pub trait Store: Send + Sync + 'static {
    /// Carries out a request. Returns the answer, if the request [wants](StoreRequest::lookup) one; then `None` counts as
    /// [`StoreAnswer::Failed`].
    ///
    /// A change that never ends blocks all later requests about its session, so the store must limit its time. A look-up that takes too long
    /// blocks nothing: its client is refused after [`DriverStorage::timeout`](everlink::server::DriverStorage::timeout).
    fn carry_out(&self, request: StoreRequest) -> impl Future<Output = Option<StoreAnswer>> + Send;
}

impl<T: Store> Store for Arc<T> {
    fn carry_out(&self, request: StoreRequest) -> impl Future<Output = Option<StoreAnswer>> + Send {
        T::carry_out(self, request)
    }
}

/// A store that servers in one process share.
impl Store for Mutex<MemoryStore> {
    async fn carry_out(&self, request: StoreRequest) -> Option<StoreAnswer> {
        let mut store = self.lock().unwrap_or_else(PoisonError::into_inner);
        match store.carry_out(request) {
            Some(Input::Stored { answer, .. }) => Some(answer),
            _ => None,
        }
    }
}

type Answering = Pin<Box<dyn Future<Output = Option<StoreAnswer>> + Send>>;

/// Starts a task for each request to a store.
pub(super) struct StoreRunner {
    begin: Box<dyn Fn(StoreRequest) -> Answering + Send>,
    /// The last change of each session. Its channel closes when the change is done.
    changes: HashMap<Box<str>, watch::Receiver<()>>,
}

impl StoreRunner {
    pub(super) fn new(store: impl Store) -> StoreRunner {
        let store = Arc::new(store);
        StoreRunner {
            begin: Box::new(move |request| {
                let store = store.clone();
                Box::pin(async move { store.carry_out(request).await })
            }),
            changes: HashMap::new(),
        }
    }

    /// Starts a request. The answer is sent to the transport. A change is carried out even if the transport is dropped.
    pub(super) fn start(
        &mut self,
        request: StoreRequest,
        messages: mpsc::UnboundedSender<ExchangeMessage>,
    ) {
        let session: Box<str> = request.session().into();
        let lookup = request.lookup();
        let mut earlier = self.changes.get(&session).cloned();
        let done = lookup.is_none().then(|| {
            let (done, is_done) = watch::channel(());
            self.changes.insert(session.clone(), is_done);
            done
        });
        let answering = (self.begin)(request);
        tokio::spawn(async move {
            if let Some(earlier) = &mut earlier {
                // An error means that the change is done.
                let _ = earlier.changed().await;
            }
            let answer = answering.await;
            drop(done);
            let message = match lookup {
                Some(lookup) => {
                    let answer = answer.unwrap_or(StoreAnswer::Failed);
                    ExchangeMessage::Input(Input::Stored { lookup, answer })
                }
                None => ExchangeMessage::Changed(session),
            };
            let _ = messages.send(message);
        });
    }

    /// Forgets a session whose changes are all done.
    pub(super) fn changed(&mut self, session: &str) {
        let last = self.changes.get(session);
        if last.is_some_and(|last| last.has_changed().is_err()) {
            self.changes.remove(session);
        }
    }
}
