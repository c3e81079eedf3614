//! Answers the probes of a container runtime: `/livez` and `/readyz`. Does not know the machine.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use tokio::sync::watch;

use super::response_body::ResponseBody;

/// What a server answers to probes.
///
/// `GET /livez` gets status 200 as long as the process runs. `GET /readyz` gets status 200 if the server takes requests, and 503 with the
/// reason if its store is away or it shuts down.
#[derive(Clone, Debug)]
pub struct Health {
    is_draining: watch::Sender<bool>,
    /// Whether the store answers. `None` if there is no store.
    store: Option<watch::Receiver<bool>>,
}

impl Health {
    /// The health of a server without a store.
    #[must_use]
    pub fn new() -> Health {
        Health {
            is_draining: watch::Sender::new(false),
            store: None,
        }
    }

    /// Adds a store, which says whether it answers.
    #[must_use]
    pub fn with_store(mut self, store: watch::Receiver<bool>) -> Health {
        self.store = Some(store);
        self
    }

    /// Says that the server takes no more requests.
    pub fn drain(&self) {
        self.is_draining.send_replace(true);
    }

    /// Why the server is not ready, if it is not.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        if *self.is_draining.borrow() {
            return Some("the server is shutting down");
        }
        let is_away = self.store.as_ref().is_some_and(|store| !*store.borrow());
        is_away
            .then_some("the store does not answer: sessions are refused, other requests are served")
    }

    /// Answers a probe. `None` if the request is no probe.
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Option<Response<ResponseBody>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }
        let problem = match request.uri().path() {
            "/livez" => None,
            "/readyz" => self.problem(),
            _ => return None,
        };
        let text = problem.unwrap_or("ok");
        let mut response = Response::new(ResponseBody::plain(Bytes::from_static(text.as_bytes())));
        if problem.is_some() {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        Some(response)
    }
}

impl Default for Health {
    fn default() -> Health {
        Health::new()
    }
}
