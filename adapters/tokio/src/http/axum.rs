//! A server inside an application of axum. Knows no more of that than how a router is made.

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, Request};
use everlink::server::Config;
use everlink_handle::Service;

use super::server::open;
use crate::drive::Handler;

/// A router that serves MCP, with a task on the present runtime, to be merged or nested into the router of an application.
///
/// Credentials are for the layers of the application, which tell who asks with a [`User`](super::User) among the extensions of the request. After
/// [`Service::shutdown`], requests are answered with status 503.
///
/// # Panics
///
/// Outside a runtime.
pub fn router(config: Config, handler: impl Handler) -> (Router, Service) {
    let (gate, service, driver) = open(config, handler);
    tokio::spawn(driver);
    let router = Router::new().fallback(async move |mut request: Request| {
        // A router that is nested sees a part of the path.
        if let Some(OriginalUri(uri)) = request.extensions().get().cloned() {
            *request.uri_mut() = uri;
        }
        gate.answer(request).await.map(Body::new)
    });
    (router, service)
}
