//! A server inside an axum application. Knows of axum only how to build a router.

use std::future::Future;

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, Request};
use everlink::server::Config;
use everlink_handle::{Service, ServiceOwner};

use super::server::build_server;
use super::{Endpoint, ServerTransport, Store};
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
    route(build_server(config, handler, ServerTransport::new()))
}

/// Creates a router like [`router`], for a server that keeps its sessions and their messages in `store`.
///
/// # Panics
///
/// Outside a runtime.
pub fn router_with_store(
    config: Config,
    store: impl Store,
    handler: impl Handler,
) -> (Router, Service) {
    let transport = ServerTransport::with_store(store);
    route(build_server(config, handler, transport))
}

fn route(
    (endpoint, service, driver): (
        Endpoint,
        Service,
        impl Future<Output = ServiceOwner> + Send + 'static,
    ),
) -> (Router, Service) {
    tokio::spawn(driver);
    let router = Router::new().fallback(async move |mut request: Request| {
        // A nested router sees only a part of the path.
        if let Some(OriginalUri(uri)) = request.extensions().get().cloned() {
            *request.uri_mut() = uri;
        }
        endpoint.answer(request).await.map(Body::new)
    });
    (router, service)
}
