//! Serves HTTP: joins an endpoint, a transport and the driver of a server. Does not depend on messages.

use std::future::Future;
use std::time::Duration;

use everlink::server::{Config, Http, Server};
use everlink_handle::{Service, ServiceOwner};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::endpoint::Endpoint;
use super::protection::Protection;
use super::server_transport::ServerTransport;
use super::store::Store;
use crate::drive::{self, Handler};

/// How long a store may take for the last requests of its server.
const STORE_FLUSH: Duration = Duration::from_secs(2);

/// Serves HTTP on this listener, with tasks on the present runtime, until the service is shut down.
///
/// If the config has no HTTP settings, only the local host is served. [`Service::shutdown`] refuses new requests and lets those in flight end within
/// the config's timeouts; then the listener and all connections are closed.
///
/// ```no_run
/// use everlink::server::{Config, Offer, Request};
/// use everlink::{ErrorObject, Payload};
/// use everlink_tokio::{Context, http, secret};
///
/// async fn answer(request: Request, context: Context) -> Result<Payload, ErrorObject> {
///     todo!("what {} wants", request.method)
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let config = Config::new(Offer::new("docs", "1.0"), secret());
/// let service = http::serve(listener, config, answer);
/// tokio::signal::ctrl_c().await?;
/// service.shutdown().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Outside a runtime.
pub fn serve(listener: TcpListener, config: Config, handler: impl Handler) -> Service {
    serve_at(listener, config, ServerTransport::new(), None, handler)
}

/// Serves HTTP like [`serve`], with a server that keeps its sessions and their messages in `store`, as far as the config's
/// [`storage`](Http::storage) says. Several servers at one address that use the same store can continue each other's sessions.
///
/// ```no_run
/// use everlink::server::{Config, DriverStorage, Http, MemoryStore, Offer, Replay, Request};
/// use everlink::{ErrorObject, Payload};
/// use everlink_tokio::http::{self, SharedMemory};
/// use everlink_tokio::{Context, secret};
///
/// async fn answer(request: Request, context: Context) -> Result<Payload, ErrorObject> {
///     todo!("what {} wants", request.method)
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = SharedMemory::new(MemoryStore::new(1_000, Replay::default()));
/// let secret = secret();
/// for instance in 0..2_u16 {
///     let listener = tokio::net::TcpListener::bind(("127.0.0.1", 8080 + instance)).await?;
///     let instance = u32::from(instance);
///     let http = Http::new().with_storage(DriverStorage::new(instance));
///     let config = Config::new(Offer::new("docs", "1.0"), secret).with_http(http);
///     http::serve_with_store(listener, config, memory.for_server(instance), answer);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Outside a runtime.
pub fn serve_with_store(
    listener: TcpListener,
    config: Config,
    store: impl Store,
    handler: impl Handler,
) -> Service {
    let (endpoint, transport, port) = ServerTransport::with_store();
    let store = tokio::spawn(store.run(port));
    serve_at(
        listener,
        config,
        (endpoint, transport),
        Some(store),
        handler,
    )
}

/// Serves HTTP like [`serve`], to clients with a valid token.
///
/// # Panics
///
/// Outside a runtime.
pub fn serve_protected(
    listener: TcpListener,
    config: Config,
    protection: Protection,
    handler: impl Handler,
) -> Service {
    let (endpoint, transport) = ServerTransport::new();
    let endpoint = endpoint.with_protection(protection);
    serve_at(listener, config, (endpoint, transport), None, handler)
}

/// Serves HTTP like [`serve`], with an endpoint that the caller made, and its transport. `store` is the task that runs the store of the transport, if it
/// has one: the shutdown waits up to 2 s for its end.
///
/// # Panics
///
/// Outside a runtime.
pub fn serve_at(
    listener: TcpListener,
    config: Config,
    transport: (Endpoint, ServerTransport),
    store: Option<JoinHandle<()>>,
    handler: impl Handler,
) -> Service {
    let grace = config.flush;
    let (endpoint, service, driver) = build_server(config, handler, transport);
    let driver = tokio::spawn(driver);
    // `shutdown` completes when the owner is dropped: here, after the last connection.
    tokio::spawn(async move {
        let owner = endpoint.listen(listener, driver, grace).await;
        flush(store).await;
        drop(owner);
    });
    service
}

/// Waits for the end of a server's store: after the end of the server, the last messages of sessions are on their way to it.
pub(super) async fn flush(store: Option<JoinHandle<()>>) {
    if let Some(store) = store {
        let _ = timeout(STORE_FLUSH, store).await;
    }
}

/// Creates a server, its endpoint, and the future that drives it until it is closed.
pub(super) fn build_server(
    mut config: Config,
    handler: impl Handler,
    (endpoint, transport): (Endpoint, ServerTransport),
) -> (Endpoint, Service, impl Future<Output = ServiceOwner> + Send) {
    config.http.get_or_insert_with(Http::new);
    let (service, owner) = Service::new(Server::new(config));
    (endpoint, service, drive::serve(owner, transport, handler))
}
