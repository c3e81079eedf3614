//! A server inside an axum application. Knows of axum only how to build a router.

use std::future::Future;

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, Request};
use axum::routing::get;
use everlink::server::Config;
use everlink_handle::{Service, ServiceOwner};
use tokio::task::JoinHandle;

use super::server::{build_server, flush};
use super::{Endpoint, Protection, ServerTransport, Store};
use crate::drive::Handler;

/// Creates a router that serves MCP, with a task on the present runtime, to be merged or nested into the router of an application.
///
/// The application's layers check credentials, and name the user with a [`User`](super::User) among the extensions of the request. After
/// [`Service::shutdown`], requests are answered with status 503.
///
/// # Panics
///
/// Outside a runtime.
pub fn router(config: Config, handler: impl Handler) -> (Router, Service) {
    route(build_server(config, handler, ServerTransport::new()), None)
}

/// Creates a router like [`router`], for a server that keeps its sessions and their messages in `store`. [`Service::shutdown`] waits up to 2 s for the
/// end of the store.
///
/// # Panics
///
/// Outside a runtime.
pub fn router_with_store(
    config: Config,
    store: impl Store,
    handler: impl Handler,
) -> (Router, Service) {
    let (endpoint, transport, port) = ServerTransport::with_store();
    let store = tokio::spawn(store.run(port));
    let server = build_server(config, handler, (endpoint, transport));
    route(server, Some(store))
}

/// Creates a router like [`router`], for clients with a valid token. The second router serves the metadata of the server: merge it into the router of the
/// application, at the root. It is empty for [`Protection::fixed`].
///
/// # Panics
///
/// Outside a runtime.
pub fn protected_router(
    config: Config,
    protection: Protection,
    handler: impl Handler,
) -> (Router, Router, Service) {
    let (endpoint, transport) = ServerTransport::new();
    let endpoint = endpoint.with_protection(protection.clone());
    let server = build_server(config, handler, (endpoint, transport));
    let (router, service) = route(server, None);
    let mut metadata = Router::new();
    let answer = || {
        let protection = protection.clone();
        get(async move || protection.metadata_response().map(Body::from))
    };
    if let Some([with_path, at_root]) = protection.metadata_paths() {
        metadata = metadata.route(at_root, answer());
        if with_path != at_root {
            metadata = metadata.route(with_path, answer());
        }
    }
    (router, metadata, service)
}

fn route(
    (endpoint, service, driver): (
        Endpoint,
        Service,
        impl Future<Output = ServiceOwner> + Send + 'static,
    ),
    store: Option<JoinHandle<()>>,
) -> (Router, Service) {
    // `shutdown` completes when the owner is dropped.
    tokio::spawn(async move {
        let owner = driver.await;
        flush(store).await;
        drop(owner);
    });
    let router = Router::new().fallback(async move |mut request: Request| {
        // A nested router sees only a part of the path.
        if let Some(OriginalUri(uri)) = request.extensions().get().cloned() {
            *request.uri_mut() = uri;
        }
        endpoint.answer(request).await.map(Body::new)
    });
    (router, service)
}
