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

use crate::support::{ERAS, TestServer, config, echo, link, run_isolated};

#[test]
fn response_in_pieces_of_three_bytes_is_read_whole() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let proxy = Proxy::start(server.address, Mode::SmallPieces).await;
            let link = link(proxy.address, dialect);
            assert_eq!(echo(&link, "bit by bit").await, "bit by bit");
            let counted = link.call_tool("count", json!({})).await;
            assert_eq!(counted.expect("an answer").text(), "three");
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn call_succeeds_when_a_proxy_buffers_its_stream_until_the_end() {
    run_isolated(async || {
        for dialect in ERAS {
            let server = TestServer::start().await;
            let proxy = Proxy::start(server.address, Mode::Buffered).await;
            let link = link(proxy.address, dialect);
            let counted = link.call_tool("count", json!({})).await;
            assert_eq!(counted.expect("an answer").text(), "three");
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

#[test]
fn modern_call_with_a_cut_stream_fails_and_may_have_run() {
    run_isolated(async || {
        let mut server = TestServer::start().await;
        let proxy = Proxy::start(server.address, Mode::Unchanged).await;
        let link = link(proxy.address, Dialect::Modern);
        let call = link.call_tool("hold", json!({})).start();
        assert_eq!(server.tools.next_report().await, "hold");
        proxy.cut();
        let error = call.await.expect_err("it was cut");
        assert!(
            matches!(&error, CallError::Failed(failure) if failure.delivery == Delivery::Unknown),
            "{error}"
        );
        assert_eq!(server.tools.next_report().await, "unwanted");
        assert_eq!(echo(&link, "again").await, "again");
        link.shutdown().await.expect("it ends");
        server.stop().await;
    });
}

#[test]
fn legacy_call_with_a_cut_stream_continues_on_the_next_stream() {
    run_isolated(async || {
        let mut server = TestServer::start().await;
        let proxy = Proxy::start(server.address, Mode::Unchanged).await;
        let mut config = config(proxy.address, Dialect::Legacy);
        config.policy.call_idle = Limit::Never;
        let link = http::connect(config).expect("a runtime");
        let begun = Arc::new(Notify::new());
        let begun_notify = Arc::clone(&begun);
        let call = link.call_tool("hold", json!({}));
        let call = call.on_progress(move |_| begun_notify.notify_one());
        let call = tokio::spawn(call.start());
        assert_eq!(server.tools.next_report().await, "hold");
        begun.notified().await;
        proxy.cut();
        assert_eq!(echo(&link, "again").await, "again");
        server.tools.release.notify_one();
        let answer = call.await.expect("it ends").expect("an answer");
        assert_eq!(answer.text(), "held");
        link.shutdown().await.expect("it ends");
        server.stop().await;
    });
}

#[test]
fn cancelled_call_closes_its_connection_before_and_during_the_response() {
    run_isolated(async || {
        // Before its response began, and after.
        for tool in ["hang", "hold"] {
            let mut server = TestServer::start().await;
            let proxy = Proxy::start(server.address, Mode::Unchanged).await;
            let link = link(proxy.address, Dialect::Modern);
            let begun = Arc::new(Notify::new());
            let begun_notify = Arc::clone(&begun);
            let call = link.call_tool(tool, json!({}));
            let call = call.on_progress(move |_| begun_notify.notify_one()).start();
            let canceller = call.canceller();
            let call = tokio::spawn(call);
            assert_eq!(server.tools.next_report().await, tool);
            if tool == "hold" {
                begun.notified().await;
            }
            canceller.cancel("no longer wanted");
            call.await.expect("it ends").expect_err("it was cancelled");
            proxy.wait_until_closed_by_client(tool).await;
            assert_eq!(server.tools.next_report().await, "unwanted");
            link.shutdown().await.expect("it ends");
            server.stop().await;
        }
    });
}

/// How the proxy passes the server's bytes on.
#[derive(Clone, Copy)]
enum Mode {
    /// Holds event streams back until they end.
    Buffered,
    /// Passes on three bytes at a time.
    SmallPieces,
    /// Passes everything on unchanged.
    Unchanged,
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
    client_bytes: Vec<u8>,
    /// Whether the client closed it before the server did.
    is_closed_by_client: bool,
    task: JoinHandle<()>,
}

impl Proxy {
    async fn start(server: SocketAddr, mode: Mode) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let changed = Arc::new(Notify::new());
        let (all, notify) = (Arc::clone(&connections), Arc::clone(&changed));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut connections = all.lock().unwrap();
                let number = connections.len();
                let task = forward(
                    client,
                    server,
                    mode,
                    number,
                    Arc::clone(&all),
                    Arc::clone(&notify),
                );
                connections.push(Connection {
                    client_bytes: Vec::new(),
                    is_closed_by_client: false,
                    task: tokio::spawn(task),
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
            connection.task.abort();
        }
    }

    /// Waits until the client has closed a connection on which it sent this text.
    async fn wait_until_closed_by_client(&self, client_bytes: &str) {
        loop {
            let changed = self.changed.notified();
            let is_closed_by_client = self.connections.lock().unwrap().iter().any(|connection| {
                let all = String::from_utf8_lossy(&connection.client_bytes);
                connection.is_closed_by_client && all.contains(client_bytes)
            });
            if is_closed_by_client {
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

async fn forward(
    mut client: TcpStream,
    server: SocketAddr,
    mode: Mode,
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
                    all.lock().unwrap()[number].is_closed_by_client = true;
                    break changed.notify_one();
                }
                all.lock().unwrap()[number].client_bytes.extend_from_slice(&up[..read]);
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
                match mode {
                    Mode::Buffered if is_stream && !held.ends_with(b"0\r\n\r\n") => {}
                    Mode::SmallPieces => {
                        for piece in held.chunks(3) {
                            let _ = client.write_all(piece).await;
                            tokio::task::yield_now().await;
                        }
                        held.clear();
                    }
                    Mode::Buffered | Mode::Unchanged => {
                        let _ = client.write_all(&held).await;
                        held.clear();
                    }
                }
            }
        }
    }
}
