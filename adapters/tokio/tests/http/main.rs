//! Tests both ends over real local sockets: the messages, how connections end, and that nothing is left behind.

mod axum_app;
mod client_transport;
mod credentials;
mod faulty_proxy;
#[cfg(feature = "http2")]
mod http2;
mod messages;
mod protection;
mod proxies;
mod server_shutdown;
mod server_transport;
mod stores;
mod support;
mod tls;
mod unread_requests;
