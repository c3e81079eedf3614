//! Both ends of a link over HTTP, with a faulty network between them: the guarantees that both applications can rely
//! on.

mod broken_exchanges;
mod broken_streams;
mod harness;
mod methods;
mod proxies;
mod relay;
mod restarts;
