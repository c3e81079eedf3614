//! Tests with a small proxy between both ends that delays, buffers and cuts the bytes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use everlink::client::Delivery;
use everlink::{Dialect, Limit};
use everlink_tokio::{CallError, http};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::stage::{ERAS, Shop, alone, config, echo, link};

#[test]
fn what_comes_in_crumbs_is_put_together() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let proxy = Proxy::before(shop.address, Weather::Crumbs).await;
            let link = link(proxy.address, dialect);
            assert_eq!(echo(&link, "bit by bit").await, "bit by bit");
            let counted = link.call_tool("count", json!({})).await;
            assert_eq!(counted.expect("an answer").text(), "three");
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn a_stream_that_is_held_back_to_its_end_is_still_an_answer() {
    alone(async || {
        for dialect in ERAS {
            let shop = Shop::open().await;
            let proxy = Proxy::before(shop.address, Weather::Buffered).await;
            let link = link(proxy.address, dialect);
            let counted = link.call_tool("count", json!({})).await;
            assert_eq!(counted.expect("an answer").text(), "three");
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

#[test]
fn a_modern_call_whose_stream_is_cut_fails_at_once_and_may_have_run() {
    alone(async || {
        let mut shop = Shop::open().await;
        let proxy = Proxy::before(shop.address, Weather::Fair).await;
        let link = link(proxy.address, Dialect::Modern);
        let call = link.call_tool("hold", json!({}));
        assert_eq!(shop.tools.tell().await, "hold");
        proxy.cut();
        let error = call.await.expect_err("it was cut");
        assert!(
            matches!(&error, CallError::Failed(failure) if failure.delivery == Delivery::Unknown),
            "{error}"
        );
        assert_eq!(shop.tools.tell().await, "unwanted");
        assert_eq!(echo(&link, "again").await, "again");
        link.shutdown().await.expect("it ends");
        shop.close().await;
    });
}

#[test]
fn a_legacy_call_whose_stream_is_cut_goes_on_with_the_next_one() {
    alone(async || {
        let mut shop = Shop::open().await;
        let proxy = Proxy::before(shop.address, Weather::Fair).await;
        let mut config = config(proxy.address, Dialect::Legacy);
        config.policy.call_idle = Limit::Never;
        let link = http::connect(config).expect("a runtime");
        let begun = Arc::new(Notify::new());
        let tell = Arc::clone(&begun);
        let call = link.call_tool("hold", json!({}));
        let call = tokio::spawn(call.on_progress(move |_| tell.notify_one()));
        assert_eq!(shop.tools.tell().await, "hold");
        begun.notified().await;
        proxy.cut();
        assert_eq!(echo(&link, "again").await, "again");
        shop.tools.release.notify_one();
        let answer = call.await.expect("it ends").expect("an answer");
        assert_eq!(answer.text(), "held");
        link.shutdown().await.expect("it ends");
        shop.close().await;
    });
}

#[test]
fn to_give_up_an_exchange_is_to_close_its_connection() {
    alone(async || {
        // Before its response began, and after.
        for tool in ["hang", "hold"] {
            let mut shop = Shop::open().await;
            let proxy = Proxy::before(shop.address, Weather::Fair).await;
            let link = link(proxy.address, Dialect::Modern);
            let (begun, call) = (Arc::new(Notify::new()), link.call_tool(tool, json!({})));
            let tell = Arc::clone(&begun);
            let canceller = call.canceller();
            let call = tokio::spawn(call.on_progress(move |_| tell.notify_one()));
            assert_eq!(shop.tools.tell().await, tool);
            if tool == "hold" {
                begun.notified().await;
            }
            canceller.cancel("no longer wanted");
            call.await.expect("it ends").expect_err("it was cancelled");
            proxy.left_by_client(tool).await;
            assert_eq!(shop.tools.tell().await, "unwanted");
            link.shutdown().await.expect("it ends");
            shop.close().await;
        }
    });
}

/// How the proxy passes the server's bytes on.
#[derive(Clone, Copy)]
enum Weather {
    /// Holds event streams back until they end.
    Buffered,
    /// Passes on three bytes at a time.
    Crumbs,
    /// Passes everything on unchanged.
    Fair,
}

struct Proxy {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Connection>>>,
    /// Notified when a client leaves a connection.
    changed: Arc<Notify>,
    accepting: JoinHandle<()>,
}

/// A connection through the proxy.
struct Connection {
    /// The bytes that the client sent on it.
    said: Vec<u8>,
    /// Whether the client closed it before the server did.
    is_left: bool,
    carrying: JoinHandle<()>,
}

impl Proxy {
    async fn before(server: SocketAddr, weather: Weather) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let changed = Arc::new(Notify::new());
        let (all, notify) = (Arc::clone(&connections), Arc::clone(&changed));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut connections = all.lock().unwrap();
                let number = connections.len();
                let carrying = carry(
                    client,
                    server,
                    weather,
                    number,
                    Arc::clone(&all),
                    Arc::clone(&notify),
                );
                connections.push(Connection {
                    said: Vec::new(),
                    is_left: false,
                    carrying: tokio::spawn(carrying),
                });
            }
        });
        Proxy {
            address,
            connections,
            changed,
            accepting,
        }
    }

    /// Cuts all present connections.
    fn cut(&self) {
        for connection in &*self.connections.lock().unwrap() {
            connection.carrying.abort();
        }
    }

    /// Waits until the client has closed a connection on which it sent this text.
    async fn left_by_client(&self, said: &str) {
        loop {
            let changed = self.changed.notified();
            let is_left = self.connections.lock().unwrap().iter().any(|connection| {
                let all = String::from_utf8_lossy(&connection.said);
                connection.is_left && all.contains(said)
            });
            if is_left {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    weather: Weather,
    number: usize,
    all: Arc<Mutex<Vec<Connection>>>,
    changed: Arc<Notify>,
) {
    let mut server = TcpStream::connect(server).await.expect("a server");
    let (mut up, mut down, mut held) = (vec![0; 4096], vec![0; 4096], Vec::new());
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let read = read.unwrap_or(0);
                if read == 0 {
                    all.lock().unwrap()[number].is_left = true;
                    break changed.notify_one();
                }
                all.lock().unwrap()[number].said.extend_from_slice(&up[..read]);
                let _ = server.write_all(&up[..read]).await;
            }
            read = server.read(&mut down) => {
                let read = read.unwrap_or(0);
                if read == 0 {
                    break;
                }
                held.extend_from_slice(&down[..read]);
                let has = |text: &[u8]| held.windows(text.len()).any(|it| it == text);
                let is_stream = has(b"text/event-stream") && has(b"chunked");
                match weather {
                    Weather::Buffered if is_stream && !held.ends_with(b"0\r\n\r\n") => {}
                    Weather::Crumbs => {
                        for crumb in held.chunks(3) {
                            let _ = client.write_all(crumb).await;
                            tokio::task::yield_now().await;
                        }
                        held.clear();
                    }
                    Weather::Buffered | Weather::Fair => {
                        let _ = client.write_all(&held).await;
                        held.clear();
                    }
                }
            }
        }
    }
}
